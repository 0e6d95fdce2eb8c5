"""A page as PDF: printed by its own print style through a Chromium that is installed here."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from dlbench.reports.formats.inert import FIELD, one_line
from dlbench.reports.formats.outputs import why_not

from ..errors import UsageError

NAMED_BY = "DLBENCH_CHROMIUM"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
TIME_LIMIT = 120.0
"""Seconds; a page of thousands of cells takes some ten."""
_ARGUMENTS = (
    "--headless",
    "--no-pdf-header-footer",
    # Neither a GPU nor anything of the network is needed for a file.
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


def find_chromium() -> str:
    """Return the path of the browser; raises UsageError where there is none."""
    given = os.environ.get(NAMED_BY)
    if given:
        if found := shutil.which(given):
            return found
        raise UsageError(
            f"{NAMED_BY} names {given}, which is no program here; give the path of a Chromium or unset it."
        )
    for name in PROGRAMS:
        if found := shutil.which(name):
            return found
    raise UsageError(
        f"A PDF is printed by a Chromium, and none is installed ({', '.join(PROGRAMS)}). Install one, name it in "
        f"{NAMED_BY}, or print the HTML page from any browser."
    )


def check_pdf(path: Path) -> None:
    """Raise UsageError where this path cannot be a PDF file of ours: before anything costly is done."""
    if path.suffix.lower() != ".pdf":
        raise UsageError(f"A PDF is not named {path.name!r}; end its name in .pdf.")
    if reason := why_not(path):
        raise UsageError(f"The PDF {path} cannot be written: {reason}.")


def print_to_pdf(text: str, path: Path, chromium: str, seconds: float = TIME_LIMIT) -> None:
    """Print a page (the text of an HTML file) to this path, whole or not at all, within so many seconds.

    Raises UsageError where the browser does not do it, or the file cannot be written.
    """
    try:
        # Beside the file: browsers in a package of their own may see neither /tmp nor hidden folders.
        with tempfile.TemporaryDirectory(dir=path.parent, ignore_cleanup_errors=True) as name:
            folder = Path(name).absolute()
            page, printed = folder / "page.html", folder / "page.pdf"
            page.write_text(_opened(text), encoding="utf-8")
            said = _run(
                [
                    chromium,
                    *_ARGUMENTS,
                    *(["--no-sandbox"] if os.geteuid() == 0 else []),  # as root Chromium does not start otherwise
                    f"--user-data-dir={folder / 'profile'}",
                    f"--print-to-pdf={printed}",
                    page.as_uri(),
                ],
                seconds,
                folder / "log",
            )
            if not printed.is_file() or not printed.read_bytes().startswith(b"%PDF-"):
                raise UsageError(f"{chromium} printed no PDF: {said}. Print the HTML page from a browser instead.")
            printed.replace(path)
    except OSError as error:
        raise UsageError(f"The PDF {path} cannot be printed ({error.strerror or error}).") from error


def _opened(text: str) -> str:
    """Return the page with every part open: on paper nothing can be opened, and the page's script may come too late."""
    return re.sub(r"<details(?=[\s>])", "<details open", text)


def _run(words: list[str], seconds: float, log: Path) -> str:
    """Run the browser, end it with all its processes, and return the last thing that it said."""
    with log.open("wb") as said:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
        )
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise UsageError(
            f"{words[0]} did not print the page within {seconds:g} s; nothing was written. Print the HTML page instead."
        ) from error
    finally:
        with contextlib.suppress(ProcessLookupError):  # its processes are a group of their own
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return one_line(lines[-1], FIELD).rstrip(".") if lines else f"it ended with code {process.returncode}"
