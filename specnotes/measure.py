"""Timing plain and speculative decode fairly: paired, interleaved, shuffled, prefill left out.

Every figure is a ratio of runs made next to each other in one process, with its spread. Nothing here
is a property of speculative decoding in general: a record says which machine it came from.
"""

import platform
import time
from functools import partial

import numpy as np

from specnotes import theory
from specnotes.decode import rounds
from specnotes.dice import RandomDice
from specnotes.distributions import probs_from_logits
from specnotes.drafters import ModelDrafter
from specnotes.trace import Trace

# Lines from plays the embedded pair was not trained on: Macbeth, The Tempest, King John.
PROMPTS = (
    "MACBETH.\nIs this a dagger which I see before me,\n",
    "PROSPERO.\nOur revels now are ended. These our actors,\n",
    "KING JOHN.\nNow, say, Chatillon, what would France with us?\n",
    "LADY MACBETH.\nThe raven himself is hoarse\n",
)
POSITIONS = range(1, 10)


def cost_curve(model, repeats=60, context=128, rng=None):
    """Seconds of one forward pass over k new positions, k = 1..9: {k: [repeats]}, interleaved and shuffled.

    model: a LanguageModel with room for context + 9 rows; its cache is left at `context` rows.
    """
    rng = rng or np.random.default_rng(0)
    model.rollback(0)
    model.forward(rng.integers(model.vocab_size, size=context).tolist(), last_only=True)
    seconds = {k: [] for k in POSITIONS}
    for repeat in range(repeats + 2):
        for k in rng.permutation(list(POSITIONS)).tolist():
            tokens = rng.integers(model.vocab_size, size=k).tolist()
            begin = time.perf_counter()
            model.forward(tokens)
            spent = time.perf_counter() - begin
            model.rollback(context)
            if repeat >= 2:
                seconds[k].append(spent)
    return seconds


def draft_cost(draft, target, warp, repeats=200, context=128, rng=None):
    """c: the median of (seconds of a draft step / seconds of the target step next to it), warp and draw included.

    The two take turns, as they do in a decode, so that neither finds its weights still in a small cache
    and both meet the same machine.
    """
    rng = rng or np.random.default_rng(0)
    dice, ratios = RandomDice(rng), []
    for model in (draft, target):
        model.rollback(0)
        model.forward(rng.integers(model.vocab_size, size=context).tolist(), last_only=True)
    for _ in range(repeats + 2):
        token, spent = int(rng.integers(draft.vocab_size)), []
        for model in (draft, target):
            begin = time.perf_counter()
            dice.draw(warp(model.forward([token]).logits)[-1])
            spent.append(time.perf_counter() - begin)
            model.rollback(context)
        ratios.append(spent[0] / spent[1])
    return float(np.median(ratios[2:]))


def timed_run(pair, prompt, gamma, warp, tokens, rng):
    """(seconds per token, Trace) of one run; the first pass, which reads the prompt, is not timed."""
    drafter = ModelDrafter(pair.draft) if gamma else None
    loop = rounds(
        pair.target, prompt, drafter, gamma=gamma, max_new_tokens=tokens, warp=warp, dice=RandomDice(rng)
    )
    done = [next(loop)]
    begin = time.perf_counter()
    done += loop
    spent = time.perf_counter() - begin
    finish = "length" if sum(len(round.tokens) for round in done) == tokens else "context"
    return spent / max(1, sum(len(round.tokens) for round in done[1:])), Trace(done, finish)


def paired_runs(pair, prompts, gammas, warp, tokens, repeats, rng, progress=lambda done, total: None):
    """{gamma: [(speed-up, Trace), ...]}: every gamma against the plain run of the same repeat and prompt."""
    runs = {gamma: [] for gamma in gammas}
    orders = [(prompt, rng.permutation([0, *gammas]).tolist()) for _ in range(repeats) for prompt in prompts]
    timed_run(pair, prompts[0], max(gammas), warp, min(tokens, 32), rng)
    for done, (prompt, order) in enumerate(orders):
        progress(done, len(orders))
        found = {gamma: timed_run(pair, prompt, gamma, warp, tokens, rng) for gamma in order}
        for gamma in gammas:
            runs[gamma].append((found[0][0] / found[gamma][0], found[gamma][1]))
    progress(len(orders), len(orders))
    return runs


