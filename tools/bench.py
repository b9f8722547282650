"""Time the exact laws, the sampled rounds and the page's rounds next to their targets: `make bench`.

Times are wall clock on this machine, whatever else it does. A target that is missed fails nothing.
"""

import statistics
import sys
import time
from fractions import Fraction as F
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from specnotes import decode, law, rules, toy
from specnotes.drafters import ModelDrafter
from tools import chromium

JS = ROOT / "specnotes" / "widgets" / "js"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu"]
P = np.array([[F(5, 10), F(3, 10), F(2, 10)], [F(1, 10), F(6, 10), F(3, 10)], [F(1, 3), F(1, 3), F(1, 3)]])
Q = np.array([[F(2, 5), F(2, 5), F(1, 5)], [F(3, 10), F(3, 10), F(4, 10)], [F(1, 2), F(1, 4), F(1, 4)]])
TIME_ROUNDS = """(rounds) => {
  const start = performance.now();
  compute({ mismatch: 0.6, gamma: 8, rounds, seed: 0 });
  return (performance.now() - start) / 1000;
}"""


def one_pass():
    """The exact law of one pass of the token rule."""
    return law.emitted_law(rules.token_rule, lambda text: P[text[-1]], lambda text: Q[text[-1]], gamma=4, prefix=(0,))


def whole_loop():
    """The exact law of four new tokens of the decode loop."""
    target, drafter = toy.markov_model(P), ModelDrafter(toy.markov_model(Q))
    settings = {"gamma": 2, "max_new_tokens": 4, "warp": lambda rows: rows}
    loop = lambda dice: decode.rounds(target, [0], drafter, dice=dice, **settings)
    return law.exact_law(lambda dice: tuple(round.tokens for round in loop(dice)))


def many_rounds():
    """40,000 sampled rounds over the slider's rows, the draft's draws included."""
    p, q = toy.slider_rows(0.6)
    p_rows, q_rows = np.tile(p, (5, 1)), np.tile(q, (4, 1))
    one_round = lambda dice: rules.token_rule(p_rows, q_rows, [dice.draw(row) for row in q_rows], dice).tokens
    return law.sampled_law(one_round, 40_000, np.random.default_rng(0))


def seconds(run, repeats):
    """Seconds of each of `repeats` runs, after one that does not count."""
    spent = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        run()
        spent.append(time.perf_counter() - begin)
    return spent[1:]


def browser_seconds(repeats):
    """Seconds of each of `repeats` runs of the page's 4,000 rounds, or None without a Chromium."""
    path = chromium.installed()
    if path is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        page = browser.new_page()
        for name in ("theory.js", "ui.js", "rule.js"):
            page.add_script_tag(content=(JS / name).read_text(encoding="utf-8"))
        spent = [page.evaluate(TIME_ROUNDS, 4000) for _ in range(repeats + 5)]
        browser.close()
    return spent[5:]


def line(name, target, spent):
    """One row of the table; times below a tenth of a second in milliseconds."""
    show = lambda value: f"{1000 * value:.1f} ms" if target < 0.1 else f"{value:.3f} s"
    measured = ("no Chromium", "") if spent is None else (show(statistics.median(spent)), show(min(spent)))
    return f"{name:<58}{'< ' + show(target):>11}{measured[0]:>12}{measured[1]:>12}"


def main():
    print(f"{'':<58}{'target':>11}{'median':>12}{'best':>12}")
    print(line("exact law of one pass, 3 tokens, gamma 4", 0.3, seconds(one_pass, 9)))
    print(line("exact law of the loop, 3 tokens, gamma 2, 4 new tokens", 1, seconds(whole_loop, 5)))
    print(line("40,000 rounds of the token rule, 8 tokens, gamma 4", 3, seconds(many_rounds, 5)))
    print(line("4,000 rounds in the browser, 8 tokens, gamma 8", 0.016, browser_seconds(21)))


if __name__ == "__main__":
    main()
