"""Confirmed regressions of a site: each is announced once, under an id that stays; file names are
safe."""

import math
import re
from dataclasses import replace
from datetime import timedelta
from xml.etree import ElementTree

import factory_of_records as factory
import numpy as np
import pandas as pd
import simulated

from dlbench.reports.history.nights import History, build_history
from dlbench.reports.site import (
    Contents,
    HistoryPage,
    Shift,
    SiteNight,
    Slower,
    feed,
    notices,
    shifts_of,
)

ATOM = "{http://www.w3.org/2005/Atom}"


def night(
    day: int, slower: str = "", cleared: tuple[str, ...] = (), baseline: str = "old"
) -> SiteNight:
    findings = {slower: Slower("a cell", "REGRESSION", "slower by 5 %", baseline)} if slower else {}
    started = factory.START + timedelta(days=day)
    return SiteNight(f"run-{day:02d}", "quick", "m", started, "gate", 6, "", "", findings, cleared)


def site(*nights: SiteNight, shifts: tuple[Shift, ...] = ()) -> Contents:
    page = HistoryPage("m", "quick", len(nights), factory.START, 0, "", shifts)
    return Contents({night.id: night for night in nights}, {page.file: page}, {"m": "A machine"})


def shift(day: int, key: str = "k") -> Shift:
    near = tuple(f"run-{night:02d}" for night in range(day - 2, day + 6))
    return Shift(
        key, "a cell", f"run-{day:02d}", factory.START + timedelta(days=day), "5 % slower", near
    )


def announced(contents: Contents) -> list[int]:
    return [(notice.when - factory.START).days for notice in reversed(notices(contents))]


def test_a_regression_that_lasts_is_told_once_and_again_after_it_was_cleared():
    assert announced(site(night(1), night(2, "k"), night(3, "k"), night(4), night(5, "k"))) == [2]
    assert announced(site(night(2, "k"), night(3, cleared=("k",)), night(4, "k"))) == [2, 4]
    assert announced(site(night(2, "k"), night(3, "k", baseline="new"))) == [2, 3], (
        "slower than another baseline"
    )
    assert announced(site(night(2, "k"), night(3, "other"))) == [2, 3]


def test_a_change_of_the_history_is_told_unless_a_gate_told_it():
    assert announced(site(shifts=(shift(10),))) == [10]
    assert announced(site(night(9, "k"), shifts=(shift(10),))) == [9]
    assert announced(site(night(15, "k"), shifts=(shift(10),))) == [15]
    assert announced(site(night(20, "k"), shifts=(shift(10),))) == [10, 20]
    assert announced(site(night(9, "other"), shifts=(shift(10),))) == [9, 10]


def test_the_feed_is_atom_dated_by_the_runs():
    contents = site(night(2, "k"), night(4), shifts=(shift(10, "other"),))
    text = feed(contents, "Nights", "https://example.org/n/")
    root = ElementTree.fromstring(text)
    assert root.tag == f"{ATOM}feed"
    for element in (root, *root.iter(f"{ATOM}entry")):
        for name in ("id", "title", "updated"):  # what RFC 4287 asks of each, once
            assert len(element.findall(ATOM + name)) == 1
        assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", element.findtext(f"{ATOM}id", ""))
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", element.findtext(f"{ATOM}updated", "")
        )
    assert root.find(f"{ATOM}author/{ATOM}name") is not None
    links = [link.get("href") for link in root.iter(f"{ATOM}link")]
    assert [link for link in links if not str(link).startswith("https://example.org/n/")] == []
    assert len(root.findall(f"{ATOM}entry")) == 2
    assert root.findtext(f"{ATOM}updated") == (factory.START + timedelta(days=10)).isoformat()
    quiet = site(night(1), night(2))
    assert feed(quiet, "Nights") == feed(site(night(1), night(2), night(3)), "Nights"), (
        "nothing new to tell"
    )


def history(nights: int, size: float) -> History:
    """Return that of a cell whose candidate takes ``size`` times as long from night 20 on."""
    sides = simulated.nights(np.random.default_rng(3), 40, "quiet", [(20, math.log(size))])
    frames = [
        simulated.rows(1, side, logs[:nights])
        for side, logs in zip(("baseline", "candidate"), sides, strict=True)
    ]
    return build_history(pd.concat(frames, ignore_index=True), {1: factory.cell()})


def test_only_confirmed_slowdowns_count():
    assert shifts_of(history(23, 1.05), ()) == (), "pending"
    assert shifts_of(history(40, 0.95), ()) == (), "faster"
    (shift,) = shifts_of(history(40, 1.05), ())
    assert (shift.run, shift.started.isoformat()) == ("run-020", simulated.started(20))
    assert "% slower" in shift.sentence
    assert shift.near == tuple(f"run-{night:03d}" for night in range(18, 26))


def test_what_was_published_stays_though_nights_move_or_resize_it():
    (early,) = shifts_of(history(26, 1.05), ())
    (late,) = shifts_of(history(40, 1.05), ())
    assert early.sentence != late.sentence
    moved = replace(early, run="run-021")
    assert shifts_of(history(40, 1.05), [moved]) == (replace(moved, near=late.near),)
    far = replace(early, run="run-010")
    assert shifts_of(history(40, 1.05), [far]) == (late,), "another one"


def drift_of(nights: int, a_night: float = 0.01, last: int = 40) -> History:
    """Return that of a cell whose candidate becomes slower from night 10 on by so much a night."""
    rng = np.random.default_rng(4)
    logs = rng.normal(0, 0.003, (60, 5)), rng.normal(0, 0.003, (60, 5))
    rise = math.log1p(a_night) * (np.clip(np.arange(60), 10, last) - 10)
    sides = {"baseline": logs[0], "candidate": logs[1] + rise[:, None]}
    frames = [simulated.rows(1, side, values[:nights]) for side, values in sides.items()]
    return build_history(pd.concat(frames, ignore_index=True), {1: factory.cell()})


def test_a_slow_drift_is_published_once_while_it_grows():
    (early,) = shifts_of(drift_of(30), ())
    assert early.sentence.startswith("slowly slower: +")
    assert early.started.isoformat() >= simulated.started(27), "the night that showed it"
    assert shifts_of(drift_of(30, -0.01), ()) == (), "faster"
    (later,) = shifts_of(drift_of(38), [early])
    assert (later.run, later.sentence) == (early.run, early.sentence)
    assert set(early.near) < set(later.near)
    assert shifts_of(drift_of(60), [early])[0].run == early.run, "ended"


def test_a_drift_that_was_published_as_a_change_point_or_by_a_gate_is_not_published_again():
    (drift,) = shifts_of(drift_of(30), ())
    step = replace(drift, run="run-016", sentence="5.1 % slower")
    (shift,) = shifts_of(drift_of(30), [step])
    assert (shift.run, shift.sentence) == ("run-016", "5.1 % slower")
    assert "run-020" in drift.near
    gates = site(replace(night(20, slower=drift.key), id="run-020"), shifts=(drift,))
    assert announced(gates) == [20]
