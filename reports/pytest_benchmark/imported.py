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
    TypeAdapter,
    ValidationError,
)

from dlbench.adapters.protocol import UNKNOWN, Cell, Parity, Protocol, Status
from dlbench.reports.pytest_benchmark.export import (
    FILE_SCHEMA,
    KEY,
    PROCESSES_KEY,
    QUANTITIES_KEY,
    probed,
    samples_of,
)
from dlbench.reports.results.commits import commit_id, commit_in_words
from dlbench.reports.results.errors import RecordError, ReportError
from dlbench.reports.results.hosts import FOREIGN_KEY, UNKNOWN_MACHINE, recorded_cpu
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.naming import counted, listed
from dlbench.reports.results.outcome import HostFacts, Outcome, SampleStatistics
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
"""Levels of nesting of a file. No benchmark needs more, and the store must write it again."""
LONGEST_NAME = 128
"""Characters, as the store's columns have them."""
LONGEST_BENCHMARK_NAME = 1000
"""Characters of a benchmark's name, which is in no column."""
_WRITTEN_WITHIN = timedelta(minutes=1)
"""The longest time between two files of one session: they have the time of writing."""
_AGREEMENT = 1e-9
"""Relative difference allowed between ``stats.data`` and the records it was made of."""


class BenchmarkFileError(ReportError):
    """A file that cannot be read as pytest-benchmark's."""


def _newest(schema: int) -> int:
    if not 1 <= schema <= FILE_SCHEMA:
        raise ValueError(
            f"it has schema version {schema}, this dlbench reads up to {FILE_SCHEMA}; use a newer "
            "one"
        )
    return schema


Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_QUANTITIES = TypeAdapter(dict[str, Amount])
Schema = Annotated[int, Field(alias="schema"), AfterValidator(_newest)]
KeptRecord = Annotated[Record, PlainValidator(Record.from_dict)]


