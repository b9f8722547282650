"""A training in miniature, run as a process of its own that may be killed at a step."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXT = "".join(f"KING {a}.\nWhat news of {b}, my lord, and of {a}?\n\n" for a in range(90) for b in "abcdefgh")


def begin(kill_at):
    """In the process: a small corpus in place of the real one, and SIGKILL at step `kill_at`, counted over all stages."""
    from specnotes.train import corpus, loop

    corpus.fetch = lambda folder: folder
    corpus.read_works = lambda archive: {"a": TEXT} | {name: TEXT[:9000] for name in corpus.HELD_OUT}
    taken, take_step = [], loop._take_step

    def killed_at(*args):
        taken.append(1)
        if len(taken) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return take_step(*args)

    loop._take_step = killed_at


def run(script, folder, kill_at=0):
    """The exit status of the Python text `script` with the folder as sys.argv[1]; it has called `begin(kill_at)`."""
    folder.mkdir(exist_ok=True)
    script = f"import sys\nfrom tests.training import TEXT, begin\nbegin({kill_at})\n{script}"
    return subprocess.run([sys.executable, "-c", script, str(folder)], cwd=ROOT, capture_output=True).returncode


def report(path, trained):
    """The training report in a file, without the seconds of what was `trained`: they alone depend on the clock."""
    found = json.loads(path.read_text())
    for name in trained:
        del found[name]["seconds"]
    return found
