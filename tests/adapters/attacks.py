"""Adapters that depart from an honest one, NumPy in float32, in one way each.

The last one only seems to err.

ATTACKS has the methods of each by its name; `test_attacks.py` copies this file and binds ADAPTER to
one of them.
"""

import glob
import json
import os
import queue
import threading
import time

import numpy as np

from ..families import LEARNING_RATE
from ..launch import evidence, parity, timing
from ..launch.parity import HostLine
from ..protocol import ParitySample
from ..reference.adapter import ReferenceAdapter as Honest

HOME = os.path.expanduser(os.environ.get("HOSTILE_REFERENCES", "~/.cache/dlbench/references"))


def after_prepare(then, **further):
    """Return methods that prepare as an honest adapter does, and then do more."""

    def prepare(self, network, weights, batch):
        Honest.prepare(self, network, weights, batch)
        then(self, network, batch)

    return dict(further, prepare=prepare)


def stepping(when):
    """Return methods that skip the steps for which ``when`` is false; ``calls`` counts all."""

    def step(self):
        self.calls = getattr(self, "calls", 0) + 1
        if when(self):
            Honest.step(self)

    return {"step": step}


def updating(when):
    """Return methods that leave out the updates for which ``when`` is false."""

    def update(self, name, gradient):
        if when(self, name):
            Honest.update(self, name, gradient)

    return {"update": update}


def count(self):
    """Take no step, but count it; the loss is made up."""
    self.taken = getattr(self, "taken", 0) + 1
    self.loss = 1.0


def write_outcome(samples, cpu_seconds, threads, **further):
    """Write an answer, and leave."""
    wall = sum(samples) / 1e9
    evidence_of_threads = {"framework_says": None, "os_threads": 1, "cpu_seconds_by_thread": None}
    evidence_of_threads.update(requested=threads, cpu_seconds=cpu_seconds, wall_seconds=wall)
    answer = {
        "status": "ok",
        "schema_version": 1,
        "samples_ns": samples,
        "threads": evidence_of_threads,
    }
    answer["software"] = {"framework": "forged", "version": "1"}
    with open("outcome.json", "w") as file:
        json.dump(dict(answer, **further), file)
    os._exit(0)


def judges_itself(self, network, batch):
    """Replace the check in this process by one that finds nothing wrong."""

    def carry_out(adapter, step, launch, host, order):
        further = order
        while further is not None:
            order = further
            for _ in range(order.rounds):
                host.mark("reset")
                host.mark("steps")
            further = host.read()  # the host asks again where the check took too long
        updates = {name: [0.0] for name in self.weights}
        return ParitySample([1.0] * order.steps, updates, network.family.parameter_count())

    parity.run_check = carry_out


def reads_the_reference(self, network, batch):
    """Find the reference on the disk, and answer with it."""
    places = HOME, os.path.join(os.path.dirname(parity.__file__), "..", "references")
    pattern = "%s-b%d*.npz" % (network.name, len(batch.labels))
    paths = [path for place in places for path in glob.glob(os.path.join(place, pattern))]

    def observe(parameters, before, losses):
        reference = parity.load(paths[0], len(losses))
        return parity.Observation(
            reference.losses, reference.updates, network.family.parameter_count()
        )

    parity.observe = observe
    parity.all_unchanged = lambda parameters, earlier: False


def look_up(self, weights, batch):
    """Ask for the weights without taking them."""
    for name in weights:
        weights[name]


right = time.perf_counter_ns


def slows_the_clock(self, network, batch):
    """Replace the clock by one that runs at a quarter of its speed."""
    timing.nanoseconds = lambda: right() // 4
    timing.timed_loop.__defaults__ = (timing.nanoseconds, None)
    timing.samples_in_turns.__defaults__ = (timing.nanoseconds,)


def speaks_for_itself_to_the_host(self, network, batch):
    """Speak on the host's line at the pace of made-up samples, and answer with the reference."""
    for number in range(3, 64):
        host = HostLine()
        host._line = number
        try:
            os.fstat(number)
        except OSError:
            continue
        if os.readlink("/proc/self/fd/%d" % number).startswith("socket"):
            break
    host.mark("begin")
    start, pace, steps = time.monotonic(), 0.04, 12
    time.sleep(pace * steps)
    order = host.end(steps)
    for _ in range(order.rounds):
        host.mark("reset")
        time.sleep(pace * order.steps)
        host.mark("steps")
    host.mark("read")
    pattern = "%s-b%d-*.npz" % (network.name, len(batch.labels))
    reference = parity.load(glob.glob(os.path.join(HOME, pattern))[0], order.steps)
    parameters = network.family.parameter_count()
    updates = {name: list(value) for name, value in reference.updates.items()}
    answer = {
        "losses": reference.losses,
        "updates": updates,
        "parameter_count": parameters,
        "moved": True,
    }
    write_outcome(
        [int(pace * 1e9)] * steps, 0.0, self.cell.all_threads, parity_sample=answer, parameter_count=parameters,
        evidence_steps=steps, final_loss=1.0, final_loss_finite=True, timed_between=[start, start + pace * steps],
    )  # fmt: skip


