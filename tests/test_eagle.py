"""EAGLE's drafts: the right feature beside every token, a cache that forgets guesses, laws that stay the target's."""

import numpy as np
import pytest

from specnotes import decode, law, rules, toy
from specnotes.dice import RandomDice
from specnotes.distributions import probs_from_logits
from specnotes.drafters import EagleDrafter
from specnotes.gpt2 import GPT2, Config, random_tensors
from specnotes.heads import EagleHead
from specnotes.tree import from_branching
from tests.features import CONFIG, TokenFeatures, TokenHead, small
from tests.test_tree_decode import P2, P3, Q2, Q3, SAME, plain_law
from tests.trees import root_path

LAYER = Config(CONFIG.vocab_size, CONFIG.max_length, CONFIG.width, layers=1, heads=2, tied=False)


def small_head(seed=3, dtype="float64"):
    return EagleHead.random(LAYER, seed, dtype)


def text_law(P, Q, rule, n, gamma=2, prompt=(1, 0), max_length=64, **tree):
    target = TokenFeatures(P, max_length)

    def text(dice):
        drafter = EagleDrafter(TokenHead(Q, prompt[0], max_length), **tree)
        done = decode.rounds(
            target, list(prompt), drafter, gamma=gamma, max_new_tokens=n, warp=SAME, rule=rule, dice=dice
        )
        return tuple(token for round in done for token in round.tokens)

    return law.exact_law(text)


@pytest.mark.parametrize("P, Q", [(P2, Q2), (P3, Q3)])
@pytest.mark.parametrize("gamma", [1, 2, 3])
@pytest.mark.parametrize("prompt", [(0,), (1, 0)])
def test_a_whole_text_drafted_by_chains_has_the_targets_law_exactly(P, Q, gamma, prompt):
    assert text_law(P, Q, rules.token_rule, 3, gamma, prompt) == plain_law(P, 3)


@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
def test_a_whole_text_drafted_by_dynamic_trees_has_the_targets_law_exactly(nodes):
    Q = [[0.0, 1.0], [2.0, -1.0]]  # logits: the head's confidence decides the shape
    assert text_law(P2, Q, rules.sampler_match_rule, 4, 3, nodes=nodes, width=2) == plain_law(P2, 4)
    found, expected = text_law(P2, Q, rules.with_replacement_rule, 4, 3, nodes=nodes, width=2), plain_law(P2, 4)
    assert found.keys() == expected.keys()
    assert [float(found[word]) for word in expected] == pytest.approx([float(w) for w in expected.values()], rel=1e-12)


@pytest.mark.parametrize("P, Q, branching", [(P2, Q2, (2, 1)), (P2, Q2, (1, 2)), (P3, Q3, (2,)), (P2, Q2, (2, 2))])
@pytest.mark.parametrize("gamma", [1, 2])
def test_a_whole_text_drafted_by_drawn_trees_has_the_targets_law_exactly(P, Q, branching, gamma):
    assert text_law(P, Q, rules.without_replacement_rule, 3, gamma, branching=branching) == plain_law(P, 3)


def test_a_drawn_tree_near_the_end_of_the_context_leaves_the_law_of_a_shorter_text():
    law_ = text_law(P2, Q2, rules.without_replacement_rule, 9, gamma=2, max_length=5, branching=(2, 1))
    assert law_ == plain_law(P2, 3)


def test_a_drawn_tree_has_the_rows_of_the_paths_read_alone_and_distinct_siblings():
    head, target, prompt = small_head(), small(), [1, 2, 3]
    features = target.forward(prompt[:-1]).features
    drafter = EagleDrafter(head, branching=(3, 2, 1))
    drafter.start(prompt)
    drafter.read(features)
    draft, q = drafter.propose(prompt, 3, probs_from_logits, RandomDice(np.random.default_rng(1)))
    assert draft.parents == tuple(from_branching((3, 2, 1))) and head.length == 2
    for node in range(len(draft)):
        fresh, step = small_head(), None
        step = fresh.forward(prompt[1:], features=features)
        for above in root_path(node, draft.parents)[:-1]:
            step = fresh.forward([draft.tokens[above]], features=step.features[-1:])
        row = probs_from_logits(step.logits)[-1]
        elders = [draft.tokens[other] for other in draft.children(draft.parents[node]) if other < node]
        row[elders] = 0
        np.testing.assert_allclose(q[node], row / row.sum(), rtol=0, atol=1e-9)
        assert draft.tokens[node] not in elders


