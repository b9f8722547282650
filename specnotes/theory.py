"""Closed forms: how many tokens a pass yields, and when that pays.

Every function takes floats or Fractions and returns the same kind. Geometric sums are added up term
by term rather than written as a quotient: the quotient (1 - alpha^(gamma+1)) / (1 - alpha) loses its
digits near alpha = 1 and is 0/0 at it, the sum does not.
"""

from numbers import Rational, Real

import numpy as np

TIE = 1e-12  # in floats, a gain below this is rounding, not a better gamma


def _check_unit(name, value):
    if not isinstance(value, Real) or not 0 <= value <= 1:
        raise ValueError(f"{name}: {value!r}, expected a number in [0, 1]")
    return value


def _check_count(name, value, least=0):
    if not isinstance(value, Real) or isinstance(value, bool) or value % 1 != 0 or value < least:
        raise ValueError(f"{name}: {value!r}, expected an integer >= {least}")
    return int(value)


def _check_cost(name, value):
    if not isinstance(value, Real) or not 0 <= value < float("inf"):
        raise ValueError(f"{name}: {value!r}, expected a finite number >= 0")
    return value


def expected_tokens(alpha, gamma):
    """Tokens per target pass: 1 + alpha + ... + alpha^gamma = (1 - alpha^(gamma+1)) / (1 - alpha).

    alpha: acceptance probability, the same at every position, independently. gamma: drafted tokens.
    The target's own token counts, so the value lies in 1..gamma+1.
    Raises ValueError for alpha outside [0, 1] or gamma not an integer >= 0.
    Source: Leviathan et al. 2023, Equation 1.

    >>> expected_tokens(0.5, 2)
    1.75
    """
    _check_unit("alpha", alpha)
    total = 1
    for _ in range(_check_count("gamma", gamma)):
        total = 1 + alpha * total
    return total


def tokens_distribution(alpha, gamma):
    """Probability of emitting n tokens in a pass, for n = 1..gamma+1: a geometric law cut off at gamma+1.

    Returns a list of gamma+1 probabilities: alpha^(n-1) (1 - alpha) up to gamma, then alpha^gamma.
    Raises ValueError as `expected_tokens` does. Source: Leviathan et al. 2023, section 3.1.

    >>> tokens_distribution(0.5, 2)
    [0.5, 0.25, 0.25]
    """
    _check_unit("alpha", alpha)
    gamma = _check_count("gamma", gamma)
    return [alpha**n * (1 - alpha) for n in range(gamma)] + [alpha**gamma]


def tokens_variance(alpha, gamma):
    """Variance of the tokens a pass emits: sum of (2n+1) alpha^n for n = 0..gamma, less the squared mean.

    Raises ValueError as `expected_tokens` does.
    Source: E[N^2] = sum of (2n+1) P(N > n), with the law of `tokens_distribution`.

    >>> tokens_variance(0.5, 2)
    0.6875
    """
    mean, gamma = expected_tokens(alpha, gamma), _check_count("gamma", gamma)
    return sum((2 * n + 1) * alpha**n for n in range(gamma + 1)) - mean * mean


def markov_tokens(P, Q, gamma):
    """Tokens per pass of a Markov pair from each state [V]: sum over j = 0..gamma of M^j 1, with M = min(P, Q).

    P, Q: [V, V] transition tables of target and draft; row s is the law after token s. Where the rows
    are all alike this is `expected_tokens` of their one acceptance probability.
    Raises ValueError for tables of different or no square shape, or gamma not an integer >= 0.
    Source: P(first j accepted) is a sum over paths of products of min(p, q); Leviathan's Equation 1 is its
    special case.

    >>> markov_tokens([[0.5, 0.5], [0.5, 0.5]], [[1.0, 0.0], [1.0, 0.0]], 2).tolist()
    [1.75, 1.75]
    """
    P, Q = np.asarray(P), np.asarray(Q)
    if P.shape != Q.shape or P.ndim != 2 or P.shape[0] != P.shape[1]:
        raise ValueError(f"P, Q: shapes {P.shape} and {Q.shape}, expected one square shape [V, V]")
    for name, table in (("P", P), ("Q", Q)):
        for state, row in enumerate(table.tolist()):
            if not (all(isinstance(x, Real) and x >= 0 for x in row) and abs(sum(row) - 1) <= 1e-6):
                raise ValueError(f"{name}: row {state} is {row}, expected a distribution")
    shared = np.minimum(P, Q)
    total = np.ones(len(P), dtype=int)
    for _ in range(_check_count("gamma", gamma)):
        total = 1 + shared @ total
    return total


