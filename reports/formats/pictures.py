"""Pictures: pages of panels as PNG or SVG files, each whole or not there.

Colours are Okabe and Ito's (2008), distinct for every common colour vision; no meaning rests on
colour alone.
"""

import math
import tempfile
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
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
_TITLE = "title of a panel"
"""Marks the titles of panels."""
_TITLE_WIDTH = 44
"""Characters that fit over a panel. Longer titles have several lines."""
_IN_PANEL = 64
"""The most characters of a text in a panel."""
_LEGEND = 48
"""The most characters of a name in a legend."""
_LINES = 4
"""The most lines of any text."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MOST_PANELS = 12
"""The most that a reader can take in at once on a page."""
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
"""Their number has no factor in common with that of the colours: 63 names have pairs of their own.
"""


def check_picture(path: Path) -> None:
    """Raise ReportError if this path cannot be a picture, before anything costly is done."""
    if path.suffix.lower() not in EXTENSIONS:
        raise ReportError(
            f"A plot is written as PNG or SVG, not as {path.name!r}; end its name in .png or .svg."
        )
    reason = why_unwritable(path)
    if reason:
        raise ReportError(f"The plot {path} cannot be written: {reason}.")


def write_pages(figures: Iterable["Figure"], path: Path) -> list[Path]:
    """Write figures to this path, to NAME-2.png next to it and so on, and return the files.

    Raises ReportError.
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
                # Letters that the font lacks.
                warnings.filterwarnings("ignore", message="Glyph ")
                # Names that are too wide in spite of their limits.
                warnings.filterwarnings("ignore", message="constrained_layout not")
                metadata = {"Date": None} if path.suffix.lower() == ".svg" else {}
                figure.savefig(partial, dpi=150, metadata=metadata)
            partial.replace(path)
    except OSError as error:
        reason = error.strerror or error
        raise ReportError(
            f"The plot {path} cannot be written ({reason}); choose another place."
        ) from error


def _make_inert(figure: "Figure") -> None:
    """Show names as `safe_text` has it, none as a formula, and long ones as far as they fit."""
    from matplotlib.text import Text

    # Texts around the panels may have several lines.
    width_around: dict[Text, int] = dict.fromkeys(figure.texts, FIELD)
    for legend in figure.legends:
        for name in legend.get_texts():
            width_around[name] = _LEGEND
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_parse_math(False)
        content = text.get_text()
        if text.get_gid() == _TITLE:
            title = visible(content, _LINES * _TITLE_WIDTH)
            text.set_text(textwrap.fill(title, _TITLE_WIDTH, max_lines=_LINES))
        elif text in width_around:
            lines = content.split("\n")[:_LINES]
            text.set_text("\n".join(visible(line, width_around[text]) for line in lines))
        else:
            text.set_text(visible(content, _IN_PANEL))


def figure_of(
    panels: int, most_columns: int, panel: Size, beside: Size, least: Size
) -> "tuple[Figure, Any]":
    """Return a figure with this many panels, and their axes as an array of rows.

    ``panel`` is the size of a panel, ``beside`` the room around the panels, and ``least`` the least
    size of the figure.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(most_columns, max(1, panels))
    rows = max(1, math.ceil(panels / columns))
    width = max(columns * panel[0] + beside[0], least[0])
    height = max(rows * panel[1] + beside[1], least[1])
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    for unused in axes.flat[panels:]:
        unused.set_visible(False)
    return figure, axes


def bars(
    panel: "Axes",
    along: Sequence[float],
    intervals: Sequence[Interval],
    down: bool = False,
    **style: Any,
) -> None:
    """Draw values with their intervals, of which an end may be unknown.

    Values go upwards, or across where ``along`` goes ``down``.
    """
    values = []
    below = []
    above = []
    for value, low, high in intervals:
        values.append(value)
        below.append(0.0 if low is None else max(0.0, value - low))
        above.append(0.0 if high is None else max(0.0, high - value))
    ends = [below, above]
    if down:
        panel.errorbar(values, along, xerr=ends, markersize=4, elinewidth=0.9, **style)
    else:
        panel.errorbar(along, values, yerr=ends, markersize=4, elinewidth=0.9, **style)


def gridded(panel: "Axes", title: str, sizes: Sequence[float] = ()) -> None:
    """Give a panel a title, a grid in the background, and ticks across at these sizes, if any."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    if sizes:
        panel.xaxis.set_major_locator(FixedLocator(sizes))
        panel.xaxis.set_major_formatter(FuncFormatter(_tick_label))
        panel.xaxis.set_minor_locator(NullLocator())
    panel.set_title(title, fontsize=9, loc="left", gid=_TITLE)
    panel.grid(color="#dddddd", linewidth=0.5)
    panel.set_axisbelow(True)
    plain_frame(panel)


