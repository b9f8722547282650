from fractions import Fraction as F

import numpy as np
import numpy as np
import pytest

from specnotes import theory


def test_tokens_per_pass_at_the_edges():
    assert theory.expected_tokens(0, 5) == 1
    assert theory.expected_tokens(1, 5) == 6
    assert theory.expected_tokens(0.8, 0) == 1


def test_the_closed_form_equals_the_sum_in_fractions():
    for alpha in (F(1, 3), F(4, 5), F(99, 100)):
        for gamma in range(9):
            assert theory.expected_tokens(alpha, gamma) == (1 - alpha ** (gamma + 1)) / (1 - alpha)


def test_near_alpha_one_no_digit_is_lost():
    # 1 + (1-e) + (1-e)^2 = 3 - 3e + e^2; the quotient form is off by 4e-5 here
    alpha = 1 - 2.0**-40
    assert theory.expected_tokens(alpha, 2) == pytest.approx(3 - 3 * 2.0**-40, rel=1e-15)


def test_the_first_explorers_numbers():
    # alpha .8, gamma 4: (1 - .8^5) / .2 = 3.3616; / 1.2 = 2.8013; best gamma 8: 4.32891... / 1.4
    assert theory.expected_tokens(0.8, 4) == pytest.approx(3.3616)
    assert theory.speedup(0.8, 4, 0.05) == pytest.approx(3.3616 / 1.2)
    gamma, gain = theory.best_gamma(0.8, 0.05)
    assert gamma == 8 and gain == pytest.approx((1 - 0.8**9) / 0.2 / 1.4)


def test_a_slow_draft_slows_decode_down():
    assert theory.speedup(0.6, 4, 0.5) == pytest.approx(2.3056 / 3)
    assert theory.best_gamma(0.6, 0.7) == (0, 1)


def test_a_near_tie_goes_to_the_better_and_an_exact_tie_to_the_smaller():
    assert theory.speedup(0.7, 5, 0.05) == pytest.approx(2.3529360, abs=5e-8)
    assert theory.speedup(0.7, 6, 0.05) == pytest.approx(2.3529377, abs=5e-8)
    assert theory.best_gamma(0.7, 0.05)[0] == 6
    assert theory.speedup(F(1, 2), 1, F(1, 5)) == theory.speedup(F(1, 2), 2, F(1, 5)) == F(5, 4)
    assert theory.best_gamma(F(1, 2), F(1, 5)) == (1, F(5, 4))
    assert theory.best_gamma(0.5, 0.2)[0] == 1


def test_a_gain_below_rounding_counts_in_fractions_and_not_in_floats():
    # alpha = 1/4, c = 1/19: gamma 1 and 2 tie at 19/16, and in floats 2 comes out ahead by one last digit.
    assert theory.speedup(F(1, 4), 1, F(1, 19)) == theory.speedup(F(1, 4), 2, F(1, 19)) == F(19, 16)
    assert theory.best_gamma(1 / 4, 1 / 19)[0] == theory.best_gamma(F(1, 4), F(1, 19))[0] == 1
    alpha, c = F(1, 2) + F(1, 10**13), F(1, 2)
    assert theory.best_gamma(alpha, c) == (1, (1 + alpha) / (1 + c))
    assert theory.best_gamma(float(alpha), float(c)) == (0, 1)


def test_alpha_one_drafts_as_much_as_allowed():
    assert theory.best_gamma(1, 0.05, max_gamma=9)[0] == 9


def test_the_longest_draft_considered_is_sixteen_unless_said_otherwise():
    assert theory.best_gamma(1, F(1, 20)) == (16, F(17) / (1 + F(16, 20)))


