"""The figures of claims on its paper's own table, computed again from the published files alone."""

import csv
import math
from collections.abc import Callable
from importlib import resources

import numpy as np
import pytest

from dlbench.reports.claims.claims import claims, on_paper

CLAIMS = {claim.id: claim for claim in claims()}
DESKTOP, SERVER = "desktop_i7_3820", "server_2x_e5_2630v3"
GPUS = ("gtx980", "gtx1080", "tesla_k80")
FCNS = ("fcn5", "fcn8")
NETWORKS = (*FCNS, "alexnet", "resnet50", "lstm32", "lstm64")
TOOLS = ("caffe", "cntk", "tensorflow", "torch")


def lines(name: str) -> list[dict[str, str]]:
    text = resources.files("dlbench.reports").joinpath(f"data/{name}").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


SHI = {
    (line["network"], line["framework"], line["platform"], int(line["threads"] or 0)): float(
        line["seconds_per_minibatch"] or "nan"
    )
    for line in lines("shi2016_table4.csv")
}
WUENSCHE = {
    (line["framework"], int(line["threads"])): float(line["seconds_per_minibatch"] or "nan")
    for line in lines("wuensche2018_table1.csv")
}
RUNS = [
    {
        **{name: int(line[name]) for name in ("n_in", "n_rec", "n_steps")},
        "figure": int(line["figure"].split()[1]),
        "device": line["device"],
        "seconds": float(line["seconds"]),
        "first": "first trial" in line["note"],
    }
    for line in lines("brandfonbrener2017.csv")
]
LOSSES = {
    (line["dataset"], line["cell"], int(line["layers"]), int(line["size"])): float(line["loss"])
    for line in lines("karpathy2016_losses.csv")
    if line["loss"]
}


def figure(number: int) -> dict[tuple[int, int], float]:
    """Return the runs of a figure by (n_rec, n_steps)."""
    return {
        (run["n_rec"], run["n_steps"]): run["seconds"]
        for run in RUNS
        if run["figure"] == number and not run["first"]
    }


def numbers(values: object) -> list[float]:
    """Return what is a number of these, sorted."""
    return sorted(value for value in values if not math.isnan(value))  # type: ignore[attr-defined]


def large(device: str) -> dict[int, float]:
    return {
        r["n_rec"]: r["seconds"]
        for r in RUNS
        if (r["figure"], r["device"], r["n_in"]) == (5, device, 10)
    }


COMPUTED: dict[str, Callable[[], list[float]]] = {
    "A2": lambda: numbers(
        numbers(SHI[n, tool, gpu, 0] for tool in TOOLS if tool != "caffe")[0]
        / SHI[n, "caffe", gpu, 0]
        for n in FCNS
        for gpu in GPUS
    ),
    "A8": lambda: sorted(
        float(math.isnan(SHI[n, t, DESKTOP, 8])) for n in FCNS for t in ("caffe", "torch")
    ),
    "A10": lambda: numbers(
        SHI[n, t, DESKTOP, 8] / numbers(SHI[n, t, DESKTOP, p] for p in (1, 2, 4))[0]
        for n in NETWORKS
        for t in ("caffe", "cntk", "torch")
        if (n, t, DESKTOP, 8) in SHI and not math.isnan(SHI[n, t, DESKTOP, 8])
    ),
    "A12": lambda: sorted(
        numbers(SHI["fcn8", tool, DESKTOP, p] for p in (1, 2, 4, 8))[0] / printed
        for tool, printed in (("tensorflow", 1.9), ("caffe", 0.48))
    ),
    "B1": lambda: sorted(
        figure(2)[key] - figure(3)[key] for key in figure(2) if key in figure(3) and key[1] <= 100
    ),
    "B3": lambda: sorted(
        updates[200, t] / updates[20, t]
        for updates in (figure(n) for n in (2, 3, 6, 7, 8))
        for t in (10, 20, 50, 100)
    ),
    # Where the laptop's line and the GPU's cross in logarithms.
    "B5": lambda: [
        math.exp(
            np.interp(
                0.0,
                [math.log(large("cpu")[n] / large("gpu")[n]) for n in (500, 1000)],
                np.log((500, 1000)),
            )
        )
    ],
    "B7": lambda: sorted(
        math.log(large("gpu")[b] / large("gpu")[a]) / math.log(b / a)
        for a, b in ((500, 1000), (1000, 2000), (2000, 5000))
    ),
    "B12": lambda: sorted(
        max(
            figure(n)[key] / figure(10)[key]
            for key in figure(10)
            if key in figure(n) and key[1] <= 100
        )
        for n in (2, 3)
    ),
    "G2": lambda: sorted(
        LOSSES[d, c, n - 1, s] / loss for (d, c, n, s), loss in LOSSES.items() if n > 1
    ),
    "W1": lambda: numbers(
        WUENSCHE[t, 8] / WUENSCHE[t, 4] for t in ("caffe", "torch", "tensorflow")
    ),
    "W3": lambda: [0.5 / (3 * 8 / 31.5) * 100 / 65.62],
}
"""A claim of each kind; the golden output of the report has the figures of all."""


@pytest.mark.parametrize("claim", COMPUTED)
def test_the_figures_on_the_papers_own_table(claim: str) -> None:
    evidence = on_paper(CLAIMS[claim])
    values = sorted(
        question.found.value for question, _ in evidence.figures if question.found is not None
    )
    assert values == pytest.approx(COMPUTED[claim]())
