"""Debian packages that are not what they should be, or is not available: by real apt and the real command."""

import os
import resource
import shutil
from collections.abc import Callable

import pytest
from debian_mirror import RELEASE, digest, make_key, tamper
from debian_recipe import TOML, Recipe, over_http, replace_program
from made_up_pythons import script

from dlbench.suites.environments import apt


@pytest.mark.slow
def test_a_file_that_is_not_what_the_mirror_lists_is_refused(recipe):
    package = recipe.mirror.folder / "pool" / "tiny-b_2.0_all.deb"
    tamper(package)
    with over_http(recipe):
        assert "another checksum than its lists say" in recipe.refused()
        tamper(package)  # the same bit: as it was
        recipe.succeeds()


def test_a_file_that_is_not_what_the_lock_names_is_refused(recipe):
    before = (recipe.adapter / "debian.lock").read_text()
    recipe.mirror.add("tiny-b", "1:2.0")  # the same version with other content, rightly listed and signed
    recipe.mirror.publish()
    message = recipe.refused()
    assert "tiny-b_1%3a2.0_all.deb is not the file that debian.lock names (other content)" in message
    assert "DLBENCH_DEBIAN_MIRROR" in message
    assert not (recipe.kept / "tiny-b_1%3a2.0_all.deb").exists()
    (recipe.adapter / "debian.lock").write_text(recipe.mirror.lock())
    assert before != recipe.mirror.lock()
    recipe.succeeds()


def test_a_tampered_line_of_the_lock_is_refused(recipe):
    right = (recipe.adapter / "debian.lock").read_text()
    good = digest(recipe.mirror.folder / "pool" / "tiny-a_1.0_all.deb")
    (recipe.adapter / "debian.lock").write_text(right.replace(good, "0" * 64))
    assert "tiny-a_1.0_all.deb is not the file that debian.lock names" in recipe.refused()
    (recipe.adapter / "debian.lock").write_text(right)
    recipe.succeeds()


@pytest.mark.slow
def test_a_version_that_the_mirror_has_no_more_is_named(recipe):
    right = (recipe.adapter / "debian.lock").read_text()
    (recipe.adapter / "debian.lock").write_text(right.replace("1:2.0", "1:1.9"))
    message = recipe.refused()
    assert "The Debian mirror no longer has tiny-b 1:1.9" in message
    assert "keeps old versions" in message


@pytest.mark.slow
def test_a_release_that_the_mirror_has_no_more_is_named(recipe):
    shutil.rmtree(recipe.mirror.folder / "dists")
    recipe.mirror.publish("newer")
    message = recipe.refused()
    assert f"The Debian mirror has no release {RELEASE}" in message
    with over_http(recipe):
        assert f"The Debian mirror has no release {RELEASE}" in recipe.refused()
        recipe.mirror.publish()
        recipe.succeeds()


def test_lists_that_another_key_signed_are_refused(recipe, tmp_path):
    recipe.variables["DLBENCH_DEBIAN_KEYRING"] = str(make_key(tmp_path / "other")[1])
    message = recipe.refused()
    assert "are not signed by a key in" in message
    assert "debian-archive-keyring" in message
    recipe.variables["DLBENCH_DEBIAN_KEYRING"] = str(recipe.mirror.keyring)
    recipe.succeeds()


@pytest.mark.slow
def test_lists_that_nobody_signed_are_refused(recipe):
    recipe.mirror.publish(sign=False)
    assert "not signed" in recipe.refused()


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/debian", "http://no-such-host.invalid/debian"])
@pytest.mark.thinned(2)
def test_without_network_it_says_so(recipe, address):
    right = recipe.variables["DLBENCH_DEBIAN_MIRROR"]
    recipe.variables["DLBENCH_DEBIAN_MIRROR"] = address
    message = recipe.refused()
    assert "The Debian mirror could not be reached. Check the network" in message
    recipe.variables["DLBENCH_DEBIAN_MIRROR"] = right
    recipe.succeeds()


