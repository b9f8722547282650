"""How long a decode step takes at least: bytes over bandwidth, or operations over peak, whichever is longer.

From it: how many positions cost what one costs, the batch at which that ends, and what speculation gains
as users and texts grow. Hardware figures are dense peaks as public tables quote them from the vendors'
data sheets (read November 2026); the sheets themselves were not read. Sparse figures are twice as high.
"""

from dataclasses import dataclass, replace
from math import floor, inf
from numbers import Integral, Real

from specnotes import theory

LARGEST = 1e18  # what no count here reaches, and floats can still tell apart from infinity when multiplied


def _number(name, value, least, integer=True):
    kind = Integral if integer else Real
    if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= LARGEST:
        kind = "an integer" if integer else "a number"
        raise ValueError(f"{name}: {value!r}, expected {kind} in {least}..{LARGEST:.0e}")
    return value


def _positive(name, value):
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value < inf:
        raise ValueError(f"{name}: {value!r}, expected a finite number > 0")
    return value


def _share(name, value):
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value <= 1:
        raise ValueError(f"{name}: {value!r}, expected a number in (0, 1]")
    return value


@dataclass(frozen=True)
class Hardware:
    """An accelerator: peak in FLOP/s (dense fp16 or bf16), memory bandwidth in bytes/s, memory in bytes.

    eight_bit_flop_per_s: the dense peak for 8-bit products, fp8 where the card has it and int8 otherwise.
    source: where the numbers come from, and when. Raises ValueError for a number that is not positive.
    """

    peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    capacity_bytes: float
    eight_bit_flop_per_s: float | None = None
    source: str = ""

    def __post_init__(self):
        for name in ("peak_flop_per_s", "bandwidth_bytes_per_s", "capacity_bytes"):
            _positive(name, getattr(self, name))
        if self.eight_bit_flop_per_s is not None:
            _positive("eight_bit_flop_per_s", self.eight_bit_flop_per_s)

    @property
    def ridge(self):
        """Operations per byte at which reading and arithmetic take equally long."""
        return self.peak_flop_per_s / self.bandwidth_bytes_per_s

    def derated(self, memory_efficiency=1.0, compute_efficiency=1.0):
        """The same card at these shares of its bandwidth and of its peak, each in (0, 1].

        Raises ValueError for a share outside (0, 1].

        >>> HARDWARE["H200"].derated(memory_efficiency=0.5).bandwidth_bytes_per_s
        2400000000000.0
        """
        return replace(
            self,
            peak_flop_per_s=self.peak_flop_per_s * _share("compute_efficiency", compute_efficiency),
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s * _share("memory_efficiency", memory_efficiency),
        )

    def at_8_bits(self):
        """The same card with its 8-bit peak in the place of its half-precision peak.

        Raises ValueError where none is known.

        >>> HARDWARE["A100-80GB-SXM"].at_8_bits().ridge == 2 * HARDWARE["A100-80GB-SXM"].ridge
        True
        """
        if self.eight_bit_flop_per_s is None:
            raise ValueError("eight_bit_flop_per_s: None, expected a card whose 8-bit peak is known")
        return replace(self, peak_flop_per_s=self.eight_bit_flop_per_s)


def _card(peak, bandwidth, capacity, eight_bit, note=""):
    source = "NVIDIA data sheet as quoted in public tables, read November 2026"
    return Hardware(peak, bandwidth, capacity, eight_bit, f"{source}{'; ' if note else ''}{note}")


HARDWARE = {
    "A100-80GB-SXM": _card(312e12, 2039e9, 80e9, 624e12, "8 bits are int8; the PCIe card reads 1935e9 bytes/s"),
    "H100-SXM": _card(989.4e12, 3350e9, 80e9, 1979e12, "1979e12 is also its sparse half-precision figure"),
    "H200": _card(989.4e12, 4800e9, 141e9, 1979e12),
    "L4": _card(121e12, 300e9, 24e9, 242e12),
    "T4": _card(65e12, 320e9, 16e9, 130e12, "8 bits are int8; some tables say 300e9 bytes/s"),
    "L40S": _card(362.05e12, 864e9, 48e9, 733e12),
    "B200": _card(2250e12, 8000e9, 192e9, 4500e12, "systems of eight are often quoted at 7700e9 bytes/s"),
}


