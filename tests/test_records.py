import pytest

from specnotes.records import Draft, Verdict, as_draft
from specnotes.tree import ancestor_mask, depths


def test_a_list_of_tokens_is_a_chain():
    draft = as_draft([4, 5, 6])
    assert (draft.tokens, draft.parents, draft.is_chain) == ((4, 5, 6), (-1, 0, 1), True)
    assert as_draft(draft) is draft
    assert len(as_draft([])) == 0 and as_draft([]).is_chain


def test_children_come_elder_first():
    draft = Draft((1, 2, 3, 4), (-1, -1, 0, 0))
    assert [draft.children(node) for node in (-1, 0, 1)] == [(0, 1), (2, 3), ()]
    assert not draft.is_chain


@pytest.mark.parametrize(
    "tokens, parents, name",
    [((1, 2), (-1,), "parents"), ((1, 2), (-1, 1), "parents"), ((1,), (-2,), "parents"), ((-3,), (-1,), "tokens"),
     ((1.5,), (-1,), "tokens"), (("a",), (-1,), "tokens"), ((1,), (None,), "parents"), (7, (-1,), "tokens")],
)
def test_what_is_no_tree_is_refused(tokens, parents, name):
    with pytest.raises(ValueError, match=f"^{name}: "):
        Draft(tokens, parents)


def test_a_verdict_lists_what_the_pass_emits():
    verdict = Verdict(path=(0, 2), token=9, kind="bonus", accepted=(4, 6))
    assert verdict.tokens == (4, 6, 9) and verdict.kinds == ("accepted", "accepted", "bonus")
    assert hash(verdict) == hash(Verdict((0, 2), 9, "bonus", (4, 6)))


def test_depths_and_mask_of_a_small_tree():
    # node 2 hangs under 0, node 3 under 1 under 0
    assert depths([-1, 0, 0, 1]).tolist() == [0, 1, 1, 2]
    seen = [set(row.nonzero()[0].tolist()) for row in ancestor_mask([-1, 0, 0, 1])]
    assert seen == [{0}, {0, 1}, {0, 2}, {0, 1, 3}]


def test_the_mask_of_a_chain_is_the_causal_triangle():
    assert ancestor_mask([-1, 0, 1]).astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_two_roots_do_not_see_each_other():
    assert ancestor_mask([-1, -1]).astype(int).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("parents", [[0], [-1, 1], [-2], [-1, 0, 5], [-1, 0.5], None])
def test_a_parent_that_is_no_earlier_node_is_refused(parents):
    for function in (depths, ancestor_mask):
        with pytest.raises(ValueError, match="^parents: "):
            function(parents)


def test_an_empty_tree_has_no_depths():
    assert depths([]).shape == (0,) and ancestor_mask([]).shape == (0, 0)


@pytest.mark.parametrize("draft", [[1.5], ["a"], 3, None])
def test_a_draft_that_is_no_list_of_integers_is_refused(draft):
    with pytest.raises(ValueError, match="^draft: "):
        as_draft(draft)
