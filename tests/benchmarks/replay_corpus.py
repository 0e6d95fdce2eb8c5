"""Replay the corpus of real launches: false alarms, power, coverage and noise, beside what other rules would have said.

    python tests/benchmarks/replay_corpus.py --write

It prints the tables as Markdown and writes them into reports/VERDICTS.md. Seeds are fixed: the same corpus gives the
same tables. Takes about half a minute of CPU time.
"""

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import corpus_noise as noise
import corpus_rates as rates
import numpy as np
from corpus import PACKED, Corpus, CorpusLaunch, calm, read
from corpus_rates import EFFECTS, Coverage, Rate, RuleRates
from corpus_replay import OTHER_RULES

from dlbench.reports.compare.verdict import DEFAULT, PairedEstimate, Rule, Verdict, null_distribution

ROOT = Path(__file__).resolve().parents[2]

DOCUMENT = ROOT / "reports" / "VERDICTS.md"
BEGIN, END = "<!-- corpus: begin -->", "<!-- corpus: end -->"
SEED = 20261120
GATES_EXCHANGED = 5000
"""Comparisons of each framework by the gate with sides exchanged by lot."""
OTHERS_EXCHANGED = 1250
GATES_DRAWN = 500
"""Gates of each framework and effect, for power, and of each kind of noise."""
OTHERS_DRAWN = 250
CELLS = 200
"""Of a night."""
WINDOWS = (*DEFAULT.screen_looks, DEFAULT.confirm_pairs)
COVERED = (0.93, 0.97)
SHOWN = (Verdict.REGRESSION, Verdict.CONTENDED, Verdict.INCONCLUSIVE, Verdict.NO_REGRESSION, Verdict.IMPROVEMENT)


def percent(share: float, digits: int = 1) -> str:
    """Write a share; "-" for none."""
    return "-" if math.isnan(share) else f"{100 * share:.{digits}f} %"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table as Markdown: the first column to the left, the others to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def a_night(share: float) -> str:
    """Write how many false alarms a night of 200 cells would see."""
    return "-" if math.isnan(share) else f"{CELLS * share:.2f}" if CELLS * share < 10 else f"{CELLS * share:.0f}"


def change(found: PairedEstimate | None, pairs: int) -> str:
    """Write a ratio as a change with its interval."""
    if found is None:
        return "-"
    shown = f"{100 * (found.ratio - 1):+.1f} %"
    if found.low > 0:
        shown += f" ({100 * (found.low - 1):+.1f} to {100 * (found.high - 1):+.1f})"
    return f"{shown}, {pairs} pairs"


def rules_table(found: Sequence[RuleRates]) -> str:
    """Write false alarms and power, rule by rule."""
    head = ["Rule", "independent", "95 % interval", "exchanged", "a night", "exchanged, undisturbed", "a night"]
    head += ["stored baseline", "stored, undisturbed", *[f"finds +{label[4:]} %" for label in EFFECTS]]
    rows = []
    for each in found:
        low, high = each.independent.interval
        alarms = [f"{each.independent.hits} of {each.independent.of}", f"{percent(low)} to {percent(high)}"]
        for share in (each.exchanged.value, each.undisturbed.value):
            alarms += [percent(share, 2), a_night(share)]
        stored = [
            "has none" if rate is None else percent(rate.value) for rate in (each.stored, each.stored_undisturbed)
        ]
        rows.append([each.name, *alarms, *stored, *[percent(power.value, 0) for power in each.power]])
    return table(head, rows)


def frameworks_table(corpus: Corpus, random: np.random.Generator) -> tuple[str, dict[str, tuple[float, Rate]]]:
    """Write what each framework's launches are like; also return robust deviations and the power at exactly 5 %."""
    head = ["Framework", "pairs a, b", "undisturbed", "deviation, robust", "plain"]
    head += [f"true effect of +{label[4:]} %" for label in EFFECTS]
    head += [f"gate finds +{label[4:]} %" for label in EFFECTS] + ["scaled to exactly 5 %"]
    rows, facts = [], {}
    for framework in corpus.frameworks:
        pairs = corpus.pairs(framework, "a", "b")
        robust, plain = rates.deviation(calm(pairs))
        by_effect = [rates.effect_pairs(corpus, framework, label) for label in EFFECTS]
        shown = [
            rates.effect(corpus, framework, label) if found else None
            for label, found in zip(EFFECTS, by_effect, strict=True)
        ]
        effects = [change(each, each.pairs if each else 0) for each in shown]
        powers = [rates.alarms(rates.gate_drawn(found, random, GATES_DRAWN)) for found in by_effect]
        five = rates.exactly_five(by_effect[1]) if by_effect[1] else []
        exactly = rates.alarms(rates.gate_drawn(five, random, GATES_DRAWN))
        facts[framework] = (robust, exactly)
        shown = [percent(power.value, 0) for power in [*powers, exactly]]
        rows.append(
            [framework, str(len(pairs)), str(len(calm(pairs))), percent(robust), percent(plain), *effects, *shown]
        )
    return table(head, rows), facts


