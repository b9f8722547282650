"""Files to models: the embedded pair, or folders as `transformers` writes them."""

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from specnotes.gpt2 import GPT2, Config

ASSETS = Path(__file__).parent / "assets"
CHECKSUMS = "SHA256SUMS"
FILES = ("config.json", "model.safetensors", "tokenizer.json")
DTYPES = ("float32", "float64")


class Pair(NamedTuple):
    """A target, a draft and the tokenizer they share."""

    target: GPT2
    draft: GPT2
    tokenizer: Tokenizer


def load_pair(target=None, draft=None, dtype="float32"):
    """Load target and draft, each None (the embedded model) or a folder as `transformers` writes it.

    A folder holds config.json, model.safetensors and tokenizer.json; a SHA256SUMS file in it, or in the
    folder above, is checked. dtype: "float32" or "float64", the precision of weights and activations.
    Raises ValueError for a folder or file that is missing, another architecture, a file that is cut
    short or does not match its checksum, tensors that disagree with the config, different vocabularies
    of target and draft, another dtype. Nothing is returned unless everything loaded.

    >>> pair = load_pair()
    >>> pair.target.vocab_size == pair.draft.vocab_size == pair.tokenizer.get_vocab_size()
    True
    """
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"dtype: {dtype!r}, expected one of {', '.join(DTYPES)}")
    target_folder = _folder("target", target, ASSETS / "target")
    draft_folder = _folder("draft", draft, ASSETS / "draft")
    tokenizer, other = read_tokenizer(target_folder), read_tokenizer(draft_folder)
    if tokenizer.get_vocab() != other.get_vocab():
        raise ValueError(f"draft: its vocabulary of {other.get_vocab_size()} differs from the target's "
                         f"of {tokenizer.get_vocab_size()}, expected the same tokens with the same ids")
    models = [read_model(folder, dtype) for folder in (target_folder, draft_folder)]
    if models[0].vocab_size != models[1].vocab_size:
        raise ValueError(f"draft: {models[1].vocab_size} logits, expected the target's {models[0].vocab_size}")
    return Pair(*models, tokenizer)


def _folder(name, given, embedded):
    try:
        # Resolved, so that a checksum file one folder up is found from "." and through links too.
        folder = embedded if given is None else Path(given).resolve()
        found = folder.is_dir()
    except (TypeError, OSError, ValueError) as error:
        raise ValueError(f"{name}: {given!r} is no folder ({error})") from None
    if not found:
        raise ValueError(f"{name}: no folder {str(given)!r}, expected one that holds {', '.join(FILES)}")
    missing = [file for file in FILES if not (folder / file).is_file()]
    if missing:
        raise ValueError(f"{name}: {folder} lacks {', '.join(missing)}, expected {', '.join(FILES)}")
    check_sums(folder)
    return folder


def check_sums(folder):
    """Raise ValueError when a file of `folder` differs from a SHA256SUMS beside it or one folder up."""
    folder = Path(folder)
    for base in (folder, folder.parent):
        for name, expected in _sums(base / CHECKSUMS).items():
            path = base / name
            if path.parent == folder:
                found = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"
                if found != expected:
                    raise ValueError(f"{path}: SHA-256 {found}, expected {expected} as in {CHECKSUMS}")


def _sums(path):
    if not path.is_file():
        return {}
    pairs = [line.split(maxsplit=1) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return {name.lstrip("*"): digest for digest, name in pairs}


def read_config(folder):
    """The Config that config.json describes.

    Raises ValueError for a file that is not JSON, another architecture or activation, or a missing entry.
    """
    path = Path(folder) / "config.json"
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        if entries.get("model_type") != "gpt2":
            raise ValueError(f"model_type {entries.get('model_type')!r}, expected 'gpt2'")
        if entries.get("activation_function", "gelu_new") != "gelu_new":
            raise ValueError(f"activation_function {entries['activation_function']!r}, expected 'gelu_new'")
        _refuse_variants(entries)
        return Config(
            entries["vocab_size"], entries["n_positions"], entries["n_embd"], entries["n_layer"], entries["n_head"],
            entries.get("tie_word_embeddings", True), entries.get("layer_norm_epsilon", 1e-5),
        )
    except KeyError as error:
        raise ValueError(f"{path}: no entry {error}, expected the config of a GPT-2") from error
    except (ValueError, AttributeError, TypeError, RecursionError, OSError) as error:
        raise ValueError(f"{path}: {error}") from error


def _refuse_variants(entries):
    """Raise ValueError for options of `transformers` that change the arithmetic."""
    usual = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}
    for name, value in usual.items():
        if entries.get(name, value) != value:
            raise ValueError(f"{name} {entries[name]!r}, expected {value!r}")
    if entries.get("n_inner") not in (None, 4 * entries["n_embd"]):
        raise ValueError(f"n_inner {entries['n_inner']}, expected 4 * n_embd = {4 * entries['n_embd']}")


def read_tensors(folder, config):
    """{name: array} of the tensors that `config` asks for, with or without the file's `transformer.` prefix.

    Raises ValueError for a file that cannot be read to its end, or a tensor that is missing or misshapen.
    """
    path = Path(folder) / "model.safetensors"
    try:
        with safe_open(path, framework="numpy") as file:
            names = {name.removeprefix("transformer."): name for name in file.keys()}
            return {name: _tensor(file, names, name, shape) for name, shape in config.shapes.items()}
    except (SafetensorError, ValueError, TypeError, OSError) as error:
        raise ValueError(f"{path}: {error}") from error


def _tensor(file, names, name, shape):
    if name not in names:
        raise ValueError(f"no tensor {name}, expected one of shape {shape}")
    found = tuple(file.get_slice(names[name]).get_shape())
    if found != shape:
        raise ValueError(f"{name} has shape {found}, expected {shape} as in config.json")
    return file.get_tensor(names[name])


def read_tokenizer(folder):
    """The tokenizer of tokenizer.json. Raises ValueError when the file is not one."""
    path = Path(folder) / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
        # A prompt is never cut or filled up, whatever the file was saved with.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer
    except Exception as error:  # the library raises plain Exception
        raise ValueError(f"{path}: {error}, expected a tokenizer of the tokenizers library") from error


def read_model(folder, dtype="float32"):
    """The GPT2 in `folder`. Raises ValueError as `load_pair` says."""
    config = read_config(folder)
    return GPT2(config, read_tensors(folder, config), dtype)
