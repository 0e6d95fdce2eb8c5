"""`dlbench history` as it is called: what it prints, what it narrows to, and one line for whatever is wrong."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import numpy as np
import pytest
from processes import run_command

from dlbench.adapters.protocol import Cell, Outcome, Protocol, Status
from dlbench.hardware_probe import probe
from dlbench.reports.storage.record import Record, Run
from dlbench.reports.storage.store import Store

NIGHTS = 20


@pytest.fixture
def call(command):
    """Give a function that runs `dlbench history` in an empty folder: exit code, output, complaints."""
    return partial(command, "history")


def cell(**changes) -> Cell:
    return Cell("torch", "pytorch", "eager", "fcn5", "cpu", 1, 64)._replace(**changes)


CELLS = (cell(), cell(threads=2), cell(framework="mxnet", adapter="mxnet", mode="hybrid", network="lstm32"))


def fill(path, nights=NIGHTS, sides=("baseline", "candidate")):
    """Write nights of three cells; the first cell's candidate is a tenth slower from night 12 on."""
    rng = np.random.default_rng(1)
    machine = probe()
    first = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)
    with Store.open(path) as store:
        store.add_machine(machine.fingerprint, machine.to_dict())
        for night in range(nights):
            started = first + timedelta(days=night)
            run = Run(
                f"night-{night:02d}", "nightly", Protocol(), 3, CELLS, machine.fingerprint, started, "0.1.0", started, 1
            )
            records = []
            for place, of_cell in enumerate(CELLS):
                for side in sides:
                    slower = 1.1 if (place, side == sides[-1], night >= 12) == (0, True, True) else 1.0
                    for launch in range(3):
                        seconds = 0.1 * slower * math.exp(0.003 * rng.normal())
                        version = "2.14.0" if slower > 1 else "2.13.0"
                        outcome = Outcome(
                            Status.OK,
                            samples_ns=[round(seconds * 1e9)] * 3,
                            software={"distributions": {"torch": version}},
                        )
                        record = Record(
                            run.id,
                            run.suite,
                            launch,
                            of_cell,
                            outcome,
                            run.machine,
                            version,
                            "CPython 3.11.7",
                            Protocol(),
                            started,
                            1.0,
                            "0.1.0",
                        )
                        records.append(replace(record, side=side))
            store.append_all(records, run)
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return str(fill(tmp_path_factory.mktemp("store") / "nights.sqlite"))


def test_the_change_with_what_changed_that_night(call, store):
    code, said, complaints = call("--store", store)
    assert (code, complaints) == (0, "")
    text = " ".join(said.split())
    assert "2026-03-13 02:00 fcn5, mini-batch 64, torch eager, 1 thread" in text
    assert "run night-12" in text
    assert "candidate: torch 2.13.0 -> 2.14.0" in text
    assert said.count("slower (") == 1
    assert max(map(len, said.splitlines())) <= 80


def test_every_format_and_a_plot(call, store, tmp_path):
    code, said, _ = call("--store", store, "--json")
    (told,) = json.loads(said)["cells"]
    assert (code, told["changes"][0]["run"]) == (0, "night-12")
    assert call("--store", store, "--format", "json")[1] == said
    code, said, complaints = call("--store", store, "--format", "markdown", "--plot", "history.svg", "--all")
    assert code == 0
    assert "| 2026-03-13 02:00, run night-12 |" in said
    assert "Drawn: history.svg" in complaints
    assert "% 2026-03-13" in (tmp_path / "history.svg").read_text()


@pytest.mark.parametrize(
    ("words", "series"),
    [
        ([], 3),
        (["--network", "fcn5"], 2),
        (["--network", "fcn5,lstm32", "--threads", "1"], 2),
        (["--framework", "mxnet:hybrid"], 1),
        (["--framework", "torch", "--threads", "2-4"], 1),
        (["--suite", "nightly"], 3),
        (["--machine", probe().fingerprint], 3),
    ],
)
def test_options_narrow_the_series(call, store, words, series):
    code, said, complaints = call("--store", store, "--json", "--all", *words)
    assert (code, complaints) == (0, "")
    assert len(json.loads(said)["cells"]) == series


