"""Faults of caches and bounds that real implementations shipped, each test named after the right behaviour.

22 a draft cache trimmed too much         27 positions off by one after a rejection
23 a draft cache one token short          28 tokens after a stop token
24 a slice of -0 that empties a cache     29 more tokens than were asked for
25 logits that depend on the split        30 no room, no gamma, no draft
26 rows that survive a rollback           31 vocabularies of different sizes
                                          45 greedy texts compared where float32 rows differ
Numbers 22 to 24 do not show in the text, so the tests look at every call and every length.
"""

import itertools
import json
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from specnotes import decode, law, toy
from specnotes.dice import RandomDice
from specnotes.distributions import probs_from_logits
from specnotes.drafters import ModelDrafter
from specnotes.gpt2 import GPT2, Config, random_tensors
from specnotes.records import Draft
from tests.exact import row
from tests.test_decode import plain_text_law
from tests.test_pair import write_folder

SAME = lambda rows: rows
EXACT = {"rtol": 0, "atol": 1e-10}
CONFIG = Config(vocab_size=13, max_length=64, width=12, layers=2, heads=3)
PROMPT = [7, 0, 3, 3, 9, 1, 12]
VOCABULARY = 64


class Ledger:
    """A LanguageModel that writes down every call that was answered and the length after it."""

    def __init__(self, model):
        self.model, self.calls = model, []
        self.vocab_size, self.max_length = model.vocab_size, model.max_length

    @property
    def length(self):
        return self.model.length

    def forward(self, tokens, parents=None, last_only=False):
        before, output = self.length, self.model.forward(tokens, parents, last_only)
        self.calls.append(("forward", before, list(tokens), self.length))
        return output

    def rollback(self, length):
        self.model.rollback(length)
        self.calls.append(("rollback", length, self.length))

    def keep(self, rows):
        self.model.keep(rows)
        self.calls.append(("keep", list(rows), self.length))


def scripted(say, vocab_size=VOCABULARY, max_length=64):
    """A model whose next token is say(text)."""
    return Ledger(toy.TableModel(lambda text: np.eye(vocab_size)[say(text)], vocab_size, max_length))


def counting(**sizes):
    """After token t comes t + 1."""
    return scripted(lambda text: text[-1] + 1, **sizes)


def right_until(last, **sizes):
    """Counts until it has said `last`, then says 0, 1, 2."""
    return scripted(lambda text: text[-1] + 1 if text[-1] != last else 0, **sizes)


def started(target, drafter, prompt, gamma=4, max_new_tokens=20):
    return decode.rounds(
        target, prompt, drafter, gamma=gamma, max_new_tokens=max_new_tokens, warp=SAME,
        dice=RandomDice(np.random.default_rng(0)),
    )


def greedy(target, drafter, prompt=(1,), **settings):
    return decode.generate(target, prompt, drafter, **{"gamma": 4, "max_new_tokens": 8, "temperature": 0} | settings)


def random_gpt2(seed, dtype="float64", **changes):
    """Random weights, large enough that every row depends on the whole text and on its position."""
    config = Config(**{**vars(CONFIG), **changes})
    return GPT2(config, random_tensors(config, seed, scale=0.4), dtype)


def fresh_logits(tokens, seed=0):
    """[n, V] of a model that reads `tokens` at once and has read nothing before."""
    return random_gpt2(seed).forward(tokens).logits


# Caches


def test_after_one_accepted_draft_both_caches_are_cut_to_the_same_length():
    """22. Ten rows are cached, gamma is 4, one draft is accepted: 14 rows become 12 and 15 rows become 12."""
    target, draft = counting(), right_until(12)
    first = next(started(target, ModelDrafter(draft), list(range(1, 12))))
    assert first.draft.tokens == (12, 0, 1, 2) and first.tokens == (12, 13)
    assert target.calls == [
        ("rollback", 0, 0),
        ("forward", 0, list(range(1, 11)), 10),
        ("forward", 10, [11, 12, 0, 1, 2], 15),
        ("keep", [10, 11], 12),
    ]
    assert draft.calls == [
        ("rollback", 0, 0),
        ("forward", 0, list(range(1, 12)), 11),
        ("forward", 11, [12], 12), ("forward", 12, [0], 13), ("forward", 13, [1], 14),
        ("rollback", 12, 12),
    ]


