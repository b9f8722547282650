"""The committed data that chapters plot: made by the package, complete, and consistent with its own formulas."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from specnotes import theory

ROOT = Path(__file__).resolve().parents[2]
RECORD = json.loads((ROOT / "book" / "data" / "measured.json").read_text(encoding="utf-8"))


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stored_rows_are_those_of_the_embedded_pair():
    stored = np.load(ROOT / "book" / "data" / "rows.npz")
    for name, made in tool("rows").rows().items():
        assert stored[name] == pytest.approx(made, abs=1e-12), name


def test_the_record_names_its_machine_and_settings():
    assert all(RECORD["machine"][key] for key in ("processor", "system", "python", "numpy", "blas", "threads"))
    assert RECORD["machine"]["cpu_share"] >= 0.95, "made on a busy machine"
    assert RECORD["settings"]["repeats"] >= 3 and RECORD["settings"]["prompts"] >= 3
    assert 0 < RECORD["alpha"] < 1 and 0 < RECORD["c"] < 1


def test_the_record_is_of_the_embedded_pair():
    from specnotes.pair import load_pair

    pair = load_pair()
    assert RECORD["settings"]["target_parameters"] == pair.target.config.parameters
    assert RECORD["settings"]["draft_parameters"] == pair.draft.config.parameters


@pytest.mark.parametrize("row", RECORD["rows"], ids=lambda row: f"gamma {row['gamma']}")
def test_each_row_of_the_record_follows_from_alpha_c_and_the_cost_curve(row):
    alpha, c, gamma = RECORD["alpha"], RECORD["c"], row["gamma"]
    tokens = theory.expected_tokens(alpha, gamma)
    assert row["tokens_formula"] == pytest.approx(tokens, rel=1e-12)
    assert row["predicted_flat"] == pytest.approx(theory.speedup(alpha, gamma, c), rel=1e-12)
    cost = gamma * c + RECORD["verify_cost"][str(gamma + 1)]
    assert row["predicted_measured"] == pytest.approx(tokens / cost, rel=1e-12)
    assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"]
    assert 1 <= row["tokens_per_pass"] <= gamma + 1


def test_measured_tokens_per_pass_are_near_the_formula():
    # acceptance varies with the text, which moves the formula by a few percent
    assert all(row["tokens_per_pass"] == pytest.approx(row["tokens_formula"], rel=0.15) for row in RECORD["rows"])
