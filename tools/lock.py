"""Pin the environment: requirements.lock from pyproject.toml, environment.yml from requirements.lock.

`python tools/lock.py` resolves again (it needs the package index); `--environment` only rewrites environment.yml.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONDA_PYTHON = "3.12"
ENVIRONMENT_HEAD = f"""\
# Written by `make lock` from requirements.lock: the same versions, for conda and for Binder.
# conda env create -f environment.yml
name: specnotes
channels:
  - conda-forge
dependencies:
  - python={CONDA_PYTHON}
  - pip
  - pip:
"""


def pins(lock_text):
    """The requirements of a lock file, hashes left out: one `name==version ; marker` each.

    >>> pins("a==1 ; os_name == 'nt' \\\\\\n    --hash=sha256:00\\nb==2 \\\\\\n    --hash=sha256:11\\n")
    ["a==1 ; os_name == 'nt'", 'b==2']
    """
    lines = re.findall(r"^(\w[^\\\n]*?)\s*\\?$", lock_text, flags=re.MULTILINE)
    return [line.strip() for line in lines]


def environment(lock_text):
    """The text of environment.yml for a lock file's text."""
    return ENVIRONMENT_HEAD + "".join(f"    - {pin}\n" for pin in pins(lock_text)) + "    - -e .\n"


def resolve(root, options=()):
    """Write requirements.lock: one set of versions for every Python from 3.11 on, with hashes, without addresses."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = next(path for path in (Path(folder, "bin", "python"), Path(folder, "Scripts", "python.exe"))
                      if path.exists())
        subprocess.run([python, "-m", "pip", "install", "--quiet", "uv"], check=True)
        subprocess.run(
            [python, "-m", "uv", "pip", "compile", "pyproject.toml", "--extra", "book", "--extra", "test",
             "--universal", "--python-version", "3.11", "--fork-strategy", "fewest", "--generate-hashes",
             "--no-emit-index-url", "--no-annotate", "--custom-compile-command", "make lock", "--quiet",
             "--output-file", "requirements.lock", *options], cwd=root, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", action="store_true", help="only rewrite environment.yml from the lock")
    parser.add_argument("--upgrade", action="store_true", help="take newer versions than the lock has")
    arguments = parser.parse_args()
    if not arguments.environment:
        resolve(ROOT, ["--upgrade"] if arguments.upgrade else [])
    (ROOT / "environment.yml").write_text(environment((ROOT / "requirements.lock").read_text()))


if __name__ == "__main__":
    main()
