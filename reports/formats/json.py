"""JSON: plain types of whatever a report holds. ``reports/docs/reference`` describes every key."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from datetime import date
from enum import Enum
from typing import Any

from dlbench.reports.formats.layout import Table
from dlbench.reports.results.flag_kinds import Flag
from dlbench.reports.results.safe_text import json_escaped

_INNER = {
    "coverage",
    "step_variance",
    "launch_deviation",
    "launch_variance",
    "launch_freedom",
    "relative",
    "number",
}
"""Fields of a summary that its method describes."""


def plain(value: Any) -> Any:
    """Return a value as plain JSON types: dataclasses and named tuples become objects."""
    if isinstance(value, Flag):
        return {"name": value.kind.name, "symbol": value.kind.symbol, "detail": value.sentence}
    if dataclasses.is_dataclass(value):
        fields = vars(value).items()
        return {name: plain(content) for name, content in fields if name not in _INNER}
    if hasattr(value, "_asdict"):
        return {name: plain(content) for name, content in value._asdict().items()}
    if isinstance(value, Mapping):
        return {key: plain(content) for key, content in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, date):
        return value.isoformat()
    return value


def data_of_tables(tables: Iterable[Table]) -> list[dict[str, Any]]:
    """Return an object for each table: its title, its rows as objects, its notes."""
    data = []
    for table in tables:
        keys = [head or f"column_{place}" for place, head in enumerate(table.head)]
        rows = []
        for row in table.rows:
            rows.append({key: entry.plain for key, entry in zip(keys, row, strict=True)})
        data.append({"title": table.title, "rows": rows, "notes": list(table.notes)})
    return data


def json_text(content: Any, indent: int | None = 2) -> str:
    """Return JSON text, with null for nan and inf, which JSON does not have."""
    text = json.dumps(finite(content), indent=indent, allow_nan=False, ensure_ascii=False)
    return json_escaped(text) + "\n"


def finite(content: Any) -> Any:
    """Return the content with null for numbers that JSON does not have, such as a loss of nan."""
    if isinstance(content, Mapping):
        return {str(key): finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content
