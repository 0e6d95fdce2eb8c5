"""What one launch measures: the network is built, warmed up, timed, checked, and told of."""

import gc
import math
import os
import re
import sys
import time
import traceback
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from .. import networks
from ..base import Adapter, Unsupported
from ..families import LEARNING_RATE, NumbersError
from ..libraries import software
from ..networks import Network
from ..protocol import BEGIN, PHASE_FILE, TRAINING, Launch, Outcome, ParitySample, Protocol, Status, write_json
from . import batches, check, contract, device, evidence, parity, steady, team, timing
from .check import Host, Order

# Real extra work in each step, to try out whether a slowdown is found.
#
# ``DLBENCH_EXTRA_PRODUCTS`` in a launch's environment, such as "18x128", adds so many of the framework's own matrix
# products of this order to every step. It is work that competes for the same caches and threads as a slower kernel
# would, which a sleep does not.

EXTRA_PRODUCTS = "DLBENCH_EXTRA_PRODUCTS"


def step_with_extra_work(adapter: Adapter) -> Callable[[], None]:
    """Return the step to time: the adapter's own, with the extra products after it where any were asked for."""
    asked = os.environ.get(EXTRA_PRODUCTS, "")
    if not asked:
        return adapter.step
    found = re.match(r"([0-9]{1,6})x([1-9][0-9]{0,4})\Z", asked)
    if found is None:
        raise Unsupported("%s=%s cannot be read; write COUNTxORDER, such as 18x128" % (EXTRA_PRODUCTS, asked[:40]))
    count = int(found.group(1))
    multiply = adapter.multiply(int(found.group(2)))
    if multiply is None:
        raise Unsupported("%s: this framework offers no matrix product" % EXTRA_PRODUCTS)
    product: Callable[[], object] = multiply
    step = adapter.step

    def heavier() -> None:
        step()
        for _ in range(count):
            product()

    return heavier


# The part of a launch that trains on a text, after everything that is timed; nothing of it is timed.
#
# It starts from the weights that the network starts with, whatever the timed steps did to them.

#: Tells what the guest does, and how many seconds more it will take.
Announce = Callable[[str, Optional[float]], None]


def trains_on_text(launch: Launch) -> bool:
    """Tell whether the launch trains on a text."""
    return launch.protocol.curve_steps > 0 and launch.text is not None


def training_refusal(adapter: Adapter, network: Network, launch: Launch) -> str:
    """Return why the launch cannot train on its text; empty where it can, or where it is not asked to."""
    if not trains_on_text(launch):
        return ""
    cell = launch.cell
    if not network.family.alphabet:
        return "no training on a text: %s takes no symbols" % network.name
    for what, value, usual in (
        ("world size", cell.world_size, 1),
        ("precision", cell.precision, "float32"),
        ("placement", cell.placement, "resident"),
    ):
        if value != usual:
            return "%s %s: training on a text is at %s only" % (what, value, usual)
    refused = contract.refuses_training(adapter, network)
    return refused or batches.text_refusal(batches.read_text(launch.text or ""), network)


def with_curve(outcome: Outcome, adapter: Adapter, launch: Launch, announce: Announce) -> Outcome:
    """Return the outcome with the losses of the blocks, as far as training came; what ended it early is noted."""
    curve: List[List[float]] = []
    try:
        return _train(outcome, curve, adapter, launch, announce)
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        words = adapter.words_of(error) or "%s: %s" % (type(error).__name__, " ".join(str(error).split())[:300])
        return outcome._replace(curve=curve, curve_ended=words)


def _train(outcome: Outcome, curve: List[List[float]], adapter: Adapter, launch: Launch, announce: Announce) -> Outcome:
    network = networks.from_data(launch.network or {})
    steps = launch.protocol.curve_steps
    announce(TRAINING, None)
    weights = batches.initial_weights(network) if adapter.computes else {}
    found = batches.text_blocks(batches.read_text(launch.text or ""), network, launch.cell.batch_size, steps)
    begun = time.perf_counter()
    done = 0
    for losses in contract.block_losses(adapter, weights, found, batches.RmsProp()):
        mean = math.fsum(losses) / len(losses)
        if not math.isfinite(mean):
            last = min(done + batches.BLOCK, steps)
            where = "in steps %d to %d" % (done + 1, last) if done < steps else "on the text kept to test with"
            return outcome._replace(curve=curve, curve_ended="the loss was not finite " + where)
        if done == steps:
            return outcome._replace(curve=curve, test_loss=mean)
        done += len(losses)
        curve.append([done, mean])
        announce("%s, step %d of %d" % (TRAINING, done, steps), (time.perf_counter() - begun) / done * (steps - done))
    raise contract.ContractBroken("train_on_text() ended after %d of %d steps" % (done, steps))


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

    step: Callable[[], None]
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
    final_loss: Optional[float]
    peak_memory_bytes: int
    order: Optional[Order]  # the parity check that the host asks for


