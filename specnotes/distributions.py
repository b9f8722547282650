"""Rows of next-token probabilities: from logits to rows, and what two rows say about each other.

Everything except `probs_from_logits` uses only operations that also work on object arrays of
`fractions.Fraction`, and never casts, so the functions that decode are also the ones that proofs run.
"""

from numbers import Integral, Real

import numpy as np

ROW_SUM_TOLERANCE = 1e-6


def check_rows(name, rows):
    """Return `rows` as an array [..., V] after checking that every row is a probability distribution.

    Raises ValueError naming the argument, the row and the value met: negative or NaN entries, a sum
    that is off 1 by more than 1e-6, or nothing to choose from.

    >>> check_rows("p", [0.5, 0.5]).shape
    (2,)
    """
    try:
        rows = np.asarray(rows)
    except ValueError:
        raise ValueError(f"{name}: rows of different lengths, expected an array [..., V]") from None
    if rows.ndim == 0 or rows.shape[-1] == 0:
        raise ValueError(f"{name}: expected rows of probabilities [..., V] with V >= 1, got shape {rows.shape}")
    # Unsigned integers and bools would wrap around in p - q.
    if rows.dtype.kind not in "fiO" or (rows.dtype.kind == "O" and not all(isinstance(x, Real) for x in rows.flat)):
        raise ValueError(f"{name}: entries of type {rows.dtype}, expected floats or Fractions")
    totals = rows.sum(axis=-1, keepdims=True)
    if not _are_laws(rows, totals):
        raise ValueError(_what_is_wrong(name, rows, totals[..., 0]))
    return rows


def _are_laws(rows, totals):
    off = abs(totals - 1)
    if rows.dtype == object:  # min and max of objects may lose a NaN
        with np.errstate(invalid="ignore"):
            return bool((rows >= 0).all() and (off <= ROW_SUM_TOLERANCE).all())
    # `reduce` is `min` and `max` without their Python wrappers: this runs twice in every round.
    least, most = np.minimum.reduce(rows, axis=None, initial=0), np.maximum.reduce(off, axis=None, initial=0)
    return least >= 0 and most <= ROW_SUM_TOLERANCE


def _what_is_wrong(name, rows, totals):
    for index in np.ndindex(totals.shape):
        row, where = rows[index], f" row {index[0] if len(index) == 1 else index}" if index else ""
        for token, value in enumerate(row):
            if not value >= 0:
                return f"{name}{where}: probability of token {token} is {value}, expected a number >= 0"
        if not abs(totals[index] - 1) <= ROW_SUM_TOLERANCE:
            return f"{name}{where}: probabilities sum to {totals[index]}, expected 1 within {ROW_SUM_TOLERANCE}"


def check_token(name, token, vocab_size):
    """Return `token` as an int in 0..vocab_size-1, or raise a ValueError that names it.

    >>> check_token("x", 2, 3)
    2
    """
    if not isinstance(token, Integral) or isinstance(token, bool) or not 0 <= token < vocab_size:
        raise ValueError(f"{name}: token {token!r} is not in the vocabulary, expected an integer in 0..{vocab_size - 1}")
    return int(token)


