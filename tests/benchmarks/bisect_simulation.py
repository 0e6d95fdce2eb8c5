"""Does `dlbench bisect` name the right candidate, how sure is it, and how many launches does it
take? By simulation.

    .venv/bin/python tests/benchmarks/bisect_simulation.py                    500 searches of each kind
    .venv/bin/python tests/benchmarks/bisect_simulation.py --kinds 1          the first kind alone
    .venv/bin/python tests/benchmarks/bisect_simulation.py --searches 100     shorter

64 candidates behind a good one; launches deviate as the kind says (`simulated.py`). Each search is
the product's own: the looks of a gate at both ends, then its posterior, choice and end. Beside it
`git bisect` by hand: so many runs of the good end, of the bad end and of each of six candidates,
which is called bad where its geometric mean is nearer to the bad end's. Exit code 1 where less than
95 % of the candidates that the first kind names are right.
"""

import math
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))
from simulated import CI, Array, Conditions, gate, launches, pairs_needed

from dlbench.reports.results.posterior import CONFIDENCE, assess

CANDIDATES, MOST = 64, 200
Levels = Callable[[np.random.Generator], tuple[Array, list[int]]]
"""Returns the log levels of good and candidates, and where changes are."""


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


def changes(*sizes: float) -> Levels:
    """Return levels with these changes in order at random places, of several a sixth of the
    candidates apart."""

    def levels(rng: np.random.Generator) -> tuple[Array, list[int]]:
        places: list[int] = []
        for number in range(len(sizes)):
            apart = CANDIDATES // 6
            first = places[-1] + apart if places else 1
            places.append(
                int(rng.integers(first, CANDIDATES + 1 - apart * (len(sizes) - 1 - number)))
            )
        numbers = np.arange(CANDIDATES + 1)
        steps = (
            math.log1p(size) * (numbers >= place) for size, place in zip(sizes, places, strict=True)
        )
        return sum(steps, np.zeros(CANDIDATES + 1)), places

    return levels


KINDS: dict[str, tuple[Conditions, Levels]] = {
    "3 %, +5 %": (Conditions(0.03), changes(0.05)),
    "CI machine, +5 %": (CI, changes(0.05)),
    "1 %, +5 %": (Conditions(0.01), changes(0.05)),
    "3 %, +10 %": (Conditions(0.03), changes(0.10)),
    "2 %, +4 % and +4 %": (Conditions(0.02), changes(0.04, 0.04)),
    "2 %, +10 %, then -5 %": (Conditions(0.02), changes(0.10, -0.05)),
    "3 %, no change": (Conditions(0.03), changes()),
}


def search(
    rng: np.random.Generator,
    conditions: Conditions,
    levels: Array,
    places: list[int],
    counts: Found,
) -> None:
    """Carry out a search among these levels, and add what it came to."""
    counts.searches += 1
    (sides,) = launches(rng, conditions, 1, MOST)
    sides[:, 1] += levels[-1]
    decision = gate(sides[: pairs_needed()])
    if not decision.alarm:
        counts.unconfirmed += 1
        return
    noise = sides[:, 1] - sides[:, 0] - levels[-1]
    evidence = {CANDIDATES: (noise[: decision.pairs] + levels[-1]).tolist()}
    posterior = assess(evidence, CANDIDATES)
    pairs = decision.pairs
    while True:
        place, highest = (
            posterior.candidates[int(np.argmax(posterior.places))],
            max(posterior.places),
        )
        if posterior.decided() or pairs == MOST:
            break
        chosen = posterior.following(evidence)
        evidence.setdefault(chosen, []).append(float(levels[chosen] + noise[pairs]))
        pairs += 1
        posterior = assess(evidence, CANDIDATES)
    counts.pairs.append(pairs)
    if posterior.several >= CONFIDENCE:
        counts.several += 1
    elif not posterior.decided() or highest < CONFIDENCE:
        counts.undecided += 1
    else:
        counts.claimed.append(highest)
        counts.right += place in places
        counts.wrong += place not in places


def searches(rng: np.random.Generator, kind: tuple[Conditions, Levels], count: int) -> Found:
    """Return what so many searches of a kind come to."""
    conditions, levels_of = kind
    result = Found()
    for _ in range(count):
        search(rng, conditions, *levels_of(rng), result)
    return result


def by_hand(
    rng: np.random.Generator, conditions: Conditions, levels: Array, places: list[int], runs: int
) -> bool:
    """Return whether `git bisect` with so many runs of each candidate ends at a change."""

    def mean(place: int) -> float:
        return float(
            levels[place] + launches(rng, conditions, 1, (runs + 1) // 2).ravel()[:runs].mean()
        )

    low, high = 0, CANDIDATES
    threshold = (mean(low) + mean(high)) / 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if mean(middle) > threshold else (middle, high)
    return high in places


def main(
    searches_of_each: Annotated[int, typer.Option("--searches")] = 500,
    kinds: int = len(KINDS),
    seed: int = 1,
) -> None:
    """Print the table."""
    runs = (1, 5, 25)
    steps = 2 + math.ceil(math.log2(CANDIDATES))
    table = Table(
        *(
            "launches deviate by, change",
            "right",
            "of those named",
            "said on average",
            "several",
            "not found",
            "wrong",
        ),
        *("launches", *(f"by hand, {run}" for run in runs)),
        title=(
            f"Per cent of {searches_of_each} searches among {CANDIDATES} candidates; "
            f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, seed {seed}. By hand: "
            f"{', '.join(str(run * steps) for run in runs)} launches."
        ),
        box=None,
    )
    first_counts = Found()
    began = time.monotonic()
    for number, (name, kind) in enumerate(list(KINDS.items())[:kinds]):
        rng = np.random.default_rng([seed, number])
        counts = searches(rng, kind, searches_of_each)
        first_counts = counts if number == 0 else first_counts
        hands = [
            np.mean([by_hand(rng, kind[0], *kind[1](rng), run) for _ in range(searches_of_each)])
            for run in runs
        ]
        pairs = np.array(counts.pairs or [0])
        shares = (
            *(counts.right / counts.searches, counts.right / max(1, counts.right + counts.wrong)),
            *(np.mean(counts.claimed or [0]), counts.several / counts.searches),
            *(
                (counts.unconfirmed + counts.undecided) / counts.searches,
                counts.wrong / counts.searches,
            ),
        )
        table.add_row(
            name,
            *(f"{100 * share:.1f}" for share in shares),
            f"{2 * pairs.mean():.0f} ({2 * np.quantile(pairs, 0.9):.0f})",
            *(f"{100 * share:.1f}" for share in hands),
        )
    console = Console(width=180)
    console.print(table)
    console.print("launches: mean of searches whose ends differ (90 % take no more).")
    console.print(f"{time.monotonic() - began:.0f} s")
    named = first_counts.right + first_counts.wrong
    missed = (
        stats.binomtest(first_counts.right, named, 0.95, alternative="less").pvalue < 0.001
        if named
        else True
    )
    raise typer.Exit(int(missed))


if __name__ == "__main__":
    typer.run(main)