def speedup(alpha, gamma, c):
    """How many times faster than plain decode: expected_tokens(alpha, gamma) / (gamma c + 1).

    c: time of one draft step / time of one target step. Assumes that a target pass over gamma+1
    positions costs what a pass over one costs.
    Raises ValueError as `expected_tokens` does, or for c < 0. Source: Leviathan et al. 2023, Theorem 3.8.

    >>> speedup(0.5, 1, 0.25)
    1.2
    """
    return expected_tokens(alpha, gamma) / (_check_count("gamma", gamma) * _check_cost("c", c) + 1)


def best_gamma(alpha, c, max_gamma=16):
    """The draft length in 0..max_gamma with the largest speed-up, and that speed-up.

    gamma = 0 is plain decode, speed-up 1. The smallest gamma wins a tie: exactly with Fractions, and
    with floats when the gain is below 1e-12.
    Raises ValueError as `speedup` does. Source: Leviathan et al. 2023, section 3.5.

    >>> best_gamma(0.5, 0.2)
    (1, 1.25)
    """
    best = (0, speedup(alpha, 0, c))
    for gamma in range(1, _check_count("max_gamma", max_gamma) + 1):
        gain = speedup(alpha, gamma, c)
        if gain - best[1] > (0 if isinstance(gain, Rational) else TIE):
            best = (gamma, gain)
    return best


def operations(alpha, gamma, c_hat):
    """Arithmetic spent per token, relative to plain decode: (gamma c_hat + gamma + 1) / expected_tokens.

    c_hat: arithmetic operations of the draft / of the target, per token. Speculation buys time with work.
    Raises ValueError as `expected_tokens` does, or for c_hat < 0. Source: Leviathan et al. 2023, Theorem 3.11.

    >>> operations(0.5, 1, 0.25)
    1.5
    """
    gamma = _check_count("gamma", gamma)
    return (gamma * _check_cost("c_hat", c_hat) + gamma + 1) / expected_tokens(alpha, gamma)


def break_even_c(alpha, gamma):
    """The draft cost c at which speculation with this gamma neither gains nor loses.

    It solves speedup(alpha, gamma, c) = 1: (expected_tokens - 1) / gamma. It is alpha at gamma = 1
    and falls as gamma grows.
    Raises ValueError as `expected_tokens` does, or for gamma = 0, where every c breaks even.
    Source: Leviathan et al. 2023, Corollary 3.9 and its proof.

    >>> break_even_c(0.5, 2)
    0.375
    """
    return (expected_tokens(alpha, gamma) - 1) / _check_count("gamma", gamma, least=1)


def oracle_speedup(alpha, c):
    """The speed-up if drafting always stopped at the first token that will be rejected: 1 / (1 - alpha + c alpha).

    Such a pass drafts alpha / (1 - alpha) tokens on average, all accepted, and emits 1 / (1 - alpha). With
    c <= 1 no choice of gamma, fixed or adaptive, does better; with c > 1 plain decode does.
    Raises ValueError for alpha outside [0, 1], c < 0, or alpha = 1 with c = 0, where nothing bounds it.
    Source: Leviathan et al. 2023, section 3.5.

    >>> oracle_speedup(0.5, 0.25)
    1.6
    """
    if _check_unit("alpha", alpha) == 1 and c == 0:
        raise ValueError(f"c: {c} at alpha {alpha}, expected a draft that costs something")
    return 1 / (1 - alpha + _check_cost("c", c) * alpha)


def typical_threshold(p, epsilon, delta):
    """What typical acceptance asks of a token: p(x) > min(epsilon, delta e^-H), with H the entropy of p in nats.

    p: [V], the target's row. epsilon: in [0, 1], the bar where the target is sure; delta >= 0: e^-H is small
    where it is not, and the bar sinks. A token of probability 0 adds nothing to H.
    Raises ValueError for a row that is no distribution, or epsilon or delta out of range.
    Source: Cai et al. 2024 (Medusa), section 2.3.1, after Hewitt et al. 2022.

    >>> round(typical_threshold([0.25, 0.25, 0.25, 0.25], 0.3, 0.4), 12)
    0.1
    """
    _check_unit("epsilon", epsilon)
    row = np.asarray(p, dtype=np.float64)
    if row.ndim != 1 or not (row.size and (row >= 0).all() and abs(row.sum() - 1) <= 1e-6):
        raise ValueError(f"p: {p}, expected one row of probabilities [V]")
    entropy = -(row * np.log(np.where(row > 0, row, 1))).sum()
    return min(epsilon, _check_cost("delta", delta) * float(np.exp(-entropy)))