class FirstLosses:
    """The losses of the steps before the timed ones, of a network whose mathematics only its adapter knows."""

    def __init__(self, adapter: Adapter, network: networks.Network) -> None:
        self.adapter = adapter
        self.wanted = not network.family.specified
        self.losses: List[float] = []

    def note(self) -> None:
        """Read the loss of the last step."""
        if self.wanted and self.adapter.tells_loss:
            self.losses.append(contract.loss(self.adapter))

    def answer(self) -> Optional[ParitySample]:
        """Return them for the host to hold against those of other launches; None where a reference does better."""
        if not self.wanted:
            return None
        finite = all(math.isfinite(each) for each in self.losses)
        return ParitySample(self.losses if finite else None, {}, 0)


def _prepare(
    adapter: Adapter, network: networks.Network, launch: Launch, gather: Callable[[Adapter], Adapter]
) -> Tuple[Adapter, Dict[str, np.ndarray], float]:
    """Build the network; return the adapter to drive, the weights' sampled entries and the seconds of ``prepare``.

    The weights and the mini-batch end with this call, so that peak memory is the framework's own.
    """
    # A framework that computes nothing is spared the making of a hundred million weights.
    purpose = batches.CHECKED if launch.save_reference is not None else batches.TIMED
    weights = batches.initial_weights(network, purpose) if adapter.computes else {}
    batch = batches.of_launch(network, launch, purpose)
    before = parity.sample_weights(weights)
    if team.needed(adapter, launch):
        batch = team.part_of(batch, 0, launch.cell.world_size)
        adapter = gather(adapter)
    start = time.perf_counter()
    adapter.prepare(network, weights, batch)
    adapter.synchronize()
    return adapter, before, time.perf_counter() - start


def _warm_up(adapter: Adapter, launch: Launch, note_loss: Callable[[], None]) -> Warm:
    """Carry out the steps before the timed ones, and find out how many steps make a sample."""
    step, protocol = step_with_extra_work(adapter), launch.protocol
    warmup = []
    # The first step was one already.
    for _ in range(max(1, protocol.warmup_steps - 1)):
        warmup.append(timing.time_one(step, adapter.synchronize))
        note_loss()
    if not launch.cell.on_cpu:
        warmup += timing.keep_busy(step, adapter.synchronize, device.WARM_UP_SECONDS)
    count, tried = timing.steps_per_sample(step, adapter.synchronize, min(warmup), protocol.sample_seconds)
    watch = device.Watch(adapter, launch.cell.on_cpu)
    return Warm(step, watch.around(timing.several(step, count)), watch, count, warmup + tried)


def _take(adapter: Adapter, launch: Launch, warm: Warm, host: Host) -> Taken:
    """Time the samples; every instrument is read before the first or after the last of them."""
    # Before the evidence begins: with a large heap a collection is 0.15 s of the main thread.
    gc.collect()
    warm.watch.begin()
    # Of a team each worker is bound to its part of the launch's.
    bound = team.needed(adapter, launch) and launch.cpus
    cpus = sorted(launch.cpus or []) if bound else evidence.cpus_allowed()
    host.mark(BEGIN)
    earlier = evidence.snapshot(cpus)
    begun = time.monotonic()
    series = _timed(warm.sample, adapter.synchronize, launch.protocol)
    ended = time.monotonic()
    later = evidence.snapshot(cpus)
    order = host.end((len(series.before) + len(series.samples)) * warm.steps_per_sample)
    on_device = warm.watch.end()
    loss = contract.loss(adapter) if adapter.tells_loss else None
    return Taken(series, (begun, ended), (earlier, later), cpus, on_device, loss, evidence.peak_memory_bytes(), order)


