"""The real command in odd surroundings: a relative TMPDIR, a removed folder, a stopped runner, a copied store."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from processes import COMMAND, records_in, running_command, suite_of_null, variables_of_command, wait_until

from dlbench.adapters.protocol import Status


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.toml").write_text(suite_of_null(step_seconds=0.05, protocol={"launches": 3, "steps": 10}))
    return tmp_path


def test_a_removed_working_folder_is_one_line(tmp_path):
    (tmp_path / "gone").mkdir()
    words = [str(each) for each in COMMAND]
    script = 'rmdir "$PWD"; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *words, "run", "quick"],
        cwd=tmp_path / "gone",
        env=variables_of_command(tmp_path / "home"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr == "dlbench: The working folder was removed. Change into one that exists.\n"


def test_a_launch_during_which_the_runner_was_stopped_is_repeated_and_a_copy_holds_what_ended(folder):
    store = folder / "dlbench.sqlite"
    with running_command(folder, "run", "mine.toml", "--no-quiet-gate") as process:
        wait_until(lambda: records_in(store), "the first record")
        # Without what SQLite keeps beside it. A record is seen a moment before it is in the file.
        wait_until(lambda: records_in(Path(shutil.copy(store, folder / "copy.sqlite"))), "a record in the copy")
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(2)
        os.kill(process.pid, signal.SIGCONT)
        process.wait()
        errors = process.said()
    assert process.returncode == 0, errors
    assert [record.outcome.status for record in records_in(store)] == [Status.OK] * 3, errors
