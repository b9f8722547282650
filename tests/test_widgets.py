"""The explorers as Python objects: their numbers, their traits, their twin."""

import html
import json
import re

import ipywidgets
import numpy as np
import pytest

from specnotes.dice import ScriptedDice
from specnotes.roofline import HARDWARE, MODELS
from specnotes.rules import token_rule
from specnotes.toy import slider_rows
from specnotes.tree import best_tree, expected_tokens, from_paths
from specnotes.widgets import RooflineExplorer, RuleExplorer, SpeedupExplorer, TreeExplorer
from specnotes.widgets.base import fill
from specnotes.widgets.rule import run_rounds, uniform_stream
from specnotes.widgets.tree import acceptance_row


def html_twin(explorer):
    return explorer._repr_mimebundle_()[0]["text/html"]


def test_the_speedup_explorer_starts_with_the_course_s_example():
    results = SpeedupExplorer().results
    # 1 + .8 + .64 + .512 + .4096; over 1 + 4 * .05; best by 1 + ... + .8^8 over 1.4.
    assert results["tokens_per_pass"] == pytest.approx(3.3616, abs=1e-12)
    assert results["speedup"] == pytest.approx(3.3616 / 1.2, abs=1e-12)
    assert (results["best_gamma"], results["tokens_if_all_accepted"]) == (8, 5)
    assert results["best_speedup"] == pytest.approx((1 - 0.8**9) / 0.2 / 1.4, abs=1e-12)
    assert results["curve"][4] == results["speedup"] and max(results["curve"]) == results["best_speedup"]


def test_the_rule_explorer_measures_what_the_formulas_say_within_four_standard_errors():
    results = RuleExplorer().results
    rounds, alpha = 4000, sum(map(min, results["p"], results["q"]))
    assert results["alpha"] == pytest.approx(alpha, abs=1e-12) == pytest.approx(0.6392, abs=5e-5)
    assert results["tokens_formula"] == pytest.approx((1 - alpha**5) / (1 - alpha), abs=1e-12)
    law = [alpha**n * (1 - alpha) for n in range(4)] + [alpha**4]
    variance = sum(share * (n + 1) ** 2 for n, share in enumerate(law)) - results["tokens_formula"] ** 2
    assert abs(results["tokens_per_pass"] - results["tokens_formula"]) < 4 * (variance / rounds) ** 0.5
    examined = rounds * sum(alpha**n for n in range(4))
    assert abs(results["measured_acceptance"] - alpha) < 4 * (alpha * (1 - alpha) / examined) ** 0.5
    emitted = rounds * results["tokens_per_pass"]
    for share, measured in zip(results["p"], results["emitted"]):
        assert abs(measured - share) < 4 * (share * (1 - share) / emitted) ** 0.5


def test_the_bars_are_drawn_by_the_shipped_rule(monkeypatch):
    calls = []

    def counted(p, q, draft, dice):
        calls.append(len(draft))
        return token_rule(p, q, draft, dice)

    monkeypatch.setattr("specnotes.widgets.rule.token_rule", counted)
    RuleExplorer.compute(0.6, 3, 200, seed=5)
    assert calls == [3] * 200


def test_the_roofline_explorer_starts_on_a_card_that_reads_most_of_the_time():
    results = RooflineExplorer(batch=8, context=512).results
    # 8 texts of 512 tokens leave 8 * 512 * 524288 bytes; 5 positions each take 14e9 + 4 * 32 * 4096 * 512 operations.
    read = (14e9 + 8 * 512 * 524288) / 2039e9
    worked = 8 * 5 * (14e9 + 4 * 32 * 4096 * 512) / 312e12
    assert results["verify"]["memory_seconds"] == pytest.approx(read, rel=1e-12)
    assert results["verify"]["compute_seconds"] == pytest.approx(worked, rel=1e-12)
    assert (results["waits_for"], results["verify"]["bound"]) == ("reading", "memory")
    assert results["speedup"] == pytest.approx(3.3616 / 1.2, abs=1e-12)
    assert results["needed_gb"] == pytest.approx(16.147, abs=5e-4) and results["room"] == "yes"
    assert results["curve"][results["batches"].index(8)] == results["speedup"]


