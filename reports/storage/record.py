"""What is kept: a Run (what was planned) and its Records (one per launch, raw samples and all).

Medians, intervals and flags are derived on reading and never stored, so that a better statistic serves old
results too. ``RECORD_SCHEMA`` rises whenever a reader of the old form would misread the new one. Neither a
user's name nor a path of theirs is part of a record; the name of a machine is in fleets alone, which cannot do without.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args

from pydantic import Field, TypeAdapter, ValidationError

from dlbench.adapters.protocol import Cell, Outcome, Protocol, to_dict
from dlbench.hardware_probe.doctor import Finding
from dlbench.reports.errors import RecordError, in_one_line
from dlbench.reports.storage.hosts import Node, read_findings, read_node
from dlbench.reports.storage.networks import read_network

RECORD_SCHEMA = 1
BASELINE = "baseline"
"""The side of a comparison whose launches stand for another build under the row's name."""
IMPORTED = "imported"
"""The adapter of a benchmark that another program measured; its mini-batch is 0."""
SEARCH = "search"
"""The side of the launches of a search (`dlbench tune`), where a cell is launched again because it was fast."""
SCREEN, FIRST_LOOK = "screen", 6
"""The first stage of a gate, and its pairs after which it first looks: later ones were measured because of these."""
SEARCHING = "tune"
"""The purpose of a search's run."""
_MOST_NANOSECONDS = 10**19  # three centuries


def _utc(moment: datetime, what: str) -> datetime:
    if moment.tzinfo is None:
        raise ValueError(f"{what} has no time zone; give it in UTC")
    return moment.astimezone(UTC)


@dataclass(frozen=True)
class Run:
    """One carrying out of a suite on one machine: what was planned, whether or not it came to an end."""

    id: str
    suite: str
    protocol: Protocol
    launches: int
    """Launches planned per cell."""
    plan: tuple[Cell, ...]
    """Every cell planned, the skipped ones included."""
    machine: str
    """The machine's fingerprint."""
    started: datetime
    version: str
    """Of dlbench."""
    finished: datetime | None
    """None while it runs, or when it was interrupted: it can then be resumed."""
    seed: int
    """Of the order of launches."""
    launches_most: int | None = None
    """Launches a cell gets at most while its interval misses the precision; None: ``launches``, no more."""
    precision: float | None = None
    """Relative half-width of a cell's interval at which it gets no further launch; None: a fixed number of launches."""
    purpose: str = "suite"
    """"suite", for launches of two sides "compare" or "gate", for a search "tune"."""
    sides: dict[str, str] = field(default_factory=dict)
    """What each side is, in words, by `Record.side`; empty for a suite."""
    rule: dict[str, float] = field(default_factory=dict)
    """Of a comparison, what was chosen of its rule (see `compare.verdict`); empty: the usual one."""
    node: Node | None = None
    """Of a fleet, whose jobs are runs each; None: this run is no fleet's."""
    doctor: tuple[Finding, ...] | None = None
    """What is wrong with the machine's settings, as the run began; None in runs from before the doctor was asked."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "started", _utc(self.started, "the start of a run"))
        if self.finished is not None:
            object.__setattr__(self, "finished", _utc(self.finished, "the end of a run"))

    def to_dict(self) -> dict[str, Any]:
        """Return the run as plain JSON types."""
        return _written(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Run":
        """Read a run back from `to_dict`; raises RecordError where it does not fit."""
        return _read(cls, data)


@dataclass(frozen=True)
class Record:
    """One launch of one cell: what was asked, on what, and what came back."""

    run: str
    """The run's id."""
    suite: str
    launch: int
    """Index of the randomised block, from 0."""
    cell: Cell
    outcome: Outcome
    machine: str
    """The machine's fingerprint."""
    environment: str
    """Hash of the framework's environment: two builds of a framework differ in it."""
    interpreter: str
    """The framework's interpreter, e.g. "CPython 3.11.7"."""
    protocol: Protocol
    started: datetime
    wall_seconds: float
    """The whole launch, from spawn to outcome."""
    version: str
    """Of dlbench."""
    attempt: int = 0
    """A launch that others disturbed is repeated: which repetition this is, from 0."""
    side: str = ""
    """Of a comparison: "baseline" or "candidate"; of a search: "search"; else empty."""
    stage: str = ""
    """Of a comparison in two stages: "screen" or "confirm"; else empty."""
    quota_cpus: float | None = None
    """CPUs' worth of time that control groups allowed when it was launched; None without a quota."""
    telemetry: dict[str, Any] | None = None
    """What was sampled of the GPU meanwhile, see `hardware_probe.telemetry`; None for a launch on the CPU."""
    network: dict[str, Any] | None = None
    """The network's specification, its family and numbers; None in records from before networks were data."""
    node: Node | None = None
    """Of a fleet: where it was measured, and with whom that node was shared then; None outside fleets."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "started", _utc(self.started, "the start of a record"))

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON types."""
        return _written(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Record":
        """Read a record back from `to_dict`; raises RecordError where it does not fit."""
        return _read(cls, data)


def last_attempts(records: Iterable[Record]) -> list[Record]:
    """Return the records that count, in the order given: of the attempts at one launch the last.

    A launch that others disturbed is repeated until it was not, so the last attempt is the best that there is; every
    attempt is kept. `schema.SUPERSEDED` says the same of a store.
    """
    records = list(records)
    if not any(record.attempt for record in records):
        return records
    last: dict[tuple[object, ...], Record] = {}
    for each in sorted(records, key=lambda record: (record.attempt, record.started)):
        last[each.run, each.machine, each.cell, each.side, each.stage, each.launch, each.environment] = each
    counting = {id(record) for record in last.values()}
    return [record for record in records if id(record) in counting]


def sound(record: Record) -> bool:
    """Tell whether the numbers of a record can be what they are said to be."""
    cell, outcome = record.cell, record.outcome
    return (
        min(cell.threads, record.launch, record.attempt) >= 0
        and min(cell.batch_size + (cell.adapter == IMPORTED), cell.world_size) >= 1
        and max(cell.threads, cell.batch_size, cell.world_size, record.launch, record.attempt) < 2**31
        and 0 <= record.wall_seconds < math.inf
        and 1 <= outcome.steps_per_sample <= 10**12
        and all(0 <= each <= _MOST_NANOSECONDS for each in (*outcome.samples_ns, *outcome.warmup_ns))
        and (outcome.threads is None or 0 <= outcome.threads.wall_seconds < math.inf)
    )


_Kept = TypeVar("_Kept", Run, Record)

_LEFT_OUT = ("telemetry", "network", "node", "doctor")
"""Not written where there is none."""
_RULE = TypeAdapter(dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]])
_READERS: dict[Any, Callable[[Any], Any]] = {
    **{kind: TypeAdapter(kind).validate_python for kind in (Cell, Outcome, Protocol, tuple[Cell, ...])},
    datetime: datetime.fromisoformat,
    dict[str, str]: lambda words: {str(key): str(value) for key, value in words.items()},
    **{kind: kind for kind in (str, int, float)},
}
"""By the type of a field, how its value is read."""
_NAMED_READERS: dict[str, Callable[[Any], Any]] = {
    # Of whatever form: it is judged where it is read, and no number depends on it.
    "telemetry": lambda content: content if isinstance(content, dict) else None,
    "network": read_network,
    "node": read_node,
    "rule": lambda content: _RULE.validate_python(content or {}),
    "doctor": read_findings,
}