def test_since_leaves_out_earlier_nights(call, store):
    told = json.loads(call("--store", store, "--json", "--all", "--since", "2026-03-11")[1])
    assert (told["nights"], told["first"][:10]) == (10, "2026-03-11")
    # Two nights are left before the change: too few for it.
    assert [cell["changes"] for cell in told["cells"]] == [[], [], []]


def test_magnitude_is_what_is_reported_at_least(call, store):
    assert json.loads(call("--store", store, "--json", "--magnitude", "9%")[1])["cells"]
    assert not json.loads(call("--store", store, "--json", "--magnitude", "12 %")[1])["cells"]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--network", "fnc5"], "Did you mean 'fcn5'?"),
        (["--framework", "torch:compile"], "torch:eager"),
        (["--framework", ","], "is empty"),
        (["--threads", "64"], "matches what was asked"),
        (["--threads", "many"], "not a thread count"),
        (["--suite", "daily"], "matches what was asked"),
        (["--machine", "none"], "matches what was asked"),
        (["--since", "yesterday"], "Write it as 2026-03-01"),
        (["--since", "2027-01-01"], "matches what was asked"),
        (["--since", "2026-03-20"], "a single night"),
        (["--magnitude", "0%"], "--magnitude"),
        (["--magnitude", "much"], "--magnitude"),
        (["--format", "html"], "no format named 'html'"),
        (["--plot", "history.jpg"], ".png or .svg"),
        (["--plot", "none/history.png"], "cannot be written"),
    ],
)
def test_one_line_for_what_is_wrong(call, store, tmp_path, words, part):
    code, said, complaints = call("--store", store, *words)
    assert (code, said) == (2, "")
    (line,) = complaints.splitlines()
    assert line.startswith("dlbench: ")
    assert part in line
    assert list(tmp_path.iterdir()) == []


def test_stores_without_a_history(call, tmp_path):
    code, said, complaints = call()
    assert (code, said) == (4, "")
    assert "There is no result store dlbench.sqlite." in complaints
    assert list(tmp_path.iterdir()) == []
    with Store.open(tmp_path / "empty.sqlite"):
        pass
    code, _, complaints = call("--store", "empty.sqlite")
    assert code == 2
    assert "holds no measured run yet" in complaints
    fill(tmp_path / "one.sqlite", nights=1)
    code, _, complaints = call("--store", "one.sqlite")
    assert code == 2
    assert "a single night of these cells (2026-03-01)" in complaints


def test_few_nights_are_shown_and_said_to_be_too_few(call, tmp_path):
    fill(tmp_path / "few.sqlite", nights=3)
    code, said, _ = call("--store", "few.sqlite", "--all")
    assert code == 0
    assert "With fewer than 10 nights" in said
    assert "torch eager, 2 threads" in said


def test_plain_runs_are_absolute_and_say_so(call, tmp_path):
    fill(tmp_path / "plain.sqlite", sides=("",))
    code, said, _ = call("--store", "plain.sqlite")
    assert code == 0
    assert "absolute" in said
    assert "the machine's own shifts cannot be told from the code's" in " ".join(said.split())


def test_runs_of_the_null_framework_make_a_history(tmp_path):
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\nsummary = "s"\nnetworks = ["fcn5"]\nframeworks = ["null"]\nthreads = [1]\n'
        "[protocol]\nlaunches = 1\nwarmup_steps = 2\nsteps = 3\nseconds = 0.2\ncell_seconds = 100.0\n"
        "[settings.null]\nstep_seconds = 0.01\n"
    )
    for _ in range(2):
        done = run_command(tmp_path, "run", "mine.toml", "--no-ceilings")
        assert done.returncode == 0, done.stderr
    told = json.loads(run_command(tmp_path, "history", "--json", "--all").stdout)
    (of_null,) = told["cells"]
    assert (of_null["framework"], of_null["kind"], len(of_null["nights"])) == ("null", "absolute", 2)
    assert all(0.005 < night["value"] < 0.1 for night in of_null["nights"])
