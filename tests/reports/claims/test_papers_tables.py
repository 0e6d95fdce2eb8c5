"""The figures of every claim on its paper's own table, computed again from the published files alone."""

import csv
import math
from collections.abc import Callable
from importlib import resources

import pytest

from dlbench.reports.claims.claims import PAPERS, Claim, claims, on_paper

CLAIMS = {each.id: each for each in claims()}
DESKTOP, SERVER = "desktop_i7_3820", "server_2x_e5_2630v3"
GPUS = ("gtx980", "gtx1080", "tesla_k80")
FCNS, CNNS, RNNS = ("fcn5", "fcn8"), ("alexnet", "resnet50"), ("lstm32", "lstm64")
NETWORKS = (*FCNS, *CNNS, *RNNS)
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


def figure(number: int, first: bool = False) -> dict[tuple[int, int], float]:
    """Return the runs of a figure by (n_rec, n_steps)."""
    return {
        (run["n_rec"], run["n_steps"]): run["seconds"]
        for run in RUNS
        if run["figure"] == number and (first or not run["first"])
    }


def numbers(values: object) -> list[float]:
    """Return what is a number of these, sorted."""
    return sorted(value for value in values if not math.isnan(value))  # type: ignore[attr-defined]


def fastest(tool: str, networks: tuple[str, ...]) -> list[float]:
    return numbers(
        numbers(SHI[n, other, gpu, 0] for other in TOOLS if other != tool)[0] / SHI[n, tool, gpu, 0]
        for n in networks
        for gpu in GPUS
    )


def counts(platform: str) -> list[int]:
    return [1, 2, 4, 8] if platform == DESKTOP else [1, 2, 4, 8, 16, 32]


def best(network: str, tool: str, most: int = 8) -> float:
    return numbers(SHI[network, tool, DESKTOP, p] for p in (1, 2, 4, 8) if p <= most)[0]


def shared(over: int, under: int, change: Callable[[float, float], float]) -> list[float]:
    one, other = figure(over), figure(under)
    return sorted(change(one[key], other[key]) for key in one if key in other and key[1] <= 100)


def divided(one: float, other: float) -> float:
    return one / other


def exponent(before: float, after: float, growth: float) -> float:
    return math.log(after / before) / math.log(growth)


def large(device: str) -> dict[int, float]:
    return {r["n_rec"]: r["seconds"] for r in RUNS if (r["figure"], r["device"], r["n_in"]) == (5, device, 10)}


def order_of_software() -> list[float]:
    theano, keras, tensorflow = figure(3), figure(6), figure(7)
    found = []
    for key in keras:
        winner, loser = (theano, keras) if key[1] < 50 else (keras, theano)
        found += [loser[key] / winner[key], tensorflow[key] / max(theano[key], keras[key])]
    return sorted(found)


def crossing() -> float:
    """Where the laptop's line and the GPU's cross in logarithms, by bisection."""
    cpu, gpu = large("cpu"), large("gpu")

    def between(of: dict[int, float], n: float) -> float:
        share = math.log(n / 500) / math.log(2)
        return math.exp(math.log(of[500]) * (1 - share) + math.log(of[1000]) * share)

    low, high = 500.0, 1000.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if between(cpu, middle) < between(gpu, middle) else (low, middle)
    return low


def by_inputs() -> list[float]:
    found = []
    for hidden in {run["n_rec"] for run in RUNS if run["figure"] == 5}:
        seconds = [
            run["seconds"]
            for run in RUNS
            if (run["figure"], run["device"], run["n_rec"]) == (5, "gpu", hidden) and not run["first"]
        ]
        found.append(max(seconds) / min(seconds))
    return sorted(found)


