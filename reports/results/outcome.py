"""The outcome of a launch: what its guest answered, what the host observed, and the verdict.

Each part has a type with its owner's fields alone. The guest writes an `Answer`. The host observes
the launch from outside (`HostObservation`), adds facts of its own (`HostFacts`) and judges it
(`LaunchVerdict`). `Outcome` is all of them together, as records keep it and reports read it.
"""

from collections.abc import Mapping
from statistics import median
from typing import Any, NamedTuple, Self

from dlbench.adapters.protocol import (
    LEAST_SAMPLE_NS,
    Contention,
    DeviceEvidence,
    Parity,
    Profile,
    SampleCounts,
    Status,
    ThreadEvidence,
    step_seconds,
    too_short,
)


class CpuEnergy(NamedTuple):
    """Energy of the CPU packages between the marks around the timed samples, by RAPL counters."""

    #: Of each package, all programs on it together. None: not measured.
    joules: dict[str, float] | None = None
    reason: str = ""  # why it was not measured


class QuotaUse(NamedTuple):
    """Use of a CPU quota by a launch in the timed steps.

    All its processes together, by the kernel's account of their group.
    """

    periods: int  # in which any of them ran; one lasts 0.1 s
    throttled_periods: int  # those in which the quota ran out
    throttled_seconds: float  # for which they could not run, added up over CPUs
    cpu_seconds: float | None  # None where this system does not count them


class TurnObservation(NamedTuple):
    """The host's observation of one turn of a launch; of all threads of all its processes."""

    seconds: float
    cpu_seconds: float
    waiting_seconds: float  # for a CPU, by the kernel's scheduler
    round: int = -1  # index of the round that it belongs to; -1: its place in the list
    slices: int = 1  # stretches that it ran in; other launches ran between them
    #: Of all CPUs, by all programs but dlbench, counted in ticks. None: not read.
    busy_seconds: float | None = None
    grown_pages: int = 0  # by which the largest memory that its processes ever had in use grew


class HostObservation(NamedTuple):
    """The host's observation of a launch, by its own clock and the system's accounts.

    CPU seconds are those of all processes of the launch.
    """

    timed_seconds: float  # from the mark before the timed samples to the one behind them
    timed_cpu_seconds: float
    check_steps: int = 0  # of a round of the parity check
    check_rounds: int = 0
    reset_seconds: float = 0.0  # of all rounds, to put weights and mini-batch in place
    reset_cpu_seconds: float = 0.0
    steps_seconds: float = 0.0  # of all rounds' steps
    steps_cpu_seconds: float = 0.0
    read_seconds: float = 0.0  # to read the parameters afterwards
    read_cpu_seconds: float = 0.0
    #: For a CPU, of its processes and of the host: meanwhile no sample proceeds.
    timed_waiting_seconds: float = 0.0
    #: Resetting and reading are those of this many checks, the steps those of the last one.
    checks: int = 1
    energy: CpuEnergy | None = None  # None: measured before dlbench read the counters
    quota: QuotaUse | None = None  # None without a CPU quota of the launch's own
    turns: list[TurnObservation] = []  # in order; empty: its samples were timed in a row
    #: CPU time that its processes used while other launches had their turns.
    stopped_cpu_seconds: float = 0.0

    @property
    def checked_steps(self) -> int:
        """Return the steps of all rounds together."""
        return self.check_steps * self.check_rounds


class SampleStatistics(NamedTuple):
    """Statistics of samples that another program did not keep; in seconds of a step."""

    samples: int
    median: float
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    deviation: float | None = None  # standard deviation of the samples
    interquartile_range: float | None = None


class HostFacts(NamedTuple):
    """The host's own part of a record's software, by key. None: there is no such fact.

    A guest describes its software freely, but not under these keys: there it is not believed.
    """

    gpu: dict[str, Any] | None = None
    gpus: list[dict[str, Any]] | None = None  # of several workers
    feed: dict[str, Any] | None = None  # the files of its mini-batches
    repeated_batch: int | None = None  # see `Launch`
    label_sets: int | None = None
    cold_start: bool | None = None  # whether it found an empty cache
    text: dict[str, Any] | None = None  # that it trained on
    tunable: list[str] | None = None  # names of the row's settings there, in order
    #: Under a CPU quota, the origin of the thread count: a variable of the environment, or a call.
    thread_setting: str | None = None
    adapter_digest: str | None = None  # of an adapter outside dlbench: its code
    default_threads: int | None = None  # those of the framework where none are set
    released: str | None = None  # when a release was uploaded to the package index (ISO 8601)
    #: Nanoseconds of each step of each of several instances.
    samples_ns_of_instances: list[list[int]] | None = None
    #: Of an imported record: its original names and options.
    pytest_benchmark: dict[str, Any] | None = None

    @classmethod
    def of(cls, software: Mapping[str, Any]) -> Self:
        """Return the host's part of a record's software."""
        return cls(*map(software.get, cls._fields))

    def added_to(self, software: Mapping[str, Any]) -> dict[str, Any]:
        """Return this software with these facts."""
        facts = {key: fact for key, fact in self._asdict().items() if fact is not None}
        return {**software, **facts}


