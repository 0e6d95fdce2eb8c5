"""Pictures: pages of panels as PNG or SVG files, each whole or not there.

Colours are Okabe and Ito's (2008), distinct for every common colour vision; no meaning rests on
colour alone.
"""

import math
import tempfile
import textwrap
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dlbench.reports.formats.outputs import why_unwritable
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.safe_text import FIELD, visible

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Interval = tuple[float, float | None, float | None]
Size = tuple[float, float]
"""Width and height in inches."""
EXTENSIONS = (".png", ".svg")
GREY = "#666666"
_TITLE, _TITLE_WIDTH = "title of a panel", 44
"""Marks the titles of panels, and the characters that fit over one: longer titles have several
lines."""
_IN_PANEL, _LEGEND, _LINES = 64, 48, 4
"""The most characters of a text of a panel and of a line or name beside a panel, and the most lines
of any text."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MOST_PANELS = 12
"""Of a page that a reader can take in at once."""
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
"""Their number has no factor in common with that of the colours: 63 names have a pair each of their
own."""


def check_picture(path: Path) -> None:
    """Raise ReportError where this path cannot be a picture of ours: before anything costly is
    done.
    """
    if path.suffix.lower() not in EXTENSIONS:
        raise ReportError(
            f"A plot is written as PNG or SVG, not as {path.name!r}; end its name in .png or .svg."
        )
    if reason := why_unwritable(path):
        raise ReportError(f"The plot {path} cannot be written: {reason}.")


def write_pages(figures: Iterable["Figure"], path: Path) -> list[Path]:
    """Write figures to this path, to NAME-2.png beside it and so on, and return the files; raises
    ReportError.
    """
    written = []
    for number, figure in enumerate(figures, start=1):
        target = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        check_picture(target)
        write_picture(figure, target)
        written.append(target)
    return written


def write_picture(figure: "Figure", path: Path) -> None:
    """Write a figure to this path, whole or not at all; raises ReportError."""
    import matplotlib as mpl

    _make_inert(figure)
    path = path.resolve()  # a symbolic link is followed
    try:
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            partial = Path(folder) / path.name
            # The same results give the same file.
            with (
                mpl.rc_context({"svg.hashsalt": "dlbench", "svg.fonttype": "none"}),
                warnings.catch_warnings(),
            ):
                warnings.filterwarnings("ignore", message="Glyph ")  # letters that the font lacks
                warnings.filterwarnings(
                    "ignore", message="constrained_layout not"
                )  # names that are wide all the same
                metadata = {"Date": None} if path.suffix.lower() == ".svg" else {}
                figure.savefig(partial, dpi=150, metadata=metadata)
            partial.replace(path)
    except OSError as error:
        reason = error.strerror or error
        raise ReportError(
            f"The plot {path} cannot be written ({reason}); choose another place."
        ) from error


def _make_inert(figure: "Figure") -> None:
    """Show names as `formats.inert` has it, none as a formula, and of long ones no more than there
    is room for.
    """
    from matplotlib.text import Text

    beside = {text: _LEGEND for legend in figure.legends for text in legend.get_texts()}
    around = dict.fromkeys(figure.texts, FIELD) | beside
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text.get_gid() == _TITLE:
            text.set_parse_math(False)
            title = visible(text.get_text(), _LINES * _TITLE_WIDTH)
            text.set_text(textwrap.fill(title, _TITLE_WIDTH, max_lines=_LINES))
            continue
        lines = text.get_text().split("\n") if text in around else [text.get_text()]
        text.set_parse_math(False)
        text.set_text(
            "\n".join(visible(line, around.get(text, _IN_PANEL)) for line in lines[:_LINES])
        )


def figure_of(
    panels: int, most_columns: int, panel: Size, beside: Size, least: Size
) -> "tuple[Figure, Any]":
    """Return a figure with this many panels, and their axes as an array of rows.

    Sizes are of a panel, of what stands beside the panels, and the least of the figure.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(most_columns, max(1, panels))
    rows = max(1, math.ceil(panels / columns))
    sizes = zip((columns, rows), panel, beside, least, strict=True)
    width, height = (max(count * each + further, few) for count, each, further, few in sizes)
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    for unused in axes.flat[panels:]:
        unused.set_visible(False)
    return figure, axes


def bars(
    panel: "Axes",
    along: Sequence[float],
    found: Sequence[Interval],
    down: bool = False,
    **style: Any,
) -> None:
    """Draw values with their intervals (an end may be unknown) upwards; across where what they are
    of goes ``down``.
    """
    values = [value for value, _, _ in found]
    below = [0.0 if low is None else max(0.0, value - low) for value, low, _ in found]
    above = [0.0 if high is None else max(0.0, high - value) for value, _, high in found]
    x, y = (values, along) if down else (along, values)
    ends: dict[str, Any] = {"xerr" if down else "yerr": [below, above]}
    panel.errorbar(x, y, markersize=4, elinewidth=0.9, **ends, **style)


