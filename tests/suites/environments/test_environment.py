"""Environments: their states, building them, and everything that can go wrong while one is built."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import filelock
import pytest
from debian_mirror import serving
from made_up_pythons import make_python, make_wheel, script

from dlbench.suites.commands import listing
from dlbench.suites.commands.env import env_build
from dlbench.suites.environments import (
    apt,
    children,
    environment,
    interpreters,
    needs,
    python_packages,
    row_interpreters,
)
from dlbench.suites.environments.environment import State
from dlbench.suites.errors import FrameworkEnvironmentError
from dlbench.suites.planning.framework import Framework, Mode, find
from dlbench.suites.planning.values import Build

HOST = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Give a DLBENCH_HOME of the test's own, no Python but those it makes, and a pip that reaches no index."""
    folder = tmp_path / "home"
    monkeypatch.setenv("DLBENCH_HOME", str(folder))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_INDEX"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_TIMEOUT", "2")
    interpreters.find_python.cache_clear()
    yield folder
    interpreters.find_python.cache_clear()


def make_framework(folder: Path, requirements: str = "", python: str = "3.99", imports: str = "tiny") -> Framework:
    """Describe a framework whose locked requirements are these lines."""
    lock = folder / "requirements.lock"
    lock.write_text(requirements)
    return Framework(
        name="tiny",
        title="Tiny",
        summary="a framework for tests",
        folder="null",
        directory=folder,
        python=(python,),
        requirements=str(lock),
        imports=imports,
        download_megabytes=1,
        disk_megabytes=2,
        modes={"only": Mode(summary="the one mode")},
    )


@pytest.fixture
def tiny(tmp_path, home):
    """Give a framework for a made-up Python 3.99 that is on PATH."""
    make_python(tmp_path / "path" / "python3.99", "3.99")
    return make_framework(tmp_path)


def left_behind(home: Path) -> list[str]:
    """List what lies in the folder of environments, log and lock files aside."""
    folder = home / "environments"
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return [name for name in names if not name.endswith((".log", ".lock"))]


def refused(framework: Framework) -> str:
    """Return the sentence with which a build is given up."""
    with pytest.raises(FrameworkEnvironmentError) as caught:
        environment.build(framework)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == 3
    return message


def test_the_states_of_an_environment(tiny, home, tmp_path):
    assert environment.locate(tiny).state is State.NOT_BUILT
    assert "dlbench env build tiny" in environment.locate(tiny).reason
    built = environment.build(tiny)
    assert (built.state, built.reason) == (State.READY, "")
    assert environment.locate(tiny) == built
    assert built.interpreter == built.directory / "bin" / "python"
    assert built.directory.is_relative_to(home)
    (built.directory / environment.MANIFEST).unlink()
    half = environment.locate(tiny)
    assert (half.state, half.interpreter) == (State.HALF_BUILT, None)
    assert "dlbench env build tiny" in half.reason


def test_an_environment_without_its_interpreter_is_half_built(tiny):
    built = environment.build(tiny)
    built.interpreter.unlink()
    assert environment.locate(tiny).state is State.HALF_BUILT
    assert environment.build(tiny).state is State.READY


def test_a_changed_lock_is_another_environment(tiny, tmp_path):
    built = environment.build(tiny)
    changed = make_framework(tmp_path, "numpy==1.0\n")
    assert environment.locate(changed).state is State.NOT_BUILT
    assert environment.locate(changed).directory != built.directory


def test_without_a_fitting_python_it_says_how_to_get_one(home, tmp_path):
    tiny = make_framework(tmp_path, python="3.99")
    located = environment.locate(tiny)
    assert located.state is State.UNAVAILABLE
    for part in ("Tiny needs a Python of version 3.99", "PATH", "pyenv install 3.99", "uv python install 3.99"):
        assert part in located.reason
    assert "--python tiny=/path/to/python" in located.reason
    assert refused(tiny) == located.reason
    assert left_behind(home) == []


