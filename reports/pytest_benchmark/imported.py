"""pytest-benchmark's JSON files, dlbench's own and others, as runs with records.

No file is trusted: strict JSON within limits, and names that are safe for terminals and databases.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from dlbench.adapters.protocol import Cell, Outcome, Parity, Protocol, Status
from dlbench.hardware_probe import Machine
from dlbench.reports.errors import ReportError
from dlbench.reports.formats.inert import WHOLE, visible
from dlbench.reports.pytest_benchmark.export import FILE_SCHEMA, FOREIGN_KEY, KEY, samples_of
from dlbench.reports.storage.record import IMPORTED, RECORD_SCHEMA, Record, Run, sound

LARGEST_FILE = 500_000_000
"""Bytes; a larger file is refused unread."""
DEEPEST = 60
"""Levels of nesting; no benchmark's own information needs more, and the store must be able to write it again."""
LONGEST_NAME = 128
"""Characters, as the store's columns have them."""


class FileError(ReportError):
    """A file that cannot be read as pytest-benchmark's."""


def read_bytes(name: str) -> bytes:
    """Return a file's bytes; raises FileError where it cannot be read or is larger than `LARGEST_FILE`."""
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
        raise FileError(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    raise FileError(
        f"{name} is larger than {LARGEST_FILE // 10**6} MB, more than is read here. Save fewer benchmarks in a file."
    )


def parse_json(raw: bytes) -> Any:
    """Parse JSON; raises ValueError for bytes that are not UTF-8 or JSON, infinite numbers, and duplicate keys."""

    def constant(text: str) -> Any:
        raise ValueError(f"{text} is not a number")

    def number(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            raise ValueError(f"{text[:40]} is too large")
        return value

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) < len(found):
            keys = [key for key, _ in found]
            twice = next(key for key in made if keys.count(key) > 1)
            raise ValueError(f"the key {twice[:60]!r} appears twice in an object")
        return made

    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError("it is not text in UTF-8") from error
    return json.loads(text, parse_constant=constant, parse_float=number, object_pairs_hook=pairs)


def deeper(value: Any, levels: int) -> bool:
    """Tell whether lists and objects are nested deeper than ``levels``."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return False
    return levels == 0 or any(deeper(each, levels - 1) for each in value)


def sound_name(text: str) -> bool:
    """Tell whether a name is printable and no longer than `LONGEST_NAME`."""
    return len(text) <= LONGEST_NAME and text.isprintable()


def clean_name(text: str) -> str:
    """Return a name that every table and database takes: printable, at most `LONGEST_NAME` long, still its own."""
    clean = visible(text, WHOLE)
    if clean == text and len(text) <= LONGEST_NAME:
        return text
    return f"{clean[: LONGEST_NAME - 10]}~{hash_of(text)[:8]}"


def hash_of(text: str) -> str:
    """Return the SHA-256 of a text, hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()


def said(error: BaseException) -> str:
    """Return an error's message in one line; of a validation its place too."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return clean_name(f"{where + ': ' if where else ''}{first['msg']}")
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON ({error.msg} at line {error.lineno})"
    return " ".join(str(error).split()).rstrip(".")


_AGREEMENT = 1e-9  # relative difference allowed between ``stats.data`` and the records it was made of

_Kept = TypeVar("_Kept", Run, Record)

Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class _Data(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class Stats(_Data):
    """Of one benchmark; ``data`` is missing where it was saved without --benchmark-save-data."""

    median: Seconds
    iterations: Annotated[int, Field(ge=1, le=10**12)] = 1
    data: Annotated[list[Seconds], Field(min_length=1)] | None = None


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


class _Content(_Data):
    benchmarks: list[Benchmark]
    datetime: str
    version: str
    machine_info: dict[str, Any] = {}
    commit_info: dict[str, Any] = {}
    dlbench: dict[str, Any] | None = None


@dataclass(frozen=True)
class BenchmarkFile:
    """A file: the run that dlbench wrote into it, if any, and the benchmarks of other programs."""

    name: str
    digest: str
    """SHA-256 of its bytes, hexadecimal."""
    made: datetime
    version: str
    """Of pytest-benchmark."""
    machine_info: dict[str, Any]
    commit_info: dict[str, Any]
    run: Run | None
    machine: dict[str, Any] | None
    """The description of the run's machine."""
    records: tuple[Record, ...]
    """Of the run, cells without a number included."""
    foreign: tuple[Benchmark, ...]

    @property
    def fingerprint(self) -> str:
        """The machine's: dlbench's own if the file has it, else one of pytest-benchmark's description of the CPU."""
        return fingerprint_of(self.machine_info) if self.run is None else self.run.machine

    @property
    def interpreter(self) -> str:
        """The Python that was measured: "CPython 3.11.7"."""
        keys = "python_implementation", "python_implementation_version"
        return clean_name(" ".join(str(self.machine_info.get(key) or "") for key in keys).strip()) or "unknown"


_OF_CPU = ("arch_string_raw", "arch", "brand_raw", "count", "vendor_id_raw", "family", "model", "stepping")


def fingerprint_of(machine_info: Mapping[str, Any]) -> str:
    """Return a machine's fingerprint by a file's ``machine_info``: dlbench's own where it is there, else a hash.

    The host's name, the kernel and clock rates play no part, so that a machine keeps its fingerprint.
    """
    told = machine_info.get(KEY)
    if isinstance(told, dict) and isinstance(told.get("fingerprint"), str) and sound_name(told["fingerprint"]):
        return str(told["fingerprint"])
    cpu = machine_info.get("cpu")
    of_cpu = {key: cpu.get(key) for key in _OF_CPU} if isinstance(cpu, dict) else {}
    identity = {**{key: machine_info.get(key) for key in ("machine", "processor", "system")}, "cpu": of_cpu}
    return "pb-" + hash_of(json.dumps(identity, sort_keys=True, default=str))[:9]


def accept(name: str, content: dict[str, Any]) -> BenchmarkFile:
    """Return a file by its parsed content; raises FileError as `read` does."""
    return _accepted(name, hash_of(json.dumps(content, sort_keys=True, default=str)), lambda: content)


def records_of(kept: Mapping[str, Any]) -> list[Record]:
    """Return the records of a benchmark's own ``extra_info["dlbench"]`` that this process made."""
    return [Record.from_dict(each) for each in kept["records"]]


def read(path: str | os.PathLike[str]) -> BenchmarkFile:
    """Read a file; raises FileError with one line that names the file and the fault."""
    name = os.fspath(path)
    raw = read_bytes(name)
    return _accepted(name, hashlib.sha256(raw).hexdigest(), lambda: parse_json(raw))


def _accepted(name: str, digest: str, parse: Callable[[], Any]) -> BenchmarkFile:
    try:
        content = _Content.model_validate(parse())
    except (ValidationError, ValueError, RecursionError) as error:
        raise FileError(f"{name} cannot be read as a file of pytest-benchmark: {said(error)}.") from error
    try:
        return _checked(name, digest, content)
    except (ValueError, OverflowError, RecursionError) as error:
        raise FileError(f"{name}: {said(error)}.") from error


def _checked(name: str, digest: str, content: _Content) -> BenchmarkFile:
    nested = [content.machine_info, content.commit_info, content.dlbench]
    nested += [part for b in content.benchmarks for part in (b.params, b.param, b.options, b.extra_info)]
    if any(deeper(part, DEEPEST) for part in nested):
        raise ValueError(f"it is nested more than {DEEPEST} levels deep")
    names = [benchmark.fullname for benchmark in content.benchmarks]
    if len(set(names)) < len(names):
        twice = next(each for each in names if names.count(each) > 1)
        raise ValueError(f"the benchmark {clean_name(twice)} appears in it twice")
    run, machine, records = _our_part(content)
    ours = {benchmark.fullname for benchmark in content.benchmarks if run is not None and KEY in benchmark.extra_info}
    return BenchmarkFile(
        name=name,
        digest=digest,
        made=_moment(content.datetime),
        version=content.version,
        machine_info=content.machine_info,
        commit_info=content.commit_info,
        run=run,
        machine=machine,
        records=records,
        foreign=tuple(benchmark for benchmark in content.benchmarks if benchmark.fullname not in ours),
    )


def _our_part(content: _Content) -> tuple[Run | None, dict[str, Any] | None, tuple[Record, ...]]:
    """Return the run that dlbench wrote, its machine's description and its records; nothing in a file of others."""
    if content.dlbench is None:
        return None, None, ()
    _check_schema("its dlbench part", content.dlbench.get("schema"), FILE_SCHEMA)
    run = _validated(_RUN, "its run", content.dlbench.get("run"))
    of_cells = (text for cell in run.plan for text in cell if isinstance(text, str))
    _check_names("its run", [run.id, run.suite, run.machine, run.version, *of_cells])
    machine = content.dlbench.get("machine")
    if machine is not None and not isinstance(machine, dict):
        raise ValueError("its machine is not an object")
    if machine is not None and _fingerprint(machine) not in (None, run.machine):
        raise ValueError("the machine it describes is another than the one its run names")
    holes = content.dlbench.get("holes", [])
    if not isinstance(holes, list):
        raise ValueError("its holes are not a list")
    records = {launch_key(r): r for hole in holes for r in [_record(hole, run, "a record")]}
    for benchmark in content.benchmarks:
        kept = benchmark.extra_info.get(KEY)
        if kept is not None:
            found = _records_of(benchmark, kept, run)
            _compare(benchmark, _timed(benchmark, kept, found))
            records.update({launch_key(record): record for record in found})
    return run, machine, tuple(sorted(records.values(), key=lambda record: (record.started, record.launch)))


def _records_of(benchmark: Benchmark, kept: Any, run: Run) -> list[Record]:
    where = f"the benchmark {clean_name(benchmark.fullname)}"
    if not isinstance(kept, dict) or not isinstance(kept.get("records"), list) or not kept["records"]:
        raise ValueError(f"{where} lacks its dlbench records")
    _check_schema(where, kept.get("schema"), FILE_SCHEMA)
    found = [_record(each, run, f"a record of {where}") for each in kept["records"]]
    if len({(record.cell, record.side) for record in found}) > 1:
        raise ValueError(f"{where} holds records of several cells")
    return found


def _timed(benchmark: Benchmark, kept: Mapping[str, Any], records: Sequence[Record]) -> list[Record]:
    """Return the records that the benchmark's samples are of."""
    places = kept.get("timed")
    numbers = isinstance(places, list) and all(type(place) is int and 0 <= place < len(records) for place in places)
    if not numbers or not places or len(set(places)) < len(places):
        raise ValueError(f"the benchmark {clean_name(benchmark.fullname)} does not say which records were timed")
    return [records[place] for place in places]


def _compare(benchmark: Benchmark, timed: Sequence[Record]) -> None:
    """Refuse a benchmark whose data were changed, or are not those of its records."""
    told, expected = benchmark.stats.data, samples_of(timed)
    if told is None:
        return
    # A nanosecond's thousandth besides: the replay clock of the plugin reads seconds since its start.
    same = len(told) == len(expected) and all(
        math.isclose(a, b, rel_tol=_AGREEMENT, abs_tol=1e-12) for a, b in zip(told, expected, strict=True)
    )
    if not same:
        raise ValueError(
            f"the data of the benchmark {clean_name(benchmark.fullname)} are not those of its dlbench records; one of "
            "the two was changed"
        )


_RUN = TypeAdapter(Run)
_RECORD = TypeAdapter(Record)


def _validated(adapter: TypeAdapter[_Kept], what: str, data: Any) -> _Kept:
    if not isinstance(data, dict):
        raise ValueError(f"{what} is not an object")
    _check_schema(what, data.get("schema"), RECORD_SCHEMA)
    try:
        # Strict in JSON's own types: a number in quotation marks is text.
        return adapter.validate_json(json.dumps({k: v for k, v in data.items() if k != "schema"}), strict=True)
    except ValidationError as error:
        raise ValueError(f"{what}: {said(error)}") from error


def _record(data: Any, run: Run, what: str) -> Record:
    record = _validated(_RECORD, what, data)
    cell = record.cell
    if (record.run, record.suite, record.machine) != (run.id, run.suite, run.machine):
        raise ValueError(f"{what} is not of the file's own run {run.id}")
    _check_names(what, [*(text for text in cell if isinstance(text, str)), record.environment, record.interpreter])
    _check_names(what, [record.side, record.stage])
    if not sound(record):
        raise ValueError(f"{what} holds a number that is out of range")
    return record


def _check_names(what: str, names: Iterable[str]) -> None:
    for name in names:
        if name and not sound_name(name):
            raise ValueError(f"{what} holds a name that is too long or cannot be printed: {clean_name(name)[:60]}")


def _check_schema(what: str, found: Any, newest: int) -> None:
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ValueError(f"{what} carries no schema version")
    if found > newest:
        raise ValueError(f"{what} has schema version {found}, this dlbench reads up to {newest}; use a newer one")


def launch_key(record: Record) -> tuple[object, ...]:
    """Return the key of a launch within its run."""
    return record.cell, record.side, record.stage, record.launch, record.attempt


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        # pytest-benchmark wrote UTC without saying so for years.
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"its datetime {clean_name(text)[:40]!r} is not a date") from error


