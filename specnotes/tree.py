"""Trees of drafted tokens, as a list of parents: depths, who may see whom, and which tree is worth its nodes.

A node's parent is an earlier node, or -1 for the last committed token. Siblings are ordered, elder first: the
k-th candidate at a place has rank k - 1.
"""

import operator
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate, count
from numbers import Integral, Real

import numpy as np


def _check_count(name, value, least=1):
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}: {value!r}, expected an integer >= {least}")
    return int(value)


def _check_iterable(name, values):
    if not np.iterable(values) or isinstance(values, str):
        raise ValueError(f"{name}: {values!r}, expected a sequence")
    return values


def _check_unit(name, value):
    if not isinstance(value, Real) or not 0 <= value <= 1:
        raise ValueError(f"{name}: {value!r}, expected a number in [0, 1]")
    return value


def _check_parents(parents):
    try:
        parents = [operator.index(parent) for parent in parents]
    except TypeError:
        raise ValueError(f"parents: {parents!r}, expected a sequence of integers") from None
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            raise ValueError(f"parents: {parent} at node {node}, expected -1 or an earlier node")
    return parents


def depths(parents):
    """Depth of each node [n]: 0 for a node that follows the committed text (parent -1), else its parent's + 1.

    Raises ValueError when a parent is not -1 or an earlier node.

    >>> depths([-1, 0, 0, 1]).tolist()
    [0, 1, 1, 2]
    """
    parents = _check_parents(parents)
    out = np.zeros(len(parents), dtype=np.int64)
    for node, parent in enumerate(parents):
        out[node] = 0 if parent == -1 else out[parent] + 1
    return out


def ancestor_mask(parents):
    """Who sees whom [n, n], bool: row i is True at i and at every ancestor of i.

    Under this attention mask one pass scores every branch as if it stood alone.
    Raises ValueError when a parent is not -1 or an earlier node.
    Source: tree attention, Miao et al. 2023 (SpecInfer), section 4.2; Cai et al. 2024 (Medusa), section 2.1.2.

    >>> ancestor_mask([-1, 0, 0, 1]).astype(int).tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]
    """
    parents = _check_parents(parents)
    mask = np.eye(len(parents), dtype=bool)
    for node, parent in enumerate(parents):
        if parent != -1:
            mask[node] |= mask[parent]
    return mask


def positions(parents, start=0):
    """Position of each node [n] in the text: its parent's + 1, `start` for a node that follows the committed text.

    start: how many tokens are committed. Siblings share a position, whatever their place in the draft.
    Raises ValueError when a parent is not -1 or an earlier node, or for start < 0.

    >>> positions([-1, 0, 0, 1], start=10).tolist()
    [10, 11, 11, 12]
    """
    return _check_count("start", start, least=0) + depths(parents)


def from_paths(paths):
    """A tree from root paths: `(labels, parents)`, one node for every path and for every prefix of one.

    paths: sequences of tokens (or ranks, as in Medusa's published trees), none empty. Shared beginnings are
    stored once, so `Draft(*from_paths(paths))` is the smallest draft that holds them all. Nodes come level by
    level; among siblings, whichever is met first is the elder.
    Raises ValueError for an empty path or what is no sequence.
    Source: token tree of Miao et al. 2023 (SpecInfer), section 3.

    >>> from_paths([(5, 6), (5, 7), (8,)])
    ([5, 8, 6, 7], [-1, -1, 0, 0])
    """
    paths = [_check_path(path) for path in _check_iterable("paths", paths)]
    nodes = list(dict.fromkeys(path[:size] for path in paths for size in range(1, len(path) + 1)))
    nodes.sort(key=len)  # stable: elder siblings, and elder parents' children, stay first
    index = {path: node for node, path in enumerate(nodes)}
    return [path[-1] for path in nodes], [index.get(path[:-1], -1) for path in nodes]


def _check_path(path):
    try:
        path = tuple(path)
    except TypeError:
        raise ValueError(f"paths: {path!r}, expected sequences") from None
    if not path:
        raise ValueError("paths: an empty path, expected at least one step in each")
    return path


def cartesian(choices):
    """Medusa's full tree: every choice of the first head, under each of them every choice of the second, and so on.

    choices: one sequence of tokens per head, best first. Returns `(labels, parents)` for `Draft`, with
    s_1 + s_1 s_2 + ... nodes, level by level, and s_1 s_2 ... leaves.
    Raises ValueError for a head without choices.
    Source: Cai et al. 2024 (Medusa), section 2.1.2.

    >>> cartesian([(5, 6), (7, 8, 9)])
    ([5, 6, 7, 8, 9, 7, 8, 9], [-1, -1, 0, 0, 0, 1, 1, 1])
    """
    labels, parents, level = [], [], [-1]
    for head, tokens in enumerate(choices):
        tokens = list(tokens)
        if not tokens:
            raise ValueError(f"choices: none for head {head}, expected at least one")
        first = len(labels)
        parents += [parent for parent in level for _ in tokens]
        labels += tokens * len(level)
        level = range(first, len(labels))
    return labels, parents


