"""Replay the corpus of real launches: false alarms, power, coverage and noise, for the gate and for other rules.

    python tests/benchmarks/replay_corpus.py --write

It prints the tables as Markdown and writes them into reports/VERDICTS.md. Seeds are fixed: the same corpus gives the
same tables. Takes about half a minute of CPU time.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import corpus as replay
import numpy as np
import typer
from corpus import EFFECTS, GATE, PACKED, RULES, SEEN, SLOW, Corpus, Rate, calm

from dlbench.reports.compare.verdict import DEFAULT, Verdict
from dlbench.reports.disturbance import WAITING_SHARE

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


def frameworks_table(corpus: Corpus, random: np.random.Generator) -> tuple[str, list[Rate]]:
    """Describe each framework's launches; also return the power at exactly 5 % where they deviate by 3 % at most."""
    head = ["Framework", "pairs a, b", "undisturbed", "deviation, robust", "plain"]
    head += [f"true effect of +{label[4:]} %" for label in EFFECTS]
    head += [f"gate finds +{label[4:]} %" for label in EFFECTS] + ["scaled to exactly 5 %"]
    rows, quiet = [], []
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
        if robust <= 0.03 and powers[-1].of:
            quiet.append(powers[-1])
    return table(head, rows), quiet


def evidence_table(corpus: Corpus) -> str:
    """Show how well rules on the evidence find launches that were slowed down."""
    rules = {"the rule in use says so": lambda launch: launch.disturbed}
    for name, field, scale, limits in (
        ("waiting", "waiting", 100, (2, 5, 10, 30)),
        ("pressure meanwhile", "pressure", 100, (5, 10, 25)),
        ("pressure before", "pressure_before", 1, (5, 10, 20)),
    ):
        for limit in limits:
            rules[f"{name} > {limit} %"] = lambda launch, field=field, most=limit / scale: getattr(launch, field) > most
    rules["waiting > 10 % or pressure meanwhile > 10 %"] = lambda launch: max(launch.waiting, launch.pressure) > 0.1
    rules["waiting > 10 % or pressure before > 20 %"] = lambda launch: (
        launch.waiting > 0.1 or launch.pressure_before > 20
    )
    launches = replay.slowness(corpus)
    slow = sum(late > SLOW for _, late in launches)
    rows = []
    for name, flags in rules.items():
        flagged = [late for launch, late in launches if flags(launch)]
        passed = [late for launch, late in launches if not flags(launch)]
        shares = [
            Rate(len(flagged), len(launches)),
            Rate(sum(late > SLOW for late in flagged), slow),
            Rate.count(late > SLOW for late in passed),
            Rate.count(late > 0.10 for late in passed),
            Rate.count(late < 0.03 for late in flagged),
        ]
        rows.append([name, *[percent(share.value) for share in shares]])
    head = ["A launch is disturbed when", "flagged", "found of those > 5 % slow", "passed: > 5 % slow"]
    return table([*head, "passed: > 10 % slow", "flagged: < 3 % slow"], rows)


