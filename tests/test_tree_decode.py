"""Trees through the one loop: the text keeps its law, every node is scored by its own path, caches stay whole."""

import itertools
from fractions import Fraction as F

import numpy as np
import pytest

from specnotes import decode, law, rules, toy
from specnotes.dice import RandomDice
from specnotes.drafters import ModelDrafter
from specnotes.gpt2 import GPT2, Config, random_tensors
from specnotes.records import Draft
from specnotes.tree import ancestor_mask, cartesian, depths, dynamic_tree, from_branching
from tests.exact import FIXTURE_P, row, sequence_probability
from tests.trees import TreeDrafter, certain, root_path

P2, Q2 = [row(1, 2), row(3, 1)], [row(2, 1), row(1, 1)]
P3 = [row(5, 3, 2), row(1, 6, 3), row(1, 1, 1)]
Q3 = [row(2, 3, 5), row(1, 1, 1), row(2, 1, 0)]
SAME = lambda rows: rows
CONFIG = Config(vocab_size=13, max_length=48, width=12, layers=2, heads=3)
SHAPES = {
    "chain": from_branching((1, 1, 1)),
    "four, two, one": from_branching((4, 2, 1)),
    "bush": [-1] * 6,
    "sparse": [-1, -1, 0, 0, 1, 2, 2, 5],
    "mixed order": [-1, 0, 0, 1, -1, 4, 2, 4, 7],
}


def text_law(P, drafter, rule, n, gamma=2, stop=(), max_length=64):
    """The exact law of whole texts decoded through the loop."""
    target = toy.markov_model(P, max_length)

    def text(dice):
        done = decode.rounds(
            target, [0], drafter, gamma=gamma, max_new_tokens=n, warp=SAME, rule=rule, dice=dice, stop=stop
        )
        return tuple(token for round in done for token in round.tokens)

    return law.exact_law(text)


def plain_law(P, n, stop=()):
    """The target's law of texts that end at n tokens or at a stop token, from its table alone."""
    ended = {}
    for size in range(1, n + 1):
        for word in itertools.product(range(len(P)), repeat=size):
            ends = size == n or word[-1] in stop
            if ends and not set(word[:-1]) & set(stop) and (w := sequence_probability(P, 0, word)):
                ended[word] = w
    return ended


RULES = [
    (rules.with_replacement_rule, True), (rules.with_replacement_rule, False),
    (rules.without_replacement_rule, False), (rules.sampler_match_rule, True),
]


@pytest.mark.parametrize("rule, replace", RULES)
@pytest.mark.parametrize("branching", [(2,), (2, 1), (1, 2)])
def test_a_whole_text_drafted_by_trees_has_the_targets_law_exactly(rule, replace, branching):
    drafter = TreeDrafter(lambda text: Q2[text[-1]], branching, 2, replace)
    assert text_law(P2, drafter, rule, 3) == plain_law(P2, 3)


@pytest.mark.parametrize("rule, replace", RULES)
def test_over_three_tokens_and_with_a_stop_token_too(rule, replace):
    drafter = TreeDrafter(lambda text: Q3[text[-1]], (2,), 3, replace)
    assert text_law(P3, drafter, rule, 3, gamma=1) == plain_law(P3, 3)
    assert text_law(P3, drafter, rule, 3, gamma=1, stop=(2,)) == plain_law(P3, 3, (2,))


def test_near_the_end_of_the_context_the_law_is_that_of_a_shorter_text():
    drafter = TreeDrafter(lambda text: Q2[text[-1]], (2, 1), 2)
    drafter.max_nodes = 4
    assert text_law(P2, drafter, rules.with_replacement_rule, 9, max_length=4) == plain_law(P2, 3)


@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_a_whole_text_verified_block_by_block_has_the_targets_law_exactly(gamma):
    assert text_law(P3, ModelDrafter(toy.markov_model(Q3)), rules.block_rule, 3, gamma) == plain_law(P3, 3)


class CandidateDrafter:
    """Offers a tree that is not drawn: build(text, levels) -> (tokens, parents)."""

    def __init__(self, build, vocab_size):
        self.build, self.vocab_size = build, vocab_size

    def start(self, prompt):
        self.committed, self.features = list(prompt), []

    def propose(self, context, gamma, warp, dice):
        draft = Draft(*self.build(tuple(context), gamma))
        q = [certain(token, self.vocab_size) for token in draft.tokens]
        return draft, np.array(q) if q else np.zeros((0, self.vocab_size))

    def commit(self, tokens, features=None):
        self.committed += list(tokens)
        self.features.append(features)


