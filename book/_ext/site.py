"""The glue between the book and its site: explorers without a kernel, math without a network, a quiet console."""

import shutil
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from sphinx.errors import ExtensionError

HERE = Path(__file__).parent
ASSETS = HERE.parent / "_assets"
WIDGETS = HERE.parent.parent / "specnotes" / "widgets" / "js"
MATHJAX_FILES = ("tex-chtml.js", "input/tex/extensions", "output/chtml/fonts/woff-v2")


def explorers_script():
    """One classic script of every explorer's texts: `<script type="module">` is refused on file://.

    Each explorer keeps a scope of its own, because all of them define `render` and `compute`.
    """
    shared = ("theory.js", "ui.js")
    texts = [(WIDGETS / name).read_text(encoding="utf-8") for name in shared]
    texts.append((HERE / "hydrate.js").read_text(encoding="utf-8"))
    own = []
    for path in sorted(WIDGETS.glob("*.js")):
        if path.name not in shared:
            text = path.read_text(encoding="utf-8")
            own.append(f'"{path.stem}": (() => {{\n{text}\nreturn {{ render, compute }};\n}})(),')
    body = "\n".join([*texts, "hydrate({", *own, "});"])
    return f'(() => {{\n"use strict";\n{body}\n}})();\n'


def copy_mathjax(folder):
    """MathJax's TeX reader, its extensions and its fonts, from the installed package to `folder`."""
    try:
        source = Path(distribution("django-static-mathjax").locate_file("mathjax/static/mathjax/es5"))
    except PackageNotFoundError as missing:
        raise ExtensionError("django-static-mathjax is not installed; the book extra brings it") from missing
    for name in MATHJAX_FILES:
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / name, dirs_exist_ok=True)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, folder / name)


def prepare_static_files(app):
    """Write what the pages load into a folder of its own, beside the doctrees, and have it copied."""
    if app.builder.format != "html":
        return
    made = Path(app.doctreedir).parent / ".site"
    shutil.rmtree(made, ignore_errors=True)
    copy_mathjax(made / "mathjax")
    (made / "explorers.js").write_text(explorers_script(), encoding="utf-8")
    shutil.copy2(WIDGETS / "explorer.css", made / "explorers.css")
    app.config.html_static_path = [*app.config.html_static_path, str(made), str(ASSETS)]
    app.add_js_file("explorers.js", loading_method="defer")
    app.add_css_file("explorers.css")
    app.add_css_file("book.css")


def settle_options(app, config):
    """Math from the site itself, no launch buttons while there is no address, no download of sources that are not copied."""
    config.html_extra_path = [*config.html_extra_path, str(HERE.parent / "_root")]  # browsers ask for /favicon.ico unasked
    config.mathjax_path = "mathjax/tex-chtml.js"
    config.html_theme_options["use_download_button"] = False
    if not config.html_theme_options.get("repository_url"):
        config.html_theme_options["launch_buttons"] = {}


def drop_thebe(app, pagename, templatename, context, doctree):
    """Thebe is off: its inline script is not only useless but declared twice, which is an error."""
    scripts = context.get("script_files", [])
    context["script_files"] = [script for script in scripts if not _is_thebe(script)]


def _is_thebe(script):
    inline = (getattr(script, "attributes", None) or {}).get("body", "")
    return "thebe" in str(getattr(script, "filename", script)) or "THEBE_JS_URL" in inline


def setup(app):
    """Sphinx calls this; it says that pages may be read and written in parallel."""
    app.connect("config-inited", settle_options)
    app.connect("builder-inited", prepare_static_files)
    app.connect("html-page-context", drop_thebe, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
