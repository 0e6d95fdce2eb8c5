"""`dlbench report ceilings`: the best that CPUs and GPUs did in any launch, and the host's cost of an operator.

A GPU is a machine's device together with its board's name: another card in the same slot, or another part of it, is
another GPU. Rates are the device's, whichever framework showed them; the cost of an operator is the framework's own. A
framework that computes nothing only pretends, and counts only where no other measured anything of that GPU.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dlbench.adapters.libraries import gpus
from dlbench.adapters.protocol import PRECISIONS
from dlbench.hardware_probe import Ceilings
from dlbench.reports.flags import product_rate
from dlbench.reports.formats.csv import rows_of_tables
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import Entry, Page, Table, entries, number
from dlbench.reports.report import ALL_RUNS, Report
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.results import Results

SCHEMA = "dlbench-ceilings-1"
TRANSFER_WORDS = {
    gpus.COPY: "copy on the device",
    gpus.TO_DEVICE_PINNED: "host to device, pinned",
    gpus.TO_DEVICE_PAGEABLE: "host to device, pageable",
    gpus.FROM_DEVICE_PINNED: "device to host, pinned",
    gpus.FROM_DEVICE_PAGEABLE: "device to host, pageable",
}
_OF_CPU = ("threads", "gemm_flops_per_second", "bandwidth_bytes_per_second", "doubt")
_NONE = (
    "Nothing was measured yet: `dlbench run` measures the CPU's ceilings before its launches (unless --no-ceilings), "
    "and a GPU's after the timed steps of each launch on it."
)


class Best(NamedTuple):
    """The highest rate or the shortest time of several launches."""

    value: float
    launches: int
    """Those with a value."""
    row: str
    """Framework and mode that showed it; empty where the record is not at hand."""


@dataclass(frozen=True)
class GpuCeilings:
    """The ceilings of one GPU; unmeasured ones are missing."""

    machine: str
    """Its fingerprint."""
    device: str
    board: str
    """As the driver calls it, or else as the framework does."""
    products: Mapping[str, Best] = field(default_factory=dict)
    """FLOP/s of a framework's own large matrix product, by precision."""
    transfers: Mapping[str, Best] = field(default_factory=dict)
    """Bytes per second, by the names in `gpus.TRANSFERS`; of a copy on the device read and written."""
    starts: Mapping[str, Best] = field(default_factory=dict)
    """Seconds of the host to start the smallest operator behind others, by framework."""
    finishes: Mapping[str, Best] = field(default_factory=dict)
    """Seconds from the start of one on an idle device until the host knows that it is done, by framework."""

    def ridge(self, precision: str) -> float | None:
        """Return the FLOPs per byte above which products, and no longer the memory, limit (Williams et al. 2009)."""
        product, copy = self.products.get(precision), self.transfers.get(gpus.COPY)
        return product.value / copy.value if product and copy else None


def gpu_ceilings(results: Results) -> list[GpuCeilings]:
    """Return the ceilings of each GPU, in the order of machines and devices."""
    grouped: dict[tuple[str, str, str], list[Record]] = {}
    for record in results.records:
        if not record.cell.on_cpu and record.outcome.device is not None:
            grouped.setdefault((record.machine, record.cell.device, _board(record)), []).append(record)
    machines = list(results.hosts)
    found = []
    for machine, device, board in sorted(
        grouped, key=lambda key: (_place(key[0], machines), _numbered(key[1]), key[2])
    ):
        records = grouped[machine, device, board]
        records = [record for record in records if record.outcome.parameter_count] or records
        # Of records left out only machine and device are known: theirs where there was one board alone.
        alone = sum(key[:2] == (machine, device) for key in grouped) == 1
        transfers = {name: _best(max, records, _ceiling(f"{name}_bytes_per_second")) for name in gpus.TRANSFERS}
        made = GpuCeilings(
            machine,
            device,
            board,
            _products(records, results, (machine, device) if alone else None),
            {name: best for name, best in transfers.items() if best is not None},
            _overheads(records, "operator_start_seconds"),
            _overheads(records, "operator_finish_seconds"),
        )
        if made.products or made.transfers or made.starts or made.finishes:
            found.append(made)
    return found


def _place(machine: str, machines: list[str]) -> tuple[int, str]:
    return (machines.index(machine) if machine in machines else len(machines)), machine


def _board(record: Record) -> str:
    """Return the driver's name for the GPU of a launch, or the framework's where the driver was not asked."""
    gpu = record.outcome.software.get("gpu")
    name = gpu.get("name") if isinstance(gpu, dict) else None
    if isinstance(name, str) and name:
        return name
    return "" if record.outcome.device is None else record.outcome.device.name


def _products(records: list[Record], results: Results, elsewhere: tuple[str, str] | None) -> dict[str, Best]:
    found = {}
    for precision in dict.fromkeys([*PRECISIONS, *(record.cell.precision for record in records)]):
        here = [record for record in records if record.cell.precision == precision]
        best = _best(max, here, lambda record: product_rate(record, results.hosts.get(record.machine)))
        left_out = results.products.get((*elsewhere, precision), ()) if elsewhere else ()
        highest = max((rate for _, rate in left_out), default=0.0)
        if highest > (best.value if best else 0.0):
            best = Best(highest, best.launches if best else 0, "")
        if best is not None:
            found[precision] = best
    return found


def _overheads(records: Iterable[Record], name: str) -> dict[str, Best]:
    by_framework: dict[str, list[Record]] = {}
    for record in records:
        by_framework.setdefault(record.cell.framework, []).append(record)
    found = {framework: _best(min, of, _ceiling(name)) for framework, of in sorted(by_framework.items())}
    return {framework: best for framework, best in found.items() if best is not None}


