"""The quiet gate: what counts as quiet, and how it waits."""

import dataclasses
import os
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_machines import READING

from dlbench.hardware_probe.sentinel import Reading, SentinelError, take
from dlbench.suites.run import quiet_machine as quiet
from dlbench.suites.run.quiet_machine import (
    QuietGate,
    Verdict,
    judge_reading,
    shortfall_allowed,
    upper_quartile,
    wait_until_quiet,
)

# The pressure is that of one's own last launch: no reason to wait.
CALM = dataclasses.replace(READING, waiting_share=0.004, pressure_avg10=0.4, others_cpus=0.05, cpus=4.0)


def reading(**changes: object) -> Reading:
    return dataclasses.replace(CALM, **changes)  # type: ignore[arg-type]


def noisy(random_numbers: random.Random, deviation: float, count: int, level: float = 1.0) -> list[Reading]:
    """Readings of a machine left alone whose sentinel repeats itself to within `deviation` (a share)."""
    return [
        reading(
            gemm_flops_per_second=100e9 * level * random_numbers.gauss(1, deviation),
            bandwidth_bytes_per_second=20e9 * level * random_numbers.gauss(1, deviation),
        )
        for _ in range(count)
    ]


def test_calm_is_quiet_whatever_the_kernels_memory_says() -> None:
    assert judge_reading(CALM) == Verdict(True)
    assert judge_reading(reading(pressure_avg10=1.0)).quiet


def test_what_is_not_told_is_no_reason() -> None:
    bare = reading(waiting_share=None, steal_share=None, pressure_share=None, pressure_avg10=None, others_cpus=None)
    assert judge_reading(bare).quiet


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pressure_share": 0.05}, "programs waited for a CPU 5% of the time (limit 5%)"),
        ({"waiting_share": 0.3}, "the sentinel itself waited for a CPU 30% of the time (limit 5%)"),
        ({"steal_share": 0.12}, "the host of this virtual machine withheld the CPU 12% of the time (limit 5%)"),
        ({"others_cpus": 1.0}, "other programs used 1.0 of 4 CPUs"),
        ({"others_cpus": 0.2, "cpus": 1.5}, "other programs used 0.2 of 1.5 CPUs"),
    ],
)
def test_each_disturbance_is_told(changes: dict[str, float], said: str) -> None:
    verdict = judge_reading(reading(**changes))
    assert not verdict.quiet
    assert verdict.reasons == (said,)


def test_every_reason_is_told() -> None:
    assert (
        len(judge_reading(reading(pressure_share=0.5, waiting_share=0.5, steal_share=0.5, others_cpus=3.0)).reasons)
        == 4
    )


def test_slower_than_its_own_record() -> None:
    record = noisy(random.Random(1), 0.003, 20)
    verdict = judge_reading(reading(gemm_flops_per_second=95e9), record)
    assert verdict.reasons == ("matrix products ran at 95% of this machine's usual rate (limit 97%)",)
    assert judge_reading(reading(gemm_flops_per_second=98e9), record).quiet
    assert judge_reading(reading(gemm_flops_per_second=150e9), record).quiet  # faster is no reason
    slow = judge_reading(reading(bandwidth_bytes_per_second=12e9), record)
    assert slow.reasons == ("memory was read and written at 60% of this machine's usual rate (limit 90%)",)


def test_rates_wait_for_a_record() -> None:
    slow = reading(gemm_flops_per_second=10e9)
    assert judge_reading(slow, [CALM] * (quiet.ENOUGH_READINGS - 1)).quiet
    assert not judge_reading(slow, [CALM] * quiet.ENOUGH_READINGS).quiet


def test_disturbed_and_foreign_readings_are_no_record() -> None:
    slow = reading(gemm_flops_per_second=10e9)
    assert judge_reading(slow, [reading(pressure_share=0.3)] * 50).quiet
    assert judge_reading(slow, [reading(method="another NumPy")] * 50).quiet
    # Nor do they push the calm ones out.
    assert not judge_reading(slow, [CALM] * quiet.ENOUGH_READINGS + [reading(pressure_share=0.3)] * 500).quiet


def test_an_old_record_is_forgotten() -> None:
    faster_host, this_host = [reading(gemm_flops_per_second=200e9)] * 500, [CALM] * quiet.RECORD_LENGTH
    assert not judge_reading(CALM, faster_host).quiet
    assert judge_reading(CALM, faster_host + this_host).quiet


@pytest.mark.parametrize("deviation", [0.002, 0.005, 0.01, 0.02, 0.04])
def test_the_sentinels_own_noise_is_not_held_against_a_quiet_machine(deviation: float) -> None:
    numbers = random.Random(7)
    refused = tried = 0
    for _ in range(300):
        history = noisy(numbers, deviation, quiet.RECORD_LENGTH)
        tried += 10
        refused += sum(not judge_reading(each, history).quiet for each in noisy(numbers, deviation, 10))
    # Two rates, three standard deviations each: 0.3 % with a spread known exactly. Estimated from 40 it is more.
    assert refused / tried < 0.03


