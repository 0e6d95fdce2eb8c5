"""`dlbench try`: a training step of the user's own, run twice with its output shown."""

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from dlbench.adapters.protocol import Status
from dlbench.hardware_probe import Machine, probe
from dlbench.reports.results.flag_kinds import (
    LOSS_CONSTANT,
    NO_STEADY_STATE,
    THREADS_EXCEEDED,
    THREADS_UNUSED,
)
from dlbench.reports.results.flags import record_flags
from dlbench.reports.results.hosts import host_of
from dlbench.reports.results.naming import counted, name_of
from dlbench.reports.results.number_text import number
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.record import Record
from dlbench.reports.results.thread_evidence import threads_seen

from ..display.screen import program, say, show
from ..environments import environment, folders
from ..errors import NOTHING_MEASURED, FrameworkEnvironmentError, UsageError
from ..planning import framework, own
from ..planning.plan import Plan, PlannedLaunch, expand
from ..planning.suite import ProtocolSection, Suite
from ..run import preparation
from ..run.launch import LaunchRunner
from ..run.launcher import Launched, LaunchRequest, Tick, launch_process
from ..run.quiet import measuring
from ..run.runner import left_behind_sentence
from . import options
from .options import SuiteOptions, argument, option, takes

_PROTOCOL = ProtocolSection(
    warmup_steps=3, steps=5, minimum_steps=2, seconds=5.0, cell_seconds=600.0
)
_LAUNCHES = 2
_WORTH_SAYING = (LOSS_CONSTANT, THREADS_EXCEEDED, THREADS_UNUSED, NO_STEADY_STATE)
"""Flags about the file. Others are about the machine, and a trial is not a measurement."""


@dataclass(frozen=True, kw_only=True)
class _FileOptions:
    """Options of the file and its launches, which a run of it needs too."""

    python: Annotated[
        str | None,
        option("--python", "The interpreter that has the step's framework.", metavar="PATH"),
    ] = None
    batch_sizes: Annotated[
        str | None, option("--batch-sizes", "Mini-batch size.", metavar="SIZE")
    ] = None
    devices: Annotated[
        str | None, option("--devices", "Device: `cpu` or `cuda:0`.", metavar="NAME")
    ] = None
    precisions: Annotated[
        str | None, option("--precisions", "Precision that the file is asked for.", metavar="NAME")
    ] = None
    task: Annotated[
        str | None,
        option(
            "--task", "`training`, or `inference` where the step returns outputs.", metavar="NAME"
        ),
    ] = None
    env: Annotated[list[str] | None, options.ENV] = None
    loss_tolerance: Annotated[str | None, options.LOSS_TOLERANCE] = None


@dataclass(frozen=True, kw_only=True)
class TryOptions(_FileOptions):
    """The options of `dlbench try`."""

    file: Annotated[str, argument("FILE", "The file with the step, such as train_step.py.")]
    threads: Annotated[
        str | None,
        option("--threads", "Thread count (default: as many as cores).", metavar="COUNT"),
    ] = None
    cell_budget: Annotated[str | None, options.CELL_BUDGET] = None


@takes(TryOptions)
def try_command(given: TryOptions) -> None:
    """Run a training step of your own in two processes, with its output and a check of its results.

    Nothing is stored. Exit code 1: the step does not run, or its losses differ between the two
    processes.

    Examples:

    - `dlbench try train_step.py`
    - `dlbench try train_step.py --python ~/venv/bin/python --threads 2`
    """
    machine = probe()
    plan = _plan(given, machine)
    folders.make_folder(folders.home())
    if left := left_behind_sentence(plan):
        say(left)
    records = _launch(plan, machine)
    for line in _lines(records, plan, machine):
        show(line, whole=True)
    if any(record.outcome.status is not Status.OK for record in records):
        if given.python is None and "ModuleNotFoundError" in records[-1].outcome.reason:
            show("Name the interpreter that has this module: --python PATH.", whole=True)
        raise typer.Exit(NOTHING_MEASURED)
    words = [program(), "run", "threads", "--step", given.file]
    words += options.words_of(given, options.names_of(_FileOptions))
    show(f"Next: {shlex.join(words)}", whole=True)


def _plan(given: TryOptions, machine: Machine) -> Plan:
    """Return the plan of the file's one cell.

    Raises UsageError, and FrameworkEnvironmentError for an unsuitable interpreter.
    """
    own.register_steps([given.file])
    chosen = options.choices(
        SuiteOptions(
            step=[given.file],
            python=[given.python] if given.python is not None else [],
            threads=given.threads,
            batch_sizes=given.batch_sizes,
            devices=given.devices,
            precisions=given.precisions,
            task=given.task,
            cell_budget=given.cell_budget,
            env=given.env,
            loss_tolerance=given.loss_tolerance,
        )
    )
    assert chosen.own is not None
    suite = Suite(
        name="try",
        summary="a trial",
        frameworks=chosen.own.names,
        threads="cores",
        protocol=_PROTOCOL,
    )
    place = preparation.capacity(machine)
    plan = expand(chosen.own.instead_of(suite), chosen, place, preparation.new_seed())
    if len(plan.cells) > 1:
        raise UsageError("A trial runs one cell. Give one value to each option.")
    preparation.check_interpreters(chosen.builds)
    return chosen.own.tolerated(plan)


