"""What the tests of trees share: a drafter that draws trees, the pass it makes, and every tree there is."""

from fractions import Fraction
from functools import cache

import numpy as np

from specnotes.records import Draft


def certain(token, vocab_size):
    """The row [V] of Fractions that says `token`."""
    return np.array([Fraction(int(x == token)) for x in range(vocab_size)])


def struck(row, offered):
    """The law of a token when those offered before may not come again; uniform over the others where it has none."""
    left = np.array([row[x] if x not in offered else row[x] * 0 for x in range(len(row))])
    if not left.any():
        left = np.array([row[x] * 0 + (x not in offered) for x in range(len(row))])
    return left / left.sum()


def draw_tree(row, text, branching, dice, replace=True):
    """`(Draft, q)`: below every node of depth i `branching[i]` tokens drawn from row(text so far)."""
    tokens, parents, q, level = [], [], [], [(-1, tuple(text))]
    for width in branching:
        above, level = level, []
        for node, before in above:
            law, offered = row(before), []
            for _ in range(width if replace else min(width, len(law))):
                q.append(law if replace else struck(law, offered))
                offered.append(dice.draw(q[-1]))
                tokens.append(offered[-1])
                parents.append(node)
                level.append((len(tokens) - 1, (*before, offered[-1])))
    return Draft(tokens, parents), np.array(q)


def judge_tree(rule, target, text, draft, q, dice):
    """What the rule says of a draft after `text` when target(text) is the target's row."""
    texts = [tuple(text)]
    for token, parent in zip(draft.tokens, draft.parents):
        texts.append((*texts[parent + 1], token))
    return rule(np.array([target(before) for before in texts]), q, draft, dice)


class TreeDrafter:
    """Draws a tree below the text from the rows of a function, as deep as it is told to and may."""

    def __init__(self, row, branching, vocab_size, replace=True):
        self.row, self.branching, self.vocab_size, self.replace = row, branching, vocab_size, replace

    def start(self, prompt):
        self.committed = []

    def propose(self, context, gamma, warp, dice):
        return draw_tree(self.row, context, self.branching[:gamma], dice, self.replace)

    def commit(self, tokens, features=None):
        self.committed += [(tuple(tokens), features)]


@cache
def every_tree(nodes, width, levels, gaps=False):
    """All trees of `nodes` drafted nodes, each a tuple of root paths by rank.

    width: the most children of a node. gaps: whether a node may stand without its elder siblings.
    """
    return tuple(_forests(nodes, 0, width, levels, gaps))


def _forests(nodes, rank, width, levels, gaps):
    if nodes == 0:
        yield ()
    elif rank < width and levels > 0:
        for size in range(1, nodes + 1):
            for below in every_tree(size - 1, width, levels - 1, gaps):
                for rest in _forests(nodes - size, rank + 1, width, levels, gaps):
                    yield ((rank,), *((rank, *path) for path in below), *rest)
        if gaps:
            yield from _forests(nodes, rank + 1, width, levels, gaps)


def tree_value(tree, acceptance):
    """Sum over the nodes of the product along their path; acceptance[depth][rank]."""
    total = 0
    for path in tree:
        value = 1
        for depth, rank in enumerate(path):
            value = value * acceptance[depth][rank]
        total = total + value
    return total


def root_path(node, parents):
    """The nodes from a first token down to `node`."""
    path = []
    while node != -1:
        path.insert(0, node)
        node = parents[node]
    return path
