"""Time the engines next to each other and write the record.

A set is one prompt given to every engine of a model, in shuffled order; a ratio compares two runs of one set. The
time of a run is that of the whole call, the reading of the prompt included, divided by the new tokens:
`transformers` and CTranslate2 do not let the two parts be told apart.
"""

import argparse
import datetime
import json
import os
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from specnotes.decode import near_ties
from specnotes.measure import PROMPTS, machine, median_interval
from specnotes.pair import ASSETS, read_tokenizer
from tests.peers.engines import (
    ASSISTED, CTRANSLATE2, GAMMA, GENERATE, GPT2_SMALL, NUMPY, SPECULATIVE, engines, write_random,
)

RECORD = Path(__file__).resolve().parents[2] / "book" / "data" / "peers.json"
VERSIONS = ("numpy", "torch", "transformers", "ctranslate2", "tokenizers")
TEMPERATURES = (0.0, 1.0)
EMBEDDED, RANDOM = "embedded pair", "12x768, random weights"
OVERHEAD = "overhead-dominated: at this size most of a step of transformers is not arithmetic"
# (model, faster, slower, least ratio wanted or None, what to keep in mind)
COMPARISONS = (
    (EMBEDDED, NUMPY, GENERATE, 3.0, OVERHEAD),
    (EMBEDDED, SPECULATIVE, ASSISTED, 4.0, OVERHEAD),
    (EMBEDDED, SPECULATIVE, CTRANSLATE2, 1.2, ""),
    (EMBEDDED, SPECULATIVE, NUMPY, None, ""),
    (EMBEDDED, NUMPY, CTRANSLATE2, None, ""),
    (RANDOM, NUMPY, GENERATE, 1.0, ""),
    (RANDOM, NUMPY, CTRANSLATE2, None, ""),
)


def disagreement(expected, found, ties):
    """None for the same tokens, else {"token", "gap"} of the first that differs, its gap None where no tie explains it.

    ties: [(index, gap), ...] as near_ties gives them.
    """
    if found == expected:
        return None
    index = next((i for i, (a, b) in enumerate(zip(expected, found)) if a != b), min(len(expected), len(found)))
    return {"token": index, "gap": dict(ties).get(index)}


def check_greedy(runs, model, prompts, tokens):
    """[{prompt, engine, differs}, ...] for every engine but the first, which is the reference.

    Raises ValueError where texts part at a token that is no near tie.
    """
    found = []
    for number, prompt in enumerate(prompts):
        texts = {name: run(prompt, tokens, 0.0, 0) for name, run in runs.items()}
        ties = near_ties(model, prompt, texts[NUMPY])
        for name in texts.keys() - {NUMPY}:
            differs = disagreement(texts[NUMPY], texts[name], ties)
            if differs and differs["gap"] is None:
                place = f"prompt {number}, token {differs['token']}"
                raise ValueError(f"{name}: {place} is not that of {NUMPY}, and no near tie")
            found.append({"prompt": number, "engine": name, "differs": differs})
    return sorted(found, key=lambda entry: (entry["prompt"], entry["engine"]))


def timed(run, prompt, tokens, temperature, seed):
    """Seconds per new token of one call, rounded to a tenth of a microsecond."""
    begin = time.perf_counter()
    found = run(prompt, tokens, temperature, seed)
    spent = time.perf_counter() - begin
    if len(found) != tokens:
        raise ValueError(f"tokens: {len(found)} written, expected {tokens}; is the context long enough?")
    return round(spent / tokens, 7)


def time_sets(runs, prompts, tokens, repeats, rng, bar):
    """{temperature: {engine: [seconds per token of each set]}}; the sets of all temperatures are shuffled together."""
    sets = [(temperature, prompt) for temperature in TEMPERATURES for prompt in prompts] * repeats
    seconds = {temperature: {name: [] for name in runs} for temperature in TEMPERATURES}
    for temperature in TEMPERATURES:
        for run in runs.values():
            run(prompts[0], min(tokens, 32), temperature, 0)
    for place in rng.permutation(len(sets)).tolist():
        temperature, prompt = sets[place]
        for name in rng.permutation(list(runs)).tolist():
            seed = int(rng.integers(2**31))
            seconds[temperature][name].append(timed(runs[name], prompt, tokens, temperature, seed))
            bar.update()
    return seconds


def rows_of(model, seconds):
    """One row for each temperature and engine."""
    return [
        {
            "model": model, "temperature": temperature, "engine": name,
            "tokens_per_second": 1 / float(np.median(spent)), "seconds_per_token": spent,
        }
        for temperature, engines in seconds.items()
        for name, spent in engines.items()
    ]


def ratios_of(model, seconds, seed):
    """One row for each temperature and comparison: the median of the ratios of its sets, and its interval."""
    found = []
    for of_model, faster, slower, wanted, note in COMPARISONS:
        for temperature, spent in seconds.items() if of_model == model else ():
            pairs = np.array(spent[slower]) / np.array(spent[faster])
            ratio, low, high = median_interval(pairs, np.random.default_rng(seed))
            found.append({
                "model": model, "temperature": temperature, "engine": faster, "over": slower,
                "ratio": ratio, "ratio_low": low, "ratio_high": high, "wanted": wanted, "note": note,
            })
    return found


