"""Several candidates at a node, whole paths, whole blocks: every rule's exact law, next to the target's."""

import itertools
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specnotes import law, rules, theory
from specnotes.dice import RandomDice, ScriptedDice
from specnotes.distributions import acceptance, probs_from_logits
from specnotes.records import Draft
from specnotes.tree import from_branching
from tests.exact import FIXTURE_P, FIXTURE_Q, row, sequence_probability
from tests.trees import certain, draw_tree, judge_tree

steady = settings(derandomize=True, deadline=None, database=None, max_examples=30)
few = settings(steady, max_examples=12)
# (rule, whether siblings are drawn with replacement); every one of them keeps the target's law
LOSSLESS = {
    "with replacement": (rules.with_replacement_rule, True),
    "conditional rows": (rules.with_replacement_rule, False),
    "without replacement": (rules.without_replacement_rule, False),
    "sampler match": (rules.sampler_match_rule, True),
}
P3 = [row(5, 3, 2), row(1, 6, 3), row(1, 1, 1)]
Q3 = [row(2, 3, 5), row(1, 1, 1), row(2, 1, 0)]


def rows(vocab_size):
    weights = st.lists(st.sampled_from([0, 0, 1, 2, 3, 7]), min_size=vocab_size, max_size=vocab_size)
    one_hot = st.integers(0, vocab_size - 1).map(lambda token: certain(token, vocab_size))
    return st.one_of(weights.filter(any).map(lambda parts: row(*parts)), one_hot)


def one_node(rule, p, q, k, replace, given=lambda q_rows: q_rows):
    """Exact law of (accepted candidate or None, first token) for k candidates below the committed text."""

    def once(dice):
        draft, q_rows = draw_tree(lambda text: q, (), (k,), dice, replace)
        verdict = judge_tree(rule, lambda text: certain(0, len(p)) if text else p, (), draft, given(q_rows), dice)
        return verdict.path[0] if verdict.path else None, verdict.tokens[0]

    return law.exact_law(once)


def first_tokens(found, size):
    return [sum(w for (_, token), w in found.items() if token == x) for x in range(size)]


def accepted(found):
    return sum(w for (candidate, _), w in found.items() if candidate is not None)


def fixed(rule, p, tokens, q_rows):
    """Exact law of (path, first token) for candidates that are given."""
    p_rows = np.array([p] + [certain(0, len(p))] * len(tokens))
    draft = Draft(tokens, (-1,) * len(tokens))
    verdicts = law.exact_law(lambda dice: rule(p_rows, np.array(q_rows), draft, dice))
    found = {}
    for verdict, weight in verdicts.items():
        key = verdict.path[0] if verdict.path else None, verdict.tokens[0]
        found[key] = found.get(key, 0) + weight
    return found


@pytest.mark.parametrize(
    "k, with_replacement, without", [(1, F(7, 10), F(7, 10)), (2, F(76, 100), F(82, 100)), (3, F(808, 1000), 1)]
)
def test_the_fixture_with_and_without_replacement(k, with_replacement, without):
    for rule, replace, share in (
        (rules.with_replacement_rule, True, with_replacement), (rules.without_replacement_rule, False, without)
    ):
        found = one_node(rule, FIXTURE_P, FIXTURE_Q, k, replace)
        assert first_tokens(found, 3) == FIXTURE_P.tolist() and accepted(found) == share


def test_draws_without_replacement_judged_by_unconditional_rows_lose_the_law():
    p, q = row(2, 5, 3), row(6, 3, 1)
    unconditional = lambda q_rows: np.array([q] * len(q_rows))
    wrong = one_node(rules.with_replacement_rule, p, q, 2, False, unconditional)
    assert first_tokens(wrong, 3) == [F(2, 10), F(6, 10), F(2, 10)]
    conditional = one_node(rules.with_replacement_rule, p, q, 2, False)
    struck = one_node(rules.without_replacement_rule, p, q, 2, False, unconditional)
    assert first_tokens(conditional, 3) == first_tokens(struck, 3) == p.tolist()