def coverage_table(found: Sequence[Coverage]) -> str:
    """Write the coverage by number of pairs."""
    head = ["Pairs", "identical code, exchanged", "comparisons", "as collected", "windows"]
    head += ["+5 %, the corpus' own estimate", "windows"]
    rows = []
    for each in found:
        shown = [
            word
            for rate in (each.exchanged, each.collected, each.slower)
            for word in (percent(rate.value), str(rate.of))
        ]
        rows.append([str(each.pairs), *shown])
    return table(head, rows)


def noise_table(found: Sequence[tuple[noise.Noise, Counter[Verdict]]]) -> str:
    """Write the verdicts under noise."""
    rows = []
    for each, verdicts in found:
        total = verdicts.total()
        shares = [percent(verdicts[verdict] / total if total else math.nan) for verdict in SHOWN]
        rows.append([each.name, str(total), *shares])
    return table(["Noise", "gates", *[verdict.value for verdict in SHOWN]], rows)


def evidence_rules() -> dict[str, Callable[[CorpusLaunch], bool]]:
    """Return rules that might tell launches that others slowed down."""
    waiting, meanwhile, before = noise.waiting_share, noise.pressure_share, noise.pressure_before
    shares = {"waiting": (waiting, 2, 5, 10, 30), "pressure meanwhile": (meanwhile, 5, 10, 25)}
    return {
        "the rule in use says so": lambda launch: launch.disturbed,
        **{
            f"{name} > {limit} %": lambda launch, of=of, limit=limit: of(launch) > limit / 100
            for name, (of, *limits) in shares.items()
            for limit in limits
        },
        **{f"pressure before > {limit} %": lambda launch, limit=limit: before(launch) > limit for limit in (5, 10, 20)},
        "waiting > 10 % or pressure meanwhile > 10 %": lambda launch: waiting(launch) > 0.1 or meanwhile(launch) > 0.1,
        "waiting > 10 % or pressure before > 20 %": lambda launch: waiting(launch) > 0.1 or before(launch) > 20,
    }


def evidence_table(corpus: Corpus) -> str:
    """Write how well rules on the evidence tell launches that were slowed down."""
    launches = noise.slowness(corpus)
    slow = sum(late > noise.SLOW for _, late in launches)
    rows = []
    for name, flags in evidence_rules().items():
        flagged = [late for launch, late in launches if flags(launch)]
        passed = [late for launch, late in launches if not flags(launch)]
        shares = [
            Rate(len(flagged), len(launches)),
            Rate(sum(late > noise.SLOW for late in flagged), slow),
            Rate.count(late > noise.SLOW for late in passed),
            Rate.count(late > 0.10 for late in passed),
            Rate.count(late < 0.03 for late in flagged),
        ]
        rows.append([name, *[percent(share.value) for share in shares]])
    head = ["A launch is disturbed when", "flagged", "found of those > 5 % slow", "passed: > 5 % slow"]
    return table([*head, "passed: > 10 % slow", "flagged: < 3 % slow"], rows)


def within(rate: Rate, limits: tuple[float, float] = COVERED) -> bool:
    """Tell whether a rate lies within limits, as far as so many comparisons can tell."""
    low, high = rate.interval
    return low <= limits[1] and high >= limits[0]


def by_construction(rule: Rule, simulations: int = 100_000) -> tuple[float, float]:
    """Return how often a cell becomes suspect and how often fresh pairs confirm it when every sign is a fair coin.

    The first without the estimate's own limit, so that it is the most there can be for any distribution that is
    symmetric about zero: signed ranks depend on it no further. By simulation with a fixed seed.
    """
    random = np.random.default_rng(SEED)
    differences = random.standard_normal((simulations, rule.screen_looks[-1]))
    suspect = np.zeros(simulations, dtype=bool)
    for look in rule.screen_looks:
        ranks = np.argsort(np.argsort(np.abs(differences[:, :look]), axis=1), axis=1) + 1
        negative = (ranks * (differences[:, :look] < 0)).sum(axis=1)
        suspect |= null_distribution(look)[negative] <= rule.screen_p_value
    levels = null_distribution(rule.confirm_pairs)
    return float(suspect.mean()), float(levels[levels <= rule.confirm_p_value].max())


