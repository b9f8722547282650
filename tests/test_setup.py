"""The set-up: the same versions everywhere, the address of the repository, the browser."""

import re
import shutil
import subprocess
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import chromium, lock, notebooks, repository

ROOT = notebooks.ROOT
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
URL = "https://github.com/ada/course"


def locked():
    """{name: version} of the lock."""
    pins = [Requirement(pin) for pin in lock.pins(LOCK)]
    return {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in pins}


@pytest.mark.parametrize("wanted", [*PROJECT["dependencies"], *EXTRAS["book"], *EXTRAS["test"]])
def test_the_lock_holds_a_version_that_the_project_accepts(wanted):
    wanted = Requirement(wanted)
    assert wanted.specifier.contains(locked()[canonicalize_name(wanted.name)])


def test_every_line_of_the_lock_is_an_exact_version_with_a_hash():
    blocks = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", LOCK, flags=re.MULTILINE).strip())
    assert len(blocks) == len(lock.pins(LOCK)) == len(locked())
    assert [block for block in blocks if not re.match(r"[a-z0-9-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", block, re.DOTALL)] == []


@pytest.mark.parametrize("name", ["requirements.lock", "environment.yml"])
def test_a_pinned_environment_names_no_address(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert re.findall(r"https?:|file:|--\w*index|--find-links| @ ", text) == []


def test_the_conda_environment_has_the_versions_of_the_lock_and_the_package_itself():
    assert (ROOT / "environment.yml").read_text(encoding="utf-8") == lock.environment(LOCK)
    *conda, pip = CONDA["dependencies"]
    assert [re.match(r"\w+", name).group() for name in conda] == ["python", "pip"]
    assert pip["pip"] == [*lock.pins(LOCK), "-e ."]


def test_the_package_itself_asks_for_lower_bounds_only():
    operators = [part.operator for wanted in PROJECT["dependencies"] for part in Requirement(wanted).specifier]
    assert set(operators) == {">="}


def test_the_lock_brings_what_builds_the_package():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    assert all(Requirement(wanted).specifier.contains(locked()[wanted.split(">")[0]]) for wanted in build)


# The repository's address

@pytest.fixture
def course(tmp_path):
    """A copy of the files that hold the address, with one notebook."""
    for name in ("_config.yml", "_toc.yml", "README.md", "CITATION.cff"):
        shutil.copy2(ROOT / name, tmp_path / name)
    (tmp_path / "book").mkdir()
    notebook = notebooks.nbformat.v4.new_notebook(cells=[notebooks.nbformat.v4.new_markdown_cell("# Title")])
    notebooks.write_text(tmp_path / "book" / "a.ipynb", notebooks.serialised(notebooks.normalised(notebook)))
    write(tmp_path, "")
    return tmp_path


def write(root, url):
    new = repository.changes(root, url)
    for path, text in new.items():
        notebooks.write_text(path, text)
    return {path.name for path in new}


def contents(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_one_command_sets_the_address_everywhere(course):
    assert write(course, URL) == {"_config.yml", "README.md", "CITATION.cff", "a.ipynb"}
    config = yaml.safe_load((course / "_config.yml").read_text(encoding="utf-8"))
    assert config["repository"]["url"] == URL and config["repository"]["path_to_book"] == ""
    assert notebooks.repository_address(course) == URL
    assert notebooks.unclean(course / "book") == []
    assert f'course = "{URL}"' in (course / "book" / "a.ipynb").read_text(encoding="utf-8").replace("\\", "")
    assert f"git clone {URL}\n" in (course / "README.md").read_text(encoding="utf-8")
    assert yaml.safe_load((course / "CITATION.cff").read_text(encoding="utf-8"))["repository-code"] == URL


def test_setting_the_address_twice_changes_nothing_more(course):
    write(course, URL)
    assert repository.changes(course, f"{URL}.git") == {}


def test_an_empty_address_takes_everything_back(course):
    before = contents(course)
    write(course, URL)
    write(course, "")
    assert contents(course) == before


@pytest.mark.parametrize("url", [
    "github.com/ada/course", "http://github.com/ada/course", "https://github.com/ada", "https://github.com/ada/course/tree/main",
    "https://example.org/ada/course", "https://github.com/ada/co urse", 'https://github.com/ada/"x', "https://github.com/ada/..",
])
def test_an_address_that_cannot_be_launched_is_refused(course, url):
    before = contents(course)
    with pytest.raises(ValueError, match="URL: .*expected https://github.com/OWNER/NAME"):
        repository.changes(course, url)
    assert contents(course) == before


def test_a_file_without_its_place_for_the_address_leaves_all_files_as_they_were(course):
    (course / "README.md").write_text("no block here\n", encoding="utf-8")
    before = contents(course)
    with pytest.raises(ValueError, match="README.md: expected one block"):
        repository.changes(course, URL)
    assert contents(course) == before


def test_the_badges_point_at_the_first_page(course):
    write(course, URL)
    first = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))["root"] + ".ipynb"
    targets = re.findall(r"\)\]\((https://(?:mybinder|colab)[^\s)]+)\)\n", (course / "README.md").read_text(encoding="utf-8"))
    assert targets == [f"https://mybinder.org/v2/gh/ada/course/main?urlpath=lab/tree/{first}",
                       f"https://colab.research.google.com/github/ada/course/blob/main/{first}"]
    assert (ROOT / first).exists()


