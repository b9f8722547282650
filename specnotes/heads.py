"""Heads on a target's features: Medusa's, which look several tokens ahead, and EAGLE's, which guesses the next feature.

A feature is a target's hidden state after the last LayerNorm, [d], as `LanguageModel.forward` returns it.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from specnotes.checkpoint import CONFIG, WEIGHTS, check_sums, open_weights, read_config
from specnotes.gpt2 import GPT2, Affine, center, random_tensors
from specnotes.pair import ASSETS, DTYPES

KINDS = ("medusa", "eagle")


class MedusaHeads:
    """K heads that say, from one feature, what follows 1, 2, ..., K tokens after the target's own next token.

    Head k computes f + silu(f W + b) and unembeds it with a table of its own. blocks: K pairs (W [d, d], b [d]);
    tables: K arrays [V, d]. accuracy[k][r]: how often the r-th choice of head k is the target's token (of greedy
    text), where known. trees: {nodes: parents} of the best trees. Raises ValueError for shapes that do not agree.
    Source: Cai et al. 2024 (Medusa), section 2.1.1.

    >>> zero = np.zeros((2, 2)), np.zeros(2)
    >>> MedusaHeads([zero], [np.eye(2)]).logits(np.array([1.0, 3.0])).tolist()
    [[1.0, 3.0]]
    """

    def __init__(self, blocks, tables, accuracy=None, trees=None, dtype="float64"):
        self.blocks = [tuple(np.asarray(part, dtype) for part in block) for block in blocks]
        self.tables = [np.asarray(table, dtype) for table in tables]
        if not self.blocks or len(self.blocks) != len(self.tables):
            raise ValueError(f"tables: {len(self.tables)} for {len(self.blocks)} heads, expected one each, at least 1")
        self.vocab_size, self.width = self.tables[0].shape
        for (weight, bias), table in zip(self.blocks, self.tables):
            if (weight.shape, bias.shape, table.shape) != ((self.width,) * 2, (self.width,), self.tables[0].shape):
                raise ValueError(
                    f"blocks: {weight.shape} and {bias.shape} under a table {table.shape}, "
                    f"expected width {self.width} throughout"
                )
        self.accuracy, self.trees = accuracy, trees or {}

    def __len__(self):
        return len(self.blocks)

    def logits(self, feature):
        """What each head says after `feature` [d]: logits [K, V]."""
        rows = []
        for (weight, bias), table in zip(self.blocks, self.tables):
            inner = feature @ weight + bias  # [d]
            with np.errstate(over="ignore"):  # exp of a large number is inf, and inner / inf is the 0 it should be
                rows.append(table @ (feature + inner / (1 + np.exp(-inner))))
        return np.array(rows)

    def choices(self, feature, ranks):
        """The `ranks` likeliest tokens of each head after `feature` [d], best first: ids [K, ranks]."""
        return np.argsort(-self.logits(feature), axis=-1, kind="stable")[:, :ranks]


class EagleHead(GPT2):
    """One GPT-2 layer with a cache of its own: from feature t and token t + 1 to a guess of feature t + 1.

    Row t of the cache stands for that pair. The guess goes through the target's unembedding: logits of token t + 2.
    `mix` W [2d, d] and b [d] join the pair, W in halves: f W_1 + e W_2 + b. The second half meets only the target's
    V embeddings, so it becomes a table; what is left is a GPT-2 of one layer that is given f W_1 + b besides.
    config: the layer's, untied; tensors: "mix.weight", "mix.bias", and those of `config.shapes` with the target's
    embeddings and, as "lm_head.weight", its unembedding. Raises ValueError as GPT2 does.
    Source: Li et al. 2024 (EAGLE), section 3.1.

    >>> from specnotes.gpt2 import Config
    >>> head = EagleHead.random(Config(vocab_size=5, max_length=8, width=4, layers=1, heads=2, tied=False), seed=0)
    >>> head.forward([1, 2], features=np.zeros((2, 4))).logits.shape
    (2, 5)
    """

    def __init__(self, config, tensors, dtype="float32"):
        width = config.width
        for name, shape in (("mix.weight", (2 * width, width)), ("mix.bias", (width,))):
            found = tensors[name].shape if name in tensors else None
            if found != shape:
                raise ValueError(f"tensors: {name} has shape {found}, expected {shape}")
        weight = np.asarray(tensors["mix.weight"], np.float64)
        own = {name: tensors[name] for name in config.shapes if name in tensors}
        own["wte.weight"] = np.asarray(tensors["wte.weight"], np.float64) @ weight[width:]  # [V, d]
        super().__init__(config, own, dtype)
        joined = center(weight[:width]), center(np.asarray(tensors["mix.bias"], np.float64))
        self._join = Affine(*(part.astype(self.dtype) for part in joined))

    @classmethod
    def random(cls, config, seed, dtype="float32"):
        """A head that was never trained, for tests and timings; its target's embeddings are random too."""
        rng, width = np.random.default_rng([seed, 1]), config.width
        mix = {"mix.weight": rng.standard_normal((2 * width, width)) / width**0.5, "mix.bias": np.zeros(width)}
        return cls(config, {**random_tensors(config, seed), **mix}, dtype)

    def forward(self, tokens, parents=None, last_only=False, *, features):
        """Append a row for each pair of a token and the feature before it, [n] and [n, d]; otherwise as GPT2.forward.

        The Output's features are the guesses of the features at the tokens. Raises ValueError, leaving the cache as it
        was, for features of another shape, and as GPT2.forward does.
        """
        features = np.asarray(features, self.dtype)
        if features.shape != (len(tokens), self.config.width):
            raise ValueError(f"features: shape {features.shape}, expected {(len(tokens), self.config.width)}")
        self._given, self._first = self._join(features), self.length  # [n, d]
        return super().forward(tokens, parents, last_only)

    def _embed(self, tokens, start, end):
        return super()._embed(tokens, start, end) + self._given[start - self._first : end - self._first]  # [n, d]


