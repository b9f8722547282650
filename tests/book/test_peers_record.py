"""The committed comparison with other engines: complete, of the embedded pair, and consistent with its own times."""

import datetime
import json
from pathlib import Path

import numpy as np
import pytest

from specnotes.measure import median_interval

RECORD = json.loads((Path(__file__).resolve().parents[2] / "book" / "data" / "peers.json").read_text(encoding="utf-8"))
EMBEDDED, RANDOM = "embedded pair", "12x768, random weights"
PLAIN, SPECULATIVE, CTRANSLATE2 = "NumPy plain", "NumPy speculative", "CTranslate2 plain"
GENERATE, ASSISTED = "transformers generate", "transformers assisted generation"
ENGINES = {EMBEDDED: {PLAIN, SPECULATIVE, GENERATE, ASSISTED, CTRANSLATE2}, RANDOM: {PLAIN, GENERATE, CTRANSLATE2}}
SPENT = {
    (row["model"], row["temperature"], row["engine"]): row["seconds_per_token"] for row in RECORD["rows"]
}


def test_the_record_says_when_where_and_with_what_it_was_made():
    assert datetime.date.fromisoformat(RECORD["date"])
    assert all(RECORD["machine"][key] for key in ("processor", "system", "python", "numpy", "blas"))
    assert RECORD["versions"].keys() >= {"numpy", "torch", "transformers", "ctranslate2"}
    assert RECORD["threads"] == 1 and RECORD["time"] and 0.95 <= RECORD["cpu_share"] <= 1


def test_the_record_is_of_the_embedded_pair():
    from specnotes.pair import load_pair

    assert RECORD["settings"]["parameters"][EMBEDDED] == load_pair().target.config.parameters
    assert RECORD["settings"]["parameters"][RANDOM] == 124_439_808  # GPT-2 small


def test_every_engine_ran_every_set_at_both_temperatures():
    expected = {(model, t, name) for model, names in ENGINES.items() for name in names for t in (0, 1)}
    assert SPENT.keys() == expected
    for (model, *_), spent in SPENT.items():
        sets = RECORD["settings"]["repeats"][model] * RECORD["settings"]["prompts"]
        assert len(spent) == sets >= 3 and min(spent) > 0


def test_the_speed_of_an_engine_is_its_median_run():
    for row in RECORD["rows"]:
        assert row["tokens_per_second"] == pytest.approx(1 / np.median(row["seconds_per_token"]), rel=1e-12)


@pytest.mark.parametrize("row", RECORD["ratios"], ids=lambda row: f"{row['engine']} / {row['over']}")
def test_each_ratio_follows_from_the_times_of_its_sets(row):
    slow, fast = (SPENT[row["model"], row["temperature"], row[name]] for name in ("over", "engine"))
    found = median_interval(np.divide(slow, fast), np.random.default_rng(RECORD["settings"]["seed"]))
    assert found == pytest.approx((row["ratio"], row["ratio_low"], row["ratio_high"]), rel=1e-12)
    assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]


def test_the_comparisons_with_an_aim_are_there_at_both_temperatures():
    aims = {
        (row["model"], row["temperature"], row["engine"], row["over"]): row["wanted"] for row in RECORD["ratios"]
        if row["wanted"] is not None
    }
    assert aims == {
        (model, temperature, engine, over): wanted
        for model, engine, over, wanted in (
            (EMBEDDED, PLAIN, GENERATE, 3.0), (EMBEDDED, SPECULATIVE, ASSISTED, 4.0),
            (EMBEDDED, SPECULATIVE, CTRANSLATE2, 1.2), (RANDOM, PLAIN, GENERATE, 1.0),
        )
        for temperature in (0, 1)
    }


def test_only_ratios_of_the_small_pair_to_transformers_are_labelled_as_overhead():
    for row in RECORD["ratios"]:
        is_overhead = row["model"] == EMBEDDED and "transformers" in row["over"]
        assert row["note"].startswith("overhead-dominated") == is_overhead


def test_greedy_texts_are_the_same_or_part_at_a_near_tie():
    compared = {(entry["model"], entry["prompt"], entry["engine"]) for entry in RECORD["greedy"]}
    assert compared == {
        (model, prompt, name) for model, names in ENGINES.items() for name in names - {PLAIN}
        for prompt in range(RECORD["settings"]["prompts"])
    }
    assert all(entry["differs"] is None or entry["differs"]["gap"] < 1e-3 for entry in RECORD["greedy"])
