from fractions import Fraction as F

import numpy as np
import pytest

from specnotes.distributions import acceptance, check_rows, check_token, probs_from_logits, residual, total_variation
from tests.exact import FIXTURE_P, FIXTURE_Q, row


def test_the_fixture_by_hand():
    # min: .2 + .3 + .2 = .7; p - q: .3, 0, -.3, so everything left over is token 0.
    assert acceptance(FIXTURE_P, FIXTURE_Q) == F(7, 10)
    assert total_variation(FIXTURE_P, FIXTURE_Q) == F(3, 10)
    assert residual(FIXTURE_P, FIXTURE_Q).tolist() == [1, 0, 0]


def test_acceptance_takes_stacks_of_rows():
    p, q = np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[0.5, 0.5], [0.0, 1.0]])
    assert acceptance(p, q).tolist() == [1.0, 0.0]


def test_residual_of_equal_rows_is_the_row_itself():
    assert residual([0.25, 0.75], [0.25, 0.75]).tolist() == [0.25, 0.75]


def test_residual_of_almost_equal_rows_is_finite():
    p = np.array([0.1, 0.2, 0.7], dtype=np.float32)
    left = residual(p, p.astype(np.float64) / p.astype(np.float64).sum())
    assert np.isfinite(left).all() and left.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    "rows, words",
    [
        ([0.5, 0.6], ["1.1", "sum to"]),
        ([1.2, -0.2], ["token 1", "-0.2"]),
        ([np.nan, 1.0], ["token 0", "nan"]),
        ([[0.5, 0.5], [0.5, 0.4]], ["row 1", "0.9"]),
        ([F(1, 2), F(1, 3)], ["5/6"]),
        ([], ["shape"]),
        (0.5, ["shape"]),
        ([[0.5, 0.5], [1.0]], ["different lengths"]),
        (np.uint8([1, 0]), ["uint8", "floats or Fractions"]),
        ([True, False], ["bool"]),
        ([0.5 + 0j, 0.5], ["complex"]),
        (["a", "b"], ["expected floats"]),
        ([F(1, 2), "x"], ["expected floats"]),
        (np.array([[F(1), F(0)], [np.nan, F(5)], [F(1), F(0)]], object), ["row 1", "token 0", "nan"]),
    ],
)
def test_rows_that_are_no_distribution_are_refused_by_name_and_value(rows, words):
    with pytest.raises(ValueError, match="^p") as error:
        check_rows("p", rows)
    assert all(word in str(error.value) for word in words)


def test_a_sum_within_a_millionth_passes_and_beyond_it_does_not():
    check_rows("p", [0.5, 0.5 + 9e-7])
    with pytest.raises(ValueError):
        check_rows("p", [0.5, 0.5 + 2e-6])


def test_rows_of_different_length_are_refused():
    with pytest.raises(ValueError, match="^q: shape"):
        acceptance([0.5, 0.5], [1.0])


@pytest.mark.parametrize("token", [-1, 3, 1.0, "a", True, None])
def test_a_token_outside_the_vocabulary_is_refused(token):
    with pytest.raises(ValueError, match="^x: token .* 0..2"):
        check_token("x", token, 3)


def test_softmax_by_hand():
    assert probs_from_logits(np.log([1, 2, 5])).tolist() == pytest.approx([1 / 8, 2 / 8, 5 / 8], rel=1e-15)
    # temperature 1/2 squares the odds: 1, 4, 25
    assert probs_from_logits(np.log([1, 2, 5]), temperature=0.5) == pytest.approx([1 / 30, 4 / 30, 25 / 30])


def test_temperature_zero_is_one_hot_at_the_first_largest():
    assert probs_from_logits([[1.0, 3.0, 3.0], [0.0, 0.0, 0.0]], temperature=0).tolist() == [[0, 1, 0], [1, 0, 0]]


def test_a_tiny_temperature_is_the_limit_and_not_nan():
    assert probs_from_logits([1.0, 3.0, 2.0], temperature=1e-300).tolist() == [0, 1, 0]


def test_top_k_keeps_ties_with_the_kth():
    assert probs_from_logits(np.log([4.0, 2.0, 2.0, 1.0]), top_k=2) == pytest.approx([0.5, 0.25, 0.25, 0])
    assert probs_from_logits(np.log([1.0, 3.0]), top_k=5) == pytest.approx([0.25, 0.75])


def test_top_p_keeps_the_smallest_set_that_reaches_it():
    logits = np.log([0.1, 0.5, 0.15, 0.25])
    assert probs_from_logits(logits, top_p=0.75) == pytest.approx([0, 2 / 3, 0, 1 / 3])
    assert probs_from_logits(logits, top_p=0.76) == pytest.approx([0, 5 / 9, 1.5 / 9, 2.5 / 9])
    assert probs_from_logits(logits, top_p=1e-9).tolist() == [0, 1, 0, 0]
    assert probs_from_logits(logits, top_p=1) == pytest.approx([0.1, 0.5, 0.15, 0.25])


def test_top_p_acts_after_temperature_and_top_k():
    # squared odds 16 : 4 : 1 -> top-2 is .8/.2, and .8 alone reaches .8
    logits = np.log([4.0, 2.0, 1.0])
    assert probs_from_logits(logits, temperature=0.5, top_k=2, top_p=0.79).tolist() == [1, 0, 0]


def test_float32_logits_of_a_large_vocabulary_give_rows_that_sum_to_one_in_float64():
    logits = np.random.default_rng(0).normal(size=50_257).astype(np.float32)
    probs = probs_from_logits(logits)
    assert probs.dtype == np.float64 and abs(probs.sum() - 1) < 1e-12


def test_the_callers_logits_are_unchanged():
    logits = np.array([[3.0, 1.0, 2.0]])
    for settings in ({}, {"temperature": 0}, {"temperature": 0.5, "top_k": 1}, {"top_p": 0.5}):
        probs_from_logits(logits, **settings)
        assert logits.tolist() == [[3.0, 1.0, 2.0]]


@pytest.mark.parametrize(
    "logits, words",
    [
        ([[0.0, 1.0], [np.nan, 0.0]], "logits row 1: NaN"),
        ([-np.inf, -np.inf], "logits: all -inf"),
        ([0.0, np.inf], r"logits: \+inf"),
        ([], "logits: expected"),
    ],
)
def test_logits_without_a_distribution_are_refused_by_row(logits, words):
    with pytest.raises(ValueError, match=words):
        probs_from_logits(logits)


@pytest.mark.parametrize(
    "name, value",
    [
        ("temperature", -1), ("temperature", np.nan), ("temperature", np.inf), ("top_k", 0), ("top_k", 1.5),
        ("top_k", True), ("top_p", 0), ("top_p", 1.5), ("top_p", np.nan),
    ],
)
def test_a_warp_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"^{name}: "):
        probs_from_logits([0.0, 1.0], **{name: value})


def test_residual_wants_one_row():
    with pytest.raises(ValueError, match=r"^p: shape \(2, 2\), expected one row"):
        residual(np.eye(2), np.eye(2))


@pytest.mark.parametrize("logits", [["a"], [[1.0], [1.0, 2.0]], [10**400, 1], {}])
def test_logits_that_are_no_numbers_are_refused(logits):
    with pytest.raises(ValueError, match="^logits: "):
        probs_from_logits(logits)


def test_a_temperature_may_be_a_fraction():
    assert probs_from_logits(np.log([1, 2]), temperature=F(1, 2)) == pytest.approx([1 / 5, 4 / 5])
