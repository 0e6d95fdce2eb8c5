"""`--step FILE` as a person uses it, with plain NumPy."""

import json
import re
import shlex
from pathlib import Path

import pytest
from processes import records_in, refusal, run_command, suite_of_null

import dlbench
from dlbench.adapters.networks import USUAL_BATCH_SIZE
from dlbench.adapters.protocol import Status
from dlbench.hardware_probe import probe
from dlbench.suites.commands.options import SuiteOptions, choices
from dlbench.suites.commands.plan import plan_of
from dlbench.suites.planning import framework, own, suite
from dlbench.suites.planning.axes import SuiteOverrides
from dlbench.suites.run import preparation, sides
from dlbench.suites.run.launch import LaunchRunner
from dlbench.suites.run.launcher import launch_process

SUITE = suite_of_null("mine", 0.001, threads=[1], protocol={"steps": 5})
QUICK = ("--no-ceilings", "--no-wait-for-quiet")
STEP = """
def prepare(cell):
    state = {{"loss": 1.0}}

    def step():
        sum(range({work}))
        state["loss"] *= 0.5

    return {returned}
"""
WITH_LOSS = 'step, lambda: state["loss"]'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(SUITE)
    return tmp_path


def write(
    folder: Path, name: str = "train_step.py", returned: str = WITH_LOSS, work: int = 100_000
) -> str:
    (folder / name).write_text(STEP.format(work=work, returned=returned))
    return name


def run(folder: Path, *words: str, order: str = "sequential"):
    """Run the suite; in turns takes longer, and is tried where it matters."""
    return run_command(folder, "run", "mine.toml", *QUICK, "--order", order, *words)


def test_the_example_runs_as_it_is_and_agrees_with_itself(folder):
    written = run_command(folder, "new", "step", "train_step.py")
    assert written.returncode == 0, written.stderr
    done = run(
        folder,
        "--step",
        "train_step.py",
        "--threads",
        "1,2",
        "--launches",
        "2",
        "--batch-sizes",
        "8",
    )
    assert done.returncode == 0, done.stderr
    assert "train_step" in done.stdout
    assert "train_step, mini-batch 8" in done.stdout
    records = records_in(folder)
    assert [record.outcome.status for record in records] == [Status.OK] * 4
    assert {record.outcome.parity.verdict for record in records} == {"agrees"}
    first, *later_losses = [record.outcome.parity.losses for record in records]
    assert first[0] > first[1]
    assert later_losses == [pytest.approx(first, rel=1e-5)] * 3
    assert "train_step.py" in json.dumps(records[0].outcome.software)
    assert str(folder) not in json.dumps([record.to_dict() for record in records])
    again = run_command(folder, "new", "step", "train_step.py")
    assert (again.returncode, len(again.stderr.splitlines())) == (2, 1)


ANSWERING = """
import numpy as np

def prepare(cell):
    weights = np.random.RandomState(1).rand(64, 64).astype("f4")
    inputs = np.ones((8, 64), "f4")
    return {returned}
"""


def test_inference_of_a_file_gives_a_number_where_launches_agree_on_its_outputs(folder):
    (folder / "answer.py").write_text(
        ANSWERING.format(returned='lambda: {"logits": inputs @ weights, "other": [1, 2]}')
    )
    done = run(folder, "--step", "answer.py", "--task", "inference", "--launches", "2")
    assert done.returncode == 0, done.stderr
    assert "outputs agree" in done.stderr
    assert "answer, inference" in done.stdout
    for record in records_in(folder):
        assert (record.outcome.status, record.outcome.parity.losses) == (Status.OK, [])
        assert [len(call) for call in record.outcome.parity.outputs] == [32] * 2
        assert record.outcome.parity.output_error < 1e-6


