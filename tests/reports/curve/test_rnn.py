"""Small recurrent networks: lines, growth, crossings and threads of known laws, and the report in
every format."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import factory_of_records as make
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from properties import examples
from records_of_claims import small, tables_of

from dlbench.adapters.protocol import Status
from dlbench.reports.curve.curve import Curves
from dlbench.reports.curve.fits import crossing, fit_line
from dlbench.reports.curve.rnn import Size, SizeFindings, faster_from, growth, study, threads_words
from dlbench.reports.curve.rnn import published as study_of_2017
from dlbench.reports.results.statistics import RatioVerdict, Summary, published, summarise
from dlbench.reports.results.storage.store import Store

Call = Callable[..., tuple[int, str, str]]
STEPS = (10, 20, 50, 100, 200)
UNITS = (10, 20, 50, 100, 200, 500)
SECONDS = st.floats(1e-6, 1.0)


def spread(
    seconds: float, deviation: float, random: np.random.Generator, count: int = 5
) -> Summary:
    errors = random.normal(0, deviation, count)
    return summarise([[seconds * math.exp(error)] for error in errors])


@given(SECONDS, SECONDS, st.integers(2, 5))
@examples(50)
def test_a_line_without_noise_is_found_again(fixed: float, per_step: float, points: int) -> None:
    fit = fit_line({steps: published(fixed + per_step * steps) for steps in STEPS[:points]})
    first_point = fixed + per_step * STEPS[0]
    residual = fit.largest_residual
    assert fit.fixed.value == pytest.approx(fixed, rel=1e-6, abs=1e-7 * first_point)
    assert fit.per_step.value == pytest.approx(per_step, rel=1e-6, abs=1e-7 * first_point)
    assert (residual is None) is (fit.fixed.low is None) is (points == 2)
    assert residual is None or residual < 1e-6


@pytest.mark.parametrize("steps", [STEPS, (20, 100)])
def test_intervals_of_lines_cover_the_truth(steps: tuple[int, ...]) -> None:
    random = np.random.default_rng(1)
    hits = np.zeros(2)
    for _ in range(300):
        fit = fit_line({count: spread(1e-3 + 1e-5 * count, 0.02, random) for count in steps})
        hits[0] += fit.fixed.low <= 1e-3 <= fit.fixed.high
        hits[1] += fit.per_step.low <= 1e-5 <= fit.per_step.high
    assert np.all(hits / 300 > 0.91)


def test_the_study_of_2017_has_the_lines_worked_out_of_it_by_hand() -> None:
    """Seconds of 2000 updates and microseconds, by least squares of T itself."""
    expected = {
        ("Figure 2", 50): (6.59, 162.4),
        ("Figure 3", 100): (1.21, 156.5),
        ("Figure 9", 200): (8.48, 730.0),
    }
    curves = study_of_2017().curves
    fits = {(curve.cell.mode, fit.hidden): fit for curve in curves for fit in curve.findings.fits}
    for line, (fixed, per_step) in expected.items():
        assert fits[line].fixed.value * 2000 == pytest.approx(fixed, rel=0.07)
        assert fits[line].per_step.value * 1e6 == pytest.approx(per_step, rel=0.02)


@given(SECONDS, st.floats(-2.0, 3.0))
@examples(50)
def test_an_exponent_is_found_again(seconds: float, exponent: float) -> None:
    knee, sizes = growth({n: published(seconds * n**exponent) for n in UNITS})
    assert [size.hidden for size in sizes] == list(UNITS)
    for size in sizes[1:]:
        assert size.exponent.value == pytest.approx(exponent, abs=1e-9)
    first = next((n for n in UNITS if (n / 10) ** exponent > 1.1), None)
    assert set(knee) == {first}


@given(st.floats(3.0, 1500.0), st.floats(0.2, 2.0), st.floats(-1.0, 1.0))
@examples(60)
def test_a_crossing_of_two_powers_is_found_again(at: float, gain: float, slope: float) -> None:
    assume(all(abs(math.log(at / n)) > 1e-6 for n in UNITS))
    first = {n: published((n / at) ** (slope + gain)) for n in UNITS}
    second = {n: published((n / at) ** slope) for n in UNITS}
    crossed = crossing(first, second)
    if at < UNITS[0]:
        assert (crossed.units, crossed.words) == (0.0, "below 10")
    elif at > UNITS[-1]:
        assert (crossed.units, crossed.words) == (math.inf, "above 500")
    else:
        assert crossed.units == pytest.approx(at, rel=1e-6)
    assert (crossed.low, crossed.high) == (None, None)


def test_intervals_of_crossings_cover_the_truth() -> None:
    random = np.random.default_rng(4)
    hits = 0
    for _ in range(200):
        first = {n: spread(n / 70, 0.05, random) for n in UNITS}
        second = {n: spread(1.0, 0.05, random) for n in UNITS}
        crossed = crossing(first, second)
        assert crossed.low <= crossed.units <= crossed.high
        hits += crossed.low <= 70 <= crossed.high
    assert 0.91 < hits / 200 <= 1.0


@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        (
            (RatioVerdict.SLOWER, RatioVerdict.SLOWER, RatioVerdict.FASTER),
            "use 1 thread below n_rec 50",
        ),
        (
            (RatioVerdict.FASTER, RatioVerdict.FASTER, RatioVerdict.FASTER),
            "use 4 threads from n_rec 10 on, the smallest measured",
        ),
        (
            (RatioVerdict.FASTER, RatioVerdict.SLOWER, RatioVerdict.INCONCLUSIVE),
            "use 1 thread up to n_rec 50, the largest measured",
        ),
    ],
)
def test_from_how_many_units_on_threads_pay(verdicts: tuple[str, ...], words: str) -> None:
    smallest = faster_from(dict(zip(UNITS, verdicts, strict=False)))
    assert threads_words(4, smallest, UNITS[:3]) == words


# The report.

GRID = [Size(n, t) for n in (10, 100, 500) for t in (20, 50, 100)]


def launches(
    time: Callable[[Size], float], sizes: Iterable[Size] = GRID, **axes: object
) -> list[make.Record]:
    records = []
    for size in sizes:
        records += small(time(size), *size, **{"mode": "eager", **axes})
    return records


def everything() -> list[make.Record]:
    """A row with one thread and four, and on a GPU; another row; another machine."""
    gpu = {"device": "cuda:0", "threads": 4}
    return [
        *launches(lambda size: 1e-5 * size.steps * size.hidden, threads=1),
        *launches(lambda size: 1e-5 * size.steps * (20 + size.hidden / 2), threads=4),
        *launches(lambda size: 2e-3 * size.steps, **gpu),
        *launches(lambda size: 3e-5 * size.steps * size.hidden, threads=1, mode="loop"),
        *launches(lambda size: 2e-3 * size.steps**1.0, threads=1, machine="m-two"),
        *launches(lambda size: 1e-3, [Size(10, 20, 100), Size(100, 20, 2, "sigmoid")], threads=1),
    ]


def study_of(records: Iterable[make.Record]) -> Curves:
    cells = tables_of(records)
    return study(cells.matrix, cells.networks)


def test_lines_threads_crossings_and_rows() -> None:
    content = study_of(everything())
    rows = {
        (curve.cell.mode, curve.cell.device, curve.cell.threads, curve.host.fingerprint): curve
        for curve in content.curves
    }
    one_thread = rows["eager", "cpu", 1, make.MACHINE]
    fits = one_thread.findings.fits
    assert [(fit.hidden, fit.per_step.value) for fit in fits] == [
        (n, pytest.approx(1e-5 * n, rel=1e-4)) for n in (10, 100, 500)
    ]
    assert all(abs(fit.fixed.value) < 1e-5 * fit.hidden for fit in fits)
    assert {grown.knee.hidden for grown in one_thread.findings.growth if grown.inputs == 2} == {100}
    assert {
        row.faster_from for row in content.conclusions.threads if row.curve.cell.threads == 4
    } == {100}
    crossings = {
        (crossed.what, crossed.first.name, crossed.second.name): crossed.crossing
        for crossed in content.conclusions.crossings
    }
    at = crossings["torch eager", "1 thread of a machine [m-one]", "4 threads of a machine [m-one]"]
    # Linear in the logarithms between 10 units, where one thread takes 10 / 25 of four, and 100,
    # where it is 100 / 70.
    assert at.units == pytest.approx(10 ** (1 + math.log(25 / 10) / math.log(25 / 10 * 100 / 70)))
    # The GPU takes 200, the fastest thread count 70 with 100 units, and 270 with 500.
    on_gpu = crossings["torch", "cpu of a machine [m-one]", "cuda:0 of a machine [m-one]"]
    assert on_gpu.units == pytest.approx(100 * 5 ** (math.log(200 / 70) / math.log(270 / 70)))
    assert ("torch", "cpu of a machine [m-one]", "cpu of a machine [m-two]") in crossings
    compared = {
        (row.curve.cell.mode, row.curve.cell.device, row.curve.cell.threads): row
        for row in content.conclusions.compared
    }
    machines = {row.curve.host.fingerprint for row in content.conclusions.compared}
    assert machines == {make.MACHINE}
    assert set(compared) == {
        ("eager", "cpu", 1),
        ("eager", "cpu", 4),
        ("eager", "cuda:0", 4),
        ("loop", "cpu", 1),
    }
    loop, eager = compared["loop", "cpu", 1], compared["eager", "cpu", 1]
    assert loop.times_fastest.value == pytest.approx(3 * eager.times_fastest.value)
    assert (loop.fastest_at, {size.hidden for size in eager.fastest_at}) == ((), {10})
    assert (eager.sizes, eager.compared) == (9, 9)


def test_unusable_launches_are_in_the_first_table_alone() -> None:
    too_many_threads = {"threads": make.threads(1, 1.0, cpu_per_wall=3.0)}
    exceeding = [
        replace(record, outcome=record.outcome._replace(**too_many_threads))
        for size in GRID
        for record in small(1.0, *size, mode="eager", threads=1)
    ]
    (first, *_) = launches(lambda size: 1.0, GRID[:1], mode="loop")
    hole = replace(
        make.hole(Status.CRASHED, "signal 11", **first.cell._asdict()), network=first.network
    )
    content = study_of([*exceeding, hole])
    assert [len(curve.points) for curve in content.curves] == [9, 1]
    assert all(curve.findings == SizeFindings([], []) for curve in content.curves)
    assert content.conclusions.compared == []


def test_the_report_fits_a_terminal_and_its_mistakes_a_line(command: Call) -> None:
    with Store.open("kept.sqlite") as store:
        for record in everything():
            store.append(record)
    for words in (
        ("--quantity", "step"),
        ("--quantity", "paper", "--against", "brandfonbrener2017"),
    ):
        code, out, errors = command(
            "report", "rnn", "--store", "kept.sqlite", "--format", "terminal", *words
        )
        assert (code, errors) == (0, "")
        assert ("Figure 9" in out) is ("--against" in words)
        assert max(map(len, out.splitlines())) <= 80
    for words, part in (
        (("--against", "shi2016"), "published table"),
        (("--quantity", "seconds"), "choose one of update, step, paper"),
    ):
        code, out, errors = command("report", "rnn", "--store", "kept.sqlite", *words)
        assert (code, out) == (2, "")
        assert part in " ".join(errors.split())
