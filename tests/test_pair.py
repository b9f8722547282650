"""Loading pairs: what is embedded, what `transformers` writes, and what is refused."""

import hashlib
import json
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models

from specnotes.checkpoint import check_sums, open_weights, read_config, read_model
from specnotes.gpt2 import Config, random_tensors
from specnotes.pair import ASSETS, load_pair

CONFIG = Config(vocab_size=13, max_length=16, width=12, layers=2, heads=3)
FIXTURES = Path(__file__).parent / "fixtures" / "gpt2"
HELD_OUT = "Enter Macbeth.\n\nMACBETH.\nSo foul and fair a day I have not seen.\n"


def write_folder(folder, config=CONFIG, seed=0, prefix="transformer.", words="abcdefghijklm"):
    """A folder as `transformers` writes it."""
    folder.mkdir()
    entries = {
        "model_type": "gpt2", "vocab_size": config.vocab_size, "n_positions": config.max_length,
        "n_embd": config.width, "n_layer": config.layers, "n_head": config.heads, "tie_word_embeddings": config.tied,
    }
    (folder / "config.json").write_text(json.dumps(entries))
    tensors = random_tensors(config, seed, scale=0.5)
    named = {name if name == "lm_head.weight" else prefix + name: tensor for name, tensor in tensors.items()}
    save_file(named, folder / "model.safetensors")
    vocabulary = {word: i for i, word in enumerate(words)}
    Tokenizer(models.WordLevel(vocabulary, unk_token="a")).save(str(folder / "tokenizer.json"))
    return folder


def write_shards(folder, parts=3):
    """The same tensors in several files and an index, as `transformers` writes a large model."""
    path = folder / "model.safetensors"
    tensors, files = load_file(path), [f"model-{part:05}-of-{parts:05}.safetensors" for part in range(1, parts + 1)]
    weight_map = {name: files[place % parts] for place, name in enumerate(tensors)}
    for file in files:
        save_file({name: tensors[name] for name in tensors if weight_map[name] == file}, folder / file)
    size = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    path.unlink()


def write_bpe(folder, merges=()):
    """vocab.json and merges.txt beside tokenizer.json: its vocabulary, and nothing merged without `merges`."""
    vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n")


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "model")


def change(folder, **entries):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def seal(folder):
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    (folder / "SHA256SUMS").write_text(f"{digest}  model.safetensors\n")


def refused(folder, match, argument="target"):
    with pytest.raises(ValueError, match=match):
        load_pair(**{"target": folder, "draft": folder} | {argument: folder})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_pair_of_folders_loads_in_the_precision_asked_for(folder, tmp_path, dtype):
    pair = load_pair(folder, str(write_folder(tmp_path / "draft", seed=1)), dtype)
    assert pair.target.forward([1]).logits.dtype == pair.draft.forward([1]).logits.dtype == dtype
    assert pair.tokenizer.encode("c").ids == [2]
    assert not np.allclose(pair.target.forward([1]).logits, pair.draft.forward([1]).logits)


def test_target_and_draft_from_one_folder_have_caches_of_their_own(folder):
    pair = load_pair(folder, folder)
    pair.target.forward([1, 2])
    assert pair.draft.length == 0


def test_the_prefix_of_the_tensor_names_does_not_matter(folder, tmp_path):
    bare = write_folder(tmp_path / "bare", prefix="")
    pair = load_pair(folder, bare)
    np.testing.assert_array_equal(pair.target.forward([1]).logits, pair.draft.forward([1]).logits)


def test_an_untied_head_is_read_from_the_file(tmp_path):
    config = Config(**{**vars(CONFIG), "tied": False})
    folder = write_folder(tmp_path / "untied", config)
    output = load_pair(folder, folder, "float64").target.forward([1, 2])
    head = load_file(folder / "model.safetensors")["lm_head.weight"]
    np.testing.assert_allclose(output.logits, output.features @ head.T, atol=1e-10)


