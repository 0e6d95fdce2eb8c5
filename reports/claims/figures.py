"""Figures: ratios of two numbers from a table of points, selected by data.

A table is a list of points: the cells of a matrix, the losses of trained networks, or the lines of
a published file. A `Figure` selects the points of two sides, ``slower`` and ``faster``; two points
are a pair where they agree in all axes that neither side names. ``reports/README.md`` describes the
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
from dlbench.adapters.protocol import Status
from dlbench.reports.curve.curve import computes_nothing
from dlbench.reports.curve.rnn import sizes_of
from dlbench.reports.curve.training import SETTING, Losses, published_losses
from dlbench.reports.results.cells import CellResult, fastest_mode
from dlbench.reports.results.flags import Flag
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import group_name, rest_of
from dlbench.reports.results.networks import FIRST, Networks
from dlbench.reports.results.published import lines_of
from dlbench.reports.results.statistics import Ratio, Summary, ratio

FACT = "a fact, no ratio"
"""The method of a figure that is 1 where something is so, and 0 where it is not."""
PUBLISHED, OF_LOSSES = "of published values", "of published losses"
ONE_TRAINING = "of one training each, no interval"
FAILED = (Status.CRASHED, Status.TIMED_OUT, Status.OUT_OF_MEMORY)
_OF_A_RUN = ("figure", "device", "n_in", "n_rec", "n_steps")
"""Columns of brandfonbrener2017.csv that identify a point."""
_FOLLOWERS = {
    "framework": {"mode"},
    "network": {"specification"},
    "on": {"device"},
    "gpu": {"device", "machine"},
    "cores": {"machine"},
}
"""Axes that differ wherever another one does."""
ANY, EACH, SLOWEST = "any", "each", "slowest"
"""Values that match everything: the fastest point counts, each one for itself, or the slowest."""
_NUMBER = re.compile(r"(<=|>=|<|>|)(?:(\d+)\*)?(cores|\d+)")
_RELATION = re.compile(r"(\d+)x|\+(\d+)")
_USUAL = [axis.name for axis in axes.AXES if axis.usual is not None]


class Claimed(NamedTuple):
    """Bounds and size of a figure by a claim."""

    least: float | None = None
    most: float | None = None
    size: float | None = None

    @property
    def words(self) -> str:
        """As in "above 2, about 12"."""
        ends = [("above", self.least), ("below", self.most), ("about", self.size)]
        return ", ".join(f"{word} {end:.4g}" for word, end in ends if end is not None)


@dataclass(frozen=True)
class Question:
    """One figure, and its bounds by a claim."""

    what: str
    """In words: "caffe fcn5, 8 threads / 4"."""
    claimed: Claimed
    found: Ratio | None
    """None: not measured."""
    times: tuple[Summary, Summary] | None = None
    """The two times of a ratio."""
    missing: str = ""
    """Why there is no figure."""
    flags: tuple[Flag, ...] = ()
    """Warnings about its cells."""


def of_times(
    what: str, over: CellResult | None, under: CellResult | None, claimed: Claimed
) -> Question:
    """Return the question whether the ratio of these cells' times lies within the bounds."""
    one, other = usable(over), usable(under)
    if one is None or other is None:
        lacking = [("first", over)] * (one is None) + [("second", under)] * (other is None)
        missing = [f"the {which}: {why_missing(cell)}" for which, cell in lacking]
        same = len(lacking) == 2 and why_missing(over) == why_missing(under)
        return Question(
            what, claimed, None, missing=why_missing(over) if same else "; ".join(missing)
        )
    flags = {flag.kind: flag for cell in (over, under) if cell is not None for flag in cell.flags}
    return Question(what, claimed, ratio(one, other), (one, other), flags=tuple(flags.values()))


def of_value(what: str, value: float, claimed: Claimed, method: str = PUBLISHED) -> Question:
    """Return the question whether a value without an interval lies within the bounds."""
    return Question(what, claimed, Ratio(value, None, None, method))


def usable(cell: CellResult | None) -> Summary | None:
    """Return a cell's time where it is one of the right mathematics."""
    return None if cell is None or computes_nothing(cell) else cell.timed


def why_missing(cell: CellResult | None) -> str:
    """Return why a cell has no time that can be used."""
    if cell is None:
        return "not measured"
    status = (
        "no number that can be used"
        if cell.status is Status.OK
        else cell.status.value.replace("_", " ")
    )
    return f"{status}, {cell.reason}" if cell.reason else status


