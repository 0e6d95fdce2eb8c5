"""Digests of builds: equal copies have one, and whatever a launch could run differently another."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dlbench.suites.environments import digests, folders
from dlbench.suites.environments.interpreters import Inspection, inspect

FILES = {
    "torch/optim/sgd.py": b"momentum = 0\n",
    "torch/lib/libtorch.so": b"\x7fELF" + bytes(5000),
    "torch-2.13.0.dist-info/METADATA": b"Name: torch\nVersion: 2.13.0\n",
    "torch-2.13.0.dist-info/RECORD": b"torch/optim/sgd.py,sha256=x,13\n",
}


NAMES = ["torch/optim/sgd.py", "torch/lib/libtorch.so", "torch/deeper/file", "sitecustomize.py"]


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(digests, "home", folders.home)


def make(root: Path, **changed: bytes | None) -> Inspection:
    """Fill a package folder under ``root`` with FILES, and return what an interpreter there would
    answer."""
    folder = root / "lib" / "site-packages"
    for name, text in {**FILES, **changed}.items():
        if text is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(text)
    return Inspection(
        "3.11.7", "CPython", {"torch": "2.13.0"}, (), root, Path(sys.executable), (folder,)
    )


@pytest.mark.parametrize(
    "name",
    [
        "torch/__pycache__/sgd.cpython-311.pyc",
        "torch-2.13.0.dist-info/RECORD",
        "torch-2.13.0.dist-info/direct_url.json",
        "dlbench/suites/cli.py",
        "__editable___dlbench_0_1_0_finder.py",
    ],
)
def test_what_installing_or_running_leaves_behind_is_no_part_of_it(tmp_path, name):
    assert digests.build_digest(make(tmp_path / "a", **{name: b"other"})) == digests.build_digest(
        make(tmp_path / "b")
    )


def test_a_second_look_reads_no_file_unless_one_was_edited_even_with_size_and_time_as_before(
    tmp_path, monkeypatch
):
    build = make(tmp_path)
    before = digests.build_digest(build)
    with monkeypatch.context() as patched:
        patched.setattr(digests, "_read", lambda files: pytest.fail("read again"))
        assert digests.build_digest(build) == before
    edited = build.folders[0] / "torch/optim/sgd.py"
    status = edited.stat()
    edited.write_bytes(b"momentum = 1\n")
    os.utime(edited, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digests.build_digest(build) != before


def test_a_home_that_cannot_be_written_costs_only_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path / "file" / "home"))
    assert digests.build_digest(make(tmp_path)) == digests.build_digest(make(tmp_path))


@settings(
    deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=8), max_size=4),
    st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=8), max_size=4),
)
@example({}, {"torch/lib/libtorch.so": b"!"})
@example({}, {"sitecustomize.py": b""})
def test_digests_are_equal_exactly_where_the_files_are(tmp_path, first, second):
    build_digests = []
    for name, files in (("one", first), ("deeper/other", second)):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
        build_digests.append(digests.build_digest(make(tmp_path / name, **files)))
    assert [len(digest) for digest in build_digests] == [12, 12]
    assert (build_digests[0] == build_digests[1]) == (first == second)


def test_a_framework_outside_the_package_folders_counts_too(tmp_path):
    """An editable install: a path file in the package folder, the package itself in a checkout."""
    environment, checkout = tmp_path / "environment", tmp_path / "checkout"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (checkout / "mine").mkdir(parents=True)
    module = checkout / "mine" / "__init__.py"
    module.write_text("answer = 1\n")
    (site,) = (environment / "lib").glob("python*/site-packages")
    (site / "mine.pth").write_text(f"{checkout}\n")
    interpreter = environment / "bin" / "python"
    before = digests.build_digest(inspect(interpreter, ("mine",)))
    module.write_text("answer = 2\n")
    assert digests.build_digest(inspect(interpreter, ("mine",))) != before
