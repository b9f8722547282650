"""Faults that real implementations shipped: what the right rule does, and the exact law of the wrong one.

Each wrong rule is written here in a few lines and run by the same `exact_law` as the shipped one, so a
test that passes also shows that the fault would have been seen.
"""

import math
from fractions import Fraction as F

import numpy as np
import pytest

from specnotes import decode, law, rules, theory, toy
from specnotes.dice import RandomDice, ScriptedDice
from specnotes.distributions import acceptance, check_rows, probs_from_logits, residual
from specnotes.gpt2 import GPT2, Config, random_tensors
from specnotes.records import Draft, Verdict
from tests.exact import FIXTURE_P, FIXTURE_Q, row
from tests.test_trace import a_published_log

ALL_RULES = [rules.token_rule, rules.greedy_rule, rules.sampler_match_rule, rules.lenient_rule(F(1, 2))]
SAME = lambda rows: rows


def law_of(one_token, p):
    """[P(token 0), P(token 1), ...] of a function of dice that returns a token."""
    found = law.exact_law(one_token)
    return [found.get(token, 0) for token in range(len(p))]


def law_of_verify(p, q, drafted=None):
    """The law of the token `verify` emits when the draft token comes from `drafted` (q, as it should)."""
    return law_of(lambda dice: rules.verify(p, q, dice.draw(q if drafted is None else drafted), dice)[1], p)


def one_hot(token, vocab_size):
    return row(*(int(entry == token) for entry in range(vocab_size)))


def constant(p):
    """A model that says the same row after every text."""
    return lambda text: p


def accept_or(p, q, x, dice, otherwise):
    """The right test, followed by whatever a wrong rule does after a rejection."""
    return x if dice.flip(min(1, p[x] / q[x])) else dice.draw(otherwise)


# The rule


def test_a_draft_taken_by_argmax_is_judged_as_one_hot():
    p, q = row(6, 10, 4), row(8, 7, 5)
    chosen = one_hot(0, 3)
    assert law_of_verify(p, q, drafted=chosen) == [F(3, 4), F(1, 4), 0]  # judged by the soft q: wrong
    assert law_of_verify(p, chosen) == p.tolist()
    assert acceptance(p, chosen) == p[0]
    assert residual(p, chosen).tolist() == [0, F(5, 7), F(2, 7)]  # p without the drafted token


def test_the_residual_is_normalised_and_not_put_through_a_softmax():
    p, q = FIXTURE_P, FIXTURE_Q
    left = [math.exp(max(a - b, 0)) for a, b in zip(p, q)]
    wrong = law_of(lambda dice: accept_or(p, q, dice.draw(q), dice, left), p)
    assert wrong == pytest.approx([0.3209, 0.3896, 0.2896], abs=5e-5)
    assert law_of_verify(p, q) == p.tolist()


def test_q_is_the_row_after_top_k_when_the_token_was_drawn_after_top_k():
    p, raw, warped = row(5, 3, 2), row(4, 4, 2), row(1, 1, 0)
    assert probs_from_logits(np.log(raw.astype(float)), top_k=2) == pytest.approx(warped.astype(float), rel=1e-15)
    assert law_of_verify(p, raw, drafted=warped) == [F(5, 8), F(3, 8), 0]
    assert law_of_verify(p, warped) == p.tolist()
    assert acceptance(p, warped) == F(4, 5)


def test_the_residual_takes_the_whole_of_q_away_and_not_the_drafted_entry_alone():
    p, q = FIXTURE_P, FIXTURE_Q

    def wrong(dice):
        x = dice.draw(q)
        return accept_or(p, q, x, dice, [max(p[y] - (q[y] if y == x else 0), 0) for y in range(3)])

    assert law_of(wrong, p) == [F(31, 80), F(33, 80), F(1, 5)]
    assert law_of_verify(p, q) == p.tolist()


def test_a_mismatching_sample_of_the_target_is_emitted_and_not_drawn_again():
    p, drafted = row(5, 3, 2), 0

    def wrong(dice):
        own = dice.draw(p)
        return own if own == drafted else dice.draw(p)

    def right(dice):
        return rules.sampler_match_rule([p, p], [one_hot(drafted, 3)], [drafted], dice).tokens[0]

    assert law_of(wrong, p) == [F(3, 4), F(3, 20), F(1, 10)]
    assert law_of(right, p) == p.tolist()