class CutTooFar(ModelDrafter):
    """The fault: after a rejection one row too many is forgotten, and the next round reads on as if it were there."""

    gone = 0

    def propose(self, context, gamma, warp, dice):
        return super().propose(context[self.gone :], gamma, warp, dice)

    def commit(self, tokens, features=None):
        self._committed += len(tokens)
        kept = self._committed - 1 - self.gone
        if kept < self.model.length:
            self.gone += 1
            self.model.rollback(kept - 1)


def test_a_cache_that_is_cut_too_far_leaves_the_text_right_and_ruins_acceptance():
    """22. The draft errs at every third place. Only lengths and acceptance show the fault, hence the calls above."""
    said = lambda text: 7 * len(text) % 50
    target, draft = scripted(said), scripted(lambda text: said(text) if len(text) % 3 else 60)
    right = greedy(target, ModelDrafter(draft), max_new_tokens=40)
    wrong = greedy(target, CutTooFar(draft), max_new_tokens=40)
    assert wrong.tokens == right.tokens == tuple(7 * place % 50 for place in range(1, 41))
    assert right.accepted_counts == (2,) * 13 + (0,)
    assert wrong.accepted_counts == (2,) + (0,) * 37


def test_after_full_acceptance_the_draft_reads_its_own_last_token_before_the_bonus():
    """23. The draft never read its fourth token; it reads it next, together with the bonus token."""
    target, draft = counting(), counting()
    loop = started(target, ModelDrafter(draft), list(range(1, 12)))
    assert next(loop).kinds == ("accepted",) * 4 + ("bonus",)
    assert target.calls[-2:] == [("forward", 10, [11, 12, 13, 14, 15], 15), ("keep", [10, 11, 12, 13, 14], 15)]
    assert draft.calls[-2:] == [("forward", 13, [14], 14), ("rollback", 14, 14)]
    next(loop)
    assert draft.calls[6:] == [
        ("forward", 14, [15, 16], 16), ("forward", 16, [17], 17), ("forward", 17, [18], 18), ("forward", 18, [19], 19),
        ("rollback", 19, 19),
    ]


@pytest.mark.parametrize("gamma", [1, 2, 4])
def test_a_draft_equal_to_the_target_is_accepted_for_ever(gamma):
    """23. Two copies of one model, drawn from at temperature 1: not one rejection."""
    trace = decode.generate(
        random_gpt2(0), PROMPT, ModelDrafter(random_gpt2(0)), gamma=gamma, max_new_tokens=50,
        dice=RandomDice(np.random.default_rng(gamma)),
    )
    assert trace.acceptance == 1 and trace.alpha == pytest.approx(1, abs=1e-12)
    assert all(len(round.tokens) == gamma + 1 for round in trace.rounds[:-1])


def test_a_rejection_of_nothing_forgets_nothing():
    """24. All four drafts accepted: the cut is by 0 rows, and no later call begins at row 0."""
    target, draft = counting(), counting()
    greedy(target, ModelDrafter(draft), prompt=range(1, 12), max_new_tokens=20)
    for ledger in (target, draft):
        lengths = [call[-1] for call in ledger.calls]
        assert lengths[0] == 0 and lengths[1:] == sorted(lengths[1:]) and min(lengths[1:]) >= 10


@pytest.mark.parametrize("tokens", [PROMPT[:1], PROMPT])
def test_a_rollback_to_the_whole_length_keeps_every_row(tokens):
    """24. On a real cache, and the same for keeping all new rows."""
    model = random_gpt2(0)
    model.forward(tokens)
    model.rollback(len(tokens))
    model.keep(range(len(tokens)))
    assert model.length == len(tokens)
    np.testing.assert_allclose(model.forward([5]).logits, fresh_logits(tokens + [5])[-1:], **EXACT)


@pytest.mark.parametrize("cuts", list(itertools.product([False, True], repeat=len(PROMPT) - 1)))
def test_logits_with_a_cache_equal_logits_without_for_every_split_of_a_prompt(cuts):
    """25. All 64 ways to read seven tokens in pieces."""
    model, ends = random_gpt2(0), [end for end, cut in enumerate(cuts, 1) if cut] + [len(PROMPT)]
    pieces = [PROMPT[first:end] for first, end in zip([0] + ends, ends)]
    logits = np.concatenate([model.forward(piece).logits for piece in pieces])
    np.testing.assert_allclose(logits, fresh_logits(PROMPT), **EXACT)