def test_a_whole_number_may_come_as_a_float():
    pair = [[0.5, 0.5]] * 2, [[1.0, 0.0]] * 2
    assert theory.expected_tokens(0.5, 2.0) == 1.75
    assert theory.tokens_distribution(0.5, 2.0) == [0.5, 0.25, 0.25]
    assert theory.tokens_variance(0.5, 2.0) == 1 * 0.5 + 4 * 0.25 + 9 * 0.25 - 1.75**2
    assert theory.markov_tokens(*pair, 2.0).tolist() == [1.75, 1.75]
    assert theory.speedup(0.5, 2.0, 0.5) == 1.75 / 2
    assert theory.operations(0.5, 2.0, 0.25) == 3.5 / 1.75
    assert theory.break_even_c(0.5, 2.0) == 0.375
    assert theory.best_gamma(0.5, 0.2, max_gamma=3.0) == (1, 1.25)


def test_break_even_is_alpha_at_gamma_one_and_falls():
    costs = [theory.break_even_c(F(3, 5), gamma) for gamma in range(1, 8)]
    assert costs[0] == F(3, 5) and costs == sorted(costs, reverse=True)
    assert all(theory.speedup(F(3, 5), gamma, c) == 1 for gamma, c in enumerate(costs, start=1))


def test_the_distribution_sums_to_one_and_has_the_mean():
    for gamma in range(6):
        pmf = theory.tokens_distribution(F(2, 3), gamma)
        assert len(pmf) == gamma + 1 and sum(pmf) == 1
        assert sum(n * w for n, w in enumerate(pmf, start=1)) == theory.expected_tokens(F(2, 3), gamma)


def test_averages_do_not_commute():
    mean = (theory.expected_tokens(0.95, 4) + theory.expected_tokens(0.25, 4)) / 2
    assert mean == pytest.approx(2.928, abs=5e-4)
    assert theory.expected_tokens(0.6, 4) == pytest.approx(2.306, abs=5e-4)


def test_the_variance_is_that_of_the_distribution():
    for alpha in (F(0), F(1, 3), F(4, 5), F(1)):
        for gamma in range(6):
            pmf = theory.tokens_distribution(alpha, gamma)
            mean = sum(n * w for n, w in enumerate(pmf, start=1))
            assert theory.tokens_variance(alpha, gamma) == sum(n * n * w for n, w in enumerate(pmf, start=1)) - mean**2


def test_markov_tokens_by_hand():
    # beta is 4/5 in state 0 and 7/10 in state 1; from 0, gamma 2: 1 + 4/5 + (7/10 * 4/5 + 1/10 * 7/10) = 2.43
    P, Q = [[F(9, 10), F(1, 10)], [F(1, 5), F(4, 5)]], [[F(7, 10), F(3, 10)], [F(1, 2), F(1, 2)]]
    assert theory.markov_tokens(P, Q, 0).tolist() == [1, 1]
    assert theory.markov_tokens(P, Q, 1).tolist() == [F(9, 5), F(17, 10)]
    assert theory.markov_tokens(P, Q, 2)[0] == F(243, 100)


def test_markov_tokens_of_a_perfect_draft_over_many_states():
    assert (theory.markov_tokens(np.eye(300), np.eye(300), 3) == 4).all()


def test_markov_tokens_of_equal_rows_is_the_formula():
    P, Q = [[F(1, 3), F(2, 3)]] * 2, [[F(2, 3), F(1, 3)]] * 2
    assert theory.markov_tokens(P, Q, 4).tolist() == [theory.expected_tokens(F(2, 3), 4)] * 2


