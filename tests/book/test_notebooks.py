"""Hygiene of the committed notebooks. Each guard is also shown a notebook it must refuse."""

import re
import socket

import nbformat
import pytest
import yaml

from tools import notebooks

CHAPTERS = notebooks.chapters()
ADDRESS = notebooks.repository_address()
TAGS = {"check", "hide-cell", "hide-input", "hide-output", "nbval-ignore-output", "remove-cell", "remove-input"}
READS_THE_MACHINE = re.compile(r"measure|perf_counter|this_machine")
MACHINE = re.compile(
    r"(?<![\w.~])/(?:home|Users|root|work|tmp|usr|opt|var|content|private)/|\b[A-Z]:\\|site-packages|\.pyenv")


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    return [output for cell in code(notebook) for output in cell.outputs]


def tags(cell):
    return cell.metadata.get("tags", [])


def prose(notebook):
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def shown(notebook):
    """Everything a reader sees: sources and the text of outputs."""
    texts = [cell.source for cell in notebook.cells]
    for output in outputs(notebook):
        texts.append(output.get("text", ""))
        texts += [str(data) for mime, data in output.get("data", {}).items() if not mime.startswith("image/")]
    return texts


# Each guard gives the complaints it has about a notebook.

def executed_in_order(notebook):
    counts = [cell.execution_count for cell in code(notebook)]
    return [] if counts == list(range(1, len(counts) + 1)) else [f"execution counts {counts}"]


def starts_with_the_setup_cell(notebook):
    cells = code(notebook)
    expected = notebooks.setup_cell(ADDRESS)
    same = bool(cells) and cells[0].source == expected.source and tags(cells[0]) == tags(expected)
    alone = sum(notebooks.is_setup(cell) for cell in cells) == 1
    return [] if same and alone else ["the first code cell is not the setup cell"]


def says_nothing_on_stderr(notebook):
    return [output.text for output in outputs(notebook) if output.output_type == "stream" and output.name == "stderr"]


def stores_no_error(notebook):
    return [output.ename for output in outputs(notebook) if output.output_type == "error"]


def stores_no_widget_state(notebook):
    views = [output for output in outputs(notebook) if notebooks.WIDGET_VIEW in output.get("data", {})]
    return ["widget state"] * ("widgets" in notebook.metadata) + ["a view on a widget that is gone"] * len(views)


def ends_no_cell_in_a_semicolon(notebook):
    return [cell.source for cell in code(notebook) if cell.source.rstrip().endswith(";")]


def describes_every_picture(notebook):
    undescribed = []
    for cell in code(notebook):
        alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
        if any("image/png" in output.get("data", {}) for output in cell.outputs) and len(alt.split()) < 4:
            undescribed.append(f"alt text {alt!r} of: {cell.source}")
    return undescribed


def has_short_cells(notebook):
    return [cell.source for cell in code(notebook) if len(cell.source.splitlines()) > 10]


def is_one_sitting(notebook):
    words, cells = len(prose(notebook).split()), len(code(notebook))
    return [f"{words} words"] * (words > 2500) + [f"{cells} code cells"] * (cells > 20)


def names_no_machine(notebook):
    host = socket.gethostname()
    named = [text for text in shown(notebook) if len(host) > 5 and host != "localhost" and host in text]
    return named + [match.group() for text in shown(notebook) if (match := MACHINE.search(text))]


def compares_all_but_the_live_machine(notebook):
    ignored = [cell for cell in code(notebook) if "nbval-ignore-output" in tags(cell)]
    complaints = [f"{len(ignored)} cells are not compared"] * (len(ignored) > 1)
    complaints += [cell.source for cell in ignored if not READS_THE_MACHINE.search(cell.source)]
    return complaints + [cell.source for cell in code(notebook) if re.search(r"#\s*(NBVAL_|PYTEST_VALIDATE)", cell.source)]


def uses_known_tags(notebook):
    return [f"tag {tag!r}" for cell in notebook.cells for tag in tags(cell) if tag not in TAGS]


def has_no_private_macros(notebook):
    return re.findall(r"\\(?:newcommand|renewcommand|def|DeclareMathOperator)\b", prose(notebook))


def is_in_the_committed_form(notebook):
    same = notebooks.serialised(notebooks.normalised(notebook, ADDRESS)) == notebooks.serialised(notebook)
    return [] if same else ["the normaliser would change it"]


GUARDS = [
    executed_in_order, starts_with_the_setup_cell, says_nothing_on_stderr, stores_no_error, stores_no_widget_state,
    ends_no_cell_in_a_semicolon, describes_every_picture, has_short_cells, is_one_sitting, names_no_machine,
    compares_all_but_the_live_machine, uses_known_tags, has_no_private_macros, is_in_the_committed_form,
]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.__name__)
@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter(path, guard):
    assert guard(notebooks.read(path)) == []


def test_the_normaliser_changes_no_byte_of_a_committed_notebook():
    assert notebooks.unclean() == []


