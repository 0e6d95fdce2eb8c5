"""Every verdict for programs: JSON with the same head, under a schema, with its exit code.

Launches only pretend: the file of a step says how long its steps take.
"""

import json
import lzma
import os
import random
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_up_pythons import make_python

from dlbench.adapters import protocol
from dlbench.adapters.protocol import Parity, Status
from dlbench.hardware_probe import doctor
from dlbench.hardware_probe import probe as machine_probe
from dlbench.hardware_probe.doctor import Severity
from dlbench.reports import catalogue
from dlbench.reports.results.conclusion import Conclusion, conclusion_data
from dlbench.reports.results.outcome import LaunchVerdict
from dlbench.suites import cli
from dlbench.suites.commands import probe
from dlbench.suites.errors import EXIT_CODES
from dlbench.suites.planning import framework
from dlbench.suites.run import preparation, runner
from dlbench.suites.run.launcher import Launched

HEAD = ["schema", "verdict", "reason"]
SHAPES = Path(__file__).parents[2] / "goldens" / "verdicts.json"
"""The keys of every schema with the JSON types of their values: what programs rely on."""
STEP = "# {level}\n# {name}\ndef prepare(cell):\n    return lambda: None\n"
QUIETLY = ("--threads", "1", "--order", "sequential", "--seed", "1")
Command = Callable[..., tuple[Any, str, str]]


def level_of(request: Any) -> str:
    """Return the level that the file of a launch's step gives, or that of its build."""
    level = Path(request.launch.settings["file"]).read_text(encoding="utf-8")[2:].partition("\n")[0]
    if level == "build":
        return (request.interpreter.parents[1] / "level").read_text(encoding="utf-8")
    return level


