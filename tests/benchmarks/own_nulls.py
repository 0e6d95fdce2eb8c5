"""Gates of identical code on this machine, one after another for hours: how often do they call it
slower?

    .venv/bin/python tests/benchmarks/own_nulls.py --store /tmp/nulls.sqlite --for 40m
    .venv/bin/python tests/benchmarks/own_nulls.py --store /tmp/nulls.sqlite --for 8h --csv tests/data/own_nulls.csv.gz
    .venv/bin/python tests/benchmarks/own_nulls.py --csv tests/data/own_nulls.csv.gz      the table alone

Each cell of a gate is a comparison that shares no launch with another. Rounds are whole `dlbench
gate` commands and take turns: identical code; identical code beside neighbours (bursts of computing
or of copying memory by processes of this script); and two builds of one source: two copies of a
framework's environment in folders whose names differ in length. With `--kinds busy,crowded` the
neighbours do not rest: one computes or copies all the time, or as many as there are CPUs. Networks
are small, so that a launch takes about a second. Interrupted (Ctrl-C, kill), the same command
resumes the round: a cell that looks slower takes longer, so leaving unfinished ones out would hide
alarms. --csv adds the comparisons of the store to a file, one line each, and prints the table of
that file.
"""

import contextlib
import csv
import gzip
import io
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, NamedTuple

import psutil
import typer
from corpus import Rate
from rich.console import Console
from rich.table import Table
from scipy import stats

from dlbench.adapters.protocol import Cell
from dlbench.reports.results.comparison import compare_sides, spreads_of_gate
from dlbench.reports.results.hosts import read_host
from dlbench.reports.results.record import HISTORY_PAIRS, Record, Run
from dlbench.reports.results.storage.store import Store
from dlbench.reports.results.verdict import Verdict
from dlbench.suites.environments.environment import locate
from dlbench.suites.errors import UsageError
from dlbench.suites.planning import values
from dlbench.suites.planning.framework import find
from dlbench.suites.run.schedules import gate_rule

KINDS = ("identical", "neighbours", "builds")
"""The kinds of rounds, in turn; `busy` and `crowded` on request."""
NEIGHBOURS = {"neighbours": (1, 4.0), "busy": (1, 0.0), "crowded": (psutil.cpu_count() or 1, 0.0)}
"""The processes beside a round of this kind, and the seconds that they rest after two of work."""
FINISHED = (0, 1, 5, 6)
"""Exit codes of a gate that reached a verdict."""
SUITE = """name = "nulls-{kind}"
summary = "identical code, small networks"
frameworks = {frameworks}
threads = "1"

[[grid]]
name = "small-h{{hidden}}"
family = "feedforward"
inputs = 512
hidden = {widths}
outputs = 64
activation = "sigmoid"
batch_size = 32

[protocol]
warmup_steps = 3
steps = 10
minimum_steps = 5
sample_seconds = 0.01
seconds = 0.3
"""
BURST = """
import os, sys, time
import numpy as np
memory = np.ones(32_000_000) if sys.argv[1] == "memory" else None
parent = os.getppid()
while os.getppid() == parent:  # else this script was killed, and its neighbour must not stay
    end = time.monotonic() + 2
    while time.monotonic() < end:
        memory.copy() if memory is not None else sum(range(100_000))
    time.sleep(float(sys.argv[2]))
"""


class Null(NamedTuple):
    """One comparison of identical code, as a line of the CSV file."""

    kind: str
    run: str
    cell: str
    machine: str
    started: str
    seconds: float
    """Its share of the round's time."""
    verdict: str
    lost: int
    """Pairs left out because others disturbed them, or incomplete."""
    pairs: str
    """Logarithms of the ratios candidate / baseline, in order."""

    @property
    def logs(self) -> list[float]:
        """The logarithms."""
        return [float(word) for word in self.pairs.split()]


