"""How long a decode step takes at least: bytes over bandwidth, or operations over peak, whichever is longer.

Hardware figures are dense half-precision peaks as public tables quote them from the vendors' data
sheets (read November 2026); the sheets themselves were not read. Sparse figures are twice as high.
"""

from dataclasses import dataclass
from numbers import Integral, Real


@dataclass(frozen=True)
class Hardware:
    """An accelerator: peak in FLOP/s (dense fp16 or bf16), memory bandwidth in bytes/s, memory in bytes."""

    peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    capacity_bytes: float

    @property
    def ridge(self):
        """Operations per byte at which reading and arithmetic take equally long."""
        return self.peak_flop_per_s / self.bandwidth_bytes_per_s


HARDWARE = {
    "A100-80GB-SXM": Hardware(312e12, 2039e9, 80e9),
    "H100-SXM": Hardware(989.4e12, 3350e9, 80e9),
    "H200": Hardware(989.4e12, 4800e9, 141e9),
    "L4": Hardware(121e12, 300e9, 24e9),
    "T4": Hardware(65e12, 320e9, 16e9),
    "L40S": Hardware(362.05e12, 864e9, 48e9),
    "B200": Hardware(2250e12, 8000e9, 192e9),
}


@dataclass(frozen=True)
class ModelShape:
    """A decoder: layers, width, heads, and how many weights it has.

    kv_width: width of one token's keys in a layer, the model's width unless heads share keys.
    bytes_per_weight counts for weights and for cached keys and values alike.
    """

    layers: int
    width: int
    heads: int
    parameters: int
    kv_width: int
    bytes_per_weight: float = 2

    @property
    def weight_bytes(self):
        """Bytes read for the weights in one step."""
        return self.parameters * self.bytes_per_weight

    @property
    def kv_bytes_per_token(self):
        """Bytes of keys and values that one token of the text leaves behind, in all layers."""
        return 2 * self.layers * self.kv_width * self.bytes_per_weight


def gpt2_shape(layers, width, heads, vocab_size=50257, context=1024):
    """The ModelShape of a GPT-2 with tied unembedding, its weights counted from its shape.

    Source: Radford et al. 2019, table 2, with the biases and norms counted; the sums equal the published checkpoints.

    >>> gpt2_shape(12, 768, 12).parameters
    124439808
    """
    parameters = (vocab_size + context) * width + layers * (12 * width * width + 13 * width) + 2 * width
    return ModelShape(layers, width, heads, parameters, kv_width=width)


MODELS = {
    "gpt2": gpt2_shape(12, 768, 12),
    "gpt2-medium": gpt2_shape(24, 1024, 16),
    "gpt2-large": gpt2_shape(36, 1280, 20),
    "gpt2-xl": gpt2_shape(48, 1600, 25),
    "distilgpt2": gpt2_shape(6, 768, 12),
    "7B": ModelShape(32, 4096, 32, 7_000_000_000, kv_width=4096),
    "13B": ModelShape(40, 5120, 40, 13_000_000_000, kv_width=5120),
    "70B": ModelShape(80, 8192, 64, 70_000_000_000, kv_width=1024),
}


def _number(name, value, least, integer=True):
    kind = Integral if integer else Real
    if isinstance(value, bool) or not isinstance(value, kind) or not least <= value < float("inf"):
        raise ValueError(f"{name}: {value!r}, expected {'an integer' if integer else 'a finite number'} >= {least}")
    return value


def _named(name, value, table, kind):
    if isinstance(value, kind):
        return value
    if not isinstance(value, str) or value not in table:
        raise ValueError(f"{name}: {value!r}, expected one of {', '.join(table)} or a {kind.__name__}")
    return table[value]


def roofline_seconds(flops, bytes, hardware):
    """The longer of bytes / bandwidth and flops / peak, in seconds: reading and arithmetic overlap perfectly.

    hardware: a Hardware or a name in HARDWARE.
    Raises ValueError for negative or infinite counts and unknown hardware.
    Source: Williams, Waterman and Patterson 2009, the roofline model.

    >>> roofline_seconds(flops=312e12, bytes=0, hardware="A100-80GB-SXM")
    1.0
    """
    hardware = _named("hardware", hardware, HARDWARE, Hardware)
    _number("flops", flops, 0, integer=False), _number("bytes", bytes, 0, integer=False)
    return max(flops / hardware.peak_flop_per_s, bytes / hardware.bandwidth_bytes_per_s)


@dataclass(frozen=True)
class Step:
    """Where the time of one step goes, in seconds, and whether weights and cache fit the memory."""

    weights_seconds: float
    kv_seconds: float
    compute_seconds: float
    fits: bool

    @property
    def memory_seconds(self):
        """Reading weights and cache."""
        return self.weights_seconds + self.kv_seconds

    @property
    def seconds(self):
        """The step: the longer of reading and arithmetic."""
        return max(self.memory_seconds, self.compute_seconds)

    @property
    def bound(self):
        """ "memory" or "compute", whichever takes longer."""
        return "memory" if self.memory_seconds >= self.compute_seconds else "compute"


def step(hardware, model, positions, batch, context):
    """One pass over `positions` new tokens of each of `batch` texts of `context` tokens: a Step.

    Weights are read once; each text's keys and values are read once. Operations: 2 per weight and
    position, and 4 * layers * width per position and token of context for attention.
    Raises ValueError for unknown names, positions or batch < 1, context < 0. A model that does not fit is
    no error: `fits` says so.

    >>> step("A100-80GB-SXM", "7B", positions=5, batch=1, context=0).bound
    'memory'
    """
    hardware, model = _named("hardware", hardware, HARDWARE, Hardware), _named("model", model, MODELS, ModelShape)
    _number("positions", positions, 1), _number("batch", batch, 1), _number("context", context, 0)
    kv_bytes = batch * context * model.kv_bytes_per_token
    flops = batch * positions * (2 * model.parameters + 4 * model.layers * model.width * context)
    return Step(
        weights_seconds=model.weight_bytes / hardware.bandwidth_bytes_per_s,
        kv_seconds=kv_bytes / hardware.bandwidth_bytes_per_s,
        compute_seconds=flops / hardware.peak_flop_per_s,
        fits=model.weight_bytes + kv_bytes <= hardware.capacity_bytes,
    )


def step_seconds(hardware, model, positions, batch, context):
    """Seconds of one pass by the roofline; arguments, errors and source as in `step`.

    >>> step_seconds("A100-80GB-SXM", "gpt2", 1, 1, 0) == 2 * 124_439_808 / 2039e9
    True
    """
    return step(hardware, model, positions, batch, context).seconds
