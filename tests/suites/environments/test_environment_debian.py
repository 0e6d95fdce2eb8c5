"""Environments with Debian packages: real apt and dpkg-deb on a mirror of the tests' own, by the real command."""

import json
import signal
from pathlib import Path

import pytest
from debian_mirror import tamper
from debian_recipe import over_http
from made_up_pythons import script
from processes import gone, wait_until

from dlbench.suites.environments import debian


def test_a_build_unpacks_links_and_notes_what_the_lock_names(recipe):
    folder = recipe.succeeds()
    assert (folder / "lib" / "libtiny.so.1").resolve() == (folder / "debian" / "usr" / "share" / "tiny-a")
    assert not (folder / "lib" / "libtiny.so.1").readlink().is_absolute()
    noted = json.loads((folder / "dlbench-environment.json").read_text())
    assert noted["debian"] == {"tiny-a": "1.0", "tiny-b": "1:2.0", "tiny-c": "1.0"}
    assert recipe.listed()["state"] == "ready"
    assert recipe.build() == (0, "Tiny: ready")  # nothing to do


@pytest.mark.slow
def test_another_package_makes_another_environment(recipe):
    first = recipe.succeeds()
    recipe.mirror.add("tiny-c", "1.1")
    (recipe.mirror.folder / "pool" / "tiny-c_1.0_all.deb").unlink()
    recipe.mirror.publish()
    (recipe.adapter / "debian.lock").write_text(recipe.mirror.lock())
    code, last = recipe.build()
    assert (code, last) == (0, "Tiny: ready")
    assert len(recipe.environments()) == 2
    assert first.is_dir()


def test_programs_lose_the_right_to_run_as_their_owner(tmp_path):
    program = script(tmp_path / "bin" / "su", "#!/bin/sh\n")
    program.chmod(0o6755)
    (tmp_path / "link").symlink_to(program)
    debian._take_privileges_away(tmp_path)
    assert program.stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, *(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGINT, signal.SIGTERM))],
)
def test_an_interrupted_download_goes_on_with_what_was_verified(recipe, number):
    with over_http(recipe) as server:
        server.stalls = "tiny-c_1.0_all.deb"
        process = recipe.start()
        assert server.stalled.wait(60)
        wait_until(lambda: (recipe.kept / "tiny-b_1%3a2.0_all.deb").exists(), "the second package")
        apts = [int(line) for line in _children(process.pid)]
        assert apts
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
        assert process.returncode == {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 143}[number], said
        wait_until(lambda: all(gone(pid) for pid in apts), "the end of apt")
        if number != signal.SIGKILL:
            assert recipe.environments() == []
            assert said.splitlines()[-1].startswith("dlbench: ")
        server.stalls = ""
        server.asked.clear()
        recipe.succeeds()
        assert set(server.downloads()) == {"tiny-c_1.0_all.deb"}


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.mark.slow
def test_a_kept_file_that_was_changed_is_fetched_anew(recipe):
    with over_http(recipe) as server:
        server.stalls = "tiny-c_1.0_all.deb"
        process = recipe.start()
        assert server.stalled.wait(60)
        wait_until(lambda: (recipe.kept / "tiny-b_1%3a2.0_all.deb").exists(), "the second package")
        process.kill()
        process.communicate()
        tamper(recipe.kept / "tiny-a_1.0_all.deb")
        server.stalls = ""
        server.asked.clear()
        recipe.succeeds()
        assert set(server.downloads()) == {"tiny-a_1.0_all.deb", "tiny-c_1.0_all.deb"}


def test_on_a_terminal_it_tells_how_far_it_is(recipe):
    said: list[str] = []
    packages = debian.read_lock(recipe.adapter / "debian.lock")
    recipe.kept.mkdir(parents=True)
    progress = debian._Progress("Tiny", packages, recipe.kept, said.append)
    for package in packages[:2]:
        (recipe.kept / package.file_name).write_bytes(bytes(package.size))
    progress.show()
    assert said[-1].startswith("Tiny: downloading 2 of 3 packages, 1 of 1 MB")