@pytest.mark.parametrize("length", range(len(PROMPT) + 1))
@pytest.mark.parametrize("more", [[5], [5, 6, 2, 8, 0]])
def test_after_a_rollback_the_next_logits_equal_a_fresh_prefill(length, more):
    """26. To every length, with fewer new rows than were forgotten and with more."""
    model = random_gpt2(0)
    model.forward(PROMPT)
    model.rollback(length)
    np.testing.assert_allclose(model.forward(more).logits, fresh_logits(PROMPT[:length] + more)[length:], **EXACT)


@pytest.mark.parametrize("accepted", range(5))
def test_after_kept_drafts_the_next_logits_equal_a_fresh_prefill(accepted):
    """26. The target's way to forget: of five new rows the first and the accepted ones stay."""
    model, drafts = random_gpt2(0), [4, 8, 2, 11]
    model.forward(PROMPT[:-1])
    model.forward([PROMPT[-1], *drafts])
    model.keep(range(6, 7 + accepted))
    text = PROMPT + drafts[:accepted] + [5]
    np.testing.assert_allclose(model.forward([5, 6]).logits, fresh_logits(text + [6])[-2:], **EXACT)


def test_in_a_decode_with_rejections_every_row_equals_the_row_without_a_cache():
    """26, 27. Before each round both models answer for the committed text as models that read it afresh."""
    target, draft = random_gpt2(0), random_gpt2(1)
    warp, context = partial(probs_from_logits, temperature=1.0), list(PROMPT)
    loop = decode.rounds(
        target, PROMPT, ModelDrafter(draft), gamma=4, max_new_tokens=40, warp=warp,
        dice=RandomDice(np.random.default_rng(3)),
    )
    seen = set()
    for round in loop:
        context += round.tokens
        seen.add(len(round.verdict.path))
        for seed, model in enumerate((target, draft)):
            length = model.length
            logits = model.forward(context[length:]).logits
            np.testing.assert_allclose(logits, fresh_logits(context, seed)[length:], **EXACT)
            model.rollback(length)
    assert {0, 1} <= seen and len(context) == len(PROMPT) + 40


@pytest.mark.parametrize("accepted", range(4))
def test_after_a_rejected_round_the_next_pass_begins_at_the_next_position(accepted):
    """27. The token at place n is n: a position that is one off shows at once. The draft is wrong in every round."""
    wrong_at = [11 + accepted]
    target = scripted(len)
    draft = scripted(lambda text: 0 if len(text) in wrong_at else len(text))
    loop = started(target, ModelDrafter(draft), list(range(11)), max_new_tokens=30)
    place = 11
    for round in itertools.islice(loop, 4):
        assert target.calls[-2][:2] == ("forward", place - 1) and target.calls[-2][2][0] == place - 1
        assert round.tokens == tuple(range(place, place + accepted + 1)) and round.kinds[-1] == "recovered"
        place += accepted + 1
        assert target.length == place - 1
        wrong_at.append(place + accepted)


# Bounds


def test_a_stop_token_inside_the_accepted_block_ends_the_text_there():
    """28. The block [10, 11, stop, 20] is accepted whole: 10, 11, stop are the text; no bonus, nothing after."""
    stop, after = 3, {9: 10, 10: 11, 11: 3, 3: 20, 20: 21}
    target, draft = (scripted(lambda text: after[text[-1]]) for _ in range(2))
    trace = greedy(target, ModelDrafter(draft), prompt=(9,), max_new_tokens=9, stop=[stop])
    assert trace.rounds[0].draft.tokens == (10, 11, stop, 20) and trace.accepted_counts == (4,)
    assert trace.tokens == (10, 11, stop) and trace.kinds == ("accepted",) * 3 and trace.finish == "stop"
    assert [call for call in target.calls if call[0] == "forward"] == [("forward", 0, [9, 10, 11, 3, 20], 5)]


