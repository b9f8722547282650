import numpy as np
import pytest

from specnotes.dice import RandomDice, ScriptedDice


def test_flip_is_u_below_probability():
    dice = ScriptedDice([0.3, 0.3, 0.0, 0.0, 0.999])
    assert [dice.flip(p) for p in (0.3, 0.31, 0, 1e-9, 1)] == [False, True, False, True, True]


def test_draw_is_the_inverse_of_the_running_sum():
    dice = ScriptedDice([0.0, 0.25, 0.249, 0.5, 0.999])
    assert [dice.draw([1, 1, 2]) for _ in range(5)] == [0, 1, 0, 2, 2]


def test_weight_zero_is_never_drawn_not_even_at_the_edges():
    edges = [0.0, np.nextafter(1, 0), 0.5, np.nextafter(0.5, 0)]
    dice = ScriptedDice(edges * 2)
    assert [dice.draw([0, 1, 0, 1, 0]) for _ in edges] == [1, 3, 3, 1]
    assert {dice.draw([0, 0, 7, 0]) for _ in edges} == {2}


def test_token_zero_can_be_drawn():
    assert ScriptedDice([0.0]).draw([0.5, 0.5]) == 0


def test_every_call_takes_exactly_one_uniform_even_when_the_answer_is_certain():
    dice = ScriptedDice([0.1] * 5)
    for used, ask in enumerate((lambda: dice.flip(0), lambda: dice.flip(1), lambda: dice.draw([0, 1])), start=1):
        ask()
        assert dice.used == used


def test_random_dice_use_the_same_formulas_as_scripted_ones():
    uniforms = np.random.default_rng(7).random(200)
    scripted, random = ScriptedDice(uniforms), RandomDice(np.random.default_rng(7))
    for weights in np.random.default_rng(1).random((100, 6)):
        assert scripted.draw(weights) == random.draw(weights)
        assert scripted.flip(weights[0]) == random.flip(weights[0])


def test_a_draw_over_float32_rows_of_a_large_vocabulary_stays_in_range():
    weights = np.full(50_257, 1 / 50_257, dtype=np.float32)
    assert ScriptedDice([np.nextafter(1, 0)]).draw(weights) == 50_256


def test_a_script_that_runs_out_says_so():
    dice = ScriptedDice([0.5])
    dice.flip(0.5)
    with pytest.raises(ValueError, match="^uniforms: all 1 are used up"):
        dice.flip(0.5)


@pytest.mark.parametrize("u", [1.0, -0.1, np.nan])
def test_a_uniform_outside_its_interval_is_refused(u):
    with pytest.raises(ValueError, match="^uniforms: .* at index 1"):
        ScriptedDice([0.5, u])


@pytest.mark.parametrize("probability", [-0.1, 1.1, np.nan, "a", None])
def test_an_impossible_probability_is_refused(probability):
    with pytest.raises(ValueError, match="^probability: "):
        ScriptedDice([0.5]).flip(probability)


@pytest.mark.parametrize("weights", [[], [0, 0], [1, -1, 1], [np.nan, 1], [np.inf, 1], [[1, 2]], ["a"], {}, [10**400], [5e-324, 0]])
def test_impossible_weights_are_refused(weights):
    with pytest.raises(ValueError, match="^weights: "):
        ScriptedDice([0.5]).draw(weights)


def test_a_generator_is_required():
    with pytest.raises(ValueError, match="^rng: 7"):
        RandomDice(7)


@pytest.mark.parametrize("uniforms", [None, 0.5, ["a"], [None]])
def test_a_script_that_is_no_list_of_numbers_is_refused(uniforms):
    with pytest.raises(ValueError, match="^uniforms: "):
        ScriptedDice(uniforms)
