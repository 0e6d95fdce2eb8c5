"""What each rule does with identical code, and with real slowdowns of 5 and 10 %: one table, by simulation.

    .venv/bin/python tests/benchmarks/decision_rules.py                       20,000 simulations, some minutes
    .venv/bin/python tests/benchmarks/decision_rules.py --simulations 2000    shorter

Every rule sees the same kind of machine (`simulated_launches.py`): quiet (launches vary by 1 %), a CI
machine (3 %, the level drifts by 0.5 % from launch to launch, 2 % of launches are in somebody's way, sessions differ by
2.5 %) and a bad one (4 % with heavy tails, 5 % of launches in somebody's way, sessions differ by 4 %). A launch gives
20 steps, which vary by 2 % (bad: 4 %) and are skewed.

gate                dlbench gate: its two stages, on interleaved pairs of launches, by their medians.
compare             dlbench compare of two stored runs of 5 launches each, from two sessions, of a single cell: with
                    more its p-values are adjusted for their number.
pytest-benchmark    ``--benchmark-compare-fail=median:5%`` and ``min:5%``. Its statistics are over the rounds of one
                    process and its baseline is a stored one: 100 rounds of one process on each side, of two sessions.
  ... pooled        What it would see of 5 launches of 20 rounds on each side, interleaved in one session: kinder to it
                    than any way there is to run it.
Mann-Whitney        one-sided, p < .01, over all steps of 5 interleaved launches on each side.
Welch               one-sided, p < .01 and more than 2.5 %, over the log-medians of 5 interleaved launches on each side.

Exit code 1 where the gate's false alarms exceed the goal of 0.05 % on the quiet or the CI machine beyond chance.
"""

import argparse
import platform
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

from dlbench.reports.compare.verdict import Verdict, judge

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))
from simulated_launches import BAD, CI, QUIET, Array, Conditions, gate, launches, pairs_needed, steps

MACHINES = {"quiet": QUIET, "CI": CI, "bad": BAD}
RATIOS = (1.0, 1.05, 1.1)
LAUNCHES, STEPS, ROUNDS = 5, 20, 100
CHUNK = 250
GOAL = 0.0005


class Called(NamedTuple):
    """For each simulation, whether a rule called it slower and what it cost."""

    alarms: np.ndarray[tuple[int], np.dtype[np.bool_]]
    launches: Array
    """On both sides together."""


def interleaved(rng: np.random.Generator, machine: Conditions, count: int, pairs: int, ratio: float) -> Array:
    """Return the logarithms of steps, shape (count, pairs, 2, STEPS)."""
    return steps(rng, machine, launches(rng, machine, count, pairs, ratio), STEPS)


def stored(rng: np.random.Generator, machine: Conditions, count: int, of: int, steps_of: int, ratio: float) -> Array:
    """Return the same of two sessions, each with a level and a drift of its own."""
    sides = [
        launches(rng, machine, count, of)[:, :, side] + rng.normal(0, machine.session, (count, 1)) for side in (0, 1)
    ]
    levels = np.stack(sides, axis=2) + np.log([1.0, ratio])
    return steps(rng, machine, levels, steps_of)


def cost(count: int, each: int) -> Array:
    """Return the same number of launches for each simulation."""
    return np.full(count, float(each))


def by_gate(rng: np.random.Generator, machine: Conditions, count: int, ratio: float) -> Called:
    """Both stages of dlbench gate."""
    medians = np.median(interleaved(rng, machine, count, pairs_needed(), ratio), axis=3)
    decided = [gate(cell) for cell in medians]
    return Called(np.array([each.alarm for each in decided]), np.array([2.0 * each.pairs for each in decided]))


def by_compare(rng: np.random.Generator, machine: Conditions, count: int, ratio: float) -> Called:
    """Stored runs, by dlbench compare."""
    seconds = np.exp(np.median(stored(rng, machine, count, LAUNCHES, STEPS, ratio), axis=3))
    found = [judge(list(cell[:, 0]), list(cell[:, 1]), same_session=False).verdict for cell in seconds]
    return Called(np.array([each is Verdict.REGRESSION for each in found]), cost(count, 2 * LAUNCHES))


