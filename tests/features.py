"""Small models with features: a Markov chain whose feature is its token, and a head that checks what it is given."""

import numpy as np

from specnotes.gpt2 import GPT2, Config, random_tensors
from specnotes.language_model import Output
from specnotes.toy import TableModel

CONFIG = Config(vocab_size=13, max_length=48, width=12, layers=2, heads=3)


class TokenFeatures(TableModel):
    """A TableModel whose feature after a token is that token: [n, 1]."""

    def __init__(self, rows, max_length=64):
        super().__init__(lambda tokens: rows[tokens[-1]], len(rows), max_length)

    def forward(self, tokens, parents=None, last_only=False):
        output = super().forward(tokens, parents, last_only)
        return Output(output.logits, np.array(tokens, dtype=float)[:, None])


class TokenHead(TokenFeatures):
    """An EAGLE head for it: every row must come with the feature of the token before, true or guessed."""

    def __init__(self, rows, first, max_length=64):
        super().__init__(rows, max_length)
        self.first = first

    def forward(self, tokens, parents=None, last_only=False, *, features):
        start = self.length
        output = super().forward(tokens, parents, last_only)
        before = [self.first if row == -1 else self._tokens[row] for row in self._parents[start:]]
        assert np.array_equal(features, np.array(before, dtype=float)[:, None])
        return output


class TokenChoices:
    """Medusa heads for it: head k offers, best first, the tokens of a list that depends on the feature's token."""

    def __init__(self, offers, vocab_size, heads):
        self.offers, self.vocab_size, self.heads, self.trees = offers, vocab_size, heads, {}

    def __len__(self):
        return self.heads

    def choices(self, feature, ranks):
        return np.array([self.offers[int(feature[0])][:ranks]] * self.heads)


class TokenRows(TokenChoices):
    """Medusa heads whose rows are those of a table, by the feature's token: what an identity warp leaves as they are."""

    def logits(self, feature):
        return np.array([self.offers[int(feature[0])]] * self.heads)


def small(seed=0, config=CONFIG, dtype="float64"):
    """A GPT-2 whose matrices are large enough that every attention pattern matters."""
    return GPT2(config, random_tensors(config, seed, scale=0.5), dtype)
