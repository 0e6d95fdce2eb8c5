"""From nights to series and change points, as tables, JSON and a picture; what changed that
night."""

import csv
import io
import json
import math
from dataclasses import replace
from datetime import timedelta

import factory_of_records as factory
import numpy as np
import pandas as pd
import pytest
import simulated
from exported import exporter, texts
from scipy import stats

from dlbench.adapters.protocol import Protocol
from dlbench.reports.history import report as of_history
from dlbench.reports.history.nights import History, add_differences, build_history, series_of
from dlbench.reports.history.report import history_to_picture, what_else
from dlbench.reports.pytest_benchmark.imported import imported_cell
from dlbench.reports.results.commits import commit_in_words
from dlbench.reports.results.differences import differences
from dlbench.reports.results.hosts import FOREIGN_KEY, UNKNOWN_MACHINE

history_to_csv, history_to_json = (exporter("history", form) for form in ("csv", "json"))
history_to_terminal, history_to_markdown = (
    exporter("history", form) for form in ("terminal", "markdown")
)
CELLS = {
    1: factory.cell(),
    2: factory.cell(threads=2),
    3: factory.cell(network="lstm32", batch_size=128),
}


def together(*frames: pd.DataFrame) -> pd.DataFrame:
    """Return the nights in the store's order."""
    return pd.concat(frames).sort_values(
        ["started", "run", "cell", "side"], kind="stable", ignore_index=True
    )


def gate(cell: int, logs: tuple[np.ndarray, np.ndarray], **changes: object) -> list[pd.DataFrame]:
    baseline, candidate = logs
    return [
        simulated.rows(cell, "baseline", baseline, **changes),
        simulated.rows(cell, "candidate", candidate, **changes),
    ]


@pytest.fixture
def nights() -> pd.DataFrame:
    """60 nights of a gate over two cells, one of which is 5 % slower from night 40 on, and a plain
    run of a third."""
    rng = np.random.default_rng(5)
    return together(
        *gate(1, simulated.nights(rng, 60, "quiet", [(40, math.log(1.05))])),
        *gate(2, simulated.nights(rng, 60, "quiet")),
        simulated.rows(3, "", math.log(0.3) + simulated.nights(rng, 60, "quiet")[1]),
    )


def test_a_nights_interval_is_welchs_over_the_launches():
    rng = np.random.default_rng(6)
    baseline, candidate = simulated.nights(rng, 12)
    candidate = candidate * 2
    (ratio,) = series_of(together(*gate(1, (baseline, candidate))), CELLS)
    (plain,) = series_of(simulated.rows(1, "", candidate), CELLS)
    for place in range(12):
        theirs = stats.ttest_ind(
            candidate[place], baseline[place], equal_var=False
        ).confidence_interval(0.95)
        night = ratio.night(place)
        assert (night.low, night.high) == pytest.approx(
            (math.exp(theirs.low), math.exp(theirs.high))
        )
        alone = stats.ttest_1samp(candidate[place], 0).confidence_interval(0.95)
        night = plain.night(place)
        assert (night.low, night.high) == pytest.approx((math.exp(alone.low), math.exp(alone.high)))


def test_a_night_with_one_side_only_is_no_ratio():
    rng = np.random.default_rng(7)
    frame = together(*gate(1, simulated.nights(rng, 20)))
    lost = frame[~((frame["run"] == "run-007") & (frame["side"] == "baseline"))].reset_index(
        drop=True
    )
    (series,) = series_of(lost, CELLS)
    assert list(series.runs) == [f"run-{night:03d}" for night in range(20) if night != 7]


def test_machines_are_never_one_series():
    rng = np.random.default_rng(8)
    cells = {1: factory.cell(), 2: factory.cell()}
    first = simulated.rows(1, "", simulated.nights(rng, 15)[0], machine="here")
    second = simulated.rows(2, "", simulated.nights(rng, 15)[0] + 1, machine="there")
    all_series = series_of(together(first, second), cells)
    assert [(series.machine, len(series)) for series in all_series] == [("here", 15), ("there", 15)]
    assert build_history(together(first, second), cells).changes == []


