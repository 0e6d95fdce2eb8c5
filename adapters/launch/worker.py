"""One launch inside the guest process: ``cell.json`` in, ``outcome.json`` out.

Build the network, warm up, time, check, and return the outcome.
"""

import gc
import math
import os
import re
import sys
import time
import traceback
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np

from .. import networks
from ..base import Adapter, Unsupported
from ..families import LEARNING_RATE, NumbersError
from ..libraries import gpus, inventory, software
from ..networks import Network
from ..protocol import (
    BEGIN,
    EXTRA_PRODUCTS,
    FED,
    PHASE_FILE,
    PROFILE,
    TRAINING,
    Launch,
    Outcome,
    ParitySample,
    Status,
    read_launch,
    write_json,
    write_outcome,
)
from . import batches, contract, device, evidence, feeds, parity, team, timing
from .parity import Host

SENTINEL_SIZE = 1536


def step_with_extra_work(adapter: Adapter) -> Callable[[], None]:
    """Return the step to time: the adapter's own, followed by the products that `EXTRA_PRODUCTS` asks for.

    "18x128" are 18 of the framework's own products of this order, to try out whether a slowdown is found. Such work
    competes for the same caches and threads as a slower kernel would, which a sleep does not.
    """
    given = os.environ.get(EXTRA_PRODUCTS, "")
    if not given:
        return adapter.step
    match = re.match(r"([0-9]{1,6})x([1-9][0-9]{0,4})\Z", given)
    if match is None:
        raise Unsupported("%s=%s cannot be read; write COUNTxORDER, such as 18x128" % (EXTRA_PRODUCTS, given[:40]))
    count, product, step = int(match.group(1)), adapter.multiply(int(match.group(2))), adapter.step
    if product is None:
        raise Unsupported("%s: this framework offers no matrix product" % EXTRA_PRODUCTS)
    multiply: Callable[[], object] = product

    def heavier() -> None:
        step()
        for _ in range(count):
            multiply()

    return heavier


#: Announces the guest's phase and, where it is known, how many seconds more it will take.
Announce = Callable[..., None]


def trains_on_text(launch: Launch) -> bool:
    """Tell whether the launch trains on a text."""
    return launch.protocol.curve_steps > 0 and launch.text is not None


def training_refusal(adapter: Adapter, network: Network, launch: Launch) -> str:
    """Return why the launch cannot train on its text; empty where it can, or where none is asked for."""
    if not trains_on_text(launch):
        return ""
    if not network.family.alphabet:
        return "no training on a text: %s takes no symbols" % network.name
    for axis, usual in (("world_size", 1), ("precision", "float32"), ("placement", "resident")):
        value = getattr(launch.cell, axis)
        if value != usual:
            return "%s %s: training on a text is at %s only" % (axis.replace("_", " "), value, usual)
    refused = str(contract.ask(adapter, "refuses_training", network))
    return refused or batches.text_refusal(*batches.read_text(launch.text or ""), network)


def with_curve(outcome: Outcome, adapter: Adapter, launch: Launch, announce: Announce) -> Outcome:
    """Train on the launch's text, untimed; return the outcome with the losses of the blocks, and why it ended early.

    It starts from the weights that the network starts with, whatever the timed steps did to them.
    """
    curve: List[List[float]] = []
    try:
        return _train(outcome, curve, adapter, launch, announce)
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        words = adapter.error_text(error) or "%s: %s" % (type(error).__name__, " ".join(str(error).split())[:300])
        return outcome._replace(curve=curve, curve_ended=words)


def _train(outcome: Outcome, curve: List[List[float]], adapter: Adapter, launch: Launch, announce: Announce) -> Outcome:
    network = networks.from_data(launch.network or {})
    steps = launch.protocol.curve_steps
    announce(TRAINING)
    weights = batches.initial_weights(network, folder=launch.weights) if adapter.computes else {}
    blocks = batches.text_blocks(*batches.read_text(launch.text or ""), network, launch.cell.batch_size, steps)
    begun = time.perf_counter()
    done = 0
    for losses in contract.block_losses(adapter, weights, blocks, batches.RmsProp()):
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