def log_ticks(axis: "Axis", low: float, high: float) -> None:
    """Write round numbers at a logarithmic axis between these ends, more if it is short."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    range_ratio = high / low
    steps: tuple[float, ...]
    if range_ratio > 300:
        steps = (1.0,)
    elif range_ratio > 40:
        steps = (1.0, 3.0)
    elif range_ratio > 4:
        steps = (1.0, 2.0, 5.0)
    else:
        steps = (1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
    axis.set_major_locator(LogLocator(subs=steps))
    # The usual labels of powers are formulas, which pictures do not show.
    axis.set_major_formatter(FuncFormatter(_tick_label))
    axis.set_minor_formatter(NullFormatter())


def _tick_label(value: float, place: int | None) -> str:
    return f"{value:g}"


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
"""Inches from name to name."""
_AROUND = 0.7
"""Further inches of a panel."""
_SPREAD = 0.6
"""The part of the way from name to name that the series of one name take together."""


class DotPanel(NamedTuple):
    """One panel: its title, the names from the top down, and the value of each name and series."""

    title: str
    names: tuple[str, ...]
    points: dict[tuple[str, str], Interval]
    """By name and series; ends of an interval may be None."""


class Dots(NamedTuple):
    """A page of panels."""

    title: str
    across: str
    panels: tuple[DotPanel, ...]
    series: str = "threads"
    same: float | None = None
    """The value at a line, and the middle of a logarithmic axis: 1 for ratios."""


def dots_to_picture(pages: Iterable[Dots], path: Path, columns: int = 2) -> list[Path]:
    """Write pages to files (NAME-2.png and so on), and return the files.

    A file has at most `MOST_PANELS` panels. Raises ReportError.
    """
    return write_pages(_figures(pages, columns), path)


def _figures(pages: Iterable[Dots], columns: int) -> Iterator["Figure"]:
    """Yield a figure for every `MOST_PANELS` panels of each page."""
    for page in pages:
        for start in range(0, len(page.panels), MOST_PANELS):
            part = page._replace(panels=page.panels[start : start + MOST_PANELS])
            yield _figure(part, columns)


def _figure(page: Dots, columns: int) -> "Figure":
    series_numbers: dict[str, int] = {}
    ends: list[float] = []
    for content in page.panels:
        for (_, name), interval in content.points.items():
            series_numbers.setdefault(name, len(series_numbers))
            ends.extend(end for end in interval if end is not None)
    series = tuple(series_numbers)
    tallest = max((len(panel.names) for panel in page.panels), default=1)
    size = (5.2, _AROUND + _LINE * tallest)
    figure, axes = figure_of(
        len(page.panels), columns, panel=size, beside=(1.0, 0.9), least=(6.4, 2.4)
    )
    for panel, content in zip(axes.flat, page.panels, strict=False):
        _panel(panel, content, series, page.same)
    if page.same is None:
        for panel in axes.flat:
            panel.set_xlim(0.0, 1.05 * max(ends, default=1.0))
    figure.suptitle(page.title, fontsize=10)
    figure.supxlabel(page.across, fontsize=8)
    if series:
        figure.legend(
            [_mark(number) for number in range(len(series))],
            series,
            loc="outside right center",
            fontsize=8,
            frameon=False,
            title=page.series,
        )
    return figure


def _mark(number: int) -> "Artist":
    from matplotlib.lines import Line2D

    return Line2D([], [], markersize=5, **_style(number))


def _style(number: int) -> dict[str, Any]:
    """Return the look of a series by its number."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKS[number % len(MARKS)],
        "linestyle": "",
    }


def _panel(panel: "Axes", content: DotPanel, series: Sequence[str], same: float | None) -> None:
    has_one_series = len({name for name, _ in content.points}) == len(content.points)
    for number, series_name in enumerate(series):
        shift = 0.0
        if not has_one_series:
            shift = (number / (len(series) - 1) - 0.5) * _SPREAD
        positions = []
        intervals = []
        for place, name in enumerate(content.names):
            if (name, series_name) in content.points:
                positions.append(place + shift)
                intervals.append(content.points[name, series_name])
        bars(panel, positions, intervals, down=True, **_style(number))
    if same is not None:
        panel.set_xscale("log")
        panel.axvline(same, color=GREY, linewidth=0.8)
        log_ticks(panel.xaxis, *panel.get_xlim())
    # Names are written when the figure is drawn, after `_make_inert` treated its other texts.
    panel.set_yticks(range(len(content.names)), [visible(name, _LEGEND) for name in content.names])
    panel.set_ylim(len(content.names) - 0.4, -0.6)
    gridded(panel, content.title)