def test_disturbed_nights_are_kept_and_not_searched():
    rng = np.random.default_rng(9)
    baseline, candidate = simulated.nights(rng, 60, "quiet", [(40, math.log(1.05))])
    disturbed = np.isin(np.arange(60), [10, 11, 12, 39, 40, 41])
    contended = disturbed | np.isin(
        np.arange(60), [20, 21]
    )  # of these nights as many launches were quiet
    candidate[disturbed] += 0.5
    frame = together(
        simulated.rows(1, "baseline", baseline),
        simulated.rows(
            1,
            "candidate",
            candidate,
            disturbed=np.where(contended, simulated.LAUNCHES, 0),
            quiet=~disturbed,
        ),
    )
    history = build_history(frame, CELLS)
    ((cell, change),) = history.changes
    assert len(cell) == 60
    assert [place for place in range(60) if not cell.night(place).searched] == [
        10,
        11,
        12,
        39,
        40,
        41,
    ]
    # The nights of the change itself are disturbed: the first undisturbed one after it is named,
    # and the last before.
    assert (change.night.run, change.night_before.run) == ("run-042", "run-038")
    assert change.percent[0] == pytest.approx(5, abs=0.5)
    assert "6 nights of some series" in " ".join(history_to_terminal(history).split())


def test_an_environment_that_changes_is_an_event_of_its_side():
    rng = np.random.default_rng(10)
    baseline, candidate = simulated.nights(rng, 30)
    digests = np.where(np.arange(30) < 12, "old", "new")
    frame = together(
        simulated.rows(1, "baseline", baseline),
        simulated.rows(1, "candidate", candidate, environment=digests),
    )
    (cell,) = build_history(frame, CELLS).cells
    assert [(place, *event) for place, event in cell.events] == [
        (12, "candidate", "environment", "old", "new")
    ]


def recorded(torch: str = "2.13.0", **changes: object):
    software = {
        "version": torch,
        "blas": "MKL",
        "distributions": {"torch": torch, "numpy": "2.4.0"},
    }
    record = factory.record(
        result=factory.outcome(software=software), environment=f"digest-{torch}"
    )
    return replace(record, **changes)


def test_differences_name_package_protocol_and_digest_and_nothing_measured():
    before, after = (
        recorded(),
        recorded("2.14.0", protocol=Protocol(steps=40), version="0.2.0", side="candidate"),
    )
    after = replace(after, started=after.started + timedelta(days=1), wall_seconds=99.0, launch=3)
    changed = {
        (difference.what, difference.before, difference.after)
        for difference in differences(before, after)
    }
    assert changed == {
        ("torch", "2.13.0", "2.14.0"),
        ("protocol steps", "20", "40"),
        ("dlbench", "0.1.0", "0.2.0"),
        ("environment", "digest-2.13.", "digest-2.14."),
    }
    assert {difference.side for difference in differences(before, after)} == {"candidate"}
    assert differences(before, replace(before, launch=4, run="another")) == ()


def test_differences_are_read_from_two_records_of_each_side_once(nights):
    keys_read = []

    def read(run: str, cell: int, side: str):
        keys_read.append((run, cell, side))
        return recorded(
            "2.14.0" if run == "run-040" and side == "candidate" else "2.13.0", side=side
        )

    history = add_differences(build_history(nights, CELLS), read)
    assert sorted(keys_read) == [
        (run, 1, side) for run in ("run-039", "run-040") for side in ("baseline", "candidate")
    ]
    ((_, change),) = history.changes
    assert {(difference.side, difference.what) for difference in change.differences} == {
        ("candidate", "torch"),
        ("candidate", "environment"),
    }
    assert "candidate: torch 2.13.0 -> 2.14.0" in history_to_markdown(history).replace("\\", "")
    unread = add_differences(build_history(nights, CELLS), read, most=0)
    assert unread.changes[0][1].differences is None
    assert "no record says" in history_to_markdown(unread)
    same = add_differences(
        build_history(nights, CELLS), lambda run, cell, side: recorded(side=side)
    )
    assert "nothing else that the records show" in history_to_markdown(same)


def history_of(cells: int, changed: tuple[int, ...] = (), of_gate: bool = False) -> History:
    """Return a history, of absolute times or of a gate, in which these cells are 5 % slower from
    night 15 on."""
    rng = np.random.default_rng(1)
    named = {number: factory.cell(threads=number + 1) for number in range(cells)}
    frames = []
    for number in named:
        sides = simulated.nights(
            rng, 30, "quiet", [(15, math.log(1.05))] if number in changed else []
        )
        frames += gate(number, sides) if of_gate else [simulated.rows(number, "", sides[1])]
    return build_history(together(*frames), named, machines={"m-one": "A machine, 2 CPUs"})


