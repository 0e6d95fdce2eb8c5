"""The recipes for nightly jobs and pull requests, carried out for real."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
from fake_nvml import TWINS, stand_in
from processes import PATIENCE, suite_of_null

import dlbench.suites
from dlbench.reports.results.storage.store import Store

yaml = pytest.importorskip("yaml", reason="PyYAML reads the workflow file")

RECIPES = Path(next(iter(dlbench.suites.__path__))) / "recipes"
SUITE = suite_of_null("nightly", 0.001, protocol={"steps": 5})
PROOF = str(RECIPES / "gpu-proof.sh")
SLOWER = "--candidate-env DLBENCH_EXTRA_PRODUCTS=1x20000"


@pytest.fixture
def night(tmp_path):
    """Return a folder with a suite, and the variables of a nightly job in it."""
    (tmp_path / "nightly.toml").write_text(SUITE)
    command = tmp_path / "dlbench"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dlbench.suites "$@"\n')
    command.chmod(0o755)
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DLBENCH_", "PYTEST_"))
    }
    own = {"DLBENCH": str(command), "SUITE": "nightly.toml", "DLBENCH_HOME": str(tmp_path / "home")}
    return tmp_path, {**inherited, **own, "TMPDIR": str(tmp_path)}


def shell(
    script: str, folder: Path, variables: dict[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Run a step as the runner of a workflow does."""
    surroundings = {
        "cwd": folder,
        "env": variables,
        "stdin": subprocess.DEVNULL,
        "timeout": 5 * PATIENCE,
    }
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        **surroundings,
    )


def carry_out(
    folder: Path, variables: dict[str, str], options: str
) -> tuple[dict[str, int], list[str]]:
    """Carry out the workflow's steps; return the exit codes by name, and what it would have
    uploaded."""
    job = yaml.safe_load((RECIPES / "github-nightly.yml").read_text())["jobs"]["gate"]
    summary = folder / "summary.md"
    settings = {
        **job["env"],
        **variables,
        "OPTIONS": options,
        "GITHUB_STEP_SUMMARY": str(summary),
        "CANDIDATE": "true",
    }
    settings["DLBENCH_STORE"] = job["env"]["DLBENCH_STORE"]
    codes: dict[str, int] = {}
    uploaded: list[str] = []
    for step in job["steps"]:
        failed = any(codes.values())
        if failed and "cancelled" not in step.get("if", ""):
            continue
        if "run" in step:
            codes[step["name"]] = shell(step["run"], folder, settings).returncode
        elif step["uses"].startswith("actions/upload-artifact"):
            uploaded = [line for line in step["with"]["path"].split() if (folder / line).exists()]
        elif step["uses"].startswith("actions/cache/save"):
            for cached in step["with"]["path"].split():
                assert (folder / cached).exists(), f"no {cached} to keep for the next night"
    return codes, uploaded


@pytest.mark.slow
def test_the_workflow_gates_reports_and_keeps_its_store_from_night_to_night(night) -> None:
    folder, variables = night
    codes, uploaded = carry_out(folder, variables, "--same")
    assert set(codes.values()) == {0}
    assert {
        "gate.md",
        "gate.xml",
        "gate.json",
        "history.md",
        "site",
        ".dlbench/nightly.sqlite",
    } <= set(uploaded)
    codes, uploaded = carry_out(folder, variables, SLOWER)
    assert codes["Gate"] == 1
    assert codes["History"] == 0, "the report is shown although the gate failed"
    assert "REGRESSION" in (folder / "summary.md").read_text()
    assert json.loads((folder / "gate.json").read_text())["cells"][0]["verdict"] == "REGRESSION"
    assert ElementTree.parse(folder / "gate.xml").getroot().get("failures") == "1"
    assert (
        "fcn5, mini-batch 64, null, 1 thread: slower" in (folder / "site" / "feed.xml").read_text()
    )
    with Store.open(folder / ".dlbench/nightly.sqlite", create=False) as store:
        assert [run.purpose for run in store.runs()] == ["gate", "gate"]


