"""The objects that `dlbench.measure`, `dlbench.compare` and `dlbench.gate` return.

Each shows itself as its command does: `repr` is the command's text, a notebook shows the same as
HTML, and ``to_json()`` is its ``--json``.
"""

import textwrap
from abc import ABC, abstractmethod
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Generic

from dlbench.adapters import axes
from dlbench.reports.compare.report import REPORT as COMPARED
from dlbench.reports.compare.report import WORDS, by_verdict, gate_outcome, headline, sentence_of
from dlbench.reports.formats.export import export
from dlbench.reports.formats.json import finite
from dlbench.reports.formats.layout import Page
from dlbench.reports.formats.markup import page_to_html
from dlbench.reports.formats.pictures import COLOURS, GREY, MARKS, Interval, bars, gridded
from dlbench.reports.formats.terminal import page_to_terminal
from dlbench.reports.frames import FIRST_AXES, cells_of, launches_of
from dlbench.reports.matrix import REPORT as MATRIX
from dlbench.reports.report import Content, Report, ReportOptions
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.comparison import CellComparison, Comparison
from dlbench.reports.results.judged import TIME
from dlbench.reports.results.keys import axis_value
from dlbench.reports.results.leaders import fastest, leads
from dlbench.reports.results.matrix import Matrix, build_matrix
from dlbench.reports.results.naming import counted, name_of, place_heading, row_name, work_name
from dlbench.reports.results.number_text import number, percent
from dlbench.reports.results.results import Results
from dlbench.reports.results.safe_text import visible
from dlbench.reports.results.verdict import Verdict

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


_LONGEST_NAME = 34
"""Characters of a line of a name in a plot."""
_HEADING_LEVEL = 4


