"""A number for each launch, and which attempt at a launch counts.

A launch that others disturbed is repeated. Of the attempts at one launch - same run, cell, side, stage, index and
environment - the first counts that has a number and was not contended; where there is none, the last (it is then
flagged). `effective` says so of the frame that `Store.medians` gives, `effective_records` of records, `choose` of
anything else.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dlbench.adapters.protocol import Cell
from dlbench.reports.storage import record_columns
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record

if TYPE_CHECKING:
    import pandas as pd

LAUNCH = ("run", "cell", "side", "stage", "launch", "environment")
"""What the attempts at one launch have in common."""

MEDIANS = (
    "run",
    "started",
    "machine",
    "environment",
    "cell",
    "launch",
    "attempt",
    "side",
    "stage",
    "status",
    "seconds",
    "contended",
)
"""The columns of `Store.medians`."""

NIGHTS = (
    "run",
    "started",
    "machine",
    "environment",
    "cell",
    "side",
    "launches",
    "log_mean",
    "log_variance",
    "contended_launches",
)
"""The columns of `Store.nights`."""


class Attempt(NamedTuple):
    """What decides whether an attempt at a launch counts."""

    has_number: bool
    contended: bool | None


def choose(attempts: Sequence[Attempt]) -> int:
    """Return the index of the attempt that counts, of one launch's attempts in order."""
    for index, attempt in enumerate(attempts):
        if attempt.has_number and not attempt.contended:
            return index
    return len(attempts) - 1


def effective(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return the rows of a frame of `Store.medians` that count: one for each launch, in the frame's order."""
    import numpy as np
    import pandas as pd

    ordered = frame.sort_values(["attempt", "started"], kind="stable")
    good = ordered["seconds"].notna() & ~ordered["contended"].fillna(False).astype(bool)
    place = np.arange(len(ordered))
    # Least for the first good one; where none is good, least for the last.
    rank = pd.Series(np.where(good, place - len(ordered), len(ordered) - place), index=ordered.index)
    best = rank.groupby([ordered[name] for name in LAUNCH], sort=False).transform("min")
    return frame.loc[(rank == best).reindex(frame.index)]


def effective_records(records: Iterable[Record], hosts: Mapping[str, Host]) -> list[Record]:
    """Return the records that count, in the order given: of the attempts at one launch the one that `choose` takes."""
    launches: dict[tuple[str, str, Cell, str, str, int, str], list[tuple[int, Record]]] = {}
    for place, record in enumerate(records):
        of_launch = (record.run, record.machine, record.cell, record.side, record.stage, record.launch)
        launches.setdefault((*of_launch, record.environment), []).append((place, record))
    kept = []
    for attempts in launches.values():
        if len(attempts) > 1:
            attempts.sort(key=lambda pair: (pair[1].attempt, pair[1].started))
            told = [
                Attempt(bool(record.outcome.samples_ns), record_columns.contended(record, hosts.get(record.machine)))
                for _, record in attempts
            ]
            kept.append(attempts[choose(told)])
        else:
            kept += attempts
    return [record for _, record in sorted(kept, key=lambda pair: pair[0])]


def frame_of_medians(rows: Iterable[Sequence[Any]]) -> "pd.DataFrame":
    """Return the frame of `Store.medians` from the rows of `queries.medians`."""
    import pandas as pd

    frame = pd.DataFrame([tuple(row) for row in rows], columns=list(MEDIANS))
    return frame.astype(
        {"cell": "int64", "launch": "int64", "attempt": "int64", "seconds": "float64", "contended": "boolean"}
    )


def frame_of_nights(
    rows: Iterable[Sequence[Any]], started: Mapping[str, str], machines: Mapping[int, str]
) -> "pd.DataFrame":
    """Return the frame of `Store.nights` from the rows of `queries.nights`.

    ``started`` gives the start of a run, ``machines`` the machine of a cell's number.
    """
    import pandas as pd

    heads = ["run", "cell", "side", "environment"]
    sums = ["quiet", "quiet_sum", "quiet_squares", "contended_launches", "loud_sum", "loud_squares"]
    frame = pd.DataFrame([tuple(row) for row in rows], columns=heads + sums)
    frame = frame.astype({"cell": "int64", **dict.fromkeys(sums, "float64")})
    quiet = frame["quiet"] > 0
    launches = frame["quiet"].where(quiet, frame["contended_launches"])
    total = frame["quiet_sum"].where(quiet, frame["loud_sum"])
    squares = frame["quiet_squares"].where(quiet, frame["loud_squares"])
    frame["log_mean"] = total / launches
    # Logarithms of step times are of the order of 1 to 10: their squares leave 8 digits or more to a deviation of 1 %.
    spread = (squares - total * frame["log_mean"]).clip(lower=0.0)
    frame["log_variance"] = spread / (launches - 1).where(launches > 1)
    frame["launches"] = launches.astype("int64")
    frame["contended_launches"] = frame["contended_launches"].astype("int64")
    frame["started"] = frame["run"].map(started)
    frame["machine"] = frame["cell"].map(machines)
    return frame.sort_values(["started", "run", "cell", "side"], kind="stable", ignore_index=True)[list(NIGHTS)]