@pytest.mark.parametrize(
    "rule", [rules.with_replacement_rule, rules.without_replacement_rule, rules.sampler_match_rule]
)
@pytest.mark.parametrize("tokens, share", [((2, 2), F(1, 5)), ((2, 1), F(1, 2)), ((1, 2, 0), 1), ((0, 1, 0, 2, 1), 1)])
def test_given_candidates_accept_what_the_target_puts_on_them_duplicates_once(rule, tokens, share):
    found = fixed(rule, FIXTURE_P, tokens, [certain(x, 3) for x in tokens])
    assert first_tokens(found, 3) == FIXTURE_P.tolist() and accepted(found) == share


def test_where_the_draft_has_nothing_left_its_candidates_are_uniform_over_the_rest():
    # The draft knows token 2 only; the second candidate is 0 or 1, one half each, whatever row it is judged by.
    p, q = row(3, 1, 4), certain(2, 3)
    for given in (lambda q_rows: q_rows, lambda q_rows: np.array([q] * len(q_rows))):
        found = one_node(rules.without_replacement_rule, p, q, 2, False, given)
        assert first_tokens(found, 3) == p.tolist()
        # 2 is accepted with p(2) = 1/2; what is left of p is (3/4, 1/4), of which the uniform law covers 3/4.
        assert accepted(found) == F(1, 2) + F(1, 2) * F(3, 4)


@pytest.mark.parametrize("rule, replace", LOSSLESS.values(), ids=LOSSLESS.keys())
def test_more_candidates_than_the_draft_has_tokens(rule, replace):
    p, q = row(3, 1, 4), row(1, 1, 0)
    for k in (2, 3, 4):
        assert first_tokens(one_node(rule, p, q, k, replace), 3) == p.tolist()
    # Offered every token, the rule without replacement takes one of them.
    assert accepted(one_node(rules.without_replacement_rule, p, q, 3, False)) == 1


def test_an_equal_row_accepts_its_first_candidate_and_the_others_are_not_asked():
    p, draft = np.tile([0.25, 0.75], (3, 1)), Draft((1, 0), (-1, -1))
    for rule in (rules.with_replacement_rule, rules.without_replacement_rule):
        dice = ScriptedDice([0.999, 0.5])
        assert rule(p, p[:2], draft, dice).path == (0,) and dice.used == 2


def test_a_branching_round_by_hand():
    # p = (.5, .3, .2), q = (.2, .3, .5). Token 2 is accepted with .4; else p becomes (1, 0, 0), which 0 of
    # weight .2 / .5 (token 2 struck out) is under: accepted. Judged by q itself 0 is accepted as well.
    p, q = np.array([FIXTURE_P] * 4, dtype=float), np.array([FIXTURE_Q] * 3, dtype=float)
    draft = Draft((2, 0, 1), (-1, -1, 1))
    for rule in (rules.with_replacement_rule, rules.without_replacement_rule):
        dice = ScriptedDice([0.4, 0.99, 0.99, 0.9])
        verdict = rule(p, q, draft, dice)
        assert (verdict.path, verdict.tokens, verdict.kind) == ((1, 2), (0, 1, 2), "bonus") and dice.used == 4
        # Token 1 first: p(1) = q(1), accepted. Below it there is nothing to judge.
        verdict = rule(p[:3], q[:2], Draft((1, 2), (-1, -1)), ScriptedDice([0.99, 0.0]))
        assert (verdict.path, verdict.tokens, verdict.kind) == ((0,), (1, 0), "bonus")
    verdict = rules.with_replacement_rule(p[:3], q[:2], Draft((2, 2), (-1, -1)), ScriptedDice([0.4, 0.0, 0.9]))
    assert (verdict.path, verdict.tokens, verdict.kind) == ((), (0,), "recovered")


@st.composite
def nodes(draw):
    size = draw(st.integers(1, 4))
    return draw(rows(size)), draw(rows(size)), draw(st.integers(1, 3 if size < 4 else 2))


@steady
@given(nodes(), st.sampled_from(sorted(LOSSLESS)))
def test_the_first_token_has_law_p_exactly_for_any_candidates(node, name):
    (p, q, k), (rule, replace) = node, LOSSLESS[name]
    found = one_node(rule, p, q, k, replace)
    assert first_tokens(found, len(p)) == p.tolist()
    if rule is not rules.sampler_match_rule:
        assert accepted(found) >= acceptance(p, q)


