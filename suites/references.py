"""The float64 reference of each network and mini-batch: shipped with dlbench, or computed once and kept.

A mini-batch that repeats a smaller one k times has its mean loss, gradients and batch statistics. So the reference of
the smaller one proves a large mini-batch too, whose own would take hours and more memory than there is.
"""

import hashlib
import math
import sys
from dataclasses import dataclass
from pathlib import Path

from dlbench.adapters import reference_files
from dlbench.adapters.networks import NETWORKS, Residual

from . import environment
from .environment import Report

# Largest float64 intermediates a host should hold for a reference; beyond it the cell's parity stays unchecked.
_MOST_EXAMPLES = {"resnet50": 128, "alexnet": 512}


@dataclass(frozen=True)
class Reference:
    """What a cell's launches are compared with."""

    path: Path
    repeated_batch: int | None = None
    """The mini-batch that it was computed for, where that is repeated to fill the cell's; None: it is the cell's."""


def parts(network: str, batch_size: int, world_size: int) -> int:
    """Return how many equal parts of a mini-batch its reference must have, where workers deal it out among them.

    Workers average what they compute of their parts: that is the whole mini-batch's, but for batch normalisation, whose
    means and variances are those of a part. Only of equal parts they are those of the whole.
    """
    shared = isinstance(NETWORKS[network].family, Residual)
    return world_size if shared and batch_size % world_size == 0 else 1


def fitting(
    network: str, batch_size: int, on_cpu: bool, report: Report, threads: int = 1, equal_parts: int = 1
) -> Reference | None:
    """Return the reference for cells of this network and mini-batch, computing one where that is worth its while.

    Mini-batches of GPUs are large: there a smaller one's that is at hand is repeated before one is computed. One of so
    many ``equal_parts`` repeats a smaller one anyway. None, with a report, where there is none of either: parity is
    then unchecked for these cells, and shown so.
    """
    if equal_parts > 1:
        part = batch_size // equal_parts
        of_part = fitting(network, part, on_cpu, report, threads)
        return of_part and Reference(of_part.path, of_part.repeated_batch or part)
    found = find(network, batch_size)
    smaller = None
    if found is None and (not on_cpu or not _computable(network, batch_size)):
        smaller = _largest_within(network, batch_size)
    if smaller is not None:
        times = batch_size // smaller.size
        report(f"parity of {network} at mini-batch {batch_size}: that of {smaller.size}, repeated {times} times")
        return Reference(smaller.path, smaller.size)
    path = found or ensure(network, batch_size, report, threads)
    return None if path is None else Reference(path)


@dataclass(frozen=True)
class _Smaller:
    size: int
    path: Path


def _largest_within(network: str, batch_size: int) -> _Smaller | None:
    """Return the reference at hand of the largest mini-batch that fills this one when repeated."""
    low = [size for size in range(1, math.isqrt(batch_size) + 1) if batch_size % size == 0]
    divisors = {*low, *(batch_size // size for size in low)} - {batch_size}
    for size in sorted(divisors, reverse=True):
        path = find(network, size)
        if path is not None:
            return _Smaller(size, path)
    return None


def _computable(network: str, batch_size: int) -> bool:
    return batch_size <= _MOST_EXAMPLES.get(network, 4096)


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
    if not _computable(network, batch_size):
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
