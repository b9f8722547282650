"""Timing plain and speculative decode fairly: paired, interleaved, shuffled, prefill left out.

Every figure is a ratio of runs made next to each other in one process, with its spread. Nothing here
is a property of speculative decoding in general: a record says which machine it came from.
"""

import os
import platform
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from specnotes import theory
from specnotes.decode import rounds
from specnotes.dice import RandomDice
from specnotes.distributions import probs_from_logits
from specnotes.drafters import EagleDrafter, MedusaDrafter, ModelDrafter
from specnotes.machine import bandwidth_bytes_per_s, position_cost
from specnotes.rules import sampler_match_rule, token_rule, without_replacement_rule
from specnotes.trace import Trace
from specnotes.tree import branching_within

# Lines from plays the embedded pair was not trained on: Macbeth, The Tempest, King John.
PROMPTS = (
    "MACBETH.\nIs this a dagger which I see before me,\n",
    "PROSPERO.\nOur revels now are ended. These our actors,\n",
    "KING JOHN.\nNow, say, Chatillon, what would France with us?\n",
    "LADY MACBETH.\nThe raven himself is hoarse\n",
    "ARIEL.\nAll hail, great master! grave sir, hail! I come\n",
    "CONSTANCE.\nGone to be married! gone to swear a peace!\n",
)
MORE_PROMPTS = (
    "FIRST WITCH.\nWhen shall we three meet again?\n",
    "BANQUO.\nWhat are these,\nSo wither'd, and so wild in their attire,\n",
    "MACDUFF.\nO horror, horror, horror!\n",
    "DUNCAN.\nWhat bloody man is that? He can report,\n",
    "PORTER.\nHere's a knocking indeed!\n",
    "ROSS.\nAlas, poor country,\n",
    "MIRANDA.\nIf by your art, my dearest father, you have\n",
    "CALIBAN.\nBe not afeard; the isle is full of noises,\n",
    "FERDINAND.\nWhere should this music be? I' th' air or th' earth?\n",
    "GONZALO.\nNow would I give a thousand furlongs of sea\n",
    "STEPHANO.\nI shall no more to sea, to sea,\n",
    "BASTARD.\nMad world! mad kings! mad composition!\n",
    "ARTHUR.\nMust you with hot irons burn out both mine eyes?\n",
    "ELINOR.\nA strange beginning- 'borrowed majesty'!\n",
)
POSITIONS = range(1, 10)
DRAFTS = 4  # draft steps between two target steps where c is measured
KERNEL_CHOICES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
TURNS = 8  # how often, beside each group of runs, a pass over k positions and a draft step are timed


class Way(NamedTuple):
    """A way to decode: gamma levels at most, drafted by what drafter() makes (None: the pair's draft model), verified by rule.

    gamma 0 is plain decode.
    """

    gamma: int
    drafter: Callable | None = None
    rule: Callable = token_rule


class Run(NamedTuple):
    """One timed decode: seconds from the second pass on, tokens and passes in that time, phases, and the trace.

    phases: {"draft": seconds, "target": seconds, "rule": seconds}; the rule's is all the loop does beside the two.
    """

    seconds: float
    tokens: int
    passes: int
    phases: dict
    trace: Trace

    @property
    def seconds_per_token(self):
        return self.seconds / max(1, self.tokens)


class Group(NamedTuple):
    """What was timed within seconds of each other: {name of a way: Run}, a plain Run, the cost curve, and c.

    seconds: {k: seconds of a pass over k positions}, medians of a few; c: None where it was not measured.
    """

    runs: dict
    plain: Run
    seconds: dict
    c: float | None


class Stopwatch:
    """Stands in for an object and adds up the seconds spent in some of its methods.

    >>> watched = Stopwatch([3, 1], ("sort",))
    >>> watched.sort(), watched.seconds > 0
    (None, True)
    """

    def __init__(self, watched, methods):
        self._watched, self.seconds = watched, 0.0
        for name in methods:
            setattr(self, name, partial(self._timed, getattr(watched, name)))

    def __getattr__(self, name):
        return getattr(self._watched, name)

    def _timed(self, method, *args, **kwargs):
        begin = time.perf_counter()
        try:
            return method(*args, **kwargs)
        finally:
            self.seconds += time.perf_counter() - begin


