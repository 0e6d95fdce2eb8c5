"""What pip says of a folder of wheels: the newest version, a set that fits, the files of each machine."""

import sys
from pathlib import Path

import pytest
import tiny_wheels

from dlbench.suites.errors import FrameworkEnvironmentError
from dlbench.suites.refreshing.package_index import Package, PackageIndex


@pytest.fixture
def index(tmp_path, monkeypatch) -> PackageIndex:
    """Give an index of two releases of `tiny`, of which the later one needs what is not there."""
    for name, value in tiny_wheels.of_pip(tmp_path / "wheels").items():
        monkeypatch.setenv(name, value)
    tiny_wheels.numpy_of_the_tests(tmp_path / "wheels")
    tiny_wheels.tiny(tmp_path / "wheels", "1.9")
    tiny_wheels.tiny(tmp_path / "wheels", "1.10", requires=("absent",))
    return PackageIndex(Path(sys.executable), tmp_path / "pip.log")


def test_the_newest_release_and_the_newest_set_that_fits(index):
    assert index.releases("tiny") == ["1.10", "1.9"]
    assert index.releases("absent") == []
    found = index.resolve(["tiny<1.10"], ["numpy==1.0"])
    assert [each.pinned for each in found] == ["numpy==1.0", "tiny==1.9"]
    assert all(len(checksum) == 64 for each in found for checksum in each.checksums)
    with pytest.raises(FrameworkEnvironmentError, match=r"tiny==1\.10: .*absent"):
        index.resolve(["tiny==1.10"], [])


@pytest.mark.slow
def test_a_package_without_a_file_for_a_machine_is_left_out_there(index):
    asked = [Package("tiny", "1.9"), Package("absent", "1")]
    found = index.checksums(asked, [tiny_wheels.HOST])
    assert list(found) == ["tiny"]
    assert len(found["tiny"]) == 1
