"""What each rule does with identical code, and with real slowdowns of 5 and 10 %: one table, by simulation.

    .venv/bin/python tests/benchmarks/decision_rules.py                       20,000 simulations, some minutes
    .venv/bin/python tests/benchmarks/decision_rules.py --simulations 2000    shorter

Every rule sees the same kind of machine (`simulated.py`): quiet (launches vary by 1 %), a CI machine (3 %, the
level drifts by 0.5 % from launch to launch, 2 % of launches are in somebody's way, sessions differ by 2.5 %) and a bad
one (4 % with heavy tails, 5 % of launches in somebody's way, sessions differ by 4 %). A launch gives 20 steps, which
vary by 2 % (bad: 4 %) and are skewed. The rules are those of `corpus.py`:

gate                dlbench gate: its looks, on interleaved pairs of launches, by their medians.
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

import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import typer
from corpus import grew, mann_whitney, stored_runs, welch
from rich.console import Console
from rich.table import Table
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))
from simulated import BAD, CI, QUIET, Array, Conditions, gate, launches, pairs_needed, steps

MACHINES = {"quiet": QUIET, "CI": CI, "bad": BAD}
RATIOS = (1.0, 1.05, 1.1)
LAUNCHES, STEPS, ROUNDS = 5, 20, 100
CHUNK = 250
GOAL = 0.0005
GATE = "dlbench gate"
#: Launches a side, steps of each, whether the baseline is a stored one, and the rule.
RULES = {
    GATE: (pairs_needed(), STEPS, False, None),
    "dlbench compare, stored": (LAUNCHES, STEPS, True, stored_runs),
    "pytest-benchmark median:5%": (1, ROUNDS, True, grew(lambda rounds: np.median([*rounds]))),
    "pytest-benchmark min:5%": (1, ROUNDS, True, grew(min)),
    "  ... pooled, median:5%": (LAUNCHES, STEPS, False, grew(lambda rounds: np.median([*rounds]))),
    "  ... pooled, min:5%": (LAUNCHES, STEPS, False, grew(min)),
    "Mann-Whitney, all steps": (LAUNCHES, STEPS, False, mann_whitney),
    "Welch, launches": (LAUNCHES, STEPS, False, welch),
}


def drawn(rng: np.random.Generator, machine: Conditions, shape: tuple[int, int, int], stored: bool, by: float) -> Array:
    """Return logarithms of steps, shape (cells, launches, 2, steps), of one session or of two with their own levels."""
    count, pairs, of_launch = shape
    if not stored:
        return steps(rng, machine, launches(rng, machine, count, pairs, by), of_launch)
    sides = [
        launches(rng, machine, count, pairs)[:, :, side] + rng.normal(0, machine.session, (count, 1)) for side in (0, 1)
    ]
    return steps(rng, machine, np.stack(sides, axis=2) + np.log([1.0, by]), of_launch)


def decided(title: str, machine: Conditions, count: int, by: float, seed: int) -> tuple[int, float]:
    """Return how many of so many cells a rule calls slower, and its mean number of launches a cell."""
    pairs, of_launch, stored, slower = RULES[title]
    rng = np.random.default_rng([seed, round(1000 * by)])
    alarms, cost = 0, 0
    for done in range(0, count, CHUNK):  # what fits into memory
        shape = min(CHUNK, count - done), pairs, of_launch
        for cell in drawn(rng, machine, shape, stored, by):
            if slower is None:
                found = gate(np.median(cell, axis=2))
                alarms, cost = alarms + found.alarm, cost + 2 * found.pairs
            else:
                seconds = np.exp(cell)
                alarms, cost = alarms + slower(seconds[:, 0], seconds[:, 1]), cost + 2 * pairs
    return alarms, cost / count


def main(simulations: int = 20_000, seed: int = 1) -> None:
    """Print the table, by so many simulations of identical code and a tenth of that of slowdowns."""
    counts = {by: simulations if by == 1 else simulations // 10 for by in RATIOS}
    table = Table(
        *("rule", *(head for name in MACHINES for head in (name, "launches"))),
        title=f"Called slower, per cent of cells: identical code / 5 % slower / 10 % slower; launches a cell.\n"
        f"{simulations} simulations of identical code, {simulations // 10} of each slowdown; "
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, seed {seed}",
    )
    missed = False
    for title in RULES:
        fields = [title]
        for name, machine in MACHINES.items():
            found = {by: decided(title, machine, count, by, seed) for by, count in counts.items()}
            same, *slow = (100 * alarms / counts[by] for by, (alarms, _) in found.items())
            fields += [" / ".join((f"{same:.2f}", *(f"{each:.0f}" for each in slow))), f"{found[1.0][1]:.0f}"]
            if title == GATE and name != "bad":
                chance = stats.binomtest(found[1.0][0], simulations, GOAL, alternative="greater")
                missed |= bool(chance.pvalue < 0.001)
        table.add_row(*fields)
    Console(width=120).print(table)
    raise typer.Exit(int(missed))


if __name__ == "__main__":
    typer.run(main)
