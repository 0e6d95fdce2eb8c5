"""Node against node for scripts: JSON, and the same as CSV (``reports/SCHEMA.md`` describes every key)."""

from collections.abc import Iterator
from typing import Any

from dlbench.adapters import axes
from dlbench.reports.cells import values
from dlbench.reports.fleet.analysis import Finding, FleetFound, KindFound, OnThing, Spread
from dlbench.reports.fleet.contrasts import Judged
from dlbench.reports.fleet.headline import headline
from dlbench.reports.fleet.missing import missing
from dlbench.reports.fleet.nodes import Thing
from dlbench.reports.formats import csv, json

MEAN, CELL = "mean", "cell"
_COLUMNS = (
    *("machine", "machine_name", "node", "shared", "thing", *axes.NAMES, "launches"),
    *csv.parts("seconds", *csv.MEDIAN),
    *("seconds_of_others", "others"),
    *csv.parts("ratio", *csv.VALUE),
    *("p_adjusted", "verdict"),
)


def fleet_data(found: FleetFound) -> dict[str, Any]:
    """Return a JSON object: of each kind its nodes with all their things, and the spreads; sentences, and gaps."""
    return {
        "machines": [
            {
                **_kind(each),
                "nodes": [_node(finding) for finding in each.nodes],
                "spreads": [_spread(spread) for spread in each.spreads],
            }
            for each in found.kinds
        ],
        "findings": headline(found),
        "missing": missing(found),
    }


def fleet_rows(found: FleetFound) -> csv.Rows:
    """Return a line for the mean of each node, and one for each of its things."""
    return csv.Rows(_COLUMNS, [line for kind in found.kinds for line in _lines(kind)])


def _lines(found: KindFound) -> Iterator[dict[str, Any]]:
    for each in found.nodes:
        of_node = {**_kind(found), "node": each.node.name, "shared": "; ".join(each.node.shared)}
        nothing = dict.fromkeys(("seconds", "seconds_of_others", *axes.NAMES))
        yield {**of_node, **nothing, "thing": MEAN, "launches": each.node.launches, **_judged(each.mean)}
        yield from ({**of_node, **_on(on)} for on in each.things)


def _kind(found: KindFound) -> dict[str, Any]:
    return {"machine": found.kind.host.fingerprint, "machine_name": found.kind.host.name}


def _node(found: Finding) -> dict[str, Any]:
    return {
        "node": found.node.name,
        "fleets": list(found.node.fleets),
        "shared": list(found.node.shared),
        "launches": found.node.launches,
        "disturbed_launches": found.node.disturbed,
        "readings": found.node.readings,
        **_judged(found.mean),
        "things": [_on(each) for each in found.things],
    }


def _on(on: OnThing) -> dict[str, Any]:
    return {
        **_thing(on.thing),
        "launches": on.time.launches,
        "seconds": {name: getattr(on.time, name) for name in csv.MEDIAN},
        "seconds_of_others": on.usual,
        **_judged(on.judged),
    }


def _judged(found: Judged) -> dict[str, Any]:
    return {
        "others": found.others,
        "ratio": json.plain(found.ratio),
        "p_adjusted": found.p_adjusted,
        "verdict": found.verdict,
    }


def _thing(thing: Thing) -> dict[str, Any]:
    if thing.cell is None:
        return {"thing": thing.name, **dict.fromkeys(axes.NAMES)}
    return {"thing": CELL, **values(thing.cell)}


def _spread(spread: Spread) -> dict[str, Any]:
    return {
        **_thing(spread.thing),
        "nodes": len(spread.thing.times),
        "between": spread.between,
        "within": spread.within,
        "by_noise": spread.by_noise,
    }
