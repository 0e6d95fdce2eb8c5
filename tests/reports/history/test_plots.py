"""The history as a picture: whole files, panels, labels, and paths that cannot be."""

import math
import os
import re
from dataclasses import replace

import factory_of_records as factory
import numpy as np
import pandas as pd
import pytest
import simulated_nights as simulated
from pictures import texts

from dlbench.reports.errors import ReportError
from dlbench.reports.formats.pictures import check_picture
from dlbench.reports.history import report as plots
from dlbench.reports.history.nights import History, build_history
from dlbench.reports.history.report import PANELS, history_to_picture


def history_of(cells: int, changed: tuple[int, ...] = (), nights: int = 30, side: str = "") -> History:
    """Return a history of absolute times in which these cells are 5 % slower from night 15 on."""
    rng = np.random.default_rng(1)
    named = {number: factory.cell(threads=number + 1) for number in range(cells)}
    frames = []
    for number in named:
        steps = [(15, math.log(1.05))] if number in changed else []
        baseline, candidate = simulated.launches(rng, nights, "quiet", steps)
        frames.append(simulated.rows(number, side, candidate))
        if side:
            frames.append(simulated.rows(number, "baseline", baseline))
    frame = pd.concat(frames).sort_values(["started", "run", "cell"], kind="stable", ignore_index=True)
    return build_history(frame, named, machines={"m-one": "A machine, 2 CPUs"})


def test_a_png_is_one(tmp_path):
    (written,) = history_to_picture(history_of(2), tmp_path / "history.png")
    assert written.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert list(tmp_path.iterdir()) == [tmp_path / "history.png"]


def test_an_svg_names_cells_changes_and_units(tmp_path):
    history = history_of(3, changed=(1,), side="candidate")
    (written,) = history_to_picture(history, tmp_path / "history.svg")
    said = texts(written)
    assert sum("fcn5, mini-batch 64, torch eager" in text for text in said) == 3
    (change,) = [text for text in said if "▲" in text]
    assert "2026-01-16" in change
    assert f"{history.changes[0][1].percent[0]:+.1f} %" in change
    assert said.count("candidate / baseline") == 3
    assert any("night (UTC)" in text for text in said)
    assert any("A machine, 2 CPUs" in text for text in said)
    # The panel with the change comes first.
    assert "2 threads" in next(text for text in said if "mini-batch" in text)
    absolute = texts(history_to_picture(history_of(1), tmp_path / "absolute.svg")[0])
    assert "seconds per mini-batch" in absolute


def test_the_same_history_gives_the_same_svg(tmp_path):
    first, second = (history_to_picture(history_of(2, (0,)), tmp_path / f"{name}.svg")[0] for name in "ab")
    assert first.read_bytes() == second.read_bytes()


def test_a_page_holds_so_many_and_the_rest_follow_when_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "PANELS", 4)
    history = history_of(9, changed=(8,))
    (single,) = history_to_picture(history, tmp_path / "one.svg")
    assert sum("mini-batch 64" in text for text in texts(single)) == 4
    assert any("9 threads" in text for text in texts(single))
    pages = history_to_picture(replace(history, everything=True), tmp_path / "all.svg")
    assert [page.name for page in pages] == ["all.svg", "all-2.svg", "all-3.svg"]
    titles = [text for page in pages for text in texts(page) if "mini-batch 64" in text]
    assert len(titles) == len(set(titles)) == 9
    assert PANELS == 24


def test_nights_without_an_interval_and_without_any_searched_night_are_drawn(tmp_path):
    frame = simulated.rows(0, "", np.zeros((12, 1)), contended_launches=1, quiet=False)
    history = build_history(frame, {0: factory.cell()})
    assert history.cells[0].level is None
    assert history_to_picture(history, tmp_path / "disturbed.png")[0].stat().st_size > 1000


@pytest.mark.parametrize("name", ["history.jpg", "history", "history.pdf", ".png"])
def test_other_kinds_of_pictures_are_refused(tmp_path, name):
    with pytest.raises(ReportError, match=r"\.png or \.svg"):
        check_picture(tmp_path / name)


def test_places_that_cannot_be_written_are_named(tmp_path, monkeypatch):
    with pytest.raises(ReportError, match="cannot be written: "):
        check_picture(tmp_path / "none" / "history.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(ReportError, match="cannot be written: "):
        check_picture(tmp_path / "folder.png")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ReportError, match="cannot be written: "):
        check_picture(tmp_path / "history.png")


def test_a_picture_that_fails_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "history.png"
    path.write_text("the old one")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    with pytest.raises(ReportError, match="No space left"):
        history_to_picture(history_of(1), path)
    assert list(tmp_path.iterdir()) == [tmp_path / "history.png"]
    assert path.read_text() == "the old one"


def test_one_night_spans_days_not_years(tmp_path):
    history = history_of(1, nights=1)
    (written,) = history_to_picture(history, tmp_path / "one.svg")
    years = [text for text in texts(written) if re.fullmatch(r"20\d\d", text)]
    assert len(years) < 2