def from_branching(branching):
    """Parents of the tree in which every node of depth i has `branching[i]` children, level by level.

    branching: integers >= 1, such as (4, 2, 1), which makes 4 + 8 + 8 nodes; (1,) * n is a chain.
    Raises ValueError for anything else.
    Source: the static expansion <k_1, k_2, ..., k_m> of Miao et al. 2023 (SpecInfer), section 3.

    >>> from_branching((2, 1))
    [-1, -1, 0, 1]
    """
    return cartesian([range(_check_count("branching", size)) for size in _check_iterable("branching", branching)])[1]


def branching_within(nodes, levels, most=4):
    """A branching of at most `nodes` nodes, one level after another grown as far as fits, up to `most`.

    Fewer levels where there are not as many nodes. Raises ValueError for a count < 1.

    >>> branching_within(32, levels=4), branching_within(3, levels=4)
    ((4, 2, 1, 1), (1, 1, 1))
    """
    counts = {"nodes": nodes, "levels": levels, "most": most}
    nodes, levels, most = (_check_count(name, value) for name, value in counts.items())
    branching = [1] * min(levels, nodes)
    for level in range(len(branching)):
        while branching[level] < most:
            branching[level] += 1
            if sum(accumulate(branching, operator.mul)) > nodes:
                branching[level] -= 1
                break
    return tuple(branching)


def path_products(parents, values):
    """For each node the product of `values` from the root down to it: [n] in, [n] out, in the kind given.

    With acceptance probabilities (each given that the parent was accepted) it is the probability that the
    node is accepted; with a draft's confidences it is EAGLE-2's value of the node.
    Raises ValueError for lengths that differ or a value outside [0, 1].
    Source: f(v) of Chen et al. 2024 (Sequoia), Definition 3.3; Li et al. 2024 (EAGLE-2), section 4.1.

    >>> path_products([-1, 0, 0, 1], [0.5, 0.5, 0.25, 1.0])
    [0.5, 0.25, 0.125, 0.25]
    """
    parents, values = _check_parents(parents), list(values)
    if len(values) != len(parents):
        raise ValueError(f"values: {len(values)} given for {len(parents)} nodes, expected as many")
    products = []
    for parent, value in zip(parents, values):
        products.append(_check_unit("values", value) * (1 if parent == -1 else products[parent]))
    return products


def ranks(parents):
    """How many elder siblings each node has [n]: 0 for the first candidate at a place, 1 for the second.

    Raises ValueError when a parent is not -1 or an earlier node.

    >>> ranks([-1, 0, 0, 1]).tolist()
    [0, 0, 1, 0]
    """
    parents, seen = _check_parents(parents), Counter()
    out = np.zeros(len(parents), dtype=np.int64)
    for node, parent in enumerate(parents):
        out[node] = seen[parent]
        seen[parent] += 1
    return out


def expected_tokens(parents, acceptance):
    """Tokens per target pass of a tree: 1 for the target's own, and for every node the chance that it is accepted.

    acceptance: the probability that a candidate is accepted given that its parent is, by depth and rank, both
    from 0: a table `acceptance[depth][rank]`, or {(depth, rank): probability}, or one row by rank that holds at
    every depth. Floats or Fractions. A node is accepted with the product along its path.
    Raises ValueError for a probability outside [0, 1] or a node the acceptance has no entry for.
    Source: Chen et al. 2024 (Sequoia), Proposition 3.4; Cai et al. 2024 (Medusa), section 2.3.3, without the 1.

    >>> expected_tokens([-1, 0, -1], [[0.5, 0.25], [0.5]])
    2.0
    """
    given, values = _lookup(acceptance), []
    for depth, rank in zip(depths(parents).tolist(), ranks(parents).tolist()):
        value = given(depth, rank)
        if value is None:
            raise ValueError(f"acceptance: no entry for depth {depth}, rank {rank}, expected one for every node")
        values.append(value)
    return 1 + sum(path_products(parents, values))


def _lookup(acceptance):
    """A function (depth, rank) -> probability, or None where there is no entry."""
    if isinstance(acceptance, Mapping):
        table = dict(acceptance)
    else:
        rows = [list(row) if np.iterable(row) else row for row in _check_iterable("acceptance", acceptance)]
        if not any(isinstance(row, list) for row in rows):
            rows = [_check_unit("acceptance", value) for value in rows]
            return lambda depth, rank: rows[rank] if rank < len(rows) else None
        if not all(isinstance(row, list) for row in rows):
            raise ValueError(f"acceptance: {acceptance!r}, expected one row by rank, or one row for each depth")
        table = {(depth, rank): value for depth, row in enumerate(rows) for rank, value in enumerate(row)}
    for value in table.values():
        _check_unit("acceptance", value)
    return lambda depth, rank: table.get((depth, rank))


