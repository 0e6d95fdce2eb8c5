"""dlbench's verdict in a pytest session: every benchmark is judged by its launches, only a regression fails.

The baseline was measured in another session: intervals allow for a shift of the machine (`compare.verdict`), and fewer
than three launches on a side give no verdict.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import probe
from dlbench.reports.compare.comparison import CANDIDATE, CONTENDED_SHARE
from dlbench.reports.compare.report import Finding, GateOutcome, Outcome, outcome_of
from dlbench.reports.compare.verdict import DEFAULT, Judgement, Verdict, adjust, judge, undecided
from dlbench.reports.disturbance import disturbed
from dlbench.reports.formats.inert import visible
from dlbench.reports.pytest_benchmark.export import FOREIGN_KEY, KEY, counted, launch_medians
from dlbench.reports.pytest_benchmark.imported import (
    BenchmarkFile,
    accept,
    fingerprint_of,
    medians_of,
    read,
    records_of,
)
from dlbench.reports.storage.hosts import Host, host_of, read_host
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.results import Results

from ..errors import GATE_UNDECIDED, DlbenchError
from .plugin import of_baseline

Key = Cell | str
"""A benchmark's cell, or the full name of a plain benchmark."""
_SHORTEST = 1e-9  # seconds; a clock may give 0 for a step that does nothing, a logarithm needs more


@dataclass(frozen=True)
class Launches:
    """The launches of one benchmark."""

    seconds: tuple[float, ...]
    """Median of each that was left alone."""
    machine: str
    """Fingerprint."""
    disturbed: int = 0
    """Launches left out because other programs disturbed them."""

    @property
    def made(self) -> int:
        """How many launches there were."""
        return len(self.seconds) + self.disturbed


@dataclass
class Baselines:
    """Launches by benchmark; later ones of the same cell on the same machine replace earlier ones."""

    launches: dict[tuple[Key, str], Launches] = field(default_factory=dict)
    """By benchmark and machine."""

    def add(self, target: str) -> None:
        """Add a JSON file of pytest-benchmark, or a store; raises DlbenchError."""
        if "://" not in target and _is_json(target):
            self.add_file(read(target))
            return
        results = Results.read([target])
        for (cell, machine), records in _newest(results.records).items():
            self._add(_key(cell, records), records, results.hosts.get(machine))

    def add_file(self, file: BenchmarkFile) -> None:
        """Add the benchmarks of a file; each file of plain benchmarks is one more launch."""
        host = read_host(file.fingerprint, file.machine)
        for (cell, _), records in _newest(file.records).items():
            self._add(cell, records, host)
        for name, seconds in medians_of([file]).items():
            before = self.launches.get((name, file.fingerprint), Launches((), file.fingerprint))
            made = (*before.seconds, *(max(each, _SHORTEST) for each in seconds))
            self.launches[name, file.fingerprint] = Launches(made, file.fingerprint)

    def find(self, key: Key, machine: str) -> Launches | None:
        """Return the launches of a benchmark, preferably on this machine."""
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
    """Tell whether a file is JSON by its first bytes, or by its name if it cannot be read."""
    try:
        with Path(target).open("rb") as stream:
            return stream.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"["))
    except (OSError, ValueError):
        return os.fspath(target).endswith(".json")


_FINDINGS = {
    Verdict.REGRESSION: Finding.REGRESSION,
    Verdict.CONTENDED: Finding.CONTENDED,
    Verdict.INCONCLUSIVE: Finding.INCONCLUSIVE,
    Verdict.COMPARISON: Finding.INCONCLUSIVE,  # of another machine: it says nothing of a change
    Verdict.IMPROVEMENT: Finding.IMPROVEMENT,
    Verdict.NO_REGRESSION: Finding.NO_REGRESSION,
}
_ORDER = tuple(_FINDINGS)
"""In which verdicts are listed."""


