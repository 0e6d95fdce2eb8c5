"""From files of pytest-benchmark to runs with their records, ready for a store.

A benchmark of somebody else becomes a cell too, so that the reports and comparisons of dlbench serve it: its row is
"pytest-benchmark imported", its network is the benchmark's full name, its thread count 0 (nobody asked for any) and its
mini-batch 1; nothing was checked against a reference, and it says so. One file is one launch: it came from one process.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlbench.adapters.protocol import Cell, Outcome, Parity, Protocol, Status
from dlbench.reports.pytest_benchmark.export import FOREIGN_KEY
from dlbench.reports.pytest_benchmark.files import Benchmark, BenchmarkFile, launch_key
from dlbench.reports.pytest_benchmark.untrusted_files import FileError, clean_name, hash_of
from dlbench.reports.storage.record import Record, Run

FRAMEWORK, ADAPTER, MODE, SUITE = "pytest-benchmark", "imported", "imported", "pytest-benchmark"


@dataclass(frozen=True)
class Imported:
    """A run with all its records, ready for a store."""

    run: Run
    records: tuple[Record, ...]
    machine: dict[str, Any] | None


def runs_of(files: Sequence[BenchmarkFile], version: str, one_run: bool = False) -> list[Imported]:
    """Return the runs that these files hold; ``version`` is that of this dlbench.

    A run whose parts stand in several files is put together. The benchmarks of somebody else make one run of each
    file, or with ``one_run`` a single one in which each file, the oldest first, is a launch. Raises FileError.
    """
    found: dict[str, Imported] = {}
    for file in files:
        if file.run is None:
            continue
        imported = Imported(file.run, file.records, file.machine)
        found[file.run.id] = _joined(found[file.run.id], imported, file) if file.run.id in found else imported
    strangers = sorted((file for file in files if file.foreign), key=lambda file: (file.made, file.digest))
    groups = [strangers] if one_run and strangers else [[file] for file in strangers]
    for group in groups:
        imported = _foreign_run(group, version)
        if imported.run.id in found:
            raise FileError(f"{group[0].name} was given twice.")
        found[imported.run.id] = imported
    return list(found.values())


def medians_of(files: Iterable[BenchmarkFile]) -> dict[str, list[float]]:
    """Return the median seconds of each launch by the benchmark's full name, for the benchmarks of somebody else.

    Unlike `runs_of` this does without the raw samples: the median that a file states is enough.
    """
    found: dict[str, list[float]] = {}
    for file in files:
        for benchmark in file.foreign:
            found.setdefault(benchmark.fullname, []).append(benchmark.stats.median)
    return found


def _joined(one: Imported, other: Imported, file: BenchmarkFile) -> Imported:
    """Put two parts of a run together."""
    if replace(one.run, finished=None) != replace(other.run, finished=None):
        raise FileError(f"{file.name}: its run {one.run.id} is another than the run of that name in a file before it.")
    records = {launch_key(record): record for record in one.records}
    for record in other.records:
        if records.setdefault(launch_key(record), record) != record:
            raise FileError(f"{file.name}: a launch of run {one.run.id} differs from the one in a file before it.")
    return Imported(one.run, tuple(records.values()), one.machine or other.machine)


def _foreign_run(files: Sequence[BenchmarkFile], version: str) -> Imported:
    first = files[0]
    for file in files[1:]:
        if (file.fingerprint, file.interpreter) != (first.fingerprint, first.interpreter):
            raise FileError(
                f"{file.name} and {first.name} are of different machines or Pythons, so not launches of one run."
            )
    if len({file.digest for file in files}) < len(files):
        raise FileError(f"{first.name}: one of these files was given twice, and one process is one launch.")
    digest = hash_of("".join(file.digest for file in files)) if len(files) > 1 else first.digest
    run_id = f"{first.made:%Y%m%dT%H%M%S}-{digest[:6]}"
    records = tuple(
        _foreign_record(benchmark, file, launch, run_id, version)
        for launch, file in enumerate(files)
        for benchmark in file.foreign
    )
    run = Run(
        id=run_id,
        suite=SUITE,
        protocol=_protocol(records),
        launches=len(files),
        plan=tuple(dict.fromkeys(record.cell for record in records)),
        machine=first.fingerprint,
        started=first.made,
        version=version,
        finished=files[-1].made,
        seed=0,
    )
    # Without the host's name: no record tells it.
    told = {key: value for key, value in first.machine_info.items() if key != "node"}
    machine = first.machine if first.machine is not None else {FOREIGN_KEY: {"node": "", **told}}
    protocol = run.protocol
    return Imported(run, tuple(replace(record, protocol=protocol) for record in records), machine)


def _foreign_record(benchmark: Benchmark, file: BenchmarkFile, launch: int, run: str, version: str) -> Record:
    data, iterations = benchmark.stats.data, benchmark.stats.iterations
    if data is None:
        raise FileError(
            f"{file.name}: {clean_name(benchmark.fullname)} was saved without its samples. Save them: --benchmark-json "
            "FILE, or --benchmark-save NAME --benchmark-save-data."
        )
    kept = {**benchmark.model_dump(exclude={"stats"}), "version": file.version, "commit_info": file.commit_info}
    samples = [round(seconds * iterations * 1e9) for seconds in data]
    return Record(
        run=run,
        suite=SUITE,
        launch=launch,
        cell=Cell(FRAMEWORK, ADAPTER, MODE, clean_name(benchmark.fullname), "cpu", threads=0, batch_size=1),
        outcome=Outcome(
            Status.OK,
            samples_ns=samples,
            steps_per_sample=iterations,
            parity=Parity("unchecked", "imported: there is no reference", [], None, None, "", 0.0, 0.0, 0.0),
            software={FOREIGN_KEY: kept},
        ),
        machine=file.fingerprint,
        environment=hash_of(file.interpreter)[:12],
        interpreter=file.interpreter,
        protocol=Protocol(),
        started=file.made,
        wall_seconds=sum(samples) * 1e-9,
        version=version,
    )


def _protocol(records: Sequence[Record]) -> Protocol:
    """Return what of the protocol the samples tell; pytest-benchmark keeps no warm-up."""
    counts = [len(record.outcome.samples_ns) for record in records]
    return Protocol(warmup_steps=0, steps=max(counts), minimum_steps=min(counts))