def test_tensors_the_model_does_not_need_are_ignored(folder):
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"transformer.h.0.attn.bias": np.ones((1, 1, 16, 16))}, folder / "model.safetensors")
    load_pair(folder, folder)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_folder_that_lacks_a_file_is_refused(folder, file):
    (folder / file).unlink()
    refused(folder, f"target: .* lacks {file}")


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    refused(tmp_path / "nowhere", "target: no folder .*nowhere")
    with pytest.raises(ValueError, match="draft: no folder"):
        load_pair(write_folder(tmp_path / "model"), tmp_path / "nowhere")


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_weight_file_cut_short_is_refused(folder, keep, sealed):
    if sealed:
        seal(folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    refused(folder, "SHA-256" if sealed else "model.safetensors")


def test_one_changed_byte_is_caught_by_the_checksum(folder):
    seal(folder)
    load_pair(folder, folder)
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    refused(folder, "model.safetensors: SHA-256")


def test_checksums_of_the_folder_above_count(folder):
    digest = hashlib.sha256(b"other").hexdigest()
    (folder.parent / "SHA256SUMS").write_text(f"{digest}  model/tokenizer.json\n{digest}  elsewhere/config.json\n")
    refused(folder, "tokenizer.json: SHA-256")


@pytest.mark.parametrize(("entries", "match"), [
    ({"model_type": "llama"}, "model_type 'llama', expected 'gpt2'"),
    ({"activation_function": "relu"}, "activation_function 'relu'"),
    ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
    ({"n_inner": 7}, "n_inner 7"),
    ({"n_head": 5}, "heads: 5"),
    ({"n_layer": 0}, "layers: 0"),
    ({"n_layer": 3}, "no tensor h.2.ln_1.weight"),
    ({"n_embd": 24}, r"wte.weight has shape \(13, 12\), expected \(13, 24\)"),
    ({"n_positions": 17}, "wpe.weight has shape"),
    ({"tie_word_embeddings": False}, "no tensor lm_head.weight"),
])
def test_a_config_that_does_not_fit_is_refused(folder, entries, match):
    change(folder, **entries)
    refused(folder, match)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"model_type": "gpt2"}'])
def test_a_config_that_is_not_one_is_refused(folder, text):
    (folder / "config.json").write_text(text)
    refused(folder, "config.json")


def test_a_tokenizer_that_is_not_one_is_refused(folder):
    (folder / "tokenizer.json").write_text("{}")
    refused(folder, "tokenizer.json")


def test_different_vocabularies_are_refused(folder, tmp_path):
    other = write_folder(tmp_path / "other", words="abcdefghijkln")
    with pytest.raises(ValueError, match="draft: its vocabulary"):
        load_pair(folder, other)
    wider = write_folder(tmp_path / "wider", Config(**{**vars(CONFIG), "vocab_size": 14}))
    with pytest.raises(ValueError, match="draft: 14 logits, expected the target's 13"):
        load_pair(folder, wider)


@pytest.mark.parametrize("dtype", ["float16", "int8", "nonsense", None, np.float32])
def test_another_dtype_is_refused(folder, dtype):
    with pytest.raises(ValueError, match="dtype"):
        load_pair(folder, folder, dtype)