@pytest.mark.slow
def test_the_script_reports_a_regression_and_ends_as_the_gate_does(night) -> None:
    folder, variables = night
    settings = {
        **variables,
        "FOLDER": str(folder / "nights"),
        "SUITE": str(folder / "nightly.toml"),
    }
    script = shlex.quote(str(RECIPES / "nightly.sh"))
    quiet = shell(script, folder, {**settings, "OPTIONS": "--same"})
    assert (quiet.returncode, quiet.stdout) == (0, ""), quiet.stderr
    loud = shell(
        script, folder, {**settings, "OPTIONS": SLOWER, "ON_REGRESSION": "tee regression.txt"}
    )
    assert loud.returncode == 1, loud.stderr
    assert "REGRESSION" in loud.stdout
    assert "REGRESSION" in (folder / "regression.txt").read_text()
    broken = shell(script, folder, {**settings, "SUITE": "no-such-suite", "OPTIONS": "--same"})
    assert broken.returncode == 2
    assert "no suite named" in broken.stderr
    index = (folder / "nights" / "site" / "index.html").read_text()
    assert index.count('href="runs/') >= 2
    reports = {path.name for path in (folder / "nights").rglob("*.txt")}
    assert {"doctor.txt", "gate.txt", "history.txt", "log.txt"} <= reports


def test_a_second_night_does_not_begin_while_the_first_runs(night) -> None:
    folder, variables = night
    nights = folder / "nights"
    nights.mkdir()
    settings = {**variables, "FOLDER": str(nights), "OPTIONS": "--same"}
    holding = (
        f"exec 8> {shlex.quote(str(nights / 'lock'))}; flock 8; "
        f"{shlex.quote(str(RECIPES / 'nightly.sh'))}"
    )
    done = shell(holding, folder, settings)
    assert done.returncode == 2
    assert "still running" in done.stderr


# A forge, as `gh api` and `curl` see it: comments.json has the comments of one pull request.
FORGE = """
import json, pathlib, sys
words, file = sys.argv[1:], pathlib.Path("comments.json")
comments = json.loads(file.read_text())
address = next(word for word in words if "comments" in word or "notes" in word).partition("?")[0]
paths = [word.partition("@")[2] for word in words if word.startswith("body")]
bodies = [pathlib.Path(path).read_text() for path in paths]
number = address.rpartition("/")[2]
if not bodies:
    print(json.dumps(comments))
elif number.isdecimal():
    assert {"PATCH", "PUT"} & set(words)
    next(comment for comment in comments if comment["id"] == int(number))["body"] = bodies[0]
else:
    comments.append({"id": len(comments) + 1, "body": bodies[0], "user": {"type": "Bot"}})
file.write_text(json.dumps(comments))
"""
PULL_REQUEST = {
    "github": {"GITHUB_REPOSITORY": "me/mine", "NUMBER": "7"},
    "gitlab": {
        "CI_API_V4_URL": "http://127.0.0.1:9",
        "CI_PROJECT_ID": "1",
        "CI_MERGE_REQUEST_IID": "7",
    },
}


def comment_script(forge: str) -> str:
    """Return the shell of the job that writes the comment."""
    content = yaml.safe_load((RECIPES / f"{forge}-gate.yml").read_text())
    if forge == "gitlab":
        return "\n".join(content["dlbench-comment"]["script"])
    (script,) = (step["run"] for step in content["jobs"]["comment"]["steps"] if "run" in step)
    return str(script)


