"""A claim of one's own: which cells, the ratio of which times, and where it is claimed to be."""

import difflib
import fnmatch
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from dlbench.adapters import axes
from dlbench.reports.cells import CellResult, fastest_mode
from dlbench.reports.claims.cells import Cells
from dlbench.reports.claims.claim import OWN, Claim
from dlbench.reports.claims.questions import Claimed, Question, of_times
from dlbench.reports.naming import group_name, rest_of

Number = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Values = Mapping[str, tuple[Any, ...]]
"""Of axes, by name."""
_KINDS = {axis.name: type(getattr(axes.BLANK, axis.name)) for axis in axes.AXES if not axis.goes_with}


def _values(given: object) -> Values:
    """Return the values of a table of axes, each a list; "torch:compile" is a framework and its mode, as in options."""
    if not isinstance(given, dict):
        raise ValueError('it must be a table of axes, as in [slower] framework = "torch:eager"')
    row = given.get("framework")
    if isinstance(row, str) and ":" in row and "mode" not in given:
        given = {**given, **dict(zip(("framework", "mode"), row.rsplit(":", 1), strict=True))}
    found = {}
    for name, value in given.items():
        if name not in _KINDS:
            near = difflib.get_close_matches(str(name), _KINDS, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(_KINDS)}"
            raise ValueError(f"there is no axis {str(name)[:40]!r}. {hint}")
        found[name] = tuple(value) if isinstance(value, list) else (value,)
        if not found[name] or any(type(each) is not _KINDS[name] for each in found[name]):
            meant = "a whole number" if _KINDS[name] is int else "text in quotes"
            raise ValueError(f"{name} must be {meant}, or a list of them")
    return found


Chosen = Annotated[dict[str, tuple[Any, ...]], BeforeValidator(_values)]
"""Cells, by their axes: a value, a pattern, or a list of them; what is left out may be anything."""


class OwnClaim(BaseModel):
    """The file: time of `slower` / time of `faster` is at least, at most, about so much."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    words: str = Field(min_length=1)
    where: str = ""
    least: Number | None = None
    most: Number | None = None
    size: Number | None = None
    cells: Chosen = {}
    slower: Chosen
    faster: Chosen

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.least is None and self.most is None:
            raise ValueError("least or most must say where the ratio is claimed to be, as in least = 1.5")
        if self.least is not None and self.most is not None and self.least >= self.most:
            raise ValueError(f"least = {self.least:g} must be below most = {self.most:g}")
        if self.size is not None and not (self.least or 0) <= self.size <= (self.most or self.size):
            raise ValueError(f"size = {self.size:g} must lie where least and most have the ratio")
        if self.slower == self.faster:
            raise ValueError("slower and faster are the same cells; tell them apart, as by framework = ")
        return self

    def claim(self, name: str) -> Claim:
        """Return it as a claim like those of papers."""
        return Claim(name, OWN, self.where, self.words, self.questions, needs="cells of both sides")

    def questions(self, cells: Cells) -> Iterator[Question]:
        """Ask about each pair of cells that differ only in what tells the two sides apart."""
        apart = {*self.slower, *self.faster}
        apart |= {"mode"} if "framework" in apart else set()
        apart |= {"specification"} if "network" in apart else set()
        sides: dict[object, tuple[list[CellResult], list[CellResult]]] = {}
        for cell in cells.matrix.cells.values():
            where = cell.column.machine, axes.without(cell.cell, *apart)
            for side, chosen in enumerate((self.slower, self.faster)):
                if _matches(cell, self.cells) and _matches(cell, chosen):
                    sides.setdefault(where, ([], []))[side].append(cell)
        claimed = Claimed(self.least, self.most, self.size)
        for found in sides.values():
            slower, faster = (fastest_mode(each) if each else None for each in found)
            yield of_times(_name(slower, faster), slower, faster, claimed)


def _name(slower: CellResult | None, faster: CellResult | None) -> str:
    """Return the pair in words, with what is not there as a question mark."""
    one = slower or faster
    assert one is not None
    names = [f"{group_name(each.cell)}, {rest_of(each.cell)}" if each else "?" for each in (slower, faster)]
    shared = group_name(one.cell)
    if all(name.startswith(shared) or name == "?" for name in names):
        names = [name.removeprefix(f"{shared}, ") for name in names]
        return f"{shared}: {' / '.join(names)}"
    return " / ".join(names)


def _matches(cell: CellResult, chosen: Values) -> bool:
    return all(any(_fits(getattr(cell.cell, name), each) for each in wanted) for name, wanted in chosen.items())


def _fits(value: object, wanted: object) -> bool:
    return fnmatch.fnmatchcase(value, wanted) if isinstance(value, str) and isinstance(wanted, str) else value == wanted