class LaunchVerdict(NamedTuple):
    """How a launch ended, and whether it computes what the reference computes."""

    status: Status
    reason: str = ""
    parity: Parity | None = None  # None: nothing was timed


class Outcome(NamedTuple):
    """The outcome of a launch as its record keeps it."""

    status: Status
    reason: str = ""
    parity: Parity | None = None
    # The guest's fields: see `Answer`. Of a launch that took turns the host has subtracted the
    # times for which it stood still.
    import_seconds: float | None = None
    prepare_seconds: float | None = None
    first_step_seconds: float | None = None
    warmup_ns: list[int] = []
    samples_ns: list[int] = []
    final_loss: float | None = None
    final_loss_finite: bool | None = None
    peak_memory_bytes: int | None = None
    threads: ThreadEvidence | None = None
    contention: Contention | None = None
    software: dict[str, Any] = {}
    parameter_count: int | None = None
    gemm_flops_per_second: float | None = None
    steps_per_sample: int = 1
    steady: bool | None = None
    cpus: list[int] | None = None
    evidence_steps: int | None = None
    device: DeviceEvidence | None = None
    timed_between: list[float] | None = None
    profile: Profile | None = None
    curve: list[list[float]] = []
    test_loss: float | None = None
    curve_ended: str = ""
    phases: dict[str, float] = {}
    losses: list[list[float]] = []
    sample_counts: SampleCounts | None = None
    faults_before: dict[str, int] = {}
    fault_seconds: float | None = None
    turns: list[int] = []
    calls_ns: list[int] = []
    # The host's fields.
    outside: HostObservation | None = None
    #: How long the launch stood still within each sample. ``samples_ns`` leaves it out. Empty: no
    #: turn was cut.
    paused_ns: list[int] = []
    #: Of samples that another program did not keep. None: they are in ``samples_ns``.
    statistics: SampleStatistics | None = None

    @property
    def facts(self) -> HostFacts:
        """Return the host's part of the software."""
        return HostFacts.of(self.software)

    def step_seconds(self) -> list[float]:
        """Return the seconds of a step in each sample."""
        return step_seconds(self.samples_ns, self.steps_per_sample)

    def was_timed(self) -> bool:
        """Return whether there are samples, or statistics of samples that were not kept."""
        return bool(self.samples_ns) or self.statistics is not None

    def median_seconds(self) -> float | None:
        """Return the median seconds of a step.

        None where nothing was timed, and where the samples are too short for the clock
        (`too_short`).
        """
        if not self.was_timed() or self.too_short():
            return None
        if self.samples_ns:
            return median(self.step_seconds())
        assert self.statistics is not None
        return self.statistics.median

    def too_short(self) -> bool:
        """Return whether the samples show the ticks of the clock. See `protocol.too_short`."""
        if self.samples_ns:
            return too_short(self.samples_ns)
        if self.statistics is None:
            return False
        median_ns = self.statistics.median * self.steps_per_sample * 1e9
        return self.statistics.minimum == 0 or median_ns < LEAST_SAMPLE_NS

    def gives_a_number(self) -> bool:
        """Return whether there are plausible samples."""
        return self.was_timed() and self.status is not Status.IMPLAUSIBLE

    def sample_count(self) -> int:
        """Return the number of timed samples, kept or not."""
        return len(self.samples_ns) if self.statistics is None else self.statistics.samples

    def timed_steps(self) -> int:
        """Return the number of steps in the timed samples."""
        return self.sample_count() * self.steps_per_sample

    def observed_steps(self) -> int:
        """Return the number of steps that `threads` and `contention` span.

        Warm-up that was recognised later is included.
        """
        return self.timed_steps() if self.evidence_steps is None else self.evidence_steps
