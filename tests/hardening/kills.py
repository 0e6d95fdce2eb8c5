"""Kills dlbench at random moments, a thousand times: nothing may be lost or doubled, and the run must go on to its end.

    python3 suites/bootstrap.py kills --count 1000               about half an hour
    python3 suites/bootstrap.py kills --seed 7 --trial 12        one trial again

Killed are the runner, its guest, both at once, the runner during a write to the store, and the build of an environment.
It ends with exit code 1 at the first violation, and says how to repeat that.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import kills_of_builds
import kills_of_runs
from kills_of_runs import Place, Undisturbed, Violation

KINDS = (*kills_of_runs.KILLERS, "build")
FRESH_HOMES = 0.1
"""Share of the trials that start with an empty home of dlbench."""


def carry_out(folder: Path, seed: int, number: int, expected: Undisturbed) -> Counter[str]:
    """Carry out one trial in a new folder; return its kills by kind. Raises Violation."""
    kind, random = KINDS[number % len(KINDS)], Random(f"{seed}:{number}")
    with tempfile.TemporaryDirectory(dir=folder) as made:
        place = Path(made)
        if kind == "build":
            return kills_of_builds.trial(place, random)
        home = place if random.random() < FRESH_HOMES else folder
        return kills_of_runs.trial(kind, Place(place, home / "home"), random, expected)


def trials(seed: int, folder: Path, numbers: Iterator[int]) -> Iterator[tuple[int, Counter[str]]]:
    """Carry out trials; give the number and the kills of each. Raises Violation, which says how to repeat it."""
    undisturbed = folder / "undisturbed"
    undisturbed.mkdir()
    expected = kills_of_runs.undisturbed(Place(undisturbed, folder / "home"))
    for number in numbers:
        try:
            yield number, carry_out(folder, seed, number, expected)
        except Violation as found:
            raise Violation(
                f"{found}\ntrial {number}, {KINDS[number % len(KINDS)]}; again: python3 suites/bootstrap.py kills "
                f"--seed {seed} --trial {number}"
            ) from found


def kill_so_often(count: int, seed: int, folder: Path) -> Counter[str]:
    """Carry out trials until there were so many kills; return them by kind. Raises Violation."""
    counts: Counter[str] = Counter()
    began = time.monotonic()
    for number, found in trials(seed, folder, iter(range(10 * count))):
        counts.update(found)
        if number % 10 == 9:
            print(f"{counts.total()} kills, {time.monotonic() - began:.0f} s", file=sys.stderr)
        if counts.total() >= count:
            break
    return counts


def main() -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trial", type=int, help="carry out this trial alone")
    given = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="kills-") as made:
            folder = Path(made).resolve()
            if given.trial is not None:
                counts = sum((found for _, found in trials(given.seed, folder, iter([given.trial]))), Counter())
            else:
                counts = kill_so_often(given.count, given.seed, folder)
    except Violation as found:
        print(f"violated: {found}", file=sys.stderr)
        return 1
    told = ", ".join(f"{kind} {counts[kind]}" for kind in KINDS)
    print(f"{counts.total()} kills ({told}); no record lost or doubled, every run ended in the same table")
    return 0


if __name__ == "__main__":
    sys.exit(main())
