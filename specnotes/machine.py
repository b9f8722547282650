"""This machine on the roofline: its two constants by measurement, and what passes of a model cost on it.

The constants are the best of several tries: what the machine can do when nothing disturbs it. Costs keep
minimum and median; the calls that are compared take turns in a shuffled order, so that all of them meet
the same machine. How many threads NumPy uses is settled before it is imported, not here.
"""

import math
import time
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from specnotes import roofline


def _count(name, value, least=1):
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name}: {value!r}, expected an integer >= {least}")
    return int(value)


def _best_seconds(call, repeats):
    best = np.inf
    for _ in range(_count("repeats", repeats)):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best


def bandwidth_bytes_per_s(megabytes=512, repeats=5):
    """Bytes per second that a product reads from an array of this size: the best of several, float32.

    A dot product of its two halves and a product of a matrix with a vector are tried. 512 MB is more than
    most caches hold; with the size of a model's weights it is the rate at which those can be read.
    Raises ValueError for a size or repeats that are no integers >= 1.
    Source: as STREAM does it (McCalpin 1995), with the two products that a decode step is made of.

    >>> bandwidth_bytes_per_s(megabytes=1, repeats=1) > 0
    True
    """
    rows = 250 * _count("megabytes", megabytes)
    array = np.ones(rows * 1000, np.float32)  # [rows * 1000], 1000 numbers of 4 bytes to a row
    left, right = array.reshape(2, -1)
    matrix, vector = array.reshape(rows, 1000), np.ones(1000, np.float32)
    seconds = min(_best_seconds(lambda: left @ right, repeats), _best_seconds(lambda: matrix @ vector, repeats))
    return array.nbytes / seconds


def peak_flop_per_s(size=2048, repeats=5):
    """Operations per second of a product of two square float32 matrices: the best of several.

    Raises ValueError for a size or repeats that are no integers >= 1.
    Source: a product of two [n, n] matrices takes 2 n^3 operations.

    >>> peak_flop_per_s(size=64, repeats=1) > 0
    True
    """
    a = np.ones((_count("size", size), size), np.float32)
    return 2 * size**3 / _best_seconds(lambda: a @ a, repeats)


def this_machine(megabytes=512, size=2048, repeats=5, capacity_bytes=8e9):
    """A roofline.Hardware of this machine's measured constants; its memory is not measured, but given.

    Raises ValueError as the two measurements do.
    """
    peak, bandwidth = peak_flop_per_s(size, repeats), bandwidth_bytes_per_s(megabytes, repeats)
    return roofline.Hardware(peak, bandwidth, capacity_bytes, source="measured with NumPy, float32")


def taking_turns(calls, repeats, rng):
    """{name: {"minimum", "median"}} seconds of each call, in `repeats` rounds of shuffled order after one to warm up.

    calls: {name: function}.

    >>> list(taking_turns({"nothing": lambda: None}, 3, np.random.default_rng(0))["nothing"])
    ['minimum', 'median']
    """
    seconds, names = {name: [] for name in calls}, list(calls)
    for turn in range(_count("repeats", repeats) + 1):
        for index in rng.permutation(len(names)):
            begin = time.perf_counter()
            calls[names[index]]()
            spent = time.perf_counter() - begin
            if turn:
                seconds[names[index]].append(spent)
    return {name: {"minimum": min(values), "median": float(np.median(values))} for name, values in seconds.items()}


def _filled(model, context, most, rng):
    """The model with `context` random tokens in its cache and room for `most` more."""
    if _count("context", context) + most > model.max_length:
        raise ValueError(f"context: {context} and {most} new rows, expected at most {model.max_length} in all")
    model.rollback(0)
    model.forward(rng.integers(model.vocab_size, size=context).tolist(), last_only=True)