def test_the_oracle_is_never_beaten_and_reached_in_the_limit():
    for alpha in (F(1, 10), F(1, 2), F(9, 10)):
        for c in (F(1, 100), F(1, 5), F(1)):
            assert theory.oracle_speedup(alpha, c) >= theory.best_gamma(alpha, c, max_gamma=60)[1]
    assert theory.oracle_speedup(F(1, 2), 0) == 2
    assert theory.oracle_speedup(1, F(1, 4)) == 4
    # A draft dearer than the target does not pay even when it is always right.
    assert theory.oracle_speedup(F(1, 2), 2) == F(2, 3) < theory.best_gamma(F(1, 2), 2)[1]


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: theory.expected_tokens(1.1, 2), "alpha"),
        (lambda: theory.expected_tokens(float("nan"), 2), "alpha"),
        (lambda: theory.tokens_distribution(-0.1, 2), "alpha"),
        (lambda: theory.expected_tokens(0.5, -1), "gamma"),
        (lambda: theory.expected_tokens("0.5", 2), "alpha"),
        (lambda: theory.expected_tokens(0.5, float("nan")), "gamma"),
        (lambda: theory.expected_tokens(0.5, float("inf")), "gamma"),
        (lambda: theory.expected_tokens(0.5, True), "gamma"),
        (lambda: theory.expected_tokens(0.5, None), "gamma"),
        (lambda: theory.speedup(0.5, 2, "0.1"), "c"),
        (lambda: theory.speedup(0.5, 2, float("nan")), "c"),
        (lambda: theory.tokens_distribution(0.5, 1.5), "gamma"),
        (lambda: theory.speedup(0.5, 2, -0.1), "c"),
        (lambda: theory.speedup(0.5, 2, float("inf")), "c"),
        (lambda: theory.best_gamma(0.5, 0.1, max_gamma=-1), "max_gamma"),
        (lambda: theory.best_gamma(0.5, -1, max_gamma=0), "c"),
        (lambda: theory.operations(0.5, 2, -1), "c_hat"),
        (lambda: theory.operations(0.5, None, 0), "gamma"),
        (lambda: theory.operations(2, 2, 0), "alpha"),
        (lambda: theory.break_even_c(0.5, 0), "gamma"),
        (lambda: theory.tokens_variance(1.5, 2), "alpha"),
        (lambda: theory.tokens_variance(0.5, -1), "gamma"),
        (lambda: theory.oracle_speedup(1, 0), "c"),
        (lambda: theory.oracle_speedup(-1, 0), "alpha"),
        (lambda: theory.oracle_speedup(0.5, -1), "c"),
        (lambda: theory.markov_tokens([[1.0]], [[1.0]], -1), "gamma"),
        (lambda: theory.markov_tokens([[1.0]], [[1.0, 0.0]], 1), "P, Q"),
        (lambda: theory.markov_tokens([1.0], [1.0], 1), "P, Q"),
        (lambda: theory.markov_tokens([[float("nan")]], [[1.0]], 1), "P"),
        (lambda: theory.markov_tokens([[1.0]], [[5.0]], 1), "Q"),
        (lambda: theory.markov_tokens([["a"]], [[1.0]], 1), "P"),
        (lambda: theory.markov_tokens([[1.0, 0.0]], [[1.0]], 1), "P, Q"),
        (lambda: theory.markov_tokens([[1.0, 0.0]], [[1.0, 0.0]], 1), "P, Q"),
        (lambda: theory.markov_tokens([[[1.0]]], [[[1.0]]], 1), "P, Q"),
        (lambda: theory.markov_tokens([[1.0], [1.0]], [[1.0], [1.0]], 1), "P, Q"),
        (lambda: theory.markov_tokens([[0.5, 0.5]] * 2, [[0.5, 0.5]], 1), "P, Q"),
        (lambda: theory.markov_tokens([[1.5, -0.5], [0.5, 0.5]], [[0.5, 0.5]] * 2, 1), "P"),
        (lambda: theory.markov_tokens([[0.5, 0.5]] * 2, [[0.5, 0.5], [0.5, 0.4]], 1), "Q"),
    ],
)
def test_values_out_of_range_are_refused_by_name(call, name):
    with pytest.raises(ValueError, match=f"^{name}: "):
        call()


def test_small_numpy_integers_do_not_wrap_around():
    # at alpha 1/2 and a long draft the mean is 2 to all digits
    assert theory.operations(0.5, np.uint8(255), 0) == pytest.approx(256 / 2)
    assert theory.speedup(0.5, np.int8(100), 2) == pytest.approx(2 / 201)
    assert theory.tokens_variance(0.5, np.uint8(200)) == pytest.approx(2)
