import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from specnotes import plots
from specnotes.records import Draft, Round, Verdict
from specnotes.serving import Served
from specnotes.trace import Trace, pieces

RECORD = {
    "alpha": 0.8, "settings": {"temperature": 0.7},
    "verify_cost": {str(k): 1 + 0.1 * (k - 1) for k in range(1, 10)},
    "rows": [
        {"gamma": g, "speedup": 1.5, "speedup_low": 1.4, "speedup_high": 1.7, "predicted_flat": 2.0, "predicted_measured": 1.6}
        for g in (1, 2, 3)
    ],
}

ROOFLINE_RECORD = {
    "bandwidth_bytes_per_s": 10e9, "peak_flop_per_s": 100e9, "context": 0,
    "models": {
        name: {
            "shape": {"layers": 1, "width": 8, "heads": 1, "parameters": 10**6, "kv_width": 8, "bytes_per_weight": 4},
            "position_cost": {str(k): {"minimum": 5e-4, "median": 6e-4} for k in (1, 2, 30)},
            "fit": {"predicted": {str(k): 5e-4 for k in (1, 2, 30)}},
        }
        for name in ("a", "b")
    },
}
SERVED = [Served(100.0, 0.01, 0.0, 2.0, 0.9), Served(150.0, 0.02, 0.1, 4.0, 1.0)]


@pytest.mark.parametrize(
    "figure",
    [
        lambda: plots.overlap([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]),
        lambda: plots.overlap([1.0], [1.0]),
        lambda: plots.speedup_curves((0.5, 0.9), 0.05),
        lambda: plots.tokens_histogram(0.8, 4),
        lambda: plots.position_costs({"one": RECORD["verify_cost"], "other": {1: 1.0, 2: 1.4}}),
        lambda: plots.measured_at_temperatures([RECORD, RECORD]),
        lambda: plots.measured_speedup(RECORD),
        lambda: plots.tree_and_mask(["a", "b", "c"], [-1, -1, 0]),
        lambda: plots.measured_roofline(ROOFLINE_RECORD),
        lambda: plots.gain_over_batch({"flat": {1: 2.0, 64: 2.0}}, {"seen": {2: 1.8}}),
        lambda: plots.served_load([1.0, 2.0], {"plain": SERVED, "speculative": SERVED}),
    ],
)
def test_every_figure_shows_itself_as_the_same_png_twice(figure):
    first, second = figure()._repr_png_(), figure()._repr_png_()
    assert first == second and first.startswith(b"\x89PNG")


def test_the_overlap_figure_draws_what_it_says():
    axes = plots.overlap([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]).axes[0]
    shared, left, over = axes.containers
    assert [bar.get_height() for bar in shared] == pytest.approx([0.2, 0.3, 0.2])
    assert [bar.get_height() for bar in left] == pytest.approx([0.3, 0, 0])
    assert [(bar.get_y(), bar.get_height()) for bar in over] == [pytest.approx((0.2, 0.3))]


def test_the_measured_roofline_draws_bytes_over_bandwidth_until_arithmetic_takes_over():
    lines = {line.get_label(): line for line in plots.measured_roofline(ROOFLINE_RECORD).axes[1].lines}
    assert list(lines["roofline"].get_ydata()) == pytest.approx([0.4, 0.4, 0.6])  # ms: 4 MB, or 30 * 2e6 operations
    assert list(lines["k passes"].get_ydata()) == pytest.approx([0.5, 1.0, 15.0])


def test_the_load_figure_draws_throughput_and_milliseconds():
    left, right = plots.served_load([1.0, 2.0], {"plain": SERVED}).axes
    assert list(left.lines[0].get_ydata()) == [100.0, 150.0]
    assert list(right.lines[0].get_ydata()) == pytest.approx([10.0, 20.0])


def byte_tokenizer():
    """One token for each byte, so that a character of two bytes takes two tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: id for id, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def a_trace(tokens, kinds):
    verdict = Verdict((), tokens[-1], "bonus")
    return Trace([Round(Draft((), ()), verdict, tuple(tokens), tuple(kinds))], "length")


def test_pieces_join_to_the_decoded_text_even_inside_a_character():
    tokenizer = byte_tokenizer()
    ids = tokenizer.encode("né!").ids
    assert len(ids) == 4
    assert pieces(tokenizer, ids) == ["n", "", "é", "!"]


def test_coloured_text_marks_every_token_with_its_kind_and_escapes_html():
    tokenizer = byte_tokenizer()
    trace = a_trace(tokenizer.encode("a<b").ids, ["accepted", "recovered", "bonus"])
    shown = plots.coloured("> ", tokenizer, trace)
    html = shown._repr_html_()
    assert '<span class="sn-accepted" title="accepted">a</span>' in html
    assert '<span class="sn-recovered" title="recovered">&lt;</span>' in html
    assert "&gt; " in html and repr(shown) == "> a<b"


def test_the_comparison_draws_what_a_pass_costs_and_yields():
    row = {"name": "heads", "steps": {"draft": 0.25, "target": 1.5, "rule": 0.125}, "tokens_per_pass": 3.0,
           "speedup": 1.6, "speedup_low": 1.5, "speedup_high": 1.7}
    [axes] = plots.compared({"rows": [row, row | {"name": "a model", "tokens_per_pass": 2.0}]}).axes
    assert [bar.get_width() for bar in axes.patches] == [0.25, 0.25, 1.5, 1.5, 0.125, 0.125]
    assert [bar.get_x() for bar in axes.patches[::2]] == [0, 0.25, 1.75]
    assert list(axes.lines[0].get_xdata()) == [3.0, 2.0]
    assert [text.get_text() for text in axes.texts] == ["1.60× (1.50 to 1.70)"] * 2


@pytest.mark.parametrize("figure", [lambda: plots.measured_speedup(RECORD), lambda: plots.measured_at_temperatures([RECORD])])
def test_nothing_drawn_lies_outside_the_frame(figure):
    [axes] = figure().axes
    low, high = axes.get_ylim()
    drawn = [value for line in axes.lines for value in line.get_ydata()]
    assert low == 0 and high >= max(drawn) > 1