def test_the_roofline_explorer_marks_the_crossover_and_leaves_it_out_where_there_is_none():
    assert RooflineExplorer(context=0).results["crossover_batch"] == pytest.approx(312e12 / 2039e9 / 5, rel=1e-12)
    long = RooflineExplorer(context=1024).results  # beyond 902 tokens of context no batch is large enough
    assert long["crossover_batch"] is None and fill("{crossover_batch:.1f}", long) == "–"
    full = RooflineExplorer(context=0, batch=256).results
    assert full["waits_for"] == "arithmetic" and full["speedup"] < 1


def test_the_roofline_explorer_says_when_a_model_does_not_fit():
    assert RooflineExplorer(hardware="T4", model="13B", context=0, batch=1).results["room"] == "no"
    assert RooflineExplorer(hardware="H200", model="70B", context=0, batch=1).results["room"] == "yes"


def test_the_roofline_explorer_carries_the_hardware_table_into_its_twin():
    twin = html_twin(RooflineExplorer())
    props = json.loads(html.unescape(re.search(r"data-props='([^']*)'", twin).group(1)))
    assert props["tables"]["hardware"]["H200"]["bandwidth_bytes_per_s"] == 4800e9
    assert props["tables"]["models"]["gpt2"]["parameters"] == 124_439_808
    assert props["tables"]["batches"][0] == 1 and props["tables"]["batches"][-1] == 256
    assert "<li>hardware: A100-80GB-SXM</li>" in twin and "<li>context: tokens per text: 512</li>" in twin
    assert "tables" not in html_twin(SpeedupExplorer())


def test_a_choice_links_to_an_ordinary_dropdown():
    explorer, menu = RooflineExplorer(), ipywidgets.Dropdown(options=["L4", "T4"], value="L4")
    ipywidgets.link((menu, "value"), (explorer, "hardware"))
    assert explorer.results["card"]["peak_flop_per_s"] == 121e12
    menu.value = "T4"
    assert explorer.results["hardware"] == "T4" and explorer.results["card"]["peak_flop_per_s"] == 65e12


def test_mismatch_zero_accepts_everything_and_gamma_zero_has_nothing_to_accept():
    exact = RuleExplorer(mismatch=0, gamma=4, rounds=300).results
    assert (exact["measured_acceptance"], exact["tokens_per_pass"]) == (1.0, 5.0)
    plain = RuleExplorer(gamma=0, rounds=300).results
    assert (plain["measured_acceptance"], plain["tokens_per_pass"], plain["tokens_formula"]) == (None, 1.0, 1)
    assert fill("{measured_acceptance:.3f}", plain) == "–"


def test_results_follow_a_setting_and_are_computed_once_for_several(monkeypatch):
    explorer, computed = SpeedupExplorer(), []
    explorer.observe(lambda change: computed.append(change.new["gamma"]), "results")
    explorer.gamma = 2
    assert explorer.results["tokens_per_pass"] == pytest.approx(1 + 0.8 + 0.64, abs=1e-12)
    with explorer.hold_trait_notifications():
        explorer.alpha, explorer.gamma, explorer.c = 0.5, 1, 0.25
    assert computed == [2, 1]
    assert explorer.results["speedup"] == pytest.approx(1.2, abs=1e-12)  # 1.5 / 1.25