def goals_table(
    gate: RuleRates,
    facts: dict[str, tuple[float, Rate]],
    covered: Sequence[Coverage],
    noisy: Sequence[tuple[noise.Noise, Counter[Verdict]]],
) -> str:
    """Write what was to be reached, and whether it was."""
    worst = max(gate.exchanged, gate.undisturbed, key=lambda rate: rate.value)
    suspect_at_most, confirmed_at_most = by_construction(DEFAULT)
    bound = suspect_at_most * confirmed_at_most
    highest = gate.independent.interval[1]
    quiet = [exactly for robust, exactly in facts.values() if robust <= 0.03 and exactly.of]
    # Where every pair has a disturbed launch, CONTENDED follows by definition and shows nothing.
    seen = [
        verdicts
        for each, verdicts in noisy
        if each.kind == noise.SEEN and verdicts[Verdict.CONTENDED] < verdicts.total()
    ]
    alarms = sum(verdicts[Verdict.REGRESSION] for verdicts in seen)
    same, slower = [each.exchanged for each in covered], [each.slower for each in covered if each.slower.of]

    def span(found: Sequence[Rate]) -> str:
        values = [rate.value for rate in found]
        return f"{percent(min(values))} to {percent(max(values))}" if values else "-"

    rows = [
        (
            "at most 0.1 false alarms a night on 200 cells",
            f"at most {CELLS * bound:.2f} by construction, for noise that falls on both sides alike (see below); "
            f"{worst.hits} of {worst.of} with sides exchanged by lot",
            CELLS * max(worst.value, bound) <= 0.1,
        ),
        (
            "the same from 1,000 independent comparisons",
            f"{gate.independent.hits} alarms in {gate.independent.of}: at most {CELLS * highest:.0f} a night is all "
            "that these alone prove",
            gate.independent.of >= 1000 and CELLS * highest <= 0.1,
        ),
        (
            "power of 85 % at exactly 5 % where launches deviate by 3 % or less (robust)",
            f"{span(quiet)} in {len(quiet)} of {len(facts)} frameworks",
            bool(quiet) and min(rate.value for rate in quiet) >= 0.85,
        ),
        ("intervals cover 93 to 97 %, identical code", span(same), all(within(rate) for rate in same)),
        ("intervals cover 93 to 97 %, +5 %", span(slower), bool(slower) and all(within(rate) for rate in slower)),
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


def rule_in_words(rule: Rule = DEFAULT) -> str:
    """Say what was replayed, with the figures of the rule."""
    looks = ", ".join(map(str, rule.screen_looks))
    return (
        f"The rule replayed: screening looks after {looks} pairs; suspect is more than "
        f"{percent(rule.screen_magnitude)} slower with p <= {rule.screen_p_value}, clear a 95 % interval that ends "
        f"below +{percent(rule.tolerance)}; a suspect cell gets {rule.confirm_pairs} fresh pairs, and is a REGRESSION "
        f"when these alone show more than +{percent(rule.magnitude)} with p <= {rule.confirm_p_value}."
    )


def heading(corpus: Corpus, gate: RuleRates) -> str:
    """Say what was replayed, and where it was collected."""
    launches = corpus.launches
    disturbed = Rate.count(launch.disturbed for launch in launches)
    pairs = sum(len(corpus.pairs(framework, "a", "b")) for framework in corpus.frameworks)
    undisturbed = sum(len(calm(corpus.pairs(framework, "a", "b"))) for framework in corpus.frameworks)
    cost = ""
    if gate.cost:
        same, slower = gate.cost
        cost = f" A cell took {same:.1f} pairs of identical code on average, {slower:.1f} with 5 % more work."
    machine = "; ".join(f"{label} {value}" for label, value in corpus.machine.items() if label != "Fingerprint")
    first, last = (end(launch.started for launch in launches) for end in (min, max))
    return (
        f"Collected from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC on machine {corpus.host.fingerprint} "
        f"({machine}): {len(launches)} launches of `lstm32`, mini-batch 4, 1 thread, of "
        f"{', '.join(corpus.frameworks)}. {disturbed.hits} of them ({percent(disturbed.value, 0)}) were disturbed by "
        f"their own evidence. {pairs} pairs of identical code, {undisturbed} of them undisturbed.\n\n"
        f"Comparisons by the gate: {gate.independent.of} independent ones, which share no launch and go through the "
        f"product's own schedule, records and report; {gate.exchanged.of} on all pairs and {gate.undisturbed.of} on "
        "undisturbed ones with sides exchanged by lot, from every starting block and round: these share launches.\n\n"
        f"{rule_in_words()}{cost}"
    )


def report(corpus: Corpus) -> str:
    """Replay everything, and write it down."""
    random = np.random.default_rng(SEED)
    gate = rates.gate_rates(corpus, random, GATES_EXCHANGED, GATES_DRAWN)
    others = [rates.other_rates(rule, corpus, random, OTHERS_EXCHANGED, OTHERS_DRAWN) for rule in OTHER_RULES]
    frameworks, facts = frameworks_table(corpus, random)
    covered = [rates.coverage(corpus, random, size, OTHERS_EXCHANGED) for size in WINDOWS]
    noisy = [(each, noise.verdicts_under(each, corpus, random, GATES_DRAWN)) for each in noise.kinds_of_noise(corpus)]
    suspect = gate.suspect or 0.0
    suspect_at_most, confirmed_at_most = by_construction(DEFAULT)
    hidden = noise.hidden_by_own_threads(corpus)
    unseen, slow = noise.slow_with_nobody_waiting(corpus)
    parts = [
        heading(corpus, gate),
        goals_table(gate, facts, covered, noisy),
        f"By construction: where noise falls on both sides of a pair alike, every sign is a fair coin. Any of the "
        f"three looks then has p <= {DEFAULT.screen_p_value:g} for {percent(suspect_at_most)} of cells at most, and "
        f"{DEFAULT.confirm_pairs} fresh pairs confirm one of those with a probability of "
        f"{100 * confirmed_at_most:.2f} %, whatever the noise looks like: "
        f"{100 * suspect_at_most * confirmed_at_most:.3f} % a cell. Exchanging sides by lot makes that null by hand, "
        f"so its count checks the implementation, not the machine; here {percent(suspect)} of cells were suspect, "
        f"since an estimate above {percent(DEFAULT.screen_magnitude)} is asked for too.",
        "### False alarms and power, rule by rule",
        f"Stored baseline: launches of the same code {rates.APART} blocks apart, with the earlier ones as the "
        "baseline and with the later ones. Power: real extra work, undisturbed pairs, drawn at random with "
        "replacement; the true effects are in the next table.",
        rules_table([gate, *others]),
        "### Frameworks",
        "Deviation: of one launch, from undisturbed pairs, robust (median absolute deviation) and plain. True effects: "
        "over all undisturbed pairs, with 95 % intervals.",
        frameworks,
        "### Interval coverage",
        "Undisturbed pairs. By construction the exact interval covers 96.9 % from 6 pairs, 95 to 96 % from more. The "
        "windows share launches.",
        coverage_table(covered),
        "### Verdicts under noise",
        noise_table(noisy),
        "### What the evidence sees, and misses",
        "Launches of identical code; slow is against the framework's median while nobody else was there. Waiting: "
        "share of the time that the launch's threads wanted to run and had no CPU. Pressure: share of the time that "
        "any task of the machine waited (PSI), during the timed steps or in the ten seconds before. "
        f"{hidden} launch{'' if hidden == 1 else 'es'} waited for longer than the rule allows and "
        f"{'was' if hidden == 1 else 'were'} not flagged, since the waiting of helper threads looked like more threads "
        f"than asked for. Of {slow} launches that were more than 5 % slow {unseen} were so though nobody waited: less "
        "than 2 % waiting, less than 2 % pressure meanwhile.",
        evidence_table(corpus),
    ]
    return "\n\n".join(parts) + "\n"


def write(text: str, document: Path = DOCUMENT) -> None:
    """Put the tables between the marks of the document.

    Raises SystemExit where the marks are missing.
    """
    old = document.read_text(encoding="utf-8")
    if BEGIN not in old or END not in old:
        raise SystemExit(f"{document.name}: the marks {BEGIN} and {END} are missing; put them where the tables belong")
    before, after = old.split(BEGIN)[0], old.split(END)[1]
    document.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")


def main() -> None:
    """Replay the corpus and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="the packed corpus to replay, if not the stored one")
    parser.add_argument("--write", action="store_true", help=f"write the tables into {DOCUMENT.relative_to(ROOT)}")
    arguments = parser.parse_args()
    packed = arguments.corpus or PACKED
    text = report(read(packed))
    print(text)
    if arguments.write:
        write(text)


if __name__ == "__main__":
    main()