def models(workspace, rng):
    """{label: (target folder, draft folder or None, prompts)}."""
    tokenizer = read_tokenizer(ASSETS / "target")
    drawn = [rng.integers(GPT2_SMALL.vocab_size, size=24).tolist() for _ in PROMPTS]
    return {
        EMBEDDED: (ASSETS / "target", ASSETS / "draft", [tokenizer.encode(text).ids for text in PROMPTS]),
        RANDOM: (write_random(Path(workspace) / "random"), None, drawn),
    }


def compare(settings):
    """The record, a dict that goes to JSON as it is.

    settings: {"tokens": {label: n}, "repeats": {label: n}, "seed": n}.
    """
    rng, rows, ratios, greedy, parameters = np.random.default_rng(settings["seed"]), [], [], [], {}
    wall, cpu = 0.0, 0.0
    with tempfile.TemporaryDirectory() as workspace:
        for label, (target, draft, prompts) in models(workspace, rng).items():
            tokens, repeats = settings["tokens"][label], settings["repeats"][label]
            place = Path(workspace) / label.split(",")[0].replace(" ", "-")
            place.mkdir()
            runs, model = engines(target, draft, place)
            parameters[label] = model.config.parameters
            greedy += [{"model": label} | entry for entry in check_greedy(runs, model, prompts, tokens)]
            began = time.perf_counter(), time.process_time()
            with tqdm(total=len(TEMPERATURES) * repeats * len(prompts) * len(runs), desc=label) as bar:
                seconds = time_sets(runs, prompts, tokens, repeats, rng, bar)
            wall, cpu = wall + time.perf_counter() - began[0], cpu + time.process_time() - began[1]
            rows += rows_of(label, seconds)
            ratios += ratios_of(label, seconds, settings["seed"])
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "versions": {name: version(name) for name in VERSIONS},
        "threads": torch.get_num_threads(),
        "cpu_share": round(min(1.0, cpu / wall), 3),
        "settings": settings | {"prompts": len(PROMPTS), "gamma": GAMMA, "parameters": parameters},
        "time": "whole call, the reading of the prompt included, divided by the new tokens",
        "rows": rows,
        "ratios": ratios,
        "greedy": greedy,
    }


def table(record):
    """The record as text."""
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    lines = [
        f"{record['date']}, {record['machine']['processor']}, {record['threads']} thread, "
        f"share of the processor {record['cpu_share']:.2f}",
        f"Python {record['machine']['python']}, {versions}", "",
        f"{'tokens per second, median':<64}" + "".join(f"{f'T={t:g}':>12}" for t in TEMPERATURES),
    ]
    speeds = {(row["model"], row["engine"], row["temperature"]): row["tokens_per_second"] for row in record["rows"]}
    for model, engine in dict.fromkeys(key[:2] for key in speeds):
        numbers = "".join(f"{speeds[model, engine, t]:>12.1f}" for t in TEMPERATURES)
        lines.append(f"{model + ': ' + engine:<64}{numbers}")
    head = "ratio of speeds, median and 95 % interval"
    lines += ["", f"{head:<84}{'T':>4}{'ratio':>8}{'low':>8}{'high':>8}{'wanted':>8}"]
    for row in record["ratios"]:
        name = f"{row['model']}: {row['engine']} over {row['over']}"
        wanted = "" if row["wanted"] is None else f"{row['wanted']:.1f}"
        lines.append(f"{name:<84}{row['temperature']:>4g}{row['ratio']:>8.2f}{row['ratio_low']:>8.2f}"
                     f"{row['ratio_high']:>8.2f}{wanted:>8}" + (" *" if row["note"] else ""))
    parted = [entry for entry in record["greedy"] if entry["differs"]]
    lines += ["", f"* {OVERHEAD}", f"Time: {record['time']}.",
              f"Greedy texts the same as NumPy plain: {len(record['greedy']) - len(parted)} of {len(record['greedy'])}"]
    lines += [f"  parted at a near tie: {entry['model']}, {entry['engine']}, prompt {entry['prompt']}, "
              f"token {entry['differs']['token']}, gap {entry['differs']['gap']:.1e}" for entry in parted]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.peers", description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=200, help="new tokens of a run; default 200")
    parser.add_argument("--repeats", type=int, default=6, help="sets of each prompt and temperature; default 6")
    parser.add_argument("--random-tokens", type=int, default=48, help="the same at 12x768; default 48")
    parser.add_argument("--random-repeats", type=int, default=3, help="the same at 12x768; default 3")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RECORD, help="where the record goes; default book/data/peers.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    record = compare({
        "tokens": {EMBEDDED: args.tokens, RANDOM: args.random_tokens},
        "repeats": {EMBEDDED: args.repeats, RANDOM: args.random_repeats},
        "seed": args.seed,
    })
    unfinished = args.out.with_suffix(".tmp")
    unfinished.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    os.replace(unfinished, args.out)
    print(table(record))
