"""Medusa's drafts: which feature, which tokens, which tree, and a text whose law is the target's."""

import itertools

import numpy as np
import pytest

from specnotes import decode, law, rules, toy
from specnotes.drafters import MedusaDrafter
from specnotes.heads import MedusaHeads
from specnotes.tree import from_branching
from tests.exact import row
from tests.features import CONFIG, TokenChoices, TokenFeatures, TokenRows, small
from tests.test_tree_decode import P2, P3, Q2, Q3, SAME, SHAPES, plain_law


def random_heads(count=4, seed=1):
    rng, d = np.random.default_rng(seed), CONFIG.width
    blocks = [(rng.standard_normal((d, d)), rng.standard_normal(d)) for _ in range(count)]
    return MedusaHeads(blocks, [rng.standard_normal((CONFIG.vocab_size, d)) for _ in range(count)])


@pytest.mark.parametrize("parents", SHAPES.values(), ids=SHAPES)
def test_greedy_text_is_that_of_plain_decode_for_every_tree_shape(parents):
    target, settings = small(), dict(max_new_tokens=30, temperature=0)
    plain = decode.generate(target, [1, 2, 3], **settings)
    drafter = MedusaDrafter(random_heads(), parents)
    found = decode.generate(target, [1, 2, 3], drafter, gamma=4, rule=rules.greedy_rule, **settings)
    assert found.tokens == plain.tokens and len(found.rounds[0].draft) == len(parents)


def test_heads_that_know_the_text_have_their_whole_path_accepted():
    # The chain says 0, 1, 2, 0, 1, 2, ...; its feature is the token, so head k (k = 1, 2) knows token + 1 + k.
    cycle = [row(0, 1, 0), row(0, 0, 1), row(1, 0, 0)]

    class Knows(TokenChoices):
        def choices(self, feature, ranks):
            return np.array([[(int(feature[0]) + 1 + k + r) % 3 for r in range(ranks)] for k in (1, 2)])

    drafter = MedusaDrafter(Knows(None, 3, 2), parents=[-1, -1, 0])
    settings = dict(gamma=2, max_new_tokens=9, temperature=0, rule=rules.greedy_rule)
    found = decode.generate(TokenFeatures(cycle), [0, 1], drafter, **settings)
    assert found.tokens == (2, 0, 1) * 3
    assert found.tokens_per_pass == 3 and {r.verdict.path for r in found.rounds} == {(0, 2)}


def test_every_draft_is_built_on_the_feature_the_last_token_was_drawn_from():
    target, seen = small(), []

    class Spy(MedusaHeads):
        def choices(self, feature, ranks):
            seen.append(feature)
            return super().choices(feature, ranks)

    heads = random_heads()
    drafter = MedusaDrafter(Spy(heads.blocks, heads.tables), from_branching((3, 2)))
    found = decode.generate(target, [1, 2, 3], drafter, gamma=2, max_new_tokens=20, rule=rules.sampler_match_rule)
    text, features = [1, 2, 3], []
    for one in found.rounds:
        fresh = small()
        features.append(fresh.forward(text[:-1]).features[-1])
        text += one.tokens
    assert len(seen) >= len(found.rounds) - 1
    np.testing.assert_allclose(seen, features[: len(seen)], rtol=0, atol=1e-10)


def test_a_node_bears_the_choice_of_its_rank_by_the_head_of_its_depth_and_its_row_is_one_hot():
    heads = random_heads()
    drafter = MedusaDrafter(heads, SHAPES["mixed order"])
    feature = np.random.default_rng(0).standard_normal(CONFIG.width)
    drafter.start([1, 2])
    drafter.read(feature[None])
    draft, q = drafter.propose([1, 2], 4, None, None)
    best = [np.argsort(-logits).tolist() for logits in heads.logits(feature)]
    # parents -1, 0, 0, 1, -1, 4, 2, 4, 7: depths and ranks by hand
    places = [(0, 0), (1, 0), (1, 1), (2, 0), (0, 1), (1, 0), (2, 0), (1, 1), (2, 0)]
    assert draft.tokens == tuple(best[depth][rank] for depth, rank in places)
    assert draft.parents == tuple(SHAPES["mixed order"])
    np.testing.assert_array_equal(q, np.eye(CONFIG.vocab_size)[list(draft.tokens)])