@dataclass(frozen=True)
class Point:
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

    def points(self, table: str) -> list[Point]:
        """Return the points of a table; of any other name those of brandfonbrener2017.csv."""
        if table in ("tools", "batches"):
            return list(self._tools(usual_batch=table == "tools"))
        if table == "elman":
            return list(self._elman())
        if table == "cells":
            cells = self.matrix.cells.values()
            return [
                self._point(each, {"machine": each.machine, **each.cell._asdict()})
                for each in cells
            ]
        if table == "losses":
            losses = published_losses() if self.losses is None else self.losses
            return [
                Point({"text": text, **dict(zip(SETTING, net, strict=True))}, value=loss)
                for text, of_text in losses.items()
                for net, loss in of_text.items()
            ]
        return [
            Point(
                {
                    name: int(line[name]) if line[name].isdecimal() else line[name]
                    for name in _OF_A_RUN
                },
                value=float(line["seconds"]),
                also={"note": line["note"]},
            )
            for line in lines_of("brandfonbrener2017.csv")
            if line["seconds"]
        ]

    def _point(self, cell: CellResult, labels: Mapping[str, Any]) -> Point:
        place, host = cell.column, self.matrix.hosts[cell.column.machine]
        kind = "cpu" if place.on_cpu else "gpu"
        facts = {
            "tool": self.tool_of(cell),
            "on": kind,
            "cores": host.own_cores if place.on_cpu else None,
            "host": host.name,
        }
        if not place.on_cpu:
            index = place.device.partition(":")[2]
            facts["gpu"] = (
                dict(host.description).get(f"GPU {index}" if index else "GPU", "").partition(",")[0]
            )
        return Point(
            {name: value for name, value in labels.items() if name != "adapter"}, cell, also=facts
        )

    def _tools(self, usual_batch: bool) -> Iterator[Point]:
        for cell in self.matrix.cells.values():
            network, batch, place = cell.group.network, cell.group.batch_size, cell.column
            own_batch = network not in FIRST or batch == FIRST[network].batch_size
            if (
                axes.project(cell.cell, _USUAL) == axes.BLANK
                and (own_batch or not usual_batch)
                and not computes_nothing(cell)
            ):
                where = {"machine": place.machine, "device": place.device, "threads": place.threads}
                labels = {
                    **where,
                    "tool": self.tool_of(cell),
                    "network": network,
                    "batch_size": batch,
                }
                yield self._point(cell, labels if place.on_cpu else {**labels, "threads": None})

    def _elman(self) -> Iterator[Point]:
        for (machine, cell), sizes in sizes_of(self.matrix, self.networks).items():
            if cell.batch_size == 1 and axes.project(cell, _USUAL) == axes.BLANK:
                row = {
                    name: getattr(cell, name) for name in ("framework", "mode", "device", "threads")
                }
                for size, each in sizes.items():
                    yield self._point(each, {"machine": machine, **row, **size._asdict()})


Number = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
_KINDS = {
    axis.name: type(getattr(axes.BLANK, axis.name)) for axis in axes.AXES if not axis.goes_with
}


def _as_lists(given: object) -> object:
    """Return a table of axes with a list for each; "torch:compile" is a framework and its mode, as
    in options.
    """
    if not isinstance(given, dict):
        raise ValueError('it must be a table of axes, as in [slower] framework = "torch:eager"')
    row = given.get("framework")
    if isinstance(row, str) and ":" in row and "mode" not in given:
        given = {**given, **dict(zip(("framework", "mode"), row.rsplit(":", 1), strict=True))}
    return {
        name: tuple(value) if isinstance(value, list) else (value,) for name, value in given.items()
    }


