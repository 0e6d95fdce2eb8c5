"""The float64 reference of each network and mini-batch: shipped with dlbench, or computed once and kept."""

import hashlib
import sys
from pathlib import Path

from dlbench.adapters import reference_files
from dlbench.adapters.networks import NETWORKS

from . import environment
from .environment import Report

# Largest float64 intermediates a host should hold for a reference; beyond it the cell's parity stays unchecked.
_MOST_EXAMPLES = {"resnet50": 128, "alexnet": 512}


def find(network: str, batch_size: int) -> Path | None:
    """Return the reference of this network and mini-batch, shipped or made here before; None where there is none."""
    shipped = reference_files.shipped(network, batch_size)
    if shipped is not None:
        return Path(shipped)
    own = _own(network, batch_size)
    return own if own.exists() else None


def _own(network: str, batch_size: int) -> Path:
    # A changed recipe or specification is another reference, so its digest is part of the name.
    digest = hashlib.sha256(repr(NETWORKS[network]).encode()).hexdigest()[:8]
    return environment.home() / "references" / f"{network}-b{batch_size}-{digest}.npz"


def ensure(network: str, batch_size: int, report: Report, threads: int = 1) -> Path | None:
    """Return the reference, computing it by a launch of the reference adapter where there is none yet.

    None, with a report, when it could not be computed: parity is then unchecked for these cells, and shown so.
    """
    found = find(network, batch_size)
    if found is not None:
        return found
    if batch_size > _MOST_EXAMPLES.get(network, 4096):
        report(f"no reference for {network} at mini-batch {batch_size}: it would need too much memory")
        return None
    path = _own(network, batch_size)
    environment.make_folder(path.parent)
    report(f"computing the float64 reference of {network} at mini-batch {batch_size}, once")
    try:
        reference_files.generate(network, batch_size, str(path), sys.executable, threads, timeout=1800.0)
    except reference_files.ReferenceNotMadeError as error:
        report(f"no reference: {error}")
        return None
    return path
