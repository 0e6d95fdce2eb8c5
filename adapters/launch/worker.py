"""One launch inside the guest process: ``cell.json`` in, ``outcome.json`` out."""

import gc
import os
import sys
import traceback
from typing import Any, Callable, List

from ..base import Adapter, Unsupported
from ..protocol import PROFILE, Launch, Outcome, Status, read_launch, write_outcome
from . import batches, contract, device, evidence, measurement, team
from .check import Host
from .measurement import Phases, measure, network_of


def run(directory: str, load: Callable[[Launch], Adapter] = contract.load) -> int:
    """Run the launch described in this control directory; return the exit code.

    With several workers this is the first one; `join` is the others. Whatever goes wrong in the framework is an outcome
    (exit code 0). Without an outcome file the host takes the launch for crashed.
    """
    launch = read_launch(directory)
    phases = Phases(directory)
    process = os.getpid()
    made: List[Adapter] = []
    teams: List[team.Team] = []

    def load_and_keep(launch: Launch) -> Adapter:
        adapter = load(launch)
        made.append(adapter)
        return adapter

    def gather(adapter: Adapter) -> Adapter:
        teams.append(team.Team(launch, directory))
        adapter.join(0, team.meeting_place(directory))
        lead: Any = team.Lead(teams[0], adapter)
        return lead

    try:
        outcome = measure(launch, phases, Host(), load_and_keep, gather)
    except contract.ContractBroken as error:
        outcome = Outcome(Status.CRASHED, "the adapter breaks its contract: %s" % error)
    except Exception as error:
        outcome = _failure(error, made)
    if os.getpid() != process:
        return 1  # a copy that the adapter forked in the last phase
    for each in teams:
        if outcome.status in (Status.CRASHED, Status.OUT_OF_MEMORY):
            outcome = each.why_lost() or outcome
        each.end()
    write_outcome(directory, outcome)
    if not teams and outcome.samples_ns and device.wants_profile(launch):
        # With the measurement safe on disk: a profiler that crashes loses nothing of it.
        phases.enter(PROFILE)
        outcome = device.with_profile(outcome, launch, made[0])
        if os.getpid() != process:
            return 1
        write_outcome(directory, outcome)
    if not teams and outcome.samples_ns and measurement.trains_on_text(launch):
        # Should it end this process, the outcome says so.
        write_outcome(directory, outcome._replace(curve_ended="the process ended while it trained"))
        outcome = measurement.with_curve(outcome, made[0], launch, phases.enter)
        if os.getpid() != process:
            return 1
        write_outcome(directory, outcome)
    return 0


def join(directory: str, worker: int, load: Callable[[Launch], Adapter] = contract.load) -> int:
    """Be this worker, from 1, of a launch that the first one measures; return the exit code."""
    made: List[Adapter] = []
    try:
        launch = read_launch(directory)
        refused = evidence.binding_refusal(evidence.cpus_of_worker(launch, worker))
        if refused:
            raise Unsupported(refused)
        team.see_own_gpu(launch, worker)
        adapter = load(launch)
        made.append(adapter)
        network = network_of(launch)
        supported, reason = contract.supports(adapter, network)
        if not supported:
            raise Unsupported(reason)
        weights = batches.initial_weights(network, batches.TIMED) if adapter.computes else {}
        batch = batches.of_launch(network, launch, batches.TIMED)
        adapter.join(worker, team.meeting_place(directory))
        adapter.prepare(network, weights, team.part_of(batch, worker, launch.cell.world_size))
        adapter.synchronize()
        del weights, batch
        gc.collect()
        gc.disable()
        team.follow(adapter, sys.stdin.buffer, lambda: team.reset(adapter, network, launch, worker))
        adapter.synchronize()
    except Unsupported as error:
        team.say_why(directory, worker, Outcome(Status.UNSUPPORTED, str(error)))
        return 1
    except Exception as error:
        team.say_why(directory, worker, _failure(error, made))
        return 1
    return 0


def _failure(error: Exception, made: List[Adapter]) -> Outcome:
    """Return the outcome of a launch in which the framework, or its adapter, raised this."""
    traceback.print_exc()
    ran_out = isinstance(error, MemoryError) or (bool(made) and made[0].is_out_of_memory(error))
    status = Status.OUT_OF_MEMORY if ran_out else Status.CRASHED
    words = made[0].error_text(error) if made else ""
    return Outcome(status, words or "%s: %s" % (type(error).__name__, _first_line(error)))


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # MXNet's messages begin with a trace of its C++ calls; what happened is in the last line.
    if len(lines) > 1 and lines[0].startswith("Traceback"):
        return lines[-1][:300]
    return lines[0][:300] if lines else "(no message)"
