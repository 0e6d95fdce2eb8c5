"""What made-up launches on a GPU raise of themselves, and what is told of them in the matrix."""

import json as json_of_python
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import factory_of_records as make
import pytest
from exported import exporter
from hypothesis import given
from hypothesis import strategies as st

import dlbench.reports
from dlbench.adapters.protocol import DeviceCeilings, DeviceEvidence, Status
from dlbench.reports import flags, gpu_evidence
from dlbench.reports.cells import build_matrix
from dlbench.reports.compare.comparison import BASELINE, CANDIDATE, Verdict, compare_sides
from dlbench.reports.disturbance import contended, disturbed, left_out
from dlbench.reports.flags import KINDS, record_flags
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record, last_attempts
from dlbench.reports.storage.results import Results

ORIGIN = 1000.0
OWN = {"whose": "own", "first": 1.0, "last": 29.0, "bytes": 10**9}
OTHER = {"whose": "other", "first": 0.0, "last": 30.0, "bytes": None}


def telemetry(processes: Any = (OWN,), slow: dict[str, Any] | None = None, **columns: Any) -> dict[str, Any]:
    """Half a minute at 5 Hz, of which the seconds from 10 to 20 are the timed region; a calm GPU unless told else."""
    at = [round(0.2 * turn, 4) for turn in range(151)]
    calm = {
        "joules": [300.0 * each for each in at],
        "watts": 300.0,
        "sm_mhz": 1980,
        "memory_mhz": 2619,
        "temperature": [40 + each for each in at],
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
        "slow_samples": {"at": [0.0, 10.5, 15.5, 30.0], "sent": [None, 1000, 3000, None], **(slow or {})},
        "processes": None if processes is None else list(processes),
        "notes": [],
    }


def in_region(value: float, share: float, outside: float = 0) -> list[float]:
    """A column that has this value in the given share of the timed region's 51 samples, and 0 in the others of it."""
    count = round(51 * share)
    return [outside] * 50 + [value] * count + [0] * (51 - count) + [outside] * 50


def launch(
    events: float | None = 1.0,
    busy: float | None = 0.95,
    told: dict[str, Any] | None = None,
    step: float = 0.1,
    placement: str = "resident",
    **changes: Any,
) -> Record:
    """A launch of 100 steps on a GPU; events and busy time as shares of the wall time."""
    result = make.outcome([step] * 100)
    device = DeviceEvidence(
        name="NVIDIA H200",
        event_ns=None if events is None else [round(each * events) for each in result.samples_ns],
        busy_seconds=None if busy is None else busy * step,
        launches=120.0,
        peak_memory_bytes=5 * 10**9,
    )
    result = result._replace(device=device, timed_between=[ORIGIN + 10, ORIGIN + 20], **changes)
    record = make.record(result=result, device="cuda:0", placement=placement)
    return replace(record, telemetry=telemetry() if told is None else told)


def names(record: Record) -> list[str]:
    return [flag.kind.name for flag in record_flags(record, None)]


def sentence(record: Record) -> str:
    (flag,) = record_flags(record, None)
    return flag.sentence


def test_a_calm_launch_raises_nothing() -> None:
    assert names(launch()) == []
    assert names(replace(launch(), telemetry=None)) == []


def test_on_the_cpu_nothing_of_this_is_looked_at() -> None:
    record = launch(events=0.5, busy=0.1, told=telemetry([OWN, OTHER], reasons=0x40))
    on_cpu = replace(record, cell=record.cell._replace(device="cpu"))
    plain = replace(on_cpu, telemetry=None, outcome=on_cpu.outcome._replace(device=None, timed_between=None))
    assert record_flags(on_cpu, None) == record_flags(plain, None) == []
    assert gpu_evidence.observe_device([on_cpu]) is None


@given(st.floats(0.5, 1.5))
def test_two_clocks_agree_within_two_per_cent(ratio: float) -> None:
    expected = abs(ratio - 1) > flags.DEVICE_TIME_SHARE
    if abs(abs(ratio - 1) - flags.DEVICE_TIME_SHARE) > 1e-6:
        assert names(launch(events=ratio)) == (["device_time"] if expected else [])


def test_what_an_event_costs_is_not_held_against_a_short_step() -> None:
    assert names(launch(events=0.9, step=0.0004)) == []  # 40 microseconds
    assert names(launch(events=0.9, step=0.001)) == ["device_time"]  # 100


def test_events_that_do_not_belong_to_the_samples_tell_nothing() -> None:
    record = launch(events=0.5)
    device = record.outcome.device
    odd = device._replace(event_ns=(device.event_ns or [])[:-1])
    assert names(replace(record, outcome=record.outcome._replace(device=odd))) == []


@given(st.floats(0.0, 1.2))
def test_a_gpu_that_waits_for_its_host(busy: float) -> None:
    if abs(busy - flags.BUSY_SHARE) > 1e-6:
        assert names(launch(busy=busy)) == (["host_bound"] if busy < flags.BUSY_SHARE else [])


