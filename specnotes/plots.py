"""The book's figures, and text with its tokens coloured by kind.

One look for all: colours from the Okabe-Ito palette, told apart without colour vision, on a white card
that reads in light and dark pages; line styles and markers differ as well. Every function returns a
Picture of fixed size, which a notebook shows when it is a cell's last value.
"""

import html
import io

import numpy as np
from matplotlib.figure import Figure

from specnotes import roofline, theory
from specnotes.trace import pieces
from specnotes.tree import ancestor_mask, depths

INK, GREY, BLUE, ORANGE, GREEN = "#1f2937", "#9aa3af", "#0072b2", "#d55e00", "#009e73"
KINDS = {"accepted": "sn-accepted", "recovered": "sn-recovered", "bonus": "sn-bonus"}
DPI = 150


class Picture(Figure):
    """A Figure that shows itself as PNG in a notebook, whichever plotting backend is in use."""

    def _repr_png_(self):
        png = io.BytesIO()
        self.savefig(png, format="png", metadata={"Software": None})
        return png.getvalue()


def _axes(width=5.2, height=3.0, xlabel="", ylabel=""):
    figure = Picture(figsize=(width, height), dpi=DPI, layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    _plain(axes, xlabel, ylabel)
    return figure, axes


def overlap(p, q):
    """Bars of p and q [V] side by side; the part they share, min(p, q), is filled.

    >>> type(overlap([0.5, 0.5], [0.9, 0.1])).__name__
    'Picture'
    """
    p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    tokens = np.arange(len(p))
    figure, axes = _axes(height=3.4, xlabel="token", ylabel="probability")
    axes.bar(tokens, np.minimum(p, q), 0.72, color=BLUE, label="min(p, q): accepted")
    axes.bar(tokens, np.maximum(p - q, 0), 0.72, np.minimum(p, q), color=ORANGE, hatch="//", edgecolor="white",
             label="p above q: the residual")
    over = q > p
    axes.bar(tokens[over], (q - p)[over], 0.72, p[over], facecolor="none", edgecolor=INK, linestyle="--",
             label="q above p: rejected")
    axes.set_xticks(tokens)
    figure.legend(loc="outside upper left", frameon=False)
    return figure


def speedup_curves(alphas, c, max_gamma=16):
    """Speed-up by formula over gamma, one curve for each alpha, its best gamma marked."""
    figure, axes = _axes(xlabel="drafted tokens γ", ylabel="speed-up")
    gammas = range(max_gamma + 1)
    for alpha, colour, style in zip(alphas, (GREY, GREEN, BLUE, ORANGE), (":", "-.", "-", "--")):
        axes.plot(gammas, [theory.speedup(alpha, gamma, c) for gamma in gammas], style, color=colour)
        best, gain = theory.best_gamma(alpha, c, max_gamma)
        axes.plot(best, gain, "o", color=colour)
        axes.annotate(f"α = {alpha:g}", (max_gamma, theory.speedup(alpha, max_gamma, c)), xytext=(4, 0),
                      textcoords="offset points", color=INK, va="center")
    axes.axhline(1, color=INK, linewidth=0.8)
    axes.set_ylim(0)
    return figure


def tokens_histogram(alpha, gamma):
    """Bars of the law of the number of tokens a pass emits, its mean marked."""
    pmf = theory.tokens_distribution(alpha, gamma)
    figure, axes = _axes(height=2.5, xlabel="tokens emitted in a pass", ylabel="probability")
    axes.bar(range(1, gamma + 2), pmf, 0.72, color=BLUE)
    mean = theory.expected_tokens(alpha, gamma)
    axes.axvline(mean, color=ORANGE, linestyle="--")
    axes.annotate(f"mean {mean:.2f}", (mean, max(pmf)), xytext=(6, -4), textcoords="offset points", color=INK)
    axes.set_xticks(range(1, gamma + 2))
    return figure


def measured_speedup(record):
    """Measured speed-up over gamma with its interval, and the two predictions, from a record of `measure`."""
    rows = record["rows"]
    gammas = [row["gamma"] for row in rows]
    figure, axes = _axes(xlabel="drafted tokens γ", ylabel="speed-up over plain decode")
    _with_intervals(axes, rows, "o", BLUE, "measured, 95 % interval")
    axes.plot(gammas, [row["predicted_flat"] for row in rows], "--", color=GREY, label="formula, flat verify cost")
    axes.plot(gammas, [row["predicted_measured"] for row in rows], "-", color=ORANGE, label="formula, measured verify cost")
    axes.set_ylim(0)  # last, as it fixes the upper end too
    axes.legend(frameon=False)
    return figure


def _with_intervals(axes, rows, style, colour, label):
    gammas, middle = [row["gamma"] for row in rows], np.array([row["speedup"] for row in rows])
    spread = [middle - [row["speedup_low"] for row in rows], [row["speedup_high"] for row in rows] - middle]
    axes.errorbar(gammas, middle, spread, fmt=style, color=colour, markersize=5, capsize=4, label=label)
    axes.axhline(1, color=INK, linewidth=0.8)
    axes.set_xticks(gammas)


def position_costs(curves):
    """Cost of a pass over k positions against a pass over one, {name: {k: t(k) / t(1)}}, one line a name.

    >>> type(position_costs({"a model": {1: 1.0, 2: 1.5}})).__name__
    'Picture'
    """
    figure, axes = _axes(xlabel="positions in one pass, k", ylabel="t(k) / t(1)")
    for (name, curve), colour, style in zip(curves.items(), (BLUE, GREEN, ORANGE), ("o-", "s-.", "^--")):
        axes.plot([int(k) for k in curve], list(curve.values()), style, color=colour, markersize=4, label=name)
    ks = sorted({int(k) for curve in curves.values() for k in curve})
    axes.plot(ks, ks, ":", color=GREY, label="k passes, one after another")
    axes.axhline(1, color=INK, linewidth=0.8)
    axes.set_xticks(ks)
    axes.set_ylim(0, 1.15 * max(max(curve.values()) for curve in curves.values()))
    axes.legend(frameon=False)
    return figure


def measured_at_temperatures(records):
    """Measured speed-up over gamma with its interval, one line for each record of `measure`."""
    figure, axes = _axes(xlabel="drafted tokens γ", ylabel="speed-up over plain decode")
    for record, colour, style in zip(records, (BLUE, GREEN, ORANGE), ("o-", "s-.", "^--")):
        label = f"temperature {record['settings']['temperature']:g}, α = {record['alpha']:.2f}"
        _with_intervals(axes, record["rows"], style, colour, label)
    axes.set_ylim(0)
    axes.legend(frameon=False)
    return figure


def compared(record):
    """What a pass costs and what it yields, for each way of a record of `measure.compare`.

    Bars: drafting, verifying and the rule, in plain decode steps. Diamonds: tokens per pass. A diamond to the right of
    its bar is a gain; the quotient, measured as speed-up with its interval, stands beside it.
    """
    rows = record["rows"]
    figure, axes = _axes(7.6, 0.9 + 0.42 * len(rows), "plain decode steps; tokens per pass")
    left = np.zeros(len(rows))
    looks = {"draft": (ORANGE, "//", "drafting"), "target": (BLUE, None, "verifying"), "rule": (GREY, None, "rule")}
    for phase, (colour, hatch, label) in looks.items():
        width = np.array([row["steps"][phase] for row in rows])
        axes.barh(range(len(rows)), width, 0.6, left, color=colour, hatch=hatch, edgecolor="white", label=label)
        left += width
    tokens = [row["tokens_per_pass"] for row in rows]
    axes.plot(tokens, range(len(rows)), "D", color=INK, markersize=6, markeredgecolor="white", label="tokens per pass")
    right = 1.03 * max(*left, *tokens)
    for place, row in enumerate(rows):
        axes.text(right, place, f"{row['speedup']:.2f}× ({row['speedup_low']:.2f} to {row['speedup_high']:.2f})", va="center", color=INK, fontsize=9)
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.32 * right)
    axes.grid(axis="x", color="#e5e7eb", linewidth=0.8)
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside upper left", ncols=4, frameon=False)
    return figure