def nulls_of(store: Store) -> tuple[list[Null], int]:
    """Return the finished comparisons of a store, and the number of those that are not."""
    nulls, unfinished = [], 0
    for run in store.runs():
        records = list(store.records(run=run.id))
        if not run.suite.startswith("nulls-") or not records:
            continue
        host = read_host(run.machine, store.machine(run.machine))
        of_cell: dict[Cell, list[Record]] = {}
        for record in records:
            of_cell.setdefault(record.cell, []).append(record)
        last = max(record.started + timedelta(seconds=record.wall_seconds) for record in records)
        seconds = (last - run.started).total_seconds() / len(of_cell)
        wants, spreads = gate_rule(host), spreads_of_gate(records, host)
        for cell in compare_sides(run, records, host).cells:
            if wants(of_cell[cell.cell], spreads):
                unfinished += 1
                continue
            logs = [math.log(after / before) for before, after in zip(*cell.pairs, strict=True)]
            nulls.append(
                Null(
                    run.suite.removeprefix("nulls-"),
                    run.id,
                    f"{cell.cell.framework} {cell.cell.network}",
                    run.machine,
                    f"{run.started:%Y-%m-%d}",
                    round(seconds, 1),
                    cell.verdict.value,
                    len({record.launch for record in of_cell[cell.cell]}) - len(logs),
                    " ".join(f"{value:.5f}" for value in logs),
                )
            )
        unfinished += len(set(run.plan) - of_cell.keys())
    return nulls, unfinished


def read(file: Path) -> list[Null]:
    """Return the comparisons of a CSV file; none where there is no file."""
    if not file.exists():
        return []
    with gzip.open(file, "rt", encoding="utf-8", newline="") as lines:
        return [
            Null(**{**row, "seconds": float(row["seconds"]), "lost": int(row["lost"])})
            for row in csv.DictReader(lines)
        ]


def write(file: Path, nulls: list[Null]) -> None:
    """Write a CSV file whose bytes follow from the comparisons alone."""
    text = io.StringIO(newline="")
    out = csv.writer(text, lineterminator="\n")
    out.writerow(Null._fields)
    out.writerows(nulls)
    file.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def table_of(nulls: list[Null]) -> Table:
    """Return verdicts and bounds by kind."""
    table = Table(
        *(
            "kind",
            "comparisons",
            f"beyond {HISTORY_PAIRS} pairs",
            "REGRESSION",
            "95 % interval",
            "IMPROVEMENT",
            "INCONCLUSIVE",
        ),
        *("CONTENDED", "other", "pairs", "lost", "deviation of a pair", "an hour"),
        title="Gates of identical code; intervals by Clopper and Pearson; deviation robust",
        box=None,
    )
    verdicts_shown = (Verdict.IMPROVEMENT, Verdict.INCONCLUSIVE, Verdict.CONTENDED)
    for kind in (*sorted({null.kind for null in nulls}), "all"):
        of_kind = [null for null in nulls if kind in (null.kind, "all")]
        if not of_kind:
            continue
        verdicts = [null.verdict for null in of_kind]
        alarms = Rate.count(verdict == Verdict.REGRESSION for verdict in verdicts)
        low, high = (100 * end for end in alarms.interval)
        logs = [value for null in of_kind for value in null.logs]
        verdicts_in_columns = (Verdict.REGRESSION, Verdict.NO_REGRESSION, *verdicts_shown)
        table.add_row(
            *(
                kind,
                str(len(of_kind)),
                str(sum(len(null.logs) > HISTORY_PAIRS for null in of_kind)),
                str(alarms.hits),
            ),
            f"{low:.2f} to {high:.2f} %",
            *(str(verdicts.count(verdict)) for verdict in verdicts_shown),
            str(sum(verdict not in verdicts_in_columns for verdict in verdicts)),
            f"{len(logs) / len(of_kind):.1f}",
            f"{sum(null.lost for null in of_kind) / len(of_kind):.1f}",
            f"{100 * stats.median_abs_deviation(logs, scale='normal'):.1f} %" if logs else "-",
            f"{3600 * len(of_kind) / sum(null.seconds for null in of_kind):.0f}",
        )
    return table


@contextlib.contextmanager
def neighbours(kind: str, work: str) -> Iterator[None]:
    """Run the processes of a kind of round meanwhile, which compute or copy memory."""
    count, rest = NEIGHBOURS.get(kind, (0, 0.0))
    command = [sys.executable, "-c", BURST, work, str(rest)]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def copies(framework: str, folder: Path) -> tuple[Path, Path]:
    """Return the interpreters of two copies of a framework's environment, in folders of different
    length."""
    built = locate(find(framework))
    if built.interpreter is None:
        raise SystemExit(f"{framework} has no environment: {built.reason}")
    results = []
    for name in ("a", "a-build-of-the-same-source-in-a-folder-with-a-longer-name"):
        copy = folder / name / framework
        if not (copy / "whole").exists():  # else an interrupted copy
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(built.directory, copy, symlinks=True)
            (copy / "whole").touch()
        results.append(copy / "bin" / "python")
    return results[0], results[1]


