"""GPUs, as far as a machine without one can tell: evidence, ceilings, builds, the null framework's
pretended one."""

import time

import pretending_adapter
import pytest
from pretending_adapter import Pretender

from dlbench.adapters.launch import device, timing
from dlbench.adapters.libraries import gpus
from dlbench.adapters.libraries.gpus import (
    COPY,
    DEVICE_BYTES,
    HOST_BYTES,
    OPERATOR,
    PROBES,
    Probe,
    has_code,
)
from dlbench.adapters.protocol import Operator, Profile, Status

PROFILE = Profile(
    "made up",
    3,
    0.01,
    [
        Operator("gemm", "matrix product", True, 0.004, 2.0),
        Operator("relu", "elementwise", True, 0.001, 3.0),
        Operator("launch", "other", False, 0.002, 5.0),
    ],
)


class OnGpu(Pretender):
    """A GPU whose clock a test turns by hand; it notes what is called of the device.

    ``profiled``: its profiler's answer or error. ``probes``: by name, seconds, another answer or an
    error.
    """

    def __init__(self, step_ns=1000, profiled=None, probes=None):
        super().__init__(None)
        self.step_ns, self.clock, self.profiled, self.probes = step_ns, 0, profiled, probes

    def note(self, call):
        if call == "step":
            self.calls.append(call)
            self.clock += self.step_ns

    def prepare(self, network, weights, batch):
        self.batch = batch

    def is_out_of_memory(self, error):
        return "device is full" in str(error)

    def device_name(self):
        return "Made-up GPU"

    def event(self):
        self.calls.append("event")
        return self.clock

    def event_nanoseconds(self, earlier, later):
        self.calls.append("read")
        return later - earlier

    def reset_device_peak_memory(self):
        self.calls.append("forget")

    def device_peak_memory(self):
        self.calls.append("peak")
        return 4096

    def profile(self, steps):
        if self.profiled is None:
            return super().profile(steps)
        self.calls.append("profile")
        if isinstance(self.profiled, Exception):
            raise self.profiled
        return self.profiled

    def device_probe(self, name, size):
        if self.probes is None:
            return super().device_probe(name, size)
        self.calls.append(name)
        answer = self.probes.get(name)
        if isinstance(answer, Exception):
            raise answer
        return Probe(lambda: spin(answer), lambda: None) if isinstance(answer, float) else answer