#: Losses that `with_losses` keeps: each is a sum over all workers, for which they wait.
_LOSSES = 20


def with_losses(outcome: Outcome, adapter: Adapter, launch: Launch, announce: Announce) -> Outcome:
    """Take the protocol's further steps, untimed; return the outcome with the losses on the way.

    They start from the weights and the mini-batch of the parity check, at the rate of the timed steps. Where they end
    early the outcome's software says why.
    """
    losses: List[List[float]] = []
    ended = ""
    try:
        network, steps = network_of(launch), launch.protocol.loss_steps
        announce(TRAINING)
        adapter.reset(parity.Weights(network, launch.weights), batches.of_launch(network, launch))
        adapter.set_learning_rate(LEARNING_RATE)
        block = max(1, steps // _LOSSES)
        begun, done = time.perf_counter(), 0
        while done < steps and not ended:
            more = min(block, steps - done)
            timing.several(adapter.step, more)()
            done += more
            loss = contract.loss(adapter)
            if math.isfinite(loss):
                losses.append([done, loss])
            else:
                ended = "the loss was not finite after %d steps" % done
            left = (time.perf_counter() - begun) / done * (steps - done)
            announce("%s, step %d of %d" % (TRAINING, done, steps), left)
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        ended = adapter.error_text(error) or "%s: %s" % (type(error).__name__, gpus.first_line(error))
    software = dict(outcome.software, losses_ended=ended) if ended else outcome.software
    return outcome._replace(losses=losses, software=software)


def announcer(directory: str, begun: Dict[str, float]) -> Announce:
    """Return the call that tells the host the guest's phase, between measurements only; ``begun`` notes its time."""
    process = os.getpid()

    def announce(phase: str, expected_seconds: Optional[float] = None) -> None:
        if os.getpid() != process:
            os._exit(1)  # a copy that the adapter forked and let go on: the launch is the original's
        begun.setdefault(phase.partition(",")[0], time.monotonic())
        write_json(os.path.join(directory, PHASE_FILE), {"phase": phase, "expected_seconds": expected_seconds})

    return announce


def network_of(launch: Launch) -> Network:
    """Return the network that the launch carries; raises NumbersError where these adapters do not know it."""
    if launch.network is None:
        raise NumbersError("network", "the launch carries none")
    return networks.from_data(launch.network)


def _prepare(
    adapter: Adapter, network: Network, launch: Launch, gather: Callable[[Adapter], Adapter]
) -> Tuple[Adapter, Dict[str, np.ndarray], float]:
    """Build the network; return the adapter to drive, the weights' sampled entries and the seconds of ``prepare``.

    The weights and the mini-batch end with this call, so that peak memory is the framework's own.
    """
    # A framework that computes nothing is spared the making of a hundred million weights.
    purpose = batches.CHECKED if launch.save_reference is not None else batches.TIMED
    weights = batches.initial_weights(network, purpose, launch.weights) if adapter.computes else {}
    batch = batches.of_launch(network, launch, purpose)
    before = parity.sample_weights(weights)
    if team.needed(adapter, launch):
        batch = team.part_of(batch, 0, launch.cell.world_size)
        adapter = gather(adapter)
    elif launch.cell.placement in FED:
        feeder: Any = feeds.Feeder(adapter, network, launch, purpose)
        adapter = feeder
    start = time.perf_counter()
    adapter.prepare(network, weights, batch)
    adapter.synchronize()
    return adapter, before, time.perf_counter() - start


def _refusal(adapter: Adapter, network: Network, launch: Launch) -> str:
    """Return why the launch cannot run; empty where it can. The first of several workers is bound here."""
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
    launch: Launch,
    announce: Announce,
    host: Host,
    load: Callable[[Launch], Adapter],
    gather: Callable[[Adapter], Adapter],
) -> Outcome:
    """Return the outcome of a launch; ``load`` makes the adapter, ``gather`` the team of several processes."""
    try:
        network = network_of(launch)
    except NumbersError as error:
        return Outcome(Status.UNSUPPORTED, "%s: %s: %s" % (launch.cell.network, error.key, error))
    refused = evidence.binding_refusal(launch.cpus) or evidence.preload_refusal()
    if refused:
        return Outcome(Status.UNSUPPORTED, refused)
    announce("import")
    start = time.perf_counter()
    adapter = load(launch)
    import_seconds = time.perf_counter() - start
    if launch.only_capabilities:
        described = software.environment()
        queried_networks = [networks.from_data(each) for each in launch.queried_networks or []]
        module = contract.described(adapter, "framework")
        described["capabilities"] = contract.capabilities(adapter, module, queried_networks)
        described["version"] = contract.described(adapter, "version")
        described["project"] = inventory.project(module)
        return Outcome(Status.OK, "nothing was timed", import_seconds, software=described)
    refused = _refusal(adapter, network, launch)
    if refused:
        return Outcome(Status.UNSUPPORTED, refused, import_seconds, software=software.environment())
    announce("build")
    try:
        adapter, before, prepare_seconds = _prepare(adapter, network, launch, gather)
        if launch.save_reference is not None:
            # The making of a reference is not timed, and its steps may last a minute each.
            parity.save_reference(adapter, network, launch.save_reference, before)
            return Outcome(Status.OK, "the reference was saved; nothing was timed", import_seconds, prepare_seconds)
        outcome = _measure_steps(adapter, network, launch, announce, host, before)
    except Unsupported as error:
        return Outcome(Status.UNSUPPORTED, str(error), import_seconds, software=software.environment())
    return outcome._replace(import_seconds=import_seconds, prepare_seconds=prepare_seconds)


