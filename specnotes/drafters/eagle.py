"""EAGLE: a light head guesses the target's next features, and the target's unembedding turns them into tokens."""

from numbers import Integral

import numpy as np

from specnotes.distributions import one_hot, probs_from_logits
from specnotes.drafters.drawn import check_branching, grow
from specnotes.records import Draft
from specnotes.tree import dynamic_tree


class EagleDrafter:
    """Draft with a head on the target's features: a chain, EAGLE-2's dynamic tree, or a drawn tree.

    head: such as specnotes.heads.EagleHead. Alone it drafts a chain, each token drawn from the head's warped row, which
    is its q. branching: a tree in which every node of depth i has branching[i] children, drawn from that row
    without replacement: use `without_replacement_rule`. nodes: a tree of so many of the likeliest nodes, `width`
    expanded on each level; its tokens are not drawn, so each has a one-hot q: use `greedy_rule` at temperature 0, above
    it `sampler_match_rule` or `with_replacement_rule`. `values` says how sure the head was of each node of its last
    such tree, with all above it.
    The head's cache has one row for each committed token but the first, read with the target's own features; rows read
    with guessed features are forgotten when the draft is handed out.
    Raises ValueError for nodes or width < 1, more nodes than the context has room for, both kinds of trees at once, or
    a branching that is no tuple of integers >= 1.
    Source: Li et al. 2024 (EAGLE), section 3; Li et al. 2024 (EAGLE-2), section 4.
    """

    def __init__(self, head, nodes=None, width=8, branching=None):
        if not hasattr(head, "rollback"):
            raise ValueError(f"head: {type(head).__name__}, expected an EAGLE head such as load_heads('eagle')")
        for name, value in (("nodes", 1 if nodes is None else nodes), ("width", width)):
            if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name}: {value!r}, expected an integer >= 1")
        if nodes is not None and branching is not None:
            raise ValueError(f"branching: {branching!r} beside nodes = {nodes}, expected one of the two")
        self.head, self.vocab_size, self.nodes, self.width, self.branching = head, head.vocab_size, nodes, width, branching
        if branching is not None:
            self.branching, nodes = check_branching(branching, head.max_length, head.vocab_size)
        if nodes is not None:
            self.max_nodes = nodes
            if nodes >= head.max_length:
                raise ValueError(f"nodes: {nodes}, expected less than the context of {head.max_length}")
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

        Nothing where no feature is known, fewer levels where the head's own context ends. One draw per drawn token.
        """
        gamma = self._levels(gamma)
        if gamma < 1 or not (self._pending or self.head.length):
            return Draft((), ()), np.zeros((0, self.vocab_size))
        output = self._catch_up()
        committed = self.head.length
        try:
            return self._drawn(output, gamma, warp, dice) if self.nodes is None else self._likely(output, gamma)
        finally:
            self.head.rollback(committed)

    def commit(self, tokens, features=None):
        """Remember `tokens` and the features [len(tokens), d] before them, to be read at the next `propose`.

        Raises ValueError where there are no features.
        """
        if features is None:
            raise ValueError("features: None, expected a target that has features, such as GPT2")
        self._pending += zip(tokens, features)

    def _levels(self, gamma):
        """How many levels, at most gamma, the head has room for: it reads all but the last."""
        room = self.head.max_length - self.head.length - len(self._pending)
        if self.branching is not None:
            rows = np.cumprod(self.branching)[:gamma]
        else:
            rows = np.full(gamma, 1 if self.nodes is None else self.width)
        return 0 if room < 0 else min(len(rows), 1 + int((np.cumsum(rows) <= room).sum()))

    def _catch_up(self):
        """Read what was committed since the last draft, and return what the head says of what follows."""
        tokens, features = zip(*self._pending)
        output = self.head.forward(tokens, last_only=True, features=np.array(features))
        self._pending = []
        return output

    def _drawn(self, output, levels, warp, dice):
        read = [(self.head.length - 1, output.features[-1])]  # of the text so far and each node: cache row and feature

        def rows_below(tokens, parents):
            if not tokens:
                return warp(output.logits)
            above, features = zip(*(read[parent + 1] for parent in parents))
            first = self.head.length
            said = self.head.forward(tokens, above, features=np.array(features))
            read.extend(zip(range(first, first + len(tokens)), said.features))
            return warp(said.logits)

        branching = (1,) * levels if self.branching is None else self.branching[:levels]
        tokens, parents, laws = grow(branching, rows_below, dice)
        return Draft(tokens, parents), np.array(laws)

    def _likely(self, output, levels):
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