def test_an_svg_names_cells_changes_and_units(tmp_path):
    history = history_of(3, changed=(1,), of_gate=True)
    (written,) = history_to_picture(history, tmp_path / "history.svg")
    output = texts(written)
    assert sum("fcn5, mini-batch 64, torch eager" in text for text in output) == 3
    (change,) = [text for text in output if "▲" in text]
    assert "2026-01-16" in change
    assert f"{history.changes[0][1].percent[0]:+.1f} %" in change
    assert output.count("candidate / baseline") == 3
    assert any("night (UTC)" in text for text in output)
    assert any("A machine, 2 CPUs" in text for text in output)
    # The panel with the change comes first.
    assert "2 threads" in next(text for text in output if "mini-batch" in text)
    assert "seconds" in texts(history_to_picture(history_of(1), tmp_path / "absolute.svg")[0])


def test_a_page_holds_so_many_and_the_rest_follow_when_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(of_history, "PANELS", 4)
    history = history_of(9, changed=(8,))
    (single,) = history_to_picture(history, tmp_path / "one.svg")
    assert sum("mini-batch 64" in text for text in texts(single)) == 4
    assert any("9 threads" in text for text in texts(single))
    pages = history_to_picture(replace(history, everything=True), tmp_path / "all.svg")
    assert [page.name for page in pages] == ["all.svg", "all-2.svg", "all-3.svg"]
    titles = [text for page in pages for text in texts(page) if "mini-batch 64" in text]
    assert len(titles) == len(set(titles)) == 9


def drifting(
    nights: int = 30, first: int = 4, last: int = 28, disturbed: tuple[int, ...] = ()
) -> History:
    """Return a history of times that become 1 % slower a night between these two, and of others
    that do not."""
    rng = np.random.default_rng(2)
    rise = math.log(1.01) * (np.clip(np.arange(nights), first, last) - first)
    quiet = np.isin(np.arange(nights), disturbed, invert=True)
    frames = [
        simulated.rows(
            number,
            "",
            math.log(0.3) + size * rise[:, None] + rng.normal(0, 0.003, (nights, 5)),
            quiet=quiet,
        )
        for number, size in ((1, 1.0), (2, 0.0))
    ]
    return build_history(together(*frames), CELLS, machines={"m-one": "A machine, 2 CPUs"})


def test_a_drift_has_its_nights_its_size_and_what_it_amounts_to():
    history = drifting()
    ((series, drift),) = history.drifts
    assert series.number == 1
    assert (drift.first, drift.last) == pytest.approx((4, 28), abs=1)
    assert (drift.first_night, drift.last_night) == (
        series.night(drift.first),
        series.night(drift.last),
    )
    assert drift.ratio == pytest.approx(1.01**24, abs=0.02)
    assert drift.low <= 1.01**24 <= drift.high
    assert drift.percent_a_night == pytest.approx(1.0, abs=0.08)
    assert drift.slower
    assert drift.ongoing
    assert history.changes == []
    # The level is the one that the drift has led to.
    assert series.level == pytest.approx(0.3 * 1.01**24, rel=0.01)
    assert not drifting(40).drifts[0][1].ongoing


def test_disturbed_nights_do_not_count_as_nights_of_a_drift():
    ((series, drift),) = drifting(disturbed=(10, 11)).drifts
    assert (drift.first, drift.last) == pytest.approx((4, 28), abs=1)
    assert drift.nights == drift.last - drift.first + 1 - 2
    assert series.drifted[9] == series.drifted[11]


def test_a_drift_is_in_every_format():
    history = drifting()
    text = " ".join(history_to_terminal(history).split())
    assert "Slow drifts: many small changes in one direction" in text
    assert "No change point of 2.5 %." in text
    output = history_to_markdown(history).replace("\\", "")
    assert "slowly slower: +2" in output
    assert "about 1.0 % a night, absolute, adjusted p" in output
    assert "5 % of absolute times, which drift with their machine" in output
    (cell,) = json.loads(history_to_json(history))["cells"]
    assert cell["changes"] == []
    assert cell["drift"]["direction"] == "slower"
    assert cell["drift"]["state"] == "ongoing"
    assert cell["drift"]["ratio"] == pytest.approx(history.drifts[0][1].ratio)
    (line,) = csv.DictReader(io.StringIO(history_to_csv(history)))
    assert (line["state"], line["nights_before"], line["direction"]) == ("ongoing", "", "slower")
    assert line["run_last"] == history.drifts[0][1].last_night.run
    quiet = history_of(2)
    assert "No slow drift." in history_to_terminal(quiet)


def test_csv_has_a_line_for_each_change_and_each_drift():
    step, slope = history_of(3, changed=(1,)), drifting()
    history = replace(step, cells=(*step.cells, *slope.cells))
    lines = list(csv.DictReader(io.StringIO(history_to_csv(history))))
    assert [line["state"] for line in lines] == ["confirmed", "ongoing"]


