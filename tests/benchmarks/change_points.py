"""Changes of `dlbench history` beside people's labels and other detectors, and their error rates by
simulation.

    .venv/bin/python tests/benchmarks/change_points.py tcpd.json --python /tmp/rivals/bin/python
    .venv/bin/python tests/benchmarks/change_points.py --nights 1000        simulated nights alone; minutes
    .venv/bin/python tests/benchmarks/change_points.py --drifts 2000        simulated drifts alone; minutes

A file is JSON, name of a series -> {"values": ..., "annotations": {person: [index, ...]}} as in the
Turing Change Point Dataset. The series are scored by F1 (margin 5) and covering as van den Burg and
Williams define them (arXiv 2003.06222). Of a drift its first and last night count as change points.
The detector that finds nothing must score what they published for it. ``--python`` is an
interpreter with the packages that `rivals.py` names. Every detector sees the series standardised,
or scales them itself, with its own defaults.
"""

import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rivals import RIVALS, standardised

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))
import simulated

from dlbench.reports.history.change_points import find_steps
from dlbench.reports.history.drifts import Changes, find_changes

Values = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
MARGIN = 5
STEP = math.log(1.05)
NOTHING = "no change at all"
PUBLISHED = {  # F1 and covering of "zero" (github.com/alan-turing-institute/TCPDBench, analysis/output/scores)
    "centralia": (0.7629, 0.6747),
    "construction": (0.6957, 0.5746),
    "homeruns": (0.6592, 0.5107),
    "lga_passengers": (0.5348, 0.3830),
    "quality_control_1": (0.6667, 0.5031),
    "uk_coal_employ": (0.5133, 0.3565),
    "usd_isk": (0.4887, 0.4363),
}


def ours(values: Values, drifting: bool) -> list[int]:
    """Return the places that `dlbench history` names, of any size."""
    (changes,) = find_changes([values], magnitude=0.0, drifting=[drifting])
    places = [step.position for step in changes.steps]
    if changes.drift is not None:
        places += [
            place
            for place in (changes.drift.first, changes.drift.last)
            if 0 < place < len(values) - 1
        ]
    return sorted(set(places))


OURS: dict[str, Callable[[Values], list[int]]] = {
    NOTHING: lambda values: [],
    "dlbench history, as absolute times": lambda values: ours(values, drifting=True),
    "dlbench history, as ratios": lambda values: ours(values, drifting=False),
}


def true_positives(truth: set[int], places: set[int]) -> int:
    """Return how many true places have a found one within the margin, each found one counting
    once."""
    remaining, hits = set(places), 0
    for place in sorted(truth):
        near = min(
            (candidate for candidate in remaining if abs(candidate - place) <= MARGIN),
            key=lambda candidate: abs(candidate - place),
            default=None,
        )
        if near is not None:
            remaining.remove(near)
            hits += 1
    return hits


def f1(people: Sequence[set[int]], places: set[int]) -> float:
    """Return the harmonic mean of precision, against anyone's labels, and of recall, averaged over
    people."""
    labels, places = [{0, *labelled} for labelled in people], {0, *places}
    precision = true_positives(set.union(*labels), places) / len(places)
    recall = float(np.mean([true_positives(label, places) / len(label) for label in labels]))
    return 2 * precision * recall / (precision + recall)


def covering(people: Sequence[set[int]], places: set[int], count: int) -> float:
    """Return how well the found segments cover each person's, by Jaccard index weighted by length,
    averaged."""

    def segments(ends: set[int]) -> list[set[int]]:
        bounds = sorted({0, count, *ends})
        return [set(range(start, end)) for start, end in pairwise(bounds)]

    ours = segments(places)
    shares = []
    for theirs in people:
        covered = 0.0
        for part in segments(theirs):
            overlap = max(len(part & segment) / len(part | segment) for segment in ours)
            covered += len(part) * overlap
        shares.append(covered / count)
    return float(np.mean(shares))