def _fingerprint(machine: Mapping[str, Any]) -> str | None:
    try:
        return Machine.from_dict(dict(machine)).fingerprint
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


FRAMEWORK = SUITE = "pytest-benchmark"


@dataclass(frozen=True)
class Imported:
    """A run with all its records, ready for a store."""

    run: Run
    records: tuple[Record, ...]
    machine: dict[str, Any] | None


def runs_of(files: Sequence[BenchmarkFile], version: str, one_run: bool = False) -> list[Imported]:
    """Return the runs that these files hold; ``version`` is that of this dlbench.

    A run whose parts stand in several files is put together. The benchmarks of somebody else make one run of each
    file, or with ``one_run`` a single one in which each file, the oldest first, is a launch. Raises FileError.
    """
    found: dict[str, Imported] = {}
    for file in files:
        if file.run is None:
            continue
        imported = Imported(file.run, file.records, file.machine)
        found[file.run.id] = _joined(found[file.run.id], imported, file) if file.run.id in found else imported
    strangers = sorted((file for file in files if file.foreign), key=lambda file: (file.made, file.digest))
    groups = [strangers] if one_run and strangers else [[file] for file in strangers]
    for group in groups:
        imported = _foreign_run(group, version)
        if imported.run.id in found:
            raise FileError(f"{group[0].name} was given twice.")
        found[imported.run.id] = imported
    return list(found.values())


