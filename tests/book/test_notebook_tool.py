"""The notebook tool: texts to notebooks and back, execution, and the committed form."""

import base64
import io
import json
import shutil
import sys

import nbformat
import numpy as np
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from PIL import Image

from tools import notebooks

TEXT = """\
# A made-up chapter

One sentence. Another, e.g. this one by Leviathan et al. on drafts.

```{code-cell}
:tags: [check]

total = 2 + 2
total
```

Words between.

+++

A cell of its own.

```{code-cell}
---
mystnb:
  image:
    alt: A line that goes up
tags: [hide-input]
---
print("one")
print("two")
```
"""
SENTENCES = [
    ("One. Two.", ["One.", "Two."]),
    ("One\nline. Two.", ["One line.", "Two."]),
    ("See e.g. Chen et al. Their rule, i.e. the same one, is older.",
     ["See e.g. Chen et al. Their rule, i.e. the same one, is older."]),
    ("By Y. Leviathan. It works.", ["By Y. Leviathan.", "It works."]),
    ("At 3.5 it is $a. B$ and `c. D`. Then $x$ grows. $y$ falls.",
     ["At 3.5 it is $a. B$ and `c. D`.", "Then $x$ grows.", "$y$ falls."]),
    ("Is it? Yes! (Really.) *Good.* End", ["Is it?", "Yes!", "(Really.)", "*Good.*", "End"]),
    ("Read [one. Two](a.md). Next.", ["Read [one. Two](a.md).", "Next."]),
    ("A ratio of 2.8. γ is four.", ["A ratio of 2.8.", "γ is four."]),
]
UNTOUCHED = [
    "- a. B. C.\n- d", "| a. B | c |\n|---|---|\n| D. E | f |", "> Said. And said.", "$$\na. B\n$$", "```python\na. B\n```",
    "```{note}\nOne. Two.\n```", ":::{note}\nOne. Two.\n:::", "<details><summary>One. Two.</summary>\n</details>",
    "A line.  \nA forced break. Here.", "# A title. With a stop", "1. One. Two.\n2. Three.",
]


def png(shade, level=1):
    pixels = np.full((4, 5, 3), shade, dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=level)
    return base64.b64encode(buffer.getvalue()).decode()


def with_picture(data):
    cell = nbformat.v4.new_code_cell("draw()", execution_count=1)
    cell.outputs = [nbformat.v4.new_output("display_data", {"image/png": data})]
    return nbformat.v4.new_notebook(cells=[cell])


