"""The gate's rule on comparisons of identical code that others measured: false alarms, and power by
slowdowns put in.

    .venv/bin/python tests/benchmarks/public_nulls.py touchstone_nulls.csv.xz

The file is a table with columns run, kind, block (a pair), main and feature (seconds, the same
code): interleaved comparisons by touchstone (github.com/lorenzwalthert/touchstone) on hosted CI
runners. Every comparison is judged in both directions. Thirty pairs are taken as the gate would get
them, its last look after all thirty. Five pairs are fewer than a proof needs, so there the rule
says nothing; of six runs in a row their pairs are joined. Slowdowns are multiplied into one side.

median:5%, min:5%   more than 5 % slower by the medians or minima of both sides, interleaved.
  ... stored        pytest-benchmark's `--benchmark-compare-fail=median:5%` as users have it:
  against the run before.
Mann-Whitney        one-sided, p < .01.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from corpus import Rate
from rich.console import Console
from rich.table import Table
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))
from simulated import Array, gate

from dlbench.reports.results.verdict import DEFAULT, FEWEST_PAIRS, Rule, Verdict

SLOWDOWNS = (0.02, 0.05, 0.10)
JOINED = 6
"""Runs of five pairs that make one comparison of thirty."""
GATE = "dlbench gate"
COLUMNS = ["run", "kind", "block", "main", "feature"]


def grew(field: Callable[[Array], float]) -> Callable[[Array], bool]:
    """Return the rule that calls a growth of more than 5 % slower."""
    return lambda pairs: bool(field(pairs[:, 1]) / field(pairs[:, 0]) > 1.05)


OTHERS: dict[str, Callable[[Array], bool]] = {
    "median:5%": grew(lambda side: float(np.median(side))),
    "min:5%": grew(lambda side: float(side.min())),
    "Mann-Whitney, p < .01": lambda pairs: bool(
        stats.mannwhitneyu(pairs[:, 1], pairs[:, 0], alternative="greater").pvalue < 0.01
    ),
}


def rule_for(pairs: int) -> Rule:
    """Return the gate's rule where no more than so many pairs can be had: the last look is after
    all of them."""
    *earlier_looks, last = DEFAULT.looks
    return Rule(
        looks=(
            *(look for look in earlier_looks if look.pairs < pairs),
            replace(last, pairs=min(last.pairs, pairs)),
        )
    )


def comparisons(file: Path) -> dict[str, list[Array]]:
    """Return the comparisons of each kind in order of time, seconds of shape (pairs, 2), joined
    ones as a kind too."""
    table = pd.read_csv(file, usecols=COLUMNS)
    results = {}
    for kind, rows in table.groupby("kind"):
        results[str(kind)] = [
            run.sort_values("block")[["main", "feature"]].to_numpy(dtype=float)
            for _, run in rows.groupby("run")
        ]
    for kind, runs in list(results.items()):
        if len(runs[0]) < FEWEST_PAIRS:
            complete = len(runs) - len(runs) % JOINED
            results[f"{kind}, {JOINED} runs joined"] = [
                np.concatenate(runs[start : start + JOINED]) for start in range(0, complete, JOINED)
            ]
    return results


def both_ways(comparisons: list[Array], slowdown: float = 0.0) -> Iterator[Array]:
    """Give every comparison in both directions, with one side slower."""
    for pairs in comparisons:
        for way in (pairs, pairs[:, ::-1]):
            yield way * np.array([1.0, 1.0 + slowdown])


def stored(comparisons: list[Array], slowdown: float = 0.0) -> Rate:
    """Return how often a side's median exceeds that of the other side in the run before by more
    than 5 %."""
    slower = OTHERS["median:5%"]
    alarms = []
    for before, after in pairwise(comparisons):
        for side in (0, 1):
            baseline = before[: len(after), 1 - side]
            candidate = after[: len(before), side] * (1 + slowdown)
            alarms.append(slower(np.column_stack((baseline, candidate))))
    return Rate.count(alarms)


def percent(rate: Rate) -> str:
    """Write a rate."""
    return f"{100 * rate.value:.0f} %"


def main(
    file: Annotated[
        Path, typer.Argument(help="CSV, possibly compressed: run, kind, block, main, feature.")
    ],
) -> None:
    """Print one table: false alarms and power of the gate and of other rules, by kind."""
    try:
        kinds = comparisons(file)
    except (OSError, ValueError, EOFError) as error:
        print(
            f"{file}: not a readable table with the columns {', '.join(COLUMNS)} ({error})",
            file=sys.stderr,
        )
        raise typer.Exit(2) from None
    table = Table(
        *("kind", "deviation", "rule", "REGRESSION", "95 % interval", "IMPROVEMENT", "pairs"),
        *(f"finds +{slow:.0%}" for slow in SLOWDOWNS),
        title=(
            f"{file.name}: identical code, both directions; deviation of a pair's log ratio, robust"
        ),
        box=None,
    )
    for kind, groups in kinds.items():
        logs = np.concatenate([np.diff(np.log(pairs), axis=1).ravel() for pairs in groups])
        deviation = f"{100 * stats.median_abs_deviation(logs, scale='normal'):.1f} %"
        pairs = len(groups[0])
        rows: list[tuple[str, Rate, str, str, list[Rate]]] = []
        if pairs < FEWEST_PAIRS:
            table.add_row(kind, deviation, GATE, "none: a proof needs more pairs")
        else:
            rule = rule_for(pairs)
            same = [gate(np.log(way), rule) for way in both_ways(groups)]
            alarms = Rate.count(decision.alarm for decision in same)
            verdicts = [decision.judgement.verdict for decision in same]
            improvements = verdicts.count(Verdict.IMPROVEMENT)
            pairs_used = np.mean([decision.pairs for decision in same])
            powers = []
            for slow in SLOWDOWNS:
                slowed = [gate(np.log(way), rule) for way in both_ways(groups, slow)]
                powers.append(Rate.count(decision.alarm for decision in slowed))
            rows.append((GATE, alarms, str(improvements), f"{pairs_used:.1f}", powers))
        for title, slower in OTHERS.items():
            powers = [Rate.count(map(slower, both_ways(groups, slow))) for slow in SLOWDOWNS]
            rows.append((title, Rate.count(map(slower, both_ways(groups))), "", str(pairs), powers))
        if "joined" not in kind:
            powers = [stored(groups, slow) for slow in SLOWDOWNS]
            rows.append(("  ... median:5%, stored", stored(groups), "", str(pairs), powers))
        for title, alarms, improved, cost, powers in rows:
            low, high = (100 * end for end in alarms.interval)
            table.add_row(
                *(
                    kind,
                    deviation,
                    title,
                    f"{alarms.hits} of {alarms.trials}",
                    f"{low:.1f} to {high:.1f} %",
                ),
                *(improved, cost, *map(percent, powers)),
            )
        table.add_section()
    Console(width=170).print(table)
    print(
        f"{datetime.now(UTC):%Y-%m-%d}; intervals as if both directions of a comparison were "
        "independent"
    )


if __name__ == "__main__":
    typer.run(main)