def goals_table(gate, bound, frameworks, quiet, covered, noisy) -> str:
    """Compare with the goals."""
    independent, *both = (replay.alarms(gate[of]) for of in ("independent", "exchanged", "undisturbed"))
    worst, highest = max(both, key=lambda rate: rate.value), independent.interval[1]
    # Where every pair has a disturbed launch, CONTENDED follows by definition and shows nothing.
    seen = [
        verdicts for kind, verdicts in noisy.values() if kind == SEEN and verdicts[Verdict.CONTENDED] < verdicts.total()
    ]
    alarms = sum(verdicts[Verdict.REGRESSION] for verdicts in seen)
    same, slower = [rates[0] for rates in covered], [rates[2] for rates in covered if rates[2].of]

    def within(rates: list[Rate]) -> bool:
        return bool(rates) and all(rate.interval[0] <= 0.97 and rate.interval[1] >= 0.93 for rate in rates)

    rows = [
        (
            "at most 0.1 false alarms a night on 200 cells",
            f"at most {CELLS * bound:.2f} by construction, for noise that falls on both sides alike (see below); "
            f"{worst.hits} of {worst.of} with sides exchanged by lot",
            CELLS * max(worst.value, bound) <= 0.1,
        ),
        (
            "the same from 1,000 independent comparisons",
            f"{independent.hits} alarms in {independent.of}: at most {CELLS * highest:.0f} a night is all "
            "that these alone prove",
            independent.of >= 1000 and CELLS * highest <= 0.1,
        ),
        (
            "power of 85 % at exactly 5 % where launches deviate by 3 % or less (robust)",
            f"{span(quiet)} in {len(quiet)} of {frameworks} frameworks",
            bool(quiet) and min(rate.value for rate in quiet) >= 0.85,
        ),
        ("intervals cover 93 to 97 %, identical code", span(same), within(same)),
        ("intervals cover 93 to 97 %, +5 %", span(slower), within(slower)),
        (
            "never REGRESSION under noise that the evidence sees",
            f"{alarms} of {sum(each.total() for each in seen)} gates",
            not alarms,
        ),
    ]
    return table(
        ["Goal", "Found on this corpus", "Reached"],
        [(goal, found, "yes" if reached else "no") for goal, found, reached in rows],
    )


def heading(corpus: Corpus, gate: dict[str, list[replay.Decision]]) -> str:
    """Describe the launches, where they were collected, and the rule."""
    rule, launches = DEFAULT, corpus.launches
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
        f"The rule replayed: looks after {', '.join(str(look.pairs) for look in rule.looks)} pairs. REGRESSION is more "
        f"than {percent(rule.magnitude)} slower with p <= {', '.join(f'{look.slower:g}' for look in rule.looks)}; "
        f"clear is an interval that ends below +{percent(rule.tolerance)}, its ends at {rule.confidence_of_looks:.0%} "
        f"each over all looks. "
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
    frameworks, quiet = frameworks_table(corpus, random)
    covered = [replay.coverage(corpus, random, size, OTHERS_EXCHANGED) for size in WINDOWS]
    noisy = replay.verdicts_under_noise(corpus, random, DRAWN[GATE])
    hidden = sum(launch.waiting > WAITING_SHARE and not launch.disturbed for launch in corpus.launches)
    slow = [launch for launch, late in replay.slowness(corpus) if late > SLOW]
    unseen = sum(launch.waiting < 0.02 and launch.pressure < 0.02 for launch in slow)
    parts = [
        heading(corpus, gate),
        goals_table(gate, DEFAULT.false_alarms, len(corpus.frameworks), quiet, covered, noisy),
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
        "### Interval coverage",
        "Undisturbed pairs. By construction the exact interval covers 96.9 % from 6 pairs, 95 to 96 % from more. The "
        "windows share launches.",
        table(
            [
                *("Pairs", "identical code, exchanged", "comparisons", "as collected", "windows"),
                *("+5 %, the corpus' own estimate", "windows"),
            ],
            [
                [str(size), *(word for rate in rates for word in (percent(rate.value), str(rate.of)))]
                for size, rates in zip(WINDOWS, covered, strict=True)
            ],
        ),
        "### Verdicts under noise",
        table(
            ["Noise", "gates", *[verdict.value for verdict in SHOWN]],
            [
                [name, str(found.total()), *(percent(Rate(found[verdict], found.total()).value) for verdict in SHOWN)]
                for name, (_, found) in noisy.items()
            ],
        ),
        "### What the evidence sees, and misses",
        "Launches of identical code; slow is against the framework's median while nobody else was there. Waiting: "
        "share of the time that the launch's threads wanted to run and had no CPU. Pressure: share of the time that "
        "any task of the machine waited (PSI), during the timed steps or in the ten seconds before. "
        f"{hidden} launch{'' if hidden == 1 else 'es'} waited for longer than the rule allows and "
        f"{'was' if hidden == 1 else 'were'} not flagged, since the waiting of helper threads looked like more threads "
        f"than asked for. Of {len(slow)} launches that were more than 5 % slow {unseen} were so though nobody waited: "
        "less than 2 % waiting, less than 2 % pressure meanwhile.",
        evidence_table(corpus),
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
