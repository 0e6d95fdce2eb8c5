"""The judgement of a session's benchmarks against a baseline; `verdict` loads it once there is
something to judge.

Every benchmark is judged by its launches. The baseline was measured in another session: intervals
allow for a shift of the machine (`compare.verdict`), and fewer than three launches on a side give
no verdict.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.compare.report import GateOutcome, outcome_of
from dlbench.reports.formats.json import json_text
from dlbench.reports.pytest_benchmark.export import KEY, counted
from dlbench.reports.pytest_benchmark.imported import (
    BenchmarkFile,
    FileError,
    Sessions,
    launches_of,
    read,
    repetition_of,
)
from dlbench.reports.pytest_benchmark.processes import merged
from dlbench.reports.results.comparison import SideOfCell, judge_sides, side_of
from dlbench.reports.results.hosts import FOREIGN_KEY, UNKNOWN_MACHINE, Host, read_host
from dlbench.reports.results.naming import counted as number_of
from dlbench.reports.results.naming import listed
from dlbench.reports.results.number_text import change_in_words
from dlbench.reports.results.record import CANDIDATE, Record
from dlbench.reports.results.results import Results
from dlbench.reports.results.verdict import DEFAULT, FEWEST_LAUNCHES, Judgement, Verdict, adjust

from .options import ENOUGH_PROCESSES

Key = Cell | str
"""A benchmark's cell, or the full name of a plain benchmark."""
_OTHER_ROOT = (
    "pytest's root folder is not that of the baseline, whose benchmarks were looked up {}. Write "
    "a file after an equals sign (--dlbench-baseline=FILE): pytest takes a path in a word of its "
    "own for a test."
)
CLOCK_SECONDS = 1e-9
"""What clocks of Python resolve; no ratio is formed of shorter times."""


@dataclass(frozen=True)
class Candidate:
    """A benchmark of this session."""

    name: str
    """Its full name, the id of its test."""
    key: Key
    side: SideOfCell
    machine: str
    """Fingerprint."""


