import json
import math
from pathlib import Path

import numpy as np
import pytest

from specnotes import roofline, theory
from specnotes.roofline import HARDWARE, MODELS, Hardware, ModelShape

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())["vectors"]
A100 = "A100-80GB-SXM"


def vectors(prefix):
    return [pytest.param(v["inputs"], v["expected"], id=v["id"]) for v in VECTORS if v["id"].startswith(prefix)]


@pytest.mark.parametrize("inputs, expected", vectors("roofline-ridge"))
def test_the_ridge_of_every_card(inputs, expected):
    assert set(inputs["hw"]) == set(HARDWARE)
    for name, (peak, bandwidth) in inputs["hw"].items():
        card = HARDWARE[name]
        assert (card.peak_flop_per_s, card.bandwidth_bytes_per_s) == (peak, bandwidth)
        assert card.ridge == pytest.approx(expected[name]["ridge"], rel=1e-12)


@pytest.mark.parametrize("inputs, expected", vectors("roofline-7B"))
def test_a_step_by_bytes_and_operations(inputs, expected):
    found = roofline.roofline_seconds(expected["flops"], expected["bytes"], inputs["hw"])
    assert found == pytest.approx(expected["time_s"], rel=1e-12)
    context = inputs["kv_bytes_per_seq"] // MODELS["7B"].kv_bytes_per_token
    step = roofline.step(A100, "7B", inputs["k"], inputs["B"], context, count_attention=False)
    assert (step.flops, step.bytes) == (expected["flops"], expected["bytes"])
    assert step.intensity == pytest.approx(expected["intensity"], rel=1e-12)
    assert step.memory_seconds == pytest.approx(expected["t_memory"], rel=1e-12)
    assert step.bound == expected["bound"]
    assert step.compute_seconds == pytest.approx(expected["t_compute"], rel=1e-12)
    assert step.seconds == pytest.approx(expected["time_s"], rel=1e-12)


@pytest.mark.parametrize("inputs, expected", vectors("roofline-spec-batch"))
def test_speculation_stops_paying_as_the_batch_grows(inputs, expected):
    draft = ModelShape(2, 1024, 16, int(inputs["Nd"]), kv_width=1024)
    for name, speedup in expected.items():
        at = {"alpha": inputs["alpha"], "gamma": inputs["gamma"], "batch": int(name[2:]), "context": 0}
        assert roofline.speculation_speedup(A100, "7B", **at, draft=draft) == pytest.approx(speedup, rel=1e-9), name


@pytest.mark.parametrize("inputs, expected", vectors("gpt2-configs"))
def test_gpt2_shapes_have_the_published_sizes(inputs, expected):
    for name, sizes in expected.items():
        assert MODELS[name].parameters == sizes["params"]
        assert MODELS[name].kv_bytes_per_token == sizes["kv_bytes_per_token_fp16"]


def test_a_7b_model_crosses_at_a_batch_of_30():
    # 2 * 7e9 bytes / 2039e9 = batch * 5 * 2 * 7e9 / 312e12 at batch 30.6
    bound = lambda batch: roofline.step(A100, "7B", 5, batch, 0).bound
    assert bound(30) == "memory" and bound(31) == "compute"
    assert roofline.crossover_batch(A100, "7B", 5) == pytest.approx(312e12 / 2039e9 / 5, rel=1e-12)


def test_at_the_crossover_reading_and_arithmetic_take_equally_long():
    shape, context = ModelShape(2, 64, 4, 1_000_000, kv_width=16), 10
    batch = roofline.crossover_batch(A100, shape, 8, context)
    read = (2e6 + batch * context * 2 * 2 * 16 * 2) / 2039e9
    worked = batch * 8 * (2e6 + 4 * 2 * 64 * context) / 312e12
    assert read == pytest.approx(worked, rel=1e-12)