def test_the_example_of_inference_runs_as_it_is(folder):
    written = run_command(folder, "new", "step", "answer.py", "--task", "inference")
    assert written.returncode == 0, written.stderr
    assert "try answer.py --task inference" in written.stderr
    tried = run_command(folder, "try", "answer.py", "--task", "inference", "--threads", "1")
    assert tried.returncode == 0, tried.stderr
    assert (
        "Outputs of the first 3 calls, which launches must agree on, begin with: " in tried.stdout
    )
    assert "The outputs repeat in a second process." in tried.stdout
    assert "run threads --step answer.py --task inference" in tried.stdout
    wrong = run_command(folder, "new", "step", "other.py", "--task", "answering")
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize(
    ("returned", "status", "message"),
    [
        (
            "lambda: None",
            Status.CRASHED,
            "the step of answer.py returned None. For inference return its outputs",
        ),
        ("lambda: []", Status.CRASHED, "For inference return its outputs"),
        ('lambda: "text"', Status.CRASHED, "returned a str"),
        ("(lambda: inputs, lambda: 1.0)", Status.CRASHED, "returned a function for the loss too"),
        (
            "lambda: inputs * np.nan",
            Status.PARITY_FAILED,
            "the outputs of the first steps are not finite",
        ),
    ],
)
def test_outputs_that_are_none_are_no_number(folder, returned, status, message):
    (folder / "answer.py").write_text(ANSWERING.format(returned=returned))
    done = run(folder, "--step", "answer.py", "--task", "inference", "--launches", "1")
    assert done.returncode == 1
    (record,) = records_in(folder)
    assert (record.outcome.status, message in record.outcome.reason) == (status, True), (
        record.outcome.reason
    )


def test_a_gate_of_inference_names_a_candidate_with_other_outputs(folder):
    (folder / "answer.py").write_text(ANSWERING.format(returned="lambda: inputs @ weights"))
    (folder / "other.py").write_text(ANSWERING.format(returned="lambda: inputs @ weights * 1.01"))
    sides = ("--step", "answer.py", "--candidate-step", "other.py", "--task", "inference")
    done = run_command(folder, "gate", "mine.toml", *sides)
    assert done.returncode == 7, done.stderr
    assert "outputs of call 1 off by 1.0e-02 (tolerance 1e-03)" in " ".join(done.stdout.split())


def test_losses_that_differ_between_launches_are_no_number(folder):
    (folder / "train_step.py").write_text(
        "import random\ndef prepare(cell):\n    return (lambda: None), "
        "random.SystemRandom().random\n"
    )
    done = run(folder, "--step", "train_step.py", "--launches", "2")
    assert done.returncode == 0, done.stderr
    first, second = records_in(folder)
    assert first.outcome.status is Status.OK
    assert second.outcome.status is Status.PARITY_FAILED
    assert "from those of the run's first launch (tolerance 1e-03)" in second.outcome.reason
    assert (
        "Seed what is random in the file, or allow more with --loss-tolerance"
        in second.outcome.reason
    )


def of_prepare(body):
    return f"def prepare(cell):\n    {body}\n"


FILES = {
    "unchecked": (of_prepare("return lambda: None"), Status.OK, ""),
    "raises": (
        of_prepare("return 1 / 0"),
        Status.CRASHED,
        "raises.py, line 2: ZeroDivisionError: division",
    ),
    "late": (
        "def prepare(cell):\n    def step():\n        raise KeyError('weights')\n    return step\n",
        Status.CRASHED,
        "late.py, line 3: KeyError: 'weights'",
    ),
    "asynchronous": (
        "def prepare(cell):\n    async def step():\n        pass\n    return step\n",
        Status.CRASHED,
        (
            "the step of asynchronous.py is asynchronous (async def), so calling it does no work. "
            "Make it a plain function"
        ),
    ),
    "generator": (
        "def prepare(cell):\n    def step():\n        yield\n    return step\n",
        Status.CRASHED,
        "the step of generator.py is a generator (it contains yield)",
    ),
    "coroutine": (
        "def prepare(cell):\n    async def step():\n        pass\n    return lambda: step()\n",
        Status.CRASHED,
        "the step of coroutine.py returned a coroutine",
    ),
    "dictionary": (
        of_prepare("return (lambda: None), (lambda: {'loss': 1})"),
        Status.CRASHED,
        "the loss that dictionary.py returns is a dict, not a number. Return the mean loss",
    ),
    "vector": (
        "import numpy\n" + of_prepare("return (lambda: None), (lambda: numpy.ones(32))"),
        Status.CRASHED,
        (
            "the loss that vector.py returns has shape [32]. Return one number, the mean over the "
            "mini-batch"
        ),
    ),
    "arguments": (
        (
            "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--rate', "
            "required=True)\nparser.parse_args()\n"
        ),
        Status.CRASHED,
        "arguments.py, line 4: the file ended its process. It is given no arguments",
    ),
    # Its synchronize() reads what the step sets.
    "waits": (
        "state = {}\n"
        + of_prepare("return lambda: state.update(done=1)")
        + "def synchronize():\n    return state['done']\n",
        Status.OK,
        "",
    ),
    "syntax": ("def prepare(cell:\n", Status.CRASHED, "syntax.py, line 1: SyntaxError: "),
    "empty": ("x = 1\n", Status.CRASHED, "empty.py defines no function prepare"),
    "nothing": (
        of_prepare("pass"),
        Status.CRASHED,
        "returned None, not a call that does one training step",
    ),
    "diverges": (
        of_prepare("return (lambda: None), (lambda: float('nan'))"),
        Status.PARITY_FAILED,
        "the losses of the first steps are not finite",
    ),
    "leaves": (of_prepare("import os; os._exit(3)"), Status.CRASHED, "exit code 3"),
    "hangs": (of_prepare("import time; time.sleep(600)"), Status.TIMED_OUT, "during build"),
    "prints": (
        (
            "import sys\ndef prepare(cell):\n    for _ in range(64):\n        sys.stderr.write('x' "
            "* 2**20)\n        sys.stdout.write('\\x1b[31m' * 2**18)\n    return lambda: "
            "print('y')\n"
        ),
        Status.OK,
        "",
    ),
}