class Result(ABC, Generic[Content]):
    """A report's content as an object."""

    def __init__(self, report: Report[Content], content: Content, store: str) -> None:
        self._report = report
        self._content = content
        self.store = store
        """The store that holds the launches: a file, or a URL without its password."""

    @property
    @abstractmethod
    def table(self) -> "pd.DataFrame":
        """The numbers, a row for each cell."""

    @property
    @abstractmethod
    def sentence(self) -> str:
        """The result in one line."""

    @abstractmethod
    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the numbers with their intervals on ``ax``, or on a new figure, and return it."""

    def _page(self) -> Page:
        return self._report.page(self._content, ReportOptions())

    def to_json(self) -> str:
        """Return the JSON text that the command prints with ``--json``."""
        return export(self._report, self._content, ReportOptions(), "json")

    def __repr__(self) -> str:
        """Return the text that the command prints, for 80 columns."""
        return page_to_terminal(self._page()).rstrip("\n")

    def _repr_html_(self) -> str:
        """Return the same for a notebook."""
        page = self._page()
        page = page._replace(before=(self.sentence, *page.before))
        return f'<div class="dlbench">{page_to_html(page, _HEADING_LEVEL)}</div>'


class MeasureResult(Result[Matrix]):
    """The cells that `dlbench.measure` measured."""

    def __init__(self, results: Results, run: str, store: str) -> None:
        self._results = results
        self.run = run
        """The id of the run in the store."""
        super().__init__(MATRIX, build_matrix(results), store)

    @property
    def table(self) -> "pd.DataFrame":
        """A row for each cell: seconds per step, interval and flags, as `dlbench.cells` has them.

        A cell without a number has ``seconds`` NaN, and a ``status`` and a ``reason``.
        """
        return cells_of(self._content)

    @property
    def launches(self) -> "pd.DataFrame":
        """A row for each launch, as `dlbench.launches` has them."""
        return launches_of(self._results)

    @property
    def sentence(self) -> str:
        """The fastest cell in one line, or why no cell has a number."""
        cells = list(self._content.cells.values())
        timed = [cell for cell in cells if cell.shown and cell.seconds is not None]
        if not cells:
            return "Nothing was measured."
        if not timed:
            return f"No cell has a number: {cells[0].reason}"
        best = min(timed, key=_seconds)
        assert best.seconds is not None
        text = f"{name_of(best.cell)}: {number(best.seconds.median)} s"
        if best.seconds.low is not None and best.seconds.high is not None:
            text += f" ({number(best.seconds.low)} to {number(best.seconds.high)} s)"
        text += f" per step, {counted(best.seconds.launches, 'launch', 'launches')}"
        if len(cells) == 1:
            return text
        return f"Fastest of {len(cells)} cells: {text}"

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the objects that `dlbench run --json` prints, one for each cell."""
        data: list[dict[str, Any]] = finite(self._report.as_data(self._content))
        return data

    def _page(self) -> Page:
        page = super()._page()
        leading = leads(fastest(self._content))
        return page._replace(after=(*page.after, *leading))

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw seconds per step by threads, with 95 % intervals, and return the axes.

        Without ``ax`` on a new figure of `matplotlib.pyplot`.
        """
        panel = _axes(ax, height=3.6)
        series: dict[str, tuple[list[float], list[Interval]]] = {}
        places: list[str] = []
        for cell in self._content.cells.values():
            if not cell.shown or cell.seconds is None:
                continue
            place = place_heading(cell.cell)
            if place not in places:
                places.append(place)
            name = f"{work_name(cell.cell)}: {row_name(cell.cell)}"
            along, intervals = series.setdefault(name, ([], []))
            along.append(places.index(place))
            intervals.append((cell.seconds.median, cell.seconds.low, cell.seconds.high))
        for index, (name, (along, intervals)) in enumerate(series.items()):
            style: dict[str, Any] = {
                "color": COLOURS[index % len(COLOURS)],
                "marker": MARKS[index % len(MARKS)],
                "label": visible(name, 2 * _LONGEST_NAME),
            }
            bars(panel, along, intervals, capsize=3, **style)
        panel.set_xticks(range(len(places)), places)
        panel.set_xlim(-0.5, max(1, len(places)) - 0.5)
        panel.set_ylim(bottom=0)
        panel.set_xlabel("threads, or device")
        panel.set_ylabel("seconds per step (bars: 95 % interval)")
        machine_names = [host.name for host in self._content.hosts.values()]
        gridded(panel, _shortened(", ".join(machine_names)))
        if series:
            panel.legend(fontsize=8, frameon=False)
        return panel


def _seconds(cell: CellResult) -> float:
    assert cell.seconds is not None
    return cell.seconds.median


class CompareResult(Result[Comparison]):
    """The comparison of a candidate with a baseline that `dlbench.compare` made."""

    def __init__(self, comparison: Comparison, store: str, run: str = "") -> None:
        self.run = run
        """The id of the run in the store; empty where two stored runs were compared."""
        super().__init__(COMPARED, comparison, store)

    @property
    def verdict(self) -> str:
        """The gravest verdict of any cell.

        REGRESSION, BROKEN, DIFFERENT, IMPROVEMENT, INCONCLUSIVE, CONTENDED, COMPARISON (of
        machines: no verdict on a change), NO_REGRESSION or HOLE (nothing to compare).
        """
        return next(iter(by_verdict(self._content)), Verdict.HOLE).value

    @property
    def sentence(self) -> str:
        """The one cell's verdict with its reason, or how many cells have which verdict."""
        return self._finding()

    def _finding(self) -> str:
        cells = self._content.cells
        if len(cells) == 1:
            return f"{cells[0].name}: {sentence_of(cells[0])}"
        return headline(self._content)

    @property
    def table(self) -> "pd.DataFrame":
        """A row for each cell and quantity that is judged.

        Columns: ``network``, ``framework``, ``mode``, ``device``, ``threads``, ``batch_size``,
        ``quantity``, ``verdict``; ``ratio`` (candidate / baseline, above 1 is slower) with ``low``
        and ``high`` (its interval), ``p`` (one-sided, adjusted where several cells were judged);
        ``baseline_seconds`` and ``candidate_seconds`` (medians of a step over launches),
        ``baseline_launches`` and ``candidate_launches``; ``sentence`` (the reason); then the other
        axes. Missing values are NaN.
        """
        import pandas as pd

        rows = [_compared_row(cell) for cell in self._content.cells]
        frame = pd.DataFrame(rows, columns=list(_COMPARED_COLUMNS))
        runs = [self.run] if self.run else []
        frame.attrs = {
            "runs": runs,
            "machines": {host.fingerprint: host.name for host in self._content.hosts},
            "units": {"baseline_seconds": "s", "candidate_seconds": "s"},
        }
        return frame

    def to_dict(self) -> dict[str, Any]:
        """Return the object that the command prints with ``--json``."""
        data: dict[str, Any] = finite(self._report.as_data(self._content))
        return data

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw candidate / baseline of each cell with its interval, and return the axes.

        Lines mark no change and the smallest slowdown that is called a regression. Without ``ax``
        on a new figure of `matplotlib.pyplot`.
        """
        names: list[str] = []
        series: dict[Verdict, tuple[list[float], list[Interval]]] = {}
        for cell in self._content.cells:
            ratio = cell.judgement.ratio
            if ratio is None:
                continue
            places, intervals = series.setdefault(cell.verdict, ([], []))
            places.append(len(names))
            intervals.append((ratio.value, ratio.low, ratio.high))
            names.append(_shortened(f"{cell.name}: {WORDS[cell.verdict].word}"))
        panel = _axes(ax, height=1.4 + 0.5 * max(1, len(names)))
        for verdict, (places, intervals) in series.items():
            colour = _COLOUR_OF.get(verdict, GREY)
            bars(
                panel,
                places,
                intervals,
                down=True,
                color=colour,
                marker="o",
                linestyle="",
                capsize=3,
            )
        panel.axvline(1.0, color=GREY, linewidth=0.8)
        magnitude = self._content.rule.threshold
        panel.axvline(1.0 + magnitude, color=COLOURS[1], linewidth=0.8, linestyle="--")
        panel.set_yticks(range(len(names)), names)
        panel.set_ylim(max(1, len(names)) - 0.4, -0.6)
        panel.set_xlabel(
            f"candidate / baseline, above 1 is slower (dashed: {percent(magnitude)} slower)"
        )
        gridded(panel, "")
        return panel


class GateResult(CompareResult):
    """The judgement of a candidate that `dlbench.gate` made."""

    @property
    def verdict(self) -> str:
        """The outcome: passed, failed or undecided."""
        return gate_outcome(self._content).outcome

    @property
    def passed(self) -> bool:
        """Whether every cell is shown not to be slower."""
        return self.verdict == "passed"

    @property
    def sentence(self) -> str:
        """The outcome with its reason, and the verdict on the one cell if there is one."""
        line = gate_outcome(self._content).line
        if len(self._content.cells) == 1:
            return f"{line}. {self._finding()}"
        return line


_COLOUR_OF = {
    Verdict.REGRESSION: COLOURS[1],
    Verdict.DIFFERENT: COLOURS[1],
    Verdict.IMPROVEMENT: COLOURS[2],
    Verdict.NO_REGRESSION: COLOURS[0],
}
_COMPARED_COLUMNS = (
    *FIRST_AXES,
    "quantity",
    "verdict",
    "ratio",
    "low",
    "high",
    "p",
    "baseline_seconds",
    "candidate_seconds",
    "baseline_launches",
    "candidate_launches",
    "sentence",
    *(name for name in axes.NAMES if name not in FIRST_AXES),
)


def _compared_row(cell: CellComparison) -> dict[str, Any]:
    judgement = cell.judgement
    ratio = judgement.ratio
    p_value = judgement.adjusted_p
    if p_value is None:
        p_value = judgement.p
    row: dict[str, Any] = {name: axis_value(cell.cell, name) for name in axes.NAMES}
    value = low = high = None
    if ratio is not None:
        value = ratio.value
        low = ratio.low
        high = ratio.high
    row |= {
        "quantity": cell.quantity,
        "verdict": cell.verdict.value,
        "ratio": value,
        "low": low,
        "high": high,
        "p": p_value,
        "baseline_launches": judgement.baseline_launches,
        "candidate_launches": judgement.candidate_launches,
        "sentence": judgement.sentence,
    }
    if cell.quantity == TIME:
        row["baseline_seconds"] = _median(cell.baseline.launch_medians)
        row["candidate_seconds"] = _median(cell.candidate.launch_medians)
    return row


def _median(seconds: Sequence[float]) -> float | None:
    if not seconds:
        return None
    return median(seconds)


def _axes(ax: "Axes | None", height: float) -> "Axes":
    """Return the axes, or those of a new figure of this height in inches."""
    if ax is not None:
        return ax
    from matplotlib import pyplot as plt

    _, made = plt.subplots(figsize=(6.4, height), layout="constrained")
    return made


def _shortened(name: str) -> str:
    """Return a name in lines that fit beside a plot."""
    return textwrap.fill(visible(name, 4 * _LONGEST_NAME), _LONGEST_NAME)
