"""Results as pandas DataFrames: `dlbench.launches` and `dlbench.cells`, for your own analyses.

    import dlbench

    cells = dlbench.cells("dlbench.sqlite", network="fcn5")
    cells.pivot_table("seconds", ["framework", "mode"], "threads")
    dlbench.launches("dlbench.sqlite").groupby("framework").first_step_seconds.median()

A store is a file, a database URL, or several of these. By default the launches of the newest run of
each cell count, as in `dlbench report matrix`; ``all_runs`` pools all runs, ``run`` takes one (of a
comparison both sides' launches): its id, the beginning of that, ``latest`` or ``previous``. Keyword
arguments select values of axes as the command line does: names with commas between them, patterns
too (``network="lstm*"``). A name counts before a pattern and before a list
(``network="tests/test_a.py::test_c[1,2]"``).

The columns that identify a row and its seconds come first, and those that a notebook may hide are
in the middle. `DataFrame.attrs` has ``runs`` (ids), ``machines`` (names by fingerprint) and
``units`` (by column). Raw samples are in the store alone.
"""

import math
import os
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.matrix import matrix_cells
from dlbench.reports.results.disturbance import disturbed_if_known
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.flags import record_flags
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.keys import axis_value
from dlbench.reports.results.matrix import Matrix, build_matrix
from dlbench.reports.results.memory_evidence import faults_per_step, share_of_step
from dlbench.reports.results.naming import variables_in_a_field
from dlbench.reports.results.quantities import cpu_joules
from dlbench.reports.results.record import Record, Run, last_attempts
from dlbench.reports.results.results import Narrowing, Results, run_named
from dlbench.reports.results.rounds import seconds_by_round
from dlbench.reports.results.selection import suggestion
from dlbench.reports.results.storage.store import Store
from dlbench.reports.results.thread_evidence import observe

if TYPE_CHECKING:
    import pandas as pd

Target = str | os.PathLike[str]


def launches(
    store: Target | Iterable[Target],
    run: str | None = None,
    suite: str | None = None,
    machine: str | None = None,
    all_runs: bool = False,
    **values_of_axes: str,
) -> "pd.DataFrame":
    """Return one row for each launch that counts, in the order of their start.

    Columns, in their order:

    - ``network``, ``framework``, ``mode``, ``device``, ``threads``, ``batch_size``; ``seconds``
      (median of a step), ``status``, ``side`` (of a comparison), ``started`` (UTC);
    - ``reason``, ``steps`` (timed ones), ``import_seconds``, ``prepare_seconds``,
      ``first_step_seconds`` (compilation included), ``wall_seconds`` (of the whole launch),
      ``peak_memory_bytes``, ``cpu_joules`` (of a step, by the CPU packages), ``faults`` (minor page
      faults of a step) and ``faults_share`` (of its seconds, at most); ``flags`` (names, with
      spaces between), ``parity`` (agrees, disagrees or unchecked), ``loss_error`` and
      ``update_error`` (relative); ``wanting_threads`` (threads running or waiting for a CPU, on
      average), ``cpu_per_wall`` and ``waiting_per_wall`` (seconds per second), ``disturbed``;
    - the other axes of a cell, ``stage`` (of a comparison), ``launch`` (its index, from
      0), ``group`` (that of the launches which took turns with it; empty: none did), ``rounds`` (in
      which they did), ``attempt``;
    - ``machine`` (fingerprint), ``machine_name``, ``run``, ``suite``, ``environment``,
      ``variables`` (given by --env: "A=1 B=2").

    Missing values are NaN, NaT or None. Raises StoreError and ReportError.

    Example:
        >>> launches = dlbench.launches("dlbench.sqlite", framework="torch")
        >>> list(launches.columns[:7])
        ['network', 'framework', 'mode', 'device', 'threads', 'batch_size', 'seconds']
    """
    results = _read(
        store,
        values_of_axes,
        run=run,
        suite=suite,
        machine=machine,
        newest=run is None,
        all_runs=all_runs,
    )
    return launches_of(results)


def launches_of(results: Results) -> "pd.DataFrame":
    """Return the launches of these results as `launches` does."""
    import pandas as pd

    records = sorted(last_attempts(results.records), key=lambda record: record.started)
    rows = [_launch(record, results.hosts.get(record.machine)) for record in records]
    frame = pd.DataFrame(rows, columns=list(LAUNCHES))
    frame["started"] = pd.to_datetime(frame["started"], utc=True)
    return _finished(frame, results.hosts)


