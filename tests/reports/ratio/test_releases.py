"""Releases in their order: each against the one before it, changes beyond noise, and what else
changed."""

import itertools
import json
from collections.abc import Sequence
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

from dlbench.adapters.families.own import Own
from dlbench.adapters.networks import digest, specification
from dlbench.adapters.protocol import Status
from dlbench.reports.ratio.releases import REPORT, Releases, headline, largest_undecided, releases
from dlbench.reports.report import ReportOptions
from dlbench.reports.results.record import RELEASES, Record
from dlbench.reports.results.statistics import ratio

FORMATS = exporters("releases")


def launches(
    version: str, seconds: Sequence[float], packages: dict[str, str] | None = None, **more: Any
) -> list[Record]:
    """One launch for each of these seconds of a release of JAX."""
    software = {
        "version": version,
        "numpy": (packages or {}).get("numpy", "2.0.0"),
        "distributions": {"jax": version, "jaxlib": version, "numpy": "2.0.0", **(packages or {})},
        "released": "2024-05-06",
    }
    of_cell = {
        "framework": f"jax-{version}",
        "adapter": "jax",
        "mode": "jit",
        "network": "lstm32",
        **more,
    }
    return make.changed(make.launches(seconds, environment=version, **of_cell), software=software)


def analyse(*several: list[Record], order: Sequence[str] = (), run: str = "run-1") -> Releases:
    """The releases of a run that planned them in this order, else in that of their records."""
    records = [record for launches_of_release in several for record in launches_of_release]
    cells = {record.cell.framework: record.cell for record in records if record.run == run}
    plan = tuple(cells[f"jax-{version}"] for version in order) or tuple(cells.values())
    return releases(make.matrix(*records), records, [make.run(id=run, plan=plan, purpose=RELEASES)])


def around(level: float, spread: float = 0.01) -> list[float]:
    return [
        level * factor for factor in (1 - spread, 1.0, 1 + spread, 1 - spread / 2, 1 + spread / 2)
    ]


@given(st.lists(st.sampled_from([0.8, 1.0, 1.25]), min_size=2, max_size=9))
@examples(20)
def test_a_change_is_marked_where_the_level_changes_and_nowhere_else(levels: list[float]) -> None:
    points = analyse(
        *(launches(f"0.{place}", around(level)) for place, level in enumerate(levels))
    ).rows
    steps = [later / earlier for earlier, later in itertools.pairwise(levels)]
    assert points[0].change == ""
    for point, step in zip(points[1:], steps, strict=True):
        if step == 1:
            assert point.change == ""
        else:
            assert point.change == ("slower" if step > 1 else "faster")
    for place, point in enumerate(points):
        assert point.name == f"0.{place}"
    for point, level in zip(points[1:], levels[1:], strict=True):
        assert point.to_first is not None
        assert point.to_first.value == pytest.approx(level / levels[0])


def test_of_releases_that_are_alike_few_series_have_a_change_at_all() -> None:
    """Of 8 comparisons without adjustment, one in three series would."""
    random = np.random.default_rng(1)
    false = 0
    for _ in range(60):
        seconds = np.exp(random.normal(0, 0.03, (9, 5)))
        points = analyse(
            *(launches(f"0.{place}", times.tolist()) for place, times in enumerate(seconds))
        ).rows
        false += any(point.change for point in points)
    assert false <= 7  # expected 3 at most; more than 7 in 1 of 80 experiments


def test_the_order_is_that_of_the_plan_and_a_hole_is_stepped_over() -> None:
    hole = make.hole(
        Status.SKIPPED,
        "its index is away",
        framework="jax-0.10.0",
        adapter="jax",
        mode="jit",
        network="lstm32",
    )
    old, new = launches("0.9.1", around(1.0)), launches("0.11.0", around(1.3))
    content = analyse(new, [hole], old, order=("0.9.1", "0.10.0", "0.11.0"))
    first, missing, last = content.rows
    assert [point.name for point in content.rows] == ["0.9.1", "0.10.0", "0.11.0"]
    assert (missing.pair, missing.to_first, missing.change) == (None, None, "")
    assert last.before == "0.9.1"
    assert last.pair is not None
    assert first.cell.timed is not None
    assert last.cell.timed is not None
    assert last.pair.ratio == ratio(last.cell.timed, first.cell.timed)
    assert last.released == "2024-05-06"
    assert "0.10.0: skip, its index is away" in FORMATS["terminal"](content)


def test_what_else_changed_leaves_out_the_framework_itself_and_begins_with_what_computes() -> None:
    packages = {"absl-py": "2.0", "numpy": "2.1.0", "opt-einsum": "3.4"}
    content = analyse(launches("0.4.30", around(1.0)), launches("0.5.0", around(1.1), packages))
    _, point = content.rows
    assert [(change.what, change.before, change.after) for change in point.also_changed] == [
        ("numpy", "2.0.0", "2.1.0"),
        ("absl-py", None, "2.0"),
        ("opt-einsum", None, "3.4"),
    ]
    output = " ".join(FORMATS["terminal"](content).split())
    assert "0.5.0 takes 1.10x" in output
    assert (
        "the time of 0.4.30; also changed: numpy 2.0.0 -> 2.1.0; absl-py 2.0 was added;" in output
    )


