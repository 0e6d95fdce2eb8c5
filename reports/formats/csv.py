"""CSV: the keys of a report's JSON flattened ("seconds_per_minibatch.low"), one table in a file."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dlbench.reports.formats.layout import Table
from dlbench.reports.results.safe_text import WHOLE, one_line


class Rows(NamedTuple):
    """A report as lines of one table."""

    columns: Sequence[str]
    """Keys of the lines; "a.b" is the key b of the value of a."""
    lines: Iterable[Mapping[str, Any]]


MEDIAN = ("median", "low", "high")
"""The parts of a summary."""
VALUE = ("value", "low", "high")
"""The parts of a ratio or an estimate."""


def rows_of_tables(tables: Iterable[Table]) -> Rows:
    """Return a line for each field of these tables, with its table, row and column."""
    lines = []
    for table in tables:
        for number, row in enumerate(table.rows, start=1):
            for head, entry in zip(table.head, row, strict=False):
                lines.append(
                    {"table": table.title, "row": number, "column": head, "value": entry.plain}
                )
    return Rows(("table", "row", "column", "value"), lines)


_FORMULA = re.compile(r"[=+\-@\uff1d\uff0b\uff0d\uff20](?!$)")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?( ?%)?", re.IGNORECASE)


def csv_text(rows: Rows) -> str:
    """Return rows as CSV text with a head.

    A text that a spreadsheet would calculate, since it begins with ``=``, ``+``, ``-`` or ``@``,
    gets an apostrophe before it. Numbers, and a sign alone, stay as they are.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(rows.columns)
    for line in rows.lines:
        writer.writerow([_field(line, column) for column in rows.columns])
    return buffer.getvalue()


def _field(line: Mapping[str, Any], column: str) -> Any:
    value: Any = line
    for key in column.split("."):
        if value is not None:
            value = value[key]
    if column == "flags":
        value = " ".join(flag["name"] for flag in value)
    elif column.endswith("wait_policy"):
        variables = value or {}
        value = " ".join(f"{name}={set_to}" for name, set_to in variables.items())
    if value is None:
        return ""
    if isinstance(value, str):
        return _inert(value)
    return value


def _inert(text: str) -> str:
    text = one_line(text, WHOLE)
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        return f"'{text}"
    return text