def cells(
    store: Target | Iterable[Target],
    run: str | None = None,
    suite: str | None = None,
    machine: str | None = None,
    all_runs: bool = False,
    **values_of_axes: str,
) -> "pd.DataFrame":
    """Return one row for each cell on each machine, in the order of the matrix.

    A cell without a number has the reason.

    Columns, in their order:

    - ``network``, ``framework``, ``mode``, ``device``, ``threads``, ``batch_size``; ``seconds`` per
      mini-batch with ``low`` and ``high`` (95 % interval), ``launches``;
    - ``status``, ``reason``, ``best`` (the fastest of its column, or not distinguishable from it),
      ``method`` (of the interval), ``steps`` (timed ones), ``items_per_second``, ``gflops`` (10^9
      floating-point operations per second), ``ceiling_fraction`` (of the measured ceiling),
      ``parity``, ``flags`` (names, with spaces between), ``first_step_seconds``, ``start_seconds``
      (import, building and first step), ``peak_memory_bytes``, ``cpu_joules`` (of a step, by the
      CPU packages), ``break_even_steps`` (against the mode of its framework that starts first;
      infinite where it never makes up for its start);
    - the other axes of a cell; ``machine`` (fingerprint), ``machine_name``, ``run``,
      ``environment``, ``variables`` (given by --env) and ``interpreter``.

    These are the values of `dlbench report matrix --json`. Raises StoreError and ReportError.

    Example:
        >>> cells = dlbench.cells("dlbench.sqlite", network="fcn5")
        >>> cells.attrs["units"]["seconds"]
        's'
    """
    results = _read(
        store, values_of_axes, run=run, suite=suite, machine=machine, newest=True, all_runs=all_runs
    )
    return cells_of(build_matrix(results))


def cells_of(matrix: Matrix) -> "pd.DataFrame":
    """Return the cells of a matrix as `cells` does."""
    import pandas as pd

    rows = [_cell_row(cell) for cell in matrix_cells(matrix)]
    return _finished(pd.DataFrame(rows, columns=list(CELLS)), matrix.hosts)


