"""What passes between drafter, rule and loop: a draft, a verdict, the record of one round."""

import operator
from dataclasses import dataclass


def _integers(name, values):
    try:
        return tuple(map(operator.index, values))
    except TypeError:
        raise ValueError(f"{name}: {values!r}, expected a sequence of integers") from None


@dataclass(frozen=True)
class Draft:
    """Drafted tokens as a tree: node i carries `tokens[i]` and hangs under node `parents[i]`.

    tokens, parents: n integers each; parent -1 is the last committed token, and a parent always comes
    before its child. `Draft.chain(tokens)` is the tree in which each token follows the one before.
    Raises ValueError for what is no integer, lengths that differ, a parent that is not an earlier node, a
    negative token.

    >>> Draft(tokens=(5, 6, 7), parents=(-1, -1, 0)).children(-1)
    (0, 1)
    """

    tokens: tuple
    parents: tuple

    def __post_init__(self):
        object.__setattr__(self, "tokens", _integers("tokens", self.tokens))
        object.__setattr__(self, "parents", _integers("parents", self.parents))
        if len(self.tokens) != len(self.parents):
            raise ValueError(f"parents: {len(self.parents)} given for {len(self.tokens)} tokens, expected as many")
        for node, (token, parent) in enumerate(zip(self.tokens, self.parents)):
            if token < 0:
                raise ValueError(f"tokens: token {token} at node {node}, expected an integer >= 0")
            if not -1 <= parent < node:
                raise ValueError(f"parents: {parent} at node {node}, expected -1 or an earlier node")

    @classmethod
    def chain(cls, tokens):
        """The draft in which every token follows the one before it.

        >>> Draft.chain([5, 6]).parents
        (-1, 0)
        """
        return cls(tuple(tokens), tuple(range(-1, len(tokens) - 1)))

    def __len__(self):
        return len(self.tokens)

    @property
    def is_chain(self):
        return self.parents == tuple(range(-1, len(self.tokens) - 1))

    @property
    def levels(self):
        """Tokens on the longest path from the committed text down: n for a chain of n."""
        level = []
        for parent in self.parents:
            level.append(1 if parent == -1 else level[parent] + 1)
        return max(level, default=0)

    def children(self, node):
        """The nodes directly under `node`, elder first; -1 asks for the first tokens."""
        return tuple(child for child, parent in enumerate(self.parents) if parent == node)


def as_draft(draft):
    """A Draft from a Draft or from a plain list of tokens, which is a chain.

    >>> as_draft([5, 6]).is_chain
    True
    """
    return draft if isinstance(draft, Draft) else Draft.chain(_integers("draft", draft))


@dataclass(frozen=True)
class Verdict:
    """What a rule says of one draft.

    path: the accepted node ids from the root down. token: the token that ends the pass. kind: how that
    token came about, "recovered" (drawn from the residual at the first rejection) or "bonus" (drawn
    from the target after every draft on the path was accepted). accepted: the tokens on the path.

    >>> Verdict(path=(0,), token=7, kind="recovered", accepted=(5,)).tokens
    (5, 7)
    """

    path: tuple
    token: int
    kind: str
    accepted: tuple = ()

    @property
    def tokens(self):
        """The tokens the pass emits: the accepted ones, then `token`."""
        return (*self.accepted, self.token)

    @property
    def kinds(self):
        """One word a token: accepted, ..., accepted, then recovered or bonus."""
        return ("accepted",) * len(self.accepted) + (self.kind,)


@dataclass(frozen=True)
class Round:
    """One pass of the loop: what was drafted, what the rule said, what was emitted.

    tokens, kinds: what was emitted, after the stop token or the length limit cut it.
    betas: sum of min(p, q) at each position of a chain the rule examined, the rejected one included;
    empty for a tree, where no single number plays that part.
    """

    draft: Draft
    verdict: Verdict
    tokens: tuple
    kinds: tuple
    betas: tuple = ()
