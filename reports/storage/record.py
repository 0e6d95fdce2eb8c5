"""What is kept: a Run (what was planned) and its Records (one per launch, raw samples and all).

Medians, intervals and flags are derived on reading and never stored, so that a better statistic serves old
results too. ``RECORD_SCHEMA`` rises whenever a reader of the old form would misread the new one. Neither a
user's name nor a path of theirs is part of a record.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from dlbench.adapters.protocol import (
    Cell,
    Outcome,
    Protocol,
    ProtocolError,
    cell_from_dict,
    outcome_from_dict,
    protocol_from_dict,
    to_dict,
)
from dlbench.reports.errors import RecordError
from dlbench.reports.storage.networks import read_network

RECORD_SCHEMA = 1

_T = TypeVar("_T")


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
    """"suite", or for launches of two sides "compare" or "gate"."""
    sides: dict[str, str] = field(default_factory=dict)
    """What each side is, in words, by `Record.side`; empty for a suite."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "started", _utc(self.started, "the start of a run"))
        if self.finished is not None:
            object.__setattr__(self, "finished", _utc(self.finished, "the end of a run"))

    def to_dict(self) -> dict[str, Any]:
        """Return the run as plain JSON types."""
        return {
            "schema": RECORD_SCHEMA,
            "id": self.id,
            "suite": self.suite,
            "protocol": to_dict(self.protocol),
            "launches": self.launches,
            "plan": [to_dict(cell) for cell in self.plan],
            "machine": self.machine,
            "started": self.started.isoformat(),
            "version": self.version,
            "finished": None if self.finished is None else self.finished.isoformat(),
            "seed": self.seed,
            "launches_most": self.launches_most,
            "precision": self.precision,
            "purpose": self.purpose,
            "sides": self.sides,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Run":
        """Read a run back from `to_dict`; raises RecordError where it does not fit."""
        return _read("run", data, cls._from)

    @classmethod
    def _from(cls, data: Mapping[str, Any]) -> "Run":
        return cls(
            id=str(data["id"]),
            suite=str(data["suite"]),
            protocol=protocol_from_dict(data["protocol"]),
            launches=int(data["launches"]),
            plan=tuple(cell_from_dict(cell) for cell in data["plan"]),
            machine=str(data["machine"]),
            started=datetime.fromisoformat(data["started"]),
            version=str(data["version"]),
            finished=None if data["finished"] is None else datetime.fromisoformat(data["finished"]),
            seed=int(data["seed"]),
            launches_most=None if data.get("launches_most") is None else int(data["launches_most"]),
            precision=None if data.get("precision") is None else float(data["precision"]),
            purpose=str(data.get("purpose", "suite")),
            sides={str(key): str(value) for key, value in data.get("sides", {}).items()},
        )


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
    """Of a comparison: "baseline" or "candidate"; else empty."""
    stage: str = ""
    """Of a comparison in two stages: "screen" or "confirm"; else empty."""
    quota_cpus: float | None = None
    """CPUs' worth of time that control groups allowed when it was launched; None without a quota."""
    telemetry: dict[str, Any] | None = None
    """What was sampled of the GPU meanwhile, see `hardware_probe.telemetry`; None for a launch on the CPU."""
    network: dict[str, Any] | None = None
    """The network's specification, its family and numbers; None in records from before networks were data."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "started", _utc(self.started, "the start of a record"))

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON types."""
        return {
            "schema": RECORD_SCHEMA,
            "run": self.run,
            "suite": self.suite,
            "launch": self.launch,
            "cell": to_dict(self.cell),
            "outcome": to_dict(self.outcome),
            "machine": self.machine,
            "environment": self.environment,
            "interpreter": self.interpreter,
            "protocol": to_dict(self.protocol),
            "started": self.started.isoformat(),
            "wall_seconds": self.wall_seconds,
            "version": self.version,
            "attempt": self.attempt,
            "side": self.side,
            "stage": self.stage,
            "quota_cpus": self.quota_cpus,
            **({} if self.telemetry is None else {"telemetry": self.telemetry}),
            **({} if self.network is None else {"network": self.network}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Record":
        """Read a record back from `to_dict`; raises RecordError where it does not fit."""
        return _read("record", data, cls._from)

    @classmethod
    def _from(cls, data: Mapping[str, Any]) -> "Record":
        return cls(
            run=str(data["run"]),
            suite=str(data["suite"]),
            launch=int(data["launch"]),
            cell=cell_from_dict(data["cell"]),
            outcome=outcome_from_dict(data["outcome"]),
            machine=str(data["machine"]),
            environment=str(data["environment"]),
            interpreter=str(data["interpreter"]),
            protocol=protocol_from_dict(data["protocol"]),
            started=datetime.fromisoformat(data["started"]),
            wall_seconds=float(data["wall_seconds"]),
            version=str(data["version"]),
            attempt=int(data.get("attempt", 0)),
            side=str(data.get("side", "")),
            stage=str(data.get("stage", "")),
            quota_cpus=None if data.get("quota_cpus") is None else float(data["quota_cpus"]),
            # Of whatever form: it is judged where it is read, and no number depends on it.
            telemetry=told if isinstance(told := data.get("telemetry"), dict) else None,
            network=read_network(data.get("network")),
        )


def _read(what: str, data: Mapping[str, Any], build: Callable[[Mapping[str, Any]], _T]) -> _T:
    schema = data.get("schema") if isinstance(data, Mapping) else None
    if not isinstance(schema, int):
        raise RecordError(f"A stored {what} carries no schema version; it was not written by dlbench.")
    if schema > RECORD_SCHEMA:
        raise RecordError(
            f"A stored {what} has schema version {schema}, this dlbench reads up to {RECORD_SCHEMA}; "
            "use the newer dlbench that wrote it."
        )
    try:
        return build(data)
    except KeyError as error:
        raise RecordError(f"A stored {what} lacks {error}; the store is damaged.") from error
    except (ProtocolError, TypeError, ValueError, AttributeError, OverflowError) as error:
        said = " ".join(str(error).split())
        raise RecordError(f"A stored {what} cannot be read ({said}); the store is damaged.") from error