def load_heads(kind, folder=None, target=None, dtype="float32"):
    """Load the "medusa" heads (MedusaHeads) or the "eagle" head (EagleHead) of a target.

    folder: where `python -m specnotes.train.heads` wrote them; None is the embedded ones. target: the folder of the
    target they belong to; None is the embedded target. dtype: "float32" or "float64".
    Raises ValueError for another kind or dtype, a file that is missing, cut short or does not match its checksum, heads
    that were trained on another target, tensors that do not fit.

    >>> len(load_heads("medusa")), load_heads("eagle").length
    (4, 0)
    """
    if kind not in KINDS:
        raise ValueError(f"kind: {kind!r}, expected one of {', '.join(KINDS)}")
    if dtype not in DTYPES:
        raise ValueError(f"dtype: {dtype!r}, expected one of {', '.join(DTYPES)}")
    if folder == "":
        raise ValueError("heads: empty, expected a folder")
    folder = ASSETS / "heads" / kind if folder is None else Path(folder).resolve()
    target = ASSETS / "target" if target is None else Path(target).resolve()
    check_sums(folder)
    settings, tensors = _read(folder)
    if settings.get("model_type") != f"specnotes-{kind}":
        raise ValueError(f"{folder / CONFIG}: model_type {settings.get('model_type')!r}, expected 'specnotes-{kind}'")
    if settings.get("target_sha256") != _digest(target / WEIGHTS):
        raise ValueError(f"target: {target} is not the one these {kind} heads were trained on, expected that one")
    try:
        return (_medusa if kind == "medusa" else _eagle)(settings, tensors, target, dtype)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        expected = f"expected what the training of {kind} heads writes"
        raise ValueError(f"heads: {folder}: {type(error).__name__} {error}; {expected}") from error


def _read(folder):
    """(the entries of config.json, {name: array} of the weights)."""
    try:
        settings = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        if not isinstance(settings, dict):
            raise ValueError(f"{CONFIG} holds no table of settings")
        return settings, load_file(folder / WEIGHTS)
    except (OSError, ValueError, RecursionError, SafetensorError) as error:
        raise ValueError(f"heads: {folder}: {error}") from error


def _digest(path):
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ValueError(f"target: {error}") from error


def _medusa(settings, tensors, target, dtype):
    count = settings["heads"]
    blocks = [(tensors[f"medusa.h.{k}.weight"], tensors[f"medusa.h.{k}.bias"]) for k in range(count)]
    trees = {int(nodes): parents for nodes, parents in settings["trees"].items()}
    whole, table = read_config(target), tensors["unembed.0"]
    if table.shape != (whole.vocab_size, whole.width):
        raise ValueError(f"unembed.0 has shape {table.shape}, expected the target's {(whole.vocab_size, whole.width)}")
    return MedusaHeads(blocks, [tensors[f"unembed.{k}"] for k in range(count)], settings["accuracy"], trees, dtype)


def _eagle(settings, tensors, target, dtype):
    whole = read_config(target)
    config = replace(whole, layers=1, heads=settings["heads"], tied=False)
    own = {name.removeprefix("eagle."): tensor for name, tensor in tensors.items()}
    with open_weights(target, whole) as weights:
        own |= {name: weights[name] for name in ("wte.weight", "wpe.weight")}
        own["lm_head.weight"] = weights["wte.weight" if whole.tied else "lm_head.weight"]
    return EagleHead(config, own, dtype)