def _moment(text: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        # pytest-benchmark wrote UTC without saying so for years.
        if moment.tzinfo is None:
            return moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{clean_name(str(text))[:40]!r} is not a date") from error


class _Data(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


def _if_finite(value: Any) -> Any:
    """Return a number of seconds; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and 0 <= value <= 1e9:
        return value
    return None


Spread = Annotated[float | None, BeforeValidator(_if_finite)]
"""Seconds, None where the file has no such number."""


class Measurement(NamedTuple):
    """A benchmark's statistics in one session, in seconds of a call, with or without samples."""

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
        for value, other_value in zip(self[2:], other[2:], strict=True):
            if value is None or other_value is None:
                continue
            if not math.isclose(value, other_value, rel_tol=_AGREEMENT, abs_tol=nanosecond):
                return False
        return True


class Stats(_Data):
    """Statistics of one benchmark; ``data`` is missing if saved without --benchmark-save-data.

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
        """Return the numbers that distinguish these times from those of any other session."""
        if not self.data:
            samples = self.rounds or 1
            return Measurement(samples, self.iterations, self.median, self.min, self.max, self.mean)
        return _measurement(self.data, self.iterations)

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


def _measurement(samples: Sequence[float], iterations: int) -> Measurement:
    return Measurement(
        len(samples), iterations, median(samples), min(samples), max(samples), fmean(samples)
    )


class _Process(_Data):
    """A process that measured a benchmark, and the number of its samples."""

    made: Annotated[datetime, Field(alias="datetime"), BeforeValidator(_moment)]
    samples: Annotated[int, Field(ge=1)]
    iterations: Annotated[int, Field(ge=1, le=10**12)]
    quantities: dict[str, Amount] = {}


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

    @property
    def quantities(self) -> dict[str, float]:
        """Its quantities besides time, of one process, by the names of `results.judged`."""
        try:
            return _QUANTITIES.validate_python(self.extra_info.get(QUANTITIES_KEY, {}))
        except ValidationError:
            return {}


class _Kept(_Data):
    """``extra_info["dlbench"]`` of a benchmark of dlbench's own."""

    version: Schema
    records: Annotated[list[KeptRecord], Field(min_length=1)]
    timed: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    """Places of the records with its samples."""


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
    """SHA-256 of its measurements, hexadecimal. A copy in another layout has the same."""
    benchmarks: list[Benchmark]
    made: Annotated[datetime, Field(alias="datetime"), BeforeValidator(_moment)]
    version: str
    """The version of pytest-benchmark."""
    machine_info: dict[str, Any] = {}
    commit_info: dict[str, Any] = {}
    dlbench: _Own | None = None
    records: tuple[Record, ...] = ()
    """Those of dlbench's run, cells without a number included."""
    repeated: tuple[str, ...] = ()
    """Benchmarks that were in it more than once, as pytest-rerunfailures writes them.

    The last of each is kept."""

    @property
    def foreign(self) -> list[Benchmark]:
        """The benchmarks of other programs."""
        if self.dlbench is None:
            return list(self.benchmarks)
        return [benchmark for benchmark in self.benchmarks if KEY not in benchmark.extra_info]

    @property
    def measurements(self) -> dict[str, Measurement]:
        """The measurements of the benchmarks of other programs, by their names."""
        return {benchmark.fullname: benchmark.stats.measurement() for benchmark in self.foreign}

    @property
    def machine(self) -> dict[str, Any] | None:
        """The description of that run's machine."""
        return None if self.dlbench is None else self.dlbench.machine

    @property
    def fingerprint(self) -> str:
        """The machine's fingerprint: dlbench's own, or else that of the description of its CPU."""
        if self.dlbench is None:
            return fingerprint_of(self.machine_info)
        return self.dlbench.run.machine

    @property
    def interpreter(self) -> str:
        """The Python that was measured: "CPython 3.11.7"."""
        implementation = self.machine_info.get("python_implementation") or ""
        version = self.machine_info.get("python_implementation_version") or ""
        return clean_name(f"{implementation} {version}".strip()) or "unknown"


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
        # A shell's <(...) is a pipe too, but it has a writer.
        if Path(name).is_fifo() and not name.startswith(("/dev/", "/proc/")):
            raise BenchmarkFileError(f"{name} cannot be read: it is a pipe. Name a file.")
        with Path(name).open("rb") as stream:
            if os.fstat(stream.fileno()).st_size <= LARGEST_FILE:
                raw = stream.read(LARGEST_FILE + 1)
                if len(raw) <= LARGEST_FILE:
                    return raw
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BenchmarkFileError(f"{name} cannot be read: {reason}.") from error
    raise BenchmarkFileError(
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
"""The kind of a file by its first bytes, and the remedy."""


def encoding_in_words(raw: bytes) -> str:
    """Return the kind of a file by its first bytes, and the remedy; empty if it may be JSON."""
    for beginning, words in _ENCODED.items():
        if raw.startswith(beginning):
            return words
    return ""


def _parse_json(raw: bytes) -> Any:
    """Parse JSON in UTF-8.

    Raises ValueError for other bytes, and for a key that appears twice in an object.
    """
    if not raw.strip():
        raise ValueError("it is empty")
    words = encoding_in_words(raw)
    if words:
        raise ValueError(words)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError("it is not text in UTF-8") from error
    return json.loads(text, object_pairs_hook=_object_of_unique_keys)


def _object_of_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {key[:60]!r} appears twice in an object")
    return content


def _accepted(name: str, parse: Callable[[], Any]) -> BenchmarkFile:
    """Return the file if it is sound; raises FileError."""
    content: Any = None
    try:
        content = parse()
        if _is_deeper(content, DEEPEST):
            raise ValueError(f"it is nested more than {DEEPEST} levels deep")
        if not isinstance(content, dict):
            raise ValueError("it should be a valid dictionary")
        file = BenchmarkFile.model_validate({**content, "name": name, "digest": "", "records": ()})
        file = _keep_last_attempts(file)
        records: tuple[Record, ...] = ()
        if file.dlbench is not None:
            records = _records(file.dlbench, file.benchmarks)
        # A digest of the time and the measurements of the file's foreign benchmarks alone.
        measured = [(name, repr(numbers)) for name, numbers in file.measurements.items()]
        digest = _hash(json.dumps([file.made.isoformat(), sorted(measured)]))
        return file.model_copy(update={"records": records, "digest": digest})
    except (RecordError, ValidationError, ValueError, OverflowError, RecursionError) as error:
        fault = _describe_fault(error, content)
        raise BenchmarkFileError(
            f"{name} cannot be read as a file of pytest-benchmark: {fault}."
        ) from error


def _keep_last_attempts(file: BenchmarkFile) -> BenchmarkFile:
    """Return the file with the last attempt of each benchmark: a test is run again if it failed."""
    last: dict[str, Benchmark] = {}
    counts: Counter[str] = Counter()
    for benchmark in file.benchmarks:
        last[benchmark.fullname] = benchmark
        counts[benchmark.fullname] += 1
    repeated = tuple(name for name, count in counts.items() if count > 1)
    if not repeated:
        return file
    return file.model_copy(update={"benchmarks": list(last.values()), "repeated": repeated})


def repetition_of(file: BenchmarkFile) -> str:
    """Return a sentence on the benchmarks that a file holds more than once; empty without any."""
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
    benchmarks_by_process: dict[datetime, list[Benchmark]] = {}
    for benchmark in file.foreign:
        for moment, part in _split_by_process(benchmark, file):
            benchmarks_by_process.setdefault(moment, []).append(part)
    if len(benchmarks_by_process) < 2:
        return [file]
    launches = []
    for moment in sorted(benchmarks_by_process):
        changes = {
            "benchmarks": benchmarks_by_process[moment],
            "made": moment,
            "digest": _hash(f"{file.digest} {moment.isoformat()}"),
            "dlbench": None,
            "records": (),
        }
        launches.append(file.model_copy(update=changes))
    return launches


def _split_by_process(
    benchmark: Benchmark, file: BenchmarkFile
) -> list[tuple[datetime, Benchmark]]:
    """Return a benchmark with the samples of each process, and the time of that process."""
    described = benchmark.extra_info.get(PROCESSES_KEY)
    if described is None:
        return [(file.made, benchmark)]
    name = clean_name(benchmark.fullname)
    try:
        processes = [_Process.model_validate(content) for content in described]
    except (ValidationError, TypeError) as error:
        raise BenchmarkFileError(
            f"{file.name}: {PROCESSES_KEY} of {name} cannot be read."
        ) from error
    data = benchmark.stats.data or []
    if sum(process.samples for process in processes) != len(data):
        raise BenchmarkFileError(
            f"{file.name}: the samples of {name} are not those of its processes; one of the two "
            "was changed."
        )
    extra_info = dict(benchmark.extra_info)
    del extra_info[PROCESSES_KEY]
    parts = []
    first = 0
    for process in processes:
        samples = data[first : first + process.samples]
        first += process.samples
        stats = Stats(median=median(samples), iterations=process.iterations, data=samples)
        of_process = extra_info
        if process.quantities:
            of_process = {**extra_info, QUANTITIES_KEY: process.quantities}
        part = benchmark.model_copy(update={"stats": stats, "extra_info": of_process})
        parts.append((process.made, part))
    return parts


def _describe_fault(error: BaseException, content: Any) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON ({error.msg} at line {error.lineno}); it may be cut off"
    if isinstance(error, ValidationError):
        return _benchmark_fault(error, content) or reason_of(error).rstrip(".")
    return reason_of(error).rstrip(".")


def _benchmark_fault(error: ValidationError, content: Any) -> str:
    """Return the first fault with the name of its benchmark; empty if it is in no benchmark."""
    first = error.errors(include_url=False)[0]
    place = first["loc"]
    if len(place) < 2 or place[0] != "benchmarks" or not isinstance(place[1], int):
        return ""
    benchmark = content["benchmarks"][place[1]]
    name = None
    if isinstance(benchmark, dict):
        name = benchmark.get("fullname") or benchmark.get("name")
    if name:
        where = f"the benchmark {clean_name(str(name))}"
    else:
        where = f"benchmark {place[1] + 1} of the file"
    key = ".".join(map(str, place[2:]))
    if key:
        where += f": {key}"
    return f"{where}: {fault_in_words(first)}"


def _is_deeper(value: Any, levels: int) -> bool:
    """Tell whether lists and objects are nested deeper than ``levels``."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return False
    return levels == 0 or any(_is_deeper(item, levels - 1) for item in value)


def _records(own: _Own, benchmarks: Iterable[Benchmark]) -> tuple[Record, ...]:
    """Return the records of the run that dlbench wrote into a file.

    Raises ValueError where they do not fit it.
    """
    run = own.run
    machine = probed(own.machine)
    if machine is not None and machine.fingerprint != run.machine:
        raise ValueError("the machine it describes differs from the one its run names")
    records = list(own.holes)
    for benchmark in benchmarks:
        if KEY in benchmark.extra_info:
            kept = _Kept.model_validate(benchmark.extra_info[KEY])
            _check_samples(benchmark, kept)
            records += kept.records
    names = [run.id, run.suite, run.machine, run.version]
    cells = {*run.plan}
    record_by_launch = {}
    for record in records:
        if (record.run, record.suite, record.machine) != (run.id, run.suite, run.machine):
            raise ValueError(f"a record is not of the file's own run {run.id}")
        names += [record.environment, record.interpreter, record.side, record.stage]
        cells.add(record.cell)
        record_by_launch[launch_key(record)] = record
    for cell in cells:
        names += [value for value in cell if isinstance(value, str)]
    for name in names:
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise ValueError(
                f"it holds a name that is too long or cannot be printed: {clean_name(name)[:60]}"
            )
    unique_records = list(record_by_launch.values())
    unique_records.sort(key=lambda record: (record.started, record.launch))
    return tuple(unique_records)


def _check_samples(benchmark: Benchmark, kept: _Kept) -> None:
    """Refuse a benchmark whose data were changed, or are not those of its records."""
    where = f"the benchmark {clean_name(benchmark.fullname)}"
    if len({(record.cell, record.side) for record in kept.records}) > 1:
        raise ValueError(f"{where} holds records of several cells")
    if len(set(kept.timed)) < len(kept.timed) or max(kept.timed) >= len(kept.records):
        raise ValueError(f"{where} does not say which records were timed")
    timed = [kept.records[place] for place in kept.timed]
    data = benchmark.stats.data
    if data is not None and not _agree(data, samples_of(timed)):
        raise ValueError(
            f"the data of {where} do not match its dlbench records; one of the two was changed"
        )


def _agree(data: Sequence[float], expected: Sequence[float]) -> bool:
    if len(data) != len(expected):
        return False
    # A thousandth of a nanosecond too: the plugin's replay clock reads seconds since its start.
    return all(
        math.isclose(seconds, expected_seconds, rel_tol=_AGREEMENT, abs_tol=1e-12)
        for seconds, expected_seconds in zip(data, expected, strict=True)
    )


def clean_name(text: str, longest: int = LONGEST_NAME) -> str:
    """Return a unique name that every table and database takes: printable, and not too long.

    A name of more than ``longest`` characters keeps its beginning and its end, which tell
    benchmarks with parameters apart.
    """
    clean = visible(text, WHOLE)
    if clean == text and len(text) <= longest:
        return text
    if len(clean) + 9 <= longest:
        return f"{clean}~{_hash(text)[:8]}"
    half = (longest - 10) // 2
    return f"{clean[:half]}~{_hash(text)[:8]}~{clean[-half:]}"


def launch_key(record: Record) -> tuple[object, ...]:
    """Return the key of a launch within its run."""
    return record.cell, record.side, record.stage, record.launch, record.attempt


def fingerprint_of(machine_info: Mapping[str, Any]) -> str:
    """Return a machine's fingerprint by a file's ``machine_info``: dlbench's own, or else a hash.

    It is `UNKNOWN_MACHINE` if the file does not have the CPU's model. The host's name, the kernel
    and clock rates play no part, nor do keys that only some versions of pytest-benchmark write, so
    that a machine keeps its fingerprint.
    """
    own = machine_info.get(KEY)
    name = own.get("fingerprint") if isinstance(own, dict) else None
    if isinstance(name, str) and len(name) <= LONGEST_NAME and name.isprintable():
        return name
    cpu = recorded_cpu(machine_info)
    if not cpu.model:
        return UNKNOWN_MACHINE
    system = [machine_info.get(key) for key in ("machine", "system")]
    return "pb-" + _hash(json.dumps([*system, *cpu], default=str))[:9]


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
        self._sessions: list[tuple[datetime, str, Mapping[str, Measurement]]] = []

    def add(self, made: datetime, name: str, measured: Mapping[str, Measurement]) -> None:
        """Add a session: its time, the name of its file or run, its measurements by benchmark."""
        self._sessions.append((made, name, measured))

    def repeated(self, made: datetime, measured: Mapping[str, Measurement]) -> dict[str, str]:
        """Return the benchmarks that were measured in a session added before, with its name.

        It is the same session only if it measured the same of every benchmark that both have.
        """
        session_by_benchmark: dict[str, str] = {}
        for other_made, name, other in self._sessions:
            if abs(made - other_made) > _WRITTEN_WITHIN:
                continue
            common = [benchmark for benchmark in measured if benchmark in other]
            if all(measured[benchmark].repeats(other[benchmark]) for benchmark in common):
                session_by_benchmark |= dict.fromkeys(common, name)
        return session_by_benchmark


def without_copies(files: Sequence[BenchmarkFile]) -> tuple[list[BenchmarkFile], list[str]]:
    """Return the files without repeated measurements, and a sentence on each that is left out.

    If a session was saved with its samples and without them, those with samples are kept.
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
            others = []
            for benchmark in file.benchmarks:
                if benchmark.fullname not in repeated:
                    others.append(benchmark)
            kept[file.name] = file.model_copy(update={"benchmarks": others})
            count = counted(len(repeated), "benchmark")
            sources = listed(list(dict.fromkeys(repeated.values())))
            sentences.append(
                f"{file.name} repeats measurements of {sources}, which count once: {count} left "
                "out."
            )
        else:
            kept[file.name] = file
    in_order = {}
    for file in files:
        if file.name in kept:
            in_order[file.name] = kept[file.name]
    return list(in_order.values()), sentences


def _has_no_samples(file: BenchmarkFile) -> bool:
    return not any(benchmark.stats.data for benchmark in file.foreign)


def may_repeat(run: Run, stored: Run) -> bool:
    """Tell whether a stored run may be of one session with this one, by its suite and time."""
    if stored.suite != PYTEST_BENCHMARK:
        return False
    earliest = run.started - _WRITTEN_WITHIN
    latest = (run.finished or run.started) + _WRITTEN_WITHIN
    return stored.started <= latest and (stored.finished or stored.started) >= earliest


def without_stored(imported: Imported, stored: Iterable[Record]) -> Imported:
    """Return a run of other programs' benchmarks without those that these records repeat."""
    sessions = Sessions()
    stored_launches = grouped(stored, lambda record: (record.run, record.launch))
    for (run_id, _), records in stored_launches.items():
        sessions.add(records[0].started, run_id, _record_measurements(records))
    kept: list[Record] = []
    plan: dict[Cell, None] = {}
    for records in grouped(imported.records, lambda record: record.launch).values():
        repeated = sessions.repeated(records[0].started, _record_measurements(records))
        for record in records:
            if record.cell.network not in repeated:
                kept.append(record)
                plan[record.cell] = None
    run = replace(imported.run, plan=tuple(plan))
    return imported._replace(run=run, records=tuple(kept))


def _record_measurements(records: Iterable[Record]) -> dict[str, Measurement]:
    measured = {}
    for record in records:
        outcome = record.outcome
        if outcome.samples_ns:
            measurement = _measurement(outcome.step_seconds(), outcome.steps_per_sample)
        elif outcome.statistics is not None:
            statistics = outcome.statistics
            measurement = Measurement(
                statistics.samples,
                outcome.steps_per_sample,
                statistics.median,
                statistics.minimum,
                statistics.maximum,
                statistics.mean,
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
    runs: dict[str, Imported] = {}
    for file in files:
        if file.dlbench is not None:
            run_id = file.dlbench.run.id
            part = Imported(file.dlbench.run, file.records, file.dlbench.machine)
            if run_id in runs:
                part = _join(runs[run_id], part, file.name)
            runs[run_id] = part
    foreign_files = [file for file in files if file.foreign]
    foreign_files.sort(key=lambda file: (file.made, file.digest))
    launches_by_run = [launches_of(file) for file in foreign_files]
    if one_run and foreign_files:
        launches_by_run = [list(chain(*launches_by_run))]
    for launches in launches_by_run:
        imported = _foreign_run(launches, version)
        if imported.run.id in runs:
            raise BenchmarkFileError(f"{launches[0].name} was given twice.")
        runs[imported.run.id] = imported
    return list(runs.values())


def _join(one: Imported, other: Imported, name: str) -> Imported:
    """Return two parts of a run as one."""
    if replace(one.run, finished=None) != replace(other.run, finished=None):
        raise BenchmarkFileError(
            f"{name}: its run {one.run.id} differs from the run of that name in an earlier file."
        )
    records = {launch_key(record): record for record in one.records}
    for record in other.records:
        if records.setdefault(launch_key(record), record) != record:
            raise BenchmarkFileError(
                f"{name}: a launch of run {one.run.id} differs from the one in an earlier file."
            )
    return Imported(one.run, tuple(records.values()), one.machine or other.machine)


def _check_commits(files: Sequence[BenchmarkFile]) -> None:
    """Refuse files of different commits: the launches of a run are processes of one build."""
    file_by_commit: dict[str, BenchmarkFile] = {}
    for file in files:
        commit = commit_id(file.commit_info)
        # A file that names no commit may be of any.
        if commit:
            file_by_commit.setdefault(commit, file)
    if len(file_by_commit) > 1:
        first, second, *_ = file_by_commit.values()
        raise BenchmarkFileError(
            f"{second.name} and {first.name} are of different commits, "
            f"{commit_in_words(second.commit_info)} and {commit_in_words(first.commit_info)}, so "
            f"not launches of one run ({len(file_by_commit)} commits in all). Import them without "
            "--one-run, or give the files of one commit."
        )


def _check_one_run(files: Sequence[BenchmarkFile]) -> None:
    """Refuse files that cannot be the launches of one run."""
    first = files[0]
    for file in files[1:]:
        if (file.fingerprint, file.interpreter) != (first.fingerprint, first.interpreter):
            raise BenchmarkFileError(
                f"{file.name} and {first.name} are of different machines or Pythons, so not "
                "launches of one run."
            )
    _check_commits(files)
    if len({file.digest for file in files}) < len(files):
        raise BenchmarkFileError(
            f"{first.name}: one of these files was given twice, and one process is one launch."
        )


def _foreign_run(files: Sequence[BenchmarkFile], version: str) -> Imported:
    """Return the benchmarks of other programs in these files as a run with a launch for each."""
    _check_one_run(files)
    first = files[0]
    digest = first.digest
    if len(files) > 1:
        digest = _hash("".join(file.digest for file in files))
    run_id = f"{first.made:%Y%m%dT%H%M%S}-{digest[:6]}"
    records = []
    plan: dict[Cell, None] = {}
    counts = []
    for launch, file in enumerate(files):
        for benchmark in file.foreign:
            record = _foreign_record(benchmark, file, launch, run_id, version)
            records.append(record)
            plan[record.cell] = None
            counts.append(record.outcome.sample_count())
    # As far as the samples show it: pytest-benchmark keeps no warm-up.
    protocol = Protocol(warmup_steps=0, steps=max(counts), minimum_steps=min(counts))
    run = Run(
        id=run_id,
        suite=PYTEST_BENCHMARK,
        protocol=protocol,
        launches=len(files),
        plan=tuple(plan),
        machine=first.fingerprint,
        started=first.made,
        version=version,
        finished=files[-1].made,
        seed=0,
    )
    machine = first.machine
    if machine is None:
        # Without the host's name: no record has it.
        info = dict(first.machine_info)
        info.pop("node", None)
        machine = {FOREIGN_KEY: {"node": "", **info}}
    records = [replace(record, protocol=protocol) for record in records]
    return Imported(run, tuple(records), machine)


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
    quantities = benchmark.quantities
    memory = quantities.get("memory")
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
            import_seconds=quantities.get("import"),
            first_step_seconds=quantities.get("first_step"),
            peak_memory_bytes=None if memory is None else round(memory * 2**20),
            parity=Parity(
                "unchecked", "imported: there is no reference", [], None, None, "", 0.0, 0.0, 0.0
            ),
            software=HostFacts(pytest_benchmark=_replace_infinities(kept)).added_to({}),
        ),
        machine=file.fingerprint,
        environment=_hash(file.interpreter)[:12],
        interpreter=file.interpreter,
        protocol=Protocol(),
        started=file.made,
        wall_seconds=sum(samples) * 1e-9,
        version=version,
    )


def _replace_infinities(value: Any) -> Any:
    """Return plain JSON types with the words "nan", "inf" and "-inf" for those numbers."""
    if isinstance(value, dict):
        return {key: _replace_infinities(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace_infinities(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()
