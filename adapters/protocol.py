"""Messages between host and guest: the request of a launch, and the answer.

A launch is data in (``cell.json``) and data out (``outcome.json``). Both are plain JSON of the
tuples below. Raw samples are kept and no statistic is computed here. ``SCHEMA_VERSION`` rises
whenever a reader of the old form would misread the new one.
"""

import json
import os
from enum import Enum
from functools import lru_cache
from statistics import median
from typing import Any, Dict, List, NamedTuple, Optional, get_type_hints

SCHEMA_VERSION = 1

CELL_FILE = "cell.json"
OUTCOME_FILE = "outcome.json"
PHASE_FILE = "phase.json"

#: The variable with the file descriptor of the guest's line to the host.
HOST_LINE = "DLBENCH_HOST"
#: The marks on this line, in their order.
WARM_UP = "warm-up"
BEGIN = "begin"
TURN = "turn"
END = "end"
RESET = "reset"
STEPS = "steps"
READ = "read"
#: The variable with the matrix products to add to each step. See launch/worker.py.
EXTRA_PRODUCTS = "DLBENCH_EXTRA_PRODUCTS"
#: Phases that begin with the measurement safe on disk.
PROFILE = "profile"
TRAINING = "training"


class ProtocolError(Exception):
    """A ``cell.json`` or ``outcome.json`` that does not fit this version of the contract."""


class Status(str, Enum):
    """How a launch ended. Every cell of a matrix carries one."""

    OK = "ok"
    UNSUPPORTED = "unsupported"  # the framework cannot run this cell, and the reason says why
    OUT_OF_MEMORY = "out_of_memory"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    PARITY_FAILED = "parity_failed"  # timed, but its results differ from the reference's
    IMPLAUSIBLE = "implausible"  # timed, but the host's observation contradicts the number
    SKIPPED = "skipped"  # never started, on purpose, and the reason says why


#: The value of a text axis that another program measured and did not record. An unknown number is
#: None.
UNKNOWN = "unknown"
OUTSIDE = "outside_"  # prefix of a cell's adapter that lies outside dlbench
#: None of a row's settings in force, or all of them. See ``tuning.py``.
INSTALLED = "installed"
TUNED = "tuned"
BOUND = "bound"  # as many CPUs as threads, on different physical cores first
OVERSUBSCRIBED = "oversubscribed"  # every CPU this process may use, however many threads
#: Of the arithmetic. Those of 16 bits are mixed with float32.
PRECISIONS = ("float32", "tf32", "bfloat16", "float16")
LOADER = "loader"
#: Placements of one mini-batch that each step copies to a GPU from such host memory.
COPIED = ("pinned", "pageable")
#: Placements with another mini-batch for each step. See launch/feeds.py.
FED = ("fed", "prefetched", LOADER)
#: Placements of the mini-batch. Resident: one, on the device.
PLACEMENTS = ("resident", *COPIED, *FED)
#: Where a loader finds its file: in memory, as after a first reading, or on the disk.
STORAGES = ("cache", "disk")
#: When workers exchange. The second is written "local:4".
EVERY_STEP = "step"
LOCAL = "local"
ASYNC = "async"
INFERENCE = "inference"
#: Kinds of steps. Training updates the weights. Inference is the forward pass of a network that is
#: trained.
TASKS = ("training", INFERENCE)
#: Nanoseconds. The finest clocks count whole nanoseconds: in a shorter sample one tick is more than
#: 10 %.
LEAST_SAMPLE_NS = 10
#: Steps of a sample of asynchronous workers, which wait for one another after each sample, so that
#: it ends for all.
_ASYNC_STEPS = 16