def gridded(panel: "Axes", title: str, sizes: Sequence[float] = ()) -> None:
    """Give a panel a title, a grid behind what it shows, and ticks at these sizes across, if there
    are any.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    if sizes:
        panel.xaxis.set_major_locator(FixedLocator(sizes))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panel.xaxis.set_minor_locator(NullLocator())
    panel.set_title(title, fontsize=9, loc="left", gid=_TITLE)
    panel.grid(color="#dddddd", linewidth=0.5)
    panel.set_axisbelow(True)
    plain_frame(panel)


def log_ticks(axis: "Axis", low: float, high: float) -> None:
    """Write round numbers at a logarithmic axis between these ends, more of them where it is
    short.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    wide, many = high / low, (1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
    steps = (
        (1.0,) if wide > 300 else (1.0, 3.0) if wide > 40 else (1.0, 2.0, 5.0) if wide > 4 else many
    )
    axis.set_major_locator(LogLocator(subs=steps))
    # The usual labels of powers are formulas, which pictures do not show.
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def dated(panel: "Axes", fewest: int, most: int) -> None:
    """Write between this many dates under a panel, each as short as can be."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=fewest, maxticks=most)  # type: ignore[no-untyped-call]
    panel.xaxis.set_major_locator(locator)
    panel.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def plain_frame(panel: "Axes") -> None:
    """Take away the lines above a panel and to its right, and make its numbers small."""
    panel.tick_params(labelsize=7)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


# Dot plots: names down, values with their intervals across, series apart by colour and mark.

_LINE = 0.21
"""Inches from name to name, ..."""
_AROUND = 0.7
"""... and what a panel takes besides."""
_SPREAD = 0.6
"""Of the way from name to name: what the series of one name take together."""


class Panel(NamedTuple):
    """One panel: its title, the names from the top down, and the value of each name in each
    series.
    """

    title: str
    names: tuple[str, ...]
    points: dict[tuple[str, str], Interval]
    """By name and series; ends of an interval may be None."""


class Dots(NamedTuple):
    """A page of panels."""

    title: str
    across: str
    panels: tuple[Panel, ...]
    series: str = "threads"
    same: float | None = None
    """Where a line stands, and the middle of a logarithmic axis: 1 for ratios."""


def dots_to_picture(pages: Iterable[Dots], path: Path, columns: int = 2) -> list[Path]:
    """Write each page, of at most `MOST_PANELS` panels, to a file (NAME-2.png and so on) and return
    them.

    Raises ReportError.
    """
    parts = (
        page._replace(panels=page.panels[start : start + MOST_PANELS])
        for page in pages
        for start in range(0, len(page.panels), MOST_PANELS)
    )
    return write_pages((_figure(page, columns) for page in parts), path)


def _figure(page: Dots, columns: int) -> "Figure":
    series = tuple(dict.fromkeys(of for panel in page.panels for _, of in panel.points))
    tallest = max((len(panel.names) for panel in page.panels), default=1)
    size = (5.2, _AROUND + _LINE * tallest)
    figure, axes = figure_of(
        len(page.panels), columns, panel=size, beside=(1.0, 0.9), least=(6.4, 2.4)
    )
    for panel, content in zip(axes.flat, page.panels, strict=False):
        _panel(panel, content, series, page.same)
    if page.same is None:
        ends = [
            end
            for panel in page.panels
            for point in panel.points.values()
            for end in point
            if end is not None
        ]
        for panel in axes.flat:
            panel.set_xlim(0.0, 1.05 * max(ends, default=1.0))
    figure.suptitle(page.title, fontsize=10)
    figure.supxlabel(page.across, fontsize=8)
    handles = [_mark(number) for number in range(len(series))]
    if handles:
        figure.legend(
            handles,
            series,
            loc="outside right center",
            fontsize=8,
            frameon=False,
            title=page.series,
        )
    return figure


def _mark(number: int) -> "Artist":
    from matplotlib.lines import Line2D

    colour, mark = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
    return Line2D([], [], color=colour, marker=mark, linestyle="", markersize=5)


def _panel(panel: "Axes", content: Panel, series: Sequence[str], same: float | None) -> None:
    alone = len({name for name, _ in content.points}) == len(content.points)
    for number, of in enumerate(series):
        aside = 0.0 if alone else (number / (len(series) - 1) - 0.5) * _SPREAD
        found = [
            (place, content.points[name, of])
            for place, name in enumerate(content.names)
            if (name, of) in content.points
        ]
        where = [place + aside for place, _ in found]
        look = {
            "color": COLOURS[number % len(COLOURS)],
            "marker": MARKS[number % len(MARKS)],
            "linestyle": "",
        }
        bars(panel, where, [point for _, point in found], down=True, **look)
    if same is not None:
        panel.set_xscale("log")
        panel.axvline(same, color=GREY, linewidth=0.8)
        log_ticks(panel.xaxis, *panel.get_xlim())
    # Written when it is drawn, behind what makes a figure's other texts inert.
    panel.set_yticks(range(len(content.names)), [visible(name, _LEGEND) for name in content.names])
    panel.set_ylim(len(content.names) - 0.4, -0.6)
    gridded(panel, content.title)
