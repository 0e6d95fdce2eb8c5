"""`dlbench plan` and `dlbench run`: what a suite would measure, and measuring it."""

import contextlib
import shlex
from collections.abc import Sequence
from typing import Annotated

import typer

from dlbench.adapters.protocol import BOUND, PRECISIONS, Cell
from dlbench.hardware_probe import Machine, probe
from dlbench.reports.evidence.statistics import ENOUGH_LAUNCHES
from dlbench.reports.storage.hosts import host_of
from dlbench.reports.storage.record import Run
from dlbench.reports.storage.store import Store

from ..display.progress import ProgressDisplay, clock, percent, precision_lines
from ..display.screen import counted, err, out, print_json, program, say, table
from ..environments import environment
from ..errors import Interrupted, Terminated, UsageError
from ..measuring import preparation
from ..measuring.attempts import Carrier
from ..measuring.launcher import ProcessLauncher
from ..measuring.runner import Ending, Runner
from ..planning import suite
from ..planning import values as axes
from ..planning.plan import Choices, Plan, expand
from ..quiet import block_gate
from ..quiet.busy_gpus import busy_gpus
from ..quiet.machine_lock import measuring
from . import listing, options
from .report import matrix_so_far


def plan_command(
    name: Annotated[str, typer.Argument(metavar="SUITE", help="A suite's name, or a file ending in .toml.")],
    networks: options.Networks = "",
    frameworks: options.Frameworks = "",
    threads: options.Threads = "",
    threads_limit: options.ThreadsLimit = "",
    batch_sizes: options.BatchSizes = "",
    devices: options.Devices = "",
    device_threads: options.DeviceThreads = "",
    precisions: options.Precisions = "",
    placements: options.Placements = "",
    affinity: options.Affinity = "",
    world_sizes: options.WorldSizes = "",
    launches: options.Launches = "",
    precision: options.Precision = "",
    steps: options.Steps = None,
    cell_budget: options.CellBudget = "",
    python: options.Python = None,
    adapter: options.Adapter = None,
    seed: options.Seed = None,
    as_json: options.Json = False,
) -> None:
    """Show what a run of this suite would measure, without measuring.

    Examples:

    - `dlbench plan table4 --networks fcn5 --threads 1,2`
    - `dlbench plan table4 --devices cuda:all --precisions float32,tf32`
    """
    chosen = options.choices(
        networks,
        frameworks,
        threads,
        threads_limit,
        batch_sizes,
        devices,
        affinity,
        launches,
        precision,
        steps,
        cell_budget,
        python,
        adapter,
        precisions,
        placements,
        device_threads,
        world_sizes,
    )
    plan = _plan(name, chosen, probe(), seed)
    if as_json:
        print_json(listing.plan(plan))
        return
    groups: dict[tuple[str, ...], list[str]] = {}
    for cell in plan.cells:
        key = (cell.network, str(cell.batch_size), cell.framework, cell.mode, _device(cell), _cpus(cell))
        groups.setdefault(key, []).append(str(cell.threads))
    table(
        f"{plan.suite}: {_size(plan)}",
        ["network", "mini-batch", "framework", "mode", "device", "CPUs", "threads"],
        [[*key, ", ".join(counts)] for key, counts in groups.items()],
    )
    for line in (_left_out(plan), _kind_of_protocol(plan)):
        if line:
            out.print(line, markup=False, soft_wrap=True)
    at_most = len(plan.cells) * plan.most * plan.cell_seconds
    out.print(f"At most {clock(at_most)}; usually a small part of it.", markup=False)


def _plan(name: str, chosen: Choices, machine: Machine, seed: int | None) -> Plan:
    return expand(
        suite.load(name), chosen, preparation.capacity(machine), preparation.new_seed() if seed is None else seed
    )


