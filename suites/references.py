"""The float64 reference of each network and mini-batch: shipped with dlbench, or computed once and kept."""

import hashlib
import sys
from pathlib import Path

from dlbench.adapters.networks import NETWORKS
from dlbench.adapters.protocol import Cell, Launch, Protocol, Status

from . import environment
from .environment import Report
from .framework import GUEST_DIRECTORY
from .launcher import Launcher, Order

# Largest float64 intermediates a host should hold for a reference; beyond it the cell's parity stays unchecked.
_MOST_EXAMPLES = {"resnet50": 128, "alexnet": 512}


def shipped(network: str, batch_size: int) -> Path:
    """Return where a reference that comes with dlbench would lie."""
    return GUEST_DIRECTORY / "references" / f"{network}-b{batch_size}.npz"


def find(network: str, batch_size: int) -> Path | None:
    """Return the reference of this network and mini-batch, shipped or made here before; None where there is none."""
    for path in (shipped(network, batch_size), _own(network, batch_size)):
        if path.exists():
            return path
    return None


def _own(network: str, batch_size: int) -> Path:
    # A changed recipe or specification is another reference, so its digest is part of the name.
    digest = hashlib.sha256(repr(NETWORKS[network]).encode()).hexdigest()[:8]
    return environment.home() / "references" / f"{network}-b{batch_size}-{digest}.npz"


def ensure(network: str, batch_size: int, launcher: Launcher, report: Report, threads: int = 1) -> Path | None:
    """Return the reference, computing it by a launch of the reference adapter where there is none yet.

    None, with a report, when it could not be computed: parity is then unchecked for these cells, and shown so.
    """
    found = find(network, batch_size)
    if found is not None or batch_size > _MOST_EXAMPLES.get(network, 4096):
        return found
    path = _own(network, batch_size)
    environment.make_folder(path.parent)
    report(f"computing the float64 reference of {network} at mini-batch {batch_size}, once")
    partial = path.with_name("part-" + path.name)
    cell = Cell("reference", "reference", "float64", network, "cpu", threads, batch_size)
    protocol = Protocol(warmup_steps=1, steps=1, minimum_steps=1, seconds=0.0)
    launch = Launch(cell, protocol, {}, None, str(environment.home() / "cache"), str(partial))
    order = Order(launch, Path(sys.executable), {"OPENBLAS_NUM_THREADS": str(threads)}, timeout=1800.0)
    outcome = launcher.launch(order).outcome
    if outcome.status is not Status.OK or not partial.exists():
        report(f"no reference for {network} at mini-batch {batch_size}: {outcome.reason or outcome.status.value}")
        return None
    partial.replace(path)
    return path
