"""What made-up launches on a GPU raise of themselves, and their energy, regions and processes."""

import json as json_of_python
from dataclasses import replace
from typing import Any

import factory_of_records as make
import pytest
from exported import exporter
from hypothesis import given
from hypothesis import strategies as st
from json_reference import keys_of_chapter

from dlbench.adapters.protocol import DeviceCeilings, DeviceEvidence, Status
from dlbench.reports.results import flags
from dlbench.reports.results.comparison import Verdict, compare_sides
from dlbench.reports.results.disturbance import disturbed, disturbed_if_known, left_out
from dlbench.reports.results.flags import record_flags
from dlbench.reports.results.gpu_evidence import (
    ENOUGH_TICKS,
    counted_joules,
    energy,
    growth,
    integrated_joules,
    observe_device,
    observe_launch,
    other_processes,
    region_of,
)
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.record import BASELINE, CANDIDATE, Record, last_attempts
from dlbench.reports.results.results import Results

ORIGIN = 1000.0
OWN = {"whose": "own", "first": 1.0, "last": 29.0, "bytes": 10**9}
OTHER = {"whose": "other", "first": 0.0, "last": 30.0, "bytes": None}


def telemetry(
    processes: Any = (OWN,), slow: dict[str, Any] | None = None, **columns: Any
) -> dict[str, Any]:
    """Half a minute at 5 Hz, of which the seconds from 10 to 20 are the timed region; calm unless
    given otherwise."""
    at = [round(0.2 * turn, 4) for turn in range(151)]
    calm = {
        "joules": [300.0 * moment for moment in at],
        "watts": 300.0,
        "sm_mhz": 1980,
        "memory_mhz": 2619,
        "temperature": [40 + moment for moment in at],
        "reasons": 0,
        "utilisation": 99,
        "memory_utilisation": 50,
        "used_bytes": 20 * 10**9,
    }
    return {
        "schema": 1,
        "origin": ORIGIN,
        "gpu": {"uuid": "GPU-1", "name": "NVIDIA H200", "power_limit_watts": 700.0, "part": False},
        "samples": {"at": at, **calm, **columns},
        "slow_samples": {
            "at": [0.0, 10.5, 15.5, 30.0],
            "sent": [None, 1000, 3000, None],
            **(slow or {}),
        },
        "processes": None if processes is None else list(processes),
        "notes": [],
    }


def in_region(value: float, share: float, outside: float = 0) -> list[float]:
    """Return a column with this value in the given share of the timed region's 51 samples, and 0 in
    the others."""
    count = round(51 * share)
    return [outside] * 50 + [value] * count + [0] * (51 - count) + [outside] * 50


def launch(
    events: float | None = 1.0,
    busy: float | None = 0.95,
    of_gpu: dict[str, Any] | None = None,
    step: float = 0.1,
    placement: str = "resident",
    **changes: Any,
) -> Record:
    """A launch of 100 steps on a GPU; events and busy time as shares of the wall time."""
    result = make.outcome([step] * 100)
    event_ns = None
    if events is not None:
        event_ns = [round(sample_ns * events) for sample_ns in result.samples_ns]
    busy_seconds = None if busy is None else busy * step
    device = DeviceEvidence(
        name="NVIDIA H200",
        event_ns=event_ns,
        busy_seconds=busy_seconds,
        launches=120.0,
        peak_memory_bytes=5 * 10**9,
    )
    result = result._replace(device=device, timed_between=[ORIGIN + 10, ORIGIN + 20], **changes)
    record = make.record(result=result, device="cuda:0", placement=placement)
    return replace(record, telemetry=telemetry() if of_gpu is None else of_gpu)


def names(record: Record) -> list[str]:
    return [flag.kind.name for flag in record_flags(record, None)]


def sentence(record: Record) -> str:
    (flag,) = record_flags(record, None)
    return flag.sentence


def test_gpu_evidence_is_ignored_on_the_cpu() -> None:
    record = launch(events=0.5, busy=0.1, of_gpu=telemetry([OWN, OTHER], reasons=0x40))
    on_cpu = replace(record, cell=record.cell._replace(device="cpu"))
    plain = replace(
        on_cpu, telemetry=None, outcome=on_cpu.outcome._replace(device=None, timed_between=None)
    )
    assert record_flags(on_cpu, None) == record_flags(plain, None) == []
    assert observe_device([on_cpu]) is None


def brief(record: Record, seconds: float) -> Record:
    """Return the launch with a timed region of so many seconds."""
    return replace(
        record, outcome=record.outcome._replace(timed_between=[ORIGIN + 10, ORIGIN + 10 + seconds])
    )


