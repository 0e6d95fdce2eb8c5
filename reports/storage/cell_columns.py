"""A cell as a row of the store: columns for the axes that people ask for in SQL, one column of JSON for all others."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from dlbench.adapters.protocol import Cell

_CELL = TypeAdapter(Cell)

COLUMNS = (
    "framework",
    "adapter",
    "mode",
    "network",
    "device",
    "threads",
    "batch_size",
    "precision",
    "placement",
    "affinity",
    "world_size",
)
"""Fields of a cell with a column of their own; a new axis needs none, and no migration."""
FURTHER = "further"
"""The column of the other fields: JSON with sorted keys of those that are not as usual; empty where all are."""


def to_columns(cell: Cell) -> dict[str, Any]:
    """Return the columns of a cell; equal cells have equal columns, and different ones different columns."""
    usual = Cell._field_defaults
    others = {name: value for name, value in cell._asdict().items() if name not in COLUMNS and value != usual.get(name)}
    further = json.dumps(others, sort_keys=True, separators=(",", ":")) if others else ""
    return {**{name: getattr(cell, name) for name in COLUMNS}, FURTHER: further}


def from_columns(row: Mapping[str, Any]) -> Cell:
    """Return the cell of these columns; raises ValueError or TypeError where they are not those of one."""
    further = json.loads(row[FURTHER]) if row[FURTHER] else {}
    return _CELL.validate_python({**{name: row[name] for name in COLUMNS}, **further})