def test_long_texts_keep_any_batch_memory_bound():
    # 5 (14e9 + 524288 n) / 312e12 = 524288 n / 2039e9 at n = 902.0; without attention's operations at 872.6
    bound = lambda context: roofline.step(A100, "7B", 5, 10**9, context).bound
    assert bound(901) == "compute" and bound(903) == "memory"
    assert roofline.memory_bound_context(A100, "7B", 5) == pytest.approx(902.0, abs=0.05)
    assert roofline.memory_bound_context(A100, "7B", 5, count_attention=False) == pytest.approx(872.6, abs=0.05)
    assert math.isfinite(roofline.crossover_batch(A100, "7B", 5, 902))
    assert roofline.crossover_batch(A100, "7B", 5, 903) == math.inf
    assert roofline.crossover_batch(A100, "7B", 5, 902, count_attention=False) == math.inf


def test_shared_keys_may_leave_no_context_at_which_every_batch_is_memory_bound():
    # A token of text costs 64 bytes and 4096 operations, so below 64 operations a byte its arithmetic takes longer.
    shape = ModelShape(1, 1024, 64, 10**6, kv_width=16)
    assert roofline.memory_bound_context(Hardware(64e9, 1e9, 1e9), shape, 1) == math.inf
    assert roofline.memory_bound_context(Hardware(65e9, 1e9, 1e9), shape, 1) == pytest.approx(2e6 / (65 * 64 - 4096))


def test_free_positions_are_the_ridge_shared_among_the_batch():
    assert [roofline.free_positions(A100, "7B", batch) for batch in (1, 2, 8, 31, 153)] == [153, 76, 19, 4, 1]
    assert roofline.free_positions(A100, "7B", batch=1000) == 1  # one position is compute-bound already


def test_a_pass_over_the_free_positions_takes_as_long_as_over_one_and_one_more_takes_longer():
    for card in HARDWARE:
        for batch, context in [(1, 0), (3, 500), (16, 4000)]:
            free = roofline.free_positions(card, "Llama-3.1-8B", batch, context)
            seconds = [roofline.step_seconds(card, "Llama-3.1-8B", k, batch, context) for k in (1, free, free + 1)]
            assert seconds[0] == seconds[1] < seconds[2]


def test_an_exact_tie_counts_as_free():
    card = Hardware(30.0, 10.0, 1e9)  # ridge 3: 3 positions take exactly as long to compute as to read
    assert roofline.free_positions(card, ModelShape(1, 1, 1, 10, kv_width=1)) == 3


def test_efficiencies_stretch_their_own_side():
    whole, slow = (roofline.step(A100, "7B", 5, 16, 100, memory_efficiency=m) for m in (1, 0.5))
    assert slow.memory_seconds == pytest.approx(2 * whole.memory_seconds, rel=1e-12)
    assert slow.compute_seconds == whole.compute_seconds
    busy = roofline.step(A100, "7B", 5, 16, 100, compute_efficiency=0.25)
    assert busy.compute_seconds == pytest.approx(4 * whole.compute_seconds, rel=1e-12)
    assert busy.memory_seconds == whole.memory_seconds
    # Half the bandwidth doubles the ridge: twice as many positions are free.
    assert roofline.free_positions(A100, "7B", memory_efficiency=0.5) == 306


def test_a_step_reaches_the_roof_of_its_intensity():
    for positions in (1, 100, 153, 154, 1000):
        step = roofline.step(A100, "7B", positions, 1, 0)
        assert step.flop_per_s == pytest.approx(min(312e12, 2039e9 * step.intensity), rel=1e-12)


def test_speculation_on_free_positions_gains_what_the_formula_says():
    for alpha, gamma, c in [(0.8, 4, 0.05), (0.0, 3, 0.2), (1.0, 7, 0.0), (0.5, 0, 0.3)]:
        found = roofline.speculation_speedup(A100, "7B", alpha, gamma, 2, 300, c=c)
        assert found == pytest.approx(theory.speedup(alpha, gamma, c), rel=1e-12)


