"""Copies of real runs that play other machines, many CPUs and many nights; of `record_store.py`, commit a1f5929."""

# mypy: ignore-errors

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from dlbench.adapters.protocol import Cell, Contention
from dlbench.hardware_probe import Machine
from dlbench.reports.record import Record, Run
from dlbench.reports.store import Store

NIGHTS = 16
START = datetime(2026, 10, 1, 2, 0, tzinfo=UTC)
CHANGED_NIGHT = 9


def rescaled(record: Record, factor: float) -> Record:
    """Return a record whose steps took so many times as long."""
    told = record.outcome
    threads = told.threads
    if threads is not None:
        threads = threads._replace(
            cpu_seconds=threads.cpu_seconds * factor,
            wall_seconds=threads.wall_seconds * factor,
            cpu_seconds_by_thread=[each * factor for each in threads.cpu_seconds_by_thread or ()],
        )
    changed = told._replace(
        samples_ns=[round(each * factor) for each in told.samples_ns],
        warmup_ns=[round(each * factor) for each in told.warmup_ns],
        threads=threads,
        contention=None if told.contention is None else Contention(0.0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0, 0.0),
    )
    return replace(record, outcome=changed)


def another_machine(description: dict[str, Any], model: str, cpus: int) -> dict[str, Any]:
    """Return the description of a machine like this one with another processor of so many cores."""
    told = copy.deepcopy(description)
    cpu = told["cpu"]
    cpu.update(model=model, physical_cores=cpus, logical_cpus=cpus, affinity=list(range(cpus)), quota_cpus=None)
    for key in ("core_siblings", "core_places"):
        if cpu.get(key):
            one = cpu[key][0]
            cpu[key] = [[each] for each in range(cpus)] if key == "core_siblings" else [one] * cpus
    del told["fingerprint"]
    machine = Machine.from_dict(told)
    return machine.to_dict()


def copied(
    run: Run, records: Iterable[Record], change: Callable[[Record], Record], **of_run: Any
) -> tuple[Run, list[Record]]:
    """Return a copy of a run and of its records, each changed."""
    new = replace(run, **of_run)
    shift = new.started - run.started
    if run.finished is not None:
        new = replace(new, finished=run.finished + shift)
    kept = [
        replace(change(each), run=new.id, machine=new.machine, suite=new.suite, started=each.started + shift)
        for each in records
    ]
    return new, kept


def add_elsewhere(folder: Path) -> None:
    """Two further machines: the first real run, as if by a faster and by a slower processor."""
    random = Random(1)
    with Store.open(folder / "cpu.sqlite") as source, Store.open(folder / "elsewhere.sqlite") as store:
        first = source.runs()[0]
        described = source.machine(first.machine)
        assert described is not None
        for number, (model, cpus, factor) in enumerate((("Intel Xeon Made Up", 4, 0.6), ("AMD EPYC", 8, 1.4))):
            told = another_machine(described, model, cpus)
            fingerprint = told["fingerprint"]
            store.add_machine(fingerprint, told)
            if ceilings := source.ceilings(first.machine):
                store.save_ceilings(fingerprint, ceilings)

            def change(record: Record, factor: float = factor) -> Record:
                return rescaled(record, factor * math.exp(random.gauss(0, 0.02)))

            store.append_all(
                *reversed(
                    copied(
                        first,
                        source.records(run=first.id),
                        change,
                        id=f"20261101T0{number}0000-e15e00",
                        machine=fingerprint,
                        started=START + timedelta(days=31),
                    )
                )
            )