def slowed(reason: int, share: float) -> Record:
    """Return a launch whose GPU was hot all the time outside of the region, and in it had a reason
    in a share of it."""
    return launch(of_gpu=telemetry(reasons=in_region(reason, share, outside=0x40)))


IDLE = telemetry(utilisation=in_region(31, 1.0, outside=100))
SHORT = launch(events=0.5).outcome.device._replace(event_ns=[1] * 99)  # events of other samples
FLAGS: dict[str, tuple[Record, str]] = {
    "calm": (launch(), ""),
    "events too long": (launch(events=1.021), "device_time"),
    "events too short": (launch(events=0.979), "device_time"),
    "what events cost: 40 microseconds": (launch(events=0.9, step=0.0004), ""),
    "what events cost: 100 microseconds": (launch(events=0.9, step=0.001), "device_time"),
    "events of other samples": (
        replace(launch(), outcome=launch().outcome._replace(device=SHORT)),
        "",
    ),
    "waits for its host": (launch(busy=flags.BUSY_SHARE - 0.01), "host_bound"),
    "no profile: utilisation": (launch(busy=None, of_gpu=IDLE), "host_bound"),
    "copies are not in utilisation": (launch(busy=None, of_gpu=IDLE, placement="pinned"), ""),
    "waits with copies in the profile": (
        launch(busy=0.3, of_gpu=IDLE, placement="pinned"),
        "host_bound",
    ),
    "utilisation of before": (brief(launch(busy=None, of_gpu=IDLE), 0.9), ""),
    "heat, by the driver": (slowed(0x20, 0.3), "device_throttled"),
    "heat, by the hardware": (slowed(0x40 | 0x8, 0.3), "device_throttled"),
    "a change of clocks": (slowed(0x8, 1 / 51), ""),
    "one sample of few": (brief(launch(of_gpu=telemetry(reasons=in_region(0x8, 1 / 51))), 1.0), ""),
    "at its power limit, as it should be": (slowed(0x4, 1.0), ""),
    "reasons that are no harm": (slowed(0x1 | 0x2 | 0x10 | 0x100, 1.0), ""),
}


@pytest.mark.parametrize(("record", "expected"), FLAGS.values(), ids=FLAGS)
def test_flags_of_a_launch_on_a_gpu(record: Record, expected: str) -> None:
    assert names(record) == expected.split()


def starting(seconds: float | None, launches: float = 120.0) -> Record:
    """A launch with operators that the host starts in so many seconds each, and a step of 0.1 s."""
    record = launch(busy=0.4)
    device = record.outcome.device
    device = device._replace(
        launches=launches, ceilings=DeviceCeilings(operator_start_seconds=seconds)
    )
    return replace(record, outcome=record.outcome._replace(device=device))


WAITING = "the GPU worked 40% of the time; the host sets the pace"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            starting(5.12e-6, 12000.4),
            (
                f"{WAITING}: launch-bound, since starting 12000 operators at 5.12 us each takes "
                "about 61% of a step"
            ),
        ),
        (
            starting(5e-6),
            f"{WAITING}: starting 120 operators at 5 us each takes about 1% of a step",
        ),
        (
            starting(2e-3),
            (
                f"{WAITING}: launch-bound, since starting 120 operators at 2000 us each takes all "
                "of a step"
            ),
        ),
        # Without what starting costs, nothing is said of it.
        (starting(None), WAITING),
        (
            launch(of_gpu=telemetry(reasons=in_region(0x40 | 0x4, 0.5), sm_mhz=1200)),
            "the GPU was slowed 51% of the time: thermal slowdown by the hardware, at 1200 MHz",
        ),
    ],
)
def test_flags_in_words(record: Record, message: str) -> None:
    assert sentence(record) == message


def test_errors_of_the_memory() -> None:
    assert names(launch(of_gpu=telemetry(slow={"corrected": [3, 3, 3, 3]}))) == []
    of_gpu = telemetry(slow={"corrected": [3, 3, 3, 5], "uncorrected": [0, 0, 1, 1]})
    assert names(launch(of_gpu=of_gpu)) == ["ecc_errors"]
    assert "2 corrected and 1 uncorrected ECC errors" in sentence(launch(of_gpu=of_gpu))


def test_a_shared_gpu_is_contended_and_its_launch_repeated() -> None:
    shared = launch(of_gpu=telemetry([OWN, OTHER, OTHER]))
    assert (
        sentence(shared)
        == "2 other processes held the GPU too; end them, or measure on another GPU"
    )
    assert names(shared) == ["contended"]
    assert disturbed(shared, None)
    again = replace(launch(), attempt=1)
    assert last_attempts([shared, again]) == [again]
    # A GPU that is hot is hot the next time too.
    assert not disturbed(launch(of_gpu=telemetry(reasons=0x40)), None)