@steady
@given(nodes())
def test_striking_leaves_conditional_rows_as_they_are(node):
    p, q, k = node
    laws = [
        one_node(rule, p, q, k, False, given)
        for rule, given in (
            (rules.with_replacement_rule, lambda q_rows: q_rows),
            (rules.without_replacement_rule, lambda q_rows: q_rows),
            (rules.without_replacement_rule, lambda q_rows: np.array([q] * len(q_rows))),
        )
    ]
    assert laws[0] == laws[1] == laws[2]


def completed(found, P, n):
    """The law of n tokens when the target goes on by itself after what a pass emitted."""
    full = {}
    for tokens, weight in found.items():
        for rest in itertools.product(range(len(P)), repeat=max(0, n - len(tokens))):
            probability = weight * sequence_probability(P, tokens[-1], rest)
            if probability:
                full[tokens + rest] = full.get(tokens + rest, 0) + probability
    return full


def plain_law(P, n):
    words = itertools.product(range(len(P)), repeat=n)
    return {word: w for word in words if (w := sequence_probability(P, 0, word))}


@pytest.mark.parametrize("rule, replace", LOSSLESS.values(), ids=LOSSLESS.keys())
@pytest.mark.parametrize("branching", [(2,), (2, 1), (1, 2)])
def test_a_pass_over_a_tree_has_the_targets_law_exactly(rule, replace, branching):
    def one_pass(dice):
        draft, q = draw_tree(lambda text: Q3[text[-1]], (0,), branching, dice, replace)
        return judge_tree(rule, lambda text: P3[text[-1]], (0,), draft, q, dice).tokens

    n = len(branching) + 1
    assert completed(law.exact_law(one_pass), P3, n) == plain_law(P3, n)


def test_a_pass_over_a_full_binary_tree_has_the_targets_law_exactly():
    P, Q = [row(1, 2), row(3, 1)], [row(2, 1), row(1, 1)]

    def one_pass(dice):
        draft, q = draw_tree(lambda text: Q[text[-1]], (0,), (2, 2), dice)
        return judge_tree(rules.with_replacement_rule, lambda text: P[text[-1]], (0,), draft, q, dice).tokens

    assert completed(law.exact_law(one_pass), P, 3) == plain_law(P, 3)


@pytest.mark.parametrize("rule", [
    rules.with_replacement_rule, rules.without_replacement_rule, rules.sampler_match_rule, rules.block_rule
])
@pytest.mark.parametrize("gamma", range(4))
def test_on_a_chain_a_pass_has_the_targets_law_exactly(rule, gamma):
    of_pass = lambda rule: law.emitted_law(rule, lambda text: P3[text[-1]], lambda text: Q3[text[-1]], gamma, (0,))
    assert completed(of_pass(rule), P3, gamma + 1) == plain_law(P3, gamma + 1)
    if rule in (rules.with_replacement_rule, rules.without_replacement_rule):
        assert of_pass(rule) == of_pass(rules.token_rule)


@pytest.mark.parametrize("branching", [(3,), (2, 2), (1, 1, 1)])
def test_greedy_emits_the_same_whatever_tree_it_is_offered(branching):
    P, step = [row(1, 5, 2), row(1, 1, 3), row(4, 2, 1)], [1, 2, 0]
    parents = from_branching(branching)
    for tokens in itertools.islice(itertools.product(range(3), repeat=len(parents)), 0, None, 7):
        draft = Draft(tokens, parents)
        q = np.array([certain(x, 3) for x in tokens])
        emitted = judge_tree(rules.greedy_rule, lambda text: P[text[-1]], (0,), draft, q, None).tokens
        wanted, last = [], 0
        for _ in emitted:
            last = step[last]
            wanted.append(last)
        assert list(emitted) == wanted


# Typical acceptance

def test_typical_acceptance_takes_a_token_of_probability_a_tenth_every_time():
    # H = .898 nats, .3 e^-H = .122, so the bar is .09: every token of p passes. The law is q, not p.
    p, q = row(6, 3, 1), row(1, 1, 8)
    assert theory.typical_threshold(p, 0.09, 0.3) == 0.09
    found = one_node(rules.typical_rule(0.09, 0.3), p, q, 1, True)
    assert first_tokens(found, 3) == [F(1, 10), F(1, 10), F(8, 10)] != p.tolist()
    assert accepted(found) == 1


