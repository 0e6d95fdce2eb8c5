"""Figures: ratios of two numbers from a table of points, selected by data.

A table is a list of points: the cells of a matrix, the losses of trained networks, or the lines of
a published file. A `Figure` selects the points of two sides, ``slower`` and ``faster``; two points
are a pair where they agree in all axes that neither side names. ``test-a-claim.md`` describes the
form, and ``reports/data/claims.toml`` is written in it.
"""

import difflib
import fnmatch
import glob
import itertools
import math
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.curve.curve import computes_nothing
from dlbench.reports.curve.elman import sizes_of
from dlbench.reports.curve.training import SETTING, Losses, published_losses
from dlbench.reports.results.cells import CellResult, fastest_mode
from dlbench.reports.results.flag_kinds import Flag
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import rest_of, work_name
from dlbench.reports.results.networks import FIRST, Networks
from dlbench.reports.results.published import lines_of
from dlbench.reports.results.statistics import Estimate, Summary, ratio

FACT = "a fact, no ratio"
"""The method of a figure that is 1 where something is so, and 0 where it is not."""
PUBLISHED = "of published values"
OF_LOSSES = "of published losses"
ONE_TRAINING = "of one training each, no interval"
FAILED = (Status.CRASHED, Status.TIMED_OUT, Status.OUT_OF_MEMORY)
_RUN_COLUMNS = ("figure", "device", "n_in", "n_rec", "n_steps")
"""Columns of brandfonbrener2017.csv that identify a point."""
_FOLLOWERS = {
    "framework": {"mode"},
    "network": {"specification"},
    "on": {"device"},
    "gpu": {"device", "machine"},
    "cores": {"machine"},
}
"""Axes that differ wherever another one does."""
ANY = "any"
EACH = "each"
SLOWEST = "slowest"
"""Values that match everything: the fastest point counts, each one for itself, or the slowest."""
_NUMBER = re.compile(r"(<=|>=|<|>|)(?:(\d+)\*)?(cores|\d+)")
_RELATION = re.compile(r"(\d+)x|\+(\d+)")
_AXES_WITH_USUAL_VALUE = [axis.name for axis in axes.AXES if axis.usual is not None]


class Claimed(NamedTuple):
    """Bounds and size of a figure by a claim."""

    least: float | None = None
    most: float | None = None
    size: float | None = None

    @property
    def words(self) -> str:
        """As in "above 2, about 12"."""
        words = []
        for word, end in (("above", self.least), ("below", self.most), ("about", self.size)):
            if end is not None:
                words.append(f"{word} {end:.4g}")
        return ", ".join(words)


@dataclass(frozen=True)
class Question:
    """One figure, and its bounds by a claim."""

    what: str
    """In words: "caffe fcn5, 8 threads / 4"."""
    claimed: Claimed
    found: Estimate | None
    """None: not measured."""
    times: tuple[Summary, Summary] | None = None
    """The two times of a ratio."""
    missing: str = ""
    """Why there is no figure."""
    flags: tuple[Flag, ...] = ()
    """Warnings about its cells."""


def time_question(
    what: str, over: CellResult | None, under: CellResult | None, claimed: Claimed
) -> Question:
    """Return the question whether the ratio of these cells' times lies within the bounds."""
    first = usable(over)
    second = usable(under)
    if first is None or second is None:
        return Question(what, claimed, None, missing=_why_pair_is_missing(over, under))
    flags = {}
    for cell in (over, under):
        if cell is not None:
            for flag in cell.flags:
                flags[flag.kind] = flag
    return Question(
        what, claimed, ratio(first, second), (first, second), flags=tuple(flags.values())
    )


def _why_pair_is_missing(over: CellResult | None, under: CellResult | None) -> str:
    why_first = f"the first: {why_missing(over)}"
    why_second = f"the second: {why_missing(under)}"
    if usable(over) is not None:
        return why_second
    if usable(under) is not None:
        return why_first
    if why_missing(over) == why_missing(under):
        return why_missing(over)
    return f"{why_first}; {why_second}"


