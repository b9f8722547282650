"""Small models whose every law is known: the slider's 8-token rows, Markov chains, scripted models."""

import operator
from numbers import Integral

import numpy as np

from specnotes.distributions import check_rows, check_token, probs_from_logits
from specnotes.language_model import Output

TARGET_LOGITS = (2.0, 1.4, 0.9, 0.5, 0.0, -0.5, -1.0, -1.4)
MISMATCH_NATS = 2.55


def slider_rows(mismatch):
    """Target and draft rows p, q [8] for the second explorer.

    p is the softmax of TARGET_LOGITS. The draft undervalues every other token (0, 2, 4, 6): their
    logits are lowered by 2.55 * mismatch nats. mismatch 0 gives q = p; the larger, the worse.
    Raises ValueError for mismatch outside [0, 1].

    >>> p, q = slider_rows(0.6)
    >>> round(float(np.minimum(p, q).sum()), 3)
    0.639
    """
    if not 0 <= mismatch <= 1:
        raise ValueError(f"mismatch: {mismatch}, expected a number in [0, 1]")
    logits = np.array(TARGET_LOGITS)
    lowered = logits - MISMATCH_NATS * mismatch * (np.arange(len(logits)) % 2 == 0)
    return probs_from_logits(logits), probs_from_logits(lowered)


class TableModel:
    """A LanguageModel whose next-token row is any function of the tokens before it.

    row(tokens) -> [V] for a non-empty tuple of tokens. The rows are returned as "logits" unchanged, so
    Fractions stay Fractions; run the loop with an identity warp. It has a cache of its own (the tokens
    and parents it has read), so the loop's bookkeeping is exercised like that of a real model.
    Raises ValueError as LanguageModel says.

    >>> model = TableModel(lambda tokens: [0.25, 0.75], vocab_size=2)
    >>> model.forward([0, 1]).logits.tolist()
    [[0.25, 0.75], [0.25, 0.75]]
    """

    def __init__(self, row, vocab_size, max_length=64):
        self.row, self.vocab_size, self.max_length = row, vocab_size, max_length
        self._tokens, self._parents, self._start = [], [], 0

    @property
    def length(self):
        """Rows in the cache."""
        return len(self._tokens)

    def forward(self, tokens, parents=None, last_only=False):
        """Append rows for `tokens`; see LanguageModel."""
        tokens, start = [check_token("tokens", token, self.vocab_size) for token in tokens], self.length
        chain = range(start - 1, start + len(tokens) - 1)
        parents = list(chain) if parents is None else [operator.index(row) for row in parents]
        self._check_room(tokens, parents, start)
        before = self._tokens, self._parents, self._start
        self._tokens, self._parents, self._start = self._tokens + tokens, self._parents + parents, start
        wanted = range(self.length - 1 if last_only else start, self.length)
        try:
            return Output(np.array([self.row(self._text(row)) for row in wanted]))
        except BaseException:
            self._tokens, self._parents, self._start = before
            raise

    def _check_room(self, tokens, parents, start):
        if not tokens:
            raise ValueError("tokens: none given, expected at least one")
        if start + len(tokens) > self.max_length:
            raise ValueError(f"tokens: {len(tokens)} on top of {start}, expected at most {self.max_length} in all")
        if len(parents) != len(tokens):
            raise ValueError(f"parents: {len(parents)} given for {len(tokens)} tokens, expected as many")
        for offset, parent in enumerate(parents):
            if not -1 <= parent < start + offset:
                raise ValueError(f"parents: {parent} at new row {start + offset}, expected -1 or an earlier row")

    def _text(self, row):
        text = []
        while row != -1:
            text.append(self._tokens[row])
            row = self._parents[row]
        return tuple(reversed(text))

    def rollback(self, length):
        """Forget every row from `length` on; see LanguageModel."""
        if not isinstance(length, Integral) or not 0 <= length <= self.length:
            raise ValueError(f"length: {length!r}, expected 0..{self.length}")
        self._tokens, self._parents = self._tokens[:length], self._parents[:length]
        self._start = min(self._start, length)

    def keep(self, rows):
        """Keep only `rows` of the last forward; see LanguageModel."""
        rows = [operator.index(row) for row in rows]
        if rows != sorted(set(rows)) or any(not self._start <= row < self.length for row in rows):
            raise ValueError(f"rows: {rows}, expected increasing rows in {self._start}..{self.length - 1}")
        kept = list(range(self._start)) + rows
        moved = {old: new for new, old in enumerate(kept)}
        if any(self._parents[row] != -1 and self._parents[row] not in moved for row in rows):
            raise ValueError(f"rows: {rows} leave out a parent, expected a path")
        self._parents = [-1 if self._parents[old] == -1 else moved[self._parents[old]] for old in kept]
        self._tokens = [self._tokens[old] for old in kept]


def markov_model(transitions, max_length=64):
    """A TableModel whose next token depends on the last one only.

    transitions: [V, V], row s is the law after token s; floats or Fractions.
    Raises ValueError when a row is not a distribution or the table is not square.

    >>> markov_model([[0.0, 1.0], [1.0, 0.0]]).forward([0]).logits.tolist()
    [[0.0, 1.0]]
    """
    rows = check_rows("transitions", transitions).copy()
    if rows.ndim != 2 or rows.shape[0] != rows.shape[1]:
        raise ValueError(f"transitions: shape {rows.shape}, expected a square table [V, V]")
    return TableModel(lambda tokens: rows[tokens[-1]], vocab_size=len(rows), max_length=max_length)
