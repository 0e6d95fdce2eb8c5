"""The judgement of a session's benchmarks against a baseline.

`verdict` loads it once there is something to judge. Every benchmark is judged by its launches, in
its time and in the other quantities that the user named. The
baseline was measured in another session: intervals allow for a shift of the machine
(`reports.results.verdict`), and fewer than three launches on a side give no verdict.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.compare.report import GateOutcome, outcome_of
from dlbench.reports.formats.json import json_text
from dlbench.reports.pytest_benchmark.export import KEY, counting_records
from dlbench.reports.pytest_benchmark.imported import (
    Benchmark,
    BenchmarkFile,
    BenchmarkFileError,
    Sessions,
    launches_of,
    read,
    repetition_of,
)
from dlbench.reports.pytest_benchmark.processes import merged
from dlbench.reports.results.comparison import SideOfCell, judge_sides, side_of
from dlbench.reports.results.hosts import UNKNOWN_MACHINE, Host, read_host
from dlbench.reports.results.judged import JUDGED, TIME, is_of_clock
from dlbench.reports.results.naming import counted, listed
from dlbench.reports.results.number_text import change_in_words
from dlbench.reports.results.record import CANDIDATE, Record
from dlbench.reports.results.results import Results
from dlbench.reports.results.verdict import FEWEST_LAUNCHES, Judgement, Rule, Verdict, adjust

from .options import ENOUGH_PROCESSES

Key = Cell | str
"""A benchmark's cell, or the full name of a plain benchmark."""
SideByQuantity = dict[str, SideOfCell]
"""One side of a benchmark, by the quantity that is judged."""
_OTHER_ROOT = (
    "pytest's root folder is not that of the baseline, whose benchmarks were looked up {}. Write "
    "a file after an equals sign (--dlbench-baseline=FILE): pytest takes a path in a word of its "
    "own for a test."
)
CLOCK_SECONDS = 1e-9
"""The resolution of Python's clocks; no ratio is formed of shorter times."""


@dataclass(frozen=True)
class MeasuredBenchmark:
    """A benchmark of this session."""

    name: str
    """Its full name, the id of its test."""
    key: Key
    sides: SideByQuantity
    machine: str
    """Fingerprint."""


@dataclass(frozen=True)
class PlainLaunch:
    """A process that measured a plain benchmark."""

    seconds: float
    """The median of a call."""
    quantities: Mapping[str, float]
    disturbed: bool = False
    """Whether other programs disturbed it, so that its times do not count."""

    @classmethod
    def read(cls, benchmark: Benchmark, disturbed: bool) -> "PlainLaunch":
        """Read a launch from the benchmark of a file of one process."""
        return cls(benchmark.stats.median, benchmark.quantities, disturbed)

    def value(self, quantity: str) -> float | None:
        """Return its value of a quantity that is judged; None where it was not measured."""
        if quantity == TIME:
            return self.seconds
        value = self.quantities.get(quantity)
        return None if value is None else max(value, JUDGED[quantity].least)


