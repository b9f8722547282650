"""One folder as `transformers` writes it: its config, its weights in one file or several, its tokenizer."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from specnotes.gpt2 import GPT2, Config

CHECKSUMS = "SHA256SUMS"
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
TOKENIZER, BPE, ADDED = "tokenizer.json", ("vocab.json", "merges.txt"), "added_tokens.json"
ENDOFTEXT = "<|endoftext|>"
FLOATS = ("F16", "F32", "F64", "BF16")


def check_files(folder):
    """Raise ValueError unless `folder` has a config, weights in safetensors and a tokenizer."""
    folder = Path(folder)
    has = lambda *names: all((folder / name).is_file() for name in names)
    missing = [] if has(CONFIG) else [CONFIG]
    if not (has(WEIGHTS) or has(INDEX)):
        other = sorted(path.name for path in folder.glob("*.bin"))
        missing.append(f"{WEIGHTS} or {INDEX}" + (f" (it has {other[0]}, which is not read)" if other else ""))
    if not (has(TOKENIZER) or has(*BPE)):
        missing.append(f"{TOKENIZER} or {' with '.join(BPE)}")
    if missing:
        raise ValueError(f"{folder} lacks {', and '.join(missing)}; expected a GPT-2 as `transformers` saves it")


def check_sums(folder):
    """Raise ValueError when a file of `folder` differs from a SHA256SUMS beside it or one folder up."""
    folder = Path(folder)
    for base in (folder, folder.parent):
        for name, expected in _sums(base / CHECKSUMS).items():
            path = base / name
            if path.parent == folder:
                found = _digest(path) if path.is_file() else "missing"
                if found != expected:
                    raise ValueError(f"{path}: SHA-256 {found}, expected {expected} as in {CHECKSUMS}")


def _sums(path):
    if not path.is_file():
        return {}
    pairs = [line.split(maxsplit=1) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"{path}: a line without a digest or a name, expected both in each")
    return {name.lstrip("*"): digest for digest, name in pairs}


def _digest(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_config(folder):
    """The Config that config.json describes.

    Raises ValueError for a file that is not JSON, another architecture or activation, or a missing entry.
    """
    path = Path(folder) / CONFIG
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


def shard_names(index):
    """The names of the weight files that the index file `index` lists, in order.

    Raises ValueError for a file that is not such an index, or a name that leads out of the folder.
    """
    return sorted(set(_weight_map(Path(index)).values()))


def _weight_map(path):
    """{tensor name: file name} of an index file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        names = list(found.values())
    except (KeyError, ValueError, AttributeError, TypeError, RecursionError, OSError) as error:
        raise ValueError(f"{path}: no weight_map ({error!r}), expected a list of tensors and their files") from error
    for name in names:
        if not isinstance(name, str) or not name.endswith(".safetensors") or Path(name).name != name:
            raise ValueError(f"{path}: {name!r}, expected the name of a .safetensors file in the same folder")
    if not names:
        raise ValueError(f"{path}: an empty weight_map, expected tensors and their files")
    return found


class Weights(Mapping):
    """{name: array}, each array read from its file when it is asked for, so that no second copy of a model is held."""

    def __init__(self, places):
        self._places = places

    def __contains__(self, name):
        return name in self._places

    def __iter__(self):
        return iter(self._places)

    def __len__(self):
        return len(self._places)

    def __getitem__(self, name):
        path, file, stored = self._places[name]
        try:
            kind = file.get_slice(stored).get_dtype()
            return _bfloat16(path, stored) if kind == "BF16" else file.get_tensor(stored)
        except (SafetensorError, ValueError, TypeError, OSError) as error:
            raise ValueError(f"{path}: {stored}: {error}") from error


def _bfloat16(path, name):
    """A tensor in bfloat16, which NumPy lacks, as float32: the same bits with sixteen zeros after them."""
    with open(path, "rb") as file:
        header = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(header))[name]
        first, end = entry["data_offsets"]
        file.seek(8 + header + first)
        bits = np.frombuffer(file.read(end - first), "<u2")
    return (bits.astype(np.uint32) << 16).view(np.float32).reshape(entry["shape"])