@pytest.mark.parametrize("forge", PULL_REQUEST)
def test_the_comment_of_a_pull_request_is_updated_in_place(tmp_path: Path, forge: str) -> None:
    for name in ("gh", "curl"):
        (tmp_path / name).write_text(f"#!{sys.executable}\n{FORGE}")
        (tmp_path / name).chmod(0o755)
    report = tmp_path if forge == "github" else tmp_path / ".dlbench" / "report"
    report.mkdir(parents=True, exist_ok=True)
    other_comments = [{"id": 1, "body": "I like it", "user": {"type": "User"}}]
    if forge == "github":  # in GitLab a token may change its own comments only
        other_comments.append(
            {"id": 2, "body": "<!-- dlbench gate -->\nmine", "user": {"type": "User"}}
        )
    (tmp_path / "comments.json").write_text(json.dumps(other_comments))
    own = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "DLBENCH_TOKEN": "t", **PULL_REQUEST[forge]}
    variables = {**os.environ, **own}
    assert shell(comment_script(forge), tmp_path, variables).returncode == 0, (
        "a gate that failed early has no comment"
    )
    for text in ("gate undecided", "gate passed"):
        (report / "comment.md").write_text(f"<!-- dlbench gate -->\n{text}\n")
        done = shell(comment_script(forge), tmp_path, variables)
        assert done.returncode == 0, done.stderr
    comments = json.loads((tmp_path / "comments.json").read_text())
    assert comments[:-1] == other_comments
    assert comments[-1]["body"] == "<!-- dlbench gate -->\ngate passed\n"


PACKAGE = """
import time

def train():
    time.sleep(SECONDS)
"""
STEP = """
import package

def prepare(cell):
    return package.train
"""
SITE = '"$("$PYTHON" -c "import site; print(site.getsitepackages()[0])")"'


@pytest.fixture
def clone(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """Return a clone of a package that a merged pull request makes slower, and the variables of its
    job."""
    project = tmp_path / "project"
    project.mkdir()

    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *identity, *words], cwd=project, check=True, capture_output=True)

    git("init", "--initial-branch=main")
    for name, text in (
        ("package.py", PACKAGE.replace("SECONDS", "0.002")),
        ("benchmarks/train_step.py", STEP),
    ):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    git("add", "--all")
    git("commit", "--message=base")
    git("switch", "--create=faster")
    (project / "package.py").write_text(PACKAGE.replace("SECONDS", "0.02"))
    git("commit", "--all", "--message=head")
    git("switch", "main")
    git("merge", "--no-ff", "--no-edit", "faster")
    (project / "benchmarks" / "pull-request.sh").write_bytes(
        (RECIPES / "pull-request.sh").read_bytes()
    )
    # No index is at hand: dlbench and NumPy are those of the tests.
    (project / ".dlbench" / "dlbench-venv" / "bin").mkdir(parents=True)
    python = shlex.quote(sys.executable)
    scripts = {
        "python": f'#!/bin/sh\n[ "$1 $2" = "-m pip" ] && exit 0\nexec {python} "$@"\n',
        "dlbench": f"#!{sys.executable}\n{UNHURRIED}",
    }
    for name, script in scripts.items():
        command = project / ".dlbench" / "dlbench-venv" / "bin" / name
        command.write_text(script)
        command.chmod(0o755)
    packages = shlex.quote(str(Path(yaml.__file__).parents[1]))
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DLBENCH_", "PYTEST_"))
    }
    install = f"cp package.py {SITE} && echo {packages} > {SITE}/tests.pth"
    own = {
        "OPTIONS": "--threads 1 --steps 3",
        "INSTALL": install,
        "DLBENCH_HOME": str(tmp_path / "home"),
        "DLBENCH_LOCK_FOLDER": str(tmp_path),
    }
    return project, {**inherited, **own, "TMPDIR": str(tmp_path)}


ACTION = Path(__file__).parents[3] / ".github" / "actions" / "gate" / "action.yml"
INPUT = re.compile(r"\$\{\{ inputs\.([a-z-]+) \}\}")


class Acted(NamedTuple):
    """The end of an action."""

    code: int
    outputs: dict[str, str]
    summary: str
    output: str
    errors: str


