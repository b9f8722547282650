"""The second explorer: the shipped rule, run for thousands of rounds on an 8-token vocabulary."""

import numpy as np

from specnotes import theory
from specnotes.dice import ScriptedDice
from specnotes.distributions import acceptance
from specnotes.rules import token_rule
from specnotes.toy import slider_rows
from specnotes.widgets.base import Explorer, Setting, Slider

SEEDS = 2**32


def uniform_stream(seed, n):
    """The first n uniforms [n] of a small generator that is the same on the page and here.

    Multiples of 2^-32 in [0, 1). seed: an integer in 0..2^32-1. Raises ValueError for another seed.
    Source: mulberry32, a public-domain 32-bit generator by Tommy Ettinger.

    >>> uniform_stream(0, 2).round(6).tolist()
    [0.266429, 0.00033]
    """
    if not 0 <= seed < SEEDS or seed != int(seed):
        raise ValueError(f"seed: {seed!r}, expected an integer in 0..{SEEDS - 1}")
    state = np.uint32(seed) + np.arange(1, n + 1, dtype=np.uint32) * np.uint32(0x6D2B79F5)
    mixed = (state ^ (state >> 15)) * (state | 1)
    mixed ^= mixed + (mixed ^ (mixed >> 7)) * (mixed | 61)
    return (mixed ^ (mixed >> 14)) / SEEDS


def run_rounds(p, q, gamma, rounds, dice):
    """Draft gamma tokens from q, judge them with `token_rule`; `rounds` times. Returns the Verdicts.

    p, q: [V], the same at every position. Each round takes gamma draws, then what the rule asks.
    Raises ValueError as `token_rule` does.

    >>> [verdict.tokens for verdict in run_rounds([0.5, 0.5], [1.0, 0.0], 1, 1, ScriptedDice([0.1, 0.2, 0.7]))]
    [(0, 1)]
    """
    p_rows, q_rows = np.tile(p, (gamma + 1, 1)), np.tile(q, (gamma, 1))  # [gamma+1, V], [gamma, V]
    return [token_rule(p_rows, q_rows, [dice.draw(row) for row in q_rows], dice) for _ in range(rounds)]


class RuleExplorer(Explorer):
    """The accept/reject rule at work: what it emits has the target's law, however far off the draft is.

    Settings: mismatch (0 is q = p, 1 is far off), gamma (draft length, 0..8), rounds (100..4,000), seed.
    `results`: p and q [8], emitted [8] (shares of what `token_rule` emitted), alpha = sum of min(p, q),
    measured_acceptance (accepted / examined; None at gamma 0), tokens_per_pass (measured), tokens_formula.
    Raises ValueError for a setting that does not exist or is out of range.

    >>> round(RuleExplorer(mismatch=0.6, rounds=100).results["alpha"], 3)
    0.639
    """

    script = "rule"
    title = "The real accept/reject rule on an 8-token vocabulary"
    readouts = (
        ("α = Σ min(p, q)", "{alpha:.3f}"),
        ("measured acceptance", "{measured_acceptance:.3f}"),
        ("tokens per pass, measured", "{tokens_per_pass:.2f}"),
        ("tokens per pass, formula", "{tokens_formula:.2f}"),
    )
    mismatch = Slider(0.60, 0, 1, 0.01, "draft–target mismatch", places=2)
    gamma = Slider(4, 0, 8, 1, "draft length γ")
    rounds = Slider(4000, 100, 4000, 100, "rounds")
    seed = Setting(0, 0, SEEDS - 1)

    @staticmethod
    def compute(mismatch, gamma, rounds, seed):
        """The rows, the readouts and the emitted shares for one setting."""
        p, q = slider_rows(mismatch)
        dice = ScriptedDice(uniform_stream(seed, rounds * (2 * gamma + 1)))
        verdicts = run_rounds(p, q, gamma, rounds, dice)
        emitted = np.bincount([token for verdict in verdicts for token in verdict.tokens], minlength=len(p))
        accepted = sum(len(verdict.path) for verdict in verdicts)
        examined = accepted + sum(verdict.kind == "recovered" for verdict in verdicts)
        alpha = acceptance(p, q)
        return {
            "p": p.tolist(),
            "q": q.tolist(),
            "emitted": (emitted / emitted.sum()).tolist(),
            "alpha": alpha,
            "measured_acceptance": accepted / examined if examined else None,
            "tokens_per_pass": int(emitted.sum()) / rounds,
            "tokens_formula": theory.expected_tokens(min(alpha, 1.0), gamma),
        }
