"""Trees whose candidates are drawn: at temperature above 0 they are worth more than the likeliest tokens."""

import operator
from itertools import accumulate

from specnotes.distributions import without


def check_branching(branching, most_levels, vocab_size):
    """The number of children on each level, as a tuple, and the nodes they make together.

    Raises ValueError for a count < 1 or beyond the vocabulary, no level, or more levels than there can be.
    """
    try:
        counts = tuple(map(operator.index, branching))
    except TypeError:
        counts = ()
    if not 1 <= len(counts) <= most_levels or not all(1 <= count <= vocab_size for count in counts):
        raise ValueError(f"branching: {branching!r}, expected 1 to {most_levels} levels of 1 to {vocab_size} children each")
    return counts, sum(accumulate(counts, operator.mul))


def siblings(row, count, dice):
    """`count` tokens drawn from row [V] without replacement, and the laws they were drawn from, elders struck out.

    Takes `count` draws. Verify them with `without_replacement_rule`.
    Source: Chen et al. 2024 (Sequoia), Algorithm 2.

    >>> import numpy as np
    >>> from specnotes.dice import ScriptedDice
    >>> siblings(np.array([0.5, 0.5, 0.0]), 2, ScriptedDice([0.1, 0.1]))[0]
    [0, 1]
    """
    tokens, laws = [], []
    for _ in range(count):
        laws.append(without(row, tokens) if tokens else row)
        tokens.append(dice.draw(laws[-1]))
    return tokens, laws


def grow(branching, rows_below, dice):
    """A drawn tree: `(tokens, parents, laws)`, level by level.

    rows_below(tokens, parents) -> the draft's rows [m, V] below the m nodes of the last level, or the one row [1, V]
    below the committed text, when it is asked with no tokens.
    """
    tokens, parents, laws, level = [], [], [], range(-1, 0)
    for count in branching:
        rows = rows_below(tokens[-len(level) :] if tokens else [], parents[-len(level) :])
        first = len(tokens)
        for node, row in zip(level, rows):
            found, given = siblings(row, count, dice)
            tokens, parents, laws = tokens + found, parents + [node] * count, laws + given
        level = range(first, len(tokens))
    return tokens, parents, laws
