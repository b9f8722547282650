"""GPT-2 in NumPy with a cache: it reads chains and trees of tokens, and it forgets rows on demand.

Start reading at `GPT2.forward`: embed, then in each layer attention and a small network, then unembed.
In the comments d is the width, h the number of heads, n the new rows, m all rows so far, V the vocabulary.

Each weight matrix [inputs, outputs] is stored as blocks of columns, [outputs / 64, inputs, 64]. A product with
one to nine rows then takes little longer than with one row, because each block goes through BLAS's kernel
for small matrices; with the plain layout, checking four drafts would cost two decode steps.
"""

from dataclasses import dataclass
from numbers import Real

import numpy as np

from specnotes.language_model import Output

BLOCK = 64
PREFILL_ROWS = 128


@dataclass(frozen=True)
class Config:
    """The shape of a GPT-2: vocabulary V, context, width d, layers, heads.

    `tied` says that the unembedding is the embedding.
    Raises ValueError for a number below 1 or a width that the heads do not divide.

    >>> Config(vocab_size=50257, max_length=1024, width=768, layers=12, heads=12).parameters
    124439808
    """

    vocab_size: int
    max_length: int
    width: int
    layers: int
    heads: int
    tied: bool = True
    epsilon: float = 1e-5

    def __post_init__(self):
        for name in ("vocab_size", "max_length", "width", "layers", "heads"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}: {value!r}, expected an integer >= 1")
        if not isinstance(self.tied, bool):
            raise ValueError(f"tied: {self.tied!r}, expected True or False")
        if isinstance(self.epsilon, bool) or not isinstance(self.epsilon, Real) or not 0 < self.epsilon < 1:
            raise ValueError(f"epsilon: {self.epsilon!r}, expected a small positive number")
        if self.width % self.heads:
            raise ValueError(f"heads: {self.heads}, expected a divisor of the width {self.width}")

    @property
    def parameters(self):
        """Number of weights, (V + context) d + layers (12 d^2 + 13 d) + 2 d, and V d more for an untied head."""
        d, embeddings = self.width, self.vocab_size * (1 if self.tied else 2) + self.max_length
        return embeddings * d + self.layers * (12 * d * d + 13 * d) + 2 * d

    @property
    def shapes(self):
        """{tensor name: shape} under the names of `transformers`, without their common prefix."""
        d = self.width
        layer = {
            "ln_1.weight": (d,), "ln_1.bias": (d,), "attn.c_attn.weight": (d, 3 * d), "attn.c_attn.bias": (3 * d,),
            "attn.c_proj.weight": (d, d), "attn.c_proj.bias": (d,), "ln_2.weight": (d,), "ln_2.bias": (d,),
            "mlp.c_fc.weight": (d, 4 * d), "mlp.c_fc.bias": (4 * d,), "mlp.c_proj.weight": (4 * d, d),
            "mlp.c_proj.bias": (d,),
        }
        shapes = {"wte.weight": (self.vocab_size, d), "wpe.weight": (self.max_length, d)}
        shapes |= {f"h.{index}.{name}": shape for index in range(self.layers) for name, shape in layer.items()}
        shapes |= {"ln_f.weight": (d,), "ln_f.bias": (d,)}
        return shapes if self.tied else shapes | {"lm_head.weight": (self.vocab_size, d)}


def random_tensors(config, seed, scale=0.02):
    """{name: array} of a GPT-2 that was never trained: normal matrices of deviation `scale`, LayerNorms of 1 and 0.

    >>> random_tensors(Config(vocab_size=5, max_length=8, width=4, layers=1, heads=2), seed=0)["wte.weight"].shape
    (5, 4)
    """
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in config.shapes.items():
        fixed = np.ones(shape) if ".weight" in name else np.zeros(shape)
        tensors[name] = scale * rng.standard_normal(shape) if len(shape) == 2 else fixed
    return tensors


