"""`dlbench report ceilings`: best rates of CPUs and GPUs, and the host's cost of an operator.

A GPU is a machine's device together with its board's name: another card in the same slot, or
another partition of it, is another GPU. Rates belong to the device, whichever framework measured
them. The cost of an operator belongs to the framework. A framework that computes nothing counts
only if no other measured anything on that GPU.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from dlbench.adapters.libraries import gpus
from dlbench.adapters.protocol import PRECISIONS, Cell
from dlbench.hardware_probe import Ceilings
from dlbench.reports.formats.csv import rows_of_tables
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import Page, Table, entries
from dlbench.reports.report import ALL_RUNS, Report
from dlbench.reports.results.flags import product_rate
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.networks import by_numbers
from dlbench.reports.results.number_text import number
from dlbench.reports.results.record import Record
from dlbench.reports.results.results import Results

SCHEMA = "dlbench-ceilings-1"
TRANSFER_WORDS = {
    gpus.COPY: "copy on the device",
    gpus.TO_DEVICE_PINNED: "host to device, pinned",
    gpus.TO_DEVICE_PAGEABLE: "host to device, pageable",
    gpus.FROM_DEVICE_PINNED: "device to host, pinned",
    gpus.FROM_DEVICE_PAGEABLE: "device to host, pageable",
}
_CPU_FIELDS = ("threads", "gemm_flops_per_second", "bandwidth_bytes_per_second", "doubt")
_NONE = (
    "Nothing was measured yet: `dlbench run` measures the CPU's ceilings before its launches "
    "(unless --no-ceilings), and a GPU's after the timed steps of each launch on it."
)


class Best(NamedTuple):
    """The highest rate or the shortest time of several launches."""

    value: float
    launches: int
    """Those with a value."""
    row: str
    """Framework and mode that showed it; empty where the record is not at hand."""


PRODUCTS = "gemm_flops_per_second"
"""A framework's own large matrix product, by precision."""
TRANSFERS = "bytes_per_second"
"""Copies, by `gpus.TRANSFERS`, read and written."""
STARTS = "operator_start_seconds"
"""The host's time to start the smallest operator behind others, by framework."""
FINISHES = "operator_finish_seconds"
"""From the start of an operator on an idle device until the host knows that it is done."""
Gpu = tuple[str, str, str]
"""Machine (fingerprint), device, and board as the driver calls it, or else the framework."""
GpuCeilings = dict[str, dict[str, Best]]
"""By kind (above) and name; unmeasured ones are missing."""


def gpu_ceilings(results: Results) -> dict[Gpu, GpuCeilings]:
    """Return the ceilings of each GPU, in the order of machines and devices."""
    records_by_gpu: dict[Gpu, list[Record]] = {}
    for record in results.records:
        if not record.cell.on_cpu and record.outcome.device is not None:
            gpu = (record.machine, record.cell.device, _board(record))
            records_by_gpu.setdefault(gpu, []).append(record)
    boards: Counter[tuple[str, str]] = Counter()
    unknown_machines = set()
    for machine, device, _ in records_by_gpu:
        boards[machine, device] += 1
        if machine not in results.hosts:
            unknown_machines.add(machine)
    machines = [*results.hosts, *sorted(unknown_machines)]

    def gpu_order(gpu: Gpu) -> tuple[Any, ...]:
        machine, device, board = gpu
        return (machines.index(machine), by_numbers(device), board)

    all_ceilings = {}
    for gpu in sorted(records_by_gpu, key=gpu_order):
        machine, device, _ = gpu
        best = _best_values(records_by_gpu[gpu], results)
        # Of records left out only machine and device are known: theirs where there was one board.
        if boards[machine, device] == 1:
            _add_left_out_products(best, results, machine, device)
        ceilings = _group_by_kind(best, records_by_gpu[gpu])
        if any(ceilings.values()):
            all_ceilings[gpu] = ceilings
    return all_ceilings


