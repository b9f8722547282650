"""Which module may import which: the arrows of the design, held against the source."""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "specnotes"
ARROWS = {
    "distributions": "", "dice": "", "theory": "", "roofline": "theory", "tree": "", "records": "", "language_model": "",
    "gpt2": "language_model tree",
    "rules": "records distributions theory",
    "law": "dice",
    "trace": "records distributions",
    "toy": "language_model distributions",
    "checkpoint": "gpt2",
    "pair": "gpt2 checkpoint",
    "heads": "gpt2 checkpoint pair",
    "drafters": "records tree language_model distributions pair",
    "decode": "dice rules records trace language_model distributions",
    "measure": "decode theory machine trace dice distributions drafters rules tree",
    "machine": "roofline",
    "serving": "roofline theory",
    "mistakes": "law rules records",
    "check": "law rules records",
    "plots": "theory roofline toy tree law rules trace",
    "widgets": "theory roofline toy tree law rules trace dice distributions",
    "__main__": "pair heads decode measure theory dice drafters trace rules",
}
THIRD_PARTY = {"numpy", "matplotlib", "ipywidgets", "anywidget", "traitlets", "IPython", "tokenizers", "safetensors",
               "huggingface_hub"}


def module_of(path):
    """The module of the layout a file belongs to: `rules`, or `drafters` for everything in that folder."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else path.stem


def imports(source, package):
    """Every name a source imports, dotted from the top; `package` is the dotted package of the file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[:len(package.split(".")) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            if stem == "specnotes":
                yield from (f"specnotes.{alias.name}" for alias in node.names)
            else:
                yield stem


def package_of(path):
    return ".".join(["specnotes", *path.relative_to(PACKAGE).parts[:-1]])


def crossed(path, source):
    """The modules of the package that this file imports against the arrows."""
    own = module_of(path)
    names = (name.split(".") for name in imports(source, package_of(path)))
    inside = {name[1] for name in names if name[0] == "specnotes" and len(name) > 1} - {own, "__version__"}
    return inside - set(ARROWS[own].split())


def strangers(path, source):
    """What this file imports from outside the standard library and the declared dependencies."""
    tops = {name.split(".")[0] for name in imports(source, package_of(path))}
    return tops - set(sys.stdlib_module_names) - THIRD_PARTY - {"specnotes"}


FILES = sorted(path for path in PACKAGE.rglob("*.py") if module_of(path) not in ("train", "__init__"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_along_the_arrows(path):
    assert crossed(path, path.read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_needs_only_the_declared_dependencies(path):
    assert strangers(path, path.read_text(encoding="utf-8")) == set()


def test_nobody_imports_the_training_code():
    assert "train" not in " ".join(ARROWS.values()).split()
    assert list(imports((PACKAGE / "__init__.py").read_text(encoding="utf-8"), "specnotes")) == []


def test_the_arrows_make_no_circle():
    done = set()
    while len(done) < len(ARROWS):
        ready = {name for name, targets in ARROWS.items() if set(targets.split()) <= done} - done
        assert ready, f"a circle among {set(ARROWS) - done}"
        done |= ready


@pytest.mark.parametrize(("name", "source"), [
    ("rules.py", "from specnotes.dice import RandomDice"),
    ("rules.py", "import specnotes.dice"),
    ("rules.py", "from specnotes import dice"),
    ("rules.py", "from .dice import RandomDice"),
    ("rules.py", "from . import dice"),
    ("drafters/model.py", "from ..decode import generate"),
    ("decode.py", "def f():\n    from specnotes.train import corpus"),
])
def test_an_import_against_the_arrows_is_seen(name, source):
    assert crossed(PACKAGE / name, source) != set()


@pytest.mark.parametrize(("name", "source"), [
    ("rules.py", "from specnotes.records import Verdict"),
    ("rules.py", "from .records import Verdict"),
    ("drafters/ngram.py", "from .model import ModelDrafter"),
    ("drafters/ngram.py", "from ..records import Draft"),
])
def test_an_import_along_the_arrows_is_allowed(name, source):
    assert crossed(PACKAGE / name, source) == set()


def test_a_dependency_that_is_not_declared_is_seen():
    assert strangers(PACKAGE / "rules.py", "import scipy.stats\nimport numpy.random\nimport os") == {"scipy"}
