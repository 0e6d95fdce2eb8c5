"""Duet pairs beside sequential pairs, measured in the same hours: noise, cost, bias and power of each.

    .venv/bin/python tests/benchmarks/duet_study.py duet.sqlite --minutes 60     measure, then show the tables
    .venv/bin/python tests/benchmarks/duet_study.py duet.sqlite --minutes 0      show the tables of what is there

One thread of PyTorch on three networks: ``memory`` (weights far larger than the caches), ``compute`` (convolutions)
and ``small`` (an LSTM with short steps). Beside them runs a neighbour: none, ``cpu`` (a busy loop), ``bandwidth``
(copies arrays), ``bursts`` (copies now and then, on two CPUs). By turns the code is identical, and the candidate does
5 % more work, or as much as --effects say. Every round makes one pair of each kind, in random order, so a call that is
ended loses one pair at most, and the next one goes on. Nothing else should run.

Columns: robust standard deviation (MAD) of the logarithm of the pairs' ratios around that of their effect; seconds of a
pair; minutes until the ratio is known to +-1 %. Last the ratios measured, with their 95 % intervals, and of a gate on
pairs drawn from these how often it alarms at identical code / finds 5 % / is contended then: as the gate is; "blind",
where each pair counts.
"""

import contextlib
import itertools
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean, median
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import typer
from corpus import CorpusLaunch, gate_drawn
from rich.console import Console
from rich.table import Table
from scipy import stats

from dlbench.adapters.protocol import EXTRA_PRODUCTS, Cell
from dlbench.hardware_probe import Machine, probe
from dlbench.reports.compare.comparison import complete_pairs, seconds_of_pair
from dlbench.reports.compare.verdict import Verdict, estimate_pairs
from dlbench.reports.disturbance import left_out
from dlbench.reports.storage.hosts import Host, host_of
from dlbench.reports.storage.record import BASELINE, CANDIDATE, Record, Run
from dlbench.reports.storage.store import Store
from dlbench.suites.commands.qualify import products_for
from dlbench.suites.planning import suite
from dlbench.suites.planning.axes import SuiteOverrides
from dlbench.suites.planning.plan import Plan, PlannedLaunch, expand, narrow_to
from dlbench.suites.run import preparation, sides
from dlbench.suites.run.duet import masks_of
from dlbench.suites.run.launch import LaunchRunner, run_attempts
from dlbench.suites.run.launcher import launch_process
from dlbench.suites.run.pairing import DUET, SEQUENTIAL, Pairing
from dlbench.suites.run.schedules import PairSchedule

SUITE = """
name = "duet-study"
summary = "cells of different limits"
frameworks = ["torch"]
threads = [1]
networks = ["memory", "compute", "small"]
[[network]]
name = "memory"
family = "feedforward"
inputs = 4096
hidden = [4096, 4096]
outputs = 4096
activation = "sigmoid"
batch_size = 4
[[network]]
name = "compute"
family = "convolutional"
channels = 16
side = 32
layers = [{ convolution = 64, kernel = 3, padding = 1 }, { convolution = 64, kernel = 3, padding = 1 }]
outputs = 10
batch_size = 16
[[network]]
name = "small"
family = "recurrent"
vocabulary = 96
embedding = 64
hidden = 128
layers = 1
steps = 50
batch_size = 32
[protocol]
launches = 1
warmup_steps = 3
steps = 200
minimum_steps = 8
seconds = 1.0
sample_seconds = 0.01
cell_seconds = 120.0
"""
_DIES_WITH_US = "import ctypes, random, time, numpy; ctypes.CDLL(None).prctl(1, 9)\n"
_COPIES = "a = numpy.ones(2**24); b = a.copy()\n"
NEIGHBOURS = {
    "none": (),
    "cpu": ("while True: pass",),
    "bandwidth": (_COPIES + "while True: b[:] = a",),
    "bursts": (
        _COPIES + "while True:\n end = time.time() + random.expovariate(3)\n"
        " while time.time() < end: b[:] = a\n time.sleep(random.expovariate(1))",
    )
    * 2,
}
REPLAYS = 300


class Kind(NamedTuple):
    """What one pair is of; the name of its run in the store."""

    network: str
    neighbour: str
    pairing: str
    effect: int


@contextlib.contextmanager
def beside(neighbour: str) -> Iterator[None]:
    """Let a neighbour run."""
    with contextlib.ExitStack() as stack:
        for code in NEIGHBOURS[neighbour]:
            child = stack.enter_context(subprocess.Popen([sys.executable, "-c", _DIES_WITH_US + code]))
            stack.callback(child.kill)
        time.sleep(0.5 if NEIGHBOURS[neighbour] else 0.0)
        yield


