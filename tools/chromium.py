"""Find a Chromium for the browser tests, else let Playwright install one, else say in one line what to install."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
APPLICATIONS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
ADVICE = (
    "The browser tests need Chromium: install it (Debian, Ubuntu: apt-get install chromium), "
    "or set CHROMIUM to the path of a Chromium or Chrome."
)

DRIVER_ADVICE = "The browser tests need Playwright, which does not start here (Debian, Ubuntu: apt-get install libatomic1): "


def installed():
    """The path of a Chromium or Chrome on this machine: $CHROMIUM, the search path, macOS, Playwright's own; else None.

    Raises ValueError when $CHROMIUM names a file that does not exist.
    """
    chosen = os.environ.get("CHROMIUM")
    if chosen:
        if not Path(chosen).is_file():
            raise ValueError(f"CHROMIUM: {chosen} is not a file, expected the path of a Chromium or Chrome")
        return chosen
    found = (shutil.which(name) for name in NAMES)
    on_mac = (path for path in APPLICATIONS if Path(path).is_file())
    return next(filter(None, found), None) or next(on_mac, None) or playwrights()


def playwrights():
    """The path of the Chromium that Playwright installed, or None."""
    try:
        from playwright.sync_api import sync_playwright
        with sync_playwright() as playwright:
            path = playwright.chromium.executable_path
    except Exception:  # no Playwright, or no driver for this system: both mean there is none
        return None
    return path if Path(path).is_file() else None


def install():
    """Let Playwright install its Chromium; True when it says it did."""
    command = [sys.executable, "-m", "playwright", "install", "chromium"]
    try:
        return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=900).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def driver_complaint():
    """What Playwright's driver says when it does not start, in one line; "" when it starts."""
    done = subprocess.run(
        [sys.executable, "-m", "playwright", "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return said[-1] if done.returncode else ""


def main():
    if "--path" not in sys.argv and (complaint := driver_complaint()):
        sys.exit(DRIVER_ADVICE + complaint)
    try:
        path = installed()
        if path is None and "--path" not in sys.argv:
            print("    none found: Playwright installs one", flush=True)
            path = installed() if install() else None
    except ValueError as error:
        sys.exit(str(error))
    if path is None:
        sys.exit(ADVICE)
    print(path)


if __name__ == "__main__":
    main()
