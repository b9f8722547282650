"""Numeric cases worked out independently of this package, in exact fractions."""

import itertools
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from specnotes import decode, law, rules, theory, toy
from specnotes.distributions import acceptance, residual, total_variation
from specnotes.drafters import ModelDrafter
from tests.exact import sequence_probability

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())["vectors"]


def exact(value):
    """The vectors' numbers as Fractions."""
    if isinstance(value, dict):
        return Fraction(value["frac"]) if set(value) == {"frac", "float"} else {k: exact(v) for k, v in value.items()}
    return [exact(item) for item in value] if isinstance(value, list) else value


def cases(group, prefix=""):
    chosen = [v for v in VECTORS if v["group"] == group and v["id"].startswith(prefix)]
    assert chosen
    return [pytest.param(exact(v["inputs"]), exact(v["expected"]), id=v["id"]) for v in chosen]


def only(id):
    return next((exact(v["inputs"]), exact(v["expected"])) for v in VECTORS if v["id"] == id)


def law_of_verify(p, q, rule=rules.verify):
    def one_token(dice):
        return rule(p, q, dice.draw(q), dice)[1]

    found = law.exact_law(one_token)
    return [found.get(token, 0) for token in range(len(p))]


@pytest.mark.parametrize("inputs, expected", [c for c in cases("verify") if "bug" not in c.id])
def test_verify(inputs, expected):
    p, q = np.array(inputs["p"]), np.array(inputs["q"])
    assert acceptance(p, q) == expected["beta"]
    assert acceptance(q, p) == expected["symmetric_beta"]
    assert total_variation(p, q) == expected["tv"] == expected["D_LK"]
    assert residual(p, q).tolist() == (expected["residual"] or p.tolist())
    assert law_of_verify(p, q) == expected["emitted"] == p.tolist()
    for x, probability in enumerate(expected["accept_prob_per_token"]):
        if probability is not None:
            accepted = law.exact_law(lambda dice: rules.verify(p, q, x, dice)[0])
            assert accepted.get(True, 0) == probability


def resample_from_p(p, q, x, dice):
    return (True, x) if dice.flip(min(1, p[x] / q[x])) else (False, dice.draw(p))


def inverted_ratio(p, q, x, dice):
    return (True, x) if dice.flip(min(1, q[x] / p[x])) else (False, dice.draw(residual(p, q)))


@pytest.mark.parametrize(
    "id, rule", [("verify-13-bug-resample-from-p", resample_from_p), ("verify-14-bug-ratio-inverted", inverted_ratio)]
)
def test_the_exact_law_tells_a_wrong_rule_from_the_right_one(id, rule):
    inputs, expected = only(id)
    p, q = np.array(inputs["p"]), np.array(inputs["q"])
    assert law_of_verify(p, q, rule) == expected["emitted_buggy"] != expected["correct"]
    assert law_of_verify(p, q) == expected["correct"]


def one_pass_law(target, draft, gamma, prefix):
    return law.emitted_law(rules.token_rule, target, draft, gamma, prefix)


def as_keys(found):
    return {",".join(map(str, tokens)): probability for tokens, probability in found.items()}


def target_law(P, start, n):
    words = itertools.product(range(len(P)), repeat=n)
    found = {word: sequence_probability(P, start, word) for word in words}
    return {word: probability for word, probability in found.items() if probability}


def completed_with_target(found, P, start, n):
    full = {}
    for tokens, probability in found.items():
        state = tokens[-1]
        for rest, weight in target_law(P, state, n - len(tokens)).items():
            full[tokens + rest] = full.get(tokens + rest, 0) + probability * weight
    return full