def medians_of(files: Iterable[BenchmarkFile]) -> dict[str, list[float]]:
    """Return the median seconds of each launch by the benchmark's full name, for the benchmarks of other programs.

    Unlike `runs_of` this does without the raw samples: the median that a file states is enough.
    """
    found: dict[str, list[float]] = {}
    for file in files:
        for benchmark in file.foreign:
            found.setdefault(benchmark.fullname, []).append(benchmark.stats.median)
    return found


def _joined(one: Imported, other: Imported, file: BenchmarkFile) -> Imported:
    """Put two parts of a run together."""
    if replace(one.run, finished=None) != replace(other.run, finished=None):
        raise FileError(f"{file.name}: its run {one.run.id} is another than the run of that name in a file before it.")
    records = {launch_key(record): record for record in one.records}
    for record in other.records:
        if records.setdefault(launch_key(record), record) != record:
            raise FileError(f"{file.name}: a launch of run {one.run.id} differs from the one in a file before it.")
    return Imported(one.run, tuple(records.values()), one.machine or other.machine)


def _foreign_run(files: Sequence[BenchmarkFile], version: str) -> Imported:
    first = files[0]
    for file in files[1:]:
        if (file.fingerprint, file.interpreter) != (first.fingerprint, first.interpreter):
            raise FileError(
                f"{file.name} and {first.name} are of different machines or Pythons, so not launches of one run."
            )
    if len({file.digest for file in files}) < len(files):
        raise FileError(f"{first.name}: one of these files was given twice, and one process is one launch.")
    digest = hash_of("".join(file.digest for file in files)) if len(files) > 1 else first.digest
    run_id = f"{first.made:%Y%m%dT%H%M%S}-{digest[:6]}"
    records = tuple(
        _foreign_record(benchmark, file, launch, run_id, version)
        for launch, file in enumerate(files)
        for benchmark in file.foreign
    )
    run = Run(
        id=run_id,
        suite=SUITE,
        protocol=_protocol(records),
        launches=len(files),
        plan=tuple(dict.fromkeys(record.cell for record in records)),
        machine=first.fingerprint,
        started=first.made,
        version=version,
        finished=files[-1].made,
        seed=0,
    )
    # Without the host's name: no record tells it.
    told = {key: value for key, value in first.machine_info.items() if key != "node"}
    machine = first.machine if first.machine is not None else {FOREIGN_KEY: {"node": "", **told}}
    protocol = run.protocol
    return Imported(run, tuple(replace(record, protocol=protocol) for record in records), machine)