def assert_unavailable(recipe: Recipe, *parts: str) -> None:
    """The reason is in the list, and the build ends with it before a folder was made."""
    listed = recipe.listed()
    assert listed["state"] == "unavailable"
    for part in parts:
        assert part in listed["reason"]
    assert recipe.refused() == f"dlbench: {listed['reason']}"
    assert not recipe.kept.exists()


@pytest.mark.parametrize(("program", "package"), [("apt-get", "apt"), ("dpkg-deb", "dpkg")])
def test_without_apt_it_is_unavailable(recipe, program, package):
    folder = recipe.folder / "path"
    folder.mkdir()
    for each in {"apt-get", "dpkg-deb", "apt-config", "sh"} - {program}:
        (folder / each).symlink_to(shutil.which(each))
    recipe.variables["PATH"] = str(folder)
    assert_unavailable(recipe, f"{program} (of the package {package}) is not on PATH", f"Install {package}")


@pytest.mark.slow
def test_without_mirror_keys_or_the_right_machine_it_is_unavailable(recipe):
    mirror, lock = recipe.variables.pop("DLBENCH_DEBIAN_MIRROR"), recipe.adapter / "debian.lock"
    replace_program(recipe, "apt-get", "echo \"'http://archive.example/ubuntu/dists/noble/InRelease' name 0\"")
    assert_unavailable(recipe, "apt sources name no Debian mirror", "Set DLBENCH_DEBIAN_MIRROR")
    recipe.variables |= {"DLBENCH_DEBIAN_MIRROR": mirror, "DLBENCH_DEBIAN_KEYRING": "/none.gpg"}
    assert_unavailable(recipe, "(/none.gpg)", "debian-archive-keyring")
    lock.write_text(lock.read_text().replace("tiny-a 1.0 all", "tiny-a 1.0 s390x"))
    assert_unavailable(recipe, "its packages are for Linux on s390x")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["'http://deb.example/debian/dists/bookworm/InRelease' x 0"], "http://deb.example/debian"),
        (["'http://deb.example/debian//dists/stable-updates/InRelease' x 0"], "http://deb.example/debian"),
        (
            [
                "'https://tool.example/apt/dists/any/InRelease' x 0",
                "'http://deb.example/debian-security/dists/bookworm-security/InRelease' x 0",
                "'file:/srv/archive/debian/20250101T000000Z/dists/bookworm/InRelease' x 0",
            ],
            "file:/srv/archive/debian/20250101T000000Z",
        ),
        (  # a vendor's, with Debian's name of a release
            [
                "'https://tool.example/linux/debian/dists/bookworm/InRelease' x 0",
                "'http://deb.example/debian/dists/bookworm/InRelease' x 0",
            ],
            "http://deb.example/debian",
        ),
        (
            [
                "'https://tool.example/debian/dists/stable/InRelease' x 0",
                "'http://mirror.example/pub/debian/dists/bookworm/InRelease' x 0",
                "'http://mirror.example/pub/debian/dists/bookworm-updates/InRelease' x 0",
            ],
            "http://mirror.example/pub/debian",
        ),
        (["'https://tool.example/debian/stable/dists/bookworm/InRelease' x 0"], ""),
        (["'http://archive.example/ubuntu/dists/noble/InRelease' x 0"], ""),
        ([], ""),
    ],
)
def test_the_mirror_is_taken_from_the_machines_sources(tmp_path, monkeypatch, lines, expected):
    monkeypatch.delenv(apt.MIRROR, raising=False)
    script(tmp_path / "apt-get", "#!/bin/sh\n" + "".join(f'echo "{line}"\n' for line in lines))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    apt.machines_mirror.cache_clear()
    try:
        assert apt.mirror() == expected
        (tmp_path / "apt-get").unlink()
        assert apt.mirror() == expected  # asked once
        monkeypatch.setenv(apt.MIRROR, "http://given.example/any/")
        assert apt.mirror() == "http://given.example/any"
    finally:
        apt.machines_mirror.cache_clear()