def act(folder: Path, variables: dict[str, str], chosen_inputs: dict[str, str]) -> Acted:
    """Carry out the steps of the action as GitHub's runner does, with these inputs."""
    action = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    assert set(chosen_inputs) <= set(action["inputs"])
    inputs = {
        name: str(declared.get("default", "")) for name, declared in action["inputs"].items()
    } | chosen_inputs
    assert all(
        inputs[name] for name, declared in action["inputs"].items() if declared.get("required")
    )
    files = {
        name: folder.parent / name.lower() for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")
    }
    for file in files.values():
        file.write_text("")
    surroundings = {
        **variables,
        **{name: str(file) for name, file in files.items()},
        "GITHUB_ACTION_PATH": str(ACTION.parent),
        "GITHUB_WORKSPACE": str(folder),
        "GITHUB_ACTIONS": "true",
    }
    (step,) = action["runs"]["steps"]
    assert "${{" not in step["run"], "an input would be part of the script"
    own = {
        name: INPUT.sub(lambda match: inputs[match[1]], text) for name, text in step["env"].items()
    }
    done = shell(step["run"], folder, {**surroundings, **own})
    lines = files["GITHUB_OUTPUT"].read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines)
    outputs = {
        name: values[re.fullmatch(r"\$\{\{ steps\.gate\.outputs\.(\w+) \}\}", output["value"])[1]]  # type: ignore[index]
        for name, output in action["outputs"].items()
    }
    summary = files["GITHUB_STEP_SUMMARY"].read_text()
    return Acted(done.returncode, outputs, summary, done.stdout, done.stderr)


# The command, which neither waits for a quiet machine nor, where PRETENDED is set, launches anything: a step that is no
# baseline then takes six times as long.
UNHURRIED = """
import os
from dlbench.adapters.protocol import Answer, Status
from dlbench.reports.results.outcome import LaunchVerdict
from dlbench.suites.__main__ import main
from dlbench.suites.run import runner
from dlbench.suites.run.launcher import Launched

def launch(request, tick):
    side = request.launch.settings["file"] + " " + str(request.interpreter)
    seconds = 0.01 if "/base" in side or "/before.py" in side else 0.06
    answer = Answer(Status.OK, samples_ns=[round(seconds * 1e9)] * 3)
    return Launched(LaunchVerdict(Status.OK), 1.0, answer)

runner.QuietWait = lambda *given: None
if os.environ.get("PRETENDED"):
    runner.launch_process = launch
main()
"""
NUMPY_STEP = """
import numpy as np

def prepare(cell):
    numbers = np.arange({size}.0)

    def step():
        np.sort(numbers[::-1])

    return step
"""


@pytest.fixture
def two_steps(tmp_path: Path) -> tuple[Path, dict[str, str], dict[str, str]]:
    """Return a folder with two steps of NumPy, variables, and inputs that compare them."""
    folder = tmp_path / "project"
    (folder / "steps").mkdir(parents=True)
    for name, size in (("before", 20_000), ("after", 200_000)):
        (folder / "steps" / f"{name}.py").write_text(NUMPY_STEP.format(size=size))
    command = folder / "dlbench"
    command.write_text(f"#!{sys.executable}\n{UNHURRIED}")
    command.chmod(0o755)
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DLBENCH_", "PYTEST_", "GITHUB_"))
    }
    inherited["DLBENCH_LOCK_FOLDER"] = str(tmp_path)
    inputs = {
        "step": "steps/after.py",
        "baseline-step": "steps/before.py",
        "python": sys.executable,
        "dlbench": str(command),
        "arguments": "--threads 1 --no-profile",
    }
    return folder, {**inherited, "DLBENCH_HOME": str(tmp_path / "home")}, inputs


def test_the_action_fails_on_a_regression_and_annotates_the_slower_file(
    two_steps: tuple[Path, dict[str, str], dict[str, str]],
) -> None:
    folder, variables, inputs = two_steps
    sequential = {"arguments": "--threads 1 --order sequential --no-profile"}
    done = act(folder, {**variables, "PRETENDED": "yes"}, {**inputs, **sequential})
    assert done.code == 1, done.errors
    assert done.outputs["verdict"] == "regression"
    assert "::error file=steps/after.py,title=after" in done.output
    assert re.search(r"^::error title=dlbench gate::gate failed: 1 of 1", done.output, re.MULTILINE)
    report = Path(done.outputs["report"])
    assert {path.name for path in report.iterdir()} >= {"comment.md", "gate.json", "gate.xml"}
    assert "### gate failed" in done.summary
    content = json.loads((report / "gate.json").read_text())
    assert content["verdict"] == "regression"
    assert content["rule"]["threshold"] == 0.025