def _foreign_record(benchmark: Benchmark, file: BenchmarkFile, launch: int, run: str, version: str) -> Record:
    data, iterations = benchmark.stats.data, benchmark.stats.iterations
    if data is None:
        raise FileError(
            f"{file.name}: {clean_name(benchmark.fullname)} was saved without its samples. Save them: --benchmark-json "
            "FILE, or --benchmark-save NAME --benchmark-save-data."
        )
    kept = {**benchmark.model_dump(exclude={"stats"}), "version": file.version, "commit_info": file.commit_info}
    samples = [round(seconds * iterations * 1e9) for seconds in data]
    return Record(
        run=run,
        suite=SUITE,
        launch=launch,
        cell=Cell(FRAMEWORK, IMPORTED, IMPORTED, clean_name(benchmark.fullname), "cpu", threads=0, batch_size=0),
        outcome=Outcome(
            Status.OK,
            samples_ns=samples,
            steps_per_sample=iterations,
            parity=Parity("unchecked", "imported: there is no reference", [], None, None, "", 0.0, 0.0, 0.0),
            software={FOREIGN_KEY: kept},
        ),
        machine=file.fingerprint,
        environment=hash_of(file.interpreter)[:12],
        interpreter=file.interpreter,
        protocol=Protocol(),
        started=file.made,
        wall_seconds=sum(samples) * 1e-9,
        version=version,
    )


def _protocol(records: Sequence[Record]) -> Protocol:
    """Return the protocol as far as the samples show it; pytest-benchmark keeps no warm-up."""
    counts = [len(record.outcome.samples_ns) for record in records]
    return Protocol(warmup_steps=0, steps=max(counts), minimum_steps=min(counts))
