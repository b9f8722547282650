"""Two names to a Pair: the embedded models, folders as `transformers` writes them, or models on the hub."""

import re
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from specnotes.checkpoint import (
    ADDED, BPE, CONFIG, INDEX, TOKENIZER, WEIGHTS, check_files, check_sums, read_config, read_model, read_tokenizer,
    shard_names,
)
from specnotes.gpt2 import GPT2

ASSETS = Path(__file__).parent / "assets"
DTYPES = ("float32", "float64")
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)
LONGEST_HUB_NAME = 96


class Pair(NamedTuple):
    """A target, a draft and the tokenizer they share."""

    target: GPT2
    draft: GPT2
    tokenizer: Tokenizer


def load_pair(target=None, draft=None, dtype="float32"):
    """Load target and draft, each None (the embedded model), a folder that `transformers` wrote, or a name on the hub.

    A folder holds config.json; model.safetensors, or model.safetensors.index.json and the parts it lists; and
    tokenizer.json, or vocab.json with merges.txt. A SHA256SUMS file in it, or in the folder above, is
    checked. A name that is no folder, such as "gpt2-medium", is looked up on the Hugging Face hub (extra:
    hub), which keeps what it downloads in a cache of its own.
    dtype: "float32" or "float64", the precision of weights and activations.
    Raises ValueError for a folder, file or name that is missing, a hub that does not answer, another
    architecture, a file that is cut short or does not match its checksum, tensors that disagree with the
    config, different vocabularies of target and draft, another dtype. Nothing is returned unless everything
    loaded.

    >>> pair = load_pair()
    >>> pair.target.vocab_size == pair.draft.vocab_size == pair.tokenizer.get_vocab_size()
    True
    """
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"dtype: {dtype!r}, expected one of {', '.join(DTYPES)}")
    target_folder = _folder("target", target, ASSETS / "target")
    draft_folder = _folder("draft", draft, ASSETS / "draft")
    tokenizer = _check_alike(target_folder, draft_folder)
    return Pair(read_model(target_folder, dtype), read_model(draft_folder, dtype), tokenizer)


def _check_alike(target_folder, draft_folder):
    """The tokenizer of both folders, compared before any weight is read."""
    tokenizer, other = read_tokenizer(target_folder), read_tokenizer(draft_folder)
    if tokenizer.get_vocab() != other.get_vocab():
        raise ValueError(f"draft: its vocabulary of {other.get_vocab_size()} differs from the target's "
                         f"of {tokenizer.get_vocab_size()}, expected the same tokens with the same ids")
    wanted, found = read_config(target_folder).vocab_size, read_config(draft_folder).vocab_size
    if wanted != found:
        raise ValueError(f"draft: {found} logits, expected the target's {wanted}")
    return tokenizer


def _folder(argument, given, embedded):
    if given == "":
        raise ValueError(f"{argument}: empty, expected a folder or a name on the hub")
    try:
        # Resolved, so that a checksum file one folder up is found from "." and through links too.
        folder = embedded if given is None else Path(given).resolve()
        found = folder.is_dir()
        if folder.is_file():
            raise ValueError("it is a file")
    except (TypeError, OSError, ValueError) as error:
        raise ValueError(f"{argument}: {given!r} is no folder ({error})") from None
    try:
        folder = folder if found else fetch(given)
        check_files(folder)
        check_sums(folder)
    except ValueError as error:
        raise ValueError(f"{argument}: {error}") from error
    return folder


def fetch(name):
    """The folder, in the hub's own cache, that holds what a pair needs of the model `name`; downloaded if it is new.

    The config comes first, so that nothing large is fetched for another architecture. Without a network
    what was fetched before is found in the cache.
    Raises ValueError for a name that no model on the hub can have or has, a hub that does not answer,
    another architecture, or where huggingface_hub is not installed.
    """
    if not isinstance(name, str) or len(name) > LONGEST_HUB_NAME or not HUB_NAME.fullmatch(name):
        raise ValueError(f"no folder {str(name)!r}, expected a folder with a GPT-2 or a name on the hub such as 'gpt2'")
    folder = _download(name, None, [CONFIG, INDEX, TOKENIZER])
    read_config(folder)
    weights = shard_names(folder / INDEX) if (folder / INDEX).is_file() else [WEIGHTS]
    words = [] if (folder / TOKENIZER).is_file() else [*BPE, ADDED]
    # The cache names the folder after the commit: both downloads are of one version.
    return _download(name, folder.name, [*weights, *words])


def _download(name, revision, files):
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.utils import RepositoryNotFoundError
    except ImportError:
        raise ValueError(f"no folder {name!r}, and a name on the hub needs: pip install specnotes[hub]") from None
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=files))
    except RepositoryNotFoundError as error:
        raise ValueError(f"no folder {name!r}, and no public model of that name on the hub") from error
    except Exception as error:  # errors of the name, the network, the hub and the disk have no base in common
        raise ValueError(f"no folder {name!r}, and the hub gave nothing: {error}") from error