def test_the_action_measures_two_steps_and_warns_without_enough_evidence(
    two_steps: tuple[Path, dict[str, str], dict[str, str]],
) -> None:
    folder, variables, inputs = two_steps
    done = act(folder, variables, {**inputs, "budget": "2s"})
    assert (done.code, done.outputs["verdict"]) == (0, "undecided"), done.errors
    assert "::warning title=dlbench gate::gate undecided" in done.output
    assert "### gate undecided" in done.summary


@pytest.mark.slow  # pairs of launches are measured until they settle the question
def test_the_action_finds_a_slower_step_of_numpy(
    two_steps: tuple[Path, dict[str, str], dict[str, str]],
) -> None:
    folder, variables, inputs = two_steps
    done = act(folder, variables, {**inputs, "budget": "2m"})
    # Other programs may disturb most of the pairs.
    verdict = "undecided" if "disturbed by other programs" in done.output else "regression"
    assert (done.code, done.outputs["verdict"]) == (int(verdict == "regression"), verdict)
    assert "file=steps/after.py" in done.output


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"step": "steps/missing.py"}, "there is no file steps/missing.py"),
        ({"python": "no-such-python"}, "there is no interpreter no-such-python"),
        ({"baseline-step": "", "baseline": "--help"}, "this clone has no revision --help"),
        ({"threshold": "much"}, "--threshold"),
    ],
)
def test_an_action_that_cannot_measure_is_an_error_and_no_regression(
    two_steps: tuple[Path, dict[str, str], dict[str, str]], changed: dict[str, str], message: str
) -> None:
    folder, variables, inputs = two_steps
    done = act(folder, variables, {**inputs, **changed})
    assert done.code == 2, done.errors
    assert message in done.errors
    assert done.outputs["verdict"] == "error"


INJECTED = "$(touch pwned)`touch pwned`; touch pwned; \"'; touch pwned #"


INJECTED_TOGETHER = [
    ("threshold", "budget", "arguments", "undecided"),
    ("step", "baseline-step"),
    ("baseline",),
    ("python",),
    ("dlbench",),
    ("qualify",),
]
"""Inputs by the place where they are used; a wrong one ends the script there."""


@pytest.mark.parametrize("names", INJECTED_TOGETHER, ids=" ".join)
def test_no_input_is_run_as_part_of_the_script(
    two_steps: tuple[Path, dict[str, str], dict[str, str]], names: tuple[str, ...]
) -> None:
    folder, variables, inputs = two_steps
    changed = dict.fromkeys(names, INJECTED)
    if "baseline" in names:
        changed["baseline-step"] = ""
    if "qualify" in names:
        changed["step"] = "steps/missing.py"
    done = act(folder, {**variables, "PRETENDED": "yes"}, {**inputs, **changed})
    assert not (folder / "pwned").exists(), done.output
    assert done.outputs["verdict"] == "error", done.errors
    injected_inputs = {name for names in INJECTED_TOGETHER for name in names}
    # It is a command that is run on purpose.
    assert {*yaml.safe_load(ACTION.read_text())["inputs"]} - injected_inputs == {"install"}


@pytest.mark.slow  # makes virtual environments
def test_a_slower_pull_request_fails_with_a_comment_and_its_report(
    clone: tuple[Path, dict[str, str]],
) -> None:
    project, variables = clone
    job = yaml.safe_load((RECIPES / "github-gate.yml").read_text())["jobs"]["gate"]
    (step,) = (step for step in job["steps"] if "/actions/gate@" in step.get("uses", ""))
    own = {
        "arguments": "--threads 1 --order sequential --no-profile",
        "install": variables.pop("INSTALL"),
        "python": sys.executable,
        "dlbench": str(project / ".dlbench" / "dlbench-venv" / "bin" / "dlbench"),
    }
    del variables["OPTIONS"]
    variables["PRETENDED"] = "yes"
    done = act(project, variables, {**step["with"], **own})
    assert done.code == 1, done.errors
    assert done.outputs["verdict"] == "regression"
    assert "::error title=dlbench gate::gate failed" in done.output
    report = Path(done.outputs["report"])
    comment = (report / "comment.md").read_text()
    assert comment.startswith("<!-- dlbench gate -->\n### gate failed")
    assert comment in done.summary
    assert json.loads((report / "gate.json").read_text())["cells"][0]["ratio"] > 5
    assert {path.name for path in report.iterdir()} >= {"gate.xml", "store.sqlite", "qualified.txt"}