def value_question(what: str, value: float, claimed: Claimed, method: str = PUBLISHED) -> Question:
    """Return the question whether a value without an interval lies within the bounds."""
    return Question(what, claimed, Estimate(value, None, None, method))


def usable(cell: CellResult | None) -> Summary | None:
    """Return a cell's time where it is one of the right mathematics."""
    if cell is None or computes_nothing(cell):
        return None
    return cell.timed


def why_missing(cell: CellResult | None) -> str:
    """Return why a cell has no time that can be used."""
    if cell is None:
        return "not measured"
    if cell.status is Status.OK:
        status = "no number that can be used"
    else:
        status = cell.status.value.replace("_", " ")
    if cell.reason:
        return f"{status}, {cell.reason}"
    return status


@dataclass(frozen=True)
class FigurePoint:
    """A cell, or a published number, with the axes that identify it."""

    axes: Mapping[str, Any]
    cell: CellResult | None = None
    value: float = math.nan
    also: Mapping[str, Any] = field(default_factory=dict)
    """Further facts to select by: physical cores, the GPU's model."""

    def __getitem__(self, name: str) -> Any:
        """Return an axis or a fact; None if it has no such name."""
        return self.axes.get(name, self.also.get(name))


@dataclass(frozen=True)
class Tables:
    """The tables that figures are asked of: a matrix, and the losses of trained networks."""

    matrix: Matrix
    tool_of: Callable[[CellResult], str]
    """Returns the tool of a paper that a cell stands for, or its own framework."""
    networks: Networks = field(default_factory=dict)
    losses: Losses | None = None
    """None: the published ones."""

    def points(self, table: str) -> list[FigurePoint]:
        """Return the points of a table; of any other name those of brandfonbrener2017.csv."""
        if table in ("tools", "batches"):
            return list(self._tool_points(usual_batch=table == "tools"))
        if table == "elman":
            return list(self._elman_points())
        if table == "cells":
            points = []
            for cell in self.matrix.cells.values():
                labels = {"machine": cell.machine, **cell.cell._asdict()}
                points.append(self._point(cell, labels))
            return points
        if table == "losses":
            return list(self._loss_points())
        return list(_brandfonbrener_points())

    def _point(self, cell: CellResult, labels: Mapping[str, Any]) -> FigurePoint:
        column = cell.column
        host = self.matrix.hosts[column.machine]
        facts: dict[str, Any] = {"tool": self.tool_of(cell), "host": host.name}
        if column.on_cpu:
            facts["on"] = "cpu"
            facts["cores"] = host.own_cores
        else:
            index = column.device.partition(":")[2]
            key = f"GPU {index}" if index else "GPU"
            description = dict(host.description).get(key, "")
            facts["on"] = "gpu"
            facts["gpu"] = description.partition(",")[0]
        point_axes = {name: value for name, value in labels.items() if name != "adapter"}
        return FigurePoint(point_axes, cell, also=facts)

    def _tool_points(self, usual_batch: bool) -> Iterator[FigurePoint]:
        for cell in self.matrix.cells.values():
            network = cell.work.network
            batch = cell.work.batch_size
            column = cell.column
            is_own_batch = network not in FIRST or batch == FIRST[network].batch_size
            if usual_batch and not is_own_batch:
                continue
            if not _has_usual_values(cell.cell) or computes_nothing(cell):
                continue
            threads = column.threads if column.on_cpu else None
            labels = {
                "machine": column.machine,
                "device": column.device,
                "threads": threads,
                "tool": self.tool_of(cell),
                "network": network,
                "batch_size": batch,
            }
            yield self._point(cell, labels)

    def _elman_points(self) -> Iterator[FigurePoint]:
        for (machine, row), cells_by_size in sizes_of(self.matrix, self.networks).items():
            if row.batch_size != 1 or not _has_usual_values(row):
                continue
            labels = {"machine": machine}
            for name in ("framework", "mode", "device", "threads"):
                labels[name] = getattr(row, name)
            for size, cell in cells_by_size.items():
                yield self._point(cell, {**labels, **size._asdict()})

    def _loss_points(self) -> Iterator[FigurePoint]:
        losses = published_losses() if self.losses is None else self.losses
        for text, loss_by_setting in losses.items():
            for setting, loss in loss_by_setting.items():
                point_axes = {"text": text, **dict(zip(SETTING, setting, strict=True))}
                yield FigurePoint(point_axes, value=loss)