def test_the_contents_list_every_notebook_and_nothing_that_is_not_there():
    contents = yaml.safe_load((notebooks.ROOT / "_toc.yml").read_text(encoding="utf-8"))
    entries = [contents, *contents.get("chapters", [])]
    for part in contents.get("parts", []):
        entries += part["chapters"]
    listed = [entry.get("root") or entry.get("file") for entry in entries if "url" not in entry]
    assert {path.stem for path in CHAPTERS} <= {name.removeprefix("book/") for name in listed}
    assert [name for name in listed if not any((notebooks.ROOT / f"{name}.{end}").exists() for end in ("ipynb", "md"))] == []


# A made-up notebook every guard accepts, and for each guard a way to spoil it.

def clean():
    cell = nbformat.v4.new_code_cell("2 + 2", execution_count=1)
    cell.outputs = [nbformat.v4.new_output("execute_result", {"text/plain": "4"}, execution_count=1)]
    setup = notebooks.setup_cell(ADDRESS)
    setup.execution_count = 1
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Title\n\nWords."), setup, cell])
    return notebooks.normalised(notebook, ADDRESS)


def stream(name, text):
    return nbformat.v4.new_output("stream", name=name, text=text)


def data(mime, value):
    return nbformat.v4.new_output("display_data", {mime: value})


def unrun(notebook):
    code(notebook)[-1].execution_count = None


def run_twice(notebook):
    code(notebook)[-1].execution_count = 7


def drop_setup(notebook):
    notebook.cells.remove(code(notebook)[0])


def change_setup(notebook):
    code(notebook)[0].source += "\nimport numpy"


def warn(notebook):
    code(notebook)[-1].outputs = [stream("stderr", "a warning")]


def fail(notebook):
    code(notebook)[-1].outputs = [nbformat.v4.new_output("error", ename="ValueError", evalue="", traceback=[])]


def keep_state(notebook):
    notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {}}


def keep_view(notebook):
    code(notebook)[-1].outputs = [data(notebooks.WIDGET_VIEW, {"model_id": "0"})]


def silence(notebook):
    code(notebook)[-1].source = "2 + 2;"


def draw_without_words(notebook):
    code(notebook)[-1].outputs = [data("image/png", "")]


def lengthen_a_cell(notebook):
    code(notebook)[-1].source = "\n".join(["1"] * 11)


def lengthen_the_prose(notebook):
    notebook.cells[0].source += " word" * 2500


def add_cells(notebook):
    notebook.cells += [nbformat.v4.new_code_cell("1", execution_count=3 + n) for n in range(19)]


def print_a_path(notebook):
    code(notebook)[-1].outputs = [stream("stdout", "saved in /home/ada/figure.png")]


def print_the_host(notebook):
    code(notebook)[-1].outputs = [stream("stdout", f"on {socket.gethostname()}")]


def ignore_an_output(notebook):
    code(notebook)[-1].metadata["tags"] = ["nbval-ignore-output"]


def ignore_two_outputs(notebook):
    for cell in code(notebook)[-2:]:
        cell.source, cell.metadata["tags"] = "measure()", ["nbval-ignore-output"]


def ignore_by_comment(notebook):
    code(notebook)[-1].source = "# NBVAL_SKIP\n2 + 2"


def mistype_a_tag(notebook):
    code(notebook)[-1].metadata["tags"] = ["hide_input"]


def define_a_macro(notebook):
    notebook.cells[0].source += "\n\n$\\newcommand{\\E}{E}$"


def stamp_the_time(notebook):
    code(notebook)[-1].metadata["execution"] = {"iopub.execute_input": "2026-01-01T00:00:00Z"}


SPOILERS = [
    (executed_in_order, unrun), (executed_in_order, run_twice), (starts_with_the_setup_cell, drop_setup),
    (starts_with_the_setup_cell, change_setup), (says_nothing_on_stderr, warn), (stores_no_error, fail),
    (stores_no_widget_state, keep_state), (stores_no_widget_state, keep_view), (ends_no_cell_in_a_semicolon, silence),
    (describes_every_picture, draw_without_words), (has_short_cells, lengthen_a_cell), (is_one_sitting, lengthen_the_prose),
    (is_one_sitting, add_cells), (names_no_machine, print_a_path), (names_no_machine, print_the_host),
    (compares_all_but_the_live_machine, ignore_an_output), (compares_all_but_the_live_machine, ignore_two_outputs),
    (compares_all_but_the_live_machine, ignore_by_comment), (uses_known_tags, mistype_a_tag),
    (has_no_private_macros, define_a_macro), (is_in_the_committed_form, stamp_the_time),
]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.__name__)
def test_a_guard_accepts_a_clean_notebook(guard):
    assert guard(clean()) == []


@pytest.mark.parametrize(("guard", "spoil"), SPOILERS, ids=lambda function: function.__name__)
def test_a_guard_refuses_a_spoilt_notebook(guard, spoil, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "ada-laptop")
    notebook = clean()
    spoil(notebook)
    assert guard(notebook) != []


def test_every_guard_has_a_notebook_it_refuses():
    assert {guard for guard, _ in SPOILERS} == set(GUARDS)