def test_a_head_with_little_room_draws_fewer_levels():
    drafter = EagleDrafter(TokenHead(Q2, 0, 8), branching=(2, 2))
    drafter.start([0] * 7)
    drafter.read(np.zeros((6, 1)))
    # 8 rows, 6 of them for the prompt: the 2 left are for the first level, the last level is not read
    assert drafter._levels(2) == 2
    drafter.commit([0], np.zeros((1, 1)))
    assert drafter._levels(2) == 1
    drafter.commit([0, 0], np.zeros((2, 1)))
    assert drafter._levels(2) == 0


def test_near_the_end_of_the_context_the_law_is_that_of_a_shorter_text():
    assert text_law(P2, Q2, rules.token_rule, 9, gamma=3, max_length=5) == plain_law(P2, 3)
    Q = [[0.0, 1.0], [2.0, -1.0]]
    assert text_law(P2, Q, rules.sampler_match_rule, 9, gamma=3, max_length=5, nodes=3, width=2) == plain_law(P2, 3)


def test_a_head_whose_context_is_shorter_than_the_targets_drafts_only_there():
    target, head = TokenFeatures(P2, 40), TokenHead(Q2, 0, 8)
    found = decode.generate(target, [0, 1], EagleDrafter(head), gamma=3, max_new_tokens=38, temperature=1.0)
    assert len(found.tokens) == 38 and len(found.rounds[0].draft) == 3 and len(found.rounds[-1].draft) == 0


@pytest.mark.parametrize("nodes, width, gamma", [(None, 8, 1), (None, 8, 4), (6, 3, 3), (20, 8, 4), (1, 1, 2)])
def test_greedy_text_is_that_of_plain_decode(nodes, width, gamma):
    target, settings = small(), dict(max_new_tokens=30, temperature=0)
    plain = decode.generate(target, [1, 2, 3], **settings)
    drafter = EagleDrafter(small_head(), nodes, width)
    found = decode.generate(target, [1, 2, 3], drafter, gamma=gamma, rule=rules.greedy_rule, **settings)
    assert found.tokens == plain.tokens and len(found.rounds[0].draft) == (nodes or gamma)


def test_a_head_that_knows_the_chain_has_every_draft_accepted():
    rows = [[0.0, 9.0, 0.0], [0.0, 0.0, 9.0], [9.0, 0.0, 0.0]]
    for drafter, rule in ((EagleDrafter(TokenHead(rows, 0)), rules.token_rule),
                          (EagleDrafter(TokenHead(rows, 0), nodes=9, width=2), rules.greedy_rule)):
        settings = dict(gamma=3, max_new_tokens=12, temperature=0, rule=rule)
        found = decode.generate(TokenFeatures(rows), [0, 1], drafter, **settings)
        assert found.tokens_per_pass == 4