@dataclass
class Baselines:
    """Launches by benchmark and machine; later ones of the same cell on the same machine replace
    earlier ones.
    """

    sides: dict[tuple[Key, str], SideOfCell] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Sentences on what was left out of the files."""
    _sessions: Sessions = field(default_factory=Sessions)

    def add(self, target: str) -> None:
        """Add a JSON file of pytest-benchmark, a folder of these, or a store; raises
        DlbenchError.
        """
        if "://" not in target and Path(target).is_dir():
            self._add_folder(target)
        elif "://" not in target and _is_json(Path(target)):
            self._add_named(target)
        elif "://" not in target and Path(target).is_file() and Path(target).stat().st_size == 0:
            raise FileError(f"{target} is empty. Save the baseline again, or name another file.")
        else:
            self._add_store(target)

    def add_file(self, file: BenchmarkFile, disturbed: bool = False) -> None:
        """Add the benchmarks of a file; each process of plain benchmarks is one more launch.

        Launches that other programs ``disturbed`` are counted as such, and their times are not.
        """
        if repetition := repetition_of(file):
            self.notes.append(repetition)
        host = read_host(file.fingerprint, file.machine)
        for (cell, machine), records in _newest(file.records).items():
            self.sides[cell, machine] = side_of(records, host)
        measured = file.measurements
        repeated = self._sessions.repeated(file.made, measured)
        self._sessions.add(file.made, file.name, measured)
        for launch in launches_of(file):
            for benchmark in launch.foreign:
                if benchmark.fullname not in repeated:
                    self._add_launch(
                        benchmark.fullname, launch.fingerprint, benchmark.stats.median, disturbed
                    )
        if repeated:
            self.notes.append(
                f"{file.name} repeats measurements of an earlier file; they count once."
            )

    def find(self, key: Key, machine: str) -> tuple[SideOfCell, str] | None:
        """Return the launches of a benchmark, preferably on this machine, and their machine."""
        of_machines = {of: side for (other, of), side in self.sides.items() if other == key}
        of = machine if machine in of_machines else next(iter(of_machines), "")
        return (of_machines[of], of) if of_machines else None

    def machines_of(self, key: Key) -> set[str]:
        """Return the machines that measured a benchmark."""
        return {machine for other, machine in self.sides if other == key}

    @property
    def names(self) -> list[str]:
        """The full names of plain benchmarks."""
        return list(dict.fromkeys(key for key, _ in self.sides if isinstance(key, str)))

    def rename(self, names: Mapping[str, str]) -> None:
        """Change full names of plain benchmarks."""
        renamed = {}
        for (key, machine), side in self.sides.items():
            renamed[names.get(key, key) if isinstance(key, str) else key, machine] = side
        self.sides = renamed

    def _add_folder(self, target: str) -> None:
        files = sorted(Path(target).glob("*.json"))
        if not files:
            raise FileError(
                f"{target} is a folder without a pytest-benchmark JSON. Name a file, or another "
                "folder."
            )
        for file in files:
            self._add_named(str(file))

    def _add_named(self, target: str) -> None:
        file = read(target)
        if not (file.benchmarks or file.records):
            raise FileError(
                f"{target} holds no benchmark. Save the baseline again, or name another file."
            )
        self.add_file(file)

    def _add_store(self, target: str) -> None:
        results = Results.read([target])
        if not results.records:
            raise FileError(f"{target} holds no measurement. Name another store or file.")
        for (cell, machine), records in _newest(results.records).items():
            kept = records[-1].outcome.software.get(FOREIGN_KEY)
            key = str(kept["fullname"]) if isinstance(kept, dict) and "fullname" in kept else cell
            self.sides[key, machine] = side_of(records, results.hosts.get(machine))

    def _add_launch(self, name: str, machine: str, seconds: float, disturbed: bool) -> None:
        earlier = self.sides.get((name, machine), plain_side())
        times = earlier.launch_medians if disturbed else (*earlier.launch_medians, seconds)
        self.sides[name, machine] = plain_side(*times, disturbed=earlier.contended + disturbed)


@dataclass(frozen=True)
class Judged:
    """The judgements of a session."""

    judgements: tuple[tuple[str, Judgement], ...]
    """By the full names of benchmarks."""
    added: tuple[str, ...]
    """Benchmarks that the baseline lacks: new or renamed ones."""
    gone: tuple[str, ...]
    """Benchmarks of the baseline that this session did not measure."""
    notes: tuple[str, ...]

    @property
    def outcome(self) -> GateOutcome:
        """The outcome of the session; a comparison with another machine says nothing about a
        change.
        """
        verdicts = (judgement.verdict for _, judgement in self.judgements)
        counts: Counter[Verdict] = Counter(
            Verdict.INCONCLUSIVE if verdict is Verdict.COMPARISON else verdict
            for verdict in verdicts
        )
        return outcome_of(counts, "benchmark")

    @property
    def lines(self) -> list[tuple[str, bool]]:
        """What to show, and whether in red."""
        order = list(Verdict)
        counts = Counter(judgement.verdict for _, judgement in self.judgements)
        width = max(map(len, counts), default=0)
        shown = sorted(self.judgements, key=lambda pair: (order.index(pair[1].verdict), pair[0]))
        lines = [
            (
                f"{judgement.verdict:{width}}  {name}: {sentence_of(judgement)}",
                judgement.verdict is Verdict.REGRESSION,
            )
            for name, judgement in shown
        ]
        if counts:
            lines.append(
                (
                    ", ".join(
                        f"{counts[verdict]} {verdict}" for verdict in order if counts[verdict]
                    ),
                    False,
                )
            )
        if self.added:
            lines.append((f"Not in the baseline (new or renamed): {listed(self.added, 10)}", False))
        if self.gone:
            lines.append(
                (
                    (
                        "In the baseline, not measured now (removed, renamed or failed): "
                        f"{listed(self.gone, 10)}"
                    ),
                    False,
                )
            )
        lines += [(note, False) for note in self.notes]
        return lines


def judge_all(
    baselines: Baselines,
    candidates: Sequence[Candidate],
    left_out: Callable[[str], bool],
    in_turns: bool = False,
) -> Judged:
    """Judge the benchmarks of a session.

    ``left_out`` tells whether the session chose not to run a benchmark of the baseline,
    ``in_turns`` whether the baseline was measured meanwhile, on the same machine.
    """
    judged: dict[str, Judgement] = {}
    for candidate in candidates:
        side = baselines.find(candidate.key, candidate.machine)
        if side is not None:
            same_machine = in_turns or side[1] == candidate.machine != UNKNOWN_MACHINE
            judged[candidate.name] = _judge(side[0], candidate.side, same_machine, in_turns)
    judgements = tuple(zip(judged, adjust(list(judged.values())), strict=True))
    known = {candidate.key for candidate in candidates}
    added = tuple(candidate.name for candidate in candidates if candidate.name not in judged)
    gone = tuple(name for name in baselines.names if name not in known and not left_out(name))
    return Judged(judgements, added, gone, (*baselines.notes, *_remedies(judgements, candidates)))


def sentence_of(judgement: Judgement) -> str:
    """Return the reason of a judgement, with its ratio where the reason has none."""
    if judgement.ratio is None or (
        judgement.low is not None and judgement.verdict is not Verdict.COMPARISON
    ):
        return judgement.sentence
    return f"{change_in_words(judgement.ratio, None, None)}; {judgement.sentence}"


def candidates_of_session(
    benchmarks: Iterable[Mapping[str, Any]],
    baselines: Baselines,
    host: Host,
    foreign_machine: Callable[[], str],
) -> list[Candidate]:
    """Return the benchmarks that pytest-benchmark measured in this session; the last of those that
    ran again.

    ``foreign_machine`` returns this machine's fingerprint as in pytest-benchmark's own files. That
    takes a second.
    """
    candidates: dict[str, Candidate] = {}
    for benchmark in benchmarks:
        name = str(benchmark["fullname"])
        kept = benchmark["extra_info"].get(KEY)
        if isinstance(kept, dict):
            records = [Record.from_dict(record) for record in kept["records"]]
            side = side_of(records, host)
            candidates[name] = Candidate(name, records[-1].cell, side, records[-1].machine)
            continue
        # A file of a session that measured cells, too, knows its machine by dlbench's fingerprint.
        known = baselines.machines_of(name)
        machine = host.fingerprint if host.fingerprint in known or not known else foreign_machine()
        candidates[name] = Candidate(name, name, plain_side(float(benchmark["median"])), machine)
    return list(candidates.values())


def candidates_of_processes(
    files: Sequence[BenchmarkFile], disturbed: Sequence[bool], baselines: Baselines, host: Host
) -> list[Candidate]:
    """Return the benchmarks that fresh processes measured.

    Each file is of one process, ``disturbed`` tells which of them other programs did.
    """
    times: dict[str, list[float]] = {}
    lost: Counter[str] = Counter()
    for file, was_disturbed in zip(files, disturbed, strict=True):
        for benchmark in file.foreign:
            undisturbed = times.setdefault(benchmark.fullname, [])
            if was_disturbed:
                lost[benchmark.fullname] += 1
            else:
                undisturbed.append(benchmark.stats.median)
    candidates = []
    for name, seconds in times.items():
        known = baselines.machines_of(name)
        machine = host.fingerprint if host.fingerprint in known else files[0].fingerprint
        candidates.append(
            Candidate(name, name, plain_side(*seconds, disturbed=lost[name]), machine)
        )
    return candidates


def save(contents: Sequence[dict[str, Any]], path: Path) -> int:
    """Write the files of several processes as one; return how many benchmarks it holds. Raises
    OSError.
    """
    content = merged(contents)
    half = path.with_name(f"{path.name}.part")
    half.write_text(json_text(content, indent=4), encoding="utf-8")
    half.replace(path)
    return len(content["benchmarks"])


def plain_side(*seconds: float, disturbed: int = 0) -> SideOfCell:
    """Return the launches of a plain benchmark by the median of each; beside them so many were
    ``disturbed``.
    """
    return SideOfCell(Status.OK, "", len(seconds), seconds, disturbed)


def _judge(
    before: SideOfCell, after: SideOfCell, same_machine: bool, same_session: bool
) -> Judgement:
    times = (*before.launch_medians, *after.launch_medians)
    if times and min(times) < CLOCK_SECONDS:
        words = "shorter than the clock resolves: no ratio. Let the benchmark do more in each call"
        return Judgement(Verdict.INCONCLUSIVE, words, before.launches, after.launches)
    return judge_sides(before, after, DEFAULT, same_machine, same_session)


def _remedies(
    judgements: Sequence[tuple[str, Judgement]], candidates: Sequence[Candidate]
) -> list[str]:
    """Return how to get a verdict where plain benchmarks have too few processes on a side."""
    plain = {candidate.name for candidate in candidates if isinstance(candidate.key, str)}
    few = [judgement for name, judgement in judgements if name in plain and judgement.low is None]
    now = [found.candidate_launches for found in few if found.candidate_launches < FEWEST_LAUNCHES]
    before = [found.baseline_launches for found in few if found.baseline_launches < FEWEST_LAUNCHES]
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
    return remedies


def _processes(count: int) -> str:
    return number_of(count, "process", "processes")


def follow_root(baselines: Baselines, names: set[str], root: Path, started: Path) -> None:
    """Rename the baseline's benchmarks where pytest's root folder is another than the baseline's,
    and note it.

    Ids of tests begin at the root folder. That is what the tests on the command line have in
    common, and pytest takes an existing path in a word of its own for a test. ``names`` are the
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
        shorter = {
            name: name.removeprefix(start) for name in baselines.names if name.startswith(start)
        }
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
    """Return by cell and machine the records of the newest run that gave a number; of a comparison
    its candidate's.
    """
    runs: dict[tuple[Cell, str], dict[str, list[Record]]] = {}
    for record in sorted(records, key=lambda record: record.started):
        if record.side in ("", CANDIDATE):
            runs.setdefault((record.cell, record.machine), {}).setdefault(record.run, []).append(
                record
            )
    newest = {}
    for place, by_run in runs.items():
        timed = [of_run for of_run in by_run.values() if counted(of_run)]
        if timed:
            newest[place] = timed[-1]
    return newest