def _has_usual_values(cell: Cell) -> bool:
    return axes.project(cell, _AXES_WITH_USUAL_VALUE) == axes.BLANK


def _brandfonbrener_points() -> Iterator[FigurePoint]:
    for line in lines_of("brandfonbrener2017.csv"):
        if line["seconds"]:
            point_axes: dict[str, int | str] = {}
            for name in _RUN_COLUMNS:
                text = line[name]
                point_axes[name] = int(text) if text.isdecimal() else text
            yield FigurePoint(point_axes, value=float(line["seconds"]), also={"note": line["note"]})


Number = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
_KINDS = {
    axis.name: type(getattr(axes.BLANK, axis.name)) for axis in axes.AXES if not axis.goes_with
}


def _make_lists(given: object) -> object:
    """Return a table of axes with a list for each.

    As in options, "torch:compile" is a framework and its mode.
    """
    if not isinstance(given, dict):
        raise ValueError('it must be a table of axes, as in [slower] framework = "torch:eager"')
    row = given.get("framework")
    if isinstance(row, str) and ":" in row and "mode" not in given:
        framework, mode = row.rsplit(":", 1)
        given = {**given, "framework": framework, "mode": mode}
    lists = {}
    for name, value in given.items():
        lists[name] = tuple(value) if isinstance(value, list) else (value,)
    return lists


