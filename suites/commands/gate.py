"""`dlbench gate`: passes on evidence, fails on a confirmed regression, and says where it can do neither."""

from dataclasses import dataclass
from typing import Annotated

import typer

from dlbench.reports.compare.report import gate_outcome
from dlbench.reports.compare.verdict import Verdict
from dlbench.reports.storage.hosts import host_of

from ..display.screen import say
from ..errors import GATE_BROKEN, GATE_FAILED, GATE_UNDECIDED
from ..planning.values import one_of
from ..run.schedules import for_gate
from .ab import ComparisonOptions, measure, show
from .options import OptionGroup, grouped


@dataclass(frozen=True)
class WhatToGate(OptionGroup):
    """The suite, and the baseline of its candidate."""

    name: Annotated[str, typer.Argument(metavar="SUITE", help="A suite's name, or a file ending in .toml.")]
    baseline: Annotated[
        list[str] | None,
        typer.Option("--baseline", metavar="FRAMEWORK=PATH", help="The baseline's interpreter. Repeatable."),
    ] = None
    undecided: Annotated[
        str,
        typer.Option(
            "--undecided",
            metavar="fail|pass",
            help="Whether a gate without enough evidence ends with exit code 6 or with 0.",
        ),
    ] = "fail"


@grouped
def gate_command(what: WhatToGate, given: ComparisonOptions) -> None:
    """Measure a suite against a baseline in this session, and fail on a confirmed regression only.

    Screening takes 6 to 14 interleaved pairs of each cell; what looks slower is measured again, and 24 fresh pairs
    alone decide. The last line says "gate passed", "gate failed" or "gate undecided", and why.

    Exit code 0: passed, a slowdown of 5 % (`--tolerance`) is excluded in every cell. 1: failed, a regression is
    confirmed. 5: failed, the candidate gave no number where the baseline did. 6: undecided, the evidence of a cell does
    not suffice (0 with `--undecided pass`).

    Examples:

    - `dlbench gate quick --baseline torch=/opt/last-release/bin/python --frameworks torch`
    - `dlbench gate nightly.toml --baseline-adapters origin/main --write report.md --write junit.xml`
    - `dlbench gate quick --same --frameworks torch --networks lstm32`  (how noisy is this machine?)
    """
    form = given.output.check()
    lenient = one_of(what.undecided, "way to end an undecided gate", ("fail", "pass")) == "pass"
    asked = given.asked("gate", what.name, what.baseline or ())
    found = measure(asked, for_gate(host_of(asked.machine), asked.rule))
    show(found, form, given.output.write)
    ending = gate_outcome(found)
    if form != "terminal":
        say(ending.line)  # where a report is for programs, a person reads what stands beside it
    if ending.outcome == "failed":
        raise typer.Exit(GATE_FAILED if found.having(Verdict.REGRESSION) else GATE_BROKEN)
    if ending.outcome == "undecided" and not lenient:
        raise typer.Exit(GATE_UNDECIDED)
