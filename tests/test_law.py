from fractions import Fraction as F
from itertools import count

import numpy as np
import pytest

from specnotes import law
from specnotes.rules import token_rule
from tests.exact import row


def test_two_coins_by_hand():
    found = law.exact_law(lambda dice: (dice.flip(F(1, 3)), dice.flip(F(1, 2))))
    assert found == {(True, True): F(1, 6), (True, False): F(1, 6), (False, True): F(1, 3), (False, False): F(1, 3)}


def test_branches_of_probability_zero_are_never_entered():
    def f(dice):
        assert not dice.flip(0) and dice.flip(1)
        return dice.draw([0, 3, 0])

    assert law.exact_law(f) == {1: 1}


def test_weights_are_taken_in_proportion_and_stay_fractions():
    assert law.exact_law(lambda dice: dice.draw([F(1), F(3)])) == {0: F(1, 4), 1: F(3, 4)}


def test_a_function_without_dice_is_certain():
    assert law.exact_law(lambda dice: "x") == {"x": 1}


def test_a_function_with_luck_of_its_own_is_found_out():
    turn = count()
    with pytest.raises(ValueError, match="^f: question 2"):
        law.exact_law(lambda dice: (dice.flip(F(1, 2)), dice.flip(F(1, 2 + next(turn)))))
    turn = count()
    with pytest.raises(ValueError, match="^f: "):
        law.exact_law(lambda dice: [dice.flip(0.5) for _ in range(3 - min(1, next(turn)))] and 0)


def test_the_number_of_branches_is_capped():
    with pytest.raises(ValueError, match="^max_leaves: more than 7"):
        law.exact_law(lambda dice: tuple(dice.flip(0.5) for _ in range(3)), max_leaves=7)
    assert len(law.exact_law(lambda dice: tuple(dice.flip(0.5) for _ in range(3)), max_leaves=8)) == 8


@pytest.mark.parametrize("ask", [lambda dice: dice.flip(1.5), lambda dice: dice.draw([0, 0]), lambda dice: dice.draw([-1, 2])])
def test_impossible_questions_are_refused(ask):
    with pytest.raises(ValueError):
        law.exact_law(ask)


def test_sampled_law_approaches_the_exact_one():
    f = lambda dice: dice.draw([1, 3]) + dice.flip(0.5)
    exact, found = law.exact_law(f), law.sampled_law(f, 4000, np.random.default_rng(0))
    assert sum(found.values()) == pytest.approx(1)
    # four standard errors of a fraction over 4000 runs are at most .032
    assert all(abs(found[outcome] - weight) < 0.032 for outcome, weight in exact.items())


def test_sampled_law_needs_a_run():
    with pytest.raises(ValueError, match="^n: 0"):
        law.sampled_law(lambda dice: 0, 0, np.random.default_rng(0))


def test_emitted_law_of_one_position_by_hand():
    # q puts all on token 0; p = (1/2, 1/2): accepted with 1/2, then a bonus; else token 1.
    p, q = row(1, 1), row(1, 0)
    found = law.emitted_law(token_rule, lambda text: p, lambda text: q, gamma=1)
    assert found == {(0, 0): F(1, 4), (0, 1): F(1, 4), (1,): F(1, 2)}


def test_emitted_law_reads_the_models_after_the_prefix():
    seen = []
    law.emitted_law(token_rule, lambda text: seen.append(text) or row(1, 0), lambda text: row(1, 0), 1, prefix=(1,))
    assert set(seen) == {(1,), (1, 0)}


def test_emitted_law_refuses_a_negative_gamma():
    with pytest.raises(ValueError, match="^gamma: -1"):
        law.emitted_law(token_rule, None, None, -1)


def test_an_outcome_that_cannot_be_a_key_is_refused():
    with pytest.raises(ValueError, match=r"^f: outcome \[True\] is not hashable"):
        law.exact_law(lambda dice: [dice.flip(1)])


def test_an_outcome_with_a_list_inside_is_refused_by_both_laws():
    f = lambda dice: (dice.flip(0.5), [])
    for run in (lambda: law.exact_law(f), lambda: law.sampled_law(f, 3, np.random.default_rng(0))):
        with pytest.raises(ValueError, match="is not hashable"):
            run()