def test_the_first_python_that_is_there_is_taken(tiny, tmp_path):
    wanted = tiny.model_copy(update={"python": ("3.98", "3.99", HOST)})
    said = []
    environment.build(wanted, said.append)
    assert str(tmp_path / "path" / "python3.99") in said[0]


def test_what_is_downloaded_and_where_it_goes_is_announced(tiny, home):
    line = environment.announce(tiny)
    assert "1 MB" in line
    assert "2 MB" in line
    assert str(home) in line


def test_a_built_environment_is_not_built_again(tiny, monkeypatch):
    built = environment.build(tiny)
    monkeypatch.setattr(environment, "_install", None)  # would fail
    assert environment.build(tiny) == built


@pytest.mark.parametrize(
    ("says", "parts"),
    [
        (
            "NewConnectionError: Connection refused",
            ["index could not be reached", "dlbench env build tiny", "--python"],
        ),
        ("Temporary failure in name resolution", ["index could not be reached"]),
        ("OSError: [Errno 28] No space left on device", ["no space", "DLBENCH_HOME"]),
        ("ERROR: No matching distribution found for tiny==9", ["No matching distribution found for tiny==9", "log"]),
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
    monkeypatch.delenv("FAKE_PIP_EXIT")
    assert environment.build(tiny).state is State.READY


def test_a_second_failure_is_told_by_its_own_words(tiny, monkeypatch):
    monkeypatch.setenv("FAKE_PIP_EXIT", "1")
    monkeypatch.setenv("FAKE_PIP_SAYS", "NewConnectionError")
    assert "could not be reached" in refused(tiny)
    monkeypatch.setenv("FAKE_PIP_SAYS", "ERROR: hashes do not match")
    assert "hashes do not match" in refused(tiny)


def test_an_installation_without_the_framework_is_refused(tiny, home, monkeypatch):
    monkeypatch.setenv("FAKE_MISSING", '"tiny"')
    assert "lacks the module tiny" in refused(tiny)
    assert left_behind(home) == []


def test_a_python_that_makes_no_virtual_environments(tiny, home, monkeypatch):
    monkeypatch.setenv("FAKE_VENV_EXIT", "1")
    monkeypatch.setenv("FAKE_BARE_VENV_EXIT", "1")
    monkeypatch.setenv("FAKE_VENV_SAYS", "no ensurepip")
    message = refused(tiny)
    assert "cannot make virtual environments" in message
    assert "Install its venv package" in message
    assert left_behind(home) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_whatever_ends_a_build_leaves_nothing(tiny, home, monkeypatch, error):
    run = children.run

    def broken(command, log, **options):
        if "pip" in command:
            raise error
        return run(command, log, **options)

    monkeypatch.setattr(children, "run", broken)
    with pytest.raises((KeyboardInterrupt, FrameworkEnvironmentError)) as caught:
        environment.build(tiny)
    if caught.type is not KeyboardInterrupt:
        assert "No space left on device. Set DLBENCH_HOME" in str(caught.value)
    assert left_behind(home) == []


def test_a_build_that_was_killed_is_half_built_and_made_anew(tiny, home, tmp_path, monkeypatch):
    hangs = tmp_path / "hangs"
    program = (
        "import sys\n"
        "from dlbench.suites.environments import environment\n"
        "from dlbench.suites.planning.framework import Framework\n"
        "environment.build(Framework.model_validate_json(sys.argv[1]))"
    )
    variables = {**os.environ, "FAKE_VENV_HANGS": str(hangs)}
    builder = subprocess.Popen([sys.executable, "-c", program, tiny.model_dump_json()], env=variables)
    try:
        until = time.monotonic() + 60
        while not (hangs.exists() and hangs.read_text().strip()) and time.monotonic() < until:
            time.sleep(0.02)
    finally:
        builder.kill()
        builder.wait()
    os.kill(int(hangs.read_text()), signal.SIGKILL)
    half = environment.locate(tiny)
    assert half.state is State.HALF_BUILT
    (half.directory / "rest-of-before").touch()
    built = environment.build(tiny)
    assert built.state is State.READY
    assert not (built.directory / "rest-of-before").exists()


def test_a_home_that_cannot_be_written_is_named_with_the_remedy(tiny, home):
    home.write_text("a file where a folder should be")
    assert environment.locate(tiny).state is State.NOT_BUILT
    message = refused(tiny)
    assert str(home) in message
    assert "Set DLBENCH_HOME" in message
    assert home.read_text() == "a file where a folder should be"
    with pytest.raises(FrameworkEnvironmentError, match="Set DLBENCH_HOME"):
        environment.make_folder(environment.cache_directory(tiny))


def test_a_home_that_may_not_be_looked_into_holds_no_environment(tiny, home, monkeypatch):
    exists = Path.exists

    def forbidden(path):
        if path.is_relative_to(home):
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", forbidden)  # as for one who is not root
    assert environment.locate(tiny).state is State.NOT_BUILT


def test_removing_takes_environment_and_cache(tiny):
    directory = environment.build(tiny).directory
    cache = environment.make_folder(environment.cache_directory(tiny))
    assert environment.remove(tiny)
    assert not directory.exists()
    assert not cache.exists()
    assert not environment.remove(tiny)
    with pytest.raises(FrameworkEnvironmentError, match="nothing to remove"):
        environment.remove(find("null"))


def test_removing_takes_the_environments_of_earlier_locks_and_of_no_other_framework(tiny, home, tmp_path):
    earlier = environment.build(tiny).directory
    changed = make_framework(tmp_path, "numpy==1.0\n")
    now = environment.build(changed).directory
    others = [home / "environments" / name for name in ("tiny-er-01234567", "tinyer-01234567", "tiny-012345678")]
    kept = [environment.make_folder(environment.downloads(directory)) for directory in (earlier, others[0])]
    for other in others:
        other.mkdir()
    assert environment.remove(changed)
    assert sorted(left_behind(home)) == sorted(other.name for other in others)
    assert [folder.exists() for folder in (earlier, now, *kept)] == [False, False, False, True]
    assert not list((home / "environments").glob("tiny-*.log"))
    assert not environment.remove(changed)


def test_an_environment_that_is_being_built_is_not_removed(tiny, monkeypatch):
    directory = environment.build(tiny).directory
    monkeypatch.setattr(environment, "_PATIENCE", 0.01)
    with filelock.FileLock(f"{directory}.lock"):
        with pytest.raises(FrameworkEnvironmentError, match="is being built now") as caught:
            environment.remove(tiny)
        assert (caught.value.exit_code, "\n" in str(caught.value)) == (3, False)
        assert environment.locate(tiny).state is State.READY
        with pytest.raises(filelock.Timeout):  # the same file is still the lock
            filelock.FileLock(f"{directory}.lock").acquire(timeout=0.01)
    assert environment.remove(tiny)


def test_what_cannot_be_removed_is_said_in_one_line(tiny, monkeypatch):
    directory = environment.build(tiny).directory

    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", refused)
    with pytest.raises(FrameworkEnvironmentError) as caught:
        environment.remove(tiny)
    assert str(caught.value) == f"Tiny cannot be removed: {directory}: Permission denied."
    assert caught.value.exit_code == 3


def test_two_locks_of_a_framework_share_no_downloads(tiny, tmp_path):
    earlier = environment.locate(tiny).directory
    changed = environment.locate(make_framework(tmp_path, "numpy==1.0\n")).directory
    kept = environment.make_folder(environment.downloads(changed))
    assert environment.build(make_framework(tmp_path)).directory == earlier
    assert kept.is_dir()


def test_a_relative_home_is_meant_from_where_dlbench_was_started(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLBENCH_HOME", "here")
    built = environment.build(tiny)
    assert built.interpreter.is_relative_to(tmp_path / "here")
    assert environment.cache_directory(tiny).is_absolute()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DLBENCH_HOME", "~/there")
    assert environment.home() == tmp_path / "there"
    monkeypatch.setenv("DLBENCH_DEBIAN_KEYRING", "keys.gpg")
    assert apt.keyring() == tmp_path / "keys.gpg"


def test_room_is_needed_for_what_is_kept_beside_the_environment(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(needs, "free_megabytes", lambda folder: 2.5)  # 2 MB of environment, 1 MB of download
    hashed = make_framework(tmp_path, f"one==1 --hash=sha256:{'0' * 64}\n")
    assert "needs about 3 MB" in environment.locate(hashed).reason
    half = environment.locate(hashed).directory
    half.mkdir(parents=True)
    (half / "library").write_bytes(bytes(600_000))
    assert needs.missing(hashed, half) == ""  # the build takes it away first
    assert environment.locate(make_framework(tmp_path, "one==1\n")).state is State.NOT_BUILT


def test_a_broken_interpreter_is_its_own_row_and_ends_no_list(tiny, monkeypatch):
    built = environment.build(tiny)
    null = find("null")
    monkeypatch.setattr(listing, "offered", lambda: {"tiny": tiny, "null": null})
    assert [row["state"] for row in listing.frameworks()] == ["ready", "ready"]
    script(built.interpreter, "#!/bin/sh\nexit 1\n")
    broken, other = listing.frameworks()
    assert (broken["state"], broken["interpreter"], broken["python"]) == ("unavailable", None, None)
    for part in (str(built.interpreter), "does not start", "dlbench env remove tiny", "dlbench env build tiny"):
        assert part in broken["reason"]
    assert other["state"] == "ready"


def test_a_framework_that_nobody_can_have_says_so_and_is_not_asked_for_more(home):
    gone = find("torch7")
    located = environment.locate(gone)
    assert (located.state, located.interpreter) == (State.UNAVAILABLE, None)
    assert gone.unavailable in located.reason
    assert "torch stands for it" in located.reason
    assert refused(gone) == located.reason
    assert not environment.remove(gone)
    source, said = source_of(gone, name="torch7")
    assert (source.interpreter, source.reason) == (None, located.reason)
    assert said == [f"{gone.title} is left out. {located.reason}"]
    with pytest.raises(FrameworkEnvironmentError, match="cannot be had"):
        source_of(gone, Path(sys.executable), name="torch7")
    assert left_behind(home) == []


def test_a_program_that_is_missing_is_named_before_anything_is_downloaded(tiny, home):
    needing = tiny.model_copy(update={"programs": ("sh", "no-such-compiler")})
    located = environment.locate(needing)
    assert located.state is State.UNAVAILABLE
    for part in ("Tiny cannot be had here", "needs no-such-compiler, which is not on PATH", "--python tiny="):
        assert part in located.reason
    assert refused(needing) == located.reason
    source, _ = source_of(needing)
    assert source.reason == located.reason
    assert left_behind(home) == []


def test_too_small_a_disk_is_said_before_anything_is_downloaded(tiny, home):
    huge = tiny.model_copy(update={"disk_megabytes": 10**9})
    message = refused(huge)
    assert f"needs about {10**9 + 1} MB" in message  # the download lies beside it
    assert "DLBENCH_HOME" in message
    assert environment.locate(huge).state is State.UNAVAILABLE
    assert left_behind(home) == []


def test_a_lock_file_that_is_not_there_is_named(tiny):
    (tiny.directory / "requirements.lock").unlink()
    located = environment.locate(tiny)
    assert located.state is State.UNAVAILABLE
    assert f"{tiny.lock_file}, which tiny's framework.toml names, cannot be read" in located.reason
    assert refused(tiny) == located.reason


@pytest.mark.usefixtures("home")
def test_a_folder_that_may_not_be_written_is_named_with_the_remedy(monkeypatch):
    with tempfile.TemporaryDirectory() as name:  # one that others than root may look into
        folder = Path(name)
        tiny = make_framework(folder)
        make_python(folder / "path" / "python3.99", "3.99")
        home = folder / "home"
        home.mkdir()
        for each in (folder, home):
            each.chmod(0o555)
        monkeypatch.setenv("PATH", f"{folder / 'path'}:/usr/bin:/bin")
        monkeypatch.setenv("DLBENCH_HOME", str(home))
        root = os.geteuid() == 0
        try:
            if root:
                os.seteuid(65534)
            message = refused(tiny)
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o755)
        assert "Permission denied. Set DLBENCH_HOME to a folder" in message
        assert list(home.iterdir()) == []


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
    assert not environment.downloads(environment.locate(framework).directory).exists()


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
    program = (
        "import sys\n"
        "from dlbench.suites.environments import environment\n"
        "from dlbench.suites.planning.framework import Framework\n"
        "environment.build(Framework.model_validate_json(sys.argv[1]))"
    )
    with serving(served) as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.address}/simple")
        monkeypatch.setenv("PIP_TIMEOUT", "60")
        server.stalls = "othermodule-1.0-py3-none-any.whl"
        builder = subprocess.Popen([sys.executable, "-c", program, framework.model_dump_json()])
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
    assert not environment.downloads(built.directory).exists()


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


RETRIED = "WARNING: Retrying after connection broken by 'NewConnectionError'"


@pytest.mark.parametrize("command", ["the same", "an earlier"])
def test_a_connection_that_came_back_does_not_hide_a_wrong_checksum(tiny, tmp_path, command):
    log = tmp_path / "log"
    said = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES"
    before, now = (f"{RETRIED}\n", said) if command == "an earlier" else ("", f"{RETRIED}\n{said}")
    log.write_text(before)
    with pytest.raises(FrameworkEnvironmentError, match=r"by its checksum"):
        python_packages._run(tiny, ["sh", "-c", f'echo "{now}"; exit 1'], log, "Tiny", lambda line: None)


def test_a_connection_that_came_back_is_no_reason_of_a_later_failure(tiny, tmp_path):
    log = tmp_path / "log"
    log.write_text(f"{RETRIED}\n")
    with pytest.raises(FrameworkEnvironmentError, match="could not be installed: ERROR: no such thing"):
        python_packages._run(tiny, ["sh", "-c", "echo ERROR: no such thing; exit 1"], log, "Tiny", lambda line: None)


def test_a_disk_so_full_that_no_log_can_be_written_is_told_by_itself(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    assert not children.out_of_room("some other failure", tmp_path / "log")
    assert children.out_of_room("cannot write: No space left on device", tmp_path / "log")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=4096))
    assert children.out_of_room("E: cut off in the mid", tmp_path / "log")


@pytest.mark.parametrize("on_request", [False, True])
def test_without_names_a_build_leaves_out_what_is_built_on_request(home, monkeypatch, on_request):
    built = []
    monkeypatch.setattr(environment, "build", lambda framework, *ways: built.append(framework.name))
    env_build(None, on_request)
    assert {"caffe", "cntk", "theano"}.isdisjoint(built) != on_request
    assert ("mxnet" in built) != on_request
    assert not any(find(name).unavailable for name in built)
    built.clear()
    env_build(["caffe"], on_request)
    assert ("caffe" in built, built.count("caffe")) == (True, 1)


def test_a_historic_framework_is_asked_of_no_machine(home, framework_python, monkeypatch):
    monkeypatch.setenv("CI", "1")
    monkeypatch.delenv("DLBENCH_TEST_FRAMEWORKS", raising=False)
    for name in ("CAFFE", "MXNET"):
        monkeypatch.delenv(f"DLBENCH_PYTHON_{name}", raising=False)
    with pytest.raises(pytest.skip.Exception, match="not built here"):
        framework_python("caffe")
    with pytest.raises(pytest.fail.Exception, match="not built here"):
        framework_python("mxnet")


def test_the_frameworks_tested_now_are_asked_for_and_no_others(home, framework_python, monkeypatch):
    monkeypatch.setenv("CI", "1")
    monkeypatch.setenv("DLBENCH_TEST_FRAMEWORKS", "torch,mxnet")
    for name in ("CAFFE", "MXNET"):
        monkeypatch.delenv(f"DLBENCH_PYTHON_{name}", raising=False)
    with pytest.raises(pytest.skip.Exception, match="caffe is not among the frameworks tested now"):
        framework_python("caffe")
    with pytest.raises(pytest.fail.Exception, match="not built here"):
        framework_python("mxnet")
    assert framework_python("null") == Path(sys.executable)  # needs no environment of its own
    monkeypatch.setenv("DLBENCH_PYTHON_CAFFE", sys.executable)
    assert framework_python("caffe") == Path(sys.executable)


def test_variables_name_the_environments_folder(tiny):
    named = tiny.model_copy(update={"variables": {"LD_LIBRARY_PATH": "{environment}/lib", "N": "{threads}"}})
    folder = environment.build(tiny).directory
    assert named.launch_variables("only", 2, folder) == {"LD_LIBRARY_PATH": f"{folder}/lib", "N": "2"}
    assert named.launch_variables("only", 0, folder) == {"LD_LIBRARY_PATH": f"{folder}/lib"}
    source, _ = source_of(tiny)
    assert source.folder == folder
    source, _ = source_of(tiny.model_copy(update={"imports": "sys"}), Path(sys.executable), name="mine")
    assert source.folder == Path(sys.prefix)


def test_the_null_framework_is_always_ready():
    located = environment.locate(find("null"))
    assert (located.state, located.interpreter) == (State.READY, Path(sys.executable))


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
    manifest = json.loads((built.directory / environment.MANIFEST).read_text())
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


def source_of(framework, interpreter=None, name="tiny", build_missing=True):
    said = []
    found = row_interpreters.prepare([Build(name, framework, interpreter)], said.append, build_missing)
    return found[name], said


def test_a_source_is_built_where_it_is_missing_and_announced_first(tiny, home):
    source, said = source_of(tiny)
    assert source.interpreter == environment.locate(tiny).interpreter
    assert source.name == "FakePython 3.99.1"
    assert len(source.digest) == 12
    assert said[0] == environment.announce(tiny)
    assert source_of(tiny) == (source, [])


def test_nothing_is_built_where_that_was_not_wanted(tiny, home):
    source, said = source_of(tiny, build_missing=False)
    assert source.interpreter is None
    assert "dlbench env build tiny" in source.reason
    assert "left out" in said[0]
    assert left_behind(home) == []


def test_an_environment_that_cannot_be_had_leaves_the_other_rows_alone(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_PIP_EXIT", "1")
    monkeypatch.setenv("FAKE_PIP_SAYS", "NewConnectionError")
    said = []
    found = row_interpreters.prepare([Build("tiny", tiny), Build("null", find("null"))], said.append)
    assert found["tiny"].interpreter is None
    assert "could not be reached" in found["tiny"].reason
    assert found["null"].interpreter == Path(sys.executable)
    assert any("Tiny is left out" in line for line in said)


def test_a_brought_interpreter_is_looked_into(tiny, tmp_path):
    source, _ = source_of(tiny, tmp_path / "path" / "python3.99", name="mine")
    assert (source.name, source.interpreter) == ("FakePython 3.99.1", tmp_path / "path" / "python3.99")


def test_a_brought_interpreter_that_lacks_the_framework_is_refused(tiny, tmp_path):
    lacking = tiny.model_copy(update={"imports": "no_such_framework"})
    with pytest.raises(FrameworkEnvironmentError) as caught:
        source_of(lacking, Path(sys.executable), name="mine")
    assert f"given for mine, {sys.executable}, lacks no_such_framework. Install it there" in str(caught.value)


def test_a_brought_interpreter_that_is_none_is_refused(tiny, tmp_path):
    with pytest.raises(FrameworkEnvironmentError, match="is not a Python interpreter that starts"):
        source_of(tiny, tmp_path / "none")