class Cell(NamedTuple):
    """One point of the matrix."""

    #: The row's name: "torch", or a name the user gave to a build of it, "torch-nightly".
    framework: str
    adapter: str  # the folder in adapters/ that drives it
    mode: str  # execution mode, e.g. "eager" or "compile"
    network: str
    device: str  # "cpu", "cuda:0", ...
    threads: int  # intra-op threads requested; 0: ask for nothing, the framework's own default
    batch_size: Optional[int]  # examples per mini-batch; None: not known
    precision: str = "float32"
    placement: str = "resident"  # of the mini-batch when the step starts
    affinity: str = OVERSUBSCRIBED  # the CPUs that the threads may use: BOUND or OVERSUBSCRIBED
    #: Workers that train on equal parts of the mini-batch together, each with ``threads`` threads.
    world_size: int = 1
    tuning: str = TUNED  # the row's settings in force, as ``tuning.py`` writes them
    #: Digest of the network's numbers. Empty: one of the first six networks, as it was then.
    specification: str = ""
    #: Independent processes, each with all of this on CPUs of its own. Their throughput counts.
    instances: int = 1
    #: CPUs that the kernel gives all processes of a launch together. 0: no quota.
    cpu_quota: float = 0.0
    #: Of the placement "loader": threads or processes that load mini-batches. 0: the step waits.
    loader_workers: int = 0
    storage: str = "cache"  # of the placement "loader": where its file is, one of STORAGES
    #: When workers exchange: at every step, "local:H" every H steps, ASYNC without waiting.
    sync: str = EVERY_STEP
    task: str = TASKS[0]  # of a step, one of TASKS

    @property
    def known_batch_size(self) -> int:
        """Return the examples of a mini-batch; raises ValueError where they are not known."""
        if self.batch_size is None:
            raise ValueError("the mini-batch size of %s is not known" % self.network)
        return self.batch_size

    @property
    def on_cpu(self) -> bool:
        """Return whether the CPU computes. With a GPU it only launches operators there."""
        return self.device == "cpu"

    @property
    def infers(self) -> bool:
        """Return whether a step is a forward pass alone."""
        return self.task == INFERENCE

    @property
    def on_gpu(self) -> bool:
        """Return whether a GPU computes.

        This and `on_cpu` are both false where the device is not known.
        """
        return self.device not in ("cpu", UNKNOWN)

    @property
    def helpers(self) -> int:
        """Return the threads or processes, of all instances, that get mini-batches ahead."""
        helpers = 1 if self.placement == "prefetched" else self.loader_workers
        return helpers * self.instances

    @property
    def all_threads(self) -> int:
        """Return the intra-op threads of all workers of all instances, and their helpers."""
        if not self.threads:
            return 0
        return self.threads * self.world_size * self.instances + self.helpers

    @property
    def local_steps(self) -> int:
        """Return the steps between two exchanges of parameters: H of "local:H", otherwise 0."""
        kind, _, number = self.sync.partition(":")
        is_local = kind == LOCAL and number.isdecimal() and len(number) < 10
        return int(number) if is_local else 0

    @property
    def sample_steps(self) -> int:
        """Return the number of which the steps of a timed sample are a multiple.

        Each sample of local steps thus has its share of the exchanges, and asynchronous workers,
        which wait for one another after each sample, wait little.
        """
        return _ASYNC_STEPS if self.sync == ASYNC else self.local_steps or 1


class Protocol(NamedTuple):
    """How one launch measures: warm-up, then samples until ``steps`` or ``seconds`` is reached."""

    #: Steps before the first timed one, at least, the first step included. See launch/timing.py.
    warmup_steps: int = 3
    steps: int = 20  # timed samples at most
    minimum_steps: int = 5  # timed samples at least, whatever they cost
    seconds: float = 10.0  # no further timed sample starts after this many seconds
    #: Warm-up grows up to this many samples while it shows a change. 0: never.
    maximum_warmup_steps: int = 0
    sample_seconds: float = 0.0  # steps shorter than this are timed several at a time
    curve_steps: int = 0  # steps of training on the launch's text after all that is timed; 0: none
    #: Further steps after all that is timed, on one mini-batch, whose losses are kept. 0: none.
    loss_steps: int = 0
    #: A launch that is followed over minutes: the memory after each sample is kept too.
    trend: bool = False