def test_emitting_the_targets_own_sample_is_exact_and_accepts_less():
    p, q = row(6, 2, 1, 1), row(14, 4, 1, 1)
    accepted = {}
    for rule in (rules.sampler_match_rule, rules.token_rule):
        found = law.emitted_law(rule, constant(p), constant(q), gamma=1)
        first = [sum(w for tokens, w in found.items() if tokens[0] == x) for x in range(4)]
        assert first == p.tolist()
        accepted[rule] = sum(w for tokens, w in found.items() if len(tokens) == 2)
    assert accepted[rules.sampler_match_rule] == (p * q).sum() == F(47, 100)
    assert accepted[rules.token_rule] == acceptance(p, q) == F(9, 10)


def test_the_bonus_token_is_drawn_whatever_the_temperature():
    p = row(6, 4)

    def argmax_bonus(p_rows, q_rows, draft, dice):
        verdict = rules.token_rule(p_rows, q_rows, draft, dice)
        token = int(np.argmax(p_rows[-1])) if verdict.kind == "bonus" else verdict.token
        return Verdict(verdict.path, token, verdict.kind, verdict.accepted)

    def second(rule):
        found = law.emitted_law(rule, constant(p), constant(p), gamma=1)
        return [sum(w for tokens, w in found.items() if tokens[1] == x) for x in range(2)]

    assert second(argmax_bonus) == [1, 0]
    assert second(rules.token_rule) == [F(3, 5), F(2, 5)]


def test_a_pass_without_a_bonus_token_is_exact_and_yields_less():
    p, q = row(3, 2), row(4, 1)
    found = law.emitted_law(rules.token_rule, constant(p), constant(q), gamma=1)
    without = {}
    for tokens, weight in found.items():  # gamma = 1: two tokens are an accepted one and the bonus
        without[tokens[:1]] = without.get(tokens[:1], 0) + weight
    assert acceptance(p, q) == F(4, 5)
    assert without == {(0,): F(3, 5), (1,): F(2, 5)}
    assert sum(len(tokens) * weight for tokens, weight in without.items()) == 1
    assert sum(len(tokens) * weight for tokens, weight in found.items()) == F(9, 5)


class FixedDrafter:
    """Always proposes the same chain, and says so: its rows are one-hot."""

    def __init__(self, tokens, vocab_size):
        self.tokens, self.rows = tokens, np.eye(vocab_size)[list(tokens)]

    def start(self, prompt):
        pass

    def propose(self, context, gamma, warp, dice):
        return Draft.chain(self.tokens[:gamma]), self.rows[:gamma]

    def commit(self, tokens, features):
        pass


def test_the_first_drafted_token_is_verified_too():
    target = toy.TableModel(lambda text: np.eye(6)[5 if text == (1, 1, 1) else 1], vocab_size=6)

    def off_by_one(p, q, draft, dice):
        rest = rules.greedy_rule(p[1:], q[1:], Draft.chain(draft.tokens[1:]), dice)
        return Verdict((0, *(node + 1 for node in rest.path)), rest.token, rest.kind, (draft.tokens[0], *rest.accepted))

    def first_pass(rule):
        loop = decode.rounds(
            target, [1, 1, 1], FixedDrafter([1], 6), gamma=1, max_new_tokens=2, warp=SAME, rule=rule,
            dice=ScriptedDice([0.5] * 4),
        )
        return next(loop).tokens

    assert first_pass(off_by_one) == (1, 1)
    assert first_pass(rules.greedy_rule) == first_pass(rules.token_rule) == first_pass(rules.sampler_match_rule) == (5,)


def test_lenience_buys_acceptance_with_the_law():
    found = law.emitted_law(rules.lenient_rule(F(1, 2)), constant(FIXTURE_P), constant(FIXTURE_Q), gamma=1)
    assert [sum(w for tokens, w in found.items() if tokens[0] == x) for x in range(3)] == [F(3, 10), F(3, 10), F(2, 5)]
    assert sum(w for tokens, w in found.items() if len(tokens) == 2) == F(9, 10)
    strict = law.emitted_law(rules.lenient_rule(1), constant(FIXTURE_P), constant(FIXTURE_Q), gamma=1)
    assert strict == law.emitted_law(rules.token_rule, constant(FIXTURE_P), constant(FIXTURE_Q), gamma=1)