@pytest.fixture
def book(tmp_path):
    folder = tmp_path / "book"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A chapter written from TEXT, executed once for all tests."""
    root = tmp_path_factory.mktemp("course")
    (root / "book").mkdir()
    (root / "text.md").write_text(TEXT, encoding="utf-8")
    notebooks.new("made_up", root / "text.md", root / "book")
    return root / "book"


@pytest.fixture
def chapter(written, book):
    shutil.copytree(written, book, dirs_exist_ok=True)
    return book / "made_up.ipynb"


@pytest.mark.parametrize(("paragraph", "expected"), SENTENCES)
def test_a_paragraph_is_cut_into_its_sentences(paragraph, expected):
    assert notebooks.one_sentence_per_line(paragraph).split("\n") == expected


@pytest.mark.parametrize("block", UNTOUCHED)
def test_lists_tables_math_code_directives_and_html_stay_as_they_are(block):
    assert notebooks.one_sentence_per_line(f"Before.\n\n{block}\n\nAfter.") == f"Before.\n\n{block}\n\nAfter."


def test_a_cut_that_would_begin_a_list_is_not_made():
    text = "There were many. 1. is not a list here."
    assert notebooks.rendered(notebooks.one_sentence_per_line(text)) == notebooks.rendered(text)


def test_a_text_becomes_an_executed_notebook_in_the_committed_form(chapter):
    notebook = notebooks.read(chapter)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [1, 2, 3]
    assert code[0].source == notebooks.setup_cell().source and code[0].outputs == []
    assert code[1].outputs[0].data["text/plain"] == "4" and code[1].metadata.tags == ["check"]
    assert code[2].outputs[0].text == "one\ntwo\n" and code[2].metadata.mystnb.image.alt == "A line that goes up"
    assert notebook.cells[0].source.endswith("One sentence.\nAnother, e.g. this one by Leviathan et al. on drafts.")
    assert notebooks.unclean(chapter.parent) == []


def test_a_notebook_survives_the_way_through_its_text(chapter):
    notebook = notebooks.read(chapter)
    back, version = notebooks.notebook_of(notebooks.text_of(notebook))
    assert notebooks.inputs(back) == notebooks.inputs(notebook) == version
    kinds = [(cell.cell_type, cell.source, cell.metadata) for cell in notebooks.normalised(back).cells]
    assert kinds == [(cell.cell_type, cell.source, cell.metadata) for cell in notebook.cells]


def test_running_again_changes_no_byte(chapter):
    before = chapter.read_bytes()
    notebooks.run(["made_up"], chapter.parent)
    assert chapter.read_bytes() == before


def test_an_unchanged_text_is_not_executed(chapter, monkeypatch):
    monkeypatch.setattr(notebooks, "executed", lambda *_: pytest.fail("executed"))
    assert notebooks.apply((), chapter.parent) == ["made_up.ipynb: as it was"]


def test_a_changed_text_is_executed(chapter):
    text = chapter.with_name("made_up.edit.md")
    text.write_text(text.read_text(encoding="utf-8").replace("2 + 2", "2 + 3"), encoding="utf-8")
    notebooks.apply((), chapter.parent)
    assert notebooks.read(chapter).cells[2].outputs[0].data["text/plain"] == "5"
    assert notebooks.apply((), chapter.parent) == ["made_up.ipynb: as it was"]


def test_a_failing_cell_leaves_the_notebook_as_it_was(chapter):
    before, text = chapter.read_bytes(), chapter.with_name("made_up.edit.md")
    text.write_text(text.read_text(encoding="utf-8").replace("2 + 2", "1 / 0"), encoding="utf-8")
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        notebooks.apply((), chapter.parent)
    assert chapter.read_bytes() == before


def test_a_text_written_from_an_older_notebook_is_refused(chapter):
    text = chapter.with_name("made_up.edit.md")
    text.write_text(text.read_text(encoding="utf-8").replace("Words between.", "Other words."), encoding="utf-8")
    notebook = notebooks.read(chapter)
    notebook.cells[0].source += "\n\nWritten meanwhile."
    before = notebooks.serialised(notebooks.normalised(notebook))
    notebooks.write_text(chapter, before)
    with pytest.raises(ValueError, match="has changed since"):
        notebooks.apply((), chapter.parent)
    with pytest.raises(ValueError, match="not applied"):
        notebooks.edit("made_up", chapter.parent)
    assert chapter.read_text(encoding="utf-8") == before


def test_a_new_chapter_takes_no_name_that_is_there(chapter):
    with pytest.raises(ValueError, match="made_up.ipynb exists already"):
        notebooks.new("made_up", None, chapter.parent)


def test_an_unknown_chapter_is_named_with_those_that_exist(book):
    with pytest.raises(ValueError, match="no chapter is called other, expected one of: none yet"):
        notebooks.edit("other", book)


def test_a_picture_that_looks_the_same_keeps_its_bytes():
    old, new = png(100), png(101, level=9)
    assert old != new
    kept = notebooks.normalised(with_picture(new), before=with_picture(old))
    assert notebooks.pictures(kept)[0].data["image/png"] == old


def test_a_picture_that_looks_different_is_replaced():
    kept = notebooks.normalised(with_picture(png(140)), before=with_picture(png(100)))
    assert notebooks.pictures(kept)[0].data["image/png"] == png(140)


def test_the_committed_form_keeps_no_time_no_widget_state_and_one_stream():
    cell = nbformat.v4.new_code_cell("print(1)  \nwidget\n\n", execution_count=9, metadata={
        "execution": {"iopub.execute_input": "now"}, "tags": ["check"], "scrolled": True})
    cell.outputs = [
        nbformat.v4.new_output("stream", name="stdout", text="1"),
        nbformat.v4.new_output("stream", name="stdout", text="\n"),
        nbformat.v4.new_output("display_data", {"text/html": "<p>", notebooks.WIDGET_VIEW: {"model_id": "f00"}}),
    ]
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata={"widgets": {}, "language_info": {"name": "python",
                                                                                               "version": "3.11.7"}})
    form = notebooks.normalised(notebook)
    assert form.metadata == notebooks.METADATA
    assert form.cells[1].metadata == {"tags": ["check"]} and form.cells[1].source == "print(1)\nwidget"
    assert [output.get("text") for output in form.cells[1].outputs] == ["1\n", None]
    assert list(form.cells[1].outputs[1].data) == ["text/html"]
    assert notebooks.serialised(notebooks.normalised(form)) == notebooks.serialised(form)
    assert cell.execution_count == 9, "the notebook that was passed in stays as it was"


def test_ids_follow_the_text_of_a_cell_and_are_unique():
    cells = [nbformat.v4.new_markdown_cell(text) for text in ("A", "B", "A")]
    first = [cell.id for cell in notebooks.normalised(nbformat.v4.new_notebook(cells=cells)).cells]
    longer = [cell.id for cell in notebooks.normalised(nbformat.v4.new_notebook(
        cells=[*cells, nbformat.v4.new_markdown_cell("C")])).cells]
    assert len(set(first)) == 4 and longer[:4] == first


def run_setup(source, modules, calls):
    """Run the setup cell with IPython's own translation of its magic lines, and with `modules` loaded."""

    class Shell:
        system = staticmethod(lambda line: calls.append(line))
        run_line_magic = staticmethod(lambda name, line: calls.append(f"%{name} {line}"))

    namespace = {"get_ipython": Shell, "__builtins__": __builtins__}
    with pytest.MonkeyPatch.context() as patch:
        for name in modules:
            patch.setitem(sys.modules, name, object())
        exec(TransformerManager().transform_cell(source), namespace)


def test_the_setup_cell_does_nothing_but_import_on_a_readers_own_machine():
    calls = []
    run_setup(notebooks.setup_cell("https://github.com/ada/course").source, [], calls)
    assert calls == []


def test_the_setup_cell_says_what_is_missing_in_colab_while_no_address_is_set():
    calls = []
    with pytest.raises(AssertionError, match="does not know its own address"):
        run_setup(notebooks.setup_cell().source, ["google.colab"], calls)
    assert calls == []


def test_the_setup_cell_fetches_and_installs_the_course_in_colab():
    calls = []
    source = notebooks.setup_cell("https://github.com/ada/course").source
    run_setup(source, ["google.colab"], calls)
    assert 'course = "https://github.com/ada/course"' in source
    assert [call.split()[0] for call in calls] == ["[", "%pip", "%cd"]


def test_a_notebook_is_plain_json_with_a_final_newline(chapter):
    text = chapter.read_text(encoding="utf-8")
    assert text.endswith("}\n") and json.loads(text)["nbformat_minor"] == 5
