"""A table declared once by its columns, which give its text in every format, its JSON and its CSV.

BY_FRAMEWORK = (
    Column("framework", "", lambda row: row.cell.framework),
    Column("ratio", "times as slow", lambda row: row.ratio, fields=VALUE),
    Column("run", None, lambda row: row.run),
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
from dlbench.reports.results.statistics import Estimate, Summary

__all__ = [
    "MEDIAN",
    "VALUE",
    "Column",
    "Row",
    "attributes",
    "axis_columns",
    "csv_rows",
    "objects",
    "shown",
    "table",
    "within",
]


def _axis_names(role: str) -> tuple[str, ...]:
    return tuple(axis.name for axis in axes.with_role(role))


WORK = _axis_names(axes.WORK)
ROW = _axis_names(axes.ROW)
PLACE = _axis_names(axes.COLUMN)
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
    """Its field in a table, where the value's type does not say how to write it (`shown`)."""
    fields: tuple[str, ...] | None = ()
    """Parts of an object that are CSV columns ("seconds.median"). None: CSV has no such column."""
    csv: Callable[[Row], Any] | None = None
    """Another value for CSV, where JSON has a list."""

    def entry(self, row: Row) -> Entry:
        """Return the field of a row."""
        if self.text is None:
            return shown(self.value(row))
        return shown(self.text(row))


def shown(value: Any) -> Entry:
    """Return a value as a field of a table."""
    if isinstance(value, Entry):
        return value
    if isinstance(value, Summary):
        return Entry(number(value.median), interval(value))
    if isinstance(value, Estimate):
        return Entry(times(value))
    if isinstance(value, bool):
        return Entry("yes" if value else "no")
    if isinstance(value, float):
        return Entry(number(value))
    if value is None:
        return Entry(MISSING)
    return Entry(str(value))


def attributes(
    part_of: Callable[[Row], Any], *names: str, **fields: tuple[str, ...] | None
) -> tuple[Column[Row], ...]:
    """Return columns for JSON and CSV: these attributes, or items, of a part of a row.

    ``fields`` are the parts of those attributes that have any.
    """

    def column(name: str) -> Column[Row]:
        def value(row: Row) -> Any:
            part = part_of(row)
            if isinstance(part, Mapping):
                return part.get(name)
            return getattr(part, name, None)

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
    host_of: Callable[[Any], Host], key: str = "machine"
) -> tuple[Column[Any], Column[Any]]:
    """Return the fingerprint and the name of a machine, for JSON and CSV."""
    return (
        Column(key, None, lambda row: host_of(row).fingerprint),
        Column(f"{key}_name", None, lambda row: host_of(row).name),
    )


def table(
    columns: Sequence[Column[Row]],
    rows: Iterable[Row],
    title: str = "",
    key: str = "",
    section: Callable[[Row], str] | None = None,
    notes: Iterable[str] = (),
    words: bool = False,
    keys: int = 1,
) -> Table:
    """Return a table of these rows, with a heading where ``section`` changes.

    ``key`` names its list in a report's JSON. ``words`` and ``keys`` are those of `layout.Table`.
    """
    rows = tuple(rows)
    visible = [column for column in columns if column.heading is not None]
    lines: list[tuple[Entry, ...]] = []
    last_heading = None
    for row in rows:
        if section is not None:
            heading = section(row)
            if heading != last_heading:
                lines.append((Entry(heading),))
                last_heading = heading
        fields = [column.entry(row) for column in visible]
        lines.append(tuple(fields))
    head = tuple(column.heading or "" for column in visible)
    return Table(
        title,
        head,
        tuple(lines),
        tuple(notes),
        words=words,
        keys=keys,
        key=key,
        columns=tuple(columns),
        objects=rows,
    )


def within(
    columns: Iterable[Column[Row]], part: Callable[[Outer], Row]
) -> tuple[Column[Outer], ...]:
    """Return columns of a part of a larger row."""

    def on_part(read: Callable[[Row], Any]) -> Callable[[Outer], Any]:
        return lambda outer: read(part(outer))

    columns_of_whole = []
    for column in columns:
        value = on_part(column.value)
        text = None if column.text is None else on_part(column.text)
        csv = None if column.csv is None else on_part(column.csv)
        columns_of_whole.append(Column(column.key, column.heading, value, text, column.fields, csv))
    return tuple(columns_of_whole)


def objects(columns: Iterable[Column[Row]], rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return each row as a JSON object."""
    keyed = [column for column in columns if column.key]
    rows_as_objects = []
    for row in rows:
        rows_as_objects.append({column.key: plain(column.value(row)) for column in keyed})
    return rows_as_objects


def csv_rows(columns: Iterable[Column[Row]], rows: Iterable[Row]) -> Rows:
    """Return the rows as lines of one table for CSV."""
    keyed = [column for column in columns if column.key and column.fields is not None]
    names: list[str] = []
    for column in keyed:
        if column.fields:
            names.extend(f"{column.key}.{part}" for part in column.fields)
        else:
            names.append(column.key)
    lines = []
    for row in rows:
        line = {}
        for column in keyed:
            value = column.csv or column.value
            line[column.key] = plain(value(row))
        lines.append(line)
    return Rows(names, lines)


def begins(rows: Iterable[Row], key: Callable[[Row], Any]) -> Callable[[Row], bool]:
    """Return a test of a row: whether the row before it has another key."""
    first_rows = {id(next(section)) for _, section in groupby(rows, key)}

    def is_first(row: Row) -> bool:
        return id(row) in first_rows

    return is_first