@dataclass
class Baselines:
    """Launches by benchmark and machine, in the quantities that ``rule`` judges.

    Later ones of the same cell on the same machine replace earlier ones.
    """

    rule: Rule
    sides: dict[tuple[Key, str], SideByQuantity] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Sentences about measurements that were left out of the files."""
    _sessions: Sessions = field(default_factory=Sessions)
    _plain: dict[tuple[str, str], list[PlainLaunch]] = field(default_factory=dict)

    def add(self, target: str) -> None:
        """Add a JSON file of pytest-benchmark, a folder of these, or a store.

        Raises DlbenchError.
        """
        path = Path(target)
        if "://" in target:
            self._add_store(target)
        elif path.is_dir():
            self._add_folder(target)
        elif _is_json(path):
            self._add_named(target)
        elif path.is_file() and path.stat().st_size == 0:
            raise BenchmarkFileError(
                f"{target} is empty. Save the baseline again, or name another file."
            )
        else:
            self._add_store(target)

    def add_file(self, file: BenchmarkFile, disturbed: bool = False) -> None:
        """Add the benchmarks of a file; each process of plain benchmarks is one more launch.

        Launches that other programs ``disturbed`` are counted as such, and their times are not.
        """
        repetition = repetition_of(file)
        if repetition:
            self.notes.append(repetition)
        host = read_host(file.fingerprint, file.machine)
        for (cell, machine), records in _newest(file.records).items():
            self.sides[cell, machine] = self.sides_of(records, host)
        measured = file.measurements
        repeated = self._sessions.repeated(file.made, measured)
        self._sessions.add(file.made, file.name, measured)
        for launch in launches_of(file):
            for benchmark in launch.foreign:
                name = benchmark.fullname
                if name not in repeated:
                    launches = self._plain.setdefault((name, launch.fingerprint), [])
                    launches.append(PlainLaunch.read(benchmark, disturbed))
                    self.sides[name, launch.fingerprint] = self.plain_sides(launches)
        if repeated:
            self.notes.append(
                f"{file.name} repeats measurements of an earlier file; they count once."
            )

    def sides_of(self, records: Sequence[Record], host: Host | None) -> SideByQuantity:
        """Return the launches of a cell as one side, by quantity."""
        return {quantity: side_of(records, host, quantity) for quantity in self.rule.judged}

    def plain_sides(self, launches: Sequence[PlainLaunch]) -> SideByQuantity:
        """Return the launches of a plain benchmark as one side, by quantity."""
        return {quantity: plain_side(launches, quantity) for quantity in self.rule.judged}

    def find(self, key: Key, machine: str) -> tuple[SideByQuantity, str] | None:
        """Return the launches of a benchmark, preferably on this machine, and their machine."""
        if (key, machine) in self.sides:
            return self.sides[key, machine], machine
        for (other_key, other_machine), sides in self.sides.items():
            if other_key == key:
                return sides, other_machine
        return None

    def machines_of(self, key: Key) -> set[str]:
        """Return the machines that measured a benchmark."""
        return {machine for other, machine in self.sides if other == key}

    @property
    def names(self) -> list[str]:
        """The full names of plain benchmarks."""
        return list(dict.fromkeys(key for key, _ in self.sides if isinstance(key, str)))

    def rename(self, names: Mapping[str, str]) -> None:
        """Change full names of plain benchmarks."""
        renamed: dict[tuple[Key, str], SideByQuantity] = {}
        for (key, machine), sides in self.sides.items():
            new_key = names.get(key, key) if isinstance(key, str) else key
            renamed[new_key, machine] = sides
        self.sides = renamed
        plain: dict[tuple[str, str], list[PlainLaunch]] = {}
        for (name, machine), launches in self._plain.items():
            plain[names.get(name, name), machine] = launches
        self._plain = plain

    def _add_folder(self, target: str) -> None:
        files = sorted(Path(target).glob("*.json"))
        if not files:
            raise BenchmarkFileError(
                f"{target} is a folder without a pytest-benchmark JSON. Name a file, or another "
                "folder."
            )
        for file in files:
            self._add_named(str(file))

    def _add_named(self, target: str) -> None:
        file = read(target)
        if not (file.benchmarks or file.records):
            raise BenchmarkFileError(
                f"{target} holds no benchmark. Save the baseline again, or name another file."
            )
        self.add_file(file)

    def _add_store(self, target: str) -> None:
        results = Results.read([target])
        if not results.records:
            raise BenchmarkFileError(f"{target} holds no measurement. Name another store or file.")
        for (cell, machine), records in _newest(results.records).items():
            key: Key = cell
            foreign = records[-1].outcome.facts.pytest_benchmark
            if isinstance(foreign, dict) and "fullname" in foreign:
                key = str(foreign["fullname"])
            self.sides[key, machine] = self.sides_of(records, results.hosts.get(machine))


@dataclass(frozen=True)
class JudgedBenchmark:
    """The judgement of a benchmark in one quantity."""

    name: str
    """The full name of the benchmark."""
    quantity: str
    judgement: Judgement
    label: str
    """The name, with the quantity that is judged if that is not its time."""

    @property
    def verdict(self) -> Verdict:
        """The verdict of the judgement."""
        return self.judgement.verdict


@dataclass(frozen=True)
class SessionJudgements:
    """The judgements of a session."""

    benchmarks: tuple[JudgedBenchmark, ...]
    added: tuple[str, ...]
    """Benchmarks that the baseline lacks: new or renamed ones."""
    gone: tuple[str, ...]
    """Benchmarks of the baseline that this session did not measure."""
    notes: tuple[str, ...]

    @property
    def outcome(self) -> GateOutcome:
        """The outcome of the session.

        A comparison with another machine says nothing about a change.
        """
        counts: Counter[Verdict] = Counter()
        for judged in self.benchmarks:
            verdict = judged.verdict
            if verdict is Verdict.COMPARISON:
                verdict = Verdict.INCONCLUSIVE
            counts[verdict] += 1
        if all(judged.quantity == TIME for judged in self.benchmarks):
            return outcome_of(counts, "benchmark")
        return outcome_of(counts, "comparison", of_time=False)

    @property
    def slower(self) -> list[str]:
        """The benchmarks that got slower."""
        slower = []
        for judged in self.benchmarks:
            if judged.quantity == TIME and judged.verdict is Verdict.REGRESSION:
                slower.append(judged.name)
        return slower

    @property
    def lines(self) -> list[tuple[str, bool]]:
        """The lines to show, and whether in red."""
        order = list(Verdict)
        counts = Counter(judged.verdict for judged in self.benchmarks)
        width = max(map(len, counts), default=0)
        lines: list[tuple[str, bool]] = []
        for judged in sorted(
            self.benchmarks, key=lambda judged: (order.index(judged.verdict), judged.label)
        ):
            sentence = sentence_of(judged.judgement, judged.quantity)
            text = f"{judged.verdict:{width}}  {judged.label}: {sentence}"
            lines.append((text, judged.verdict is Verdict.REGRESSION))
        notes = []
        if counts:
            numbers = [f"{counts[verdict]} {verdict}" for verdict in order if counts[verdict]]
            notes.append(", ".join(numbers))
        if self.added:
            notes.append(f"Not in the baseline (new or renamed): {listed(self.added, 10)}")
        if self.gone:
            notes.append(
                "In the baseline, not measured now (removed, renamed or failed): "
                f"{listed(self.gone, 10)}"
            )
        return lines + [(note, False) for note in (*notes, *self.notes)]


def judge_all(
    baselines: Baselines,
    candidates: Sequence[MeasuredBenchmark],
    left_out: Callable[[str], bool],
    in_turns: bool = False,
) -> SessionJudgements:
    """Judge the benchmarks of a session.

    ``left_out`` tells whether the session chose not to run a benchmark of the baseline,
    ``in_turns`` whether the baseline was measured meanwhile, on the same machine.
    """
    judged: list[JudgedBenchmark] = []
    added = []
    for candidate in candidates:
        launches = baselines.find(candidate.key, candidate.machine)
        if launches is None:
            added.append(candidate.name)
            continue
        sides, machine = launches
        same_machine = in_turns or machine == candidate.machine != UNKNOWN_MACHINE
        judged += _judge_benchmark(sides, candidate, baselines.rule, same_machine, in_turns)
    judged = _without_repeated_labels(judged)
    judgements = [benchmark.judgement for benchmark in judged]
    rules = [baselines.rule.of_quantity(benchmark.quantity) for benchmark in judged]
    benchmarks = []
    for benchmark, judgement in zip(judged, adjust(judgements, rules), strict=True):
        benchmarks.append(replace(benchmark, judgement=judgement))
    measured = {candidate.key for candidate in candidates}
    gone = tuple(name for name in baselines.names if name not in measured and not left_out(name))
    remedies = _remedies(benchmarks, candidates, in_turns)
    notes = (*baselines.notes, *remedies)
    return SessionJudgements(tuple(benchmarks), tuple(added), gone, notes)


def _judge_benchmark(
    before: SideByQuantity,
    candidate: MeasuredBenchmark,
    rule: Rule,
    same_machine: bool,
    same_session: bool,
) -> list[JudgedBenchmark]:
    """Judge a benchmark in each quantity."""
    benchmarks = []
    for quantity in rule.judged:
        judgement = _judge(
            before[quantity],
            candidate.sides[quantity],
            rule.of_quantity(quantity),
            same_machine,
            same_session,
            quantity,
        )
        label = _label_of(candidate, quantity)
        benchmarks.append(JudgedBenchmark(candidate.name, quantity, judgement, label))
        sides = before[quantity], candidate.sides[quantity]
        ran = all(side.status is Status.OK for side in sides)
        if not ran or judgement.verdict is Verdict.DIFFERENT:
            break  # the others would say the same
    return benchmarks


def _label_of(candidate: MeasuredBenchmark, quantity: str) -> str:
    if quantity == TIME:
        return candidate.name
    name = candidate.name
    if quantity == "import" and isinstance(candidate.key, str):
        name = name.partition("::")[0]  # plain benchmarks of a file are imported together
    return f"{name}, {JUDGED[quantity].words}"


def _without_repeated_labels(benchmarks: Iterable[JudgedBenchmark]) -> list[JudgedBenchmark]:
    """Return the first judgement of each label: a file's import is judged once."""
    by_label: dict[str, JudgedBenchmark] = {}
    for benchmark in benchmarks:
        by_label.setdefault(benchmark.label, benchmark)
    return list(by_label.values())


