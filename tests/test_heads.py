"""Heads as files: what loads, what is refused, and a training that survives a kill."""

import hashlib
import importlib.util
import json
import signal

import numpy as np
import pytest
from safetensors.numpy import save_file

from specnotes.gpt2 import Config, random_tensors
from specnotes.heads import EagleHead, MedusaHeads, load_heads
from specnotes.pair import ASSETS
from tests import training

CONFIG = Config(vocab_size=7, max_length=16, width=8, layers=2, heads=2)
GPT2_JSON = {"model_type": "gpt2", "vocab_size": 7, "n_positions": 16, "n_embd": 8, "n_layer": 2, "n_head": 2}
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="training needs torch (extra: train)"
)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def save_half(tensors, folder):
    save_file({name: tensor.astype("float16") for name, tensor in tensors.items()}, folder / "model.safetensors")


def medusa_tensors():
    rng = np.random.default_rng(1)
    blocks = {f"medusa.h.{k}.weight": rng.standard_normal((8, 8)) for k in range(2)}
    blocks |= {f"medusa.h.{k}.bias": rng.standard_normal(8) for k in range(2)}
    return blocks | {f"unembed.{k}": rng.standard_normal((7, 8)) for k in range(2)}


def eagle_tensors():
    rng = np.random.default_rng(2)
    whole = random_tensors(CONFIG, 3, 0.5)
    layer = {name: tensor for name, tensor in whole.items() if name.startswith(("h.0.", "ln_f"))}
    return {f"eagle.{name}": tensor for name, tensor in layer.items()} | {
        "eagle.mix.weight": rng.standard_normal((16, 8)), "eagle.mix.bias": rng.standard_normal(8)}


