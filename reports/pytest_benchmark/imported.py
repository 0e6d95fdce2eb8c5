"""pytest-benchmark's JSON files, dlbench's own and others, as runs with records.

No file is trusted: strict JSON within limits, and names that are safe for terminals and databases.
"""

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from operator import itemgetter
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
)

from dlbench.adapters.protocol import (
    UNKNOWN,
    Cell,
    Outcome,
    Parity,
    Protocol,
    SampleStatistics,
    Status,
)
from dlbench.reports.pytest_benchmark.export import (
    FILE_SCHEMA,
    KEY,
    PROCESSES_KEY,
    probed,
    samples_of,
)
from dlbench.reports.results.commits import commit_id, commit_in_words
from dlbench.reports.results.errors import RecordError, ReportError
from dlbench.reports.results.hosts import FOREIGN_KEY, UNKNOWN_MACHINE, recorded_cpu
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.naming import counted, listed
from dlbench.reports.results.record import (
    IMPORTED,
    PYTEST_BENCHMARK,
    Record,
    Run,
    fault_in_words,
    reason_of,
)
from dlbench.reports.results.safe_text import WHOLE, visible

LARGEST_FILE = 500_000_000
"""Bytes; a larger file is refused unread."""
DEEPEST = 64
"""Levels of nesting of a file; no benchmark needs more, and the store must be able to write it
again."""
LONGEST_NAME = 128
"""Characters, as the store's columns have them."""
LONGEST_BENCHMARK_NAME = 1000
"""Characters of a benchmark's name, which is in no column."""
_WRITTEN_WITHIN = timedelta(minutes=1)
"""How far the times of two files of one session lie apart: pytest-benchmark notes when it writes a
file."""
_AGREEMENT = (
    1e-9  # relative difference allowed between ``stats.data`` and the records it was made of
)


class FileError(ReportError):
    """A file that cannot be read as pytest-benchmark's."""


def _newest(schema: int) -> int:
    if not 1 <= schema <= FILE_SCHEMA:
        raise ValueError(
            f"it has schema version {schema}, this dlbench reads up to {FILE_SCHEMA}; use a newer "
            "one"
        )
    return schema


Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Schema = Annotated[int, Field(alias="schema"), AfterValidator(_newest)]
KeptRecord = Annotated[Record, PlainValidator(Record.from_dict)]


