"""Files of the mini-batches that steps take one after another: written once, and the same in every framework.

A run checks each file against the numbers that it must have, and writes it anew where it was cut or changed.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import filelock

from dlbench.adapters.launch.batches import CHECKED, TIMED
from dlbench.adapters.launch.feeds import Feed, path_of
from dlbench.adapters.networks import Network
from dlbench.adapters.protocol import FED, Cell
from dlbench.hardware_probe import Machine

from ..environments.environment import Report
from ..environments.folders import MEGABYTE, file_digest
from ..planning.plan import Plan, too_large
from .preparation import network_digest
from .weights import folder, write


class FeedFiles(NamedTuple):
    """The files of a network's mini-batches of one size."""

    folder: Path
    described: dict[str, Any]
    """The description that a record keeps."""


def prepare(plan: Plan, machine: Machine, report: Report) -> Callable[[Cell], FeedFiles | None]:
    """Return a look-up of the files of each cell whose steps take mini-batches, after making or checking them."""
    found: dict[tuple[Network, int], FeedFiles | None] = {}
    for cell in plan.cells:
        network = plan.network_of(cell)
        key = (network, cell.batch_size)
        used = cell.placement in FED and plan.row_of(cell).build.framework.computes
        used = used and network.family.specified and network.family.trains
        if used and key not in found and not too_large(plan, cell, machine):
            found[key] = checked(*key, report)
    return lambda cell: found.get((plan.network_of(cell), cell.batch_size)) if cell.placement in FED else None


def checked(network: Network, batch_size: int, report: Report) -> FeedFiles | None:
    """Return the files with the right mini-batches in them; None, with a report, where they cannot be written."""
    place = folder() / f"{network.name}-{network_digest(network)}"
    timed = Feed(network, batch_size, TIMED)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(place.with_name(f"{place.name}.lock")):
            digest = _check(timed, Path(path_of(str(place), batch_size, TIMED)), report)
            _check(Feed(network, batch_size, CHECKED), Path(path_of(str(place), batch_size, CHECKED)), report)
    except OSError as error:
        what = f"mini-batches of {network.name} cannot be kept in {place} ({error.strerror or error})"
        report(f"{what}: launches draw them, and those that load them from a file are left out")
        return None
    return FeedFiles(
        place, {"digest": digest[:16], "mini_batches": timed.count, "mini_batch_bytes": timed.record_bytes}
    )


def _check(feed: Feed, path: Path, report: Report) -> str:
    """Write a file unless it has the mini-batches that would be drawn already; return its SHA-256."""
    right = hashlib.sha256()
    for record in feed.drawn():
        right.update(record)
    if path.exists() and file_digest(path) == right.hexdigest():
        return right.hexdigest()
    if path.exists():
        report(f"{path} was cut or changed: it is written anew")
    else:
        size = feed.count * feed.record_bytes / MEGABYTE
        report(f"drawing mini-batches of {feed.network.name}, once: {size:.1f} MB in {path}")
    write(path, feed.drawn())
    return right.hexdigest()
