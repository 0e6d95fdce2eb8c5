"""Where the numbers come from: machines, software, networks, runs and their protocol, and what was
disturbed.
"""

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


def _of_protocol(words: str) -> Callable[[tuple[Run, int]], str]:
    """Return the part of a run's protocol in these words; a file of another program does not say
    how it measured.
    """

    def shown(line: tuple[Run, int]) -> str:
        imported = all(cell.adapter == IMPORTED for cell in line[0].plan)
        return MISSING if imported else words.format(line[0].protocol)

    return shown


_RUNS: tuple[Column[tuple[Run, int]], ...] = (
    Column("", "run", lambda line: line[0].id),
    Column("", "suite", lambda line: line[0].suite),
    Column("", "started (UTC)", lambda line: f"{line[0].started:%Y-%m-%d %H:%M}"),
    Column(
        "",
        "finished",
        lambda line: f"{end:%Y-%m-%d %H:%M}" if (end := line[0].finished) else "not finished",
    ),
    Column("", "launches", lambda line: line[1]),
    Column("", "warm-up steps", _of_protocol("{0.warmup_steps} to {0.maximum_warmup_steps}")),
    Column("", "timed steps", _of_protocol("{0.minimum_steps} to {0.steps}")),
    Column("", "seconds at least", _of_protocol("{0.seconds:g}")),
)


def provenance_tables(document: Document) -> list[Table]:
    """Return everything behind the numbers as tables."""
    return [
        *tables(document.results),
        *_doctor(document),
        _settings(document),
        _runs_table(document),
        _launches(document),
    ]


def provenance(document: Document) -> dict[str, Any]:
    """Return the same as plain JSON types, with every machine and run in full."""
    return {
        "title": document.title,
        "made": document.made.isoformat(timespec="seconds"),
        "dlbench": document.version,
        "machines": plain(document.results.hosts),
        "ceilings": plain(document.results.ceilings),
        "runs": [
            run.to_dict() | {"plan": len(run.plan), "records": count}
            for run, count in _runs(document)
        ],
        "tables": data_of_tables(provenance_tables(document)),
    }


def _runs(document: Document) -> list[tuple[Run, int]]:
    """Return the runs that the cells' launches belong to, with the numbers of their records."""
    wanted = {each.record.run for of in document.launches.values() for each in of}
    return [(run, count) for run, count in document.source.runs() if run.id in wanted]


def _runs_table(document: Document) -> Table:
    """Return the runs with their protocol, and with their environment variables where one has any
    (--env).
    """
    runs, columns = _runs(document), _RUNS
    if any(run.variables for run, _ in runs):
        columns = (
            *_RUNS,
            Column("", "variables", lambda line: variables_in_words(line[0].variables)),
        )
    return table(columns, runs, "Runs and their protocol", words=True)


def _doctor(document: Document) -> list[Table]:
    """Return the doctor's findings on each machine at the start of its newest run; empty if it did
    not run.
    """
    asked: dict[str, tuple[Finding, ...]] = {}
    hosts = document.results.hosts
    for run in sorted((run for run, _ in _runs(document)), key=lambda run: run.started):
        if run.doctor is not None:
            name = name_among(hosts, run.machine) if run.machine in hosts else run.machine[:12]
            # Nodes of one kind have one fingerprint, but different names.
            asked[f"{name}, node {run.node.name}" if run.node else name] = run.doctor
    rows = []
    for place, findings in asked.items():
        rows += [
            entries(place, each.severity.value, f"{each.title}: {each.seen}", each.why)
            for each in findings
        ]
        if not findings:
            rows.append(entries(place, "fine", "Settings: nothing that harms measurement", ""))
    head = ("machine", "measurement", "what the doctor found", "why it matters")
    return (
        [Table("The machine's settings, examined", head, tuple(rows), words=True)] if rows else []
    )


def _settings(document: Document) -> Table:
    """Return which settings of each row are in force, as its launches reported."""
    found = set()
    for (_, cell), launches in document.launches.items():
        reported = launches[-1].record.outcome.software.get(tuning.TUNABLE, ())
        names = tuning.in_force(cell.tuning, tuple(map(str, reported)))
        if reported or names:
            found.add((row_name(cell), ", ".join(names) or "none: as installed"))
    rows = tuple(entries(*each) for each in sorted(found))
    return Table("Settings in force", ("row", "settings"), rows, words=True)


def _launches(document: Document) -> Table:
    """Return how many launches there are, how they ended, and how many were disturbed or
    repeated.
    """
    launches = [each for of in document.launches.values() for each in of]
    ended = Counter(each.record.outcome.status.value for each in launches)
    facts = {
        "launches": len(launches),
        **{f"ended as {name}": count for name, count in sorted(ended.items())},
    }
    if any(launch.record.cell.adapter != IMPORTED for launch in launches):
        facts |= {
            "disturbed by other programs": sum(launch.disturbed for launch in launches),
            "repetitions of disturbed launches": sum(
                launch.record.attempt > 0 for launch in launches
            ),
        }
    facts["not used by any number"] = sum(not launch.counts for launch in launches)
    return Table(
        "Launches", ("", ""), tuple(entries(name, str(count)) for name, count in facts.items())
    )
