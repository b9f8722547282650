"""The heads that come with the package: whole, small, of the embedded target, and harmless to its text."""

import json

import numpy as np
import pytest

from specnotes import __main__ as command
from specnotes.decode import generate
from specnotes.drafters import EagleDrafter, MedusaDrafter
from specnotes.heads import load_heads
from specnotes.measure import MORE_PROMPTS, PROMPTS
from specnotes.pair import ASSETS, load_pair
from specnotes.rules import greedy_rule, sampler_match_rule, token_rule
from specnotes.tree import best_tree, depths, expected_tokens

HEADS = ASSETS / "heads"
REPORT = json.loads((HEADS / "training.json").read_text(encoding="utf-8"))
WAYS = {
    "medusa chain": (lambda: MedusaDrafter(load_heads("medusa", dtype="float64"), range(-1, 3)), 4),
    "medusa tree": (lambda: MedusaDrafter(load_heads("medusa", dtype="float64"), nodes=16), 4),
    "eagle chain": (lambda: EagleDrafter(load_heads("eagle", dtype="float64")), 4),
    "eagle tree": (lambda: EagleDrafter(load_heads("eagle", dtype="float64"), nodes=16), 5),
}


@pytest.fixture(scope="module")
def pair():
    return load_pair(dtype="float64")


def ids(pair, text):
    return pair.tokenizer.encode(text).ids


def test_they_are_small_and_every_file_has_a_checksum():
    files = [path for path in HEADS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 7e6
    named = {line.split()[1] for line in (HEADS / "SHA256SUMS").read_text().splitlines()}
    assert named == {path.relative_to(HEADS).as_posix() for path in files} - {"SHA256SUMS"}


@pytest.mark.parametrize("kind, change", [("medusa", "model.safetensors"), ("eagle", "config.json")])
def test_a_changed_file_is_refused(tmp_path, kind, change):
    import shutil

    shutil.copytree(HEADS, tmp_path / "heads")
    path = tmp_path / "heads" / kind / change
    path.write_bytes(path.read_bytes()[:-1] + b" ")
    with pytest.raises(ValueError, match="SHA-256"):
        load_heads(kind, path.parent)


def test_they_belong_to_the_embedded_target_and_to_no_other():
    with pytest.raises(ValueError, match="not the one these medusa heads"):
        load_heads("medusa", target=ASSETS / "draft")


@pytest.mark.parametrize("way", WAYS)
def test_greedy_text_is_that_of_plain_decode_for_twenty_prompts(pair, way):
    make, gamma = WAYS[way]
    drafter, found = make(), []
    for text in PROMPTS + MORE_PROMPTS:
        settings = {"max_new_tokens": 40, "temperature": 0}
        plain = generate(pair.target, ids(pair, text), **settings)
        fast = generate(pair.target, ids(pair, text), drafter, gamma=gamma, rule=greedy_rule, **settings)
        assert fast.tokens == plain.tokens, text
        found.append(fast.tokens_per_pass)
    assert len(found) == 20 and np.mean(found) > 1.8


@pytest.mark.parametrize("way, rule", [("medusa tree", sampler_match_rule), ("eagle chain", token_rule), ("eagle tree", sampler_match_rule)])
def test_at_temperature_one_the_first_tokens_have_the_targets_law(pair, way, rule):
    make, gamma = WAYS[way]
    prompt, runs, rng = ids(pair, PROMPTS[0]), 600, np.random.default_rng(7)
    pair.target.rollback(0)
    logits = pair.target.forward(prompt, last_only=True).logits[0]
    p = np.exp(logits - logits.max())
    p /= p.sum()
    from specnotes.dice import RandomDice

    drafter = make()
    firsts = [generate(pair.target, prompt, drafter, gamma=gamma, max_new_tokens=2, rule=rule, dice=RandomDice(rng)).tokens[0] for _ in range(runs)]
    for token in np.argsort(-p)[:5]:
        assert abs(firsts.count(token) - runs * p[token]) < 4.5 * (runs * p[token] * (1 - p[token])) ** 0.5


def test_the_shipped_trees_are_the_best_for_the_shipped_accuracies():
    medusa = load_heads("medusa")
    assert sorted(medusa.trees) == [4, 8, 16, 32]
    for nodes, parents in medusa.trees.items():
        best = best_tree(medusa.accuracy, nodes)
        assert expected_tokens(parents, medusa.accuracy) == pytest.approx(expected_tokens(best, medusa.accuracy))
        assert len(parents) == nodes and depths(parents).max() < 4


@pytest.mark.parametrize("options", [["medusa"], ["medusa", "--tree"], ["eagle"], ["eagle", "--tree", "--nodes", "8"]])
def test_the_command_line_writes_the_text_of_plain_decode(capsys, options):
    def text(*more):
        command.main(["generate", PROMPTS[1], "--temperature", "0", "--max-new-tokens", "30", "--dtype", "float64", "--json", *more])
        return json.loads(capsys.readouterr().out)

    plain, fast = text("--gamma", "0"), text("--drafter", *options)
    assert fast["text"] == plain["text"] and fast["passes"] < plain["passes"] == 30