def places_of(
    series: Mapping[str, Values], python: Path | None
) -> dict[str, dict[str, set[int]] | str]:
    """Return each detector's change points by series, or the reason it could not run."""
    present = {name: np.flatnonzero(np.isfinite(values)) for name, values in series.items()}
    measured = {name: values[present[name]] for name, values in series.items()}
    results: dict[str, Any] = {}
    for title, search in OURS.items():
        results[title] = {name: search(standardised(values)) for name, values in measured.items()}
    if python is None:
        results |= dict.fromkeys(RIVALS, "skipped: give --python an interpreter with its package")
    else:
        request = json.dumps({name: values.tolist() for name, values in measured.items()})
        command = [str(python), str(Path(__file__).with_name("rivals.py"))]
        answered = subprocess.run(command, input=request, stdout=subprocess.PIPE, text=True)
        if answered.returncode != 0:
            raise SystemExit(
                f"{python} cannot run rivals.py; it needs NumPy and the packages named there"
            )
        results |= json.loads(answered.stdout)
    places: dict[str, dict[str, set[int]] | str] = {}
    for title, per_series in results.items():
        if isinstance(per_series, str):
            places[title] = per_series
            continue
        of_detector = {}
        for name in series:
            of_detector[name] = {int(present[name][place]) for place in per_series[name]}
        places[title] = of_detector
    return places


def labelled_table(file: Path, data: dict[str, Any], python: Path | None) -> Table:
    """Return the scores of every detector on labelled series."""
    series = {}
    people = {}
    for name, labelled in data.items():
        series[name] = np.array(labelled["values"], dtype=float)  # None becomes NaN
        people[name] = [set(labels) for labels in labelled["annotations"].values()]
    table = Table(
        "detector",
        "F1",
        "covering",
        "changes",
        title=f"{file.name}: {len(data)} labelled series",
        box=None,
    )
    for title, place in places_of(series, python).items():
        if isinstance(place, str):
            table.add_row(title, place)
            continue
        scores = {
            name: (f1(people[name], place[name]), covering(people[name], place[name], len(values)))
            for name, values in series.items()
        }
        if title == NOTHING:
            for name, published in PUBLISHED.items():
                if name in scores and not np.allclose(scores[name], published, atol=1e-4):
                    raise SystemExit(
                        f"{name}: scores {scores[name]} differ from the published {published}"
                    )
        mean = np.mean(list(scores.values()), axis=0)
        table.add_row(title, f"{mean[0]:.3f}", f"{mean[1]:.3f}", str(sum(map(len, place.values()))))
    return table


def nights_table(count: int) -> Table:
    """Return false alarms, power and coverage on so many simulated series of 60 nights for each
    machine."""
    table = Table(
        *(
            "machine",
            "false alarms: ratios",
            "absolute times",
            "+5 % found after 5 nights",
            "after 10",
        ),
        *("on its night, +-1", "interval covers"),
        title=f"{count} series of 60 nights each, per cent",
        box=None,
    )
    rng = np.random.default_rng(11)
    for machine in simulated.MACHINES:

        def confirmed(values: Values, drifting: bool = False) -> list[Any]:
            return [
                step for step in find_steps([values], drifting=[drifting])[0] if not step.pending
            ]

        plain = np.mean([bool(confirmed(simulated.ratios(rng, 60, machine))) for _ in range(count)])
        drift = np.mean(
            [bool(confirmed(simulated.absolute(rng, 60, machine), True)) for _ in range(count)]
        )
        late = [confirmed(simulated.ratios(rng, 60, machine, [(55, STEP)])) for _ in range(count)]
        later = [confirmed(simulated.ratios(rng, 60, machine, [(50, STEP)])) for _ in range(count)]
        off = np.array([abs(steps[-1].position - 50) for steps in later if steps])
        sizes = [steps[-1] for steps in later if steps and steps[-1].position == 50]
        covered = np.mean([step.low <= STEP <= step.high for step in sizes]) if sizes else math.nan
        shares = plain, drift, np.mean(list(map(bool, late))), np.mean(list(map(bool, later)))
        places = f"{100 * np.mean(off == 0):.0f}, {100 * np.mean(off <= 1):.0f}"
        table.add_row(
            machine, *(f"{100 * share:.1f}" for share in shares), places, f"{100 * covered:.1f}"
        )
    return table


