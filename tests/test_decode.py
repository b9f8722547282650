import itertools
from fractions import Fraction as F

import numpy as np
import pytest

from specnotes import decode, law, rules, toy
from specnotes.dice import RandomDice
from specnotes.drafters import ModelDrafter
from specnotes.language_model import LanguageModel
from specnotes.records import Draft
from tests.exact import row, sequence_probability
from tests.features import TokenFeatures

P3 = [row(5, 3, 2), row(1, 6, 3), row(1, 1, 1)]
Q3 = [row(2, 3, 5), row(1, 1, 1), row(2, 1, 0)]
SAME = lambda rows: rows


def exact_text_law(P, Q, gamma, n, stop=(), max_length=64):
    target, drafter = toy.markov_model(P, max_length), None if Q is None else ModelDrafter(toy.markov_model(Q))
    return law.exact_law(
        lambda dice: tuple(
            token
            for round in decode.rounds(
                target, [0], drafter, gamma=gamma, max_new_tokens=n, warp=SAME, dice=dice, stop=stop
            )
            for token in round.tokens
        )
    )


def plain_text_law(P, n, stop=()):
    """The target's own law of texts that end at n tokens or at a stop token, from its table alone."""
    ended = {}
    for size in range(1, n + 1):
        for word in itertools.product(range(len(P)), repeat=size):
            stops_here = word[-1] in stop or size == n
            if stops_here and not any(token in stop for token in word[:-1]):
                probability = sequence_probability(P, 0, word)
                if probability:
                    ended[word] = probability
    return ended


@pytest.mark.parametrize("gamma", [0, 1, 2, 3])
def test_the_whole_loop_has_the_targets_law_exactly(gamma):
    assert exact_text_law(P3, Q3, gamma, 4) == plain_text_law(P3, 4)


@pytest.mark.parametrize("stop", [(2,), (0, 1)])
def test_with_a_stop_token_too(stop):
    assert exact_text_law(P3, Q3, 2, 4, stop) == plain_text_law(P3, 4, stop)


def test_where_the_context_ends_the_law_is_that_of_a_shorter_text():
    assert exact_text_law(P3, Q3, 2, 9, max_length=4) == plain_text_law(P3, 3)


def test_plain_decode_has_the_same_law():
    assert exact_text_law(P3, None, 0, 3) == plain_text_law(P3, 3)


class Watched(toy.TableModel):
    """A table model that writes down every call."""

    def __init__(self, row, vocab_size, max_length=64):
        super().__init__(row, vocab_size, max_length)
        self.calls = []

    def forward(self, tokens, parents=None, last_only=False):
        self.calls.append(("forward", self.length, list(tokens)))
        return super().forward(tokens, parents, last_only)

    def rollback(self, length):
        self.calls.append(("rollback", length))
        super().rollback(length)


def counting(vocab_size=32, max_length=64):
    """Greedy text 1, 2, 3, ...: after token t comes t + 1."""
    return Watched(lambda text: np.eye(vocab_size)[(text[-1] + 1) % vocab_size], vocab_size, max_length)


def wrong_after(limit, vocab_size=32):
    """Agrees with `counting` as long as the last token is below `limit`, then says 0."""
    say = lambda text: (text[-1] + 1) % vocab_size if text[-1] < limit else 0
    return Watched(lambda text: np.eye(vocab_size)[say(text)], vocab_size)


def run(target, drafter_model, prompt=(1,), **settings):
    settings = {"gamma": 4, "max_new_tokens": 8, "temperature": 0, "dice": RandomDice(np.random.default_rng(0))} | settings
    return decode.generate(target, prompt, drafter_model and ModelDrafter(drafter_model), **settings)


def test_models_satisfy_the_protocol():
    assert isinstance(counting(), LanguageModel)


def test_with_a_perfect_draft_every_token_is_accepted_for_ever():
    trace = run(counting(), counting(), max_new_tokens=20)
    assert trace.tokens == tuple(range(2, 22))
    assert trace.acceptance == 1.0 and trace.alpha == 1.0
    assert trace.tokens_per_pass == 5.0
    assert trace.kinds == (("accepted",) * 4 + ("bonus",)) * 4


