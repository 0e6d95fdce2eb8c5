"""What one launch measures: the network is built, held against the reference, warmed up, timed, and told of."""

import gc
import math
import os
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from .. import networks
from ..base import Adapter, Unsupported
from ..families import LEARNING_RATE, NumbersError
from ..protocol import PHASE_FILE, Launch, Outcome, Parity, Protocol, Status, write_json
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


def network_of(launch: Launch) -> networks.Network:
    """Return the network that the launch carries; raises NumbersError where it is none that these adapters know."""
    if launch.network is None:
        raise NumbersError("network", "the launch carries none")
    return networks.from_data(launch.network)


class Warm(NamedTuple):
    """A step that is ready to be timed, and what came before."""

    sample: Callable[[], None]
    watch: device.Watch
    steps_per_sample: int
    warmup: List[int]  # nanoseconds of a step


class Taken(NamedTuple):
    """The timed samples, and what was read around them and right after them."""

    series: Series
    monotonic: Tuple[float, float]  # the system's clock before and after
    readings: Tuple[evidence.Snapshot, evidence.Snapshot]
    cpus: Optional[List[int]]
    on_device: Optional[device.Timed]
    final_loss: float
    peak_memory_bytes: int
    parity: Parity


def _prepare(
    adapter: Adapter, network: networks.Network, launch: Launch, gather: Callable[[Adapter], Adapter]
) -> Tuple[Adapter, Dict[str, np.ndarray], float]:
    """Build the network; return the adapter to drive, the weights' sampled entries and the seconds of ``prepare``.

    The weights and the mini-batch end with this call, so that peak memory is the framework's own.
    """
    # A framework that computes nothing is spared the making of a hundred million weights.
    weights = batches.initial_weights(network) if adapter.computes else {}
    batch = batches.of_launch(network, launch)
    before = parity.sample_weights(weights)
    if team.needed(adapter, launch):
        batch = team.part_of(batch, 0, launch.cell.world_size)
        adapter = gather(adapter)
    start = time.perf_counter()
    adapter.prepare(network, weights, batch)
    adapter.synchronize()
    return adapter, before, time.perf_counter() - start


def _warm_up(adapter: Adapter, network: networks.Network, launch: Launch) -> Warm:
    """Carry out the steps before the timed ones, and find out how many steps make a sample."""
    step, protocol = extra_work.step_of(adapter), launch.protocol
    warmup = [
        timing.time_one(step, adapter.synchronize) for _ in range(max(1, protocol.warmup_steps - network.parity.steps))
    ]
    if not launch.cell.on_cpu:
        warmup += timing.keep_busy(step, adapter.synchronize, device.WARM_UP_SECONDS)
    count, tried = timing.steps_per_sample(step, adapter.synchronize, min(warmup), protocol.sample_seconds)
    watch = device.Watch(adapter, launch.cell.on_cpu)
    return Warm(watch.around(timing.several(step, count)), watch, count, warmup + tried)


def _take(adapter: Adapter, network: networks.Network, launch: Launch, warm: Warm, opening: Opening) -> Taken:
    """Time the samples; every instrument is read before the first or after the last of them."""
    # Before the evidence begins: with a large heap a collection is 0.15 s of the main thread.
    gc.collect()
    warm.watch.begin()
    earlier = evidence.snapshot()
    begun = time.monotonic()
    series = _timed(warm.sample, adapter.synchronize, launch.protocol)
    ended = time.monotonic()
    later = evidence.snapshot()
    # Of a team each worker is bound to its part of the launch's.
    bound = team.needed(adapter, launch) and launch.cpus
    cpus = sorted(launch.cpus or []) if bound else affinity.cpus_allowed()
    on_device = warm.watch.end()
    loss = contract.loss(adapter)
    peak = evidence.peak_memory_bytes()
    verdict = _still_trained(adapter, network, opening, loss)
    return Taken(series, (begun, ended), (earlier, later), cpus, on_device, loss, peak, verdict)


