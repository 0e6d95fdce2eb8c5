"""One launch carried out as the product does it, and where the frameworks' interpreters are."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from known_networks import NETWORKS

from dlbench.adapters.networks import Network, to_data
from dlbench.adapters.protocol import ASYNC, BOUND, FED, OVERSUBSCRIBED, Cell, Launch, Protocol
from dlbench.adapters.tuning import in_force
from dlbench.hardware_probe.machine import probe
from dlbench.reports.results.outcome import Outcome
from dlbench.suites.environments import environment
from dlbench.suites.errors import DlbenchError
from dlbench.suites.planning import devices
from dlbench.suites.planning.framework import Framework, find
from dlbench.suites.run import launch_files, preparation
from dlbench.suites.run.judge import judged, limits_of
from dlbench.suites.run.launcher import LaunchRequest, launch_process
from dlbench.suites.run.preparation import ReferenceKey
from dlbench.suites.run.turns import Member

#: Of this machine, by its instructions alone.
LIMITS = limits_of(probe(), None)
#: Enough to see what a step does, not how long it takes.
SHORT = Protocol(warmup_steps=1, steps=3, minimum_steps=3, seconds=0.5)
#: Frameworks without a thread setting: each of their launches is bound to as many CPUs as it has
#: threads.
ALWAYS_BOUND = ("mindspore",)


def is_tested(framework: Framework) -> bool:
    """Tell whether DLBENCH_TEST_FRAMEWORKS names it; without the variable all are tested."""
    tested = os.environ.get("DLBENCH_TEST_FRAMEWORKS")
    return tested is None or framework.environment != "own" or framework.name in tested.split(",")


def find_framework_python(name: str) -> Path:
    """Return the interpreter of a framework, or skip the test with the reason.

    ``DLBENCH_PYTHON_<NAME>`` first, then the environment that dlbench built on this machine.
    """
    variable = f"DLBENCH_PYTHON_{name.upper().replace('-', '_')}"
    interpreter_of_variable = os.environ.get(variable)
    if interpreter_of_variable:
        if not Path(interpreter_of_variable).exists():
            pytest.fail(f"{variable} names {interpreter_of_variable}, which is not there")
        return Path(interpreter_of_variable)
    if not is_tested(find(name)):
        pytest.skip(f"{name} is not in DLBENCH_TEST_FRAMEWORKS")
    # In continuous integration every environment is built first: a missing one must not pass
    # unseen. Large and historic ones are built where they are asked for.
    refuse = pytest.fail if os.environ.get("CI") and not find(name).on_request else pytest.skip
    try:
        interpreter = environment.locate(find(name)).interpreter
    except DlbenchError as error:
        refuse(str(error))
    if interpreter is None:
        refuse(
            f"the environment of {name} is not built here (set {variable}, or `dlbench env build "
            f"{name}`)"
        )
    return interpreter


def launch_once(
    framework: Framework,
    mode: str,
    network: str | Network,
    cache: Path,
    *,
    protocol: Protocol = SHORT,
    settings: Mapping[str, Any] = MappingProxyType({}),
    cpus: list[int] | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
    member: Member | None = None,
    **of_cell: Any,
) -> Outcome:
    """Carry out one launch of a framework in its own interpreter, with its variables, and return
    the outcome.

    The reference is the one shipped for this mini-batch; of other networks than dlbench's it is
    computed. With ``cpus`` the cell is bound; ``variables`` go over the framework's own. As a
    ``member`` it takes turns. ``of_cell`` are fields of the cell, None as if not given; usually it
    is one thread on the CPU at the network's own mini-batch.
    """
    specified = NETWORKS[network] if isinstance(network, str) else network
    interpreter = find_framework_python(framework.name)
    default_cell = Cell(
        framework.name, framework.folder, mode, specified.name, "cpu", 1, specified.batch_size
    )
    cell = default_cell._replace(
        **{name: value for name, value in of_cell.items() if value is not None}
    )
    if framework.name in ALWAYS_BOUND and cpus is None and cell.threads:
        cpus = sorted(os.sched_getaffinity(0))[: cell.threads * cell.world_size]
    cell = cell._replace(affinity=OVERSUBSCRIBED if cpus is None else BOUND)
    size, world_size = cell.batch_size, cell.world_size
    equal_parts = world_size if cell.local_steps else preparation.parts(specified, size, world_size)
    of_parts = None
    if equal_parts > 1:
        of_parts = preparation.fitting(
            ReferenceKey(specified, size, equal_parts, cell.local_steps), True, print
        )
    at_hand = (
        preparation.find
        if specified.name in NETWORKS
        else partial(preparation.ensure, report=print)
    )
    reference = of_parts.path if of_parts else at_hand(ReferenceKey(specified, size))
    if cell.sync == ASYNC:
        reference = None
    if cell.infers:
        reference = at_hand(preparation.reference_key(specified, cell))
    feed = None
    if cell.placement in FED:
        reference = preparation.ensure(preparation.reference_key(specified, cell), print)
        feed = launch_files.checked_feeds(specified, size, print)
    chosen_settings = in_force(
        cell.tuning, framework.tunable(mode, cell.device, specified.family.name, cell.task)
    )
    repeated_batch, label_sets = None, 1
    if of_parts:
        repeated_batch, label_sets = of_parts.repeated_batch, of_parts.label_sets
    launch = Launch(
        cell=cell,
        protocol=protocol,
        settings={**framework.launch_settings(mode, chosen_settings), **settings},
        cache_directory=str(cache),
        adapter_directory=framework.outside,
        cpus=cpus,
        repeated_batch=repeated_batch,
        label_sets=label_sets,
        network=to_data(specified),
        feed=None if feed is None else str(feed.folder),
        in_turns=member is not None,
    )
    of_mode = framework.launch_variables(
        mode, cell.threads, interpreter.parent.parent, chosen_settings
    )
    hidden = devices.variables(None) if cell.on_cpu else {}
    all_variables = {**of_mode, **hidden, **variables}
    order = LaunchRequest(
        launch,
        interpreter,
        all_variables,
        540.0,
        None,
        reference,
        framework.computes,
        member=member,
    )
    return judged(order, launch_process(order), LIMITS)