def draft_cost(draft, target, warp, repeats=100, context=128, rng=None):
    """c: the median of (seconds of a draft step / seconds of the target step after it), warp and draw included.

    As in a decode the two take turns, four draft steps and then a target step: the first draft step
    finds that the target has taken its place in the small caches, the others do not.
    """
    rng = rng or np.random.default_rng(0)
    dice, ratios = RandomDice(rng), []
    for model in (draft, target):
        model.rollback(0)
        model.forward(rng.integers(model.vocab_size, size=context).tolist(), last_only=True)
    for _ in range(repeats + 2):
        spent = []
        for model, steps in ((draft, DRAFTS), (target, 1)):
            tokens = rng.integers(draft.vocab_size, size=steps).tolist()
            begin = time.perf_counter()
            for token in tokens:
                dice.draw(warp(model.forward([token], last_only=True).logits)[-1])
            spent.append((time.perf_counter() - begin) / steps)
            model.rollback(context)
        ratios.append(spent[0] / spent[1])
    return float(np.median(ratios[2:]))


def timed_run(pair, prompt, way, warp, tokens, rng):
    """The Run of one decode of `tokens` tokens by a Way; the first pass, which reads the prompt, is not timed."""
    gamma, make, rule = way
    target = Stopwatch(pair.target, ("forward",))
    made = (ModelDrafter(pair.draft) if make is None else make()) if gamma else None
    drafter = Stopwatch(made, ("propose", "commit")) if gamma else None
    settings = {"gamma": gamma, "max_new_tokens": tokens, "warp": warp, "rule": rule, "dice": RandomDice(rng)}
    loop = rounds(target, prompt, drafter, **settings)
    done = [next(loop)]
    before = target.seconds, drafter.seconds if drafter else 0.0
    begin = time.perf_counter()
    done += loop
    seconds = time.perf_counter() - begin
    phases = {"draft": drafter.seconds - before[1] if drafter else 0.0, "target": target.seconds - before[0]}
    phases["rule"] = seconds - sum(phases.values())
    finish = "length" if sum(len(round.tokens) for round in done) == tokens else "context"
    counted = sum(len(round.tokens) for round in done[1:])
    return Run(seconds, counted, len(done) - 1, phases, Trace(done, finish))


