"""`dlbench demo`: an example result that comes with dlbench, in its reports and its page."""

import lzma
import shlex
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated

from dlbench.reports import catalogue
from dlbench.reports.curve.threads import advice
from dlbench.reports.formats.export import to_stdout
from dlbench.reports.formats.outputs import why_unwritable
from dlbench.reports.report import ReportOptions, ReportSource
from dlbench.reports.results.leaders import fastest, headline, leads
from dlbench.reports.results.naming import row_name
from dlbench.reports.results.results import Results

from ..display.screen import as_called, show
from ..errors import UsageError
from . import options
from .options import flag, option, takes

EXAMPLE = resources.files("dlbench.reports") / "examples" / "2026-12-01-quick" / "store.sqlite.xz"
"""Store of the run that is shown: `dlbench run quick` on two CPUs."""
_ADVISED = "lstm32"
"""Network whose thread counts are shown."""
_NEXT = {
    "run quick": "the same on this machine; it says first what it downloads",
    "new step train_step.py": "a training step of your own, in any framework",
}
"""Commands to go on with, and their results."""


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """The options of `dlbench demo`."""

    out: Annotated[
        Path, option("--out", "The HTML file to write. It must not exist.", metavar="FILE")
    ] = Path("dlbench-demo.html")
    no_page: Annotated[bool, flag("--no-page", "Write no HTML page.")] = False


@takes(DemoOptions)
def demo_command(given: DemoOptions) -> None:
    """Show an example result: a matrix, who is fastest, how many threads to use, and a page.

    The numbers come with dlbench and were measured on another machine. Nothing is measured,
    downloaded or built, and it takes a few seconds. Exit codes: 0, or 2 if the page cannot be
    written.

    Examples:

    - `dlbench demo`
    - `dlbench demo --no-page`
    - `dlbench demo --out example.html`
    """
    if not given.no_page:
        _check(given.out)
    with tempfile.TemporaryDirectory(prefix="dlbench-demo-") as folder:
        store = Path(folder) / "example.sqlite"
        store.write_bytes(lzma.decompress(EXAMPLE.read_bytes()))
        results = Results.read([str(store)])
        source = ReportSource(lambda: results)
        first = results.records[0]
        machine = results.hosts[first.machine].name
        where = f"measured on {machine} on {first.started:%Y-%m-%d}"
        show(f"An example, {where}, not on this machine.")
        show("")
        _show_matrix(source)
        _show_fastest(source)
        _show_threads(source)
        if not given.no_page:
            _write_page(store, given.out, where)
    show("Next:")
    width = max(map(len, map(_typed, _NEXT)))
    for words, result in _NEXT.items():
        show(f"  {_typed(words):<{width}}  {result}", whole=True)


def _check(path: Path) -> None:
    """Raise UsageError if no new file can be written to this path."""
    with suppress(OSError):  # a name that is too long: the next line says so
        if path.exists() and not path.is_dir():
            raise UsageError(
                f"{path} exists already. Name another file (--out FILE), or leave the page out "
                "(--no-page)."
            )
    if reason := why_unwritable(path):
        raise UsageError(
            f"The page {path} cannot be written: {reason}. Name another file (--out FILE), or "
            "leave the page out (--no-page)."
        )


def _typed(words: str) -> str:
    return as_called(f"dlbench {words}")


def _show_matrix(source: ReportSource) -> None:
    report = catalogue.report("matrix")
    print(to_stdout(report, report.analyse(source), ReportOptions(), "terminal"))


def _show_fastest(source: ReportSource) -> None:
    compared = fastest(source.matrix())
    for line in headline(compared):
        show(line)
    show("How many times as long the next one takes, with its 95 % interval:")
    for line in leads(compared):
        show(f"  {line}")
    show("")


def _show_threads(source: ReportSource) -> None:
    """Print how many threads to use, for one network in each row."""
    curves = catalogue.report("threads").analyse(source).curves
    show(f"How many threads to use on {_ADVISED}:")
    for curve in curves:
        if curve.cell.network == _ADVISED:
            show(f"  {row_name(curve.points[0].cell.row)}: {advice(curve)}")
    show("")


def _write_page(store: Path, path: Path, where: str) -> None:
    from .page import PageOptions, page_text

    title = f"Example of dlbench, {where}"
    text = page_text(PageOptions(store=[str(store)], title=title), "")
    options.write_file(path, text, "The page")
    show(f"Written: {shlex.quote(str(path))}. Open it in a browser: it needs no network.")
    show("")
