"""Finds the run that ``--resume`` continues: an unfinished one that the same command began.

Any difference between the plan and the run is an error that lists it, except for more launches:
these are added to the newest run that is otherwise the same, be it finished or not.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from dlbench.adapters.axes import AXES
from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import Machine
from dlbench.reports.results.record import BISECTING, RELEASES, SEARCHING, Record, Run
from dlbench.reports.results.storage.store import Store

from ..environments import digests, environment
from ..environments.digests import adapter_digest
from ..errors import UsageError
from ..planning.axes import SuiteOverrides
from ..planning.framework import Framework, catalogue, offered
from ..planning.plan import Plan
from ..planning.values import Build, rows
from .privacy import recorded
from .texts import Text

_SHOWN = 4


def unfinished(store: Store, plan: Plan, machine: Machine, purpose: str) -> Run:
    """Return the newest unfinished run of this plan on this machine for this purpose.

    Raises UsageError if no run is unfinished, or only runs of other plans are.
    """
    runs = _unfinished_runs(store, plan, machine, purpose)
    run = _same_run(plan, runs)
    if run is None:
        _refuse(plan, runs[-1])
    return run


def _runs_of_suite(
    store: Store, plan: Plan, machine: Machine, purpose: str, of_fleet: str | None = None
) -> list[Run]:
    """Return the runs of a plan's suite on this machine for this purpose, oldest first.

    A fleet's runs are resumed by their fleet alone, which names the run: its nodes share a
    fingerprint.
    """
    wanted = plan.suite, machine.fingerprint, purpose
    runs = []
    for run in store.runs():
        if (run.suite, run.machine, run.purpose) != wanted:
            continue
        if run.id == of_fleet or (of_fleet is None and run.node is None):
            runs.append(run)
    return runs


_NOUNS = {"suite": "run", SEARCHING: "search", BISECTING: "bisection", RELEASES: "run of releases"}
"""Nouns for runs of a purpose that is no noun itself."""


def _unfinished_runs(store: Store, plan: Plan, machine: Machine, purpose: str) -> list[Run]:
    """Return the unfinished runs of a suite, oldest first. Raise UsageError if there are none."""
    runs = [run for run in _runs_of_suite(store, plan, machine, purpose) if run.finished is None]
    if not runs:
        raise UsageError(
            f"This store has no unfinished {_NOUNS.get(purpose, purpose)} of {plan.suite} on this "
            "machine. Leave --resume out to start one."
        )
    return runs


def resume(
    plan: Plan,
    store: Store,
    machine: Machine,
    chosen: SuiteOverrides,
    purpose: str = "suite",
    of_fleet: str | None = None,
) -> tuple[Plan, Run]:
    """Return the run that this plan continues, and its plan.

    Cells, protocol and order are the run's, and its launches unless the plan has more. ``of_fleet``
    is the id of the run that a fleet's job resumes. Raises UsageError when there is nothing to
    resume, when a build or an adapter it used was not given again, when an adapter named now has no
    row in it, and when it is not the run asked for.
    """
    runs = _runs_of_suite(store, plan, machine, purpose, of_fleet)
    open_runs = [run for run in runs if run.finished is None]
    if of_fleet:
        # A fleet names the run, which may be the rest of the plan that another node had left.
        run = next(iter(open_runs), None)
    else:
        run = _same_run(plan, open_runs) or _extended_run(plan, runs)
    newest = run or _unfinished_runs(store, plan, machine, purpose)[-1]
    names_of_rows = [f"{cell.framework}:{cell.mode}" for cell in newest.plan]
    try:
        planned_rows = rows(list(dict.fromkeys(names_of_rows)), list(chosen.builds))
    except UsageError as error:
        option = _missing_option(newest, chosen.builds)
        raise UsageError(
            f"The unfinished run needs a build that is missing: {error} Give its {option} again."
        ) from error
    frameworks = {row.build.framework.name for row in planned_rows}
    for name in chosen.joining:
        if name not in frameworks:
            raise UsageError(
                f"The unfinished run has no row of {name}, and a resumed run cannot get new rows. "
                f"Leave out --adapter {name}=..., or leave out --resume to start a new run."
            )
    if run is None:
        _refuse(plan, newest)
    # The rest is the same, or it would not be this run.
    return replace(plan, cells=run.plan, rows=planned_rows, seed=run.seed, left_out=()), run


def _missing_option(run: Run, builds: tuple[Build, ...]) -> str:
    """Return the option that gave the first row of the run that is missing on this machine."""
    present = set(offered())
    present.update(build.name for build in builds)
    own_adapters = {framework.folder for framework in catalogue().values()}
    for cell in run.plan:
        if cell.framework not in present:
            if cell.adapter and cell.adapter not in own_adapters:
                return "--adapter"
            return "--python"
    return "--python"


def check_same_builds(plan: Plan, records: Iterable[Record]) -> None:
    """Refuse other builds, adapters or settings than those of the run's records.

    Raises UsageError.
    """
    # A skipped or crashed launch says nothing about the adapter.
    launched = [record for record in records if record.environment]
    # The last record of a build is checked: one with the adapter's digest if there is any.
    launched.sort(key=_has_digest)
    record_by_build = {record.cell.framework: record for record in launched}
    for build in plan.builds:
        if build.name in record_by_build:
            _check_same_build(build, record_by_build[build.name], plan.variables)
    frameworks = {}
    for row in plan.rows:
        frameworks[row.build.name, row.mode] = row.build.framework
    for record in launched:
        framework = frameworks.get((record.cell.framework, record.cell.mode))
        if framework is not None:
            check_same_settings(plan, record, framework)


def _has_digest(record: Record) -> bool:
    return record.outcome.facts.adapter_digest is not None


def _check_same_build(build: Build, record: Record, variables: Mapping[str, str]) -> None:
    adapter = record.outcome.facts.adapter_digest
    if build.framework.external and adapter not in (None, adapter_digest(build.framework)):
        code = build.framework.file or build.framework.outside
        kind = "file" if build.framework.file else "adapter"
        raise UsageError(
            f"The unfinished run measured {build.name} with another {kind} than {code} is now: its "
            "code has changed. Put it back, or leave out --resume to start a new run."
        )
    interpreter = build.interpreter or environment.locate(build.framework).interpreter
    name = ""
    built = ""
    if interpreter:
        inspection = environment.look_into(build, interpreter)
        name = inspection.name
        built = digests.build_digest(inspection)
    digest = digests.add_variables(built, variables)
    if digest != record.environment:
        now = "not built"
        if built:
            now = f"{name}, environment {digest}"
        if variables:
            now += f" (with {', '.join(variables)} as given by --env)"
        raise UsageError(
            f"The unfinished run measured {build.name} with {record.interpreter}, environment "
            f"{record.environment}; now it is {now}. Give that interpreter (--python "
            f"{build.name}=...), or leave out --resume to start a new run."
        )


def check_same_variables(record: Record, environment: str, variables: Mapping[str, str]) -> None:
    """Refuse other environment variables than the run's, also where records hide their values.

    ``environment`` is the digest of the build on this machine. Raises UsageError.
    """
    if record.environment and record.environment != digests.add_variables(environment, variables):
        raise UsageError(
            f"The unfinished run measured {record.cell.framework} in another environment, or with "
            f"other values of {', '.join(variables)} (--env). Give the same, or leave out --resume "
            "to start a new run."
        )


def check_same_text(text: Text | None, records: Iterable[Record]) -> None:
    """Refuse another text than the one the run's launches were trained on. Raises UsageError."""
    for record in records:
        then = record.outcome.facts.text
        if not isinstance(then, dict) or then.get("digest") is None:
            continue
        digest = then["digest"]
        if text is None or digest != text.digest:
            raise UsageError(
                f"The unfinished run trains on another text ({digest}). Give its --corpus again, "
                "or leave out --resume to start a new run."
            )