def test_weights_in_half_precision_are_read_exactly(folder):
    tensors = {name: tensor.astype(np.float16) for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    half = load_pair(folder, folder, "float64").target.forward([1, 2]).logits
    save_file({name: tensor.astype(np.float64) for name, tensor in tensors.items()}, folder / "model.safetensors")
    np.testing.assert_array_equal(load_pair(folder, folder, "float64").target.forward([1, 2]).logits, half)


def test_the_embedded_pair_matches_its_checksums_and_its_model_card():
    report = json.loads((ASSETS / "training.json").read_text())
    listed = (ASSETS / "SHA256SUMS").read_text()
    for name in ("target", "draft"):
        check_sums(ASSETS / name)
        assert f"{name}/model.safetensors" in listed
        assert read_config(ASSETS / name).parameters == report[name]["parameters"]
    files = [path for path in ASSETS.rglob("*") if path.is_file() and ASSETS / "heads" not in path.parents]
    assert sum(path.stat().st_size for path in files) <= 16e6  # the heads have a bound of their own


def test_the_embedded_target_finds_held_out_shakespeare_far_likelier_than_chance():
    pair = load_pair()
    ids = pair.tokenizer.encode(HELD_OUT).ids
    assert pair.tokenizer.decode(ids) == HELD_OUT
    for model in (pair.target, pair.draft):
        logits = model.forward(ids).logits[:-1].astype(np.float64)
        log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        assert -log_p[np.arange(len(ids) - 1), ids[1:]].mean() < np.log(pair.target.vocab_size) - 2


@pytest.mark.parametrize("name", ["target", "draft"])
def test_transformers_loads_the_embedded_pair_and_computes_the_same_logits(name):
    torch = pytest.importorskip("torch", reason="the live comparison needs torch (extra: train)")
    transformers = pytest.importorskip("transformers", reason="the live comparison needs transformers")
    pair = load_pair()
    ids = pair.tokenizer.encode(HELD_OUT * 10).ids[:300]
    theirs = transformers.GPT2LMHeadModel.from_pretrained(ASSETS / name, dtype=torch.float32).eval()
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_allclose(getattr(pair, name).forward(ids).logits, expected, rtol=0, atol=1e-4)
    tokenizer = transformers.AutoTokenizer.from_pretrained(ASSETS / name)
    assert tokenizer(HELD_OUT)["input_ids"] == pair.tokenizer.encode(HELD_OUT).ids


def test_a_prompt_is_never_cut_or_filled_up(folder):
    path = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.enable_truncation(1)
    tokenizer.enable_padding(length=7)
    tokenizer.save(str(path))
    assert len(load_pair(folder, folder).tokenizer.encode("c").ids) == 1
    tokenizer = load_pair(folder, folder).tokenizer
    assert tokenizer.truncation is None and tokenizer.padding is None


def test_checksums_one_folder_up_hold_from_inside_and_through_links(folder, monkeypatch):
    digest = hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()
    (folder.parent / "SHA256SUMS").write_text(f"{digest}  {folder.name}/config.json\n")
    load_pair(folder, folder)
    change(folder, comment="tampered with")
    (folder.parent / "link").symlink_to(folder)
    monkeypatch.chdir(folder)
    for given in (folder, ".", "../link"):
        with pytest.raises(ValueError, match="SHA-256"):
            load_pair(given, given)


@pytest.mark.parametrize(
    "entries, name",
    [
        ({"n_embd": None}, "config.json"), ({"n_embd": {}}, "config.json"), ({"layer_norm_epsilon": "x"}, "epsilon: 'x'"),
        ({"layer_norm_epsilon": -1}, "epsilon: -1"), ({"layer_norm_epsilon": None}, "epsilon: None"),
        ({"tie_word_embeddings": "x"}, "tied: 'x'"),
    ],
)
def test_entries_of_the_wrong_kind_are_refused(folder, entries, name):
    change(folder, **entries)
    refused(folder, name)


@pytest.mark.parametrize("given", [5, "x" * 5000, ""])
def test_what_is_no_folder_is_refused(given, folder):
    with pytest.raises(ValueError, match="^target: "):
        load_pair(given, folder)


@pytest.mark.parametrize("name", ["tied", "bare"])
@pytest.mark.parametrize("parts", [1, 3, 40])
def test_weights_in_several_files_give_the_logits_of_transformers(tmp_path, name, parts):
    folder = shutil.copytree(FIXTURES / name, tmp_path / name)
    write_shards(folder, parts)
    expected = json.loads((FIXTURES / "reference.json").read_text())[name]
    logits = read_model(folder, "float64").forward(expected["tokens"]).logits
    np.testing.assert_allclose(logits, expected["logits"], rtol=0, atol=1e-4)


def test_where_both_are_there_the_one_file_is_read_and_not_the_index(folder):
    shutil.copy(folder / "model.safetensors", folder.parent / "kept")
    write_shards(folder)
    (folder / "model-00001-of-00003.safetensors").unlink()
    shutil.move(folder.parent / "kept", folder / "model.safetensors")
    load_pair(folder, folder)


def test_a_missing_part_is_named(folder):
    write_shards(folder)
    (folder / "model-00002-of-00003.safetensors").unlink()
    refused(folder, "lacks model-00002-of-00003.safetensors, expected every file")


def test_a_part_that_is_cut_short_is_named(folder):
    write_shards(folder)
    part = folder / "model-00003-of-00003.safetensors"
    part.write_bytes(part.read_bytes()[:-1])
    refused(folder, "model-00003-of-00003.safetensors: ")


def test_a_part_that_does_not_match_its_checksum_is_named(folder):
    write_shards(folder)
    part = folder / "model-00001-of-00003.safetensors"
    (folder / "SHA256SUMS").write_text(f"{hashlib.sha256(part.read_bytes()).hexdigest()}  {part.name}\n")
    load_pair(folder, folder)
    part.write_bytes(part.read_bytes()[:-1] + b"\x55")
    refused(folder, "model-00001-of-00003.safetensors: SHA-256")


def change_index(folder, **entries):
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    path.write_text(json.dumps(index | {"weight_map": index["weight_map"] | entries}))


@pytest.mark.parametrize("name", ["transformer.wte.weight", "transformer.h.0.attn.bias"])
def test_an_index_that_names_a_tensor_its_file_lacks_is_refused(folder, name):
    write_shards(folder)
    held = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"].get(name)
    other = next(path.name for path in folder.glob("model-*") if path.name != held)
    change_index(folder, **{name: other})
    refused(folder, f"index.json: {name} is not in {other}")


def test_a_tensor_the_index_does_not_list_is_missing(folder):
    write_shards(folder)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    del index["weight_map"]["transformer.wpe.weight"]
    path.write_text(json.dumps(index))
    refused(folder, "no tensor wpe.weight")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"weight_map": 5}', '{"weight_map": {}}'])
