"""What a pytest session's benchmarks are judged against: the launches that files and stores hold, by benchmark."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dlbench.adapters.protocol import Cell
from dlbench.reports.comparison.compared import CANDIDATE
from dlbench.reports.flags import disturbed
from dlbench.reports.pytest_benchmark.export import FOREIGN_KEY, counted, launch_medians
from dlbench.reports.pytest_benchmark.files import BenchmarkFile, read
from dlbench.reports.pytest_benchmark.runs import medians_of
from dlbench.reports.storage.hosts import Host, read_host
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.results import Results

Key = Cell | str
"""Of a benchmark: the cell, or for somebody's own benchmark its full name."""
_SHORTEST = 1e-9  # seconds; a clock may give 0 for a step that does nothing, a logarithm needs more


@dataclass(frozen=True)
class Launches:
    """The launches of one benchmark."""

    seconds: tuple[float, ...]
    """Median of each that was left alone."""
    machine: str
    """Fingerprint."""
    disturbed: int = 0
    """Launches left out since others were in the way."""

    @property
    def made(self) -> int:
        """How many launches there were."""
        return len(self.seconds) + self.disturbed


@dataclass
class Baselines:
    """Launches by benchmark; what is added later replaces what is known of the same cell on the same machine."""

    names: list[str] = field(default_factory=list)
    launches: dict[tuple[Key, str], Launches] = field(default_factory=dict)
    """By benchmark and machine."""

    def add(self, target: str) -> None:
        """Add a JSON file of pytest-benchmark, or a store; raises DlbenchError."""
        self.names.append(target)
        if "://" not in target and _is_json(target):
            self.add_file(read(target))
            return
        results = Results.read([target])
        for (cell, machine), records in _newest(results.records).items():
            self._add(_key(cell, records), records, results.hosts.get(machine))

    def add_file(self, file: BenchmarkFile) -> None:
        """Add the benchmarks of a file; each file of somebody's own benchmarks is one launch more."""
        host = read_host(file.fingerprint, file.machine)
        for (cell, _), records in _newest(file.records).items():
            self._add(cell, records, host)
        for name, seconds in medians_of([file]).items():
            before = self.launches.get((name, file.fingerprint), Launches((), file.fingerprint))
            made = (*before.seconds, *(max(each, _SHORTEST) for each in seconds))
            self.launches[name, file.fingerprint] = Launches(made, file.fingerprint)

    def find(self, key: Key, machine: str) -> Launches | None:
        """Return what is known of a benchmark, on this machine if there is any of it, else on another."""
        here = self.launches.get((key, machine))
        return here or next((found for (other, _), found in self.launches.items() if other == key), None)

    def _add(self, key: Key, records: Sequence[Record], host: Host | None) -> None:
        found = launches_of(records, host)
        if found.made:
            self.launches[key, found.machine] = found


def launches_of(records: Sequence[Record], host: Host | None) -> Launches:
    """Return the launches that these records of one cell (at least one) make."""
    timed = counted(records, host)
    alone = [record for record in timed if not disturbed(record, host)]
    seconds = tuple(max(each, _SHORTEST) for each in launch_medians(alone))
    return Launches(seconds, records[-1].machine, len(timed) - len(alone))


def _newest(records: Iterable[Record]) -> dict[tuple[Cell, str], list[Record]]:
    """Return by cell and machine the records of the newest run that gave a number; of a comparison its candidate's."""
    runs: dict[tuple[Cell, str], dict[str, list[Record]]] = {}
    for record in sorted(records, key=lambda record: record.started):
        if record.side in ("", CANDIDATE):
            runs.setdefault((record.cell, record.machine), {}).setdefault(record.run, []).append(record)
    timed = {place: [found for found in each.values() if counted(found)] for place, each in runs.items()}
    return {place: found[-1] for place, found in timed.items() if found}


def _key(cell: Cell, records: Sequence[Record]) -> Key:
    kept = records[-1].outcome.software.get(FOREIGN_KEY)
    return str(kept["fullname"]) if isinstance(kept, dict) and "fullname" in kept else cell


def _is_json(target: str) -> bool:
    """Tell whether a file is meant as JSON: by what it begins with, or where it cannot be read by its name."""
    try:
        with Path(target).open("rb") as stream:
            return stream.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"["))
    except (OSError, ValueError):
        return os.fspath(target).endswith(".json")