def check_same_settings(plan: Plan, record: Record, framework: Framework) -> None:
    """Refuse other settings than the row had then: "tuned" would change its meaning within the run.

    ``framework`` is the row's as it is now. Raises UsageError.
    """
    cell = record.cell
    then = record.outcome.facts.tunable
    if then is None or cell.network not in plan.networks:
        return
    now = framework.tunable(cell.mode, cell.device, plan.network_of(cell).family.name, cell.task)
    if list(then) != list(now):
        had = "without settings"
        if then:
            had = f"with the settings {', '.join(then)}"
        has = ", ".join(now) or "none"
        raise UsageError(
            f"The unfinished run measured {cell.framework} {had}; it has {has} now. Leave out "
            "--resume to start a new run."
        )


def _extended_run(plan: Plan, runs: Sequence[Run]) -> Run | None:
    """Return the newest of these runs that differs from the plan by fewer launches only.

    It has the plan's launches.
    """
    for run in reversed(runs):
        longer = replace(
            run,
            launches=plan.launches,
            launches_most=plan.launches_most,
            precision=plan.interval,
            finished=None,
        )
        more = plan.launches >= run.launches and plan.most > run.most
        if more and not differences(plan, longer):
            return longer
    return None


def _same_run(plan: Plan, runs: Sequence[Run]) -> Run | None:
    """Return the newest of these unfinished runs (oldest first) that has this plan."""
    for run in reversed(runs):
        if not differences(plan, run):
            return run
    return None


