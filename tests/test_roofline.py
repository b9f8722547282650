import json
from pathlib import Path

import pytest

from specnotes import roofline, theory
from specnotes.roofline import HARDWARE, MODELS, ModelShape

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
    step = roofline.step(A100, "7B", inputs["k"], inputs["B"], context)
    assert step.memory_seconds == pytest.approx(expected["t_memory"], rel=1e-12)
    assert step.bound == expected["bound"]
    if context == 0:
        assert step.compute_seconds == pytest.approx(expected["t_compute"], rel=1e-12)


@pytest.mark.parametrize("inputs, expected", vectors("roofline-spec-batch"))
def test_speculation_stops_paying_as_the_batch_grows(inputs, expected):
    target, gamma = MODELS["7B"], inputs["gamma"]
    draft = ModelShape(2, 1024, 16, int(inputs["Nd"]), kv_width=1024)
    for name, speedup in expected.items():
        seconds = lambda model, k: roofline.step_seconds(A100, model, k, int(name[2:]), 0)
        spent = gamma * seconds(draft, 1) + seconds(target, gamma + 1)
        found = theory.expected_tokens(inputs["alpha"], gamma) * seconds(target, 1) / spent
        assert found == pytest.approx(speedup, rel=1e-9), name


@pytest.mark.parametrize("inputs, expected", vectors("gpt2-configs"))
def test_gpt2_shapes_have_the_published_sizes(inputs, expected):
    for name, sizes in expected.items():
        assert MODELS[name].parameters == sizes["params"]
        assert MODELS[name].kv_bytes_per_token == sizes["kv_bytes_per_token_fp16"]


def test_a_7b_model_crosses_at_a_batch_of_30():
    # 2 * 7e9 bytes / 2039e9 = batch * 5 * 2 * 7e9 / 312e12 at batch 30.6
    bound = lambda batch: roofline.step(A100, "7B", 5, batch, 0).bound
    assert bound(30) == "memory" and bound(31) == "compute"


def test_long_texts_keep_any_batch_memory_bound():
    # with attention counted the limit is 902.0 tokens: 5 (14e9 + 524288 n) / 312e12 = 524288 n / 2039e9
    bound = lambda context: roofline.step(A100, "7B", 5, 10**9, context).bound
    assert bound(901) == "compute" and bound(903) == "memory"


def test_what_does_not_fit_is_flagged_and_not_refused():
    assert roofline.step("T4", "7B", 1, 1, 100).fits
    assert not roofline.step("T4", "13B", 1, 1, 0).fits
    assert not roofline.step(A100, "7B", 1, 64, 2048).fits


def test_shared_keys_shrink_the_cache_eightfold():
    assert MODELS["70B"].kv_bytes_per_token == 2 * 80 * 1024 * 2


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
        (lambda: roofline.roofline_seconds(-1, 0, A100), "flops: -1"),
        (lambda: roofline.roofline_seconds(0, float("nan"), A100), "bytes: nan"),
    ],
)
def test_nonsense_is_refused_by_name(call, name):
    with pytest.raises(ValueError, match=f"^{name}"):
        call()