def test_the_law_of_typical_acceptance_by_hand_next_to_p():
    # The bar is .2: 0 and 1 pass, 2 does not and is replaced by a draw from p.
    p, q = row(6, 3, 1), row(1, 1, 1)
    found = one_node(rules.typical_rule(F(1, 5), 1), p, q, 1, True)
    assert first_tokens(found, 3) == [F(1, 3) + F(1, 3) * F(6, 10), F(1, 3) + F(1, 3) * F(3, 10), F(1, 3) * F(1, 10)]
    assert first_tokens(found, 3) != p.tolist() and accepted(found) == F(2, 3)


def test_typical_acceptance_wants_more_than_the_bar():
    for x, passes in ((0, True), (1, False)):
        found = fixed(rules.typical_rule(F(3, 10), 1), row(7, 3), (x,), [certain(x, 2)])
        assert accepted(found) == passes


def test_where_the_target_is_unsure_the_bar_of_typical_acceptance_sinks():
    # Four equal tokens: e^-H = 1/4. The bar is 1/10, below 1/4, though epsilon alone is above it.
    p = np.full(4, 0.25)
    assert theory.typical_threshold(p, 0.3, 0.4) == pytest.approx(0.1, rel=1e-14)
    assert rules.typical_rule(0.3, 0.4)([p, p], [p], [3], ScriptedDice([0.0])).path == (0,)
    assert rules.typical_rule(0.3, 4)([p, p], [p], [3], ScriptedDice([0.0])).path == ()
    # Every node has the bar of its own row: .3 after the committed text, 1/10 after token 0.
    sure = np.array([0.97, 0.01, 0.01, 0.01])
    assert rules.typical_rule(0.3, 0.4)([sure, p, p], [p, p], [0, 3], ScriptedDice([0.0])).path == (0, 1)
    assert theory.typical_threshold([1.0, 0.0], 0.3, 0.4) == 0.3
    assert theory.typical_threshold(row(1, 1, 0, 1, 1), 0.3, 0.4) == pytest.approx(0.1, rel=1e-14)


def test_typical_acceptance_takes_the_longest_path_and_then_the_likeliest():
    draft = Draft((0, 1, 1, 0), (-1, -1, 0, 1))
    p = np.array([[0.6, 0.4], [0.9, 0.1], [0.5, 0.5], [0.3, 0.7], [0.3, 0.7]])
    judge = lambda epsilon: rules.typical_rule(epsilon, 1e9)(p, np.full((4, 2), 0.5), draft, ScriptedDice([0.8]))
    # Paths of two: 0-1 of .6 x .1 and 1-0 of .4 x .5.
    assert judge(0.05).path == (1, 3)
    # At .2 token 1 below node 0 no longer passes; at .45 nothing passes but node 0, at .7 nothing at all.
    assert judge(0.2).path == (1, 3)
    verdict = judge(0.45)
    assert (verdict.path, verdict.tokens, verdict.kind) == ((0,), (0, 0), "recovered")
    verdict = judge(0.7)
    assert (verdict.path, verdict.tokens, verdict.kind) == ((), (1,), "recovered")
    half, siblings = np.full((3, 2), 0.5), Draft((0, 1), (-1, -1))
    twins = rules.typical_rule(0.1, 1)(half, half[:2], siblings, ScriptedDice([0.9]))
    assert (twins.path, twins.tokens, twins.kind) == ((0,), (0, 1), "bonus")


def test_with_no_draft_and_with_sure_rows_typical_acceptance_is_plain_decode():
    rule = rules.typical_rule(0.3, 0.09)
    found = law.exact_law(lambda dice: rule([FIXTURE_P], [], [], dice).token)
    assert [found[x] for x in range(3)] == FIXTURE_P.tolist()
    sure = np.eye(3)[[1, 2, 0]]
    for tokens in itertools.product(range(3), repeat=2):
        verdict = rule(sure, np.eye(3)[list(tokens)], tokens, ScriptedDice([0.5]))
        assert verdict.tokens == rules.greedy_rule(sure, sure[:2], tokens).tokens