def test_what_changed_along_a_drift_is_read_from_its_ends():
    history = drifting()
    ((_, drift),) = history.drifts
    ends = (drift.first_night.run, drift.last_night.run)

    def read(run: str, cell: int, side: str):
        assert (run in ends, cell, side) == (True, 1, "")
        return recorded("2.14.0" if run == ends[1] else "2.13.0")

    ((_, drift_with_differences),) = add_differences(history, read).drifts
    assert drift_with_differences.differences is not None
    assert ("torch", "2.13.0", "2.14.0") in {
        (difference.what, difference.before, difference.after)
        for difference in drift_with_differences.differences
    }
    assert "torch 2.13.0 -> 2.14.0" in history_to_markdown(add_differences(history, read)).replace(
        "\\", ""
    )


def test_a_picture_shades_a_drift(tmp_path):
    (written,) = history_to_picture(drifting(), tmp_path / "drift.svg")
    (label,) = [text for text in texts(written) if "slowly, over" in text]
    assert label.startswith("▲ +2")
    # The series with the drift comes first.
    assert "1 thread" in next(text for text in texts(written) if "fcn5, mini-batch" in text)


def test_nights_of_unknown_machines_are_shown_and_not_judged():
    rng = np.random.default_rng(3)
    series_with_step = simulated.nights(rng, 30, "quiet", [(15, math.log(1.5))])[1]
    frame = simulated.rows(1, "", series_with_step, machine=UNKNOWN_MACHINE)
    history = build_history(frame, CELLS)
    (series,) = history.cells
    assert len(series) == 30
    assert (series.changes, series.drift) == ((), None)
    assert build_history(simulated.rows(1, "", series_with_step), CELLS).changes != []
    text = " ".join(history_to_terminal(replace(history, everything=True)).split())
    assert "Not searched for changes: the machine is unknown." in text
    assert "Not searched: 1 series of an unknown machine." in text
    assert "No change" not in text
    assert json.loads(history_to_json(history))["series_searched"] == 0
    mixed = build_history(together(frame, simulated.rows(2, "", series_with_step)), CELLS)
    assert [series.machine for series, _ in mixed.changes] == ["m-one"]


COMMIT = {
    "id": "3f2a1c9b04" + 30 * "d",
    "branch": "main",
    "dirty": False,
    "project": "p",
    "time": "2026-03-01",
}


def from_file(
    interpreter: str = "CPython 3.11.7", options: dict[str, object] | None = None, **commit: object
):
    """Return a record of another program's benchmark, as its file is imported."""
    file_content = {
        "name": "test_a",
        "options": options or {},
        "version": "5.1.0",
        "commit_info": {**COMMIT, **commit},
    }
    cell = imported_cell("tests/test_a.py::test_a")._asdict()
    record = factory.record(result=factory.outcome(software={FOREIGN_KEY: file_content}), **cell)
    return replace(record, interpreter=interpreter, environment=f"digest of {interpreter}")


def test_commits_and_interpreters_of_imported_files_are_named():
    before = from_file()
    after = from_file("CPython 3.13.0", {"min_rounds": 5}, id=40 * "b", branch="topic", dirty=True)
    changed = [tuple(difference) for difference in differences(before, after)]
    assert changed == [
        ("", "commit", "3f2a1c9b04 (main)", "bbbbbbbbbb (topic, modified)"),
        ("", "interpreter", "CPython 3.11.7", "CPython 3.13.0"),
        ("", "option min_rounds", None, "5"),
    ]
    assert differences(before, from_file(time="2026-03-02")) == ()


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (COMMIT, "3f2a1c9b04 (main)"),
        ({**COMMIT, "dirty": True}, "3f2a1c9b04 (main, modified)"),
        ({**COMMIT, "branch": "(detached head)"}, "3f2a1c9b04"),
        ({"id": "unversioned", "branch": "(unknown)", "dirty": False}, ""),
        ({"id": None}, ""),
        ({}, ""),
        ({"id": "abc\x1b[31m"}, "abc\\x1b[31m"),
    ],
)
def test_a_commit_in_words(info, words):
    assert commit_in_words(info) == words


def test_a_change_of_an_imported_benchmark_claims_nothing_that_its_files_do_not_say():
    history = history_of(1, changed=(0,))
    ((series, change),) = history.changes
    unchanged = replace(change, differences=())
    assert "same packages, settings" in what_else(series, unchanged)
    imported = replace(series, cell=imported_cell("tests/test_a.py::test_a"))
    assert what_else(imported, unchanged) == "nothing else that the files of pytest-benchmark say"
