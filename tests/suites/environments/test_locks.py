"""The locks that ship: every file by its checksum, and what one build of a package needs besides only where it came."""

import hashlib
import re
import zipfile

import pytest

from dlbench.suites.environments import python_packages
from dlbench.suites.planning.framework import shipped

LOCKED = [
    each
    for framework in shipped().values()
    for each in framework.by_lock
    if framework.environment == "own" and each.lock_file.exists()
]
LINE = re.compile(r"[a-z0-9-]+==[0-9][0-9a-z.]*(?:\+cpu)?( --hash=sha256:[0-9a-f]{64})+")


@pytest.mark.parametrize("framework", LOCKED, ids=lambda each: f"{each.name}-{each.requirements}")
def test_every_line_of_a_lock_has_a_version_and_checksums(framework):
    lines = [line for line in framework.lock_file.read_text().splitlines() if line and not line.startswith("#")]
    assert lines
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    names = [line.split()[0] for line in lines]
    assert len(names) == len(set(names))
    assert python_packages.is_hashed(framework.lock_file)


def test_one_version_has_the_same_checksums_in_every_lock():
    """Of one version and the same Pythons: a lock that lacks a file another has would fail on that file's machine."""
    by_line: dict[tuple[str, tuple[str, ...]], set[str]] = {}
    for framework in LOCKED:
        for line in framework.lock_file.read_text().splitlines():
            if not line.startswith("#"):
                by_line.setdefault((line.split()[0], framework.python), set()).add(line)
    assert {key: lines for key, lines in by_line.items() if len(lines) > 1} == {}


@pytest.mark.parametrize(
    ("requires", "asked"),
    [
        ([], set()),
        (["cuda-kit==1"], {"cuda-kit"}),
        (["Cuda_Kit==1; python_version >= '3.9'"], {"cuda-kit"}),
        (["cuda-kit==1; python_version < '3.9'", "other; extra == 'more'"], set()),
    ],
)
def test_what_a_wheel_that_came_asks_for_is_known_from_its_metadata(tmp_path, requires, asked):
    (tmp_path / "files").mkdir()
    (tmp_path / "environment" / "lib" / "python3.11").mkdir(parents=True)
    name = "torch"
    information = f"{name}-2.0.dist-info/METADATA"
    with zipfile.ZipFile(tmp_path / "files" / f"{name}-2.0-py3-none-any.whl", "w") as archive:
        archive.writestr(information, "Name: torch\n" + "".join(f"Requires-Dist: {each}\n" for each in requires))
    assert python_packages._asked_for(tmp_path / "files", tmp_path / "environment") == asked


def test_an_extra_that_one_wheel_asks_of_another_brings_what_that_extra_needs(tmp_path):
    needs = {
        "torch": ["cuda_kit[blas]==1"],
        "cuda_kit": ["nvidia-blas==1; extra == 'blas'", "nvidia-fft==1; extra == 'fft'"],
    }
    for name, requires in needs.items():
        with zipfile.ZipFile(tmp_path / f"{name}-1-py3-none-any.whl", "w") as archive:
            text = f"Name: {name}\n" + "".join(f"Requires-Dist: {each}\n" for each in requires)
            archive.writestr(f"{name}-1.dist-info/METADATA", text)
    assert python_packages._asked_for(tmp_path, tmp_path) == {"cuda-kit", "nvidia-blas"}


def test_the_second_section_of_a_lock_is_told_from_the_first(tmp_path):
    lock = tmp_path / "requirements.lock"
    digest = hashlib.sha256(b"").hexdigest()
    line = f"--hash=sha256:{digest}"
    lock.write_text(f"one==1 {line}\n# a remark\ntwo==2 \\\n  {line}\n# Only where asked for:\nthree==3 {line}\n")
    always, where_asked = python_packages.sections(lock)
    assert [each.split("==")[0] for each in always] == ["one", "two"]
    assert [each.split("==")[0] for each in where_asked] == ["three"]