def test_an_index_that_is_not_one_is_refused(folder, text):
    write_shards(folder)
    (folder / "model.safetensors.index.json").write_text(text)
    refused(folder, "model.safetensors.index.json: ")


@pytest.mark.parametrize("file", ["../other/model.safetensors", "/etc/passwd", "weights.bin", "", 5, None])
def test_an_index_leads_to_weight_files_in_its_own_folder_alone(folder, file):
    write_folder(folder.parent / "other")
    write_shards(folder)
    change_index(folder, **{"transformer.wte.weight": file})
    refused(folder, "expected the name of a .safetensors file in the same folder")


def test_weights_in_bin_files_alone_are_refused_by_name(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    refused(folder, r"lacks model.safetensors .*it has pytorch_model.bin, which is not read")


def write_bfloat16(path, tensors):
    """A safetensors file in bfloat16, from float32 arrays whose lower halves are zero: header length, header, bytes."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        part = (tensor.view(np.uint32) >> 16).astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": tensor.shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_bfloat16_weights_are_read_exactly(folder):
    path = folder / "model.safetensors"
    tensors = {name: (tensor.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
               for name, tensor in load_file(path).items()}
    save_file(tensors, path)
    expected = load_pair(folder, folder, "float64").target.forward([1, 2]).logits
    write_bfloat16(path, tensors)
    np.testing.assert_array_equal(load_pair(folder, folder, "float64").target.forward([1, 2]).logits, expected)


def test_weights_that_are_integers_are_refused(folder):
    path = folder / "model.safetensors"
    save_file({name: np.ones(tensor.shape, np.int8) for name, tensor in load_file(path).items()}, path)
    refused(folder, "wte.weight holds I8, expected one of F16, F32, F64, BF16")


def test_a_tied_model_may_carry_a_copy_of_its_embedding_and_no_other_head(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    head = tensors["transformer.wte.weight"]
    plain = load_pair(folder, folder).target.forward([1]).logits
    save_file(tensors | {"lm_head.weight": head}, path)
    np.testing.assert_array_equal(load_pair(folder, folder).target.forward([1]).logits, plain)
    save_file(tensors | {"lm_head.weight": head + 1}, path)
    refused(folder, "lm_head.weight differs from wte.weight, expected tie_word_embeddings false")


def test_tensors_are_read_one_at_a_time(tmp_path):
    config = Config(vocab_size=13, max_length=16, width=96, layers=8, heads=3)
    folder = write_folder(tmp_path / "larger", config)
    size = (folder / "model.safetensors").stat().st_size

    def peak(keep):
        tracemalloc.start()
        with open_weights(folder, config) as weights:
            held = [tensor for tensor in (weights[name] for name in weights) if keep]
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found, held

    assert peak(keep=True)[0] > 0.9 * size
    assert peak(keep=False)[0] < 0.2 * size


# The entries that published GPT-2s of three generations of `transformers` carry, without those about dropout,
# initialisation and summaries, which all of them have.
PUBLISHED = {
    "activation_function": "gelu_new", "bos_token_id": 50256, "eos_token_id": 50256, "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257,
}
OLD = PUBLISHED | {"architectures": ["GPT2LMHeadModel"], "n_ctx": 1024, "task_specific_params": {"text-generation": {}}}
VERSION_4 = PUBLISHED | {
    "n_inner": None, "reorder_and_upcast_attn": False, "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True, "torch_dtype": "float32", "transformers_version": "4.40.0", "use_cache": True,
}
VERSION_5 = PUBLISHED | {
    "add_cross_attention": False, "dtype": "float32", "n_inner": None, "pad_token_id": None,
    "reorder_and_upcast_attn": False, "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True,
    "tie_word_embeddings": True, "transformers_version": "5.24.0", "use_cache": True,
}


@pytest.mark.parametrize("entries", [OLD, VERSION_4, VERSION_5], ids=["old", "4", "5"])
@pytest.mark.parametrize("tied", [True, False])
def test_configs_of_old_and_new_versions_of_transformers_are_read(tmp_path, entries, tied):
    own = {} if tied else {"tie_word_embeddings": False}
    (tmp_path / "config.json").write_text(json.dumps(entries | own))
    assert read_config(tmp_path) == Config(50257, 1024, 768, 12, 12, tied)


LETTERS = ["<|endoftext|>", "h", "e", "l", "o", "\u0120", "\u00c3", "\u00a9", "he", "ll"]


def bpe_folder(path, letters=LETTERS, merges=("h e", "l l")):
    """A folder with vocab.json and merges.txt and no tokenizer.json."""
    write_folder(path, words=letters)
    write_bpe(path, merges)
    (path / "tokenizer.json").unlink()
    return path


def test_without_tokenizer_json_the_tokenizer_is_built_from_vocab_and_merges(tmp_path):
    folder = bpe_folder(tmp_path / "words")
    tokenizer = load_pair(folder, folder).tokenizer
    # merged pairs h e and l l; a space is one letter, an accented e two bytes; nothing is put before the text
    text = "hello hell\u00e9<|endoftext|>o"
    tokens = ["he", "ll", "o", "\u0120", "he", "ll", "\u00c3", "\u00a9", "<|endoftext|>", "o"]
    assert tokenizer.encode(text).tokens == tokens
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_tokens_that_were_added_later_keep_their_ids(tmp_path):
    folder = bpe_folder(tmp_path / "words")
    (folder / "added_tokens.json").write_text(json.dumps({"oo": 11, "zz": 10}))
    tokenizer = load_pair(folder, folder).tokenizer
    assert tokenizer.encode("zz hoo").tokens == ["zz", "\u0120", "h", "oo"] and tokenizer.token_to_id("oo") == 11
    with pytest.raises(ValueError, match="draft: its vocabulary of 10 differs from the target's of 12"):
        load_pair(folder, bpe_folder(tmp_path / "others"))
    (folder / "added_tokens.json").write_text(json.dumps({"zz": 12}))
    refused(folder, "added_tokens.json: 'zz' would get id 10, expected 12")


@pytest.mark.parametrize(("file", "text"), [
    ("vocab.json", "{"), ("vocab.json", "[]"), ("vocab.json", '{"h": "x"}'),
    ("merges.txt", "h h h h\n"), ("merges.txt", "x y\n"),
    ("added_tokens.json", "{"), ("added_tokens.json", "[]"), ("added_tokens.json", '{"zz": "x"}'),
])
def test_vocab_and_merges_that_are_none_are_refused(tmp_path, file, text):
    folder = bpe_folder(tmp_path / "words")
    (folder / file).write_text(text)
    refused(folder, "words: vocab.json, merges.txt, added_tokens.json: .*expected a tokenizer")


@pytest.mark.parametrize("file", ["vocab.json", "merges.txt"])
def test_one_of_vocab_and_merges_is_no_tokenizer(tmp_path, file):
    folder = bpe_folder(tmp_path / "words")
    (folder / file).unlink()
    refused(folder, "lacks tokenizer.json or vocab.json with merges.txt")


def test_different_vocabularies_are_refused_before_any_weight_is_read(folder, tmp_path):
    other = write_folder(tmp_path / "other", words="abcdefghijkln")
    for path in (folder, other):
        (path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="draft: its vocabulary"):
        load_pair(folder, other)


def test_an_empty_name_and_a_file_are_no_folders(tmp_path):
    (tmp_path / "README.md").write_text("not a model")
    with pytest.raises(ValueError, match="draft: empty, expected a folder"):
        load_pair(draft="")
    with pytest.raises(ValueError, match="draft: .*README.md.* is no folder .it is a file"):
        load_pair(draft=tmp_path / "README.md")