def test_each_file_is_a_row_and_a_bad_one_has_its_reason_and_the_line(folder):
    for name, (text, _, _) in FILES.items():
        (folder / f"{name}.py").write_text(text)
    steps = [word for name in FILES for word in ("--step", f"{name}.py")]
    done = run(folder, *steps, "--cell-budget", "5s")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    outcomes = {record.cell.framework: record.outcome for record in records_in(folder)}
    for name, (text, status, reason) in FILES.items():
        assert outcomes[name].status is status, outcomes[name].reason
        assert reason in outcomes[name].reason
        assert (folder / f"{name}.py").read_text() == text
    assert not any("adapter" in outcome.reason for outcome in outcomes.values())
    unchecked = outcomes["unchecked"]
    assert (unchecked.parity.verdict, unchecked.parity.reason) == (
        "unchecked",
        "the step reports no loss",
    )
    assert (unchecked.final_loss, unchecked.final_loss_finite) == (None, None)
    assert "not checked against" in done.stdout


def test_a_module_that_is_missing_ends_the_run_and_names_the_option(folder):
    (folder / "train_step.py").write_text("import no_such_module\n")
    done = run(folder, "--step", "train_step.py", "--threads", "1,2", order="turns")
    assert (done.returncode, "--python" in done.stderr) == (2, True)
    records = records_in(folder)
    assert len(records) == 2  # both were launched together, and nothing else
    for record in records:
        assert (
            "train_step.py, line 1: ModuleNotFoundError: No module named" in record.outcome.reason
        )


