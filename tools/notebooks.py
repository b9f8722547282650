"""Chapters as text and as notebooks: edit, run, normalise and check the notebooks in book/.

    edit NAME        write book/NAME.edit.md, a text version to edit (git ignores it)
    new NAME [TEXT]  begin a chapter, from a text file if one is given
    apply [NAME...]  turn the text versions back into notebooks, and execute those that changed
    run NAME... all  execute notebooks again, for instance after a change of the package
    normalise        write every notebook in the one form that is committed
    check            say which notebooks are not in that form; changes nothing
"""

import argparse
import base64
import copy
import hashlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
import yaml
from markdown_it import MarkdownIt
from mdit_py_plugins.colon_fence import colon_fence_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.myst_blocks import myst_block_plugin
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from PIL import Image, ImageChops

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"

# The first code cell of every notebook. `make repository URL=...` fills in the address.
SETUP = '''\
import sys

if "google.colab" in sys.modules:  # Colab opens a notebook without the course around it
    course = "{repository}"
    assert course, "This copy of the course does not know its own address. Set it with: make repository URL=..."
    ![ -d ~/specnotes ] || git clone --quiet --depth 1 {{course}} ~/specnotes
    %pip install --quiet ~/specnotes
    %cd -q ~/specnotes/book
import specnotes'''
SETUP_MARK = '"google.colab" in sys.modules'
SETUP_TAGS = ["remove-cell"]  # pages do without it

METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
    },
}
CELL_METADATA = ("tags", "mystnb", "slideshow")
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
VISIBLE = 8  # of 255: a smaller difference in a channel is a machine's rounding, not a change of the picture

MARKDOWN = MarkdownIt("commonmark").enable("table")
for plugin in (dollarmath_plugin, colon_fence_plugin, myst_block_plugin):
    MARKDOWN.use(plugin)
ABBREVIATIONS = {"e.g.", "i.e.", "cf.", "al.", "vs.", "etc.", "fig.", "figs.", "eq.", "eqs.", "sec.", "secs.", "ch.",
                 "no.", "dr.", "prof.", "approx.", "resp.", "pp.", "p.", "st.", "alg.", "thm.", "ref.", "refs.", "vol."}
ATOMS = re.compile(
    r"`+[^`]*`+|\$\$.*?\$\$|\$[^$]*\$|!?\[[^\]]*\](?:\([^)]*\)|\[[^\]]*\])?|<[^>\s][^>]*>", re.DOTALL)
ATOM = "\ue000"
SENTENCE_END = re.compile(rf"([.!?…][\"'”’)\]*_]*)[ ]+(?=[A-Z0-9Α-Ωα-ω\"'“‘(*_{ATOM}])")


# --- one sentence per line

def sentences(paragraph):
    """The sentences of a paragraph of Markdown, one a string; math, code and links are never cut.

    >>> sentences("Draft tokens, e.g. four. See `a. B` and\\n$p. Q$. Done.")
    ['Draft tokens, e.g. four.', 'See `a. B` and $p. Q$.', 'Done.']
    """
    text = " ".join(line.strip() for line in paragraph.splitlines())
    masked = ATOMS.sub(lambda match: ATOM * len(match.group()), text)
    found, start = [], 0
    for match in SENTENCE_END.finditer(masked):
        word = masked[start:match.end(1)].split()[-1].lstrip("(\"'“‘*_[")
        if word.lower() in ABBREVIATIONS or re.fullmatch(r"[A-Z]\.", word):
            continue
        found.append(text[start:match.end(1)])
        start = match.end()
    return [*found, text[start:]]


def rendered(text):
    return " ".join(MARKDOWN.render(text).split())


def is_plain(lines):
    """Whether these lines of a paragraph may be joined and cut: no forced line break, footnote or LaTeX environment."""
    broken = any(line.endswith(("  ", "\\")) for line in lines[:-1])
    return not (broken or lines[0].lstrip().startswith("[^") or "\\begin{" in "\n".join(lines))