def test_in_a_full_batch_speculation_is_worth_its_tokens_over_its_positions():
    # Compute-bound on both sides: gamma + 1 = 4 times the arithmetic for 1 + .5 + .25 + .125 tokens.
    found = roofline.speculation_speedup(A100, "7B", 0.5, 3, 10**6, 0)
    assert found == pytest.approx(1.875 / 4, rel=1e-12)


def test_a_draft_model_may_be_named_and_costs_its_own_steps():
    # Both are memory-bound, so the draft's step is to the target's as its weights are: 2 tokens for 1 + that.
    found = roofline.speculation_speedup(A100, "7B", 1.0, 1, 1, 0, draft="gpt2-xl")
    assert found == pytest.approx(2 / (1 + 1_557_611_200 / 7e9), rel=1e-12)


def test_longer_texts_rescue_a_large_batch():
    gain = [roofline.speculation_speedup(A100, "7B", 0.8, 4, 128, context, c=0.02) for context in (0, 300, 1000, 4000)]
    assert gain == sorted(gain) and gain[0] < 1 < gain[-1]
    assert gain[-1] == pytest.approx(theory.speedup(0.8, 4, 0.02), rel=1e-12)


def test_what_does_not_fit_is_flagged_and_not_refused():
    assert roofline.step("T4", "7B", 1, 1, 100).fits
    assert not roofline.step("T4", "13B", 1, 1, 0).fits
    assert not roofline.step(A100, "7B", 1, 64, 2048).fits


def test_what_fits_is_decided_to_the_byte():
    shape = ModelShape(1, 1, 1, 100, kv_width=1)  # 200 bytes of weights, 4 bytes for each token of text
    assert roofline.step(Hardware(1.0, 1.0, 240.0), shape, 1, 2, 5).fits
    assert not roofline.step(Hardware(1.0, 1.0, 239.0), shape, 1, 2, 5).fits


def test_shared_keys_shrink_the_cache_eightfold():
    assert MODELS["70B"].kv_bytes_per_token == 2 * 80 * 1024 * 2
    assert (MODELS["70B"].kv_heads, MODELS["7B"].kv_heads, MODELS["Llama-3.1-8B"].kv_heads) == (8, 32, 8)


def test_the_llama_shape_has_the_weights_its_configuration_gives():
    # hidden 14336, untied embeddings; keys and values of width 1024; two norms a layer and one at the end
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
    assert MODELS["Llama-3.1-8B"].parameters == 2 * 128256 * 4096 + 32 * layer + 4096


def test_every_card_says_where_its_numbers_come_from_and_its_8_bit_peak_is_about_twice_the_other():
    for card in HARDWARE.values():
        assert "2026" in card.source
        assert card.at_8_bits().peak_flop_per_s / card.peak_flop_per_s == pytest.approx(2, abs=0.03)


