"""Set the repository's address everywhere it is needed: `make repository URL=https://github.com/OWNER/NAME`.

_config.yml (the launch buttons follow from it), the first cell of each notebook, the head of README.md, CITATION.cff.
An empty address takes all of it away again.
"""

import functools
import re
import sys
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import notebooks

ADDRESS = re.compile(r"https://github\.com/([A-Za-z0-9][A-Za-z0-9-]*)/([A-Za-z0-9._-]+)")
README_BLOCK = re.compile(r"<!-- repository: set by make -->\n.*?<!-- /repository -->\n", re.DOTALL)


def checked(url):
    """The address in its short form: no slash or `.git` at its end; "" stays "".

    Raises ValueError for anything but https://github.com/OWNER/NAME: Colab opens notebooks from GitHub only.

    >>> checked("https://github.com/ada/course.git")
    'https://github.com/ada/course'
    """
    url = url.strip()
    short = url.rstrip("/").removesuffix(".git")
    match = ADDRESS.fullmatch(short)
    if url and (not match or match.group(2) in (".", "..")):
        raise ValueError(f"URL: {url!r}, expected https://github.com/OWNER/NAME (Colab opens notebooks from GitHub only)")
    return short


def in_config(text, url):
    """_config.yml with `url` in its repository block, every other line as it was."""
    block = re.search(r"^repository:\n(?:[ #].*\n|\n)*", text, flags=re.MULTILINE)
    lines = re.subn(r"^  url:.*$", f'  url: "{url}"', block.group(), flags=re.MULTILINE) if block else ("", 0)
    if lines[1] != 1:
        raise ValueError("_config.yml: expected one `url:` line below `repository:`")
    return text[:block.start()] + lines[0] + text[block.end():]


def in_readme(text, url, first_page="", branch="main"):
    """README.md with the clone command and badges that launch the first page, or with an empty block."""
    repository = url.removeprefix("https://github.com/")
    lines = [] if not url else [
        f"[![Binder](https://mybinder.org/badge_logo.svg)]"
        f"(https://mybinder.org/v2/gh/{repository}/{branch}?urlpath=lab/tree/{first_page})",
        f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
        f"(https://colab.research.google.com/github/{repository}/blob/{branch}/{first_page})",
        "", f"    git clone {url}"]
    block = "\n".join(["<!-- repository: set by make -->", *lines, "<!-- /repository -->", ""])
    written, found = README_BLOCK.subn(lambda _: block, text)
    if found != 1:
        raise ValueError("README.md: expected one block between the two repository comments")
    return written


def in_citation(text, url):
    """CITATION.cff with the line `repository-code`, or without it."""
    text = re.sub(r"^repository-code:.*\n", "", text, flags=re.MULTILINE)
    return f'{text}repository-code: "{url}"\n' if url else text


def changes(root, url):
    """{path: its new text} for every file that has to change; nothing is written yet.

    Raises ValueError when the address or a file is not as expected, OSError when a file is missing.
    """
    url = checked(url)
    first_page = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))["root"] + ".ipynb"
    edits = {
        "_config.yml": in_config,
        "README.md": functools.partial(in_readme, first_page=first_page),
        "CITATION.cff": in_citation,
    }
    new = {root / name: edit((root / name).read_text(encoding="utf-8"), url) for name, edit in edits.items()}
    for path in notebooks.chapters(root / "book"):
        notebook = notebooks.read(path)
        notebooks.with_setup(notebook, url)
        notebooks.give_ids(notebook.cells)
        new[path] = notebooks.serialised(notebook)
    return {path: text for path, text in new.items() if path.read_text(encoding="utf-8") != text}


def main(root=notebooks.ROOT):
    try:
        new = changes(root, sys.argv[1] if len(sys.argv) > 1 else "")
    except (ValueError, OSError) as error:
        sys.exit(str(error))
    for path, text in new.items():
        notebooks.write_text(path, text)
    print("\n".join(f"{path.relative_to(root)}: written" for path in new) or "Nothing to change")


if __name__ == "__main__":
    main()
