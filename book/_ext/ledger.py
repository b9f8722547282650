"""The page *What is proved, and where*: a list made from the chapters' `check` cells.

A numbered equation is `$$ ... $$ (eq-name)`. The cell tagged `check` that holds it begins with a line

    # eq-name: module.function | how it is held

and comes after the equation in the same chapter. Nothing in the list is written by hand.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

EQUATION = re.compile(r"\$\$\s*((?:[^$]|\$(?!\$))+?)\s*\$\$\s*\((eq-[\w-]+)\)", re.DOTALL)
CLAIM = re.compile(r"^# (eq-[\w-]+): ([\w.]+) \| (.+)$", re.MULTILINE)
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Entry:
    """One numbered equation: its label, LaTeX and chapter, and the function and words of the cell that holds it."""

    label: str
    latex: str
    chapter: str
    title: str
    function: str | None = None
    how: str | None = None


def entries_of(path):
    """The Entries of one notebook in order; function and how are None where no later check cell claims the label."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    title = next(TITLE.search(text)[1] for cell, text in zip(cells, texts) if cell["cell_type"] == "markdown")
    found = {}
    for cell, text in zip(cells, texts):
        if cell["cell_type"] == "markdown":
            for latex, label in EQUATION.findall(text):
                found[label] = Entry(label, latex, path.stem, title)
        elif "check" in cell["metadata"].get("tags", ()):
            for label, function, how in CLAIM.findall(text):
                if label not in found:
                    raise ValueError(f"{path.name}: a check cell claims {label}, which no equation before it bears")
                found[label] = Entry(label, found[label].latex, path.stem, title, function, how)
    return list(found.values())


def entries(folder, order):
    """The Entries of the notebooks of a folder, in the order of the names in `order`; other names are no chapters."""
    paths = [folder / f"{name}.ipynb" for name in order]
    return [entry for path in paths if path.exists() for entry in entries_of(path)]


def listing(found):
    """The Entries as Markdown: a list per chapter, each equation with the function that computes it and how it is held."""
    lines, chapter = [], None
    for entry in found:
        if entry.chapter != chapter:
            chapter = entry.chapter
            lines += ["", f"**[{entry.title}]({chapter}.ipynb)**", ""]
        latex = " ".join(entry.latex.split()).rstrip(",.")
        lines += [
            f"- {{eq}}`{entry.label}` $\\displaystyle {latex}$",
            "",
            f"  {{py:func}}`{entry.function} <specnotes.{entry.function}>`: {entry.how}",
        ]
    return lines


def reading_order(toc):
    """The names of the chapters in the order of the table of contents, from the text of _toc.yml.

    >>> reading_order("root: book/index\\nchapters:\\n  - file: book/notation")
    ['index', 'notation']
    """
    return [Path(name).name for name in re.findall(r"\b(?:root|file): *(\S+)", toc)]


class Ledger(SphinxDirective):
    """`{ledger}`: the list of every numbered equation of the book."""

    def run(self):
        root = Path(self.env.srcdir)
        found = entries(root / "book", reading_order((root / "_toc.yml").read_text(encoding="utf-8")))
        for entry in found:
            self.env.note_dependency(str(root / "book" / f"{entry.chapter}.ipynb"))
        box = nodes.container(classes=["sn-ledger"])
        self.state.nested_parse(StringList(listing(found), source="ledger"), self.content_offset, box)
        return [box]


def setup(app):
    app.add_directive("ledger", Ledger)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