def _check_axes(chosen: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """Return them if they are axes with values of their kind. Raises ValueError."""
    for name, wanted in chosen.items():
        if name not in _KINDS:
            near = difflib.get_close_matches(str(name), _KINDS, n=1)
            hint = f"There are: {', '.join(_KINDS)}"
            if near:
                hint = f"Did you mean {near[0]!r}?"
            raise ValueError(f"there is no axis {str(name)[:40]!r}. {hint}")
        kind = _KINDS[name]
        is_valid = all(type(value) is kind or _is_operator(value) for value in wanted)
        if not wanted or not is_valid:
            meant = "a whole number" if kind is int else "text in quotes"
            raise ValueError(f"{name} must be {meant}, or a list of them")
    return chosen


def _is_operator(value: object) -> bool:
    if not isinstance(value, str) or value.isdecimal():
        return False
    if value in (ANY, EACH, SLOWEST):
        return True
    return _NUMBER.fullmatch(value) is not None or _RELATION.fullmatch(value) is not None


Chosen = Annotated[dict[str, tuple[Any, ...]], BeforeValidator(_make_lists)]
"""Values by axis: a value, a pattern or an operator, or a list of them. Others may be anything."""


OfAxes = Annotated[Chosen, AfterValidator(_check_axes)]


class Figure(BaseModel):
    """The number of the `slower` points / that of the `faster`, with its bounds and its size."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    of: str = "tools"
    least: float | None = None
    most: float | None = None
    size: float | None = None
    cells: Chosen = {}
    """Common to both sides."""
    besides: Chosen = {}
    """Faster points that are left out."""
    slower: Chosen = {}
    faster: Chosen = {}
    both: bool = False
    """Whether to skip a point without its counterpart. Otherwise its figure is missing."""
    result: Literal["ratio", "difference", "exponent", "crossing", "largest"] = "ratio"
    """Of each pair the ratio, difference or exponent over `axis`. Of all pairs the `axis` at
    ratio 1, or the largest ratio."""
    axis: str = ""
    fact: Literal["", "fails", "out of memory", "never out of memory"] = ""
    """Whether the cells end so, in place of a ratio."""
    printed: float | None = None
    """A number of seconds that the cell is divided by."""
    value: float | None = None
    """The figure itself, which `words` describe."""
    words: str = ""

    @property
    def claimed(self) -> Claimed:
        """The bounds and the size."""
        if self.fact:
            return Claimed(0.5)
        return Claimed(self.least, self.most, self.size)

    def questions(self, tables: Tables) -> Iterator[Question]:
        """Yield a question for each figure that has a point in these tables."""
        if self.value is not None:
            yield value_question(self.words, self.value, self.claimed)
            return
        table = tables.points(self.of)
        exact_parts = {}
        for part in ("cells", "besides", "slower", "faster"):
            exact_parts[part] = _exact(getattr(self, part), table)
        exact = self.model_copy(update=exact_parts)
        yield from exact._ask(table, tables)

    def _ask(self, table: Sequence[FigurePoint], tables: Tables) -> Iterator[Question]:
        points = [point for point in table if _matches(point, self.cells)]
        machines = {point["machine"] for point in points}
        several = len(machines) > 1
        if self.fact:
            yield from self._facts(points, several)
        elif self.printed is not None:
            for point in _chosen(points, self.cells):
                time = usable(point.cell)
                if time is not None:
                    what = f"{_side_name(point, several)}, table / text"
                    yield value_question(what, time.median / self.printed, self.claimed)
        else:
            method = PUBLISHED
            if self.of == "losses":
                method = OF_LOSSES if tables.losses is None else ONE_TRAINING
            yield from self._results(list(self._pairs(points)), several, method)

    def _pairs(
        self, points: Sequence[FigurePoint]
    ) -> Iterator[tuple[FigurePoint | None, FigurePoint | None]]:
        """Yield the pairs of points of the two sides that agree in all other axes."""
        named = {*self.slower, *self.faster}
        apart = named.union(*(_FOLLOWERS.get(name, ()) for name in named))
        points_by_key: dict[object, tuple[list[FigurePoint], list[FigurePoint]]] = {}
        for point in points:
            rest = tuple(value for name, value in point.axes.items() if name not in apart)
            is_left_out = bool(self.besides) and _matches(point, self.besides)
            if _matches(point, self.slower):
                key = (rest, self._shared_values(point, self.slower))
                points_by_key.setdefault(key, ([], []))[0].append(point)
            if _matches(point, self.faster) and not is_left_out:
                key = (rest, self._shared_values(point, self.faster))
                points_by_key.setdefault(key, ([], []))[1].append(point)
        shows_single_points = self.of in ("tools", "batches", "cells") and not self.both
        for slower_points, faster_points in points_by_key.values():
            slower: list[FigurePoint | None] = [*_chosen(slower_points, self.slower)]
            faster: list[FigurePoint | None] = [*_chosen(faster_points, self.faster)]
            if shows_single_points:
                slower = slower or [None]
                faster = faster or [None]
            yield from itertools.product(slower, faster)

    def _shared_values(
        self, point: FigurePoint, side: Mapping[str, tuple[Any, ...]]
    ) -> tuple[float, ...]:
        """Return the values that related points of both sides share.

        "2x" is twice the value of the other side, so that half of it is shared.
        """
        shared = []
        for name in sorted({*self.slower, *self.faster}):
            wanted = (*self.slower.get(name, ()), *self.faster.get(name, ()))
            if not any(_RELATION.fullmatch(str(word)) for word in wanted):
                continue
            value = point[name]
            relation = _RELATION.fullmatch(str(side.get(name, ("",))[0]))
            if relation and relation[1]:
                value = value / int(relation[1])
            elif relation:
                value = value - int(relation[2])
            shared.append(value)
        return tuple(shared)

    def _results(
        self,
        pairs: Sequence[tuple[FigurePoint | None, FigurePoint | None]],
        several: bool,
        method: str,
    ) -> Iterator[Question]:
        values = []
        for slower_point, faster_point in pairs:
            if slower_point is None or faster_point is None or slower_point.cell is not None:
                continue
            values.append((slower_point, faster_point, slower_point.value / faster_point.value))
        if self.result == "crossing":
            ends = [(slower[self.axis], quotient) for slower, _, quotient in values]
            (low, first), (high, last) = sorted(ends)
            share = -math.log(first) / math.log(last / first)
            crossing = low * (high / low) ** share
            yield value_question(f"{self.axis} with a ratio of 1", crossing, self.claimed)
        elif self.result == "largest":
            slower, faster, most = max(values, key=lambda pair: pair[2])
            what = f"largest: {_pair_name(slower, faster, several)}"
            yield value_question(what, most, self.claimed)
        elif values:
            for slower, faster, quotient in values:
                what = _pair_name(slower, faster, several)
                value = quotient
                if self.result == "difference":
                    what = f"difference, {what}"
                    value = slower.value - faster.value
                elif self.result == "exponent":
                    what = f"exponent, {what}"
                    value = math.log(quotient) / math.log(slower[self.axis] / faster[self.axis])
                yield value_question(what, value, self.claimed, method)
        else:
            for slower_point, faster_point in pairs:
                what = _pair_name(slower_point, faster_point, several)
                over = None if slower_point is None else slower_point.cell
                under = None if faster_point is None else faster_point.cell
                yield time_question(what, over, under, self.claimed)

    def _facts(self, points: Sequence[FigurePoint], several: bool) -> Iterator[Question]:
        """Ask of each place whether its cell ends so, for "never" over all its mini-batches."""
        never = self.fact.startswith("never")
        statuses = FAILED if self.fact == "fails" else (Status.OUT_OF_MEMORY,)
        points_by_place: dict[tuple[Any, ...], list[FigurePoint]] = {}
        for point in points:
            place_axes = dict(point.axes)
            if never:
                place_axes.pop("batch_size", None)
            points_by_place.setdefault(tuple(place_axes.values()), []).append(point)
        for points_at_place in points_by_place.values():
            cells = [point.cell for point in points_at_place if point.cell is not None]
            asked = cells if never else [fastest_mode(cells)]
            ended = any(cell.status in statuses for cell in asked)
            what = f"{_side_name(points_at_place[0], several)}: {self.fact}"
            if ended or any(map(usable, asked)):
                holds = ended is not never
                yield value_question(what, float(holds), self.claimed, FACT)
            else:
                yield Question(what, self.claimed, None, missing=why_missing(asked[0]))


def _chosen(
    points: Sequence[FigurePoint], side: Mapping[str, tuple[Any, ...]]
) -> list[FigurePoint]:
    """Return the points that count for a side: the fastest or slowest, or one for each value."""
    apart = []
    slowest = False
    for name, wanted in side.items():
        if EACH in wanted:
            apart.append(name)
        if SLOWEST in wanted:
            slowest = True
    if "machine" in apart:
        apart.append("device")
    points_by_values: dict[tuple[Any, ...], list[FigurePoint]] = {}
    for point in points:
        values = tuple(point[name] for name in apart)
        points_by_values.setdefault(values, []).append(point)
    chosen = []
    for points_alike in points_by_values.values():
        cells = [point.cell for point in points_alike if point.cell is not None]
        if cells:
            best = fastest_mode(cells)
            chosen.append(next(point for point in points_alike if point.cell is best))
        elif slowest:
            chosen.append(max(points_alike, key=lambda point: point.value))
        else:
            chosen.append(min(points_alike, key=lambda point: point.value))
    return chosen


def _exact(
    chosen: Mapping[str, tuple[Any, ...]], points: Sequence[FigurePoint]
) -> dict[str, tuple[Any, ...]]:
    """Return the values by axis, where the name of a point is a pattern that fits only itself."""
    exact = {}
    for axis, wanted in chosen.items():
        names = {point[axis] for point in points}
        words = [_exact_word(word, names) for word in wanted]
        exact[axis] = tuple(words)
    return exact


def _exact_word(word: Any, names: Collection[Any]) -> Any:
    if not isinstance(word, str):
        return word
    name = word.removeprefix("!")
    if name not in names:
        return word
    return word.removesuffix(name) + glob.escape(name)


def _matches(point: FigurePoint, chosen: Mapping[str, tuple[Any, ...]]) -> bool:
    for name, wanted in chosen.items():
        has_condition = fits = False
        for word in wanted:
            if word not in (ANY, EACH, SLOWEST):
                has_condition = True
                fits = fits or _fits(point, point[name], word)
        if has_condition and not fits:
            return False
    return True


_COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "": operator.eq,
}


def _fits(point: FigurePoint, value: Any, wanted: Any) -> bool:
    """Tell whether a value is the wanted one, fits its pattern, or lies where its operator says."""
    if not isinstance(wanted, str):
        return bool(value == wanted)
    if isinstance(value, str):
        return fnmatch.fnmatchcase(value, wanted.removeprefix("!")) is not wanted.startswith("!")
    if not isinstance(value, int):
        return False
    if _RELATION.fullmatch(wanted):
        return True
    condition = _NUMBER.fullmatch(wanted)
    if condition is None:
        return False
    comparison, factor, number = condition.groups()
    bound = point["cores"] if number == "cores" else int(number)
    if bound is None:
        return False
    return bool(_COMPARISONS[comparison](value, int(factor or 1) * bound))


def _pair_name(slower: FigurePoint | None, faster: FigurePoint | None, several: bool) -> str:
    """Return the name of a pair: the common part once, a missing side as a question mark."""
    if slower is not None and faster is not None and slower.cell is None:
        apart = []
        slower_values = []
        faster_values = []
        for name, value in slower.axes.items():
            if faster.axes.get(name) != value:
                apart.append(name)
                slower_values.append(str(slower[name]))
                faster_values.append(str(faster[name]))
        sides = f"{', '.join(slower_values)} / {', '.join(faster_values)}"
        return f"{_side_name(slower, several, *apart)}: {sides}"
    names = []
    shared = None
    for point in (slower, faster):
        if point is None:
            names.append("?")
            continue
        names.append(_side_name(point, several))
        if shared is None and point.cell is not None:
            shared = work_name(point.cell.cell)
    prefix = f"{shared}, "
    if all(name.startswith(prefix) or name == "?" for name in names):
        short_names = [name.removeprefix(prefix) for name in names]
        return f"{shared}: {' / '.join(short_names)}"
    return " / ".join(names)


def _side_name(point: FigurePoint, several: bool, *left_out: str) -> str:
    if point.cell is None:
        labels = []
        for name, value in point.axes.items():
            if name in left_out:
                continue
            text = str(value)
            if not text.lower().startswith(name):
                text = f"{name} {text}"
            labels.append(text)
        return ", ".join(labels)
    side_name = f"{work_name(point.cell.cell)}, {rest_of(point.cell.cell)}"
    if several:
        side_name += f" on {point['host']}"
    return side_name


class OwnClaim(Figure):
    """A user's claim, in a file of its own: one figure about cells."""

    of: Literal["cells"] = "cells"
    words: str = Field(min_length=1)
    where: str = ""
    least: Number | None = None
    most: Number | None = None
    size: Number | None = None
    cells: OfAxes = {}
    slower: OfAxes
    faster: OfAxes

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.least is None and self.most is None:
            raise ValueError(
                "least or most must say where the ratio is claimed to be, as in least = 1.5"
            )
        if self.least is not None and self.most is not None and self.least >= self.most:
            raise ValueError(f"least = {self.least:g} must be below most = {self.most:g}")
        if self.size is not None and not (self.least or 0) <= self.size <= (self.most or self.size):
            raise ValueError(f"size = {self.size:g} must lie within the bounds least and most")
        if self.slower == self.faster:
            raise ValueError(
                "slower and faster are the same cells; let them differ in an axis, as in framework "
                "= "
            )
        return self
