"""dlbench's verdict in a pytest session: every benchmark is judged by its launches, only a regression fails.

The baseline was measured in another session: intervals allow for a shift of the machine (`compare.verdict`), and fewer
than three launches on a side give no verdict.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from dlbench.adapters.protocol import Cell, Status
from dlbench.hardware_probe import probe
from dlbench.reports.compare.comparison import SideOfCell, judge_sides, side_of
from dlbench.reports.compare.report import GateOutcome, outcome_of
from dlbench.reports.compare.verdict import DEFAULT, Judgement, Verdict, adjust
from dlbench.reports.formats.inert import visible
from dlbench.reports.pytest_benchmark.export import KEY, counted
from dlbench.reports.pytest_benchmark.imported import BenchmarkFile, accept, fingerprint_of, read
from dlbench.reports.storage.hosts import FOREIGN_KEY, host_of, read_host
from dlbench.reports.storage.record import CANDIDATE, Record
from dlbench.reports.storage.results import Results

from ..errors import GATE_UNDECIDED, DlbenchError

Key = Cell | str
"""A benchmark's cell, or the full name of a plain benchmark."""
_SHORTEST = 1e-9  # seconds; a clock may give 0 for a step that does nothing, a logarithm needs more


class Baselines(dict[tuple[Key, str], SideOfCell]):
    """Launches by benchmark and machine; later ones of the same cell on the same machine replace earlier ones."""

    def add(self, target: str) -> None:
        """Add a JSON file of pytest-benchmark, or a store; raises DlbenchError."""
        if "://" not in target:
            try:
                with Path(target).open("rb") as stream:
                    is_json = stream.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"["))
            except (OSError, ValueError):
                is_json = target.endswith(".json")
            if is_json:
                self.add_file(read(target))
                return
        results = Results.read([target])
        for (cell, machine), records in _newest(results.records).items():
            kept = records[-1].outcome.software.get(FOREIGN_KEY)
            key = str(kept["fullname"]) if isinstance(kept, dict) and "fullname" in kept else cell
            self[key, machine] = side_of(records, results.hosts.get(machine))

    def add_file(self, file: BenchmarkFile) -> None:
        """Add the benchmarks of a file; each file of plain benchmarks is one more launch."""
        host = read_host(file.fingerprint, file.machine)
        for (cell, machine), records in _newest(file.records).items():
            self[cell, machine] = side_of(records, host)
        for benchmark in file.foreign:
            key = benchmark.fullname, file.fingerprint
            before = self[key].launch_medians if key in self else ()
            self[key] = _plain_side(*before, benchmark.stats.median)

    def find(self, key: Key, machine: str) -> tuple[SideOfCell, str] | None:
        """Return the launches of a benchmark, preferably on this machine, and their machine."""
        found = {of: side for (other, of), side in self.items() if other == key}
        of = machine if machine in found else next(iter(found), "")
        return (found[of], of) if found else None


def _plain_side(*seconds: float) -> SideOfCell:
    return SideOfCell(Status.OK, "", len(seconds), tuple(max(each, _SHORTEST) for each in seconds))


def _newest(records: Iterable[Record]) -> dict[tuple[Cell, str], list[Record]]:
    """Return by cell and machine the records of the newest run that gave a number; of a comparison its candidate's."""
    runs: dict[tuple[Cell, str], dict[str, list[Record]]] = {}
    for record in sorted(records, key=lambda record: record.started):
        if record.side in ("", CANDIDATE):
            runs.setdefault((record.cell, record.machine), {}).setdefault(record.run, []).append(record)
    timed = {place: [found for found in each.values() if counted(found)] for place, each in runs.items()}
    return {place: found[-1] for place, found in timed.items() if found}


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
            message = str(error).replace("--store", "--dlbench-baseline")
            raise pytest.UsageError(visible(f"dlbench: {message}")) from error

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
            if outcome == "failed":
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            elif outcome == "undecided" and strict:
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
        # A comparison with another machine says nothing of a change.
        found = (judgement.verdict for _, judgement in self._judged)
        counts: Counter[Verdict] = Counter(
            Verdict.INCONCLUSIVE if each is Verdict.COMPARISON else each for each in found
        )
        return outcome_of(counts, "benchmark")

    def _judge(self, benchmarks: Sequence[Mapping[str, Any]]) -> None:
        judged = {}
        for benchmark in benchmarks:
            key, candidate, machine = self._candidate(benchmark)
            if (found := self._baselines.find(key, machine)) is not None:
                judged[str(benchmark["name"])] = judge_sides(found[0], candidate, DEFAULT, found[1] == machine)
        self._judged = list(zip(judged, adjust(list(judged.values())), strict=True))

    def _candidate(self, benchmark: Mapping[str, Any]) -> tuple[Key, SideOfCell, str]:
        kept = benchmark["extra_info"].get(KEY)
        if isinstance(kept, dict):
            records = [Record.from_dict(each) for each in kept["records"]]
            return records[-1].cell, side_of(records, self._host), records[-1].machine
        name, own = str(benchmark["fullname"]), self._host.fingerprint
        # A file of a session that measured cells, too, knows its machine by dlbench's fingerprint. The other one takes
        # pytest-benchmark a second to find out.
        known = {machine for key, machine in self._baselines if key == name}
        machine = own if own in known or not known else self._foreign_machine
        return name, _plain_side(float(benchmark["median"])), machine

    @cached_property
    def _foreign_machine(self) -> str:
        """Fingerprint of this machine as in pytest-benchmark's own files."""
        info = self._config.hook.pytest_benchmark_generate_machine_info(config=self._config)
        self._config.hook.pytest_benchmark_update_machine_info(config=self._config, machine_info=info)
        return fingerprint_of(info)

    def _show(self, reporter: Any) -> None:
        reporter.section("dlbench verdicts")
        if not self._judged:
            reporter.write_line("No benchmark of this session is in the baseline.")
        else:
            found = Counter(judgement.verdict for _, judgement in self._judged)
            width, order = max(map(len, found)), list(Verdict)
            for name, judgement in sorted(self._judged, key=lambda pair: (order.index(pair[1].verdict), pair[0])):
                verdict, words = judgement.verdict, judgement.sentence
                if verdict is Verdict.COMPARISON and judgement.ratio is not None:
                    words = f"{judgement.ratio - 1:+.1%}; {words}"
                reporter.write_line(visible(f"{verdict:{width}}  {name}: {words}"), red=verdict is Verdict.REGRESSION)
            reporter.write_line(", ".join(f"{found[each]} {each}" for each in order if found[each]))
        outcome = self._outcome()
        reporter.write_line(f"verdict {outcome.outcome}: {outcome.why}")
