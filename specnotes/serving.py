"""A decode server in a few lines: requests arrive, share a batch, and each step takes what the roofline says.

Every running request moves on by one pass a step, plain or speculative. Reading prompts is left out, all
texts have the same context, and drafted tokens are accepted independently with probability alpha. What
remains is the question of the chapter: what a batch leaves of the gain.
"""

from collections import deque
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from specnotes import roofline, theory


def _check(condition, name, value, expected):
    if not condition:
        raise ValueError(f"{name}: {value!r}, expected {expected}")


def _count(name, value, least=1):
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    _check(whole and value >= least, name, value, f"an integer >= {least}")
    return int(value)


@dataclass(frozen=True)
class Server:
    """What serves: hardware, model and context as in `roofline.step`; gamma, alpha and c as in `theory`.

    gamma 0 is plain decode. c: a draft step / a plain step of the target, at the same batch. max_batch: how
    many requests run at once, the others wait.
    Raises ValueError as `roofline.step` and `theory.speedup` do, or for max_batch < 1.

    >>> Server("A100-80GB-SXM", "7B").pass_seconds(1) == roofline.step_seconds("A100-80GB-SXM", "7B", 1, 1, 0)
    True
    """

    hardware: roofline.Hardware | str
    model: roofline.ModelShape | str
    context: int = 0
    gamma: int = 0
    alpha: float = 0.0
    c: float = 0.0
    max_batch: int = 256

    def __post_init__(self):
        theory.speedup(self.alpha, self.gamma, self.c)
        _count("gamma", self.gamma, least=0)
        _count("max_batch", self.max_batch)
        self.pass_seconds(1)

    def pass_seconds(self, batch):
        """Seconds of one step of the server: gamma draft steps, and a pass over gamma + 1 positions of every text."""
        seconds = roofline.step_seconds(self.hardware, self.model, self.gamma + 1, batch, self.context)
        if not (self.gamma and self.c):
            return seconds
        return seconds + self.gamma * self.c * roofline.step_seconds(self.hardware, self.model, 1, batch, self.context)

    @cached_property
    def law(self):
        """Probability that a pass emits 1, 2, ..., gamma + 1 tokens of a text."""
        return theory.tokens_distribution(self.alpha, self.gamma)


def expected_passes(law, tokens):
    """How many passes a request of so many tokens takes on average; what the last pass emits too much is dropped.

    law: probability of emitting 1, 2, ... tokens in a pass. Raises ValueError for tokens not an integer >= 1, or
    a law that is no distribution.
    Source: passes(n) = 1 + sum over j of law(j) passes(n - j): the first pass, and what it leaves to do.

    >>> expected_passes([0.5, 0.5], 2)
    1.5
    """
    law, passes = list(law), [0.0]
    _check(all(share >= 0 for share in law) and abs(sum(law) - 1) < 1e-6, "law", law, "probabilities that sum to 1")
    for n in range(1, _count("tokens", tokens) + 1):
        passes.append(1 + sum(share * passes[n - j] for j, share in enumerate(law, start=1) if j < n))
    return passes[-1]


def constant_load(server, batch, tokens=None):
    """(tokens per second, seconds per token of one text) with always `batch` texts running: the closed form.

    tokens: tokens of a request; None for texts without end, whose passes emit `theory.expected_tokens` each.
    The quotient of two such throughputs is `roofline.speculation_speedup`.
    Raises ValueError as `roofline.step` does.

    >>> constant_load(Server("A100-80GB-SXM", "7B"), 4)[0] == 4 / roofline.step_seconds("A100-80GB-SXM", "7B", 1, 4, 0)
    True
    """
    each = theory.expected_tokens(server.alpha, server.gamma)
    if tokens is not None:
        each = tokens / expected_passes(server.law, tokens)
    seconds = server.pass_seconds(batch)
    return batch * each / seconds, seconds / each


@dataclass(frozen=True)
class Served:
    """What a run of the server did.

    tokens_per_s: tokens over the time from first arrival to last finish. seconds_per_token: from a request's
    start to its finish, over its tokens, averaged over requests; waiting_seconds: from arrival to start.
    mean_batch: running requests, averaged over the time that anything ran; busy: the share of that time.
    """

    tokens_per_s: float
    seconds_per_token: float
    waiting_seconds: float
    mean_batch: float
    busy: float


