"""The energy counters of CPU packages, in made-up trees of sysfs: parts, wrapping, refusal, and
what is no package."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_trees import rapl, write_tree

from dlbench.hardware_probe.energy import PackageCounters

RANGE = 262_143_328_850
ONE = {"package-0": 5_000_000}


def counters(root: Path, microjoules: Mapping[str, int], range_of: int = RANGE) -> PackageCounters:
    return PackageCounters(write_tree(root, rapl(microjoules, range_of)))


@contextmanager
def unprivileged() -> Iterator[None]:
    """Drop root's privileges, since file permissions do not stop root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_packages_are_read_and_neither_their_parts_nor_the_same_ones_again(tmp_path: Path) -> None:
    microjoules = {"package-0": 1_000_000, "package-1": 7_000_000}
    meters = counters(tmp_path, microjoules)
    before = meters.read()
    assert before == microjoules
    write_tree(tmp_path, rapl({"package-0": 3_500_000, "package-1": 7_250_000}, RANGE))
    assert meters.spent([(before, meters.read())], 1.0) == (
        {"package-0": 2.5, "package-1": 0.25},
        "",
    )


@pytest.fixture(scope="module")
def one_package(tmp_path_factory: pytest.TempPathFactory) -> PackageCounters:
    return counters(tmp_path_factory.mktemp("tree"), ONE)


@given(
    start=st.integers(0, RANGE - 1), grown=st.integers(1, RANGE - 1), seconds=st.floats(0.1, 200.0)
)
def test_a_counter_that_began_again_has_lost_nothing(
    one_package: PackageCounters, start: int, grown: int, seconds: float
) -> None:
    after = {"package-0": (start + grown) % RANGE}
    joules, why = one_package.spent([({"package-0": start}, after)], seconds)
    assert (joules, why) == ({"package-0": pytest.approx(grown * 1e-6)}, "")


@pytest.mark.parametrize(
    ("after", "seconds", "range_of", "complaint"),
    [
        (6_000_000, 0.05, RANGE, "too short"),
        (5_000_000, 1.0, RANGE, "did not grow"),
        (6_000_000, 400.0, 65_532_610_987, "more than once"),
        (4_000_000, 1.0, 0, "did not grow"),
    ],
)
def test_energy_that_cannot_be_known_has_a_reason_and_is_never_zero(
    tmp_path: Path, after: int, seconds: float, range_of: int, complaint: str
) -> None:
    meters = counters(tmp_path, ONE, range_of)
    joules, why = meters.spent([(meters.read(), {"package-0": after})], seconds)
    assert joules is None
    assert complaint in why


def test_a_counter_for_root_alone_is_refused_with_the_remedy(tmp_path: Path) -> None:
    meters = counters(tmp_path, ONE)
    (tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj").chmod(0)
    with unprivileged():
        refused = meters.read()
    joules, why = meters.spent([(refused, ONE)], 1.0)
    assert joules is None
    assert "only root may read" in why
    assert "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj" in why


@pytest.mark.parametrize("tree", [{}, {"sys/class/powercap/intel-rapl:0/name": "psys\n"}])
def test_a_machine_without_packages_says_so(tmp_path: Path, tree: dict[str, str]) -> None:
    why = PackageCounters(write_tree(tmp_path, tree)).read()
    assert isinstance(why, str)
    assert "no CPU package" in why
