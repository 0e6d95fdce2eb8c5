"""Replay the corpus of real launches: false alarms, power, coverage and noise, for the gate and for other rules.

    python tests/benchmarks/replay_corpus.py --write

It prints the tables as Markdown and writes them into reports/VERDICTS.md. Seeds are fixed: the same corpus gives the
same tables. Takes some minutes of CPU time.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import corpus as replay
import numpy as np
import typer
from corpus import EFFECTS, GATE, PACKED, RULES, SLOW, Corpus, Rate, calm

from dlbench.reports.compare.verdict import DEFAULT, Verdict

DOCUMENT = Path(__file__).resolve().parents[2] / "reports" / "VERDICTS.md"
BEGIN, END = "<!-- corpus: begin -->", "<!-- corpus: end -->"
SEED = 20261120
EXCHANGED = {GATE: 5000}  # comparisons of each framework with sides exchanged by lot; of the other rules:
OTHERS_EXCHANGED = 1250
DRAWN = {GATE: 500}  # gates of each framework and effect, for power, and of each kind of noise; of the other rules:
OTHERS_DRAWN = 250
CELLS = 200  # of a night
WINDOWS = tuple(look.pairs for look in DEFAULT.looks if look.pairs <= 24)  # the corpus has few longer ones
SHOWN = (Verdict.REGRESSION, Verdict.CONTENDED, Verdict.INCONCLUSIVE, Verdict.NO_REGRESSION, Verdict.IMPROVEMENT)


def percent(share: float, digits: int = 1) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.{digits}f} %"


def a_night(share: float) -> str:
    """Write how many false alarms a night of 200 cells would see."""
    return "-" if math.isnan(share) else f"{CELLS * share:.2f}" if CELLS * share < 10 else f"{CELLS * share:.0f}"


def span(rates: Sequence[Rate]) -> str:
    values = [rate.value for rate in rates]
    return f"{percent(min(values))} to {percent(max(values))}" if values else "-"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table as Markdown: the first column to the left, the others to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def rules_table(rules: dict[str, dict[str, list[replay.Decision]]]) -> str:
    head = ["Rule", "independent", "95 % interval", "exchanged", "a night", "exchanged, undisturbed", "a night"]
    head += ["stored baseline", "stored, undisturbed", *[f"finds +{label[4:]} %" for label in EFFECTS]]
    rows = []
    for name, decisions in rules.items():
        rates = {of: replay.alarms(found) for of, found in decisions.items()}
        low, high = rates["independent"].interval
        row = [name, "{} of {}".format(*rates["independent"]), f"{percent(low)} to {percent(high)}"]
        for of in ("exchanged", "undisturbed"):
            row += [percent(rates[of].value, 2), a_night(rates[of].value)]
        row += ["has none" if name == GATE else percent(rates[of].value) for of in ("stored", "stored, undisturbed")]
        rows.append([*row, *(percent(rates[label].value, 0) for label in EFFECTS)])
    return table(head, rows)


def frameworks_table(corpus: Corpus, random: np.random.Generator) -> str:
    """Describe each framework's launches."""
    head = ["Framework", "pairs a, b", "undisturbed", "deviation, robust", "plain"]
    head += [f"true effect of +{label[4:]} %" for label in EFFECTS]
    head += [f"gate finds +{label[4:]} %" for label in EFFECTS] + ["scaled to exactly 5 %"]
    rows = []
    for framework in corpus.frameworks:
        pairs = corpus.pairs(framework, "a", "b")
        robust, plain = replay.deviation(calm(pairs))
        row = [framework, str(len(pairs)), str(len(calm(pairs))), percent(robust), percent(plain)]
        slowdowns = [replay.effect_pairs(corpus, framework, label) for label in EFFECTS]
        for label, found in zip(EFFECTS, slowdowns, strict=True):
            true = replay.effect(corpus, framework, label) if found else None
            shown = f"{100 * (true.ratio - 1):+.1f} %" if true else "-"
            if true and true.low > 0:
                shown += f" ({100 * (true.low - 1):+.1f} to {100 * (true.high - 1):+.1f})"
            row.append(f"{shown}, {true.pairs} pairs" if true else shown)
        slowdowns.append(replay.exactly_five(slowdowns[1]) if slowdowns[1] else [])
        powers = [replay.alarms(replay.gate_drawn(found, random, DRAWN[GATE])) for found in slowdowns]
        rows.append([*row, *(percent(power.value, 0) for power in powers)])
    return table(head, rows)