def _launch(plan: Plan, machine: Machine) -> list[Record]:
    """Launch the cell twice, or until a launch fails. Raises FrameworkEnvironmentError."""
    cell = plan.cells[0]
    sources = environment.prepare_sources(plan.builds, say)
    source = sources[cell.framework]
    if source.interpreter is None:
        raise FrameworkEnvironmentError(source.reason)

    def launch_with_output(request: LaunchRequest, tick: Tick) -> Launched:
        return launch_process(replace(request, shown=True), tick)

    run = preparation.new_run(plan, machine, "try")
    runner = LaunchRunner(
        plan, run, launch_with_output, sources, lambda cell: None, machine=machine
    )
    records: list[Record] = []
    with measuring(say, wait=True, computes=plan.computes):
        for launch in range(_LAUNCHES):
            show(f"Process {launch + 1} of {_LAUNCHES}, {name_of(cell)}. Its output:", whole=True)
            sys.stdout.flush()
            record = runner.attempt(PlannedLaunch(cell, launch), plan.protocol)
            records.append(record)
            if not record.outcome.samples_ns:
                break
    return records


def _lines(records: list[Record], plan: Plan, machine: Machine) -> Iterator[str]:
    """Yield the results of a file's launches, in lines."""
    yield ""
    first = records[0].outcome
    last = records[-1].outcome
    if first.samples_ns:
        yield from _times(first)
        yield from _losses(first)
        yield from _outputs(first)
    if last.status is not Status.OK:
        which = "Process 2: " if len(records) > 1 else ""
        yield f"{which}{last.status.value.replace('_', ' ')}: {last.reason}"
    elif first.parity is not None and (first.parity.losses or first.parity.outputs):
        yield f"The {'losses' if first.parity.losses else 'outputs'} repeat in a second process."
    if first.samples_ns:
        yield from _threads(records[0], machine)
    yield from _declared(plan, first)


def _times(outcome: Outcome) -> Iterator[str]:
    """Yield the seconds of a launch's parts."""
    seconds_by_part = {
        "import": outcome.import_seconds,
        "prepare()": outcome.prepare_seconds,
        "first step": outcome.first_step_seconds,
    }
    parts = []
    for name, seconds in seconds_by_part.items():
        if seconds is not None:
            parts.append(f"{name} {number(seconds)} s")
    steps = ", ".join(number(nanoseconds * 1e-9) for nanoseconds in outcome.warmup_ns)
    yield f"Time: {', '.join(parts)}, the steps after it {steps} s."
    yield (
        f"A timed step: {number(median(outcome.step_seconds()))} s (median of "
        f"{outcome.timed_steps()})."
    )


def _losses(outcome: Outcome) -> Iterator[str]:
    """Yield the losses that launches compare, and the last one."""
    if outcome.parity is None or not outcome.parity.losses:
        return
    compared = ", ".join(f"{loss:.6g}" for loss in outcome.parity.losses)
    after = "" if outcome.final_loss is None else f"; after all steps {outcome.final_loss:.6g}"
    yield (
        f"Losses of the first {len(outcome.parity.losses)} steps, which launches must agree on: "
        f"{compared}{after}."
    )


def _outputs(outcome: Outcome) -> Iterator[str]:
    """Yield the first of the outputs that launches compare."""
    if outcome.parity is None or not outcome.parity.outputs:
        return
    some = ", ".join(f"{output:.6g}" for output in outcome.parity.outputs[0][:4])
    yield (
        f"Outputs of the first {len(outcome.parity.outputs)} calls, which launches must agree on, "
        f"begin with: {some}."
    )


def _threads(record: Record, machine: Machine) -> Iterator[str]:
    """Yield the threads that worked, and the doubts about a launch that its file can settle."""
    threads = record.outcome.threads
    if threads is not None and record.cell.on_cpu:
        seen = threads_seen(threads, record.outcome.contention)
        helpers = f", {counted(threads.helpers, 'helper')} among them" if threads.helpers else ""
        yield f"Threads: {threads.requested} asked for{helpers}, {seen} at work at once."
    for flag in record_flags(record, host_of(machine)):
        if flag.kind in _WORTH_SAYING:
            yield f"{flag.kind.symbol} {flag.sentence[0].upper()}{flag.sentence[1:]}"


def _declared(plan: Plan, outcome: Outcome) -> Iterator[str]:
    """Yield the file's statements about itself, and the facts that stay unknown."""
    file = framework.find(plan.cells[0].framework).file
    assert file is not None
    description = own.description(Path(file))
    yield f"The file says: {'; '.join(description.said) or 'nothing beside prepare'}."
    unknown = list(description.unknown)
    parity = outcome.parity
    can_compare = parity is not None and bool(parity.losses or parity.outputs)
    if outcome.samples_ns and not can_compare:
        unknown.append(
            "whether launches compute the same: prepare returns no function for the loss"
        )
    if unknown:
        yield f"Unknown: {'; '.join(unknown)}."