def resembling(
    rng: np.random.Generator, count: int, deviation: float, correlation: float
) -> Values:
    """Return nights that deviate by so much and resemble the one before by this lag-one
    correlation."""
    fresh = rng.normal(size=count)
    nights = fresh.copy()
    for place in range(1, count):
        nights[place] = (
            correlation * nights[place - 1] + math.sqrt(1 - correlation**2) * fresh[place]
        )
    return np.asarray(deviation * nights)


def drifts_table(count: int) -> Table:
    """Return how often quiet series, drifts of 1 % a night over 24 nights, and single steps are
    called a drift."""
    rng = np.random.default_rng(12)
    slope = math.log(1.01)

    def of(series: Callable[[], Values], absolute: bool, times: int) -> list[Changes]:
        return [find_changes([series()], drifting=[absolute])[0] for _ in range(times)]

    def share(changes: Sequence[Changes]) -> str:
        return f"{100 * float(np.mean([change.drift is not None for change in changes])):.2f}"

    titles = "series", "kind", "nights", "drift", "a step instead"
    table = Table(
        *titles,
        title=f"{count} quiet series of each kind, {count // 10} others; per cent",
        box=None,
    )
    for nights in (24, 60):
        quiet: list[tuple[str, bool, Callable[[], Values]]] = [
            (
                f"independent, {deviation:.0%}",
                absolute,
                partial(resembling, rng, nights, deviation, 0.0),
            )
            for deviation in (0.05,)
            for absolute in (False, True)
        ]
        quiet += [
            (
                f"session deviation 2.5 %, correlation {correlation:g}",
                True,
                partial(resembling, rng, nights, 0.025, correlation),
            )
            for correlation in (0.5, 0.7)
        ]
        for machine in simulated.MACHINES:
            quiet.append(
                (f"{machine} machine", False, partial(simulated.ratios, rng, nights, machine))
            )
            quiet.append(
                (f"{machine} machine", True, partial(simulated.absolute, rng, nights, machine))
            )
        for title, absolute, series in quiet:
            table.add_row(
                title,
                "absolute" if absolute else "ratios",
                str(nights),
                share(of(series, absolute, count)),
            )
        ramp = slope * np.clip(np.arange(nights) - (nights - 24), 0, None)
        for absolute in (False, True):
            for deviation in (0.01, 0.02, 0.03, 0.05):
                for title, change in (
                    ("+1 % a night", ramp),
                    ("+5 % step", np.where(np.arange(nights) >= nights // 2, STEP, 0.0)),
                    ("+26 % step", np.where(np.arange(nights) >= nights // 2, 23 * slope, 0.0)),
                ):
                    simulate = partial(
                        _changed, change, partial(resembling, rng, nights, deviation, 0.0)
                    )
                    changes = of(simulate, absolute, count // 10)
                    steps = np.mean(
                        [
                            change.drift is None and any(not s.pending for s in change.steps)
                            for change in changes
                        ]
                    )
                    kind = "absolute" if absolute else "ratios"
                    words = f"{title}, nights deviate by {deviation:.0%}"
                    table.add_row(
                        words, kind, str(nights), share(changes), f"{100 * float(steps):.1f}"
                    )
    return table


def _changed(change: Values, noise: Callable[[], Values]) -> Values:
    return change + noise()


def main(
    files: Annotated[
        list[Path] | None, typer.Argument(help="JSON files of series, e.g. tcpd.json.")
    ] = None,
    python: Annotated[
        Path | None, typer.Option(help="Interpreter with the other detectors' packages.")
    ] = None,
    nights: Annotated[int, typer.Option(help="Simulated series of each kind; 0 for none.")] = 0,
    drifts: Annotated[
        int, typer.Option(help="Quiet series of each kind that must not drift; 0 for none.")
    ] = 0,
) -> None:
    """Print a table for each file, and one of simulated nights."""
    console = Console(width=140)
    for file in files or []:
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            print(f"{file}: not a readable JSON file of series ({error})", file=sys.stderr)
            raise typer.Exit(2) from None
        labelled = {name: series for name, series in data.items() if isinstance(series, dict)}
        console.print(labelled_table(file, labelled, python))
    if nights:
        console.print(nights_table(nights))
    if drifts:
        console.print(drifts_table(drifts))
    print(f"{datetime.now(UTC):%Y-%m-%d}")


if __name__ == "__main__":
    typer.run(main)
