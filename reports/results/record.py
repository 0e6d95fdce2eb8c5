"""Stored results: a Run (the plan) and its Records (one per launch, with raw samples).

Medians, intervals and flags are derived on reading and never stored, so that a better statistic
serves old results too. ``RECORD_SCHEMA`` rises whenever a reader of the old form would misread the
new one. A record contains neither a user's name nor a user's path; only fleets, which cannot do
without it, store the name of a machine.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from operator import attrgetter
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, WrapValidator

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell, Protocol, to_dict
from dlbench.hardware_probe.doctor import Finding
from dlbench.hardware_probe.files import JsonRecord
from dlbench.reports.results.errors import RecordError
from dlbench.reports.results.hosts import Node
from dlbench.reports.results.keys import Place
from dlbench.reports.results.networks import read_network
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.safe_text import one_line

RECORD_SCHEMA = 1
BASELINE, CANDIDATE = "baseline", "candidate"
"""The sides of a comparison. Launches of the first stand for another build under the row's name."""
IMPORTED = "imported"
"""The adapter of a benchmark that another program measured; most of its axes are unknown."""
PYTEST_BENCHMARK = "pytest-benchmark"
"""The framework and suite of imported benchmarks."""
SEARCH = "search"
"""The side of the launches of a search (`dlbench tune`), where a cell is launched again because it
was fast."""
LAUNCH = ("run", "cell", "side", "environment", "stage", "launch")
"""Fields that the attempts at one launch on a machine have in common; also the columns by which a
store counts them."""
GATE = "gate"
"""The purpose of a gate's run, and the stage of its launches."""
PROFILED = "profile"
"""The stage of launches that were profiled. They show which operators differ between two sides, and
serve no other purpose."""
HISTORY_PAIRS = 6
"""Pairs of a gate that count outside of it, in histories and stored comparisons: later ones were
measured because of these. A cell that three or four decide has fewer: simulated for one and eight
cells whose pairs deviate by 1 to 3 %, that shifts the mean ratio by at most 0.28 %, on each night
alike."""
SEARCHING, BISECTING = "tune", "bisect"
"""Purposes of runs whose launches were chosen by earlier results, and which serve no other
purpose."""
RELEASES = "releases"
"""The purpose of a run of releases: its plan has them in their order."""
_MOST_NANOSECONDS = 10**19  # three centuries


_LEFT_OUT = ("telemetry", "network", "node", "doctor")
"""Fields that are not written where they are None."""
_LEFT_OUT_EMPTY = ("rule", "variables", "group")
"""Fields that are not written where they are empty."""


def _if_known(value: Any, read: Callable[[Any], Any]) -> Any:
    try:
        return read(value)
    except ValueError:
        return None


_FORMER_KEYS = ("parity_sample", "starts_ns")
"""Keys of an outcome that older versions wrote, always empty."""
_IF_KNOWN = WrapValidator(_if_known)
"""Of a field that may be missing: None where another version wrote it in another form."""


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("a moment has no time zone; give it in UTC")
    return moment.astimezone(UTC)


def _without_former_keys(outcome: Any) -> Any:
    if not isinstance(outcome, Mapping):
        return outcome
    return {key: value for key, value in outcome.items() if key not in _FORMER_KEYS}