def no_file_beyond(size: int) -> Callable[[], None]:
    """Return what lets a process write no file of more bytes, as on a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.slow
def test_a_disk_that_is_full_while_downloading(recipe):
    with over_http(recipe):
        message = recipe.refused(preexec_fn=no_file_beyond(100_000))  # a package has more, a list less
        assert "no space is left" in message
        assert "DLBENCH_HOME" in message
        recipe.succeeds()


@pytest.mark.slow
def test_a_disk_that_is_full_while_unpacking(recipe):
    recipe.mirror.add("tiny-c", files={"usr/share/tiny-c": bytes(30_000_000)})  # packed it is small
    recipe.mirror.publish()
    (recipe.adapter / "debian.lock").write_text(recipe.mirror.lock())
    message = recipe.refused(preexec_fn=no_file_beyond(5_000_000))
    assert "no space is left to unpack tiny-c" in message
    assert (recipe.kept / "tiny-c_1.0_all.deb").exists()
    recipe.succeeds()


@pytest.mark.slow
def test_a_package_that_cannot_be_unpacked_is_named(recipe):
    replace_program(recipe, "dpkg-deb", "echo 'dpkg-deb: error: it is broken' >&2; exit 2")
    message = recipe.refused()
    assert "tiny-a cannot be unpacked: dpkg-deb: error: it is broken" in message
    recipe.variables["PATH"] = os.environ["PATH"]
    recipe.succeeds()


def test_a_link_to_what_no_package_has_is_refused(recipe):
    toml = recipe.adapter / "framework.toml"
    toml.write_text(TOML.replace('"debian/usr/share/tiny-a"', '"debian/usr/share/none"'))
    assert "lack debian/usr/share/none, which lib/libtiny.so.1 should point to" in recipe.refused()


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("../out", "debian/usr/share/tiny-a"),
        ("/tmp/dlbench-tests-out", "debian/usr/share/tiny-a"),
        ("lib/it", "../../.."),
        ("lib/it", "/etc/passwd"),
    ],
)
def test_a_link_that_leaves_the_environment_is_refused(recipe, link, target):
    line = f'"{link}" = "{target}"'
    (recipe.adapter / "framework.toml").write_text(TOML.replace('"lib/libtiny.so.1" = "debian/usr/share/tiny-a"', line))
    assert f"the link {link} to {target} leaves the environment. Correct framework.toml" in recipe.refused()
    assert not os.path.lexists("/tmp/dlbench-tests-out")
    assert not (recipe.folder / "home" / "environments" / "out").is_symlink()


def test_nothing_is_unpacked_through_a_link_out_of_the_environment(recipe):
    outside = recipe.folder / "outside"
    outside.mkdir()
    recipe.mirror.add("tiny-a", files={"usr/share/tiny-a": b"a"}, links={"usr/lib/door": str(outside)})
    recipe.mirror.add("tiny-b", "1:2.0", files={"usr/share/tiny-b": b"b", "usr/lib/door/deep/file": b"b"})
    recipe.mirror.publish()
    (recipe.adapter / "debian.lock").write_text(recipe.mirror.lock())
    message = recipe.refused()
    assert "tiny-b cannot be unpacked: usr/lib/door" in message
    assert "a folder outside the environment" in message
    assert list(outside.iterdir()) == []


def test_a_link_between_folders_of_the_environment_is_no_reason_to_refuse(recipe):
    recipe.mirror.add("tiny-a", files={"usr/share/tiny-a": b"a", "usr/lib/real/a": b"a"}, links={"lib": "usr/lib"})
    recipe.mirror.add("tiny-b", "1:2.0", files={"usr/share/tiny-b": b"b", "lib/real/b": b"b"})
    recipe.mirror.publish()
    (recipe.adapter / "debian.lock").write_text(recipe.mirror.lock())
    assert (recipe.succeeds() / "debian" / "lib" / "real" / "b").read_bytes() == b"b"
