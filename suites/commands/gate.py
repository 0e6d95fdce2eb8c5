"""`dlbench gate`: fails a build on a confirmed regression, and on nothing else.

Exit codes, besides those of every command: 1 a confirmed regression; 5 the candidate gave no number where the baseline
did, or no cell was measured on both sides.
"""

from typing import Annotated

import typer

from dlbench.adapters.protocol import Status
from dlbench.hardware_probe import probe
from dlbench.reports.storage.hosts import host_of

from ..measuring import comparison, comparison_sides
from ..measuring.pairs import for_gate
from . import options
from .two_sides import (
    BaselineAdapters,
    BaselineEnv,
    CandidateAdapters,
    CandidateEnv,
    Format,
    Same,
    Threshold,
    Tolerance,
    Write,
    choices,
    format_named,
    format_of,
    measure,
    plan_of,
    share_of,
    show,
)

REGRESSION_FOUND = 1
CANDIDATE_BROKEN = 5


def gate_command(
    name: Annotated[str, typer.Argument(metavar="SUITE", help="A suite's name, or a file ending in .toml.")],
    baseline: Annotated[
        list[str] | None,
        typer.Option("--baseline", metavar="FRAMEWORK=PATH", help="The baseline's interpreter. Repeatable."),
    ] = None,
    python: options.Python = None,
    adapter: options.Adapter = None,
    networks: options.Networks = "",
    frameworks: options.Frameworks = "",
    threads: options.Threads = "",
    batch_sizes: options.BatchSizes = "",
    devices: options.Devices = "",
    precisions: options.Precisions = "",
    placements: options.Placements = "",
    world_sizes: options.WorldSizes = "",
    baseline_env: BaselineEnv = None,
    candidate_env: CandidateEnv = None,
    baseline_adapters: BaselineAdapters = "",
    candidate_adapters: CandidateAdapters = "",
    same: Same = False,
    steps: options.Steps = None,
    budget: Annotated[str, typer.Option("--budget", help="Time for all launches: 90s, 10m, 1.5h.")] = "",
    threshold: Threshold = "",
    tolerance: Tolerance = "",
    store_file: options.StoreFile = options.DEFAULT_STORE,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the unfinished gate of this suite.")] = False,
    no_build: Annotated[bool, typer.Option("--no-build", help="Build no environment; leave those rows out.")] = False,
    seed: options.Seed = None,
    form: Format = "terminal",
    write: Write = None,
    as_json: options.Json = False,
) -> None:
    """Measure a suite against a baseline in this session, and fail on a confirmed regression only.

    Screening takes 6 to 14 interleaved pairs of each cell; what looks slower is measured again, and 24 fresh pairs
    alone decide. Exit code 0: no regression confirmed; 1: at least one; 5: the candidate gave no number where the
    baseline did, or nothing was measured on both sides.

    Examples:

    - `dlbench gate quick --baseline torch=/opt/last-release/bin/python --frameworks torch`
    - `dlbench gate nightly.toml --baseline-adapters origin/main --write report.md --write junit.xml`
    - `dlbench gate quick --same --frameworks torch --networks lstm32`  (how noisy is this machine?)
    """
    rule = comparison.rule_for(share_of(threshold, "--threshold"), share_of(tolerance, "--tolerance"))
    exporter = format_named(form, as_json)
    for path in write or ():
        format_of(path)
    pair = comparison_sides.pair(
        python or (),
        baseline or (),
        (baseline_env or (), candidate_env or ()),
        (baseline_adapters, candidate_adapters),
        same,
    )
    further_axes = devices, precisions, placements, world_sizes
    chosen = choices(pair[1], networks, frameworks, threads, batch_sizes, steps, adapter, *further_axes)
    machine = probe()
    plan = plan_of(name, chosen, machine, seed)
    found = measure(
        plan,
        pair,
        machine,
        store_file,
        "gate",
        for_gate(host_of(machine), rule),
        rule,
        budget,
        resume,
        not no_build,
    )
    show(found, exporter, write)
    if found.regressions:
        raise typer.Exit(REGRESSION_FOUND)
    worked = [cell for cell in found.cells if cell.baseline.status is cell.candidate.status is Status.OK]
    if found.broken or not worked:
        raise typer.Exit(CANDIDATE_BROKEN)
