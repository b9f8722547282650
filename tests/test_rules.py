from fractions import Fraction as F

import numpy as np
import pytest

from specnotes import law, rules, toy
from specnotes.dice import RandomDice, ScriptedDice
from specnotes.records import Draft
from tests.exact import FIXTURE_P, FIXTURE_Q, row, sequence_probability


def law_of_token(p, q):
    return law.exact_law(lambda dice: rules.verify(p, q, dice.draw(q), dice)[1])


PAIRS = {
    "the fixture": (FIXTURE_P, FIXTURE_Q),
    "equal": (FIXTURE_P, FIXTURE_P),
    "disjoint": (row(1, 0), row(0, 1)),
    "one-hot draft": (row(5, 3, 2), row(0, 1, 0)),
    "one-hot target": (row(0, 1, 0), row(5, 3, 2)),
    "zeros in both": (row(0, 1, 0, 3), row(2, 0, 0, 1)),
    "one token": (row(1), row(1)),
}


@pytest.mark.parametrize("p, q", PAIRS.values(), ids=PAIRS.keys())
def test_the_law_of_verify_is_the_targets_exactly(p, q):
    found = law_of_token(p, q)
    assert [found.get(x, 0) for x in range(len(p))] == p.tolist()


@pytest.mark.parametrize("p, q", PAIRS.values(), ids=PAIRS.keys())
def test_verify_accepts_with_probability_sum_of_minima(p, q):
    accepted = law.exact_law(lambda dice: rules.verify(p, q, dice.draw(q), dice)[0])
    assert accepted.get(True, 0) == sum(min(a, b) for a, b in zip(p, q))


def test_the_float_law_of_verify_is_the_targets_to_1e_14():
    p, q = toy.slider_rows(0.6)
    found = law_of_token(p, q)
    assert max(abs(found[x] - p[x]) for x in range(len(p))) < 1e-14


P3 = [row(5, 3, 2), row(1, 6, 3), row(1, 1, 1)]
Q3 = [row(2, 3, 5), row(1, 1, 1), row(2, 1, 0)]


@pytest.mark.parametrize("gamma", range(5))
def test_whole_emitted_sequences_have_the_targets_law_exactly(gamma):
    found = law.emitted_law(rules.token_rule, lambda s: P3[s[-1]], lambda s: Q3[s[-1]], gamma, (0,))
    # Every emitted prefix of length n must be as likely as the target makes it, given that it is reached:
    # complete each outcome with the target and compare words of gamma + 1 tokens.
    full = {}
    for tokens, probability in found.items():
        stack = [(tokens, probability)]
        while stack:
            word, weight = stack.pop()
            if len(word) == gamma + 1:
                full[word] = full.get(word, 0) + weight
            else:
                stack += [(word + (x,), weight * P3[word[-1]][x]) for x in range(3)]
    assert sum(full.values()) == 1
    assert all(weight == sequence_probability(P3, 0, word) for word, weight in full.items())


def test_forty_thousand_rounds_match_acceptance_tokens_per_pass_and_histogram():
    p, q = toy.slider_rows(0.6)
    gamma, n = 4, 40_000

    def one_round(dice):
        tokens = [dice.draw(q) for _ in range(gamma)]
        return rules.token_rule(np.tile(p, (gamma + 1, 1)), np.tile(q, (gamma, 1)), tokens, dice)

    dice = RandomDice(np.random.default_rng(20))
    verdicts = [one_round(dice) for _ in range(n)]
    alpha = float(np.minimum(p, q).sum())
    accepted = sum(len(verdict.path) for verdict in verdicts)
    examined = accepted + sum(verdict.kind == "recovered" for verdict in verdicts)
    assert abs(accepted / examined - alpha) < 4 * np.sqrt(alpha * (1 - alpha) / examined)
    sizes = np.array([len(verdict.tokens) for verdict in verdicts])
    mean = (1 - alpha**5) / (1 - alpha)
    assert abs(sizes.mean() - mean) < 4 * sizes.std() / np.sqrt(n)
    emitted = np.bincount([token for verdict in verdicts for token in verdict.tokens], minlength=8)
    total = emitted.sum()
    # The first token of each round is an independent draw from p; later ones are too, as rows repeat.
    assert (abs(emitted / total - p) < 4.5 * np.sqrt(p * (1 - p) / total)).all()


