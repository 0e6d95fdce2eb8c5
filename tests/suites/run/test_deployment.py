"""`dlbench tune --write`: what is written means the same to a shell, to Docker and to Kubernetes."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from processes import plan_of

from dlbench.suites.run.deployment import deployment, written
from dlbench.suites.run.search import HalvingSchedule, SearchResult

PLAN = plan_of(networks="fcn5", frameworks="torch", threads="2", tuning="tuned")
(CELL,) = PLAN.cells
FOUND = SearchResult(HalvingSchedule([CELL], PLAN), {CELL: 0.1}, {}, 0.95, 0)
COMMAND = "dlbench run quick --networks fcn5"


def of_shell(text: str) -> dict[str, str]:
    done = subprocess.run(
        ["sh", "-c", f"{text}\nenv -0"], env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=True
    )
    return dict(line.split("=", 1) for line in done.stdout.decode().split("\0") if "=" in line)


def of_env_file(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.split("\n") if line and not line.startswith("#"))


def of_dockerfile(text: str) -> dict[str, str]:
    found = re.findall(r'^ENV (\w+)="(.*)"$', text, re.MULTILINE)
    return {name: re.sub(r"\\(.)", r"\1", value) for name, value in found}


def of_container(text: str) -> dict[str, str]:
    return {each["name"]: each["value"] for each in yaml.safe_load(text)["env"]}


READERS = {"a.sh": of_shell, "a.env": of_env_file, "Dockerfile": of_dockerfile, "a.yaml": of_container}
# What a variable may hold in every one of these forms: a line of text.
VALUES = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=20)


@pytest.mark.parametrize("name", READERS)
@given(variables=st.dictionaries(st.sampled_from(["OMP_NUM_THREADS", "LD_PRELOAD", "A_B"]), VALUES, min_size=1))
def test_what_is_written_is_read_back(name, variables):
    read = READERS[name]("\n".join(written(Path(name), variables, CELL)))
    assert {key: read.get(key) for key in variables} == variables


@pytest.mark.parametrize("name", READERS)
def test_a_file_has_the_variables_of_the_fastest_and_says_how_to_measure_it_again(name):
    text = deployment(Path(name), FOUND, COMMAND)
    assert READERS[name](text)["OMP_NUM_THREADS"] == "2"
    assert f"# Measure it again: {COMMAND}" in text
    assert "# Setting fused_update: " in text