@pytest.fixture
def folders(tmp_path):
    """A target and both kinds of heads for it, in folders."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text(json.dumps(GPT2_JSON))
    save_half(random_tensors(CONFIG, 0, 0.5), target)
    belongs = {"target_sha256": digest(target / "model.safetensors")}
    for kind, tensors, settings in (
        ("medusa", medusa_tensors(), {"heads": 2, "accuracy": [[0.5], [0.25]], "trees": {"2": [-1, 0]}}),
        ("eagle", eagle_tensors(), {"heads": 4}),
    ):
        (tmp_path / kind).mkdir()
        config = {"model_type": f"specnotes-{kind}", **settings, **belongs}
        (tmp_path / kind / "config.json").write_text(json.dumps(config))
        save_half(tensors, tmp_path / kind)
    return tmp_path


def load(folders, kind, **options):
    return load_heads(kind, folders / kind, folders / "target", **options)


def halved(tensor):
    return tensor.astype("float16").astype("float64")


def test_medusa_heads_load_with_their_accuracy_and_trees(folders):
    found, t = load(folders, "medusa", dtype="float64"), medusa_tensors()
    expected = MedusaHeads(
        [(halved(t[f"medusa.h.{k}.weight"]), halved(t[f"medusa.h.{k}.bias"])) for k in range(2)],
        [halved(t[f"unembed.{k}"]) for k in range(2)],
    )
    np.testing.assert_array_equal(found.logits(np.ones(8)), expected.logits(np.ones(8)))
    assert found.accuracy == [[0.5], [0.25]] and found.trees == {2: [-1, 0]} and len(found) == 2


def test_an_eagle_head_loads_with_its_targets_embeddings_and_unembedding(folders):
    found = load(folders, "eagle", dtype="float64")
    t = {name.removeprefix("eagle."): halved(tensor) for name, tensor in eagle_tensors().items()}
    whole = {name: halved(tensor) for name, tensor in random_tensors(CONFIG, 0, 0.5).items()}
    t |= {"wte.weight": whole["wte.weight"], "wpe.weight": whole["wpe.weight"], "lm_head.weight": whole["wte.weight"]}
    expected = EagleHead(Config(7, 16, 8, 1, 4, tied=False), t, "float64")
    f = np.random.default_rng(0).standard_normal((3, 8))
    one, two = (head.forward([1, 2, 3], features=f) for head in (found, expected))
    np.testing.assert_array_equal(one.logits, two.logits)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_heads_have_the_dtype_asked_for(folders, dtype):
    assert load(folders, "eagle", dtype=dtype).dtype == dtype
    assert load(folders, "medusa", dtype=dtype).logits(np.ones(8, dtype)).dtype == dtype


@pytest.mark.parametrize("kind", ["medusa", "eagle"])
def test_heads_of_another_target_are_refused(folders, kind):
    save_half(random_tensors(CONFIG, 9), folders / "target")
    with pytest.raises(ValueError, match="target: .* not the one these"):
        load(folders, kind)


def test_the_other_kind_of_heads_is_refused(folders):
    with pytest.raises(ValueError, match="expected 'specnotes-eagle'"):
        load_heads("eagle", folders / "medusa", folders / "target")
    with pytest.raises(ValueError, match="kind: 'hydra'"):
        load_heads("hydra")
    with pytest.raises(ValueError, match="dtype: 'half'"):
        load_heads("eagle", dtype="half")


@pytest.mark.parametrize("kind", ["medusa", "eagle"])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_or_broken_file_is_named(folders, kind, name):
    path = folders / kind / name
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(ValueError, match=kind):
        load(folders, kind)
    path.unlink()
    with pytest.raises(ValueError, match=name):
        load(folders, kind)


@pytest.mark.parametrize("kind", ["medusa", "eagle"])
def test_a_file_that_does_not_match_its_checksum_is_refused(folders, kind):
    (folders / "SHA256SUMS").write_text(f"{'0' * 64}  {kind}/model.safetensors\n")
    with pytest.raises(ValueError, match="SHA-256"):
        load(folders, kind)


@pytest.mark.parametrize(
    "kind, name", [("medusa", "unembed.1"), ("eagle", "eagle.mix.bias"), ("eagle", "eagle.h.0.ln_1.bias")]
)
def test_a_missing_tensor_is_named(folders, kind, name):
    tensors = {"medusa": medusa_tensors, "eagle": eagle_tensors}[kind]()
    del tensors[name]
    save_half(tensors, folders / kind)
    with pytest.raises(ValueError, match=name.removeprefix("eagle.")):
        load(folders, kind)


# The training

def torch_target(scale=4.0):
    import torch

    from specnotes.train.model import GPT2, Shape

    target = GPT2(Shape(2, 8, 2, vocab_size=7, context=16), seed=0).eval().requires_grad_(False)
    with torch.no_grad():
        for weight in target.parameters():
            weight.mul_(scale) if weight.ndim == 2 else None
    return target


@needs_torch
def test_the_features_of_training_are_what_the_unembedding_reads():
    import torch

    from specnotes.train.head_models import features_of

    target, ids = torch_target(), torch.arange(12).reshape(2, 6) % 7
    logits = features_of(target, ids) @ target.transformer["wte"].weight.T
    np.testing.assert_allclose(logits, target(ids), atol=0.3)  # products in bfloat16


@needs_torch
def test_the_first_guess_in_training_is_that_of_the_head_that_drafts():
    import torch

    from specnotes.train.head_models import Eagle

    target = torch_target()
    head = Eagle(target, seed=1)
    with torch.no_grad():
        for weight in head.parameters():
            weight.mul_(5.0) if weight.ndim == 2 else None
        ids = torch.tensor([[1, 4, 2, 0, 6, 3]])
        features = torch.randn(1, 6, 8, generator=torch.Generator().manual_seed(0))
        guesses = head(features, ids, 3)
    tensors = {name.removeprefix("eagle."): weight.numpy() for name, weight in head.state_dict().items()}
    table, places = (target.transformer[name].weight.numpy() for name in ("wte", "wpe"))
    tensors |= {"wte.weight": table, "lm_head.weight": table, "wpe.weight": places}
    numpy_head = EagleHead(Config(7, 16, 8, 1, 2, tied=False), tensors, "float64")
    found = numpy_head.forward(ids[0, 1:].tolist(), features=features[0, :-1].numpy())
    np.testing.assert_allclose(guesses[0][0], found.features, atol=0.1)  # products in bfloat16
    # After `ahead` guesses of its own row t sees what a draft would have in the cache: true features up to t - ahead.
    for t, ahead in ((2, 1), (2, 2), (4, 1), (4, 2)):
        numpy_head.rollback(0)
        first = t - ahead + 1
        step = numpy_head.forward(ids[0, 1 : first + 1].tolist(), features=features[0, :first].numpy())
        for row in range(first, t + 1):
            step = numpy_head.forward([int(ids[0, row + 1])], features=step.features[-1:])
        np.testing.assert_allclose(guesses[ahead][0, t], step.features[0], atol=0.15)


@needs_torch
def test_the_head_without_the_shifted_token_never_sees_it():
    import torch

    from specnotes.train.head_models import Eagle

    target, features = torch_target(), torch.randn(1, 6, 8, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[1, 4, 2, 0, 6, 3]])
    other = ids.clone()
    other[0, 3] = 5
    with torch.no_grad():
        for shifted, first_changed in ((True, 2), (False, 3)):
            head = Eagle(target, seed=1, shifted=shifted)
            same = (head(features, ids, 1)[0] == head(features, other, 1)[0]).all(-1)[0].tolist()
            assert same.index(False) == first_changed


@needs_torch
def test_the_head_without_features_sees_tokens_only():
    import torch

    from specnotes.train.head_models import Eagle
    from specnotes.train.model import GPT2, Shape

    target = GPT2(Shape(1, 16, 2, vocab_size=8, context=16), seed=0)
    ids, rng = torch.arange(6)[None] % 8, torch.Generator().manual_seed(0)
    one, other = (torch.randn(1, 6, 16, generator=rng) for _ in range(2))
    with torch.no_grad():
        for fed in (True, False):
            head = Eagle(target, seed=1, fed=fed)
            pairs = zip(head(one, ids, 2), head(other, ids, 2))
            assert [torch.equal(a, b) for a, b in pairs] == [not fed] * 2


@needs_torch
def test_a_medusa_head_of_training_is_that_of_drafting():
    import torch

    from specnotes.train.head_models import Medusa

    table = torch.randn(7, 8, generator=torch.Generator().manual_seed(0))
    heads = Medusa(table, 2, tied=False)
    with torch.no_grad():
        for weight in heads.parameters():
            weight += torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
        feature = torch.randn(8, generator=torch.Generator().manual_seed(2))
        trained = torch.stack(heads(feature)).numpy()
    t = {name: weight.numpy() for name, weight in heads.state_dict().items()}
    blocks = [(t[f"medusa.h.{k}.weight"], t[f"medusa.h.{k}.bias"]) for k in range(2)]
    drafting = MedusaHeads(blocks, [t[f"unembed.{k}"] for k in range(2)])
    np.testing.assert_allclose(trained, drafting.logits(feature.numpy()), rtol=0.02, atol=0.1)


@needs_torch
def test_the_loss_of_medusa_is_the_cross_entropy_with_the_law_that_many_tokens_later():
    import torch

    from specnotes.train.head_models import medusa_loss

    says = [torch.tensor([0.5, 0.25, 0.25]).log(), torch.tensor([0.25, 0.5, 0.25]).log()]
    heads = lambda features: [row.expand(1, 4, 3) for row in says]
    p = torch.eye(3)[[0, 1, 0, 2]][None]  # the laws at four places
    # head 1 meets places 1..3: 1, 0, 2; head 2 places 2..3: 0, 2
    first, second = np.log([4, 2, 4]).mean(), np.log([4, 4]).mean()
    assert medusa_loss(heads, torch.zeros(1, 4, 8), p).item() == pytest.approx((first + second) / 2, rel=1e-6)


WHOLE_RUN = """
from functools import partial
from pathlib import Path
from specnotes.train import export, heads, loop, stages, tokens
from specnotes.train.model import GPT2, Shape