@contextmanager
def open_weights(folder, config):
    """The Weights that `config` asks for, with or without the files' `transformer.` prefix, while the files are open.

    Raises ValueError for a file that is missing or cut short, an index that names a tensor no file has, or a
    tensor that is missing, misshapen or of integers.
    """
    folder = Path(folder)
    with ExitStack() as stack:
        if (folder / WEIGHTS).is_file():
            places = _tensors(stack, folder / WEIGHTS)
        else:
            places = _sharded(stack, folder)
        places = {name.removeprefix("transformer."): place for name, place in places.items()}
        for name, shape in config.shapes.items():
            _check_tensor(folder, places, name, shape)
        if config.tied and "lm_head.weight" in places:
            _check_tied(folder, Weights(places))
        yield Weights({name: places[name] for name in config.shapes})


def _tensors(stack, path):
    """{name: (path, open file, name)} of one file."""
    try:
        file = stack.enter_context(safe_open(path, framework="numpy"))
        return {name: (path, file, name) for name in file.keys()}
    except (SafetensorError, ValueError, OSError) as error:
        raise ValueError(f"{path}: {error}") from error


def _sharded(stack, folder):
    index = folder / INDEX
    weight_map = _weight_map(index)
    missing = [name for name in shard_names(index) if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"{folder} lacks {', '.join(missing)}, expected every file that {INDEX} lists")
    shards = {name: _tensors(stack, folder / name) for name in shard_names(index)}
    for name, shard in weight_map.items():
        if name not in shards[shard]:
            raise ValueError(f"{index}: {name} is not in {shard}, expected every tensor in the file listed for it")
    return {name: shards[shard][name] for name, shard in weight_map.items()}


def _check_tensor(folder, places, name, shape):
    if name not in places:
        raise ValueError(f"{folder}: no tensor {name}, expected one of shape {shape}")
    path, file, stored = places[name]
    part = file.get_slice(stored)
    if tuple(part.get_shape()) != shape:
        raise ValueError(f"{path}: {name} has shape {tuple(part.get_shape())}, expected {shape} as in {CONFIG}")
    if part.get_dtype() not in FLOATS:
        raise ValueError(f"{path}: {name} holds {part.get_dtype()}, expected one of {', '.join(FLOATS)}")


def _check_tied(folder, weights):
    # Versions of `transformers` disagree about which of two different tensors such a model reads.
    if not np.array_equal(weights["lm_head.weight"], weights["wte.weight"]):
        raise ValueError(f"{folder}: lm_head.weight differs from wte.weight, expected tie_word_embeddings false")


def read_tokenizer(folder):
    """The tokenizer of tokenizer.json, or the byte-level BPE of vocab.json and merges.txt where there is none.

    Raises ValueError when the files are not those of a tokenizer.
    """
    path = Path(folder) / TOKENIZER
    try:
        tokenizer = Tokenizer.from_file(str(path)) if path.is_file() else _byte_level(Path(folder))
    except Exception as error:  # the library raises plain Exception
        source = path if path.is_file() else f"{folder}: {', '.join((*BPE, ADDED))}"
        raise ValueError(f"{source}: {error}, expected a tokenizer of the tokenizers library") from error
    # A prompt is never cut or filled up, whatever the file was saved with.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _byte_level(folder):
    """GPT-2's byte-level BPE from vocab.json and merges.txt, and added_tokens.json where tokens were added later."""
    tokenizer = Tokenizer(models.BPE.from_file(*(str(folder / name) for name in BPE)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if tokenizer.token_to_id(ENDOFTEXT) is not None:
        tokenizer.add_special_tokens([AddedToken(ENDOFTEXT, normalized=False)])
    added = folder / ADDED
    later = json.loads(added.read_text(encoding="utf-8")) if added.is_file() else {}
    for token, expected in sorted(later.items(), key=lambda entry: entry[1]):
        tokenizer.add_tokens([token])
        if tokenizer.token_to_id(token) != expected:
            raise ValueError(f"{token!r} would get id {tokenizer.token_to_id(token)}, expected {expected!r}")
    return tokenizer


def read_model(folder, dtype="float32"):
    """The GPT2 in `folder`, its weights read one tensor at a time.

    dtype: "float32" or "float64". Raises ValueError as `load_pair` says.
    """
    config = read_config(folder)
    with open_weights(folder, config) as weights:
        return GPT2(config, weights, dtype)
