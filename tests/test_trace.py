import pytest

from specnotes.records import Draft, Round, Verdict
from specnotes.trace import Trace


def a_round(drafted, accepted, beta=0.5):
    kind = "bonus" if accepted == drafted else "recovered"
    verdict = Verdict(tuple(range(accepted)), 9, kind, (1,) * accepted)
    return Round(Draft.chain([1] * drafted), verdict, verdict.tokens, verdict.kinds, (beta,) * (accepted + (kind == "recovered")))


def a_log(counts, gamma):
    """A trace with counts[n] passes that accepted n of gamma drafts."""
    return Trace([a_round(gamma, n) for n, times in enumerate(counts) for _ in range(times)], "length")


def a_published_log():
    """87 passes, 3 drafts each but for two passes of 2 (259 drafted), 167 accepted.

    Survival .805, .632, .483: 70, 55 and 42 passes got that far.
    """
    rounds = [a_round(3, n) for n, times in ((0, 15), (1, 15), (2, 13), (3, 42)) for _ in range(times)]
    return Trace(rounds + [a_round(2, 0)] * 2, "length")


def test_a_published_log_is_reproduced():
    trace = a_published_log()
    assert len(trace.rounds) == 87 and sum(trace.accepted_counts) == 167
    assert [round(value, 3) for value in trace.survival] == [0.805, 0.632, 0.483]
    assert round(trace.accepted_over_drafted, 3) == 0.645
    assert round(trace.tokens_per_pass, 2) == 2.92
    assert [round(value, 3) for value in trace.acceptance_by_position] == [0.805, 0.786, 0.764]


def test_tokens_per_pass_is_one_more_than_the_sum_of_survival():
    trace = a_log([3, 2, 4, 1], gamma=3)
    assert trace.tokens_per_pass == pytest.approx(1 + sum(trace.survival))


def test_four_rates_of_one_run_by_hand():
    # gamma 2: one pass accepts both, one accepts the first, one accepts none.
    trace = Trace([a_round(2, 2, 0.9), a_round(2, 1, 0.6), a_round(2, 0, 0.3)], "length", seed=1)
    assert trace.acceptance == 3 / 5  # examined: 2 + 2 + 1
    assert trace.accepted_over_drafted == 3 / 6
    assert trace.alpha == pytest.approx((0.9 * 2 + 0.6 * 2 + 0.3) / 5)
    assert trace.survival == (2 / 3, 1 / 3)
    assert trace.acceptance_by_position == (2 / 3, 1 / 2)
    assert trace.tokens_per_pass == 2.0
    assert trace.kinds == ("accepted", "accepted", "bonus", "accepted", "recovered", "recovered")


def test_an_empty_run_has_no_rates():
    trace = Trace((), "length")
    assert trace.tokens == () and trace.tokens_per_pass is None and trace.alpha is None and trace.survival == ()


def test_the_survival_of_a_tree_goes_by_its_levels():
    def siblings(path, token, kind):
        tree = Draft((0, 1, 2), (-1, -1, -1))
        return Round(tree, Verdict(path, token, kind, tuple(tree.tokens[i] for i in path)), (0,), ("bonus",))

    trace = Trace((siblings((0,), 0, "bonus"), siblings((2,), 0, "bonus"), siblings((), 1, "recovered")), "length")
    assert trace.survival == trace.acceptance_by_position == (2 / 3,)


def test_where_a_draft_branched_there_is_no_alpha():
    chain = Round(Draft.chain([1]), Verdict((0,), 2, "bonus", (1,)), (1, 2), ("accepted", "bonus"), (0.5,))
    tree = Round(Draft((1, 2), (-1, -1)), Verdict((), 0, "recovered"), (0,), ("recovered",))
    assert Trace([chain], "length").alpha == 0.5 and Trace([chain, tree], "length").alpha is None
    assert Trace([chain, tree], "length").acceptance == 0.5
