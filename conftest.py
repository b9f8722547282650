"""What every test stands on: one thread a worker, figures without a window, no training code where torch is missing."""

import importlib.util
import os

for library in ("OPENBLAS", "OMP", "MKL"):  # read when NumPy is imported; workers that share cores would wait for each other
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import matplotlib

matplotlib.use("agg")

collect_ignore_glob = ["_build/*", ".venv/*", "assignments/*", "tests/make_*.py"]
if importlib.util.find_spec("torch") is None:
    collect_ignore_glob.append("specnotes/train/*")