class Launch(NamedTuple):
    """The request to a guest process: the content of ``cell.json``."""

    cell: Cell
    protocol: Protocol
    #: Of the framework's mode, as its framework.toml or the suite gives them.
    settings: Dict[str, Any]
    cache_directory: str  # for what an adapter derives at a cost; survives the launch
    #: Write this launch's losses and updates to this file as the reference.
    save_reference: Optional[str] = None
    cpus: Optional[List[int]] = None  # the only CPUs this process may use; None: as it was started
    adapter_directory: Optional[str] = None  # the adapter's folder where it lies outside adapters/
    #: Measure nothing: report the capabilities of this build of the framework.
    only_capabilities: bool = False
    #: UUIDs of the GPUs that it sees, one a worker, with commas. None: it runs on the CPU.
    gpu: Optional[str] = None
    #: The mini-batch is one of this size over and over. None: all examples are distinct.
    repeated_batch: Optional[int] = None
    #: Equal parts, with different labels, of a repeated mini-batch that is normalised over.
    label_sets: int = 1
    profiled_steps: int = 0  # steps to profile after the timed ones, at least; 0: none
    #: As many steps are profiled as take this long without the profiler.
    profiled_seconds: float = 0.0
    network: Optional[Dict[str, Any]] = None  # the cell's network as `networks.to_data` writes it
    #: With only_capabilities: networks to accept or refuse.
    queried_networks: Optional[List[Dict[str, Any]]] = None
    #: Folder with files of the network's large weights. None: all are drawn.
    weights: Optional[str] = None
    text: Optional[str] = None  # file of the text to train on, a byte a symbol; None: no training
    #: Folder with the files of the mini-batches that steps take. None: they are drawn.
    feed: Optional[str] = None
    #: Threads or processes that load data in addition to those of the cell, as the user's own step
    #: declares.
    helpers: int = 0
    #: It takes turns with other launches. Otherwise its samples follow one another.
    in_turns: bool = False

    @property
    def all_threads(self) -> int:
        """Return the cell's threads and the step's helpers; 0 where the cell asks for no count."""
        return self.cell.all_threads + self.helpers if self.cell.threads else 0

    @property
    def times_steps(self) -> bool:
        """Return whether it times steps.

        It does not where it reports capabilities alone, or makes a reference.
        """
        return not self.only_capabilities and self.save_reference is None


class Parity(NamedTuple):
    """Agreement of the launch with the float64 reference, by the host's judgement.

    Errors are relative: of a loss ``|loss - reference| / |reference|`` (a tenth of the first step's
    reference, where that is larger), the largest over the parity steps. Of an update ``||update -
    reference|| / ||reference||`` over the sampled entries, the largest over the parameters. In
    inference the error is that of an example's outputs, ``||outputs - reference|| /
    ||reference||``, the largest over the examples.
    """

    verdict: str  # "agrees", "disagrees", "unchecked"
    reason: str
    losses: List[float]  # one per parity step, before that step's update
    loss_error: Optional[float]
    update_error: Optional[float]
    worst_parameter: str
    loss_tolerance: float
    update_tolerance: float
    seconds: float  # the cost of the check, the parity steps themselves not counted
    output_error: Optional[float] = None  # None: training, or not all outputs are finite
    output_tolerance: Optional[float] = None
    #: Of the user's own inference: some of the outputs of each of the first calls.
    outputs: List[List[float]] = []


class ParitySample(NamedTuple):
    """The parity check's result, for the host to judge. No record keeps it."""

    #: Of each step of the last round, before its update. None: not all are finite.
    losses: Optional[List[float]]
    #: Of each parameter's sampled entries. None: not all are finite.
    updates: Dict[str, Optional[List[float]]]
    parameter_count: int  # as the framework itself counts them
    #: Whether any parameter changed in the timed steps. None: the loss is not finite.
    moved: Optional[bool] = None
    #: Of inference: each example's sampled outputs. Of the user's own inference: each first call's.
    #: None: not all are finite.
    outputs: Optional[List[List[float]]] = None


GROWING_SHARE = 0.01  # of a step's time that mapping new pages takes
FAULT_NANOSECONDS = 1000  # of a page fault, about: 500 to 2,000 on virtual machines


def growth_costs(pages: int, nanoseconds: int) -> bool:
    """Return whether mapping so many more pages took a noticeable part of this time."""
    return pages * FAULT_NANOSECONDS > GROWING_SHARE * nanoseconds


