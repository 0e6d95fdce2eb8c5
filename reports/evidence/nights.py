"""The frame of `Store.nights`: a number for each night."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

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
    "quiet",
)
"""The columns of `Store.nights`."""


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
    frame["quiet"] = quiet
    frame["started"] = frame["run"].map(started)
    frame["machine"] = frame["cell"].map(machines)
    return frame.sort_values(["started", "run", "cell", "side"], kind="stable", ignore_index=True)[list(NIGHTS)]
