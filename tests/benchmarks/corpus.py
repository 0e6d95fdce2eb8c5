"""The corpus: launches of cheap cells of real frameworks.

Launches `a` and `b` run identical code; `plus2`, `plus5` and `plus10` do a fixed amount of real extra work in each
step. The packed form keeps what a verdict rests on, samples and evidence, and of the machine what the probe says.
"""

import gzip
import json
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from statistics import median

from dlbench.adapters.protocol import Cell, Contention, Outcome, Protocol, Status, ThreadEvidence
from dlbench.reports.flags import disturbed
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record

PACKED = Path(__file__).parents[1] / "data" / "corpus.jsonl.gz"
_CONTENTION = Contention._fields
_THREADS = ("requested", "framework_says", "os_threads", "cpu_seconds", "wall_seconds")


@dataclass(frozen=True, eq=False)
class CorpusLaunch:
    """One launch, and the machine it ran on."""

    framework: str
    label: str
    block: int
    started: datetime
    outcome: Outcome
    host: Host

    @cached_property
    def seconds(self) -> float:
        """Median seconds per step: what a verdict sees of a launch."""
        return median(self.outcome.step_seconds())

    @cached_property
    def disturbed(self) -> bool:
        """Whether its own evidence says that others were in the way, by the rule of the product."""
        return disturbed(self.record("", "", 0), self.host)

    @property
    def contention(self) -> Contention:
        """What it saw of others."""
        assert self.outcome.contention is not None
        return self.outcome.contention

    @property
    def threads(self) -> ThreadEvidence:
        """What it saw of its own threads."""
        assert self.outcome.threads is not None
        return self.outcome.threads

    def unseeing(self) -> "CorpusLaunch":
        """Return it without what it saw of others."""
        return replace(self, outcome=self.outcome._replace(contention=None))

    def scaled(self, factor: float) -> "CorpusLaunch":
        """Return it with every step so many times as long."""
        samples = [round(nanoseconds * factor) for nanoseconds in self.outcome.samples_ns]
        return replace(self, outcome=self.outcome._replace(samples_ns=samples))

    def record(self, side: str, stage: str, launch: int, run: str = "corpus") -> Record:
        """Return it as the record of a comparison."""
        return Record(
            run=run,
            suite="corpus",
            launch=launch,
            cell=cell_of(self.framework),
            outcome=self.outcome,
            machine=self.host.fingerprint,
            environment="",
            interpreter="",
            protocol=Protocol(),
            started=self.started,
            wall_seconds=0.0,
            version="",
            side=side,
            stage=stage,
        )


def cell_of(framework: str) -> Cell:
    """Return the cell that all launches of a framework measured."""
    return Cell(framework, framework, "default", "lstm32", "cpu", 1, 4)


Pair = tuple[CorpusLaunch, CorpusLaunch]
"""(baseline, candidate)."""


@dataclass(frozen=True)
class Corpus:
    """All launches, in the order they were made."""

    machine: dict[str, str]
    """Label and value, as the hardware probe describes it."""
    host: Host
    launches: tuple[CorpusLaunch, ...]

    @cached_property
    def frameworks(self) -> tuple[str, ...]:
        """In alphabetical order."""
        return tuple(sorted({launch.framework for launch in self.launches}))

    @cached_property
    def _placed(self) -> dict[tuple[str, str, int], CorpusLaunch]:
        return {(launch.framework, launch.label, launch.block): launch for launch in self.launches}

    def of(self, framework: str, label: str) -> list[CorpusLaunch]:
        """Return a framework's launches with this label, by block."""
        found = [each for each in self.launches if (each.framework, each.label) == (framework, label)]
        return sorted(found, key=lambda launch: launch.block)

    def pairs(self, framework: str, baseline: str, candidate: str, apart: int = 0) -> list[Pair]:
        """Return pairs of the same block, or the candidate so many blocks later, in the order of the baseline's."""
        return [
            (launch, other)
            for launch in self.of(framework, baseline)
            if (other := self._placed.get((framework, candidate, launch.block + apart))) is not None
        ]


def calm(pairs: list[Pair]) -> list[Pair]:
    """Return the pairs that a verdict counts: those of which no launch is disturbed by its own evidence."""
    return [pair for pair in pairs if not any(launch.disturbed for launch in pair)]


def read(packed: Path = PACKED) -> Corpus:
    """Read a packed corpus."""
    with gzip.open(packed, "rt", encoding="utf-8") as file:
        about, *lines = (json.loads(text) for text in file)
    host = Host(**about["host"])
    launches = []
    for framework, label, block, started, samples, threads, contention in lines:
        outcome = Outcome(
            Status.OK,
            samples_ns=samples,
            threads=ThreadEvidence(**dict(zip(_THREADS, threads, strict=True)), cpu_seconds_by_thread=None),
            contention=Contention(**dict(zip(_CONTENTION, contention, strict=True))),
        )
        launches.append(CorpusLaunch(framework, label, block, datetime.fromisoformat(started), outcome, host))
    return Corpus(about["machine"], host, tuple(launches))