def one_sentence_per_line(text):
    """Markdown with each sentence of its top-level paragraphs on a line of its own.

    Lists, tables, quotations, directives and HTML stay as they are, and so does a paragraph
    that would render differently.

    >>> one_sentence_per_line("One. Two\\nends here.\\n\\n- a. B. C.")
    'One.\\nTwo ends here.\\n\\n- a. B. C.'
    """
    lines = text.split("\n")
    for token in reversed(MARKDOWN.parse(text)):
        if token.type != "paragraph_open" or token.level:
            continue
        first, end = token.map
        block = lines[first:end]
        split = sentences("\n".join(block))
        if is_plain(block) and rendered("\n".join(split)) == rendered("\n".join(block)):
            lines[first:end] = split
    return "\n".join(lines)


# --- the committed form

def repository_address(root=ROOT):
    """The repository's address in _config.yml, "" while it is not set."""
    config = root / "_config.yml"
    settings = yaml.safe_load(config.read_text(encoding="utf-8")) if config.exists() else {}
    return ((settings or {}).get("repository") or {}).get("url") or ""


def setup_cell(repository=""):
    """The first code cell of every notebook: import specnotes, after fetching it when Colab opened the notebook."""
    cell = nbformat.v4.new_code_cell(SETUP.format(repository=repository), metadata={"tags": list(SETUP_TAGS)})
    cell.execution_count = None
    return cell


def is_setup(cell):
    return cell.cell_type == "code" and SETUP_MARK in cell.source


def with_setup(notebook, repository):
    """Put the setup cell in force: its text is renewed, or it is inserted below the first Markdown cell."""
    fresh = setup_cell(repository)
    for cell in filter(is_setup, notebook.cells):
        cell.source, cell.metadata = fresh.source, fresh.metadata
        return
    starts_with_text = bool(notebook.cells) and notebook.cells[0].cell_type == "markdown"
    notebook.cells.insert(1 if starts_with_text else 0, fresh)


def merged_streams(outputs):
    """Outputs in which neighbouring pieces of one stream are one: how a stream is cut depends on timing."""
    merged = []
    for output in outputs:
        if merged and output.output_type == "stream" == merged[-1].output_type and output.name == merged[-1].name:
            merged[-1].text += output.text
        else:
            merged.append(output)
    return merged


def normalise_code(cell, count):
    cell.source = "\n".join(line.rstrip() for line in cell.source.split("\n")).strip("\n")
    cell.execution_count = count
    cell.outputs = merged_streams(cell.outputs)
    for output in cell.outputs:
        if output.output_type == "execute_result":
            output.execution_count = count
        # The number of a live widget's model is new in every run; the html beside it says all there is.
        if "text/html" in output.get("data", {}):
            output.data.pop(WIDGET_VIEW, None)


def normalise_markdown(cell):
    cell.source = one_sentence_per_line(cell.source.strip("\n").rstrip())


def give_ids(cells):
    """Ids from a cell's text, so that they change only with it."""
    seen = {}
    for cell in cells:
        digest = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:10]
        seen[digest] = seen.get(digest, 0) + 1
        cell.id = f"{digest}-{seen[digest]}"


def normalised(notebook, repository="", before=None):
    """A copy of a notebook in the one form that is committed.

    Fixed kernel and language, no widget state, no times, ids from the text, counts 1..n, one sentence per line,
    the setup cell. `before` is the notebook as it was: a picture that did not visibly change keeps its bytes.
    Cells that were never executed keep no count, so that the hygiene test sees them.
    """
    notebook = copy.deepcopy(notebook)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict(copy.deepcopy(METADATA))
    notebook.cells = [cell for cell in notebook.cells if cell.source.strip()]
    with_setup(notebook, repository)
    count = 0
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({key: cell.metadata[key] for key in CELL_METADATA if cell.metadata.get(key)})
        if cell.cell_type == "code":
            count += 1
            normalise_code(cell, count if cell.execution_count else None)
        else:
            normalise_markdown(cell)
    give_ids(notebook.cells)
    keep_pictures(notebook, before)
    return notebook


# --- pictures

def pictures(notebook):
    """Every output of a notebook that holds a PNG."""
    outputs = (output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs)
    return [output for output in outputs if "image/png" in output.get("data", {})]