# Block verification

def test_block_verification_gains_on_the_toy_of_the_paper_and_does_not_reach_the_joint_bound():
    p, q = row(1, 2), row(2, 1)
    mean = {}
    for rule in (rules.block_rule, rules.token_rule):
        found = law.emitted_law(rule, lambda text: p, lambda text: q, 2)
        mean[rule] = sum((len(tokens) - 1) * w for tokens, w in found.items())
    assert (mean[rules.block_rule], mean[rules.token_rule]) == (F(11, 9), F(10, 9))
    joint = lambda size: sum(
        min(np.prod(p[list(word)]), np.prod(q[list(word)])) for word in itertools.product(range(2), repeat=size)
    )
    assert joint(1) + joint(2) == F(4, 3)


def test_a_block_by_hand():
    # p = (1/3, 2/3), q = (2/3, 1/3), draft 0 0: w_1 = 1/2, w_2 = 1/4; owed after one token max(0, 1/6 - 2/3, 1/3 - 1/3)
    # = 0, so one token alone is never accepted; rejected, the token is 1.
    p, q = np.tile([1 / 3, 2 / 3], (3, 1)), np.tile([2 / 3, 1 / 3], (2, 1))
    whole = rules.block_rule(p, q, [0, 0], ScriptedDice([0.24, 0.5]))
    assert (whole.path, whole.tokens, whole.kind) == ((0, 1), (0, 0, 1), "bonus")
    dice = ScriptedDice([0.26, 0.0, 0.0])
    none = rules.block_rule(p, q, [0, 0], dice)
    assert (none.path, none.tokens, none.kind) == ((), (1,), "recovered") and dice.used == 3
    # draft 0 1: the second token makes up for the first, min(1, 1/2 x 2) = 1.
    assert rules.block_rule(p, q, [0, 1], ScriptedDice([0.999, 0.0])).path == (0, 1)
    # draft 1 0: w_1 = 1, w_2 = 1/2; owed after one token 2/3 - 1/3, of 1/3 + 1 - 1: certain.
    one = rules.block_rule(p, q, [1, 0], ScriptedDice([0.5, 0.999, 0.0]))
    assert (one.path, one.tokens, one.kind) == ((0,), (1, 1), "recovered")


def test_what_a_rejected_block_owes_is_what_the_weighted_target_has_over_the_draft():
    # Token 1 has w = 4/5. After it w p - q = (36, 36, 8)/100 - (10, 20, 70)/100: owed (26, 16, 0)/100, not (35, 25, 0).
    P, Q = [row(5, 4, 1), row(9, 9, 2), row(1, 1, 1)], [row(4, 5, 1), row(1, 2, 7), row(1, 1, 1)]
    found = law.emitted_law(rules.block_rule, lambda text: P[text[-1]], lambda text: Q[text[-1]], 2, (0,))
    ended = law.exact_law(lambda dice: rules.block_rule(
        np.array([P[0], P[1], P[2]]), np.array([Q[0], Q[1]]), [1, 2], dice
    ).tokens)
    assert ended[1, 0] / ended[1, 1] == F(26, 16)
    assert completed(found, P, 3) == plain_law(P, 3)


def test_equal_rows_accept_the_whole_block_and_one_flip_is_all_it_takes():
    p = np.tile([0.25, 0.75], (4, 1))
    dice = ScriptedDice([0.999, 0.0])
    assert rules.block_rule(p, p[:3], [0, 1, 1], dice).path == (0, 1, 2) and dice.used == 2


@st.composite
def tables_of_the_whole_context(draw):
    """p and q as functions of the text over 2 or 3 tokens, up to 3 drafted; q may be one-hot."""
    size = draw(st.integers(2, 3))
    gamma = draw(st.integers(1, 3 if size == 2 else 2))
    texts = [text for n in range(gamma + 1) for text in itertools.product(range(size), repeat=n)]
    table = lambda: {text: draw(rows(size)) for text in texts}
    return table(), table(), gamma


def mean_accepted(found):
    return sum((len(tokens) - 1) * w for tokens, w in found.items())