def measured_roofline(record):
    """Measured seconds of passes over k positions and the roofline's, bare and with its overhead, one panel a model.

    record: as tools/records.py writes it. The points are the fastest of all rounds, bars reach to the median.
    """
    card = roofline.Hardware(record["peak_flop_per_s"], record["bandwidth_bytes_per_s"], 1e12)
    figure = Picture(figsize=(7.6, 3.2), dpi=DPI, layout="constrained", facecolor="white")
    panels = figure.subplots(1, len(record["models"]), squeeze=False)[0]
    for axes, (name, found) in zip(panels, record["models"].items()):
        shape = roofline.ModelShape(**found["shape"])
        ks = [int(k) for k in found["position_cost"]]
        fastest = [1e3 * cost["minimum"] for cost in found["position_cost"].values()]
        above = [1e3 * cost["median"] - least for cost, least in zip(found["position_cost"].values(), fastest)]
        bare = [1e3 * roofline.step_seconds(card, shape, k, 1, record["context"]) for k in ks]
        with_overhead = [1e3 * seconds for seconds in found["fit"]["predicted"].values()]
        axes.plot(ks, [k * fastest[0] for k in ks], ":", color=GREY, label="k passes")
        axes.plot(ks, bare, "--", color=INK, label="roofline")
        axes.plot(ks, with_overhead, "-", color=ORANGE, label="and overhead")
        axes.errorbar(ks, fastest, [[0] * len(ks), above], fmt="o", color=BLUE, markersize=4, label="measured")
        axes.set_xticks([k for k in ks if k == 1 or k % 4 == 0])
        axes.set_ylim(0, 1.25 * max(*fastest, *with_overhead))
        _plain(axes, "positions in one pass, k", "ms", name)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    return figure


