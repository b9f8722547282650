"""Medusa: heads on the target's last feature offer several tokens for each of the next places, in one fixed tree."""

import numpy as np

from specnotes.distributions import one_hot
from specnotes.records import Draft
from specnotes.tree import depths, ranks


class MedusaDrafter:
    """Draft a tree whose node of depth i and rank r bears the r-th choice of head i.

    heads: what has `choices(feature, ranks)` and `vocab_size`, such as specnotes.heads.MedusaHeads. parents: the shape
    of the tree (see specnotes.tree); None is the best tree of `nodes` nodes that came with the heads. The tokens are
    not drawn, so each has a one-hot q. The heads look at the feature that the last committed token was drawn from, and do not see
    that token. At temperature 0 use it with `greedy_rule`, above with `sampler_match_rule` or `with_replacement_rule`.
    Raises ValueError for a tree deeper than there are heads, or no tree of that many nodes.
    Source: Cai et al. 2024 (Medusa), sections 2.1 and 2.3.3.

    >>> from specnotes.heads import MedusaHeads
    >>> still = np.zeros((2, 2)), np.zeros(2)
    >>> drafter = MedusaDrafter(MedusaHeads([still], [np.eye(2)]), parents=[-1, -1])
    >>> drafter.start([0, 1]), drafter.read(np.array([[1.0, 3.0]]))
    (None, None)
    >>> drafter.propose([0, 1], 1, None, None)[0].tokens
    (1, 0)
    """

    def __init__(self, heads, parents=None, nodes=32):
        if parents is None and nodes not in heads.trees:
            known = ", ".join(map(str, heads.trees))
            raise ValueError(f"nodes: {nodes}, expected one of {known} or a tree in `parents`")
        self.heads, self.vocab_size = heads, heads.vocab_size
        self.parents = tuple(heads.trees[nodes] if parents is None else parents)
        self._depths, self._ranks = depths(self.parents), ranks(self.parents)
        levels, siblings = (1 + max(found, default=-1) for found in (self._depths, self._ranks))
        if levels > len(heads):
            raise ValueError(f"parents: {levels} levels, expected at most {len(heads)}, one for each head")
        if siblings > self.vocab_size:
            raise ValueError(f"parents: {siblings} siblings, expected at most {self.vocab_size}, one for each token")
        self.max_nodes = len(self.parents)
        self._feature = None

    def start(self, prompt):
        """Begin a new text: nothing is known of it before `read`."""
        self._feature = None

    def read(self, features):
        """The target's features [len(prompt) - 1, d] of the prompt; None for a prompt of one token."""
        self._feature = None if features is None else features[-1]

    def propose(self, context, gamma, warp, dice):
        """The tree down to `gamma` levels and its one-hot rows q [n, V]; nothing where no feature is known."""
        if self._feature is None:
            return Draft((), ()), np.zeros((0, self.vocab_size))
        choices = self.heads.choices(self._feature, max(self._ranks, default=0) + 1)  # [heads, ranks]
        kept = np.flatnonzero(self._depths < gamma)
        place = {-1: -1} | {node: new for new, node in enumerate(kept.tolist())}
        tokens = choices[self._depths[kept], self._ranks[kept]].tolist()
        return Draft(tokens, [place[self.parents[node]] for node in kept]), one_hot(tokens, self.vocab_size)

    def commit(self, tokens, features=None):
        """Remember the feature that the last emitted token was drawn from. Raises ValueError where there is none."""
        if features is None:
            raise ValueError("features: None, expected a target that has features, such as GPT2")
        self._feature = features[len(tokens) - 1]
