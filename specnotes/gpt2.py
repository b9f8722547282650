"""GPT-2 in NumPy with a cache: it reads chains and trees of tokens, and it forgets rows on demand.

Start reading at `GPT2.forward`: embed, then in each layer attention and a small network, then unembed.
In the comments d is the width, h the number of heads, n the new rows, m all rows so far, V the vocabulary.

What makes it fast: a product with few rows is cut along its inner dimension (`Affine`), so that checking four
drafts takes little longer than one decode step; constant factors are folded into the weights (`make_layer`);
and all weights lie in one piece of memory (`Arena`).
"""

from dataclasses import dataclass
from numbers import Real

import numpy as np

from specnotes.language_model import Output

PREFILL_ROWS = 128
LARGE_PAGE = 2**21  # bytes
SMALL_PRODUCT = 10**6  # multiply-adds: below, OpenBLAS has a kernel that reads the weights as they lie
SLICE_ROWS = 256  # most rows of W in one slice, and for matrices of more than LARGE entries, which come from memory:
LARGE, LARGE_SLICE_ROWS, LARGE_SLICE = 2**19, 64, 147_456  # most rows, most entries of a slice
PADDED = {3: 4, 7: 8}  # rows that the kernel computes more slowly than one row more
FEW_ROWS = 24  # from here on one ordinary product is faster
WIDEST = 3072  # columns of one piece of the unembedding


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


