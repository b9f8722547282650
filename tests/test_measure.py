import json

import numpy as np
import pytest

from specnotes import measure, theory
from specnotes.__main__ import _table
from specnotes.drafters import MedusaDrafter
from specnotes.heads import MedusaHeads
from specnotes.pair import Pair
from specnotes.gpt2 import GPT2, Config
from specnotes.rules import sampler_match_rule, token_rule
from tests.test_plots import byte_tokenizer


def tiny(layers, seed):
    return GPT2.random(Config(vocab_size=256, max_length=160, width=16, layers=layers, heads=2), seed)


def tiny_pair():
    return Pair(tiny(2, 0), tiny(1, 1), byte_tokenizer())


@pytest.fixture(scope="module")
def record():
    return measure.measure(tiny_pair(), gammas=(0, 1, 3), tokens=20, repeats=1)


def test_a_record_is_json_and_has_its_parts(record):
    assert json.loads(json.dumps(record)).keys() == {"alpha", "c", "verify_cost", "machine", "settings", "rows"}
    assert list(record["verify_cost"]) == list(range(1, 10)) and record["verify_cost"][1] == 1
    assert [row["gamma"] for row in record["rows"]] == [0, 1, 3]
    assert record["machine"]["threads"] == 1 and record["machine"]["processor"]
    assert record["machine"]["bandwidth_bytes_per_s"] > 1e8
    assert 0 < record["machine"]["cpu_share"] <= 1
    assert record["settings"]["runs"] == record["settings"]["runs_wanted"] == len(measure.PROMPTS)


def test_predictions_come_from_alpha_c_and_the_cost_curve(record):
    alpha, c, cost = record["alpha"], record["c"], record["verify_cost"]
    for row in record["rows"]:
        gamma = row["gamma"]
        tokens = (1 - alpha ** (gamma + 1)) / (1 - alpha)
        assert row["tokens_formula"] == pytest.approx(tokens)
        assert row["predicted_flat"] == pytest.approx(tokens / (gamma * c + 1))
        assert row["predicted_measured"] == pytest.approx(tokens / (gamma * c + cost[gamma + 1]))


def test_a_measured_speedup_is_the_prediction_times_its_two_parts(record):
    for row in record["rows"]:
        assert row["predicted_measured"] * row["token_part"] * row["cost_part"] == pytest.approx(row["speedup"])
        assert row["token_part"] == pytest.approx(row["tokens_per_pass"] / row["tokens_formula"])


def test_without_drafts_there_is_one_token_a_pass_and_nothing_to_predict(record):
    row = record["rows"][0]
    assert row["tokens_per_pass"] == row["tokens_formula"] == row["predicted_flat"] == row["predicted_measured"] == 1
    assert row["acceptance_by_position"] == [] and row["seconds_per_pass"]["draft"] == 0


def test_the_spread_surrounds_the_median(record):
    assert all(row["speedup_low"] <= row["speedup"] <= row["speedup_high"] for row in record["rows"])


def test_tokens_per_pass_is_possible_and_near_the_formula(record):
    for row in record["rows"]:
        assert 1 <= row["tokens_per_pass"] <= row["gamma"] + 1
        # two random models of 256 tokens: rows are nearly flat and beta nearly constant, some 120 tokens were counted
        assert row["tokens_per_pass"] == pytest.approx(theory.expected_tokens(record["alpha"], row["gamma"]), rel=0.25)


def softmax(logits):
    return np.exp(logits.astype(float)) / np.exp(logits.astype(float)).sum(-1, keepdims=True)


def test_the_same_seed_gives_the_same_tokens():
    one, two = (measure.timed_run(tiny_pair(), [1, 2], 2, softmax, 15, np.random.default_rng(4)) for _ in range(2))
    assert one.trace.tokens == two.trace.tokens and len(one.trace.tokens) == 15


@pytest.mark.parametrize("gamma", [0, 2])
def test_the_first_pass_is_in_the_trace_and_in_no_count(gamma):
    run = measure.timed_run(tiny_pair(), [1, 2], gamma, softmax, 15, np.random.default_rng(4))
    first, *later = run.trace.rounds
    assert run.passes == len(later) and run.tokens == sum(len(round.tokens) for round in later)
    assert sum(run.phases.values()) == pytest.approx(run.seconds)
    assert (run.phases["draft"] > 0) == (gamma > 0) and run.phases["target"] > 0 and run.phases["rule"] > 0


