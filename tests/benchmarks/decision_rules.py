"""The gate's verdicts on identical code and on real slowdowns, by simulation: a table of
reports/docs/explanation/verdicts.md.

    .venv/bin/python tests/benchmarks/decision_rules.py                 8,000 cells of identical code, some minutes
    .venv/bin/python tests/benchmarks/decision_rules.py --cells 800     shorter

Launches deviate by 1, 2 or 3 %, drift by 0.5 % from one to the next, and 2 % of them are in
somebody's way; on the bad machine they deviate by 4 % with heavy tails, drift by 1 %, and 5 % are
in somebody's way (`simulated.py`). Exit code 1 where the gate's false alarms exceed the goal of
0.05 % on another than the bad machine beyond chance.
"""

import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))
from simulated import BAD, CI, Conditions, gate, launches, pairs_needed

from dlbench.reports.results.verdict import Verdict

MACHINES = {
    "1 %": Conditions(0.01, drift=0.005, spikes=0.02),
    "2 %": Conditions(0.02, drift=0.005, spikes=0.02),
    "3 %": CI,
    "bad": BAD,
}
SLOWDOWNS = (0.0, 0.02, 0.05, 0.1)
GOAL = 0.0005


def main(cells: int = 8000, seed: int = 1) -> None:
    """Print the table, by so many cells of identical code and a third of that of each slowdown."""
    table = Table(
        *("deviation", "slower by", "REGRESSION", "NO_REGRESSION", "pairs"),
        title=f"Per cent of {cells} cells of identical code, {cells // 3} of each slowdown; "
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, seed {seed}",
        box=None,
    )
    missed = False
    for name, machine in MACHINES.items():
        for slowdown in SLOWDOWNS:
            count = cells // 3 if slowdown else cells
            rng = np.random.default_rng([seed, round(1000 * slowdown)])
            gates = [
                gate(cell) for cell in launches(rng, machine, count, pairs_needed(), 1 + slowdown)
            ]
            alarms = sum(decision.alarm for decision in gates)
            passed = sum(decision.judgement.verdict is Verdict.NO_REGRESSION for decision in gates)
            shares = f"{100 * alarms / count:.2f}", f"{100 * passed / count:.1f}"
            table.add_row(
                name,
                f"{slowdown:.0%}",
                *shares,
                f"{np.mean([decision.pairs for decision in gates]):.1f}",
            )
            if not slowdown and name != "bad":
                missed |= bool(
                    stats.binomtest(alarms, count, GOAL, alternative="greater").pvalue < 0.001
                )
    Console(width=120).print(table)
    raise typer.Exit(int(missed))


if __name__ == "__main__":
    typer.run(main)