def heading(corpus: Corpus, gate: dict[str, list[replay.Decision]]) -> str:
    """Describe the launches, where they were collected, and what the gate spent on them."""
    launches = corpus.launches
    disturbed = Rate.count(launch.disturbed for launch in launches)
    pairs = [pair for framework in corpus.frameworks for pair in corpus.pairs(framework, "a", "b")]
    machine = "; ".join(f"{label} {value}" for label, value in corpus.machine.items() if label != "Fingerprint")
    first, last = (end(launch.started for launch in launches) for end in (min, max))
    same, slower = (np.mean([decision.pairs for decision in gate[of]]) for of in ("undisturbed", "plus5"))
    return (
        f"Collected from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC on machine {corpus.host.fingerprint} "
        f"({machine}): {len(launches)} launches of `lstm32`, mini-batch 4, 1 thread, of "
        f"{', '.join(corpus.frameworks)}. {disturbed.hits} of them ({percent(disturbed.value, 0)}) were disturbed by "
        f"their own evidence. {len(pairs)} pairs of identical code, {len(calm(pairs))} of them undisturbed.\n\n"
        f"Comparisons by the gate: {len(gate['independent'])} independent ones, which share no launch and go through "
        f"the product's own schedule, records and report; {len(gate['exchanged'])} on all pairs and "
        f"{len(gate['undisturbed'])} on undisturbed ones with sides exchanged by lot, from every starting block and "
        "round: these share launches.\n\n"
        f"A cell took {same:.1f} pairs of identical code on average, {slower:.1f} with 5 % more work."
    )


def report(corpus: Corpus) -> str:
    """Replay everything, and write it down."""
    random = np.random.default_rng(SEED)
    rules = {
        name: replay.decisions_of(
            name, corpus, random, EXCHANGED.get(name, OTHERS_EXCHANGED), DRAWN.get(name, OTHERS_DRAWN)
        )
        for name in RULES
    }
    gate = rules[GATE]
    frameworks = frameworks_table(corpus, random)
    covered = [replay.coverage(corpus, random, size, OTHERS_EXCHANGED) for size in WINDOWS]
    noisy = replay.verdicts_under_noise(corpus, random, DRAWN[GATE])
    slow = [launch for launch, late in replay.slowness(corpus) if late > SLOW]
    unseen = sum(launch.waiting < 0.02 and launch.pressure < 0.02 for launch in slow)
    parts = [
        heading(corpus, gate),
        f"By construction: where noise falls on both sides of a pair alike, every sign is a fair coin, whatever the "
        f"noise looks like, and the levels of all looks add up to {percent(DEFAULT.false_alarms, 2)} a cell. "
        "Exchanging sides by lot makes that null by hand, so its count checks the implementation, not the machine.",
        "### False alarms and power, rule by rule",
        f"Stored baseline: launches of the same code {replay.APART} blocks apart, with the earlier ones as the "
        "baseline and with the later ones. Power: real extra work, undisturbed pairs, drawn at random with "
        "replacement; the true effects are in the next table.",
        rules_table(rules),
        "### Frameworks",
        "Deviation: of one launch, from undisturbed pairs, robust (median absolute deviation) and plain. True effects: "
        "over all undisturbed pairs, with 95 % intervals.",
        frameworks,
        f"Intervals over {' and '.join(map(str, WINDOWS))} undisturbed pairs of identical code, sides exchanged, cover "
        f"{span([rates[0] for rates in covered])}.",
        "### Verdicts under noise",
        table(
            ["Noise", "gates", *[verdict.value for verdict in SHOWN]],
            [
                [name, str(found.total()), *(percent(Rate(found[verdict], found.total()).value) for verdict in SHOWN)]
                for name, (_, found) in noisy.items()
            ],
        ),
        f"Of {len(slow)} launches of identical code that were more than 5 % slow, {unseen} showed no sign of "
        "contention (waiting and pressure both below 2 %).",
    ]
    return "\n\n".join(parts) + "\n"


def main(corpus: Path = PACKED, write: bool = False) -> None:
    """Print the tables of a packed corpus; --write puts them into reports/VERDICTS.md too."""
    text = report(replay.read(corpus))
    print(text)
    if write:
        old = DOCUMENT.read_text(encoding="utf-8")
        before, after = old.split(BEGIN)[0], old.split(END)[1]
        DOCUMENT.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