def arrivals(rate_per_s, requests, rng):
    """Times [requests] at which requests arrive: independent exponential gaps of mean 1 / rate.

    Raises ValueError for a rate that is no positive number, or requests not an integer >= 1.

    >>> bool((np.diff(arrivals(2.0, 5, np.random.default_rng(0))) > 0).all())
    True
    """
    positive = isinstance(rate_per_s, (int, float, np.number)) and not isinstance(rate_per_s, bool)
    _check(positive and 0 < rate_per_s < np.inf, "rate_per_s", rate_per_s, "a finite number > 0")
    with np.errstate(over="ignore"):
        times = np.cumsum(rng.exponential(1 / rate_per_s, size=_count("requests", requests)))
    _check(np.isfinite(times).all(), "rate_per_s", rate_per_s, "a rate at which all requests come in finite time")
    return times


def serve(server, times, tokens, rng):
    """Run the server on requests that arrive at `times` [n], each for `tokens` tokens: a Served.

    A request starts with the step after its arrival, if one of max_batch places is free, and leaves with
    the step that emits its last token. The same times and the same rng give the same run.
    Raises ValueError for tokens not an integer >= 1, or times that are no increasing finite numbers.

    >>> serve(Server("A100-80GB-SXM", "7B"), [0.0, 0.0], 10, np.random.default_rng(0)).mean_batch
    2.0
    """
    times, tokens = np.asarray(times, dtype=np.float64), _count("tokens", tokens)
    ordered = times.ndim == 1 and times.size and np.isfinite(times).all() and (np.diff(times) >= 0).all()
    _check(ordered, "times", times, "increasing finite numbers")
    times = times - times[0]  # the clock starts with the first arrival, so that no late one swallows the steps
    started, finished, steps = _run(server, times, tokens, rng)
    span, busy = finished.max(), sum(seconds for _, seconds in steps)
    return Served(
        tokens_per_s=len(times) * tokens / span,
        seconds_per_token=float(np.mean(finished - started)) / tokens,
        waiting_seconds=float(np.mean(started - times)),
        mean_batch=sum(batch * seconds for batch, seconds in steps) / busy,
        busy=busy / span,
    )


def _run(server, times, tokens, rng):
    """When each request started and finished, [n] and [n], and every step as (batch, seconds)."""
    cumulative = np.cumsum(server.law)[:-1]  # a uniform above the last of these emits gamma + 1 tokens
    pass_seconds, waiting = cache(server.pass_seconds), deque(range(len(times)))
    started, finished, steps = np.zeros(len(times)), np.zeros(len(times)), []
    running, left, now = np.zeros(0, int), np.zeros(0, int), 0.0  # [batch] requests, [batch] tokens still to come
    while waiting or len(running):
        if not len(running):
            now = max(now, times[waiting[0]])
        while waiting and times[waiting[0]] <= now and len(running) < server.max_batch:
            started[waiting[0]] = now
            running, left = np.append(running, waiting.popleft()), np.append(left, tokens)
        steps.append((len(running), pass_seconds(len(running))))
        now += steps[-1][1]
        left = left - 1 - np.searchsorted(cumulative, rng.random(len(running)), side="right")
        finished[running[left <= 0]] = now
        running, left = running[left > 0], left[left > 0]
    return started, finished, steps


def load_curve(server, rates_per_s, requests=200, tokens=100, seed=0):
    """A Served for every rate of arrival, [len(rates)]: the same requests, closer together.

    Servers that are compared with the same seed meet the same arrivals.
    Raises ValueError as `arrivals` and `serve` do.

    >>> [round(served.mean_batch) for served in load_curve(Server("A100-80GB-SXM", "7B"), [0.1, 10.0], requests=50)]
    [1, 6]
    """
    served = []
    for rate in rates_per_s:
        coming, emitting = np.random.default_rng(seed).spawn(2)
        served.append(serve(server, arrivals(rate, requests, coming), tokens, emitting))
    return served
