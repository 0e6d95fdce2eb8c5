"""A run over a launcher that only pretends: its plan, its store."""

from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

from fake_nvml import TWO, nvml
from processes import plan_of

from dlbench.adapters.protocol import Answer, Status
from dlbench.reports.results.outcome import LaunchVerdict, Outcome
from dlbench.reports.results.record import SEARCH, Run
from dlbench.reports.results.storage.store import Store
from dlbench.suites.environments.environment import BuildSource
from dlbench.suites.planning.suite import parse
from dlbench.suites.planning.values import Capacity
from dlbench.suites.run.budget import Budget
from dlbench.suites.run.launch import LaunchRunner
from dlbench.suites.run.launcher import Launched
from dlbench.suites.run.runner import Runner
from dlbench.suites.run.schedules import schedule_for

TEXT = """
name = "pretended"
summary = "for tests"
networks = ["fcn5", "lstm32"]
frameworks = ["null", "torch:*"]
threads = [1, 2, 4]
[protocol]
launches = 2
cell_seconds = 10.0
[settings.null]
step_seconds = 0.5
[settings.torch]
compile = "over the mode's own"
"""
PLAN = plan_of(parse(TEXT, "pretended.toml"), Capacity(2, 4), seed=5)
ORDER = [(planned.cell, planned.index) for planned in PLAN.order()]


class Pretender:
    """A launcher that answers at once, as configured; its clock runs as if each launch lasted
    ``seconds``."""

    def __init__(self, answer=lambda cell: ok(), seconds=1.0, ends_at=None):
        self.answer, self.seconds, self.ends_at = answer, seconds, ends_at
        self.orders, self.time = [], 0.0

    def __call__(self, order, tick):
        if len(self.orders) == self.ends_at:
            raise KeyboardInterrupt
        self.orders.append(order)
        self.time += self.seconds
        return ended_as(self.answer(order.launch.cell), self.seconds)

    @property
    def cells(self):
        return [order.launch.cell for order in self.orders]


def ended_as(outcome, seconds=1.0):
    """Return a launch with this outcome, whatever the judge may say."""
    verdict = LaunchVerdict(outcome.status, outcome.reason, outcome.parity)
    answered = {name: getattr(outcome, name) for name in Answer._fields if hasattr(outcome, name)}
    return Launched(verdict, seconds, Answer(**answered), outcome.outside, outcome.paused_ns)


def ok(step=0.01):
    return Outcome(Status.OK, samples_ns=[round(step * 1e9)] * 3)


def sources(plan=PLAN, **reasons):
    sources = {}
    for row in plan.rows:
        name = row.build.name
        located = Path(f"/{name}/python"), f"CPython of {name}", f"env-{name}", ""
        sources[name] = BuildSource(
            row.build, *((None, "", "", reasons[name]) if name in reasons else located)
        )
    return sources


def open_store():
    return Store.open("sqlite://")


def begin(store, plan=PLAN):
    started = datetime.now(UTC)
    run = Run(
        "r1",
        plan.suite,
        plan.protocol,
        plan.launches,
        plan.cells,
        "machine-1",
        started,
        "9.9",
        None,
        plan.seed,
    )
    store.begin_run(run)
    return run


def runner_of(
    store, run, launcher, plan=PLAN, budget=None, watcher=None, schedule=schedule_for, **options
):
    """Return the runner of a run with these options of its launches; ``launcher`` may be a dict by
    side."""
    options = {
        "sources": sources(plan),
        "reference": lambda cell: None,
        "nvml": nvml(TWO),
        **options,
    }
    by_side = launcher if isinstance(launcher, dict) else dict.fromkeys(("", SEARCH), launcher)
    launchers = {
        side: LaunchRunner(plan, run, launcher, **options) for side, launcher in by_side.items()
    }
    host = next(iter(launchers.values())).host
    schedule = schedule(plan, store.records(run=run.id), host)
    clock = lambda: sum(launcher.time for launcher in set(by_side.values()))  # noqa: E731
    return Runner(store, launchers, schedule, watcher or Mock(), Budget(budget, clock))


def launched(store):
    return [(record.cell, record.launch) for record in store.records()]


def carry_out(answer=lambda cell: ok(), **options):
    store, launcher = open_store(), Pretender(answer)
    ending = runner_of(store, begin(store), launcher, **options).run()
    return store, launcher, ending
