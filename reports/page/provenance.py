"""Where the numbers come from: machines, software, networks, runs and their protocol, and what was disturbed."""

from collections import Counter
from datetime import datetime
from typing import Any

from dlbench.adapters import tuning
from dlbench.hardware_probe.doctor import Finding, Severity
from dlbench.reports.formats.json import data_of_tables, plain
from dlbench.reports.formats.layout import Table, entries
from dlbench.reports.naming import row_name
from dlbench.reports.page.document import Document
from dlbench.reports.storage.hosts import name_among
from dlbench.reports.storage.record import Run
from dlbench.reports.tables import tables

_NOTHING = Finding("", "Settings", Severity.FINE, "nothing that harms measurement", "")


def provenance_tables(document: Document) -> list[Table]:
    """Return everything behind the numbers as tables."""
    of_machines = [*tables(document.results), *_doctor(document)]
    return [*of_machines, _settings(document), _runs(document), _launches(document)]


def provenance(document: Document) -> dict[str, Any]:
    """Return the same for a program, with each machine and run whole."""
    return {
        "title": document.title,
        "made": document.made.isoformat(timespec="seconds"),
        "dlbench": document.version,
        "machines": {name: plain(host) for name, host in document.results.hosts.items()},
        "ceilings": {name: plain(found) for name, found in document.results.ceilings.items()},
        "runs": [run.to_dict() | {"plan": len(run.plan), "records": count} for run, count in _used(document)],
        "tables": data_of_tables(provenance_tables(document)),
    }


def _doctor(document: Document) -> list[Table]:
    """Return what the doctor found wrong with each machine as its newest run began; nothing where it was not asked."""
    asked: dict[str, tuple[Finding, ...]] = {}
    for run, _ in sorted(_used(document), key=_started):
        if run.doctor is not None:
            asked[_place(document, run)] = run.doctor
    rows = tuple(
        entries(place, each.severity.value, f"{each.title}: {each.seen}", each.why)
        for place, findings in asked.items()
        for each in findings or (_NOTHING,)
    )
    head = ("machine", "measurement", "what the doctor found", "why it matters")
    return [Table("The machine's settings, examined", head, rows, words=True)] if rows else []


def _place(document: Document, run: Run) -> str:
    """Return the name of a run's machine; nodes of one kind have one fingerprint, but different names."""
    hosts = document.results.hosts
    name = name_among(hosts, run.machine) if run.machine in hosts else run.machine[:12]
    return f"{name}, node {run.node.name}" if run.node else name


def _started(used: tuple[Run, int]) -> datetime:
    return used[0].started


def _settings(document: Document) -> Table:
    """Return which settings of each row are in force, as its launches reported."""
    found: dict[tuple[str, str], None] = {}
    for (_, cell), launches in document.launches.items():
        reported = launches[-1].record.outcome.software.get(tuning.TUNABLE)
        if reported:
            names = tuning.in_force(cell.tuning, tuple(map(str, reported)))
            found[row_name(cell), ", ".join(names) or "none: as installed"] = None
    rows = tuple(entries(*each) for each in sorted(found))
    return Table("Settings in force", ("row", "settings"), rows, words=True)


def _used(document: Document) -> list[tuple[Run, int]]:
    wanted = {each.record.run for of in document.launches.values() for each in of}
    return [(run, count) for run, count in document.runs if run.id in wanted]


def _runs(document: Document) -> Table:
    rows = [
        entries(
            run.id,
            run.suite,
            f"{run.started:%Y-%m-%d %H:%M}",
            f"{run.finished:%Y-%m-%d %H:%M}" if run.finished else "not finished",
            str(count),
            f"{run.protocol.warmup_steps} to {run.protocol.maximum_warmup_steps}",
            f"{run.protocol.minimum_steps} to {run.protocol.steps}",
            f"{run.protocol.seconds:g}",
        )
        for run, count in _used(document)
    ]
    head = ("run", "suite", "started (UTC)", "finished", "launches", "warm-up steps", "timed steps", "seconds at least")
    return Table("Runs and their protocol", head, tuple(rows), words=True)


def _launches(document: Document) -> Table:
    """Return how many launches there are, how they ended, and how many were disturbed or repeated."""
    launches = [each for of in document.launches.values() for each in of]
    ended = Counter(each.record.outcome.status.value for each in launches)
    facts = {
        "launches": len(launches),
        **{f"ended as {name}": count for name, count in sorted(ended.items())},
        "disturbed by other programs": sum(each.disturbed for each in launches),
        "repeated since they were disturbed": sum(each.record.attempt > 0 for each in launches),
        "which no number rests on": sum(not each.counts for each in launches),
    }
    return Table("Launches", ("", ""), tuple(entries(name, str(count)) for name, count in facts.items()))