def test_a_shorter_gamma_cuts_the_tree_at_its_level():
    drafter = MedusaDrafter(random_heads(), SHAPES["mixed order"])
    drafter.start([1, 2])
    drafter.read(np.ones((1, CONFIG.width)))
    whole, cut = (drafter.propose([1, 2], gamma, None, None)[0] for gamma in (3, 2))
    assert cut.levels == 2 and cut.parents == (-1, 0, 0, -1, 3, 3)
    assert cut.tokens == tuple(whole.tokens[node] for node in (0, 1, 2, 4, 5, 7))


def test_a_head_computes_its_formula():
    heads = random_heads(2)
    f = np.random.default_rng(3).standard_normal(CONFIG.width)
    for (weight, bias), table, found in zip(heads.blocks, heads.tables, heads.logits(f)):
        inner = bias + weight.T @ f
        np.testing.assert_allclose(found, table @ (f + inner / (1 + np.exp(-inner))), rtol=1e-12)


def text_law(P, rule, n, gamma=2, prompt=(0,)):
    """The exact law of whole texts drafted by heads whose offers depend on the feature."""
    offers = list(itertools.permutations(range(len(P))))
    target = TokenFeatures(P)

    def text(dice):
        drafter = MedusaDrafter(TokenChoices(offers, len(P), 2), parents=[-1, -1, 0])
        done = decode.rounds(
            target, list(prompt), drafter, gamma=gamma, max_new_tokens=n, warp=SAME, rule=rule, dice=dice
        )
        return tuple(token for round in done for token in round.tokens)

    return law.exact_law(text)


@pytest.mark.parametrize("P", [P2, P3])
@pytest.mark.parametrize("gamma", [1, 2])
def test_a_whole_text_has_the_targets_law_exactly(P, gamma):
    assert text_law(P, rules.sampler_match_rule, 3, gamma, prompt=(1, 0)) == plain_law(P, 3)
    assert text_law(P, rules.sampler_match_rule, 3, gamma) == plain_law(P, 3)
    for rule in (rules.with_replacement_rule, rules.without_replacement_rule):
        found, expected = text_law(P, rule, 3, gamma, prompt=(1, 0)), plain_law(P, 3)
        assert found.keys() == expected.keys()
        values = [float(found[word]) for word in expected]
        assert values == pytest.approx([float(w) for w in expected.values()], rel=1e-12)


def test_after_a_prompt_of_one_token_the_first_pass_has_no_draft():
    drafter = MedusaDrafter(random_heads(), [-1, 0])
    found = decode.generate(small(), [1], drafter, gamma=2, max_new_tokens=8, rule=rules.sampler_match_rule)
    assert [len(r.draft) for r in found.rounds][:2] == [0, 2]


def test_a_context_too_short_for_the_tree_is_filled_without_drafts():
    drafter = MedusaDrafter(random_heads(), from_branching((3, 2)))
    settings = dict(gamma=2, max_new_tokens=40, temperature=0, rule=rules.greedy_rule)
    found = decode.generate(small(), [1] * 30, drafter, **settings)
    assert len(found.tokens) == 18 and found.finish == "context" and len(found.rounds[-1].draft) == 0


@pytest.mark.parametrize(
    "parents, word", [([-1, 0, 1, 2, 3], "5 levels"), ([-1] * 14, "14 siblings"), ([-1, 1], "parents")]
)
def test_a_tree_that_the_heads_cannot_fill_is_refused(parents, word):
    with pytest.raises(ValueError, match=word):
        MedusaDrafter(random_heads(), parents)


def test_a_size_no_tree_came_with_is_refused():
    with pytest.raises(ValueError, match="nodes: 7"):
        MedusaDrafter(random_heads(), nodes=7)


def test_a_target_without_features_is_refused():
    drafter = MedusaDrafter(TokenChoices([(0, 1)] * 2, 2, 1), [-1])
    with pytest.raises(ValueError, match="features: None"):
        decode.generate(toy.TableModel(lambda text: [1.0, 0.0], 2), [0], drafter, max_new_tokens=3)


@pytest.mark.parametrize("blocks, tables, word", [
    ([], [], "at least 1"),
    ([(np.eye(2), np.zeros(2))], [], "tables: 0"),
    ([(np.eye(3), np.zeros(3))], [np.eye(2)], "width 2"),
])
def test_heads_of_shapes_that_do_not_agree_are_refused(blocks, tables, word):
    with pytest.raises(ValueError, match=word):
        MedusaHeads(blocks, tables)