def test_a_newer_run_takes_the_place_of_an_older_one_and_other_runs_are_no_releases() -> None:
    older = [launches(version, around(1.0), run="run-0") for version in ("0.1", "0.2")]
    newer = [launches(version, around(2.0), run="run-1", minutes=60) for version in ("0.1", "0.2")]
    records = [record for launches_of_release in older + newer for record in launches_of_release]
    plan = tuple(dict.fromkeys(record.cell for record in records))
    runs = [
        make.run(id="run-0", plan=plan, purpose=RELEASES),
        make.run(id="run-1", plan=plan, purpose=RELEASES),
    ]
    counting = make.matrix(
        *(record for launches_of_release in newer for record in launches_of_release)
    )
    assert [point.cell.run for point in releases(counting, records, runs).rows] == [
        "run-1",
        "run-1",
    ]
    assert releases(counting, records, [make.run(id="run-1", plan=plan)]).rows == ()


def test_two_launches_of_each_are_too_few_for_a_change() -> None:
    _, point = analyse(launches("0.1", [1.0, 1.01]), launches("0.2", [2.0, 2.01])).rows
    assert (point.pair is not None, point.change) == (True, "")


def own_step(version: str, seconds: Sequence[float], second_loss: float) -> list[Record]:
    parity = make.parity()._replace(losses=[2.0, second_loss], loss_tolerance=1e-3)
    records = make.changed(launches(version, seconds, network="own"), parity=parity)
    return [replace(record, network={"family": "own", "numbers": {}}) for record in records]


def test_a_release_that_computes_something_else_is_named_so_and_not_called_faster() -> None:
    content = analyse(
        own_step("0.1.1", around(1.0), 1.97),
        own_step("0.2.1", around(0.5), 1.9856),
        own_step("0.3.1", around(0.5), 1.9857),
    )
    _, different, alike = content.rows
    assert (different.change, alike.change) == ("different", "")
    (line,) = headline(content)
    assert "0.2.1 computes something else than 0.1.1;" in line
    assert "faster" not in line
    output = " ".join(FORMATS["terminal"](content).split())
    assert (
        "than 0.1.1 (loss of step 2 1.9856 instead of 1.97, off by 7.9e-03 (tolerance 1e-03))"
        in output
    )
    row = json.loads(FORMATS["json"](content))["rows"][1]
    assert row["change"] == "different"
    assert row["loss_difference"]["candidate"] == 1.9856


def test_the_page_fits_a_terminal_and_its_json_and_picture_have_all(tmp_path: Path) -> None:
    content = analyse(
        *(
            launches(f"0.{place}.12", around(level))
            for place, level in enumerate((1.0, 1.0, 1.2, 0.9))
        )
    )
    lines = FORMATS["terminal"](content).splitlines()
    assert max(map(len, lines)) <= 80
    assert (
        sum("to the first" in line for line in lines) == 2
    )  # the table is in one part; the legend
    (line,) = headline(content)
    assert "0.2.12 is slower (1.20x" in line
    assert "0.3.12 is faster (0.750x" in line
    rows = json.loads(FORMATS["json"](content))["rows"]
    assert [row["change"] for row in rows] == [None, None, "slower", "faster"]
    assert all(FORMATS[form](content) for form in FORMATS)
    assert REPORT.draw is not None
    (file,) = REPORT.draw(content, tmp_path / "drawn.svg", ReportOptions())
    assert {"0.0.12", "0.3.12", "slower", "faster"} <= set(texts(file))
    empty = analyse()
    assert "dlbench releases" in FORMATS["terminal"](empty)
    assert not REPORT.drawable(empty)
    assert not REPORT.has_section(empty)


def test_a_noisy_series_names_its_largest_step_that_is_not_decided() -> None:
    """Three launches of each, as measured for a real regression between two releases."""
    content = analyse(
        launches("0.7.1", [4.1e-3, 4.3e-3, 4.2e-3]),
        launches("0.7.2", [5.5e-3, 4.2e-3, 4.2e-3]),
        launches("0.8.0", [8.5e-3, 14.6e-3, 8.3e-3]),
        launches("0.9.0", [9.0e-3, 9.9e-3, 8.4e-3]),
    )
    assert not any(point.change for point in content.rows)
    assert [(point.name, point.before) for point in largest_undecided(content)] == [
        ("0.8.0", "0.7.2")
    ]
    (line,) = headline(content)
    assert (
        "no release differs clearly from the one before it; the largest step that is not decided: "
        "0.8.0" in line
    )
    assert "the time of 0.7.2" in line


def test_no_step_is_undecided_where_a_clear_one_is_larger_or_all_are_the_same() -> None:
    noisy = [1.7, 2.2, 1.9]
    clear = analyse(
        launches("0.1", around(1.0)), launches("0.2", around(2.0)), launches("0.3", noisy)
    )
    assert [point.change for point in clear.rows] == ["", "slower", ""]
    assert largest_undecided(clear) == []
    same = analyse(launches("0.1", around(1.0, 0.001)), launches("0.2", around(1.001, 0.001)))
    assert largest_undecided(same) == []
    assert "not decided" not in headline(same)[0]


def test_two_builds_of_an_own_step_are_headed_by_its_file_and_their_one_step_is_said_once() -> None:
    of_file = {"adapter": "own_step", "mode": "file", "network": "train_step", "batch_size": None}
    of_file["specification"] = digest(specification(Own()))
    old = launches("1", [1.0, 2.0, 1.1], framework="a", **of_file)
    new = launches("2", [2.0, 1.9, 1.0], framework="b", **of_file)
    content = analyse(old, new)
    (line,) = headline(content)
    assert line.startswith("train_step: train_step file, ")
    assert line.count("b takes") == 1