@pytest.mark.parametrize(
    ("deviation", "unseen", "level"),
    [(0.002, 0, 0.9), (0.005, 0, 0.9), (0.01, 0, 0.9), (0.005, quiet.RECORD_LENGTH // 3, 0.8)],
)
def test_a_neighbour_that_takes_a_tenth_is_seen(deviation: float, unseen: int, level: float) -> None:
    """Or a fifth, where neighbours that were not seen slowed a third of the record down as much."""
    numbers = random.Random(8)
    seen = 0
    for _ in range(300):
        history = noisy(numbers, deviation, quiet.RECORD_LENGTH - unseen) + noisy(numbers, deviation, unseen, level)
        numbers.shuffle(history)
        seen += not judge_reading(noisy(numbers, deviation, 1, level)[0], history).quiet
    assert seen > 285


rates = st.lists(st.floats(1e6, 1e13), min_size=quiet.ENOUGH_READINGS, max_size=60)


@given(rates, st.sampled_from([0.03, 0.1]))
def test_the_limit_stays_within_its_bounds(values: list[float], least: float) -> None:
    assert least <= shortfall_allowed(values, least) <= quiet.LARGEST_SHORTFALL
    assert min(values) <= upper_quartile(values) <= max(values)


@given(rates, st.floats(0.01, 100))
def test_units_do_not_matter(values: list[float], factor: float) -> None:
    scaled = [factor * value for value in values]
    assert shortfall_allowed(scaled, 0.03) == pytest.approx(shortfall_allowed(values, 0.03), rel=1e-6)


class Timeline:
    """A clock that only sleeping and reading move, by the second."""

    def __init__(self, quiet_from: float) -> None:
        self.now, self.quiet_from, self.pauses = 0.0, quiet_from, []  # type: ignore[var-annotated]

    def take(self) -> Reading:
        self.now += 0.4
        return reading(pressure_share=0.0 if self.now >= self.quiet_from else 0.5)

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.pauses.append(seconds)
        self.now += seconds

    def wait(self, patience: float) -> quiet.Waited:
        return wait_until_quiet(self.take, judge_reading, patience, self.sleep, lambda: self.now)


def test_a_quiet_machine_waits_for_nothing() -> None:
    timeline = Timeline(0)
    waited = timeline.wait(60)
    assert waited.verdict.quiet
    assert len(waited.readings) == 1
    assert timeline.pauses == []


def test_it_backs_off_and_goes_on_once_it_is_quiet() -> None:
    timeline = Timeline(20)
    waited = timeline.wait(600)
    assert waited.verdict.quiet
    assert timeline.pauses == [1, 2, 4, 8, 16]
    assert len(waited.readings) == 6


def test_patience_ends() -> None:
    timeline = Timeline(1e9)
    waited = timeline.wait(60)
    assert not waited.verdict.quiet
    assert waited.verdict.reasons
    assert timeline.now == pytest.approx(60.4)  # the last reading begins when patience ends
    assert waited.seconds == pytest.approx(60.4)
    assert max(timeline.pauses) == 16


@given(st.floats(0, 500), st.floats(0, 2000))
def test_never_spins_and_never_much_longer_than_patience(patience: float, quiet_from: float) -> None:
    timeline = Timeline(quiet_from)
    waited = timeline.wait(patience)
    assert waited.seconds <= patience + 1
    assert len(waited.readings) <= 7 + patience / 16 + 1
    assert waited.verdict.quiet or waited.seconds >= patience


def test_the_gate_keeps_its_readings_and_judges_by_the_earlier_ones() -> None:
    coming = [reading(gemm_flops_per_second=90e9), reading(gemm_flops_per_second=99e9)]
    pauses: list[float] = []
    gate = QuietGate([CALM] * 10, 60.0, take=lambda: coming.pop(0), sleep=pauses.append, clock=lambda: 0.0)
    waited = gate.wait()
    assert waited.verdict.quiet
    assert pauses == [1.0]
    assert [each.gemm_flops_per_second for each in gate.record[10:]] == [90e9, 99e9]
    assert waited.readings == tuple(gate.record[10:])


def test_a_machine_that_is_never_quiet_takes_no_more_than_twice_the_patience() -> None:
    timeline = Timeline(1e9)
    gate = QuietGate([], 60.0, timeline.take, timeline.sleep, lambda: timeline.now)
    waits = [gate.wait() for _ in range(1200)]
    assert not any(waited.verdict.quiet for waited in waits)
    assert sum(timeline.pauses) <= 2 * 60
    assert waits[0].seconds >= 60
    assert waits[-1].seconds < 1
    assert waits[0].verdict.reasons == ("programs waited for a CPU 50% of the time (limit 5%)",)
    timeline.quiet_from = timeline.now
    assert gate.wait().verdict.quiet
    timeline.quiet_from = 1e9
    assert gate.wait().seconds >= 60


def test_a_look_waits_for_nothing() -> None:
    gate = QuietGate(take=lambda: reading(pressure_share=0.9), sleep=pytest.fail)
    assert not gate.look().verdict.quiet
    assert len(gate.record) == 1


def test_a_sentinel_that_cannot_run_is_told() -> None:
    def broken() -> Reading:
        raise SentinelError("no NumPy")

    with pytest.raises(SentinelError, match="no NumPy"):
        QuietGate(take=broken).wait()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity on this system")
def test_a_real_neighbour_is_seen() -> None:
    """Two programs that never rest, held to the CPU of this process and its sentinel."""
    allowed = os.sched_getaffinity(0)
    one = {min(allowed)}
    os.sched_setaffinity(0, one)
    try:
        neighbours = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
        try:
            verdict = judge_reading(take())
        finally:
            for each in neighbours:
                each.kill()
                each.wait()
    finally:
        os.sched_setaffinity(0, allowed)
    assert not verdict.quiet
    assert any("the sentinel itself waited" in reason for reason in verdict.reasons), verdict.reasons
