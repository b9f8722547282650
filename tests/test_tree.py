"""Trees: their shape and order, what they are expected to yield, and the best of them against every tree there is."""

import itertools
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specnotes import tree
from specnotes.records import Draft
from tests.trees import every_tree, root_path, tree_value

steady = settings(derandomize=True, deadline=None, database=None, max_examples=40)
few = settings(steady, max_examples=20)
PARENTS = [-1, 0, 0, 1, -1, 4, 4, 2]


def parents_lists(most=12):
    """Any tree of up to `most` nodes."""
    of_size = lambda n: st.tuples(*(st.integers(-1, node - 1) for node in range(n)))
    return st.integers(0, most).flatmap(of_size).map(list)


def test_the_tree_of_four_nodes_by_hand():
    parents = [-1, 0, 0, 1]
    assert tree.depths(parents).tolist() == [0, 1, 1, 2]
    assert [np.flatnonzero(row).tolist() for row in tree.ancestor_mask(parents)] == [[0], [0, 1], [0, 2], [0, 1, 3]]
    assert tree.positions(parents, 7).tolist() == [7, 8, 8, 9]
    assert tree.ranks(parents).tolist() == [0, 0, 1, 0]


@steady
@given(parents_lists(), st.integers(0, 50))
def test_depth_position_rank_and_mask_follow_from_the_parents(parents, start):
    depths, positions = tree.depths(parents), tree.positions(parents, start)
    mask, ranks = tree.ancestor_mask(parents), tree.ranks(parents)
    for node, parent in enumerate(parents):
        path = root_path(node, parents)
        assert depths[node] == len(path) - 1
        assert positions[node] == (start if parent == -1 else positions[parent] + 1)
        assert np.flatnonzero(mask[node]).tolist() == path
        assert ranks[node] == parents[:node].count(parent)


def test_no_nodes_are_a_tree_too():
    assert tree.depths([]).shape == tree.positions([], 3).shape == tree.ranks([]).shape == (0,)
    assert tree.ancestor_mask([]).shape == (0, 0)
    assert tree.from_branching(()) == tree.best_tree([0.5], 0) == tree.greedy_tree([0.5], 0) == []
    assert tree.from_paths([]) == tree.cartesian([]) == ([], [])
    assert tree.expected_tokens([], [[0.5]]) == 1


def test_a_branching_of_four_two_one_has_twenty_nodes_level_by_level():
    parents = tree.from_branching((4, 2, 1))
    assert parents == [-1] * 4 + [0, 0, 1, 1, 2, 2, 3, 3] + list(range(4, 12))
    assert np.bincount(tree.depths(parents)).tolist() == [4, 8, 8]
    assert tree.from_branching((1,) * 5) == list(Draft.chain(range(5)).parents)


@steady
@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4, unique=True), max_size=3))
def test_the_full_tree_holds_every_choice_of_every_head_once(choices):
    tokens, parents = tree.cartesian(choices)
    paths = [tuple(tokens[step] for step in root_path(node, parents)) for node in range(len(tokens))]
    expected = [path for size in range(1, len(choices) + 1) for path in itertools.product(*choices[:size])]
    assert paths == expected
    assert (tokens, parents) == tree.from_paths(expected)


def test_paths_share_their_beginnings_and_need_not_be_sorted():
    tokens, parents = tree.from_paths([(5, 6, 9), (8,), (5, 7), (5, 6)])
    assert (tokens, parents) == ([5, 8, 6, 7, 9], [-1, -1, 0, 0, 2])
    assert Draft(tokens, parents).children(0) == (2, 3)


@steady
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=6))
def test_a_tree_of_paths_holds_their_prefixes_and_nothing_else(paths):
    tokens, parents = tree.from_paths(paths)
    found = [tuple(tokens[step] for step in root_path(node, parents)) for node in range(len(tokens))]
    assert len(found) == len(set(found))
    assert set(found) == {tuple(path[:size]) for path in paths for size in range(1, len(path) + 1)}


