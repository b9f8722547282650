"""Write book/data/measured*.json: what `python -m specnotes measure --json` finds, for the chapter *Measuring decode*.

    measured.json               the embedded pair at temperature 1
    measured-T0.7.json, -T0     the same at other temperatures
    measured-plain.json         every product in one piece, as x @ W
    measured-large-draft.json   the target drafts for itself: every draft is right, and a draft step costs a target step

Takes about fifteen minutes. Make it on a quiet machine: each record says what share of a core was ours.
Names given as arguments (T1, T0.7, T0, plain, large-draft) choose some of them.
"""

import json
import os
import sys
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "book" / "data"
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
UNSET = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
FILES = {
    "T1": "measured.json", "T0.7": "measured-T0.7.json", "T0": "measured-T0.json",
    "plain": "measured-plain.json", "large-draft": "measured-large-draft.json",
}


def restart_plainly():
    """This script again, where NumPy starts with one thread and nobody's choice of kernels."""
    if set(UNSET) & set(os.environ) or any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        kept = {name: value for name, value in os.environ.items() if name not in UNSET}
        os.execve(sys.executable, [sys.executable, *sys.argv], kept | ONE_THREAD)


def record_of(name, **options):
    """The record called `name` in FILES."""
    from specnotes.measure import measure
    from specnotes.pair import Pair, load_pair

    pair = load_pair()
    if name == "plain":
        pair.target.use_plain_products()
    if name == "large-draft":
        pair = Pair(pair.target, load_pair().target, pair.tokenizer)
    temperature = float(name[1:]) if name.startswith("T") else 1.0
    few = {"gammas": range(7), "repeats": 3} if name in ("plain", "large-draft") else {"repeats": 5}
    return measure(pair, temperature=temperature, **few | options)


def main(names):
    unknown = set(names) - set(FILES)
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; expected some of {', '.join(FILES)}")
    for name in names or FILES:
        found = record_of(name)
        (DATA / FILES[name]).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"Wrote {FILES[name]}: share of a core {found['machine']['cpu_share']:.0%}", flush=True)


if __name__ == "__main__":
    restart_plainly()
    main(sys.argv[1:])