class Study:
    """The plan, what its launches need, and the store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.machine: Machine = probe()
        parsed = suite.parse(SUITE, "duet_study.toml")
        self.plan: Plan = expand(parsed, SuiteOverrides(), preparation.capacity(self.machine), seed=1)
        store.add_machine(self.machine.fingerprint, self.machine.to_dict())
        self.sources = sides.prepare(self.plan, sides.ONE_SIDE, print, True)[""]
        self.reference = preparation.prepare_references(self.plan, self.machine, print)
        self.runs: dict[str, Run] = {run.suite: run for run in store.runs()}

    def run_of(self, name: str, cell: Cell, variables: str = "") -> Run:
        """Return the run of this name, starting it if needed; ``variables`` are the candidate's."""
        if name not in self.runs:
            plan = replace(narrow_to(self.plan, [cell]), suite=name, seed=Random(name).randrange(2**31))
            described = {BASELINE: "", CANDIDATE: variables}
            self.runs[name] = preparation.begin(plan, self.store, self.machine, "compare", described)
        return self.runs[name]

    def launcher(self, run: Run, extra: str = "") -> LaunchRunner:
        """Return what makes the launches of a run, with this much extra work."""
        return LaunchRunner(
            self.plan,
            run,
            launch_process,
            self.sources,
            self.reference,
            machine=self.machine,
            variables={EXTRA_PRODUCTS: extra} if extra else MappingProxyType({}),
        )

    def extra_work(self, cell: Cell, effect: int) -> str:
        """Return the extra products that lengthen a step by about this many per cent, by one launch made once."""
        run = self.run_of(f"calibration/{cell.network}", cell)
        record = next(iter(self.store.records(run=run.id)), None)
        if record is None:
            record = self.launcher(run).attempt(PlannedLaunch(cell, 0), self.plan.protocol)
            self.store.append(record)
        rate = record.outcome.gemm_flops_per_second
        assert rate is not None, record.outcome.reason
        return products_for(effect / 100 * min(record.outcome.step_seconds()), rate)

    def pair(self, kind: Kind) -> None:
        """Measure one pair and store it."""
        cell = next(each for each in self.plan.cells if each.network == kind.network)
        name = "/".join(map(str, kind))
        if name not in self.runs:
            self.run_of(name, cell, self.extra_work(cell, kind.effect) if kind.effect else "")
        run, masks = self.runs[name], masks_of(cell, self.machine.cpu)
        if isinstance(masks, str):
            raise typer.BadParameter(f"no duet here: {masks}")
        launchers = {side: self.launcher(run, extra) for side, extra in run.sides.items()}
        pairing = Pairing({cell: masks}) if kind.pairing == DUET else Pairing()
        plan = replace(narrow_to(self.plan, [cell]), seed=run.seed)
        schedule = PairSchedule(plan, self.store.records(run=run.id), lambda _: 1, pairing)
        (planned,) = schedule.wanted(0)
        with beside(kind.neighbour):
            if pairing.duets:
                (records,) = run_attempts(launchers, planned, plan.protocol_of)
            else:
                records = [launchers[each.side].attempt(each, plan.protocol) for each in planned]
        for record in records:
            self.store.append(record)


