import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from specnotes import roofline, theory
from specnotes.serving import Server, arrivals, constant_load, expected_passes, load_curve, serve

A100 = "A100-80GB-SXM"
PLAIN = Server(A100, "7B", context=128)
SPECULATIVE = Server(A100, "7B", context=128, gamma=4, alpha=0.6, c=0.05)


def rng(seed=0):
    return np.random.default_rng(seed)


def passes_moments(law, tokens):
    """Mean and variance of the passes a request takes, from the exact law of their number."""
    still = {tokens: 1.0}  # tokens to come -> probability, after so many passes
    mean = square = 0.0
    for count in itertools.count(1):
        following = {}
        for left, share in still.items():
            for emitted, probability in enumerate(law, start=1):
                following[max(0, left - emitted)] = following.get(max(0, left - emitted), 0) + share * probability
        done = following.pop(0, 0.0)
        mean, square, still = mean + count * done, square + count**2 * done, following
        if not still:
            return mean, square - mean**2


def test_plain_requests_that_start_together_finish_together_at_the_closed_form():
    served = serve(PLAIN, [3.0] * 8, 50, rng())
    step = roofline.step_seconds(A100, "7B", 1, 8, 128)
    assert served.tokens_per_s == pytest.approx(8 / step, rel=1e-12)
    assert served.seconds_per_token == pytest.approx(step, rel=1e-12)
    assert (served.mean_batch, served.busy, served.waiting_seconds) == pytest.approx((8, 1, 0))
    assert constant_load(PLAIN, 8) == constant_load(PLAIN, 8, 50) == pytest.approx((8 / step, step), rel=1e-12)


def test_drafts_are_free_and_places_plenty_unless_said_otherwise():
    assert Server(A100, "7B", gamma=3).pass_seconds(9) == roofline.step_seconds(A100, "7B", 4, 9, 0)
    assert serve(Server(A100, "7B"), [0.0] * 300, 1, rng()).waiting_seconds > 0
    assert serve(Server(A100, "7B"), [0.0] * 256, 1, rng()).waiting_seconds == 0


@pytest.mark.parametrize("tokens, passes", [(5, 1), (6, 2), (10, 2), (11, 3)])
def test_where_every_draft_is_accepted_a_request_takes_its_tokens_over_gamma_plus_one(tokens, passes):
    server = Server(A100, "7B", gamma=4, alpha=1.0, c=0.1)
    served = serve(server, [0.0, 0.0], tokens, rng())
    seconds = 4 * 0.1 * roofline.step_seconds(A100, "7B", 1, 2, 0) + roofline.step_seconds(A100, "7B", 5, 2, 0)
    assert served.tokens_per_s == pytest.approx(2 * tokens / (passes * seconds), rel=1e-12)


def test_where_no_draft_is_accepted_the_drafts_are_lost_time():
    served = serve(Server(A100, "7B", gamma=3, alpha=0.0, c=0.2), [0.0], 20, rng())
    plain = serve(Server(A100, "7B"), [0.0], 20, rng())
    assert plain.tokens_per_s / served.tokens_per_s == pytest.approx(1.6, rel=1e-12)


def test_a_server_that_is_never_empty_reaches_the_closed_form_within_four_standard_errors():
    server, requests, tokens, batch = Server(A100, "7B", 128, 4, 0.6, 0.05, max_batch=8), 800, 40, 8
    served = serve(server, [0.0] * requests, tokens, rng(3))
    mean, variance = passes_moments(theory.tokens_distribution(0.6, 4), tokens)
    assert expected_passes(server.law, tokens) == pytest.approx(mean, rel=1e-12)
    ideal = constant_load(server, batch, tokens)[0]
    spread = 4 * math.sqrt(variance / requests) / mean
    emptying = tokens * batch / (requests * mean)  # at most `tokens` steps in which places are free
    assert (1 - spread - emptying) < served.tokens_per_s / ideal < 1 + spread


def test_requests_far_apart_are_served_alone_within_four_standard_errors():
    tokens, requests = 30, 500
    served = serve(SPECULATIVE, 100.0 * np.arange(requests), tokens, rng(1))
    mean, variance = passes_moments(theory.tokens_distribution(0.6, 4), tokens)
    passes = served.seconds_per_token * tokens / SPECULATIVE.pass_seconds(1)
    assert abs(passes - mean) < 4 * math.sqrt(variance / requests)
    assert served.mean_batch == pytest.approx(1) and served.waiting_seconds == 0


def test_expected_passes_are_those_of_every_way_a_request_can_go():
    law = [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)]
    total = Fraction(0)
    for way in itertools.product(range(3), repeat=4):  # four passes are always enough for four tokens
        emitted = list(itertools.accumulate(index + 1 for index in way))
        total += math.prod(law[index] for index in way) * next(n for n, sum in enumerate(emitted, 1) if sum >= 4)
    assert expected_passes(law, 4) == total


def test_the_end_of_a_long_request_does_not_matter():
    law = theory.tokens_distribution(0.7, 5)
    assert 10_000 / expected_passes(law, 10_000) == pytest.approx(theory.expected_tokens(0.7, 5), rel=1e-3)


@pytest.mark.parametrize("batch", [1, 20, 36, 64, 256])
def test_the_gain_at_constant_load_is_the_speed_up_of_the_roofline(batch):
    gain = constant_load(SPECULATIVE, batch)[0] / constant_load(PLAIN, batch)[0]
    assert gain == pytest.approx(roofline.speculation_speedup(A100, "7B", 0.6, 4, batch, 128, c=0.05), rel=1e-12)


