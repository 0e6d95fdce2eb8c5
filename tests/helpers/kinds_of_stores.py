"""Stores of every kind that reports meet, each built once, whichever of several test processes is
the first.

`KINDS` has the functions that build them, by name. Imports, runs of the null framework and a user's
own steps are made by the command, what takes a framework or a GPU was measured once, and the rest
are records of the factory.
"""

import contextlib
import fcntl
import hashlib
import io
import json
import lzma
import os
import sqlite3
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import factory_of_records as make
import signal_handlers
from command_server import exit_code
from processes import run_command, suite_of_null

from dlbench.adapters.protocol import DeviceCeilings, DeviceEvidence, Status
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.record import Record, Run
from dlbench.reports.results.storage import delivery
from dlbench.reports.results.storage.store import Store
from dlbench.suites import cli

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "tests" / "goldens" / "stores"
EXAMPLES = ROOT / "reports" / "examples"
TERMINAL = {"COLUMNS": "80", "LINES": "40", "NO_COLOR": "1", "TERM": "dumb", "TZ": "UTC"}


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


def call(folder: Path, *words: str) -> Said:
    """Run the command in this process, in a folder and as in a terminal of 80 columns."""
    before = Path.cwd(), sys.argv, dict(os.environ)
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    os.chdir(folder)
    os.environ.pop("DLBENCH_STORE", None)
    os.environ.update(TERMINAL)
    sys.argv = ["dlbench", *words]
    try:
        with (
            signal_handlers.restored(),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            cli.main()
    except SystemExit as end:
        code = exit_code(end)
    finally:
        os.chdir(before[0])
        sys.argv = before[1]
        os.environ.clear()
        os.environ.update(before[2])
    out.flush()
    return Said(code, out.buffer.getvalue().decode(errors="replace"), err.getvalue())


# Files of pytest-benchmark.


def machine_info(**changes: Any) -> dict[str, Any]:
    """Return the description of a machine as pytest-benchmark writes it."""
    description = {
        "node": "somebodys-laptop",
        "processor": "",
        "machine": "x86_64",
        "python_compiler": "GCC 12.2.0",
        "python_implementation": "CPython",
        "python_implementation_version": "3.12.1",
        "python_version": "3.12.1",
        "python_build": ["main", "May  9 2026 07:35:25"],
        "release": "6.1.0",
        "system": "Linux",
        "cpu": {
            "arch": "X86_64",
            "bits": 64,
            "count": 8,
            "brand_raw": "A CPU",
            "hz_actual": [3_000_000_000, 0],
        },
    }
    return {**description, **changes}


def benchmark(
    name: str, data: Sequence[float], samples: bool = True, **changes: Any
) -> dict[str, Any]:
    """Return one benchmark as pytest-benchmark writes it, with or without its samples."""
    ordered = sorted(data)
    middle = ordered[len(ordered) // 2]
    quarter = len(ordered) // 4
    stats: dict[str, Any] = {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": sum(data) / len(data),
        "stddev": (ordered[-1] - ordered[0]) / 4,
        "rounds": len(data),
        "median": middle,
        "iqr": ordered[-1 - quarter] - ordered[quarter],
        "q1": ordered[quarter],
        "q3": ordered[-1 - quarter],
        "iqr_outliers": 0,
        "stddev_outliers": 1,
        "outliers": "1;0",
        "ld15iqr": ordered[0],
        "hd15iqr": ordered[-1],
        "ops": len(data) / sum(data),
        "total": sum(data),
        "iterations": 1,
    }
    if samples:
        stats["data"] = list(data)
    bare, _, parameters = name.partition("[")
    content = {
        "group": None,
        "name": name,
        "fullname": f"tests/test_mine.py::{name}",
        "params": {"n": parameters.rstrip("]")} if parameters else None,
        "param": parameters.rstrip("]") or None,
        "extra_info": {"function": bare},
        "options": {
            "disable_gc": False,
            "timer": "perf_counter",
            "min_rounds": 5,
            "max_time": 1.0,
            "warmup": False,
        },
        "stats": stats,
    }
    return {**content, **changes}


BENCHMARKS = {
    "test_parse": 2e-3,
    "test_sum[10]": 3.1e-6,
    "test_sum[1000]": 2.9e-4,
    "test_sum[1000-float32]": 1.7e-4,
    "test_render[a,b]": 0.04,
}
"""Seconds of the benchmarks of `session`."""


def session(
    night: int,
    samples: bool = True,
    factor: float = 1.0,
    commit: str = "",
    known_machine: bool = True,
) -> dict[str, Any]:
    """Return the file of one session of somebody's benchmarks, whose times are a factor longer than
    usual."""
    spread = (1.0, 1.02, 0.99, 1.05, 1.01 + 0.001 * night, 1.3, 0.985)
    benchmarks = []
    for name, seconds in BENCHMARKS.items():
        times = [seconds * factor * factor_of_round for factor_of_round in spread]
        benchmarks.append(benchmark(name, times, samples))
    when = datetime(2026, 3, 1, 12) + timedelta(days=night)
    revision = hashlib.sha1((commit or when.isoformat()).encode()).hexdigest()
    return {
        "machine_info": machine_info() if known_machine else {},
        "commit_info": {"id": revision, "time": when.isoformat(), "dirty": False, "branch": "main"},
        "benchmarks": benchmarks,
        "datetime": when.isoformat(),
        "version": "5.2.3",
    }


def _import(folder: Path, contents: Iterable[dict[str, Any]], *words: str) -> Path:
    """Import these files by the command, and return the store."""
    names = []
    for place, content in enumerate(contents):
        names.append(f"{place:04d}_session.json")
        (folder / names[-1]).write_text(json.dumps(content), encoding="utf-8")
    path = folder / "imported.sqlite"
    done = call(folder, "import", *words, *names, "--store", str(path))
    assert done.code == 0, done.err
    return path


def imports(folder: Path) -> Path:
    """Sessions of parametrised benchmarks, each file a run."""
    return _import(folder, [session(night, factor=1 + 0.02 * night) for night in range(4)])


def imports_of_one_run(folder: Path) -> Path:
    """Three processes of one session, and another session of one process."""
    path = _import(folder, [session(night, commit="one") for night in range(3)], "--one-run")
    (folder / "other").mkdir()
    with (
        Store.open(path) as store,
        Store.open(_import(folder / "other", [session(9, factor=1.5)])) as second_store,
    ):
        delivery.copy(second_store, store)
    return path


def imports_without_samples(folder: Path) -> Path:
    """Sessions saved by ``--benchmark-save``, which keeps statistics alone."""
    return _import(folder, [session(night, samples=False) for night in range(3)])


def imports_of_unknown_machines(folder: Path) -> Path:
    """Sessions whose files do not say where they were measured."""
    return _import(
        folder, [session(night, factor=1 + 0.5 * night, known_machine=False) for night in range(2)]
    )


def import_of_one_benchmark(folder: Path) -> Path:
    """One benchmark of one round."""
    content = session(0)
    content["benchmarks"] = [benchmark("test_alone", [0.5])]
    return _import(folder, [content])


# Records of the factory.


def store_of(path: Path, records: Iterable[Record], *runs: Run) -> Path:
    """Write records, and the runs that they belong to unless these are given; every machine is one
    of two cores."""
    all_records = list(records)
    runs_by_id = {run.id: run for run in runs}
    with Store.open(path) as store:
        for machine in sorted({record.machine for record in all_records}):
            store.add_machine(machine, make.MACHINE_DICT)
        of_run: dict[str, list[Record]] = {run.id: [] for run in runs}
        for record in all_records:
            of_run.setdefault(record.run, []).append(record)
        for name, its_records in of_run.items():
            if name not in runs_by_id:
                cells = tuple(dict.fromkeys(record.cell for record in its_records))
                first = its_records[0]
                end = its_records[-1].started + timedelta(minutes=1)
                runs_by_id[name] = make.run(
                    id=name,
                    plan=cells,
                    machine=first.machine,
                    started=first.started,
                    finished=end,
                    suite=first.suite,
                )
            store.append_runs([(runs_by_id[name], its_records)])
    return path


HOLES = {
    Status.CRASHED: "signal 11 during timed",
    Status.OUT_OF_MEMORY: "killed by the kernel: out of memory",
    Status.TIMED_OUT: "ended after 60 s during timed",
    Status.UNSUPPORTED: "this framework has no such layer",
    Status.SKIPPED: "the environment is not built",
}


def failures(folder: Path) -> Path:
    """No number at all: each way to fail is a framework of its own."""
    records = [
        make.hole(status, reason, framework=f"f-{status.value}", threads=threads, batch_size=batch)
        for status, reason in HOLES.items()
        for threads in (1, 2)
        for batch in (16, 64)
    ]
    wrong = make.outcome(
        status=Status.PARITY_FAILED, parity=make.parity("disagrees", "update error 0.4")
    )
    records.append(make.record(framework="f-wrong", result=wrong))
    false = make.outcome(
        status=Status.IMPLAUSIBLE, reason="4 s of samples in 1 s of the host's clock"
    )
    records.append(make.record(framework="f-false", result=false))
    infinite = make.outcome(final_loss=None, final_loss_finite=False)
    records.append(make.record(framework="f-infinite", result=infinite))
    return store_of(folder / "failures.sqlite", records)


def one_launch(folder: Path) -> Path:
    """One launch of one cell."""
    return store_of(folder / "one.sqlite", [make.record([0.5, 0.51, 0.49, 0.5, 0.52])])


def one_step(folder: Path) -> Path:
    """One timed step."""
    bare = Outcome(Status.OK, samples_ns=[500_000_000])
    return store_of(folder / "step.sqlite", [make.record(result=bare)])


def no_time(folder: Path) -> Path:
    """Steps that the clock cannot see, beside steps that last for years."""
    records = [
        make.record(
            [seconds] * 3,
            framework=name,
            launch=launch,
            result=make.outcome([seconds] * 3, threads=None),
        )
        for name, seconds in (("nothing", 0.0), ("brief", 1e-9), ("years", 3e8))
        for launch in range(3)
    ]
    return store_of(folder / "no-time.sqlite", records)


def older(folder: Path) -> Path:
    """Records of an older day, which lack whatever an outcome may lack."""
    path = _kept(folder, "cpu", network=("lstm32",))
    newer = (
        "outside",
        "evidence_steps",
        "steady",
        "profile",
        "phases",
        "cpus",
        "timed_between",
        "contention",
    )
    with contextlib.closing(sqlite3.connect(path)) as database:
        for row, text in database.execute("SELECT id, content FROM records").fetchall():
            content = json.loads(text)
            for name in (
                *newer,
                "gemm_flops_per_second",
                "peak_memory_bytes",
                "threads",
                "warmup_ns",
            ):
                content["outcome"].pop(name, None)
            content.pop("quota_cpus", None)
            database.execute(
                "UPDATE records SET content = ? WHERE id = ?", (json.dumps(content), row)
            )
        database.commit()
    return path


def _telemetry(**columns: Any) -> dict[str, Any]:
    """Return half a minute at 5 Hz of a GPU that is busy; the seconds from 10 to 20 are timed."""
    at = [round(0.2 * turn, 4) for turn in range(151)]
    busy = {
        "joules": [300.0 * moment for moment in at],
        "watts": 300.0,
        "sm_mhz": 1980,
        "memory_mhz": 2619,
        "temperature": [40 + moment for moment in at],
        "reasons": 0,
        "utilisation": 99,
        "memory_utilisation": 50,
        "used_bytes": 20 * 10**9,
    }
    return {
        "schema": 1,
        "origin": 1000.0,
        "gpu": {"uuid": "GPU-1", "name": "NVIDIA H100", "power_limit_watts": 700.0, "part": False},
        "samples": {"at": at, **busy, **columns},
        "slow_samples": {"at": [0.0, 10.5, 15.5, 30.0], "sent": [None, 1000, 3000, None]},
        "processes": [{"whose": "own", "first": 1.0, "last": 29.0, "bytes": 10**9}],
        "notes": [],
    }


def gpu(folder: Path) -> Path:
    """Launches on a GPU with telemetry, on two beside one, and what was measured on one."""
    records = []
    for framework, step in (("torch", 0.1), ("jax", 0.12)):
        for size, workers in ((16, 1), (64, 1), (64, 2)):
            for launch in range(3):
                seconds = step * size / 64 / workers * (1 + 0.01 * launch)
                result = make.outcome([seconds] * 50)
                device = DeviceEvidence(
                    name="NVIDIA H100",
                    event_ns=list(result.samples_ns),
                    busy_seconds=0.95 * seconds,
                    launches=120.0,
                    peak_memory_bytes=5 * 10**9,
                    ceilings=DeviceCeilings(2e12, 5e10, 2e10, 5e10, 2e10, 5e-6, 1e-5),
                )
                result = result._replace(device=device, timed_between=[1010.0, 1020.0])
                record = make.record(
                    result=result, device="cuda:0", launch=launch, batch_size=size, world_size=workers,
                    framework=framework, minutes=launch,
                )  # fmt: skip
                records.append(replace(record, telemetry=_telemetry()))
    records.append(
        make.hole(Status.OUT_OF_MEMORY, "CUDA out of memory", device="cuda:0", batch_size=4096)
    )
    return _joined(
        store_of(folder / "made.sqlite", records), _kept(folder, "gpu", network=("alexnet",))
    )


def axes_of_places(folder: Path) -> Path:
    """Several workers, instances, quotas and loaders, affinities, precisions, tunings and
    storages."""
    ways: list[dict[str, Any]] = [
        {},
        {"world_size": 2},
        {"world_size": 2, "sync": "local:4"},
        {"world_size": 2, "sync": "async"},
        {"instances": 2},
        {"cpu_quota": 0.5},
        {"cpu_quota": 1.5, "threads": 0},
        {"affinity": "bound"},
        {"tuning": "installed"},
        {"tuning": "installed+onednn"},
        {"precision": "bfloat16"},
        {"placement": "fed"},
        {"placement": "prefetched"},
        {"placement": "loader", "loader_workers": 0},
        {"placement": "loader", "loader_workers": 2},
        {"placement": "loader", "loader_workers": 2, "storage": "disk"},
        {"specification": "0123456789abcdef"},
        {"network": "lstm32", "batch_size": 128},
        {"task": "inference"},
        {"task": "inference", "batch_size": 1},
    ]
    records = [
        record
        for place, way in enumerate(ways)
        for record in make.launches(0.5 + 0.01 * place, **{"threads": 2, **way})
    ]
    path = store_of(folder / "made.sqlite", records)
    path = _joined(path, _kept(folder, "workers"))
    path = _joined(path, _kept(folder, "quota", framework=("torch", "jax")))
    path = _joined(path, _kept(folder, "2026-11-26-feeding", framework=("torch",)))
    return _joined(path, _kept(folder, "2026-11-26-training-without-waiting", network=("mlp",)))


# By the command.


def null(folder: Path) -> Path:
    """Two runs of the null framework, which computes nothing."""
    (folder / "mine.toml").write_text(
        suite_of_null("mine", 0.002, threads=[1, 2], protocol={"seconds": 0.01})
    )
    quick = ("--no-ceilings", "--no-wait-for-quiet", "--store", "null.sqlite")
    for _ in range(2):
        done = run_command(
            folder, "run", "mine.toml", *quick, "--launches", "2", "--batch-sizes", "8"
        )
        assert done.returncode == 0, done.stderr
    return folder / "null.sqlite"


STEP = """
def prepare(cell):
    state = {{"loss": 1.0}}

    def step():
        sum(range({work}))
        state["loss"] *= 0.5

    return step, lambda: state["loss"]
"""


def own_steps(folder: Path) -> Path:
    """Two files of a user's own that have nothing to do with one another, and one without a
    loss."""
    (folder / "mine.toml").write_text(suite_of_null("mine", 0.001, protocol={"seconds": 0.01}))
    (folder / "parse_logs.py").write_text(STEP.format(work=20_000))
    (folder / "train_net.py").write_text(STEP.format(work=90_000))
    (folder / "no_loss.py").write_text("def prepare(cell):\n    return lambda: sum(range(1000))\n")
    steps = ("--step", "parse_logs.py", "--step", "train_net.py", "--step", "no_loss.py")
    options = ("--no-ceilings", "--no-wait-for-quiet", "--launches", "2", "--store", "own.sqlite")
    done = run_command(folder, "run", "mine.toml", *options, *steps)
    assert done.returncode == 0, done.stderr
    return folder / "own.sqlite"


# Measured once.


def _kept(
    folder: Path, name: str, runs: int | None = None, **values_by_axis: Sequence[Any]
) -> Path:
    """Write a kept store, or an example's, to a folder, with the launches alone whose cells have
    one of these values.

    Names of axes are its keywords: ``framework=("torch", "jax")``. Of many runs so many are taken,
    the oldest.
    """
    packed = KEPT / f"{name}.sqlite.xz"
    if not packed.exists():
        packed = EXAMPLES / name / "store.sqlite.xz"
    path = folder / f"{name}.sqlite"
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    with Store.open(path):
        pass
    with contextlib.closing(sqlite3.connect(path)) as database:
        for row, text in database.execute("SELECT id, content FROM records").fetchall():
            cell = json.loads(text)["cell"]
            if not all(cell[axis] in values for axis, values in values_by_axis.items()):
                database.execute("DELETE FROM records WHERE id = ?", (row,))
        if runs is not None:
            oldest = "(SELECT id FROM runs ORDER BY started LIMIT ?)"
            database.execute(f"DELETE FROM records WHERE run NOT IN {oldest}", (runs,))
            database.execute(f"DELETE FROM runs WHERE id NOT IN {oldest}", (runs,))
        database.commit()
        # One file, which a copy takes whole.
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def kept(name: str, **values_by_axis: Sequence[Any]) -> Callable[[Path], Path]:
    """Return the function that builds a store of these launches of a kept one."""
    return lambda folder: _kept(folder, name, **values_by_axis)


def _joined(path: Path, added: Path) -> Path:
    """Copy another store into one."""
    with Store.open(path) as target, Store.open(added, create=False) as source:
        delivery.copy(source, target)
    return path


def releases(folder: Path) -> Path:
    """Releases of one framework, and a bisection."""
    measured = _kept(folder, "2026-11-26-releases-of-mxnet", network=("fcn5",))
    (folder / "bisection").mkdir()
    bisected = _kept(folder / "bisection", "2026-11-26-releases-of-mxnet", framework=("1.6.0",))
    return _joined(measured, bisected)


def gates(folder: Path) -> Path:
    """Gates and comparisons, and three nights of gates."""
    return _joined(
        _kept(folder, "gates", threads=(2,)), _kept(folder, "gated-nights", 3, threads=(1,))
    )


def unknown_batches(folder: Path) -> Path:
    """Cells whose mini-batch size nobody knows: several threads, frameworks, machines, nights and
    sides, and holes."""
    unknown: dict[str, Any] = {
        "network": "own",
        "adapter": "own_step",
        "mode": "file",
        "batch_size": None,
    }
    records = []
    for night in range(12):
        started = {"minutes": 1440.0 * night, "run": f"night-{night:02d}"}
        for name, factor in (("train_net", 1.0), ("parse_logs", 3.0)):
            for threads in (1, 2, 4):
                seconds = 0.01 * factor / threads**0.7 * (1.0 + 0.3 * (night > 6))
                records_of_cell = make.launches(
                    seconds, framework=name, threads=threads, **unknown, **started
                )
                records += make.changed(records_of_cell, parameter_count=None)
    last = {"minutes": 1440.0 * 12, **unknown}
    records += make.launches(0.02, run="elsewhere", machine="m-two", framework="train_net", **last)
    records += make.launches(0.05, run="gpu", device="cuda:0", framework="train_net", **last)
    records += make.launches(0.05, run="known", framework="train_net", **{**last, "batch_size": 8})
    ways = {"instances": 2}, {"cpu_quota": 0.5}, {"precision": "bfloat16"}, {"affinity": "bound"}
    for way in (*ways, {"placement": "fed"}, {"placement": "loader", "loader_workers": 2}):
        records += make.launches(
            0.03, run="ways", framework="train_net", threads=2, **{**last, **way}
        )
    for status, reason in HOLES.items():
        records.append(
            make.hole(status, reason, run="holes", framework="train_net", world_size=2, **last)
        )
        records.append(
            make.hole(status, reason, run="holes", framework=f"f-{status.value}", **last)
        )
    sides = []
    for side, factor in (("baseline", 1.0), ("candidate", 1.2)):
        seconds = [0.01 * factor * (1 + 0.01 * launch) for launch in range(8)]
        records_of_cell = make.launches(seconds, run="gate", framework="train_net", **last)
        sides += [replace(record, side=side, stage="gate") for record in records_of_cell]
    gate = make.run(
        id="gate", purpose="gate", sides={"baseline": (
            "the old one"
        ), "candidate": "the new one"}, launches=8,
        plan=(sides[0].cell,), started=sides[0].started, finished=sides[0].started + timedelta(hours=1),
    )  # fmt: skip
    return store_of(folder / "unknown.sqlite", [*records, *sides], gate)


def two_machines(folder: Path) -> Path:
    """Two machines with the same cells, and a third that only failed."""
    records = []
    for machine, factor in (("m-one", 1.0), ("m-two", 1.7)):
        for threads in (1, 2, 4):
            for size in (16, 64):
                seconds = factor * size / 64 / threads**0.8
                records += make.launches(
                    seconds, machine=machine, threads=threads, batch_size=size, run=machine
                )
                records += make.launches(
                    1.2 * seconds,
                    machine=machine,
                    threads=threads,
                    batch_size=size,
                    run=machine,
                    framework="jax",
                )
    records.append(make.hole(Status.CRASHED, "signal 4", machine="m-three", run="m-three"))
    return store_of(folder / "machines.sqlite", records)


def empty(folder: Path) -> Path:
    """No run."""
    with Store.open(folder / "empty.sqlite"):
        pass
    return folder / "empty.sqlite"


def begun(folder: Path) -> Path:
    """A run that ended before its first launch."""
    return store_of(folder / "begun.sqlite", [], make.run())


def interrupted(folder: Path) -> Path:
    """A run that ended after some of its launches, and one before its first."""
    records = make.launches(0.5)[:1]
    runs = (make.run(), make.run(id="run-2", started=make.START + timedelta(hours=3)))
    return store_of(folder / "interrupted.sqlite", records, *runs)


def everything(folder: Path) -> Path:
    """All other kinds in one store."""
    path = folder / "everything.sqlite"
    with Store.open(path) as target:
        for name in KINDS:
            if name == "everything":
                continue
            with Store.open(built(name), create=False) as source:
                delivery.copy(source, target)
    return path


KINDS: dict[str, Callable[[Path], Path]] = {
    "imports": imports,
    "imports of one run": imports_of_one_run,
    "imports without samples": imports_without_samples,
    "imports of unknown machines": imports_of_unknown_machines,
    "import of one benchmark": import_of_one_benchmark,
    "null": null,
    "failures": failures,
    "one launch": one_launch,
    "one step": one_step,
    "no time": no_time,
    "two machines": two_machines,
    "unknown mini-batches": unknown_batches,
    "gpu": gpu,
    "h100": kept("2026-11-26-one-h100", network=("fcn5", "lstm32")),
    "own steps": own_steps,
    "older": older,
    "faults": kept("faults"),
    "launches": kept("launches"),
    "axes of places": axes_of_places,
    "releases and a bisection": releases,
    "a search": kept("search"),
    "gates": gates,
    "nights": kept("nights", threads=(1,), network=("lstm32",)),
    "tuning": kept("tuning", network=("lstm32",)),
    "a fleet": kept("2026-11-23-two-nodes-of-a-cluster", framework=("null",)),
    "recurrent cells and a text": kept(
        "2026-11-23-recurrent-cells-and-a-text", framework=("torch", "jax")
    ),
    "sampling": kept("2026-11-26-sampling-machines", framework=("torch", "jax")),
    "spiking": kept("2026-11-26-spiking-networks", framework=("torch", "jax")),
    "empty": empty,
    "begun": begun,
    "interrupted": interrupted,
    "everything": everything,
}
"""The function that builds a store of each kind in an empty folder, by the kind's name."""

IMPORTED = (
    "imports",
    "imports of one run",
    "imports without samples",
    "imports of unknown machines",
    "import of one benchmark",
)
"""Kinds that hold nothing but imported benchmarks."""

_built: dict[str, Path] = {}
_home: list[Path] = []


def put_into(folder: Path) -> None:
    """Name the folder in which stores are built, one for all processes of a session."""
    _home[:] = [folder]
    _built.clear()


def built(kind: str) -> Path:
    """Return a store of this kind, built when it is first asked for."""
    if kind not in _built:
        folder = _home[0] / kind.replace(" ", "-")
        folder.mkdir(parents=True, exist_ok=True)
        finished = folder / "finished.txt"
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not finished.exists():
                finished.write_text(str(KINDS[kind](folder)))
        _built[kind] = Path(finished.read_text())
    return _built[kind]