def looks_the_same(one, other):
    """Whether two PNGs in base64 show the same: same size, no channel of a pixel off by more than rounding."""
    one, other = (Image.open(io.BytesIO(base64.b64decode(png))).convert("RGBA") for png in (one, other))
    if one.size != other.size:
        return False
    return all(high <= VISIBLE for _, high in ImageChops.difference(one, other).getextrema())


def keep_pictures(notebook, before):
    """Give a picture the bytes it had in `before` if that holds one that looks the same."""
    old = [output.data["image/png"] for output in pictures(before)] if before else []
    for output in pictures(notebook):
        png = output.data["image/png"]
        output.data["image/png"] = next((kept for kept in old if looks_the_same(kept, png)), png)


# --- text versions

def inputs(notebook):
    """A short hash of all that a text version holds: kinds, texts and metadata of the cells, the setup cell left out."""
    cells = [cell for cell in normalised(notebook).cells if not is_setup(cell)]
    plain = [(cell.cell_type, cell.source, cell.metadata) for cell in cells]
    return hashlib.sha256(repr([(kind, text, sorted(data.items())) for kind, text, data in plain]).encode()).hexdigest()[:12]


def text_of(notebook):
    """A notebook as MyST text, without outputs and setup cell; its head remembers which notebook it was written from."""
    bare = normalised(notebook)
    bare.cells = [cell for cell in bare.cells if not is_setup(cell)]
    bare.metadata = nbformat.from_dict({"kernelspec": METADATA["kernelspec"]})
    body = jupytext.writes(bare, fmt="md:myst").split("\n---\n", 1)[1].lstrip("\n")
    return f"---\nfrom: '{inputs(notebook)}'\n---\n\n{body}"


def notebook_of(text):
    """A notebook from MyST text, and the version it was written from ("" for a new text)."""
    version, body = "", text
    if text.startswith("---\n"):
        front, body = text[4:].split("\n---\n", 1)
        version = (yaml.safe_load(front) or {}).get("from", "")
    return jupytext.reads(body.lstrip("\n"), fmt="md:myst"), str(version)


# --- files

def read(path):
    return nbformat.read(path, as_version=4)


def serialised(notebook):
    return nbformat.writes(notebook, version=4).rstrip("\n") + "\n"


