"""`dlbench tune`: the fastest way to run a network on this machine."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from dlbench.adapters import axes as axes_of_cells
from dlbench.hardware_probe import Machine, probe

from ..display.screen import print_json, say, show
from ..errors import NOTHING_MEASURED, UsageError
from ..measuring import preparation
from ..planning import values
from ..planning.choices import Choices
from ..planning.plan import Plan
from ..storing import spools
from ..tuning import fastest, race
from . import options
from .options import OptionGroup, grouped
from .plan import plan_of
from .run import HowToRun, carry_out

SUITE = "tuning"
_ONE = [axis.name for axis in axes_of_cells.of_role(axes_of_cells.GROUP)] + ["device"]
_USUAL = {"tuning": "installed,tuned,each", "threads": "1..cpus"}


@dataclass(frozen=True)
class SearchOptions(OptionGroup):
    """Where records go, and for how long the search lasts at most."""

    budget: options.TotalBudget = None
    store_file: options.StoreFile = options.DEFAULT_STORE
    no_build: options.NoBuild = False
    seed: options.Seed = None
    no_quiet_gate: Annotated[
        bool, typer.Option("--no-quiet-gate", help="Do not wait for a quiet machine or repeat disturbed launches.")
    ] = False
    as_json: options.Json = False


@grouped
def tune_command(axes: options.AxisOptions, builds: options.RowOptions, search: SearchOptions) -> None:
    """Find the fastest way to run a network here: threads, mode and settings, with its gain and how to set it.

    Every way gets one launch, the faster half of them another, and so on; the last two, and what a user starts from
    (as installed, on as many threads as cores), then run pairs, which alone make the gain. A way that fails parity is
    out. Without --threads it tries 1 to as many as CPUs, of a framework without mode all modes, and each setting alone
    and left out. Launches are stored; an interrupted search begins anew.

    Examples:

    - `dlbench tune --network fcn5 --framework torch --budget 20m`
    - `dlbench tune --network lstm32 --frameworks torch,jax --threads 1,2`
    - `dlbench tune --step train_step.py --threads 1..cpus`
    """
    machine = probe()
    plan = race.raced(_ways(axes, builds, machine, search.seed))
    start = race.to_beat(plan, preparation.capacity(machine).cores)
    preparation.check_brought(builds.builds)
    session = options.SessionOptions(search.budget, search.store_file, no_build=search.no_build)
    how = HowToRun(no_ceilings=True, no_quiet_gate=search.no_quiet_gate)
    with spools.opened(search.store_file, say) as store:
        run, ending, ledger = carry_out(plan, machine, store, session, how, ledger=partial(race.Race, start))
        assert isinstance(ledger, race.Race)
        answer = fastest.answer(plan, ledger, list(store.records(run=run.id)), start)
    if answer is None:
        say("dlbench: no way gave a number, or the budget was too short; what was measured is stored.")
        raise typer.Exit(NOTHING_MEASURED)
    if search.as_json:
        print_json(fastest.data(plan, answer))
        return
    for line in fastest.lines(plan, answer):
        show(line, whole=True)
    if ending.launches_left:
        say("The budget was spent before all pairs were run: a longer one makes the gain more certain.")


def _ways(axes: options.AxisOptions, builds: options.RowOptions, machine: Machine, seed: int | None) -> Plan:
    """Return the plan of every way to be tried; raises UsageError where their times would not compare."""
    words = {key: value for key, value in axes.words.items() if value is not None}
    options.check_own(axes, builds)
    if builds.own is None:
        if "networks" not in words:
            raise UsageError("Name the network to find the fastest way for: --network fcn5.")
        if "frameworks" not in words:
            raise UsageError("Name the frameworks to search among: --framework torch, or --frameworks torch,jax.")
        names = values.words(words["frameworks"])
        words["frameworks"] = ",".join(name if ":" in name else f"{name}:*" for name in names)
    chosen = Choices({**_USUAL, **words}, builds=builds.builds, joining=builds.joining, own=builds.own)
    found = plan_of(SUITE, chosen, machine, seed)
    if len({axes_of_cells.project(cell, _ONE) for cell in found.cells}) > 1:
        raise UsageError("Times of different work do not compare. Name one network, mini-batch, device and precision.")
    return found
