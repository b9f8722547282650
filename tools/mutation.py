"""Break one line at a time in a copy of the package and see whether a test notices: `python tools/mutation.py`.

It makes the mistakes that are easy with two rows of probabilities, and that general tools do not make:
p for q, two arguments swapped, a call replaced by its first argument (a dropped max, a dropped check), a statement
left out. tests/mutation.toml lists the general ones for cosmic-ray; tests/MUTATION.md has the results of both.
"""

import argparse
import ast
import copy
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIG = tomllib.loads((ROOT / "tests" / "mutation.toml").read_text(encoding="utf-8"))["cosmic-ray"]
TWINS = {"p": "q", "p_row": "q_row", "p_x": "q_x", "q_rows": "p_row", "alpha": "gamma", "c": "alpha", "c_hat": "alpha"}
TWINS |= {twin: name for name, twin in TWINS.items() if twin not in TWINS}


def mutants(source):
    """Every (line number, description, source) with one mistake made in it; messages of errors are left alone."""
    tree = ast.parse(source)
    messages = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Raise) for part in ast.walk(node.exc)}
    for index, node in enumerate(ast.walk(tree)):
        for what, change in changes(node) if id(node) not in messages else ():
            mutant = copy.deepcopy(tree)
            change(next(twin for place, twin in enumerate(ast.walk(mutant)) if place == index))
            yield node.lineno, what, ast.unparse(ast.fix_missing_locations(mutant))


def changes(node):
    """The mistakes one node allows: (description, function that makes it in the node's twin)."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in TWINS:
        other = TWINS[node.id]
        yield f"{node.id} -> {other}", lambda twin: setattr(twin, "id", other)
    if isinstance(node, ast.Call):
        for i in range(len(node.args) - 1):
            yield f"{ast.unparse(node)}: arguments {i + 1} and {i + 2} swapped", lambda twin, i=i: swap(twin.args, i)
        if node.args and not isinstance(node.args[0], ast.Starred):
            yield f"{ast.unparse(node)} -> {ast.unparse(node.args[0])}", lambda twin: replace(twin, twin.args[0])
    if isinstance(node, (ast.Raise, ast.AugAssign)) or is_call(node):
        yield f"left out: {ast.unparse(node)}", lambda twin: replace(twin, ast.Pass())


def is_call(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def swap(items, i):
    items[i], items[i + 1] = items[i + 1], items[i]


def replace(node, other):
    """Turn `node` into `other` in place."""
    node.__class__, node.__dict__ = other.__class__, {**other.__dict__, "lineno": node.lineno, "col_offset": 0}


def survives(folder, seconds):
    """Whether the tests of the configuration pass in `folder`; a run that does not end counts as noticed."""
    command = CONFIG["test-command"].replace("python", sys.executable, 1)
    try:
        done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as copied:
        folder = Path(copied)
        for name in ("specnotes", "tests", "tools", "pyproject.toml", "conftest.py"):
            path = ROOT / name
            shutil.copytree(path, folder / name) if path.is_dir() else shutil.copy2(path, folder / name)
        if not arguments.list and not survives(folder, CONFIG["timeout"]):
            sys.exit("the tests fail before anything is broken")
        for name in CONFIG["module-path"]:
            report(name, folder, arguments.list)


def report(name, folder, only_list):
    """Break the file `name` in every way and print what was not noticed."""
    source = (ROOT / name).read_text(encoding="utf-8")
    found = {text: f"line {line}: {what}" for line, what, text in sorted(mutants(source))}
    survivors = []
    for text, what in found.items():
        if only_list:
            print(name, what)
            continue
        (folder / name).write_text(text, encoding="utf-8")
        if survives(folder, CONFIG["timeout"]):
            survivors.append(what)
            print(f"survived  {name} {what}", flush=True)
    (folder / name).write_text(source, encoding="utf-8")
    print(f"{name}: {len(found)} mutants" + ("" if only_list else f", {len(survivors)} survived"), flush=True)


if __name__ == "__main__":
    main()