COMPUTED: dict[str, Callable[[], list[float]]] = {
    "A1": lambda: numbers(
        SHI[n, t, SERVER, 4] / SHI[n, t, SERVER, 16] for n in NETWORKS for t in TOOLS if (n, t, SERVER, 4) in SHI
    ),
    "A2": lambda: fastest("caffe", FCNS),
    "A3": lambda: fastest("tensorflow", CNNS),
    "A4": lambda: numbers(
        SHI[n, "cntk", g, 0] / SHI[n, t, g, 0] for n in RNNS for g in GPUS for t in ("torch", "tensorflow")
    ),
    "A5": lambda: numbers(
        SHI[n, t, where, p] / SHI[n, "cntk", where, p]
        for n in RNNS
        for t in ("torch", "tensorflow")
        for where in (DESKTOP, SERVER)
        for p in counts(where)
    ),
    "A6": lambda: numbers(SHI[n, "tensorflow", DESKTOP, 4] / SHI[n, "torch", DESKTOP, 4] for n in RNNS),
    "A7": lambda: numbers(
        SHI[n, t, g, 0] / SHI[n, t, "gtx1080", 0]
        for n in NETWORKS
        for t in TOOLS
        for g in ("gtx980", "tesla_k80")
        if (n, t, g, 0) in SHI
    ),
    "A8": lambda: sorted(float(math.isnan(SHI[n, t, DESKTOP, 8])) for n in FCNS for t in ("caffe", "torch")),
    "A9": lambda: numbers(SHI[n, "tensorflow", DESKTOP, 8] / SHI[n, "tensorflow", DESKTOP, 4] for n in NETWORKS),
    "A10": lambda: numbers(
        SHI[n, t, DESKTOP, 8] / best(n, t, 4)
        for n in NETWORKS
        for t in ("caffe", "cntk", "torch")
        if (n, t, DESKTOP, 8) in SHI and not math.isnan(SHI[n, t, DESKTOP, 8])
    ),
    "A12": lambda: sorted([best("fcn8", "tensorflow") / 1.9, best("fcn8", "caffe") / 0.48]),
    "A13": lambda: numbers(
        SHI["resnet50", "tensorflow", p, 1] / SHI["resnet50", "caffe", p, 1] for p in (DESKTOP, SERVER)
    ),
    "A14": lambda: numbers(
        SHI[n, t, DESKTOP, 1] / SHI[n, t, DESKTOP, 4] for n in RNNS for t in ("torch", "cntk", "tensorflow")
    ),
    "A15": lambda: sorted(
        SHI["alexnet", "tensorflow", *p] / SHI["alexnet", "tensorflow", "gtx1080", 0]
        for p in ((DESKTOP, 4), (SERVER, 16))
    ),
    "A16": lambda: numbers(
        SHI[n, t, old, 0] / SHI[n, t, new, 0]
        for n in CNNS
        for t in TOOLS
        for old, new in (("gtx980", "gtx1080"), ("tesla_k80", "gtx980"))
    ),
    "B1": lambda: shared(2, 3, lambda shared, unshared: shared - unshared),
    "B2": lambda: sorted(
        exponent(of[hidden, 20], of[hidden, 100], 5)
        for of in (figure(number) for number in (2, 3, 4, 6, 7, 8, 9, 10))
        for hidden in (10, 20, 50, 100, 200)
        if (hidden, 20) in of
    ),
    "B3": lambda: sorted(
        of[200, t] / of[20, t] for of in (figure(n) for n in (2, 3, 6, 7, 8)) for t in (10, 20, 50, 100)
    ),
    "B4": lambda: sorted(figure(9)[hidden, t] / figure(9)[20, t] for hidden in (100, 200) for t in (10, 20, 50, 100)),
    "B5": lambda: [crossing()],
    "B6": lambda: [large("cpu")[5000] / large("gpu")[5000]],
    "B7": lambda: sorted(
        exponent(large("gpu")[a], large("gpu")[b], b / a) for a, b in ((500, 1000), (1000, 2000), (2000, 5000))
    ),
    "B8": by_inputs,
    "B9": lambda: shared(2, 4, lambda relu, sigmoid: relu - sigmoid),
    "B10": order_of_software,
    "B11": lambda: sorted(figure(n, first=True)[10, 10] / figure(n)[20, 10] for n in (2, 4, 6, 7, 8, 9)),
    "B12": lambda: sorted(shared(n, 10, divided)[-1] for n in (2, 3)),
    "B13": lambda: sorted(shared(8, 2, divided) + shared(8, 3, divided)),
    "B14": lambda: sorted(
        [exponent(large("cpu")[1000], large("cpu")[2000], 2)]
        + [exponent(figure(9)[50, t], figure(9)[100, t], 2) for t in (10, 20, 50, 100)]
    ),
    "G1": lambda: sorted(
        LOSSES[d, "rnn", n, s] / loss for (d, cell, n, s), loss in LOSSES.items() if cell != "rnn" and s < 512
    ),
    "G2": lambda: sorted(LOSSES[d, c, n - 1, s] / loss for (d, c, n, s), loss in LOSSES.items() if n > 1),
    "G3": lambda: sorted(LOSSES[d, c, n, s // 2] / loss for (d, c, n, s), loss in LOSSES.items() if s > 64),
    "W1": lambda: numbers(WUENSCHE[t, 8] / WUENSCHE[t, 4] for t in ("caffe", "torch", "tensorflow")),
    "W3": lambda: [0.5 / (3 * 8 / 31.5) * 100 / 65.62],
}


def test_the_list_is_whole() -> None:
    ids = [f"{letter}{n}" for letter, most in zip("ABGWM", (21, 14, 5, 4, 3), strict=True) for n in range(1, most + 1)]
    assert list(CLAIMS) == ids
    assert len(ids) == 47
    assert {each.paper for each in CLAIMS.values()} == set(PAPERS)
    assert all(each.words and each.where for each in CLAIMS.values())


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.id)
def test_the_figures_on_the_papers_own_table(claim: Claim) -> None:
    found = on_paper(claim)
    values = sorted(question.found.value for question, _ in found.figures if question.found is not None)
    assert values == pytest.approx(COMPUTED.get(claim.id, list)())
    assert bool(found.of) is not bool(found.note)
