"""Report pages of the real command, opened from their files in Chromium, and held to what every
page must do.

A page asks for nothing but itself, says nothing on the console and raises nothing: every test of
this folder checks it.
"""

import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kept_stores import EXAMPLE, kept_store
from playwright.sync_api import Browser, Page, sync_playwright

from dlbench.suites import cli

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
Show = Callable[..., Page]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Give one Chromium for all tests; skips where this machine has none."""
    result = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if result is None:
        pytest.skip("needs Chromium (Debian: apt-get install chromium)")
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=result, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="package")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Give the function that makes a page of stores with the command, once for the same words.

    Drawing the plots of reports takes most of the time: they are on a page that asks for them.
    """
    pages: dict[tuple[str, ...], Path] = {}

    def make(*words: str, plots: bool = False) -> Path:
        if words not in pages:
            path = tmp_path_factory.mktemp("page") / "report.html"
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("dlbench.reports.curve.fits.REPLICATES", 9)
                if not plots:
                    patch.setattr("dlbench.reports.page.sections.MOST_CELLS_DRAWN", 0)
                _carry_out("report", "page", *words, "--out", str(path))
            pages[words] = path
        return pages[words]

    return make


def _carry_out(*words: str) -> None:
    arguments = sys.argv
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    sys.argv = ["dlbench", *words]
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code, words
    finally:
        sys.argv = arguments
        for number, handler in handlers.items():
            signal.signal(number, handler)


@pytest.fixture(scope="package")
def example(page_of: Callable[..., Path]) -> Path:
    """Give the page of a real store: two networks, one machine, several launches of each cell."""
    return page_of("--store", str(EXAMPLE), plots=True)


@pytest.fixture(scope="package")
def machines(page_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the page of two machines, with warnings, disturbed launches, and cells without a
    number."""
    folder = tmp_path_factory.mktemp("stores")
    stores = [
        word for name in ("cpu", "elsewhere") for word in ("--store", str(kept_store(folder, name)))
    ]
    return page_of(*stores, "--networks", "fcn5")


@pytest.fixture(scope="package")
def small(page_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the page of a few cells, most of them without a number."""
    return page_of("--store", str(kept_store(tmp_path_factory.mktemp("store"), "faults")))


@pytest.fixture
def show(browser: Browser) -> Iterator[Show]:
    """Give the function that opens a page's file; a context of its own for each, with these
    options."""
    lines: list[str] = []
    contexts: list[Any] = []

    def open_page(
        path: Path, fragment: str = "", before: str = "", quiet: bool = True, **options: Any
    ) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        context.set_default_timeout(30_000)
        page = context.new_page()
        if quiet:
            page.on("console", lambda message: lines.append(f"console: {message.text}"))
            page.on("pageerror", lambda error: lines.append(f"error: {error}"))
            page.on("dialog", lambda dialog: lines.append(f"dialog: {dialog.message}"))
            page.on(
                "request",
                lambda request: (
                    lines.append(f"request: {request.url}") if foreign(request.url) else None
                ),
            )
        if before:
            page.add_init_script(before)
        page.goto(path.as_uri() + fragment)
        if options.get("java_script_enabled", True) and not before:
            page.wait_for_selector("#matrix-controls:not([hidden])")
        return page

    def foreign(address: str) -> bool:
        return not address.partition("#")[0].endswith("/report.html") and not address.startswith(
            "blob:"
        )

    yield open_page
    for context in contexts:
        context.close()
    assert lines == []
