"""Adapters that depart from an honest one, NumPy in float32, in one way each; the last one is honest.

Each class is an attack by its name in `test_attacks.py`, which copies this file and binds ADAPTER to one of them.
"""

import glob
import json
import os
import queue
import threading
import time

import numpy as np

from ..families import LEARNING_RATE
from ..launch import check, evidence, parity, timing
from ..launch.check import Host
from ..protocol import ParitySample
from ..reference.adapter import ReferenceAdapter as Honest


class JudgesItself(Honest):
    """Replaces the check in its own process by one that finds nothing wrong."""

    def prepare(self, network, weights, batch):
        super().prepare(network, weights, batch)

        def carry_out(adapter, step, launch, host, order):
            for _ in range(order.rounds):
                host.mark("reset")
                host.mark("steps")
            host.mark("read")
            return ParitySample(
                [1.0] * order.steps, {name: [0.0] for name in self.weights}, network.family.parameter_count()
            )

        check.run_check = carry_out

    def step(self):
        self.loss = 1.0


PLACES = ("~/.cache/dlbench/references", os.path.join(os.path.dirname(parity.__file__), "..", "references"))


class ReadsTheReference(Honest):
    """Does nothing, finds the reference on the disk, and answers with what stands in it."""

    def prepare(self, network, weights, batch):
        super().prepare(network, weights, batch)
        home = os.environ.get("HOSTILE_REFERENCES", PLACES[0])
        pattern = "%s-b%d*.npz" % (network.name, len(batch.labels))
        found = [
            each for place in (home, PLACES[1]) for each in glob.glob(os.path.join(os.path.expanduser(place), pattern))
        ]
        self.taken = 0

        def observe(parameters, before, losses):
            known = parity.load(found[0], len(losses))
            count = network.family.parameter_count()
            return parity.Observation(known.losses, known.updates, count)

        parity.observe = observe
        parity.all_unchanged = lambda parameters, earlier: False

    def step(self):
        self.taken += 1
        self.loss = 1.0

    def reset(self, weights, batch):
        for name in weights:
            weights[name]


class SaysThatItComputesNothing(Honest):
    """Declares itself a framework that computes nothing, so that nobody asks for a check."""

    computes = False
    parity_reason = "trust me"

    def prepare(self, network, weights, batch):
        pass

    def step(self):
        pass


right = time.perf_counter_ns


class SlowsTheClock(Honest):
    """Replaces the clock by one that runs at a quarter of its speed."""

    def prepare(self, network, weights, batch):
        super().prepare(network, weights, batch)
        timing.nanoseconds = lambda: right() // 4
        timing.timed_loop.__defaults__ = (timing.nanoseconds,)


class SpeaksForItselfToTheHost(Honest):
    """Speaks on the host's line itself, at the pace of its made-up samples, and answers with the reference."""

    def prepare(self, network, weights, batch):
        for number in range(3, 64):
            host = Host()
            host._line = number
            try:
                os.fstat(number)
            except OSError:
                continue
            if not os.readlink("/proc/self/fd/%d" % number).startswith("socket"):
                continue
            break
        host.mark("begin")
        start = time.monotonic()
        pace, count = 0.04, 12
        time.sleep(pace * count)
        order = host.end(count)
        for _ in range(order.rounds):
            host.mark("reset")
            time.sleep(pace * order.steps)
            host.mark("steps")
        host.mark("read")
        home = os.path.expanduser(os.environ.get("HOSTILE_REFERENCES", "~/.cache/dlbench/references"))
        known = parity.load(glob.glob(os.path.join(home, network.name + "*.npz"))[0], order.steps)
        answer = {
            "schema_version": 1,
            "status": "ok",
            "samples_ns": [int(pace * 1e9)] * count,
            "evidence_steps": count,
            "final_loss": 1.0,
            "final_loss_finite": True,
            "timed_between": [start, start + pace * count],
            "threads": {
                "requested": self.cell.all_threads,
                "framework_says": None,
                "os_threads": 1,
                "cpu_seconds": 0.0,
                "wall_seconds": pace * count,
                "cpu_seconds_by_thread": None,
            },
            "parity_sample": {
                "losses": known.losses,
                "updates": {name: list(value) for name, value in known.updates.items()},
                "parameter_count": network.family.parameter_count(),
                "moved": True,
            },
            "parameter_count": network.family.parameter_count(),
            "software": {"framework": "forged", "version": "1"},
        }
        with open("outcome.json", "w") as file:
            json.dump(answer, file)
        os._exit(0)


