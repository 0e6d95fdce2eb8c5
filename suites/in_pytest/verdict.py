"""dlbench's verdict in a pytest session.

Every benchmark is judged by its launches, and only a regression fails. Where this session is the
only process, its benchmarks are one launch: their ratio is shown, and how to get a verdict. With
`--dlbench-processes` the launches are those of `processes`.

The ini option `dlbench_verdict` applies to every session. So the modules of a judgement (`judging`)
are loaded only once there is a baseline and a benchmark that was measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from dlbench.reports.results.safe_text import visible

from ..errors import GATE_UNDECIDED, DlbenchError
from .options import ENOUGH_PROCESSES, Asked
from .processes import Processes, measures

if TYPE_CHECKING:
    from dlbench.reports.results.operators import StepDifference

    from .judging import Baselines, SessionJudgements


class VerdictSession:
    """The plugin that judges, and saves a baseline of several processes."""

    def __init__(self, config: pytest.Config, asked: Asked, processes: Processes) -> None:
        self._config = config
        self._save = asked.save
        self._processes = processes
        self._targets: Sequence[str] = config.getoption("dlbench_baseline") or ()
        self._compares = bool(config.getini("dlbench_verdict"))
        self._compared: list[dict[str, Any]] = []
        """Content of the files that --benchmark-compare found."""
        compare_option = self._compares and bool(config.getoption("benchmark_compare", None))
        self._asked = bool(self._targets or asked.checkout) or compare_option
        self._judged_quantities: str | None = config.getoption("dlbench_judge")
        self._baselines: Baselines | None = None
        self._measured: list[Mapping[str, Any]] = []
        """Benchmarks of this session, as pytest-benchmark has them."""
        self._judged: SessionJudgements | None = None
        self._operators: dict[str, StepDifference] = {}
        """Profiled differences of benchmarks that got slower."""
        self._profile_interrupted = False
        self._problem = ""
        """Why there is no judgement, where a baseline or a file of the processes cannot be read."""
        self._saved = ""
        """A line about the saved file, or the reason why there is none."""

    def pytest_sessionstart(self) -> None:
        """Read the baselines: their errors are reported before anything is measured."""
        if not (self._targets or self._compared or self._save or self._processes.checkout):
            self._processes.count = 0
        if not (self._targets or self._judged_quantities):
            return
        try:
            baselines = self._no_baselines()
            for target in self._targets:
                baselines.add(target)
        except DlbenchError as error:
            message = str(error).replace("--store", "--dlbench-baseline")
            raise pytest.UsageError(visible(f"dlbench: {message}")) from error
        if self._targets:
            self._baselines = baselines

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_compare_machine_info(self, compared_benchmark: Mapping[str, Any]) -> None:
        """Take a file that --benchmark-compare found; the hook gets each file once."""
        if self._compares:
            self._compared.append(dict(compared_benchmark))

    @pytest.hookimpl(wrapper=True, optionalhook=True)
    def pytest_benchmark_group_stats(
        self, benchmarks: Sequence[Mapping[str, Any]]
    ) -> Iterator[Any]:
        """Take the benchmarks of this session: those without a path. The others are baselines."""
        self._measured = [benchmark for benchmark in benchmarks if benchmark.get("path") is None]
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[Any]:
        """Judge and save, and fail the session where something got slower."""
        result = yield
        if self._processes.stopped and self._processes.count:
            self._saved = "" if self._save is None else f"not saved: {self._processes.stopped}"
            return result
        try:
            self._write()
            self._judge()
        except DlbenchError as error:
            self._problem = str(error)
        if session.exitstatus == pytest.ExitCode.OK:
            outcome = "undecided" if self._judged is None else self._judged.outcome.outcome
            strict = self._asked and self._config.getoption("dlbench_undecided") == "fail"
            failed = outcome == "failed" or self._saved.startswith("not saved")
            for failure in self._processes.failures:
                # A process of the baseline that reached no test has a wrong environment.
                if not failure.of_baseline or not failure.test:
                    failed = True
            if failed:
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
            if self._asked or self._save is not None:
                self._show(terminalreporter)

    def _no_baselines(self) -> Baselines:
        """Return an empty baseline that judges what --dlbench-judge names. Raises UsageError."""
        from dlbench.reports.results.verdict import DEFAULT

        from ..planning.judged import judged_given
        from .judging import Baselines

        rule = DEFAULT
        if self._judged_quantities:
            rule = replace(DEFAULT, **judged_given(self._judged_quantities))
        return Baselines(rule)

    def _judge(self) -> None:
        """Judge the measured benchmarks; raises DlbenchError where a file cannot be read."""
        measured = self._processes.files if self._processes.count else self._measured
        has_baseline = self._baselines or self._compared or self._processes.baseline_files
        if not measured or not has_baseline:
            return
        from dlbench.hardware_probe import probe
        from dlbench.reports.pytest_benchmark.imported import accept, read
        from dlbench.reports.results.hosts import host_of

        from .judging import candidates_of_processes, candidates_of_session, follow_root, judge_all

        baselines = self._baselines or self._no_baselines()
        for content in self._compared:
            baselines.add_file(accept("the file that --benchmark-compare found", content))
        disturbed = self._processes.disturbed
        for file in self._processes.baseline_files:
            baselines.add_file(read(file), file in disturbed)
        host = host_of(probe())
        files = [read(file) for file in self._processes.files]
        names = {benchmark.fullname for file in files for benchmark in file.benchmarks}
        names.update(str(benchmark["fullname"]) for benchmark in self._measured)
        follow_root(baselines, names, self._config.rootpath, self._config.invocation_params.dir)
        if self._processes.count:
            were_disturbed = [file in disturbed for file in self._processes.files]
            candidates = candidates_of_processes(files, were_disturbed, baselines, host)
        else:
            candidates = candidates_of_session(
                self._measured, baselines, host, self._foreign_machine
            )
        both_sides = self._processes.checkout is not None
        self._judged = judge_all(baselines, candidates, self._left_out, both_sides)
        if both_sides and not self._config.getoption("dlbench_no_profile"):
            self._profile(self._judged.slower)

    def _profile(self, slower: list[str]) -> None:
        """Find the operators that account for the slowdown of benchmarks."""
        if not slower:
            return
        from .operators import slower_operators

        try:
            self._operators = slower_operators(self._processes, slower)
        except KeyboardInterrupt:
            self._profile_interrupted = True

    def _write(self) -> None:
        """Save the benchmarks of the undisturbed processes."""
        if self._save is None:
            return
        files = self._processes.files
        if not files:
            self._saved = "not saved: no benchmark was measured"
            return
        undisturbed = [file for file in files if file not in self._processes.disturbed]
        if 2 * len(undisturbed) <= len(files):
            lost = len(files) - len(undisturbed)
            self._saved = f"not saved: other programs disturbed {lost} of {len(files)} processes"
            return
        from dlbench.reports.results.naming import counted

        from .judging import save

        contents = [json.loads(file.read_text(encoding="utf-8")) for file in undisturbed]
        try:
            count = save(contents, self._save)
        except OSError as error:
            self._saved = f"not saved: {self._save} cannot be written: {error.strerror}"
            return
        processes = counted(len(contents), "process", "processes")
        self._saved = f"saved {counted(count, 'benchmark')} of {processes} in {self._save}"

    def _left_out(self, name: str) -> bool:
        """Tell whether this session chose not to run a benchmark."""
        if name in self._processes.deselected:
            return True
        collected = self._processes.collected
        if name in collected or self._config.args_source is not pytest.Config.ArgsSource.ARGS:
            return False
        # The command line names a part of all tests. The baseline's others are not missed.
        one_by_one = any("::" in argument for argument in self._config.args)
        files = {other.partition("::")[0] for other in collected}
        return one_by_one or name.partition("::")[0] not in files

    def _foreign_machine(self) -> str:
        """Fingerprint of this machine as in pytest-benchmark's own files."""
        from dlbench.reports.pytest_benchmark.imported import fingerprint_of

        info = self._config.hook.pytest_benchmark_generate_machine_info(config=self._config)
        self._config.hook.pytest_benchmark_update_machine_info(
            config=self._config, machine_info=info
        )
        return fingerprint_of(info)

    def _show(self, reporter: Any) -> None:
        reporter.section("dlbench verdicts" if self._asked else "dlbench processes")
        self._show_processes(reporter)
        if self._judged is not None:
            for text, red in self._judged.lines:
                reporter.write_line(visible(text), red=red)
        for name, difference in self._operators.items():
            reporter.write_line(visible(f"{name}: {difference.sentence}"))
        if self._profile_interrupted:
            reporter.write_line("Interrupted while profiling: no operators. The verdicts stand.")
        if self._saved:
            reporter.write_line(visible(self._saved), red=self._saved.startswith("not saved"))
        if not self._asked:
            return
        if self._judged is not None and self._judged.benchmarks:
            outcome = self._judged.outcome
            reporter.write_line(f"verdict {outcome.outcome}: {outcome.why}")
        else:
            reporter.write_line(visible(f"no verdict: {self._why_no_verdict()}"))

    def _show_processes(self, reporter: Any) -> None:
        """Show the tests that failed or were skipped in a process, and disturbed processes."""
        processes = self._processes
        for failure in processes.failures:
            side = " of the baseline" if failure.of_baseline else ""
            where = f"process {failure.process} of {processes.count}{side}"
            test = f": {failure.test}" if failure.test else ""
            reporter.write_line(visible(f"FAILED in {where}{test}: {failure.reason}"), red=True)
            for line in failure.output:
                reporter.write_line(visible(f"    {line}"))
        for test, reason in processes.skipped.items():
            reporter.write_line(visible(f"skipped in a process: {test}: {reason}"))
        if processes.disturbed:
            all_processes = len(processes.files) + len(processes.baseline_files)
            share = max(processes.disturbed.values())
            reporter.write_line(
                f"Other programs used up to {share:.0%} of the CPUs during "
                f"{len(processes.disturbed)} of {all_processes} processes, whose times do not "
                "count. Measure again when the machine is quiet."
            )

    def _why_no_verdict(self) -> str:
        """Return why no benchmark was judged."""
        option = self._config.getoption
        if self._processes.stopped and (self._processes.count or not self._measured):
            return self._processes.stopped
        if self._problem:
            return self._problem
        if option("benchmark_skip") and not option("benchmark_only"):
            return "--benchmark-skip leaves out every benchmark"
        if not measures(self._config):
            return "with --benchmark-disable nothing is measured"
        if option("dist", "no") != "no" and not self._processes.count:
            return (
                "with pytest-xdist pytest-benchmark measures nothing. Leave it out (-n 0), or let "
                f"fresh processes measure after the tests: --dlbench-processes {ENOUGH_PROCESSES}"
            )
        if self._judged is not None:
            return "no benchmark of this session is in the baseline"
        if not (self._measured or self._processes.files):
            return "no benchmark was measured in this session"
        if self._processes.count and not self._processes.files:
            return "the processes measured no benchmark"
        if self._processes.checkout is not None:
            return "the processes measured no benchmark of both sides"
        return "--benchmark-compare found no file to compare with"
