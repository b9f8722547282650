"""The fourth explorer: the best tree of so many nodes, what it yields, and what verifying it costs."""

from functools import cache
from itertools import product

import traitlets

from specnotes.tree import growth, path_products
from specnotes.widgets.base import Explorer, Slider

MAX_NODES = 32


def acceptance_row(first, caught, fade, depth, ranks=MAX_NODES):
    """How often the first, second, ... candidate at a place of this depth is the right one: [ranks].

    The first is right with first * fade^depth; each further one catches the share `caught` of what those before it
    missed, but never more than the one before it.

    >>> [round(a, 4) for a in acceptance_row(0.5, 0.5, 0.5, depth=0, ranks=3)]
    [0.5, 0.25, 0.125]
    """
    row = [first * fade**depth]
    left = 1 - row[0]
    for _ in range(ranks - 1):
        row.append(min(row[-1], caught * left))
        left -= row[-1]
    return row


@cache
def grown(first, caught, fade):
    """Parents of the best trees of 1, 2, ..., 32 nodes, in the order in which nodes are added."""
    paths = growth([acceptance_row(first, caught, fade, depth) for depth in range(MAX_NODES)], MAX_NODES)
    place = {path: node for node, path in enumerate(paths)} | {(): -1}
    return [place[path[:-1]] for path in paths]


def reach(parents, first, caught, fade):
    """The chance that each node is accepted, [n]; siblings are in the order of their ranks."""
    levels, elders, values = [], {}, []
    for parent in parents:
        levels.append(0 if parent == -1 else levels[parent] + 1)
        rank = elders[parent] = elders.get(parent, -1) + 1
        values.append(acceptance_row(first, caught, fade, levels[-1], rank + 1)[rank])
    return path_products(parents, values)


class GridSlider(Slider):
    """A Slider that takes its own steps only, since the page carries a tree for each of them and for nothing between."""

    @property
    def values(self):
        """All values it takes."""
        return [round(self.low + self.step * index, 6) for index in range(round((self.high - self.low) / self.step) + 1)]

    def validate(self, obj, value):
        """The value as a float, or a ValueError."""
        value = super().validate(obj, value)
        nearest = min(self.values, key=lambda step: abs(step - value))
        if abs(nearest - value) > 1e-9:
            raise ValueError(f"{self.name}: {value!r}, expected one of {', '.join(map(str, self.values))}")
        return nearest


class TreeExplorer(Explorer):
    """The best tree for a budget of nodes, by acceptance that falls with rank and depth, and whether it pays.

    Settings: nodes (0..32), first (how often the first candidate after the text is right, .1..0.9), caught (share of
    the misses that each further candidate catches, 0...5), fade (acceptance of one level / of the level above,
    .5..1), extra (what each further position of a pass costs, in plain decode steps, 0...3).
    `results`: parents and reach (the chance that each node is accepted), tokens, pass_cost = 1 + extra * nodes,
    gain = tokens / pass_cost (drafting taken as free), best_nodes and best_gain, added (what the last node brings),
    and curves over 0..32 nodes. The trees are `tree.growth`'s.
    Raises ValueError for a setting that does not exist or is out of range, or between the steps of first, caught, fade.

    >>> TreeExplorer(nodes=3, first=0.5, caught=0.5, fade=1.0).results["parents"]
    [-1, -1, 0]
    """

    script = "tree"
    title = "The best tree for a budget of nodes"
    readouts = (
        ("tokens per pass", "{tokens:.2f}"),
        ("a pass costs, in plain steps", "{pass_cost:.2f}"),
        ("speed-up if drafts are free", "{gain:.2f}×"),
        ("best budget here", "{best_nodes} at {best_gain:.2f}×"),
        ("the last node adds", "{added:.3f}"),
    )
    nodes = Slider(8, 0, MAX_NODES, 1, "nodes in the tree")
    first = GridSlider(0.60, 0.1, 0.9, 0.1, "first candidate is right", places=1)
    caught = GridSlider(0.30, 0, 0.5, 0.1, "each further one catches", places=1)
    fade = GridSlider(0.80, 0.5, 1, 0.1, "kept from level to level", places=1)
    extra = Slider(0.08, 0, 0.3, 0.01, "cost of a further position", places=2)

    @traitlets.default("tables")
    def _default_tables(self):
        steps = [self.traits()[name].values for name in ("first", "caught", "fade")]
        return {"grown": {" ".join(f"{value:.1f}" for value in each): grown(*each) for each in product(*steps)}}

    @staticmethod
    def compute(nodes, first, caught, fade, extra):
        """The tree, the readouts and the curves for one setting of the sliders."""
        parents = grown(first, caught, fade)
        reached = reach(parents, first, caught, fade)
        tokens = [1.0]
        for chance in reached:
            tokens.append(tokens[-1] + chance)
        gains = [yielded / (1 + extra * size) for size, yielded in enumerate(tokens)]
        best = next(size for size, gain in enumerate(gains) if gain > max(gains) - 1e-12)
        return {
            "parents": parents[:nodes],
            "reach": reached[:nodes],
            "tokens": tokens[nodes],
            "pass_cost": 1 + extra * nodes,
            "gain": gains[nodes],
            "best_nodes": best,
            "best_gain": gains[best],
            "added": reached[nodes - 1] if nodes else None,
            "tokens_curve": tokens,
            "gain_curve": gains,
        }
