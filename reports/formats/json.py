"""JSON: plain types of whatever a report holds. ``reports/SCHEMA.md`` describes every key."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from datetime import date
from enum import Enum
from typing import Any

from dlbench.reports.formats.layout import Table
from dlbench.reports.results.flags import Flag
from dlbench.reports.results.safe_text import json_escaped

_INNER = {
    "coverage",
    "step_variance",
    "launch_deviation",
    "launch_variance",
    "launch_freedom",
    "beside",
    "place",
}
"""Fields of a summary that its method describes."""


def plain(value: Any) -> Any:
    """Return a value as plain JSON types, all the way down: dataclasses and named tuples become
    objects.
    """
    if isinstance(value, Flag):
        return {"name": value.kind.name, "symbol": value.kind.symbol, "detail": value.sentence}
    if dataclasses.is_dataclass(value):
        return {name: plain(each) for name, each in vars(value).items() if name not in _INNER}
    if hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    return value.isoformat() if isinstance(value, date) else value


def data_of_tables(tables: Iterable[Table]) -> list[dict[str, Any]]:
    """Return an object for each table: its title, its rows as objects, its notes."""
    return [
        {
            "title": table.title,
            "rows": [
                {
                    head or f"column_{place}": entry.plain
                    for place, (head, entry) in enumerate(zip(table.head, row, strict=True))
                }
                for row in table.rows
            ],
            "notes": list(table.notes),
        }
        for table in tables
    ]


def json_text(content: Any, indent: int | None = 2) -> str:
    """Return JSON text; what is not finite is null, since JSON knows neither nan nor inf."""
    return (
        json_escaped(
            json.dumps(finite(content), indent=indent, allow_nan=False, ensure_ascii=False)
        )
        + "\n"
    )


def finite(content: Any) -> Any:
    """Return it with null for what JSON has no word for (a loss that is not a number), all the way
    down.
    """
    if isinstance(content, Mapping):
        return {str(key): finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