def test_each_side_of_a_comparison_runs_its_file(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DLBENCH_HOME", str(folder / "home"))
    fast, slow = write(folder, "fast.py"), write(folder, "slow.py", work=5_000_000)
    monkeypatch.setattr(framework, "_added", {})
    own.register_steps([fast])
    machine = probe()
    plan = plan_of("mine.toml", SuiteOverrides(own=own.OwnSteps(("fast",))), machine, seed=1)
    two_sides = sides.pair(([], []), ([], []), ("", ""), (None, slow))
    prepared = sides.prepare(plan, two_sides, print, build_missing=False)
    run = preparation.new_run(plan, machine)
    runners = (
        LaunchRunner(
            plan, run, launch_process, prepared[side.name], lambda cell: None, machine=machine
        )
        for side in two_sides
    )
    (planned,) = plan.order()
    baseline, candidate = (runner.attempt(planned, plan.protocol) for runner in runners)
    # Fifty times the work.
    assert min(candidate.outcome.samples_ns) > 3 * min(baseline.outcome.samples_ns)
    named = sides.describe_sides(two_sides, prepared)
    assert named["baseline"].startswith("fast ")
    assert named["candidate"].startswith("slow ")


@pytest.mark.parametrize(
    ("lines", "batch_size"),
    [
        ("", None),
        ("BATCH_SIZE = 8", 8),
        ("BATCH_SIZE: int = 8", 8),
        ("BATCH_SIZE = len('computed')", None),
        ("loader = None\ndef length():\n    return loader.batch_size", None),
    ],
)
def test_the_examples_of_a_step_are_those_that_its_file_names(
    folder, monkeypatch, lines, batch_size
):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(framework, "_added", {})
    write(folder)
    path = folder / "train_step.py"
    path.write_text(f"{lines}\n{path.read_text()}")
    own.register_steps(["train_step.py"])
    chosen = SuiteOverrides(own=own.OwnSteps(("train_step",)))
    plan = plan_of("mine.toml", chosen, probe(), seed=1)
    assert {cell.batch_size for cell in plan.cells} == {batch_size}


@pytest.mark.parametrize(
    ("lines", "read"),
    [
        ("def prepare(cell):\n    return build(cell.batch_size)", True),
        ("def prepare(c):\n    return size(c)\ndef size(c):\n    return c.batch_size", True),
        (
            (
                "def prepare(cell):\n    model = Model(cell)\nclass Model:\n    def f(self): "
                "self.cell.batch_size"
            ),
            True,
        ),
        ("from mine import prepare", False),
        ("def prepare(cell):\n    return loader.batch_size", False),
        ("def prepare(cell):\n    return build(cell, loader.batch_size)", False),
        ("def prepare(cell:", False),
    ],
)
def test_only_the_batch_size_of_the_cell_is_dlbenchs(tmp_path, lines, read):
    path = tmp_path / "train_step.py"
    path.write_text(lines)
    assert own.batch_size_of({}, path, "train_step.py") == (USUAL_BATCH_SIZE if read else None)


@pytest.mark.parametrize("lines", ["", "BATCH_SIZE = 8\n"])
def test_the_command_that_a_page_shows_runs_as_it_is(folder, lines):
    write(folder)
    path = folder / "train_step.py"
    path.write_text(lines + path.read_text())
    assert run(folder, "--step", "train_step.py", "--launches", "1").returncode == 0
    (record,) = records_in(folder)
    command = shlex.split(suite.rerun_by_name(record.cell, "quick", 1))
    assert command[:2] == ["dlbench", "run"]
    done = run_command(folder, "plan", *command[2:], "--json")
    assert done.returncode == 0, done.stderr
    (planned,) = json.loads(done.stdout)["cells"]
    assert planned["batch_size"] == record.cell.batch_size


def test_sizes_stay_whole_numbers_beside_an_unknown_one(folder):
    write(folder)
    path = folder / "train_step.py"
    (folder / "sized.py").write_text(f"BATCH_SIZE = 8\n{path.read_text()}")
    done = run(
        folder, "--step", "train_step.py", "--step", "sized.py", "--launches", "1", order="turns"
    )
    assert done.returncode == 0
    for read in (dlbench.launches, dlbench.cells):
        sizes = read(folder / "dlbench.sqlite").set_index("network")["batch_size"]
        assert sizes["sized"] == 8
        assert sizes.isna()["train_step"]
        assert str(sizes.dtype) == "Int64"
    table = run_command(folder, "export", "--format", "csv").stdout
    assert ",8," in table
    assert ",8.0," not in table


def test_a_plan_says_which_rows_cannot_be_measured(folder):
    done = run_command(folder, "plan", "quick", "--frameworks", "deeplearning4j,null")
    assert done.returncode == 0, done.stderr
    assert "DeepLearning4j is not available: dlbench has no adapter for it." in done.stderr
    assert "available" not in run_command(folder, "plan", "quick", "--frameworks", "null").stderr


def test_a_step_of_unknown_size_has_no_examples_per_second(folder):
    done = run(folder, "--step", write(folder), "--launches", "1")
    assert done.returncode == 0, done.stderr
    assert "mini-batch" not in done.stdout
    (cell,) = json.loads(run_command(folder, "report", "matrix", "--json").stdout)
    assert cell["seconds_per_minibatch"]["median"] > 0
    assert (cell["batch_size"], cell["items_per_second"], cell["gflops"]) == (None, None, None)
    tables = run_command(folder, "report", "tables").stdout
    assert "cross-entropy" not in tables
    assert "SGD" not in tables


def test_unrelated_files_are_not_ranked_against_each_other_and_variants_are(folder):
    first, second, variant = (
        write(folder, "one.py"),
        write(folder, "other.py"),
        write(folder, "faster_one.py"),
    )
    path = folder / variant
    path.write_text(f'VARIANT_OF = "one"\n{path.read_text()}')
    steps = [word for name in (first, second, variant) for word in ("--step", name)]
    done = run(folder, *steps, "--launches", "1")
    assert done.returncode == 0, done.stderr
    works = {(record.cell.framework, record.cell.network) for record in records_in(folder)}
    assert works == {("one", "one"), ("other", "other"), ("faster_one", "one")}
    fastest = json.loads(run_command(folder, "report", "fastest", "--json").stdout)
    ranked = {leader["network"]: leader["next"] for leader in fastest["leaders"]}
    assert ranked["other"] is None
    assert ranked["one"] is not None


def test_a_run_is_not_resumed_with_another_file(folder):
    done = run(folder, "--step", write(folder), "--launches", "2", "--budget", "10ms")
    assert done.returncode == 0, done.stderr
    write(folder, work=10)
    refused = run(folder, "--step", "train_step.py", "--launches", "2", "--resume")
    assert refused.returncode == 2
    assert "another file than" in refused.stderr
    write(folder)
    resumed = run(folder, "--step", "train_step.py", "--launches", "2", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert [record.outcome.status for record in records_in(folder)] == [Status.OK] * 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--step", "missing.py"],
            "there is no file missing.py. `dlbench new step missing.py` writes one",
        ),
        (["--step", "step.txt"], "is not a Python file that can be imported"),
        (["--step", "my-step.py"], "Name it with letters, digits and underscores"),
        (["--step", "torch.py"], "torch is the name of a framework of dlbench"),
        (["--step", "fcn5.py"], "fcn5 is the name of a network of dlbench"),
        (["--step", "no_size.py"], "BATCH_SIZE is 'large'. Write a whole number"),
        (["--step", "no_name.py"], "VARIANT_OF is 3. Write the name of the other file"),
        (
            ["--step", "train_step.py", "--networks", "fcn5"],
            "--networks and --step exclude each other",
        ),
        (
            ["--step", "train_step.py", "--frameworks", "torch"],
            "--frameworks torch and --step exclude each other",
        ),
        (
            ["--step", "train_step.py", "--python", "null=/usr/bin/python3"],
            "for a row that was not selected",
        ),
        (
            ["--step", "train_step.py", "--batch-sizes", "8"],
            "--batch-sizes changes nothing in train_step.py",
        ),
        (["--step", "train_step.py", "--precisions", "float16"], "does not read cell.precision"),
        (
            ["--step", "helped.py"],
            "--step helped.py: HELPERS is os.cpu_count(). Write a whole number",
        ),
        (
            ["--step", "train_step.py", "--loss-tolerance", "200%"],
            "--loss-tolerance 200% is out of range",
        ),
        (["--loss-tolerance", "2%"], "Give one with --step FILE"),
        (["--python", "/usr/bin/python3"], "--python '/usr/bin/python3' cannot be read"),
        (["--step", "train_step.py", "--step", "other/train_step.py"], "have the same name"),
    ],
)
def test_a_wrong_word_costs_one_line(folder, command, monkeypatch, words, message):
    monkeypatch.setattr(framework, "_added", {})
    write(folder)
    (folder / "other").mkdir()
    write(folder / "other")
    write(folder, "torch.py")
    (folder / "no_size.py").write_text("BATCH_SIZE = 'large'")
    (folder / "no_name.py").write_text("VARIANT_OF = 3")
    (folder / "helped.py").write_text("import os\nHELPERS = os.cpu_count()\n")
    assert message in refusal(command, "run", "mine.toml", *QUICK, *words)
    assert not (folder / "dlbench.sqlite").exists()


