"""pytest-benchmark's JSON: a run's cells as benchmarks, for its compare command and other viewers.

A benchmark is a cell that gave a number: ``stats.data`` holds the seconds of a step for every timed
sample of every launch, in order, and ``extra_info["dlbench"]`` the evidence, with the raw records.
Cells without a number cannot be benchmarks: their records are in the file's own ``dlbench`` object
together with the run, so that a file read back (`dlbench.reports.pytest_benchmark.imported`) is the
whole run again.
"""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dlbench.adapters.protocol import Cell, Status, to_dict
from dlbench.hardware_probe import Machine
from dlbench.reports.formats.json import finite, json_text, plain
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.hosts import FOREIGN_KEY, read_host
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.naming import slug, work_name
from dlbench.reports.results.record import Record, Run, last_attempts
from dlbench.reports.results.results import Results

KEY = "dlbench"
"""Key of everything that dlbench adds to such a file."""
FILE_SCHEMA = 1
"""Rises whenever a reader of the old form would misread the new one."""
PROCESSES_KEY = "dlbench_processes"
"""Key in a benchmark's ``extra_info``: the processes with the numbers of their samples."""
QUANTITIES_KEY = "dlbench_quantities"
"""Key in the ``extra_info`` of a benchmark of one process: its quantities besides time."""
FORMAT_VERSION = "5.0.0"
"""The version of pytest-benchmark with this form of file."""

_NEVER_MIXED = (Status.IMPLAUSIBLE, Status.PARITY_FAILED)
_FOREIGN = ("group", "name", "fullname", "params", "param", "extra_info", "options")


def counting_records(records: Sequence[Record]) -> list[Record]:
    """Return the records of one cell whose samples make its number, in the order of their launches.

    They are one attempt of each launch, if it ended well. There are none if any launch computed
    something other than the reference, gave an implausible answer, or ended with a loss that is not
    finite: such a number is never mixed in.
    """
    for record in records:
        outcome = record.outcome
        if outcome.status in _NEVER_MIXED or outcome.final_loss_finite is False:
            return []
    timed = []
    for record in last_attempts(records):
        if record.outcome.status is Status.OK and record.outcome.was_timed():
            timed.append(record)
    return sorted(timed, key=lambda record: record.launch)


def samples_of(records: Iterable[Record]) -> list[float]:
    """Return the seconds of one step for every timed sample of these launches, in order."""
    samples: list[float] = []
    for record in records:
        steps = record.outcome.steps_per_sample
        samples += [nanoseconds * 1e-9 / steps for nanoseconds in record.outcome.samples_ns]
    return samples


def iterations_of(records: Iterable[Record]) -> int:
    """Return the number of steps in each sample; 1 if it differs: samples are then of one step."""
    counts = {record.outcome.steps_per_sample for record in records}
    if len(counts) != 1:
        return 1
    return counts.pop()


def launch_medians(records: Sequence[Record]) -> list[float]:
    """Return the median seconds of a step for each of these launches."""
    return [statistics.median(record.outcome.step_seconds()) for record in records]


def failure(records: Sequence[Record]) -> tuple[Status, str]:
    """Return the status of a cell and the reason: `Status.OK` and "", or its worst failure."""
    for status in (*_NEVER_MIXED, Status.CRASHED, Status.OUT_OF_MEMORY, Status.TIMED_OUT):
        failed = [record for record in records if record.outcome.status is status]
        if failed:
            outcome = failed[-1].outcome
            reason = outcome.reason
            if not reason and outcome.parity:
                reason = outcome.parity.reason
            reason = " ".join(reason.split()) or "no reason given"
            if len(records) > 1:
                reason += f" (in {len(failed)} of {len(records)} launches)"
            return status, f"{status.value.replace('_', ' ')}: {reason}"
    if any(record.outcome.final_loss_finite is False for record in records):
        return Status.PARITY_FAILED, "parity failed: the loss after the timed steps is not finite"
    if counting_records(records):
        return Status.OK, ""
    last = records[-1].outcome
    if last.status is Status.OK:
        return Status.CRASHED, "crashed: it gave no sample"
    reason = " ".join(last.reason.split()) or "no reason given"
    return last.status, f"{last.status.value}: {reason}"


