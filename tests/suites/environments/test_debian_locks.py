"""Locks of Debian packages: read as they were written, or refused with the line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.suites.environments import debian
from dlbench.suites.errors import SuiteError
from dlbench.suites.planning.framework import catalogue


@given(
    st.lists(
        st.builds(
            debian.Package,
            st.from_regex(r"[a-z0-9][a-z0-9+.-]+", fullmatch=True),
            st.from_regex(r"([0-9]:)?[0-9][a-z0-9.+~-]*", fullmatch=True),
            st.sampled_from(["all", "amd64"]),
            st.integers(0, 10**12),
            st.from_regex(r"[0-9a-f]{64}", fullmatch=True),
        )
    )
)
def test_a_lock_is_read_as_it_was_written(tmp_path_factory, packages):
    path = tmp_path_factory.mktemp("lock") / "debian.lock"
    lines = [f"{p.name} {p.version} {p.architecture} {p.size} {p.sha256}" for p in packages]
    path.write_text("# heading\n\n" + "\n".join(lines))
    assert list(debian.read_lock(path)) == packages
    assert all("/" not in p.file_name and ":" not in p.file_name for p in packages)


def test_every_debian_lock_names_what_was_asked_for_and_no_host():
    locked = [framework for framework in catalogue().values() if framework.debian is not None]
    assert {framework.name for framework in locked} >= {"caffe", "cntk"}
    for framework in locked:
        path = framework.directory / framework.debian.lock
        packages = debian.read_lock(path)
        names = [package.name for package in packages]
        assert set(framework.debian.packages) <= set(names)
        assert len(set(names)) == len(names)
        assert "://" not in path.read_text()
        megabytes = sum(package.size for package in packages) / 1e6
        assert megabytes <= framework.download_megabytes


@pytest.mark.parametrize(
    "line",
    [
        "a 1 all 3",
        "../../a 1.0 all 3 " + "0" * 64,
        "-a 1.0 all 3 " + "0" * 64,
        "a-b ../1.0 all 3 " + "0" * 64,
        "a-b 1.0 all/.. 3 " + "0" * 64,
        "a-b 1.0 all ³ " + "0" * 64,
        "a-b 1.0 all 3 " + "A" * 64,
        "a-b 1.0 all 3 " + "g" * 64,
        "a-b 1.0 all 3 " + "0" * 64 + " more",
    ],
)
def test_a_line_of_the_lock_with_anything_else_is_refused(tmp_path, line):
    (tmp_path / "lock").write_text(f"# fine\n{line}\n")
    with pytest.raises(SuiteError, match="lock, line 2 is not"):
        debian.read_lock(tmp_path / "lock")