def sentence_of(judgement: Judgement, quantity: str = TIME) -> str:
    """Return the reason of a judgement, with its ratio where the reason has none."""
    if judgement.ratio is None:
        return judgement.sentence
    has_interval = judgement.ratio.low is not None
    if has_interval and judgement.verdict is not Verdict.COMPARISON:
        return judgement.sentence
    words = ("slower", "faster") if quantity == TIME else ("more", "less")
    return f"{change_in_words(judgement.ratio.value, None, None, *words)}; {judgement.sentence}"


def candidates_of_session(
    benchmarks: Iterable[Mapping[str, Any]],
    baselines: Baselines,
    host: Host,
    foreign_machine: Callable[[], str],
) -> list[MeasuredBenchmark]:
    """Return the benchmarks that pytest-benchmark measured in this session.

    Of one that ran again it is the last. ``foreign_machine`` returns this machine's fingerprint as
    in pytest-benchmark's own files. That takes a second.
    """
    candidates: dict[str, MeasuredBenchmark] = {}
    for benchmark in benchmarks:
        name = str(benchmark["fullname"])
        evidence = benchmark["extra_info"].get(KEY)
        if isinstance(evidence, dict):
            records = [Record.from_dict(record) for record in evidence["records"]]
            sides = baselines.sides_of(records, host)
            cell = records[-1].cell
            candidates[name] = MeasuredBenchmark(name, cell, sides, records[-1].machine)
            continue
        # A file of a session that measured cells, too, knows its machine by dlbench's fingerprint.
        machine = host.fingerprint
        known = baselines.machines_of(name)
        if known and machine not in known:
            machine = foreign_machine()
        launch = PlainLaunch(float(benchmark["median"]), {})
        sides = baselines.plain_sides([launch])
        candidates[name] = MeasuredBenchmark(name, name, sides, machine)
    return list(candidates.values())