def test_caches_are_cut_back_to_what_was_accepted():
    # committed 1..10, of which rows 0..8 are in the caches; draft 11, 12, 13, 14; 12 is wrong.
    target, draft = counting(), wrong_after(11)
    loop = decode.rounds(
        target, list(range(1, 11)), ModelDrafter(draft), gamma=4, max_new_tokens=9, warp=SAME,
        dice=RandomDice(np.random.default_rng(0)),
    )
    first = next(loop)
    assert first.draft.tokens == (11, 0, 1, 2) and first.tokens == (11, 12)
    # committed 1..12: both caches hold exactly rows 0..10, the last token is in neither
    assert target.length == draft.length == 11
    next(loop)
    assert target.calls[-1] == ("forward", 11, [12, 0, 1, 2, 3])


def test_after_full_acceptance_the_draft_reads_the_token_it_has_not_seen():
    target, draft = counting(), counting()
    run(target, draft, max_new_tokens=10)
    forwards = [call for call in draft.calls if call[0] == "forward"]
    # drafts 2..5 read tokens 1..4; token 5 (its own last draft) and the bonus 6 are read together next time
    assert forwards[0][2] == [1] and forwards[4][2] == [5, 6]


def test_one_target_pass_a_round_and_the_prompt_is_read_once():
    target = counting()
    trace = run(target, counting(), prompt=(1, 2, 3), max_new_tokens=10)
    forwards = [call for call in target.calls if call[0] == "forward"]
    assert forwards[0] == ("forward", 0, [1, 2]) and len(forwards) == 1 + len(trace.rounds)


def test_a_run_leaves_nothing_behind_for_the_next():
    target, draft = counting(), wrong_after(4)
    first = run(target, draft)
    assert run(target, draft).tokens == first.tokens == tuple(range(2, 10))


@pytest.mark.parametrize("n", range(6))
def test_never_more_tokens_than_asked(n):
    trace = run(counting(), counting(), max_new_tokens=n)
    assert len(trace.tokens) == n and trace.finish == "length"
    assert len(trace.kinds) == n


def test_one_token_with_a_perfect_draft_is_one_token():
    trace = run(counting(), counting(), max_new_tokens=1)
    assert trace.tokens == (2,) and len(trace.rounds) == 1 and len(trace.rounds[0].draft) == 0


def test_a_stop_token_inside_the_accepted_block_ends_the_text():
    trace = run(counting(), counting(), stop=(4,))
    assert trace.tokens == (2, 3, 4) and trace.kinds == ("accepted",) * 3 and trace.finish == "stop"


def test_a_stop_token_as_the_bonus_ends_the_text_and_is_kept():
    trace = run(counting(), counting(), stop=(6,))
    assert trace.tokens == (2, 3, 4, 5, 6) and trace.finish == "stop"


def test_the_context_ends_cleanly_with_fewer_tokens():
    trace = run(counting(max_length=6), counting(), max_new_tokens=50)
    assert trace.tokens == (2, 3, 4, 5, 6) and trace.finish == "context"


def test_a_prompt_that_fills_the_context_yields_nothing():
    trace = run(counting(max_length=3), None, prompt=(1, 2, 3))
    assert trace.tokens == () and trace.finish == "context" and trace.tokens_per_pass is None


def test_a_draft_with_a_smaller_context_drafts_as_long_as_it_can():
    trace = run(counting(), counting(max_length=4), max_new_tokens=12)
    assert trace.tokens == tuple(range(2, 14))
    assert [len(round.draft) for round in trace.rounds][:2] == [4, 0]


def test_a_draft_with_a_smaller_vocabulary_is_padded_with_zeros():
    trace = run(counting(32), counting(8), max_new_tokens=9)
    assert trace.tokens == tuple(range(2, 11))


def test_gamma_zero_and_no_drafter_are_the_same_plain_decode():
    assert run(counting(), counting(), gamma=0).rounds == run(counting(), None).rounds


def test_rates_of_a_plain_decode_are_none():
    trace = run(counting(), None)
    assert trace.tokens_per_pass == 1.0
    assert trace.alpha is trace.acceptance is trace.accepted_over_drafted is None
    assert trace.survival == trace.acceptance_by_position == ()


def test_the_recorded_seed_repeats_the_run():
    model = toy.markov_model(np.full((5, 5), 0.2))
    first = decode.generate(model, [0], max_new_tokens=30)
    again = decode.generate(model, [0], max_new_tokens=30, dice=RandomDice(np.random.default_rng(first.seed)))
    assert again.tokens == first.tokens and again.seed is None
    assert decode.generate(model, [0], max_new_tokens=30).seed != first.seed


