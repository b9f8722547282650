import dataclasses
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from specnotes import machine, roofline
from specnotes.gpt2 import GPT2, Config
from specnotes.language_model import Output
from specnotes.roofline import Hardware, ModelShape


class Clock:
    """A clock that stands still unless it is pushed."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


class Stub:
    """A model of which a pass over k positions takes 10 + k seconds on the clock, and that notes its calls."""

    vocab_size, max_length = 7, 40

    def __init__(self, clock):
        self.clock, self.calls, self.length = clock, [], 0

    def forward(self, tokens, parents=None, last_only=False):
        self.calls.append((len(tokens), None if parents is None else tuple(parents)))
        self.length += len(tokens)
        self.clock.now += 10 + len(tokens)
        return Output(np.zeros((len(tokens), 7)), None)

    def rollback(self, length):
        assert length <= self.length
        self.length = length


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(machine, "time", made)
    return made


def test_every_k_is_timed_as_often_and_the_order_is_shuffled(clock):
    model = Stub(clock)
    costs = machine.position_cost(model, positions=(1, 3, 8), repeats=5, context=20)
    assert costs == {k: {"minimum": 10 + k, "median": 10 + k} for k in (1, 3, 8)}
    passes = [k for k, _ in model.calls[1:]]
    assert sorted(passes) == sorted([1, 3, 8] * 6)  # one round to warm up
    assert len({tuple(passes[3 * turn : 3 * turn + 3]) for turn in range(6)}) > 1
    assert model.length == 20


def test_minimum_and_median_are_those_of_the_counted_rounds(clock):
    spent = iter([100.0, 5.0, 1.0, 9.0])

    def call():
        clock.now += next(spent)

    assert machine.taking_turns({"a": call}, 3, np.random.default_rng(0)) == {"a": {"minimum": 1.0, "median": 5.0}}


def test_texts_one_by_one_take_a_pass_each_and_stacked_texts_one_pass_of_rows_that_are_siblings(clock):
    model = Stub(clock)
    costs = machine.batch_cost(model, batches=(1, 4), repeats=2, context=20)
    assert costs[1]["one_by_one"]["median"] == costs[1]["stacked"]["median"] == 11
    assert (costs[4]["one_by_one"]["median"], costs[4]["stacked"]["median"]) == (4 * 11, 10 + 4)
    assert (4, (19, 19, 19, 19)) in model.calls and model.length == 20


def test_stacked_rows_are_the_rows_of_texts_decoded_one_by_one():
    model = GPT2.random(Config(vocab_size=11, max_length=12, width=8, layers=2, heads=2), seed=1, dtype="float64")
    model.forward([3, 1, 4, 1, 5])
    stacked = model.forward([9, 2, 6], parents=[4, 4, 4]).logits
    model.rollback(5)
    for token, row in zip([9, 2, 6], stacked):
        assert model.forward([token]).logits[0] == pytest.approx(row, abs=1e-12)
        model.rollback(5)


def test_bandwidth_is_the_faster_product_s_bytes_over_its_best_time(monkeypatch):
    times = iter([0.5, 0.25])  # the dot product, the product with a vector
    monkeypatch.setattr(machine, "_best_seconds", lambda call, repeats: call() is None or next(times))
    assert machine.bandwidth_bytes_per_s(megabytes=2, repeats=1) == 2e6 / 0.25


def test_peak_is_two_operations_for_each_of_n_cubed(monkeypatch):
    monkeypatch.setattr(machine, "_best_seconds", lambda call, repeats: call() is None or 0.001)
    assert machine.peak_flop_per_s(size=10) == 2000 / 0.001


def test_the_best_of_several_tries_counts(clock):
    spent = iter([3.0, 1.0, 2.0])

    def call():
        clock.now += next(spent)

    assert machine._best_seconds(call, 3) == 1.0


def test_this_machine_is_hardware_for_the_roofline():
    card = machine.this_machine(megabytes=1, size=32, repeats=1)
    assert card.peak_flop_per_s > 0 and card.bandwidth_bytes_per_s > 0 and card.source
    assert roofline.step_seconds(card, "gpt2", 1, 1, 0) > 0


CARD, SHAPE = Hardware(1e9, 1e6, 1e9), ModelShape(1, 1, 1, 1000, kv_width=1, bytes_per_weight=4)


def test_a_fit_goes_through_both_ends_and_says_how_far_the_middle_is():
    # The roofline of 4000 bytes is 4 ms for k up to 2000; 2 ms and 1 ms a position lie on top, but for k = 2.
    found = machine.fit_overhead(CARD, SHAPE, {1: 0.007, 2: 0.0088, 3: 0.009, 4: 0.010}, context=0)
    assert (found.base_seconds, found.position_seconds) == pytest.approx((0.002, 0.001))
    assert found.predicted == pytest.approx({1: 0.007, 2: 0.008, 3: 0.009, 4: 0.010})
    assert found.deviation == pytest.approx({1: 0, 2: 0.1, 3: 0, 4: 0}, abs=1e-12)
    assert found.worst == pytest.approx(0.1)


def test_a_fit_bends_where_the_roofline_bends():
    # A ridge at 4 positions: 4 ms up to k = 2, then 2 ms for each; with nothing on top there is no overhead.
    card = Hardware(1e6, 1e6, 1e9)
    found = machine.fit_overhead(card, SHAPE, {k: max(0.004, 0.002 * k) for k in (1, 2, 3, 8)}, context=0)
    assert found.worst == pytest.approx(0, abs=1e-12) and found.base_seconds == pytest.approx(0, abs=1e-12)


def test_a_machine_faster_than_its_constants_has_a_negative_overhead():
    assert machine.fit_overhead(CARD, SHAPE, {1: 0.001, 16: 0.002}, context=0).base_seconds < 0


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda model: machine.position_cost(model, positions=(0, 1)), "positions: 0, expected an integer >= 1"),
        (lambda model: machine.position_cost(model, positions=(1.5,)), "positions: 1.5, expected an integer >= 1"),
        (lambda model: machine.position_cost(model, repeats=0, context=2), "repeats: 0, expected"),
        (lambda model: machine.position_cost(model, context=0), "context: 0, expected"),
        (lambda model: machine.position_cost(model, context=30), "context: 30 and 16 new rows, expected at most 40"),
        (lambda model: machine.batch_cost(model, batches=(True,)), "batches: True, expected an integer >= 1"),
        (lambda model: machine.batch_cost(model, context=25), "context: 25 and 16 new rows, expected at most 40"),
        (lambda model: machine.bandwidth_bytes_per_s(0), "megabytes: 0, expected an integer >= 1"),
        (lambda model: machine.bandwidth_bytes_per_s(1, repeats=0), "repeats: 0, expected an integer >= 1"),
        (lambda model: machine.peak_flop_per_s(2.5), "size: 2.5, expected an integer >= 1"),
        (lambda model: machine.fit_overhead(CARD, SHAPE, {1: 1.0}, 0), "seconds: 1 measured, expected two or more"),
        (lambda model: machine.fit_overhead(CARD, SHAPE, {1: 1.0, 2: float("nan")}, 0), "seconds: nan for k = 2"),
    ],
)
def test_nonsense_is_refused_by_name(call, message, clock):
    with pytest.raises(ValueError, match=f"^{message}"):
        call(Stub(clock))


@pytest.mark.parametrize("cost", [machine.position_cost, machine.batch_cost])
@pytest.mark.parametrize("options", [{"context": 39}, {"context": 0}, {"context": 2, "repeats": 0}])
def test_a_refused_call_leaves_the_cache_as_it_was(clock, cost, options):
    model = Stub(clock)
    model.forward([1, 2, 3])
    with pytest.raises(ValueError):
        cost(model, **options)
    assert model.length == 3 and len(model.calls) == 1


ROOT = Path(__file__).resolve().parents[1]
RECORD = json.loads((ROOT / "book" / "data" / "roofline.json").read_text(encoding="utf-8"))


def recorder():
    spec = importlib.util.spec_from_file_location("records", ROOT / "tools" / "records.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_the_committed_record_names_its_machine_and_both_models():
    assert all(RECORD["machine"][key] for key in ("processor", "system", "python", "numpy", "blas", "threads"))
    assert RECORD["bandwidth_bytes_per_s"] > 0 and RECORD["peak_flop_per_s"] > 0
    assert list(RECORD["models"]) == ["embedded target", "GPT-2 small"]
    assert RECORD["models"]["GPT-2 small"]["shape"]["parameters"] == 124_439_808
    for found in RECORD["models"].values():
        assert list(map(int, found["position_cost"])) == list(range(1, 17))
        assert all(0 < cost["minimum"] <= cost["median"] for cost in found["position_cost"].values())
        assert all(cost[how]["minimum"] > 0 for cost in found["batch_cost"].values() for how in ("stacked", "one_by_one"))


@pytest.mark.parametrize("name", RECORD["models"])
def test_the_committed_fit_follows_from_the_committed_times(name):
    found, card = RECORD["models"][name], Hardware(RECORD["peak_flop_per_s"], RECORD["bandwidth_bytes_per_s"], 1e12)
    fastest = {int(k): cost["minimum"] for k, cost in found["position_cost"].items()}
    fit = machine.fit_overhead(card, ModelShape(**found["shape"]), fastest, RECORD["context"])
    assert fit.base_seconds == pytest.approx(found["fit"]["base_seconds"], rel=1e-9)
    assert list(fit.deviation.values()) == pytest.approx(list(found["fit"]["deviation"].values()), abs=1e-9)
    assert fit.deviation[1] == pytest.approx(0, abs=1e-12) == pytest.approx(fit.deviation[16], abs=1e-12)


def test_gpt2_small_stays_within_a_quarter_of_the_roofline_with_one_overhead():
    assert max(map(abs, RECORD["models"]["GPT-2 small"]["fit"]["deviation"].values())) < 0.25


def test_the_committed_record_is_of_the_embedded_target_and_of_a_quiet_machine():
    from specnotes.pair import load_pair

    assert RECORD["models"]["embedded target"]["shape"]["parameters"] == load_pair().target.config.parameters
    assert RECORD["machine"]["cpu_share"] >= 0.95


def test_the_recorder_counts_a_model_s_weights_and_writes_what_the_chapter_reads():
    tool, model = recorder(), GPT2.random(Config(vocab_size=11, max_length=40, width=8, layers=2, heads=2), seed=1)
    _, shape = tool.with_shape(model)
    assert shape == roofline.gpt2_shape(2, 8, 2, 11, 40, bytes_per_weight=4)
    made = tool.record_of(model, shape, CARD, context=8, repeats=1, positions=(1, 2, 3), batches=(1, 2))
    read = json.loads(json.dumps(made))
    assert set(read) == set(RECORD["models"]["GPT-2 small"])
    assert list(read["position_cost"]) == ["1", "2", "3"] and list(read["batch_cost"]) == ["1", "2"]
    assert dataclasses.asdict(ModelShape(**read["shape"])) == made["shape"]


def test_the_recorder_wants_one_thread_and_nobody_s_choice_of_kernels(monkeypatch):
    tool = recorder()
    for name, value in tool.ONE_THREAD.items():
        monkeypatch.setenv(name, value)
    for name in tool.UNSET:
        monkeypatch.delenv(name, raising=False)
    assert tool.in_a_plain_environment()
    monkeypatch.setenv("OPENBLAS_CORETYPE", "HASWELL")
    assert not tool.in_a_plain_environment()
    monkeypatch.delenv("OPENBLAS_CORETYPE")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    assert not tool.in_a_plain_environment()


def test_every_record_is_made_of_its_own_pair_at_its_own_temperature(monkeypatch):
    from specnotes import measure, pair

    asked = []
    monkeypatch.setattr(measure, "measure", lambda pair, **options: asked.append((pair, options)))
    tool = recorder()
    for name in ("T1", "T0.7", "T0", "plain", "large-draft"):
        tool.record(name)
    assert [options["temperature"] for _, options in asked] == [1, 0.7, 0, 1, 1]
    drafts = [pair.draft.config.parameters for pair, _ in asked]
    targets = {pair.target.config.parameters for pair, _ in asked}
    assert targets == {drafts[4]} and set(drafts[:4]) == {pair.load_pair().draft.config.parameters}
    assert asked[4][0].draft is not asked[4][0].target
    assert all(options["repeats"] >= 3 for _, options in asked)
    cut = [bool(pair.target._layers[0].attend._slices) for pair, _ in asked]
    assert cut == [True, True, True, False, True]