def test_without_an_installation_the_file_at_the_base_is_the_baseline(
    clone: tuple[Path, dict[str, str]],
) -> None:
    project, variables = clone
    for name in ("OPTIONS", "INSTALL"):
        del variables[name]
    variables["PRETENDED"] = "yes"
    inputs = {
        "step": "benchmarks/train_step.py",
        "python": sys.executable,
        "arguments": "--threads 1 --order sequential --no-profile",
        "dlbench": str(project / ".dlbench" / "dlbench-venv" / "bin" / "dlbench"),
    }
    same = act(project, variables, inputs)
    assert (same.code, same.outputs["verdict"]) == (0, "unchanged"), same.errors
    step = project / "benchmarks" / "train_step.py"
    step.write_text(STEP.replace("return package.train", "return package.train  # changed"))
    done = act(project, variables, inputs)
    assert (done.code, done.outputs["verdict"]) == (1, "regression"), done.errors
    assert "::error file=benchmarks/train_step.py,title=" in done.output
    assert " against " in done.summary.splitlines()[-1]
    missing = act(project, variables, {**inputs, "baseline": "no-such-branch"})
    assert (missing.code, missing.outputs["verdict"]) == (2, "error")
    assert "this clone has no revision no-such-branch. Fetch it, or set BASE." in missing.errors


def prove_on_a_gpu(night: tuple[Path, dict[str, str]], parts: list[str]) -> Path:
    """Run these parts of the proof with the null row on a pretended GPU; return its folder."""
    folder, variables = night
    variables = {
        **variables,
        "DLBENCH_NVML": stand_in(folder, TWINS),
        "ROWS": "null",
        "DEVICES": "cuda:0",
    }
    done = shell(shlex.join(["bash", PROOF, *parts]), folder, variables)
    logs = {path.name: path.read_text() for path in (folder / "gpu-proof").glob("*.log")}
    assert done.returncode == 0, (done.stderr, logs)
    assert [line.removeprefix("gpu-proof: ") for line in done.stderr.splitlines()] == parts
    return folder / "gpu-proof"


@pytest.mark.slow
def test_the_proof_on_a_gpu_leaves_every_part_of_it(night) -> None:
    parts = ["machine", "placements", "workers", "figure1", "explain", "reports"]
    folder = prove_on_a_gpu(night, parts)
    with Store.open(folder / "results.sqlite", create=False) as store:
        cells = {record.cell for record in store.records()}
    assert {cell.device for cell in cells} == {"cuda:0"}
    assert {cell.world_size for cell in cells} == {1, 2}
    assert {cell.placement for cell in cells} == {"resident", "pinned", "pageable"}
    assert (folder / "figure1.png").read_bytes().startswith(b"\x89PNG")
    reports = ("matrix.json", "figure1-report.txt", "scaling.txt", "ceilings.txt")
    for name in ("machine.txt", "explain-resnet50.txt", *reports):
        assert (folder / name).read_text().strip(), name


@pytest.mark.slow
def test_the_proof_on_a_gpu_compares_pairs_in_both_orders(night) -> None:
    folder = prove_on_a_gpu(night, ["turns"])
    for order in ("turns", "sequential"):
        assert "no regression" in (folder / f"pairs-{order}.txt").read_text()
    with Store.open(folder / "results.sqlite", create=False) as store:
        took_turns = [
            {bool(record.outcome.turns) for record in store.records(run.id)} for run in store.runs()
        ]
    # In the matrix one row is alone in each group.
    assert took_turns == [{False}, {True}, {False}]
