"""Launches on a made-up GPU: its own clock, memory and profile beside the wall clock, and none of it on the CPU."""

import json
import time

import pretending_adapter
import pytest
from pretending_adapter import Pretender

from dlbench.adapters import protocol
from dlbench.adapters.launch import device, timing
from dlbench.adapters.libraries import gpus
from dlbench.adapters.libraries.gpus import COPY, OPERATOR, Probe
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
    """A GPU whose clock a test turns by hand, with an allocator; it notes what is called of the device."""

    def __init__(self, step_ns=1000):
        super().__init__(None)
        self.step_ns, self.clock = step_ns, 0

    def note(self, what):
        if what == "step":
            self.calls.append(what)
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


@pytest.fixture(autouse=True)
def _warm_at_once(monkeypatch):
    monkeypatch.setattr(device, "WARM_UP_SECONDS", 0.0)


def run(folder, adapter, where="cuda:0", **options):
    """Carry out a launch in this process."""
    numbers = {"warmup_steps": 2, "seconds": 5.0, **options}
    return pretending_adapter.run(folder, adapter, device=where, **numbers)


def test_each_timed_sample_is_marked_and_no_mark_is_read_before_the_last(tmp_path):
    adapter = OnGpu()
    run(tmp_path, adapter, steps=3)
    begin = adapter.calls.index("forget")
    # The first, one of the warm-up by count and one by time; the one mark asks whether there are any.
    assert adapter.calls[:begin] == ["step"] * 3 + ["event"]
    marked = ["event", "step", "event"] * 3
    assert adapter.calls[begin:] == ["forget", *marked, "peak", "read", "read", "read"]


def test_marks_span_the_steps_of_a_sample_and_are_cut_with_the_samples(tmp_path, monkeypatch):
    adapter = OnGpu()
    levels = iter([5_000_000] * 5 + [1_000_000] * 1000)
    wall = timing.timed_loop

    def loop(sample, synchronize, protocol):
        # The wall clock is the device's: the first five samples are slow.
        def slower():
            adapter.step_ns = next(levels)
            sample()

        return wall(slower, synchronize, protocol, clock=lambda: adapter.clock)

    monkeypatch.setattr(timing, "nanoseconds", lambda: adapter.clock)
    monkeypatch.setattr(timing, "timed_loop", loop)
    outcome = run(tmp_path, adapter, steps=20, minimum_steps=5, maximum_warmup_steps=20)
    assert outcome.steady is True
    assert 5 <= len(outcome.warmup_ns) - 2 <= 7
    assert outcome.device.event_ns == outcome.samples_ns == [1_000_000] * len(outcome.samples_ns)


def test_on_the_cpu_no_device_is_asked_anything_and_nothing_profiled_unasked(tmp_path):
    adapter = Profiled(PROFILE)
    outcome = run(tmp_path, adapter, where="cpu")
    assert (outcome.device, outcome.profile, adapter.asked) == (None, None, [])
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
    setattr(adapter, method, lambda *given: answer)
    outcome = run(tmp_path, adapter)
    assert outcome.status is Status.CRASHED
    assert words in outcome.reason


def test_a_gpu_is_kept_busy_before_it_is_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(device, "WARM_UP_SECONDS", 0.2)
    adapter = OnGpu()
    started = time.perf_counter()
    outcome = run(tmp_path, adapter)
    assert time.perf_counter() - started >= 0.2
    begin = adapter.calls.index("forget")
    assert adapter.calls[:begin].count("step") > 1000  # steps that take no time: as many as fit
    assert len(outcome.warmup_ns) < 200


class Profiled(OnGpu):
    def __init__(self, found):
        super().__init__()
        self.found, self.asked, self.seen = found, [], None

    def look(self):
        """Note what of the timing is on disk, where there is a folder to look into."""
        if self.seen is not None:
            self.seen.append(json.loads((self.folder / protocol.OUTCOME_FILE).read_text())["samples_ns"])

    def profile(self, steps):
        self.asked.append(steps)
        self.look()
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.mark.parametrize("where", ["cpu", "cuda:0"])
def test_operators_are_told_where_they_were_asked_for(tmp_path, where):
    adapter = Profiled(PROFILE)
    outcome = run(tmp_path, adapter, where=where, asked={"profiled_steps": 7})
    assert adapter.asked == [7]
    assert outcome.profile == PROFILE


