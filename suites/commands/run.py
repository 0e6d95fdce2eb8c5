"""`dlbench run` and `dlbench tune`: measure a suite on this machine; find the fastest way to run a
network here.
"""

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path

import typer

from dlbench.adapters import axes as axes_of_cells
from dlbench.adapters import tuning
from dlbench.adapters.protocol import Cell, Status
from dlbench.hardware_probe import Machine, probe
from dlbench.reports.catalogue import suggested
from dlbench.reports.results.leaders import fastest, leads
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.naming import counted
from dlbench.reports.results.record import SEARCH, SEARCHING, Record, Run
from dlbench.reports.results.results import Results
from dlbench.reports.results.storage import delivery
from dlbench.reports.results.storage.store import Store

from ..display.progress import clock, precision_lines
from ..display.screen import print_json, program, resume_command, say, show
from ..environments import folders
from ..errors import NOTHING_MEASURED, UsageError
from ..fleet.node import fleet_node
from ..planning import values
from ..planning.axes import SuiteOverrides
from ..planning.devices import CPU
from ..planning.plan import Plan, check_count, heap_line, memory_line
from ..planning.settings import not_possible
from ..planning.suite import load, rerun_command
from ..run import deployment, groups, preparation, resume, search
from ..run.runner import RunProfile, run_plan
from ..run.schedules import Schedule, of_plan
from ..run.search import PAIRS, SPARE, HalvingSchedule
from ..run.sides import Side
from . import options
from .options import Given, flag, option, takes
from .plan import kind_of_protocol, plan_of, planned, size_of, training_lines
from .report import matrix_so_far

CONDITIONS: options.Options = {  # a fleet passes them on
    "no_ceilings": flag("--no-ceilings", "Do not measure ceilings first."),
    "no_quiet_gate": options.NO_QUIET_GATE,
    "order": options.ORDER,
    "corpus": option(
        "--corpus",
        "Train on this text instead of the generated one (suite `char` only).",
        Path | None,
        metavar="FILE",
    ),
}
_NODE = "Used by a fleet's jobs: records name the node, and the same command resumes its run."


@takes(
    {"name": options.SUITE_OR_CLAIMS},
    *(options.AXES, options.LAUNCHES, options.BUILDS, options.SESSION, CONDITIONS),
    {
        "trend": option(
            "--trend",
            "Follow one launch of each cell for this long: how do its steps, memory and page "
            "faults change (`report trend`)?",
            metavar="DURATION",
        ),
        "node_name": option("--node", _NODE, metavar="FLEET/NODE"),
        "as_json": flag("--json", "Print the matrix as JSON when the run ends."),
    },
)
def run_command(given: Given) -> None:
    """Measure a suite on this machine and show its matrix.

    Builds missing environments, after saying what it will download. Every finished launch, or group
    of launches that take turns, is stored at once: Ctrl-C loses only what is unfinished, and
    --resume continues. The suite `claims` measures what is still needed to test the papers' claims
    here (`dlbench report claims`), the cells that settle most claims per minute first.

    Examples:

    - `dlbench run quick`
    - `dlbench run table4 --frameworks torch,mxnet --networks fcn5 --threads 1,2,4-8 --budget 10m`
    - `dlbench run quick --frameworks torch --devices cpu,cuda:0 --batch-sizes 64,256`
    - `dlbench run quick --frameworks torch,jax --threads 1 --world-sizes 1,2`
    - `dlbench run quick --frameworks torch --cpu-quota none,1 --threads default,1`
    - `dlbench run feed --networks alexnet --frameworks torch,jax --loader-workers 0,1 --storage
      cache,disk`
    - `dlbench run quick --python torch-nightly:torch=/opt/nightly/bin/python`
    - `dlbench run quick --adapter my_framework=path/to/its/adapter`
    - `dlbench run char --corpus my_text.txt`
    - `dlbench run threads --step train_step.py --python ~/venv/bin/python`
    - `dlbench run claims --budget 2h`
    - `dlbench run threads --step train_step.py --threads 1 --trend 3m`  (does it get slower while
      it trains?)
    """
    seconds, chosen = options.seconds_of(given.budget), options.choices(given)
    machine = probe()
    plan = planned(given.name, chosen, machine, given.seed, given.store_file)
    order = given.order
    if given.trend:
        plan, order = followed(plan, given), groups.SEQUENTIAL
    check_count(plan, given.yes)
    preparation.check_interpreters(chosen.builds)
    text = preparation.text_of(plan, given.corpus)
    folders.make_folder(folders.home())  # fails before anything is built or measured
    node, unfinished = fleet_node(given.node_name, machine, say), None
    earlier = node.newest_run(given.store_file, plan.suite) if node is not None else None
    if earlier is not None and earlier.finished is not None:
        with delivery.opened(given.store_file, say, create=False):
            say(f"The job of this node has finished already: run {earlier.id}.")
        return
    if resumes := given.resume or earlier is not None:
        of_fleet = earlier.id if earlier is not None else None
        plan, unfinished, records = resumed(
            plan, given.store_file, machine, chosen, of_fleet=of_fleet
        )
        resume.check_same_text(text, records)
    grouping = replace(groups.of_plan(plan, machine, order), together=groups.Together.COLUMN)
    profile = RunProfile(
        schedule=partial(of_plan, grouping=grouping),
        ceilings=not given.no_ceilings,
        quiet_gate=not given.no_quiet_gate,
        text=text,
        lines=lambda: (
            size_of(plan),
            kind_of_protocol(plan),
            *training_lines(plan, text),
            heap_line(plan),
            memory_line(plan, machine),
            *grouping.remarks,
        ),
        unfinished=unfinished,
    )
    if node is not None:
        profile = replace(profile, node=node.now, resume_command=node.resume_command(plan.suite))
    # Resuming needs an existing store, and must not create an empty one.
    with delivery.opened(given.store_file, say, create=not resumes, unfinished=unfinished) as store:
        matrix = partial(matrix_so_far, store)
        run, schedule = run_plan(
            plan,
            machine,
            store,
            profile,
            budget_seconds=seconds,
            build_missing=not given.no_build,
            matrix=matrix,
        )
        for line in precision_lines(plan, schedule):
            say(line)
        _show(store, run, schedule, given.as_json, profile.resume_command)