@dataclass(frozen=True)
class ModelShape:
    """A decoder: layers, width, heads, and how many weights it has.

    kv_width: width of one token's keys in a layer, the model's width unless heads share keys.
    bytes_per_weight counts for weights and for cached keys and values alike. vocab_size is None where it
    does not matter. Raises ValueError for a number that is not positive, or counts that are not integers.
    """

    layers: int
    width: int
    heads: int
    parameters: int
    kv_width: int
    bytes_per_weight: float = 2
    vocab_size: int | None = None

    def __post_init__(self):
        for name in ("layers", "width", "heads", "parameters", "kv_width"):
            _number(name, getattr(self, name), 1)
        _positive("bytes_per_weight", self.bytes_per_weight)
        if self.vocab_size is not None:
            _number("vocab_size", self.vocab_size, 1)

    @property
    def kv_heads(self):
        """Heads that have keys and values of their own."""
        return self.heads * self.kv_width // self.width

    @property
    def weight_bytes(self):
        """Bytes read for the weights in one step."""
        return self.parameters * self.bytes_per_weight

    @property
    def kv_bytes_per_token(self):
        """Bytes of keys and values that one token of the text leaves behind, in all layers."""
        return 2 * self.layers * self.kv_width * self.bytes_per_weight


def gpt2_shape(layers, width, heads, vocab_size=50257, context=1024, bytes_per_weight=2):
    """The ModelShape of a GPT-2 with tied unembedding, its weights counted from its shape.

    context: positions it has embeddings for. Raises ValueError for counts that are not integers >= 1.
    Source: Radford et al. 2019, table 2, with the biases and norms counted; the sums equal the published checkpoints.

    >>> gpt2_shape(12, 768, 12).parameters
    124439808
    """
    for name, count in {"layers": layers, "width": width, "vocab_size": vocab_size, "context": context}.items():
        _number(name, count, 1)
    parameters = (vocab_size + context) * width + layers * (12 * width * width + 13 * width) + 2 * width
    return ModelShape(layers, width, heads, parameters, width, bytes_per_weight, vocab_size)


MODELS = {
    "gpt2": gpt2_shape(12, 768, 12),
    "gpt2-medium": gpt2_shape(24, 1024, 16),
    "gpt2-large": gpt2_shape(36, 1280, 20),
    "gpt2-xl": gpt2_shape(48, 1600, 25),
    "distilgpt2": gpt2_shape(6, 768, 12),
    "7B": ModelShape(32, 4096, 32, 7_000_000_000, kv_width=4096, vocab_size=32000),
    "Llama-3.1-8B": ModelShape(32, 4096, 32, 8_030_261_248, kv_width=1024, vocab_size=128256),
    "13B": ModelShape(40, 5120, 40, 13_000_000_000, kv_width=5120, vocab_size=32000),
    "70B": ModelShape(80, 8192, 64, 70_000_000_000, kv_width=1024, vocab_size=32000),
}


def _named(name, value, table, kind):
    if isinstance(value, kind):
        return value
    if not isinstance(value, str) or value not in table:
        raise ValueError(f"{name}: {value!r}, expected one of {', '.join(table)} or a {kind.__name__}")
    return table[value]


def _both(hardware, model):
    return _named("hardware", hardware, HARDWARE, Hardware), _named("model", model, MODELS, ModelShape)


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
    """One pass: its operations and bytes, where its seconds go, and whether weights and cache fit the memory."""

    flops: float
    bytes: float
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

    @property
    def intensity(self):
        """Arithmetic intensity: operations per byte read."""
        return self.flops / self.bytes

    @property
    def flop_per_s(self):
        """Operations per second that the pass reaches."""
        return self.flops / self.seconds


def _flops_per_position(model, context, count_attention):
    return 2 * model.parameters + (4 * model.layers * model.width * context if count_attention else 0)


def step(hardware, model, positions, batch, context, *, memory_efficiency=1.0, compute_efficiency=1.0,
         count_attention=True):
    """One pass over `positions` new tokens of each of `batch` texts of `context` tokens: a Step.

    Weights are read once; each text's keys and values are read once. Operations: 2 per weight and
    position, and 4 * layers * width per position and token of context for attention, unless
    count_attention is False. The efficiencies are the shares of bandwidth and peak that are reached.
    Raises ValueError for unknown names, positions or batch < 1, context < 0, efficiencies outside (0, 1].
    A model that does not fit is no error: `fits` says so.

    >>> step("A100-80GB-SXM", "7B", positions=5, batch=1, context=0).bound
    'memory'
    """
    hardware, model = _both(hardware, model)
    hardware = hardware.derated(memory_efficiency, compute_efficiency)
    _number("positions", positions, 1), _number("batch", batch, 1), _number("context", context, 0)
    kv_bytes = batch * context * model.kv_bytes_per_token
    flops = batch * positions * _flops_per_position(model, context, count_attention)
    return Step(
        flops=flops,
        bytes=model.weight_bytes + kv_bytes,
        weights_seconds=model.weight_bytes / hardware.bandwidth_bytes_per_s,
        kv_seconds=kv_bytes / hardware.bandwidth_bytes_per_s,
        compute_seconds=flops / hardware.peak_flop_per_s,
        fits=model.weight_bytes + kv_bytes <= hardware.capacity_bytes,
    )


