"""Where every random choice comes from: a rule asks its dice, and never a generator.

`flip(probability)` answers yes or no, `draw(weights)` answers an index. Each call takes exactly one
uniform u from [0, 1), even when the answer is certain, so a script of uniforms lines up with the
questions asked. Weights need not sum to 1.
"""

import numpy as np

SMALLEST = np.finfo(np.float64).tiny


class _UniformDice:
    """The two formulas; a subclass says where the next uniform comes from."""

    def _next(self):
        raise NotImplementedError

    def flip(self, probability):
        """True with the given probability: u < probability."""
        try:
            possible = 0 <= probability <= 1
        except TypeError:
            possible = False
        if not possible:
            raise ValueError(f"probability: {probability!r}, expected a number in [0, 1]")
        return bool(self._next() < probability)

    def draw(self, weights):
        """An index drawn in proportion to `weights` [V]: the inverse of the running sum, in float64.

        The first index whose running sum exceeds u * total: an entry of weight 0 never is.
        Raises ValueError for negative or NaN weights, or when they sum to 0.
        """
        try:
            weights = np.asarray(weights, dtype=np.float64)
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"weights: {error}, expected one row of numbers >= 0") from None
        running = weights.cumsum()
        # Below the smallest normal number u * total could round up to the total itself. `reduce` is `min` without
        # its Python wrapper, which would take as long as the draw.
        if not (weights.ndim == 1 and weights.size and np.minimum.reduce(weights) >= 0 and SMALLEST <= running[-1] < np.inf):
            raise ValueError(f"weights: {weights}, expected one row of numbers >= 0 with a positive finite sum")
        return int(running.searchsorted(self._next() * running[-1], side="right"))


class RandomDice(_UniformDice):
    """Dice that take their uniforms from a NumPy generator.

    >>> RandomDice(np.random.default_rng(0)).draw([0.0, 1.0, 0.0])
    1
    """

    def __init__(self, rng):
        if not isinstance(rng, np.random.Generator):
            raise ValueError(f"rng: {rng!r}, expected a numpy.random.Generator")
        self._rng = rng

    def _next(self):
        return self._rng.random()


class ScriptedDice(_UniformDice):
    """Dice that take their uniforms from a list, for a case worked by hand.

    Raises ValueError for a number outside [0, 1), and when a question comes after the last one.

    >>> ScriptedDice([0.6]).draw([0.5, 0.25, 0.25])
    1
    """

    def __init__(self, uniforms):
        try:
            self._uniforms = [float(u) for u in uniforms]
        except (TypeError, ValueError):
            raise ValueError(f"uniforms: {uniforms!r}, expected a list of numbers in [0, 1)") from None
        for index, u in enumerate(self._uniforms):
            if not 0 <= u < 1:
                raise ValueError(f"uniforms: {u} at index {index}, expected a number in [0, 1)")
        self.used = 0

    def _next(self):
        if self.used == len(self._uniforms):
            raise ValueError(f"uniforms: all {self.used} are used up, expected one more")
        self.used += 1
        return self._uniforms[self.used - 1]