class ThreadEvidence(NamedTuple):
    """Threads that were actually busy in the timed region."""

    requested: int
    framework_says: Optional[int]  # None where the framework does not report it
    os_threads: Optional[int]  # threads of the process when the timed region ended
    cpu_seconds: float
    wall_seconds: float
    cpu_seconds_by_thread: Optional[List[float]]  # the busiest first, at most 64 of them
    #: Those of the requested threads that get mini-batches ahead of the step: they may rest.
    helpers: int = 0


class Contention(NamedTuple):
    """Disturbance by other programs in the timed region; None where it is not reported."""

    #: Time this process's threads were runnable but not running, summed.
    run_queue_seconds: Optional[float]
    involuntary_switches: Optional[int]
    voluntary_switches: Optional[int]
    pressure_seconds: Optional[float]  # PSI cpu "some" over the region, whole machine
    pressure_avg10_before: Optional[float]  # per cent
    steal_seconds: Optional[float]  # taken by the hypervisor, summed over CPUs
    throttled_seconds: Optional[float]  # cgroup quota
    major_faults: Optional[int]
    #: CPU time of all other processes of this machine in the region.
    others_cpu_seconds: Optional[float] = None


class SampleCounts(NamedTuple):
    """The kernel's counts of events in each timed sample, in order.

    They are those of the measuring process with all its threads.
    """

    minor_faults: List[int]  # pages of memory that it mapped without reading a disk
    voluntary_switches: List[int]  # of a thread that waited for something
    involuntary_switches: List[int]  # of a thread that lost its CPU to another
    #: At the end of each sample, of a launch that is followed over minutes. Otherwise empty.
    resident_bytes: List[int] = []


class DeviceCeilings(NamedTuple):
    """A GPU's best speeds after the timed steps; None: not measured."""

    copy_bytes_per_second: Optional[float] = None  # on the device, read and written
    to_device_pinned_bytes_per_second: Optional[float] = None
    to_device_pageable_bytes_per_second: Optional[float] = None
    from_device_pinned_bytes_per_second: Optional[float] = None
    from_device_pageable_bytes_per_second: Optional[float] = None
    #: The host's, for the smallest operator behind others.
    operator_start_seconds: Optional[float] = None
    #: From its start on an idle device until the host sees its end.
    operator_finish_seconds: Optional[float] = None


class DeviceEvidence(NamedTuple):
    """Readings of the framework's own instruments on the device in the timed steps.

    None where it has no such instrument.
    """

    name: str  # the framework's
    event_ns: Optional[List[int]] = None  # of every timed sample, from device events around it
    #: A step's: the device's operators and copies, from a profile after the timing.
    busy_seconds: Optional[float] = None
    launches: Optional[float] = None  # operators started on the device, a step's
    peak_memory_bytes: Optional[int] = None  # of the framework's allocator, during the timed steps
    ceilings: Optional[DeviceCeilings] = None


class Operator(NamedTuple):
    """An operator of a profiled step, all its calls together."""

    name: str  # the framework's profiler's
    kind: str  # see adapters/libraries/profiles.py
    on_device: bool  # False: it ran on the CPU
    seconds: float  # a step's, without the operators that it called
    calls: float  # a step's


class Profile(NamedTuple):
    """Some steps after the timed ones in the framework's own profiler, which slows them."""

    profiler: str
    steps: int
    step_seconds: float  # wall time of a profiled step
    operators: List[Operator]  # those that took longest first