def one_hot(tokens, vocab_size):
    """Rows [n, V] that say each of the n tokens for certain: the q of candidates that are not drawn.

    >>> one_hot([2, 0], 3).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    rows = np.zeros((len(tokens), vocab_size))
    rows[np.arange(len(tokens)), tokens] = 1
    return rows


def without(row, tokens):
    """A row [V] with some tokens struck out, normalised; uniform over the others where it has nothing left.

    So goes the law of a token that is drawn when others have been drawn before it and may not come again. Where all
    are struck out nothing is left: the row is 0. Takes Fractions too.

    >>> without(np.array([0.5, 0.25, 0.25]), [0]).tolist(), without(np.array([1.0, 0.0, 0.0]), [0]).tolist()
    ([0.0, 0.5, 0.5], [0.0, 0.5, 0.5])
    """
    offered = np.isin(np.arange(len(row)), tokens)
    left = np.where(offered, 0, row)
    if not left.any():
        left = np.where(offered, 0, row * 0 + 1)
    return left / left.sum() if left.any() else left


def _pair(p, q):
    p, q = check_rows("p", p), check_rows("q", q)
    if p.shape != q.shape:
        raise ValueError(f"q: shape {q.shape} does not agree with p, expected {p.shape}")
    return p, q


def acceptance(p, q):
    """beta = sum over x of min(p(x), q(x)): the probability that a token drawn from q is accepted.

    p, q: [..., V] rows of the target and of the draft; returns [...] (a scalar for one row each).
    Raises ValueError for rows that are not distributions or shapes that do not agree.
    Source: Leviathan et al. 2023, Theorem 3.5 and Corollary 3.6.

    >>> acceptance([0.5, 0.25, 0.25], [0.25, 0.25, 0.5])
    0.75
    """
    return _plain(_overlap(*_pair(p, q)))


def _overlap(p, q):
    # Two equal float rows can sum to 1 + 2e-16; an overlap is never above 1.
    return np.minimum(np.minimum(p, q).sum(axis=-1), 1)


def total_variation(p, q):
    """Half the L1 distance of two rows, which equals 1 - acceptance(p, q) (Leviathan's D_LK, Lemma 3.3).

    p, q: [..., V]; returns [...]. Raises ValueError as `acceptance` does.

    >>> total_variation([0.5, 0.25, 0.25], [0.25, 0.25, 0.5])
    0.25
    """
    p, q = _pair(p, q)
    return _plain(abs(p - q).sum(axis=-1) / 2)


def _plain(value):
    return value.item() if isinstance(value, np.generic) else value


def residual(p, q):
    """What the target still owes after the draft's share is taken: max(0, p - q), normalised.

    p, q: [V] rows; returns [V]. Where nothing is left (p = q) the result is p itself: 0/0 is never formed.
    Raises ValueError as `acceptance` does. Source: Leviathan et al. 2023, section 2.3.

    >>> residual([0.5, 0.25, 0.25], [0.25, 0.25, 0.5]).tolist()
    [1.0, 0.0, 0.0]
    """
    p, q = _pair(p, q)
    check_one_row("p", p)
    return _residual(p, q)


def check_one_row(name, row):
    """Raise a ValueError that names the argument unless it is a single row [V]."""
    if row.ndim != 1:
        raise ValueError(f"{name}: shape {row.shape}, expected one row [V]")


def _residual(p, q):
    left = np.maximum(p - q, 0)
    total = left.sum()
    return left / total if total > 0 else p.copy()


def probs_from_logits(logits, temperature=1.0, top_k=None, top_p=None):
    """Softmax of logits [..., V] after temperature, top-k and top-p, in float64; the input is unchanged.

    temperature 0 puts everything on the first largest logit. `top_k` keeps the k largest logits (all
    that tie with the k-th). `top_p` then keeps the smallest set of most probable tokens whose
    probability reaches `top_p`, always at least one. Filters act after the temperature.
    Raises ValueError for NaN or +inf logits, a row of only -inf, or a parameter out of range.
    Source: top-p is nucleus sampling, Holtzman et al. 2020, section 3.1.

    >>> probs_from_logits([0.0, 0.0, -np.inf]).tolist()
    [0.5, 0.5, 0.0]
    """
    logits, top = _check_logits(logits)
    _check_warp(temperature, top_k, top_p)
    if temperature == 0:
        return (np.arange(logits.shape[-1]) == logits.argmax(axis=-1)[..., None]).astype(np.float64)
    scaled = logits - top
    scaled /= float(temperature)
    if top_k is not None and top_k < scaled.shape[-1]:
        kth = np.partition(scaled, -top_k, axis=-1)[..., -top_k, None]
        scaled = np.where(scaled < kth, -np.inf, scaled)
    probs = np.exp(scaled, out=scaled)
    probs /= np.add.reduce(probs, axis=-1, keepdims=True)
    return probs if top_p is None or top_p == 1 else _nucleus(probs, top_p)


def _nucleus(probs, top_p):
    order = np.argsort(-probs, axis=-1, kind="stable")
    ranked = np.take_along_axis(probs, order, axis=-1)
    before = np.cumsum(ranked, axis=-1) - ranked
    kept = np.where(before < top_p, ranked, 0.0)
    out = np.zeros_like(probs)
    np.put_along_axis(out, order, kept, axis=-1)
    return out / out.sum(axis=-1, keepdims=True)


def _check_logits(logits):
    try:
        logits = np.asarray(logits, dtype=np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"logits: {error}, expected an array of numbers [..., V]") from None
    if logits.ndim == 0 or logits.shape[-1] == 0:
        raise ValueError(f"logits: expected rows [..., V] with V >= 1, got shape {logits.shape}")
    top = np.maximum.reduce(logits, axis=-1, keepdims=True)
    if not np.isfinite(top).all():
        top = top[..., 0]
        row = tuple(int(i) for i in np.argwhere(~np.isfinite(top))[0])
        met = "all -inf" if top[row] == -np.inf else "NaN" if np.isnan(top[row]) else "+inf"
        where = f" row {row[0] if len(row) == 1 else row}" if row else ""
        raise ValueError(f"logits{where}: {met}, expected finite numbers (or -inf for a forbidden token)")
    return logits, top


def _check_warp(temperature, top_k, top_p):
    if not isinstance(temperature, Real) or not 0 <= temperature < np.inf:
        raise ValueError(f"temperature: {temperature!r}, expected a finite number >= 0")
    if top_k is not None and (not isinstance(top_k, Integral) or isinstance(top_k, bool) or top_k < 1):
        raise ValueError(f"top_k: {top_k!r}, expected None or an integer >= 1")
    if top_p is not None and (not isinstance(top_p, Real) or not 0 < top_p <= 1):
        raise ValueError(f"top_p: {top_p!r}, expected None or a number in (0, 1]")