def paired_runs(pair, prompts, ways, warp, tokens, repeats, rng):
    """Yield ({name: Run}, plain Run), prompt by prompt, `repeats` times over: runs of one yield are neighbours in time.

    ways: {name: Way}. One of gamma 0 is one more plain run: what it shows beside 1 is noise.
    """
    for way in ways.values():
        timed_run(pair, prompts[0], way, warp, min(tokens, 32), rng)
    everything = [*ways.items(), (None, Way(0))]
    for _ in range(repeats):
        for prompt in prompts:
            order = [everything[index] for index in rng.permutation(len(everything))]
            runs = {name: timed_run(pair, prompt, way, warp, tokens, rng) for name, way in order}
            yield {name: runs[name] for name in ways}, runs[None]


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
    """What the numbers were measured on: processor, Python, NumPy and its BLAS, and how fast it reads memory.

    kernels_chosen_by: the environment variables, where some are set, that make OpenBLAS take kernels for another processor.
    """
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    chosen = {name: os.environ[name] for name in KERNEL_CHOICES if name in os.environ}
    return {
        "processor": _processor(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": f"{blas['name']} {blas['version']}",
        "bandwidth_bytes_per_s": float(f"{bandwidth_bytes_per_s():.3g}"),
    } | ({"kernels_chosen_by": chosen} if chosen else {})


def _processor():
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def head_cost(groups):
    """c of a drafter that is no model: the median over runs of seconds of drafting per pass and level / a target step's.

    groups: Groups. None where nothing was drafted.
    """
    levels = [
        run.phases["draft"] / (gamma * run.passes) / group.seconds[1]
        for group in groups for gamma, run in group.runs.items() if gamma and run.passes
    ]
    return float(np.median(levels)) if levels else None


def measure(
    pair, *, gammas=range(9), temperature=1.0, tokens=300, repeats=5, threads=1, seed=0, progress=None, drafter=None,
    rule=token_rule,
):
    """Measure a pair and lay the formula beside it: a dict that goes to JSON as it is.

    Keys: alpha, c, verify_cost {k: t(k)/t(1)}, machine, settings, rows (see `make_row`). Predictions come from
    alpha, c and the cost curve, never from the tokens or seconds of the runs they are compared with. Curve and c
    are timed anew beside each group of runs, so that both meet the same machine; the medians are reported.
    drafter: a function of no arguments that makes one, None is the pair's draft model; rule: what verifies its drafts.
    For other drafters c is `head_cost`, taken from the runs; a tree has neither alpha nor predictions, as its positions
    are not gamma + 1.
    machine's cpu_share is the processor time we got over the time that passed: well below 1 on a busy machine.
    progress(done, total) is called after each group of runs. Ctrl-C ends the runs early: the finished
    groups are reported, settings["runs"] says how many. Raises ValueError for tokens that one pass could emit.
    """
    ways = {int(gamma): Way(int(gamma), drafter, rule) for gamma in gammas}
    rng = np.random.default_rng(seed)
    groups, found = _timed_groups(pair, ways, temperature, tokens, repeats, threads, seed, progress, rng)
    return _summary(groups, drafter is None, rng) | found


def compare(pair, ways, *, temperature=1.0, tokens=300, repeats=5, threads=1, seed=0, progress=None):
    """Measure several ways to decode, all on the same prompts: a dict that goes to JSON as it is.

    ways: {name: Way}. Keys: verify_cost, machine, settings as in `measure`, and rows, one for each way (see
    `compared_row`). progress, Ctrl-C and what is raised: as in `measure`.
    """
    rng = np.random.default_rng(seed)
    groups, found = _timed_groups(pair, ways, temperature, tokens, repeats, threads, seed, progress, rng)
    rows = [compared_row(name, ways[name], [(group.runs[name], group.plain) for group in groups], rng) for name in ways]
    return {"verify_cost": _verify_cost(groups), "rows": rows} | found


def medusa_way(heads, temperature, nodes=None):
    """The Way of Medusa's heads: a drawn chain, or a tree of at most `nodes`.

    At temperature 0 the tree is the best one of the likeliest tokens that came with the heads. Above, tokens that
    are drawn are accepted more often than the likeliest, so the tree is drawn.
    """
    levels = len(heads)
    if nodes is None:
        return Way(levels, partial(MedusaDrafter, heads, branching=(1,) * levels))
    if temperature == 0:
        return Way(levels, partial(MedusaDrafter, heads, nodes=nodes), sampler_match_rule)
    branching = branching_within(nodes, levels)
    return Way(levels, partial(MedusaDrafter, heads, branching=branching), without_replacement_rule)


def eagle_way(head, temperature, gamma, nodes=None):
    """The Way of EAGLE's head with gamma levels: a chain, EAGLE-2's tree of `nodes` at temperature 0, above it a drawn one."""
    if nodes is None:
        return Way(gamma, partial(EagleDrafter, head))
    if temperature == 0:
        width = min(8, max(1, nodes // 2))
        return Way(gamma, partial(EagleDrafter, head, nodes=nodes, width=width), sampler_match_rule)
    branching = branching_within(min(nodes, head.max_length - 1), max(1, gamma))
    return Way(min(gamma, len(branching)), partial(EagleDrafter, head, branching=branching), without_replacement_rule)


def usual_ways(medusa, eagle, temperature):
    """{name: Way} of what the course compares: the draft model, and both kinds of heads with chains and trees.

    medusa, eagle: the heads, see specnotes.heads. A drawn tree of 32 has 28 nodes.
    """
    return {
        "draft model, chain of 3": Way(3),
        "Medusa, chain of 4": medusa_way(medusa, temperature),
        "Medusa, tree of 8": medusa_way(medusa, temperature, 8),
        "Medusa, tree of 32": medusa_way(medusa, temperature, 32),
        "EAGLE, chain of 3": eagle_way(eagle, temperature, 3),
        "EAGLE, chain of 7": eagle_way(eagle, temperature, 7),
        "EAGLE, tree of 8": eagle_way(eagle, temperature, 4, 8),
        "EAGLE, tree of 32": eagle_way(eagle, temperature, 4 if temperature else 6, 32),
    }


def _timed_groups(pair, ways, temperature, tokens, repeats, threads, seed, progress, rng):
    """([Group, ...], {"machine", "settings"}) of `repeats` runs of every way after every prompt."""
    most = max(way.gamma for way in ways.values())
    if tokens <= most + 1:
        raise ValueError(f"tokens: {tokens}, expected more than gamma + 1 = {most + 1}: the first pass is not timed")
    warp = partial(probs_from_logits, temperature=temperature)
    prompts = [pair.tokenizer.encode(text).ids for text in PROMPTS]
    described = machine()
    began = time.perf_counter(), time.process_time()
    runs = paired_runs(pair, prompts, ways, warp, tokens, repeats, rng)
    context = min(len(prompts[0]) + tokens // 2, pair.target.max_length - max(POSITIONS), pair.draft.max_length - DRAFTS)
    by_model = all(way.drafter is None for way in ways.values())
    groups = (_with_costs(*group, pair, warp, context, rng, by_model) for group in runs)
    groups = _until_stopped(groups, repeats * len(prompts), progress)
    cpu_share = (time.process_time() - began[1]) / (time.perf_counter() - began[0])
    described |= {"threads": threads, "cpu_share": round(min(1.0, cpu_share), 3)}
    settings = {
        "temperature": temperature, "tokens": tokens, "repeats": repeats, "prompts": len(prompts), "seed": seed,
        "runs": len(groups), "runs_wanted": repeats * len(prompts), "context": context,
        "cut_by_context": sum(group.plain.trace.finish == "context" for group in groups),
        "target_parameters": pair.target.config.parameters, "draft_parameters": pair.draft.config.parameters,
    }
    return groups, {"machine": described, "settings": settings}


def _with_costs(runs, plain, pair, warp, context, rng, by_model):
    """The Group of these runs: the costs are timed right after them."""
    costs = position_cost(pair.target, POSITIONS, repeats=TURNS, context=context, rng=rng)
    c = draft_cost(pair.draft, pair.target, warp, repeats=TURNS, context=context, rng=rng) if by_model else None
    return Group(runs, plain, {k: cost["median"] for k, cost in costs.items()}, c)


def _verify_cost(groups):
    """{k: median of t(k) / t(1) over the Groups}."""
    return {k: float(np.median([group.seconds[k] / group.seconds[1] for group in groups])) for k in POSITIONS}


def _summary(groups, by_model, rng):
    """alpha, c, verify_cost and the rows of these Groups."""
    drafted = [round for group in groups for run in group.runs.values() for round in run.trace.rounds]
    alpha = Trace(drafted, "length").alpha
    c = float(np.median([group.c for group in groups])) if by_model else head_cost(groups)
    verify_cost = _verify_cost(groups)
    rows = [
        make_row(gamma, [(group.runs[gamma], group.plain) for group in groups], alpha, c, verify_cost, rng)
        for gamma in groups[0].runs
    ]
    return {"alpha": alpha, "c": c, "verify_cost": verify_cost, "rows": rows}


def _until_stopped(groups, total, progress):
    """The groups of runs that were finished before Ctrl-C; without any there is nothing to report."""
    done = []
    try:
        for group in groups:
            done.append(group)
            if progress is not None:
                progress(len(done), total)
    except KeyboardInterrupt:
        if not done:
            raise
    return done


def _measured(runs, rng):
    """What both kinds of rows say of their runs, [(Run, plain Run next to it), ...]."""
    pooled = Trace([round for run, _ in runs for round in run.trace.rounds], "length")
    speedup, low, high = median_interval([plain.seconds_per_token / run.seconds_per_token for run, plain in runs], rng)
    if len(runs) == 1:
        low = high = None
    return {
        "tokens_per_pass": sum(run.tokens for run, _ in runs) / sum(run.passes for run, _ in runs),
        "nodes_per_pass": sum(len(round.draft) for round in pooled.rounds) / len(pooled.rounds),
        "acceptance_by_position": list(pooled.acceptance_by_position),
        "speedup": speedup,
        "speedup_low": low,
        "speedup_high": high,
    }


def compared_row(name, way, runs, rng):
    """The figures of one Way from its runs, [(Run, plain Run next to it), ...].

    tokens_per_pass, nodes_per_pass, speedup and its interval: as in `make_row`.
    steps: {"draft", "target", "rule"}: what a pass spends on each, in passes of the plain run next to it, medians.
    speedup_free: what it would be if the target took no longer than in a plain pass, however many positions it verifies.
    beta_by_step: mean sum of min(p, q) at the j-th drafted token of a chain, where it was reached; none for a tree.
    """
    drafted = [round for run, _ in runs for round in run.trace.rounds]
    plain_pass = [plain.seconds / plain.passes for _, plain in runs]
    phases = ("draft", "target", "rule")
    steps = {
        phase: float(np.median([run.phases[phase] / run.passes / unit for (run, _), unit in zip(runs, plain_pass)]))
        for phase in phases
    }
    plain_target = float(np.median([plain.phases["target"] / plain.seconds for _, plain in runs]))
    measured = _measured(runs, rng)
    return {
        "name": name,
        "gamma": way.gamma,
        **measured,
        "steps": steps,
        "speedup_free": measured["tokens_per_pass"] / (steps["draft"] + plain_target + steps["rule"]),
        "beta_by_step": _mean_by_step([round.betas for round in drafted]),
    }


def _mean_by_step(rows):
    longest = max(map(len, rows), default=0)
    return [float(np.mean([row[step] for row in rows if len(row) > step])) for step in range(longest)]


def make_row(gamma, runs, alpha, c, verify_cost, rng):
    """The figures of one gamma from its runs, [(Run, plain Run next to it), ...].

    tokens_per_pass is counted over the timed passes; nodes_per_pass are drafted tokens that the target verified.
    speedup is the median of seconds per token, plain over speculative, with speedup_low and speedup_high, its 95 %
    bootstrap interval (None for a single run). predicted_flat takes gamma + 1 positions to cost what one does,
    predicted_measured takes what was measured.
    speedup = predicted_measured * token_part * cost_part: token_part is what the formula for the tokens is off,
    cost_part what a pass timed by its parts is off. All of these are None where alpha is, for gamma > 0.
    seconds_per_pass: medians of the three phases.
    """
    measured = _measured(runs, rng)
    tokens_per_pass, speedup = measured["tokens_per_pass"], measured["speedup"]
    known = alpha is not None or not gamma
    formula = theory.expected_tokens(alpha, gamma) if gamma and known else 1.0 if known else None
    cost = gamma * (c or 0.0) + verify_cost[gamma + 1] if known else None
    return {
        "gamma": gamma,
        **measured,
        "tokens_formula": formula,
        "predicted_flat": None if not known else theory.speedup(alpha, gamma, c) if gamma else 1.0,
        "predicted_measured": formula / cost if known else None,
        "token_part": tokens_per_pass / formula if known else None,
        "cost_part": cost / (tokens_per_pass / speedup) if known else None,
        "seconds_per_pass": {
            phase: float(np.median([run.phases[phase] / run.passes for run, _ in runs])) for phase in runs[0][0].phases
        },
    }