def gain_over_batch(curves, published=None):
    """Speed-up of speculation over the batch, on a logarithmic axis: lines by formula, markers for published points.

    curves, published: {label: {batch: speed-up}}.

    >>> type(gain_over_batch({"a": {1: 2.0, 2: 1.5}})).__name__
    'Picture'
    """
    figure, axes = _axes(height=3.4, xlabel="texts in the batch", ylabel="speed-up over plain decode")
    for (label, curve), colour, style in zip(curves.items(), (BLUE, ORANGE, GREEN, GREY), ("-", "--", "-.", ":")):
        axes.plot(list(curve), list(curve.values()), style, color=colour, label=label)
    for (label, points), marker in zip((published or {}).items(), "os^"):
        axes.plot(list(points), list(points.values()), marker, color=INK, markerfacecolor="white", label=label)
    axes.axhline(1, color=INK, linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set_ylim(0)
    figure.legend(loc="outside upper left", frameon=False, ncols=2)
    return figure


def served_load(rates_per_s, curves):
    """What a server does as requests come faster: tokens per second, and milliseconds per token of a request.

    curves: {label: [a serving.Served for each rate]}.
    """
    figure = Picture(figsize=(7.6, 3.4), dpi=DPI, layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    for (label, found), colour, look in zip(curves.items(), (INK, BLUE, ORANGE, GREEN), ("s-", "o-", "^--", "v-.")):
        left.plot(rates_per_s, [served.tokens_per_s for served in found], look, color=colour, markersize=4, label=label)
        right.plot(rates_per_s, [1e3 * served.seconds_per_token for served in found], look, color=colour, markersize=4)
    _plain(left, "requests per second", "tokens per second", "throughput")
    _plain(right, "requests per second", "ms", "time per token of a request")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_ylim(0)
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=len(curves), frameon=False)
    return figure


def _plain(axes, xlabel, ylabel, title=""):
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(colors=INK, length=3)
    axes.grid(axis="y", color="#e5e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(xlabel, color=INK)
    axes.set_ylabel(ylabel, color=INK)
    axes.set_title(title, color=INK, fontsize=10)


def tree_and_mask(labels, parents, kept=None):
    """A drafted tree drawn top down, and beside it who sees whom in the pass that checks it.

    labels: n strings; only the first line of each stands at the mask. parents: n integers, -1 for the
    committed text. kept: the nodes that go into the pass, with their ancestors, all by default; the
    others are drawn dashed and have no row.
    Raises ValueError for a parent that is not an earlier node, or a kept node whose parent is dropped.

    >>> type(tree_and_mask(["to", "be"], [-1, 0])).__name__
    'Picture'
    """
    kept = list(range(len(labels))) if kept is None else sorted(kept)
    for node in kept:
        if parents[node] != -1 and parents[node] not in kept:
            raise ValueError(f"kept: node {node} without its parent {parents[node]}, expected every ancestor")
    figure = Picture(figsize=(7.6, 3.6), dpi=DPI, layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_tree(left, labels, parents, kept)
    # The committed text is row 0 of the pass, and every node sees it.
    row = {node: index for index, node in enumerate(kept, start=1)} | {-1: 0}
    mask = ancestor_mask([-1, *(row[parents[node]] for node in kept)])
    right.pcolormesh(~mask, cmap="Blues_r", vmin=-0.4, vmax=1, edgecolors=GREY, linewidth=0.6)
    names = ["text so far", *(labels[node].split("\n")[0] for node in kept)]
    right.set_xticks(np.arange(len(names)) + 0.5, names, rotation=90)
    right.set_yticks(np.arange(len(names)) + 0.5, names)
    right.set(aspect="equal", xlabel="sees", ylabel="row of the pass")
    right.invert_yaxis()
    right.tick_params(length=0, labelsize=9)
    return figure


def _draw_tree(axes, labels, parents, kept):
    level = depths(parents) + 1
    leaves = [node for node in range(len(parents)) if node not in parents]
    x = {node: float(place) for place, node in enumerate(_left_to_right(parents, leaves))}
    for node in reversed(range(len(parents))):
        below = [x[child] for child, parent in enumerate(parents) if parent == node]
        x[node] = float(np.mean(below)) if below else x[node]
    x[-1] = float(np.mean([x[child] for child, parent in enumerate(parents) if parent == -1]))
    looks = {True: {"edgecolor": BLUE, "linestyle": "-"}, False: {"edgecolor": GREY, "linestyle": "--"}}
    box = {"boxstyle": "round,pad=0.35", "facecolor": "white"}
    axes.text(x[-1], 0, "text so far", ha="center", va="center", color=INK, bbox=box | {"edgecolor": GREY})
    for node, (label, parent) in enumerate(zip(labels, parents)):
        look = looks[node in kept]
        above = 0 if parent == -1 else level[parent]
        axes.plot([x[parent], x[node]], [-above, -level[node]], color=GREY, linestyle=look["linestyle"], zorder=1)
        axes.text(x[node], -level[node], label, ha="center", va="center", color=INK, fontsize=9, bbox=box | look)
    axes.set_xlim(min(x.values()) - 0.6, max(x.values()) + 0.6)
    axes.set_ylim(-max(level) - 0.4, 0.4)
    axes.axis("off")


def _left_to_right(parents, leaves):
    def path(node):
        return (*path(parents[node]), node) if node != -1 else ()

    return sorted(leaves, key=path)


class ColouredText:
    """Decoded text, each token on the colour and line of its kind; plain text where HTML is not shown."""

    def __init__(self, prompt, pieces, kinds):
        self.prompt, self.pieces, self.kinds = prompt, list(pieces), list(kinds)

    def __repr__(self):
        return self.prompt + "".join(self.pieces)

    def _repr_html_(self):
        spans = "".join(
            f'<span class="{KINDS[kind]}" title="{kind}">{html.escape(piece)}</span>'
            for piece, kind in zip(self.pieces, self.kinds)
        )
        legend = " ".join(f'<span class="{name}">{kind}</span>' for kind, name in KINDS.items())
        text = f'<p class="sn-text">{html.escape(self.prompt)}{spans}</p>'
        return f'<style>{STYLE}</style><div class="specnotes-text">{text}<p class="sn-legend">{legend}</p></div>'


# The same three looks as the book's stylesheet, for notebooks opened without it.
STYLE = (
    ".sn-text{white-space:pre-wrap;line-height:1.9}"
    ".sn-accepted{border-bottom:2px solid #1f5fd0}"
    ".sn-recovered{border-bottom:2px dashed #b84e00;font-weight:650}"
    ".sn-bonus{border-bottom:4px double #4d5768;font-style:italic}"
)


def coloured(prompt, tokenizer, trace):
    """The text of a Trace with every token marked as accepted, recovered or bonus: a ColouredText."""
    return ColouredText(prompt, pieces(tokenizer, trace.tokens), trace.kinds)


def beta_histogram(betas):
    """Histogram of the acceptance probabilities of a run's examined positions, their mean marked."""
    betas = np.asarray(betas, dtype=np.float64)
    figure, axes = _axes(height=2.5, xlabel="β = Σ min(p, q) at a position", ylabel="positions")
    counts, *_ = axes.hist(betas, bins=20, range=(0, 1), color=BLUE, edgecolor="white")
    axes.axvline(betas.mean(), color=ORANGE, linestyle="--")
    axes.annotate(f"mean {betas.mean():.2f}", (betas.mean(), counts.max()), xytext=(-6, -4), ha="right",
                  textcoords="offset points", color=INK)
    return figure