def test_the_runs_of_a_group_are_each_gamma_once_and_plain_in_an_order_that_changes(monkeypatch):
    orders, order = [], []

    def run(pair, prompt, gamma, *rest):
        order.append(gamma)
        return gamma

    monkeypatch.setattr(measure, "timed_run", run)
    for runs, plain in measure.paired_runs(None, [[1], [2]], [0, 2, 5], None, 9, 3, np.random.default_rng(0)):
        assert runs == {0: 0, 2: 2, 5: 5} and plain == 0
        orders.append(tuple(order[-4:]))
    assert len(orders) == 6 and all(sorted(found) == [0, 0, 2, 5] for found in orders) and len(set(orders)) > 2


def test_ctrl_c_leaves_the_finished_runs_reported(monkeypatch):
    real, calls = measure.paired_runs, []

    def interrupted(*args):
        for group in real(*args):
            yield group
            calls.append(group)
            if len(calls) == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr(measure, "paired_runs", interrupted)
    record = measure.measure(tiny_pair(), gammas=(0, 2), tokens=12, repeats=1)
    assert record["settings"]["runs"] == 2 and record["settings"]["runs_wanted"] == len(measure.PROMPTS)
    counted = sum(runs[2].tokens for runs, _ in calls) / sum(runs[2].passes for runs, _ in calls)
    assert record["rows"][1]["tokens_per_pass"] == counted


def test_ctrl_c_before_the_first_group_is_done_reports_nothing(monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(measure, "paired_runs", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure.measure(tiny_pair(), gammas=(1,), tokens=12, repeats=1)


def test_a_context_that_ends_is_counted_and_said():
    record = measure.measure(tiny_pair(), gammas=(0, 2), tokens=400, repeats=1)
    assert record["settings"]["cut_by_context"] == len(measure.PROMPTS)


def test_a_stopwatch_times_the_methods_it_was_given_and_passes_on_the_rest():
    watched = measure.Stopwatch([3, 1, 2], ("sort",))
    assert watched.index(1) == 1 and watched.seconds == 0
    watched.sort(reverse=True)
    assert watched.copy() == [3, 2, 1] and watched.seconds > 0
    with pytest.raises(AttributeError):
        watched.no_such_method


def test_the_interval_of_a_median_by_hand():
    rng = np.random.default_rng(0)
    assert measure.median_interval([1.0, 1.0, 1.0, 1.0], rng) == (1.0, 1.0, 1.0)
    middle, low, high = measure.median_interval(np.arange(101.0), rng)
    # the number of resampled values below the median is binomial(101, 1/2): 1.96 standard errors are 9.8 ranks
    assert middle == 50 and 36 < low < 44 and 56 < high < 64


def tiny_heads():
    config = tiny(2, 0).config
    rng, d = np.random.default_rng(0), config.width
    blocks = [(rng.standard_normal((d, d)), np.zeros(d)) for _ in range(3)]
    return MedusaHeads(blocks, [rng.standard_normal((config.vocab_size, d)) for _ in range(3)])


def test_heads_are_measured_by_the_same_table_and_a_tree_without_predictions():
    for parents, rule, is_chain in (([-1, 0, 1], token_rule, True), ([-1, -1, 0, 1], sampler_match_rule, False)):
        record = measure.measure(
            tiny_pair(), gammas=(0, 2), tokens=12, repeats=1, drafter=lambda: MedusaDrafter(tiny_heads(), parents), rule=rule
        )
        plain, drafted = record["rows"]
        assert drafted["seconds_per_pass"]["draft"] > 0 and record["c"] > 0 and drafted["tokens_per_pass"] >= 1
        assert (record["alpha"] is not None) == is_chain
        figures = ("tokens_formula", "predicted_flat", "predicted_measured", "token_part", "cost_part")
        assert [drafted[name] is not None for name in figures] == [is_chain] * 5
        assert plain["tokens_formula"] == plain["predicted_flat"] == 1
        assert json.loads(json.dumps(record)) and _table(record).count("\n") > 8


def test_the_cost_of_heads_is_their_time_per_level_beside_a_target_step():
    run = lambda passes, draft: measure.Run(1.0, 9, passes, {"draft": draft, "target": 0.5, "rule": 0.1}, None)
    groups = [({0: run(9, 0.0), 2: run(5, 1.0), 4: run(4, 3.2)}, run(9, 0.0)), ({0: run(9, 0.0), 2: run(5, 3.0)}, run(9, 0.0))]
    # per level and pass: 0.1, 0.2 and 0.3 seconds
    assert measure.head_cost(groups, 2.0) == pytest.approx(0.1)
    assert measure.head_cost([({0: run(9, 0.0)}, run(9, 0.0))], 2.0) is None