def test_a_setting_links_to_an_ordinary_slider_both_ways():
    explorer, slider = SpeedupExplorer(), ipywidgets.FloatSlider(value=0.5, min=0, max=1)
    ipywidgets.link((slider, "value"), (explorer, "alpha"))
    assert explorer.results["tokens_per_pass"] == pytest.approx(1 + 0.5 + 0.25 + 0.125 + 0.0625, abs=1e-12)
    explorer.alpha = 1
    assert slider.value == 1.0
    seen = []

    def show(alpha):
        seen.append((alpha, explorer.results["tokens_per_pass"]))

    ipywidgets.interactive_output(show, {"alpha": slider})
    slider.value = 0.0
    assert seen == [(1.0, 5.0), (0.0, 1.0)]


@pytest.mark.parametrize(
    "explorer, name, value, expected",
    [
        (SpeedupExplorer, "alpha", 1.01, "alpha: 1.01, expected a number in 0..1"),
        (SpeedupExplorer, "alpha", float("nan"), "alpha: nan, expected a number in 0..1"),
        (SpeedupExplorer, "c", "0.1", "c: '0.1', expected a number in 0..1"),
        (SpeedupExplorer, "gamma", -1, "gamma: -1, expected an integer in 0..16"),
        (SpeedupExplorer, "gamma", 2.5, "gamma: 2.5, expected an integer in 0..16"),
        (SpeedupExplorer, "gamma", True, "gamma: True, expected an integer in 0..16"),
        (RuleExplorer, "rounds", 4001, "rounds: 4001, expected an integer in 100..4000"),
        (RuleExplorer, "seed", -1, "seed: -1, expected an integer in 0..4294967295"),
        (RooflineExplorer, "batch", 0, "batch: 0, expected an integer in 1..256"),
        (RooflineExplorer, "context", -128, "context: -128, expected an integer in 0..16384"),
        (RooflineExplorer, "model", 7, f"model: 7, expected one of {', '.join(MODELS)}"),
        (RooflineExplorer, "hardware", "A1000", f"hardware: 'A1000', expected one of {', '.join(HARDWARE)}"),
    ],
)
def test_a_bad_setting_is_named_and_changes_nothing(explorer, name, value, expected):
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        explorer(**{name: value})
    made = explorer(**({"rounds": 100} if explorer is RuleExplorer else {}))
    before = (made.settings, made.results)
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        setattr(made, name, value)
    assert (made.settings, made.results) == before


def test_an_unknown_setting_is_refused():
    with pytest.raises(ValueError, match="gama: no such setting, expected one of alpha, gamma, c"):
        SpeedupExplorer(gama=4)


def test_what_a_notebook_stores_is_the_same_in_every_run():
    one, other = (RuleExplorer(mismatch=0.3, rounds=200)._repr_mimebundle_()[0] for _ in range(2))
    assert one["text/html"] == other["text/html"]
    assert one["text/plain"] == other["text/plain"] == "RuleExplorer(mismatch=0.3, gamma=4, rounds=200, seed=0)"
    assert "application/vnd.jupyter.widget-view+json" in one


def test_the_twin_carries_its_settings_and_says_its_numbers_without_a_script():
    twin = html_twin(SpeedupExplorer(alpha=0.5, gamma=2, c=0.25))
    props = json.loads(html.unescape(re.search(r"data-props='([^']*)'", twin).group(1)))
    assert {name: props[name] for name in ("alpha", "gamma", "c")} == {"alpha": 0.5, "gamma": 2, "c": 0.25}
    assert [slider["name"] for slider in props["sliders"]] == ["alpha", "gamma", "c"]
    for line in ("acceptance α: 0.50", "draft length γ: 2", "tokens per target pass: 1.75", "speed-up: 1.17×"):
        assert f"<li>{line}</li>" in twin  # 1.75 / 1.5 = 1.1667


def test_a_readout_groups_thousands_as_the_page_does():
    assert fill("{a:.1f} and {b}", {"a": 1514.44, "b": 16384}) == "1,514.4 and 16,384"