def step_seconds(hardware, model, positions, batch, context, **options):
    """Seconds of one pass by the roofline; arguments, options, errors and source as in `step`.

    >>> step_seconds("A100-80GB-SXM", "gpt2", 1, 1, 0) == 2 * 124_439_808 / 2039e9
    True
    """
    return step(hardware, model, positions, batch, context, **options).seconds


def free_positions(hardware, model, batch=1, context=0, **options):
    """How many positions each text may score in a pass that takes no longer than over one: an integer >= 1.

    The largest k with reading still at least as long as arithmetic; 1 where one position is past that already.
    Raises ValueError as `step` does; options as there.

    >>> free_positions("A100-80GB-SXM", "gpt2")
    153
    """
    one = step(hardware, model, 1, batch, context, **options)
    # The quotient may be off by one rounding, so the pass itself decides.
    most = max(1, floor(one.memory_seconds / one.compute_seconds) + 1)
    while most > 1 and step(hardware, model, most, batch, context, **options).bound == "compute":
        most -= 1
    return most


def crossover_batch(hardware, model, positions, context=0, *, count_attention=True):
    """The batch at which reading and arithmetic take equally long, a float; inf where no batch is large enough.

    Every text adds arithmetic and, through its keys and values, reading; where it adds more reading the
    pass stays memory-bound whatever the batch.
    Raises ValueError as `step` does. Source: the two sides of `step` set equal.

    >>> round(crossover_batch("A100-80GB-SXM", "7B", positions=5), 1)
    30.6
    """
    hardware, model = _both(hardware, model)
    _number("positions", positions, 1), _number("context", context, 0)
    arithmetic = positions * _flops_per_position(model, context, count_attention) / hardware.peak_flop_per_s
    reading = context * model.kv_bytes_per_token / hardware.bandwidth_bytes_per_s
    gained = arithmetic - reading
    return model.weight_bytes / hardware.bandwidth_bytes_per_s / gained if gained > 0 else inf


def memory_bound_context(hardware, model, positions, *, count_attention=True):
    """The context, in tokens, beyond which no batch makes a pass compute-bound: a float, inf where there is none.

    Raises ValueError as `step` does. Source: the context at which `crossover_batch` leaves every bound.

    >>> round(memory_bound_context("A100-80GB-SXM", "7B", positions=5), 1)
    902.0
    """
    hardware, model = _both(hardware, model)
    _number("positions", positions, 1)
    arithmetic = positions * _flops_per_position(model, 0, count_attention) / hardware.peak_flop_per_s
    attention = positions * (_flops_per_position(model, 1, count_attention) - 2 * model.parameters)
    gained = model.kv_bytes_per_token / hardware.bandwidth_bytes_per_s - attention / hardware.peak_flop_per_s
    return arithmetic / gained if gained > 0 else inf


def speculation_speedup(hardware, model, alpha, gamma, batch, context, *, c=0.0, draft=None, **options):
    """How many times faster than plain decode a batch is served when every text drafts gamma tokens.

    expected_tokens(alpha, gamma) * t(1) / (drafting + t(gamma + 1)), all at this batch and context: the
    positions that one text verifies compete with the other texts' for the arithmetic. Drafting takes
    gamma * c * t(1), or gamma steps of `draft`, a ModelShape or a name, which then replaces c.
    While gamma + 1 positions are free it is `theory.speedup`.
    Raises ValueError as `theory.speedup` and `step` do, and where both c and draft are given.
    Source: Leviathan et al. 2023, Theorem 3.8, with the verifying pass at its own cost.

    >>> speculation_speedup("A100-80GB-SXM", "7B", alpha=0.5, gamma=2, batch=1, context=0, c=0.25)
    1.1666666666666667
    """
    tokens = theory.expected_tokens(alpha, gamma)
    if draft is not None and c != 0:
        raise ValueError(f"c: {c!r} beside a draft model, expected one of the two")
    plain = step_seconds(hardware, model, 1, batch, context, **options)
    verify = step_seconds(hardware, model, int(gamma) + 1, batch, context, **options)
    if draft is None:
        return tokens / (gamma * _number("c", c, 0, integer=False) + verify / plain)
    drafting = gamma * step_seconds(hardware, _named("draft", draft, MODELS, ModelShape), 1, batch, context, **options)
    return tokens * plain / (drafting + verify)