class TreeDrafter:
    """Offers a wrong first child and the right one, each with a right child of its own."""

    vocab_size = 32

    def start(self, prompt):
        self.features = []

    def propose(self, context, gamma, warp, dice):
        right = context[-1] + 1
        draft = Draft((0, right, right + 1, right + 1), (-1, -1, 0, 1))
        return draft, np.eye(32)[list(draft.tokens)]

    def commit(self, tokens, features):
        self.features.append((tuple(tokens), features))


def test_a_tree_goes_through_the_same_loop():
    trace = decode.generate(
        counting(), [1], TreeDrafter(), gamma=2, max_new_tokens=6, temperature=0, rule=rules.greedy_rule
    )
    assert trace.tokens == (2, 3, 4, 5, 6, 7) and [round.verdict.path for round in trace.rounds] == [(1, 3)] * 2


@pytest.mark.parametrize(
    "change, name",
    [
        ({"prompt": ()}, "prompt"), ({"prompt": (99,)}, "prompt"), ({"prompt": (1,) * 65}, "prompt"),
        ({"gamma": -1}, "gamma"), ({"gamma": 1.5}, "gamma"), ({"max_new_tokens": -1}, "max_new_tokens"),
        ({"temperature": -0.5}, "temperature"), ({"top_k": 0}, "top_k"), ({"top_p": 2}, "top_p"),
        ({"stop": (32,)}, "stop"), ({"stop": 3}, "stop"), ({"prompt": None}, "prompt"), ({"gamma": float("nan")}, "gamma"),
        ({"temperature": "1"}, "temperature"), ({"top_k": 2.0}, "top_k"), ({"top_p": "x"}, "top_p"),
    ],
)
def test_bad_arguments_are_refused_by_name_before_a_cache_is_touched(change, name):
    target, draft = counting(), counting()
    target.forward([7, 8])
    with pytest.raises(ValueError, match=f"^{name}: "):
        run(target, draft, **change)
    assert target.length == 2 and draft.calls == []


def test_a_drafter_with_tokens_the_target_lacks_is_refused():
    with pytest.raises(ValueError, match="^drafter: vocabulary of 32"):
        run(counting(8), counting(32))


def test_max_new_tokens_must_be_given():
    with pytest.raises(TypeError):
        decode.generate(counting(), [1])


class Proposes:
    """A drafter that proposes whatever it was told to."""

    def __init__(self, draft, q):
        self.draft, self.q = draft, q

    def start(self, prompt):
        pass

    def propose(self, context, gamma, warp, dice):
        return self.draft, self.q

    def commit(self, tokens, features=None):
        pass


ROWS = np.eye(32)


@pytest.mark.parametrize(
    "draft, q, words",
    [
        ([2, 3, 4], ROWS[[2, 3, 4]], "proposed 3 tokens in a row, expected at most gamma = 2"),
        ([2, 3], None, r"q of shape \(\) for 2 tokens"),
        ([2, 3], ROWS[[2]], r"q of shape \(1, 32\) for 2 tokens, expected \[2, 32\]"),
        ([2], np.eye(40)[[2]], r"q of shape \(1, 40\)"),
    ],
)
def test_what_a_drafter_must_not_propose_is_said(draft, q, words):
    with pytest.raises(ValueError, match=f"^drafter: {words}"):
        decode.generate(counting(), [1], Proposes(draft, q), gamma=2, max_new_tokens=8)


def test_a_drafter_may_propose_plain_lists():
    proposes = Proposes([2, 3], ROWS[[2, 3]].tolist())
    trace = decode.generate(counting(), [1], proposes, gamma=2, max_new_tokens=3, temperature=0)
    assert trace.tokens == (2, 3, 4) and trace.kinds == ("accepted", "accepted", "bonus")


def test_a_model_where_a_drafter_is_expected_is_refused():
    with pytest.raises(ValueError, match="^drafter: Watched has no start and no propose and no commit, expected .* ModelDrafter"):
        decode.generate(counting(), [1], counting(), max_new_tokens=3)


def test_text_where_ids_are_expected_is_refused():
    with pytest.raises(ValueError, match="^prompt: 'hello', expected token ids"):
        decode.generate(counting(), "hello", max_new_tokens=3)


