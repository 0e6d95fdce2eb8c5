"""`--env`: which environment variables launches get, what is refused, what is said, and what is
recorded of it."""

import html
import json
import os
import sys
from pathlib import Path

import pytest
from processes import plan_of, records_in, run_command, suite_of_null

from dlbench.adapters.protocol import Status
from dlbench.reports.results.storage.store import Store
from dlbench.suites.environments.digests import add_variables
from dlbench.suites.errors import UsageError
from dlbench.suites.planning import framework, own, variables
from dlbench.suites.planning.plan import check_variables

SUITE = suite_of_null("mine", 0.001, threads=[1], protocol={"steps": 4, "launches": 1})
QUICK = ("--no-ceilings", "--no-wait-for-quiet")
READS_LAYERS = """
import os

def prepare(cell):
    work = 10_000 * int(os.environ["MY_LAYERS"])
    return lambda: sum(range(work))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(SUITE)
    (tmp_path / "layers.py").write_text(READS_LAYERS)
    return tmp_path


def run(folder: Path, *words: str, **shell: str):
    return run_command(folder, "run", "mine.toml", *QUICK, *words, **shell)


def outcome_of(folder: Path, content: str, *words: str, **shell: str):
    """Return the outcome of the first launch of a step with this content, in the folder
    ``bench``."""
    file = folder / "bench" / "a_step.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(content)
    done = run(folder, "--step", "bench/a_step.py", "--python", sys.executable, *words, **shell)
    assert "Traceback" not in done.stderr
    return records_in(folder)[-1].outcome


# Words.


def test_words_give_a_value_or_pass_on_the_shells(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("FROM_SHELL", "a=b c")
    monkeypatch.chdir(tmp_path)
    folders = os.pathsep.join(("src", "/opt/lib"))
    parsed = variables.read(["A=1", "B=", "FROM_SHELL", f"PYTHONPATH={folders}"])
    absolute = os.pathsep.join((str(tmp_path / "src"), "/opt/lib"))
    assert parsed == {"A": "1", "B": "", "FROM_SHELL": "a=b c", "PYTHONPATH": absolute}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["NOT_SET_ANYWHERE"], "--env NOT_SET_ANYWHERE: NOT_SET_ANYWHERE is not set in this shell"),
        (["A=1", "A=2"], "--env gives A twice"),
        (["1A=2"], "is not an environment variable"),
        (["TMPDIR=/x"], "--env TMPDIR: each launch has a folder of its own"),
        (["CUDA_VISIBLE_DEVICES=1"], "Name it with --devices"),
        (["DLBENCH_LAUNCH=1"], "dlbench needs this variable itself"),
    ],
)
def test_words_that_are_refused(words, message) -> None:
    with pytest.raises(UsageError) as caught:
        variables.read(words)
    assert message in str(caught.value)


def test_a_secret_is_no_part_of_another_command() -> None:
    assert variables.command_words({"HF_TOKEN": "abc", "A": "1 2"}) == [
        "--env",
        "HF_TOKEN",
        "--env",
        "A=1 2",
    ]
    assert not variables.is_secret("TOKENIZERS_PARALLELISM")


def test_a_digest_says_whether_variables_are_the_same_and_nothing_about_a_secret() -> None:
    assert add_variables("abc", {}) == "abc"
    assert add_variables("", {"A": "1"}) == ""
    digest = add_variables("abc", {"A": "1", "B": "2"})
    assert digest == add_variables("abc", {"B": "2", "A": "1"})
    assert digest not in (
        "abc",
        add_variables("abc", {"A": "1"}),
        add_variables("abc", {"A": "1", "B": "3"}),
    )
    assert add_variables("abc", {"MY_TOKEN": "x"}) == add_variables("abc", {"MY_TOKEN": "y"})


# Axes of cells.


@pytest.mark.parametrize(
    ("axes", "environment", "message"),
    [
        (
            {"frameworks": "torch", "threads": "2"},
            {"OMP_NUM_THREADS": "4"},
            "Give --threads 4 instead",
        ),
        ({"frameworks": "torch", "threads": "2"}, {"OMP_NUM_THREADS": "2"}, ""),
        ({"frameworks": "torch", "threads": "default"}, {"OMP_NUM_THREADS": "4"}, ""),
        ({"frameworks": "torch", "threads": "2"}, {"OMP_PROC_BIND": "true"}, ""),
        (
            {"frameworks": "keras:jax"},
            {"KERAS_BACKEND": "torch"},
            "keras in the mode jax needs KERAS_BACKEND=jax",
        ),
        ({"frameworks": "keras:jax", "tuning": "installed"}, {"KERAS_BACKEND": "jax"}, ""),
        (
            {"frameworks": "tensorflow", "tuning": "tuned"},
            {"TF_ENABLE_ONEDNN_OPTS": "0"},
            "--tuning installed",
        ),
        ({"frameworks": "tensorflow", "tuning": "installed"}, {"TF_ENABLE_ONEDNN_OPTS": "0"}, ""),
        ({"frameworks": "jax"}, {"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}, ""),
    ],
)
def test_a_variable_does_not_contradict_an_axis_of_a_cell(axes, environment, message) -> None:
    if not message:
        assert plan_of(variables=environment, networks="fcn5", **axes).variables == environment
        return
    with pytest.raises(UsageError) as caught:
        plan_of(variables=environment, networks="fcn5", **axes)
    assert message in str(caught.value)


def test_a_side_may_replace_a_setting_but_not_the_thread_count() -> None:
    plan = plan_of(networks="fcn5", frameworks="tensorflow,torch", threads="2", tuning="tuned")
    check_variables(plan, {"TF_ENABLE_ONEDNN_OPTS": "0"}, "--candidate-env")
    with pytest.raises(UsageError, match=r"--candidate-env OMP_NUM_THREADS=4: .* --threads 4"):
        check_variables(plan, {"OMP_NUM_THREADS": "4"}, "--candidate-env")


# What the shell has and launches do not get.


def test_the_variables_that_a_file_reads(tmp_path) -> None:
    file = tmp_path / "step.py"
    file.write_text(
        "import os\nfrom os import environ, getenv\nname = 'H'\na = os.environ['A']; b = "
        "os.environ.get('B', 1); c = os.getenv('C'); d = environ['D']; e = getenv('E')\nf = 'F' in "
        "os.environ; g = os.environ.setdefault('G', '1'); h = os.environ[name]\ni = {}.get('I'); "
        "j = {'J': 1}['J']; k = os.environ.copy(); l = 1 < 2\n"
    )
    assert variables.names_read(file) == set("ABCDEFG")
    file.write_text("def prepare(cell:\n")
    assert variables.names_read(file) == frozenset()


def test_variables_that_launches_do_not_get_are_named_in_one_line(monkeypatch, tmp_path) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    frameworks = framework.shipped()
    assert variables.left_behind({}, [frameworks["torch"]]) == ""
    shell = {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "0",
        "EDITOR": "vi",
        "NCCL_VERSION": "2",
        "KMP_AFFINITY": "",
    }
    for name, value in {**shell, "HF_HOME": "/hf", "PYTHONPATH": "/x", "XLA_FLAGS": "--a"}.items():
        monkeypatch.setenv(name, value)
    expected = (
        "XLA_FLAGS is set in this shell and is not passed to launches: --env XLA_FLAGS passes it "
        "on."
    )
    assert variables.left_behind({}, [frameworks["torch"]]) == expected
    assert variables.left_behind({"XLA_FLAGS"}, [frameworks["torch"]]) == ""
    (tmp_path / "train.py").write_text("import os\nEDITOR = os.environ.get('EDITOR')\n")
    step = own.read_step(str(tmp_path / "train.py"))
    assert variables.left_behind({}, [step]) == (
        "EDITOR (read by train.py), HF_HOME, PYTHONPATH and XLA_FLAGS are set in this shell and "
        "are not passed to launches: --env NAME passes one on."
    )
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("MKL_NUM_THREADS", "2")
    of_threads = {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}
    assert variables.left_behind({"XLA_FLAGS"}, [frameworks["numpy"]], of_threads) == (
        "MKL_NUM_THREADS and OMP_NUM_THREADS are set in this shell and are not passed to launches: "
        "dlbench sets MKL_NUM_THREADS and OMP_NUM_THREADS from --threads."
    )
    sentence = variables.left_behind({"XLA_FLAGS"}, [step], of_threads)
    assert (
        "EDITOR (read by train.py), HF_HOME, MKL_NUM_THREADS, OMP_NUM_THREADS and 1 more are set"
        in sentence
    )


def test_a_run_says_it_on_stderr_and_json_stays_json(folder) -> None:
    shell = {"XLA_FLAGS": "--a", "MY_LAYERS": "3", "OMP_NUM_THREADS": "2"}
    done = run(folder, "--step", "layers.py", "--json", **shell)
    (line,) = [line for line in done.stderr.splitlines() if "not passed to launches" in line]
    assert (
        "MY_LAYERS (read by layers.py), OMP_NUM_THREADS and XLA_FLAGS are set in this shell" in line
    )
    assert json.loads(done.stdout)[0]["status"] == "crashed"
    planned = run_command(folder, "plan", "mine.toml", "--json", "--env", "A=1", **shell)
    assert planned.stderr.startswith("OMP_NUM_THREADS and XLA_FLAGS are set in this shell")
    assert json.loads(planned.stdout)["variables"] == {"A": "1"}


# Launches.


def test_a_launch_gets_the_variables_and_its_record_keeps_them_without_private_parts(
    folder,
) -> None:
    private = {"MY_TOKEN": "tell-nobody", "DATA_ROOT": str(folder / "data")}
    words = [f"--env={name}={value}" for name, value in private.items()]
    done = run(folder, "--env", "OMP_WAIT_POLICY=passive", *words, "--json")
    assert done.returncode == 0, done.stderr
    masked = {"DATA_ROOT": "<path>/data", "MY_TOKEN": "***", "OMP_WAIT_POLICY": "passive"}
    assert (
        "Launched with DATA_ROOT=<path>/data, MY_TOKEN=***, OMP_WAIT_POLICY=passive (--env)."
        in done.stderr
    )
    assert json.loads(done.stdout)[0]["variables"] == masked
    (record,) = records_in(folder)
    assert record.variables == masked
    assert {name: record.outcome.software["variables"][name] for name in masked} == masked
    with Store.open(folder / "dlbench.sqlite", create=False) as store:
        (stored,) = store.runs()
    assert stored.variables == masked
    content = (folder / "dlbench.sqlite").read_bytes()
    assert b"tell-nobody" not in content
    assert str(folder / "data").encode() not in content
    matrix = run_command(folder, "report", "matrix").stdout
    assert (
        "Launched with DATA_ROOT=<path>/data, MY_TOKEN=***, OMP_WAIT_POLICY=passive (--env): all "
        "cells." in matrix
    )


def test_a_step_reads_what_was_given_and_the_message_of_one_that_was_not_names_the_option(
    folder,
) -> None:
    done = run(folder, "--step", "layers.py", MY_LAYERS="3")
    assert done.returncode == 1
    (record,) = records_in(folder)
    assert record.outcome.reason.startswith(
        "layers.py, line 5: the step reads MY_LAYERS, which launches do not get: "
    )
    assert "--env MY_LAYERS" in record.outcome.reason
    passed = run(folder, "--step", "layers.py", "--env", "MY_LAYERS", MY_LAYERS="3")
    assert passed.returncode == 0, passed.stderr
    assert records_in(folder)[-1].variables == {"MY_LAYERS": "3"}
    unset = run(folder, "--step", "layers.py", "--env", "MY_LAYERS")
    assert (unset.returncode, len(unset.stderr.splitlines())) == (2, 1)
    assert "MY_LAYERS is not set in this shell" in unset.stderr


def test_another_missing_key_is_not_taken_for_a_variable(folder) -> None:
    reason = outcome_of(folder, "def prepare(cell):\n    return {}['MY_LAYERS']\n").reason
    assert reason == "a_step.py, line 2: KeyError: 'MY_LAYERS'"


def test_packages_of_the_steps_repository_can_be_imported(folder) -> None:
    content = "import at_root, in_src\ndef prepare(cell):\n    return lambda: None\n"
    for place in ("at_root.py", "src/in_src.py"):
        (folder / place).parent.mkdir(exist_ok=True)
        (folder / place).write_text("")
    outside = outcome_of(folder, content)
    assert "ModuleNotFoundError: No module named 'at_root'" in outside.reason
    assert "--env PYTHONPATH=FOLDER" in outside.reason
    (folder / ".git").mkdir()
    assert outcome_of(folder, content).status is Status.OK
    # An installed package is never hidden by a folder of its name.
    (folder / "numpy").mkdir()
    (folder / "numpy" / "__init__.py").write_text("raise ImportError('the wrong one')")
    assert outcome_of(folder, f"import numpy.linalg\n{content}").status is Status.OK


def test_a_launch_heeds_variables_of_python_itself(folder) -> None:
    (folder / "lib").mkdir()
    (folder / "lib" / "elsewhere.py").write_text("VALUE = 1")
    content = (
        "import sys, elsewhere\ndef prepare(cell):\n    if sys.flags.optimize != 1 or "
        "sys.flags.no_user_site != 1:\n        raise ValueError(sys.flags)\n    return lambda: "
        "elsewhere.VALUE\n"
    )
    outcome = outcome_of(
        folder, content, "--env", "PYTHONPATH", "--env", "PYTHONOPTIMIZE=1", PYTHONPATH="lib"
    )
    assert outcome.status is Status.OK, outcome.reason


# Every command that measures.

STEP = (
    "--step",
    "layers.py",
    "--threads",
    "1",
    "--env",
    "MY_LAYERS=2",
    "--env",
    "OMP_WAIT_POLICY=passive",
)
QUIETLY = "--no-wait-for-quiet"
ALONE = ("--order", "sequential")
BUILDS = ("--python", f"old={sys.executable},new={sys.executable}")
COMMANDS = {
    "run": ("run", "mine.toml", QUIETLY, "--no-ceilings", *STEP),
    "compare": (
        "compare",
        "--now",
        "--suite",
        "mine.toml",
        "--same",
        "--pairs",
        "2",
        "--budget",
        "1s",
        *ALONE,
        *STEP,
    ),
    "gate": ("gate", "mine.toml", "--same", "--budget", "1s", "--undecided", "pass", *ALONE, *STEP),
    "releases": (
        "releases",
        "numpy",
        "--suite",
        "mine.toml",
        QUIETLY,
        "--launches",
        "1",
        *BUILDS,
        *STEP,
    ),
    "bisect": ("bisect", "--suite", "mine.toml", QUIETLY, "--budget", "1s", *BUILDS, *STEP),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_measures_takes_variables(folder, name) -> None:
    done = run_command(folder, *COMMANDS[name])
    assert done.returncode in (0, 1, 6), done.stderr
    records = records_in(folder)
    assert records, done.stderr
    assert {record.outcome.status for record in records} == {Status.OK}, records[0].outcome.reason
    expected = {"MY_LAYERS": "2", "OMP_WAIT_POLICY": "passive"}
    assert [record.variables for record in records] == [expected] * len(records)
    with Store.open(folder / "dlbench.sqlite", create=False) as store:
        assert [run.variables for run in store.runs()] == [expected]


def test_explain_takes_variables(folder) -> None:
    words = ("explain", "layers", "--json", *STEP)
    explained = run_command(folder, *words)
    assert explained.returncode == 0, explained.stderr
    assert json.loads(explained.stdout)["operators"]


def test_tune_takes_variables_and_what_it_writes_sets_them(folder) -> None:
    words = (
        "tune",
        *ALONE,
        "--tuning",
        "installed",
        "--suite",
        "mine.toml",
        QUIETLY,
        *STEP[:2],
        *STEP[4:],
        "--threads=1,2",
    )
    done = run_command(folder, *words, "--env", "MY_TOKEN=tell-nobody", "--write", "fastest.env")
    assert done.returncode == 0, done.stderr
    expected = {"MY_LAYERS": "2", "MY_TOKEN": "***", "OMP_WAIT_POLICY": "passive"}
    records = records_in(folder)
    assert [record.variables for record in records] == [expected] * len(records)
    written = (folder / "fastest.env").read_text()
    assert {"MY_LAYERS=2", "OMP_WAIT_POLICY=passive"} <= set(written.splitlines())
    assert "--env MY_LAYERS=2" in written
    assert "--env MY_TOKEN\n" in written
    assert "tell-nobody" not in written + done.stdout


def test_a_fleets_jobs_get_the_variables_but_no_secret_in_their_commands(folder) -> None:
    words = (
        "fleet",
        "run",
        "mine.toml",
        "--on",
        "local",
        "--wait",
        "--store",
        "dlbench.sqlite",
        *QUICK,
    )
    refused = run_command(folder, *words, *STEP, "--env", "MY_TOKEN=tell-nobody")
    assert refused.returncode == 2
    assert "give --env MY_TOKEN" in refused.stderr
    passed = run_command(folder, *words, *STEP, "--env", "MY_TOKEN", MY_TOKEN="tell-nobody")
    assert passed.returncode == 0, passed.stderr
    (record,) = records_in(folder)
    assert record.outcome.status is Status.OK
    assert record.variables == {"MY_LAYERS": "2", "MY_TOKEN": "***", "OMP_WAIT_POLICY": "passive"}
    fleet_files = [path.read_text() for path in (folder / "home").rglob("fleet.json")]
    assert fleet_files
    assert "tell-nobody" not in "".join(fleet_files)


def test_both_sides_get_the_variables_and_a_side_its_own(folder) -> None:
    words = (
        "compare",
        "--now",
        "--suite",
        "mine.toml",
        "--frameworks",
        "null",
        "--pairs",
        "2",
        "--env",
        "A=1",
    )
    done = run_command(folder, *words, "--candidate-env", "B=2", "--budget", "1s")
    assert done.returncode in (0, 6), done.stderr  # 6: other programs disturbed the pair
    assert "Both sides were launched with A=1 (--env)." in done.stdout
    by_side = {record.side: record for record in records_in(folder)}
    assert by_side["baseline"].variables == {"A": "1"}
    assert by_side["candidate"].variables == {"A": "1", "B": "2"}
    assert by_side["baseline"].environment != by_side["candidate"].environment


# Resumed, compared, pooled.


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--env", "A=1"), ""),
        ((), "variables (--env): none now, A=1 in the run"),
        (("--env", "A=2"), "variables (--env): A=2 now, A=1 in the run"),
    ],
)
def test_a_run_is_resumed_with_its_variables_only(folder, words, message) -> None:
    begun = run(folder, "--env", "A=1", "--launches", "2", "--budget", "10ms")
    assert begun.returncode == 0, begun.stderr
    resumed = run(folder, "--launches", "2", "--resume", *words)
    if message:
        assert (resumed.returncode, len(resumed.stderr.splitlines())) == (2, 1)
        assert message in resumed.stderr
        return
    assert resumed.returncode == 0, resumed.stderr
    assert [record.variables for record in records_in(folder)] == [{"A": "1"}] * 2


def test_a_run_is_not_resumed_with_another_value_that_looks_the_same_in_its_record(folder) -> None:
    begun = run(folder, "--env", "DATA_ROOT=/data/a/set", "--launches", "2", "--budget", "10ms")
    assert begun.returncode == 0, begun.stderr
    resumed = run(folder, "--env", "DATA_ROOT=/data/b/set", "--launches", "2", "--resume")
    assert resumed.returncode == 2
    assert "DATA_ROOT as given by --env" in resumed.stderr


def test_cells_under_different_variables_are_not_pooled_and_a_comparison_names_them(folder) -> None:
    for words in ((), ("--env", "A=1")):
        assert run(folder, *words, "--launches", "2").returncode == 0
    matrix = json.loads(run_command(folder, "report", "matrix", "--all-runs", "--json").stdout)
    assert [(cell["variables"], cell["seconds_per_minibatch"]["launches"]) for cell in matrix] == [
        ({"A": "1"}, 2)
    ]
    output = run_command(folder, "report", "matrix", "--all-runs").stdout
    assert "Launched with A=1 (--env): all cells." in output
    assert "several environments (builds, or variables of --env)" in output
    compared = run_command(folder, "compare", "previous", "latest")
    assert (
        "Different environment variables (--env): baseline none; candidate A=1." in compared.stdout
    )
    comparison = json.loads(run_command(folder, "compare", "previous", "latest", "--json").stdout)[
        "cells"
    ][0]
    assert (comparison["baseline"]["variables"], comparison["candidate"]["variables"]) == (
        {},
        {"A": "1"},
    )


def test_a_row_of_cells_under_different_variables_is_marked(folder) -> None:
    assert run(folder, "--threads", "1").returncode == 0
    assert run(folder, "--threads", "2", "--env", "A=1").returncode == 0
    output = run_command(folder, "report", "matrix").stdout
    assert "Launched with A=1 (--env): 1 of 2 cells (null)." in output
    (old, new) = json.loads(run_command(folder, "report", "matrix", "--json").stdout)
    details = [flag["detail"] for flag in old["flags"] if flag["name"] == "other_environment"]
    assert details == ["--env: none, the row's newest: A=1"]
    assert "other_environment" not in {flag["name"] for flag in new["flags"]}


def test_the_page_gives_the_variables_with_the_command_that_measures_a_cell_again(folder) -> None:
    assert (
        run(
            folder, "--env", "A=1 2", "--env", "MY_TOKEN=x", "--env", f"ROOT={folder}/data"
        ).returncode
        == 0
    )
    assert run_command(folder, "report", "page", "--out", "page.html").returncode == 0
    page = html.unescape((folder / "page.html").read_text())
    assert "--env 'A=1 2' --env MY_TOKEN --env ROOT" in page
    assert "A=1 2, MY_TOKEN=***, ROOT=<path>/data" in page
    assert str(folder) not in page
