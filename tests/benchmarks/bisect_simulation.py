"""Does `dlbench bisect` name the right candidate, how sure is it, and how many launches does it take? By simulation.

    .venv/bin/python tests/benchmarks/bisect_simulation.py                    2,000 searches of each kind, minutes
    .venv/bin/python tests/benchmarks/bisect_simulation.py --kinds 1          the first kind alone, under a minute
    .venv/bin/python tests/benchmarks/bisect_simulation.py --searches 200     shorter

64 candidates behind a good one; launches deviate as the kind says (`simulated.py`). Each search is the product's own:
the looks of a gate at both ends, then its posterior, choice and end; but several changes are looked for after each
fifth pair and at the end, where the product looks after each. Beside it `git bisect` by
hand: so many runs of the good end, of the bad end and of each of six candidates, which is called bad where its
geometric mean is nearer to the bad end's.

The second table is the calibration: how often the likeliest candidate was the right one, by the probability that it was
given after every fifth pair. Exit code 1 where less than 95 % of the candidates that the first kind names are right.
"""

import math
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))
from simulated import CI, Array, Conditions, gate, launches, pairs_needed

from dlbench.reports.bisection import posterior as search
from dlbench.reports.compare.verdict import DEFAULT

CANDIDATES, CHUNK, MOST = 64, 200, 200
LOOK = 5
"""Pairs between two looks for several changes, and between two entries of the calibration."""
BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1.0)
Levels = Callable[[np.random.Generator, int], tuple[Array, Array]]
"""Returns the log levels of good and candidates (searches, 65), and where changes are (searches, changes)."""


@dataclass
class Found:
    """What searches of one kind came to."""

    searches: int = 0
    unconfirmed: int = 0
    right: int = 0
    wrong: int = 0
    several: int = 0
    undecided: int = 0
    claimed: list[float] = field(default_factory=list)
    """Probability of each candidate that was named."""
    pairs: list[int] = field(default_factory=list)
    """Of searches whose ends were found to differ."""
    built: list[int] = field(default_factory=list)
    """Candidates measured, the bad end left out."""
    covered: list[bool] = field(default_factory=list)
    """Whether the interval of the size holds the true one, where the right candidate was named."""
    said: list[tuple[float, bool]] = field(default_factory=list)
    """The highest probability of a place, and whether it was the right one, during the searches."""