@pytest.mark.parametrize("server", [PLAIN, SPECULATIVE])
def test_running_requests_are_throughput_times_their_stay(server):
    # Little's law, which holds exactly over a run that begins and ends empty.
    served = serve(server, arrivals(30.0, 100, rng(2)), 25, rng(4))
    assert served.mean_batch * served.busy == pytest.approx(served.tokens_per_s * served.seconds_per_token, rel=1e-9)


def test_a_request_waits_for_a_free_place():
    served = serve(Server(A100, "7B", max_batch=1), [0.0, 0.0, 0.0], 10, rng())
    each = 10 * roofline.step_seconds(A100, "7B", 1, 1, 0)
    assert served.waiting_seconds == pytest.approx((0 + 1 + 2) * each / 3, rel=1e-12)
    assert served.mean_batch == 1


def test_a_request_that_arrives_during_a_step_starts_with_the_next_one():
    step = roofline.step_seconds(A100, "7B", 1, 1, 0)  # the same at batch 2: both are bound by reading
    served = serve(Server(A100, "7B"), [0.0, 0.5 * step], 2, rng())
    assert served.waiting_seconds == pytest.approx(0.25 * step, rel=1e-9)
    assert served.tokens_per_s == pytest.approx(4 / (3 * step), rel=1e-9)
    assert served.mean_batch == pytest.approx(4 / 3, rel=1e-9)


def test_an_empty_server_jumps_to_the_next_arrival():
    served = serve(Server(A100, "7B"), [0.0, 10.0], 1, rng())
    step = roofline.step_seconds(A100, "7B", 1, 1, 0)
    assert served.busy == pytest.approx(2 * step / (10 + step), rel=1e-12)


def test_the_same_seed_gives_the_same_run_and_arrivals_do_not_depend_on_the_server():
    again = load_curve(SPECULATIVE, [5.0, 50.0], requests=40, tokens=20)
    assert load_curve(SPECULATIVE, [5.0, 50.0], requests=40, tokens=20) == again
    assert load_curve(SPECULATIVE, [5.0, 50.0], requests=40, tokens=20, seed=1) != again
    assert arrivals(5.0, 40, rng(7)).tolist() == pytest.approx((10 * arrivals(50.0, 40, rng(7))).tolist())


def test_speculation_helps_a_server_at_low_load_and_hurts_one_whose_batch_is_full():
    poor = Server(A100, "7B", context=0, gamma=4, alpha=0.3, c=0.05)
    plain = Server(A100, "7B", context=0)
    (low, high), (low_plain, high_plain) = (load_curve(server, [0.5, 400.0], 300, 50) for server in (poor, plain))
    assert low.seconds_per_token < low_plain.seconds_per_token
    assert high.tokens_per_s < high_plain.tokens_per_s


def test_gaps_between_arrivals_have_the_mean_of_their_rate_within_four_standard_errors():
    times = arrivals(4.0, 10_000, rng(5))
    assert abs(times[-1] / 10_000 - 0.25) < 4 * 0.25 / 100


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: Server("A1000", "7B"), "hardware: 'A1000'"),
        (lambda: Server(A100, "7B", context=-1), "context: -1"),
        (lambda: Server(A100, "7B", gamma=-1), "gamma: -1"),
        (lambda: Server(A100, "7B", gamma=2.0), "gamma: 2.0"),
        (lambda: Server(A100, "7B", alpha=1.1), "alpha: 1.1"),
        (lambda: Server(A100, "7B", c=-0.1), "c: -0.1"),
        (lambda: Server(A100, "7B", max_batch=0), "max_batch: 0"),
        (lambda: PLAIN.pass_seconds(0), "batch: 0"),
        (lambda: constant_load(PLAIN, 1.5), "batch: 1.5"),
        (lambda: constant_load(PLAIN, 1, tokens=0), "tokens: 0"),
        (lambda: expected_passes([1.0], True), "tokens: True"),
        (lambda: arrivals(0, 3, rng()), "rate_per_s: 0"),
        (lambda: arrivals(float("nan"), 3, rng()), "rate_per_s: nan"),
        (lambda: arrivals(1.0, 0, rng()), "requests: 0"),
        (lambda: serve(PLAIN, [], 3, rng()), "times: "),
        (lambda: serve(PLAIN, [1.0, 0.0], 3, rng()), "times: "),
        (lambda: serve(PLAIN, [0.0, float("inf")], 3, rng()), "times: "),
        (lambda: serve(PLAIN, [0.0], 0, rng()), "tokens: 0"),
    ],
)
def test_nonsense_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()


def test_a_first_arrival_however_late_is_when_the_clock_starts():
    server = Server("A100-80GB-SXM", "7B")
    early, late = (serve(server, [start, start], 10, np.random.default_rng(0)) for start in (0.0, 1e20))
    assert late == early


@pytest.mark.parametrize("law", [[], [0.5, 0.1], [np.nan, 1.0], [1.5, -0.5]])
def test_passes_are_counted_under_a_law_only(law):
    with pytest.raises(ValueError, match="law: .* expected probabilities that sum to 1"):
        expected_passes(law, 3)


def test_a_rate_so_low_that_nobody_ever_comes_is_refused():
    with pytest.raises(ValueError, match="rate_per_s: 1e-320"):
        arrivals(1e-320, 3, np.random.default_rng(0))