@pytest.mark.parametrize(("n", "drafted"), [(0, []), (1, [0]), (2, [1]), (4, [3]), (5, [4]), (6, [4, 0]), (9, [4, 3])])
def test_exactly_as_many_tokens_as_were_asked_for(n, drafted):
    """29. A perfect draft and gamma 4: near the end fewer tokens are drafted, so nothing has to be thrown away."""
    target, draft = counting(), counting()
    trace = greedy(target, ModelDrafter(draft), max_new_tokens=n)
    assert trace.tokens == tuple(range(2, 2 + n)) and trace.finish == "length"
    assert [len(round.draft) for round in trace.rounds] == drafted
    assert sum(len(round.verdict.tokens) for round in trace.rounds) == n
    read = [call[2] for call in draft.calls if call[0] == "forward"]
    assert len(read) == sum(drafted)


class Silent:
    """A drafter that never has a guess."""

    def start(self, prompt):
        pass

    def propose(self, context, gamma, warp, dice):
        return Draft((), ()), np.zeros((0, VOCABULARY))

    def commit(self, tokens, features=None):
        pass


class Unasked(Silent):
    """A drafter that must not be asked."""

    def propose(self, context, gamma, warp, dice):
        pytest.fail("asked for a draft of no tokens")


@pytest.mark.parametrize(("drafter", "gamma"), [
    (None, 4), (Unasked(), 0), (Silent(), 4), (ModelDrafter(counting(vocab_size=2)), 4),
], ids=["no drafter", "gamma 0", "empty draft", "unknown token"])
def test_without_a_draft_each_token_takes_one_target_pass_and_rates_are_none(drafter, gamma):
    """30. Four ways to have no draft are one decode."""
    target = counting()
    trace = greedy(target, drafter, prompt=(5,), gamma=gamma, max_new_tokens=3)
    assert trace.tokens == (6, 7, 8) and trace.kinds == ("bonus",) * 3 and trace.tokens_per_pass == 1
    forwards = [call for call in target.calls if call[0] == "forward"]
    assert forwards == [("forward", place, [5 + place], place + 1) for place in range(3)]
    assert trace.alpha is trace.acceptance is trace.accepted_over_drafted is None
    assert trace.survival == trace.acceptance_by_position == ()


@pytest.mark.parametrize("gamma", [3, 4, 100])
def test_a_gamma_beyond_what_is_left_is_cut_to_it(gamma):
    """30. Four tokens are left: three are drafted and the pass adds the fourth, whatever larger gamma was asked for."""
    target = counting()
    trace = greedy(target, ModelDrafter(counting()), gamma=gamma, max_new_tokens=4)
    assert trace.tokens == (2, 3, 4, 5) and len(trace.rounds) == 1 and len(trace.rounds[0].draft) == 3
    assert [call for call in target.calls if call[0] == "forward"] == [("forward", 0, [1, 2, 3, 4], 4)]


def test_no_tokens_asked_for_are_no_pass_and_no_rate():
    """30. Nothing to divide by is None and no exception."""
    target, draft = counting(), counting()
    trace = greedy(target, ModelDrafter(draft), max_new_tokens=0)
    assert trace.tokens == trace.rounds == () and trace.finish == "length"
    assert trace.tokens_per_pass is trace.alpha is trace.acceptance is None
    assert not [call for call in target.calls + draft.calls if call[0] == "forward"]


def test_a_draft_with_fewer_tokens_leaves_the_law_exactly_the_targets():
    """31. The draft knows tokens 0 and 1 of three: its rows are padded with zeros."""
    P, Q = [row(5, 3, 2), row(1, 6, 3), row(1, 1, 1)], [row(1, 3), row(2, 1)]
    found = law.exact_law(lambda dice: tuple(
        token
        for round in decode.rounds(
            toy.markov_model(P), [0], ModelDrafter(toy.markov_model(Q)), gamma=2, max_new_tokens=3, warp=SAME, dice=dice
        )
        for token in round.tokens
    ))
    assert found == plain_text_law(P, 3)


