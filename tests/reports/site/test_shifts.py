"""What a site takes from a history: confirmed changes for the worse, each as it was first published."""

import math
from dataclasses import replace

import factory_of_records as factory
import numpy as np
import pandas as pd
import simulated_nights as simulated

from dlbench.reports.history.nights import History, build_history
from dlbench.reports.site.judged import shifts_of


def history(nights: int, size: float) -> History:
    """Return that of a cell whose candidate takes ``size`` times as long from night 20 on."""
    sides = simulated.launches(np.random.default_rng(3), 40, "quiet", [(20, math.log(size))])
    frames = [
        simulated.rows(1, side, logs[:nights]) for side, logs in zip(("baseline", "candidate"), sides, strict=True)
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