def position_cost(model, positions=range(1, 17), *, repeats=20, context=128, rng=None):
    """Seconds of one pass over k new positions, for every k: {k: {"minimum", "median"}}.

    model: a LanguageModel; its cache is left at `context` rows.
    Raises ValueError for a k that is no integer >= 1, or a context without room for the largest k.
    """
    rng = np.random.default_rng(0) if rng is None else rng
    positions = [_count("positions", k) for k in positions]
    _count("repeats", repeats)
    _filled(model, context, max(positions), rng)

    def a_pass(tokens):
        model.forward(tokens)
        model.rollback(context)

    drafts = {k: rng.integers(model.vocab_size, size=k).tolist() for k in positions}
    return taking_turns({k: lambda k=k: a_pass(drafts[k]) for k in positions}, repeats, rng)


def batch_cost(model, batches=(1, 2, 4, 8, 16), *, repeats=20, context=128, rng=None):
    """Seconds to move b texts on by one token, for every b: {b: {"one_by_one": cost, "stacked": cost}}.

    one_by_one: b passes over one position. stacked: one pass whose b rows all follow the same text and do
    not see each other, as drafted siblings do not. The engine keeps one text, so this is a batch whose
    texts share their beginning: its weights are read once for all, and so are its keys and values, which in
    a batch of different texts would be read for each.
    model: a LanguageModel; its cache is left at `context` rows.
    Raises ValueError for a b that is no integer >= 1, or a context without room for the largest b.
    """
    rng = np.random.default_rng(0) if rng is None else rng
    batches = [_count("batches", b) for b in batches]
    _count("repeats", repeats)
    _filled(model, context, max(batches), rng)
    tokens = rng.integers(model.vocab_size, size=max(batches)).tolist()

    def one_by_one(b):
        for token in tokens[:b]:
            model.forward([token])
            model.rollback(context)

    def stacked(b):
        model.forward(tokens[:b], parents=[context - 1] * b)
        model.rollback(context)

    calls = {(b, how.__name__): lambda b=b, how=how: how(b) for b in batches for how in (one_by_one, stacked)}
    costs = taking_turns(calls, repeats, rng)
    return {b: {how: costs[b, how] for how in ("one_by_one", "stacked")} for b in batches}


@dataclass(frozen=True)
class Fit:
    """The roofline with an overhead of base_seconds + k * position_seconds, and how far measured passes are from it.

    predicted: {k: seconds}; deviation: {k: measured / predicted - 1}.
    """

    base_seconds: float
    position_seconds: float
    predicted: dict
    deviation: dict

    @property
    def worst(self):
        """The largest deviation, without its sign."""
        return max(map(abs, self.deviation.values()))


def fit_overhead(hardware, shape, seconds, context):
    """What the roofline leaves out, as a line through the first and the last k; the others test it: a Fit.

    seconds: {k: measured seconds of a pass over k positions}, two or more. The overhead is negative where
    the machine is faster than its two constants, for instance because a cache holds the weights.
    Raises ValueError for fewer than two k, seconds that are no finite positive numbers, and as `roofline.step` does.

    >>> card, shape = roofline.Hardware(1e12, 1e9, 1e9), roofline.ModelShape(1, 1, 1, 1000, 1)
    >>> round(fit_overhead(card, shape, {1: 3e-6, 2: 4e-6, 3: 5e-6}, 0).worst, 12)
    0.0
    """
    ks = sorted(seconds)
    if len(ks) < 2:
        raise ValueError(f"seconds: {len(ks)} measured, expected two or more")
    for k in ks:
        if not 0 < seconds[k] < math.inf:
            raise ValueError(f"seconds: {seconds[k]!r} for k = {k}, expected a finite number > 0")
    roof = {k: roofline.step_seconds(hardware, shape, k, 1, context) for k in ks}
    first, last = ks[0], ks[-1]
    slope = ((seconds[last] - roof[last]) - (seconds[first] - roof[first])) / (last - first)
    base = seconds[first] - roof[first] - slope * first
    predicted = {k: roof[k] + base + slope * k for k in ks}
    return Fit(base, slope, predicted, {k: seconds[k] / predicted[k] - 1 for k in ks})