def head_choices(text, levels):
    return cartesian([(1, 0), (0,)][:levels])


def confident(text, levels):
    says = lambda path: (range(2), Q2[(*text, *path)[-1]])
    return dynamic_tree(says, levels, width=2, nodes=3)[:2]


@pytest.mark.parametrize("build", [head_choices, confident])
@pytest.mark.parametrize("rule", [
    rules.with_replacement_rule, rules.without_replacement_rule, rules.sampler_match_rule
])
def test_trees_of_candidates_that_are_not_drawn_keep_the_law(build, rule):
    assert text_law(P2, CandidateDrafter(build, 2), rule, 3) == plain_law(P2, 3)


def test_a_tree_pruned_by_what_was_drawn_does_not():
    # p = q, and a drawn token is dropped where q(x) < 1/4: what is emitted then is drawn afresh.
    p = np.array([F(5, 10), F(3, 10), F(2, 10)])

    class Prunes(TreeDrafter):
        def propose(self, context, gamma, warp, dice):
            draft, q = super().propose(context, gamma, warp, dice)
            return (draft, q) if p[draft.tokens[0]] >= F(1, 4) else (Draft((), ()), np.zeros((0, 3)))

    for drafter, law_of_first in ((Prunes, [F(60, 100), F(36, 100), F(4, 100)]), (TreeDrafter, p.tolist())):
        found = text_law([p] * 3, drafter(lambda text: p, (1,), 3), rules.with_replacement_rule, 2, gamma=1)
        assert [sum(w for text, w in found.items() if text[0] == x) for x in range(3)] == law_of_first


def test_the_law_of_a_text_under_typical_acceptance_is_not_the_targets():
    drafter = TreeDrafter(lambda text: row(1, 1, 8), (2,), 3)
    found = text_law([FIXTURE_P] * 3, drafter, rules.typical_rule(F(1, 10), 1), 2, gamma=1)
    assert found != plain_law([FIXTURE_P] * 3, 2)
    # All pass the bar: the elder of the two drafts is emitted unless the younger is likelier under p.
    q = row(1, 1, 8)
    best_of_two = [sum(q[a] * q[b] for a in range(3) for b in range(3) if min(a, b) == x) for x in range(3)]
    assert [sum(w for text, w in found.items() if text[0] == x) for x in range(3)] == best_of_two


# On GPT-2, in float64

def small(seed=0):
    """A small model whose matrices are large enough that every attention pattern matters."""
    return GPT2(CONFIG, random_tensors(CONFIG, seed, scale=0.5), "float64")


PROMPT = [4, 8, 2]
CLOSE = {"rtol": 0, "atol": 1e-10}


def read(tokens, parents):
    """Logits [n, V] and features [n, d] of a tree of `tokens` read in one pass after the prompt."""
    model = small()
    model.forward(PROMPT)
    return model.forward(tokens, [len(PROMPT) + parent for parent in parents])


@pytest.mark.parametrize("parents", SHAPES.values(), ids=SHAPES.keys())
def test_one_pass_scores_every_node_as_its_root_path_run_alone(parents):
    tokens = np.random.default_rng(1).integers(0, 13, len(parents)).tolist()
    output = read(tokens, parents)
    for node in range(len(parents)):
        alone = small().forward(PROMPT + [tokens[step] for step in root_path(node, parents)])
        np.testing.assert_allclose(output.logits[node], alone.logits[-1], **CLOSE)
        np.testing.assert_allclose(output.features[node], alone.features[-1], **CLOSE)


@pytest.mark.parametrize("parents", SHAPES.values(), ids=SHAPES.keys())
def test_a_node_sees_exactly_the_nodes_the_ancestor_mask_says(parents):
    tokens = np.random.default_rng(2).integers(0, 13, len(parents)).tolist()
    before, mask = read(tokens, parents).logits, ancestor_mask(parents)
    for changed in range(len(parents)):
        others = [(token + 1) % 13 if node == changed else token for node, token in enumerate(tokens)]
        moved = abs(read(others, parents).logits - before).max(axis=1)
        assert (moved[mask[:, changed]] > 1e-6).all() and (moved[~mask[:, changed]] < 1e-10).all()