def _reader(name: str, kind: Any) -> Callable[[Any], Any]:
    """Return how a field of this name and type is read."""
    if name in _NAMED_READERS:
        return _NAMED_READERS[name]
    if kind in _READERS:
        return _READERS[kind]
    (inner,) = (each for each in get_args(kind) if each is not NoneType)
    return lambda value: None if value is None else _READERS[inner](value)


_FIELDS = {
    kind: [
        (each.name, each.default is each.default_factory is MISSING, _reader(each.name, each.type)) for each in names
    ]
    for kind, names in ((kind, fields(kind)) for kind in (Run, Record))
}
"""Of each class its fields: name, whether it must be there, and how it is read."""


def _written(kept: Run | Record) -> dict[str, Any]:
    content = {name: value for name, value in _plain(kept).items() if value is not None or name not in _LEFT_OUT}
    if not content.get("rule", True):
        del content["rule"]
    return content


def _plain(kept: Run | Record) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": RECORD_SCHEMA}
    for name, _, _ in _FIELDS[type(kept)]:
        value = getattr(kept, name)
        if isinstance(value, datetime):
            value = value.isoformat()
        if isinstance(value, Node):
            value = value.to_dict()
        if name == "doctor" and value is not None:
            value = [each.to_dict() for each in value]
        content[name] = [to_dict(each) for each in value] if name == "plan" else to_dict(value)
    if "outcome" in content:
        del content["outcome"]["parity_sample"]  # the judge's alone
    return content


def _read(kind: type[_Kept], data: Mapping[str, Any]) -> _Kept:
    what = kind.__name__.lower()
    schema = data.get("schema") if isinstance(data, Mapping) else None
    if not isinstance(schema, int):
        raise RecordError(f"A {what} carries no schema version; it was not written by dlbench.")
    if schema > RECORD_SCHEMA:
        raise RecordError(
            f"A {what} has schema version {schema}, this dlbench reads up to {RECORD_SCHEMA}; "
            "use the newer dlbench that wrote it."
        )
    try:
        given = {name: read(data[name]) for name, must, read in _FIELDS[kind] if must or name in data}
        kept = kind(**given)
        if isinstance(kept, Record) and not sound(kept):
            raise ValueError("a number is out of range")
        return kept
    except KeyError as error:
        raise RecordError(f"A {what} lacks {error}; it is damaged.") from error
    except (TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise RecordError(f"A {what} cannot be read ({_reason(error)}); it is damaged.") from error


def _reason(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return in_one_line(error)
    first = error.errors(include_url=False)[0]
    return in_one_line(f"{error.title}.{'.'.join(map(str, first['loc']))}: {first['msg']}")