def test_rows_of_files_may_be_named(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(framework, "_added", {})
    files = [write(folder, "first.py"), write(folder, "second.py")]
    own.register_steps(files)
    options = SuiteOptions(step=files, frameworks="second")
    (row,) = plan_of("mine.toml", choices(options), probe(), seed=1).rows
    assert row.build.name == "second"


def test_what_a_file_reads_of_its_cell(tmp_path):
    """An option is refused only where the file certainly does not follow it."""
    cases = {
        "def prepare(cell):\n    return cell.batch_size, cell.threads\n": {"batch_size", "threads"},
        "def prepare(it):\n    def step():\n        return it.device\n    return step\n": {
            "device"
        },
        "def prepare(cell):\n    return make(cell)\n": None,
        "def prepare(cell):\n    return make(cell.threads, **vars(cell))\n": None,
        "from other import prepare\n": None,
        "def prepare(cell:\n": None,
    }
    file = tmp_path / "file.py"
    for text, expected in cases.items():
        file.write_text(text)
        assert own.axes_read(file) == expected, text


HELPED = """
import threading
HELPERS = 2
stop = threading.Event()

def prepare(cell):
    import hashlib

    def load():
        while not stop.is_set():
            hashlib.sha256(bytes(2**20)).digest()

    for _ in range(2):
        threading.Thread(target=load, daemon=True).start()
    state = {"loss": 1.0}

    def step():
        hashlib.sha256(bytes(2**25)).digest()
        state["loss"] *= 0.9

    return step, lambda: state["loss"]
"""


def test_declared_helpers_are_among_the_threads_asked_for(folder):
    (folder / "helped.py").write_text(HELPED)
    (folder / "alone.py").write_text(HELPED.replace("HELPERS = 2", ""))
    done = run(folder, "--step", "helped.py", "--step", "alone.py", "--steps", "60")
    assert done.returncode == 0, done.stderr
    threads = {record.cell.framework: record.outcome.threads for record in records_in(folder)}
    assert (threads["helped"].requested, threads["helped"].helpers) == (3, 2)
    assert (threads["alone"].requested, threads["alone"].helpers) == (1, 0)
    # Hashing leaves Python's lock: three threads compete for the CPUs.
    assert "say how many in the file: HELPERS = 2" in " ".join(done.stdout.split())
    assert "> alone at 1, alone file" in done.stdout
    assert "> helped at 1, helped file" not in done.stdout


def test_a_loss_that_never_changes_is_marked(folder):
    (folder / "still.py").write_text(
        of_prepare("return (lambda: sum(range(10000))), (lambda: 2.5)")
    )
    done = run(folder, "--step", "still.py")
    assert done.returncode == 0, done.stderr
    assert "the loss is 2.5 after every step: does the step train?" in " ".join(done.stdout.split())


def test_the_file_is_imported_in_the_import_phase_and_a_search_for_a_steady_state_is_on(folder):
    text = "import time\ntime.sleep(0.5)\n" + STEP.format(work=1000, returned=WITH_LOSS)
    (folder / "train_step.py").write_text(text)
    assert run(folder, "--step", "train_step.py").returncode == 0
    (record,) = records_in(folder)
    assert record.outcome.import_seconds > 0.5
    assert record.outcome.prepare_seconds < 0.4
    assert record.protocol.maximum_warmup_steps == own.MAXIMUM_WARMUP_STEPS
    assert record.outcome.steady is not None


def test_what_a_launch_compiles_is_kept_for_the_next(folder):
    text = "import os\n" + of_prepare(
        "print(os.environ['TORCHINDUCTOR_CACHE_DIR'], os.environ['JAX_COMPILATION_CACHE_DIR'])\n   "
        " return lambda: None"
    )
    (folder / "train_step.py").write_text(text)
    done = run_command(folder, "try", "train_step.py", "--threads", "1")
    assert done.returncode == 0, done.stderr
    first, second = [line.split() for line in done.stdout.splitlines() if "torchinductor" in line]
    assert first == second
    assert all("compiled-1" in place for place in first)


def test_a_timeout_says_how_long_a_step_takes(folder):
    (folder / "slow.py").write_text("import time\n" + of_prepare("return lambda: time.sleep(1.5)"))
    run(folder, "--step", "slow.py", "--cell-budget", "4s")
    (record,) = records_in(folder)
    assert record.outcome.status is Status.TIMED_OUT
    assert re.search(r"the last step before it took (1\.[5-9]\d?|2\.\d+) s$", record.outcome.reason)


def test_a_trial_shows_the_output_and_what_dlbench_sees(folder):
    text = STEP.format(work=1000, returned=WITH_LOSS).replace(
        "    state =", "    print('built')\n    state ="
    )
    (folder / "train_step.py").write_text("import sys\nprint('hello', file=sys.stderr)\n" + text)
    done = run_command(folder, "try", "train_step.py", "--threads", "1")
    assert done.returncode == 0, done.stderr
    # Both streams are shown as they come, one perhaps within a line of the other.
    assert done.stdout.count("hello") == done.stdout.count("built") == 2
    assert (
        "Losses of the first 3 steps, which launches must agree on: 0.5, 0.25, 0.125" in done.stdout
    )
    assert "The losses repeat in a second process." in done.stdout
    assert "Threads: 1 asked for" in done.stdout
    assert "whether other threads or processes load its data" in done.stdout
    assert done.stdout.endswith("run threads --step train_step.py\n")
    assert not (folder / "dlbench.sqlite").exists()
    (folder / "wild.py").write_text(
        "import random\ndef prepare(cell):\n    return (lambda: None), "
        "random.SystemRandom().random\n"
    )
    wild = run_command(folder, "try", "wild.py", "--threads", "1")
    assert wild.returncode == 1
    assert "Process 2: parity failed: losses of the first 3 steps are off by" in wild.stdout
    (folder / "lacking.py").write_text("import no_such_module\n")
    lacking = run_command(folder, "try", "lacking.py")
    assert lacking.returncode == 1
    assert "Name the interpreter that has this module: --python PATH." in lacking.stdout
    (folder / "wrong.py").write_text("x = 1\n")
    wrong = run_command(folder, "try", "wrong.py")
    assert (wrong.returncode, "Traceback" in wrong.stdout + wrong.stderr) == (1, False)
    assert "crashed: wrong.py defines no function prepare(cell)" in wrong.stdout


def test_a_trial_says_which_variables_it_does_not_get_and_keeps_those_given(folder, monkeypatch):
    (folder / "train_step.py").write_text(
        "import os\nLAYERS = os.environ.get('MY_LAYERS')\n"
        + of_prepare("print(LAYERS)\n    return lambda: None")
    )
    monkeypatch.setenv("MY_LAYERS", "20")
    dropped = run_command(folder, "try", "train_step.py", "--threads", "1")
    assert (
        "MY_LAYERS (read by train_step.py) is set in this shell and is not passed to launches"
        in dropped.stderr
    )
    assert dropped.stdout.count("None\n") == 2
    passed = run_command(folder, "try", "train_step.py", "--threads", "1", "--env", "MY_LAYERS")
    assert "not passed" not in passed.stderr
    assert passed.stdout.count("20\n") >= 2
    assert passed.stdout.endswith("run threads --step train_step.py --env MY_LAYERS=20\n")


def test_a_step_is_explained_by_its_functions(folder):
    write(folder, work=1_000_000)
    done = run_command(
        folder, "explain", "train_step", "--step", "train_step.py", "--threads", "1", "--json"
    )
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout)
    assert "cProfile" in reported["profiler"]
    assert reported["operators"][0]["name"] == "builtins.sum"
    named = {operator["name"] for operator in reported["operators"]}
    assert "step (the step's file)" in named
    assert not any("timing.py" in name for name in named)
    explained = run_command(
        folder, "explain", "train_step", "--step", "train_step.py", "--threads", "1"
    )
    assert "under Python's cProfile" in " ".join(explained.stdout.split())
    assert "calls of functions" in explained.stdout
    assert "launches" not in explained.stdout
    wrong = run_command(folder, "explain", "torch", "--step", "train_step.py")
    assert wrong.returncode == 2
    assert "Write train_step." in wrong.stderr


