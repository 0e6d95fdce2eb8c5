"""`dlbench gate`: measure baseline and candidate now, with an exit code for CI."""

from dataclasses import dataclass
from typing import Annotated

import typer

from dlbench.reports.compare.report import gate_outcome

from ..display.screen import say
from ..run.schedules import gate_rule
from . import options
from .compare import (
    MeasuredSides,
    TwoSidesOptions,
    annotating_errors,
    exit_code,
    is_lenient,
    measure,
    report_format,
    show,
    undecided_option,
)
from .options import flag, option, takes
from .qualify import qualify


@dataclass(frozen=True, kw_only=True)
class GateOptions(TwoSidesOptions):
    """The options of `dlbench gate`."""

    name: Annotated[str, options.SUITE]
    baseline: Annotated[
        list[str] | None,
        option("--baseline", "The baseline's interpreter. Repeatable.", metavar="NAME=PATH"),
    ] = None
    undecided: Annotated[str, undecided_option("fail")] = "fail"
    qualify: Annotated[
        bool, flag("--qualify", "Which slowdowns does a gate of these cells find?")
    ] = False


@takes(GateOptions)
def gate_command(given: GateOptions) -> None:
    """Measure a candidate against a baseline, and fail if it is slower, broken or different.

    With `--step` the suite gives the number of launches and steps, and your step takes the place of
    its networks.

    A pair is one launch of the baseline and one of the candidate, which take turns where they can.
    A cell gets pairs until it has a verdict, 40 at most. Slower cells are profiled, and the
    operators that account for the difference are named. The last line says "gate passed", "gate
    failed" or "gate undecided", and why.

    Exit codes:

    - 0: passed; a slowdown of 5 % (`--tolerance`) is excluded in every cell
    - 1: failed; a regression is confirmed
    - 5: failed; the candidate gave no number where the baseline did
    - 7: failed; the candidate computes something else than the baseline
    - 6: undecided; a cell has too little evidence (0 with `--undecided pass`)

    `--qualify` measures identical code and a slowdown of 5 %, and says which slowdowns a gate finds
    on this machine. Exit code 0: found in every cell; 1: identical code was called slower; 6:
    neither.

    Examples:

    - `dlbench gate quick --baseline-step old.py --step new.py --threads 1`
    - `dlbench gate quick --frameworks torch --baseline torch=old/bin/python`
    - `dlbench gate quick --qualify --frameworks torch --networks lstm32`
    """
    if given.qualify:
        raise typer.Exit(qualify(given, given.name, given.baseline or ()))
    form = report_format(given.form, given.as_json, given.write)
    lenient = is_lenient(given.undecided)
    with annotating_errors(form):
        comparison = measure_gate(given).comparison
    show(comparison, form, given.write)
    if form != "terminal":
        # for the person who reads stderr while a program reads the report
        say(gate_outcome(comparison).line)
    raise typer.Exit(exit_code(comparison, lenient))


def measure_gate(given: GateOptions) -> MeasuredSides:
    """Measure both sides until each cell has a verdict, and return them. Raises UsageError."""
    return measure(
        given,
        "gate",
        given.name,
        lambda host, cells, rule: gate_rule(host, rule),
        given.baseline or (),
    )