def test_a_round_by_hand():
    # p = (.5, .3, .2), q = (.2, .3, .5); token 2 is accepted with .2/.5 = .4, residual is token 0.
    p, q = np.tile([0.5, 0.3, 0.2], (3, 1)), np.tile([0.2, 0.3, 0.5], (2, 1))
    accepted = rules.token_rule(p, q, [2, 1], ScriptedDice([0.39, 0.99, 0.81]))
    assert (accepted.path, accepted.tokens, accepted.kind) == ((0, 1), (2, 1, 2), "bonus")
    rejected = rules.token_rule(p, q, [2, 1], ScriptedDice([0.4, 0.5]))
    assert (rejected.path, rejected.tokens, rejected.kind) == ((), (0,), "recovered")


def test_a_round_takes_one_flip_per_examined_position_and_one_draw():
    p, q = np.tile([0.5, 0.5], (4, 1)), np.tile([0.5, 0.5], (3, 1))
    dice = ScriptedDice([0.5] * 9)
    rules.token_rule(p, q, [0, 1, 0], dice)
    assert dice.used == 4


def test_the_bonus_is_drawn_not_the_argmax():
    rows = np.array([row(6, 4)] * 2)
    found = law.emitted_law(rules.token_rule, lambda s: rows[0], lambda s: rows[0], 1)
    assert found[(0, 0)] == F(36, 100) and found[(0, 1)] == F(24, 100)


def test_an_impossible_draft_is_rejected_even_at_the_smallest_u():
    assert rules.verify([0.0, 1.0], [1.0, 0.0], 0, ScriptedDice([0.0, 0.0])) == (False, 1)


def test_a_token_the_draft_claims_it_never_draws_is_accepted_without_dividing():
    with np.errstate(all="raise"):
        assert rules.verify([0.5, 0.5], [0.0, 1.0], 0, ScriptedDice([0.999])) == (True, 0)


def test_a_token_that_neither_row_allows_is_rejected_without_dividing():
    for p, q in (([0.0, 1.0], [0.0, 1.0]), (row(0, 1), row(0, 1))):
        with np.errstate(all="raise"):
            assert rules.verify(p, q, 0, ScriptedDice([0.0, 0.0])) == (False, 1)


def test_an_empty_draft_is_plain_decode():
    verdict = rules.token_rule([[0.25, 0.75]], [], [], ScriptedDice([0.3]))
    assert (verdict.tokens, verdict.kind, verdict.path) == ((1,), "bonus", ())
    assert rules.token_rule([[1.0]], [], [], ScriptedDice([0.3])).tokens == (0,)


def test_greedy_takes_the_first_largest_and_ignores_later_matches():
    p = np.array([[0.2, 0.4, 0.4], [0.6, 0.2, 0.2], [0.1, 0.8, 0.1]])
    q = np.full((2, 3), 1 / 3)
    assert rules.greedy_rule(p, q, [1, 0]).tokens == (1, 0, 1)
    assert rules.greedy_rule(p, q, [2, 0]).tokens == (1,)


def test_greedy_on_a_tree_follows_the_child_that_bears_the_argmax():
    draft = Draft((0, 1, 2, 0), (-1, -1, 1, 1))
    p = np.eye(3)[[1, 0, 0, 2, 1]]
    verdict = rules.greedy_rule(p, np.full((4, 3), 1 / 3), draft)
    assert (verdict.path, verdict.tokens) == ((1, 3), (1, 0, 1))


def test_the_target_draws_its_own_way_down_a_tree():
    draft = Draft((0, 1, 2, 0), (-1, -1, 1, 1))
    p = np.eye(3)[[1, 0, 0, 2, 1]]
    verdict = rules.sampler_match_rule(p, np.full((4, 3), 1 / 3), draft, ScriptedDice([0.5] * 3))
    assert (verdict.path, verdict.tokens, verdict.kind) == ((1, 3), (1, 0, 1), "bonus")
    same = Draft((2, 2), (-1, -1))
    twins = rules.sampler_match_rule(np.eye(3)[[2, 0, 1]], np.eye(3)[[2, 2]], same, ScriptedDice([0.5] * 2))
    assert (twins.path, twins.tokens) == ((0,), (2, 0))