def _best_values(records: Sequence[Record], results: Results) -> dict[tuple[str, str], Best]:
    """Return the best of each kind and name."""
    values: dict[tuple[str, str], list[tuple[float, Record]]] = {}

    def add(kind: str, name: str, value: float | None, record: Record) -> None:
        if value is not None and value > 0:
            values.setdefault((kind, name), []).append((value, record))

    for record in _computing(records):
        cell = record.cell
        device = record.outcome.device
        ceilings = None if device is None else device.ceilings
        product = product_rate(record, results.hosts.get(record.machine))
        add(PRODUCTS, cell.precision, product, record)
        for name in gpus.TRANSFERS:
            add(TRANSFERS, name, getattr(ceilings, f"{name}_bytes_per_second", None), record)
        for kind in (STARTS, FINISHES):
            add(kind, cell.framework, getattr(ceilings, kind, None), record)
    best = {}
    for (kind, name), measured in values.items():
        choose = min if kind in (STARTS, FINISHES) else max
        value, record = choose(measured, key=lambda pair: pair[0])
        best[kind, name] = Best(value, len(measured), _row_text(record.cell))
    return best


def _computing(records: Sequence[Record]) -> Sequence[Record]:
    """Return the records of frameworks that compute something, or all if there are none."""
    return [record for record in records if record.outcome.parameter_count] or records


def _row_text(cell: Cell) -> str:
    if cell.mode in ("", cell.framework):
        return cell.framework
    return f"{cell.framework} {cell.mode}"


def _add_left_out_products(
    best: dict[tuple[str, str], Best], results: Results, machine: str, device: str
) -> None:
    """Replace the products that a record left out of these results surpasses."""
    for (rate_machine, rate_device, precision), rates in results.products.items():
        if (rate_machine, rate_device) != (machine, device):
            continue
        current = best.get((PRODUCTS, precision), Best(0.0, 0, ""))
        highest = max((rate for _, rate in rates), default=0.0)
        if highest > current.value:
            best[PRODUCTS, precision] = Best(highest, current.launches, "")


def _group_by_kind(best: dict[tuple[str, str], Best], records: Sequence[Record]) -> GpuCeilings:
    other_precisions = set()
    for kind, name in best:
        if kind == PRODUCTS and name not in PRECISIONS:
            other_precisions.add(name)
    frameworks = sorted({record.cell.framework for record in _computing(records)})
    names_by_kind = {
        PRODUCTS: [*PRECISIONS, *sorted(other_precisions)],
        TRANSFERS: gpus.TRANSFERS,
        STARTS: frameworks,
        FINISHES: frameworks,
    }
    ceilings = {}
    for kind, names in names_by_kind.items():
        ceilings[kind] = {name: best[kind, name] for name in names if (kind, name) in best}
    return ceilings


def ridge(ceilings: GpuCeilings, precision: str) -> float | None:
    """Return the FLOPs per byte above which products, not the memory, limit (Williams 2009)."""
    product = ceilings[PRODUCTS].get(precision)
    copy = ceilings[TRANSFERS].get(gpus.COPY)
    if product is None or copy is None:
        return None
    return product.value / copy.value


def _board(record: Record) -> str:
    """Return the driver's name for the GPU of a launch, or else the framework's."""
    gpu = record.outcome.facts.gpu
    if isinstance(gpu, dict):
        name = gpu.get("name")
        if isinstance(name, str) and name:
            return name
    if record.outcome.device is None:
        return ""
    return record.outcome.device.name


def _machines(results: Results, all_gpus: Iterable[Gpu]) -> list[str]:
    machines = [*results.hosts, *results.ceilings]
    machines += [machine for machine, _, _ in all_gpus]
    return list(dict.fromkeys(machines))


def ceilings_tables(results: Results) -> list[Table]:
    """Return a table for each CPU and each GPU, or a single one with advice."""
    ceilings_by_gpu = gpu_ceilings(results)
    tables = []
    for machine in _machines(results, ceilings_by_gpu):
        host = results.hosts.get(machine) or Host(machine, machine[:12])
        if machine in results.ceilings:
            tables.append(_cpu_table(host, results.ceilings[machine]))
        for gpu, ceilings in ceilings_by_gpu.items():
            if gpu[0] == machine:
                tables.append(_gpu_table(host, gpu, ceilings))
    return tables or [Table("Ceilings", (), (), (_NONE,), words=True)]


