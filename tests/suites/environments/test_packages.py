"""Locked Python packages: verified by their checksums, downloads that continue, and failures that
say why."""

import hashlib
import json
import re
import sys
import zipfile

import pytest
from file_server import serving
from made_up_pythons import (
    HOST,
    left_behind,
    make_framework,
    make_wheel,
    refused,
    script,
    start_build,
)

from dlbench.suites.environments import environment, folders, interpreters, packages
from dlbench.suites.environments.environment import State
from dlbench.suites.errors import FrameworkEnvironmentError
from dlbench.suites.planning.framework import shipped

LOCKED = [
    variant
    for framework in shipped().values()
    for variant in framework.by_lock
    if framework.environment == "own" and variant.lock_file.exists()
]


LINE = re.compile(r"[a-z0-9-]+==[0-9][0-9a-z.]*(?:\+cpu)?( --hash=sha256:[0-9a-f]{64})+")


@pytest.mark.parametrize(
    "framework", LOCKED, ids=lambda variant: f"{variant.name}-{variant.requirements}"
)
def test_every_line_of_a_lock_has_a_version_and_checksums(framework):
    lines = [
        line
        for line in framework.lock_file.read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert lines
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    names = [line.split()[0] for line in lines]
    assert len(names) == len(set(names))
    # A build of one index alone, torch 2.13.0+cpu, needs the plain version as its alternative.
    assert {name.partition("+")[0] for name in names} <= set(names)
    assert packages.is_hashed(framework.lock_file)


def test_one_version_has_the_same_checksums_in_every_lock():
    """Of one version and the same Pythons: a lock that lacks a file another has would fail on that
    file's machine."""
    by_line: dict[tuple[str, tuple[str, ...]], set[str]] = {}
    for framework in LOCKED:
        for line in framework.lock_file.read_text().splitlines():
            if not line.startswith("#"):
                by_line.setdefault((line.split()[0], framework.python), set()).add(line)
    assert {key: lines for key, lines in by_line.items() if len(lines) > 1} == {}


def test_an_extra_that_one_wheel_asks_of_another_brings_what_that_extra_needs(tmp_path):
    needs = {
        "torch": ["cuda_kit[blas]==1"],
        "cuda_kit": ["nvidia-blas==1; extra == 'blas'", "nvidia-fft==1; extra == 'fft'"],
    }
    for name, requires in needs.items():
        with zipfile.ZipFile(tmp_path / f"{name}-1-py3-none-any.whl", "w") as archive:
            text = f"Name: {name}\n" + "".join(
                f"Requires-Dist: {requirement}\n" for requirement in requires
            )
            archive.writestr(f"{name}-1.dist-info/METADATA", text)
    assert packages._required_names(tmp_path, tmp_path) == {"cuda-kit", "nvidia-blas"}


def test_a_lock_with_checksums_takes_no_other_file(home, tmp_path, host_python):
    wheel = make_wheel(tmp_path, "tinymodule")
    good = hashlib.sha256(wheel.read_bytes()).hexdigest()

    def locked(digest):
        lock = f"tinymodule @ {wheel.as_uri()} --hash=sha256:{digest}\n"
        return make_framework(tmp_path, lock, python=HOST, imports="tinymodule")

    message = refused(locked("0" * 64))
    assert "not match its checksum" in message
    assert left_behind(home) == []
    lines = []
    built = environment.build(locked(good), lines.append)
    assert (built.state, lines[-1]) == (State.READY, "Tiny: ready")
    assert not folders.downloads(built.directory).exists()
    inspection = interpreters.inspect(built.interpreter, ("tinymodule", "numpy", "sqlalchemy"))
    assert inspection.missing == ("numpy", "sqlalchemy")  # nothing of the host
    manifest = json.loads((built.directory / interpreters.MANIFEST).read_text())
    assert (manifest["framework"], manifest["distributions"]) == ("tiny", inspection.distributions)
    assert manifest["distributions"]["tinymodule"] == "1.0"


def test_an_interrupted_download_of_wheels_goes_on_with_what_was_verified(
    home, tmp_path, monkeypatch, host_python
):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    served = tmp_path / "served"
    names = ("tinymodule", "othermodule")
    lines = []
    for name in names:
        folder = served / "simple" / name
        folder.mkdir(parents=True)
        wheel = make_wheel(folder, name)
        (folder / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
        lines.append(
            f"{name}==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
        )
    framework = make_framework(tmp_path, "".join(lines), python=HOST, imports="othermodule")
    with serving(served) as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.address}/simple")
        monkeypatch.setenv("PIP_TIMEOUT", "60")
        server.stalls = "othermodule-1.0-py3-none-any.whl"
        builder = start_build(framework)
        assert server.stalled.wait(240)
        builder.kill()
        builder.join()
        assert environment.locate(framework).state is State.HALF_BUILT
        server.stalls = ""
        server.asked.clear()
        built = environment.build(framework)
        assert [path for path in server.asked if path.endswith(".whl")] == [
            "/simple/othermodule/" + "othermodule-1.0-py3-none-any.whl"
        ]
    assert interpreters.inspect(built.interpreter, names).missing == ()
    assert not folders.downloads(built.directory).exists()


@pytest.mark.parametrize(("available", "taken"), [("1.0", [1]), ("cpu 1.0", [0]), ("", None)])
def test_of_two_lines_of_one_package_the_first_that_pip_finds_is_taken(
    tiny, tmp_path, available, taken
):
    downloads = tmp_path / "kept"
    lines = [f"one==1.0+cpu --hash=sha256:{'0' * 64}", f"one==1.0 --hash=sha256:{'1' * 64}"]
    tiny.lock_file.write_text("\n".join(lines))
    # Pip, asked for the file of the requirement in its last word.
    pip = script(tmp_path / "pip", f'#!/bin/sh\nfor last; do :; done; for each in {available}; do\n'
                 'grep -q "$each --hash\\|+$each --hash" "$last" && exit 0; done; exit 1\n')  # fmt: skip

    def asked():
        return packages._download(
            tiny,
            [str(pip)],
            downloads / "python",
            tmp_path / "environment",
            tmp_path / "log",
            lambda line: None,
        )

    if taken is None:
        with pytest.raises(FrameworkEnvironmentError):
            asked()
    else:
        assert asked() == [lines[number] for number in taken]


def test_a_python_without_ensurepip_is_given_its_packages_by_the_hosts_pip(
    home, tmp_path, monkeypatch
):
    """As Debian's is without python3-venv."""
    pytest.importorskip("pip")
    refusal = 'case "$*" in *without-pip*) ;; "-m venv "*) echo no ensurepip; exit 1 ;; esac'
    python = script(
        tmp_path / "path" / "python", f'#!/bin/sh\n{refusal}\nexec {sys.executable} "$@"\n'
    )
    monkeypatch.setattr(environment, "find_python", lambda version: python)
    lock = f"tinymodule @ {make_wheel(tmp_path, 'tinymodule').as_uri()}\n"
    built = environment.build(make_framework(tmp_path, lock, imports="tinymodule"))
    assert interpreters.inspect(built.interpreter, ("tinymodule", "pip")).missing == ("pip",)


@pytest.mark.parametrize(
    ("says", "parts"),
    [
        (
            "NewConnectionError: refused",
            ["index could not be reached", "dlbench env build tiny", "--python"],
        ),
        ("OSError: [Errno 28] No space left on device", ["no space", "DLBENCH_HOME"]),
        (
            "ERROR: No matching distribution found for tiny==9",
            ["No matching distribution found for tiny==9", "log"],
        ),
    ],
)
def test_a_failed_installation_says_why_and_leaves_nothing(tiny, home, monkeypatch, says, parts):
    monkeypatch.setenv("FAKE_PIP_SAYS", says)
    monkeypatch.setenv("FAKE_PIP_EXIT", "1")
    message = refused(tiny)
    for part in parts:
        assert part in message
    assert left_behind(home) == []
    assert environment.locate(tiny).state is State.NOT_BUILT
    monkeypatch.setenv("FAKE_PIP_SAYS", "ERROR: hashes do not match")
    assert "hashes do not match" in refused(tiny)  # a second failure is reported in its own words
    monkeypatch.delenv("FAKE_PIP_EXIT")
    monkeypatch.setenv("FAKE_MISSING", '"tiny"')
    assert "lacks the module tiny" in refused(tiny)
    assert left_behind(home) == []
    monkeypatch.delenv("FAKE_MISSING")
    assert environment.build(tiny).state is State.READY


def test_a_python_that_makes_no_virtual_environments(tiny, home, monkeypatch):
    for name, value in (("VENV_EXIT", "1"), ("BARE_VENV_EXIT", "1"), ("VENV_SAYS", "no ensurepip")):
        monkeypatch.setenv(f"FAKE_{name}", value)
    message = refused(tiny)
    assert "cannot make virtual environments" in message
    assert "Install its venv package" in message
    assert left_behind(home) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_whatever_ends_a_build_leaves_nothing(tiny, home, monkeypatch, error):
    run = packages.run

    def broken(command, log, **options):
        if "pip" in command:
            raise error
        return run(command, log, **options)

    monkeypatch.setattr(packages, "run", broken)
    with pytest.raises((KeyboardInterrupt, FrameworkEnvironmentError)) as caught:
        environment.build(tiny)
    if caught.type is not KeyboardInterrupt:
        assert "No space left on device. Set DLBENCH_HOME" in str(caught.value)
    assert left_behind(home) == []


RETRIED = "WARNING: Retrying after connection broken by 'NewConnectionError'"


def test_a_connection_that_came_back_does_not_hide_a_wrong_checksum(tiny, tmp_path):
    log = tmp_path / "log"
    log.write_text(f"{RETRIED}\n")  # of an earlier command
    text = f"{RETRIED}\nERROR: THESE PACKAGES DO NOT MATCH THE HASHES"
    with pytest.raises(FrameworkEnvironmentError, match=r"not match its checksum"):
        packages.run_pip(
            tiny, ["sh", "-c", f'echo "{text}"; exit 1'], log, "Tiny", lambda line: None
        )
