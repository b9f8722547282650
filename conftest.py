"""What every test stands on: figures without a window, and no training code where torch is missing."""

import importlib.util

import matplotlib

matplotlib.use("agg")

collect_ignore_glob = ["_build/*", ".venv/*", "assignments/*", "tests/make_*.py"]
if importlib.util.find_spec("torch") is None:
    collect_ignore_glob.append("specnotes/train/*")