class Arena:
    """One piece of memory that holds many arrays, each at a multiple of 64 bytes.

    NumPy asks the system for large pages from 4 MiB on, and they begin at multiples of 2 MiB, so the arena does too.
    Large pages save a quarter of the time of a decode step. Raises ValueError when it is full.

    >>> Arena(16, np.float64).place(np.eye(2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    def __init__(self, size, dtype):
        itemsize = np.dtype(dtype).itemsize
        self._line, page = 64 // itemsize, LARGE_PAGE // itemsize
        memory = np.empty(max(size, page) + page, dtype)
        skip = -memory.ctypes.data // itemsize % page
        self._memory, self._used = memory[skip : skip + size], 0

    def place(self, array):
        """A copy of the array inside the arena."""
        begin, end = self._used, self._used + array.size
        if end > len(self._memory):
            raise ValueError(f"array: {array.size} entries, expected at most {len(self._memory) - begin}")
        self._used += -(-array.size // self._line) * self._line
        copy = self._memory[begin:end].reshape(array.shape)
        copy[...] = array
        return copy


class Affine:
    """x W + b with W [inputs, outputs], quick for a few rows of x as well as for one and for many.

    A product with 2 to 23 rows is cut along its inner dimension into slices small enough for BLAS's
    small-matrix kernel, and the partial products are summed. The slices are views of the one W. In one ordinary
    product BLAS would first copy W into another order, and four rows would cost more than twice one row.

    >>> Affine(np.eye(3), np.ones(3))(np.array([[1.0, 2.0, 3.0]])).tolist()
    [[2.0, 3.0, 4.0]]
    """

    def __init__(self, weight, bias):
        self.weight, self.bias = weight, bias
        inputs, outputs = weight.shape
        sizes = {n: slice_size(n, inputs, outputs) for n in range(2, FEW_ROWS)}
        self._slices = {n: weight.reshape(-1, size, outputs) for n, size in sizes.items() if size < inputs}

    def use_plain_product(self):
        """Compute x W in one piece from now on, whatever the number of rows."""
        self._slices = {}

    def __call__(self, x):
        """The product: [n, inputs] -> [n, outputs]."""
        n = len(x)
        if n in PADDED and self._slices:
            x = np.concatenate((x, x[: PADDED[n] - n]))
        slices = self._slices.get(len(x))
        if slices is None:
            y = x @ self.weight
        else:
            parts = x.reshape(len(x), -1, slices.shape[1]).transpose(1, 0, 2)  # [n, inputs] -> [slices, n, size]
            y = np.add.reduce(np.matmul(parts, slices), axis=0)  # [slices, n, outputs] -> [n, outputs]
        y += self.bias
        return y[:n]


def slice_size(rows, inputs, outputs):
    """The largest divisor of `inputs` that keeps a product of `rows` rows small; `inputs` itself where none does.

    >>> slice_size(4, 768, 3072), slice_size(4, 256, 512), slice_size(4, 7, 200_000)
    (48, 256, 7)
    """
    most = min(SLICE_ROWS, SMALL_PRODUCT // (rows * outputs))
    if inputs * outputs > LARGE:
        most = min(most, LARGE_SLICE_ROWS, LARGE_SLICE // outputs)
    return max((size for size in range(2, most + 1) if inputs % size == 0), default=inputs)


@dataclass(frozen=True)
class Layer:
    """The four products of one layer."""

    attend: Affine
    mix: Affine
    widen: Affine
    narrow: Affine


def make_layer(tensors, config, place):
    """One layer from its twelve tensors, with four folds that save passes over the data.

    LayerNorm's gain g, shift b and factor sqrt(d) move into the product that follows:
    (sqrt(d) z g + b) W + c = z (sqrt(d) g W) + (b W + c).
    Attention's 1 / sqrt(d / h) moves into the columns that make the queries.
    GELU's constants move into the products around it, see `gelu`.
    What mix and narrow add to the hidden states has its mean taken out, so that LayerNorm finds it gone: `center`.
    """
    t = {name: np.asarray(tensor, np.float64) for name, tensor in tensors.items()}
    scale = np.ones(3 * config.width)  # [3d]: queries, keys, values
    scale[: config.width] = (config.width // config.heads) ** -0.5
    qkv = _fold(t["ln_1.weight"], t["ln_1.bias"], t["attn.c_attn.weight"], t["attn.c_attn.bias"])
    up = _fold(t["ln_2.weight"], t["ln_2.bias"], t["mlp.c_fc.weight"], t["mlp.c_fc.bias"])
    products = {
        "attend": [part * scale for part in qkv],
        "mix": [center(t["attn.c_proj.weight"]), center(t["attn.c_proj.bias"])],
        "widen": [part * GELU_INNER for part in up],
        "narrow": [center(t["mlp.c_proj.weight"]) / (2 * GELU_INNER), center(t["mlp.c_proj.bias"])],
    }
    return Layer(**{name: Affine(place(weight), place(bias)) for name, (weight, bias) in products.items()})


def _fold(gain, shift, weight, bias):
    return len(gain) ** 0.5 * gain[:, None] * weight, shift @ weight + bias  # [d, outputs], [outputs]


def center(x):
    """Rows [..., d] less their means. LayerNorm would subtract the mean anyway, so nothing it returns changes.

    >>> center(np.array([1.0, 3.0])).tolist()
    [-1.0, 1.0]
    """
    return x - x.mean(axis=-1, keepdims=True)


def normalize(x, epsilon):
    """LayerNorm without gain and shift, less a factor sqrt(d), for rows [n, d] of mean 0: their length becomes 1.

    The variance of such a row is its squared length over d; the factor sqrt(d) is in the weights of the next product.
    Source: Ba et al. 2016, section 3.

    >>> normalize(np.array([[-3.0, 4.0]]), 0.0).tolist()
    [[-0.6, 0.8]]
    """
    length = np.add.reduce(x * x, axis=-1, keepdims=True)  # [n, 1], squared
    length += epsilon * x.shape[-1]
    return x / np.sqrt(length, out=length)


GELU_INNER = (2 / np.pi) ** 0.5


def gelu(y):
    """GPT-2's activation with its constants folded away: y = sqrt(2 / pi) x to sqrt(8 / pi) gelu(x), elementwise.

    gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), and the argument of tanh is
    y (1 + 0.044715 pi / 2 y^2). Source: Hendrycks and Gimpel 2016, section 2.

    >>> gelu(np.array([0.0])).tolist()
    [0.0]
    """
    inner = y * y  # [n, 4d], and so for every line below: each works in place
    inner *= 0.044715 * np.pi / 2
    inner += 1
    inner *= y
    np.tanh(inner, out=inner)
    inner += 1
    inner *= y
    return inner


def softmax(scores):
    """Softmax over the last axis of scores [h, n, m], in place.

    >>> softmax(np.array([[0.0, 0.0]])).tolist()
    [[0.5, 0.5]]
    """
    scores -= np.maximum.reduce(scores, axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= np.add.reduce(scores, axis=-1, keepdims=True)
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

    def use_plain_products(self):
        """Compute every product in one piece from now on, as `x @ W`: what the slices are worth shows without them."""
        for layer in self._layers:
            for product in (layer.attend, layer.mix, layer.widen, layer.narrow):
                product.use_plain_product()
        for head in self._heads:
            head.use_plain_product()

    def _load(self, tensors):
        arena = Arena(self._entries(), self.dtype)
        place = arena.place
        self._embedding = place(center(tensors["wte.weight"].astype(np.float64)))  # [V, d]
        self._places = place(center(tensors["wpe.weight"].astype(np.float64)))  # [max_length, d]
        names = [name.removeprefix("h.0.") for name in self.config.shapes if name.startswith("h.0.")]
        self._layers = [
            make_layer({name: tensors[f"h.{index}.{name}"] for name in names}, self.config, place)
            for index in range(self.config.layers)
        ]
        self._gain = place(self.config.width**0.5 * tensors["ln_f.weight"].astype(np.float64))  # [d]
        self._shift = place(tensors["ln_f.bias"])  # [d]
        head = tensors["wte.weight" if self.config.tied else "lm_head.weight"].T  # [d, V]
        starts = range(0, self.vocab_size, WIDEST)
        self._heads = [Affine(place(head[:, start : start + WIDEST]), 0.0) for start in starts]  # [d, <= WIDEST] each

    def _entries(self):
        """Room for every weight, and for a second embedding where one table serves both ends."""
        sizes = [int(np.prod(shape)) for shape in self.config.shapes.values()]
        again = self.vocab_size * self.config.width if self.config.tied else 0
        return sum(sizes) + again + 16 * (len(sizes) + self.vocab_size // WIDEST + 1)

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
        cuts = range(0, n, PREFILL_ROWS)
        parts = [self._hidden(tokens[i : i + PREFILL_ROWS], start + i, start + min(i + PREFILL_ROWS, n)) for i in cuts]
        features = parts[0] if n <= PREFILL_ROWS else np.concatenate(parts)  # [n, d]
        self._start, self._length = start, start + n
        logits = self._unembed(features[-1:] if last_only else features)
        return Output(logits, features)

    def _hidden(self, tokens, start, end):
        """Cache rows start..end: fill in their keys and values, return their last hidden states [n, d]."""
        mask = self._mask(start, end)
        x = self._embed(tokens, start, end)
        for index, layer in enumerate(self._layers):
            x += self._attend(layer, index, normalize(x, self.config.epsilon), start, end, mask)  # [n, d]
            wide = gelu(layer.widen(normalize(x, self.config.epsilon)))  # [n, d] -> [n, 4d]
            x += layer.narrow(wide)  # [n, 4d] -> [n, d]
        return normalize(x, self.config.epsilon) * self._gain + self._shift  # [n, d]

    def _embed(self, tokens, start, end):
        return self._embedding[tokens] + self._places[self._position[start:end]]  # [n] -> [n, d]

    def _unembed(self, features):
        parts = [head(features) for head in self._heads]  # [n, d] -> [n, <= WIDEST] each
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)  # [n, V]

    def _attend(self, layer, index, z, start, end, mask):
        n, heads = len(z), self.config.heads
        qkv = layer.attend(z).reshape(n, 3, heads, -1).transpose(1, 2, 0, 3)  # [n, 3d] -> [3, h, n, d/h]
        self._keys[index, :, start:end], self._values[index, :, start:end] = qkv[1], qkv[2]
        keys, values = self._keys[index, :, :end], self._values[index, :, :end]  # [h, m, d/h]
        scores = np.matmul(qkv[0], keys.transpose(0, 2, 1))  # [h, n, d/h] @ [h, d/h, m] -> [h, n, m]
        if mask is not None:
            scores[:, :, -mask.shape[1] :] += mask  # [n, m], or [n, n] where all older rows are visible
        mixed = np.matmul(softmax(scores), values)  # [h, n, m] @ [h, m, d/h] -> [h, n, d/h]
        return layer.mix(mixed.transpose(1, 0, 2).reshape(n, -1))  # [n, d] -> [n, d]

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
        if length <= self._chain and rows == list(range(start, start + len(rows))) and len(rows) <= length - start:
            self._length = self._chain = start + len(rows)  # the beginning of a chain: nothing moves
            return
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
