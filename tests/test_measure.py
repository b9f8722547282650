import json

import numpy as np
import pytest

from specnotes import measure, theory
from specnotes.__main__ import _compared_table, _table
from specnotes.drafters import MedusaDrafter
from specnotes.gpt2 import GPT2, Config
from specnotes.heads import EagleHead, MedusaHeads
from specnotes.pair import Pair
from specnotes.records import Draft, Round, Verdict
from specnotes.rules import sampler_match_rule, token_rule, without_replacement_rule
from specnotes.trace import Trace
from specnotes.tree import from_branching
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
    one, two = (measure.timed_run(tiny_pair(), [1, 2], measure.Way(2), softmax, 15, np.random.default_rng(4)) for _ in range(2))
    assert one.trace.tokens == two.trace.tokens and len(one.trace.tokens) == 15


@pytest.mark.parametrize("gamma", [0, 2])
def test_the_first_pass_is_in_the_trace_and_in_no_count(gamma):
    run = measure.timed_run(tiny_pair(), [1, 2], measure.Way(gamma), softmax, 15, np.random.default_rng(4))
    first, *later = run.trace.rounds
    assert run.passes == len(later) and run.tokens == sum(len(round.tokens) for round in later)
    assert sum(run.phases.values()) == pytest.approx(run.seconds)
    assert (run.phases["draft"] > 0) == (gamma > 0) and run.phases["target"] > 0 and run.phases["rule"] > 0


def test_the_runs_of_a_group_are_each_gamma_once_and_plain_in_an_order_that_changes(monkeypatch):
    orders, order = [], []

    def run(pair, prompt, way, *rest):
        order.append(way.gamma)
        return way.gamma

    monkeypatch.setattr(measure, "timed_run", run)
    ways = {gamma: measure.Way(gamma) for gamma in (0, 2, 5)}
    for runs, plain in measure.paired_runs(None, [[1], [2]], ways, None, 9, 3, np.random.default_rng(0)):
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


def test_a_single_run_has_no_interval(monkeypatch):
    real = measure.paired_runs

    def interrupted(*args):
        yield next(real(*args))
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "paired_runs", interrupted)
    rows = measure.measure(tiny_pair(), gammas=(0, 2), tokens=12, repeats=1)["rows"]
    assert all(row["speedup_low"] is row["speedup_high"] is None and row["speedup"] > 0 for row in rows)


def test_curve_and_c_are_medians_of_what_was_timed_beside_each_group(monkeypatch):
    beside = iter([{"seconds": (1.0, 1.5), "c": 0.1}, {"seconds": (2.0, 4.0), "c": 0.2}, {"seconds": (1.0, 1.7), "c": 0.4}] * 2)
    costs = []

    def position_cost(model, positions, **options):
        costs.append(next(beside))
        first, others = costs[-1]["seconds"]
        return {k: {"median": first if k == 1 else others} for k in positions}

    monkeypatch.setattr(measure, "position_cost", position_cost)
    monkeypatch.setattr(measure, "draft_cost", lambda *args, **options: costs[-1]["c"])
    found = measure.measure(tiny_pair(), gammas=(0, 1), tokens=12, repeats=1)
    assert len(costs) == len(measure.PROMPTS) == 6
    # by group t(k)/t(1) is 1.5, 2, 1.7 twice over
    assert found["verify_cost"] == {1: 1.0} | {k: pytest.approx(1.7) for k in range(2, 10)}
    assert found["c"] == pytest.approx(0.2)


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
    beside = lambda *runs: measure.Group(dict(zip((0, 2, 4), runs)), run(9, 0.0), {1: 2.0}, None)
    groups = [beside(run(9, 0.0), run(5, 1.0), run(4, 3.2)), beside(run(9, 0.0), run(5, 3.0))]
    # per level and pass: 0.1, 0.2 and 0.3 seconds, beside a target step of 2
    assert measure.head_cost(groups) == pytest.approx(0.1)
    assert measure.head_cost([beside(run(9, 0.0))]) is None