class Affine:
    """x W + b with W [inputs, outputs] stored as blocks of columns, [blocks, inputs, block].

    >>> Affine(np.eye(3), np.ones(3), np.float64)(np.array([[1.0, 2.0, 3.0]])).tolist()
    [[2.0, 3.0, 4.0]]
    """

    def __init__(self, weight, bias, dtype, block=BLOCK):
        inputs, outputs = weight.shape
        self.outputs, self.blocks = outputs, -(-outputs // block)
        padded = np.zeros((inputs, self.blocks * block), dtype)  # a last block that is not full ends in zeros
        padded[:, :outputs] = weight
        columns = padded.reshape(inputs, self.blocks, block)  # [inputs, outputs] -> [inputs, blocks, block]
        self.weight = np.ascontiguousarray(columns.transpose(1, 0, 2))  # [blocks, inputs, block]
        padded_bias = np.zeros(self.blocks * block, dtype)
        padded_bias[:outputs] = bias
        self.bias = padded_bias.reshape(self.blocks, 1, block)  # one row for all n

    def split(self, x):
        """The product by blocks: [n, inputs] -> [blocks, n, block]."""
        n = len(x)
        if n == 1:
            x = np.concatenate((x, x))  # with a single row NumPy would leave the kernel for small matrices
        y = np.matmul(x, self.weight)  # [n, inputs] @ [blocks, inputs, block] -> [blocks, n, block]
        y += self.bias
        return y[:, :n]

    def __call__(self, x):
        """The product: [n, inputs] -> [n, outputs]."""
        y = self.split(x)  # [blocks, n, block]
        return y.transpose(1, 0, 2).reshape(len(x), -1)[:, : self.outputs]


@dataclass(frozen=True)
class Layer:
    """The four products of one layer."""

    attend: Affine
    mix: Affine
    widen: Affine
    narrow: Affine


def make_layer(tensors, config, dtype):
    """One layer from its twelve tensors, with two folds that save passes over the data.

    LayerNorm's gain g and shift b move into the product that follows: (z g + b) W + c = z (g W) + (b W + c).
    Attention's 1 / sqrt(d / h) moves into the columns that make the queries.
    """
    t = {name: np.asarray(tensor, np.float64) for name, tensor in tensors.items()}
    head = config.width // config.heads
    scale = np.ones(3 * config.width)  # [3d]: queries, keys, values
    scale[: config.width] = head**-0.5
    qkv, qkv_bias = _fold(t["ln_1.weight"], t["ln_1.bias"], t["attn.c_attn.weight"], t["attn.c_attn.bias"])
    up, up_bias = _fold(t["ln_2.weight"], t["ln_2.bias"], t["mlp.c_fc.weight"], t["mlp.c_fc.bias"])
    return Layer(
        attend=Affine(qkv * scale, qkv_bias * scale, dtype, block=head),
        mix=Affine(t["attn.c_proj.weight"], t["attn.c_proj.bias"], dtype),
        widen=Affine(up, up_bias, dtype),
        narrow=Affine(t["mlp.c_proj.weight"], t["mlp.c_proj.bias"], dtype),
    )


def _fold(gain, shift, weight, bias):
    return gain[:, None] * weight, shift @ weight + bias  # [d, outputs], [outputs]


def normalize(x, epsilon):
    """LayerNorm without gain and shift: rows [n, d] of mean 0 and variance 1.

    Source: Ba et al. 2016, section 3.

    >>> normalize(np.array([[1.0, 3.0]]), 0.0).tolist()
    [[-1.0, 1.0]]
    """
    d = x.shape[-1]
    z = x - x.sum(axis=-1, keepdims=True) / d  # [n, d]
    variance = (z * z).sum(axis=-1, keepdims=True) / d  # [n, 1]
    z /= np.sqrt(variance + epsilon)
    return z


def gelu(x):
    """GPT-2's activation, x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), elementwise.

    Source: Hendrycks and Gimpel 2016, section 2.

    >>> gelu(np.array([0.0])).tolist()
    [0.0]
    """
    inner = x * x  # [n, 4d], and so for every line below: each works in place
    inner *= 0.044715 * (2 / np.pi) ** 0.5
    inner += (2 / np.pi) ** 0.5
    inner *= x
    np.tanh(inner, out=inner)
    inner += 1
    inner *= x
    inner *= 0.5
    return inner


def softmax(scores):
    """Softmax over the last axis of scores [h, n, m], in place.

    >>> softmax(np.array([[0.0, 0.0]])).tolist()
    [[0.5, 0.5]]
    """
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


class GPT2:
    """A LanguageModel: GPT-2 with a cache of keys and values, in float32 or float64.

    tensors: {name: array} with the shapes of `config.shapes`. The cache is allocated once. Beside keys and
    values each cache row has a position (its depth in the text) and a row of `visible`: which cache rows it
    may look at, itself and its ancestors. While the cache is one plain chain neither is needed.
    Raises ValueError for a missing tensor, one of another shape, or another dtype.
    Source: Radford et al. 2019, section 2.3.

    >>> model = GPT2.random(Config(vocab_size=5, max_length=8, width=4, layers=1, heads=2), seed=0)
    >>> model.forward([1, 2, 3]).logits.shape, model.length
    ((3, 5), 3)
    """

    def __init__(self, config, tensors, dtype="float32"):
        if np.dtype(dtype) not in (np.float32, np.float64):
            raise ValueError(f"dtype: {dtype}, expected float32 or float64")
        check_tensors(config, tensors)
        self.config, self.dtype = config, np.dtype(dtype)
        self.vocab_size, self.max_length = config.vocab_size, config.max_length
        self._load(tensors)
        self._allocate()

    @classmethod
    def random(cls, config, seed, dtype="float32"):
        """A model of this shape with random weights, for tests and timings."""
        return cls(config, random_tensors(config, seed), dtype)

    def _load(self, tensors):
        self._embedding = tensors["wte.weight"].astype(self.dtype)  # [V, d]
        self._places = tensors["wpe.weight"].astype(self.dtype)  # [max_length, d]
        names = [name.removeprefix("h.0.") for name in self.config.shapes if name.startswith("h.0.")]
        self._layers = [
            make_layer({name: tensors[f"h.{index}.{name}"] for name in names}, self.config, self.dtype)
            for index in range(self.config.layers)
        ]
        self._gain, self._shift = tensors["ln_f.weight"].astype(self.dtype), tensors["ln_f.bias"].astype(self.dtype)
        head = tensors["wte.weight" if self.config.tied else "lm_head.weight"]  # [V, d]
        self._unembed = Affine(head.T, 0.0, self.dtype)

    def _allocate(self):
        rows, heads = self.max_length, self.config.heads
        size = (self.config.layers, heads, rows, self.config.width // heads)
        self._keys, self._values = np.zeros(size, self.dtype), np.zeros(size, self.dtype)  # [layers, h, rows, d/h]
        self._index, self._past = np.arange(rows), np.tri(rows, dtype=bool)  # what a plain chain has in the next two
        self._position, self._visible = self._index.copy(), self._past.copy()  # [rows], [rows, rows]
        self._later = np.triu(np.full((PREFILL_ROWS, PREFILL_ROWS), -np.inf, self.dtype), 1)
        self._length = self._start = self._chain = 0

    @property
    def length(self):
        """Rows in the cache."""
        return self._length

    def forward(self, tokens, parents=None, last_only=False):
        """Append rows for `tokens` and return logits [n, V] and features [n, d]; see LanguageModel.

        The features are the hidden states after the last LayerNorm, which the unembedding reads.
        With last_only the logits are [1, V], those of the last token.
        """
        start = self._length
        tokens, parents = self._check(tokens, parents)
        n = len(tokens)
        self._place(start, start + n, parents)
        features = np.empty((n, self.config.width), self.dtype)  # [n, d]
        for first in range(0, n, PREFILL_ROWS):
            part = slice(first, min(first + PREFILL_ROWS, n))
            features[part] = self._hidden(tokens[part], start + part.start, start + part.stop)
        self._start, self._length = start, start + n
        logits = self._unembed(features[-1:] if last_only else features)  # [n, d] -> [n, V]
        return Output(logits, features)

    def _hidden(self, tokens, start, end):
        """Cache rows start..end: fill in their keys and values, return their last hidden states [n, d]."""
        mask = self._mask(start, end)
        x = self._embedding[tokens] + self._places[self._position[start:end]]  # [n] -> [n, d]
        for index, layer in enumerate(self._layers):
            x += self._attend(layer, index, normalize(x, self.config.epsilon), start, end, mask)  # [n, d]
            wide = gelu(layer.widen(normalize(x, self.config.epsilon)))  # [n, d] -> [n, 4d]
            x += layer.narrow(wide)  # [n, 4d] -> [n, d]
        return normalize(x, self.config.epsilon) * self._gain + self._shift  # [n, d]

    def _attend(self, layer, index, z, start, end, mask):
        heads = self.config.heads
        qkv = layer.attend.split(z)  # [n, d] -> [3h, n, d/h]
        self._keys[index, :, start:end] = qkv[heads : 2 * heads]
        self._values[index, :, start:end] = qkv[2 * heads :]
        keys, values = self._keys[index, :, :end], self._values[index, :, :end]  # [h, m, d/h]
        scores = np.matmul(qkv[:heads], keys.transpose(0, 2, 1))  # [h, n, d/h] @ [h, d/h, m] -> [h, n, m]
        if mask is not None:
            scores[:, :, -mask.shape[1] :] += mask  # [n, m], or [n, n] where all older rows are visible
        mixed = np.matmul(softmax(scores), values)  # [h, n, m] @ [h, m, d/h] -> [h, n, d/h]
        return layer.mix(mixed.transpose(1, 0, 2).reshape(len(z), -1))  # [n, d] -> [n, d]

    def _mask(self, start, end):
        """What new rows may not see as -inf, to be added to scores: None, [n, n] or [n, m]."""
        n = end - start
        if end <= self._chain:
            return None if n == 1 else self._later[:n, :n]
        return np.where(self._visible[start:end, :end], 0, -np.inf).astype(self.dtype)

    def _place(self, start, end, parents):
        """Position and visible rows of the new cache rows start..end."""
        if parents is None and self._chain == start:
            self._position[start:end], self._visible[start:end] = self._index[start:end], self._past[start:end]
            self._chain = end
            return
        for row, parent in zip(range(start, end), range(start - 1, end - 1) if parents is None else parents):
            self._position[row] = 0 if parent == -1 else self._position[parent] + 1
            self._visible[row] = False if parent == -1 else self._visible[parent]
            self._visible[row, row] = True
        self._measure_chain(end)

    def _measure_chain(self, length):
        """Count the leading rows whose position is their index: up to there each row follows the one before it."""
        strays = np.flatnonzero(self._position[:length] != self._index[:length])
        self._chain = int(strays[0]) if len(strays) else length

    def _check(self, tokens, parents):
        tokens, start = _integers("tokens", tokens), self._length
        if not tokens:
            raise ValueError("tokens: none given, expected at least one")
        if min(tokens) < 0 or max(tokens) >= self.vocab_size:
            bad = next(token for token in tokens if not 0 <= token < self.vocab_size)
            raise ValueError(f"tokens: token {bad} is not in the vocabulary, expected 0..{self.vocab_size - 1}")
        if start + len(tokens) > self.max_length:
            raise ValueError(f"tokens: {len(tokens)} on top of {start}, expected at most {self.max_length} in all")
        return np.array(tokens), None if parents is None else self._check_parents(parents, len(tokens))

    def _check_parents(self, parents, n):
        parents = _integers("parents", parents)
        if len(parents) != n:
            raise ValueError(f"parents: {len(parents)} given for {n} tokens, expected as many")
        for row, parent in enumerate(parents, self._length):
            if not -1 <= parent < row:
                raise ValueError(f"parents: {parent} at new row {row}, expected -1 or an earlier row")
        is_chain = parents == list(range(self._length - 1, self._length + n - 1))
        return None if is_chain else parents

    def rollback(self, length):
        """Forget every row from `length` on; see LanguageModel."""
        [length] = _integers("length", [length])
        if not 0 <= length <= self._length:
            raise ValueError(f"length: {length}, expected 0..{self._length}")
        self._length = length
        self._start, self._chain = min(self._start, length), min(self._chain, length)

    def keep(self, rows):
        """Keep only `rows` of the last forward, moved together; see LanguageModel. A row's parent must be kept too."""
        rows, start, length = _integers("rows", rows), self._start, self._length
        if rows != sorted(set(rows)) or any(not start <= row < length for row in rows):
            raise ValueError(f"rows: {rows}, expected increasing rows in {start}..{length - 1}")
        seen = self._visible[rows, start:length].any(axis=0)  # [length - start], every row a kept row may look at
        if seen.sum() != len(rows):
            raise ValueError(f"rows: {rows} leave out a parent, expected whole paths")
        self._move(rows, start, start + len(rows))
        self._length = start + len(rows)
        self._measure_chain(self._length)

    def _move(self, rows, start, end):
        if rows == list(range(start, end)):
            return
        self._keys[:, :, start:end] = self._keys[:, :, rows]
        self._values[:, :, start:end] = self._values[:, :, rows]
        self._position[start:end] = self._position[rows]
        self._visible[start:end, start:end] = self._visible[np.ix_(rows, rows)]
        self._visible[start:end, :start] = self._visible[rows, :start]


def _integers(name, values):
    """The values as Python ints; raises ValueError for anything else, truth values included."""
    values = list(values)
    for value in values:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            raise ValueError(f"{name}: {value!r}, expected integers")
    return [int(value) for value in values]


def check_tensors(config, tensors):
    """Raise ValueError unless `tensors` has every tensor of `config.shapes` in its shape."""
    for name, shape in config.shapes.items():
        if name not in tensors:
            raise ValueError(f"tensors: {name} is missing, expected one of shape {shape}")
        if tensors[name].shape != shape:
            raise ValueError(f"tensors: {name} has shape {tensors[name].shape}, expected {shape}")