def spin(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


@pytest.fixture(autouse=True)
def _warm_at_once(monkeypatch):
    monkeypatch.setattr(timing, "GPU_SECONDS", 0.0)


def run(folder, adapter, where="cuda:0", **options):
    """Carry out a launch in this process."""
    numbers = {"warmup_steps": 2, "seconds": 5.0, **options}
    return pretending_adapter.run(folder, adapter, device=where, **numbers)


def test_each_timed_sample_is_marked_and_no_mark_is_read_before_the_last(tmp_path):
    adapter = OnGpu()
    run(tmp_path, adapter, steps=3)
    begin = adapter.calls.index("forget")
    # The first, one of the warm-up by count and one by time; the one mark asks whether there are
    # any.
    assert adapter.calls[:begin] == ["step"] * 3 + ["event"]
    marked = ["event", "step", "event"] * 3
    assert adapter.calls[begin:] == ["forget", *marked, "peak", "read", "read", "read"]


def test_marks_span_the_steps_of_a_sample_and_are_cut_with_the_samples(tmp_path, monkeypatch):
    adapter = OnGpu()
    levels = iter([5_000_000] * 5 + [1_000_000] * 1000)
    wall = timing.timed_loop

    def loop(sample, synchronize, protocol, counter):
        # The wall clock is the device's: the first five samples are slow.
        def slower():
            adapter.step_ns = next(levels)
            sample()

        return wall(slower, synchronize, protocol, clock=lambda: adapter.clock, counter=counter)

    monkeypatch.setattr(timing, "nanoseconds", lambda: adapter.clock)
    monkeypatch.setattr(timing, "timed_loop", loop)
    outcome = run(tmp_path, adapter, steps=20, minimum_steps=5, maximum_warmup_steps=20)
    assert outcome.steady is True
    assert 5 <= len(outcome.warmup_ns) - 2 <= 7
    assert outcome.device.event_ns == outcome.samples_ns == [1_000_000] * len(outcome.samples_ns)


def test_on_the_cpu_no_device_is_asked_anything_and_nothing_profiled_unasked(tmp_path):
    adapter = OnGpu(profiled=PROFILE)
    outcome = run(tmp_path, adapter, where="cpu")
    assert (outcome.device, outcome.profile) == (None, None)
    assert set(adapter.calls) == {"step"}
    sample = adapter.step
    assert device.Watch(adapter, on_cpu=True).around(sample) is sample


@pytest.mark.parametrize(
    ("method", "answer", "words"),
    [
        ("event_nanoseconds", 0.5, "event_nanoseconds() returned 0.5"),
        ("event_nanoseconds", -1, "event_nanoseconds() returned -1"),
        ("device_peak_memory", "much", "device_peak_memory() returned 'much'"),
        ("device_name", None, "device_name() returned None"),
    ],
)
def test_an_instrument_that_answers_nonsense_breaks_the_contract(tmp_path, method, answer, words):
    adapter = OnGpu()
    setattr(adapter, method, lambda *arguments: answer)
    outcome = run(tmp_path, adapter)
    assert outcome.status is Status.CRASHED
    assert words in outcome.reason


@pytest.mark.parametrize("profiled", [RuntimeError("no\n counters"), ValueError(), {"a": 1}, 3])
def test_a_profile_that_fails_is_noted_and_the_timing_stands(tmp_path, profiled):
    adapter = OnGpu(profiled=profiled)
    outcome = run(tmp_path, adapter, launch_fields={"profiled_steps": 2})
    assert (outcome.status, len(outcome.samples_ns)) == (Status.OK, 4)
    assert outcome.device.event_ns == [1000] * 4
    assert outcome.profile is None
    words = {RuntimeError: "RuntimeError: no counters", ValueError: "ValueError: "}
    assert outcome.software["profile_failed"].startswith(
        words.get(type(profiled), "ContractBroken: profile() returned")
    )


@pytest.fixture
def _briefly(monkeypatch):
    monkeypatch.setattr(gpus, "SECONDS", 0.03)


@pytest.mark.usefixtures("_briefly")
def test_the_devices_ceilings_are_told_beside_its_other_evidence(tmp_path):
    adapter = OnGpu(profiled=PROFILE, probes={COPY: 0.002, OPERATOR: 0.0001})
    outcome = run(tmp_path, adapter)
    ceilings = outcome.device.ceilings
    # What disturbs this machine meanwhile can only make them worse.
    assert 0 < ceilings.copy_bytes_per_second <= 2 * gpus.DEVICE_BYTES / 0.002
    assert ceilings.operator_start_seconds >= 0.0001
    assert ceilings.operator_finish_seconds >= 0.0001
    assert ceilings.to_device_pinned_bytes_per_second is None
    assert outcome.device.event_ns == [1000] * 4
    assert outcome.device.busy_seconds == pytest.approx(0.005)
    # After the last mark was read, and before a profiler that may slow down what comes after it.
    first = adapter.calls.index(COPY)
    assert adapter.calls[first : first + len(gpus.PROBES) + 1] == [*gpus.PROBES, "profile"]
    assert "read" not in adapter.calls[first:]


@pytest.mark.usefixtures("_briefly")
def test_a_ceiling_that_cannot_be_measured_costs_nothing_else(tmp_path):
    full = RuntimeError("the device is full")
    answers = {
        COPY: full,
        "to_device_pinned": OSError("no"),
        "from_device_pinned": "fast",
        OPERATOR: 0.0001,
    }
    outcome = run(tmp_path, OnGpu(profiled=PROFILE, probes=answers))
    assert (outcome.status, len(outcome.samples_ns)) == (Status.OK, 4)
    assert outcome.device.ceilings.copy_bytes_per_second is None
    assert outcome.device.ceilings.operator_start_seconds > 0
    assert outcome.device.busy_seconds == pytest.approx(0.005)
    assert outcome.software["ceilings_failed"] == (
        "to_device_pinned: OSError: no; from_device_pinned: ContractBroken: device_probe() "
        "returned 'fast', not a Probe of two calls or None"
    )


class Machine:
    """A host and a device with a queue of work; times in nanoseconds."""

    def __init__(self, start, work, fence):
        self.start_ns, self.work_ns, self.fence_ns = start, work, fence
        self.now, self.idle_from = 0, 0

    def clock(self):
        self.now += 1  # lest a loop until some moment never ends
        return self.now

    def start(self):
        self.now += self.start_ns
        self.idle_from = max(self.idle_from, self.now) + self.work_ns

    def wait(self):
        self.now = max(self.now, self.idle_from) + self.fence_ns


def test_each_probe_gives_its_number_and_a_copy_on_the_device_counts_twice(monkeypatch):
    requested_probes, machines = [], [Machine(start=1000, work=2_000_000, fence=5000)]

    def find(name, size):
        requested_probes.append((name, size))
        machines.append(Machine(start=1000, work=2_000_000, fence=5000))
        return Probe(machines[-1].start, machines[-1].wait)

    monkeypatch.setattr(timing, "nanoseconds", lambda: machines[-1].clock())
    monkeypatch.setattr(gpus, "SECONDS", 0.03)
    ceilings, failures = gpus.measure_ceilings(find, lambda error: False)
    assert failures == []
    sizes = {**dict.fromkeys(PROBES, HOST_BYTES), COPY: DEVICE_BYTES, OPERATOR: 0}
    assert requested_probes == list(sizes.items())
    assert ceilings.copy_bytes_per_second == pytest.approx(2 * DEVICE_BYTES / 0.002, rel=0.01)
    assert ceilings[1:5] == pytest.approx([HOST_BYTES / 0.002] * 4, rel=0.01)
    # The host does not wait for an operator behind others; alone it takes its start, its work and
    # the fence.
    assert ceilings.operator_start_seconds == pytest.approx(1e-6, rel=0.01)
    assert ceilings.operator_finish_seconds == pytest.approx(0.002006, rel=0.001)


@pytest.mark.parametrize(
    ("architectures", "capability", "runs"),
    [
        (["sm_80"], (8, 0), True),
        (["sm_80"], (8, 6), True),  # a later minor version
        (["sm_80"], (9, 0), False),  # another major version
        (["compute_80"], (9, 0), True),  # PTX is translated
        (["compute_90"], (8, 9), False),
        (["sm_90a"], (9, 0), True),
        (["compute_90a"], (10, 0), False),  # of one capability alone
        (["sm_100f"], (10, 3), True),
        (["sm_100f"], (12, 0), False),
        (["gfx90a", "sm_x", "sm_"], (9, 0), False),
    ],
)
def test_code_runs_where_nvidia_says(architectures, capability, runs):
    assert has_code(architectures, capability) is runs