def test_the_better_of_two_draws_has_a_law_of_its_own():
    # Of two draws from (.2, .3, .5) keep the likelier: .04, .21, .75 is what the token was drawn from.
    p, q = FIXTURE_P, FIXTURE_Q
    kept = row(4, 21, 75)
    better = lambda dice: max(dice.draw(q), dice.draw(q))
    assert law_of(better, p) == kept.tolist()
    # judged by q: token 0 gets .04 + .75 * .6, token 1 keeps .21, token 2 .75 * .4
    assert law_of(lambda dice: rules.verify(p, q, better(dice), dice)[1], p) == [F(49, 100), F(21, 100), F(3, 10)]
    assert law_of(lambda dice: rules.verify(p, kept, better(dice), dice)[1], p) == p.tolist()


def test_tokens_drawn_side_by_side_are_judged_by_the_rows_they_were_drawn_from():
    # The draft model repeats the last token; drawn side by side, its second token is 0 or 1 alike.
    half, repeat = row(1, 1), [one_hot(0, 2), one_hot(1, 2)]

    def second_after_zero(q_of):
        def one_pass(dice):
            draft = (dice.draw(half), dice.draw(half))
            return rules.token_rule([half] * 3, [half, q_of(draft[0])], draft, dice).tokens[:2]

        found = law.exact_law(one_pass)
        return found[0, 0] / (found[0, 0] + found[0, 1])

    assert second_after_zero(lambda first: repeat[first]) == F(1, 4)
    assert second_after_zero(lambda first: half) == F(1, 2)


# Degenerate numbers


def test_an_equal_row_is_never_rejected_and_its_residual_is_the_row():
    p = np.array([0.1, 0.2, 0.7])
    highest = np.nextafter(1, 0)
    assert all(rules.verify(p, p, x, ScriptedDice([highest])) == (True, x) for x in range(3))
    assert residual(p, p).tolist() == p.tolist()
    with np.errstate(invalid="ignore"):
        assert np.isnan(np.maximum(p - p, 0) / np.maximum(p - p, 0).sum()).all()  # the formula as it is printed


def test_a_float32_row_against_a_float64_row_moves_the_law_by_rounding_alone():
    logits = np.random.default_rng(5).normal(size=50)
    q = probs_from_logits(logits)
    p = q.astype(np.float32)
    left = residual(p, q)
    assert 0 < np.maximum(p - q, 0).sum() < 1e-7  # rounding noise, yet the residual is made of it
    assert np.isfinite(left).all() and left.sum() == pytest.approx(1, abs=1e-12)
    assert law_of_verify(p, q) == pytest.approx(q.tolist(), abs=1e-7)


def test_a_tiny_q_is_divided_by_as_it_is_and_never_clamped():
    tiny = F(1, 10**9)
    p, q = np.array([tiny, 1 - tiny]), np.array([2 * tiny, 1 - 2 * tiny])
    clamped = lambda x: max(q[x], F(1, 10**8))
    wrong = law_of(lambda dice: accept_or(p, [clamped(0), clamped(1)], dice.draw(q), dice, residual(p, q)), p)
    assert wrong[0] == tiny / 5  # accepted with .1 in place of .5
    assert law_of_verify(p, q) == p.tolist()
    assert law.exact_law(lambda dice: rules.verify(p, q, 0, dice)[0]) == {True: F(1, 2), False: F(1, 2)}


@pytest.mark.parametrize("rule", ALL_RULES)
def test_a_zero_in_q_accepts_and_a_zero_in_p_rejects_at_any_u(rule):
    p, q = [[0.0, 1.0], [0.0, 1.0]], [[1.0, 0.0]]
    for u in (0.0, np.nextafter(1, 0)):
        assert rule(p, q, [0], ScriptedDice([u, u])).tokens == (1,)  # p(0) = 0
        with np.errstate(all="raise"):
            assert rule(p, q, [1], ScriptedDice([u, u])).tokens == (1, 1)  # q(1) = 0


@pytest.mark.parametrize("rule", ALL_RULES)
@pytest.mark.parametrize("name, bad", [("p row 1", 0), ("q row 0", 1)])
def test_a_nan_is_an_error_that_names_the_row_and_no_dice_are_cast(rule, name, bad):
    rows = [[[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5]]]
    rows[bad][-1] = [np.nan, 1.0]
    dice = ScriptedDice([0.5] * 4)
    with pytest.raises(ValueError, match=f"^{name}: probability of token 0 is nan"):
        rule(*rows, [0], dice)
    assert dice.used == 0