def test_a_compared_row_by_hand():
    first, second = Draft.chain([1, 2]), Draft((1, 2, 3), (-1, -1, 0))
    verdict = Verdict((0,), 5, "recovered", (1,))
    rounds = [
        Round(first, verdict, verdict.tokens, verdict.kinds, (0.5, 0.25)), Round(second, verdict, verdict.tokens, verdict.kinds),
        Round(first, verdict, verdict.tokens, verdict.kinds, (1.0,)),
    ]
    drafted = measure.Run(8.0, 4, 2, {"draft": 2.0, "target": 5.0, "rule": 1.0}, Trace(rounds, "length"))
    faster = measure.Run(2.0, 4, 1, {"draft": 0.5, "target": 1.25, "rule": 0.25}, Trace(rounds[:1], "length"))
    plain = measure.Run(10.0, 5, 5, {"draft": 0.0, "target": 9.0, "rule": 1.0}, None)
    row = measure.compared_row("heads", measure.Way(2), [(drafted, plain), (faster, plain), (faster, plain)], np.random.default_rng(0))
    # a plain pass takes 2 seconds; the slow run's passes take 1 for the draft, 2.5 for the target and .5 for the rule,
    # the fast ones' .5, 1.25 and .25: the medians are theirs
    assert row["steps"] == {"draft": 0.25, "target": 0.625, "rule": 0.125}
    assert row["speedup"] == 2 / 0.5 and row["tokens_per_pass"] == 12 / 4  # plain 2 seconds a token, fast .5
    assert row["speedup_free"] == pytest.approx(3 / (0.25 + 0.9 + 0.125))
    assert row["nodes_per_pass"] == pytest.approx((2 + 3 + 2 + 2 + 2) / 5)
    assert row["beta_by_step"] == pytest.approx([(0.5 + 1 + 0.5 + 0.5) / 4, 0.25])
    assert measure.compared_row("heads", measure.Way(2), [(drafted, plain)], np.random.default_rng(0))["speedup_low"] is None


def eagle_head(target):
    config = target.config
    return EagleHead.random(Config(config.vocab_size, config.max_length, config.width, 1, 2, tied=False), seed=3)


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_the_usual_ways_are_compared_on_the_same_prompts(temperature):
    pair, medusa = tiny_pair(), tiny_heads()
    medusa = MedusaHeads([*medusa.blocks, medusa.blocks[0]], [*medusa.tables, medusa.tables[0]])
    medusa.trees = {8: from_branching((2, 1, 1, 1)), 32: from_branching((8, 1, 1, 1))}
    ways = measure.usual_ways(medusa, eagle_head(pair.target), temperature)
    found = measure.compare(pair, ways, tokens=40, repeats=1, temperature=temperature)
    assert json.loads(json.dumps(found)).keys() == {"verify_cost", "rows", "machine", "settings"}
    nodes = {row["name"]: row["nodes_per_pass"] for row in found["rows"]}
    assert list(nodes) == list(ways)
    assert 20 < nodes["EAGLE, tree of 32"] <= 32 and 20 < nodes["Medusa, tree of 32"] <= 32  # fewer near the end
    assert 6 < nodes["EAGLE, tree of 8"] <= 8 and 6 < nodes["Medusa, tree of 8"] <= 8
    assert 2 < nodes["draft model, chain of 3"] <= 3 < nodes["EAGLE, chain of 7"] <= 7
    assert all((row["beta_by_step"] == []) == ("tree" in row["name"]) for row in found["rows"])
    table = _compared_table(found)
    assert all(name in table for name in ways) and "if positions" in table


def test_above_temperature_zero_trees_are_drawn():
    heads = eagle_head(tiny(2, 0))
    assert measure.eagle_way(heads, 0, 6, 32).drafter().branching is None
    drawn = measure.eagle_way(heads, 0.5, 4, 32)
    assert drawn.drafter().branching == (4, 2, 1, 1) and drawn.rule is without_replacement_rule
    assert measure.medusa_way(tiny_heads(), 1.0, 9).drafter().branching == (3, 1, 1)


