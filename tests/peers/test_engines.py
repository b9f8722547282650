"""All engines write the same greedy text, and as much of it as they were asked for.

Not part of the ordinary tests: it needs the extra `peers`. `make peers` runs it first.
"""

import numpy as np
import pytest

from specnotes.gpt2 import Config
from specnotes.measure import PROMPTS
from specnotes.pair import ASSETS, read_tokenizer
from tests.peers.compare import check_greedy, disagreement
from tests.peers.engines import ASSISTED, CTRANSLATE2, GENERATE, NUMPY, SPECULATIVE, engines, write_random

SHAPE = Config(vocab_size=300, max_length=64, width=48, layers=2, heads=3)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    runs, model = engines(ASSETS / "target", ASSETS / "draft", tmp_path_factory.mktemp("embedded"))
    tokenizer = read_tokenizer(ASSETS / "target")
    return runs, model, [tokenizer.encode(text).ids for text in PROMPTS]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    place = tmp_path_factory.mktemp("drawn")
    runs, model = engines(write_random(place / "model", SHAPE), None, place)
    return runs, model, [np.random.default_rng(0).integers(300, size=9).tolist()]


def test_five_engines_read_the_embedded_pair(embedded):
    assert set(embedded[0]) == {NUMPY, SPECULATIVE, GENERATE, ASSISTED, CTRANSLATE2}


def test_greedy_texts_of_the_embedded_pair_part_nowhere_but_at_near_ties(embedded):
    assert len(check_greedy(*embedded, tokens=64)) == 4 * len(PROMPTS)


def test_greedy_texts_of_random_weights_part_nowhere_but_at_near_ties(drawn):
    assert len(check_greedy(*drawn, tokens=40)) == 2


def test_a_text_that_parts_where_there_is_no_tie_is_refused(drawn):
    runs, model, prompts = drawn
    wrong = lambda *args: [(token + 1) % 300 for token in runs[NUMPY](*args)]
    with pytest.raises(ValueError, match="token 0 is not that of NumPy plain"):
        check_greedy({NUMPY: runs[NUMPY], GENERATE: wrong}, model, prompts, tokens=5)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_each_engine_writes_as_many_tokens_as_asked(embedded, temperature):
    runs, _, prompts = embedded
    assert {name: len(run(prompts[0], 30, temperature, 1)) for name, run in runs.items()} == dict.fromkeys(runs, 30)


@pytest.mark.parametrize("engine", [NUMPY, SPECULATIVE, GENERATE, ASSISTED, CTRANSLATE2])
def test_at_temperature_one_each_engine_draws_its_first_token_by_the_same_law(embedded, engine):
    runs, model, prompts = embedded
    model.rollback(0)
    logits = model.forward(prompts[0], last_only=True).logits[-1].astype(np.float64)
    p = np.exp(logits - logits.max())
    p /= p.sum()
    likely = np.argsort(p)[::-1][:8]
    tokens = 5 if engine in (SPECULATIVE, ASSISTED) else 1  # enough for a pass with all its drafts
    draws = [runs[engine](prompts[0], tokens, 1.0, seed)[0] for seed in range(400)]
    counts = np.array([draws.count(token) for token in likely])
    # four standard deviations of each count; one of 40 such counts is outside by chance in 1 of 400 runs
    assert (abs(counts - 400 * p[likely]) <= 4 * np.sqrt(400 * p[likely] * (1 - p[likely])) + 1).all()


def test_where_texts_part_by_hand():
    assert disagreement([1, 2, 3], [1, 2, 3], []) is None
    assert disagreement([1, 2, 3], [1, 5, 3], [(1, 1e-5)]) == {"token": 1, "gap": 1e-5}
    assert disagreement([1, 2, 3], [1, 5, 3], [(2, 1e-5)]) == {"token": 1, "gap": None}
    assert disagreement([1, 2, 3], [1, 2], []) == {"token": 2, "gap": None}