def test_a_slowed_gpu_makes_no_verdict() -> None:
    hot = launch(of_gpu=telemetry(reasons=0x40))
    assert left_out(hot, None)
    assert not left_out(launch(), None)
    records = [
        replace(record, side=side, launch=number)
        for number in range(8)
        for side, record in ((BASELINE, launch()), (CANDIDATE, hot))
    ]
    (cell,) = compare_sides(
        make.run(purpose="compare"), records, Host(make.MACHINE, "a machine")
    ).cells
    assert cell.judgement.verdict is Verdict.CONTENDED
    assert "the GPU was slowed, in 8 of 8 pairs" in cell.judgement.sentence
    assert (cell.baseline.disturbed_launches, cell.candidate.disturbed_launches) == (0, 8)


def test_the_store_knows_whether_a_gpu_was_shared() -> None:
    assert disturbed_if_known(launch(of_gpu=telemetry([OWN, OTHER])), None) is True
    assert disturbed_if_known(launch(), None) is False
    assert disturbed_if_known(launch(of_gpu=telemetry(None)), None) is None
    assert disturbed_if_known(replace(launch(), telemetry=None), None) is None
    assert disturbed_if_known(launch(status=Status.CRASHED, samples_ns=[]), None) is None


def test_joules_of_a_mini_batch() -> None:
    observation = observe_launch(launch().outcome, telemetry())
    assert (observation.joules_per_minibatch, observation.energy_method) == (
        pytest.approx(30.0),
        "energy counter",
    )
    no_counter = telemetry(joules=None, watts=280.0)
    observation = observe_launch(launch().outcome, no_counter)
    assert (observation.joules_per_minibatch, observation.energy_method) == (
        pytest.approx(28.0),
        "integral of power",
    )
    # Half of the region was not of the timed steps: its energy is not theirs.
    observation = observe_launch(launch(step=0.05).outcome, telemetry())
    assert observation.joules_per_minibatch == pytest.approx(15.0)
    # A part of a GPU has no power of its own.
    part = telemetry()
    part["gpu"]["part"] = True
    observation = observe_launch(launch().outcome, part)
    assert (observation.joules_per_minibatch, observation.part_of_gpu) == (None, True)
    assert observation.watts is not None


def test_the_observation_of_a_launch() -> None:
    observation = observe_launch(
        launch(busy=0.5, events=0.99).outcome, telemetry(reasons=in_region(0x4, 1.0))
    )
    assert observation.name == "NVIDIA H200"
    assert (observation.event_per_wall, observation.busy_share, observation.busy_source) == (
        pytest.approx(0.99),
        0.5,
        "profile",
    )
    assert observation.temperature == (pytest.approx(55.0), 50.0, 60.0)
    assert observation.sm_mhz == (1980, 1980, 1980)
    assert (observation.clock_reasons, observation.slowed_share) == ({"power cap": 1.0}, 0.0)
    assert (observation.sent_bytes_per_second, observation.received_bytes_per_second) == (
        2000,
        None,
    )
    assert (observation.samples, observation.other_processes, observation.power_limit_watts) == (
        51,
        0,
        700.0,
    )
    assert (observation.peak_memory_bytes, observation.used_memory_bytes) == (5 * 10**9, 20 * 10**9)


def test_the_launches_of_a_cell_together() -> None:
    hot = telemetry(temperature=80, reasons=in_region(0x4, 1.0))
    records = [launch(events=0.99), launch(events=0.97), launch(events=1.0, of_gpu=hot)]
    observation = observe_device(records)
    assert observation.event_per_wall == pytest.approx(0.99)
    assert observation.temperature == (pytest.approx(55.0), 50.0, 80)
    assert observation.clock_reasons == {"power cap": pytest.approx(1 / 3)}
    assert observation.samples == 153
    assert observe_device([]) is None


def matrix_of(*records: Record) -> Any:
    return build_matrix(
        Results(tuple(replace(record, launch=place) for place, record in enumerate(records)))
    )


def test_the_documentation_describes_exactly_the_keys_of_a_gpu() -> None:
    (cell,) = json_of_python.loads(exporter("matrix", "json")(matrix_of(launch())))
    described = keys_of_chapter("device_evidence") - {"title", "about"}
    assert described == set(cell["device_evidence"])


# Energy, regions and other processes of made-up telemetry, against curves whose integral is known.

fractions = st.floats(0.0, 1.0)


def times(period: float = 0.2, seconds: float = 20.0) -> list[float]:
    return [period * turn for turn in range(round(seconds / period) + 1)]