def _measure_steps(
    adapter: Adapter, network: Network, launch: Launch, announce: Announce, host: Host, before: Dict[str, np.ndarray]
) -> Outcome:
    """Run first step, warm-up, timed samples and check of a prepared adapter."""
    cell, protocol = launch.cell, launch.protocol
    first_losses: List[float] = []

    def note_loss() -> None:
        """Keep the loss of the last step, where there is no reference: launches must agree on these."""
        if not network.family.specified and adapter.has_loss:
            first_losses.append(contract.loss(adapter))

    adapter.set_learning_rate(LEARNING_RATE)
    announce("first step")
    first_step_seconds = timing.time_one(adapter.step, adapter.synchronize) * 1e-9
    note_loss()
    evidence.reset_peak_memory()
    announce("warm-up")
    step = step_with_extra_work(adapter)
    warmup, count = timing.warm_up(adapter, launch, step, note_loss)
    watch = device.Watch(adapter, cell.on_cpu)
    sample = watch.around(timing.several(step, count))
    announce("timed", min(protocol.seconds, warmup[-1] * 1e-9 * count * protocol.steps))
    # Before the evidence begins: with a large heap a collection is 0.15 s of the main thread.
    gc.collect()
    watch.begin()
    # Each worker of a team is bound to its part of the launch's CPUs.
    bound = team.needed(adapter, launch) and launch.cpus
    cpus = sorted(launch.cpus or []) if bound else evidence.cpus_allowed()
    host.mark(BEGIN)
    earlier = evidence.snapshot(cpus)
    begun = time.monotonic()
    left_out, samples, steady = timing.timed_samples(sample, adapter.synchronize, protocol)
    ended = time.monotonic()
    later = evidence.snapshot(cpus)
    request = host.end((len(left_out) + len(samples)) * count)
    watch.end()
    loss = contract.loss(adapter) if adapter.has_loss else None
    finite = None if loss is None else math.isfinite(loss)
    peak_memory_bytes = evidence.peak_memory_bytes()
    announce("check")
    seen: Optional[ParitySample] = None
    if not network.family.specified:
        seen = ParitySample(first_losses if all(map(math.isfinite, first_losses)) else None, {}, 0)
    elif adapter.computes:
        # Without a finite loss the parameters show nothing.
        moved = not parity.all_unchanged(contract.current_parameters(adapter, network), before) if finite else None
        if request is not None:
            seen = parity.run_check(adapter, step, launch, host, request)._replace(moved=moved)
    feeds.close(adapter)  # lest a loader's threads and processes disturb the product
    announce("product")
    gemm = device.gemm_rate(adapter, cell.on_cpu, SENTINEL_SIZE) if adapter.computes else None
    announce("description")
    threads = contract.ask(adapter, "effective_threads")
    if threads is not None and team.needed(adapter, launch):
        threads *= cell.world_size
    threads = None if threads is None else threads + cell.helpers
    described = software.environment()
    described.update(contract.ask(adapter, "describe"))
    described.update(software.settings_in_force(launch))
    return Outcome(
        status=Status.OK,
        reason="" if adapter.computes else adapter.parity_reason,
        first_step_seconds=first_step_seconds,
        warmup_ns=warmup + [nanoseconds // count for nanoseconds in left_out],
        samples_ns=samples,
        final_loss=loss if finite else None,
        final_loss_finite=finite,
        peak_memory_bytes=peak_memory_bytes,
        threads=evidence.thread_evidence(cell.all_threads, threads, earlier, later)._replace(helpers=cell.helpers),
        contention=evidence.contention(earlier, later),
        software=described,
        parameter_count=None if seen is None else seen.parameter_count,
        gemm_flops_per_second=gemm,
        steps_per_sample=count,
        steady=steady,
        cpus=cpus,
        evidence_steps=(len(left_out) + len(samples)) * count,
        device=watch.evidence(len(left_out)),
        # Samples follow one another without a pause.
        timed_between=[begun + sum(left_out) * 1e-9, ended],
        parity_sample=seen,
    )


def run(directory: str, load: Callable[[Launch], Adapter] = contract.load) -> int:
    """Run the launch described in this control directory; return the exit code.

    With several workers this is the first one; `join` is the others. Whatever goes wrong in the framework is an outcome
    (exit code 0). Without an outcome file the host takes the launch for crashed.
    """
    launch = read_launch(directory)
    begun: Dict[str, float] = {}
    announce = announcer(directory, begun)
    process = os.getpid()
    made: List[Adapter] = []
    teams: List[team.Team] = []

    def load_and_keep(launch: Launch) -> Adapter:
        made.append(load(launch))
        return made[0]

    def keep(outcome: Outcome) -> None:
        write_outcome(directory, outcome._replace(phases=begun))

    def gather(adapter: Adapter) -> Adapter:
        teams.append(team.Team(launch, directory))
        adapter.join(0, team.meeting_place(directory))
        lead: Any = team.Lead(teams[0], adapter)
        made[0] = lead
        return made[0]

    try:
        outcome = measure(launch, announce, Host(), load_and_keep, gather)
    except contract.ContractBroken as error:
        outcome = Outcome(Status.CRASHED, "the adapter breaks its contract: %s" % error)
    except Exception as error:
        outcome = _failure(error, made)
    if os.getpid() != process:
        return 1  # a copy that the adapter forked in the last phase
    further = launch.protocol.loss_steps > 0 and launch.cell.placement not in FED
    if outcome.samples_ns and further and network_of(launch).family.specified:
        # With the measurement safe on disk: should this take too long, nothing else is lost.
        keep(outcome)
        outcome = with_losses(outcome, made[0], launch, announce)
        if os.getpid() != process:
            return 1
    for each in teams:
        if outcome.status in (Status.CRASHED, Status.OUT_OF_MEMORY):
            outcome = each.why_lost() or outcome
        each.end()
    announce("end")
    keep(outcome)
    if not teams and outcome.samples_ns and (launch.profiled_steps > 0 or not launch.cell.on_cpu):
        # With the measurement safe on disk: a profiler that crashes loses nothing of it.
        announce(PROFILE)
        outcome = device.with_profile(outcome, launch, made[0])
        if os.getpid() != process:
            return 1
        keep(outcome)
    if not teams and outcome.samples_ns and trains_on_text(launch):
        # Should it end this process, the outcome says so.
        keep(outcome._replace(curve_ended="the process ended while it trained"))
        outcome = with_curve(outcome, made[0], launch, announce)
        if os.getpid() != process:
            return 1
        keep(outcome)
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
        weights = batches.initial_weights(network, batches.TIMED, launch.weights) if adapter.computes else {}
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
    return Outcome(status, words or "%s: %s" % (type(error).__name__, gpus.first_line(error)))
