"""Medusa: heads on the target's last feature offer several tokens for each of the next places, in one fixed tree."""

import numpy as np

from specnotes.distributions import one_hot
from specnotes.drafters.drawn import check_branching, grow
from specnotes.records import Draft
from specnotes.tree import depths, ranks


NODES = 32


class MedusaDrafter:
    """Draft a tree from heads that look 1, 2, ... tokens ahead: of their likeliest tokens, or of tokens drawn from them.

    heads: what has `choices(feature, ranks)`, `logits(feature)` and `vocab_size`, such as specnotes.heads.MedusaHeads.
    They look at the feature that the last committed token was drawn from, and do not see that token.
    parents: the shape of the tree (see specnotes.tree), whose node of depth i and rank r bears the r-th choice of head i;
    without it the best tree of `nodes` nodes (32) that came with the heads. The tokens are not drawn, so each has a one-hot q:
    use `greedy_rule` at temperature 0, above it `sampler_match_rule` or `with_replacement_rule`.
    branching: a tree in which every node of depth i has branching[i] children, drawn from the warped row of head i
    without replacement: use `without_replacement_rule`.
    Raises ValueError for a tree deeper than there are heads, no tree of that many nodes, several kinds of trees at
    once, or a branching that is no tuple of integers >= 1.
    Source: Cai et al. 2024 (Medusa), sections 2.1 and 2.3.3.

    >>> from specnotes.heads import MedusaHeads
    >>> still = np.zeros((2, 2)), np.zeros(2)
    >>> drafter = MedusaDrafter(MedusaHeads([still], [np.eye(2)]), parents=[-1, -1])
    >>> drafter.start([0, 1]), drafter.read(np.array([[1.0, 3.0]]))
    (None, None)
    >>> drafter.propose([0, 1], 1, None, None)[0].tokens
    (1, 0)
    """

    def __init__(self, heads, parents=None, nodes=None, branching=None):
        if not hasattr(heads, "choices"):
            raise ValueError(f"heads: {type(heads).__name__}, expected Medusa heads such as load_heads('medusa')")
        given = {"parents": parents, "nodes": nodes, "branching": branching}
        given = [f"{name} = {value!r}" for name, value in given.items() if value is not None]
        if len(given) > 1:
            raise ValueError(f"{' beside '.join(given)}, expected one of them")
        self.heads, self.vocab_size, self.branching, self._feature = heads, heads.vocab_size, branching, None
        if branching is not None:
            self.branching, self.max_nodes = check_branching(branching, len(heads), heads.vocab_size)
            return
        nodes = NODES if nodes is None else nodes
        if parents is None and nodes not in heads.trees:
            known = ", ".join(map(str, heads.trees))
            raise ValueError(f"nodes: {nodes}, expected one of {known}, or the shape of a tree in parents")
        self.parents = tuple(heads.trees[nodes] if parents is None else parents)
        self._depths, self._ranks = depths(self.parents), ranks(self.parents)
        levels, siblings = (1 + max(found, default=-1) for found in (self._depths, self._ranks))
        if levels > len(heads):
            raise ValueError(f"parents: {levels} levels, expected at most {len(heads)}, one for each head")
        if siblings > self.vocab_size:
            raise ValueError(f"parents: {siblings} siblings, expected at most {self.vocab_size}, one for each token")
        self.max_nodes = len(self.parents)

    def start(self, prompt):
        """Begin a new text: nothing is known of it before `read`."""
        self._feature = None

    def read(self, features):
        """The target's features [len(prompt) - 1, d] of the prompt; None for a prompt of one token."""
        self._feature = None if features is None else features[-1]

    def propose(self, context, gamma, warp, dice):
        """The tree down to `gamma` levels and its rows q [n, V]; nothing where no feature is known.

        One draw per node of a drawn tree, none otherwise.
        """
        if self._feature is None:
            return Draft((), ()), np.zeros((0, self.vocab_size))
        return self._likely(gamma) if self.branching is None else self._drawn(gamma, warp, dice)

    def _likely(self, gamma):
        choices = self.heads.choices(self._feature, max(self._ranks, default=0) + 1)  # [heads, ranks]
        kept = np.flatnonzero(self._depths < gamma)
        place = {-1: -1} | {node: new for new, node in enumerate(kept.tolist())}
        tokens = choices[self._depths[kept], self._ranks[kept]].tolist()
        return Draft(tokens, [place[self.parents[node]] for node in kept]), one_hot(tokens, self.vocab_size)

    def _drawn(self, gamma, warp, dice):
        rows = iter(warp(self.heads.logits(self._feature)))  # [heads, V], a row for each level

        def rows_below(tokens, parents):
            return [next(rows)] * max(1, len(tokens))

        tokens, parents, laws = grow(self.branching[:gamma], rows_below, dice)
        return Draft(tokens, parents), np.array(laws)

    def commit(self, tokens, features=None):
        """Remember the feature that the last emitted token was drawn from. Raises ValueError where there is none."""
        if features is None:
            raise ValueError("features: None, expected a target that has features, such as GPT2")
        self._feature = features[len(tokens) - 1]