def measure(study: Study, neighbours: list[str], effects: list[int], minutes: float, console: Console) -> None:
    """Measure rounds of pairs until the time is over, and show the tables now and then."""
    deadline, shown = time.monotonic() + 60 * minutes, time.monotonic()
    of_round = [
        Kind(cell.network, neighbour, pairing, 0)
        for cell in study.plan.cells
        for neighbour in neighbours
        for pairing in (DUET, SEQUENTIAL)
    ]
    for number in itertools.count(len(study.store.records()) // (2 * len(of_round))):
        for kind in Random(number).sample(of_round, len(of_round)):
            if time.monotonic() > deadline:
                return
            study.pair(kind._replace(effect=effects[number % len(effects)]))
        if time.monotonic() - shown > 600:
            show(study.store, console)
            shown = time.monotonic()


class Pairs(NamedTuple):
    """Pairs, the logarithms of the seconds of both sides, and which pairs a comparison leaves out."""

    records: list[tuple[Record, Record]]
    logs: np.ndarray  # (pairs, 2)
    disturbed: np.ndarray


def pairs_of(kind: Kind, records: dict[str, list[Record]], host: Host) -> Pairs:
    """Return the pairs of a kind in which both sides gave a number."""
    found = complete_pairs(records.get("/".join(map(str, kind)), []))
    timed = [(pair, seconds) for pair in found if None not in (seconds := seconds_of_pair(*pair))]
    logs = np.log(np.array([seconds for _, seconds in timed], dtype=float)).reshape(-1, 2)
    disturbed = np.array([any(left_out(each, host) for each in pair) for pair, _ in timed], dtype=bool)
    return Pairs([pair for pair, _ in timed], logs, disturbed)


def pooled(of_effects: list[Pairs]) -> Pairs:
    """Return the pairs of all effects as if the code were identical."""
    logs = [found.logs - [0.0, np.median(found.logs[:, 1] - found.logs[:, 0])] for found in of_effects]
    records = [pair for found in of_effects for pair in found.records]
    disturbed = np.concatenate([found.disturbed for found in of_effects])
    return Pairs(records, np.concatenate(logs), disturbed)


def variance(values: np.ndarray) -> float:
    """Return the robust variance; not a number with fewer than three values."""
    return float(stats.median_abs_deviation(values, scale="normal")) ** 2 if len(values) > 2 else math.nan


def noise(found: Pairs) -> list[str]:
    """Return the columns of the first table."""
    differences = found.logs[:, 1] - found.logs[:, 0]
    of_pair = variance(differences)
    starts = [min(each.started for each in pair) for pair in found.records]
    walls = [
        max(each.wall_seconds + (each.started - start).total_seconds() for each in pair)
        for start, pair in zip(starts, found.records, strict=True)
    ]
    return [
        f"{len(differences)}",
        f"{100 * found.disturbed.mean():.0f}",
        f"{100 * math.sqrt(of_pair):.1f}",
        f"{median(walls):.1f}",
        f"{(1.96 * math.sqrt(of_pair) / 0.01) ** 2 * median(walls) / 60:.1f}",
    ]


def as_corpus(found: Pairs, host: Host, swapped: bool, factor: float) -> list[tuple[CorpusLaunch, CorpusLaunch]]:
    """Return pairs as those of the corpus, the second launch longer by this factor."""
    pairs = []
    for records, logs in zip(found.records, found.logs, strict=True):
        launches = []
        for record, log in zip(records, logs, strict=True):
            sample = {"samples_ns": [round(math.exp(log) * 1e9)], "steps_per_sample": 1, "timed_between": None}
            launches.append(CorpusLaunch("torch", "", 0, record.started, record.outcome._replace(**sample), host))
        first, second = launches[::-1] if swapped else launches
        pairs.append((first, second.scaled(factor)))
    return pairs


def power(found: Pairs, host: Host) -> list[str]:
    """Return how often a gate alarms at identical code, finds 5 %, and is contended then, in per cent.

    First as the gate is; then where each pair counts.
    """
    random, columns = np.random.default_rng(1), []
    for blind in (False, True):
        shares = []
        for factor in (1.0, 1.05):
            both = [pair for swapped in (False, True) for pair in as_corpus(found, host, swapped, factor)]
            seen = [(pair[0].unseeing(), pair[1].unseeing()) if blind else pair for pair in both]
            decisions = gate_drawn(seen, random, REPLAYS)
            shares.append(fmean(each.alarm for each in decisions))
        shares.append(fmean(each.verdict is Verdict.CONTENDED for each in decisions))
        columns.append(" / ".join(f"{100 * share:.0f}" for share in shares))
    return columns


def ratio(found: Pairs) -> str:
    """Return the ratio that pairs show, less 100 %, with its interval."""
    if not len(found.logs):
        return ""
    estimate = estimate_pairs(*np.exp(found.logs).T)
    interval = f" ({100 * estimate.low - 100:+.1f} to {100 * estimate.high - 100:+.1f})"
    return f"{100 * estimate.ratio - 100:+.1f}{interval if math.isfinite(estimate.high) else ''}"


def show(store: Store, console: Console) -> None:
    """Print the tables of a store."""
    records = {run.suite: store.records(run=run.id) for run in store.runs()}
    names = [Kind(*parts[:3], int(parts[3])) for name in records if len(parts := name.split("/")) == 4]
    host, effects = host_of(probe()), sorted({kind.effect for kind in names})
    first = Table("network", "neighbour", "pairing", "pairs", "disturbed %", "sd %", "s a pair", "min to 1 %")
    second = Table(
        "network", "neighbour", "pairing", *(f"+{effect} %" for effect in effects), "gate %", "gate, blind %"
    )
    for kind in sorted({kind._replace(effect=0) for kind in names}):
        of_effects = [pairs_of(kind._replace(effect=effect), records, host) for effect in effects]
        found = pooled([each for each in of_effects if len(each.logs)] or of_effects)
        if len(found.logs) < 3:
            continue
        first.add_row(*kind[:3], *noise(found))
        second.add_row(*kind[:3], *map(ratio, of_effects), *power(found, host))
    console.print(first, second)


def main(
    store: Path,
    minutes: float = typer.Option(60.0, help="Measure for so long; 0: show the tables of what is there."),
    neighbours: str = typer.Option("none,cpu,bandwidth,bursts", help=f"Of {', '.join(NEIGHBOURS)}."),
    effects: str = typer.Option("0,5", help="Per cent of work more on the candidate's side, by turns."),
) -> None:
    """Measure and show."""
    console = Console(width=None if sys.stdout.isatty() else 200)
    with Store.open(str(store)) as opened:
        if minutes > 0:
            try:
                measure(Study(opened), neighbours.split(","), [*map(int, effects.split(","))], minutes, console)
            except KeyboardInterrupt:
                print("Every finished pair is stored.")
        show(opened, console)


if __name__ == "__main__":
    typer.run(main)
