"""The ceilings of machines and of their GPUs, as tables for any exporter and as JSON for scripts."""

from collections.abc import Iterable
from typing import Any

from dlbench.adapters.libraries import gpus
from dlbench.hardware_probe import Ceilings
from dlbench.reports.ceilings.gpu_ceilings import Best, GpuCeilings, gpu_ceilings
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import Entry, Table, entries, number
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.results import Results

SCHEMA = "dlbench-ceilings-1"
TRANSFER_WORDS = {
    gpus.COPY: "copy on the device",
    gpus.TO_DEVICE_PINNED: "host to device, pinned",
    gpus.TO_DEVICE_PAGEABLE: "host to device, pageable",
    gpus.FROM_DEVICE_PINNED: "device to host, pinned",
    gpus.FROM_DEVICE_PAGEABLE: "device to host, pageable",
}
_OF_A_CPU = ("threads", "gemm_flops_per_second", "bandwidth_bytes_per_second", "doubt")
_NONE = (
    "Nothing was measured yet: `dlbench run` measures the CPU's ceilings before its launches (unless --no-ceilings), "
    "and a GPU's after the timed steps of each launch on it."
)


def ceilings_tables(results: Results) -> list[Table]:
    """Return a table for the CPU of each machine and one for each of its GPUs, or a single one that says what to do."""
    found = gpu_ceilings(results)
    tables = []
    for machine in _machines(results, found):
        host = results.hosts.get(machine) or Host(machine, machine[:12])
        if machine in results.ceilings:
            tables.append(_of_cpu(host, results.ceilings[machine]))
        tables += [_of_gpu(host, each) for each in found if each.machine == machine]
    return tables or [Table("Ceilings", (), (), (_NONE,), words=True)]


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
                "cpu": [{name: getattr(each, name) for name in _OF_A_CPU} for each in measured],
                "gpus": [_gpu_content(each) for each in found if each.machine == machine],
            }
        )
    return {"schema": SCHEMA, "machines": machines}


def _machines(results: Results, found: Iterable[GpuCeilings]) -> list[str]:
    return list(dict.fromkeys([*results.hosts, *results.ceilings, *(each.machine for each in found)]))


def _gpu_content(found: GpuCeilings) -> dict[str, Any]:
    return {
        "device": found.device,
        "board": found.board,
        "gemm_flops_per_second": plain(found.products),
        "bytes_per_second": plain(found.transfers),
        "operator_start_seconds": plain(found.starts),
        "operator_finish_seconds": plain(found.finishes),
        "ridge_flops_per_byte": {precision: found.ridge(precision) for precision in found.products},
    }


def _of_cpu(host: Host, measured: Ceilings) -> Table:
    rows = tuple(
        entries(str(each.threads), *(number(getattr(each, name) * 1e-9) for name in _OF_A_CPU[1:3]))
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