def test_expected_tokens_by_hand():
    # root 1; first candidates 1/2 and 1/4; under the elder 1/2 and 1/8; under the younger 1/2
    acceptance = [[F(1, 2), F(1, 4)], [F(1, 2), F(1, 8)]]
    expected = 1 + F(1, 2) + F(1, 4) + F(1, 4) + F(1, 16) + F(1, 8)
    assert tree.expected_tokens([-1, -1, 0, 0, 1], acceptance) == expected
    by_place = {(depth, rank): value for depth, row in enumerate(acceptance) for rank, value in enumerate(row)}
    assert tree.expected_tokens([-1, -1, 0, 0, 1], by_place) == expected
    assert tree.expected_tokens([-1, -1, 0, 0, 1], np.array(acceptance, dtype=float)) == float(expected)


def test_one_row_of_acceptance_holds_at_every_depth():
    assert tree.expected_tokens([-1, 0, 1, 2], [F(1, 2)]) == sum(F(1, 2) ** n for n in range(5))
    assert tree.expected_tokens([-1, -1, 1], [F(1, 2), F(1, 4)]) == 1 + F(1, 2) + F(1, 4) + F(1, 8)


ROWS = st.lists(st.fractions(0, 1, max_denominator=12), min_size=3, max_size=3)


@few
@given(st.lists(ROWS, min_size=8, max_size=8), st.integers(0, 8))
def test_the_programme_finds_the_best_of_all_trees_whatever_the_order_of_ranks(acceptance, nodes):
    found = tree.best_tree(acceptance, nodes)
    assert len(found) == nodes
    best = max(tree_value(one, acceptance) for one in every_tree(nodes, 3, 8))
    assert tree.expected_tokens(found, acceptance) - 1 == best


@few
@given(st.lists(ROWS.map(lambda row: sorted(row, reverse=True)), min_size=8, max_size=8), st.integers(0, 8))
def test_greedy_addition_is_as_good_where_acceptance_falls_with_rank(acceptance, nodes):
    found = tree.expected_tokens(tree.greedy_tree(acceptance, nodes), acceptance)
    assert found == tree.expected_tokens(tree.best_tree(acceptance, nodes), acceptance)
    if nodes <= 4:  # not even trees that leave out an elder sibling are better
        assert found - 1 == max(tree_value(one, acceptance) for one in every_tree(nodes, 3, 8, gaps=True))


@steady
@given(st.lists(st.fractions(0, 1, max_denominator=12), min_size=1, max_size=4), st.integers(1, 8))
def test_one_row_for_all_depths_is_the_table_that_repeats_it(acceptance, nodes):
    table = [acceptance] * nodes
    assert tree.best_tree(acceptance, nodes) == tree.best_tree(table, nodes)
    assert tree.greedy_tree(acceptance, nodes) == tree.greedy_tree(table, nodes)


def test_a_poor_elder_is_worth_its_node_when_the_younger_is_rich():
    # The third candidate is worth 1/2, but only beside the second, which is worth nothing.
    acceptance = [[F(1, 4), F(0), F(1, 2)], [F(1, 8)]]
    assert tree.best_tree(acceptance, 3) == [-1, -1, -1]
    assert tree.expected_tokens([-1, -1, -1], acceptance) == F(7, 4)
    # Greedy addition looks one node ahead and prefers the child of the first, worth 1/32.
    assert tree.expected_tokens(tree.greedy_tree(acceptance, 3), acceptance) == 1 + F(1, 4) + F(1, 32)


def test_among_equals_the_shallower_node_comes_first():
    # Worth 1/2, 1/4 (0-0) and 1/5 (1); then 0-0-0 and 1-0 are worth 1/10 both.
    assert tree.greedy_tree([[F(1, 2), F(1, 5)], [F(1, 2)], [F(2, 5)]], 4) == [-1, -1, 0, 1]
    assert tree.top_nodes([-1, 0, -1], [F(1, 2), F(1, 4), F(1, 4)], 3) == [0, 2, 1]


