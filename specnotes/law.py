"""The exact law of anything that asks dice: run it down every branch and add up the probabilities.

`exact_law(f)` calls `f(dice)` once per branch. With Fractions in, the probabilities are Fractions and
a theorem can be checked with ==. `sampled_law` runs the same `f` with random dice.
"""

import math
from collections import Counter
from numbers import Integral

import numpy as np

from specnotes.dice import RandomDice


class _BranchDice:
    """Dice that follow a path of chosen branches, and open the first branch of every new question."""

    def __init__(self, path):
        self.path, self.asked = path, 0

    def _answer(self, question, options):
        if self.asked == len(self.path):
            self.path.append([question, options(), 0])
        elif self.path[self.asked][0] != question:
            raise ValueError(
                f"f: question {self.asked + 1} was {self.path[self.asked][0]} and is {question} on a replay, "
                "expected the same questions after the same answers"
            )
        _, choices, index = self.path[self.asked]
        self.asked += 1
        return choices[index][0]

    def flip(self, probability):
        if not 0 <= probability <= 1:
            raise ValueError(f"probability: {probability}, expected a number in [0, 1]")
        sides = lambda: [(True, probability), (False, 1 - probability)]
        return self._answer(("flip", probability), lambda: [side for side in sides() if side[1] > 0])

    def draw(self, weights):
        weights = np.asarray(weights).tolist()
        total = sum(weights)
        if not all(weight >= 0 for weight in weights) or not 0 < total < math.inf:
            raise ValueError(f"weights: {weights}, expected numbers >= 0 with a positive finite sum")
        entries = lambda: [(index, weight / total) for index, weight in enumerate(weights) if weight > 0]
        return self._answer(("draw", tuple(weights)), entries)


def exact_law(f, max_leaves=1_000_000):
    """The law of `f(dice)`: {outcome: probability}, by running f down every branch of positive probability.

    f: a function of dice alone, with a hashable outcome. Probabilities are Fractions where f's weights
    are, floats where they are floats.
    Raises ValueError when a replay asks another question than before (f keeps state or has luck of its
    own), or beyond `max_leaves` branches.

    >>> from fractions import Fraction
    >>> exact_law(lambda dice: dice.flip(Fraction(1, 3)) + dice.flip(Fraction(1, 2)))[2]
    Fraction(1, 6)
    """
    path, law = [], {}
    for _ in range(max_leaves):
        dice = _BranchDice(path)
        outcome = f(dice)
        if dice.asked != len(path):
            raise ValueError(f"f: {dice.asked} questions on a replay, expected {len(path)} as before")
        _check_hashable(outcome)
        law[outcome] = law.get(outcome, 0) + math.prod(choices[index][1] for _, choices, index in path)
        while path and path[-1][2] + 1 == len(path[-1][1]):
            path.pop()
        if not path:
            return law
        path[-1][2] += 1
    raise ValueError(f"max_leaves: more than {max_leaves} branches, expected a smaller case or a higher cap")


def _check_hashable(outcome):
    try:
        hash(outcome)
    except TypeError:
        raise ValueError(f"f: outcome {outcome!r} is not hashable, expected a tuple, say, in place of a list") from None


def sampled_law(f, n, rng):
    """The law of `f(dice)` estimated from n runs with random dice: {outcome: fraction of the runs}.

    Raises ValueError for n < 1 or an rng that is not a NumPy generator.

    >>> sampled_law(lambda dice: dice.draw([0.0, 1.0]), 10, np.random.default_rng(0))
    {1: 1.0}
    """
    if not isinstance(n, Integral) or n < 1:
        raise ValueError(f"n: {n!r}, expected an integer >= 1")
    dice = RandomDice(rng)
    _check_hashable(f(RandomDice(np.random.default_rng(0))))
    return {outcome: count / n for outcome, count in Counter(f(dice) for _ in range(n)).items()}


def emitted_law(rule, target, draft, gamma, prefix=()):
    """The exact law of the tokens one pass emits: {tokens: probability}.

    rule: any rule on chains. target(prefix), draft(prefix): functions from a tuple of tokens to the
    next token's row [V]. gamma: drafted tokens. prefix: the committed text.
    Raises ValueError for gamma < 0 and whatever the rule raises.

    >>> from fractions import Fraction
    >>> from specnotes.rules import token_rule
    >>> half = lambda prefix: [Fraction(1, 2), Fraction(1, 2)]
    >>> emitted_law(token_rule, half, half, gamma=0)
    {(0,): Fraction(1, 2), (1,): Fraction(1, 2)}
    """
    if not isinstance(gamma, Integral) or gamma < 0:
        raise ValueError(f"gamma: {gamma!r}, expected an integer >= 0")
    return exact_law(lambda dice: one_pass(rule, target, draft, gamma, tuple(prefix), dice).tokens)


def one_pass(rule, target, draft, gamma, prefix, dice):
    """Draw gamma tokens from the draft, read the target after each of them, and ask the rule: a Verdict."""
    tokens, q = (), []
    for _ in range(gamma):
        q.append(draft(prefix + tokens))
        tokens += (dice.draw(q[-1]),)
    p = [target(prefix + tokens[:i]) for i in range(gamma + 1)]
    return rule(np.array(p), np.array(q), tokens, dice)
