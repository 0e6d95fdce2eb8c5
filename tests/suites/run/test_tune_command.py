"""`dlbench tune`, `run tuning` and `report tuning` with an adapter whose settings are worth what is known."""

import json

import pytest
from made_up_adapters import MODES, write_adapter
from processes import run_command

TUNING = """
[tuning.half]
replaces = "a step of 20 ms"
why = "half of the work is left out"
settings = { factor = 0.5 }

[tuning.burden]
replaces = "nothing more to do"
why = "a step of half as long again"
variables = { BURDEN = "1.5" }
"""
MORE = """
has_loss = False
def prepare(self, network, weights, batch):
    self.held, self.seconds = {}, 0.02 * self.settings.get("factor", 1.0) * float(os.environ.get("BURDEN", "1"))
def step(self):
    until = time.perf_counter() + self.seconds
    while time.perf_counter() < until: pass
"""


@pytest.fixture
def adapter(tmp_path):
    """Give the words that name the adapter, and the store."""
    folder = write_adapter(tmp_path / "mine", MORE, modes=MODES + TUNING)
    return ["--adapter", f"mine={folder}", "--no-quiet-gate", "--store", str(tmp_path / "s.sqlite")]


@pytest.fixture
def dlbench(tmp_path):
    """Give a function that runs the command to its good end."""

    def run(*words):
        done = run_command(tmp_path, *map(str, words))
        assert done.returncode == 0, done.stderr
        return done

    return run


@pytest.mark.slow
def test_the_search_finds_the_setting_that_helps_and_leaves_the_one_that_hurts(adapter, dlbench, tmp_path):
    words = ("--network", "fcn5", "--framework", "mine", "--threads", 1, "--write", "tuned.sh")
    done = dlbench("tune", *words, *adapter, "--json")
    reported = json.loads(done.stdout)
    assert reported["finalists"][0]["tuning"] == "installed+half"
    assert reported["against"]["tuning"] == "installed"
    assert reported["gain"]["pairs"] == 8
    assert 1.5 < reported["gain"]["ratio"] < 2.5
    assert reported["settings"] == {"half": "half of the work is left out (factor = 0.5)"}
    assert reported["tried"] == 4
    assert "half of the work is left out" in (tmp_path / "tuned.sh").read_text()
    command = "dlbench run tuning --networks fcn5 --frameworks mine:only --threads 1 --batch-sizes 64"
    assert reported["command"].startswith(f"{command} --tuning installed+half --launches 8 --adapter mine=")
    # A search is in no report that did not ask for it.
    store = ["--store", tmp_path / "s.sqlite"]
    shown = dlbench("report", "matrix", *store, "--json")
    assert json.loads(shown.stdout) == []
    assert json.loads(dlbench("report", "matrix", *store, "--run", "latest", "--json").stdout)