def candidates_of_processes(
    files: Sequence[BenchmarkFile], disturbed: Sequence[bool], baselines: Baselines, host: Host
) -> list[MeasuredBenchmark]:
    """Return the benchmarks that fresh processes measured.

    Each file is of one process, and ``disturbed`` has whether other programs disturbed it.
    """
    launches_by_name: dict[str, list[PlainLaunch]] = {}
    for file, was_disturbed in zip(files, disturbed, strict=True):
        for benchmark in file.foreign:
            launches = launches_by_name.setdefault(benchmark.fullname, [])
            launches.append(PlainLaunch.read(benchmark, was_disturbed))
    candidates = []
    for name, launches in launches_by_name.items():
        machine = host.fingerprint
        if machine not in baselines.machines_of(name):
            machine = files[0].fingerprint
        sides = baselines.plain_sides(launches)
        candidates.append(MeasuredBenchmark(name, name, sides, machine))
    return candidates


def save(contents: Sequence[dict[str, Any]], path: Path) -> int:
    """Write the files of several processes as one; return its number of benchmarks.

    Raises OSError.
    """
    content = merged(contents)
    partial = path.with_name(f"{path.name}.part")
    partial.write_text(json_text(content, indent=4), encoding="utf-8")
    partial.replace(path)
    return len(content["benchmarks"])


def plain_side(launches: Sequence[PlainLaunch], quantity: str) -> SideOfCell:
    """Return the launches of a plain benchmark by a quantity; disturbed ones have no times."""
    counting = launches
    if is_of_clock(quantity):
        counting = [launch for launch in launches if not launch.disturbed]
    values = [launch.value(quantity) for launch in counting]
    numbers = tuple(value for value in values if value is not None)
    lost = len(launches) - len(counting)
    return SideOfCell(Status.OK, "", len(numbers), numbers, lost)


def _judge(
    before: SideOfCell,
    after: SideOfCell,
    rule: Rule,
    same_machine: bool,
    same_session: bool,
    quantity: str,
) -> Judgement:
    values = (*before.launch_medians, *after.launch_medians)
    if values and is_of_clock(quantity) and min(values) < CLOCK_SECONDS:
        words = "shorter than the clock resolves: no ratio. Let the benchmark do more in each call"
        return Judgement(Verdict.INCONCLUSIVE, words, before.launches, after.launches)
    # The machine's speed shifts from session to session, and no count does.
    alike = same_session or not is_of_clock(quantity)
    return judge_sides(before, after, rule, same_machine, alike, quantity)


