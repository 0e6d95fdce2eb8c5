"""One launch inside the guest process: ``cell.json`` in, ``outcome.json`` out."""

import gc
import math
import os
import sys
import time
import traceback
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import numpy as np

from .. import networks
from ..base import Adapter, Unsupported
from ..families import LEARNING_RATE, NumbersError
from ..protocol import PHASE_FILE, Launch, Outcome, Parity, Protocol, Status, read_launch, write_json, write_outcome
from . import affinity, batches, contract, device, evidence, extra_work, parity, software, steady, team, timing

SENTINEL_SIZE = 1536


class Phases:
    """Tells the host what the guest is doing, between measurements only."""

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, PHASE_FILE)
        self.process = os.getpid()

    def enter(self, phase: str, expected_seconds: Optional[float] = None) -> None:
        """Announce a phase and, where it can be told, how long it will last."""
        if os.getpid() != self.process:
            os._exit(1)  # a copy that the adapter forked and let go on: the launch is the original's
        write_json(self.path, {"phase": phase, "expected_seconds": expected_seconds})


def _finite(value: float) -> Optional[float]:
    return value if math.isfinite(value) else None


class Opening(NamedTuple):
    """What a launch's first steps gave."""

    parity: Parity
    first_step_seconds: float
    parameter_count: Optional[int]  # None where nothing is computed
    entries: Dict[str, np.ndarray]  # the parameters' sampled entries after these steps


def _parity_steps(
    adapter: Adapter, network: networks.Network, before: Dict[str, np.ndarray], launch: Launch
) -> Opening:
    """Run the recipe's steps and compare them with the reference."""
    recipe, allowed = network.parity, parity.allowance(network, launch.cell.precision)
    watch = parity.Stopwatch()
    adapter.set_learning_rate(recipe.learning_rate)
    losses = []
    spent = []
    for _ in range(recipe.steps):
        spent.append(timing.time_one(adapter.step, adapter.synchronize))
        with watch:
            losses.append(contract.loss(adapter))
    first = spent[0] * 1e-9
    if not adapter.computes:
        return Opening(parity.unchecked(network, adapter.parity_reason, allowed), first, None, {})
    with watch:
        observation = parity.observe(contract.learnt(adapter, network), before, losses)
        if launch.save_reference is not None:
            parity.save(launch.save_reference, observation)
        if launch.reference is None:
            reason = "no reference for mini-batch %d" % launch.cell.batch_size
            verdict = parity.unchecked(network, reason, allowed)
        else:
            verdict = parity.judge(observation, parity.load(launch.reference), recipe, allowed)
    verdict = verdict._replace(seconds=watch.seconds)
    return Opening(verdict, first, observation.parameter_count, observation.entries)


def _still_trained(adapter: Adapter, network: networks.Network, opening: Opening, final_loss: float) -> Parity:
    """Return the verdict once more is known: whether the steps after the parity steps changed any parameter.

    Where the loss is not finite, nothing is to be learnt from the parameters.
    """
    verdict = opening.parity
    if not opening.entries or not math.isfinite(final_loss):
        return verdict
    watch = parity.Stopwatch()
    with watch:
        still = parity.stood_still(contract.learnt(adapter, network), opening.entries)
    verdict = verdict._replace(seconds=verdict.seconds + watch.seconds)
    if not still:
        return verdict
    reason = "no parameter changed after the parity steps: what was timed does not train"
    return verdict._replace(verdict="disagrees", reason="; ".join(each for each in (verdict.reason, reason) if each))


class Series(NamedTuple):
    """The timed samples in nanoseconds, cut where they become steady."""

    before: List[int]
    samples: List[int]
    steady: Optional[bool]  # None: not looked for


def _timed(sample: Callable[[], None], synchronize: Callable[[], None], protocol: Protocol) -> Series:
    """Time samples, and more of them while too few are steady; what came before the steady ones was warm-up.

    With the longest warm-up over, or once more samples have lasted for the protocol's seconds, it is given up: all
    samples are kept then.
    """
    series = timing.timed_loop(sample, synchronize, protocol)
    longest = protocol.maximum_warmup_steps
    if longest == 0:
        return Series([], series, None)
    left, deadline = longest, time.perf_counter() + protocol.seconds
    start = steady.steady_from(series, protocol.minimum_steps)
    while start is None and left > 0 and time.perf_counter() < deadline:
        more = protocol._replace(steps=min(left, protocol.minimum_steps))
        found = timing.timed_loop(sample, synchronize, more)
        series += found
        left -= len(found)
        start = steady.steady_from(series, protocol.minimum_steps)
    if start is None or start > longest:
        return Series([], series, False)
    return Series(series[:start], series[start:], True)