class Answer(NamedTuple):
    """A guest's answer: the content of ``outcome.json``.

    It has a field for each thing that a guest measures or may say, and no other. The host observes
    the launch, judges it, and makes the record's outcome of all three (`reports.results.outcome`).
    """

    status: Status
    reason: str = ""
    import_seconds: Optional[float] = None
    prepare_seconds: Optional[float] = None
    first_step_seconds: Optional[float] = None  # compilation included
    #: A step's, of the warm-up between the first step and the timed samples, in order.
    warmup_ns: List[int] = []
    samples_ns: List[int] = []  # every timed sample, in order; each of steps_per_sample steps
    #: After the timed steps. None when it is not finite or was not read.
    final_loss: Optional[float] = None
    final_loss_finite: Optional[bool] = None
    #: Resident, of all processes, from the first step's end on.
    peak_memory_bytes: Optional[int] = None
    threads: Optional[ThreadEvidence] = None
    contention: Optional[Contention] = None
    software: Dict[str, Any] = {}  # versions, BLAS, execution settings: see Adapter.describe
    parameter_count: Optional[int] = None  # as the framework itself counts them
    #: The framework's own matrix product at these threads.
    gemm_flops_per_second: Optional[float] = None
    steps_per_sample: int = 1
    #: False: the samples still change after the longest warm-up. None: not looked for.
    steady: Optional[bool] = None
    cpus: Optional[List[int]] = None  # those that this process could run on
    #: Steps that `threads` and `contention` span. None: the timed ones.
    evidence_steps: Optional[int] = None
    device: Optional[DeviceEvidence] = None  # None on the CPU
    #: Start and end of the timed samples on the system's monotonic clock, in seconds.
    timed_between: Optional[List[float]] = None
    profile: Optional[Profile] = None
    parity_sample: Optional[ParitySample] = None  # for the host to judge; no record keeps it
    #: Of training on a text: [steps so far, mean loss of the block that ends there].
    curve: List[List[float]] = []
    test_loss: Optional[float] = None  # after it, on the part of the text that was kept
    curve_ended: str = ""  # why training ended early; empty: it did not
    #: When each phase of the launch began, in order, by the system's monotonic clock, in seconds.
    phases: Dict[str, float] = {}
    #: Of `Protocol.loss_steps`: [steps so far, mean loss of the last, before its update].
    losses: List[List[float]] = []
    sample_counts: Optional[SampleCounts] = None  # None: recorded before dlbench read them
    #: Minor page faults of the process before each phase began, in order.
    faults_before: Dict[str, int] = {}
    #: The cost of one minor page fault, measured after the timed samples.
    fault_seconds: Optional[float] = None
    turns: List[int] = []  # samples of each turn, in order; empty: they were timed in a row
    #: The monotonic clock before each timed call in turns, for the host. No record keeps it.
    starts_ns: List[int] = []
    #: Every call of inference in ``samples_ns``, in order, where samples are of several: under a
    #: CPU quota. Otherwise empty.
    calls_ns: List[int] = []

    def step_seconds(self) -> List[float]:
        """Return the seconds of a step in each sample."""
        return step_seconds(self.samples_ns, self.steps_per_sample)

    def timed_steps(self) -> int:
        """Return the number of steps in the timed samples."""
        return len(self.samples_ns) * self.steps_per_sample

    def observed_steps(self) -> int:
        """Return the number of steps that `threads` and `contention` span.

        Warm-up that was recognised later is included.
        """
        return self.timed_steps() if self.evidence_steps is None else self.evidence_steps


def step_seconds(samples_ns: List[int], steps_per_sample: int) -> List[float]:
    """Return the seconds of a step in each sample."""
    # A clock may give 0 ns for a step that does nothing, and a logarithm needs more.
    return [max(nanoseconds, 1) * 1e-9 / steps_per_sample for nanoseconds in samples_ns]


def too_short(samples_ns: List[int]) -> bool:
    """Return whether samples show the ticks of the clock.

    They do where one lasts 0, or the median less than `LEAST_SAMPLE_NS`. A clock that counts more
    coarsely than nanoseconds gives 0 to what lasts less than its tick.
    """
    return min(samples_ns) == 0 or median(samples_ns) < LEAST_SAMPLE_NS


def to_dict(value: Any) -> Any:
    """Turn a tuple of this module (nested ones too) into plain JSON types."""
    if hasattr(value, "_asdict"):
        return {key: to_dict(item) for key, item in value._asdict().items()}
    if isinstance(value, Enum):
        return value.value
    return [to_dict(item) for item in value] if isinstance(value, list) else value