def add_many_cpus(folder: Path) -> None:
    """A machine of 16 CPUs with threads bound and not: one row that follows Amdahl's law, one that falls back."""
    random = Random(2)
    with Store.open(folder / "cpu.sqlite") as source, Store.open(folder / "many-cpus.sqlite") as store:
        study = next(run for run in source.runs() if any(cell.affinity == "bound" for cell in run.plan))
        records = source.records(run=study.id)
        pattern = next(each for each in records if each.cell.threads == 1 and each.cell.affinity == "bound")
        described = source.machine(study.machine)
        assert described is not None
        told = another_machine(described, "Sixteen Cores", 16)
        store.add_machine(told["fingerprint"], told)
        made: list[Record] = []
        plan: list[Cell] = []
        laws: dict[str, Callable[[int], float]] = {
            "eager": lambda p: 0.08 + 0.92 / p,
            "onednn": lambda p: 0.5 * (1 + 0.06 * (p - 1) + 0.008 * p * (p - 1)) / p,
        }
        for mode, law in laws.items():
            for affinity in ("bound", "oversubscribed"):
                for threads in (1, 2, 3, 4, 6, 8, 12, 16, *((32,) if affinity == "oversubscribed" else ())):
                    cell = pattern.cell._replace(mode=mode, affinity=affinity, threads=threads)
                    plan.append(cell)
                    seconds = law(min(threads, 16)) * (1.6 if threads > 16 else 1.0)
                    for launch in range(5):
                        record = rescaled(pattern, seconds * math.exp(random.gauss(0, 0.01)))
                        evidence = record.outcome.threads
                        assert evidence is not None
                        busy = min(threads, 16) / threads * evidence.wall_seconds
                        evidence = evidence._replace(
                            requested=threads,
                            framework_says=threads,
                            os_threads=threads + 1,
                            cpu_seconds=busy * threads,
                            cpu_seconds_by_thread=[busy] * threads,
                        )
                        outcome = record.outcome._replace(threads=evidence)
                        made.append(replace(record, cell=cell, outcome=outcome, launch=launch))
        run, kept = copied(
            replace(study, plan=tuple(plan), launches=5),
            made,
            lambda record: record,
            id="20261102T000000-316316",
            machine=told["fingerprint"],
            started=START + timedelta(days=32),
            suite="threads",
        )
        store.append_all(kept, run)


def add_nights(folder: Path) -> None:
    """Nights with a change of level and of the environment, of one side, and nights with a baseline."""
    random = Random(3)
    with Store.open(folder / "first-night.sqlite") as source, Store.open(folder / "nights.sqlite") as store:
        measured = source.runs()[0]
        records = source.records(run=measured.id)
        described = source.machine(measured.machine)
        assert described is not None
        store.add_machine(measured.machine, described)
        for night in range(NIGHTS):
            common = random.gauss(0, 0.01)

            def change(record: Record, night: int = night, common: float = common) -> Record:
                later = night >= CHANGED_NIGHT
                slower = 1.2 if later and record.cell.network == "fcn5" and record.cell.threads == 1 else 1.0
                changed = rescaled(record, slower * math.exp(common + random.gauss(0, 0.01)))
                return replace(changed, environment="0123456789abcdef") if later else changed

            when = START + timedelta(days=night)
            store.append_all(
                *reversed(copied(measured, records, change, id=f"{when:%Y%m%dT%H%M%S}-a0a0a0", started=when))
            )
    with Store.open(folder / "gates.sqlite") as gates, Store.open(folder / "gated-nights.sqlite") as store:
        gate = next(run for run in gates.runs() if run.purpose == "gate" and len(gates.records(run=run.id)) > 12)
        described = gates.machine(gate.machine)
        assert described is not None
        store.add_machine(gate.machine, described)
        same = [run for run in gates.runs() if run.purpose == "gate"][1]
        records = gates.records(run=same.id)
        for night in range(NIGHTS):
            common = random.gauss(0, 0.03)

            def change_side(record: Record, night: int = night, common: float = common) -> Record:
                faster = 0.9 if record.side == "candidate" and night >= CHANGED_NIGHT else 1.0
                return rescaled(record, faster * math.exp(common + random.gauss(0, 0.005)))

            when = START + timedelta(days=night)
            store.append_all(
                *reversed(copied(same, records, change_side, id=f"{when:%Y%m%dT%H%M%S}-b1b1b1", started=when))
            )


def add_all(folder: Path) -> None:
    """Make every store that is made up."""
    add_elsewhere(folder)
    add_many_cpus(folder)
    add_nights(folder)