_FOLLOWED_SAMPLE_SECONDS = 0.02
"""Of a launch that is followed, at least: shorter steps are timed several at a time."""
_MOST_FOLLOWED = 100_000
"""Samples of such a launch."""


def followed(plan: Plan, given: Given) -> Plan:
    """Return the plan with one launch of each cell, which lasts as long as --trend says; raises
    UsageError.
    """
    seconds = values.duration(given.trend)
    for name, word in (
        ("--launches", given.launches),
        ("--interval", given.interval),
        ("--order", given.order),
    ):
        if word:
            raise UsageError(f"--trend follows one launch at a time. Leave {name} out.")
    protocol = plan.protocol._replace(
        seconds=seconds,
        steps=_MOST_FOLLOWED,
        sample_seconds=max(plan.protocol.sample_seconds, _FOLLOWED_SAMPLE_SECONDS),
        maximum_warmup_steps=0,  # the search for a steady state would leave out what is asked for
        trend=True,
    )
    return replace(
        plan,
        protocol=protocol,
        launches=1,
        launches_most=None,
        interval=None,
        cell_seconds=plan.cell_seconds + seconds,
    )


def resumed(
    plan: Plan,
    store_file: str,
    machine: Machine,
    chosen: SuiteOverrides,
    purpose: str = "suite",
    of_fleet: str | None = None,
) -> tuple[Plan, Run, list[Record]]:
    """Return the plan of the run that --resume continues, the run and its records.

    A run that gets more launches is noted as such. Raises UsageError (see `resume`) and StoreError.
    """
    with Store.open(delivery.local_or(store_file), create=False) as store:
        plan, unfinished = resume.resume(plan, store, machine, chosen, purpose, of_fleet)
        records = list(store.records(run=unfinished.id))
        resume.check_same_builds(plan, records)
        if any(run.id == unfinished.id and run != unfinished for run in store.runs()):
            store.extend_run(unfinished)
    return plan, unfinished, records


