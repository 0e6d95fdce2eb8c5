"""Short launches that ask a framework something about itself: nothing of them is stored or compared."""

import math

from dlbench.adapters.networks import to_data
from dlbench.adapters.protocol import Cell, Launch, Outcome, Protocol
from dlbench.reports.evidence.raised_flags import wanting_threads, working_threads

from ..environments import environment
from ..environments.row_interpreters import Source
from ..planning import devices, networks
from ..planning.framework import Framework
from .launcher import Launcher, Order

# Large dense layers: whatever threads a framework has find work in them.
_NETWORK = "fcn5"
_PROTOCOL = Protocol(warmup_steps=3, steps=3, minimum_steps=3, seconds=1.0)
_SECONDS = 300.0


def ask(
    framework: Framework,
    mode: str,
    source: Source,
    launcher: Launcher,
    *,
    calls: int = 0,
    variables: int = 0,
    only_capabilities: bool = False,
) -> Outcome:
    """Launch a mode of a framework for a few steps and return the outcome.

    ``calls`` is the thread count that the adapter sets in the framework, ``variables`` the one that the environment
    variables name; 0 leaves each out.
    """
    known = networks.shipped()
    network = known[_NETWORK]
    cell = Cell(framework.name, framework.folder, mode, network.name, "cpu", calls, network.batch_size)
    launch = Launch(
        cell,
        _PROTOCOL,
        framework.modes[mode].settings,
        None,
        str(environment.make_folder(environment.cache_directory(framework))),
        adapter_directory=framework.outside,
        only_capabilities=only_capabilities,
        network=to_data(network),
        asked_about=[to_data(each) for each in known.values()] if only_capabilities else None,
    )
    assert source.interpreter is not None
    named = {**framework.launch_variables(mode, variables, source.folder), **devices.variables(None)}
    return launcher.launch(Order(launch, source.interpreter, named, _SECONDS)).outcome


def threads_seen(outcome: Outcome) -> int | None:
    """Return how many threads the operating system saw working at once; None where it does not tell."""
    if outcome.threads is None:
        return None
    # No more than wanted to run at any one moment: threads that take turns (TensorFlow's caller and its pool) are fewer
    # than they look. The quarter is what the clocks and helper threads may add.
    at_once = max(1, math.ceil(wanting_threads(outcome.threads, outcome.contention) - 0.25))
    return min(at_once, working_threads(outcome.threads) or at_once)
