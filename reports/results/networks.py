"""The networks of cells and records, and how to distinguish two of the same name.

Records, plans and stores from before networks were data name one of the six of Shi et al. 2016,
whose numbers are kept here as they were then (``reports/data/first_networks.json``). A cell of one
of these has an empty specification, then and now; any other network's cells carry the digest of its
numbers. So old and new cells of the same network are the same, and nothing is pooled with them if
dlbench ever ships other numbers under one of these names.
"""

import functools
import json
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

from dlbench.adapters.families import Family, NumbersError
from dlbench.adapters.families.own import Own
from dlbench.adapters.networks import (
    Network,
    digest,
    digest_of,
    family_of,
    network_with,
    specification,
)
from dlbench.adapters.protocol import Cell, ProtocolError

if TYPE_CHECKING:
    from dlbench.reports.results.record import Record


Networks = Mapping[tuple[str, str], Mapping[str, Any]]
"""Networks as records keep them, a family and its numbers, by their name and specification."""


def networks_of(records: "Iterable[Record]") -> Networks:
    """Return the networks that these records describe."""
    networks = {}
    for record in records:
        if record.network:
            networks[record.cell.network, record.cell.specification] = record.network
    return networks


def _read() -> dict[str, Network]:
    file = resources.files("dlbench.reports").joinpath("data/first_networks.json")
    networks = {}
    for name, kept in json.loads(file.read_text(encoding="utf-8")).items():
        networks[name] = network_with(name, family_of(kept), kept["batch_size"])
    return networks


FIRST = _read()
"""By name, in the order of the paper."""
_OWN = digest(specification(Own()))
_DIGESTS = {name: digest_of(network) for name, network in FIRST.items()}


def specification_of_cells(network: Network) -> str:
    """Return the `Cell.specification` of the network's cells."""
    own = digest_of(network)
    return "" if _DIGESTS.get(network.name) == own else own


def is_own_step(cell: Cell) -> bool:
    """Tell whether a cell is a user's own training step, known by nothing but its time."""
    return cell.specification == _OWN


def family_of_record(record: "Record") -> Family | None:
    """Return the network's family with its numbers; None if unknown."""
    if record.network is not None:
        return _family(json.dumps(record.network))
    name = record.cell.network
    return FIRST[name].family if name in FIRST and not record.cell.specification else None


@functools.lru_cache(1000)
def _family(text: str) -> Family | None:
    try:
        return family_of(json.loads(text))
    except NumbersError:
        return None  # of a newer dlbench


def read_network(data: object) -> dict[str, Any] | None:
    """Read the specification that a record keeps; raises ProtocolError if it is invalid."""
    if data is None:
        return None
    if isinstance(data, dict):
        has_family = isinstance(data.get("family"), str)
        if has_family and isinstance(data.get("numbers"), dict):
            return data
    raise ProtocolError("the network is no family with numbers")


def in_order(name: str) -> tuple[int, str]:
    """Return a sort key of a network's name: the paper's in its order, then others by name.

    Numbers in names count: r20 comes before r100.
    """
    places = list(FIRST)
    return (places.index(name), "") if name in places else (len(places), by_numbers(name))


def by_numbers(name: str) -> str:
    """Return a sort key of a name that puts its numbers in order.

    r20 comes before r100, and 0.9.2 before 0.10.0.
    """
    return re.sub(r"\d+", lambda number: number[0].zfill(9), name)
