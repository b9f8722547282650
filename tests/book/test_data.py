"""The committed data that chapters plot: made by the package, complete, and consistent with its own formulas."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from specnotes import theory

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "book" / "data"
NAMES = ("measured", "measured-T0.7", "measured-T0", "measured-plain", "measured-large-draft", "measured-other")
RECORDS = {name: json.loads((DATA / f"{name}.json").read_text(encoding="utf-8")) for name in NAMES}
DRAFTERS = {name: json.loads((DATA / f"{name}.json").read_text(encoding="utf-8")) for name in ("drafters-T1", "drafters-T0")}
ROWS = [(name, row["gamma"]) for name, record in RECORDS.items() for row in record["rows"]]


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stored_rows_are_those_of_the_embedded_pair():
    stored = np.load(ROOT / "book" / "data" / "rows.npz")
    for name, made in tool("rows").rows().items():
        assert stored[name] == pytest.approx(made, abs=1e-12), name


EVERY = RECORDS | DRAFTERS


@pytest.mark.parametrize("record", EVERY.values(), ids=EVERY)
def test_a_record_names_its_machine_and_settings(record):
    assert all(record["machine"][key] for key in ("processor", "system", "python", "numpy", "blas", "threads"))
    assert record["machine"]["cpu_share"] >= 0.95, "made on a busy machine"
    assert record["machine"]["bandwidth_bytes_per_s"] > 1e9
    assert record["settings"]["runs"] == record["settings"]["runs_wanted"] >= 18


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_record_of_one_drafter_has_its_alpha_and_c(record):
    assert 0 < record["alpha"] <= 1 and 0 < record["c"] < 1


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_record_is_of_the_embedded_pair(record):
    from specnotes.pair import load_pair

    pair = load_pair()
    draft = pair.target if record is RECORDS["measured-large-draft"] else pair.draft
    assert record["settings"]["target_parameters"] == pair.target.config.parameters
    assert record["settings"]["draft_parameters"] == draft.config.parameters


def test_the_records_were_made_at_the_temperatures_their_names_say():
    found = {name: record["settings"]["temperature"] for name, record in RECORDS.items()}
    assert found == {"measured": 1, "measured-T0.7": 0.7, "measured-T0": 0, "measured-plain": 1, "measured-large-draft": 1, "measured-other": 1}


@pytest.mark.parametrize(("name", "gamma"), ROWS)
def test_each_row_of_a_record_follows_from_alpha_c_and_the_cost_curve(name, gamma):
    record = RECORDS[name]
    [row] = [row for row in record["rows"] if row["gamma"] == gamma]
    tokens = theory.expected_tokens(record["alpha"], gamma)
    assert row["tokens_formula"] == pytest.approx(tokens, rel=1e-12)
    assert row["predicted_flat"] == pytest.approx(theory.speedup(record["alpha"], gamma, record["c"]), rel=1e-12)
    cost = gamma * record["c"] + record["verify_cost"][str(gamma + 1)]
    assert row["predicted_measured"] == pytest.approx(tokens / cost, rel=1e-12)
    assert row["speedup"] == pytest.approx(row["predicted_measured"] * row["token_part"] * row["cost_part"], rel=1e-12)
    assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"]
    assert 1 <= row["tokens_per_pass"] <= gamma + 1


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_measured_tokens_per_pass_are_near_the_formula(record):
    # acceptance varies with the text, which moves the formula by a few percent
    assert all(row["tokens_per_pass"] == pytest.approx(row["tokens_formula"], rel=0.05) for row in record["rows"])


def test_plain_decode_next_to_plain_decode_is_no_faster():
    for record in RECORDS.values():
        assert record["rows"][0]["gamma"] == 0
        assert record["rows"][0]["speedup_low"] <= 1 <= record["rows"][0]["speedup_high"]


def test_what_the_measuring_chapter_says_of_its_records_is_so():
    measured, plain, large, other = (RECORDS[name] for name in ("measured", "measured-plain", "measured-large-draft", "measured-other"))
    temperatures = [RECORDS[name]["rows"] for name in ("measured", "measured-T0.7", "measured-T0")]
    for rows in temperatures:
        assert max(rows, key=lambda row: row["speedup"])["gamma"] == 3
        assert all(0.9 <= row["speedup"] / row["predicted_measured"] <= 1.1 for row in rows[1:7])
        assert all(row["token_part"] == pytest.approx(1, abs=0.04) for row in rows[1:7])
    best = [rows[3] for rows in temperatures]
    assert max(row["speedup_low"] for row in best) < min(row["speedup"] for row in best)
    assert all(temperatures[2][gamma]["speedup"] < rows[gamma]["speedup"] for rows in temperatures[:2] for gamma in range(4, 9))
    assert measured["c"] <= 0.10 and measured["rows"][2]["predicted_flat"] >= 1.99
    assert plain["verify_cost"]["4"] > 1.9 and measured["verify_cost"]["4"] < 1.5
    assert plain["verify_cost"]["9"] > 3 and measured["verify_cost"]["9"] < 2.55
    gains = [[row["speedup"] for row in record["rows"]] for record in (plain, measured)]
    assert (gains[0][3] - 1) / (gains[1][3] - 1) == pytest.approx(1 / 3, abs=0.05)
    assert gains[0][5] == pytest.approx(1, abs=0.02) and gains[0][6] < 0.95
    assert all(row["speedup"] < 1 for row in large["rows"][1:]) and large["alpha"] == pytest.approx(1)
    seconds = [sum(record["rows"][0]["seconds_per_pass"].values()) for record in (measured, other)]
    assert seconds[0] / seconds[1] == pytest.approx(0.55, abs=0.1)


def test_the_other_record_is_of_another_machine_and_of_the_same_tokens():
    here, other = RECORDS["measured"], RECORDS["measured-other"]
    assert here["machine"]["processor"] != other["machine"]["processor"]
    for one, two in zip(here["rows"][:5], other["rows"][:5]):
        assert one["tokens_per_pass"] == pytest.approx(two["tokens_per_pass"], rel=0.04)


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_comparison_has_the_usual_ways_and_figures_that_belong_together(name):
    from specnotes.heads import load_heads
    from specnotes.measure import usual_ways

    record, ways = DRAFTERS[name], usual_ways(load_heads("medusa"), load_heads("eagle"), DRAFTERS[name]["settings"]["temperature"])
    assert record["settings"]["temperature"] == float(name.removeprefix("drafters-T"))
    assert [row["name"] for row in record["rows"]] == list(ways)
    for row in record["rows"]:
        tree = "tree of" in row["name"]
        assert 1 < row["tokens_per_pass"] <= row["gamma"] + 1
        assert row["nodes_per_pass"] <= (int(row["name"].split()[-1]) if tree else row["gamma"])
        assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"] < row["speedup_free"] * 1.1
        # medians of phases and of speed-ups are taken apart, so they agree only roughly
        assert row["tokens_per_pass"] / sum(row["steps"].values()) == pytest.approx(row["speedup"], rel=0.1)
        assert bool(row["beta_by_step"]) != tree


def test_what_the_chapter_on_heads_says_of_its_records_is_so():
    warm, greedy = ({row["name"]: row for row in DRAFTERS[name]["rows"]} for name in ("drafters-T1", "drafters-T0"))
    draft = "draft model, chain of 3"
    for rows in (warm, greedy):
        for kind in ("Medusa", "EAGLE"):
            assert rows[f"{kind}, tree of 8"]["tokens_per_pass"] < rows[f"{kind}, tree of 32"]["tokens_per_pass"]
            assert rows[f"{kind}, tree of 32"]["speedup_high"] < 1
    tokens = {name: row["tokens_per_pass"] for name, row in greedy.items()}
    assert tokens["EAGLE, chain of 7"] >= tokens["EAGLE, tree of 32"] - 0.1 and tokens["EAGLE, tree of 8"] < tokens["EAGLE, chain of 7"] - 1
    assert greedy["Medusa, chain of 4"]["tokens_per_pass"] == pytest.approx(greedy[draft]["tokens_per_pass"], abs=0.1)
    assert warm["Medusa, tree of 32"]["tokens_per_pass"] < warm[draft]["tokens_per_pass"] - 0.5
    assert greedy["Medusa, tree of 32"]["steps"]["target"] == pytest.approx(5, abs=0.2)
    best = [max(rows, key=lambda name: rows[name]["speedup"]) for rows in (warm, greedy)]
    assert best == [draft, "EAGLE, chain of 7"]
    assert greedy["EAGLE, chain of 3"]["speedup_high"] < greedy["EAGLE, chain of 7"]["speedup_low"]
    report = json.loads((ROOT / "specnotes" / "assets" / "heads" / "training.json").read_text(encoding="utf-8"))["decoded"]
    carded = {"Medusa, chain of 4": "medusa_chain", "Medusa, tree of 32": "medusa_tree", "EAGLE, tree of 32": "eagle_tree"}
    assert all(report[f"{name}_tokens_per_pass_T0"] < tokens[way] for way, name in carded.items())
    assert warm[draft]["steps"]["draft"] == pytest.approx(warm["EAGLE, chain of 3"]["steps"]["draft"] / 2, abs=0.03)
    assert greedy["Medusa, tree of 32"]["speedup_free"] > greedy[draft]["speedup_free"]
    here, other = (RECORDS[name]["rows"][3] for name in ("measured", "measured-other"))
    assert {round(row["tokens_per_pass"], 1) for row in (warm[draft], here, other)} == {2.7}
    assert other["speedup_low"] > max(here["speedup_high"], warm[draft]["speedup_high"])


def test_the_heads_reach_what_their_card_says():
    report = json.loads((ROOT / "specnotes" / "assets" / "heads" / "training.json").read_text(encoding="utf-8"))
    eagle, decoded = report["eagle"]["acceptance_T1"], report["decoded"]
    assert eagle[0] >= 0.75 and eagle[3] >= 0.70
    assert decoded["eagle_acceptance_by_step_T1"][0] >= 0.75 and decoded["eagle_acceptance_by_step_T1"][3] >= 0.70
    assert decoded["medusa_tree_tokens_per_pass_T0"] >= 1.8 and decoded["eagle_tree_tokens_per_pass_T0"] >= 3.0
    assert decoded["nodes"] == 32
    for other in ("eagle-unshifted", "eagle-unfed"):
        assert all(alone < both for alone, both in zip(report[other]["acceptance_T1"], eagle, strict=True))
    own, tied = (report[kind]["accuracy"]["cold"] for kind in ("medusa", "medusa-tied"))
    assert all(one[0] > two[0] for one, two in zip(own, tied, strict=True))