def forward_alone(self):
    """Compute the loss, and nothing that would lead to it."""
    if self.loss != self.loss or self.rate != LEARNING_RATE:
        self.loss = self.model.forward(self.inputs, self.labels)


def quarter(when):
    """Return a step that computes a quarter of the mini-batch."""

    def step(self):
        batch = self.inputs, self.labels
        if when(self):
            part = max(1, len(batch[1]) // 4)
            self.inputs, self.labels = batch[0][:part], batch[1][:part]
        Honest.step(self)
        self.inputs, self.labels = batch

    return {"step": step}


def narrow(self):
    """Keep weights with the 8 bits of bfloat16 where float32 was asked for."""
    for value in self.weights.values():
        bits = np.ascontiguousarray(value, np.float32).view(np.uint32)
        value[...] = ((bits + 0x8000) & 0xFFFF0000).view(np.float32)
    Honest.step(self)


def keep_the_mini_batch(self, weights, batch):
    """Cache what belongs to the mini-batch by its shape, and so keep the first one for ever."""
    before = self.inputs, self.labels
    Honest.reset(self, weights, batch)
    self.inputs, self.labels = before


def reusing(all_of_them):
    """Return a step that computes the gradients once, and applies them over and over."""

    def step(self):
        if getattr(self, "gradients", None) is None:
            self.loss = self.model.forward(self.inputs, self.labels)
            self.gradients = {name: gradient.copy() for name, gradient in self.model.backward()}
        for name, gradient in self.gradients.items():
            if all_of_them(self, name):
                self.weights[name] -= self.dtype.type(self.rate) * gradient

    return step


def forget_gradients(self, weights, batch):
    Honest.reset(self, weights, batch)
    self.gradients = None


def last_layer_alone(self):
    self.loss = self.model.forward(self.inputs, self.labels)
    last = list(self.weights)[-1].partition(".")[0]
    for name, gradient in self.model.backward():
        if name.startswith(last):
            self.update(name, gradient)


def hides_a_helper(self, network, batch):
    """Compute without a pause in a process outside the session, on a copy of the data, and hide the
    evidence."""
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
        Honest.step(self)


def wake_the_helper(self):
    os.write(self.go, b"x")
    Honest.step(self)


def works_behind(self, network, batch):
    """Let a thread compute the steps."""
    self.waiting = queue.Queue()

    def work():
        while True:
            self.waiting.get()
            Honest.step(self)
            self.waiting.task_done()

    threading.Thread(target=work, daemon=True).start()


def joined(method):
    """Return the honest method, once the thread has done its work."""

    def wait(self, *arguments):
        self.waiting.join()
        return method(self, *arguments)

    return wait


def reset_and_remember(self, weights, batch):
    Honest.reset(self, weights, batch)
    self.checked = True


def work_ahead(self, network, batch):
    """Take all the steps before they are timed."""
    self.rate = LEARNING_RATE
    for _ in range(40):
        Honest.step(self)
    self.ready = []


def work_ahead_of_the_check(self, weights, batch):
    Honest.reset(self, weights, batch)
    self.ready = []
    for _ in range(2):
        Honest.step(self)
        self.ready.append((self.loss, {name: value.copy() for name, value in self.weights.items()}))


def take_what_is_ready(self):
    if self.ready:
        self.loss, held = self.ready.pop(0)
        self.weights.update(held)


def count_readings(self):
    self.readings = getattr(self, "readings", 0) + 1
    return Honest.parameters(self)


def slow_in_the_first_check(self):
    """Share the CPU in the first check, as on a busy machine: each step takes four times as long
    there."""
    start = time.perf_counter()
    Honest.step(self)
    if getattr(self, "readings", 0) == 1:
        end = time.perf_counter() + 3 * (time.perf_counter() - start)
        while time.perf_counter() < end:
            pass


def answer_from_a_cache(self):
    """Compute the outputs of a mini-batch once."""
    if getattr(self, "result", None) is None:
        Honest.infer(self)


def forget_the_answer(self, batch):
    Honest.show(self, batch)
    self.result = None


def show_too_late(self, batch):
    """Take the new mini-batch after the next pass, as where passes overlap."""
    self.next = batch


def answer_for_the_one_before(self):
    Honest.infer(self)
    if getattr(self, "next", None) is not None:
        Honest.show(self, self.next)
        self.next = None


def answer_for_half(self):
    """Compute the outputs of half of the examples, and give them to the others too."""
    inputs = self.inputs
    self.inputs = inputs[: len(inputs) // 2]
    Honest.infer(self)
    self.inputs = inputs
    self.result = np.concatenate([self.result, self.result])


def leave_out_a_layer(self):
    values = self.inputs
    for name in ("fc1", "fc3"):
        values = values @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]
        if name == "fc1":
            values = 0.5 * np.tanh(0.5 * values) + 0.5
    self.result = values


def infer_in_lower_precision(self):
    """Keep weights as float16 does, where float32 was asked for."""
    for value in self.weights.values():
        value[...] = value.astype(np.float16)
    Honest.infer(self)


ATTACKS = {
    "answers_from_a_cache": {"infer": answer_from_a_cache, "show": forget_the_answer},
    "answers_for_the_one_before": {"infer": answer_for_the_one_before, "show": show_too_late},
    "answers_for_half": {"infer": answer_for_half},
    "leaves_out_a_layer": {"infer": leave_out_a_layer},
    "infers_in_lower_precision": {"infer": infer_in_lower_precision},
    "judges_itself": after_prepare(judges_itself, step=count),
    "reads_the_reference": after_prepare(reads_the_reference, step=count, reset=look_up),
    "says_that_it_computes_nothing": {
        "computes": False,
        "parity_reason": "trust me",
        "prepare": lambda self, network, weights, batch: None,
        "step": lambda self: None,
    },
    "slows_the_clock": after_prepare(slows_the_clock),
    "speaks_for_itself_to_the_host": after_prepare(speaks_for_itself_to_the_host),
    "tells_losses_from_a_table": {"step": forward_alone},
    "writes_its_own_outcome": {
        "prepare": lambda self, *arguments: write_outcome(
            [50000000] * 5, 0.25, self.cell.all_threads
        )
    },
    "computes_a_quarter": quarter(lambda self: True),
    # All of it at the check's learning rate.
    "computes_a_quarter_when_timed": quarter(lambda self: self.rate == LEARNING_RATE),
    "computes_in_lower_precision": {"step": narrow},
    "keeps_the_first_mini_batch": {"reset": keep_the_mini_batch},
    "reuses_gradients": {"step": reusing(lambda self, name: True)},
    # The biases alone: to move the weights too would take as long as memory does.
    "reuses_gradients_of_the_same_data": {
        "step": reusing(lambda self, name: name.endswith(".bias") or self.rate != LEARNING_RATE),
        "reset": forget_gradients,
    },
    "updates_biases_alone": updating(lambda self, name: name.endswith(".bias")),
    "updates_the_last_layer_alone": {"step": last_layer_alone},
    "hides_a_helper": after_prepare(hides_a_helper, step=wake_the_helper),
    # The fence does not wait: a thread still computes when a step is said to be over.
    "leaves_work_unfinished": after_prepare(
        works_behind,
        step=lambda self: self.waiting.put(None),
        reset=joined(Honest.reset),
        parameters=joined(Honest.parameters),
        last_loss=lambda self: 8.0 if self.waiting.unfinished_tasks else self.loss,
    ),
    # The check is recognised by count, by its learning rate, or by its ``reset``.
    "skips_after_the_first_steps": stepping(lambda self: self.calls <= 2),
    "skips_at_the_timed_rate": stepping(
        lambda self: self.rate != LEARNING_RATE or self.calls % 10 == 0
    ),
    "skips_most_steps": stepping(lambda self: self.calls % 10 == 0),
    "skips_until_it_is_reset": dict(
        stepping(lambda self: hasattr(self, "checked") or self.loss != self.loss),
        reset=reset_and_remember,
    ),
    "stands_still_when_timed": updating(lambda self, name: self.rate != LEARNING_RATE),
    "works_ahead_in_prepare": after_prepare(
        work_ahead, reset=work_ahead_of_the_check, step=take_what_is_ready
    ),
    "slow_in_its_first_check": {"parameters": count_readings, "step": slow_in_the_first_check},
}