def test_a_tree_wider_than_gamma_is_no_deeper():
    assert Draft((1, 2, 3, 4), (-1, -1, 0, 0)).levels == 2 and Draft((), ()).levels == 0


def test_a_trace_prints_in_one_line():
    assert repr(run(counting(), counting(), max_new_tokens=5)) == "Trace(5 tokens in 1 passes, finish='length', seed=None)"


def test_one_model_as_target_and_draft_is_refused():
    model = counting()
    with pytest.raises(ValueError, match="^drafter: its model is the target itself"):
        run(model, model)


def test_stop_tokens_may_come_from_an_iterator():
    trace = run(counting(), counting(), stop=iter([4]))
    assert trace.tokens == (2, 3, 4) and trace.finish == "stop"


@pytest.mark.parametrize("change, name", [({"dice": np.random.default_rng(0)}, "dice"), ({"rule": None}, "rule")])
def test_what_is_no_dice_or_rule_is_refused(change, name):
    with pytest.raises(ValueError, match=f"^{name}: "):
        run(counting(), counting(), **change)


def test_a_rule_that_fails_leaves_the_target_as_it_was_before_the_pass():
    def failing(p, q, draft, dice):
        raise ValueError("no")

    target = counting()
    with pytest.raises(ValueError, match="^no$"):
        run(target, counting(), prompt=(1, 2, 3), rule=failing)
    assert target.length == 2


def test_a_loop_whose_target_was_used_by_another_says_so():
    target = counting()
    loop = decode.rounds(target, [1], gamma=0, max_new_tokens=9, warp=SAME, dice=RandomDice(np.random.default_rng(0)))
    next(loop)
    decode.generate(target, [1, 2, 3], max_new_tokens=5, temperature=0)
    with pytest.raises(ValueError, match="^target: 7 rows in its cache, expected 1"):
        next(loop)


class Bush(TreeDrafter):
    """Offers four first tokens, the right one among them."""

    def propose(self, context, gamma, warp, dice):
        tokens = (0, context[-1] + 1, 30, 31)
        return Draft(tokens, (-1,) * 4), np.eye(32)[list(tokens)]


def test_near_the_end_of_the_context_a_tree_that_would_not_fit_is_not_drafted():
    bush = Bush()
    bush.max_nodes = 4
    settings = {"gamma": 1, "max_new_tokens": 20, "temperature": 0, "rule": rules.greedy_rule}
    trace = decode.generate(counting(max_length=9), [1], bush, **settings)
    assert trace.tokens == (2, 3, 4, 5, 6, 7, 8, 9) and trace.finish == "context"
    # 1, 3 and 5 tokens leave room for four more rows, 7 do not
    assert [len(round.draft) for round in trace.rounds] == [4, 4, 4, 0, 0]
    with pytest.raises(ValueError, match="^drafter: proposed 4 nodes with room for 2"):
        decode.generate(counting(max_length=9), [1], Bush(), **settings)


def test_a_table_model_that_fails_keeps_its_cache():
    model = toy.TableModel(lambda text: [0.5, 0.5] if len(text) < 2 else 1 / 0, vocab_size=2)
    with pytest.raises(ZeroDivisionError):
        model.forward([0, 1])
    assert model.length == 0


@pytest.mark.parametrize("prompt", [[1], [1, 2, 3]])
def test_a_drafter_that_reads_gets_the_feature_before_every_token_but_the_first(prompt):
    class Reader(Proposes):
        def read(self, features):
            self.features = [] if features is None else list(features)

        def commit(self, tokens, features=None):
            assert len(features) == len(tokens)  # also where the length limit cuts what the pass emitted
            self.features += list(features)

    # After every token comes 0, and the feature of a token is that token.
    drafter = Reader(Draft((4, 0, 0), (-1, -1, 1)), np.eye(5)[[4, 0, 0]])
    target = TokenFeatures([[9.0, 0.0, 0.0, 0.0, 0.0]] * 5)
    found = decode.generate(target, prompt, drafter, gamma=2, max_new_tokens=7, temperature=0, rule=rules.greedy_rule)
    assert [len(round.tokens) for round in found.rounds] == [3, 3, 1]
    assert [feature.tolist() for feature in drafter.features] == [[token] for token in [*prompt, *found.tokens][:-1]]
