import json

import numpy as np
import pytest

from specnotes import measure, theory
from specnotes.pair import Pair
from specnotes.gpt2 import GPT2, Config
from tests.test_plots import byte_tokenizer


def tiny(layers, seed):
    return GPT2.random(Config(vocab_size=256, max_length=160, width=16, layers=layers, heads=2), seed)


@pytest.fixture(scope="module")
def record():
    pair = Pair(tiny(2, 0), tiny(1, 1), byte_tokenizer())
    return measure.measure(pair, gammas=(1, 3), tokens=20, repeats=2)


def test_a_record_is_json_and_has_its_parts(record):
    assert json.loads(json.dumps(record)).keys() == {"alpha", "c", "verify_cost", "machine", "settings", "rows"}
    assert list(record["verify_cost"]) == list(range(1, 10)) and record["verify_cost"][1] == 1
    assert [row["gamma"] for row in record["rows"]] == [1, 3]
    assert record["machine"]["threads"] == 1 and record["machine"]["processor"]
    assert 0 < record["machine"]["cpu_share"] <= 1


def test_predictions_come_from_alpha_c_and_the_cost_curve(record):
    alpha, c, cost = record["alpha"], record["c"], record["verify_cost"]
    for row in record["rows"]:
        gamma = row["gamma"]
        tokens = (1 - alpha ** (gamma + 1)) / (1 - alpha)
        assert row["tokens_formula"] == pytest.approx(tokens)
        assert row["predicted_flat"] == pytest.approx(tokens / (gamma * c + 1))
        assert row["predicted_measured"] == pytest.approx(tokens / (gamma * c + cost[gamma + 1]))


def test_the_spread_surrounds_the_median(record):
    assert all(row["speedup_low"] <= row["speedup"] <= row["speedup_high"] for row in record["rows"])


def test_tokens_per_pass_is_possible_and_near_the_formula(record):
    for row in record["rows"]:
        assert 1 <= row["tokens_per_pass"] <= row["gamma"] + 1
        # two random models of 256 tokens: rows are nearly flat and beta nearly constant, some 160 tokens were counted
        assert row["tokens_per_pass"] == pytest.approx(theory.expected_tokens(record["alpha"], row["gamma"]), rel=0.25)


def test_the_same_seed_gives_the_same_tokens():
    pair = Pair(tiny(2, 0), tiny(1, 1), byte_tokenizer())
    one, two = (
        measure.timed_run(pair, [1, 2], 2, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True), 15, np.random.default_rng(4))
        for _ in range(2)
    )
    assert one[1].tokens == two[1].tokens and len(one[1].tokens) == 15


def test_the_interval_of_a_median_by_hand():
    rng = np.random.default_rng(0)
    assert measure.median_interval([1.0, 1.0, 1.0, 1.0], rng) == (1.0, 1.0, 1.0)
    middle, low, high = measure.median_interval(np.arange(101.0), rng)
    # the number of resampled values below the median is binomial(101, 1/2): 1.96 standard errors are 9.8 ranks
    assert middle == 50 and 36 < low < 44 and 56 < high < 64
