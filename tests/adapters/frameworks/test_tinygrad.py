"""What is particular to tinygrad, shown by the guest in tinygrad's own interpreter."""

from pathlib import Path

import pytest
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "tinygrad"


def test_kernels_are_kept_for_the_next_process_apart_for_each_compiler(guest: Guest, tmp_path: Path) -> None:
    program = """
        import shutil, stat, sqlite3
        from tinygrad import helpers
        from guest.libraries import software
        {change}
        adapter = prepared("small-dense")
        adapter.step(); adapter.synchronize()
        kept = sqlite3.connect(helpers.CACHEDB)
        tables = [name for (name,) in kept.execute("SELECT name FROM sqlite_master WHERE name LIKE 'compile_%'")]
        answer = helpers.CACHEDB, sum(kept.execute("SELECT count(*) FROM '%s'" % each).fetchone()[0] for each in tables)
    """
    path, count = guest(program.format(change=""))
    assert Path(path).is_relative_to(tmp_path)
    assert count
    assert guest(program.format(change="")) == [path, count]
    assert guest(program.format(change='software.compiler = lambda command: ("another clang", "")'))[0] != path