def write_text(path, text):
    """Replace a file in one step, so that an interrupted write leaves the old one."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8", newline="\n") as file:
        file.write(text)
    os.chmod(file.name, path.stat().st_mode if path.exists() else 0o644)
    os.replace(file.name, path)


def chapters(folder=BOOK):
    return sorted(folder.glob("*.ipynb"))


def chapter(name, folder):
    """The notebook and the text version of a chapter, from its name with or without folder and ending."""
    stem = re.sub(r"(\.edit)?\.(ipynb|md)$", "", Path(name).name)
    return folder / f"{stem}.ipynb", folder / f"{stem}.edit.md"


def executed(notebook, folder):
    """A copy of a notebook, executed from its first cell to its last in a fresh kernel of this environment.

    Raises nbclient's CellExecutionError when a cell fails.
    """
    notebook = copy.deepcopy(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    for name in ("MPLBACKEND", "PYTHONSTARTUP"):
        os.environ.pop(name, None)
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    with tempfile.TemporaryDirectory() as profile:  # a reader's own IPython settings must not reach the outputs
        os.environ["IPYTHONDIR"] = profile
        NotebookClient(
            notebook, kernel_name="python3", timeout=600, allow_errors=False, store_widget_state=False,
            record_timing=False, extra_arguments=["--log-level=ERROR"], resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def execute_into(path, notebook, repository):
    """Execute `notebook` and write it, normalised, to `path`; a failing cell leaves the file as it was."""
    before = read(path) if path.exists() else None
    fresh = executed(normalised(notebook, repository), path.parent)
    write_text(path, serialised(normalised(fresh, repository, before)))


# --- commands: each returns the lines it has to say, and raises ValueError for what it cannot do

def edit(name, folder=BOOK):
    notebook_path, text_path = chapter(name, folder)
    if notebook_path.with_suffix(".md").exists():
        raise ValueError(f"NB: {notebook_path.stem}.md is plain text, edit book/{notebook_path.stem}.md itself")
    if not notebook_path.exists():
        known = ", ".join(path.stem for path in chapters(folder)) or "none yet"
        raise ValueError(f"NB: no chapter is called {notebook_path.stem}, expected one of: {known}")
    notebook = read(notebook_path)
    if text_path.exists():
        text, version = notebook_of(text_path.read_text(encoding="utf-8"))
        if inputs(text) not in (version, inputs(notebook)):
            raise ValueError(f"{text_path.name}: has changes that are not applied; apply or delete it first")
    write_text(text_path, text_of(notebook))
    return [f"Edit {text_path.relative_to(folder.parent)}, then: make notebooks"]


def new(name, text=None, folder=BOOK):
    notebook_path, text_path = chapter(name, folder)
    for path in (notebook_path, text_path):
        if path.exists():
            raise ValueError(f"NAME: {path.name} exists already, expected the name of a new chapter")
    title = re.sub("[-_]", " ", notebook_path.stem).capitalize()
    words = Path(text).read_text(encoding="utf-8") if text else f"# {title}\n"
    write_text(text_path, text_of(notebook_of(words)[0]))
    return apply([name], folder) if text else [f"Write {text_path.relative_to(folder.parent)}, then: make notebooks"]


def apply(names=(), folder=BOOK, force=False):
    texts = [chapter(name, folder)[1] for name in names] or sorted(folder.glob("*.edit.md"))
    said, failed = [], []
    for text_path in texts:
        try:
            said.append(apply_one(text_path, folder, force))
        except (ValueError, OSError, CellExecutionError) as error:
            failed.append(f"{text_path.name}: {error}")
    if failed:
        raise ValueError("\n".join([*said, *failed]))
    return said or ["No text version to apply: make edit NB=name writes one"]


def apply_one(text_path, folder, force):
    notebook_path, _ = chapter(text_path, folder)
    edited, version = notebook_of(text_path.read_text(encoding="utf-8"))
    if notebook_path.exists():
        current = inputs(read(notebook_path))
        if current == inputs(edited):
            return f"{notebook_path.name}: as it was"
        if current != version and not force:
            raise ValueError("the notebook has changed since this text was written; apply with --force to overwrite it")
    execute_into(notebook_path, edited, repository_address(folder.parent))
    write_text(text_path, text_of(edited))
    return f"{notebook_path.name}: executed and written"


def run(names, folder=BOOK):
    paths = chapters(folder) if "all" in names else [chapter(name, folder)[0] for name in names]
    said = []
    for path in paths:
        try:
            execute_into(path, read(path), repository_address(folder.parent))
        except (OSError, CellExecutionError) as error:
            raise ValueError("\n".join([*said, f"{path.name}: {error}"])) from None
        said.append(f"{path.name}: executed and written")
    return said


def unclean(folder=BOOK):
    """The notebooks of a folder that the normaliser would change."""
    repository = repository_address(folder.parent)
    return [path for path in chapters(folder)
            if path.read_text(encoding="utf-8") != serialised(normalised(read(path), repository))]


def normalise(folder=BOOK):
    changed = unclean(folder)
    for path in changed:
        write_text(path, serialised(normalised(read(path), repository_address(folder.parent))))
    return [f"{path.name}: normalised" for path in changed] or ["Nothing to normalise"]


def check(folder=BOOK):
    if found := unclean(folder):
        raise ValueError("\n".join(f"{path.name}: not in the committed form, run tools/notebooks.py normalise"
                                   for path in found))
    return [f"{len(chapters(folder))} notebooks are in the committed form"]


def parser():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("edit").add_argument("name")
    begin = commands.add_parser("new")
    begin.add_argument("name")
    begin.add_argument("text", nargs="?")
    turn = commands.add_parser("apply")
    turn.add_argument("names", nargs="*")
    turn.add_argument("--force", action="store_true", help="overwrite a notebook that changed meanwhile")
    commands.add_parser("run").add_argument("names", nargs="+")
    commands.add_parser("normalise")
    commands.add_parser("check")
    return parser


def main(arguments=None):
    options = vars(parser().parse_args(arguments))
    command = globals()[options.pop("command")]
    try:
        print("\n".join(command(**options)))
    except (ValueError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