def test_kernels_chosen_by_the_environment_are_recorded_and_said(monkeypatch, record):
    for name in measure.KERNEL_CHOICES:
        monkeypatch.delenv(name, raising=False)
    assert "kernels_chosen_by" not in measure.machine()
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    machine = measure.machine()
    assert machine["kernels_chosen_by"] == {"OPENBLAS_CORETYPE": "Haswell"}
    assert "OPENBLAS_CORETYPE=Haswell is set" in _table(record | {"machine": record["machine"] | machine})


def test_every_way_has_its_levels_its_shape_and_its_rule():
    medusa = MedusaHeads([*tiny_heads().blocks, tiny_heads().blocks[0]], [*tiny_heads().tables, tiny_heads().tables[0]])
    medusa.trees, head = {8: [-1] * 8, 32: [-1] * 32}, eagle_head(tiny(2, 0))
    for temperature in (0, 0.7):
        ways = measure.usual_ways(medusa, head, temperature)
        assert {name: way.gamma for name, way in ways.items() if "chain" in name} == {
            "draft model, chain of 3": 3, "Medusa, chain of 4": 4, "EAGLE, chain of 3": 3, "EAGLE, chain of 7": 7}
        assert ways["Medusa, chain of 4"].drafter().branching == (1, 1, 1, 1)
        assert all(way.rule is token_rule for name, way in ways.items() if "chain" in name)
        trees = [way for name, way in ways.items() if "tree" in name]
        assert {way.rule for way in trees} == {without_replacement_rule if temperature else sampler_match_rule}
        assert [way.gamma for way in trees] == [4, 4, 4, 4 if temperature else 6]
        assert [way.drafter().max_nodes for way in trees] == ([8, 28, 8, 28] if temperature else [8, 32, 8, 32])


def test_a_small_drawn_tree_has_no_levels_it_has_no_nodes_for():
    assert measure.eagle_way(eagle_head(tiny(2, 0)), 1.0, 6, 3).gamma == 3


def test_runs_are_decoded_at_the_temperature_asked_for(monkeypatch):
    warps = []

    def asked(pair, prompts, ways, warp, *rest):
        warps.append((warp, prompts))
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "paired_runs", asked)
    for temperature in (0, 0.5):
        with pytest.raises(KeyboardInterrupt):
            measure.measure(tiny_pair(), gammas=(1,), temperature=temperature, tokens=12, repeats=1)
    [(greedy, prompts), (half, _)] = warps
    assert greedy([[0.0, 1.0]]).tolist() == [[0, 1]] and half([[0.0, 1.0]])[0][1] == pytest.approx(1 / (1 + np.exp(-2)))
    assert [tiny_pair().tokenizer.decode(prompt) for prompt in prompts] == list(measure.PROMPTS)


def test_the_clock_runs_from_the_second_pass_to_the_last(monkeypatch):
    class Slow(GPT2):
        def forward(self, *args, **kwargs):
            now[0] += 1.0
            return super().forward(*args, **kwargs)

    now = [0.0]
    monkeypatch.setattr(measure.time, "perf_counter", lambda: now[0])
    target = Slow.random(tiny(2, 0).config, 0)
    run = measure.timed_run(Pair(target, tiny(1, 1), None), [1, 2, 3], measure.Way(0), softmax, 6, np.random.default_rng(0))
    assert run.passes == 5 == run.seconds == run.phases["target"] and run.phases["draft"] == 0
    draft = Slow.random(tiny(1, 1).config, 1)
    run = measure.timed_run(Pair(tiny(2, 0), draft, None), [1, 2, 3], measure.Way(2), softmax, 20, np.random.default_rng(0))
    # each pass but the short ones at the end asks the draft once per token; its first, which reads the prompt, is not timed
    later = sum(len(round.draft) for round in run.trace.rounds[1:])
    assert run.phases["draft"] == run.seconds == later
