"""Every numbered equation is held by a check cell, and the page that lists them is made from those cells."""

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book"))
ledger = importlib.import_module("_ext.ledger")

ORDER = ledger.reading_order((ROOT / "_toc.yml").read_text(encoding="utf-8"))
FOUND = ledger.entries(ROOT / "book", ORDER)


def notebook(folder, *cells):
    made = [{"cell_type": kind, "source": text, "metadata": {"tags": tags}} for kind, text, tags in cells]
    path = folder / "made.ipynb"
    path.write_text(json.dumps({"cells": made}))
    return path


TITLE = ("markdown", "# A chapter", [])
EQUATION = ("markdown", "So\n\n$$\na = b.\n$$ (eq-a)\n\nand on.", [])


@pytest.mark.parametrize("entry", FOUND, ids=lambda entry: entry.label)
def test_every_numbered_equation_names_a_function_that_exists_and_how_it_is_held(entry):
    assert entry.function and entry.how, f"{entry.label} in {entry.chapter} has no check cell after it"
    module, name = entry.function.rsplit(".", 1)
    assert callable(getattr(importlib.import_module(f"specnotes.{module}"), name))


def test_labels_are_unique_across_the_book():
    labels = [entry.label for entry in FOUND]
    assert len(labels) == len(set(labels)) >= 20


def test_no_equation_label_escapes_the_pattern():
    for path in (ROOT / "book").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        assert text.count("$$ (") == len(ledger.entries_of(path)), path.name


def test_every_check_cell_claims_an_equation():
    for path in (ROOT / "book").glob("*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if "check" in cell["metadata"].get("tags", ()):
                assert ledger.CLAIM.search("".join(cell["source"])), (path.name, "".join(cell["source"])[:80])


def test_an_equation_without_a_check_cell_is_seen(tmp_path):
    (entry,) = ledger.entries_of(notebook(tmp_path, TITLE, EQUATION, ("code", "# eq-a: rules.verify | not tagged", [])))
    assert entry.function is None and entry.how is None and entry.latex == "a = b."


def test_a_check_cell_before_its_equation_does_not_count(tmp_path):
    claim = ("code", "# eq-a: rules.verify | by enumeration\nassert True", ["check"])
    with pytest.raises(ValueError, match="claims eq-a"):
        ledger.entries_of(notebook(tmp_path, TITLE, claim, EQUATION))
    (entry,) = ledger.entries_of(notebook(tmp_path, TITLE, EQUATION, claim))
    assert (entry.function, entry.how, entry.title) == ("rules.verify", "by enumeration", "A chapter")


def test_the_built_page_lists_them_all():
    page = ROOT / "_build" / "html" / "book" / "proved.html"
    assert page.exists(), "run make book first"
    html = page.read_text(encoding="utf-8")
    for entry in FOUND:
        assert f"#equation-{entry.label}" in html, entry.label
        assert f"specnotes.{entry.function}" in html, entry.function