def _remedies(
    benchmarks: Sequence[JudgedBenchmark],
    candidates: Sequence[MeasuredBenchmark],
    both_sides_ran: bool,
) -> list[str]:
    """Return sentences about the next command.

    They say how to get a verdict when plain benchmarks have too few processes on a side, and how to
    find the operators of slower ones, which are profiled if ``both_sides_ran``.
    """
    plain = {candidate.name for candidate in candidates if isinstance(candidate.key, str)}
    now: list[int] = []
    before: list[int] = []
    for judged in benchmarks:
        judgement = judged.judgement
        has_interval = judgement.ratio is not None and judgement.ratio.low is not None
        if judged.name not in plain or has_interval or judgement.verdict is Verdict.HOLE:
            continue
        if judgement.candidate_launches < FEWEST_LAUNCHES:
            now.append(judgement.candidate_launches)
        if judgement.baseline_launches < FEWEST_LAUNCHES:
            before.append(judgement.baseline_launches)
    remedies = []
    if now:
        remedies.append(
            f"{_processes(max(now))} on this side: no verdict; `--dlbench-processes "
            f"{ENOUGH_PROCESSES}` measures enough."
        )
    if before:
        remedies.append(
            f"{_processes(max(before))} in the baseline: no verdict; `--dlbench-processes "
            f"{ENOUGH_PROCESSES} --dlbench-save=FILE` saves enough."
        )
    slower = set()
    for judged in benchmarks:
        if judged.quantity == TIME and judged.verdict is Verdict.REGRESSION:
            slower.add(judged.name)
    if slower and not both_sides_ran:
        remedies.append(_how_to_find_operators(slower, candidates))
    return remedies


def _how_to_find_operators(slower: set[str], candidates: Sequence[MeasuredBenchmark]) -> str:
    """Return the command that names the operators which got slower.

    A session has the times of the baseline, and not the baseline itself, which a profiler needs.
    """
    cells = []
    for candidate in candidates:
        if candidate.name in slower and isinstance(candidate.key, Cell):
            cells.append(candidate.key)
    if cells:
        names = f"{cells[0].framework}/{cells[0].network}"
        return f"Which operator got slower: `dlbench explain {names} --against RELEASE|PYTHON`."
    return (
        "Which operator got slower: --dlbench-baseline-checkout=FOLDER with --dlbench-processes "
        f"{ENOUGH_PROCESSES} runs the baseline's code too, and compares the operators."
    )


def _processes(count: int) -> str:
    return counted(count, "process", "processes")


def follow_root(baselines: Baselines, names: set[str], root: Path, started: Path) -> None:
    """Rename the baseline's benchmarks if pytest's root folder is not the baseline's; note it.

    Ids of tests begin at the root folder. That is the common folder of the tests on the command
    line, and pytest takes an existing path in a word of its own for a test. ``names`` are the
    benchmarks of this session, ``root`` is its root folder, and ``started`` the folder in which
    pytest was started. Nothing is renamed where a name fits as it is.
    """
    if names & set(baselines.names):
        return
    below = started.relative_to(root).parts if started.is_relative_to(root) else ()
    for count in range(1, len(below) + 1):
        start = "/".join(below[:count]) + "/"
        if names & {start + name for name in baselines.names}:
            baselines.rename({name: start + name for name in baselines.names})
            baselines.notes.append(_OTHER_ROOT.format(f"under {start}"))
            return
    above = root.parts[1:]
    for count in range(1, len(above) + 1):
        start = "/".join(above[-count:]) + "/"
        longer = [name for name in baselines.names if name.startswith(start)]
        shorter = {name: name.removeprefix(start) for name in longer}
        if names & set(shorter.values()):
            baselines.rename(shorter)
            baselines.notes.append(_OTHER_ROOT.format(f"without {start}"))
            return


def _is_json(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"["))
    except (OSError, ValueError):
        return path.name.endswith(".json")


def _newest(records: Iterable[Record]) -> dict[tuple[Cell, str], list[Record]]:
    """Return the records of the newest run that gave a number, by cell and machine.

    Of a comparison they are the candidate's.
    """
    runs: dict[tuple[Cell, str], dict[str, list[Record]]] = {}
    for record in sorted(records, key=lambda record: record.started):
        if record.side in ("", CANDIDATE):
            records_by_run = runs.setdefault((record.cell, record.machine), {})
            records_by_run.setdefault(record.run, []).append(record)
    newest = {}
    for place, records_by_run in runs.items():
        timed = [launches for launches in records_by_run.values() if counting_records(launches)]
        if timed:
            newest[place] = timed[-1]
    return newest
