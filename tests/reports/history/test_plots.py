"""The history as a picture: whole files, panels, labels, and paths that cannot be."""

import math
from dataclasses import replace

import factory_of_records as factory
import numpy as np
import pandas as pd
import simulated
from exported import texts

from dlbench.reports.history import report as plots
from dlbench.reports.history.nights import History, build_history
from dlbench.reports.history.report import history_to_picture


def history_of(cells: int, changed: tuple[int, ...] = (), nights: int = 30, side: str = "") -> History:
    """Return a history of absolute times in which these cells are 5 % slower from night 15 on."""
    rng = np.random.default_rng(1)
    named = {number: factory.cell(threads=number + 1) for number in range(cells)}
    frames = []
    for number in named:
        steps = [(15, math.log(1.05))] if number in changed else []
        baseline, candidate = simulated.nights(rng, nights, "quiet", steps)
        frames.append(simulated.rows(number, side, candidate))
        if side:
            frames.append(simulated.rows(number, "baseline", baseline))
    frame = pd.concat(frames).sort_values(["started", "run", "cell"], kind="stable", ignore_index=True)
    return build_history(frame, named, machines={"m-one": "A machine, 2 CPUs"})


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
    assert "seconds per mini-batch" in texts(history_to_picture(history_of(1), tmp_path / "absolute.svg")[0])


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