def _refusal(adapter: Adapter, network: networks.Network, launch: Launch) -> str:
    """Return why the launch cannot be carried out; empty where it can. The first of several workers is bound here."""
    refused = ""
    if team.needed(adapter, launch):
        team.see_own_gpu(launch, 0)
        evidence.bind_threads(evidence.cpus_of_worker(launch, 0))
        refused = evidence.binding_refusal(evidence.cpus_of_worker(launch, 0))
    return (
        refused
        or adapter.refuses_axes(launch.cell)
        or team.refusal(adapter, launch)
        or contract.supports(adapter, network)[1]
        or training_refusal(adapter, network, launch)
    )


def measure(
    launch: Launch, phases: Phases, host: Host, load: Callable[[Launch], Adapter], gather: Callable[[Adapter], Adapter]
) -> Outcome:
    """Return the outcome of a launch; ``load`` makes the adapter, ``gather`` the team of several processes."""
    try:
        network = network_of(launch)
    except NumbersError as error:
        return Outcome(Status.UNSUPPORTED, "%s: %s: %s" % (launch.cell.network, error.key, error))
    refused = evidence.binding_refusal(launch.cpus)
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
        if launch.save_reference is not None:
            # Nobody times the making of a reference, and its steps may last a minute each.
            check.save_reference(adapter, network, launch.save_reference, before)
            return Outcome(Status.OK, "the reference was saved; nothing was timed", import_seconds, prepare_seconds)
        adapter.set_learning_rate(LEARNING_RATE)
        phases.enter("first step")
        first_step_seconds = timing.time_one(adapter.step, adapter.synchronize) * 1e-9
        losses = FirstLosses(adapter, network)
        losses.note()
        evidence.reset_peak_memory()
        phases.enter("warm-up")
        warm = _warm_up(adapter, launch, losses.note)
        expected = warm.warmup[-1] * 1e-9 * warm.steps_per_sample * launch.protocol.steps
        phases.enter("timed", min(launch.protocol.seconds, expected))
        taken = _take(adapter, launch, warm, host)
        phases.enter("check")
        answer = losses.answer() or _checked(adapter, warm.step, launch, taken, before, host)
    except Unsupported as error:
        return Outcome(Status.UNSUPPORTED, str(error), import_seconds, software=software.environment())
    return _told(adapter, launch, warm, taken)._replace(
        import_seconds=import_seconds,
        prepare_seconds=prepare_seconds,
        first_step_seconds=first_step_seconds,
        parameter_count=None if answer is None else answer.parameter_count,
        answer=answer,
    )


def _checked(
    adapter: Adapter, step: Callable[[], None], launch: Launch, taken: Taken, before: Dict[str, np.ndarray], host: Host
) -> Optional[ParitySample]:
    """Carry out the parity check; None where nothing is computed, or where no host asks for one."""
    if not adapter.computes:
        return None
    network = network_of(launch)
    # Where the loss is not finite, nothing is to be learnt from the parameters.
    moved = None
    if taken.final_loss is not None and math.isfinite(taken.final_loss):
        moved = not parity.stood_still(contract.learnt(adapter, network), before)
    if taken.order is None:
        return None
    return check.carry_out_check(adapter, step, launch, host, taken.order)._replace(moved=moved)


def _told(adapter: Adapter, launch: Launch, warm: Warm, taken: Taken) -> Outcome:
    """Return the outcome of timed samples, with the framework's own matrix product and description of itself."""
    cell, series = launch.cell, taken.series
    gemm = device.gemm_rate(adapter, cell.on_cpu, SENTINEL_SIZE) if adapter.computes else None
    described = software.environment()
    described.update(contract.description(adapter))
    described.update(software.settings_in_force(launch))
    finite = None if taken.final_loss is None else math.isfinite(taken.final_loss)
    return Outcome(
        status=Status.OK,
        reason="" if adapter.computes else adapter.parity_reason,
        warmup_ns=warm.warmup + [nanoseconds // warm.steps_per_sample for nanoseconds in series.before],
        samples_ns=series.samples,
        final_loss=taken.final_loss if finite else None,
        final_loss_finite=finite,
        peak_memory_bytes=taken.peak_memory_bytes,
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
    said = contract.threads(adapter)
    return said * launch.cell.world_size if said is not None and team.needed(adapter, launch) else said