def _refusal(adapter: Adapter, network: networks.Network, launch: Launch) -> str:
    """Return why the launch cannot be carried out; empty where it can. The first of several workers is bound here."""
    refused = ""
    if team.needed(adapter, launch):
        team.see_own_gpu(launch, 0)
        affinity.narrow(affinity.share(launch, 0))
        refused = affinity.refusal(affinity.share(launch, 0))
    return (
        refused
        or adapter.refuses_axes(launch.cell)
        or team.refusal(adapter, launch)
        or contract.supports(adapter, network)[1]
    )


def measure(
    launch: Launch, phases: Phases, load: Callable[[Launch], Adapter], gather: Callable[[Adapter], Adapter]
) -> Outcome:
    """Return the outcome of a launch; ``load`` makes the adapter, ``gather`` the team of several processes."""
    try:
        network = network_of(launch)
    except NumbersError as error:
        return Outcome(Status.UNSUPPORTED, "%s: %s: %s" % (launch.cell.network, error.key, error))
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
    reason = _refusal(adapter, network, launch)
    if reason:
        return Outcome(Status.UNSUPPORTED, reason, import_seconds, software=software.environment())
    phases.enter("build")
    try:
        adapter, before, prepare_seconds = _prepare(adapter, network, launch, gather)
        phases.enter("first step")
        opening = _parity_steps(adapter, network, before, launch)
        if launch.save_reference is not None:
            # Nobody times the making of a reference, and its steps may last a minute each.
            return Outcome(Status.OK, "the reference was saved; nothing was timed", import_seconds, prepare_seconds)
        adapter.set_learning_rate(LEARNING_RATE)
        evidence.reset_peak_memory()
        phases.enter("warm-up")
        warm = _warm_up(adapter, network, launch)
        expected = warm.warmup[-1] * 1e-9 * warm.steps_per_sample * launch.protocol.steps
        phases.enter("timed", min(launch.protocol.seconds, expected))
        taken = _take(adapter, network, launch, warm, opening)
    except Unsupported as error:
        return Outcome(Status.UNSUPPORTED, str(error), import_seconds, software=software.environment())
    outcome = _told(adapter, launch, warm, taken)
    return outcome._replace(
        import_seconds=import_seconds,
        prepare_seconds=prepare_seconds,
        first_step_seconds=opening.first_step_seconds,
        parameter_count=opening.parameter_count,
    )


def _told(adapter: Adapter, launch: Launch, warm: Warm, taken: Taken) -> Outcome:
    """Return the outcome of timed samples, with the framework's own matrix product and description of itself."""
    cell, series, verdict = launch.cell, taken.series, taken.parity
    gemm = device.gemm_rate(adapter, cell.on_cpu, SENTINEL_SIZE) if adapter.computes else None
    described = software.environment()
    described.update(contract.description(adapter))
    described.update(software.settings_in_force(launch))
    disagrees, finite = verdict.verdict == "disagrees", math.isfinite(taken.final_loss)
    return Outcome(
        status=Status.PARITY_FAILED if disagrees else Status.OK,
        reason=verdict.reason if disagrees else "",
        warmup_ns=warm.warmup + [nanoseconds // warm.steps_per_sample for nanoseconds in series.before],
        samples_ns=series.samples,
        final_loss=taken.final_loss if finite else None,
        final_loss_finite=finite,
        peak_memory_bytes=taken.peak_memory_bytes,
        parity=verdict,
        threads=evidence.thread_evidence(cell.all_threads, _all_threads_said(adapter, launch), *taken.readings),
        contention=evidence.contention(*taken.readings),
        software=described,
        gemm_flops_per_second=gemm,
        steps_per_sample=warm.steps_per_sample,
        steady=series.steady,
        cpus=taken.cpus,
        evidence_steps=(len(series.before) + len(series.samples)) * warm.steps_per_sample,
        device=device.evidence(adapter, taken.on_device, len(series.before)),
        # Samples follow one another without a pause.
        timed_between=[taken.monotonic[0] + sum(series.before) * 1e-9, taken.monotonic[1]],
    )


def _all_threads_said(adapter: Adapter, launch: Launch) -> Optional[int]:
    """Return how many threads the framework says it uses, of all workers together."""
    said = contract.threads(adapter)
    return said * launch.cell.world_size if said is not None and team.needed(adapter, launch) else said