def _cell_row(cell: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a cell, given as an object of the matrix report's JSON."""
    seconds = cell["seconds_per_minibatch"] or {}
    parity = cell["parity"] or {}
    start = cell["costs"]["start"] or {}
    joules = cell["costs"]["cpu_joules"] or {}
    row = {
        **cell,
        "parity": parity.get("verdict"),
        "flags": " ".join(flag["name"] for flag in cell["flags"]),
        "variables": variables_in_a_field(cell["variables"]),
        "start_seconds": start.get("median"),
        "cpu_joules": joules.get("median"),
        "seconds": seconds.get("median"),
        "steps": seconds.get("samples"),
        "low": seconds.get("low"),
        "high": seconds.get("high"),
        "method": seconds.get("method"),
        "launches": seconds.get("launches"),
    }
    if cell["break_even"]:
        row["break_even_steps"] = cell["break_even"]["steps"] or math.inf
    return row


def _finished(frame: "pd.DataFrame", hosts: Mapping[str, Host]) -> "pd.DataFrame":
    """Return a table with its attributes, and with whole mini-batch sizes even if some are unknown.

    ``hosts`` are the machines by fingerprint.
    """
    # pandas' usual integers cannot be missing: 8 would become 8.0.
    if frame["batch_size"].isna().any():
        frame["batch_size"] = frame["batch_size"].astype("Int64")
    units = {}
    for name, unit in UNITS.items():
        if name in frame.columns:
            units[name] = unit
    frame.attrs = {
        "runs": sorted(set(frame["run"])),
        "machines": {fingerprint: host.name for fingerprint, host in hosts.items()},
        "units": units,
    }
    return frame


FIRST_AXES = ("network", "framework", "mode", "device", "threads", "batch_size")
_OTHER_AXES = tuple(name for name in axes.NAMES if name not in FIRST_AXES)
UNITS = {
    "seconds": "s",
    "low": "s",
    "high": "s",
    "import_seconds": "s",
    "prepare_seconds": "s",
    "first_step_seconds": "s",
    "start_seconds": "s",
    "wall_seconds": "s",
    "items_per_second": "examples/s",
    "gflops": "GFLOP/s",
    "peak_memory_bytes": "bytes",
    "cpu_joules": "J",
}
"""Units by column. Columns without one are counts, shares, ratios or words."""
LAUNCHES = (
    *FIRST_AXES,
    "seconds",
    "status",
    "side",
    "started",
    "reason",
    "steps",
    "import_seconds",
    "prepare_seconds",
    "first_step_seconds",
    "wall_seconds",
    "peak_memory_bytes",
    "cpu_joules",
    "faults",
    "faults_share",
    "flags",
    "parity",
    "loss_error",
    "update_error",
    "wanting_threads",
    "cpu_per_wall",
    "waiting_per_wall",
    "disturbed",
    *_OTHER_AXES,
    "stage",
    "launch",
    "group",
    "rounds",
    "attempt",
    "machine",
    "machine_name",
    "run",
    "suite",
    "environment",
    "variables",
)
CELLS = (
    *FIRST_AXES,
    "seconds",
    "low",
    "high",
    "launches",
    "status",
    "reason",
    "best",
    "method",
    "steps",
    "items_per_second",
    "gflops",
    "ceiling_fraction",
    "parity",
    "flags",
    "first_step_seconds",
    "start_seconds",
    "peak_memory_bytes",
    "cpu_joules",
    "break_even_steps",
    *_OTHER_AXES,
    "machine",
    "machine_name",
    "run",
    "environment",
    "variables",
    "interpreter",
)
_RECORD_FIELDS = (
    "machine",
    "run",
    "suite",
    "environment",
    "side",
    "stage",
    "group",
    "attempt",
    "started",
    "wall_seconds",
)
_OUTCOME_FIELDS = (
    "reason",
    "import_seconds",
    "prepare_seconds",
    "first_step_seconds",
    "peak_memory_bytes",
)
_EVIDENCE = ("wanting_threads", "cpu_per_wall", "waiting_per_wall")


def _launch(record: Record, host: Host | None) -> dict[str, Any]:
    outcome = record.outcome
    verdict = loss_error = update_error = None
    if outcome.parity is not None:
        verdict = outcome.parity.verdict
        loss_error = outcome.parity.loss_error
        update_error = outcome.parity.update_error
    observed = observe([outcome])
    faults = faults_per_step(outcome)
    machine_name = None if host is None else host.name
    rounds = 0
    if outcome.turns:
        rounds = len(seconds_by_round(outcome))
    flag_names = [flag.kind.name for flag in record_flags(record, host)]
    row = {}
    for name in _RECORD_FIELDS:
        row[name] = getattr(record, name)
    for name in _OUTCOME_FIELDS:
        row[name] = getattr(outcome, name)
    for name in axes.NAMES:
        row[name] = axis_value(record.cell, name)
    row |= {
        "variables": variables_in_a_field(record.variables),
        "machine_name": machine_name,
        "launch": record.launch,
        "rounds": rounds,
        "status": outcome.status.value,
        "seconds": outcome.median_seconds(),
        "steps": outcome.timed_steps(),
        "flags": " ".join(flag_names),
        "parity": verdict,
        "loss_error": loss_error,
        "update_error": update_error,
    }
    for name in _EVIDENCE:
        row[name] = None if observed is None else getattr(observed, name)
    faults_share = None
    if faults is not None:
        faults_share = share_of_step(outcome, faults)
    row |= {
        "cpu_joules": cpu_joules(outcome),
        "faults": faults,
        "faults_share": faults_share,
        "disturbed": disturbed_if_known(record, host),
    }
    return row


def _read(
    store: Target | Iterable[Target], values_of_axes: dict[str, str], **asked: Any
) -> Results:
    unknown = sorted(set(values_of_axes) - set(axes.NAMES))
    if unknown:
        raise ReportError(
            f"There is no axis {unknown[0]!r}; choose one of {', '.join(axes.NAMES)}."
        )
    targets = [store] if isinstance(store, str | os.PathLike) else list(store)
    if asked["run"] is not None:
        asked["run"] = run_named(asked["run"], _read_runs(targets))
    results = Results.read(targets, **asked)
    if not values_of_axes:
        return results
    words = {name: str(value) for name, value in values_of_axes.items()}
    narrowing = Narrowing(axes=words, cells=_read_cells(targets))
    for axis, word in narrowing.unknown():
        hint = suggestion(word, narrowing.known(axis), most=3)
        warnings.warn(f"No stored cell has the {axis} {word!r}. {hint}", stacklevel=3)
    return narrowing.of(results)


def _read_runs(targets: Iterable[Target]) -> list[Run]:
    runs: list[Run] = []
    for target in targets:
        with Store.open(target, create=False) as store:
            runs += store.runs()
    return runs


def _read_cells(targets: Iterable[Target]) -> tuple[Cell, ...]:
    cells: dict[Cell, None] = {}
    for target in targets:
        with Store.open(target, create=False) as store:
            cells.update(dict.fromkeys(store.cells().values()))
    return tuple(cells)
