"""Time against mini-batch size: best sizes and knees of known laws, holes, exporters, and the picture."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import factory_of_records as make
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from records_of_figure1 import FORMATS, SIZES, figure_of, holes, records_of, saturating

from dlbench.adapters.protocol import Status
from dlbench.reports.figure1.analysis import PAYS, Line, fastest_sizes, find_knee
from dlbench.reports.statistics import Summary, judge, published, ratio, summarise
from dlbench.reports.storage.record import Record


def line_of(times: Mapping[int, float | Sequence[float]], extra: Sequence[Record] = ()) -> Line:
    (panel,) = figure_of([*records_of(times), *extra]).panels
    (line,) = panel.lines
    return line


# Best and knee.


@pytest.mark.parametrize(("half", "knee"), [(3.0, 16), (5.0, 32), (14.0, 64), (20.0, 128), (40.0, 256), (200.0, None)])
def test_the_knee_of_a_saturating_device_is_where_its_law_says(half: float, knee: int | None) -> None:
    line = line_of(saturating(half))
    assert line.knee.batch_size == knee
    # X(512) is the highest; X(b) is within 2 % of it from b = 512 half / (1.02 half + 0.02 * 512) on.
    bound = 512 * half / (1.02 * half + 0.02 * 512)
    assert line.best == min(size for size in SIZES if size >= bound)


def test_a_slow_size_in_the_middle_makes_no_knee() -> None:
    line = line_of({16: 0.016, 32: 0.0315, 64: 0.034, 128: 0.068, 256: 0.136})
    # From 16 to 32 nothing is gained, but from 16 to 64 nearly twice.
    assert line.knee.batch_size == 64
    assert line.best == 64
    assert line.as_fast == (128, 256)


def test_steps_that_are_no_doublings_are_held_to_the_same_rate_of_growth() -> None:
    # 15 % for a tripling are less than 10 % for a doubling: 1.1 ** log2(3) is 1.163.
    found = find_knee({100: published(1.0), 300: published(3.0 / 1.15)})
    assert found.batch_size == 100
    found = find_knee({100: published(1.0), 300: published(3.0 / 1.18)})
    assert found.batch_size is None


def test_intervals_leave_room_for_the_knee() -> None:
    sharp, noisy = (
        line_of({size: [t * f for f in factors] for size, t in saturating(20.0).items()}).knee
        for factors in ((0.9999, 1.0, 1.0001), (0.93, 1.0, 1.07))
    )
    assert (sharp.earliest, sharp.batch_size, sharp.latest) == (128, 128, 128)
    assert noisy.batch_size == 128
    assert noisy.earliest < 128
    assert noisy.latest is None or noisy.latest > 128


def test_the_interval_of_the_knee_covers_the_truth() -> None:
    random = np.random.default_rng(11)
    truth, covered, tries = 128, 0, 200
    for _ in range(tries):
        times = {
            size: summarise([[t * math.exp(0.02 * random.standard_normal())] for _ in range(4)])
            for size, t in saturating(20.0).items()
        }
        knee = find_knee(times)
        early = knee.earliest is not None and knee.earliest <= truth
        covered += early and (knee.latest is None or knee.latest >= truth)
    assert covered >= 0.95 * tries


rates = st.dictionaries(st.sampled_from([2**n for n in range(3, 12)]), st.floats(10.0, 1e5), min_size=1)
launches_of_a_size = st.lists(st.floats(0.9, 1.1), min_size=1, max_size=5)


@st.composite
def summaries(draw: st.DrawFn) -> dict[int, Summary]:
    """Seconds per mini-batch by size: anything from one published value to five launches."""
    return {
        size: summarise([[size / rate * f, size / rate * f * 1.001] for f in draw(launches_of_a_size)])
        for size, rate in draw(rates).items()
    }


@examples(80)
@given(summaries())
def test_best_and_knee_keep_to_what_they_promise(times: dict[int, Summary]) -> None:
    throughput = {size: size / seconds.median for size, seconds in times.items()}
    highest = max(throughput, key=lambda size: throughput[size])
    sizes = fastest_sizes(times)
    assert highest in sizes
    for size in times:
        # Held against one another by the same number of examples, not by their own mini-batches.
        told = ratio(_same_items(times[size], size), _same_items(times[highest], highest))
        assert (size in sizes) is (judge(told) != "worse")
    knee = find_knee(times)
    if len(times) == 1:
        assert knee is None
        return
    largest = max(times)
    chosen = [size for size in (knee.earliest, knee.batch_size, knee.latest) if size is not None]
    assert chosen == sorted(chosen)
    assert all(size in times and size < largest for size in chosen)
    # None only in one order: shown not to pay, then not seen to, then not shown to.
    assert knee.latest is None or knee.batch_size is not None
    assert knee.batch_size is None or knee.earliest is not None
    for size in times:
        pays = any(
            throughput[c] / throughput[size] > (1 + PAYS) ** math.log2(c / size) * (1 + 1e-9) for c in times if c > size
        )
        assert not (pays and size == knee.batch_size)


def _same_items(seconds: Summary, size: int) -> Summary:
    """Return the seconds of 4096 examples, by repeating the mini-batch."""
    factor = 4096 / size
    return replace(
        seconds,
        median=seconds.median * factor,
        low=None if seconds.low is None else seconds.low * factor,
        high=None if seconds.high is None else seconds.high * factor,
        launch_medians=tuple(each * factor for each in seconds.launch_medians),
    )


@given(rates, st.integers(-8, 8))
def test_a_device_of_another_speed_has_the_same_best_and_knee(found: dict[int, float], power: int) -> None:
    times = {size: published(size / rate) for size, rate in found.items()}
    scaled = {size: published(size / rate * 2.0**power) for size, rate in found.items()}
    assert fastest_sizes(times) == fastest_sizes(scaled)
    assert find_knee(times) == find_knee(scaled)


# What takes part.


def test_wrong_mathematics_and_too_many_threads_cannot_be_used() -> None:
    wrong = make.outcome([0.001] * 5)._replace(parity=make.parity("disagrees"), status=Status.PARITY_FAILED)
    greedy = make.outcome([0.001] * 5)._replace(threads=make.threads(1, 0.5, 4.0))
    extra = [make.record(result=wrong, batch_size=1024), make.record(result=greedy, batch_size=2048)]
    line = line_of(saturating(20.0), extra)
    assert [point.batch_size for point in line.timed] == list(SIZES)
    assert line.best <= 512


def contended(size: int, seconds: float) -> list[Record]:
    waiting = make.contention(run_queue_seconds=5 * seconds / 2, others_cpu_seconds=5 * seconds)
    result = make.outcome([seconds] * 5, threads=make.threads(1, 5 * seconds, 0.5), contention=waiting)
    return [make.record(result=result, batch_size=size, launch=n) for n in range(3)]


def test_a_size_where_others_were_in_the_way_takes_part_only_where_they_were_everywhere() -> None:
    line = line_of({16: 1.0, 32: 1.6, 64: 3.2}, contended(128, 3.0))
    assert [point.takes_part for point in line.points] == [True, True, True, False]
    assert line.best == 32
    text = FORMATS["terminal"](figure_of([*records_of({16: 1.0, 32: 1.6, 64: 3.2}), *contended(128, 3.0)]))
    assert "best of those that count at 32" in " ".join(text.split())
    everywhere = line_of({}, [*contended(16, 1.0), *contended(32, 1.0)])
    assert [point.takes_part for point in everywhere.points] == [True, True]
    assert everywhere.best == 32


def test_a_size_that_proved_nothing_takes_part_only_where_none_did() -> None:
    def unproved(size: int, seconds: float) -> list[Record]:
        result = make.outcome([seconds] * 5, parity=make.parity("unchecked", "no reference"))
        return [make.record(result=result, batch_size=size, launch=n) for n in range(3)]

    assert line_of({16: 1.0, 32: 1.5}, unproved(64, 1.6)).best == 32
    assert line_of({}, [*unproved(32, 1.5), *unproved(64, 1.6)]).best == 64


def test_a_size_of_an_older_build_takes_no_part() -> None:
    old = records_of({16: 0.001}, environment="older")
    new = [record for size in (32, 64) for record in records_of({size: size / 100}, minutes=60.0)]
    line = line_of({}, [*old, *new])
    assert [point.takes_part for point in line.points] == [False, True, True]
    assert line.best == 32


def test_growth_is_of_neighbours_that_take_part_for_each_doubling() -> None:
    first, second, third = line_of({16: 1.0, 64: 2.0, 128: 4.0}).points
    assert first.growth is None
    assert second.growth.value == pytest.approx(math.sqrt(2.0))
    assert third.growth.value == pytest.approx(1.0)


# Holes, single sizes, lines and panels.


def test_memory_ends_at_the_smallest_size_that_did_not_fit_unless_a_larger_one_did() -> None:
    extra = holes({1024: Status.OUT_OF_MEMORY, 2048: Status.SKIPPED})
    line = line_of(saturating(200.0), extra)
    assert line.memory_ends == 1024
    assert line.best == 512
    text = " ".join(FORMATS["terminal"](figure_of([*records_of(saturating(200.0)), *extra])).split())
    assert "best at 512, 719 items/s, the largest that memory held; no knee: 512 still gains 28% for a doubling" in text
    assert "out of memory from 1024" in text
    assert "torch eager at 2048: skip, skipped!" in text
    odd = line_of(saturating(20.0), holes({24: Status.OUT_OF_MEMORY}))
    assert odd.memory_ends is None


def test_a_single_size_has_nothing_to_be_compared_with() -> None:
    line = line_of({64: 1.0})
    assert (line.best, line.knee, line.as_fast) == (64, None, ())
    text = FORMATS["terminal"](figure_of(records_of({64: 1.0})))
    assert "torch eager: only 64 was measured: nothing to compare." in text
    assert "k the knee" not in text


def test_rows_of_a_single_size_are_left_out_beside_curves_and_counted() -> None:
    records = [*records_of(saturating(20.0)), *records_of({64: 1.0}, threads=2)]
    records += records_of({128: 1.0}, network="lstm32")
    found = figure_of(records)
    assert [(panel.network, len(panel.lines)) for panel in found.panels] == [("fcn5", 1)]
    assert "Not shown: 2 rows measured at one mini-batch size only (fcn5, lstm32)." in " ".join(
        FORMATS["terminal"](found).split()
    )


def test_a_row_without_any_number_has_no_column_but_its_reason() -> None:
    nothing = holes({16: Status.UNSUPPORTED, 32: Status.UNSUPPORTED}, framework="theano", mode="compiled")
    text = FORMATS["terminal"](figure_of([*records_of(saturating(20.0)), *nothing]))
    assert "theano compiled at 16, 32: n/a, unsupported!" in text
    (head,) = [line for line in text.splitlines() if line.startswith("mini-batch")]
    assert head.split() == ["mini-batch", "torch", "eager"]
    only = FORMATS["terminal"](figure_of(nothing))
    assert "theano compiled at 16, 32: n/a, unsupported!" in only


def test_precisions_devices_and_machines_are_lines_of_their_own_in_one_panel() -> None:
    times = saturating(20.0, (16, 32, 64))
    records = [
        *records_of(times),
        *records_of(times, device="cuda:0"),
        *records_of(times, device="cuda:0", precision="bfloat16"),
        *records_of(times, device="cuda:1"),
        *records_of(times, device="cuda:0", machine="m-two"),
    ]
    found = figure_of(records, description=(("GPU 0", "NVIDIA H200, 140 GiB"), ("GPU 1", "NVIDIA H200, 140 GiB")))
    (panel,) = found.panels
    assert len(panel.lines) == len(set(found.places)) == 5
    text = FORMATS["terminal"](found)
    for title in (
        "fcn5, on cpu, 1 thread, float32, of machine m-one",
        "fcn5, on cuda:0 (NVIDIA H200), float32, of machine m-one",
        "fcn5, on cuda:0 (NVIDIA H200), bfloat16, of machine m-one",
        "fcn5, on cuda:1 (NVIDIA H200), float32, of machine m-one",
        "fcn5, on cuda:0 (NVIDIA H200), float32, of machine m-two",
    ):
        assert title in text.splitlines()


def test_workers_are_lines_of_their_own_in_one_panel() -> None:
    times = saturating(20.0, (16, 32, 64))
    records = [
        record
        for world_size in (1, 2, 4)
        for record in (
            *records_of(times, device="cuda:0", world_size=world_size),
            *records_of(times, threads=2, world_size=world_size),
        )
    ]
    found = figure_of(records, description=(("GPU 0", "NVIDIA H200, 140 GiB"),))
    (panel,) = found.panels
    assert [(line.place.device, line.place.world_size) for line in panel.lines] == [
        (device, world_size) for device in ("cpu", "cuda:0") for world_size in (1, 2, 4)
    ]
    assert all([point.batch_size for point in line.points] == [16, 32, 64] for line in panel.lines)
    titles = FORMATS["terminal"](found).splitlines()
    assert "fcn5, on cpu, 2 threads x 2 workers, of machine m-one" in titles
    assert "fcn5, on cuda:0 (NVIDIA H200) x 4 workers of machine m-one" in titles