def test_logits_that_forbid_every_token_stop_the_decode():
    target = toy.TableModel(lambda text: np.full(3, -np.inf) if len(text) == 2 else np.zeros(3), vocab_size=3)
    for temperature in (0, 1):
        with pytest.raises(ValueError, match="^logits row 0: all -inf"):
            decode.generate(target, [0], max_new_tokens=3, temperature=temperature)


def refused_by_numpy(rows):
    """How many rows NumPy's own `choice` refuses because their sum is further from 1 than it allows."""
    rng, refused = np.random.default_rng(0), 0
    for probs in rows:
        try:
            rng.choice(len(probs), p=probs)
        except ValueError as error:
            assert "sum to 1" in str(error)
            refused += 1
    return refused


def test_a_softmax_over_a_large_vocabulary_is_normalised_in_float64():
    logits = np.random.default_rng(0).normal(size=(16, 50_257)).astype(np.float32)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    single = (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float64)  # normalised first, converted then
    assert weights.dtype == np.float32 and refused_by_numpy(single) > 0
    assert refused_by_numpy(probs_from_logits(logits)) == 0
    dice = RandomDice(np.random.default_rng(0))
    assert all(0 <= dice.draw(check_rows("p", probs)) < 50_257 for probs in single)


def test_temperature_zero_is_no_small_temperature_and_a_negative_one_is_refused():
    tied = np.array([1.0, 3.0, 3.0])
    assert probs_from_logits(tied, temperature=1e-10).tolist() == [0, 0.5, 0.5]  # an epsilon splits a tie
    with np.errstate(all="raise"):
        assert probs_from_logits(tied, temperature=0).tolist() == [0, 1, 0]
    target = toy.TableModel(lambda text: tied, vocab_size=3)
    assert decode.generate(target, [0], max_new_tokens=4, temperature=0).tokens == (1, 1, 1, 1)
    with pytest.raises(ValueError, match="^temperature: -1"):
        decode.generate(target, [0], max_new_tokens=4, temperature=-1)


def test_token_zero_is_a_token_like_any_other():
    p, q = FIXTURE_P, FIXTURE_Q

    def falsy(dice):
        x = dice.draw(q)
        accepted = rules.verify(p, q, x, dice)
        return accepted[1] or 1  # "no token" is taken for token 0

    assert law_of(falsy, p) == [0, F(4, 5), F(1, 5)]
    for rule in (rules.token_rule, rules.sampler_match_rule):
        found = law.emitted_law(rule, constant(p), constant(q), gamma=1)
        assert sum(w for tokens, w in found.items() if tokens[0] == 0) == p[0]
    assert rules.greedy_rule([[0.9, 0.1]] * 2, [[0.9, 0.1]], [0]).tokens == (0, 0)
    target = toy.TableModel(lambda text: np.array([9.0, 0.0]), vocab_size=2)
    trace = decode.generate(target, [1], FixedDrafter([0, 0], 2), max_new_tokens=5, temperature=0, stop=(0,))
    assert trace.tokens == (0,) and trace.finish == "stop"


def test_a_warp_leaves_the_models_own_logits_alone():
    logits = np.array([3.0, 1.0, 2.0, 0.5], dtype=np.float32)
    target = toy.TableModel(lambda text: logits, vocab_size=4)
    for settings in ({"temperature": 0}, {"temperature": 0.5}, {"top_k": 2}, {"top_p": 0.5}):
        decode.generate(target, [0], FixedDrafter([0, 2], 4), max_new_tokens=5, **settings)
        rows = np.array([logits, logits])
        probs_from_logits(rows, **settings)
        assert rows.tolist() == [[3.0, 1.0, 2.0, 0.5]] * 2 and logits.tolist() == [3.0, 1.0, 2.0, 0.5]


# Randomness


def test_the_accept_test_and_the_residual_draw_take_two_uniforms():
    p, q = row(4, 3, 3), row(8, 1, 1)
    tenth = [F(1)] * 10
    middle = lambda dice: (2 * dice.draw(tenth) + 1) / 20  # a uniform: every edge here is a multiple of 1/10
    outcomes = {}
    for name, pairs in (("one", lambda u, dice: [u, u]), ("two", lambda u, dice: [u, middle(dice)])):
        run = lambda dice: rules.verify(p, q, dice.draw(q), ScriptedDice(pairs(middle(dice), dice)))
        outcomes[name] = law.exact_law(run)
    token = lambda name: [sum(w for out, w in outcomes[name].items() if out[1] == x) for x in range(3)]
    accepted = lambda name: sum(w for out, w in outcomes[name].items() if out[0])
    assert token("one") == [F(2, 5), F(1, 10), F(1, 2)]
    assert token("two") == p.tolist()
    assert accepted("one") == accepted("two") == acceptance(p, q)


