"""Trees of drafted tokens, as a list of parents: depths, and who may see whom."""

import operator

import numpy as np


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