@pytest.mark.parametrize("inputs, expected", cases("markov", "markov"))
def test_one_pass_of_a_markov_pair(inputs, expected):
    P, Q, gamma, start = inputs["P_target"], inputs["Q_draft"], inputs["gamma"], inputs["start_state"]
    found = one_pass_law(lambda text: P[text[-1]], lambda text: Q[text[-1]], gamma, (start,))
    if "omitted" not in expected["emitted_sequence_dist"]:
        assert as_keys(found) == expected["emitted_sequence_dist"]
    assert completed_with_target(found, P, start, gamma + 1) == target_law(P, start, gamma + 1)
    lengths = [sum(w for tokens, w in found.items() if len(tokens) == n) for n in range(1, gamma + 2)]
    assert lengths == expected["length_dist_1_to_gamma_plus_1"]
    assert sum(n * w for n, w in enumerate(lengths, start=1)) == expected["expected_tokens"]
    assert [acceptance(p, q) for p, q in zip(P, Q)] == expected["beta_by_state"]
    # E = sum_j e M^j 1 with M = min(P, Q) entrywise
    M, reach, by_hand = np.minimum(np.array(P), np.array(Q)), np.array([Fraction(1)] * len(P)), 0
    survival = []
    for _ in range(gamma + 1):
        survival.append(reach[start])
        by_hand, reach = by_hand + reach[start], M.dot(reach)
    assert survival == expected["survival_P(first j accepted)"]
    assert by_hand == expected["expected_tokens"]
    alpha = expected["alpha_bar_stationary"]
    assert theory.expected_tokens(alpha, gamma) == expected["iid_formula_with_alpha_bar"]


@pytest.mark.parametrize("inputs, expected", cases("markov", "table"))
def test_one_pass_of_tables_that_read_the_whole_context(inputs, expected):
    key = lambda text: ",".join(map(str, text))
    found = one_pass_law(
        lambda text: inputs["p_table"][key(text)], lambda text: inputs["q_table"][key(text)], inputs["gamma"], ()
    )
    assert as_keys(found) == expected["emitted_sequence_dist"]
    assert sum(len(tokens) * w for tokens, w in found.items()) == expected["expected_tokens"]


@pytest.mark.parametrize("inputs, expected", cases("tokens_per_pass", "tokens"))
def test_tokens_per_pass(inputs, expected):
    alpha, gamma = inputs["alpha"], inputs["gamma"]
    mean, pmf = theory.expected_tokens(alpha, gamma), theory.tokens_distribution(alpha, gamma)
    assert mean == expected["mean"] == sum(n * w for n, w in enumerate(pmf, start=1))
    assert pmf == expected["pmf_1_to_g+1"]
    assert sum(n * n * w for n, w in enumerate(pmf, start=1)) - mean**2 == expected["variance"]
    assert mean - 1 == expected["expected_accepted"]
    assert theory.operations(alpha, gamma, 0) == expected["ops_factor_chat0"]
    assert theory.expected_tokens(float(alpha), gamma) == pytest.approx(float(mean), rel=1e-14)


@pytest.mark.parametrize("inputs, expected", cases("tokens_per_pass", "passes"))
def test_passes_needed_for_n_tokens(inputs, expected):
    pmf = theory.tokens_distribution(inputs["alpha"], inputs["gamma"])
    needed = {0: Fraction(0)}
    for n in range(1, inputs["N"] + 1):
        needed[n] = 1 + sum(w * needed[max(0, n - size)] for size, w in enumerate(pmf, start=1))
    assert needed[inputs["N"]] == expected["expected_passes"]
    assert inputs["N"] / theory.expected_tokens(inputs["alpha"], inputs["gamma"]) == expected["N_over_E"]


def test_best_gamma_on_the_whole_grid():
    inputs, expected = only("optgamma-grid")
    raw = next(v for v in VECTORS if v["id"] == "optgamma-grid")["expected"]
    for key, value in raw.items():
        alpha, c = (Fraction(part.split("=")[1]) for part in key.split(","))
        gamma, gain = theory.best_gamma(alpha, c, max_gamma=inputs["gamma_range"][1])
        assert gamma == value["gamma_star"][0] and float(gain) == pytest.approx(value["speedup"], rel=1e-14), key
        assert value["frac"] is None or gain == Fraction(value["frac"]), key
        in_floats, gain = theory.best_gamma(float(alpha), float(c), max_gamma=inputs["gamma_range"][1])
        assert in_floats == value["gamma_star"][0] and gain == pytest.approx(value["speedup"], rel=1e-12), key