def test_uniforms_are_those_of_mulberry32():
    def reference(seed, n):
        out = []
        for _ in range(n):
            seed = (seed + 0x6D2B79F5) % 2**32
            t = (seed ^ (seed >> 15)) * (seed | 1) % 2**32
            t ^= (t + (t ^ (t >> 7)) * (t | 61)) % 2**32
            out.append((t ^ (t >> 14)) / 2**32)
        return out

    for seed in (0, 1, 2**32 - 1):
        assert uniform_stream(seed, 100).tolist() == reference(seed, 100)
    with pytest.raises(ValueError, match="seed: 4294967296, expected"):
        uniform_stream(2**32, 1)


def test_a_round_takes_the_draft_s_draws_first_and_then_the_rule_s():
    p, q = np.array([0.5, 0.5]), np.array([1.0, 0.0])
    dice = ScriptedDice([0.9, 0.9, 0.4, 0.6, 0.0])  # two drafts of token 0; accept; reject; the residual is token 1
    (verdict,) = run_rounds(p, q, 2, 1, dice)
    assert (verdict.tokens, verdict.kinds, dice.used) == ((0, 1), ("accepted", "recovered"), 5)


def test_the_target_s_row_is_printed_as_in_the_course():
    p, _ = slider_rows(0.6)
    assert [f"{100 * share:.1f}" for share in p] == ["41.6", "22.8", "13.8", "9.3", "5.6", "3.4", "2.1", "1.4"]


@pytest.mark.parametrize("first, caught, fade", [(0.6, 0.3, 0.8), (0.9, 0.0, 1.0), (0.2, 0.5, 0.5)])
def test_every_budget_of_the_tree_explorer_is_a_best_tree(first, caught, fade):
    table = [acceptance_row(first, caught, fade, depth, 8) for depth in range(8)]
    for nodes in range(1, 9):
        results = TreeExplorer.compute(nodes, first, caught, fade, 0.1)
        best = expected_tokens(best_tree(table, nodes), table)
        assert results["tokens"] == pytest.approx(best, abs=1e-12) and len(results["parents"]) == nodes
        assert results["tokens"] == results["tokens_curve"][nodes]


def test_the_tree_explorer_by_hand():
    results = TreeExplorer(nodes=3, first=0.5, caught=0.5, fade=1.0, extra=0.25).results
    # first .5; its child .25; the sibling catches half of the missed half, .25
    assert results["reach"] == [0.5, 0.25, 0.25] and results["tokens"] == 2.0
    assert (results["pass_cost"], results["gain"]) == (1.75, pytest.approx(2 / 1.75))
    assert (results["best_nodes"], results["best_gain"]) == (1, pytest.approx(1.2))
    empty = TreeExplorer(nodes=0).results
    assert (empty["tokens"], empty["gain"], empty["added"], empty["parents"]) == (1.0, 1.0, None, [])


def test_the_acceptance_of_a_place_never_exceeds_one_and_never_rises_with_rank():
    for first, caught, fade, depth in [(0.1, 0.5, 1.0, 0), (0.9, 0.5, 0.5, 3), (0.6, 0.3, 0.8, 1)]:
        row = acceptance_row(first, caught, fade, depth)
        assert sum(row) <= 1 and all(one >= other >= 0 for one, other in zip(row, row[1:]))


def test_the_twin_carries_the_tree_of_every_setting_a_slider_can_reach():
    tables = TreeExplorer().tables["grown"]
    assert len(tables) == 9 * 6 * 6 and all(len(parents) == 32 for parents in tables.values())
    assert tables["0.6 0.3 0.8"][:8] == TreeExplorer().results["parents"]
    assert len(html_twin(TreeExplorer())) < 60_000


@pytest.mark.parametrize("name, value", [("first", 0.55), ("caught", 0.6), ("fade", 0.45), ("nodes", 33), ("nodes", 2.5), ("extra", -0.1)])
def test_the_tree_explorer_refuses_what_the_page_has_no_tree_for(name, value):
    with pytest.raises(ValueError, match=f"{name}: {value}, expected"):
        TreeExplorer(**{name: value})
    assert TreeExplorer(first=0.1 + 0.2).first == 0.3