@pytest.mark.parametrize("drafter", [ModelDrafter(counting(vocab_size=65)), ModelDrafter(counting(vocab_size=80))])
def test_a_draft_with_more_tokens_is_refused_before_anything_is_read(drafter):
    """31. Mass on tokens that the target lacks could only be rejected, or index past the end of a row."""
    target = counting()
    with pytest.raises(ValueError, match=f"^drafter: vocabulary of {drafter.vocab_size}, expected at most .* 64"):
        greedy(target, drafter)
    assert target.calls == drafter.model.calls == []


def test_a_proposed_row_that_is_wider_than_the_vocabulary_is_refused():
    """31. The same for a drafter that does not say what its vocabulary is; the target stays as it was."""
    drafter, target = Silent(), counting()
    drafter.propose = lambda context, gamma, warp, dice: ([2], np.eye(65)[[2]])
    with pytest.raises(ValueError, match=r"^drafter: q of shape \(1, 65\) for 1 tokens, expected \[1, 64\]"):
        greedy(target, drafter)
    assert target.length == 0


def divergence(one, other):
    """The first place where two texts differ, or None."""
    return next((place for place, pair in enumerate(zip(one, other)) if pair[0] != pair[1]), None)


@pytest.mark.parametrize("gamma", range(1, 6))
def test_greedy_text_is_plain_decodes_in_float64(gamma):
    """45. One row at a time and gamma + 1 at once: in float64 the texts are compared, and they are equal."""
    plain = greedy(random_gpt2(0), None, PROMPT, max_new_tokens=50)
    trace = greedy(random_gpt2(0), ModelDrafter(random_gpt2(1)), PROMPT, gamma=gamma, max_new_tokens=50)
    assert trace.tokens == plain.tokens
    assert 0 < trace.acceptance < 1


def nearly_tied(seed, twins=5):
    """A float32 GPT-2 with five pairs of tokens whose logits hardly differ: where one leads, the other nearly does."""
    config = Config(**{**vars(CONFIG), "vocab_size": 40, "width": 48})
    tensors = random_tensors(config, seed, scale=0.4)
    words = tensors["wte.weight"]
    words[twins : 2 * twins] = words[:twins] + 1e-8 * np.random.default_rng(seed).normal(size=(twins, config.width))
    return GPT2(config, tensors, "float32")


@pytest.mark.parametrize("seed", range(4))
def test_in_float32_greedy_texts_part_at_near_ties_alone(seed):
    """45. Float32 rows differ in the last digits, so the first place where two texts part must be a near tie."""
    target = nearly_tied(seed)
    plain = greedy(target, None, PROMPT, max_new_tokens=50).tokens
    found = greedy(target, ModelDrafter(nearly_tied(9)), PROMPT, max_new_tokens=50).tokens
    ties, place = decode.near_ties(target, PROMPT, plain), divergence(found, plain)
    assert 0 < len(ties) < 50
    assert place is None or place in dict(ties)


# The end of the context


def test_a_context_that_ends_stops_with_fewer_tokens_and_says_so():
    """Sixteen places, seven of them the prompt's: nine new tokens, the last of which is in no cache."""
    target, draft = Ledger(random_gpt2(0, max_length=16)), Ledger(random_gpt2(1, max_length=16))
    trace = decode.generate(target, PROMPT, ModelDrafter(draft), gamma=4, max_new_tokens=50,
                            dice=RandomDice(np.random.default_rng(0)))
    assert len(trace.tokens) == 9 and trace.finish == "context"
    assert target.length == 15 and max(call[-1] for call in target.calls + draft.calls) <= 16
    exact = decode.generate(target, PROMPT, ModelDrafter(draft), gamma=4, max_new_tokens=9)
    assert len(exact.tokens) == 9 and exact.finish == "length"


def test_the_command_line_says_that_the_context_ended(tmp_path):
    folder = write_folder(tmp_path / "model")
    command = [sys.executable, "-m", "specnotes", "generate", "c", "--target", folder, "--draft", folder]
    run = lambda *more: subprocess.run([*command, *more], capture_output=True, text=True, timeout=60)
    assert "stopped early: the context of 16 tokens is full" in run("--max-new-tokens", "40").stdout
    assert "stopped early" not in run("--max-new-tokens", "15").stdout
    record = json.loads(run("--max-new-tokens", "40", "--json").stdout)
    assert record["finish"] == "context" and len(record["tokens"]) == 15