def _refuse(plan: Plan, run: Run) -> NoReturn:
    texts = differences(plan, run)
    shown = texts[:_SHOWN]
    if len(texts) > _SHOWN:
        shown.append(f"{len(texts) - _SHOWN} more")
    raise UsageError(
        f"The unfinished run {run.id} is not the one asked for now: {'; '.join(shown)}. Give the "
        "options and the suite it began with, or leave out --resume to start a new run."
    )


def differences(plan: Plan, run: Run) -> list[str]:
    """Return a text for each difference between a plan and an unfinished run.

    Without any, the run can be resumed.
    """
    planned = set(plan.cells)
    earlier = set(run.plan)
    compared: list[tuple[str, object, object]] = []
    # A store lacks fewer cells once a run has measured some of them.
    if planned != earlier and not (plan.by_worth and planned <= earlier):
        for axis in AXES:
            name = axis.name
            compared.append((name, _values_text(planned, name), _values_text(earlier, name)))
        if all(now == then for _, now, then in compared):
            added = len(planned - earlier)
            removed = len(earlier - planned)
            compared = [("cells", f"{added} others", f"{removed} others")]
    for name in plan.protocol._fields:
        # The fewest steps follow from the most.
        if name != "minimum_steps" or plan.protocol.steps == run.protocol.steps:
            compared.append((name, getattr(plan.protocol, name), getattr(run.protocol, name)))
    launches = _range_text(plan.launches, plan.launches_most)
    compared.append(("launches", launches, _range_text(run.launches, run.launches_most)))
    variables = _variables_text(recorded(plan.variables))
    compared.append(("variables (--env)", variables, _variables_text(run.variables)))
    compared.append(("interval", plan.interval or "none", run.precision or "none"))
    texts = []
    for name, now, then in compared:
        if now != then:
            texts.append(f"{name.replace('_', ' ')}: {now} now, {then} in the run")
    return texts


def _values_text(cells: Iterable[Cell], axis: str) -> str:
    axis_values = {getattr(cell, axis) for cell in cells}
    return ", ".join(map(str, sorted(axis_values)))


def _variables_text(recorded: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in recorded.items()) or "none"


def _range_text(fewest: int, most: int | None) -> str:
    if most is None:
        return str(fewest)
    return f"{fewest}-{most}"