def run_command(
    name: Annotated[str, typer.Argument(metavar="SUITE", help="A suite's name, or a file ending in .toml.")],
    networks: options.Networks = "",
    frameworks: options.Frameworks = "",
    threads: options.Threads = "",
    threads_limit: options.ThreadsLimit = "",
    batch_sizes: options.BatchSizes = "",
    devices: options.Devices = "",
    device_threads: options.DeviceThreads = "",
    precisions: options.Precisions = "",
    placements: options.Placements = "",
    affinity: options.Affinity = "",
    world_sizes: options.WorldSizes = "",
    launches: options.Launches = "",
    precision: options.Precision = "",
    steps: options.Steps = None,
    cell_budget: options.CellBudget = "",
    python: options.Python = None,
    adapter: options.Adapter = None,
    budget: Annotated[str, typer.Option("--budget", help="Time for all launches: 90s, 10m, 1.5h.")] = "",
    store_file: options.StoreFile = options.DEFAULT_STORE,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the unfinished run of this suite.")] = False,
    no_build: Annotated[bool, typer.Option("--no-build", help="Build no environment; leave those rows out.")] = False,
    no_ceilings: Annotated[bool, typer.Option("--no-ceilings", help="Do not measure ceilings first.")] = False,
    no_quiet_gate: Annotated[
        bool,
        typer.Option("--no-quiet-gate", help="Wait for no quiet machine, and repeat no launch that others disturbed."),
    ] = False,
    seed: options.Seed = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the matrix as JSON when the run ends.")] = False,
) -> None:
    """Measure a suite on this machine and show its matrix.

    Builds the environments it lacks, saying first what it downloads. Every finished launch is stored at once: Ctrl-C
    loses nothing, and --resume goes on.

    Examples:

    - `dlbench run quick`
    - `dlbench run table4 --frameworks torch,mxnet --networks fcn5 --threads 1,2,4-8 --budget 10m`
    - `dlbench run quick --frameworks torch --devices cpu,cuda:0 --batch-sizes 64,256`
    - `dlbench run quick --frameworks torch,jax --threads 1 --world-sizes 1,2`
    - `dlbench run quick --python torch-nightly:torch=/opt/nightly/bin/python`
    - `dlbench run quick --adapter my_framework=path/to/its/adapter`
    """
    chosen = options.choices(
        networks,
        frameworks,
        threads,
        threads_limit,
        batch_sizes,
        devices,
        affinity,
        launches,
        precision,
        steps,
        cell_budget,
        python,
        adapter,
        precisions,
        placements,
        device_threads,
        world_sizes,
    )
    allowed = options.Budget.parse(budget)
    if resume and chosen != Choices(builds=chosen.builds, joining=chosen.joining):
        raise UsageError(
            "A resumed run keeps its own cells and protocol. Leave out what narrows or changes them, or leave out "
            "--resume to start a run of its own."
        )
    machine = probe()
    plan = _plan(name, chosen, machine, seed)
    preparation.check_brought(chosen.builds)
    environment.make_folder(environment.home())  # where it cannot be, nothing is built or measured
    launcher = ProcessLauncher()
    # Resuming needs a store that is there: it must not leave an empty one behind.
    with Store.open(store_file, create=not resume) as store:
        unfinished: Run | None = None
        if resume:
            plan, unfinished = preparation.resume(plan, store, machine, chosen.builds, chosen.joining)
            preparation.check_same_builds(plan, store.records(run=unfinished.id))
        # An adapter that --frameworks leaves out has no row to go on with.
        used = {row.build.framework.name for row in plan.rows}
        adapters = [text for text in adapter or () if text.partition("=")[0] in used]
        go_on = _resume_command(name, store_file, python or (), adapters)
        store.add_machine(machine.fingerprint, machine.to_dict())
        sources = preparation.prepare_sources(plan, say, build_missing=not no_build)
        # What computes nothing disturbs nobody, and nobody disturbs it.
        with measuring(say, wait=True) if plan.computes else contextlib.nullcontext():
            if not no_ceilings:
                preparation.ensure_ceilings(plan, store, machine, say)
            reference = preparation.prepare_references(plan, machine, say)
            defaults = preparation.prepare_defaults(plan, sources, machine, launcher, say)
            run = unfinished or preparation.begin(plan, store, machine)
            say(f"{plan.suite}: {_size(plan)}, run {run.id} in {store.name}")
            say(_kind_of_protocol(plan))
            for line in busy_gpus(plan.cells, machine.gpus):
                say(line)
            gate = None if no_quiet_gate or not plan.computes else block_gate.open_gate(store, run, say)
            carrier = Carrier(
                plan,
                run,
                launcher,
                sources,
                reference,
                machine=machine,
                default_threads=defaults,
                before_repeat=gate.before_repeat if gate else lambda: False,
            )
            host = host_of(machine)
            with preparation.exclusive(run), ProgressDisplay(err, lambda: matrix_so_far(store, run.id)) as display:
                runner = Runner(plan, run, store, carrier, display, allowed.seconds, gate=gate, host=host)
                display.follow(runner.ledger)
                ending = _watched(runner, go_on)
            for line in precision_lines(plan, runner.ledger):
                say(line)
        _show(store, run, ending, go_on, as_json)