def greedy_text(n):
    text = list(PROMPT)
    for _ in range(n):
        text.append(int(small().forward(text).logits[-1].argmax()))
    return text


TEXT = greedy_text(24)


def partly_right(parents, seed):
    """A tree of this shape with noise in it, and in which one root path is right for some of its length."""
    rng = np.random.default_rng(seed)

    def build(text, levels):
        kept = [node for node in range(len(parents)) if depths(parents)[node] < levels]
        place = {node: new for new, node in enumerate(kept)} | {-1: -1}
        tokens = rng.integers(0, 13, len(kept)).tolist()
        path = root_path(int(rng.choice(kept)), parents)
        for node, token in zip(path, TEXT[len(text) :]):
            tokens[place[node]] = token
        return tokens, [place[parents[node]] for node in kept]

    return CandidateDrafter(build, 13)


LOSSLESS_AT_ZERO = [
    rules.greedy_rule, rules.sampler_match_rule, rules.with_replacement_rule, rules.without_replacement_rule,
    rules.typical_rule(0.3, 0.09),
]


@pytest.mark.parametrize("parents", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("rule", LOSSLESS_AT_ZERO, ids=lambda rule: rule.__qualname__.split(".")[0])
def test_greedy_text_is_the_same_for_every_tree_and_rule(parents, rule):
    trace = decode.generate(
        small(), PROMPT, partly_right(parents, seed=3), gamma=3, max_new_tokens=24, temperature=0, rule=rule,
        dice=RandomDice(np.random.default_rng(0)),
    )
    assert [*PROMPT, *trace.tokens] == TEXT
    assert trace.tokens_per_pass > 1.3  # trees that are never followed would prove nothing


@pytest.mark.parametrize("parents", SHAPES.values(), ids=SHAPES.keys())
def test_after_every_pass_the_next_logits_equal_those_of_a_fresh_prefill(parents):
    target, text, paths = small(), list(PROMPT), set()
    warp = lambda logits: np.eye(13)[logits.argmax(axis=-1)]
    for done in decode.rounds(
        target, PROMPT, partly_right(parents, seed=4), gamma=3, max_new_tokens=24, warp=warp, rule=rules.greedy_rule,
        dice=RandomDice(np.random.default_rng(0)),
    ):
        text += done.tokens
        paths.add(done.verdict.path)
        assert target.length == len(text) - 1
        np.testing.assert_allclose(target.forward(text[-1:]).logits[0], small().forward(text).logits[-1], **CLOSE)
        target.rollback(len(text) - 1)
    assert text == TEXT
    if parents != SHAPES["chain"]:  # some accepted paths did not lie in the first rows of the draft
        assert any(path != tuple(range(len(path))) for path in paths)


def test_the_drafter_is_told_the_features_each_emitted_token_was_predicted_from():
    drafter = partly_right(SHAPES["sparse"], seed=5)
    decode.generate(small(), PROMPT, drafter, gamma=3, max_new_tokens=24, temperature=0, rule=rules.greedy_rule)
    assert drafter.committed == TEXT
    expected = small().forward(TEXT).features[len(PROMPT) - 1 : -1]
    np.testing.assert_allclose(np.concatenate(drafter.features), expected, **CLOSE)


def test_sampled_text_is_a_text_of_the_target_and_the_recorded_kinds_add_up():
    q = np.full(13, 1 / 13)
    drafter = TreeDrafter(lambda text: q, (3, 2), 13, replace=False)
    trace = decode.generate(
        small(), PROMPT, drafter, gamma=2, max_new_tokens=30, temperature=2.0, rule=rules.without_replacement_rule,
        dice=RandomDice(np.random.default_rng(7)),
    )
    assert len(trace.tokens) == len(trace.kinds) == 30
    assert trace.kinds.count("accepted") == sum(len(done.verdict.path) for done in trace.rounds) > 0
    for done in trace.rounds:
        assert done.betas == ()
        assert len({done.draft.tokens[child] for child in done.draft.children(-1)}) == len(done.draft.children(-1))
