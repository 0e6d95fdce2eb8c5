"""The real command with a store on a real server: it stops in the middle of a run, and each record reaches it once."""

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from postgresql_server import Server
from processes import PATIENCE, running_command
from suites_of_null import suite_of_null

from dlbench.reports.storage.store import Store
from dlbench.suites.run.launcher import ProcessLauncher

Command = Callable[..., tuple[Any, str, str]]
SECRET = "hunter2"
SUITE = suite_of_null(step_seconds=0.005, protocol={"launches": 5, "cell_seconds": 100.0, "seconds": 0.05})
ALL = Counter(range(5))


@pytest.fixture
def url(postgresql: Server, database: str) -> str:
    """Give the URL of an empty database, with a password that nobody may see."""
    return postgresql.url(database, password=SECRET)


def launched(url: str) -> Counter[int]:
    with Store.open(url, create=False) as store:
        return Counter(record.launch for record in store.records())


def waiting(folder: Path) -> list[Path]:
    return sorted((folder / "home" / "undelivered").glob("*/*.sqlite"))


def secret_in_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_a_server_that_stops_in_the_middle_of_a_run(
    command: Command, url: str, postgresql: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path / "home"))
    Path("mine.toml").write_text(SUITE)
    launches = iter(range(5))

    def launch(*given: Any, **more: Any) -> Any:
        if next(launches) == 2:
            postgresql.stop(signal.SIGQUIT)
        return carried_out(*given, **more)

    with monkeypatch.context() as patch:
        carried_out = ProcessLauncher.launch
        patch.setattr(ProcessLauncher, "launch", launch)
        code, out, errors = told = command("run", "mine.toml", "--store", url)
    assert code == 0, errors
    assert "cannot be reached" in errors
    assert "The run goes on: what it measures is kept in" in errors
    assert "[5/5]" in errors
    assert "`dlbench store deliver` delivers it, and so does the next run" in errors
    assert "null" in out
    (file,) = waiting(tmp_path)
    away = command("store", "deliver")
    assert away[0] == 4
    assert "check that the server runs" in away[2]
    postgresql.start()
    assert launched(url) == Counter([0, 1])
    delivered = command("store", "deliver", "--store", url)
    assert delivered[0] == 0, delivered
    assert "0 runs and 3 records that" in delivered[2]
    assert launched(url) == ALL
    assert not file.exists()
    assert command("store", "deliver") == (0, "", "Nothing waits to be delivered.\n")
    with Store.open(url, create=False) as store:
        assert [run.finished is not None for run in store.runs()] == [True]
    assert SECRET not in str((told, away, delivered))
    assert secret_in_files(tmp_path) == []


@pytest.mark.slow
def test_a_run_that_was_killed_while_the_server_was_away_is_delivered_and_resumed(
    command: Command, url: str, postgresql: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path / "home"))
    Path("mine.toml").write_text(SUITE.replace("seconds = 0.05", "seconds = 0.5"))
    with running_command(tmp_path, "run", "mine.toml", "--store", url) as process:
        assert process.stderr is not None
        for line in process.stderr:
            assert SECRET not in line
            if line.startswith("[1/5]"):
                postgresql.stop()
            if "The run goes on" in line:
                break  # there is a launch that the server does not know of
        os.kill(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)
    postgresql.start()
    assert launched(url).total() < 5
    code, _, errors = command("run", "mine.toml", "--store", url, "--resume")
    assert code == 0, errors
    assert " of earlier runs delivered to postgresql+psycopg://owner@" in errors
    assert launched(url) == ALL
    assert waiting(tmp_path) == []
    assert SECRET not in errors


def test_no_command_shows_a_password(
    command: Command, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path / "home"))
    Path("mine.toml").write_text(SUITE)
    wrong = url.replace(SECRET, f"{SECRET}@{SECRET}")
    in_query = url.replace(f":{SECRET}", "") + f"?password={SECRET}"
    monkeypatch.setenv("DLBENCH_STORE", in_query)
    told = [command("run", "mine.toml", "--budget", "1ms")]
    assert told[0][0] == 0, told
    monkeypatch.setenv("DLBENCH_STORE", url)
    told += [
        command(*words)
        for words in (
            ("run", "mine.toml", "--budget", "1ms", "--store", url),
            ("run", "mine.toml", "--resume", "--budget", "1ms", f"--store={in_query}"),
            ("plan", "mine.toml"),
            ("export",),
            ("compare", "previous", "latest"),
            ("compare", f"{url}:latest", "latest"),
            ("report", "matrix", "--json"),
            ("report", "matrix", "--network", "nonesuch"),
            ("report", "runs", "--store", url, "--store", in_query, "--run", "nonesuch"),
            ("report", "page", "--store", url),
            ("store", "upgrade", url),
            ("store", "copy", url, "copy.sqlite"),
            ("store", "copy", url, in_query),
            ("store", "deliver", "--store", url),
            *(("report", "runs", "--store", each) for each in (wrong, url.replace("owner", "stranger"), url + "x")),
        )
    ]
    assert {code for code, _, _ in told} == {0, 2, 4}
    for code, out, errors in told:
        assert SECRET not in out + errors, (code, out, errors)
        assert "Traceback" not in errors
    assert secret_in_files(tmp_path) == []


def test_a_server_that_is_away_ends_a_command_before_it_measures(
    command: Command, url: str, postgresql: Server
) -> None:
    Path("mine.toml").write_text(SUITE)
    postgresql.stop()
    code, out, errors = command("run", "mine.toml", "--store", url)
    assert (code, out) == (4, "")
    (line,) = errors.splitlines()
    assert line.startswith("dlbench: The store postgresql+psycopg://owner@127.0.0.1:")
    assert "check that the server runs" in line


def test_stores_are_copied_by_the_command(command: Command, url: str) -> None:
    Path("mine.toml").write_text(SUITE)
    assert command("run", "mine.toml", "--launches", "1")[0] == 0
    said = [command("store", "copy", "dlbench.sqlite", url), command("store", "copy", url, "back.sqlite")]
    assert [code for code, _, _ in said] == [0, 0]
    assert "1 run and 1 record that" in said[0][2]
    assert "0 runs and 0 records that" in command("store", "copy", "dlbench.sqlite", url)[2]
    shown = [
        command("report", "matrix", "--json", "--store", each)[1] for each in ("dlbench.sqlite", url, "back.sqlite")
    ]
    assert json.loads(shown[0])
    assert shown[0] == shown[1] == shown[2]
    assert command("store", "copy", url, url)[0] == 2
    code, _, errors = command("store", "copy", "nonesuch.sqlite", "new.sqlite")
    assert (code, "no result store nonesuch.sqlite" in errors, Path("new.sqlite").exists()) == (4, True, False)
    code, _, errors = command("store", "deliver", "--store", "dlbench.sqlite")
    assert (code, "no store on a server" in errors) == (2, True)