def test_two_siblings_accept_what_the_target_puts_on_them_and_change_no_law():
    p = np.array([FIXTURE_P] * 3)
    draft = Draft((2, 1), (-1, -1))
    found = law.exact_law(lambda dice: rules.sampler_match_rule(p, np.array([row(0, 0, 1), row(0, 1, 0)]), draft, dice))
    first = [sum(w for verdict, w in found.items() if verdict.tokens[0] == x) for x in range(3)]
    assert first == FIXTURE_P.tolist()
    assert sum(w for verdict, w in found.items() if verdict.path) == F(1, 2)


def test_inputs_are_never_changed():
    p, q = np.tile([0.5, 0.3, 0.2], (3, 1)), np.tile([0.2, 0.3, 0.5], (2, 1))
    before = p.copy(), q.copy()
    for seed in range(20):
        rules.token_rule(p, q, [2, 1], RandomDice(np.random.default_rng(seed)))
        rules.greedy_rule(p, q, [2, 1])
        rules.verify(p[0], q[0], 2, RandomDice(np.random.default_rng(seed)))
    assert (p == before[0]).all() and (q == before[1]).all()


ROWS2, ROWS1 = [[0.5, 0.5]] * 2, [[0.5, 0.5]]


@pytest.mark.parametrize(
    "rule",
    [
        rules.token_rule, rules.greedy_rule, rules.sampler_match_rule, rules.lenient_rule(0.5),
        rules.with_replacement_rule, rules.without_replacement_rule, rules.typical_rule(0.1, 0.3), rules.block_rule,
    ],
)
@pytest.mark.parametrize(
    "p, q, draft, name",
    [
        ([[0.5, 0.6]] * 2, ROWS1, [0], "p"),
        (ROWS2, [[np.nan, 1.0]], [0], "q"),
        (ROWS2, ROWS2, [0], "q"),
        (ROWS1, ROWS1, [0], "p"),
        (ROWS2, [[1.0]], [0], "q"),
        (ROWS2, ROWS1, [2], "draft"),
        ([0.5, 0.5], ROWS1, [0], "p"),
        ([ROWS2] * 2, ROWS1, [0], "p"),
        (ROWS2, [0.5, 0.5], [0], "q"),
        (ROWS2, [ROWS1], [0], "q"),
        (ROWS2, ROWS1, [-1], "tokens"),
        (ROWS2, ROWS1, [0.5], "draft"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(rule, p, q, draft, name):
    with pytest.raises(ValueError, match=f"^{name}\\b"):
        rule(p, q, draft, ScriptedDice([0.5] * 5))


def test_a_wrong_shape_is_refused_with_the_right_one():
    half = [0.5, 0.5, 0.0]
    with pytest.raises(ValueError, match=r"^p: shape \(1, 3\) for 1 drafted tokens, expected 2 rows"):
        rules.token_rule([half], [half], [0], ScriptedDice([0.5]))
    with pytest.raises(ValueError, match=r"^q: shape \(1, 1\) does not agree with p \(2, 3\), expected \(1, 3\)$"):
        rules.token_rule([half] * 2, [[1.0]], [0], ScriptedDice([0.5]))


@pytest.mark.parametrize("rule", [rules.token_rule, rules.lenient_rule(0.5)])
def test_a_rule_for_chains_refuses_a_draft_that_branches(rule):
    with pytest.raises(ValueError, match="^draft: parents .* chain"):
        rule(np.full((3, 2), 0.5), np.full((2, 2), 0.5), Draft((0, 1), (-1, -1)), ScriptedDice([0.5]))


def test_verify_wants_one_row_each_and_not_a_stack():
    with pytest.raises(ValueError, match="^p: .*one row"):
        rules.verify(ROWS1, ROWS1, 0, ScriptedDice([0.5]))


def test_verify_refuses_a_token_outside_the_vocabulary():
    with pytest.raises(ValueError, match="^x: token 2"):
        rules.verify([0.5, 0.5], [0.5, 0.5], 2, ScriptedDice([0.5]))


@pytest.mark.parametrize("lenience", [0, -0.5, 1.01, np.nan, None, "1"])
def test_a_lenience_outside_its_interval_is_refused(lenience):
    with pytest.raises(ValueError, match="^lenience: .* expected a number in"):
        rules.lenient_rule(lenience)