def _network(launch: Launch) -> networks.Network:
    """Return the network that the launch carries; raises NumbersError where it is none that these adapters know."""
    if launch.network is None:
        raise NumbersError("network", "the launch carries none")
    return networks.from_data(launch.network)


def _measure(
    launch: Launch, phases: Phases, load: Callable[[Launch], Adapter], gather: Callable[[Adapter], Adapter]
) -> Outcome:
    cell, protocol = launch.cell, launch.protocol
    try:
        network = _network(launch)
    except NumbersError as error:
        return Outcome(Status.UNSUPPORTED, "%s: %s: %s" % (cell.network, error.key, error))
    refused = affinity.refusal(launch.cpus)
    if refused:
        return Outcome(Status.UNSUPPORTED, refused)
    phases.enter("import")
    start = time.perf_counter()
    adapter = load(launch)
    import_seconds = time.perf_counter() - start
    if launch.only_capabilities:
        described = software.environment()
        asked = [networks.from_data(each) for each in launch.asked_about or []]
        described["capabilities"] = contract.capabilities(adapter, asked)
        described["version"] = contract.version(adapter)
        return Outcome(Status.OK, "nothing was timed", import_seconds, software=described)
    in_processes = team.needed(adapter, launch)
    if in_processes:
        team.see_own_gpu(launch, 0)
        affinity.narrow(affinity.share(launch, 0))
        refused = affinity.refusal(affinity.share(launch, 0))
    reason = (
        refused
        or adapter.refuses_axes(launch.cell)
        or team.refusal(adapter, launch)
        or contract.supports(adapter, network)[1]
    )
    if reason:
        return Outcome(Status.UNSUPPORTED, reason, import_seconds, software=software.environment())

    phases.enter("build")
    # A framework that computes nothing is spared the making of a hundred million weights.
    weights = batches.initial_weights(network) if adapter.computes else {}
    batch = batches.of_launch(network, launch)
    before = parity.sample_weights(weights)
    if in_processes:
        batch = team.part_of(batch, 0, cell.world_size)
    try:
        if in_processes:
            adapter = gather(adapter)
        start = time.perf_counter()
        adapter.prepare(network, weights, batch)
        adapter.synchronize()
        prepare_seconds = time.perf_counter() - start
        del weights, batch

        phases.enter("first step")
        opening = _parity_steps(adapter, network, before, launch)
        if launch.save_reference is not None:
            # Nobody times the making of a reference, and its steps may last a minute each.
            return Outcome(Status.OK, "the reference was saved; nothing was timed", import_seconds, prepare_seconds)
        adapter.set_learning_rate(LEARNING_RATE)
        evidence.reset_peak_memory()
        phases.enter("warm-up")
        step = extra_work.step_of(adapter)
        warmup = [
            timing.time_one(step, adapter.synchronize)
            for _ in range(max(1, protocol.warmup_steps - network.parity.steps))
        ]
        if not cell.on_cpu:
            warmup += timing.keep_busy(step, adapter.synchronize, device.WARM_UP_SECONDS)
        steps_per_sample, tried = timing.steps_per_sample(
            step, adapter.synchronize, min(warmup), protocol.sample_seconds
        )
        warmup += tried
        watch = device.Watch(adapter, cell.on_cpu)
        sample = watch.around(timing.several(step, steps_per_sample))
        expected = warmup[-1] * 1e-9 * steps_per_sample * protocol.steps
        phases.enter("timed", min(protocol.seconds, expected))
        # Before the evidence begins: with a large heap a collection is 0.15 s of the main thread.
        gc.collect()
        watch.begin()
        earlier = evidence.snapshot()
        begun = time.monotonic()
        series = _timed(sample, adapter.synchronize, protocol)
        ended = time.monotonic()
        later = evidence.snapshot()
        # Of a team each worker is bound to its part of the launch's.
        cpus = sorted(launch.cpus) if in_processes and launch.cpus else affinity.cpus_allowed()
        on_device = watch.end()
        final_loss = contract.loss(adapter)
        peak = evidence.peak_memory_bytes()
        verdict = _still_trained(adapter, network, opening, final_loss)
    except Unsupported as error:
        return Outcome(Status.UNSUPPORTED, str(error), import_seconds, software=software.environment())
    gemm = device.gemm_rate(adapter, cell.on_cpu, SENTINEL_SIZE) if adapter.computes else None
    described = software.environment()
    described.update(contract.description(adapter))
    described.update(software.settings_in_force(launch))
    return Outcome(
        status=Status.PARITY_FAILED if verdict.verdict == "disagrees" else Status.OK,
        reason=verdict.reason if verdict.verdict == "disagrees" else "",
        import_seconds=import_seconds,
        prepare_seconds=prepare_seconds,
        first_step_seconds=opening.first_step_seconds,
        warmup_ns=warmup + [nanoseconds // steps_per_sample for nanoseconds in series.before],
        samples_ns=series.samples,
        final_loss=_finite(final_loss),
        final_loss_finite=math.isfinite(final_loss),
        peak_memory_bytes=peak,
        parity=verdict,
        threads=evidence.thread_evidence(cell.all_threads, _all_threads_said(adapter, launch), earlier, later),
        contention=evidence.contention(earlier, later),
        software=described,
        parameter_count=opening.parameter_count,
        gemm_flops_per_second=gemm,
        steps_per_sample=steps_per_sample,
        steady=series.steady,
        cpus=cpus,
        evidence_steps=(len(series.before) + len(series.samples)) * steps_per_sample,
        device=device.evidence(adapter, on_device, len(series.before)),
        # Samples follow one another without a pause.
        timed_between=[begun + sum(series.before) * 1e-9, ended],
    )


def _all_threads_said(adapter: Adapter, launch: Launch) -> Optional[int]:
    """Return how many threads the framework says it uses, of all workers together."""
    said = contract.threads(adapter)
    return said * launch.cell.world_size if said is not None and team.needed(adapter, launch) else said


def run(directory: str, load: Callable[[Launch], Adapter] = contract.load) -> int:
    """Carry out the launch described in this control directory; return the exit code.

    With several workers this is the first one; `join` is the others.

    Whatever goes wrong in the framework is an outcome (exit code 0). Without an outcome file the host takes the
    launch for crashed.
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
        outcome = _measure(launch, phases, load_and_keep, gather)
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
        # With the measurement safe on disk: a profiler that crashes takes nothing of it along.
        phases.enter("profile")
        outcome = device.with_profile(outcome, launch, made[0])
        if os.getpid() != process:
            return 1
        write_outcome(directory, outcome)
    return 0


def join(directory: str, worker: int, load: Callable[[Launch], Adapter] = contract.load) -> int:
    """Be this worker, from 1, of a launch that the first one measures; return the exit code."""
    made: List[Adapter] = []
    try:
        launch = read_launch(directory)
        refused = affinity.refusal(affinity.share(launch, worker))
        if refused:
            raise Unsupported(refused)
        team.see_own_gpu(launch, worker)
        adapter = load(launch)
        made.append(adapter)
        network = _network(launch)
        supported, reason = contract.supports(adapter, network)
        if not supported:
            raise Unsupported(reason)
        weights = batches.initial_weights(network) if adapter.computes else {}
        batch = batches.of_launch(network, launch)
        adapter.join(worker, team.meeting_place(directory))
        adapter.prepare(network, weights, team.part_of(batch, worker, launch.cell.world_size))
        adapter.synchronize()
        del weights, batch
        gc.collect()
        gc.disable()
        team.follow(adapter, sys.stdin.buffer)
        adapter.synchronize()
    except Unsupported as error:
        team.say_why(directory, worker, Outcome(Status.UNSUPPORTED, str(error)))
        return 1
    except Exception as error:
        team.say_why(directory, worker, _failure(error, made))
        return 1
    return 0


def _failure(error: Exception, made: List[Adapter]) -> Outcome:
    """Return the outcome of a launch in which the framework, or what drives it, raised this."""
    traceback.print_exc()
    ran_out = isinstance(error, MemoryError) or (bool(made) and made[0].is_out_of_memory(error))
    status = Status.OUT_OF_MEMORY if ran_out else Status.CRASHED
    return Outcome(status, "%s: %s" % (type(error).__name__, _first_line(error)))


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # MXNet's messages begin with a trace of its C++ calls; what happened is in the last line.
    if len(lines) > 1 and lines[0].startswith("Traceback"):
        return lines[-1][:300]
    return lines[0][:300] if lines else "(no message)"
