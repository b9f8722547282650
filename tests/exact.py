"""Small exact helpers the tests share."""

from fractions import Fraction as F

import numpy as np


def row(*parts):
    """A row of Fractions from numbers in proportion: row(1, 2, 1) is [1/4, 1/2, 1/4]."""
    return np.array([F(part, sum(parts)) for part in parts])


def sequence_probability(transitions, start, tokens):
    """Probability that a Markov chain in state `start` goes on with exactly `tokens`."""
    probability, state = F(1), start
    for token in tokens:
        probability, state = probability * transitions[state][token], token
    return probability


# The fixture of the pitfalls: acceptance 7/10, residual [1, 0, 0].
FIXTURE_P, FIXTURE_Q = row(5, 3, 2), row(2, 3, 5)