def test_without_a_profile_the_drivers_utilisation_stands_in() -> None:
    idle = telemetry(utilisation=in_region(31, 1.0, outside=100))
    assert names(launch(busy=None, told=idle)) == ["host_bound"]
    assert sentence(launch(busy=None, told=idle)) == (
        "the GPU worked 31% of the time, by the driver's utilisation; the host sets the pace"
    )
    # Copies are not in it; the profile is the better word.
    assert names(launch(busy=None, told=idle, placement="pinned")) == []
    assert names(launch(busy=0.9, told=idle)) == []
    assert names(launch(busy=0.3, told=idle, placement="pinned")) == ["host_bound"]
    # Over less than a second it tells of what was before.
    brief = launch(busy=None, told=idle)
    brief = replace(brief, outcome=brief.outcome._replace(timed_between=[ORIGIN + 10, ORIGIN + 10.9]))
    assert names(brief) == []


def starting(seconds: float | None, launches: float | None = 120.0, **changes: Any) -> Record:
    """A launch with operators that the host starts in so many seconds each; a step of 0.1 s unless told else."""
    record = launch(**{"busy": 0.4, **changes})
    device = record.outcome.device
    device = device._replace(launches=launches, ceilings=DeviceCeilings(operator_start_seconds=seconds))
    return replace(record, outcome=record.outcome._replace(device=device))


@given(st.floats(1e-7, 1e-2), st.floats(1, 1e5))
def test_a_step_of_many_operators_is_launch_bound(seconds: float, launches: float) -> None:
    record = starting(seconds, launches)
    share = flags.starting_share(record.outcome)
    assert share == pytest.approx(seconds * launches / 0.1)
    assert names(record) == ["host_bound"]
    assert ("launch-bound" in sentence(record)) == (share >= flags.LAUNCH_BOUND_SHARE)
    assert ("all of a step" in sentence(record)) == (share >= 1)
    # A GPU that is busy all the time waits for nobody, whatever starting would cost.
    assert names(starting(seconds, launches, busy=0.95)) == []


WAITING = "the GPU worked 40% of the time; the host sets the pace"


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (launch(events=1.5), "GPU event time is 150.0% of wall time: the clock stopped before the GPU did"),
        (launch(events=0.9), "GPU event time is 90.0% of wall time: the rest was not the GPU's"),
        (
            starting(5.12e-6, 12000.4),
            f"{WAITING}: launch-bound, since starting 12000 operators at 5.12 us each takes about 61% of a step",
        ),
        (starting(5e-6), f"{WAITING}: starting 120 operators at 5 us each takes about 1% of a step"),
        (starting(2e-3), f"{WAITING}: launch-bound, since starting 120 operators at 2000 us each takes all of a step"),
        # Without a profile, or what starting costs, nothing is said of it.
        (starting(None), WAITING),
        (starting(5e-6, None), WAITING),
        (launch(busy=0.4), WAITING),
        (
            launch(told=telemetry(reasons=in_region(0x40 | 0x4, 0.5), sm_mhz=1200)),
            "the GPU was slowed 51% of the time: thermal slowdown by the hardware, at 1200 MHz",
        ),
    ],
)
def test_flags_in_words(record: Record, said: str) -> None:
    assert sentence(record) == said


@pytest.mark.parametrize(
    ("reason", "share", "expected"),
    [
        (0x20, 0.3, True),
        (0x40 | 0x8, 0.3, True),
        (0x80 | 0x4, 0.3, True),
        (0x40, 0.04, False),
        (0x8, 1 / 51, False),  # a change of clocks
        (0x4, 1.0, False),  # at its power limit, as it should be
        (0x1 | 0x2 | 0x10 | 0x100, 1.0, False),
    ],
)
def test_a_gpu_that_was_slowed_down(reason: int, share: float, expected: bool) -> None:
    told = telemetry(reasons=in_region(reason, share, outside=0x40))
    # Outside of the region it was hot all the time.
    assert names(launch(told=told)) == (["device_throttled"] if expected else [])


def test_one_sample_of_few_is_no_throttling() -> None:
    record = launch(told=telemetry(reasons=in_region(0x8, 1 / 51)))
    brief = replace(record, outcome=record.outcome._replace(timed_between=[ORIGIN + 10, ORIGIN + 11]))
    seen = gpu_evidence.observe_launch(brief.outcome, brief.telemetry)
    assert (seen.samples, seen.slowed_share) == (6, pytest.approx(1 / 6))
    assert names(brief) == []


def test_errors_of_the_memory() -> None:
    assert names(launch(told=telemetry(slow={"corrected": [3, 3, 3, 3]}))) == []
    told = telemetry(slow={"corrected": [3, 3, 3, 5], "uncorrected": [0, 0, 1, 1]})
    assert names(launch(told=told)) == ["ecc_errors"]
    assert "2 corrected and 1 uncorrected ECC errors" in sentence(launch(told=told))


def test_a_shared_gpu_is_contended_and_its_launch_repeated() -> None:
    shared = launch(told=telemetry([OWN, OTHER, OTHER]))
    assert sentence(shared) == "2 other processes held the GPU too; end them, or measure on another GPU"
    assert names(shared) == ["contended"]
    assert disturbed(shared, None)
    again = replace(launch(), attempt=1)
    assert last_attempts([shared, again]) == [again]
    # A GPU that is hot is hot the next time too.
    assert not disturbed(launch(told=telemetry(reasons=0x40)), None)