def text_with_uniforms_by_position(rule, uniforms, draft_rng, n):
    """Decode n tokens; what is decided at text position i starts at uniforms[i]. Rows of the fixture throughout."""
    text = []
    while len(text) < n:
        drafted = [RandomDice(draft_rng).draw(FIXTURE_Q) for _ in range(2)]
        p, q = np.array([FIXTURE_P] * 3), np.array([FIXTURE_Q] * 2)
        text += rule(p, q, drafted, ScriptedDice(uniforms[len(text) :])).tokens
    return text[:n]


def test_one_seed_gives_another_text_unless_every_position_has_its_own_uniform():
    match, token = [], []
    for seed in range(20):
        uniforms = np.random.default_rng(seed).random(40)
        plain = [ScriptedDice([u]).draw(FIXTURE_P) for u in uniforms[:12]]
        for rule, same in ((rules.sampler_match_rule, match), (rules.token_rule, token)):
            same.append(text_with_uniforms_by_position(rule, uniforms, np.random.default_rng(99 + seed), 12) == plain)
    assert all(match) and not any(token)


def test_the_same_seed_is_another_text_with_and_without_a_draft():
    target = toy.markov_model(np.full((5, 5), 0.2))
    texts = {
        decode.generate(target, [0], drafter, max_new_tokens=30, dice=RandomDice(np.random.default_rng(3))).tokens
        for drafter in (None, FixedDrafter([1, 2, 3], 5))
    }
    assert len(texts) == 2


# Metrics


def test_only_the_rate_over_examined_drafts_predicts_the_tokens_per_pass():
    log = a_published_log()  # 87 passes, 259 drafted, 167 accepted, survival .805, .632, .483
    assert log.tokens_per_pass == pytest.approx(1 + 167 / 87, rel=1e-15)
    # the log prints rounded survivals; conditional rates from those: .805, .632/.805, .483/.632
    assert log.acceptance_by_position == pytest.approx([0.805, 0.785, 0.764], abs=1e-3)
    assert theory.expected_tokens(log.acceptance, 3) == pytest.approx(log.tokens_per_pass, abs=0.04)
    assert theory.expected_tokens(log.accepted_over_drafted, 3) == pytest.approx(2.329, abs=5e-4)


def test_accepted_over_drafted_is_far_below_alpha_for_long_drafts():
    # one-hot draft: accepted with p(0) = 4/5 at each of 8 positions
    found = law.emitted_law(rules.token_rule, constant(row(4, 1)), constant(row(1, 0)), gamma=8)
    accepted = sum((len(tokens) - 1) * w for tokens, w in found.items())
    examined = sum(min(len(tokens), 8) * w for tokens, w in found.items())
    assert accepted / examined == F(4, 5)
    assert accepted / 8 == (theory.expected_tokens(F(4, 5), 8) - 1) / 8
    assert float(accepted / 8) == pytest.approx(0.416, abs=5e-4)


@pytest.mark.parametrize("gamma", range(5))
def test_a_pass_of_the_shipped_rule_reaches_the_edges_of_the_formula(gamma):
    mean = lambda p, q: sum(
        len(tokens) * w for tokens, w in law.emitted_law(rules.token_rule, constant(p), constant(q), gamma).items()
    )
    assert mean(row(1, 2), row(1, 2)) == theory.expected_tokens(1, gamma) == gamma + 1
    assert mean(row(1, 0), row(0, 1)) == theory.expected_tokens(0, gamma) == 1
    assert theory.tokens_distribution(1, gamma) == [0] * gamma + [1]
    assert theory.tokens_distribution(0, gamma) == ([1] + [0] * gamma)


def test_tokens_per_pass_at_the_mean_alpha_is_not_the_mean_of_tokens_per_pass():
    def tokens_per_pass(alpha):
        p = np.array([alpha, 1 - alpha])
        found = law.emitted_law(rules.token_rule, constant(p), constant(row(1, 0)), gamma=4)
        return sum(len(tokens) * w for tokens, w in found.items())

    easy, hard = F(95, 100), F(25, 100)
    assert float((tokens_per_pass(easy) + tokens_per_pass(hard)) / 2) == pytest.approx(2.928, abs=5e-4)
    assert float(theory.expected_tokens((easy + hard) / 2, 4)) == pytest.approx(2.306, abs=5e-4)