def _moment(text: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        # pytest-benchmark wrote UTC without saying so for years.
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{clean_name(str(text))[:40]!r} is not a date") from error


class _Data(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


def _if_finite(value: Any) -> Any:
    """Return a number of seconds; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value <= 1e9 else None


Spread = Annotated[float | None, BeforeValidator(_if_finite)]
"""Seconds, None where the file has no such number."""


class Measurement(NamedTuple):
    """A benchmark's statistics in one session, whether its samples were kept or not; seconds of a
    call.
    """

    samples: int
    iterations: int
    """Calls in each sample."""
    median: float
    minimum: float | None
    maximum: float | None
    mean: float | None

    def repeats(self, other: "Measurement") -> bool:
        """Tell whether both are the same numbers; a store rounds samples to nanoseconds."""
        if (self.samples, self.iterations) != (other.samples, other.iterations):
            return False
        nanosecond = 1e-9 / self.iterations
        known = [
            (a, b)
            for a, b in zip(self[2:], other[2:], strict=True)
            if a is not None and b is not None
        ]
        return all(math.isclose(a, b, rel_tol=_AGREEMENT, abs_tol=nanosecond) for a, b in known)


class Stats(_Data):
    """Of one benchmark; ``data`` is missing where it was saved without --benchmark-save-data.

    Further keys are kept, for the file that is written again.
    """

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)

    median: Seconds
    iterations: Annotated[int, Field(ge=1, le=10**12)] = 1
    data: list[Seconds] | None = None
    rounds: Annotated[int, Field(ge=1, le=10**12)] | None = None
    min: Spread = None
    max: Spread = None
    mean: Spread = None
    stddev: Spread = None
    iqr: Spread = None

    def measurement(self) -> Measurement:
        """Return what tells these times from those of any other session."""
        if not self.data:
            samples = self.rounds or 1
            return Measurement(samples, self.iterations, self.median, self.min, self.max, self.mean)
        return _measurement_of(self.data, self.iterations)

    def of_samples_not_kept(self) -> SampleStatistics | None:
        """Return the statistics of samples that the file does not have; None where it has them."""
        if self.data:
            return None
        return SampleStatistics(
            samples=self.rounds or 1,
            median=self.median,
            minimum=self.min,
            maximum=self.max,
            mean=self.mean,
            deviation=self.stddev,
            interquartile_range=self.iqr,
        )


def _measurement_of(samples: Sequence[float], iterations: int) -> Measurement:
    return Measurement(
        len(samples), iterations, median(samples), min(samples), max(samples), fmean(samples)
    )


class _Process(_Data):
    """A process that measured a benchmark, and how many of its samples are of it."""

    made: Annotated[datetime, Field(alias="datetime"), BeforeValidator(_moment)]
    samples: Annotated[int, Field(ge=1)]
    iterations: Annotated[int, Field(ge=1, le=10**12)]


class Benchmark(_Data):
    """One benchmark of the file."""

    name: str
    fullname: Annotated[str, Field(min_length=1)]
    stats: Stats
    group: str | None = None
    param: Any = None
    params: Any = None
    options: dict[str, Any] = {}
    extra_info: dict[str, Any] = {}


class _Kept(_Data):
    """``extra_info["dlbench"]`` of a benchmark of dlbench's own."""

    version: Schema
    records: Annotated[list[KeptRecord], Field(min_length=1)]
    timed: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    """Places of the records that its samples are of."""


class _Own(_Data):
    """The ``dlbench`` object of a file of dlbench's own."""

    version: Schema
    run: Annotated[Run, PlainValidator(Run.from_dict)]
    machine: dict[str, Any] | None = None
    holes: list[KeptRecord] = []


class BenchmarkFile(_Data):
    """A file: the run that dlbench wrote into it, if any, and the benchmarks of other programs."""

    name: str
    digest: str = ""
    """SHA-256 of its measurements, hexadecimal: a copy in another layout has the same."""
    benchmarks: list[Benchmark]
    made: Annotated[datetime, Field(alias="datetime"), BeforeValidator(_moment)]
    version: str
    """Of pytest-benchmark."""
    machine_info: dict[str, Any] = {}
    commit_info: dict[str, Any] = {}
    dlbench: _Own | None = None
    records: tuple[Record, ...] = ()
    """Of dlbench's run, cells without a number included."""
    repeated: tuple[str, ...] = ()
    """Benchmarks that were in it more than once, as pytest-rerunfailures writes them; the last of
    each is kept."""

    @property
    def foreign(self) -> list[Benchmark]:
        """The benchmarks of other programs."""
        return [
            each for each in self.benchmarks if self.dlbench is None or KEY not in each.extra_info
        ]

    @property
    def measurements(self) -> dict[str, Measurement]:
        """What was measured of the benchmarks of other programs, by their names."""
        return {benchmark.fullname: benchmark.stats.measurement() for benchmark in self.foreign}

    @property
    def machine(self) -> dict[str, Any] | None:
        """The description of that run's machine."""
        return None if self.dlbench is None else self.dlbench.machine

    @property
    def fingerprint(self) -> str:
        """The machine's: dlbench's own if the file has it, else one of pytest-benchmark's
        description of the CPU.
        """
        return (
            fingerprint_of(self.machine_info) if self.dlbench is None else self.dlbench.run.machine
        )

    @property
    def interpreter(self) -> str:
        """The Python that was measured: "CPython 3.11.7"."""
        keys = "python_implementation", "python_implementation_version"
        words = " ".join(str(self.machine_info.get(key) or "") for key in keys)
        return clean_name(words.strip()) or "unknown"


def read(path: str | os.PathLike[str]) -> BenchmarkFile:
    """Read a file; raises FileError with one line that names the file and the fault."""
    name = os.fspath(path)
    raw = _read_bytes(name)
    return _accepted(name, lambda: _parse_json(raw))


def accept(name: str, content: dict[str, Any]) -> BenchmarkFile:
    """Return a file by its parsed content; raises FileError as `read` does."""
    return _accepted(name, lambda: content)


def _read_bytes(name: str) -> bytes:
    try:
        # A shell's <(...) is a pipe too, which somebody writes.
        if Path(name).is_fifo() and not name.startswith(("/dev/", "/proc/")):
            raise FileError(f"{name} cannot be read: it is a pipe. Name a file.")
        with Path(name).open("rb") as stream:
            if os.fstat(stream.fileno()).st_size <= LARGEST_FILE:
                raw = stream.read(LARGEST_FILE + 1)
                if len(raw) <= LARGEST_FILE:
                    return raw
    except (OSError, ValueError) as error:
        raise FileError(
            f"{name} cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from error
    raise FileError(
        f"{name} is larger than {LARGEST_FILE // 10**6} MB, the limit. Save fewer benchmarks in a "
        "file."
    )


_ENCODED = {
    b"\x1f\x8b": "it is compressed by gzip. Unpack it first: gunzip FILE",
    b"BZh": "it is compressed by bzip2. Unpack it first: bunzip2 FILE",
    b"\xfd7zXZ": "it is compressed by xz. Unpack it first: unxz FILE",
    b"\x28\xb5\x2f\xfd": "it is compressed by zstd. Unpack it first: unzstd FILE",
    b"PK\x03\x04": "it is a zip archive. Unpack it first",
    b"\xff\xfe\0\0": "it is text in UTF-32. Save it as UTF-8",
    b"\0\0\xfe\xff": "it is text in UTF-32. Save it as UTF-8",
    b"\xff\xfe": "it is text in UTF-16, as PowerShell's > writes it. Save it as UTF-8",
    b"\xfe\xff": "it is text in UTF-16. Save it as UTF-8",
    b"{\0": "it is text in UTF-16. Save it as UTF-8",
    b"\0{": "it is text in UTF-16. Save it as UTF-8",
    b"SQLite format 3": "it is a store, not a file of pytest-benchmark",
}
"""What a file is that begins with these bytes, and what to do."""


def encoding_in_words(raw: bytes) -> str:
    """Return what a file is that begins with these bytes, and what to do; empty for one that may be
    JSON.
    """
    return next((words for beginning, words in _ENCODED.items() if raw.startswith(beginning)), "")


def _parse_json(raw: bytes) -> Any:
    """Parse JSON; raises ValueError for bytes that are not UTF-8 or JSON, and for duplicate
    keys.
    """
    if not raw.strip():
        raise ValueError("it is empty")
    if words := encoding_in_words(raw):
        raise ValueError(words)

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) < len(found):
            twice, _ = Counter(key for key, _ in found).most_common(1)[0]
            raise ValueError(f"the key {twice[:60]!r} appears twice in an object")
        return made

    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError("it is not text in UTF-8") from error
    return json.loads(text, object_pairs_hook=pairs)


def _accepted(name: str, parse: Callable[[], Any]) -> BenchmarkFile:
    """Return the file if it is sound; raises FileError."""
    found: Any = None
    try:
        found = parse()
        if _deeper(found, DEEPEST):
            raise ValueError(f"it is nested more than {DEEPEST} levels deep")
        if not isinstance(found, dict):
            raise ValueError("it should be a valid dictionary")
        file = BenchmarkFile.model_validate({**found, "name": name, "digest": "", "records": ()})
        file = _last_of_each(file)
        records = () if file.dlbench is None else _records(file.dlbench, file.benchmarks)
        return file.model_copy(update={"records": records, "digest": _digest_of(file)})
    except (RecordError, ValidationError, ValueError, OverflowError, RecursionError) as error:
        raise FileError(
            f"{name} cannot be read as a file of pytest-benchmark: {_said(error, found)}."
        ) from error


def _last_of_each(file: BenchmarkFile) -> BenchmarkFile:
    """Return the file without attempts that were followed by another: a test is run again after it
    failed.
    """
    counts = Counter(benchmark.fullname for benchmark in file.benchmarks)
    repeated = tuple(name for name, count in counts.items() if count > 1)
    if not repeated:
        return file
    kept = list({benchmark.fullname: benchmark for benchmark in file.benchmarks}.values())
    return file.model_copy(update={"benchmarks": kept, "repeated": repeated})


def repetition_of(file: BenchmarkFile) -> str:
    """Return a sentence on the benchmarks that a file holds more than once; empty where it holds
    none.
    """
    if not file.repeated:
        return ""
    names = listed([clean_name(name) for name in file.repeated])
    return (
        f"{file.name} holds a benchmark more than once, as after a rerun; the last one counts: "
        f"{names}."
    )


def launches_of(file: BenchmarkFile) -> list[BenchmarkFile]:
    """Return a file of several processes as one file for each, any other as it is.

    dlbench's own cells hold their launches in their records, and stay out of it. Raises FileError.
    """
    by_process: dict[datetime, list[Benchmark]] = {}
    for benchmark in file.foreign:
        for moment, part in _parts_of(benchmark, file):
            by_process.setdefault(moment, []).append(part)
    if len(by_process) < 2:
        return [file]
    return [
        file.model_copy(
            update={
                "benchmarks": benchmarks,
                "made": moment,
                "digest": _hash_of(f"{file.digest} {moment.isoformat()}"),
                "dlbench": None,
                "records": (),
            }
        )
        for moment, benchmarks in sorted(by_process.items(), key=itemgetter(0))
    ]


def _parts_of(benchmark: Benchmark, file: BenchmarkFile) -> list[tuple[datetime, Benchmark]]:
    """Return when each process measured a benchmark, and the benchmark with that process's
    samples.
    """
    described = benchmark.extra_info.get(PROCESSES_KEY)
    if described is None:
        return [(file.made, benchmark)]
    try:
        processes = [_Process.model_validate(each) for each in described]
    except (ValidationError, TypeError) as error:
        raise FileError(
            f"{file.name}: {PROCESSES_KEY} of {clean_name(benchmark.fullname)} cannot be read."
        ) from error
    data = benchmark.stats.data or []
    if sum(process.samples for process in processes) != len(data):
        name = clean_name(benchmark.fullname)
        raise FileError(
            f"{file.name}: the samples of {name} are not those of its processes; one of the two "
            "was changed."
        )
    rest = {key: value for key, value in benchmark.extra_info.items() if key != PROCESSES_KEY}
    parts, first = [], 0
    for process in processes:
        samples = data[first : first + process.samples]
        first += process.samples
        stats = Stats(median=median(samples), iterations=process.iterations, data=samples)
        parts.append(
            (process.made, benchmark.model_copy(update={"stats": stats, "extra_info": rest}))
        )
    return parts


def _said(error: BaseException, content: Any) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON ({error.msg} at line {error.lineno}); it may be cut off"
    if isinstance(error, ValidationError):
        return _of_benchmark(error, content) or reason_of(error).rstrip(".")
    return reason_of(error).rstrip(".")


def _of_benchmark(error: ValidationError, content: Any) -> str:
    """Return the first fault with the name of its benchmark; empty if it is the fault of none."""
    first = error.errors(include_url=False)[0]
    place = first["loc"]
    if len(place) < 2 or place[0] != "benchmarks" or not isinstance(place[1], int):
        return ""
    benchmark = content["benchmarks"][place[1]]
    name = (
        benchmark.get("fullname") or benchmark.get("name") if isinstance(benchmark, dict) else None
    )
    which = (
        f"the benchmark {clean_name(str(name))}"
        if name
        else f"benchmark {place[1] + 1} of the file"
    )
    key = ".".join(map(str, place[2:]))
    message = fault_in_words(first)
    return f"{which}: {key}: {message}" if key else f"{which}: {message}"


def _digest_of(file: BenchmarkFile) -> str:
    """Return a digest of when and what a file's foreign benchmarks measured, whatever else it says
    of them.
    """
    measured = sorted((name, repr(measurement)) for name, measurement in file.measurements.items())
    return _hash_of(json.dumps([file.made.isoformat(), measured]))


def _deeper(value: Any, levels: int) -> bool:
    """Tell whether lists and objects are nested deeper than ``levels``."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return False
    return levels == 0 or any(_deeper(each, levels - 1) for each in value)


def _records(own: _Own, benchmarks: Iterable[Benchmark]) -> tuple[Record, ...]:
    """Return the records of the run that dlbench wrote into a file; raises ValueError where they do
    not fit it.
    """
    run = own.run
    names, cells = [run.id, run.suite, run.machine, run.version], {*run.plan}
    described = probed(own.machine)
    if described is not None and described.fingerprint != run.machine:
        raise ValueError("the machine it describes differs from the one its run names")
    found = list(own.holes)
    for benchmark in benchmarks:
        if KEY in benchmark.extra_info:
            kept = _Kept.model_validate(benchmark.extra_info[KEY])
            _check_samples(benchmark, kept)
            found += kept.records
    for record in found:
        if (record.run, record.suite, record.machine) != (run.id, run.suite, run.machine):
            raise ValueError(f"a record is not of the file's own run {run.id}")
        names += [record.environment, record.interpreter, record.side, record.stage]
        cells.add(record.cell)
    for name in (*names, *(text for cell in cells for text in cell if isinstance(text, str))):
        if not (len(name) <= LONGEST_NAME and name.isprintable()):
            raise ValueError(
                f"it holds a name that is too long or cannot be printed: {clean_name(name)[:60]}"
            )
    of_launch = {launch_key(record): record for record in found}
    return tuple(sorted(of_launch.values(), key=lambda record: (record.started, record.launch)))


def _check_samples(benchmark: Benchmark, kept: _Kept) -> None:
    """Refuse a benchmark whose data were changed, or are not those of its records."""
    where = f"the benchmark {clean_name(benchmark.fullname)}"
    if len({(record.cell, record.side) for record in kept.records}) > 1:
        raise ValueError(f"{where} holds records of several cells")
    if len(set(kept.timed)) < len(kept.timed) or max(kept.timed) >= len(kept.records):
        raise ValueError(f"{where} does not say which records were timed")
    data, expected = benchmark.stats.data, samples_of(kept.records[place] for place in kept.timed)
    # A nanosecond's thousandth besides: the replay clock of the plugin reads seconds since its
    # start.
    if data is not None and not (
        len(data) == len(expected)
        and all(
            math.isclose(a, b, rel_tol=_AGREEMENT, abs_tol=1e-12)
            for a, b in zip(data, expected, strict=True)
        )
    ):
        raise ValueError(
            f"the data of {where} do not match its dlbench records; one of the two was changed"
        )


def clean_name(text: str, longest: int = LONGEST_NAME) -> str:
    """Return a name that every table and database takes: printable, at most ``longest`` characters,
    still its own.

    A longer name keeps its beginning and its end, which tell benchmarks with parameters apart.
    """
    clean = visible(text, WHOLE)
    if clean == text and len(text) <= longest:
        return text
    if len(clean) + 9 <= longest:
        return f"{clean}~{_hash_of(text)[:8]}"
    half = (longest - 10) // 2
    return f"{clean[:half]}~{_hash_of(text)[:8]}~{clean[-half:]}"


def launch_key(record: Record) -> tuple[object, ...]:
    """Return the key of a launch within its run."""
    return record.cell, record.side, record.stage, record.launch, record.attempt


def fingerprint_of(machine_info: Mapping[str, Any]) -> str:
    """Return a machine's fingerprint by a file's ``machine_info``: dlbench's own where it is there,
    else a hash.

    `UNKNOWN_MACHINE` where the file does not say which CPU it has. The host's name, the kernel and
    clock rates play no part, nor do keys that only some versions of pytest-benchmark write, so that
    a machine keeps its fingerprint.
    """
    own = machine_info.get(KEY)
    name = own.get("fingerprint") if isinstance(own, dict) else None
    if isinstance(name, str) and len(name) <= LONGEST_NAME and name.isprintable():
        return name
    cpu = recorded_cpu(machine_info)
    if not cpu.model:
        return UNKNOWN_MACHINE
    system = [machine_info.get(key) for key in ("machine", "system")]
    return "pb-" + _hash_of(json.dumps([*system, *cpu], default=str))[:9]


class Imported(NamedTuple):
    """A run with all its records, ready for a store."""

    run: Run
    records: tuple[Record, ...]
    machine: dict[str, Any] | None


class Sessions:
    """Sessions that measured benchmarks of other programs, to recognise files that repeat them.

    A session is written several times if it is saved with and without samples, in another layout,
    or in part.
    """

    def __init__(self) -> None:
        self._known: list[tuple[datetime, str, Mapping[str, Measurement]]] = []

    def add(self, made: datetime, name: str, measured: Mapping[str, Measurement]) -> None:
        """Add a session by its time, the name of its file or run, and its measurements by
        benchmark.
        """
        self._known.append((made, name, measured))

    def repeated(self, made: datetime, measured: Mapping[str, Measurement]) -> dict[str, str]:
        """Return the benchmarks that were measured in a session added before, with its name.

        It is the same session only if it measured the same of every benchmark that both have.
        """
        found: dict[str, str] = {}
        for other_made, name, other in self._known:
            if abs(made - other_made) > _WRITTEN_WITHIN:
                continue
            common = [benchmark for benchmark in measured if benchmark in other]
            if all(measured[benchmark].repeats(other[benchmark]) for benchmark in common):
                found |= dict.fromkeys(common, name)
        return found


def without_copies(files: Sequence[BenchmarkFile]) -> tuple[list[BenchmarkFile], list[str]]:
    """Return the files without what repeats the measurements of another, and a sentence on each
    left out.

    Of a session that was saved with its samples and without them, those with samples are kept.
    """
    kept: dict[str, BenchmarkFile] = {}
    sessions = Sessions()
    sentences = []
    for file in sorted(files, key=_has_no_samples):
        measured = file.measurements
        if file.name in kept:
            sentences.append(
                f"{file.name} is left out: it has the same measurements as {file.name}."
            )
            continue
        repeated = sessions.repeated(file.made, measured)
        sessions.add(file.made, file.name, measured)
        # A run of dlbench's own may be in several files, each with some of its cells.
        if repeated and len(repeated) == len(measured) and file.dlbench is None:
            first = next(iter(repeated.values()))
            sentences.append(f"{file.name} is left out: it has the same measurements as {first}.")
            continue
        if repeated:
            benchmarks = [
                benchmark for benchmark in file.benchmarks if benchmark.fullname not in repeated
            ]
            kept[file.name] = file.model_copy(update={"benchmarks": benchmarks})
            count = counted(len(repeated), "benchmark")
            others = listed(list(dict.fromkeys(repeated.values())))
            sentences.append(
                f"{file.name} repeats measurements of {others}, which count once: {count} left out."
            )
        else:
            kept[file.name] = file
    return [
        kept[name] for name in dict.fromkeys(file.name for file in files) if name in kept
    ], sentences


def _has_no_samples(file: BenchmarkFile) -> bool:
    return not any(benchmark.stats.data for benchmark in file.foreign)


def may_repeat(run: Run, stored: Run) -> bool:
    """Tell whether a stored run of other programs' benchmarks is of about the same time, so may be
    of one session.
    """
    begins, ends = run.started - _WRITTEN_WITHIN, (run.finished or run.started) + _WRITTEN_WITHIN
    return (
        stored.suite == PYTEST_BENCHMARK
        and stored.started <= ends
        and (stored.finished or stored.started) >= begins
    )


def without_stored(imported: Imported, stored: Iterable[Record]) -> Imported:
    """Return a run of other programs' benchmarks without what these records of a store hold
    already.
    """
    sessions = Sessions()
    for run, records in grouped(stored, lambda record: (record.run, record.launch)).items():
        sessions.add(records[0].started, run[0], _measurements_of(records))
    kept: list[Record] = []
    for records in grouped(imported.records, lambda record: record.launch).values():
        repeated = sessions.repeated(records[0].started, _measurements_of(records))
        kept += [record for record in records if record.cell.network not in repeated]
    plan = tuple(dict.fromkeys(record.cell for record in kept))
    return imported._replace(run=replace(imported.run, plan=plan), records=tuple(kept))


def _measurements_of(records: Iterable[Record]) -> dict[str, Measurement]:
    measured = {}
    for record in records:
        outcome = record.outcome
        if outcome.samples_ns:
            measurement = _measurement_of(outcome.step_seconds(), outcome.steps_per_sample)
        elif outcome.statistics is not None:
            known = outcome.statistics
            measurement = Measurement(
                known.samples,
                outcome.steps_per_sample,
                known.median,
                known.minimum,
                known.maximum,
                known.mean,
            )
        else:
            continue
        measured[record.cell.network] = measurement
    return measured


def runs_of(files: Sequence[BenchmarkFile], version: str, one_run: bool = False) -> list[Imported]:
    """Return the runs that these files hold; ``version`` is that of this dlbench.

    The parts of a run in several files are combined. The benchmarks of other programs make one run
    per file, or with ``one_run`` a single one in which each file, the oldest first, is a launch.
    Raises FileError.
    """
    found: dict[str, Imported] = {}
    for file in files:
        if file.dlbench is not None:
            run = file.dlbench.run
            part = Imported(run, file.records, file.dlbench.machine)
            found[run.id] = _joined(found[run.id], part, file.name) if run.id in found else part
    strangers = sorted(
        (file for file in files if file.foreign), key=lambda file: (file.made, file.digest)
    )
    launches = [launches_of(file) for file in strangers]
    for group in [list(chain(*launches))] if one_run and strangers else launches:
        imported = _foreign_run(group, version)
        if imported.run.id in found:
            raise FileError(f"{group[0].name} was given twice.")
        found[imported.run.id] = imported
    return list(found.values())


def _joined(one: Imported, other: Imported, name: str) -> Imported:
    """Put two parts of a run together."""
    if replace(one.run, finished=None) != replace(other.run, finished=None):
        raise FileError(
            f"{name}: its run {one.run.id} differs from the run of that name in an earlier file."
        )
    records = {launch_key(record): record for record in one.records}
    for record in other.records:
        if records.setdefault(launch_key(record), record) != record:
            raise FileError(
                f"{name}: a launch of run {one.run.id} differs from the one in an earlier file."
            )
    return Imported(one.run, tuple(records.values()), one.machine or other.machine)


def _check_commits(files: Sequence[BenchmarkFile]) -> None:
    """Refuse files of different commits as launches of one run: a launch is a process of one
    build.
    """
    of_commit: dict[str, BenchmarkFile] = {}
    for file in files:
        name = commit_id(file.commit_info)
        # A file that names no commit may be of any.
        if name:
            of_commit.setdefault(name, file)
    if len(of_commit) > 1:
        first, second, *_ = of_commit.values()
        raise FileError(
            f"{second.name} and {first.name} are of different commits, "
            f"{commit_in_words(second.commit_info)} and {commit_in_words(first.commit_info)}, so "
            f"not launches of one run ({len(of_commit)} commits in all). Import them without "
            "--one-run, or give the files of one commit."
        )


def _foreign_run(files: Sequence[BenchmarkFile], version: str) -> Imported:
    first = files[0]
    for file in files[1:]:
        if (file.fingerprint, file.interpreter) != (first.fingerprint, first.interpreter):
            raise FileError(
                f"{file.name} and {first.name} are of different machines or Pythons, so not "
                "launches of one run."
            )
    _check_commits(files)
    if len({file.digest for file in files}) < len(files):
        raise FileError(
            f"{first.name}: one of these files was given twice, and one process is one launch."
        )
    digest = _hash_of("".join(file.digest for file in files)) if len(files) > 1 else first.digest
    run_id = f"{first.made:%Y%m%dT%H%M%S}-{digest[:6]}"
    records = [
        _foreign_record(benchmark, file, launch, run_id, version)
        for launch, file in enumerate(files)
        for benchmark in file.foreign
    ]
    # As far as the samples show it: pytest-benchmark keeps no warm-up.
    counts = [record.outcome.sample_count() for record in records]
    protocol = Protocol(warmup_steps=0, steps=max(counts), minimum_steps=min(counts))
    run = Run(
        id=run_id,
        suite=PYTEST_BENCHMARK,
        protocol=protocol,
        launches=len(files),
        plan=tuple(dict.fromkeys(record.cell for record in records)),
        machine=first.fingerprint,
        started=first.made,
        version=version,
        finished=files[-1].made,
        seed=0,
    )
    # Without the host's name: no record has it.
    info = {key: value for key, value in first.machine_info.items() if key != "node"}
    machine = first.machine if first.machine is not None else {FOREIGN_KEY: {"node": "", **info}}
    return Imported(run, tuple(replace(record, protocol=protocol) for record in records), machine)


def imported_cell(fullname: str) -> Cell:
    """Return the cell of another program's benchmark. How it was run is not known."""
    return Cell(
        framework=PYTEST_BENCHMARK,
        adapter=IMPORTED,
        mode=IMPORTED,
        network=clean_name(fullname, LONGEST_BENCHMARK_NAME),
        device=UNKNOWN,
        threads=0,
        batch_size=None,
        precision=UNKNOWN,
        placement=UNKNOWN,
        affinity=UNKNOWN,
        tuning=UNKNOWN,
    )


def _foreign_record(
    benchmark: Benchmark, file: BenchmarkFile, launch: int, run: str, version: str
) -> Record:
    stats = benchmark.stats
    kept = {
        **benchmark.model_dump(exclude={"stats"}),
        "version": file.version,
        "commit_info": file.commit_info,
    }
    samples = [round(seconds * stats.iterations * 1e9) for seconds in stats.data or ()]
    if not samples:
        kept["stats"] = stats.model_dump(exclude={"data"})
    return Record(
        run=run,
        suite=PYTEST_BENCHMARK,
        launch=launch,
        cell=imported_cell(benchmark.fullname),
        outcome=Outcome(
            Status.OK,
            samples_ns=samples,
            steps_per_sample=stats.iterations,
            statistics=stats.of_samples_not_kept(),
            parity=Parity(
                "unchecked", "imported: there is no reference", [], None, None, "", 0.0, 0.0, 0.0
            ),
            software={FOREIGN_KEY: _with_words_for_infinity(kept)},
        ),
        machine=file.fingerprint,
        environment=_hash_of(file.interpreter)[:12],
        interpreter=file.interpreter,
        protocol=Protocol(),
        started=file.made,
        wall_seconds=sum(samples) * 1e-9,
        version=version,
    )


def _with_words_for_infinity(value: Any) -> Any:
    """Return plain JSON types with a word for each number that JSON does not have: "nan", "inf",
    "-inf".
    """
    if isinstance(value, dict):
        return {key: _with_words_for_infinity(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_words_for_infinity(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _hash_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()
