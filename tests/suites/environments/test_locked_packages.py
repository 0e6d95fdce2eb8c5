"""Packages as their lock has them: checksums, downloads that go on, real builds."""

import hashlib
import json
import subprocess
import sys

import pytest
from debian_mirror import serving
from made_up_pythons import make_wheel, script
from tiny_framework import HOST, left_behind, make_framework, refused, start_build

from dlbench.suites.environments import environment, folders, interpreters, needs, python_packages
from dlbench.suites.environments.environment import State
from dlbench.suites.errors import FrameworkEnvironmentError


def test_two_locks_of_a_framework_share_no_downloads(tiny, tmp_path):
    earlier = environment.locate(tiny).directory
    changed = environment.locate(make_framework(tmp_path, "numpy==1.0\n")).directory
    kept = folders.make_folder(folders.downloads(changed))
    assert environment.build(make_framework(tmp_path)).directory == earlier
    assert kept.is_dir()


@pytest.mark.slow
def test_a_lock_with_checksums_takes_no_other_file(home, tmp_path):
    wheel = make_wheel(tmp_path, "tinymodule")
    good = hashlib.sha256(wheel.read_bytes()).hexdigest()
    framework = make_framework(
        tmp_path, f"tinymodule @ {wheel.as_uri()} --hash=sha256:{'0' * 64}\n", python=HOST, imports="tinymodule"
    )
    message = refused(framework)
    assert "by its checksum" in message
    assert left_behind(home) == []
    lock = f"tinymodule @ {wheel.as_uri()} --hash=sha256:{good}\n"
    framework = make_framework(tmp_path, lock, python=HOST, imports="tinymodule")
    assert environment.build(framework).state is State.READY
    assert not folders.downloads(environment.locate(framework).directory).exists()