def test_the_best_trees_of_one_size_are_worth_more_than_those_of_the_size_before():
    values = [tree.expected_tokens(tree.best_tree([0.6, 0.2, 0.1], n), [0.6, 0.2, 0.1]) for n in range(33)]
    assert all(more > less for less, more in zip(values, values[1:]))
    # An endless tree would yield 1 / (1 - (.6 + .2 + .1)) tokens.
    assert values[-1] < 10


def test_no_more_nodes_than_places():
    assert len(tree.best_tree([[0.5, 0.2], [0.5]], 4)) == len(tree.greedy_tree([[0.5, 0.2], [0.5]], 4)) == 4
    for build in (tree.best_tree, tree.greedy_tree):
        with pytest.raises(ValueError, match="^nodes: 5, expected no more"):
            build([[0.5, 0.2], [0.5]], 5)


SAYS = {
    (): ([1, 2, 3], [0.5, 0.4, 0.1]),
    (1,): ([4, 5], [0.9, 0.1]), (2,): ([6, 7], [0.5, 0.5]),
    (1, 4): ([8, 9], [0.3, 0.2]), (2, 6): ([1, 2], [1.0, 0.0]),
}


def test_a_dynamic_tree_by_hand():
    asked = []
    ask = lambda path: asked.append(path) or SAYS[path]
    grow = lambda nodes: tree.dynamic_tree(ask, levels=3, width=2, nodes=nodes)
    tokens, parents, values = grow(6)
    # Candidates: 1 (.5), 2 (.4); 1-4 (.45), 1-5 (.05), 2-6 (.2), 2-7 (.2); from 1-4 and 2-6: 1-4-8 (.135),
    # 1-4-9 (.09), 2-6-1 (.2), 2-6-2 (0). The tie at .2 goes to the shallower, then to the earlier.
    assert asked == [(), (1,), (2,), (1, 4), (2, 6)]
    assert (tokens, parents) == ([1, 4, 2, 6, 7, 1], [-1, 0, -1, 2, 2, 3])
    assert values == pytest.approx([0.5, 0.45, 0.4, 0.2, 0.2, 0.2])
    assert grow(2)[:2] == ([1, 4], [-1, 0])
    assert len(grow(99)[0]) == 2 + 4 + 4


def test_a_dynamic_tree_may_ask_for_a_level_at_once():
    whole = tree.dynamic_tree(SAYS.get, 3, 2, 6)
    assert tree.dynamic_tree(lambda paths: [SAYS[path] for path in paths], 3, 2, 6, batched=True) == whole


WEIGHTS = st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any)


@steady
@given(st.lists(WEIGHTS, min_size=3, max_size=3), st.integers(1, 20))
def test_a_dynamic_tree_that_may_expand_everything_keeps_the_likeliest_texts(transitions, nodes):
    rows = [[F(part, sum(row)) for part in row] for row in transitions]
    children = lambda path: (range(3), rows[path[-1] if path else 0])
    tokens, parents, values = tree.dynamic_tree(children, levels=3, width=27, nodes=nodes)
    assert Draft(tokens, parents).levels <= 3
    for node in range(len(tokens)):
        state, value = 0, 1
        for step in root_path(node, parents):
            state, value = tokens[step], value * rows[state][tokens[step]]
        assert value == values[node]
    texts = [text for size in (1, 2, 3) for text in itertools.product(range(3), repeat=size)]
    everything = sorted((np.prod([rows[a][b] for a, b in zip((0, *text), text)]) for text in texts), reverse=True)
    assert values == everything[:nodes]


