"""EAGLE: a light head guesses the target's next features, and the target's unembedding turns them into tokens."""

import numpy as np

from specnotes.distributions import one_hot, probs_from_logits
from specnotes.records import Draft
from specnotes.tree import dynamic_tree


class EagleDrafter:
    """Draft with a head on the target's features: a chain drawn from its rows, or EAGLE-2's dynamic tree.

    head: such as specnotes.heads.EagleHead. nodes: None is a chain, each token drawn from the head's warped row, which
    is its q; a number is a tree of so many of the likeliest nodes, `width` expanded on each level. A tree's tokens
    are not drawn, so each has a one-hot q: use `greedy_rule` at temperature 0, above it `sampler_match_rule` or
    `with_replacement_rule`. The head's cache has one row for each committed token but the first, read with the
    target's own features; rows read with guessed features are forgotten when the draft is handed out. `values` says
    how sure the head was of each node of its last tree, with all above it.
    Raises ValueError for nodes or width < 1, or more nodes than the context has room for.
    Source: Li et al. 2024 (EAGLE), section 3; Li et al. 2024 (EAGLE-2), section 4.
    """

    def __init__(self, head, nodes=None, width=8):
        for name, value in (("nodes", 1 if nodes is None else nodes), ("width", width)):
            if value < 1:
                raise ValueError(f"{name}: {value!r}, expected an integer >= 1")
        if nodes is not None and nodes >= head.max_length:
            raise ValueError(f"nodes: {nodes}, expected less than the context of {head.max_length}")
        self.head, self.vocab_size, self.nodes, self.width = head, head.vocab_size, nodes, width
        if nodes is not None:
            self.max_nodes = nodes
        self._pending, self.values = [], ()

    def start(self, prompt):
        """Begin a new text: forget everything; `read` brings the features of the prompt."""
        self.head.rollback(0)
        self._pending, self._prompt = [], list(prompt)

    def read(self, features):
        """The target's features [len(prompt) - 1, d] of the prompt; None for a prompt of one token."""
        self._pending = [] if features is None else list(zip(self._prompt[1:], features))

    def propose(self, context, gamma, warp, dice):
        """A chain of at most `gamma` tokens or a tree of at most `gamma` levels, and its rows q [n, V].

        Nothing where no feature is known, fewer levels where the head's own context ends. One draw per token of a
        chain, none for a tree.
        """
        room = self.head.max_length - self.head.length - len(self._pending)
        gamma = min(gamma, 1 + room // (1 if self.nodes is None else self.width))
        if gamma < 1 or not (self._pending or self.head.length):
            return Draft((), ()), np.zeros((0, self.vocab_size))
        output = self._catch_up()
        committed = self.head.length
        try:
            return self._chain(output, gamma, warp, dice) if self.nodes is None else self._tree(output, gamma)
        finally:
            self.head.rollback(committed)

    def commit(self, tokens, features=None):
        """Remember `tokens` and the features [len(tokens), d] before them, to be read at the next `propose`.

        Raises ValueError where there are no features.
        """
        if features is None:
            raise ValueError("features: None, expected a target that has features, such as GPT2")
        self._pending += zip(tokens, features)

    def _catch_up(self):
        """Read what was committed since the last draft, and return what the head says of what follows."""
        tokens, features = zip(*self._pending)
        output = self.head.forward(tokens, last_only=True, features=np.array(features))
        self._pending = []
        return output

    def _chain(self, output, gamma, warp, dice):
        tokens, q = [], []
        while True:
            q.append(warp(output.logits)[-1])
            tokens.append(dice.draw(q[-1]))
            if len(tokens) == gamma:
                return Draft.chain(tokens), np.array(q)
            output = self.head.forward(tokens[-1:], features=output.features[-1:])

    def _tree(self, output, levels):
        [first] = self._likeliest(output.logits)
        seen = {(): (self.head.length - 1, output.features[-1], first)}  # path: cache row, feature, what may follow

        def children(paths):
            if () not in paths:
                rows, features, _ = zip(*(seen[path[:-1]] for path in paths))
                start = self.head.length
                said = self.head.forward([path[-1] for path in paths], rows, features=np.array(features))
                places = range(start, start + len(paths))
                seen.update(zip(paths, zip(places, said.features, self._likeliest(said.logits))))
            return [seen[path][2] for path in paths]

        tokens, parents, self.values = dynamic_tree(children, levels, self.width, self.nodes, batched=True)
        return Draft(tokens, parents), one_hot(tokens, self.vocab_size)

    def _likeliest(self, logits):
        """For each row [n, V] its `width` likeliest tokens and how sure the head is, at temperature 1 whatever the warp."""
        rows, count = probs_from_logits(logits), min(self.width, self.vocab_size)
        best = np.sort(np.argpartition(-rows, count - 1)[:, :count])  # [n, count]
        return list(zip(best, np.take_along_axis(rows, best, axis=1)))