@pytest.mark.slow
def test_an_interrupted_download_of_wheels_goes_on_with_what_was_verified(home, tmp_path, monkeypatch):
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode:
        pytest.skip("the interpreter of the tests has no pip")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    served = tmp_path / "served"
    names = ("tinymodule", "othermodule")
    lines = []
    for name in names:
        folder = served / "simple" / name
        folder.mkdir(parents=True)
        wheel = make_wheel(folder, name)
        (folder / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
        lines.append(f"{name}==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    framework = make_framework(tmp_path, "".join(lines), python=HOST, imports="othermodule")
    with serving(served) as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.address}/simple")
        monkeypatch.setenv("PIP_TIMEOUT", "60")
        server.stalls = "othermodule-1.0-py3-none-any.whl"
        builder = start_build(framework)
        assert server.stalled.wait(60)
        builder.kill()
        builder.wait()
        assert environment.locate(framework).state is State.HALF_BUILT
        server.stalls = ""
        server.asked.clear()
        built = environment.build(framework)
        assert [path for path in server.asked if path.endswith(".whl")] == [
            "/simple/othermodule/" + "othermodule-1.0-py3-none-any.whl"
        ]
    assert interpreters.inspect(built.interpreter, names).missing == ()
    assert not folders.downloads(built.directory).exists()


@pytest.mark.slow
def test_checksums_on_continued_lines_are_checksums(home, tmp_path):
    wheel = make_wheel(tmp_path, "tinymodule")
    good = hashlib.sha256(wheel.read_bytes()).hexdigest()
    lock = (
        f"# a heading\ntinymodule @ {wheel.as_uri()} \\\n    --hash=sha256:{'0' * 64} \\\n"
        f"    --hash=sha256:{good}\n    # via nothing\n"
    )
    framework = make_framework(tmp_path, lock, python=HOST, imports="tinymodule")
    assert python_packages.is_hashed(framework.lock_file)
    directory = environment.build(framework).directory
    assert "pip download" in directory.with_name(f"{directory.name}.log").read_text()
    assert not python_packages.is_hashed(make_framework(tmp_path, "one==1 \\\n  --no-binary\n").lock_file)


@pytest.mark.parametrize(("found", "taken"), [("1.0", [1]), ("cpu 1.0", [0]), ("", None)])
def test_of_two_lines_of_one_package_the_first_that_pip_finds_is_taken(tiny, tmp_path, found, taken):
    kept = tmp_path / "kept"
    lines = [f"one==1.0+cpu --hash=sha256:{'0' * 64}", f"one==1.0 --hash=sha256:{'1' * 64}"]
    tiny.lock_file.write_text("\n".join(lines))
    # Pip, asked for the file of the requirement in its last word.
    pip = script(tmp_path / "pip", f'#!/bin/sh\nfor last; do :; done; for each in {found}; do\n'
                 'grep -q "$each --hash\\|+$each --hash" "$last" && exit 0; done; exit 1\n')  # fmt: skip
    places = python_packages._Kept(kept, tmp_path / "environment")
    asked = lambda: python_packages._download(tiny, [str(pip)], places, tmp_path / "log", lambda line: None)  # noqa: E731
    if taken is None:
        with pytest.raises(FrameworkEnvironmentError):
            asked()
    else:
        assert asked() == [lines[number] for number in taken]


def test_each_kept_file_is_read_once(tiny, tmp_path, monkeypatch):
    kept = tmp_path / "kept"
    (kept / "python").mkdir(parents=True)
    lines = []
    for number in range(5):
        (kept / "python" / f"{number}.whl").write_text(str(number))
        lines.append(f"one{number}==1 --hash=sha256:{hashlib.sha256(str(number).encode()).hexdigest()}")
    read = []
    digest = python_packages._digest
    monkeypatch.setattr(python_packages, "_digest", lambda path: read.append(path.name) or digest(path))
    tiny.lock_file.write_text("\n".join(lines))
    places = python_packages._Kept(kept, tmp_path / "environment")
    assert python_packages._download(tiny, ["false"], places, tmp_path / "log", lambda line: None) == lines
    assert sorted(read) == [f"{number}.whl" for number in range(5)]


def test_a_real_build_holds_exactly_what_its_lock_says(home, tmp_path):
    wheel = make_wheel(tmp_path, "tinymodule")
    lock = f"tinymodule @ {wheel.as_uri()}\n"
    framework = make_framework(tmp_path, lock, python=HOST, imports="tinymodule")
    said = []
    built = environment.build(framework, said.append)
    assert built.state is State.READY
    assert said[-1] == "Tiny: ready"
    inspection = interpreters.inspect(built.interpreter, ("tinymodule", "numpy", "sqlalchemy"))
    assert inspection.missing == ("numpy", "sqlalchemy")  # nothing of the host
    assert inspection.distributions["tinymodule"] == "1.0"
    manifest = json.loads((built.directory / interpreters.MANIFEST).read_text())
    assert manifest["framework"] == "tiny"
    assert manifest["distributions"] == inspection.distributions


@pytest.fixture
def without_ensurepip(home, tmp_path, monkeypatch):
    """Let the one Python that is found be the host's, less ensurepip, as Debian's is without python3-venv."""
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode:
        pytest.skip("the interpreter of the tests has no pip")
    refusal = 'case "$*" in *without-pip*) ;; "-m venv "*) echo no ensurepip; exit 1 ;; esac'
    python = script(tmp_path / "path" / "python", f'#!/bin/sh\n{refusal}\nexec {sys.executable} "$@"\n')
    monkeypatch.setattr(needs, "find_python", lambda version: python)


@pytest.mark.usefixtures("without_ensurepip")
def test_a_python_without_ensurepip_is_given_its_packages_by_the_hosts_pip(tmp_path):
    lock = f"tinymodule @ {make_wheel(tmp_path, 'tinymodule').as_uri()}\n"
    built = environment.build(make_framework(tmp_path, lock, imports="tinymodule"))
    assert interpreters.inspect(built.interpreter, ("tinymodule", "pip")).missing == ("pip",)


@pytest.mark.usefixtures("without_ensurepip")
def test_a_real_build_without_network_says_so_and_leaves_nothing(home, tmp_path):
    framework = make_framework(tmp_path, "tinymodule==1.0\n")
    message = refused(framework)
    assert "the package index could not be reached" in message
    assert "Check the network" in message
    assert left_behind(home) == []