def _of_axes(chosen: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """Return them where they are axes with values of their kind; raises ValueError."""
    for name, wanted in chosen.items():
        if name not in _KINDS:
            near = difflib.get_close_matches(str(name), _KINDS, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(_KINDS)}"
            raise ValueError(f"there is no axis {str(name)[:40]!r}. {hint}")
        if not wanted or not all(
            type(each) is _KINDS[name] or _is_operator(each) for each in wanted
        ):
            meant = "a whole number" if _KINDS[name] is int else "text in quotes"
            raise ValueError(f"{name} must be {meant}, or a list of them")
    return chosen


def _is_operator(value: object) -> bool:
    text = value if isinstance(value, str) and not value.isdecimal() else ""
    return text in (ANY, EACH, SLOWEST) or bool(
        _NUMBER.fullmatch(text) or _RELATION.fullmatch(text)
    )


Chosen = Annotated[dict[str, tuple[Any, ...]], BeforeValidator(_as_lists)]
"""Values by axis: a value, a pattern or an operator, or a list of them; other axes may be
anything."""


OfAxes = Annotated[Chosen, AfterValidator(_of_axes)]


class Figure(BaseModel):
    """A figure: the number of the `slower` points / that of the `faster`, its bounds and its
    size.
    """

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
    """Whether a point without its counterpart is passed over; else its figure is missing."""
    result: Literal["ratio", "difference", "exponent", "crossing", "largest"] = "ratio"
    """Of each pair the ratio, difference or exponent over `axis`; or of all the `axis` at ratio 1,
    or the largest."""
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
        return Claimed(0.5) if self.fact else Claimed(self.least, self.most, self.size)

    def questions(self, tables: Tables) -> Iterator[Question]:
        """Yield a question for each figure that these tables have a point of."""
        if self.value is not None:
            yield of_value(self.words, self.value, self.claimed)
            return
        table = tables.points(self.of)
        parts = ("cells", "besides", "slower", "faster")
        exact = self.model_copy(update={part: _exact(getattr(self, part), table) for part in parts})
        yield from exact._questions_of(table, tables)

    def _questions_of(self, table: Sequence[Point], tables: Tables) -> Iterator[Question]:
        points = [each for each in table if _matches(each, self.cells)]
        several = len({each["machine"] for each in points}) > 1
        if self.fact:
            yield from self._facts(points, several)
        elif self.printed is not None:
            for point in _chosen(points, self.cells):
                if (time := usable(point.cell)) is not None:
                    yield of_value(
                        f"{_side_name(point, several)}, table / text",
                        time.median / self.printed,
                        self.claimed,
                    )
        else:
            method = (
                PUBLISHED
                if self.of != "losses"
                else OF_LOSSES
                if tables.losses is None
                else ONE_TRAINING
            )
            yield from self._results(list(self._pairs(points)), several, method)

    def _pairs(self, points: Sequence[Point]) -> Iterator[tuple[Point | None, Point | None]]:
        """Yield the pairs of points of the two sides that agree in all other axes."""
        sides = (self.slower, self.faster)
        named = {*self.slower, *self.faster}
        alone = self.of in ("tools", "batches", "cells") and not self.both
        apart = named.union(*(_FOLLOWERS.get(name, ()) for name in named))
        found: dict[object, tuple[list[Point], list[Point]]] = {}
        for point in points:
            rest = tuple(value for name, value in point.axes.items() if name not in apart)
            for place, side in enumerate(sides):
                out = place == 1 and self.besides and _matches(point, self.besides)
                if (
                    _matches(point, side)
                    and not out
                    and (related := self._related(point, side)) is not None
                ):
                    found.setdefault((rest, related), ([], []))[place].append(point)
        for group in found.values():
            chosen: list[list[Point | None]] = [
                [*_chosen(of_side, side)] for of_side, side in zip(group, sides, strict=True)
            ]
            one, other = (each or ([None] if alone else []) for each in chosen)
            yield from itertools.product(one, other)

    def _related(
        self, point: Point, side: Mapping[str, tuple[Any, ...]]
    ) -> tuple[float, ...] | None:
        """Return the values that related points of both sides share: "2x" is twice that of the
        other side.

        None for a point without a whole half.
        """
        shared = []
        for name in sorted({*self.slower, *self.faster}):
            if any(
                _RELATION.fullmatch(str(each))
                for of in (self.slower, self.faster)
                for each in of.get(name, ())
            ):
                relation = _RELATION.fullmatch(str(side.get(name, ("",))[0]))
                value = point[name]
                if relation:
                    value = value / int(relation[1]) if relation[1] else value - int(relation[2])
                shared.append(value)
        return tuple(shared)

    def _results(
        self, pairs: Sequence[tuple[Point | None, Point | None]], several: bool, method: str
    ) -> Iterator[Question]:
        values = [
            (slower, faster, slower.value / faster.value)
            for slower, faster in pairs
            if slower is not None and faster is not None and slower.cell is None
        ]
        if self.result == "crossing":
            (low, first), (high, last) = sorted(
                (slower[self.axis], found) for slower, _, found in values
            )
            share = -math.log(first) / math.log(last / first)
            yield of_value(
                f"{self.axis} with a ratio of 1", low * (high / low) ** share, self.claimed
            )
        elif self.result == "largest":
            slower, faster, most = max(values, key=lambda each: each[2])
            yield of_value(f"largest: {_pair_name(slower, faster, several)}", most, self.claimed)
        elif values:
            for slower, faster, found in values:
                if self.result == "difference":
                    found = slower.value - faster.value
                elif self.result == "exponent":
                    found = math.log(found) / math.log(slower[self.axis] / faster[self.axis])
                what = _pair_name(slower, faster, several)
                named = what if self.result == "ratio" else f"{self.result}, {what}"
                yield of_value(named, found, self.claimed, method)
        else:
            for one, other in pairs:
                over, under = (None if each is None else each.cell for each in (one, other))
                yield of_times(_pair_name(one, other, several), over, under, self.claimed)

    def _facts(self, points: Sequence[Point], several: bool) -> Iterator[Question]:
        """Ask of each place whether its cell ends so; of "never" over all mini-batches together."""
        never = self.fact.startswith("never")
        wanted = FAILED if self.fact == "fails" else (Status.OUT_OF_MEMORY,)

        def place(point: Point) -> tuple[Any, ...]:
            return tuple(
                value for name, value in point.axes.items() if not (never and name == "batch_size")
            )

        for group in grouped(points, place).values():
            cells = [each.cell for each in group if each.cell is not None]
            asked = cells if never else [fastest_mode(cells)]
            ended = any(each.status in wanted for each in asked)
            known = ended or any(map(usable, asked))
            found = Ratio(float(ended is not never), None, None, FACT) if known else None
            what = f"{_side_name(group[0], several)}: {self.fact}"
            yield Question(
                what, self.claimed, found, missing="" if known else why_missing(asked[0])
            )


def _chosen(points: Sequence[Point], side: Mapping[str, tuple[Any, ...]]) -> list[Point]:
    """Return the point that counts for a side: the fastest, or the slowest; or that of each value
    of an axis.
    """
    apart = [name for name, wanted in side.items() if EACH in wanted]
    apart += ["device"] if "machine" in apart else []
    slowest = any(SLOWEST in wanted for wanted in side.values())
    found = []
    for group in grouped(points, lambda point: tuple(point[name] for name in apart)).values():
        cells = [point.cell for point in group if point.cell is not None]
        if cells:
            best = fastest_mode(cells)
            found.append(next(point for point in group if point.cell is best))
        else:
            found.append((max if slowest else min)(group, key=lambda point: point.value))
    return found


def _exact(
    chosen: Mapping[str, tuple[Any, ...]], points: Sequence[Point]
) -> dict[str, tuple[Any, ...]]:
    """Return the values by axis, where the name of a point is a pattern that fits only itself."""
    exact = {}
    for axis, wanted in chosen.items():
        names = {point[axis] for point in points}
        exact[axis] = tuple(_exact_word(word, names) for word in wanted)
    return exact


def _exact_word(word: Any, names: Collection[Any]) -> Any:
    if not isinstance(word, str):
        return word
    name = word.removeprefix("!")
    return word.removesuffix(name) + glob.escape(name) if name in names else word


def _matches(point: Point, chosen: Mapping[str, tuple[Any, ...]]) -> bool:
    for name, wanted in chosen.items():
        values = [each for each in wanted if each not in (ANY, EACH, SLOWEST)]
        if values and not any(_fits(point, point[name], each) for each in values):
            return False
    return True


def _fits(point: Point, value: Any, wanted: Any) -> bool:
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
    bound = (
        None
        if condition is None
        else point["cores"]
        if condition[3] == "cores"
        else int(condition[3])
    )
    if condition is None or bound is None:
        return False
    compare = {
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
        "": operator.eq,
    }[condition[1]]
    return bool(compare(value, int(condition[2] or 1) * bound))


def _pair_name(slower: Point | None, faster: Point | None, several: bool) -> str:
    """Return the name of a pair: the common part once, a missing side as a question mark."""
    if slower is not None and faster is not None and slower.cell is None:
        apart = [name for name, value in slower.axes.items() if faster.axes.get(name) != value]
        sides = [", ".join(str(each[name]) for name in apart) for each in (slower, faster)]
        return f"{_side_name(slower, several, *apart)}: {' / '.join(sides)}"
    names = ["?" if each is None else _side_name(each, several) for each in (slower, faster)]
    shared = next(
        group_name(each.cell.cell)
        for each in (slower, faster)
        if each is not None and each.cell is not None
    )
    if all(name.startswith(f"{shared}, ") or name == "?" for name in names):
        return f"{shared}: {' / '.join(name.removeprefix(f'{shared}, ') for name in names)}"
    return " / ".join(names)


def _side_name(point: Point, several: bool, *left_out: str) -> str:
    if point.cell is None:
        labels = {name: str(value) for name, value in point.axes.items() if name not in left_out}
        return ", ".join(
            text if text.lower().startswith(name) else f"{name} {text}"
            for name, text in labels.items()
        )
    where = f" on {point['host']}" if several else ""
    return f"{group_name(point.cell.cell)}, {rest_of(point.cell.cell)}{where}"


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