@pytest.fixture(autouse=True)
def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make launches last as long as the file of their step says, or crash, or compute wrongly."""
    draws = random.Random(1)

    def launch(request: Any, tick: Any) -> Launched:
        level = level_of(request)
        if level == "crashes":
            return Launched(LaunchVerdict(Status.CRASHED, "signal 11"), 1.0)
        losses = [0.5, 0.25] if level == "other" else [0.5, 0.4]
        parity = Parity("unchecked", "", losses, 0.0, None, "", 1e-3, 1e-3, 0.0)
        factor = 1.0 if level == "other" else float(level)
        seconds = 0.02 * factor * draws.lognormvariate(0.0, 0.003)
        answer = protocol.Answer(Status.OK, samples_ns=[round(seconds * 1e9)] * 3)
        return Launched(LaunchVerdict(Status.OK, "", parity), 1.0, answer)

    monkeypatch.setattr(runner, "launch_process", launch)
    monkeypatch.setattr(runner, "QuietWait", lambda *arguments: None)  # nothing is measured
    monkeypatch.setattr(framework, "_added", {})
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path / "home"))


def write_step(name: str, level: object) -> str:
    Path(name).write_text(STEP.format(level=level, name=name), encoding="utf-8")
    return name


LEVELS = {
    "passed": 1.0,
    "regression": 1.3,
    "broken": "crashes",
    "different": "other",
    "undecided": 1.03,
}
"""The candidate of a gate, by the verdict on it."""


def compared(command: Command, verdict: str, name: str) -> tuple[Any, str, str]:
    steps = ("--step", write_step("before.py", 1.0))
    candidate = ("--candidate-step", write_step("after.py", LEVELS[verdict]))
    words = (name, "quick") if name == "gate" else (name, "--now", "--undecided", "fail")
    budget = ("--budget", "100ms") if verdict == "undecided" else ()
    return command(
        *words, *steps, *candidate, *QUIETLY, *budget, "--no-profile", "--write", "r.json"
    )


def check(command: str, verdict: str, code: object, text: str) -> dict[str, Any]:
    """Check the head of a command's JSON, its exit code, and its keys; return the content."""
    content: dict[str, Any] = json.loads(text)
    assert list(content)[:3] == HEAD
    assert content["verdict"] == verdict, content["reason"]
    assert EXIT_CODES[command][verdict] == code
    assert len(content["reason"]) > 5
    shapes = json.loads(SHAPES.read_text(encoding="utf-8")) if SHAPES.exists() else {}
    schema = content["schema"]
    assert schema.startswith(f"dlbench-{'compare' if command == 'gate' else command}-")
    if verdict in ("no number",):
        return content
    if os.environ.get("DLBENCH_RECORD"):
        shapes[schema] = dict(sorted({**shapes.get(schema, {}), **shape_of(content)}.items()))
        SHAPES.write_text(json.dumps(shapes, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    for key, kinds in shapes[schema].items():
        assert key in content, f"{key} is gone: programs that read {schema} break"
        assert kind_of(content[key]) in (*kinds, "null"), key
    return content


def shape_of(content: dict[str, Any]) -> dict[str, list[str]]:
    return {key: [kind_of(value)] for key, value in content.items() if value is not None}


def kind_of(value: object) -> str:
    kinds = {bool: "boolean", int: "number", float: "number", str: "string", list: "array"}
    if value is None:
        return "null"
    return kinds.get(type(value), "object")


@pytest.mark.parametrize("verdict", LEVELS)
@pytest.mark.parametrize("name", ["gate", "compare"])
def test_a_comparison_answers_a_program(name: str, verdict: str, command: Command) -> None:
    code, _, errors = compared(command, verdict, name)
    assert Path("r.json").exists(), errors
    content = check(name, verdict, code, Path("r.json").read_text(encoding="utf-8"))
    assert content["purpose"] == name
    if name == "gate":
        assert content["gate"]["outcome"] in ("passed", "failed", "undecided")
        assert content["reason"] == content["gate"]["why"]


def builds_of(levels: Sequence[object], folder: Path) -> str:
    """Return the word of --python for builds in order, on which steps have these levels."""
    words = []
    for number, level in enumerate(levels):
        python = folder / f"v{number}" / "bin" / "python"
        make_python(python, "3.11")
        (python.parents[1] / "level").write_text(str(level))
        words.append(f"v{number}={python}")
    return ",".join(words)


BISECTIONS: dict[str, list[object]] = {
    "found": [1.0, 1.0, 1.3, 1.3],
    "no slowdown": [1.0, 1.0, 1.0, 1.0],
    "broken": [1.0, 1.0, 1.0, "crashes"],
    "no number": ["crashes", 1.0, 1.0, "crashes"],
    "undecided": [1.0, 1.0, 1.3, 1.3],
    "different": [1.0, 1.0, 1.0, "other"],
    "several changes": [1.0, 1.3, 1.9, 1.9],
}


@pytest.mark.parametrize("verdict", BISECTIONS)
def test_a_bisection_answers_a_program(verdict: str, command: Command, tmp_path: Path) -> None:
    words = ("--step", write_step("bench.py", "build"), "--python")
    budget = ("--budget", "1ms") if verdict == "undecided" else ()
    quietly = (*QUIETLY, "--no-profile", *budget)
    builds = builds_of(BISECTIONS[verdict], tmp_path)
    code, text, errors = command("bisect", *words, builds, *quietly, "--json")
    assert text, errors
    content = check("bisect", verdict, code, text)
    assert content["reason"] == content["sentence"]


CORES = preparation.capacity(machine_probe()).cores
SEARCHES = {
    "faster": {"default": 1.0, "other": 0.5},
    "default": {"default": 0.5, "other": 1.0},
    "undecided": {"default": 1.0005, "other": 1.0},
    "no number": {"default": "crashes", "other": "crashes"},
}


@pytest.mark.parametrize("verdict", SEARCHES)
def test_a_search_answers_a_program(
    verdict: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = SEARCHES[verdict]
    default = "2" if CORES >= 2 else "1"
    by_threads = {
        threads: str(levels["default" if threads == default else "other"]) for threads in "12"
    }
    monkeypatch.setattr(
        sys.modules[__name__],
        "level_of",
        lambda request: by_threads[str(request.launch.cell.threads)],
    )
    words = ("--step", write_step("bench.py", 1.0), "--threads", "1,2", "--tuning", "installed")
    quietly = ("--order", "sequential", "--seed", "1", "--no-wait-for-quiet")
    code, text, errors = command("tune", *words, *quietly, "--json")
    assert text, errors
    check("tune", verdict, code, text)


RELEASES = {"changed": [1.0, 1.3], "unchanged": [1.0, 1.0], "no number": ["crashes", "crashes"]}


@pytest.mark.parametrize("verdict", RELEASES)
def test_releases_answer_a_program(verdict: str, command: Command, tmp_path: Path) -> None:
    builds = builds_of(RELEASES[verdict], tmp_path)
    words = ("--step", write_step("bench.py", "build"), "--python", builds)
    quietly = (*QUIETLY, "--no-wait-for-quiet", "--no-profile")
    code, text, errors = command("releases", "torch", *words, *quietly, "--json")
    assert text, errors
    check("releases", verdict, code, text)


@pytest.mark.parametrize(("verdict", "magnitude"), [("changed", "2.5%"), ("unchanged", "99%")])
def test_a_history_answers_a_program(verdict: str, magnitude: str, command: Command) -> None:
    Path("nights.sqlite").write_bytes(
        lzma.decompress((SHAPES.parent / "stores" / "nights.sqlite.xz").read_bytes())
    )
    words = ("--store", "nights.sqlite", "--magnitude", magnitude, "--json")
    code, text, errors = command("history", *words)
    assert text, errors
    check("history", verdict, code, text)


HISTORIES = {"changed": (True, False), "pending": (True,), "unchanged": ()}
"""Whether each change is pending, by the verdict."""


@pytest.mark.parametrize("verdict", HISTORIES)
def test_a_change_counts_once_it_is_confirmed(verdict: str) -> None:
    changes = [(None, SimpleNamespace(pending=pending)) for pending in HISTORIES[verdict]]
    answer = catalogue.report("history").conclusion
    assert answer is not None
    assert answer(SimpleNamespace(changes=changes, drifts=[])).verdict == verdict


FINDINGS = {
    "harms": (Severity.FINE, Severity.HARMS, Severity.MAY_HARM),
    "may harm": (Severity.UNKNOWN, Severity.MAY_HARM),
    "unknown": (Severity.UNKNOWN, Severity.FINE),
    "fine": (Severity.FINE,),
}


@pytest.mark.parametrize("verdict", FINDINGS)
def test_the_doctor_answers_a_program(
    verdict: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = tuple(
        doctor.Finding(f"check{number}", "Check", severity, "seen", "why", "advice")
        for number, severity in enumerate(FINDINGS[verdict])
    )
    monkeypatch.setattr(probe, "measuring", lambda report: nullcontext())
    monkeypatch.setattr(probe, "take_sample", lambda readings: None)
    monkeypatch.setattr(probe, "diagnose", lambda facts: findings)
    code, text, errors = command("doctor", "--json")
    assert text, errors
    check("doctor", verdict, code, text)


def test_every_verdict_of_a_command_is_tried_here() -> None:
    tried = {
        "gate": set(LEVELS),
        "compare": set(LEVELS),
        "bisect": set(BISECTIONS),
        "tune": set(SEARCHES),
        "releases": set(RELEASES),
        "history": set(HISTORIES),
        "doctor": set(FINDINGS),
    }
    assert {name: set(codes) for name, codes in EXIT_CODES.items()} == tried
    assert set(EXIT_CODES) <= set(cli.COMMANDS)
    judging = {
        name for name, report in catalogue.reports().items() if report.conclusion is not None
    }
    assert judging == {"compare", "bisect", "releases", "history"}


def test_the_head_of_an_answer_comes_first() -> None:
    content = conclusion_data("gate", Conclusion("passed", "no slowdown"), {"cells": []}, version=2)
    assert list(content.items()) == [
        ("schema", "dlbench-gate-2"),
        ("verdict", "passed"),
        ("reason", "no slowdown"),
        ("cells", []),
    ]


def test_the_reference_documents_every_verdict_with_its_exit_code() -> None:
    page = Path(cli.__file__).parent / "docs" / "reference" / "verdicts.md"
    documented: dict[str, dict[str, int]] = {}
    for line in page.read_text(encoding="utf-8").splitlines():
        if not line.startswith("| `"):
            continue
        commands, verdicts = line.strip("|").split("|")
        codes = {verdict: int(code) for verdict, code in re.findall(r"`([a-z ]+)` (\d+)", verdicts)}
        documented |= dict.fromkeys(re.findall(r"`(\w+)`", commands), codes)
    assert documented == EXIT_CODES
