"""What the plugin shows of an adapter of somebody else."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile_texts import write_hostile_adapter
from inertness import check_seen

pytest_plugins = ["pytester"]


@pytest.mark.slow
def test_neither_names_nor_reasons_do_anything(session: Callable[..., pytest.RunResult], tmp_path: Path) -> None:
    word = write_hostile_adapter(tmp_path / "adapter")
    store, file = str(tmp_path / "s.sqlite"), str(tmp_path / "out.json")
    words = "-rs", "-v", "--dlbench-adapter", word
    for further in (("--dlbench-store", store, "--benchmark-json", file), ("--dlbench-baseline", store)):
        found = session(*words, *further, suite=str(tmp_path / "mine.toml"))
        found.assert_outcomes(passed=1, skipped=1)
        check_seen("\n".join((*found.outlines, *found.errlines)))
    assert r"INCONCLUSIVE  dlbench[fcn5-b64-mine-able\x1b[2J" in found.stdout.str()
    assert ": unsupported: " in found.stdout.str()
    assert len(json.loads((tmp_path / "out.json").read_text())["benchmarks"]) == 1
