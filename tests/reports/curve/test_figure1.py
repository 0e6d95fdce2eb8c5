"""Time against mini-batch size: best sizes and knees of known laws, missing cells, tables, and the
picture."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import factory_of_records as make
import numpy as np
import pytest
from exported import exporters, texts
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from dlbench.adapters.protocol import Status
from dlbench.reports.curve.curve import Curve, Curves
from dlbench.reports.curve.figure1 import PAYS, fastest_sizes, figure1, figure1_to_picture, knee_of
from dlbench.reports.results.record import Record
from dlbench.reports.results.statistics import (
    RatioVerdict,
    Summary,
    judge_ratio,
    published,
    ratio,
    summarise,
)

FORMATS = exporters("figure1")
SIZES = (16, 32, 64, 128, 256, 512)


def saturating(
    half: float, sizes: Sequence[int] = SIZES, highest: float = 1000.0
) -> dict[int, float]:
    """Seconds of a device that gives half of its highest rate at a mini-batch of ``half``: T(b) =
    (b + half) / highest.

    A doubling from b multiplies the rate by 2 (b + half) / (2 b + half), which falls under 1.1 at b
    = 4.5 half.
    """
    return {size: (size + half) / highest for size in sizes}


def records_of(times: Mapping[int, float | Sequence[float]], **axes: Any) -> list[Record]:
    """Launches with these times by mini-batch size (three of each, half a per cent apart, unless
    given)."""
    return [
        r for size, t in times.items() for r in make.launches(t, 0.005, batch_size=size, **axes)
    ]


def figure_of(records: Sequence[Record]) -> Curves:
    return figure1(make.matrix(*records))


def holes(sizes: Mapping[int, Status], **axes: Any) -> list[Record]:
    return [
        make.hole(status, f"{status.value}!", batch_size=size, **axes)
        for size, status in sizes.items()
    ]


def line_of(times: Mapping[int, float | Sequence[float]], extra: Sequence[Record] = ()) -> Curve:
    (line,) = figure_of([*records_of(times), *extra]).curves
    return line


def text_of(records: Sequence[Record]) -> str:
    return " ".join(FORMATS["terminal"](figure_of(records)).split())


# Best and knee.


@pytest.mark.parametrize(
    ("half", "knee"), [(3.0, 16), (5.0, 32), (14.0, 64), (20.0, 128), (40.0, 256), (200.0, None)]
)
def test_the_knee_of_a_saturating_device_is_where_its_law_says(
    half: float, knee: int | None
) -> None:
    line = line_of(saturating(half))
    assert line.findings.knee.batch_size == knee
    # X(512) is the highest; X(b) is within 2 % of it from b = 512 half / (1.02 half + 0.02 * 512)
    # on.
    bound = 512 * half / (1.02 * half + 0.02 * 512)
    assert line.findings.best_batch_size == min(size for size in SIZES if size >= bound)


def test_growth_is_for_each_doubling_between_neighbours_that_take_part() -> None:
    curve = line_of({16: 1.0, 64: 2.0, 128: 4.0})
    first, second, third = (point.findings.growth_per_doubling for point in curve.points)
    assert first is None
    assert second.value == pytest.approx(math.sqrt(2.0))
    assert third.value == pytest.approx(1.0)
    # 15 % for a tripling are less than 10 % for a doubling: 1.1 ** log2(3) is 1.163.
    assert knee_of({100: published(1.0), 300: published(3.0 / 1.15)}).batch_size == 100
    assert knee_of({100: published(1.0), 300: published(3.0 / 1.18)}).batch_size is None


def test_the_interval_of_the_knee_covers_the_truth() -> None:
    random = np.random.default_rng(11)
    truth, covered, tries = 128, 0, 200
    for _ in range(tries):
        times = {
            size: summarise([[t * math.exp(0.02 * random.standard_normal())] for _ in range(4)])
            for size, t in saturating(20.0).items()
        }
        knee = knee_of(times)
        early = knee.earliest is not None and knee.earliest <= truth
        covered += early and (knee.latest is None or knee.latest >= truth)
    assert covered >= 0.95 * tries
    sharp = line_of(
        {size: [t * f for f in (0.9999, 1.0, 1.0001)] for size, t in saturating(20.0).items()}
    )
    assert set(sharp.findings.knee) == {128}


rates = st.dictionaries(
    st.sampled_from([2**n for n in range(3, 12)]), st.floats(10.0, 1e5), min_size=1
)
launches_of_a_size = st.lists(st.floats(0.9, 1.1), min_size=1, max_size=5)


@st.composite
def summaries(draw: st.DrawFn) -> dict[int, Summary]:
    """Seconds per mini-batch by size: anything from one published value to five launches."""
    return {
        size: summarise(
            [[size / rate * f, size / rate * f * 1.001] for f in draw(launches_of_a_size)]
        )
        for size, rate in draw(rates).items()
    }


@examples(80)
@given(summaries(), st.integers(-8, 8))
def test_best_and_knee_keep_to_their_definitions(times: dict[int, Summary], power: int) -> None:
    throughput = {size: size / seconds.median for size, seconds in times.items()}
    highest = max(throughput, key=lambda size: throughput[size])
    sizes, knee = fastest_sizes(times), knee_of(times)
    assert highest in sizes
    for size in times:
        # Compared by the same number of examples, not by their own mini-batches.
        compared = ratio(_times(times[size], 4096 / size), _times(times[highest], 4096 / highest))
        assert (size in sizes) is (judge_ratio(compared) is not RatioVerdict.SLOWER)
    # A device of another speed has the same best and knee.
    scaled = {size: _times(seconds, 2.0**power) for size, seconds in times.items()}
    assert (fastest_sizes(scaled), knee_of(scaled)) == (sizes, knee)
    if len(times) == 1:
        assert knee is None
        return
    at, earliest, latest = knee
    chosen = [size for size in (earliest, at, latest) if size is not None]
    assert chosen == sorted(chosen)
    assert all(size in times and size < max(times) for size in chosen)
    # None only in one order: shown not to pay, then not seen to, then not shown to.
    assert latest is None or at is not None
    assert at is None or earliest is not None
    for size in times:
        pays = any(
            throughput[c] / throughput[size] > (1 + PAYS) ** math.log2(c / size) * (1 + 1e-9)
            for c in times
            if c > size
        )
        assert not (pays and size == at)


def _times(seconds: Summary, factor: float) -> Summary:
    """Return the seconds of so many times the work."""
    low, high = (end and end * factor for end in (seconds.low, seconds.high))
    launches = tuple(launch * factor for launch in seconds.launch_medians)
    return replace(
        seconds, median=seconds.median * factor, low=low, high=high, launch_medians=launches
    )


# Which sizes take part.


@pytest.mark.parametrize("doubt", ["contended", "unproved", "older"])
def test_a_doubtful_size_takes_part_only_where_all_are(doubt: str) -> None:
    def doubtful(size: int, seconds: float) -> list[Record]:
        if doubt == "older":
            return records_of({size: seconds}, environment="older", minutes=-60.0)
        busy = make.contention(run_queue_seconds=5 * seconds / 2, others_cpu_seconds=5 * seconds)
        waiting = {"threads": make.threads(1, 5 * seconds, 0.5), "contention": busy}
        changes = (
            waiting
            if doubt == "contended"
            else {"parity": make.parity("unchecked", "no reference")}
        )
        result = make.outcome([seconds] * 5, **changes)
        return [make.record(result=result, batch_size=size, launch=n) for n in range(3)]

    records = [*records_of({16: 1.0, 32: 1.6, 64: 3.2}), *doubtful(128, 3.0)]
    (line,) = figure_of(records).curves
    assert [point.takes_part for point in line.points] == [True, True, True, False]
    assert line.findings.best_batch_size == 32
    assert "best of those that count at 32" in text_of(records)
    everywhere = line_of({}, [*doubtful(16, 1.0), *doubtful(32, 1.0)])
    assert [point.takes_part for point in everywhere.points] == [True, True]
    assert everywhere.findings.best_batch_size == 32


# Missing cells.


def test_memory_ends_at_the_smallest_size_that_did_not_fit_unless_a_larger_one_did() -> None:
    extra = holes({1024: Status.OUT_OF_MEMORY, 2048: Status.SKIPPED})
    line = line_of(saturating(200.0), extra)
    assert (line.findings.memory_ends_at, line.findings.best_batch_size) == (1024, 512)
    text = text_of([*records_of(saturating(200.0)), *extra])
    assert (
        "best at 512, 719 items/s, the largest that memory held; no knee: 512 still gains 28% for "
        "a doubling" in text
    )
    assert "out of memory from 1024" in text
    assert "torch eager at 2048: skip, skipped!" in text
    assert (
        line_of(saturating(20.0), holes({24: Status.OUT_OF_MEMORY})).findings.memory_ends_at is None
    )
    assert "Nothing was measured yet" in text_of([])


# The picture.


def test_the_picture_names_networks_rows_places_and_marks(tmp_path: Path) -> None:
    places = [{"device": f"cuda:{number}"} for number in range(8)]
    rows = [
        {"framework": "torch", "mode": "eager"},
        {"framework": "jax", "mode": "jit", "network": "resnet50"},
    ]
    records = [
        r for place in places for row in rows for r in records_of(saturating(10.0), **place, **row)
    ]
    content = figure_of([*records, *holes({1024: Status.OUT_OF_MEMORY}, **places[0], **rows[0])])
    first, second = figure1_to_picture(content, tmp_path / "figure1.svg", "items")
    assert second.name == "figure1-2.svg"
    words = set(texts(first))
    assert {
        "fcn5",
        "resnet50",
        "torch eager",
        "jax jit",
        "memory ended there",
        "cuda:5, 1 thread",
        "16",
    } <= words
    assert "cuda:6, 1 thread" in texts(second)
    assert any("knee" in text for text in words)
    assert any("items per" in text for text in words)


def test_any_figure_is_drawn_and_says_how_much_its_bars_cover(tmp_path: Path) -> None:
    # The extremes of three steps cover their median with 1 - 2 / 2**3.
    mixture = [make.record([1.0, 1.1, 0.9]), *records_of({128: 1.0})]
    many_sizes = records_of({size: 1e-4 * size for size in range(1, 40)})
    missing = holes({16: Status.CRASHED, 32: Status.OUT_OF_MEMORY})
    for records, caption in (
        (mixture, "75 to 95 % interval"),
        (many_sizes, "bars: 95 % interval"),
        (missing, ""),
    ):
        (written,) = figure1_to_picture(figure_of(records), tmp_path / "f.svg")
        assert caption in written.read_text(encoding="utf-8")
