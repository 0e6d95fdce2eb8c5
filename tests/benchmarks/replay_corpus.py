"""Replay the corpus of real launches: false alarms, power, coverage and noise, for the gate and for
other rules.

    python tests/benchmarks/replay_corpus.py --write

It prints the tables as Markdown and writes them into tests/data/replayed_corpus.txt, of which
reports/docs/explanation/verdicts.md has a part. Seeds are fixed: the same corpus gives the same
tables. Takes some minutes of CPU time.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import corpus as replay
import numpy as np
import typer
from corpus import EFFECTS, GATE, PACKED, RULES, SLOW, Corpus, Rate, calm

from dlbench.reports.results.verdict import DEFAULT, Verdict

TABLES = Path(__file__).resolve().parents[1] / "data" / "replayed_corpus.txt"
EXCHANGED = {
    GATE: 5000
}  # comparisons of each framework with sides exchanged at random; of the other rules:
OTHERS_EXCHANGED = 1250
DRAWN = {
    GATE: 500
}  # gates of each framework and effect, for power, and of each kind of noise; of the other rules:
OTHERS_DRAWN = 250
# The corpus has few longer ones.
WINDOWS = tuple(
    look.pairs for look in DEFAULT.looks if not look.assumes_normal and look.pairs <= 24
)
SHOWN = (
    Verdict.REGRESSION,
    Verdict.CONTENDED,
    Verdict.INCONCLUSIVE,
    Verdict.NO_REGRESSION,
    Verdict.IMPROVEMENT,
)
_ADDED = ", ".join(f"+{label[4:]}" for label in EFFECTS)


def seeded() -> np.random.Generator:
    """Return a generator of its own for each table and rule, so that a change of one leaves the
    others as they are."""
    return np.random.default_rng(20261120)


def percent(share: float, digits: int = 1) -> str:
    """Write a share in per cent, without the sign: the heading of a column has it."""
    return "-" if math.isnan(share) else f"{100 * share:.{digits}f}"


def percents(decisions: Iterable[Sequence[replay.Decision]]) -> str:
    """Write how often each slowdown was found."""
    return ", ".join(percent(replay.alarms(decision).value, 0) for decision in decisions)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table as Markdown: the first column to the left, the others to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def rules_table(rules: dict[str, dict[str, list[replay.Decision]]]) -> str:
    head = ["called slower, %", "independent (95 % interval)", "exchanged", "undisturbed"]
    head += ["stored", "stored, undisturbed", f"finds {_ADDED}"]
    rows = []
    for name, decisions in rules.items():
        rates = {kind: replay.alarms(decision) for kind, decision in decisions.items()}
        low, high = rates["independent"].interval
        row = [
            name,
            "{} of {}".format(*rates["independent"]) + f" ({percent(low)} to {percent(high)})",
        ]
        row += [percent(rates[kind].value, 2) for kind in ("exchanged", "undisturbed")]
        row += [percent(rates[kind].value) for kind in ("stored", "stored, undisturbed")]
        rows.append([*row, percents(decisions[label] for label in EFFECTS)])
    return table(head, rows)


def span(shares: Iterable[float]) -> str:
    """Write the least and the greatest share in per cent."""
    in_order = sorted(shares)
    return f"{percent(in_order[0])} to {percent(in_order[-1])}"


def noise_table(corpus: Corpus) -> str:
    decisions = replay.verdicts_under_noise(corpus, seeded(), DRAWN[GATE])
    return table(
        ["verdicts, %", *(verdict.value for verdict in SHOWN)],
        [
            [name, *(percent(Rate(gates[verdict], gates.total()).value) for verdict in SHOWN)]
            for name, gates in decisions.items()
        ],
    )


def heading(corpus: Corpus, gate: dict[str, list[replay.Decision]]) -> str:
    """Describe the launches, where they were collected, what was added to them, and what the gate
    spent on them."""
    launches = corpus.launches
    disturbed = Rate.count(launch.disturbed for launch in launches)
    by_framework = {framework: corpus.pairs(framework, "a", "b") for framework in corpus.frameworks}
    pairs = [pair for pairs_of_framework in by_framework.values() for pair in pairs_of_framework]
    machine = ", ".join(corpus.machine[label] for label in ("CPU", "Cores", "Virtualisation"))
    same, slower = (
        np.mean([decision.pairs for decision in gate[kind]]) for kind in ("undisturbed", "plus5")
    )
    deviations = span(
        replay.deviation(calm(pairs_of_framework)) for pairs_of_framework in by_framework.values()
    )
    costs = ", ".join(
        span(replay.effect(corpus, framework, label).value - 1 for framework in by_framework)
        for label in EFFECTS
    )
    random = seeded()
    covered = span(
        replay.coverage(corpus, random, size, OTHERS_EXCHANGED).value for size in WINDOWS
    )
    return (
        f"{len(launches)} launches of `lstm32`, mini-batch 4, 1 thread, on "
        f"{launches[0].started:%Y-%m-%d} ({machine}); {disturbed.hits} "
        f"({percent(disturbed.value, 0)} %) were disturbed. Of {len(pairs)} pairs of identical code "
        f"{len(calm(pairs))} were undisturbed. By framework, a launch deviates by {deviations} % "
        f"(robust), and work added as {_ADDED} % costs {costs} %.\n\nThe gate decided "
        f"{len(gate['independent'])} independent comparisons, {len(gate['exchanged'])} exchanged "
        f"and {len(gate['undisturbed'])} undisturbed ones. It took {same:.1f} pairs of identical "
        f"code on average, {slower:.1f} with 5 % more work. Its intervals over {WINDOWS[0]} to "
        f"{WINDOWS[-1]} undisturbed pairs cover {covered} %."
    )


def report(corpus: Corpus) -> str:
    """Replay everything, and write it down."""
    rules = {
        name: replay.decisions_of(
            name,
            corpus,
            seeded(),
            EXCHANGED.get(name, OTHERS_EXCHANGED),
            DRAWN.get(name, OTHERS_DRAWN),
        )
        for name in RULES
    }
    slow = [launch for launch, late in replay.slowness(corpus) if late > SLOW]
    unseen = sum(launch.waiting < 0.02 and launch.pressure < 0.02 for launch in slow)
    parts = [
        heading(corpus, rules[GATE]),
        (
            f"Stored: the baseline is {replay.APART} blocks earlier or later. Slowdowns: real extra "
            "work, in undisturbed pairs drawn with replacement."
        ),
        rules_table(rules),
        (
            f"Gates of identical code under noise (last row: 5 % more work), {DRAWN[GATE]} of each "
            "framework:"
        ),
        noise_table(corpus),
        (
            f"Of {len(slow)} launches of identical code more than 5 % slow, {unseen} showed no "
            "contention (waiting and pressure both below 2 %)."
        ),
    ]
    return "\n\n".join(parts) + "\n"


def main(corpus: Path = PACKED, write: bool = False) -> None:
    """Print the tables of a packed corpus; --write keeps them in tests/data too."""
    text = report(replay.read(corpus))
    print(text)
    if write:
        TABLES.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