def _show(store: Store, run: Run, schedule: Schedule, as_json: bool, command: str) -> None:
    print(matrix_so_far(store, run.id, as_json))
    if left := schedule.launches_left():
        launches = counted(left, "launch", "launches")
        spent = (
            f"The budget is spent with {launches} left, about {clock(schedule.seconds_left())} of "
            "measuring."
        )
        say(f"{spent} Resume: {command}")
    records = store.records(run=run.id)
    if not as_json:
        if lines := leads(fastest(build_matrix(Results.newest([store], run.id)))):
            show("Who is fastest, and times as long as it takes (95 % intervals):")
            for line in lines:
                show(f"  {line}")
            show("")
        # Reports that these records can fill.
        shown = {f"report {each.name}": each.suggestion for each in suggested(records)}
        shown["report matrix --json"] = "everything, for a script (also csv, markdown, latex)"
        show(f"Next ({shlex.quote(program())} ... --store {shlex.quote(store.name)}):", whole=True)
        for words, what in shown.items():
            show(f"  {words:<22}  {what}", whole=True)
    if not any(record.outcome.status is Status.OK for record in records):
        say("dlbench: no cell gave a valid number; the reasons are below the matrix.")
        raise typer.Exit(NOTHING_MEASURED)


_ONE = [axis.name for axis in axes_of_cells.of_role(axes_of_cells.GROUP)] + [
    "device",
    "cpu_quota",
    "loader_workers",
]
_EVERY_TUNING, _EVERY_THREADS = "installed,tuned,each,launch", "1..cpus"


_SEARCH: options.Options = {
    "suite": options.suite_of_network("tuning"),
    "cell_budget": options.CELL_BUDGET,
    "no_quiet_gate": options.NO_QUIET_GATE,
    "order": options.ORDER,
    "write": option(
        "--write",
        "Write the fastest configuration: FILE.sh, FILE.env, Dockerfile, or FILE.yaml (a "
        "Kubernetes container).",
        Path | None,
        metavar="FILE",
    ),
    "as_json": options.JSON,
}


@takes(options.AXES, options.BUILDS, options.SESSION, _SEARCH)
def tune_command(given: Given) -> None:
    """Find the fastest way to run a network here: threads, mode and settings, with its gain and how
    to set it.

    Successive halving: every configuration gets one launch, the faster half another, and so on. The
    last two and the default (as installed, as many threads as cores) then take turns, and the gain
    comes from these launches alone. A configuration is dropped at its first failed launch (one with
    valid times, at its third implausible time).

    Without --threads it tries 1 to the number of CPUs (on a GPU, the suite's count); without a
    mode, every mode. It tries each setting both alone and left out, and adds to all of them each
    launch setting that is possible here: other allocators, OpenMP wait policies and thread binding,
    huge pages (`dlbench list --settings`). A budget reserves time for the pairs, so a short one
    tries fewer configurations. Launches are stored, but reports show a search only with --run.

    Examples:

    - `dlbench tune --network fcn5 --framework torch --budget 20m`
    - `dlbench tune --network lstm32 --frameworks torch,jax --threads 1,2`
    - `dlbench tune --network my_net --suite my_suite.toml --framework torch`
    - `dlbench tune --step train_step.py --threads 1..cpus`
    - `dlbench tune --network fcn5 --framework torch --tuning installed,tuned+jemalloc --write
      Dockerfile`
    """
    seconds, machine = options.seconds_of(given.budget), probe()
    if given.write is not None:
        deployment.check_file(given.write)
    chosen, plan = _ways(given, machine)
    check_count(plan, given.yes)
    preparation.check_interpreters(chosen.builds)
    unfinished = None
    if given.resume:
        plan, unfinished, _ = resumed(plan, given.store_file, machine, chosen, SEARCHING)
    count = len(plan.cells)
    launches = sum(min(size + 1, count) for size in search.halving_sizes(count)[:-SPARE])
    steps = (
        f"one launch of each, another of the faster half, and so on; then {PAIRS} pairs of the "
        "fastest"
    )
    starts = search.search_starts(plan, preparation.capacity(machine).cores)
    profile = RunProfile(
        SEARCHING,
        partial(HalvingSchedule, starts, grouping=groups.of_plan(plan, machine, given.order)),
        (Side(SEARCH),),
        ceilings=False,
        quiet_gate=not given.no_quiet_gate,
        lines=lambda: (
            f"{counted(count, 'configuration')}, about {launches} launches",
            f"Search: {steps}.",
            memory_line(plan, machine),
            _not_tried(plan, chosen),
        ),
        unfinished=unfinished,
    )
    with delivery.opened(
        given.store_file, say, create=not given.resume, unfinished=unfinished
    ) as store:
        _, schedule = run_plan(
            plan, machine, store, profile, budget_seconds=seconds, build_missing=not given.no_build
        )
    assert isinstance(schedule, HalvingSchedule)
    found = search.search_result(schedule)
    if found is None:
        for line in search.reasons(schedule.without_number()):
            say(line)
        why = (
            f"none of the {counted(schedule.tried(), 'configuration')} tried completed all its "
            "launches."
        )
        if schedule.launches_left():
            why = (
                "the budget was too short for a pair; what was measured is stored. Resume: "
                f"{resume_command()}"
            )
        elif disturbed := len(schedule.pairs(fit=False)):
            why = (
                f"other programs disturbed all {counted(disturbed, 'pair')}. Search again on a "
                "quieter machine."
            )
        say(f"dlbench: {why}")
        raise typer.Exit(NOTHING_MEASURED)
    command = _command(plan, found.best, given)
    if given.as_json:
        print_json(search.data(found, command))
    else:
        for line in search.lines(found, command):
            show(line, whole=True)
    if given.write is not None:
        options.write_file(
            given.write, deployment.deployment(given.write, found, command), "--write"
        )
        say(f"Written to {given.write}.")
    if schedule.launches_left():
        say(
            "The budget ran out before all pairs were run. More pairs make the gain more certain: "
            f"{resume_command()}"
        )