def best_tree(acceptance, nodes):
    """Parents of a tree of `nodes` drafted nodes with the most expected tokens, by Sequoia's dynamic programme.

    acceptance: as in `expected_tokens`. The best forest of k nodes whose first tree hangs at a given depth and
    rank is one tree of m nodes there, and the best forest of k - m nodes from the next rank on: try every m.
    Optimal whether or not acceptance falls with rank; among equals the tree that gives elders more is taken.
    Raises ValueError for nodes < 0, more nodes than the acceptance has places for, a probability outside [0, 1].
    Source: Chen et al. 2024 (Sequoia), Algorithm 1, with acceptance that may depend on depth.

    >>> best_tree([0.5, 0.25], 3)
    [-1, -1, 0]
    """
    given, nodes = _lookup(acceptance), _check_count("nodes", nodes, least=0)
    best = _best_forests(given, nodes)
    if (0, 0, nodes) not in best:
        raise ValueError(f"nodes: {nodes}, expected no more than the acceptance has entries for")
    paths = list(_unfold(best, (0, 0, nodes), ()))
    return from_paths(sorted(paths, key=lambda path: (len(path), path)))[1]


def _best_forests(given, nodes):
    """{(depth, rank, k): (expected accepted tokens, size of the first tree)} for every forest that fits."""
    spots = [(d, r) for d in range(nodes) for r in range(nodes - d) if given(d, r) is not None]
    best = {(d, r, 0): (0, 0) for d in range(nodes + 1) for r in range(nodes + 1 - d)}
    for k in range(1, nodes + 1):
        for d, r in spots:
            if d + r + k > nodes:  # above it stand d ancestors, beside it r elders
                continue
            trees = [
                (given(d, r) * (1 + best[d + 1, 0, m - 1][0]) + best[d, r + 1, k - m][0], m)
                for m in range(k, 0, -1)
                if (d + 1, 0, m - 1) in best and (d, r + 1, k - m) in best
            ]
            if trees:
                best[d, r, k] = max(trees, key=lambda tree: tree[0])
    return best


def _unfold(best, forest, above):
    """The root paths, by rank, of the nodes of a forest."""
    depth, rank, size = forest
    while size:
        first = best[depth, rank, size][1]
        yield (*above, rank)
        yield from _unfold(best, (depth + 1, 0, first - 1), (*above, rank))
        rank, size = rank + 1, size - first


def growth(acceptance, nodes):
    """Medusa's greedy addition: root paths by rank, the likeliest new node first; each beginning is itself a tree.

    acceptance: as in `expected_tokens`. Where acceptance never rises with rank, as that of a head's first, second,
    third choice does not, the first n paths are a best tree of n nodes; `from_paths` makes tokens and parents of them.
    Ties go to the shallower node, then to the elder.
    Raises ValueError as `best_tree` does. Source: Cai et al. 2024 (Medusa), section 2.3.3.

    >>> growth([0.5, 0.25], 3)
    [(0,), (1,), (0, 0)]
    """
    given, chosen, value = _lookup(acceptance), [], {(): 1}
    for _ in range(_check_count("nodes", nodes, least=0)):
        children = {}  # of every chosen node, and of the root, the eldest child not chosen yet
        for above in [(), *chosen]:
            rank = next(rank for rank in count() if (*above, rank) not in value)
            if given(len(above), rank) is not None:
                children[*above, rank] = value[above] * given(len(above), rank)
        if not children:
            raise ValueError(f"nodes: {nodes}, expected no more than the acceptance has entries for")
        new = min(children, key=lambda path: (-children[path], len(path), path))
        chosen.append(new)
        value[new] = children[new]
    return chosen


def greedy_tree(acceptance, nodes):
    """Parents of the tree that `growth` makes of `nodes` nodes, level by level; `best_tree` is best for any acceptance.

    >>> greedy_tree([0.5, 0.25], 3)
    [-1, -1, 0]
    """
    return from_paths(sorted(growth(acceptance, nodes), key=lambda path: (len(path), path)))[1]


