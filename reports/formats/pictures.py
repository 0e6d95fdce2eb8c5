"""Pictures: pages of panels as PNG or SVG files, each whole or not there.

Colours are Okabe and Ito's (2008), told apart with every common colour vision; no meaning rests on colour alone.
"""

import math
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlbench.reports.errors import ReportError
from dlbench.reports.formats.inert import FIELD, visible
from dlbench.reports.formats.outputs import why_not

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Interval = tuple[float, float | None, float | None]
EXTENSIONS = (".png", ".svg")
GREY = "#666666"
_IN_PANEL, _LEGEND, _LINES = 64, 48, 4
"""The most characters of a text of a panel and of a line beside the panels, and the most lines of any text."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MOST_PANELS = 12
"""Of a page that a reader can take in at once."""
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
"""Their number has no factor in common with that of the colours: 63 names have a pair each of their own."""


def check_picture(path: Path) -> None:
    """Raise ReportError where this path cannot be a picture of ours: before anything costly is done."""
    if path.suffix.lower() not in EXTENSIONS:
        raise ReportError(f"A plot is written as PNG or SVG, not as {path.name!r}; end its name in .png or .svg.")
    if reason := why_not(path):
        raise ReportError(f"The plot {path} cannot be written: {reason}.")


def write_pages(figures: Iterable["Figure"], path: Path) -> list[Path]:
    """Write figures to this path, to NAME-2.png beside it and so on, and return the files; raises ReportError."""
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
            with mpl.rc_context({"svg.hashsalt": "dlbench", "svg.fonttype": "none"}), warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Glyph ")  # letters that the font lacks
                warnings.filterwarnings("ignore", message="constrained_layout not")  # names that are wide all the same
                metadata = {"Date": None} if path.suffix.lower() == ".svg" else {}
                figure.savefig(partial, dpi=150, metadata=metadata)
            partial.replace(path)
    except OSError as error:
        reason = error.strerror or error
        raise ReportError(f"The plot {path} cannot be written ({reason}); choose another place.") from error


def _make_inert(figure: "Figure") -> None:
    """Show names as `formats.inert` has it, none as a formula, and of long ones no more than there is room for."""
    from matplotlib.text import Text

    beside = {text: _LEGEND for legend in figure.legends for text in legend.get_texts()}
    around = dict.fromkeys(figure.texts, FIELD) | beside
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        lines = text.get_text().split("\n") if text in around else [text.get_text()]
        text.set_parse_math(False)
        text.set_text("\n".join(visible(line, around.get(text, _IN_PANEL)) for line in lines[:_LINES]))


def figure_of(
    panels: int,
    most_columns: int,
    panel: tuple[float, float],
    beside: tuple[float, float],
    least: tuple[float, float] = (0.0, 0.0),
) -> "tuple[Figure, Any]":
    """Return a figure with so many panels, and their axes as an array of rows.

    Sizes are width and height in inches: of a panel, of what stands beside the panels, and the least of the figure.
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


def bars(panel: "Axes", across: Sequence[float], up: Sequence[Interval], **style: Any) -> None:
    """Draw points joined by a line, each with its interval (value, low, high), of which an end may be unknown."""
    below = [0.0 if low is None else max(0.0, value - low) for value, low, _ in up]
    above = [0.0 if high is None else max(0.0, high - value) for value, _, high in up]
    values = [value for value, _, _ in up]
    panel.errorbar(across, values, yerr=[below, above], markersize=4, elinewidth=0.9, capsize=2, **style)


def gridded(panel: "Axes", title: str, sizes: Sequence[float]) -> None:
    """Give a panel a title, ticks at these sizes across, and a grid behind what it shows."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    panel.set_title(title, fontsize=9, loc="left")
    panel.xaxis.set_major_locator(FixedLocator(sizes))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.grid(color="#dddddd", linewidth=0.5)
    panel.set_axisbelow(True)
    plain_frame(panel)


def dated(panel: "Axes", fewest: int, most: int) -> None:
    """Write between so many dates under a panel, each as short as can be."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=fewest, maxticks=most)  # type: ignore[no-untyped-call]
    panel.xaxis.set_major_locator(locator)
    panel.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def plain_frame(panel: "Axes") -> None:
    """Take away the lines above a panel and to its right, and make its numbers small."""
    panel.tick_params(labelsize=7)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