class TellsLossesFromATable(Honest):
    """Tells the right losses, and computes nothing that would give them."""

    def step(self):
        if self.loss != self.loss or self.rate != 0.01:
            self.loss = self.model.forward(self.inputs, self.labels)


class WritesItsOwnOutcome(Honest):
    """Writes an answer of a plausible size and leaves."""

    def prepare(self, network, weights, batch):
        answer = {
            "schema_version": 1,
            "status": "ok",
            "samples_ns": [50000000] * 5,
            "threads": {
                "requested": self.cell.all_threads,
                "framework_says": None,
                "os_threads": 1,
                "cpu_seconds": 0.25,
                "wall_seconds": 0.25,
                "cpu_seconds_by_thread": None,
            },
            "software": {"framework": "forged", "version": "1"},
        }
        with open("outcome.json", "w") as file:
            json.dump(answer, file)
        os._exit(0)


class ComputesAQuarter(Honest):
    """Computes a quarter of the mini-batch."""

    def step(self):
        whole = self.inputs, self.labels
        quarter = max(1, len(whole[1]) // 4)
        self.inputs, self.labels = whole[0][:quarter], whole[1][:quarter]
        super().step()
        self.inputs, self.labels = whole


class ComputesAQuarterWhenTimed(Honest):
    """Computes a quarter of the mini-batch while it is timed, and all of it at the check's learning rate."""

    def step(self):
        whole = self.inputs, self.labels
        if self.rate == LEARNING_RATE:
            quarter = max(1, len(whole[1]) // 4)
            self.inputs, self.labels = whole[0][:quarter], whole[1][:quarter]
        super().step()
        self.inputs, self.labels = whole


def narrowed(value):
    bits = np.ascontiguousarray(value, np.float32).view(np.uint32)
    return ((bits + 0x8000) & 0xFFFF0000).view(np.float32)


class ComputesInLowerPrecision(Honest):
    """Keeps weights and inputs with the 8 bits of bfloat16 where float32 was asked for."""

    def step(self):
        for name in self.weights:
            self.weights[name][...] = narrowed(self.weights[name])
        super().step()


class KeepsTheFirstMiniBatch(Honest):
    """Caches what belongs to the mini-batch by its shape, and so keeps the first one for ever."""

    def reset(self, weights, batch):
        before = self.inputs, self.labels
        super().reset(weights, batch)
        self.inputs, self.labels = before


class ReusesGradients(Honest):
    """Computes the gradients once and applies them over and over; new data do not change them."""

    gradients = None

    def step(self):
        if self.gradients is None:
            self.loss = self.model.forward(self.inputs, self.labels)
            self.gradients = {name: gradient.copy() for name, gradient in self.model.backward()}
        for name, gradient in self.gradients.items():
            self.weights[name] -= self.dtype.type(self.rate) * gradient


class ReusesGradientsOfTheSameData(Honest):
    """Computes the gradients anew for new data only."""

    gradients = None

    def reset(self, weights, batch):
        super().reset(weights, batch)
        self.gradients = None

    def step(self):
        if self.gradients is None:
            self.loss = self.model.forward(self.inputs, self.labels)
            self.gradients = {name: gradient.copy() for name, gradient in self.model.backward()}
        # The biases alone: to move the weights too would take as long as memory does.
        for name, gradient in self.gradients.items():
            if name.endswith(".bias") or self.rate != 0.01:
                self.weights[name] -= self.dtype.type(self.rate) * gradient


class UpdatesBiasesAlone(Honest):
    """Updates the biases and leaves the weights."""

    def update(self, name, gradient):
        if name.endswith(".bias"):
            super().update(name, gradient)


class UpdatesTheLastLayerAlone(Honest):
    """Trains the last layer and freezes the others."""

    def step(self):
        self.loss = self.model.forward(self.inputs, self.labels)
        last = list(self.weights)[-1].partition(".")[0]
        for name, gradient in self.model.backward():
            if name.startswith(last):
                self.update(name, gradient)


class HidesAHelper(Honest):
    """A process outside the session computes without a pause on a copy of the data, and evidence is kept from it."""

    def prepare(self, network, weights, batch):
        super().prepare(network, weights, batch)
        evidence.companions = lambda: evidence.Companions({}, 0.0)
        read, write = os.pipe()
        self.go = write
        if os.fork():
            return
        os.setsid()
        if os.fork():
            os._exit(0)
        os.close(write)
        os.read(read, 1)
        while True:
            super().step()

    def step(self):
        os.write(self.go, b"x")
        super().step()


class LeavesWorkUnfinished(Honest):
    """The fence does not wait: a thread still computes when a step is said to be over."""

    def prepare(self, network, weights, batch):
        super().prepare(network, weights, batch)
        self.waiting = queue.Queue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self):
        while True:
            self.waiting.get()
            super().step()
            self.waiting.task_done()

    def step(self):
        self.waiting.put(None)

    def reset(self, weights, batch):
        self.waiting.join()
        super().reset(weights, batch)

    def parameters(self):
        self.waiting.join()
        return super().parameters()

    def last_loss(self):
        return 8.0 if self.waiting.unfinished_tasks else self.loss


class SkipsAfterTheFirstSteps(Honest):
    """Recognises the parity check by count: its first steps are honest, later ones do nothing."""

    calls = 0

    def step(self):
        self.calls += 1
        if self.calls <= 2:
            super().step()


class SkipsAtTheTimedRate(Honest):
    """Recognises the timed steps by their learning rate, and skips nine of ten of them."""

    calls = 0

    def step(self):
        self.calls += 1
        if self.rate != LEARNING_RATE or self.calls % 10 == 0:
            super().step()


class SkipsMostSteps(Honest):
    """Skips nine steps of ten, from the first on."""

    calls = 0

    def step(self):
        self.calls += 1
        if self.calls % 10 == 0:
            super().step()


class SkipsUntilItIsReset(Honest):
    """Takes ``reset`` for the beginning of the check: honest after it, idle before."""

    checked = False

    def reset(self, weights, batch):
        super().reset(weights, batch)
        self.checked = True

    def step(self):
        if self.checked or self.loss != self.loss:
            super().step()


class StandsStillWhenTimed(Honest):
    """Computes all of a step at the timed rate but its update."""

    def update(self, name, gradient):
        if self.rate != LEARNING_RATE:
            super().update(name, gradient)


AHEAD = 2


class WorksAheadInPrepare(Honest):
    """Takes all the steps in ``prepare``, and the check's in ``reset``: those that are timed only count."""

    def prepare(self, network, weights, batch):
        super().prepare(network, weights, batch)
        self.rate = 0.01
        for _ in range(40):
            super().step()
        self.ready = []

    def reset(self, weights, batch):
        super().reset(weights, batch)
        self.ready = []
        for _ in range(AHEAD):
            super().step()
            self.ready.append((self.loss, {name: value.copy() for name, value in self.weights.items()}))

    def step(self):
        if self.ready:
            self.loss, held = self.ready.pop(0)
            self.weights.update(held)


class SlowInItsFirstCheck(Honest):
    """Shares its CPU in its first check, as on a busy machine: each step takes four times as long there."""

    readings = 0

    def parameters(self):
        self.readings += 1
        return super().parameters()

    def step(self):
        start = time.perf_counter()
        super().step()
        if self.readings == 1:
            end = time.perf_counter() + 3 * (time.perf_counter() - start)
            while time.perf_counter() < end:
                pass