def top_nodes(parents, values, nodes):
    """The `nodes` nodes of the largest value, best first: EAGLE-2's rerank. Returns node ids.

    values: [n], such as `path_products` gives: where no child is worth more than its parent, the chosen nodes
    are a tree, and each comes after its parent. Ties go to the shallower node, then to the lower id.
    Raises ValueError for lengths that differ, a child worth more than its parent, nodes < 0.
    Source: Li et al. 2024 (EAGLE-2), section 4.2.

    >>> top_nodes([-1, -1, 0, 1], [0.5, 0.4, 0.1, 0.3], 3)
    [0, 1, 3]
    """
    parents, values = _check_parents(parents), list(values)
    if len(values) != len(parents):
        raise ValueError(f"values: {len(values)} given for {len(parents)} nodes, expected as many")
    for node, parent in enumerate(parents):
        if not values[node] <= (values[parent] if parent != -1 else values[node]):  # so that NaN is refused too
            raise ValueError(f"values: {values[node]} at node {node}, expected a number, at most its parent's")
    depth = depths(parents)
    order = sorted(range(len(parents)), key=lambda node: (-values[node], depth[node], node))
    return order[: _check_count("nodes", nodes, least=0)]


def subtree(parents, kept):
    """Parents of the tree of the `kept` nodes alone, numbered in the order given (each after its parent).

    Raises ValueError when a kept node's parent is not kept before it.

    >>> subtree([-1, -1, 0, 1], [1, 3])
    [-1, 0]
    """
    parents, place = _check_parents(parents), {-1: -1}
    for new, node in enumerate(kept):
        if not 0 <= node < len(parents) or node in place or parents[node] not in place:
            raise ValueError(f"kept: node {node}, expected each node once and after its parent")
        place[node] = new
    return [place[parents[node]] for node in kept]


def dynamic_tree(children, levels, width, nodes, batched=False):
    """EAGLE-2's tree: grow where the draft is sure of itself, then keep the best. `(tokens, parents, values)`.

    children(path) -> (tokens, probabilities): what the draft would say after a root path (a tuple of tokens),
    and how sure it is. The `width` likeliest are candidates. From each level the `width` nodes of the largest
    value, the product of probabilities along the path, are expanded, `levels` levels deep; of all candidates the
    `nodes` best stay, best first. With batched, `children` takes a list of paths of one level and returns a list.
    The candidates must not be drawn: a tree pruned by what was drawn changes the law of the text. So each has a
    one-hot q. Raises ValueError for a count < 1 or a probability outside [0, 1].
    Source: Li et al. 2024 (EAGLE-2), section 4, whose depth, k and m are levels, width and nodes.

    >>> dynamic_tree(lambda path: ([3, 4], [0.5, 0.25]), levels=2, width=2, nodes=3)
    ([3, 4, 3], [-1, -1, 0], [0.5, 0.25, 0.25])
    """
    levels, width, nodes = (
        _check_count(name, size) for name, size in (("levels", levels), ("width", width), ("nodes", nodes))
    )
    paths, parents, values = [], [], []
    frontier = [-1]
    for _ in range(levels):
        above = [paths[node] if node != -1 else () for node in frontier]
        answers = children(above) if batched else [children(path) for path in above]
        first = len(paths)
        for node, path, (tokens, probabilities) in zip(frontier, above, answers):
            for token, probability in _likeliest(tokens, probabilities, width):
                paths.append((*path, token))
                parents.append(node)
                values.append((1 if node == -1 else values[node]) * probability)
        frontier = sorted(range(first, len(paths)), key=lambda node: (-values[node], node))[:width]
    kept = top_nodes(parents, values, nodes)
    return [paths[node][-1] for node in kept], subtree(parents, kept), [values[node] for node in kept]


def _likeliest(tokens, probabilities, width):
    for value in probabilities:
        _check_unit("probabilities", value)
    if len(tokens) != len(probabilities):
        raise ValueError(f"probabilities: {len(probabilities)} for {len(tokens)} tokens, expected as many")
    return sorted(zip(map(int, tokens), probabilities), key=lambda pair: -pair[1])[:width]


def speedup(tokens_per_pass, verify_cost, levels, c):
    """How many times faster than plain decode a tree is: tokens_per_pass / (verify_cost + levels c).

    verify_cost: time of one target pass over the tree / time of one target step. levels: draft steps in a row.
    c: time of one draft step / time of one target step.
    Raises ValueError for a cost < 0 or a pass that takes no time.
    Source: Chen et al. 2024 (Sequoia), section 4.1.

    >>> speedup(3.0, 1.25, 5, 0.05)
    2.0
    """
    for name, value in (("tokens_per_pass", tokens_per_pass), ("levels", levels), ("c", c)):
        if not (isinstance(value, Real) and 0 <= value < float("inf")):
            raise ValueError(f"{name}: {value!r}, expected a finite number >= 0")
    if not (isinstance(verify_cost, Real) and 0 < verify_cost < float("inf")):
        raise ValueError(f"verify_cost: {verify_cost!r}, expected a finite number > 0")
    return tokens_per_pass / (verify_cost + levels * c)