def _not_tried(plan: Plan, chosen: SuiteOverrides) -> str:
    """Return a sentence with the wanted launch settings that are not possible here; empty if all
    are.
    """
    if tuning.LAUNCH not in values.words(chosen["tuning"]):
        return ""
    rows = ((plan.row_of(cell).build.framework, cell) for cell in plan.cells)
    meant = (each.launchable(cell.mode, cell.device) for each, cell in rows if each.computes)
    reasons = not_possible({name for names in meant for name in names})
    return f"Launch settings that are not possible here: {reasons}." if reasons else ""


def _command(plan: Plan, cell: Cell, given: Given) -> str | None:
    """Return the command that measures a cell again; None for a suite that trains, which a search
    does not.
    """
    if load(given.suite).protocol.curve_steps:
        return None
    # Another row's interpreter would add a row.
    python = [
        word
        for word in given.python or ()
        if word.partition("=")[0].partition(":")[0] in (cell.framework, word)
    ]
    further = options.words_of(
        Given(**{**vars(given), "step": None, "python": python}),
        options.BUILDS,
        {"cell_budget": options.CELL_BUDGET},
    )
    step = plan.row_of(cell).build.framework.file
    words = rerun_command(cell, given.suite, step, tuning=cell.tuning, launches=PAIRS)
    return " ".join(
        [words, *map(shlex.quote, [*further, *options.words_of_store(given.store_file)])]
    )


def _ways(given: Given, machine: Machine) -> tuple[SuiteOverrides, Plan]:
    """Return the overrides and the plan of the search; raises UsageError if its times would not be
    comparable.
    """
    chosen = options.choices(given)
    if chosen.own is None:
        if not chosen["networks"]:
            raise UsageError("Name the network to tune: --network fcn5.")
        if not chosen["frameworks"]:
            raise UsageError(
                "Name the frameworks to try: --framework torch, or --frameworks torch,jax."
            )
        names = values.words(chosen["frameworks"])
        named = {name.partition(":")[0] for name in names}
        names += [
            each.name
            for each in chosen.builds
            if each.name not in named and each.name != each.framework.name
        ]
        rows = ",".join(name if ":" in name else f"{name}:*" for name in dict.fromkeys(names))
        chosen = chosen.but(frameworks=rows)
    devices = values.words(chosen["devices"]) if chosen["devices"] else load(given.suite).devices
    every = {"tuning": _EVERY_TUNING, **({"threads": _EVERY_THREADS} if CPU in devices else {})}
    chosen = chosen.but(**{**every, **chosen.words})
    found = plan_of(given.suite, chosen, machine, given.seed)
    if len(found.cells) == 1:
        raise UsageError(
            "There is only one configuration to try. Vary --threads, --frameworks, modes or "
            "--tuning."
        )
    if len({axes_of_cells.project(cell, _ONE) for cell in found.cells}) > 1:
        raise UsageError(
            "Times of different work are not comparable. Name one network, mini-batch, device, CPU "
            "quota and precision."
        )
    return chosen, search.halving_plan(found)