def median_interval(values, rng, resamples=2000, level=0.95):
    """(median, low, high): the median and its bootstrap interval (percentiles of resampled medians).

    Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 13.

    >>> median_interval([2.0, 2.0, 2.0], np.random.default_rng(0))
    (2.0, 2.0, 2.0)
    """
    values = np.asarray(values, dtype=np.float64)
    medians = np.median(rng.choice(values, size=(resamples, len(values))), axis=1)
    low, high = np.quantile(medians, [(1 - level) / 2, (1 + level) / 2])
    return float(np.median(values)), float(low), float(high)


def machine():
    """What the numbers were measured on: processor, cores, threads, Python, NumPy and its BLAS."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "processor": _processor(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": f"{blas['name']} {blas['version']}",
    }


def _processor():
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def measure(pair, *, gammas=range(1, 9), temperature=1.0, tokens=200, repeats=5, threads=1, seed=0, progress=None):
    """Measure a pair and lay the formula beside it: a dict that goes to JSON as it is.

    Keys: alpha, c, verify_cost {k: t(k)/t(1)}, machine, settings, rows; a row has gamma,
    tokens_per_pass, tokens_formula, speedup with speedup_low and speedup_high (median of paired ratios,
    95 % bootstrap interval), predicted_flat (verifying gamma+1 positions costs what one does) and
    predicted_measured (it costs what was measured). Predictions come from alpha, c and the cost curve.
    machine's cpu_share is the processor time we got over the time that passed: well below 1 on a busy machine.
    """
    if tokens <= max(gammas) + 1:
        raise ValueError(f"tokens: {tokens}, expected more than gamma + 1 = {max(gammas) + 1}: the first pass is not timed")
    rng = np.random.default_rng(seed)
    warp = partial(probs_from_logits, temperature=temperature)
    began = time.perf_counter(), time.process_time()
    costs = {k: float(np.median(values)) for k, values in cost_curve(pair.target, rng=rng).items()}
    c = draft_cost(pair.draft, pair.target, warp, rng=rng)
    prompts = [pair.tokenizer.encode(text).ids for text in PROMPTS]
    runs = paired_runs(
        pair, prompts, list(gammas), warp, tokens, repeats, rng, progress or (lambda done, total: None)
    )
    cpu_share = (time.process_time() - began[1]) / (time.perf_counter() - began[0])
    betas = [beta for found in runs.values() for _, trace in found for round in trace.rounds for beta in round.betas]
    alpha = float(np.mean(betas))
    verify_cost = {k: cost / costs[1] for k, cost in costs.items()}
    return {
        "alpha": alpha,
        "c": c,
        "verify_cost": verify_cost,
        "machine": machine() | {"threads": threads, "cpu_share": round(min(1.0, cpu_share), 3)},
        "settings": {
            "temperature": temperature, "tokens": tokens, "repeats": repeats, "prompts": len(PROMPTS), "seed": seed,
            "target_parameters": pair.target.config.parameters, "draft_parameters": pair.draft.config.parameters,
        },
        "rows": [_row(gamma, found, alpha, c, verify_cost, rng) for gamma, found in runs.items()],
    }


def _row(gamma, found, alpha, c, verify_cost, rng):
    tokens = sum(len(trace.tokens) for _, trace in found)
    passes = sum(len(trace.rounds) for _, trace in found)
    speedup, low, high = median_interval([ratio for ratio, _ in found], rng)
    formula = theory.expected_tokens(alpha, gamma)
    pooled = Trace([round for _, trace in found for round in trace.rounds], "length")
    return {
        "gamma": gamma,
        "tokens_per_pass": tokens / passes,
        "tokens_formula": formula,
        "acceptance_by_position": list(pooled.acceptance_by_position),
        "speedup": speedup,
        "speedup_low": low,
        "speedup_high": high,
        "predicted_flat": theory.speedup(alpha, gamma, c),
        "predicted_measured": formula / (gamma * c + verify_cost[gamma + 1]),
    }
