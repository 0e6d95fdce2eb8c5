"""A table declared once by its columns: from them follow its text in every format, its JSON and its
CSV.

BY_FRAMEWORK = (
    Column("framework", "", lambda each: each.cell.framework),
    Column("ratio", "times as slow", lambda each: each.ratio, fields=VALUE),
    Column("run", None, lambda each: each.run),
)
table(BY_FRAMEWORK, rows, "Frameworks", key="rows")
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Generic, TypeVar

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.formats.csv import MEDIAN, VALUE, Rows
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import MISSING, Entry, Table
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.keys import axis_value
from dlbench.reports.results.number_text import interval, number, times
from dlbench.reports.results.statistics import Ratio, Summary

__all__ = [
    "MEDIAN",
    "VALUE",
    "Column",
    "attributes",
    "axis_columns",
    "csv_rows",
    "objects",
    "shown",
    "table",
    "within",
]

GROUP, ROW, PLACE = (
    tuple(axis.name for axis in axes.of_role(role)) for role in (axes.GROUP, axes.ROW, axes.COLUMN)
)
"""The axes that say which work a cell does, how, and on what."""
Row = TypeVar("Row")
Outer = TypeVar("Outer")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column of a table."""

    key: str
    """In JSON and CSV; empty: only tables for people have it."""
    heading: str | None
    """Over it in tables; None: only JSON and CSV have it."""
    value: Callable[[Row], Any]
    """For JSON and CSV; dataclasses and named tuples become objects."""
    text: Callable[[Row], Entry | str] | None = None
    """Its field in a table, where the value's type does not say how it is written (`shown`)."""
    fields: tuple[str, ...] | None = ()
    """Parts of an object that are CSV columns ("seconds.median"); None: CSV leaves the column
    out."""
    csv: Callable[[Row], Any] | None = None
    """Another value for CSV, where JSON has a list."""

    def entry(self, row: Row) -> Entry:
        """Return the field of a row."""
        return shown(self.value(row) if self.text is None else self.text(row))


def shown(value: Any) -> Entry:
    """Return a value as a field of a table."""
    if isinstance(value, Entry):
        return value
    if isinstance(value, Summary):
        return Entry(number(value.median), interval(value))
    if isinstance(value, Ratio):
        return Entry(times(value))
    if isinstance(value, bool):
        return Entry("yes" if value else "no")
    if isinstance(value, float):
        return Entry(number(value))
    return Entry(MISSING if value is None else str(value))


def attributes(
    of: Callable[[Row], Any], *names: str, **fields: tuple[str, ...] | None
) -> tuple[Column[Row], ...]:
    """Return columns of these attributes, or items, for JSON and CSV; ``fields`` are the parts of
    those with any.
    """

    def column(name: str) -> Column[Row]:
        def value(row: Row) -> Any:
            found = of(row)
            return found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)

        return Column(name, None, value, fields=fields.get(name, ()))

    return tuple(column(name) for name in names)


def axis_columns(
    cell_of: Callable[[Row], Cell], names: Iterable[str] = axes.NAMES
) -> tuple[Column[Row], ...]:
    """Return a column for each of these axes, for JSON and CSV."""

    def value_of(name: str) -> Callable[[Row], Any]:
        return lambda row: axis_value(cell_of(row), name)

    return tuple(Column(name, None, value_of(name)) for name in names)


def host_columns(
    of: Callable[[Any], Host], key: str = "machine"
) -> tuple[Column[Any], Column[Any]]:
    """Return the fingerprint and the name of a machine, for JSON and CSV."""
    return (
        Column(key, None, lambda row: of(row).fingerprint),
        Column(f"{key}_name", None, lambda row: of(row).name),
    )


def table(
    columns: Sequence[Column[Row]],
    rows: Iterable[Row],
    title: str = "",
    key: str = "",
    group: Callable[[Row], str] | None = None,
    notes: Iterable[str] = (),
    **layout: Any,
) -> Table:
    """Return a table of these rows, with a heading where ``group`` changes; ``key`` is its list in
    a report's JSON.
    """
    found = list(rows)
    visible = [each for each in columns if each.heading is not None]
    lines: list[tuple[Entry, ...]] = []
    before = None
    for row in found:
        if group is not None and (heading := group(row)) != before:
            lines.append((Entry(heading),))
            before = heading
        lines.append(tuple(each.entry(row) for each in visible))
    head = tuple(each.heading or "" for each in visible)
    return Table(
        title,
        head,
        tuple(lines),
        tuple(notes),
        key=key,
        columns=tuple(columns),
        objects=tuple(found),
        **layout,
    )


def within(
    columns: Iterable[Column[Row]], part: Callable[[Outer], Row]
) -> tuple[Column[Outer], ...]:
    """Return columns of a part of a larger row."""

    def of_part(column: Column[Row]) -> Column[Outer]:
        text, csv = column.text, column.csv
        return Column(
            column.key,
            column.heading,
            lambda outer: column.value(part(outer)),
            None if text is None else lambda outer: text(part(outer)),
            column.fields,
            None if csv is None else lambda outer: csv(part(outer)),
        )

    return tuple(map(of_part, columns))


def objects(columns: Iterable[Column[Row]], rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return each row as a JSON object."""
    keyed = [each for each in columns if each.key]
    return [{each.key: plain(each.value(row)) for each in keyed} for row in rows]


def csv_rows(columns: Iterable[Column[Row]], rows: Iterable[Row]) -> Rows:
    """Return the rows as lines of one table for CSV."""
    keyed = [each for each in columns if each.key and each.fields is not None]
    names = [
        name
        for each in keyed
        for name in ([f"{each.key}.{part}" for part in each.fields or ()] or [each.key])
    ]
    return Rows(
        names, [{each.key: plain((each.csv or each.value)(row)) for each in keyed} for row in rows]
    )


def begins(rows: Iterable[Row], key: Callable[[Row], Any]) -> Callable[[Row], bool]:
    """Return a test of a row: whether the row before it has another key."""
    first = {id(next(of)) for _, of in groupby(rows, key)}
    return lambda row: id(row) in first