def test_the_same_draft_that_slows_decode_down_at_gamma_four_speeds_it_up_at_one():
    assert theory.speedup(F(3, 5), 4, F(1, 2)) == F(1441, 625) / 3
    assert float(F(1441, 1875)) == pytest.approx(0.769, abs=5e-4)
    assert theory.best_gamma(F(3, 5), F(1, 2)) == (1, F(16, 15))


def test_no_draft_is_a_candidate_and_wins_its_ties():
    for alpha, c in ((F(1, 5), F(3, 10)), (F(3, 10), F(3, 10)), (F(0), F(0)), (F(0), F(1))):
        assert theory.best_gamma(alpha, c) == (0, 1)
        assert theory.best_gamma(float(alpha), float(c)) == (0, 1)
    assert theory.best_gamma(F(7, 10), F(1, 20))[0] == 6  # exactly, gamma 5 loses by 2e-6
    gain = theory.speedup(F(7, 10), 6, F(1, 20)) - theory.speedup(F(7, 10), 5, F(1, 20))
    assert 0 < gain < F(2, 10**6)
    assert theory.best_gamma(F(1, 2), F(1, 5), max_gamma=2)[0] == 1


def greedy_text(model, prompt, n, rows):
    """The greedy text of n tokens, the whole text read again for each token, `rows` rows at a time."""
    text = list(prompt)
    for _ in range(n):
        model.rollback(0)
        for start in range(0, len(text), rows):
            last = model.forward(text[start : start + rows]).logits[-1]
        text.append(int(last.argmax()))
    return tuple(text[len(prompt) :])


def test_rows_computed_together_differ_in_float32_so_greedy_texts_are_compared_in_float64():
    config = Config(vocab_size=40, max_length=32, width=48, layers=2, heads=4)
    tokens, logits = [3, 1, 4, 1, 5], {}
    for dtype in ("float32", "float64"):
        model = GPT2(config, random_tensors(config, seed=0, scale=0.3), dtype)
        together = model.forward(tokens).logits
        model.rollback(0)
        logits[dtype] = together, np.concatenate([model.forward([token]).logits for token in tokens])
    together, one_by_one = logits["float32"]
    assert (together != one_by_one).mean() > 0.5 and abs(together - one_by_one).max() < 1e-3
    together, one_by_one = logits["float64"]
    assert abs(together - one_by_one).max() < 1e-10
    assert len({greedy_text(model, tokens, 12, rows) for rows in (1, 2, 5)}) == 1


def test_where_greedy_texts_may_part_is_named_as_a_near_tie():
    row_of = {1: [0.0, 1.0, 1.0 + 1e-7], 2: [5.0, 0.0, 0.0]}
    target = toy.TableModel(lambda text: np.array(row_of.get(text[-1], [0.0, 2.0, 0.0])), vocab_size=3)
    text = decode.generate(target, [1], max_new_tokens=3, temperature=0).tokens
    assert text == (2, 0, 1)
    (place,) = decode.near_ties(target, [1], text)
    assert place == (0, pytest.approx(1e-7, rel=1e-6))
    assert decode.near_ties(target, [1], text, gap=1e-8) == []


def test_a_tie_goes_to_the_first_largest_entry_everywhere():
    tied = np.array([1.0, 4.0, 4.0, 4.0])
    target = toy.TableModel(lambda text: tied, vocab_size=4)
    assert probs_from_logits(tied, temperature=0).tolist() == [0, 1, 0, 0]
    for drafted, accepted in ([1, 1], 2), ([2, 1], 0):
        trace = decode.generate(
            target, [0], FixedDrafter(drafted, 4), gamma=2, max_new_tokens=3, temperature=0, rule=rules.greedy_rule
        )
        assert trace.tokens == (1, 1, 1) and len(trace.rounds[0].verdict.path) == accepted
    thirds = [row(0, 1, 1, 1)] * 2
    assert rules.greedy_rule(thirds, [one_hot(3, 4)], [3]).tokens == (1,)
    assert rules.greedy_rule(thirds, [one_hot(1, 4)], [1]).tokens == (1, 1)