def test_numpy_integers_are_integers():
    counted = roofline.step_seconds(A100, "7B", np.int64(5), np.int32(8), np.int64(100))
    assert counted == roofline.step_seconds(A100, "7B", 5, 8, 100)


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: roofline.step("A1000", "7B", 1, 1, 0), "hardware: 'A1000'"),
        (lambda: roofline.step(A100, "8B", 1, 1, 0), "model: '8B'"),
        (lambda: roofline.step(A100, None, 1, 1, 0), "model: None"),
        (lambda: roofline.step(A100, "7B", 0, 1, 0), "positions: 0"),
        (lambda: roofline.step(A100, "7B", 1, 0, 0), "batch: 0"),
        (lambda: roofline.step(A100, "7B", 1, 1, -1), "context: -1"),
        (lambda: roofline.step_seconds(A100, "7B", 1.5, 1, 0), "positions: 1.5"),
        (lambda: roofline.step(A100, "7B", True, 1, 0), "positions: True"),
        (lambda: roofline.step(A100, "7B", 1, float("nan"), 0), "batch: nan"),
        (lambda: roofline.step(A100, "7B", 1, 2.0, 0), "batch: 2.0"),
        (lambda: roofline.step(A100, "7B", 1, 1, float("inf")), "context: inf"),
        (lambda: roofline.step(A100, "7B", 1, 1, "0"), "context: '0'"),
        (lambda: roofline.step(A100, "7B", 1, 1, 0, memory_efficiency=0), "memory_efficiency: 0"),
        (lambda: roofline.step(A100, "7B", 1, 1, 0, compute_efficiency=1.01), "compute_efficiency: 1.01"),
        (lambda: roofline.step(A100, "7B", 1, 1, 0, compute_efficiency=float("nan")), "compute_efficiency: nan"),
        (lambda: roofline.step(A100, "7B", 1, 1, 0, compute_efficiency=True), "compute_efficiency: True"),
        (lambda: roofline.roofline_seconds(-1, 0, A100), "flops: -1"),
        (lambda: roofline.roofline_seconds(0, float("nan"), A100), "bytes: nan"),
        (lambda: roofline.roofline_seconds(0, 0, "abacus"), "hardware: 'abacus'"),
        (lambda: roofline.free_positions(A100, "7B", batch=0), "batch: 0"),
        (lambda: roofline.crossover_batch(A100, "7B", 0), "positions: 0"),
        (lambda: roofline.crossover_batch(A100, "7B", 1, -1), "context: -1"),
        (lambda: roofline.memory_bound_context("", "7B", 1), "hardware: ''"),
        (lambda: roofline.speculation_speedup(A100, "7B", 1.5, 4, 1, 0), "alpha: 1.5"),
        (lambda: roofline.speculation_speedup(A100, "7B", 0.5, -1, 1, 0), "gamma: -1"),
        (lambda: roofline.speculation_speedup(A100, "7B", 0.5, 4, 1, 0, c=-0.1), "c: -0.1"),
        (lambda: roofline.speculation_speedup(A100, "7B", 0.5, 4, 1, 0, c=0.1, draft="gpt2"), "c: 0.1 beside"),
        (lambda: roofline.speculation_speedup(A100, "7B", 0.5, 4, 1, 0, draft="gpt3"), "draft: 'gpt3'"),
        (lambda: Hardware(0, 1.0, 1.0), "peak_flop_per_s: 0"),
        (lambda: Hardware(1.0, float("inf"), 1.0), "bandwidth_bytes_per_s: inf"),
        (lambda: Hardware(1.0, 1.0, 1.0, eight_bit_flop_per_s=-1.0), "eight_bit_flop_per_s: -1.0"),
        (lambda: Hardware(1.0, 1.0, 1.0).at_8_bits(), "eight_bit_flop_per_s: None"),
        (lambda: HARDWARE["T4"].derated(1.5), "memory_efficiency: 1.5"),
        (lambda: ModelShape(0, 1, 1, 1, 1), "layers: 0"),
        (lambda: ModelShape(1, 1, 1, 7e9, 1), "parameters: 7000000000.0"),
        (lambda: ModelShape(1, 1, 1, 1, 1, bytes_per_weight=0), "bytes_per_weight: 0"),
        (lambda: ModelShape(1, 1, 1, 1, 1, vocab_size=0), "vocab_size: 0"),
        (lambda: roofline.gpt2_shape("12", 768, 12), "layers: '12'"),
        (lambda: roofline.gpt2_shape(12, 768, 12, context=-1), "context: -1"),
        (lambda: roofline.memory_bound_context(A100, "7B", 0), "positions: 0"),
        (lambda: roofline.memory_bound_context(A100, "7B", 2.0), "positions: 2.0"),
    ],
)
def test_nonsense_is_refused_by_name(call, name):
    with pytest.raises(ValueError, match=f"^{name}"):
        call()


def test_a_number_no_float_can_hold_is_refused_like_any_other():
    with pytest.raises(ValueError, match="batch: 1000"):
        roofline.step("A100-80GB-SXM", "7B", 1, 10**400, 0)
