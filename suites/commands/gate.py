"""`dlbench gate`: fails a build on a confirmed regression, and on nothing else.

Exit codes, besides those of every command: 1 a confirmed regression; 5 the candidate gave no number where the baseline
did, or no cell was measured on both sides.
"""

from dataclasses import dataclass
from typing import Annotated

import typer

from dlbench.adapters.protocol import Status
from dlbench.hardware_probe import probe
from dlbench.reports.storage.hosts import host_of

from ..measuring.pairs import for_gate
from . import options
from .option_groups import OptionGroup, grouped
from .plan import plan_of
from .two_sides import Asked, LaunchOptions, OutputOptions, RuleOptions, SideOptions, choices, measure, show

REGRESSION_FOUND = 1
CANDIDATE_BROKEN = 5


@dataclass(frozen=True)
class WhatToGate(OptionGroup):
    """The suite, and what its candidate is held against."""

    name: Annotated[str, typer.Argument(metavar="SUITE", help="A suite's name, or a file ending in .toml.")]
    baseline: Annotated[
        list[str] | None,
        typer.Option("--baseline", metavar="FRAMEWORK=PATH", help="The baseline's interpreter. Repeatable."),
    ] = None


@grouped
def gate_command(
    what: WhatToGate,
    axes: options.AxisOptions,
    launches: LaunchOptions,
    builds: options.BuildOptions,
    sides: SideOptions,
    rules: RuleOptions,
    session: options.SessionOptions,
    output: OutputOptions,
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
    rule, form = rules.rule, output.check()
    pair = sides.pair(builds.python or (), what.baseline or ())
    machine = probe()
    plan = plan_of(what.name, choices(pair[1], axes, launches, builds), machine, session.seed)
    found = measure(Asked(plan, pair, machine, "gate", rule, session), for_gate(host_of(machine), rule))
    show(found, form, output.write)
    if found.regressions:
        raise typer.Exit(REGRESSION_FOUND)
    worked = [cell for cell in found.cells if cell.baseline.status is cell.candidate.status is Status.OK]
    if found.broken or not worked:
        raise typer.Exit(CANDIDATE_BROKEN)