stages.SAMPLED_ROWS, heads.HELD_WINDOWS, heads.RANKS = 8, 2, 8
heads.train = partial(loop.train, save_seconds=0.0, every=5)
out = Path(sys.argv[1])
tokenizer = tokens.train_tokenizer([TEXT], 300)
export.write_model(GPT2(Shape(1, 16, 2, 300, 40), seed=3), out / "target", 0)
export.write_tokenizer(tokenizer, out / "target", 40)
heads.main(["--target", str(out / "target"), "--out", str(out), "--no-compile", "--medusa-steps", "7",
            "--eagle-steps", "8", "--corpus-tokens", "640", "--sampled-tokens", "256", "--cold-tokens", "256"])
"""


@needs_torch
def test_a_run_killed_in_each_stage_and_started_again_writes_the_report_of_one_that_was_not(tmp_path):
    from specnotes.train.heads import KINDS

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert training.run(WHOLE_RUN, whole) == 0
    assert [training.run(WHOLE_RUN, broken, kill_at) for kill_at in (3, 10, 0)] == [-signal.SIGKILL, -signal.SIGKILL, 0]
    found, other = (training.report(out / "heads" / "training.json", KINDS) for out in (whole, broken))
    assert found == other
    for kind in ("medusa", "eagle"):
        one, two = (out / "heads" / kind / "model.safetensors" for out in (whole, broken))
        assert one.read_bytes() == two.read_bytes()
        load_heads(kind, whole / "heads" / kind, whole / "target")
    assert found["eagle"]["shifted"] and not found["eagle-unshifted"]["shifted"]
    assert found["eagle"]["fed"] and not found["eagle-unfed"]["fed"]
    assert len(found["medusa"]["trees"]["32"]["parents"]) == 32 and len(found["eagle"]["acceptance_T1"]) == 4


@pytest.mark.parametrize("text", ["[]", "null", '"x"', '{"model_type": "specnotes-medusa", "trees": []}', "[" * 100_000])
def test_settings_of_another_form_are_refused_by_name(folders, text):
    (folders / "medusa" / "config.json").write_text(text)
    with pytest.raises(ValueError, match="heads: .*medusa|model_type|target: "):
        load(folders, "medusa")


@pytest.mark.parametrize("key, value", [("heads", "4"), ("heads", None), ("trees", []), ("trees", {"x": [-1]}), ("trees", None)])
def test_a_setting_of_another_kind_is_refused_by_name(folders, key, value):
    path = folders / "medusa" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(ValueError, match="heads: .*medusa.* expected what the training of medusa heads writes"):
        load(folders, "medusa")


def test_a_table_of_another_width_and_a_broken_list_of_checksums_are_refused(folders):
    tensors = medusa_tensors()
    tensors |= {f"unembed.{k}": np.zeros((7, 5)) for k in range(2)} | {f"medusa.h.{k}.weight": np.zeros((5, 5)) for k in range(2)}
    tensors |= {f"medusa.h.{k}.bias": np.zeros(5) for k in range(2)}
    save_half(tensors, folders / "medusa")
    with pytest.raises(ValueError, match=r"unembed.0 has shape \(7, 5\), expected the target's \(7, 8\)"):
        load(folders, "medusa")
    (folders / "SHA256SUMS").write_text("word\n")
    with pytest.raises(ValueError, match="SHA256SUMS: a line without"):
        load(folders, "eagle")
    with pytest.raises(ValueError, match="heads: empty"):
        load_heads("eagle", "")


def test_an_eagle_head_of_an_untied_target_uses_its_own_unembedding(folders):
    whole = random_tensors(CONFIG, 0, 0.5)
    (folders / "target" / "config.json").write_text(json.dumps(GPT2_JSON | {"tie_word_embeddings": False}))
    logits = []
    for seed in (5, 6):
        table = np.random.default_rng(seed).standard_normal(whole["wte.weight"].shape)
        save_half(whole | {"lm_head.weight": table}, folders / "target")
        path = folders / "eagle" / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"target_sha256": digest(folders / "target" / "model.safetensors")}))
        head = load(folders, "eagle", dtype="float64")
        said = head.forward([1, 2], features=np.ones((2, 8)))
        logits.append(said.logits)
        np.testing.assert_allclose(said.logits, said.features @ halved(table).T, rtol=1e-9)
    assert not np.allclose(*logits)
