"""A built site, a local server for it, and a browser that cannot reach anything else."""

import functools
import http.server
import threading
from pathlib import Path

import pytest

from tools import chromium

ROOT = Path(__file__).resolve().parents[2]
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # every other host does not exist
]  # fmt: skip


@pytest.fixture(scope="session")
def site():
    """The folder of the built site."""
    folder = ROOT / "_build" / "html"
    if not (folder / "index.html").is_file():
        pytest.fail("_build/html is not there: run `make book` first", pytrace=False)
    return folder


@pytest.fixture(scope="session")
def pages(site):
    """Every page of the site, as paths relative to it; not index.html where it only leads to another."""
    found = (path for path in site.rglob("*.html") if path.relative_to(site).parts[0] != "_static")
    return sorted(path.relative_to(site).as_posix() for path in found if not leads_on(path))


def leads_on(path):
    """Whether a page does nothing but lead to another one."""
    return 'http-equiv="refresh"' in path.read_text(encoding="utf-8").lower()


@pytest.fixture(scope="session")
def addresses(site):
    """Where the site is read from: {"http": ..., "file": ...}, each with a slash at its end."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {"http": f"http://127.0.0.1:{server.server_port}/", "file": f"{site.as_uri()}/"}
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def browser():
    """A Chromium without a window."""
    sync_api = pytest.importorskip("playwright.sync_api")
    path = chromium.installed()
    if path is None:
        pytest.fail(chromium.ADVICE, pytrace=False)
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="session")
def tabs(browser):
    """`tabs(**options)` is the one page, kept open, of a browser context with these options."""
    opened = {}

    def tab(**options):
        key = repr(sorted(options.items()))
        if key not in opened:
            opened[key] = browser.new_context(**options).new_page()
            opened[key].set_default_timeout(60_000)
        return opened[key]

    return tab


@pytest.fixture
def visit(tabs, addresses):
    """`visit(path, over="http", **options)` opens a page of the site; `visit.complaints` lists what went wrong.

    options are those of a browser context (viewport, color_scheme, java_script_enabled). A request to
    anywhere but the site finds no host, and is a complaint.
    """
    complaints, listened = [], []

    def open_page(path, over="http", **options):
        page = tabs(**options)
        if page not in listened:
            listened.append(page)
            _listen(page, tuple(addresses.values()), complaints)
        page.goto(addresses[over] + path, wait_until="load")
        return page

    open_page.complaints = complaints
    yield open_page
    for page in listened:
        for event in EVENTS:
            page.remove_listener(event, page.listening[event])
        page.goto("about:blank")


EVENTS = ("console", "pageerror", "request", "requestfailed", "response")


def _listen(page, homes, complaints):
    def complain(what):
        complaints.append(f"{page.url}: {what}")

    own = (*homes, "data:", "blob:", "about:")
    page.listening = {
        "console": lambda message: message.type == "error" and complain(f"console: {message.text}"),
        "pageerror": lambda error: complain(f"uncaught: {error}"),
        "request": lambda request: request.url.startswith(own) or complain(f"left the site: {request.url}"),
        # ERR_ABORTED is a request that was under way when the page was left.
        "requestfailed": lambda request: request.failure == "net::ERR_ABORTED" or complain(f"failed: {request.url}"),
        "response": lambda answer: answer.status >= 400 and complain(f"{answer.status}: {answer.url}"),
    }
    for event, listener in page.listening.items():
        page.on(event, listener)