def test_a_slowed_gpu_makes_no_verdict() -> None:
    hot = launch(told=telemetry(reasons=0x40))
    assert left_out(hot, None)
    assert not left_out(launch(), None)
    records = [
        replace(record, side=side, launch=number)
        for number in range(8)
        for side, record in ((BASELINE, launch()), (CANDIDATE, hot))
    ]
    (cell,) = compare_sides(make.run(purpose="compare"), records, Host(make.MACHINE, "a machine")).cells
    assert cell.judgement.verdict is Verdict.CONTENDED
    assert "the GPU was slowed, in 8 of 8 pairs" in cell.judgement.sentence
    assert (cell.baseline.contended, cell.candidate.contended) == (0, 8)


def test_the_store_knows_whether_a_gpu_was_shared() -> None:
    assert contended(launch(told=telemetry([OWN, OTHER])), None) is True
    assert contended(launch(), None) is False
    assert contended(launch(told=telemetry(None)), None) is None
    assert contended(replace(launch(), telemetry=None), None) is None
    assert contended(launch(status=Status.CRASHED, samples_ns=[]), None) is None


def test_joules_of_a_mini_batch() -> None:
    seen = gpu_evidence.observe_launch(launch().outcome, telemetry())
    assert (seen.joules_per_minibatch, seen.energy_method) == (pytest.approx(30.0), "energy counter")
    no_counter = telemetry(joules=None, watts=280.0)
    seen = gpu_evidence.observe_launch(launch().outcome, no_counter)
    assert (seen.joules_per_minibatch, seen.energy_method) == (pytest.approx(28.0), "integral of power")
    # Half of the region was not of the timed steps: its energy is not theirs.
    seen = gpu_evidence.observe_launch(launch(step=0.05).outcome, telemetry())
    assert seen.joules_per_minibatch == pytest.approx(15.0)
    # A part of a GPU has no power of its own.
    part = telemetry()
    part["gpu"]["part"] = True
    seen = gpu_evidence.observe_launch(launch().outcome, part)
    assert (seen.joules_per_minibatch, seen.part_of_gpu) == (None, True)
    assert seen.watts is not None


def test_what_a_launch_shows() -> None:
    seen = gpu_evidence.observe_launch(launch(busy=0.5, events=0.99).outcome, telemetry(reasons=in_region(0x4, 1.0)))
    assert seen.name == "NVIDIA H200"
    assert (seen.event_per_wall, seen.busy_share, seen.busy_source) == (pytest.approx(0.99), 0.5, "profile")
    assert seen.temperature == (pytest.approx(55.0), 50.0, 60.0)
    assert seen.sm_mhz == (1980, 1980, 1980)
    assert (seen.clock_reasons, seen.slowed_share) == ({"power cap": 1.0}, 0.0)
    assert (seen.sent_bytes_per_second, seen.received_bytes_per_second) == (2000, None)
    assert (seen.samples, seen.other_processes, seen.power_limit_watts) == (51, 0, 700.0)
    assert (seen.peak_memory_bytes, seen.used_memory_bytes) == (5 * 10**9, 20 * 10**9)


def test_without_a_timed_region_nothing_is_derived_from_the_samples() -> None:
    told = launch().outcome
    seen = gpu_evidence.observe_launch(told._replace(timed_between=None), telemetry())
    assert (seen.watts, seen.samples, seen.other_processes, seen.joules_per_minibatch) == (None,) * 4
    assert seen.busy_share == pytest.approx(0.95)


def test_the_launches_of_a_cell_together() -> None:
    hot = telemetry(temperature=80, reasons=in_region(0x4, 1.0))
    records = [launch(events=0.99), launch(events=0.97), launch(events=1.0, told=hot)]
    seen = gpu_evidence.observe_device(records)
    assert seen.event_per_wall == pytest.approx(0.99)
    assert seen.temperature == (pytest.approx(55.0), 50.0, 80)
    assert seen.clock_reasons == {"power cap": pytest.approx(1 / 3)}
    assert seen.samples == 153
    assert gpu_evidence.observe_device([]) is None


def matrix_of(*records: Record) -> Any:
    return build_matrix(Results(tuple(replace(each, launch=place) for place, each in enumerate(records))))


def test_the_schema_describes_every_key_and_every_flag() -> None:
    schema = (Path(dlbench.reports.__path__[0]) / "SCHEMA.md").read_text()
    (cell,) = json_of_python.loads(exporter("matrix", "json")(matrix_of(launch())))
    table = schema.split("`device_evidence`, of the timed region")[1].split("`flags`, by name")[0]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", table, re.MULTILINE)
    assert {key for row in rows for key in re.findall(r"`(\w+)`", row)} == set(cell["device_evidence"])
    for kind in ("ecc_errors", "device_throttled", "device_time", "host_bound"):
        (found,) = [each for each in KINDS if each.name == kind]
        assert f"| `{kind}` | `{found.symbol}` |" in schema