def gate(
    store: Path, kind: str, order: str, frameworks: list[str], widths: int, resume: bool
) -> None:
    """Carry out or resume one round; exits where the gate could not measure."""
    name = f"{kind}-{order}" if order else kind
    folder = Path(f"{store}-files")
    folder.mkdir(parents=True, exist_ok=True)
    suite = folder / f"{name}.toml"
    hidden = [[256 + 8 * width] for width in range(widths)]
    suite.write_text(
        SUITE.format(kind=name, frameworks=str(frameworks).replace("'", '"'), widths=hidden)
    )
    command = [
        sys.executable,
        "-m",
        "dlbench.suites",
        "gate",
        str(suite),
        "--store",
        str(store),
        "--undecided",
        "pass",
    ]
    if kind == "builds":
        for framework in frameworks:
            first_copy, second_copy = copies(framework, folder)
            command += [
                "--baseline",
                f"{framework}={first_copy}",
                "--python",
                f"{framework}={second_copy}",
            ]
    else:
        command.append("--same")
    command += ["--order", order] if order else []
    command += ["--resume"] if resume else []
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if ended.returncode not in FINISHED:
        raise SystemExit(
            f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout[-2000:]}"
        )


def runs_of(store: Path) -> list[Run]:
    """Return the rounds so far."""
    if not store.exists():
        return []
    with Store.open(store, create=False) as opened:
        return [run for run in opened.runs() if run.suite.startswith("nulls-")]


def measure(
    store: Path,
    seconds: float,
    order: str,
    frameworks: list[str],
    widths: int,
    kinds: Sequence[str],
) -> None:
    """Carry out rounds until the time is up; the last one is finished."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        runs = runs_of(store)
        resume = bool(runs) and runs[-1].finished is None
        number = len(runs) - resume
        kind = kinds[number % len(kinds)]
        if resume:
            kind, _, order = runs[-1].suite.removeprefix("nulls-").partition("-")
        uses_memory = number // len(kinds) % 2 == 1
        with neighbours(kind, "memory" if uses_memory else "cpu"):
            gate(store, kind, order, frameworks, widths, resume)
        print(
            f"round {number + 1}, {kind}: done, {max(0, end - time.monotonic()) / 60:.0f} min left",
            flush=True,
        )


def main(
    store: Annotated[
        Path | None, typer.Option(help="SQLite store of the rounds; made if it is not there.")
    ] = None,
    duration: Annotated[
        str, typer.Option("--for", help="Start rounds for so long, as in 40m or 8h.")
    ] = "",
    file: Annotated[
        Path | None, typer.Option("--csv", help="Add the store's comparisons to this .csv.gz.")
    ] = None,
    frameworks: Annotated[
        str, typer.Option(help="Frameworks, of a short import.")
    ] = "onnxruntime,onnx",
    order: Annotated[
        str, typer.Option(help="The gate's --order, as in turns; a kind of its own.")
    ] = "",
    widths: Annotated[int, typer.Option(help="Networks of each, so many cells in a round.")] = 8,
    kinds: Annotated[str, typer.Option(help="Kinds of rounds, in turn.")] = ",".join(KINDS),
) -> None:
    """Measure comparisons of identical code, and print the table of all so far."""
    if store is None and file is None:
        print(
            "Nothing to read or measure: give --store FILE, --csv FILE, or both.", file=sys.stderr
        )
        raise typer.Exit(2)
    nulls_by_cell = {(null.run, null.cell): null for null in (read(file) if file else [])}
    if store is not None:
        try:
            if duration:
                measure(
                    store,
                    values.duration(duration),
                    order,
                    frameworks.split(","),
                    widths,
                    kinds.split(","),
                )
        except UsageError as error:
            print(error, file=sys.stderr)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            print("Interrupted; the same command resumes.", file=sys.stderr)
        if store.exists():
            with Store.open(store, create=False) as opened:
                nulls_of_store, unfinished = nulls_of(opened)
            nulls_by_cell |= {(null.run, null.cell): null for null in nulls_of_store}
            if unfinished:
                print(
                    f"{unfinished} comparisons are unfinished and not in the table; the same "
                    "command resumes them."
                )
    nulls = sorted(nulls_by_cell.values(), key=lambda null: (null.run, null.cell))
    if file is not None and store is not None:
        write(file, nulls)
    Console(width=150).print(table_of(nulls))
    if nulls:
        days = sorted({null.started for null in nulls})
        print(f"{days[0]} to {days[-1]}, {len({null.machine for null in nulls})} machine(s)")


if __name__ == "__main__":
    typer.run(main)