def by_threshold(statistic: Callable[..., Array], pooled: bool) -> Callable[..., Called]:
    """Return pytest-benchmark's rule: a statistic over all rounds of a side is more than 5 % above the baseline's."""

    def rule(rng: np.random.Generator, machine: Conditions, count: int, ratio: float) -> Called:
        if pooled:
            rounds = interleaved(rng, machine, count, LAUNCHES, ratio)
        else:
            rounds = stored(rng, machine, count, 1, ROUNDS, ratio)
        seconds = np.exp(rounds)
        sides = [statistic(seconds[:, :, side].reshape(count, -1), axis=1) for side in (0, 1)]
        return Called(sides[1] / sides[0] > 1.05, cost(count, 2 * rounds.shape[1]))

    return rule


def by_mann_whitney(rng: np.random.Generator, machine: Conditions, count: int, ratio: float) -> Called:
    """All steps of all launches, as if they were independent."""
    rounds = interleaved(rng, machine, count, LAUNCHES, ratio)
    sides = [rounds[:, :, side].reshape(count, -1) for side in (0, 1)]
    found = stats.mannwhitneyu(sides[1], sides[0], alternative="greater", axis=1, method="asymptotic")
    return Called(found.pvalue < 0.01, cost(count, 2 * LAUNCHES))


def by_welch(rng: np.random.Generator, machine: Conditions, count: int, ratio: float) -> Called:
    """Launches as what is sampled, in one stage."""
    medians = np.median(interleaved(rng, machine, count, LAUNCHES, ratio), axis=3)
    found = stats.ttest_ind(medians[:, :, 1], medians[:, :, 0], axis=1, equal_var=False, alternative="greater")
    shift = (medians[:, :, 1] - medians[:, :, 0]).mean(axis=1)
    return Called((found.pvalue < 0.01) & (shift > np.log(1.025)), cost(count, 2 * LAUNCHES))


RULES: dict[str, Callable[..., Called]] = {
    "dlbench gate": by_gate,
    "dlbench compare, stored": by_compare,
    "pytest-benchmark median:5%": by_threshold(np.median, pooled=False),
    "pytest-benchmark min:5%": by_threshold(np.min, pooled=False),
    "  ... pooled, median:5%": by_threshold(np.median, pooled=True),
    "  ... pooled, min:5%": by_threshold(np.min, pooled=True),
    "Mann-Whitney, all steps": by_mann_whitney,
    "Welch, launches": by_welch,
}


def carried_out(rule: Callable[..., Called], machine: Conditions, simulations: int, ratio: float, seed: int) -> Called:
    """Return what the rule does with so many simulations, in chunks that fit into memory."""
    rng = np.random.default_rng([seed, round(1000 * ratio)])
    sizes = [min(CHUNK, simulations - done) for done in range(0, simulations, CHUNK)]
    parts = [rule(rng, machine, size, ratio) for size in sizes]
    return Called(np.concatenate([each.alarms for each in parts]), np.concatenate([each.launches for each in parts]))


def main() -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--simulations", type=int, default=20_000, help="of identical code; a tenth of that of slowdowns"
    )
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    table = Table(
        title=f"Called slower, per cent of cells: identical code / 5 % slower / 10 % slower; launches a cell.\n"
        f"{asked.simulations} simulations of identical code, {asked.simulations // 10} of each slowdown; "
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, seed {asked.seed}"
    )
    table.add_column("rule")
    for name in MACHINES:
        table.add_column(name, justify="right")
        table.add_column("launches", justify="right")
    missed = False
    for title, rule in RULES.items():
        fields = [title]
        for name, machine in MACHINES.items():
            found = {
                ratio: carried_out(
                    rule, machine, asked.simulations if ratio == 1 else asked.simulations // 10, ratio, asked.seed
                )
                for ratio in RATIOS
            }
            rates = [100 * float(found[ratio].alarms.mean()) for ratio in RATIOS]
            fields += [f"{rates[0]:.2f} / {rates[1]:.0f} / {rates[2]:.0f}", f"{found[1.0].launches.mean():.0f}"]
            if rule is by_gate and name != "bad":
                count = int(found[1.0].alarms.sum())
                missed |= bool(stats.binomtest(count, asked.simulations, GOAL, alternative="greater").pvalue < 0.001)
        table.add_row(*fields)
    Console(width=120).print(table)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
