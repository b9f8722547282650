"""Write the records in book/data that chapters plot: `tools/records.py [NAME ...]`, all without a name.

    roofline      roofline.json, for *Memory-bound decode*: this machine's constants, what k positions and a batch cost
    T1            measured.json, for *Measuring decode*: what `python -m specnotes measure --json` finds at temperature 1
    T0.7, T0      measured-T0.7.json, measured-T0.json: the same at other temperatures
    plain         measured-plain.json: every product in one piece, as x @ W
    large-draft   measured-large-draft.json: the target drafts for itself, at the price of a target step
    drafters-T1, drafters-T0   drafters-T1.json, drafters-T0.json, for *Medusa and EAGLE*: all drafters on the same prompts

Takes about twenty-five minutes. Make them on a quiet machine: each says what share of a core was ours.
roofline.json has
    machine                 what it was measured on
    bandwidth_bytes_per_s   streaming, over an array larger than the caches; float32, one thread
    peak_flop_per_s         a product of two large square matrices; float32, one thread
    context, repeats        tokens in the cache before each pass, rounds that count
    models                  {name: record}, for the embedded target and a GPT-2 small with random weights:
        shape                         a roofline.ModelShape
        bandwidth_at_size_bytes_per_s streaming, over an array of as many bytes as the weights have
        position_cost, batch_cost     as specnotes.machine gives them, seconds
        fit                           specnotes.machine.fit_overhead of the minima, with the two constants above
"""

import dataclasses
import json
import os
import sys
import time
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "book" / "data"
FILES = {
    "roofline": "roofline.json", "T1": "measured.json", "T0.7": "measured-T0.7.json", "T0": "measured-T0.json",
    "plain": "measured-plain.json", "large-draft": "measured-large-draft.json",
    "drafters-T1": "drafters-T1.json", "drafters-T0": "drafters-T0.json",
}
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
UNSET = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
CONTEXT, REPEATS = 128, 12


def in_a_plain_environment():
    """Whether NumPy would start here with one thread and nobody's choice of kernels."""
    return all(os.environ.get(name) == value for name, value in ONE_THREAD.items()) and not set(UNSET) & set(os.environ)


def restarted():
    """This script again, in a plain environment: what NumPy reads there it reads at import."""
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    os.execve(sys.executable, [sys.executable, *sys.argv], kept | ONE_THREAD)


def models():
    """{name: (GPT2, ModelShape)} of what is timed."""
    from specnotes.gpt2 import GPT2, Config
    from specnotes.pair import load_pair

    small = GPT2.random(Config(vocab_size=50257, max_length=1024, width=768, layers=12, heads=12), seed=0)
    return {"embedded target": with_shape(load_pair().target), "GPT-2 small": with_shape(small)}


def with_shape(model):
    """The model and its ModelShape, four bytes a weight."""
    from specnotes.roofline import gpt2_shape

    config = model.config
    sizes = (config.layers, config.width, config.heads, config.vocab_size, config.max_length)
    return model, dataclasses.replace(gpt2_shape(*sizes, bytes_per_weight=4), parameters=config.parameters)


def record_of(model, shape, card, context=CONTEXT, repeats=REPEATS, positions=range(1, 17), batches=(1, 2, 4, 8, 16)):
    """One model's record, as described above."""
    from specnotes import machine

    megabytes = max(1, round(shape.weight_bytes / 1e6))
    costs = machine.position_cost(model, positions, repeats=repeats, context=context)
    fit = machine.fit_overhead(card, shape, {k: cost["minimum"] for k, cost in costs.items()}, context)
    return {
        "shape": dataclasses.asdict(shape),
        "bandwidth_at_size_bytes_per_s": machine.bandwidth_bytes_per_s(megabytes),
        "position_cost": costs,
        "batch_cost": machine.batch_cost(model, batches, repeats=max(1, repeats // 2), context=context),
        "fit": dataclasses.asdict(fit),
    }


def roofline():
    """The record of this machine. cpu_share is the processor time we got over the time that passed."""
    from specnotes import machine, measure

    began = time.perf_counter(), time.process_time()
    card = machine.this_machine(repeats=8)
    found = {name: record_of(model, shape, card) for name, (model, shape) in models().items()}
    share = (time.process_time() - began[1]) / (time.perf_counter() - began[0])
    return {
        "machine": measure.machine() | {"threads": 1, "cpu_share": round(min(1.0, share), 3)},
        "bandwidth_bytes_per_s": card.bandwidth_bytes_per_s,
        "peak_flop_per_s": card.peak_flop_per_s,
        "context": CONTEXT,
        "repeats": REPEATS,
        "models": found,
    }


def measured(name):
    """The record of `measure` called `name` in FILES."""
    from specnotes.measure import measure
    from specnotes.pair import Pair, load_pair

    pair = load_pair()
    if name == "plain":
        pair.target.use_plain_products()
    if name == "large-draft":
        pair = Pair(pair.target, load_pair().target, pair.tokenizer)
    temperature = float(name[1:]) if name.startswith("T") else 1.0
    few = {"gammas": range(7), "repeats": 3} if name in ("plain", "large-draft") else {"repeats": 5}
    return measure(pair, temperature=temperature, **few)


def compared(name):
    """The record of `compare` called `name` in FILES."""
    from specnotes.heads import load_heads
    from specnotes.measure import compare, usual_ways
    from specnotes.pair import load_pair

    temperature = float(name.removeprefix("drafters-T"))
    ways = usual_ways(load_heads("medusa"), load_heads("eagle"), temperature)
    return compare(load_pair(), ways, temperature=temperature, repeats=5)


def record(name):
    """The record called `name` in FILES, measured now."""
    if name == "roofline":
        return roofline()
    return compared(name) if name.startswith("drafters") else measured(name)


def main(names):
    unknown = set(names) - set(FILES)
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; expected some of {', '.join(FILES)}")
    for name in names or FILES:
        found = record(name)
        fresh = DATA / f"{FILES[name]}.new"
        fresh.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        fresh.replace(DATA / FILES[name])
        print(f"Wrote {FILES[name]}: share of a core {found['machine']['cpu_share']:.0%}", flush=True)


if __name__ == "__main__":
    if not in_a_plain_environment():
        restarted()
    main(sys.argv[1:])