# The browser and the commands

def test_a_chosen_chromium_is_taken(tmp_path, monkeypatch):
    (tmp_path / "browser").write_text("")
    monkeypatch.setenv("CHROMIUM", str(tmp_path / "browser"))
    assert chromium.installed() == str(tmp_path / "browser")


def test_a_chosen_chromium_that_is_not_there_is_an_error(monkeypatch):
    monkeypatch.setenv("CHROMIUM", "/nowhere/chromium")
    with pytest.raises(ValueError, match="CHROMIUM: /nowhere/chromium is not a file"):
        chromium.installed()


def test_without_any_chromium_one_line_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(chromium, "installed", lambda: None)
    monkeypatch.setattr(chromium, "install", lambda: False)
    monkeypatch.setattr(chromium, "driver_complaint", lambda: "")
    monkeypatch.setattr("sys.argv", ["chromium.py"])
    with pytest.raises(SystemExit) as stop:
        chromium.main()
    assert stop.value.code == chromium.ADVICE and "\n" not in chromium.ADVICE and "apt-get install chromium" in chromium.ADVICE


def test_a_playwright_that_does_not_start_is_named_in_one_line(monkeypatch):
    monkeypatch.setattr(chromium, "driver_complaint", lambda: "libatomic.so.1: cannot open shared object file")
    monkeypatch.setattr("sys.argv", ["chromium.py"])
    with pytest.raises(SystemExit) as stop:
        chromium.main()
    assert "\n" not in stop.value.code and "libatomic1" in stop.value.code and "cannot open" in stop.value.code


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_lists_its_commands():
    said = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True).stdout
    commands = re.findall(r"^  make (\w+)", said, flags=re.MULTILINE)
    assert commands == ["help", "book", "test", "lab", "edit", "notebooks", "repository", "lock", "bench", "peers",
                        "clean"]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_stops_with_one_line_when_python_is_too_old(tmp_path):
    old = tmp_path / "python-old"
    old.write_text("#!/bin/sh\nexec python3 -c \"import sys; sys.version_info = (3, 9, 1); exec(sys.argv[1])\" \"$2\"\n")
    old.chmod(0o755)
    done = subprocess.run(["make", "-C", str(ROOT), f"VENV={tmp_path}/venv", f"PYTHON={old}", f"{tmp_path}/venv/.installed"],
                          capture_output=True, text=True)
    assert done.returncode != 0 and not (tmp_path / "venv").exists()
    first, *rest = done.stderr.splitlines()
    assert first.startswith("specnotes needs Python 3.11 or newer, this is 3.9") and len(rest) == 1


def test_the_wheel_carries_both_licences():
    assert PROJECT["license"] == "BSD-3-Clause AND CC-BY-4.0"
    assert "BSD 3-Clause License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    text = (ROOT / "LICENSE-TEXT").read_text(encoding="utf-8")
    assert "Creative Commons Attribution 4.0 International" in text and "Section 8" in text
    assert PROJECT["license-files"] == ["LICENSE", "LICENSE-TEXT"]