@pytest.mark.parametrize("call, message", [
    (lambda: tree.depths([0]), "^parents: 0 at node 0"),
    (lambda: tree.positions([-1], -1), "^start: -1"),
    (lambda: tree.ranks([-1, 1]), "^parents: 1 at node 1"),
    (lambda: tree.from_branching((2, 0)), "^branching: 0"),
    (lambda: tree.from_branching((2.0,)), "^branching: 2.0"),
    (lambda: tree.cartesian([[1], []]), "^choices: none for head 1"),
    (lambda: tree.from_paths([()]), "^paths: an empty path"),
    (lambda: tree.from_paths([3]), "^paths: 3, expected sequences"),
    (lambda: tree.path_products([-1, 0], [0.5]), "^values: 1 given for 2 nodes"),
    (lambda: tree.path_products([-1], [1.5]), "^values: 1.5"),
    (lambda: tree.expected_tokens([-1, -1], [[0.5]]), "^acceptance: no entry for depth 0, rank 1"),
    (lambda: tree.expected_tokens([-1, 0], {(0, 0): 0.5}), "^acceptance: no entry for depth 1, rank 0"),
    (lambda: tree.expected_tokens([-1], [[float("nan")]]), "^acceptance: nan"),
    (lambda: tree.expected_tokens([-1], [-0.5]), "^acceptance: -0.5"),
    (lambda: tree.expected_tokens([-1], [0.5, [0.5]]), "^acceptance: .*one row by rank"),
    (lambda: tree.best_tree([0.5], -1), "^nodes: -1"),
    (lambda: tree.greedy_tree([0.5], 1.5), "^nodes: 1.5"),
    (lambda: tree.top_nodes([-1, 0], [0.5], 1), "^values: 1 given for 2 nodes"),
    (lambda: tree.top_nodes([-1, 0], [0.5, 0.6], 1), "^values: 0.6 at node 1"),
    (lambda: tree.subtree([-1, 0], [1]), "^kept: node 1"),
    (lambda: tree.subtree([-1, 0], [0, 0]), "^kept: node 0"),
    (lambda: tree.subtree([-1, 0], [2]), "^kept: node 2"),
    (lambda: tree.dynamic_tree(SAYS.get, 0, 2, 2), "^levels: 0"),
    (lambda: tree.dynamic_tree(SAYS.get, 1, 0, 2), "^width: 0"),
    (lambda: tree.dynamic_tree(SAYS.get, 1, 2, 0), "^nodes: 0"),
    (lambda: tree.dynamic_tree(lambda path: ([1], [1.5]), 1, 1, 1), "^probabilities: 1.5"),
    (lambda: tree.dynamic_tree(lambda path: ([1], [0.5, 0.5]), 1, 1, 1), "^probabilities: 2 for 1 tokens"),
    (lambda: tree.speedup(3, 0, 1, 0.1), "^verify_cost: 0"),
    (lambda: tree.speedup(3, 1, 1, -0.1), "^c: -0.1"),
    (lambda: tree.speedup(3, 1, -1, 0.1), "^levels: -1"),
    (lambda: tree.speedup(float("nan"), 1, 1, 0.1), "^tokens_per_pass: nan"),
])
def test_what_makes_no_tree_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("nodes, branching", [(1, (1,)), (4, (1,) * 4), (7, (1, 2, 1, 1)), (8, (2, 1, 1, 1)), (16, (4, 1, 1, 1)), (44, (4, 3, 1, 1))])
def test_a_branching_within_a_budget_is_wide_where_it_begins(nodes, branching):
    found = tree.branching_within(nodes, 4)
    assert found == branching and len(tree.from_branching(found)) <= nodes


def test_a_budget_of_no_nodes_is_refused():
    for settings in ({"nodes": 0, "levels": 4}, {"nodes": 4, "levels": 0}, {"nodes": 4, "levels": 4, "most": 1.5}):
        with pytest.raises(ValueError, match="expected an integer >= 1"):
            tree.branching_within(**settings)


@pytest.mark.parametrize("call, name", [
    (lambda: tree.best_tree(0.5, 1), "acceptance: 0.5"), (lambda: tree.growth(None, 1), "acceptance: None"),
    (lambda: tree.expected_tokens([-1], None), "acceptance: None"), (lambda: tree.from_paths(None), "paths: None"),
    (lambda: tree.from_branching(3), "branching: 3"), (lambda: tree.top_nodes([-1, 0], [0.5, float("nan")], 2), "values: nan"),
    (lambda: tree.top_nodes([-1], [float("nan")], 1), "values: nan"),
])
def test_what_is_no_sequence_or_no_number_is_refused_by_name(call, name):
    with pytest.raises(ValueError, match=name):
        call()