@pytest.mark.parametrize("found", [RuntimeError("no\n counters"), ValueError(), {"a": 1}, 3])
def test_a_profile_that_fails_is_noted_and_the_timing_stands(tmp_path, found):
    adapter = Profiled(found)
    outcome = run(tmp_path, adapter, asked={"profiled_steps": 2})
    assert (outcome.status, len(outcome.samples_ns)) == (Status.OK, 4)
    assert outcome.device.event_ns == [1000] * 4
    assert outcome.profile is None
    words = {RuntimeError: "RuntimeError: no counters", ValueError: "ValueError: "}
    assert outcome.software["profile_failed"].startswith(words.get(type(found), "ContractBroken: profile() returned"))


class Copying(Profiled):
    """Copies on the device at a known rate, and starts operators; in the order in which all of it is asked."""

    def __init__(self, answers=None):
        super().__init__(PROFILE)
        self.answers = {COPY: 0.002, OPERATOR: 0.0001} if answers is None else answers

    def profile(self, steps):
        self.calls.append("profile")
        return super().profile(steps)

    def device_probe(self, name, size):
        self.calls.append(name)
        self.look()
        answer = self.answers.get(name)
        if isinstance(answer, Exception):
            raise answer
        return Probe(lambda: spin(answer), lambda: None) if isinstance(answer, float) else answer


def spin(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


@pytest.fixture
def _briefly(monkeypatch):
    monkeypatch.setattr(gpus, "SECONDS", 0.03)


@pytest.mark.usefixtures("_briefly")
def test_the_devices_ceilings_are_told_beside_its_other_evidence(tmp_path):
    adapter = Copying()
    outcome = run(tmp_path, adapter)
    found = outcome.device.ceilings
    # What disturbs this machine meanwhile can only make them worse.
    assert 0 < found.copy_bytes_per_second <= 2 * gpus.DEVICE_BYTES / 0.002
    assert found.operator_start_seconds >= 0.0001
    assert found.operator_finish_seconds >= 0.0001
    assert found.to_device_pinned_bytes_per_second is None
    assert outcome.device.event_ns == [1000] * 4
    assert outcome.device.busy_seconds == pytest.approx(0.005)
    # After the last mark was read, and before a profiler that may slow down what comes after it.
    first = adapter.calls.index(COPY)
    assert adapter.calls[first : first + len(gpus.PROBES) + 1] == [*gpus.PROBES, "profile"]
    assert "read" not in adapter.calls[first:]


@pytest.mark.usefixtures("_briefly")
def test_a_ceiling_that_cannot_be_measured_costs_nothing_else(tmp_path):
    full = RuntimeError("the device is full")
    answers = {COPY: full, "to_device_pinned": OSError("no"), "from_device_pinned": "fast", OPERATOR: 0.0001}
    outcome = run(tmp_path, Copying(answers))
    assert (outcome.status, len(outcome.samples_ns)) == (Status.OK, 4)
    assert outcome.device.ceilings.copy_bytes_per_second is None
    assert outcome.device.ceilings.operator_start_seconds > 0
    assert outcome.device.busy_seconds == pytest.approx(0.005)
    assert outcome.software["ceilings_failed"] == (
        "to_device_pinned: OSError: no; "
        "from_device_pinned: ContractBroken: device_probe() returned 'fast', not a Probe of two calls or None"
    )


class Multiplier(OnGpu):
    def __init__(self, error=None):
        super().__init__()
        self.error, self.sizes = error, []

    def multiply(self, size):
        self.sizes.append(size)
        if self.error is not None:
            raise self.error
        return lambda: None


def test_the_product_on_a_gpu_is_large_and_a_full_memory_costs_only_its_number():
    adapter = Multiplier()
    assert device.gemm_rate(adapter, on_cpu=False, size=10) > 0
    assert device.gemm_rate(adapter, on_cpu=True, size=10) > 0
    assert adapter.sizes == [device.SENTINEL_SIZE, 10]
    full = Multiplier(RuntimeError("the device is full"))
    assert device.gemm_rate(full, on_cpu=False, size=10) is None
    with pytest.raises(RuntimeError, match="full"):
        device.gemm_rate(full, on_cpu=True, size=10)
    with pytest.raises(RuntimeError, match="broken"):
        device.gemm_rate(Multiplier(RuntimeError("broken")), on_cpu=False, size=10)
    assert device.gemm_rate(OnGpu(), on_cpu=False, size=10) is None