@pytest.mark.parametrize("nodes", [None, 6])
def test_every_draft_is_that_of_a_fresh_head_which_reads_the_whole_text_with_the_targets_features(nodes):
    target, warp, prompt = small(), lambda logits: probs_from_logits(logits), [1, 2, 3]
    drafter = EagleDrafter(small_head(), nodes, 3)
    drafts = []

    class Spy:
        max_nodes = nodes or 3

        def __getattr__(self, name):
            return getattr(drafter, name)

        def start(self, prompt):
            drafter.start(prompt)

        def commit(self, tokens, features=None):
            drafter.commit(tokens, features)

        def propose(self, context, gamma, warp, dice):
            fresh = EagleDrafter(small_head(), nodes, 3)
            fresh.start(context)
            fresh.read(small().forward(context[:-1]).features)
            seed = len(context)
            expected = fresh.propose(context, gamma, warp, RandomDice(np.random.default_rng(seed)))
            found = drafter.propose(context, gamma, warp, RandomDice(np.random.default_rng(seed)))
            drafts.append(len(found[0]))
            assert found[0] == expected[0]
            np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=1e-10)
            return found

    rule = rules.token_rule if nodes is None else rules.sampler_match_rule
    decode.generate(target, prompt, Spy(), gamma=3, max_new_tokens=40, rule=rule)
    assert len(drafts) > 5 and max(drafts) >= 3


def test_a_chain_is_drawn_from_the_rows_it_hands_out():
    head, target = small_head(), small()
    drafter, context, tables = EagleDrafter(head), [1, 2, 3, 4], []

    class Dice:
        def draw(self, weights):
            tables.append(np.array(weights))
            return len(tables) % 3

    drafter.start(context)
    features = target.forward(context[:-1]).features
    drafter.read(features)
    draft, q = drafter.propose(context, 3, lambda logits: probs_from_logits(logits, temperature=0.5), Dice())
    np.testing.assert_array_equal(q, tables)
    assert draft.tokens == (1, 2, 0) and draft.is_chain
    fresh = small_head()
    output = fresh.forward(context[1:], features=features)
    for token, found in zip(draft.tokens, q):
        np.testing.assert_allclose(found, probs_from_logits(output.logits[-1:], temperature=0.5)[0], atol=1e-10)
        output = fresh.forward([token], features=output.features[-1:])


def test_guesses_leave_the_cache_with_the_draft_and_committed_rows_are_read_once():
    drafter, context = EagleDrafter(small_head()), [1, 2, 3, 4]
    drafter.start(context)
    drafter.read(small().forward(context[:-1]).features)
    drafter.propose(context, 3, probs_from_logits, RandomDice(np.random.default_rng(0)))
    assert drafter.head.length == 3
    drafter.commit([5, 6], np.ones((2, CONFIG.width)))
    assert drafter.head.length == 3
    drafter.propose([*context, 5, 6], 3, probs_from_logits, RandomDice(np.random.default_rng(0)))
    assert drafter.head.length == 5
    drafter.start([1])
    assert drafter.head.length == 0


def test_the_head_is_one_layer_on_the_joined_feature_and_embedding():
    rng, config = np.random.default_rng(5), LAYER
    tensors = random_tensors(config, 0, scale=0.5)
    d = config.width
    tensors |= {"mix.weight": rng.standard_normal((2 * d, d)), "mix.bias": rng.standard_normal(d)}
    head = EagleHead(config, tensors, "float64")
    tokens, features = [3, 1, 4], rng.standard_normal((3, d))
    pairs = np.concatenate([features, tensors["wte.weight"][tokens]], axis=1)  # [3, 2d]
    joined = pairs @ tensors["mix.weight"] + tensors["mix.bias"]
    # A plain GPT-2 that reads tokens 0, 1, 2 whose embeddings are the joined rows is the same function.
    table = np.zeros((config.vocab_size, d))
    table[:3] = joined
    plain = GPT2(config, {**tensors, "wte.weight": table}, "float64").forward([0, 1, 2])
    found = head.forward(tokens, features=features)
    np.testing.assert_allclose(found.logits, plain.logits, atol=1e-10)
    np.testing.assert_allclose(found.features, plain.features, atol=1e-10)


def test_a_branch_is_read_as_if_it_stood_alone():
    rng = np.random.default_rng(0)
    f = rng.standard_normal((5, CONFIG.width))
    tree, alone = small_head(), small_head()
    tree.forward([1, 2], features=f[:2])
    found = tree.forward([3, 4, 5], [1, 1, 2], features=f[2:])
    expected = alone.forward([1, 2, 3, 5], features=f[[0, 1, 2, 4]])
    np.testing.assert_allclose(found.logits[[0, 2]], expected.logits[2:], atol=1e-10)