def _ceiling(name: str) -> Callable[[Record], float | None]:
    return lambda record: getattr(record.outcome.device and record.outcome.device.ceilings, name, None)


def _best(
    choose: Callable[..., tuple[float, Record]], records: Iterable[Record], value: Callable[[Record], float | None]
) -> Best | None:
    """Return the best of the records' values, by ``max`` or ``min``; None where none is above 0."""
    found = [(known, record) for record in records if (known := value(record)) is not None and known > 0]
    if not found:
        return None
    best, record = choose(found, key=lambda pair: pair[0])
    framework, mode = record.cell.framework, record.cell.mode
    return Best(best, len(found), framework if mode in ("", framework) else f"{framework} {mode}")


def _numbered(device: str) -> list[tuple[int, str]]:
    """Order cuda:2 before cuda:10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in device.split(":")]


def _machines(results: Results, found: Iterable[GpuCeilings]) -> list[str]:
    return list(dict.fromkeys([*results.hosts, *results.ceilings, *(each.machine for each in found)]))


def ceilings_tables(results: Results) -> list[Table]:
    """Return a table for the CPU of each machine and one for each of its GPUs, or a single one with advice."""
    found = gpu_ceilings(results)
    tables = []
    for machine in _machines(results, found):
        host = results.hosts.get(machine) or Host(machine, machine[:12])
        if machine in results.ceilings:
            tables.append(_of_cpu(host, results.ceilings[machine]))
        tables += [_of_gpu(host, each) for each in found if each.machine == machine]
    return tables or [Table("Ceilings", (), (), (_NONE,), words=True)]


def _of_cpu(host: Host, measured: Ceilings) -> Table:
    rows = tuple(
        entries(str(each.threads), *(number(getattr(each, name) * 1e-9) for name in _OF_CPU[1:3]))
        for each in measured.measured
    )
    doubts = [f"{each.threads} threads: {each.doubt}" for each in measured.measured if each.doubt]
    notes = ("Single-precision matrix products by NumPy's BLAS; bytes read and written by a += b.", *doubts)
    return Table(f"Ceilings of the CPU: {host.name}", ("threads", "GFLOP/s", "GB/s"), rows, notes)


def _of_gpu(host: Host, found: GpuCeilings) -> Table:
    rows = [
        *(_row(f"matrix product, {name}", best, 1e12, "TFLOP/s") for name, best in found.products.items()),
        *(_row(TRANSFER_WORDS[name], best, 1e9, "GB/s") for name, best in found.transfers.items()),
        *(_row(f"operator's start, {name}", best, 1e-6, "us") for name, best in found.starts.items()),
        *(_row(f"operator's start to its end, {name}", best, 1e-6, "us") for name, best in found.finishes.items()),
    ]
    notes = ["The best of all launches that measured it."]
    if gpus.COPY in found.transfers:
        notes.append("A copy on the device counts bytes read and written, as STREAM's does (McCalpin 1995).")
    if found.starts or found.finishes:
        notes.append(
            "Start: the host's time to start the smallest operator behind others. To its end: from the start of one "
            "on an idle device until the host knows that it is done."
        )
    ridges = [f"{number(ridge)} at {name}" for name in found.products if (ridge := found.ridge(name)) is not None]
    if ridges:
        notes.append(
            f"With fewer FLOPs per byte of device memory than {', '.join(ridges)}, memory is the limit and not "
            "products (roofline, Williams et al. 2009)."
        )
    head = ("ceiling", "at best", "unit", "launches", "shown by")
    return Table(f"Ceilings of {found.device}, {found.board}: {host.name}", head, tuple(rows), tuple(notes), words=True)


def _row(name: str, best: Best, unit: float, word: str) -> tuple[Entry, ...]:
    launches = str(best.launches) if best.row else ""
    return entries(name, number(best.value / unit), word, launches, best.row or "an earlier launch")


def ceilings_data(results: Results) -> dict[str, Any]:
    """Return a JSON object with all of it: rates in FLOP/s and bytes per second, times in seconds."""
    found = gpu_ceilings(results)
    machines = []
    for machine in _machines(results, found):
        measured = results.ceilings[machine].measured if machine in results.ceilings else ()
        machines.append(
            {
                "machine": machine,
                "machine_name": results.hosts[machine].name if machine in results.hosts else machine[:12],
                "cpu": [{name: getattr(each, name) for name in _OF_CPU} for each in measured],
                "gpus": [_gpu(each) for each in found if each.machine == machine],
            }
        )
    return {"schema": SCHEMA, "machines": machines}


def _gpu(found: GpuCeilings) -> dict[str, Any]:
    return {
        "device": found.device,
        "board": found.board,
        "gemm_flops_per_second": plain(found.products),
        "bytes_per_second": plain(found.transfers),
        "operator_start_seconds": plain(found.starts),
        "operator_finish_seconds": plain(found.finishes),
        "ridge_flops_per_byte": {precision: found.ridge(precision) for precision in found.products},
    }


REPORT = Report(
    name="ceilings",
    summary="The best that CPUs and GPUs can do: matrix products, bandwidths, and the cost of starting an operator.",
    examples=("dlbench report ceilings", "dlbench report ceilings --all-runs --json"),
    analyse=lambda source: source.results(),
    page=lambda results, options: Page((), tuple(ceilings_tables(results))),
    data=ceilings_data,
    rows=lambda results: rows_of_tables(ceilings_tables(results)),
    suggestion="the best that the GPU can do",
    applies=lambda cells: any(not each.on_cpu for each in cells),
    options=frozenset({ALL_RUNS}),
    heading="The best that the devices can do",
    place=80,
)
