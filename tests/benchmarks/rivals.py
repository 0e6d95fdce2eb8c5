"""Change points of other detectors with their own defaults, run by an interpreter that has their
packages.

    python -m venv /tmp/rivals && /tmp/rivals/bin/pip install apache-otava ruptures changepoint
    /tmp/rivals/bin/python tests/benchmarks/rivals.py < series.json > found.json

Standard input: a JSON object, name of a series -> values. Standard output: detector -> series ->
indices of the first values after a change, or detector -> the reason why it cannot run.
`change_points.py` calls this.
"""

import json
import math
import sys
from collections.abc import Callable

import numpy as np


def standardised(values: np.ndarray) -> np.ndarray:
    """Return the values with mean 0 and variance 1, as van den Burg and Williams give them to every
    detector."""
    deviation = values.std()
    return (values - values.mean()) / (deviation if deviation > 0 else 1.0)


def pelt(values: np.ndarray) -> list[int]:
    """Search with ruptures' PELT, defaults; the penalty, which has none, is that of R's
    changepoint: MBIC's 3 log n."""
    import ruptures

    return (
        ruptures.Pelt()
        .fit(standardised(values)[:, np.newaxis])
        .predict(pen=3 * math.log(len(values)))[:-1]
    )


def bocpd(values: np.ndarray) -> list[int]:
    """Search with the changepoint library's Bayesian online detector and prior; a mean run length
    of 100 as R's ocp."""
    import changepoint

    search = changepoint.Bocpd(prior=changepoint.NormalGamma(), lam=100.0)
    return list(
        changepoint.map_changepoints(
            [search.step(value) for value in standardised(values).tolist()]
        )
    )


def otava(values: np.ndarray) -> list[int]:
    """Search with Apache Otava's default: e-divisive in windows, then Student's t (Fleming et al.
    2023)."""
    from otava.analysis import compute_change_points

    return [int(point.index) for point in compute_change_points(values.tolist())[0]]


def e_divisive(values: np.ndarray) -> list[int]:
    """Search with Apache Otava's original e-divisive, by permutations (Matteson and James 2014)."""
    from otava.analysis import compute_change_points_orig

    return [int(point.index) for point in compute_change_points_orig(values.tolist(), seed=1)[0]]


def mozilla(values: np.ndarray) -> list[int]:
    """Search as Mozilla's Perfherder does: peaks of t > 7 between 12 to 24 values before and 12
    after a place.

    Written anew, since it is part of a web application (treeherder) and no package has it:
    mozdetect offers only detectors for histograms. Nearer values weigh more in the means, linearly;
    the variances are about those means.
    """

    def moments(window: np.ndarray) -> tuple[float, float]:
        count = len(window)
        mean = float(np.average(window, weights=np.arange(count, 0, -1)))
        if count == 1:
            return mean, 0.0
        variance = float(np.sum((window - mean) ** 2)) / (count - 1)
        return mean, variance / count

    count, since = len(values), 0
    scores = np.zeros(count)
    for place in range(1, count):
        before = values[max(0, place - min(max(since, 12), 24)) : place][::-1]
        after = values[place : place + 12]
        (mean_before, error_before), (mean_after, error_after) = moments(before), moments(after)
        error = math.sqrt(error_before + error_after)
        difference = abs(mean_after - mean_before)
        if error > 0:
            scores[place] = difference / error
        elif difference > 0:
            scores[place] = math.inf
        since = 0 if scores[place] > 7 else since + 1
    beside = np.append(scores, 0.0)
    return [
        place
        for place in range(12, count - 11)
        if scores[place] > 7 and scores[place] >= max(beside[place - 1], beside[place + 1])
    ]


RIVALS: dict[str, Callable[[np.ndarray], list[int]]] = {
    "PELT (ruptures)": pelt,
    "BOCPD (changepoint)": bocpd,
    "e-divisive (apache-otava)": e_divisive,
    "Otava's default (apache-otava)": otava,
    "t-test of Perfherder (Mozilla)": mozilla,
}


def main() -> None:
    """Answer with the change points of every detector that can be imported."""
    series = {
        name: np.asarray(values, dtype=float) for name, values in json.load(sys.stdin).items()
    }
    results: dict[str, object] = {}
    for name, search in RIVALS.items():
        try:
            results[name] = {
                key: sorted({int(place) for place in search(values)} - {0})
                for key, values in series.items()
            }
        except ImportError as error:
            results[name] = str(error)
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
