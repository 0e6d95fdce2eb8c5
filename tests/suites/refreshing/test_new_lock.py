"""A new lock from a resolved set: whose lines are kept, whose are asked, and what cannot be written."""

import pytest
from tiny_framework import make_framework

from dlbench.suites.errors import UsageError
from dlbench.suites.refreshing import new_lock
from dlbench.suites.refreshing.new_lock import OldLock, compose
from dlbench.suites.refreshing.package_index import Package

A, B, C = ("a" * 64, "b" * 64, "c" * 64)


def line(pinned, *checksums):
    return " ".join([pinned, *(f"--hash=sha256:{each}" for each in checksums)]) + "\n"


def package(pinned, *checksums):
    name, _, version = pinned.partition("==")
    return Package(name, version, frozenset(checksums))


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Give a function that composes a lock, and returns it with the packages whose checksums were asked."""

    def composed(old, resolved, held=(), further=()):
        framework = make_framework(tmp_path, old).model_copy(update={"held": dict.fromkeys(held, "a reason")})
        monkeypatch.setattr(new_lock, "catalogue", lambda: {"tiny": framework})
        asked = []

        def checksums(unknown):
            asked.extend(each.pinned for each in unknown)
            return {each.name: frozenset(further) for each in unknown}

        return compose(framework, OldLock.of(framework), resolved, checksums), asked

    return composed


def test_what_is_as_it_was_keeps_its_line_and_what_is_new_is_asked(write):
    old = "# of mine\n" + line("one==1", A, B) + line("two==1", A)
    text, asked = write(old, [package("one==1", B), package("three==1", A), package("two==2", C)], further=[B])
    assert text == "# of mine\n" + line("one==1", A, B) + line("three==1", A, B) + line("two==2", B, C)
    assert asked == ["three==1", "two==2"]


def test_a_version_whose_file_the_lock_does_not_know_is_asked_again(write):
    text, asked = write(line("one==1", A), [package("one==1", C)], further=[A, B])
    assert (text, asked) == (line("one==1", A, B, C), ["one==1"])


def test_held_packages_and_what_is_there_only_where_asked_stay_as_they_are(write):
    tail = "# Only where a build asks for it:\n" + line("kit==1", A)
    old = line("one==1+cpu", A) + line("one==1", B) + line("two==1", A) + tail
    resolved = [package("kit==3", C), package("one==1", C), package("two==2", B)]
    text, asked = write(old, resolved, held=["One"])
    assert text == line("one==1+cpu", A) + line("one==1", B) + line("two==2", B) + tail
    assert asked == ["two==2"]


def test_several_builds_of_what_is_not_held_are_refused(write):
    with pytest.raises(UsageError, match=r"several builds of one.*\[held\]"):
        write(line("one==1+cpu", A) + line("one==1", B), [package("one==2", C)])


def test_a_lock_without_checksums_gets_none(write):
    assert write("one==1\ntwo==1\n", [package("one==2", A)]) == ("one==2\n", [])


@pytest.mark.parametrize("text", ["", "one>=1\n"])
def test_what_is_no_list_of_versions_is_refused(tmp_path, text):
    with pytest.raises(UsageError, match="not a list of name==version lines"):
        OldLock.of(make_framework(tmp_path, text))


def test_changes_name_what_came_went_and_moved(tmp_path):
    old = OldLock.of(make_framework(tmp_path, "gone==1\nmoved==1+cpu\nsame==1\n"))
    new = OldLock.of(make_framework(tmp_path, "came==3\nmoved==2\nsame==1\n"))
    assert new_lock.changes(old, new) == [("came", "", "3"), ("gone", "1", ""), ("moved", "1", "2")]
    assert new_lock.is_newer("1.10", "1.9")
    assert not new_lock.is_newer("", "1")


def test_of_the_same_version_other_files_are_a_change_and_their_order_is_none(tmp_path):
    locks = [line("one==1", A, B) + line("two==1", A), line("two==1", A) + line("one==1", B, A), line("one==1", A, C)]
    first, reordered, other = (OldLock.of(make_framework(tmp_path, text)) for text in locks)
    assert new_lock.changes(first, reordered) == []
    assert new_lock.changes(first, other) == [("one", "1", "1"), ("two", "1", "")]