class VerdictSession:
    """The plugin that judges; registered with --dlbench-baseline or the ini option dlbench_verdict."""

    def __init__(self, config: pytest.Config, targets: Sequence[str]) -> None:
        self._config = config
        self._compares = bool(config.getini("dlbench_verdict"))
        self._asked = bool(targets) or (self._compares and bool(config.getoption("benchmark_compare", None)))
        self._baselines = Baselines()
        self._judged: list[tuple[str, Judgement]] = []
        try:
            self._host = host_of(probe())
            for target in targets:
                self._baselines.add(target)
        except DlbenchError as error:
            raise pytest.UsageError(of_baseline(error)) from error

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_compare_machine_info(self, compared_benchmark: Mapping[str, Any]) -> None:
        """Take a file that --benchmark-compare found: the hook is given each of them, once, when it is loaded."""
        if not self._compares:
            return
        try:
            self._baselines.add_file(accept("the file that --benchmark-compare found", dict(compared_benchmark)))
        except DlbenchError as error:
            raise pytest.UsageError(visible(f"dlbench: {error}")) from error
        self._asked = True

    @pytest.hookimpl(wrapper=True, optionalhook=True)
    def pytest_benchmark_group_stats(self, benchmarks: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
        """Judge the benchmarks of this session; those without a path are its own, the others are compared with."""
        self._judge([each for each in benchmarks if each.get("path") is None])
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[Any]:
        """Fail the session where something got slower."""
        result = yield
        outcome = self._outcome().outcome
        strict = self._asked and self._config.getoption("dlbench_undecided") == "fail"
        if session.exitstatus == pytest.ExitCode.OK:
            if outcome is Outcome.FAILED:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            elif outcome is Outcome.UNDECIDED and strict:
                session.exitstatus = GATE_UNDECIDED
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> Iterator[Any]:
        """Show the verdicts, after pytest-benchmark's tables and whatever these raise."""
        try:
            return (yield)
        finally:
            if self._asked:
                self._show(terminalreporter)

    def _outcome(self) -> GateOutcome:
        return outcome_of(Counter(_FINDINGS[judgement.verdict] for _, judgement in self._judged), "benchmark")

    def _judge(self, benchmarks: Sequence[Mapping[str, Any]]) -> None:
        judged = []
        for benchmark in benchmarks:
            key, candidate = self._candidate(benchmark)
            baseline = self._baselines.find(key, candidate.machine)
            if baseline is not None:
                judged.append((str(benchmark["name"]), _judgement(baseline, candidate)))
        of_code = adjust([judgement for _, judgement in judged], DEFAULT)
        self._judged = [(name, judgement) for (name, _), judgement in zip(judged, of_code, strict=True)]

    def _candidate(self, benchmark: Mapping[str, Any]) -> tuple[Key, Launches]:
        kept = benchmark["extra_info"].get(KEY)
        if isinstance(kept, dict):
            records = records_of(kept)
            return records[-1].cell, launches_of(records, self._host)
        name, own = str(benchmark["fullname"]), self._host.fingerprint
        # A file of a session that measured cells, too, knows its machine by dlbench's fingerprint. The other one takes
        # pytest-benchmark a second to find out.
        known = {machine for key, machine in self._baselines.launches if key == name}
        machine = own if own in known or not known else self._foreign_machine
        return name, Launches((max(float(benchmark["median"]), 1e-9),), machine)

    @cached_property
    def _foreign_machine(self) -> str:
        """Fingerprint of this machine as in pytest-benchmark's own files."""
        info = self._config.hook.pytest_benchmark_generate_machine_info(config=self._config)
        self._config.hook.pytest_benchmark_update_machine_info(config=self._config, machine_info=info)
        return fingerprint_of(info)

    def _show(self, reporter: Any) -> None:
        reporter.section("dlbench verdicts")
        outcome = self._outcome()
        ending = f"verdict {outcome.outcome}: {outcome.why}"
        if not self._judged:
            reporter.write_line("No benchmark of this session is in the baseline.")
            reporter.write_line(ending)
            return
        width = max(len(judgement.verdict) for _, judgement in self._judged)
        for name, judgement in sorted(self._judged, key=lambda pair: (_ORDER.index(pair[1].verdict), pair[0])):
            bad = judgement.verdict is Verdict.REGRESSION
            reporter.write_line(visible(f"{judgement.verdict:{width}}  {name}: {judgement.sentence}"), red=bad)
        found = Counter(judgement.verdict for _, judgement in self._judged)
        reporter.write_line(", ".join(f"{found[each]} {each}" for each in _ORDER if found[each]))
        reporter.write_line(ending)


def _judgement(baseline: Launches, candidate: Launches) -> Judgement:
    lost, made = baseline.disturbed + candidate.disturbed, baseline.made + candidate.made
    if lost and lost >= CONTENDED_SHARE * made:
        why = f"other programs disturbed {lost} of {made} launches; measure again on a quiet machine"
        return undecided(Verdict.CONTENDED, why, len(baseline.seconds), len(candidate.seconds))
    found = judge(baseline.seconds, candidate.seconds, DEFAULT, same_session=False)
    if baseline.machine == candidate.machine:
        return found
    shown = "" if found.ratio is None else f"{found.ratio - 1:+.1%}; "
    words = f"{shown}the baseline is of another machine: a comparison, not a verdict on a change"
    return replace(found, verdict=Verdict.COMPARISON, sentence=words, p=None)