@pytest.mark.parametrize("inputs, expected", cases("optimal_gamma", "optgamma-tie"))
def test_the_smallest_gamma_wins_a_tie(inputs, expected):
    smallest = expected["gamma_maximisers"][0]
    assert theory.best_gamma(inputs["alpha"], inputs["c"]) == (smallest, expected["speedup"])
    assert theory.best_gamma(float(inputs["alpha"]), float(inputs["c"]))[0] == smallest
    for gamma in expected["gamma_maximisers"]:
        assert theory.speedup(inputs["alpha"], gamma, inputs["c"]) == expected["speedup"]


@pytest.mark.parametrize("inputs, expected", cases("optimal_gamma", "breakeven"))
def test_break_even_draft_cost(inputs, expected):
    c = theory.break_even_c(inputs["alpha"], inputs["gamma"])
    assert c == expected["c_star"]
    assert theory.speedup(inputs["alpha"], inputs["gamma"], c) == 1


def test_best_gamma_changes_exactly_at_the_thresholds():
    _, expected = only("optgamma-thresholds")
    for alpha, thresholds in expected.items():
        for name, c in thresholds.items():
            before, after = (int(gamma) for gamma in name.removeprefix("c_threshold_").split("->"))
            assert theory.best_gamma(Fraction(alpha), c)[0] == before
            assert theory.best_gamma(Fraction(alpha), c * Fraction(9999, 10000))[0] == after


def test_oracle_draft_length_gains_what_was_derived():
    _, expected = only("oracle-gamma-gain")
    for key, ratio in expected["ratios"].items():
        alpha, c = (float(Fraction(part.split("=")[1])) for part in key.split(","))
        oracle = 1 / (1 - alpha + c * alpha)
        assert (oracle / theory.best_gamma(alpha, c, max_gamma=200)[1]) == pytest.approx(ratio, rel=1e-12), key


@pytest.mark.parametrize("inputs, expected", cases("operations"))
def test_operations(inputs, expected):
    assert theory.operations(inputs["alpha"], inputs["gamma"], inputs["c_hat"]) == expected["ops_factor"]
    assert 1 / theory.expected_tokens(inputs["alpha"], inputs["gamma"]) == expected["target_weight_reads_factor"]


def test_leviathan_table_1():
    for row in only("leviathan-table1")[1]["rows"]:
        assert round(theory.speedup(row["alpha"], row["gamma"], 0), 2) == row["paper_speed"]
        assert round(theory.operations(row["alpha"], row["gamma"], 0), 2) == row["paper_ops"]


def one_hot(tokens, vocab_size=10):
    return (np.arange(vocab_size) == np.array(tokens)[:, None]).astype(float)


@pytest.mark.parametrize("inputs, expected", [c for c in cases("greedy") if "loop" not in c.id])
def test_greedy_verdicts(inputs, expected):
    draft, p = inputs["draft"], one_hot(inputs["target_argmax"])
    for rule in (rules.greedy_rule, rules.token_rule):
        verdict = law.exact_law(lambda dice: rule(p, one_hot(draft), draft, dice))
        assert list(verdict.values()) == [1]
        (verdict,) = verdict
        assert len(verdict.path) == expected["n_accepted"] and list(verdict.tokens) == expected["emitted"]


@pytest.mark.parametrize("inputs, expected", cases("greedy", "greedy-loop"))
def test_greedy_loop_of_two_automata(inputs, expected):
    step = lambda s: (3 * s + 1) % 7
    draft_step = lambda s: (s + 1) % 7 if s % 3 == 0 else step(s)
    table = lambda move: toy.markov_model(one_hot([move(s) for s in range(7)], 7))
    found = law.exact_law(
        lambda dice: tuple(
            decode.rounds(
                table(step), [inputs["start"]], ModelDrafter(table(draft_step)), gamma=inputs["gamma"],
                max_new_tokens=inputs["N"], warp=lambda rows: rows, rule=rules.greedy_rule, dice=dice,
            )
        )
    )
    ((done, probability),) = found.items()
    assert probability == 1 and len(done) == expected["target_passes"]
    assert [token for round in done for token in round.tokens] == expected["tokens"]
    # The last pass drafts no more than the text still has room for; every other count is as given.
    room = inputs["N"] - sum(len(round.tokens) for round in done[:-1])
    accepted = expected["accepted_per_pass"]
    assert [len(round.verdict.path) for round in done] == accepted[:-1] + [min(accepted[-1], room - 1)]
