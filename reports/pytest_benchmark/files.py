"""Reads pytest-benchmark's JSON files: those that dlbench wrote, and anybody else's. Nothing in a file is trusted.

What dlbench wrote (its pytest plugin, `dlbench export`) becomes the run and the records that it was made of; of the
benchmarks of somebody else `pytest_benchmark_runs` makes cells.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from dlbench.hardware_probe import Machine
from dlbench.reports.pytest_benchmark.export import FILE_SCHEMA, KEY, samples_of
from dlbench.reports.pytest_benchmark.untrusted_files import (
    DEEPEST,
    FileError,
    clean_name,
    deeper,
    hash_of,
    parse_json,
    read_bytes,
    said,
    sound_name,
)
from dlbench.reports.storage.record import RECORD_SCHEMA, Record, Run, sound

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
    """One benchmark as the file tells it."""

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
    """A file that was read: the run dlbench wrote into it, if any, and the benchmarks that are somebody else's."""

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
        """Of the machine: dlbench's own where the file knows it, else one of what pytest-benchmark tells of the CPU."""
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
    """Take a file's content that somebody else has parsed; raises FileError as `read` does."""
    return _accepted(name, hash_of(json.dumps(content, sort_keys=True, default=str)), lambda: content)


def records_of(kept: Mapping[str, Any]) -> list[Record]:
    """Return the records of a benchmark's own ``extra_info["dlbench"]`` that this process made."""
    return [Record.from_dict(each) for each in kept["records"]]


def read(path: str | os.PathLike[str]) -> BenchmarkFile:
    """Read a file; raises FileError, of one line that names the file and what is wrong with it."""
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
    """Return what tells a launch from the others of its run."""
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