def _cpu_table(host: Host, ceilings: Ceilings) -> Table:
    rows = []
    doubts = []
    for ceiling in ceilings.measured:
        gemm = number(ceiling.gemm_flops_per_second * 1e-9)
        bandwidth = number(ceiling.bandwidth_bytes_per_second * 1e-9)
        rows.append(entries(str(ceiling.threads), gemm, bandwidth))
        if ceiling.doubt:
            doubts.append(f"{ceiling.threads} threads: {ceiling.doubt}")
    notes = (
        "Single-precision matrix products by NumPy's BLAS; bytes read and written by a += b.",
        *doubts,
    )
    return Table(
        f"Ceilings of the CPU: {host.name}", ("threads", "GFLOP/s", "GB/s"), tuple(rows), notes
    )


_ROWS = (
    (PRODUCTS, "matrix product, {}", 1e12, "TFLOP/s"),
    (TRANSFERS, "{}", 1e9, "GB/s"),
    (STARTS, "operator's start, {}", 1e-6, "us"),
    (FINISHES, "operator's start to its end, {}", 1e-6, "us"),
)


def _gpu_table(host: Host, gpu: Gpu, ceilings: GpuCeilings) -> Table:
    rows = []
    for kind, words, scale, unit in _ROWS:
        for name, best in ceilings[kind].items():
            title = words.format(TRANSFER_WORDS.get(name, name))
            launches = ""
            row = "an earlier launch"
            if best.row:
                launches = str(best.launches)
                row = best.row
            rows.append(entries(title, number(best.value / scale), unit, launches, row))
    notes = ["Each is the best of all launches that measured it."]
    if gpus.COPY in ceilings[TRANSFERS]:
        notes.append(
            "A copy on the device counts bytes read and written, as STREAM's does (McCalpin 1995)."
        )
    if ceilings[STARTS] or ceilings[FINISHES]:
        notes.append(
            "Start: the host's time to launch the smallest operator while others are queued. To "
            "its end: from its launch on an idle device until the host knows that it is done."
        )
    ridges = []
    for precision in ceilings[PRODUCTS]:
        flops_per_byte = ridge(ceilings, precision)
        if flops_per_byte is not None:
            ridges.append(f"{number(flops_per_byte)} at {precision}")
    if ridges:
        notes.append(
            f"With fewer FLOPs per byte of device memory than {', '.join(ridges)}, memory "
            "bandwidth is the limit rather than matrix products (roofline, Williams et al. 2009)."
        )
    _, device, board = gpu
    title = f"Ceilings of {device}, {board}: {host.name}"
    head = ("ceiling", "at best", "unit", "launches", "shown by")
    return Table(title, head, tuple(rows), tuple(notes), words=True)


def ceilings_data(results: Results) -> dict[str, Any]:
    """Return all ceilings as a JSON object: FLOP/s, bytes per second, and times in seconds."""
    ceilings_by_gpu = gpu_ceilings(results)
    machines = []
    for machine in _machines(results, ceilings_by_gpu):
        cpu: list[dict[str, Any]] = []
        if machine in results.ceilings:
            for ceiling in results.ceilings[machine].measured:
                cpu.append({name: getattr(ceiling, name) for name in _CPU_FIELDS})
        boards = []
        for gpu, ceilings in ceilings_by_gpu.items():
            if gpu[0] == machine:
                boards.append(_gpu_object(gpu, ceilings))
        name = machine[:12]
        if machine in results.hosts:
            name = results.hosts[machine].name
        machines.append({"machine": machine, "machine_name": name, "cpu": cpu, "gpus": boards})
    return {"schema": SCHEMA, "machines": machines}


def _gpu_object(gpu: Gpu, ceilings: GpuCeilings) -> dict[str, Any]:
    _, device, board = gpu
    ridges = {precision: ridge(ceilings, precision) for precision in ceilings[PRODUCTS]}
    return {"device": device, "board": board, **plain(ceilings), "ridge_flops_per_byte": ridges}


REPORT = Report(
    name="ceilings",
    summary="Peak rates: matrix products, bandwidth, launches of operators.",
    examples=("dlbench report ceilings", "dlbench report ceilings --all-runs --json"),
    analyse=lambda source: source.results(),
    page=lambda results, options: Page((), tuple(ceilings_tables(results))),
    data=ceilings_data,
    rows=lambda results: rows_of_tables(ceilings_tables(results)),
    suggestion="the best that the GPU can do",
    applies=lambda cells: any(cell.on_gpu for cell in cells),
    options=frozenset({ALL_RUNS}),
    heading="The best that the devices can do",
    place=80,
)