def one_change(size: float) -> Levels:
    """Return levels with one slowdown at a random place."""

    def levels(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
        places = rng.integers(1, CANDIDATES + 1, (count, 1))
        return math.log1p(size) * (np.arange(CANDIDATES + 1) >= places), places

    return levels


def no_change(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Return levels without a change."""
    return np.zeros((count, CANDIDATES + 1)), np.zeros((count, 0), dtype=int)


def two_changes(first: float, second: float) -> Levels:
    """Return levels with two changes at random places, a sixth of the candidates apart at least."""

    def levels(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
        apart = CANDIDATES // 6
        starts = rng.integers(1, CANDIDATES - apart + 1, count)
        ends = rng.integers(starts + apart, CANDIDATES + 1)
        numbers = np.arange(CANDIDATES + 1)
        return (
            math.log1p(first) * (numbers >= starts[:, None]) + math.log1p(second) * (numbers >= ends[:, None]),
            np.stack([starts, ends], axis=1),
        )

    return levels


KINDS: dict[str, tuple[Conditions, Levels]] = {
    "3 %, +5 %": (Conditions(0.03), one_change(0.05)),
    "CI machine, +5 %": (CI, one_change(0.05)),
    "1 %, +5 %": (Conditions(0.01), one_change(0.05)),
    "3 %, +10 %": (Conditions(0.03), one_change(0.10)),
    "2 %, +4 % and +4 %": (Conditions(0.02), two_changes(0.04, 0.04)),
    "2 %, +10 %, then -5 %": (Conditions(0.02), two_changes(0.10, -0.05)),
    "3 %, no change": (Conditions(0.03), no_change),
}


def searches(rng: np.random.Generator, conditions: Conditions, levels: Array, truth: Array, found: Found) -> None:
    """Carry out searches of these levels, and add what they came to."""
    sides = launches(rng, conditions, len(levels), MOST)
    noise = sides[:, :, 1] - sides[:, :, 0]
    found.searches += len(levels)
    ends = levels[:, -1:] + noise[:, : pairs_needed()]
    decisions = [gate(np.stack([np.zeros(len(each)), each], axis=1)) for each in ends]
    kept = np.array([each for each, decision in enumerate(decisions) if decision.alarm], dtype=int)
    found.unconfirmed += len(levels) - len(kept)
    if not len(kept):
        return
    made = np.array([decisions[each].pairs for each in kept])
    evidence = [{CANDIDATES: list(ends[each, :count])} for each, count in zip(kept, made, strict=True)]
    grids = [search.grid_of(np.array(each[CANDIDATES])) for each in evidence]
    grid = search.Grid(*(np.stack(part) for part in zip(*grids, strict=True)))
    sums = [search.sums(each, range(1, CANDIDATES + 1), of) for each, of in zip(evidence, grids, strict=True)]
    before, after = (np.stack(part) for part in zip(*sums, strict=True))
    weights = np.full(CANDIDATES, 1 / CANDIDATES)
    measured = np.zeros((len(kept), CANDIDATES), dtype=bool)
    measured[:, -1] = True
    several, between = np.zeros(len(kept)), np.full(len(kept), -1)
    active = np.arange(len(kept))
    for step in range(MOST):
        of = search.Grid(grid.sizes[active], grid.scales[active])
        post = search.posterior(before[active], after[active], of, weights)
        best = post.places.argmax(axis=1)
        highest = np.take_along_axis(post.places, best[:, None], axis=1)[:, 0]
        asked = (highest >= search.CONFIDENCE) | (step % LOOK == 0)
        for row in np.flatnonzero(asked):
            of_search = active[row]
            two, middle = search.several_changes(
                evidence[of_search], range(1, CANDIDATES + 1), grids[of_search], weights, DEFAULT.magnitude
            )
            several[of_search] = search.probability_of_several(two, float(post.log_evidence[row]))
            between[of_search] = -1 if middle is None else middle - 1
        share = several[active]
        hits = (best[:, None] + 1 == truth[kept[active]]).any(axis=1)
        if step % LOOK == 0:
            found.said += list(zip(highest.tolist(), hits.tolist(), strict=True))
        spent = made[active] >= MOST
        split = share >= search.CONFIDENCE
        named = (highest >= search.CONFIDENCE) & (share < search.DOUBT)
        for row in np.flatnonzero(named | split | spent):
            found.pairs.append(int(made[active[row]]))
            found.built.append(int(measured[active[row]].sum()) - 1)
            if named[row]:
                found.claimed.append(float(highest[row]))
                found.right += bool(hits[row])
                found.wrong += not hits[row]
                if hits[row]:
                    reached = np.cumsum(post.sizes[row]) - post.sizes[row] / 2
                    low, high = np.interp((0.025, 0.975), reached, of.sizes[row])
                    found.covered.append(bool(low <= levels[kept[active[row]], -1] <= high))
            found.several += bool(split[row])
            found.undecided += not named[row] and not split[row]
        going = ~(named | split | spent)
        active, places, share = active[going], post.places[going], share[going]
        if not len(active):
            return
        chosen = search.following(places, measured[active])
        doubtful = (share >= search.DOUBT) & (between[active] >= 0)
        chosen = np.where(doubtful, between[active], chosen)
        ratios = levels[kept[active], chosen + 1] + noise[kept[active], made[active]]
        more = search.likelihoods(ratios, search.Grid(grid.sizes[active], grid.scales[active]))
        before[active, chosen] += more[0]
        after[active, chosen] += more[1]
        measured[active, chosen] = True
        made[active] += 1
        for row, place, ratio in zip(active, chosen, ratios, strict=True):
            evidence[row].setdefault(int(place) + 1, []).append(float(ratio))


def by_hand(rng: np.random.Generator, conditions: Conditions, levels: Array, truth: Array, runs: int) -> float:
    """Return how often `git bisect` with so many runs of each candidate ends at a change."""
    count = len(levels)

    def mean(places: Array) -> Array:
        drawn = launches(rng, conditions, count, (runs + 1) // 2).reshape(count, -1)[:, :runs].mean(axis=1)
        return np.take_along_axis(levels, places[:, None], axis=1)[:, 0] + drawn

    low, high = np.zeros(count, dtype=int), np.full(count, CANDIDATES)
    threshold = (mean(low) + mean(high)) / 2
    while (high - low).max() > 1:
        middle = (low + high) // 2
        slow = mean(middle) > threshold
        low, high = np.where(slow, low, middle), np.where(slow, middle, high)
    return float((high[:, None] == truth).any(axis=1).mean())


def main(
    searches_of_each: Annotated[int, typer.Option("--searches")] = 2000, kinds: int = len(KINDS), seed: int = 1
) -> None:
    """Print both tables."""
    runs = (1, 5, 25)
    steps = 2 + math.ceil(math.log2(CANDIDATES))
    table = Table(
        *("launches deviate by, change", "right", "of those named", "said on average", "several", "not found", "wrong"),
        *("launches", "built", "size covered", *(f"by hand, {each}" for each in runs)),
        title=f"Per cent of {searches_of_each} searches among {CANDIDATES} candidates; {datetime.now(UTC):%Y-%m-%d}, "
        f"{platform.machine()}, seed {seed}. By hand: {', '.join(str(each * steps) for each in runs)} launches.",
        box=None,
    )
    calibration = Table("said", *list(KINDS)[:kinds], title="Right, % (of so many)", box=None)
    columns, first = [], None
    began = time.monotonic()
    for number, (name, (conditions, levels_of)) in enumerate(list(KINDS.items())[:kinds]):
        rng, found = np.random.default_rng([seed, number]), Found()
        for done in range(0, searches_of_each, CHUNK):
            levels, truth = levels_of(rng, min(CHUNK, searches_of_each - done))
            searches(rng, conditions, levels, truth, found)
        first = first or found
        levels, truth = levels_of(rng, searches_of_each)
        named, count = found.right + found.wrong, found.searches
        pairs = np.array(found.pairs or [0])
        table.add_row(
            name,
            f"{100 * found.right / count:.1f}",
            f"{100 * found.right / max(1, named):.1f}",
            f"{100 * float(np.mean(found.claimed or [0])):.1f}",
            f"{100 * found.several / count:.1f}",
            f"{100 * (found.unconfirmed + found.undecided) / count:.1f}",
            f"{100 * found.wrong / count:.1f}",
            f"{2 * pairs.mean():.0f} ({2 * np.quantile(pairs, 0.9):.0f})",
            f"{np.mean(found.built or [0]):.1f}",
            f"{100 * float(np.mean(found.covered or [0])):.1f}",
            *(f"{100 * by_hand(rng, conditions, levels, truth, each):.1f}" for each in runs),
        )
        said = np.array([each for each, _ in found.said] or [0.0])
        hits = np.array([hit for _, hit in found.said] or [False])
        places = [np.flatnonzero((low <= said) & (said < high)) for low, high in pairwise(BINS)]
        columns.append([f"{100 * hits[each].mean():.0f} ({len(each)})" if len(each) else "-" for each in places])
    for row, (low, high) in enumerate(pairwise(BINS)):
        calibration.add_row(f"{100 * low:.0f} to {100 * high:.0f}", *(column[row] for column in columns))
    console = Console(width=180)
    console.print(table)
    console.print("launches: mean of searches whose ends differ (90 % take no more); built: candidates measured.")
    console.print(calibration)
    console.print(f"{time.monotonic() - began:.0f} s")
    assert first is not None
    named = first.right + first.wrong
    missed = stats.binomtest(first.right, named, 0.95, alternative="less").pvalue < 0.001 if named else True
    raise typer.Exit(int(missed))


if __name__ == "__main__":
    typer.run(main)