def _watched(runner: Runner, resume_command: str) -> Ending:
    go_on = f"Every finished launch is stored; go on with: {resume_command}"
    try:
        return runner.run()
    except Terminated as error:
        raise Terminated(f"Ended by SIGTERM. {go_on}") from error
    except KeyboardInterrupt as error:
        raise Interrupted(f"Interrupted. {go_on}") from error


def _size(plan: Plan) -> str:
    launches = (
        f"{plan.launches}-{plan.most} launches" if plan.precision else counted(plan.launches, "launch", "launches")
    )
    return f"{counted(len(plan.cells), 'cell')}, {launches} of each"


def _cpus(cell: Cell) -> str:
    return "as threads" if cell.affinity == BOUND else "all"


def _device(cell: Cell) -> str:
    """Return the device, with precision, placement and number of workers where they are not the usual ones."""
    unusual = [cell.precision] if cell.precision != PRECISIONS[0] else []
    unusual += [cell.placement] if cell.placement != axes.RESIDENT else []
    unusual += [f"x {cell.world_size}"] if cell.world_size != 1 else []
    return " ".join([cell.device, *unusual])


def _kind_of_protocol(plan: Plan) -> str:
    """Return in a sentence whether the number of launches is fixed, and what intervals then mean."""
    if plan.precision:
        return (
            f"until precise: a cell gets launches until its 95 % interval is no wider than ±{percent(plan.precision)}"
        )
    covered = "launches too" if plan.launches >= ENOUGH_LAUNCHES else "steps only, not what launches differ by"
    return f"fixed: {counted(plan.launches, 'launch', 'launches')} of each cell, intervals cover {covered}"


def _left_out(plan: Plan) -> str:
    """Return in a sentence which cells this machine cannot have; empty where it can have all."""
    if not plan.left_out:
        return ""
    counts = ", ".join(map(str, sorted({cell.all_threads for cell in plan.left_out})))
    left = counted(len(plan.left_out), "cell")
    return f"left out: {left} that would bind {counts} threads to as many CPUs, this machine has fewer"


def _resume_command(name: str, store_file: str, builds: Sequence[str], adapters: Sequence[str]) -> str:
    words = [program(), "run", name, "--resume"]
    words += [] if store_file == options.DEFAULT_STORE else ["--store", store_file]
    for build in builds:
        words += ["--python", build]
    for adapter in adapters:
        words += ["--adapter", adapter]
    return shlex.join(words)


def _show(store: Store, run: Run, ending: Ending, go_on: str, as_json: bool) -> None:
    print(matrix_so_far(store, run.id, as_json))
    if ending.launches_left:
        left = counted(ending.launches_left, "launch", "launches")
        say(f"The budget is spent with {left} left, about {clock(ending.seconds_left)} of measuring. Go on: {go_on}")
    if not as_json:
        print(f"Next ({program()} ... --store {store.name}):")
        print("  report threads          how many threads to give, and what more of them cost")
        print("  report tables           software, networks and hardware behind the numbers")
        print("  report matrix --json    everything, for a script (also csv, markdown, latex)")
    if not any(record.outcome.samples_ns for record in store.records(run=run.id)):
        say("dlbench: not one cell gave a number; the reasons stand under the matrix.")
        raise typer.Exit(1)
