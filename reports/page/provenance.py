"""The origin of the numbers: machines, software, networks, runs, protocols and disturbances."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from dlbench.adapters import tuning
from dlbench.hardware_probe.doctor import Finding
from dlbench.reports.columns import Column, table
from dlbench.reports.formats.json import data_of_tables, plain
from dlbench.reports.formats.layout import MISSING, Table, entries
from dlbench.reports.page.document import Document
from dlbench.reports.results.hosts import name_among
from dlbench.reports.results.naming import row_name, variables_in_words
from dlbench.reports.results.record import IMPORTED, Run
from dlbench.reports.tables import tables


def _protocol_text(words: str) -> Callable[[tuple[Run, int]], str]:
    """Return an accessor of a part of a run's protocol in these words.

    It is missing for an imported run, since the file of another program does not have it.
    """

    def text(row: tuple[Run, int]) -> str:
        run, _ = row
        if all(cell.adapter == IMPORTED for cell in run.plan):
            return MISSING
        return words.format(run.protocol)

    return text


def _finished(row: tuple[Run, int]) -> str:
    run, _ = row
    if run.finished:
        return f"{run.finished:%Y-%m-%d %H:%M}"
    return "not finished"


_RUNS: tuple[Column[tuple[Run, int]], ...] = (
    Column("", "run", lambda row: row[0].id),
    Column("", "suite", lambda row: row[0].suite),
    Column("", "started (UTC)", lambda row: f"{row[0].started:%Y-%m-%d %H:%M}"),
    Column("", "finished", _finished),
    Column("", "launches", lambda row: row[1]),
    Column("", "warm-up steps", _protocol_text("{0.warmup_steps} to {0.maximum_warmup_steps}")),
    Column("", "timed steps", _protocol_text("{0.minimum_steps} to {0.steps}")),
    Column("", "seconds at least", _protocol_text("{0.seconds:g}")),
)


def provenance_tables(document: Document) -> list[Table]:
    """Return everything behind the numbers as tables."""
    return [
        *tables(document.results),
        *_doctor_table(document),
        _settings_table(document),
        _runs_table(document),
        _launches_table(document),
    ]


def provenance(document: Document) -> dict[str, Any]:
    """Return the same as plain JSON types, with every machine and run in full."""
    runs = []
    for run, count in _runs(document):
        runs.append(run.to_dict() | {"plan": len(run.plan), "records": count})
    return {
        "title": document.title,
        "made": document.made.isoformat(timespec="seconds"),
        "dlbench": document.version,
        "machines": plain(document.results.hosts),
        "ceilings": plain(document.results.ceilings),
        "runs": runs,
        "tables": data_of_tables(provenance_tables(document)),
    }


def _runs(document: Document) -> list[tuple[Run, int]]:
    """Return the runs of the cells' launches, with the numbers of their records."""
    wanted = {launch.record.run for launch in document.all_launches()}
    return [(run, count) for run, count in document.source.runs() if run.id in wanted]


def _runs_table(document: Document) -> Table:
    """Return the runs with their protocol, and their environment variables (--env) if any."""
    runs = _runs(document)
    columns = _RUNS
    if any(run.variables for run, _ in runs):
        variables: Column[tuple[Run, int]] = Column(
            "", "variables", lambda row: variables_in_words(row[0].variables)
        )
        columns = (*_RUNS, variables)
    return table(columns, runs, "Runs and their protocol", words=True)


def _doctor_table(document: Document) -> list[Table]:
    """Return the doctor's findings on each machine in its newest run; empty without any."""
    findings_by_machine: dict[str, tuple[Finding, ...]] = {}
    hosts = document.results.hosts
    runs = [run for run, _ in _runs(document)]
    for run in sorted(runs, key=lambda run: run.started):
        if run.doctor is not None:
            name = name_among(hosts, run.machine) if run.machine in hosts else run.machine[:12]
            if run.node:
                # Nodes of one kind have one fingerprint, but different names.
                name = f"{name}, node {run.node.name}"
            findings_by_machine[name] = run.doctor
    rows = []
    for name, findings in findings_by_machine.items():
        for finding in findings:
            seen = f"{finding.title}: {finding.seen}"
            rows.append(entries(name, finding.severity.value, seen, finding.why))
        if not findings:
            rows.append(entries(name, "fine", "Settings: nothing that harms measurement", ""))
    if not rows:
        return []
    head = ("machine", "measurement", "what the doctor found", "why it matters")
    return [Table("The machine's settings, examined", head, tuple(rows), words=True)]


def _settings_table(document: Document) -> Table:
    """Return the settings of each row that are in force, as its launches reported."""
    settings = set()
    for (_, cell), launches in document.launches.items():
        reported = launches[-1].record.outcome.facts.tunable or ()
        names = tuning.in_force(cell.tuning, tuple(map(str, reported)))
        if reported or names:
            settings.add((row_name(cell), ", ".join(names) or "none: as installed"))
    rows = [entries(row, names) for row, names in sorted(settings)]
    return Table("Settings in force", ("row", "settings"), tuple(rows), words=True)


def _launches_table(document: Document) -> Table:
    """Return the numbers of launches by their end, and of disturbed and repeated ones."""
    launches = document.all_launches()
    ends: Counter[str] = Counter()
    own = disturbed = repeated = unused = 0
    for launch in launches:
        ends[launch.record.outcome.status.value] += 1
        own += launch.record.cell.adapter != IMPORTED
        disturbed += launch.disturbed
        repeated += launch.record.attempt > 0
        unused += not launch.counts
    facts = {"launches": len(launches)}
    for status, count in sorted(ends.items()):
        facts[f"ended as {status}"] = count
    if own:
        facts["disturbed by other programs"] = disturbed
        facts["repetitions of disturbed launches"] = repeated
    facts["not used by any number"] = unused
    rows = [entries(name, str(count)) for name, count in facts.items()]
    return Table("Launches", ("", ""), tuple(rows))
