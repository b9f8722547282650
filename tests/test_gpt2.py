"""GPT-2 in NumPy: the numbers of `transformers`, a cache that changes nothing, trees that equal their paths."""

import json
from pathlib import Path

import numpy as np
import pytest

from specnotes.gpt2 import GPT2, Affine, Arena, Config, center, gelu, normalize, random_tensors
from specnotes.language_model import LanguageModel
from specnotes.pair import read_model
from specnotes.tree import depths
from tests.trees import root_path

FIXTURES = Path(__file__).parent / "fixtures" / "gpt2"
REFERENCE = json.loads((FIXTURES / "reference.json").read_text())
CONFIG = Config(vocab_size=13, max_length=24, width=12, layers=2, heads=3)
PROMPT = [7, 0, 3, 3, 9, 1, 12]
PARENTS = [-1, 0, 0, 1, 2, 2, 3]
EXACT = {"rtol": 0, "atol": 1e-10}


def small(seed=0, dtype="float64", **changes):
    """A small model whose matrices are large enough that every attention pattern matters."""
    config = Config(**{**vars(CONFIG), **changes})
    return GPT2(config, random_tensors(config, seed, scale=0.5), dtype)


def logits_of(tokens, **options):
    return small(**options).forward(tokens).logits


@pytest.mark.parametrize("name", ["tied", "bare"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logits_and_features_equal_those_of_transformers(name, dtype):
    expected = REFERENCE[name]
    output = read_model(FIXTURES / name, dtype).forward(expected["tokens"])
    np.testing.assert_allclose(output.logits, expected["logits"], rtol=0, atol=1e-4)
    np.testing.assert_allclose(output.features, expected["features"], rtol=0, atol=1e-4)
    assert output.logits.dtype == output.features.dtype == dtype


def test_the_reference_is_far_from_uniform_so_a_wrong_layer_would_show():
    assert np.ptp(REFERENCE["tied"]["logits"], axis=1).min() > 1


def test_it_is_a_language_model():
    assert isinstance(small(), LanguageModel)


def test_the_unembedding_reads_the_features():
    tensors = random_tensors(CONFIG, 0, scale=0.5)
    output = GPT2(CONFIG, tensors, "float64").forward(PROMPT)
    np.testing.assert_allclose(output.logits, output.features @ tensors["wte.weight"].T, **EXACT)


def test_float32_agrees_with_float64_to_single_precision():
    np.testing.assert_allclose(logits_of(PROMPT, dtype="float32"), logits_of(PROMPT), rtol=0, atol=1e-3)


@pytest.mark.parametrize("cut", range(1, len(PROMPT)))
def test_logits_with_a_cache_equal_logits_without(cut):
    model = small()
    first, second = model.forward(PROMPT[:cut]).logits, model.forward(PROMPT[cut:]).logits
    np.testing.assert_allclose(np.concatenate((first, second)), logits_of(PROMPT), **EXACT)


def test_one_token_at_a_time_equals_all_at_once():
    model = small()
    rows = [model.forward([token]).logits[0] for token in PROMPT]
    np.testing.assert_allclose(rows, logits_of(PROMPT), **EXACT)


def test_a_long_prompt_read_in_chunks_equals_the_same_prompt_read_piece_by_piece(monkeypatch):
    whole = logits_of(PROMPT * 3)
    monkeypatch.setattr("specnotes.gpt2.PREFILL_ROWS", 4)
    np.testing.assert_allclose(logits_of(PROMPT * 3), whole, **EXACT)


def test_last_only_gives_the_last_row_and_all_features():
    full, last = small().forward(PROMPT), small().forward(PROMPT, last_only=True)
    assert last.logits.shape == (1, 13)
    np.testing.assert_allclose(last.logits[0], full.logits[-1], **EXACT)
    np.testing.assert_allclose(last.features, full.features, **EXACT)


@pytest.mark.parametrize("length", range(len(PROMPT) + 1))
def test_after_a_rollback_the_next_logits_equal_a_fresh_prefill(length):
    model = small()
    model.forward(PROMPT)
    model.rollback(length)
    assert model.length == length
    np.testing.assert_allclose(model.forward([5, 6]).logits, logits_of(PROMPT[:length] + [5, 6])[-2:], **EXACT)


def test_a_rollback_by_nothing_keeps_everything():
    model = small()
    model.forward(PROMPT)
    model.rollback(model.length)
    np.testing.assert_allclose(model.forward([5]).logits, logits_of(PROMPT + [5])[-1:], **EXACT)


@pytest.mark.parametrize("prefix", [[], [4, 8, 2]])
def test_every_node_of_a_tree_has_the_logits_of_its_root_path_run_alone(prefix):
    model = small()
    if prefix:
        model.forward(prefix)
    base = len(prefix)
    output = model.forward(PROMPT, [base + parent for parent in PARENTS])
    for node in range(len(PROMPT)):
        path = [PROMPT[step] for step in root_path(node, PARENTS)]
        assert len(path) == depths(PARENTS)[node] + 1
        alone = small().forward(prefix + path)
        np.testing.assert_allclose(output.logits[node], alone.logits[-1], **EXACT)
        np.testing.assert_allclose(output.features[node], alone.features[-1], **EXACT)


def test_a_tree_read_in_chunks_equals_the_tree_read_at_once(monkeypatch):
    whole = small().forward(PROMPT, PARENTS).logits
    monkeypatch.setattr("specnotes.gpt2.PREFILL_ROWS", 3)
    np.testing.assert_allclose(small().forward(PROMPT, PARENTS).logits, whole, **EXACT)


def test_a_tree_may_grow_from_an_older_tree():
    model = small()
    model.forward(PROMPT[:4], PARENTS[:4])
    output = model.forward(PROMPT[4:], PARENTS[4:])
    np.testing.assert_allclose(output.logits, small().forward(PROMPT, PARENTS).logits[4:], **EXACT)


def test_without_parents_a_token_follows_the_last_row_of_a_tree():
    model = small()
    model.forward(PROMPT, PARENTS)
    path = [PROMPT[step] for step in root_path(6, PARENTS)]
    np.testing.assert_allclose(model.forward([5, 6]).logits, logits_of(path + [5, 6])[-2:], **EXACT)


def test_a_chain_given_as_parents_is_the_chain():
    model = small()
    model.forward([4, 8])
    np.testing.assert_array_equal(model.forward(PROMPT, range(1, 8)).logits, logits_of([4, 8] + PROMPT)[2:])


@pytest.mark.parametrize("path", [[], [0], [0, 1], [0, 2], [0, 2, 5], [0, 1, 3, 6]])
def test_after_keep_the_next_logits_equal_a_fresh_prefill(path):
    prefix, model = [4, 8, 2], small()
    model.forward(prefix)
    model.forward(PROMPT, [3 - 1] + [3 + parent for parent in PARENTS[1:]])
    model.keep([3 + node for node in path])
    text = prefix + [PROMPT[node] for node in path]
    assert model.length == len(text)
    np.testing.assert_allclose(model.forward([5, 6]).logits, logits_of(text + [5, 6])[-2:], **EXACT)
    np.testing.assert_allclose(model.forward([1, 2], [model.length - 1] * 2).logits[1],
                               logits_of(text + [5, 6, 2])[-1], **EXACT)


def test_keep_moves_an_accepted_path_next_to_the_older_rows():
    model = small()
    model.forward([4])
    model.forward(PROMPT[:4], [0, 1, 1, 2])
    model.keep([1, 3])
    assert model.length == 3
    with pytest.raises(ValueError, match="rows"):
        model.keep([0])
    model.keep([1])
    np.testing.assert_allclose(model.forward([5]).logits, logits_of([4, PROMPT[0], 5])[-1:], **EXACT)


def test_two_branches_may_be_kept():
    model = small()
    model.forward(PROMPT[:4], [-1, 0, 0, 1])
    model.keep([0, 2])
    model.forward([5], [0])
    np.testing.assert_allclose(model.forward([6], [2]).logits, logits_of([PROMPT[0], 5, 6])[-1:], **EXACT)


@pytest.mark.parametrize(("call", "argument"), [
    (lambda model: model.forward([13]), "tokens: token 13"),
    (lambda model: model.forward([0, -1]), "tokens: token -1"),
    (lambda model: model.forward([]), "tokens"),
    (lambda model: model.forward([0.5]), "tokens"),
    (lambda model: model.forward([[0]]), "tokens"),
    (lambda model: model.forward([True]), "tokens"),
    (lambda model: model.forward([0] * 18), "tokens: 18 on top of 7, expected at most 24"),
    (lambda model: model.forward([0], [6.0]), "parents: 6.0"),
    (lambda model: model.forward([0, 0], [6]), "parents: 1 given for 2"),
    (lambda model: model.forward([0], [7]), "parents: 7 at new row 7"),
    (lambda model: model.forward([0, 0], [6, 8]), "parents: 8 at new row 8"),
    (lambda model: model.forward([0], [-2]), "parents: -2"),
    (lambda model: model.rollback(8), "length: 8"),
    (lambda model: model.rollback(-1), "length: -1"),
    (lambda model: model.rollback(6.5), "length: 6.5"),
    (lambda model: model.rollback(True), "length: True"),
    (lambda model: model.keep([5.0]), "rows: 5.0"),
    (lambda model: model.keep([4]), "rows"),
    (lambda model: model.keep([7]), "rows"),
    (lambda model: model.keep([6, 5]), "rows"),
    (lambda model: model.keep([5, 5]), "rows"),
    (lambda model: model.keep([6]), "rows: .* parent"),
])
def test_a_bad_call_raises_and_leaves_the_cache_as_it_was(call, argument):
    model = small()
    model.forward(PROMPT[:5])
    model.forward(PROMPT[5:])
    with pytest.raises(ValueError, match=argument):
        call(model)
    assert model.length == 7
    model.keep([5, 6])
    np.testing.assert_allclose(model.forward([5]).logits, logits_of(PROMPT + [5])[-1:], **EXACT)


def test_the_whole_context_can_be_used():
    model = small()
    model.forward([0] * 24)
    with pytest.raises(ValueError, match="at most 24"):
        model.forward([0])


@pytest.mark.parametrize("changes", [
    {"vocab_size": 0}, {"width": 13}, {"layers": 1.0}, {"heads": True}, {"max_length": -1},
])
def test_a_config_that_makes_no_model_raises(changes):
    with pytest.raises(ValueError, match="expected"):
        Config(**{**vars(CONFIG), **changes})


def test_tensors_that_disagree_with_the_config_raise():
    tensors = random_tensors(CONFIG, 0)
    with pytest.raises(ValueError, match="ln_f.bias is missing"):
        GPT2(CONFIG, {name: tensor for name, tensor in tensors.items() if name != "ln_f.bias"})
    with pytest.raises(ValueError, match=r"wpe.weight has shape \(24, 12\)"):
        GPT2(Config(**{**vars(CONFIG), "max_length": 25}), tensors)
    with pytest.raises(ValueError, match="dtype: float16"):
        GPT2(CONFIG, tensors, "float16")


@pytest.mark.parametrize("tied", [True, False])
def test_the_closed_form_counts_every_parameter(tied):
    config = Config(**{**vars(CONFIG), "tied": tied})
    assert config.parameters == sum(tensor.size for tensor in random_tensors(config, 0).values())


def test_gpt2_has_the_published_number_of_parameters():
    # 124 million (Radford et al. 2019, table 2, corrected in their repository's README)
    assert round(Config(50257, 1024, 768, 12, 12).parameters / 1e6) == 124


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 12, 23, 24, 40])
@pytest.mark.parametrize(("inputs", "outputs"), [(7, 5), (64, 1), (96, 130), (768, 3072), (60, 5000)])
def test_the_sliced_product_is_the_product(rows, inputs, outputs):
    rng = np.random.default_rng(0)
    x, weight, bias = rng.normal(size=(rows, inputs)), rng.normal(size=(inputs, outputs)), rng.normal(size=outputs)
    np.testing.assert_allclose(Affine(weight, bias)(x), x @ weight + bias, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("inputs", "outputs"), [(256, 1024), (1024, 256), (256, 512), (768, 3072), (3072, 768)])