@pytest.mark.parametrize("P, Q, branching", [(P2, Q2, (2, 1)), (P2, Q2, (1, 2)), (P3, Q3, (2,)), (P2, Q2, (1, 1))])
@pytest.mark.parametrize("gamma", [1, 2])
def test_a_whole_text_drafted_by_drawn_trees_has_the_targets_law_exactly(P, Q, branching, gamma):
    def text(dice):
        drafter = MedusaDrafter(TokenRows(Q, len(P), 2), branching=branching)
        done = decode.rounds(
            TokenFeatures(P), [1, 0], drafter, gamma=gamma, max_new_tokens=3, warp=SAME,
            rule=rules.without_replacement_rule, dice=dice,
        )
        return tuple(token for round in done for token in round.tokens)

    assert law.exact_law(text) == plain_law(P, 3)


def test_a_drawn_tree_has_distinct_siblings_and_the_law_each_was_drawn_from():
    from specnotes.dice import RandomDice
    from specnotes.distributions import probs_from_logits

    heads, feature = random_heads(), np.random.default_rng(0).standard_normal(CONFIG.width)
    drafter = MedusaDrafter(heads, branching=(3, 2))
    drafter.start([1, 2])
    drafter.read(feature[None])
    draft, q = drafter.propose([1, 2], 4, probs_from_logits, RandomDice(np.random.default_rng(1)))
    assert draft.parents == tuple(from_branching((3, 2))) and drafter.max_nodes == len(draft) == 9
    rows = probs_from_logits(heads.logits(feature))
    for parent, depth in ((-1, 0), (0, 1), (1, 1), (2, 1)):
        nodes = draft.children(parent)
        tokens = [draft.tokens[node] for node in nodes]
        assert len(set(tokens)) == len(tokens)
        for place, node in enumerate(nodes):
            left = rows[depth].copy()
            left[tokens[:place]] = 0
            np.testing.assert_allclose(q[node], left / left.sum(), rtol=1e-12)


@pytest.mark.parametrize("branching, word", [((0,), r"branching: \(0,\)"), ((14,), "levels of 1 to 13 children"), ((1,) * 5, "1 to 4 levels"), ((), "1 to 4")])
def test_a_branching_that_cannot_be_drawn_is_refused(branching, word):
    with pytest.raises(ValueError, match=word):
        MedusaDrafter(random_heads(), branching=branching)


def test_several_kinds_of_trees_at_once_and_other_heads_are_refused():
    for settings in ({"parents": [-1], "branching": (2,)}, {"nodes": 8, "branching": (2,)}, {"parents": [-1], "nodes": 8}):
        with pytest.raises(ValueError, match=" beside .* expected one of them"):
            MedusaDrafter(random_heads(), **settings)
    with pytest.raises(ValueError, match="heads: GPT2, expected Medusa heads"):
        MedusaDrafter(small())


def test_a_drawn_tree_is_drawn_from_the_warped_rows():
    from functools import partial

    from specnotes.dice import RandomDice
    from specnotes.distributions import probs_from_logits

    heads, feature = random_heads(), np.ones(CONFIG.width)
    drafter = MedusaDrafter(heads, branching=(1, 1))
    drafter.start([1, 2])
    drafter.read(feature[None])
    warp = partial(probs_from_logits, temperature=0.5)
    _, q = drafter.propose([1, 2], 2, warp, RandomDice(np.random.default_rng(0)))
    np.testing.assert_allclose(q, warp(heads.logits(feature))[:2], rtol=1e-12)


def test_a_new_text_forgets_the_feature_of_the_old_one():
    drafter = MedusaDrafter(random_heads(), [-1, 0])
    drafter.start([1, 2])
    drafter.read(np.ones((1, CONFIG.width)))
    drafter.start([5])
    assert len(drafter.propose([5], 2, None, None)[0]) == 0


@pytest.mark.parametrize("branching", [3, (400,) * 4, (10**9,), (2.5,), "ab"])
def test_a_branching_of_any_size_is_judged_before_a_tree_is_built(branching):
    with pytest.raises(ValueError, match="branching: "):
        MedusaDrafter(random_heads(), branching=branching)