@pytest.mark.parametrize("shape", [(1, 12), (2, 11), (24,)])
def test_features_of_another_shape_are_refused_and_the_cache_stays(shape):
    head = small_head()
    head.forward([1], features=np.zeros((1, 12)))
    with pytest.raises(ValueError, match="features"):
        head.forward([1, 2], features=np.zeros(shape))
    with pytest.raises(ValueError, match="token 13"):
        head.forward([1, 13], features=np.zeros((2, 12)))
    assert head.length == 1
    expected = small_head().forward([1, 2], features=np.zeros((2, 12))).logits[1]
    np.testing.assert_allclose(head.forward([2], features=np.zeros((1, 12))).logits[0], expected, atol=1e-10)


@pytest.mark.parametrize("name", ["mix.weight", "mix.bias", "wpe.weight"])
def test_a_missing_tensor_is_named(name):
    tensors = random_tensors(LAYER, 0) | {"mix.weight": np.zeros((24, 12)), "mix.bias": np.zeros(12)}
    del tensors[name]
    with pytest.raises(ValueError, match=name):
        EagleHead(LAYER, tensors)


@pytest.mark.parametrize("settings, word", [({"nodes": 0}, "nodes: 0"), ({"nodes": 4, "width": 0}, "width: 0"), ({"nodes": 600}, "nodes: 600, expected less")])
def test_a_tree_without_nodes_or_beyond_the_context_is_refused(settings, word):
    with pytest.raises(ValueError, match=word):
        EagleDrafter(small_head(), **settings)


def test_a_target_without_features_is_refused():
    with pytest.raises(ValueError, match="features: None"):
        target = toy.TableModel(lambda text: [1.0, 0.0], 2)
        decode.generate(target, [0], EagleDrafter(TokenHead(P2, 0)), max_new_tokens=3)


def test_two_kinds_of_trees_at_once_and_other_heads_are_refused():
    with pytest.raises(ValueError, match="branching: .* beside nodes = 4"):
        EagleDrafter(small_head(), nodes=4, branching=(2,))
    with pytest.raises(ValueError, match="head: list, expected an EAGLE head"):
        EagleDrafter([])


def test_a_prompt_read_in_pieces_meets_its_own_features():
    layer = Config(13, 400, 12, layers=1, heads=2, tied=False)
    rng = np.random.default_rng(0)
    tokens, features = rng.integers(13, size=300).tolist(), rng.standard_normal((300, 12))
    whole, parts = (EagleHead.random(layer, 3, "float64") for _ in range(2))
    said = whole.forward(tokens, features=features)
    alone = [parts.forward([token], features=features[[row]]).logits[0] for row, token in enumerate(tokens)]
    np.testing.assert_allclose(said.logits, alone, rtol=0, atol=1e-9)


def test_values_are_the_heads_own_probabilities_along_the_path():
    head, target, prompt = small_head(), small(), [1, 2, 3]
    features = target.forward(prompt[:-1]).features
    drafter = EagleDrafter(head, nodes=6, width=3)
    drafter.start(prompt)
    drafter.read(features)
    draft, _ = drafter.propose(prompt, 3, None, None)
    first = probs_from_logits(small_head().forward(prompt[1:], features=features).logits)[-1]
    roots = draft.children(-1)
    assert [drafter.values[node] for node in roots] == pytest.approx([first[draft.tokens[node]] for node in roots])
    assert len(drafter.values) == 6 and list(drafter.values) == sorted(drafter.values, reverse=True)


@pytest.mark.parametrize("settings", [{"nodes": float("nan")}, {"nodes": 2.5}, {"nodes": True}, {"nodes": 4, "width": 2.5}, {"nodes": "3"}])
def test_a_count_that_is_no_integer_is_refused(settings):
    with pytest.raises(ValueError, match="expected an integer >= 1"):
        EagleDrafter(small_head(), **settings)