def evidence_of(records: Sequence[Record], machine: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return ``extra_info["dlbench"]`` of one cell: the evidence and the raw records.

    ``machine`` is the stored description of the machine; without it some flags are unknown.
    """
    fingerprint = records[-1].machine
    hosts = {fingerprint: read_host(fingerprint, machine)}
    timed = counting_records(records)
    # As in a run with one side: a matrix leaves the baseline of a comparison out.
    without_side = tuple(replace(record, side="", stage="") for record in timed or records)
    cell = next(iter(build_matrix(Results(without_side, hosts)).cells.values()))
    status, reason = failure(records)
    # Indices of the records with the samples, in order. Disturbed attempts were repeated.
    timed_places = [records.index(record) for record in timed]
    parity = None
    if cell.parity is not None:
        parity = to_dict(cell.parity)
    flags = [{"name": flag.kind.name, "detail": flag.sentence} for flag in cell.flags]
    content = {
        "schema": FILE_SCHEMA,
        "cell": to_dict(records[-1].cell),
        "status": status.value,
        "reason": reason,
        "launch_medians": launch_medians(timed),
        "parity": parity,
        "threads_evidence": plain(cell.observed),
        "flags": flags,
        "interpreter": cell.interpreter,
        "records": [record.to_dict() for record in records],
        "timed": timed_places,
    }
    return dict(finite(content))


def header(run: Run, machine: Mapping[str, Any] | None, holes: Sequence[Record]) -> dict[str, Any]:
    """Return the file's own ``dlbench`` object: run, machine, and cells without a number."""
    content = {
        "schema": FILE_SCHEMA,
        "run": run.to_dict(),
        "machine": machine,
        "holes": [record.to_dict() for record in holes],
    }
    return dict(finite(content))


def machine_summary(fingerprint: str, machine: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the properties of a machine that do not vary from run to run.

    pytest-benchmark warns whenever two files' ``machine_info`` differ: free memory and clock rates
    have no place there. The whole probe is in the file's ``dlbench`` object.
    """
    host = read_host(fingerprint, machine)
    return {"fingerprint": fingerprint, "name": host.name, "capacity_cpus": host.capacity_cpus}


def probed(machine: Mapping[str, Any] | None) -> Machine | None:
    """Return the machine of a stored description; None without one, or if of another version."""
    try:
        return Machine.from_dict(dict(machine or {}))
    except ValueError:
        return None


def run_summary(run: Run) -> dict[str, Any]:
    """Return the ``commit_info`` of a run."""
    return {"version": run.version, "run": run.id, "suite": run.suite}


def run_to_pytest_benchmark(
    run: Run, records: Sequence[Record], machine: Mapping[str, Any] | None
) -> str:
    """Return the JSON file of one run; ``machine`` is its machine's stored description."""
    benchmarks = []
    holes: list[Record] = []
    foreign = []
    records_by_side = grouped(records, lambda record: (record.cell, record.side))
    for (cell, side), records_of_side in records_by_side.items():
        timed = counting_records(records_of_side)
        if not timed:
            holes += records_of_side
            continue
        kept = timed[-1].outcome.facts.pytest_benchmark
        if isinstance(kept, dict):
            foreign.append(kept)
            benchmarks.append(_foreign_benchmark(kept, timed))
        else:
            benchmark = _own_benchmark(cell, side, records_of_side, machine)
            benchmark["stats"] = stats(samples_of(timed), iterations_of(timed))
            benchmarks.append(benchmark)
    version = FORMAT_VERSION
    if foreign:
        version = foreign[-1].get("version", FORMAT_VERSION)
    content: dict[str, Any] = {
        "machine_info": _machine_info(run, records, machine),
        "commit_info": _commit_info(run, foreign),
        "benchmarks": benchmarks,
        "datetime": run.started.isoformat(),
        "version": version,
    }
    if len(foreign) < len(benchmarks) or holes or not benchmarks:
        content[KEY] = header(run, machine, holes)
    return json_text(content, indent=4)


def _foreign_benchmark(kept: Mapping[str, Any], timed: Sequence[Record]) -> dict[str, Any]:
    """Return another program's benchmark as its file had it, with the samples of every process.

    If no samples were kept, only the newest process's statistics have a place in the file.
    """
    entry = {key: kept.get(key) for key in _FOREIGN}
    with_samples = [record for record in timed if record.outcome.samples_ns]
    if not with_samples:
        return {**entry, "stats": kept.get("stats")}
    if len(with_samples) > 1:
        processes = []
        for record in with_samples:
            processes.append(
                {
                    "datetime": record.started.isoformat(),
                    "samples": len(record.outcome.samples_ns),
                    "iterations": record.outcome.steps_per_sample,
                }
            )
        entry["extra_info"] = {**(entry["extra_info"] or {}), PROCESSES_KEY: processes}
    return {**entry, "stats": stats(samples_of(with_samples), iterations_of(with_samples))}


def processes_in_one_list(records: Sequence[Record]) -> str:
    """Return a sentence on processes that other programs cannot distinguish; empty without any."""
    processes: Counter[Cell] = Counter()
    has_samples = False
    for record in last_attempts(records):
        if record.outcome.facts.pytest_benchmark is not None:
            processes[record.cell] += 1
            has_samples = has_samples or bool(record.outcome.samples_ns)
    most = max(processes.values(), default=0)
    if most < 2:
        return ""
    kept = "dlbench keeps them apart when it reads the file"
    if not has_samples:
        kept = "their samples were not kept, so the file has the newest one's statistics only"
    return (
        f"{most} processes of a benchmark become one entry of the file, as for a single process; "
        f"{kept}."
    )


def _own_benchmark(
    cell: Cell, side: str, records: Sequence[Record], machine: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return a side of a cell as a benchmark, without its statistics."""
    parameter = f"{slug(cell)}-{side}" if side else slug(cell)
    name = f"dlbench[{parameter}]"
    return {
        "group": work_name(cell),
        "name": name,
        "fullname": f"dlbench::{name}",
        "params": {"dlbench_cell": parameter},
        "param": parameter,
        "extra_info": {KEY: evidence_of(records, machine)},
        "options": {"timer": "replay"},
    }


def stats(data: Sequence[float], iterations: int = 1) -> dict[str, Any]:
    """Return pytest-benchmark's own ``stats`` of these samples (seconds, at least one).

    Raises ReportError where it is not installed.
    """
    try:
        from pytest_benchmark.stats import Stats
    except ImportError as error:
        raise ReportError(
            "This form of file needs pytest-benchmark. Install it: pip install pytest-benchmark."
        ) from error
    statistics_of_data: Any = Stats()  # type: ignore[no-untyped-call]
    statistics_of_data.data = list(data)
    return {**statistics_of_data.as_dict(), "data": list(data), "iterations": iterations}


def _machine_info(
    run: Run, records: Sequence[Record], machine: Mapping[str, Any] | None
) -> dict[str, Any]:
    if machine is not None and isinstance(machine.get(FOREIGN_KEY), dict):
        return dict(machine[FOREIGN_KEY])
    interpreters = {record.interpreter for record in records if record.interpreter}
    interpreter = interpreters.pop() if len(interpreters) == 1 else ""
    implementation, _, version = interpreter.partition(" ")
    info: dict[str, Any] = {
        "node": "",  # no record holds a host's name
        "processor": "",
        "machine": "",
        "python_implementation": implementation,
        "python_implementation_version": version,
        "python_version": version,
        "release": "",
        "system": "",
        "cpu": {},
        KEY: machine_summary(run.machine, machine),
    }
    probed_machine = probed(machine)
    if probed_machine is not None:
        cpu = probed_machine.cpu
        info["machine"] = cpu.architecture
        info["release"] = probed_machine.operating_system.kernel
        info["system"] = probed_machine.operating_system.system
        info["cpu"] = {
            "arch_string_raw": cpu.architecture,
            "brand_raw": cpu.model,
            "count": cpu.logical_cpus,
            "vendor_id_raw": cpu.vendor,
        }
    return info


def _commit_info(run: Run, foreign: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the commit of the first foreign benchmark that has one, or an unknown one."""
    for kept in foreign:
        if isinstance(kept.get("commit_info"), dict):
            return dict(kept["commit_info"])
    return {
        "id": "unversioned",
        "time": None,
        "author_time": None,
        "dirty": False,
        "project": "dlbench",
        "branch": "(unknown)",
        KEY: run_summary(run),
    }