@lru_cache(maxsize=None)
def _nested(kind: Any) -> Dict[str, Any]:
    """Return by field which tuple of this module it holds: alone, or None, or a list of them."""
    nested = {}
    for name, hint in get_type_hints(kind).items():
        parameters = getattr(hint, "__args__", None) or ()
        for candidate in (hint, *parameters):
            if hasattr(candidate, "_fields"):
                nested[name] = candidate
    return nested


def _build(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise ProtocolError("%s is not an object" % where)
    unknown = sorted(set(data) - set(kind._fields))
    if unknown:
        raise ProtocolError("%s has unknown keys: %s" % (where, ", ".join(unknown)))
    fields = dict(data)
    for key, nested in _nested(kind).items():
        value = fields.get(key)
        if isinstance(value, dict):
            fields[key] = _build(nested, value, where + "." + key)
        elif isinstance(value, list):
            fields[key] = [_build(nested, item, where + "." + key) for item in value]
    if "status" in fields:
        fields["status"] = Status(fields["status"])
    try:
        return kind(**fields)
    except TypeError as error:
        raise ProtocolError("%s: %s" % (where, error)) from error


def answer_from_dict(data: Dict[str, Any]) -> Answer:
    """Read an answer back from ``to_dict``; raises ProtocolError where it does not fit."""
    answer: Answer = _build(Answer, data, "answer")
    return answer


def profile_from_dict(data: Dict[str, Any]) -> Profile:
    """Read a profile back from ``to_dict``; raises ProtocolError where it does not fit."""
    profile: Profile = _build(Profile, data, "profile")
    return profile


def write_json(path: str, content: Any) -> None:
    """Write JSON so that a reader sees the old file or the whole new one, never a part."""
    partial = path + ".part"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(content, file, allow_nan=False)
    os.replace(partial, path)


def read_json_object(path: str) -> Optional[Dict[str, Any]]:
    """Return the object in a file of ``write_json``.

    None where there is no such file, or no object in it.
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _read(directory: str, name: str, kind: Any) -> Any:
    try:
        with open(os.path.join(directory, name), encoding="utf-8") as file:
            content = json.load(file)
    except ValueError as error:
        raise ProtocolError("%s is not JSON: %s" % (name, error)) from error
    if not isinstance(content, dict):
        raise ProtocolError("%s is not an object" % name)
    version = content.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise ProtocolError(
            "%s has schema version %r, not %d as expected" % (name, version, SCHEMA_VERSION)
        )
    try:
        return _build(kind, content, name)
    except ValueError as error:
        raise ProtocolError("%s: %s" % (name, error)) from error


def write_launch(directory: str, launch: Launch) -> None:
    """Write ``cell.json`` into the control directory.

    Axes with their default values are left out, and whatever is not asked for: an older guest may
    not know them.
    """
    defaults = Cell._field_defaults
    axes = {}
    for name, value in launch.cell._asdict().items():
        if name not in defaults or value != defaults[name]:
            axes[name] = value
    fields = dict(_requested_fields(launch), cell=axes)
    fields["protocol"] = _requested_fields(launch.protocol)
    fields["schema_version"] = SCHEMA_VERSION
    write_json(os.path.join(directory, CELL_FILE), fields)


def _requested_fields(request: Any) -> Dict[str, Any]:
    """Return the fields of a named tuple without the defaults that are None, 0, False or empty."""
    defaults = request._field_defaults
    fields = {}
    for name, value in request._asdict().items():
        if value or name not in defaults or value != defaults[name]:
            fields[name] = value
    return fields


def read_launch(directory: str) -> Launch:
    """Read ``cell.json``; raises ProtocolError, or OSError where there is none."""
    launch: Launch = _read(directory, CELL_FILE, Launch)
    return launch


def write_answer(directory: str, answer: Answer) -> None:
    """Write ``outcome.json`` into the control directory."""
    fields = dict(to_dict(answer), schema_version=SCHEMA_VERSION)
    write_json(os.path.join(directory, OUTCOME_FILE), fields)


def read_answer(directory: str) -> Answer:
    """Read ``outcome.json`` as it is: for tests of adapters. The host checks it (`answers`).

    Raises ProtocolError, or OSError where there is no such file (the guest crashed).
    """
    answer: Answer = _read(directory, OUTCOME_FILE, Answer)
    return answer