@given(st.floats(10, 500), st.floats(0, 20), fractions, fractions)
def test_the_integral_of_a_rising_load_is_exact(
    watts: float, slope: float, first: float, length: float
) -> None:
    start = 1 + 8 * first
    region = (start, start + 1 + 9 * length)
    points = [(at, watts + slope * at) for at in times()]
    middle = (region[0] + region[1]) / 2
    assert integrated_joules(points, region) == pytest.approx(
        (watts + slope * middle) * (region[1] - region[0])
    )


@given(st.floats(50, 700), st.floats(0.01, 0.15), fractions, st.floats(0, 0.1))
def test_the_counter_tells_the_energy_but_for_its_ticks(
    watts: float, tick: float, length: float, shift: float
) -> None:
    region = (3.0 + shift, 6.0 + shift + 10 * length)
    points = [(at, watts * (at // tick * tick)) for at in times()]
    joules = counted_joules(points, region)
    assert abs(joules - watts * (region[1] - region[0])) <= watts * tick * 1.0001


def test_the_counter_is_used_where_it_ticked_often_enough_and_else_the_power() -> None:
    region = (102.0, 106.0)
    counter, power = [(100 + at, 500 * at) for at in times()], [(100 + at, 490.0) for at in times()]
    often = {"joules": counter, "watts": power}
    assert energy(often, region) == (pytest.approx(2000.0), "energy counter")
    seldom = {**often, "joules": [(at, 500 * ((at - 100) // 1.0)) for at, _ in counter]}
    assert energy(seldom, region) == (pytest.approx(1960.0), "integral of power")
    fell = {"joules": [(at, joules if at < 104 else 0.0) for at, joules in counter]}
    assert energy(fell, region) is None
    # Too short, and not wholly sampled.
    assert energy(often, (102.0, 102.9)) is None
    assert energy(often, (99.0, 106.0)) is None
    assert energy(often, (118.0, 121.0)) is None
    assert energy({}, region) is None


def test_the_counter_counts_ticks_in_the_region_alone() -> None:
    # It moves all the time, but for the region.
    points = [(at, 10 * (at if at < 5 else 5 + max(0.0, at - 9))) for at in times()]
    assert counted_joules(points, (6.0, 8.0)) is None
    few = 0.2 * (ENOUGH_TICKS - 3)
    assert counted_joules(points, (5 - few, 5.1)) is None
    assert counted_joules(points, (5 - 0.2 * (ENOUGH_TICKS + 1), 5.1)) is not None


def test_power_is_not_guessed_over_a_gap() -> None:
    points = [(at, 100.0) for at in times() if not 4.0 < at < 5.5]
    assert integrated_joules(points, (2.0, 8.0)) is None
    assert integrated_joules(points, (6.0, 8.0)) == pytest.approx(200.0)


REGION = (105.0, 108.0)


def process(whose: str, first: float, last: float) -> dict[str, Any]:
    return {"whose": whose, "first": first, "last": last, "bytes": None}


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        (None, None),
        ([process("own", 1, 9), process("other", 0, 9)], 1),
        ([process("own", 1, 9), process("other", 0, 4.9), process("other", 8.1, 9)], 0),
        ([process("own", 1, 9), process("other", 4, 5.1), process("other", 7.9, 9)], 2),
        ([process("unknown", 1, 9)], 0),  # in a container: the launch's own
        ([process("unknown", 1, 9), process("unknown", 0, 9)], 1),
        ([process("unknown", 1, 9), process("other", 0, 9)], 1),
    ],
)
def test_processes_of_others_in_the_region(processes: Any, expected: int | None) -> None:
    assert other_processes(processes, 100.0, REGION) == expected


def test_a_counter_that_grew() -> None:
    counters = ([(1.0, 5), (3.0, 7)], [(1.0, 7), (2.0, 6), (3.0, 0)], [(3.0, 3)], [])
    assert list(map(growth, counters)) == [2, None, None, None]


def test_the_region_is_what_the_launch_says() -> None:
    for timed, expected in (
        ([1.0, 2.5], (1.0, 2.5)),
        (None, None),
        ([2.0, 1.0], None),
        ([1.0], None),
        (["", ""], None),
    ):
        assert region_of(Outcome(Status.OK, timed_between=timed)) == expected  # type: ignore[arg-type]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
keys = st.sampled_from(["schema", "origin", "gpu", "samples", "slow_samples", "processes", "notes"])
tables = st.dictionaries(st.sampled_from(["at", "watts", "joules", "reasons"]), json_values)


@given(st.dictionaries(keys, json_values | tables | st.just(1)) | st.none())
def test_whatever_a_store_holds_is_read_or_left(content: dict[str, Any] | None) -> None:
    observe_launch(
        Outcome(Status.OK, samples_ns=[10**9] * 3, timed_between=[105.0, 108.0]), content
    )
