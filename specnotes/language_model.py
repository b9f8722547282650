"""What the loop asks of a model: rows of logits for new tokens, and a cache that can be cut back.

A model keeps a cache with one row per token it has read. `forward` appends rows; a row's `parent` is
the cache row it follows, so a tree of drafts is read in one pass. After the rule has spoken, `keep`
or `rollback` removes the rows of rejected drafts.
"""

from typing import NamedTuple, Optional, Protocol, Sequence, runtime_checkable

import numpy as np


class Output(NamedTuple):
    """What one forward pass returns.

    logits: [n, V], row i scores the token that would follow new token i ([1, V] with last_only).
    features: [n, d], the last hidden state of each new token, or None for a model without any.
    """

    logits: np.ndarray
    features: Optional[np.ndarray] = None


@runtime_checkable
class LanguageModel(Protocol):
    """A causal language model with a cache of `length` rows, room for `max_length`."""

    vocab_size: int
    max_length: int

    @property
    def length(self) -> int:
        """Rows in the cache."""

    def forward(self, tokens: Sequence[int], parents: Optional[Sequence[int]] = None, last_only: bool = False) -> Output:
        """Append n = len(tokens) rows and return what follows each of them.

        parents: n absolute cache rows, each before the new row; -1 is 'before the first row';
        None is a chain that continues the cache. Raises ValueError, leaving the cache as it was, for
        a token outside the vocabulary, a parent that is not an earlier row, or too little room.
        """

    def rollback(self, length: int) -> None:
        """Forget every row from `length` on. Raises ValueError outside 0..length of the cache."""

    def keep(self, rows: Sequence[int]) -> None:
        """Of the rows the last forward appended keep only `rows` (absolute, increasing), moved together.

        Rows from before that forward stay. Raises ValueError for rows that forward did not append.
        """
