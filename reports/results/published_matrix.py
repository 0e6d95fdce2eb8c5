"""Matrices of published tables, whose cells have neither samples nor an interval."""

from collections.abc import Mapping

from dlbench.adapters import axes
from dlbench.adapters.protocol import Status
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.flag_kinds import NEAR_PEAK, Flag
from dlbench.reports.results.keys import NO_THREADS
from dlbench.reports.results.matrix import Matrix, assemble
from dlbench.reports.results.networks import FIRST
from dlbench.reports.results.published import Study, lines_of
from dlbench.reports.results.statistics import published

DOUBTFUL_SHARE = 0.90
"""Of a GPU's theoretical peak: training steps above this share are doubtful (an FFT may save
arithmetic)."""
_REASONS = {
    "unsupported": Status.UNSUPPORTED,
    "crashed": Status.CRASHED,
    "timed out": Status.TIMED_OUT,
    "out of memory": Status.OUT_OF_MEMORY,
}
"""The first words of a reason in the data."""


def published_matrix(table: Study, first: bool = True) -> Matrix:
    """Return a published table, with the first trial of each figure or without."""
    cells = []
    for line in lines_of(table.description["file"]):
        if first or not line.get("note", "").startswith("first trial"):
            cells.append(_cell(table, line))
    hosts = {host.fingerprint: host for host in table.hosts.values()}
    source = f"Source: {table.description['source']}. {table.description['caveat']}"
    return assemble(cells, hosts, [source])


def _cell(table: Study, line: Mapping[str, str]) -> CellResult:
    """Return the cell that a line of the table describes."""

    def value(name: str, default: str = "") -> str:
        return str(table.description.get(name, default)).format(**line)

    network = value("network")
    machine = value("machine")
    threads = int(line.get("threads") or 0) or None
    batch = int(value("batch_size", "0")) or FIRST[network].known_batch_size
    seconds = None
    if value("seconds"):
        seconds = float(value("seconds")) / table.description.get("updates", 1)
    kind, _, reason = (line.get("hole") or "").partition(": ")
    rate = 0.0
    if seconds and network in FIRST:
        rate = FIRST[network].family.training_flops(batch) / seconds
    peak = table.description["machines"][machine].get("peak")
    flags = []
    if peak is not None and rate > DOUBTFUL_SHARE * peak:
        reason = f"{rate * 1e-12:.2f} TFLOP/s are {rate / peak:.0%} of the GPU's theoretical peak"
        flags.append(Flag(NEAR_PEAK, reason))
    if reason:
        reason = f"{reason}, says the paper"
    elif not seconds:
        reason = value("reason")
    status = Status.OK
    if not seconds:
        status = _REASONS.get(kind, Status.UNSUPPORTED)
    device = value("device")
    if not device:
        device = "cpu" if threads else "gpu"
    summary = None
    items_per_second = None
    if seconds:
        summary = published(seconds)
        items_per_second = batch / seconds
    return CellResult(
        machine=table.hosts[machine].fingerprint,
        cell=axes.BLANK._replace(
            network=network,
            batch_size=batch,
            framework=value("framework"),
            mode=value("mode"),
            device=device,
            threads=threads or NO_THREADS,
        ),
        status=status,
        reason=reason,
        flags=tuple(flags),
        seconds=summary,
        items_per_second=items_per_second,
        run=table.name,
    )
