"""`dlbench report ceilings`: the best rates of CPUs and GPUs in any launch, and the host's cost of
an operator.

A GPU is a machine's device together with its board's name: another card in the same slot, or
another partition of it, is another GPU. Rates belong to the device, whichever framework measured
them; the cost of an operator belongs to the framework. A framework that computes nothing counts
only if no other measured anything on that GPU.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from dlbench.adapters.libraries import gpus
from dlbench.adapters.protocol import PRECISIONS
from dlbench.hardware_probe import Ceilings
from dlbench.reports.formats.csv import rows_of_tables
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import Page, Table, entries
from dlbench.reports.report import ALL_RUNS, Report
from dlbench.reports.results.flags import product_rate
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.keys import grouped
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
_OF_CPU = ("threads", "gemm_flops_per_second", "bandwidth_bytes_per_second", "doubt")
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


PRODUCTS, TRANSFERS, STARTS, FINISHES = (
    "gemm_flops_per_second",
    "bytes_per_second",
    "operator_start_seconds",
    "operator_finish_seconds",
)
"""Of a framework's own large matrix product, by precision; of copies, by `gpus.TRANSFERS`, read and
written; the host's time to start the smallest operator behind others, and from the start of one on
an idle device until the host knows that it is done, by framework."""
Gpu = tuple[str, str, str]
"""Machine (fingerprint), device, and board as the driver calls it, or else as the framework
does."""
GpuCeilings = dict[str, dict[str, Best]]
"""By kind (above) and name; unmeasured ones are missing."""


def gpu_ceilings(results: Results) -> dict[Gpu, GpuCeilings]:
    """Return the ceilings of each GPU, in the order of machines and devices."""
    on_gpus = [
        each for each in results.records if not each.cell.on_cpu and each.outcome.device is not None
    ]
    of_gpus = grouped(on_gpus, lambda each: (each.machine, each.cell.device, _board(each)))
    machines = [
        *results.hosts,
        *sorted({machine for machine, _, _ in of_gpus} - set(results.hosts)),
    ]
    order = sorted(of_gpus, key=lambda gpu: (machines.index(gpu[0]), by_numbers(gpu[1]), gpu[2]))
    alone = Counter(gpu[:2] for gpu in of_gpus)
    found = {
        gpu: _ceilings(of_gpus[gpu], results, gpu[:2] if alone[gpu[:2]] == 1 else None)
        for gpu in order
    }
    return {gpu: ceilings for gpu, ceilings in found.items() if any(ceilings.values())}


def _ceilings(
    records: list[Record], results: Results, alone: tuple[str, str] | None
) -> GpuCeilings:
    records = [record for record in records if record.outcome.parameter_count] or records
    values: dict[tuple[str, str], list[tuple[float, Record]]] = {}

    def add(kind: str, name: str, value: float | None, record: Record) -> None:
        if value is not None and value > 0:
            values.setdefault((kind, name), []).append((value, record))

    for record in records:
        cell, ceilings = record.cell, record.outcome.device and record.outcome.device.ceilings
        add(
            PRODUCTS,
            cell.precision,
            product_rate(record, results.hosts.get(record.machine)),
            record,
        )
        for name in gpus.TRANSFERS:
            add(TRANSFERS, name, getattr(ceilings, f"{name}_bytes_per_second", None), record)
        for kind in (STARTS, FINISHES):
            add(kind, cell.framework, getattr(ceilings, kind, None), record)
    best = {
        key: _best(min if key[0] in (STARTS, FINISHES) else max, of) for key, of in values.items()
    }
    # Of records left out only machine and device are known: theirs where there was one board alone.
    for (machine, device, precision), rates in results.products.items():
        known = best.get((PRODUCTS, precision), Best(0.0, 0, ""))
        highest = max((rate for _, rate in rates), default=0.0)
        if alone == (machine, device) and highest > known.value:
            best[PRODUCTS, precision] = Best(highest, known.launches, "")
    names = {
        PRODUCTS: [
            *PRECISIONS,
            *sorted({name for kind, name in best if kind == PRODUCTS} - set(PRECISIONS)),
        ],
        TRANSFERS: gpus.TRANSFERS,
        **dict.fromkeys((STARTS, FINISHES), sorted({record.cell.framework for record in records})),
    }
    return {
        kind: {name: best[kind, name] for name in of if (kind, name) in best}
        for kind, of in names.items()
    }


def _best(choose: Callable[..., tuple[float, Record]], values: list[tuple[float, Record]]) -> Best:
    best, record = choose(values, key=lambda pair: pair[0])
    framework, mode = record.cell.framework, record.cell.mode
    return Best(best, len(values), framework if mode in ("", framework) else f"{framework} {mode}")


def ridge(found: GpuCeilings, precision: str) -> float | None:
    """Return the FLOPs per byte above which products, and no longer the memory, limit (Williams et
    al. 2009).
    """
    product, copy = found[PRODUCTS].get(precision), found[TRANSFERS].get(gpus.COPY)
    return product.value / copy.value if product and copy else None


def _board(record: Record) -> str:
    """Return the driver's name for the GPU of a launch, or the framework's where the driver was not
    asked.
    """
    gpu = record.outcome.software.get("gpu")
    name = gpu.get("name") if isinstance(gpu, dict) else None
    if isinstance(name, str) and name:
        return name
    return "" if record.outcome.device is None else record.outcome.device.name


def _machines(results: Results, found: Iterable[Gpu]) -> list[str]:
    return list(
        dict.fromkeys([*results.hosts, *results.ceilings, *(machine for machine, _, _ in found)])
    )


def ceilings_tables(results: Results) -> list[Table]:
    """Return a table for the CPU of each machine and one for each of its GPUs, or a single one with
    advice.
    """
    found = gpu_ceilings(results)
    tables = []
    for machine in _machines(results, found):
        host = results.hosts.get(machine) or Host(machine, machine[:12])
        if machine in results.ceilings:
            tables.append(_of_cpu(host, results.ceilings[machine]))
        tables += [
            _of_gpu(host, gpu, ceilings) for gpu, ceilings in found.items() if gpu[0] == machine
        ]
    return tables or [Table("Ceilings", (), (), (_NONE,), words=True)]


def _of_cpu(host: Host, measured: Ceilings) -> Table:
    rows = tuple(
        entries(str(each.threads), *(number(getattr(each, name) * 1e-9) for name in _OF_CPU[1:3]))
        for each in measured.measured
    )
    doubts = [f"{each.threads} threads: {each.doubt}" for each in measured.measured if each.doubt]
    notes = (
        "Single-precision matrix products by NumPy's BLAS; bytes read and written by a += b.",
        *doubts,
    )
    return Table(f"Ceilings of the CPU: {host.name}", ("threads", "GFLOP/s", "GB/s"), rows, notes)


_ROWS = (
    (PRODUCTS, "matrix product, {}", 1e12, "TFLOP/s"),
    (TRANSFERS, "{}", 1e9, "GB/s"),
    (STARTS, "operator's start, {}", 1e-6, "us"),
    (FINISHES, "operator's start to its end, {}", 1e-6, "us"),
)


def _of_gpu(host: Host, gpu: Gpu, found: GpuCeilings) -> Table:
    rows = [
        entries(
            words.format(TRANSFER_WORDS.get(name, name)),
            number(best.value / scale),
            unit,
            str(best.launches) if best.row else "",
            best.row or "an earlier launch",
        )
        for kind, words, scale, unit in _ROWS
        for name, best in found[kind].items()
    ]
    notes = ["Each is the best of all launches that measured it."]
    if gpus.COPY in found[TRANSFERS]:
        notes.append(
            "A copy on the device counts bytes read and written, as STREAM's does (McCalpin 1995)."
        )
    if found[STARTS] or found[FINISHES]:
        notes.append(
            "Start: the host's time to launch the smallest operator while others are queued. To "
            "its end: from its launch on an idle device until the host knows that it is done."
        )
    ridges = [
        f"{number(at)} at {name}"
        for name in found[PRODUCTS]
        if (at := ridge(found, name)) is not None
    ]
    if ridges:
        notes.append(
            f"With fewer FLOPs per byte of device memory than {', '.join(ridges)}, memory "
            "bandwidth is the limit rather than matrix products (roofline, Williams et al. 2009)."
        )
    head = ("ceiling", "at best", "unit", "launches", "shown by")
    return Table(
        f"Ceilings of {gpu[1]}, {gpu[2]}: {host.name}", head, tuple(rows), tuple(notes), words=True
    )


def ceilings_data(results: Results) -> dict[str, Any]:
    """Return a JSON object with all of it: rates in FLOP/s and bytes per second, times in
    seconds.
    """
    found = gpu_ceilings(results)
    machines = []
    for machine in _machines(results, found):
        measured = results.ceilings[machine].measured if machine in results.ceilings else ()
        gpus_here = [
            {
                "device": gpu[1],
                "board": gpu[2],
                **plain(ceilings),
                "ridge_flops_per_byte": {
                    precision: ridge(ceilings, precision) for precision in ceilings[PRODUCTS]
                },
            }
            for gpu, ceilings in found.items()
            if gpu[0] == machine
        ]
        name = results.hosts[machine].name if machine in results.hosts else machine[:12]
        cpu = [{name: getattr(each, name) for name in _OF_CPU} for each in measured]
        machines.append({"machine": machine, "machine_name": name, "cpu": cpu, "gpus": gpus_here})
    return {"schema": SCHEMA, "machines": machines}


REPORT = Report(
    name="ceilings",
    summary=(
        "Peak rates of CPUs and GPUs: matrix products, bandwidths, and the cost of launching an "
        "operator."
    ),
    examples=("dlbench report ceilings", "dlbench report ceilings --all-runs --json"),
    analyse=lambda source: source.results(),
    page=lambda results, options: Page((), tuple(ceilings_tables(results))),
    data=ceilings_data,
    rows=lambda results: rows_of_tables(ceilings_tables(results)),
    suggestion="the best that the GPU can do",
    applies=lambda cells: any(each.on_gpu for each in cells),
    options=frozenset({ALL_RUNS}),
    heading="The best that the devices can do",
    place=80,
)
