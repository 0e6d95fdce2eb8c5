"""One launch over minutes: changes of its step and its memory are found, and none in a steady
one."""

import json
from dataclasses import replace

import factory_of_records as make
import numpy as np
import pytest
from exported import exporter
from numpy.typing import NDArray

from dlbench.adapters.protocol import SampleCounts
from dlbench.reports.curve.trend import FEWEST_PARTS, PARTS, Trend, parts_of, trend_of
from dlbench.reports.results.record import Record

STEADY = np.full(3000, 0.02)


def followed(
    seconds: NDArray[np.float64], memory: NDArray[np.float64] | None = None, steps: int = 1
) -> Record:
    """Return a launch with these samples of several steps, and its memory in MiB after each."""
    resident = [] if memory is None else [round(mib * 2**20) for mib in memory]
    counts = SampleCounts(
        [10 * steps] * len(seconds), [0] * len(seconds), [0] * len(seconds), resident
    )
    result = make.outcome(seconds * steps, sample_counts=counts, steps_per_sample=steps)
    record = make.record(result=result)
    return replace(record, protocol=record.protocol._replace(trend=True))


def trend(seconds: NDArray[np.float64], memory: NDArray[np.float64] | None = None) -> Trend:
    followed_trend = trend_of(followed(seconds, memory))
    assert followed_trend is not None
    return followed_trend


def noisy(rng: np.random.Generator, level: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return samples around a level, one in twenty of them a spike of another program."""
    spikes = np.where(rng.random(len(level)) < 0.05, 1.5, 1.0)
    return level * np.exp(rng.normal(0, 0.03, len(level))) * spikes


def test_in_steady_launches_changes_are_rarely_found() -> None:
    rng = np.random.default_rng(3)
    alarms = [trend(noisy(rng, STEADY)) for _ in range(100)]
    changed = sum(bool(alarm.changes.steps) or alarm.changes.drift is not None for alarm in alarms)
    assert changed <= 5


def test_a_step_that_takes_longer_from_a_moment_on_is_found_with_its_size_and_moment() -> None:
    rng = np.random.default_rng(4)
    level = np.where(np.arange(3000) < 2000, 0.02, 0.022)
    result = trend(noisy(rng, level))
    (step,) = result.changes.steps
    assert np.expm1(step.size) == pytest.approx(0.1, abs=0.02)
    after = level[:2000].sum() / 60
    assert result.parts[step.position].minutes == pytest.approx(
        after, abs=2 * result.minutes / PARTS
    )
    assert result.sentences[0].startswith("After ")
    assert "% longer." in result.sentences[0]


def test_memory_that_grows_by_degrees_is_found_and_steady_memory_is_not() -> None:
    rng = np.random.default_rng(5)
    growing = 500 + 100 * np.arange(3000) / 3000
    result = trend(noisy(rng, STEADY), growing)
    assert result.grown_mib == pytest.approx(100, abs=2)
    assert result.sentences[-1].startswith("Its memory grew from 50")
    at_once = trend(noisy(rng, STEADY), np.where(np.arange(3000) < 50, 500.0, 650.0))
    assert at_once.sentences[-1].startswith(
        "Its memory grew from 500 to 650 MiB, nine tenths of it within 0.0"
    )
    steady = trend(noisy(rng, STEADY), np.full(3000, 500.0))
    assert not any("memory grew" in sentence for sentence in steady.sentences)


def test_parts_divide_the_time_and_not_the_samples() -> None:
    level = np.concatenate([np.full(3000, 0.01), np.full(300, 0.1)])
    parts = parts_of(followed(level))
    assert len(parts) == PARTS
    gaps = np.diff([part.minutes for part in parts])
    assert np.allclose(gaps, gaps[0])
    assert sum(part.seconds > 0.05 for part in parts) == pytest.approx(PARTS / 2, abs=1)


def test_samples_of_several_steps_give_faults_of_a_step() -> None:
    parts = parts_of(followed(STEADY, steps=5))
    assert {part.faults for part in parts} == {10.0}
    assert parts[0].seconds == pytest.approx(0.02)


def test_a_launch_with_few_samples_says_so_and_one_that_was_not_followed_has_none() -> None:
    short = trend(np.full(12, 1.0))
    assert len(short.parts) < FEWEST_PARTS
    text = " ".join(exporter("trend", "terminal")([short]).split())
    assert "A search for changes needs 36 samples" in text
    assert trend_of(make.record()) is None
    assert "--trend 3m" in exporter("trend", "terminal")([])


def test_json_has_the_parts_and_the_changes() -> None:
    content = json.loads(exporter("trend", "json")([trend(STEADY, np.full(3000, 300.0))]))
    (row,) = content["rows"]
    assert len(row["parts"]) == PARTS
    assert row["parts"][0]["memory_mib"] == 300
    assert row["sentences"] == ["Neither its step nor its memory changes beyond noise."]