class Kept:
    """A frozen dataclass that a store keeps as JSON."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        content: dict[str, Any] = {"schema": RECORD_SCHEMA}
        for attribute in fields(self):  # type: ignore[arg-type]
            value = getattr(self, attribute.name)
            if value is None and attribute.name in _LEFT_OUT:
                continue
            if not value and attribute.name in _LEFT_OUT_EMPTY:
                continue
            content[attribute.name] = _plain(value)
        if "outcome" in content and content["outcome"]["statistics"] is None:
            del content["outcome"]["statistics"]
        return content

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read it back from `to_dict`; raises RecordError where it does not fit."""
        kind = cls.__name__.lower()
        schema = data.get("schema") if isinstance(data, Mapping) else None
        if not isinstance(schema, int):
            raise RecordError(f"A {kind} carries no schema version; it was not written by dlbench.")
        if schema > RECORD_SCHEMA:
            raise RecordError(
                f"A {kind} has schema version {schema}, this dlbench reads up to {RECORD_SCHEMA}; "
                "use the newer dlbench that wrote it."
            )
        try:
            kept: Self = _ADAPTERS[cls].validate_python(data)
            if isinstance(kept, Record):
                _check(kept)
            return kept
        except (TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise RecordError(
                f"A {kind} cannot be read ({reason_of(error)}); it is damaged."
            ) from error


def _plain(value: Any) -> Any:
    """Return the value of a field as plain JSON types."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, JsonRecord):
        return value.to_dict()
    if isinstance(value, tuple) and not hasattr(value, "_asdict"):
        return [_plain(item) for item in value]
    return to_dict(value)


@dataclass(frozen=True)
class Run(Kept):
    """One run of a suite on one machine: its plan, whether or not the run was finished."""

    id: str
    suite: str
    protocol: Protocol
    launches: int
    plan: tuple[Cell, ...]
    """Every cell planned, the skipped ones included."""
    machine: str
    started: datetime
    version: str
    finished: datetime | None
    """None while it runs, or when it was interrupted: it can then be resumed."""
    seed: int
    """Of the order of launches."""
    launches_most: int | None = None
    """Most launches of a cell that needs more of them; None: ``launches``."""
    precision: float | None = None
    """Relative half-width of a cell's interval that ends its launches; None: a fixed number, or a
    contest."""
    purpose: str = "suite"
    """"suite", for launches of two sides "compare", "gate" or "bisect", for a search "tune", or
    "releases"."""
    sides: dict[str, str] = field(default_factory=dict)
    """Description of each side, by `Record.side`; empty for a suite."""
    rule: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = field(
        default_factory=dict
    )
    """The chosen values of a comparison's rule (see `results.verdict`); empty: the default rule."""
    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables that the user gave all its launches (--env), without private parts."""
    node: Annotated[Node | None, _IF_KNOWN] = None
    """Of a fleet, where each job is a run; None outside fleets."""
    doctor: Annotated[tuple[Finding, ...] | None, _IF_KNOWN] = None
    """Problems of the machine's settings when the run began; None in runs older than this check."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "started", _utc(self.started))
        if self.finished is not None:
            object.__setattr__(self, "finished", _utc(self.finished))

    @property
    def most(self) -> int:
        """A cell's launches at most."""
        return self.launches_most or self.launches

    @property
    def contest(self) -> bool:
        """Whether cells got more launches only in an open contest (`--interval fastest`)."""
        return self.launches_most is not None and self.precision is None and not self.sides


@dataclass(frozen=True)
class Record(Kept):
    """One launch of one cell: the request, the machine and the outcome."""

    run: str
    suite: str
    launch: int
    """Index of the launches of its cell, from 0. Those of all cells with one index are a block."""
    cell: Cell
    outcome: Annotated[Outcome, BeforeValidator(_without_former_keys)]
    machine: str
    environment: str
    """Hash of the framework's environment, and of ``variables``: two builds of a framework differ
    in it."""
    interpreter: str
    protocol: Protocol
    started: datetime
    wall_seconds: float
    version: str
    attempt: int = 0
    """Index of the repetition, from 0: a launch disturbed by other programs is repeated."""
    side: str = ""
    """"baseline" or "candidate" in a comparison, "search" in a search, else empty."""
    stage: str = ""
    """`GATE` in a gate, `PROFILED` of a profiled launch, else empty."""
    quota_cpus: float | None = None
    """CPUs' worth of time that control groups allowed when it was launched; None without a
    quota."""
    telemetry: Annotated[dict[str, Any] | None, _IF_KNOWN] = None
    """Samples of the GPU during the launch, see `hardware_probe.telemetry`; None for a launch on
    the CPU."""
    network: Annotated[dict[str, Any] | None, BeforeValidator(read_network)] = None
    """The network's specification, its family and numbers; None in records from before networks
    were data."""
    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables that the user gave the launch, without private parts: a secret is
    ``***``."""
    node: Annotated[Node | None, _IF_KNOWN] = None
    """In a fleet, the node that it was measured on and who else used it; None outside fleets."""
    group: str = ""
    """That of the launches which took turns with it; empty where it ran alone."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "started", _utc(self.started))

    @property
    def place(self) -> Place:
        """Its cell on its machine, as a matrix has them."""
        return Place(self.machine, axes.without(self.cell))


def last_attempts(records: Iterable[Record]) -> list[Record]:
    """Return the records that count, in the order given: the last attempt at each launch.

    A launch disturbed by other programs is repeated until it is not, so the last attempt is the
    best; every attempt is kept. `queries.superseded` is the same for a store.
    """
    records = list(records)
    if not any(record.attempt for record in records):
        return records
    launch_of = attrgetter("machine", *LAUNCH)
    last: dict[tuple[object, ...], Record] = {}
    for record in sorted(records, key=lambda record: (record.attempt, record.started)):
        last[launch_of(record)] = record
    counting = {id(record) for record in last.values()}
    return [record for record in records if id(record) in counting]


def sound(record: Record) -> bool:
    """Tell whether the numbers of a record are possible."""
    cell = record.cell
    outcome = record.outcome
    batch_size = 1 if cell.batch_size is None else cell.batch_size
    samples = (*outcome.samples_ns, *outcome.warmup_ns)
    return (
        min(cell.threads, record.launch, record.attempt) >= 0
        and min(batch_size, cell.world_size) >= 1
        and max(cell.threads, batch_size, cell.world_size, record.launch, record.attempt) < 2**31
        and 0 <= cell.cpu_quota < math.inf
        and 0 <= cell.loader_workers < 2**31
        and 0 <= record.wall_seconds < math.inf
        and 1 <= outcome.steps_per_sample <= 10**12
        and all(0 <= nanoseconds <= _MOST_NANOSECONDS for nanoseconds in samples)
        and (outcome.threads is None or 0 <= outcome.threads.wall_seconds < math.inf)
    )


def _check(record: Record) -> None:
    """Raise RecordError for a record of an older dlbench, and ValueError for impossible numbers."""
    if record.cell.adapter == IMPORTED and record.cell.batch_size == 0:
        raise RecordError(
            "A record was imported by an older dlbench, with a mini-batch of 0; import its file "
            "again into another store."
        )
    if not sound(record):
        raise ValueError("a number is out of range")


_ADAPTERS: dict[type[Kept], TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in (Run, Record)}


def reason_of(error: BaseException) -> str:
    """Return an error's message in one line; of a validation error, its first fault and place."""
    if not isinstance(error, ValidationError):
        return one_line(str(error))
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    parts = [part for part in (place, fault_in_words(first)) if part]
    return one_line(": ".join(parts))


def fault_in_words(fault: Mapping[str, Any]) -> str:
    """Return one of the faults that a validation error lists, in words."""
    return one_line(str(fault["msg"]).removeprefix("Value error, "))
