"""One launch inside the guest process: ``cell.json`` in, ``outcome.json`` out.

Build the network, warm up, time, check, and return the answer.
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
from ..base import Adapter, Explained, Unsupported
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
    WARM_UP,
    Answer,
    Launch,
    ParitySample,
    Status,
    read_launch,
    write_answer,
    write_json,
)
from . import batches, contract, device, evidence, feeds, parity, team, timing
from .inference import Inference

SENTINEL_SIZE = 1536
#: Losses of further steps that are kept: a loss is a sum over all workers, for which they wait.
_LOSSES = 20
#: First calls of the user's own inference whose outputs are kept.
_NOTED_CALLS = 3
#: Of a call of inference whose single times are kept: the clock would be a part of shorter ones.
_LEAST_CALL_SECONDS = 1e-4
#: The only values of axes with which a launch trains on a text.
_AXES_OF_TRAINING = (
    ("world_size", 1),
    ("precision", "float32"),
    ("placement", "resident"),
    ("task", "training"),
)
Load = Callable[[Launch], Adapter]


def step_with_extra_work(adapter: Adapter) -> Callable[[], None]:
    """Return the step to time, with the products that `EXTRA_PRODUCTS` asks for.

    It is the adapter's own, followed by the products. "18x128" adds 18 of the framework's own
    products of order 128, to test whether a slowdown is detected. Unlike a sleep, such work
    competes for the same caches and threads as a slower kernel would.
    """
    given = os.environ.get(EXTRA_PRODUCTS, "")
    if not given:
        return adapter.step
    match = re.match(r"([0-9]{1,6})x([1-9][0-9]{0,4})\Z", given)
    if match is None:
        raise Unsupported(
            "%s=%s cannot be read; write COUNTxORDER, such as 18x128" % (EXTRA_PRODUCTS, given[:40])
        )
    count = int(match.group(1))
    product = adapter.multiply(int(match.group(2)))
    step = adapter.step
    if product is None:
        raise Unsupported("%s: this framework offers no matrix product" % EXTRA_PRODUCTS)
    multiply: Callable[[], object] = product

    def heavier() -> None:
        step()
        for _ in range(count):
            multiply()

    return heavier


def trains_on_text(launch: Launch) -> bool:
    """Return whether the launch trains on a text."""
    return launch.protocol.curve_steps > 0 and launch.text is not None


def training_refusal(adapter: Adapter, network: Network, launch: Launch) -> str:
    """Return why the launch cannot train on its text; empty where it can or need not."""
    if not trains_on_text(launch):
        return ""
    if not network.family.alphabet:
        return "no training on a text: %s takes no symbols" % network.name
    for axis, supported in _AXES_OF_TRAINING:
        value = getattr(launch.cell, axis)
        if value != supported:
            name = axis.replace("_", " ")
            return "%s %s: training on a text supports only %s" % (name, value, supported)
    refused = str(contract.ask(adapter, "refuses_training", network))
    return refused or batches.text_refusal(*batches.read_text(launch.text or ""), network)


class FirstWorker:
    """The process that measures a launch: the only worker of most, the first of several."""

    network: Network

    def __init__(self, directory: str, load: Load) -> None:
        self.directory = directory
        self.load = load
        self.launch = read_launch(directory)
        self.process = os.getpid()
        self.host = parity.HostLine()
        self.phases: Dict[str, float] = {}  # when each began
        self.faults: Dict[str, int] = {}  # minor page faults before each
        self.adapter: Any = None  # from the import on; with several workers the `team.Lead`
        self.team: Optional[team.Team] = None

    def _leave_if_copied(self) -> None:
        """Exit if this is a fork that the adapter left running.

        The launch belongs to the original process.
        """
        if os.getpid() != self.process:
            os._exit(1)

    def announce(
        self,
        phase: str,
        expected_seconds: Optional[float] = None,
        step_seconds: Optional[float] = None,
    ) -> None:
        """Report the phase to the host, with its expected duration and a step's if known.

        Never called while measuring.
        """
        self._leave_if_copied()
        name = phase.partition(",")[0]
        self.phases.setdefault(name, time.monotonic())
        self.faults.setdefault(name, evidence.minor_faults())
        report = {
            "phase": phase,
            "expected_seconds": expected_seconds,
            "step_seconds": step_seconds,
        }
        write_json(os.path.join(self.directory, PHASE_FILE), report)

    def announce_progress(self, begun: float, done: int, steps: int) -> None:
        """Report a training's progress to the host.

        ``begun`` is its start by ``time.perf_counter``.
        """
        left = (time.perf_counter() - begun) / done * (steps - done)
        self.announce("%s, step %d of %d" % (TRAINING, done, steps), left)

    def keep(self, answer: Answer) -> None:
        """Write the answer, replacing any earlier one."""
        self._leave_if_copied()
        write_answer(self.directory, answer._replace(phases=self.phases, faults_before=self.faults))

    def run(self) -> None:
        """Measure, and write the answer; a failure of the framework is an answer too."""
        try:
            answer = self.measure()
        except contract.ContractBroken as error:
            answer = Answer(Status.CRASHED, "the adapter breaks its contract: %s" % error)
        except Exception as error:
            answer = _failure(error, self.adapter)
        launch = self.launch
        timed = bool(answer.samples_ns)
        # Each further phase starts with the measurement safe on disk, so that a crash or time-out
        # there cannot lose it.
        if timed and self._keeps_losses():
            self.keep(answer)
            answer = self.with_losses(answer)
        if self.team is not None:
            if answer.status in (Status.CRASHED, Status.OUT_OF_MEMORY):
                answer = self.team.why_lost() or answer
            self.team.end()
        self.announce("end")
        self.keep(answer)
        if self.team is not None or not timed:
            return
        if launch.profiled_steps > 0 or not launch.cell.on_cpu:
            self.announce(PROFILE)
            answer = device.with_profile(answer, launch, self.adapter, self.host)
            self.keep(answer)
        if trains_on_text(launch):
            # Should it end this process, the answer says so.
            self.keep(answer._replace(curve_ended="the process ended during training"))
            self.keep(self.with_curve(answer))

    def _keeps_losses(self) -> bool:
        """Return whether further steps follow whose losses are kept."""
        cell = self.launch.cell
        return (
            self.launch.protocol.loss_steps > 0
            and cell.placement not in FED
            and not cell.infers
            and self.network.family.specified
        )

    def measure(self) -> Answer:
        """Return the answer of the launch, without the phases after the measurement."""
        launch = self.launch
        try:
            self.network = networks.from_data(launch.network or {})
        except NumbersError as error:
            words = "%s: %s: %s" % (launch.cell.network, error.key, error)
            return Answer(Status.UNSUPPORTED, words)
        network = self.network
        refused = evidence.binding_refusal(launch.cpus) or evidence.preload_refusal()
        if refused:
            return Answer(Status.UNSUPPORTED, refused)
        self.announce("import")
        start = time.perf_counter()
        self.adapter = self.load(launch)
        self.adapter.import_modules()
        import_seconds = time.perf_counter() - start
        if launch.only_capabilities:
            facts = _capabilities(self.adapter, launch)
            return Answer(Status.OK, "nothing was timed", import_seconds, software=facts)
        refused = _refusal(self.adapter, network, launch)
        if refused:
            facts = software.environment()
            return Answer(Status.UNSUPPORTED, refused, import_seconds, software=facts)
        self.announce("build")
        try:
            adapter, before, prepare_seconds = self._prepare()
            if launch.save_reference is not None:
                # Generating a reference is not timed, and its steps may take a minute each.
                if launch.cell.infers:
                    parity.save_output_reference(adapter, network, launch.save_reference)
                else:
                    parity.save_reference(adapter, network, launch.save_reference, before)
                words = "the reference was saved; nothing was timed"
                return Answer(Status.OK, words, import_seconds, prepare_seconds)
            answer = self._measure_steps(adapter, before)
        except Unsupported as error:
            facts = software.environment()
            return Answer(Status.UNSUPPORTED, str(error), import_seconds, software=facts)
        return answer._replace(import_seconds=import_seconds, prepare_seconds=prepare_seconds)

    def _prepare(self) -> Tuple[Adapter, Dict[str, np.ndarray], float]:
        """Build the network; return the adapter to drive, sampled weights and the seconds.

        The weights are their sampled entries, the seconds those of ``prepare``. The weights and the
        mini-batch end with this call, so that peak memory is the framework's own.
        """
        launch = self.launch
        network = self.network
        adapter = self.adapter
        purpose = batches.CHECKED if launch.save_reference is not None else batches.TIMED
        # The weights of inference stay when it is checked.
        weights_purpose = batches.TIMED if launch.cell.infers else purpose
        weights: Dict[str, np.ndarray] = {}
        # Do not make a hundred million weights for a framework that computes nothing.
        if adapter.computes:
            weights = batches.initial_weights(network, weights_purpose, launch.weights)
        if launch.cell.infers:
            batch = self._inference_batch(purpose)
            adapter = self.adapter = Inference(adapter)
        else:
            batch = batches.launch_batch(network, launch, purpose)
        before = parity.sample_weights(weights)
        if team.needed(adapter, launch):
            batch = team.part_of(batch, 0, launch.cell.world_size)
            self.team = team.Team(launch, self.directory)
            adapter.join(0, team.meeting_place(self.directory))
            adapter = self.adapter = team.Lead(self.team, adapter)
        elif launch.cell.placement in FED:
            adapter = feeds.Feeder(adapter, network, launch, purpose)
        start = time.perf_counter()
        adapter.prepare(network, weights, batch)
        adapter.synchronize()
        return adapter, before, time.perf_counter() - start

    def _inference_batch(self, purpose: str) -> batches.Batch:
        cell = self.launch.cell
        if self.launch.save_reference is not None and cell.placement not in FED:
            return batches.checked_examples(self.network)
        # A user's own step makes its own mini-batch.
        size = cell.known_batch_size if self.network.family.specified else 1
        return batches.mini_batch(self.network, size, purpose=purpose)

    def _measure_steps(self, adapter: Adapter, before: Dict[str, np.ndarray]) -> Answer:
        """Run first step, warm-up, timed samples and check of a prepared adapter."""
        launch = self.launch
        network = self.network
        host = self.host
        announce = self.announce
        cell = launch.cell
        protocol = launch.protocol
        first_losses: List[float] = []
        first_outputs: List[List[float]] = []

        def note_loss() -> None:
            """Keep the last step's loss or outputs: launches without reference agree on them."""
            if network.family.specified:
                return
            if cell.infers and len(first_outputs) < _NOTED_CALLS:
                first_outputs.extend(parity.sample_outputs(contract.outputs(adapter, 1)).tolist())
            if adapter.has_loss:
                first_losses.append(contract.loss(adapter))

        adapter.set_learning_rate(LEARNING_RATE)
        if launch.in_turns:
            announce("waiting")
            host.mark(WARM_UP)
        announce("first step")
        first_step_seconds = timing.time_one(adapter.step, adapter.synchronize) * 1e-9
        note_loss()
        evidence.reset_peak_memory()
        announce("warm-up", step_seconds=first_step_seconds)
        step = step_with_extra_work(adapter)
        warmup, count = timing.warm_up(adapter, launch, step, note_loss)
        watch = device.Watch(adapter, cell.on_cpu)
        step_seconds = warmup[-1] * 1e-9
        calls: List[int] = []
        if cell.infers and cell.cpu_quota and count > 1 and step_seconds > _LEAST_CALL_SECONDS:
            sample = timing.noting_calls(step, adapter.synchronize, count, calls)
        else:
            sample = watch.around(timing.several(step, count))
        expected: Optional[float] = None
        if not launch.in_turns:
            expected = min(protocol.seconds, step_seconds * count * protocol.steps)
        announce("timed", expected, step_seconds)
        # Before the evidence begins: with a large heap a collection is 0.15 s of the main thread.
        gc.collect()
        watch.begin()
        counter = evidence.SampleCounter(memory=protocol.trend)
        # Each worker of a team is bound to its part of the launch's CPUs.
        cpus = evidence.cpus_allowed()
        if launch.cpus and team.needed(adapter, launch):
            cpus = sorted(launch.cpus)
        wanted = 0
        lead_in = False
        if launch.in_turns:
            wanted, lead_in = host.first_turn(min(warmup) * count)
        else:
            host.mark(BEGIN)
        earlier = evidence.snapshot(cpus)
        begun = time.monotonic()
        turns: List[int] = []
        starts: List[int] = []
        steady: Optional[bool] = None
        if not launch.in_turns:
            left_out, samples, steady = timing.timed_samples(
                sample, adapter.synchronize, protocol, counter
            )
        else:
            timed = timing.samples_in_turns(
                sample, adapter.synchronize, wanted, lead_in, host.next_turn, counter
            )
            left_out = timed.lead_ins
            samples = timed.samples
            turns = timed.turns
            starts = timed.starts
        ended = time.monotonic()
        later = evidence.snapshot(cpus)
        if launch.in_turns:
            earlier, later = evidence.without_pauses(earlier, later, timed.seconds)
        request = host.end((len(left_out) + len(samples)) * count)
        watch.end()
        loss = contract.loss(adapter) if adapter.has_loss else None
        finite = None if loss is None else math.isfinite(loss)
        peak_memory_bytes = evidence.peak_memory_bytes()
        announce("check")
        parity_sample: Optional[ParitySample] = None
        if not network.family.specified:
            parity_sample = _unspecified_sample(first_losses, first_outputs)
        elif adapter.computes and cell.infers:
            if request is not None:
                parity_sample = parity.run_output_check(adapter, step, launch, host, request)
        elif adapter.computes:
            moved: Optional[bool] = None
            if finite:  # otherwise the parameters show nothing
                parameters = contract.current_parameters(adapter, network)
                moved = not parity.all_unchanged(parameters, before)
            if request is not None:
                checked = parity.run_check(adapter, step, launch, host, request)
                parity_sample = checked._replace(moved=moved)
        parameter_count: Optional[int] = None
        if parity_sample is not None and not cell.infers:
            parameter_count = parity_sample.parameter_count
        feeds.close(adapter)  # so that a loader's threads and processes do not disturb the product
        announce("product")
        gemm = device.gemm_rate(adapter, cell.on_cpu, SENTINEL_SIZE) if adapter.computes else None
        fault_seconds = evidence.fault_seconds()
        announce("description")
        threads = contract.ask(adapter, "effective_threads")
        helpers = cell.helpers + launch.helpers
        if threads is not None:
            if team.needed(adapter, launch):
                threads *= cell.world_size
            threads += helpers
        described = software.environment()
        described.update(contract.ask(adapter, "describe"))
        described.update(software.settings_in_force(launch))
        thread_evidence = evidence.thread_evidence(launch.all_threads, threads, earlier, later)
        return Answer(
            status=Status.OK,
            reason="" if adapter.computes else adapter.parity_reason,
            first_step_seconds=first_step_seconds,
            warmup_ns=warmup + [nanoseconds // count for nanoseconds in left_out],
            samples_ns=samples,
            final_loss=loss if finite else None,
            final_loss_finite=finite,
            peak_memory_bytes=peak_memory_bytes,
            threads=thread_evidence._replace(helpers=helpers),
            contention=evidence.contention(earlier, later),
            software=described,
            parameter_count=parameter_count,
            gemm_flops_per_second=gemm,
            steps_per_sample=count,
            steady=steady,
            cpus=cpus,
            evidence_steps=(len(left_out) + len(samples)) * count,
            device=watch.evidence(len(left_out)),
            # Samples follow one another without a pause.
            timed_between=None if launch.in_turns else [begun + sum(left_out) * 1e-9, ended],
            parity_sample=parity_sample,
            sample_counts=counter.counts(0 if launch.in_turns else len(left_out)),
            turns=turns,
            starts_ns=starts,
            calls_ns=timing.calls_that_count(calls, count, len(left_out), turns),
            fault_seconds=fault_seconds,
        )

    def with_losses(self, answer: Answer) -> Answer:
        """Run the protocol's further steps, untimed; return the answer with their losses.

        They start from the weights and the mini-batch of the parity check, at the rate of the timed
        steps. If they end early, the answer's software says why.
        """
        launch = self.launch
        adapter = self.adapter
        steps = launch.protocol.loss_steps
        losses: List[List[float]] = []
        ended = ""
        try:
            self.announce(TRAINING)
            weights = parity.Weights(self.network, launch.weights)
            adapter.reset(weights, batches.launch_batch(self.network, launch))
            adapter.set_learning_rate(LEARNING_RATE)
            begun = time.perf_counter()
            done = 0
            while done < steps and not ended:
                more = min(max(1, steps // _LOSSES), steps - done)
                timing.several(adapter.step, more)()
                done += more
                loss = contract.loss(adapter)
                if math.isfinite(loss):
                    losses.append([done, loss])
                else:
                    ended = "the loss was not finite after %d steps" % done
                self.announce_progress(begun, done, steps)
        except Exception as error:
            ended = _describe_failure(adapter, error)
        facts = answer.software
        if ended:
            facts = dict(facts, losses_ended=ended)
        return answer._replace(losses=losses, software=facts)

    def with_curve(self, answer: Answer) -> Answer:
        """Train on the launch's text, untimed; return the answer with the blocks' losses.

        The answer also says why training ended early. It starts from the weights that the network
        starts with, whatever the timed steps did to them.
        """
        curve: List[List[float]] = []
        try:
            test_loss, ended = self._train(curve)
        except Exception as error:
            test_loss = None
            ended = _describe_failure(self.adapter, error)
        return answer._replace(curve=curve, test_loss=test_loss, curve_ended=ended)

    def _train(self, curve: List[List[float]]) -> Tuple[Optional[float], str]:
        """Add to the curve block by block; return the loss on the text that was kept.

        If training does not get there, return the reason instead.
        """
        launch = self.launch
        network = self.network
        steps = launch.protocol.curve_steps
        self.announce(TRAINING)
        weights: Dict[str, np.ndarray] = {}
        if self.adapter.computes:
            weights = batches.initial_weights(network, folder=launch.weights)
        text = batches.read_text(launch.text or "")
        blocks = batches.text_blocks(*text, network, launch.cell.known_batch_size, steps)
        begun = time.perf_counter()
        done = 0
        for losses in contract.block_losses(self.adapter, weights, blocks, batches.RmsProp()):
            mean = math.fsum(losses) / len(losses)
            if not math.isfinite(mean):
                if done == steps:
                    return None, "the loss was not finite on the text kept to test with"
                last = min(done + batches.BLOCK, steps)
                return None, "the loss was not finite in steps %d to %d" % (done + 1, last)
            if done == steps:
                return mean, ""
            done += len(losses)
            curve.append([done, mean])
            self.announce_progress(begun, done, steps)
        raise contract.ContractBroken("train_on_text() ended after %d of %d steps" % (done, steps))


def _unspecified_sample(losses: List[float], outputs: List[List[float]]) -> ParitySample:
    """Return the sample of a network without reference: its first losses and outputs."""
    finite_losses = all(math.isfinite(loss) for loss in losses)
    finite_outputs = all(math.isfinite(value) for call in outputs for value in call)
    return ParitySample(
        losses=losses if finite_losses else None,
        updates={},
        parameter_count=0,
        outputs=outputs if finite_outputs else None,
    )


def _capabilities(adapter: Adapter, launch: Launch) -> Dict[str, Any]:
    """Return the software of a launch that times nothing: version and capabilities."""
    module = contract.described(adapter, "framework")
    queried = [networks.from_data(network) for network in launch.queried_networks or []]
    return dict(
        software.environment(),
        capabilities=contract.capabilities(adapter, module, queried),
        version=contract.described(adapter, "version"),
        project=inventory.project(module),
    )


def _refusal(adapter: Adapter, network: Network, launch: Launch) -> str:
    """Return why the launch cannot run; empty where it can.

    The first of several workers is also bound to its CPUs and GPU.
    """
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


def run(directory: str, load: Load = contract.load) -> int:
    """Run the launch described in this control directory; return the exit code.

    With several workers this is the first one; `join` runs the others. Without an answer the host
    treats the launch as crashed.
    """
    FirstWorker(directory, load).run()
    return 0


def join(directory: str, worker: int, load: Load = contract.load) -> int:
    """Run this worker, counted from 1, of a launch that the first worker measures.

    Return the exit code.
    """
    adapter: Any = None
    try:
        launch = read_launch(directory)
        refused = evidence.binding_refusal(evidence.cpus_of_worker(launch, worker))
        if refused:
            raise Unsupported(refused)
        team.see_own_gpu(launch, worker)
        adapter = load(launch)
        network = networks.from_data(launch.network or {})
        supported, reason = contract.supports(adapter, network)
        if not supported:
            raise Unsupported(reason)
        weights: Dict[str, np.ndarray] = {}
        if adapter.computes:
            weights = batches.initial_weights(network, batches.TIMED, launch.weights)
        batch = batches.launch_batch(network, launch, batches.TIMED)
        adapter.join(worker, team.meeting_place(directory))
        adapter.prepare(network, weights, team.part_of(batch, worker, launch.cell.world_size))
        adapter.synchronize()
        del weights, batch
        gc.collect()
        gc.disable()
        team.follow(adapter, sys.stdin.buffer, lambda: team.reset(adapter, network, launch, worker))
        adapter.synchronize()
        return 0
    except Unsupported as error:
        lost = Answer(Status.UNSUPPORTED, str(error))
    except Exception as error:
        lost = _failure(error, adapter)
    team.say_why(directory, worker, lost)
    return 1


def _failure(error: Exception, adapter: Optional[Adapter]) -> Answer:
    """Return the answer of a launch that ended with this exception.

    ``adapter`` is None where it was not loaded.
    """
    if not isinstance(error, Explained):
        traceback.print_exc()
    ran_out = isinstance(error, MemoryError)
    words = ""
    if adapter is not None:
        ran_out = ran_out or adapter.is_out_of_memory(error)
        words = adapter.error_text(error)
    status = Status.OUT_OF_MEMORY if ran_out else Status.CRASHED
    return Answer(status, words or "%s: %s" % (type(error).__name__, gpus.first_line(error)))


def _describe_failure(adapter: Adapter, error: Exception) -> str:
    """Print the traceback of a failure that costs no measurement; return one line about it."""
    words = gpus.noted(error)
    return adapter.error_text(error) or words
