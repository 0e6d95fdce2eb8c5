import csv
from collections import Counter
from importlib import resources

import pytest

from dlbench.adapters.protocol import Status
from dlbench.reports.against import shi2016
from dlbench.reports.evidence.flag_kinds import NEAR_PEAK
from dlbench.reports.matrix.places import group_at, row_at
from dlbench.reports.threads.advice import findings
from dlbench.reports.threads.analysis import Curve, curves

MATRIX = shi2016.table4()
CURVES = curves(MATRIX)


def curve(framework: str, network: str, platform: str) -> Curve:
    host = shi2016.HOSTS[platform]
    (found,) = [
        each
        for each in CURVES
        if each.host == host and each.row.framework == framework and each.group.network == network
    ]
    return found


def test_every_value_of_the_paper_is_in_the_matrix() -> None:
    text = resources.files("dlbench.reports").joinpath("data/shi2016_table4.csv").read_text(encoding="utf-8")
    lines = list(csv.DictReader(text.splitlines()))
    assert len(MATRIX.cells) == len(lines)
    published = sorted(float(line["seconds_per_minibatch"]) for line in lines if line["seconds_per_minibatch"])
    assert sorted(cell.seconds.median for cell in MATRIX.cells.values() if cell.seconds) == published
    holes = Counter(cell.status for cell in MATRIX.cells.values() if cell.seconds is None)
    assert holes == {Status.UNSUPPORTED: 10, Status.CRASHED: 3, Status.TIMED_OUT: 2, Status.OUT_OF_MEMORY: 1}
    assert sum(holes.values()) == len(lines) - len(published)
    assert all(cell.reason.endswith(", says the paper") for cell in MATRIX.cells.values() if cell.seconds is None)


def test_a_gpu_next_to_its_theoretical_peak_is_doubtful_and_not_starred() -> None:
    doubtful = [cell for cell in MATRIX.cells.values() if cell.has(NEAR_PEAK)]
    assert [(c.column.machine, c.group.network, c.row.framework) for c in doubtful] == [
        ("shi2016:gtx1080", "alexnet", "tensorflow")
    ]
    assert "99%" in doubtful[0].flags[0].sentence
    assert not doubtful[0].best


def test_the_shape_is_that_of_table_4() -> None:
    assert [group.network for group in MATRIX.rows] == [
        "fcn5",
        "fcn8",
        "alexnet",
        "resnet50",
        "lstm32",
        "lstm64",
    ]
    assert MATRIX.rows[group_at("lstm32", 128)] == tuple(
        row_at(name, "2016") for name in ("cntk", "tensorflow", "torch")
    )
    assert [(c.device, c.threads) for c in MATRIX.columns] == [
        *[("cpu", p) for p in (1, 2, 4, 8)],
        *[("cpu", p) for p in (1, 2, 4, 8, 16, 32)],
        *[("gpu", None)] * 3,
    ]


@pytest.mark.parametrize(
    ("framework", "network", "platform", "threads", "ratio"),
    [
        # By hand from the paper: T(p) over the fastest within the physical cores.
        ("torch", "fcn8", "desktop_i7_3820", 8, 0.881 / 0.448),
        ("cntk", "alexnet", "desktop_i7_3820", 8, 4.232 / 2.123),
        ("cntk", "lstm32", "desktop_i7_3820", 8, 1.153 / 0.306),
        ("caffe", "alexnet", "desktop_i7_3820", 8, 1.460 / 1.005),
        ("tensorflow", "fcn5", "desktop_i7_3820", 8, 1.933 / 2.626),
        ("caffe", "fcn5", "server_2x_e5_2630v3", 32, 0.688 / 0.269),
        ("torch", "lstm64", "server_2x_e5_2630v3", 32, 5.815 / 3.252),
        ("tensorflow", "resnet50", "server_2x_e5_2630v3", 32, 3.937 / 2.890),
        ("tensorflow", "fcn5", "server_2x_e5_2630v3", 32, 0.594 / 0.857),
    ],
)
def test_ratios_past_the_physical_cores(
    framework: str, network: str, platform: str, threads: int, ratio: float
) -> None:
    (point,) = [p for p in curve(framework, network, platform).points if p.threads == threads]
    assert point.past_cores.value == pytest.approx(ratio)
    assert point.past_cores.low is None


def test_within_the_hardware_threads_nothing_is_past_the_effective_cpus() -> None:
    assert all(point.past_cpus is None for each in CURVES for point in each.points)


def test_the_findings_are_those_of_the_paper() -> None:
    # Its section on CPUs: more threads than physical cores hurt, most of all Caffe, CNTK and Torch; TensorFlow is the
    # one that may still gain.
    said = "\n".join(findings(CURVES))
    desktop, server = said.split("Shi 2016 server")
    assert "caffe: gets worse on 2 of 2 networks" in desktop
    assert "; fails on fcn5 (crashed at 8), fcn8 (crashed at 8)" in desktop
    assert "; fails on fcn5 (crashed at 8), resnet50 (timed out at 8)" in desktop
    assert "cntk: gets worse on 3 of 5 networks: alexnet 1.99x at 8, lstm32 3.8x at 8, lstm64 3.5x at 8" in desktop
    assert "tensorflow: gains on fcn5 0.74x at 8" in desktop
    assert "torch: gets worse on 4 of 4 networks" in desktop
    assert "caffe: gets worse on 4 of 4 networks: fcn5 2.6x at 32, fcn8 2.6x at 32" in server
    assert "cntk: gets worse on 5 of 5 networks" in server
    assert "tensorflow: gets worse on 2 of 6 networks: alexnet 1.22x at 32, resnet50 1.36x at 32" in server
    assert "torch: gets worse on 6 of 6 networks" in server


def test_advice() -> None:
    assert curve("torch", "fcn8", "desktop_i7_3820").advice == (
        "use 4 threads; a step takes 2.9x as long with 1, 1.97x with 8"
    )
    assert curve("cntk", "resnet50", "desktop_i7_3820").advice == "nothing was timed"
    assert curve("tensorflow", "fcn5", "server_2x_e5_2630v3").best == 32


def test_each_framework_is_best_somewhere() -> None:
    best = {cell.row.framework for cell in MATRIX.cells.values() if cell.best}
    assert best == {"caffe", "cntk", "tensorflow", "torch"}