def test_two_to_nine_rows_are_cut_into_slices_that_share_the_weights_memory(inputs, outputs):
    product = Affine(np.zeros((inputs, outputs), np.float32), 0.0)
    for rows in range(2, 10):
        slices = product._slices.get(rows, product.weight[None])
        assert np.shares_memory(slices, product.weight)
        assert slices.shape[1] * outputs * rows <= 10**6


def test_plain_products_give_the_same_logits():
    sliced, plain = (GPT2.random(Config(96, 32, 64, 2, 4), 0, "float64") for _ in range(2))
    plain.use_plain_products()
    for n in (1, 2, 3, 7, 12):
        np.testing.assert_allclose(plain.forward([5] * n).logits, sliced.forward([5] * n).logits, **EXACT)


def test_gelu_and_layer_norm_follow_their_definitions():
    x = np.linspace(-4, 4, 9)
    expected = [0.5 * v * (1 + np.tanh((2 / np.pi) ** 0.5 * (v + 0.044715 * v**3))) for v in x]
    np.testing.assert_allclose(gelu((2 / np.pi) ** 0.5 * x) / (8 / np.pi) ** 0.5, expected, **EXACT)
    z = 50**0.5 * normalize(center(np.random.default_rng(0).normal(3, 2, (4, 50))), 0.0)
    np.testing.assert_allclose(z.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(z.std(axis=1), 1, atol=1e-12)


def test_an_arena_gives_aligned_copies_until_it_is_full():
    arena = Arena(32, np.float64)
    first, second = arena.place(np.ones(3)), arena.place(np.zeros((2, 4)))
    assert first.tolist() == [1, 1, 1] and second.shape == (2, 4)
    assert first.ctypes.data % 64 == second.ctypes.data % 64 == 0
    with pytest.raises(ValueError, match="array: 17 entries, expected at most 16"):
        arena.place(np.zeros(17))


def test_two_models_of_one_seed_are_the_same_and_share_nothing():
    one, other = GPT2.random(CONFIG, 3, "float64"), GPT2.random(CONFIG, 3, "float64")
    one.forward(PROMPT)
    np.testing.assert_array_equal(other.forward([5]).logits, GPT2.random(CONFIG, 3, "float64").forward([5]).logits)
