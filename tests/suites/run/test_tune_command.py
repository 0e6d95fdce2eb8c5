"""`dlbench tune` with an adapter whose settings are worth what is known, and `--write`: the same to
all its readers."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from made_up_adapters import MODES, write_adapter
from processes import plan_of, run_command

from dlbench.suites.run.deployment import deployment, variable_lines
from dlbench.suites.run.search import HalvingSchedule, SearchResult

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


@pytest.mark.slow
def test_the_search_finds_the_setting_that_helps_and_leaves_the_one_that_hurts(tmp_path):
    def dlbench(*words):
        done = run_command(tmp_path, *words, "--store", str(tmp_path / "s.sqlite"), "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    folder = write_adapter(tmp_path / "mine", MORE, modes=MODES + TUNING)
    words = ("--network", "fcn5", "--framework", "mine", "--threads", "1", "--write", "tuned.sh")
    reported = dlbench("tune", *words, "--adapter", f"mine={folder}", "--no-wait-for-quiet")
    assert reported["finalists"][0]["tuning"] == "installed+half"
    assert reported["against"]["tuning"] == "installed"
    assert reported["gain"]["pairs"] == 8
    assert 1.5 < reported["gain"]["ratio"] < 2.5
    assert reported["settings"] == {"half": "half of the work is left out (factor = 0.5)"}
    assert reported["tried"] == 4
    assert "half of the work is left out" in (tmp_path / "tuned.sh").read_text()
    command = (
        "dlbench run tuning --networks fcn5 --frameworks mine:only --threads 1 --batch-sizes 64"
    )
    assert reported["command"].startswith(
        f"{command} --tuning installed+half --launches 8 --adapter mine="
    )
    # A search is in no report that did not ask for it.
    assert dlbench("report", "matrix") == []
    assert dlbench("report", "matrix", "--run", "latest")


# What it writes: the same to a shell, to Docker and to Kubernetes.

PLAN = plan_of(networks="fcn5", frameworks="torch", threads="2", tuning="tuned")
(CELL,) = PLAN.cells
FOUND = SearchResult(HalvingSchedule([CELL], PLAN), {CELL: 0.1}, {}, 0.95, 0)
COMMAND = "dlbench run quick --networks fcn5"


def of_shell(text: str) -> dict[str, str]:
    done = subprocess.run(
        ["sh", "-c", f"{text}\nenv -0"],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=True,
    )
    return dict(line.split("=", 1) for line in done.stdout.decode().split("\0") if "=" in line)


def of_env_file(text: str) -> dict[str, str]:
    return dict(
        line.split("=", 1) for line in text.split("\n") if line and not line.startswith("#")
    )


def of_dockerfile(text: str) -> dict[str, str]:
    matches = re.findall(r'^ENV (\w+)="(.*)"$', text, re.MULTILINE)
    return {name: re.sub(r"\\(.)", r"\1", value) for name, value in matches}


def of_container(text: str) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in yaml.safe_load(text)["env"]}


READERS = {
    "a.sh": of_shell,
    "a.env": of_env_file,
    "Dockerfile": of_dockerfile,
    "a.yaml": of_container,
}
# What a variable may hold in every one of these forms: a line of text.
VALUES = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=20)


@pytest.mark.parametrize("name", READERS)
@given(
    variables=st.dictionaries(
        st.sampled_from(["OMP_NUM_THREADS", "LD_PRELOAD", "A_B"]), VALUES, min_size=1
    )
)
def test_written_variables_are_read_back(name, variables):
    read = READERS[name]("\n".join(variable_lines(Path(name), variables, CELL)))
    assert {key: read.get(key) for key in variables} == variables


@pytest.mark.parametrize("name", READERS)
def test_a_file_has_the_variables_of_the_fastest_and_says_how_to_measure_it_again(name):
    text = deployment(Path(name), FOUND, COMMAND)
    assert READERS[name](text)["OMP_NUM_THREADS"] == "2"
    assert f"# Measure it again: {COMMAND}" in text
    assert "# Setting fused_update: " in text
