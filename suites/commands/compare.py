"""`dlbench compare`: a candidate against a baseline, stored or measured now."""

from typing import Annotated

import typer

from dlbench.hardware_probe import probe
from dlbench.reports.storage.hosts import host_of

from ..errors import UsageError
from ..measuring import comparison, comparison_sides
from ..measuring.pairs import for_compare
from ..planning import values as axes
from . import named_runs, options
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

FEWEST, MOST, PRECISION = 6, 20, 0.02


def compare_command(
    first: Annotated[
        str, typer.Argument(metavar="[A]", help="Baseline: a run's id or its beginning, latest, previous, or a store.")
    ] = "",
    second: Annotated[str, typer.Argument(metavar="[B]", help="Candidate, in the same words.")] = "",
    now: Annotated[
        bool, typer.Option("--now", help="Measure both sides now, in interleaved pairs of launches.")
    ] = False,
    suite_name: Annotated[
        str, typer.Option("--suite", help="With --now: the suite whose cells are measured.")
    ] = "quick",
    networks: options.Networks = "",
    frameworks: options.Frameworks = "",
    threads: options.Threads = "",
    batch_sizes: options.BatchSizes = "",
    devices: options.Devices = "",
    precisions: options.Precisions = "",
    placements: options.Placements = "",
    world_sizes: options.WorldSizes = "",
    python: options.Python = None,
    adapter: options.Adapter = None,
    baseline_env: BaselineEnv = None,
    candidate_env: CandidateEnv = None,
    baseline_adapters: BaselineAdapters = "",
    candidate_adapters: CandidateAdapters = "",
    same: Same = False,
    pairs: Annotated[
        str, typer.Option("--pairs", help="With --now: fewest and most pairs of a cell.")
    ] = f"{FEWEST}-{MOST}",
    precision: Annotated[
        str, typer.Option("--precision", help="With --now: half-width of the ratio's interval to reach.")
    ] = "2%",
    steps: options.Steps = None,
    budget: Annotated[str, typer.Option("--budget", help="Time for all launches: 90s, 10m, 1.5h.")] = "",
    threshold: Threshold = "",
    tolerance: Tolerance = "",
    store_file: options.StoreFile = options.DEFAULT_STORE,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the unfinished comparison of this suite.")
    ] = False,
    no_build: Annotated[bool, typer.Option("--no-build", help="Build no environment; leave those rows out.")] = False,
    seed: options.Seed = None,
    form: Format = "terminal",
    write: Write = None,
    as_json: options.Json = False,
) -> None:
    """Is B slower than A? Stored runs, or two sides measured now: cell by cell, with intervals and a verdict.

    Of --python given twice for a framework the first is the baseline; given once it is the candidate, against dlbench's
    own environment. Measured now, the two sides of a cell are launched one after the other, in random order.

    Examples:

    - `dlbench compare previous latest`
    - `dlbench compare 20261119 20261120 --format markdown`
    - `dlbench compare here.sqlite there.sqlite`
    - `dlbench compare --now --python torch=/opt/a/bin/python --python torch-next:torch=/opt/b/bin/python`
    - `dlbench compare --now --frameworks mxnet --candidate-env OMP_WAIT_POLICY=passive --networks lstm32`
    - `dlbench compare --now --frameworks torch --baseline-adapters HEAD~1`
    """
    rule = comparison.rule_for(share_of(threshold, "--threshold"), share_of(tolerance, "--tolerance"))
    exporter = format_named(form, as_json)
    for path in write or ():
        format_of(path)
    only_now = (networks, frameworks, threads, batch_sizes, python, baseline_env, candidate_env, baseline_adapters)
    further_axes = devices, precisions, placements, world_sizes
    if not now and any((*only_now, candidate_adapters, same, steps, budget, resume, *further_axes)):
        raise UsageError("Options of what to measure go with --now. Stored runs are compared as they are.")
    if not now:
        if not first:
            raise UsageError("Name two runs to compare (`dlbench report runs` lists them), or measure now: --now.")
        show(named_runs.compare(first, second, store_file, rule), exporter, write)
        return
    if first or second:
        raise UsageError("With --now both sides are measured: leave the names of stored runs out.")
    fewest, most = axes.launch_range(pairs, "--pairs")
    width = share_of(precision, "--precision") or PRECISION
    pair = comparison_sides.pair(
        python or (), (), (baseline_env or (), candidate_env or ()), (baseline_adapters, candidate_adapters), same
    )
    chosen = choices(pair[1], networks, frameworks, threads, batch_sizes, steps, adapter, *further_axes)
    machine = probe()
    plan = plan_of(suite_name, chosen, machine, seed)
    following = for_compare(host_of(machine), len(plan.cells), fewest, most, width, rule)
    found = measure(plan, pair, machine, store_file, "compare", following, rule, budget, resume, not no_build)
    show(found, exporter, write)
