import csv
from collections import Counter
from functools import cache
from importlib import resources

import pytest

from dlbench.adapters.protocol import Status
from dlbench.reports.curve.curve import Curve
from dlbench.reports.curve.threads import threads
from dlbench.reports.results.published import SHI2016, study
from dlbench.reports.results.published_matrix import published_matrix

MATRIX = published_matrix(study(SHI2016))


@cache
def curves() -> tuple[Curve, ...]:
    """Return the paper's curves, which are fitted once they are asked for: every worker reads this
    file."""
    return tuple(threads(MATRIX).curves)


def curve(framework: str, network: str, platform: str) -> Curve:
    host = study(SHI2016).hosts[platform]
    (only,) = [
        line
        for line in curves()
        if line.host == host and line.cell.framework == framework and line.cell.network == network
    ]
    return only


def test_every_value_of_the_paper_is_in_the_matrix() -> None:
    text = (
        resources.files("dlbench.reports")
        .joinpath("data/shi2016_table4.csv")
        .read_text(encoding="utf-8")
    )
    lines = list(csv.DictReader(text.splitlines()))
    assert len(MATRIX.cells) == len(lines)
    published = sorted(
        float(line["seconds_per_minibatch"]) for line in lines if line["seconds_per_minibatch"]
    )
    assert (
        sorted(cell.seconds.median for cell in MATRIX.cells.values() if cell.seconds) == published
    )
    holes = Counter(cell.status for cell in MATRIX.cells.values() if cell.seconds is None)
    assert holes == {
        Status.UNSUPPORTED: 10,
        Status.CRASHED: 3,
        Status.TIMED_OUT: 2,
        Status.OUT_OF_MEMORY: 1,
    }
    assert sum(holes.values()) == len(lines) - len(published)
    assert all(
        cell.reason.endswith(", says the paper")
        for cell in MATRIX.cells.values()
        if cell.seconds is None
    )


@pytest.mark.parametrize(
    ("framework", "network", "platform", "count", "ratio"),
    [
        # By hand from the paper: T(p) over the fastest within the physical cores.
        ("torch", "fcn8", "desktop_i7_3820", 8, 0.881 / 0.448),
        ("tensorflow", "fcn5", "desktop_i7_3820", 8, 1.933 / 2.626),
        ("torch", "lstm64", "server_2x_e5_2630v3", 32, 5.815 / 3.252),
    ],
)
def test_ratios_past_the_physical_cores(
    framework: str, network: str, platform: str, count: int, ratio: float
) -> None:
    (past,) = [
        point.findings.past_physical_cores
        for point in curve(framework, network, platform).points
        if point.at == count
    ]
    assert past.value == pytest.approx(ratio)
    assert past.ratio.low is None