@steady
@given(tables_of_the_whole_context())
def test_block_verification_keeps_the_law_and_accepts_no_less_than_the_token_rule(drawn):
    p, q, gamma = drawn
    found = law.emitted_law(rules.block_rule, p.get, q.get, gamma)
    full = {}
    for tokens, weight in found.items():
        for rest in itertools.product(range(len(p[()])), repeat=gamma + 1 - len(tokens)):
            word, probability = tokens + rest, weight
            for place in range(len(tokens), gamma + 1):
                probability *= p[word[:place]][word[place]]
            full[word] = full.get(word, 0) + probability
    for word, weight in full.items():
        assert weight == np.prod([p[word[:place]][word[place]] for place in range(gamma + 1)])
    by_token = mean_accepted(law.emitted_law(rules.token_rule, p.get, q.get, gamma))
    assert mean_accepted(found) >= by_token
    if gamma == 1 or all((q[text] == 1).any() for text in q if len(text) < gamma):
        assert mean_accepted(found) == by_token


# All of them

RULES = [rules.with_replacement_rule, rules.without_replacement_rule, rules.typical_rule(0.1, 0.3), rules.block_rule]


@few
@given(st.integers(2, 30), st.integers(0, 2**32 - 1), st.sampled_from([0.5, 4.0]))
def test_in_floats_the_law_of_two_candidates_is_p_to_1e_14(vocab_size, seed, spread):
    p, q = probs_from_logits(spread * np.random.default_rng(seed).normal(size=(2, vocab_size)))
    sure = np.eye(vocab_size)[0]
    for rule in (rules.with_replacement_rule, rules.without_replacement_rule):

        def once(dice):
            first = dice.draw(q)
            rest = q if rule is rules.with_replacement_rule else np.where(np.arange(vocab_size) == first, 0, q)
            second = dice.draw(rest)
            return rule([p, sure, sure], [q, q], Draft((first, second), (-1, -1)), dice).tokens[0]

        found = law.exact_law(once)
        assert max(abs(found.get(x, 0) - p[x]) for x in range(vocab_size)) < 1e-14


@few
@given(nodes(), st.integers(0, 2**32 - 1))
def test_inputs_stay_as_they_are_and_verdicts_are_plain_integers(node, seed):
    p, q, k = node
    for exact in (True, False):
        p_rows, q_rows = np.array([p] * (k + 1)), np.array([q] * k)
        if not exact:
            p_rows, q_rows = p_rows.astype(float), q_rows.astype(float)
        dice = RandomDice(np.random.default_rng(seed))
        tokens = [dice.draw(q) for _ in range(k)]
        for rule in RULES:
            draft = Draft.chain(tokens) if rule is rules.block_rule else Draft(tokens, (-1,) * k)
            before = p_rows.copy(), q_rows.copy()
            verdict = rule(p_rows, q_rows, draft, dice)
            assert all(type(number) is int for number in (*verdict.tokens, *verdict.path))
            assert (p_rows == before[0]).all() and (q_rows == before[1]).all()


def test_block_verification_refuses_a_draft_that_branches():
    with pytest.raises(ValueError, match="^draft: parents .* chain"):
        rules.block_rule(np.full((3, 2), 0.5), np.full((2, 2), 0.5), Draft((0, 1), (-1, -1)), ScriptedDice([0.5]))


@pytest.mark.parametrize("epsilon, delta, name", [
    (-0.1, 0.3, "epsilon"), (1.5, 0.3, "epsilon"), (float("nan"), 0.3, "epsilon"), ("x", 0.3, "epsilon"),
    (0.1, -1, "delta"), (0.1, float("nan"), "delta"), (0.1, None, "delta"),
])
def test_settings_of_typical_acceptance_are_checked_when_the_rule_is_made(epsilon, delta, name):
    with pytest.raises(ValueError, match=f"^{name}: "):
        rules.typical_rule(epsilon, delta)


@pytest.mark.parametrize("p", [[0.5, 0.6], [-0.5, 1.5], [float("nan"), 1.0], [[0.5, 0.5]], []])
def test_a_threshold_of_what_is_no_row_is_refused(p):
    with pytest.raises(ValueError, match="^p: "):
        theory.typical_threshold(p, 0.1, 0.3)