ALLOCATING = """
PAGES = 10_000


def prepare(cell):
    ones = bytes([1]) * PAGES

    def step():
        activations = bytearray(PAGES * 4096)
        activations[::4096] = ones

    return step
"""


def test_freed_memory_stays_with_a_step_unless_it_is_measured_as_installed(folder):
    (folder / "train_step.py").write_text(ALLOCATING)
    done = run(
        folder,
        "--step",
        "train_step.py",
        "--tuning",
        "installed,tuned",
        "--threads",
        "1",
        "--launches",
        "1",
    )
    assert done.returncode == 0, done.stderr
    assert "Freed memory stays with the process (keep_heap)" in done.stderr
    launches = dlbench.launches(folder / "dlbench.sqlite").set_index("tuning")
    assert launches.faults["installed"] == pytest.approx(10_000, rel=0.05)
    assert launches.faults["tuned"] < 100
    # About a half on an idle machine: the step does nothing else.
    assert launches.faults_share["installed"] > 0.05 > launches.faults_share["tuned"]
    cells = run_command(folder, "report", "matrix", "--quantity", "faults")
    assert "Minor page faults per step" in cells.stdout
    assert re.search(r"train_step file, installed +\d{5}\b", cells.stdout), cells.stdout


def test_a_step_as_installed_is_said_to_be_nothing_else(folder):
    (folder / "train_step.py").write_text(ALLOCATING)
    done = run(
        folder,
        "--step",
        "train_step.py",
        "--tuning",
        "installed",
        "--threads",
        "1",
        "--launches",
        "1",
    )
    assert done.returncode == 0, done.stderr
    assert "keep_heap" not in done.stderr
