"""A small language model as the drafter: it guesses a chain, one token at a time."""

import numpy as np

from specnotes.records import Draft


class ModelDrafter:
    """Draft with a LanguageModel: draw gamma tokens from its own warped rows.

    The model's cache holds committed text plus the drafts it has just read, never the last committed
    token. `commit` cuts the cache back to what the target accepted; whatever is missing (the last
    draft, after a full acceptance) is read at the next `propose`.
    """

    def __init__(self, model):
        self.model = model
        self.vocab_size = model.vocab_size
        self._committed = 0

    def start(self, prompt):
        """Begin a new text: forget everything; the prompt is read at the first `propose`."""
        self.model.rollback(0)
        self._committed = len(prompt)

    def propose(self, context, gamma, warp, dice):
        """A chain of at most `gamma` tokens after `context`, and the rows q [n, V] they were drawn from.

        Fewer than gamma where the draft model's own context ends, none after a token it has no id for.
        One draw per drafted token.
        """
        tokens, q, unread = [], [], context[self.model.length :]
        room = self.model.max_length - len(context) + 1 if max(unread) < self.vocab_size else 0
        gamma = max(0, min(gamma, room))
        for _ in range(gamma):
            row = warp(self.model.forward(unread, last_only=True).logits)[-1]
            unread = [dice.draw(row)]
            tokens, q = tokens + unread, q + [row]
        return Draft.chain(tokens), np.array(q)

    def commit(self, tokens, features=None):
        """`tokens` were emitted: keep the rows of the accepted drafts, all but the last token."""
        self._committed += len(tokens)
        self.model.rollback(min(self.model.length, self._committed - 1))
