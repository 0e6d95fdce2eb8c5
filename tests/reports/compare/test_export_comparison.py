import re
from typing import Any
from xml.etree import ElementTree

import pytest
from exported import exporter
from hostile import HOSTILE
from hostile import check_markdown as inert_markdown
from hypothesis import given
from hypothesis import strategies as st
from json_reference import CHAPTERS
from properties import examples

from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.compare import annotations
from dlbench.reports.compare import report as layout
from dlbench.reports.results.comparison import CellComparison, Comparison, SideOfCell
from dlbench.reports.results.flag_kinds import THREADS_EXCEEDED, Flag
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.statistics import Estimate
from dlbench.reports.results.verdict import DEFAULT, Judgement, Verdict

CELL = Cell("torch", "pytorch", "eager", "fcn5", "cpu", 1, 64)
HOST = Host("m-one", "AMD EPYC, 2 CPUs", 2, 2, 2.0)


def side(status: Status = Status.OK, reason: str = "", **changes: Any) -> SideOfCell:
    seconds = (0.5, 0.51, 0.49) if status is Status.OK else ()
    return SideOfCell(
        **{**vars(SideOfCell(status, reason, len(seconds), seconds, 0, "1a2b3c")), **changes}
    )


def judged(
    verdict: Verdict, ratio: float = 1.0, sentence: str = "a sentence", **changes: Any
) -> Judgement:
    estimate = Estimate(ratio, ratio * 0.99, ratio * 1.01, "signed ranks")
    judgement = Judgement(verdict, sentence, 20, 20, estimate, 0.003, None, 0.04, 0.005, 19)
    return Judgement(**{**vars(judgement), **changes})


def cell_of(
    verdict: Verdict, ratio: float = 1.0, cell: Cell = CELL, **changes: Any
) -> CellComparison:
    return CellComparison(
        cell, side(), side(), judged(verdict, ratio), pairs=((0.5,), (0.6,)), **changes
    )


def comparison(*cells: CellComparison, **changes: Any) -> Comparison:
    mean = Estimate(1.012, 0.99, 1.03, "geometric mean of 4 cells") if cells else None
    defaults = Comparison(
        "torch 2.12", "torch 2.13", (HOST,), "gate", True, cells, mean, DEFAULT, ()
    )
    return Comparison(**{**vars(defaults), **changes})


HOLE = Judgement(Verdict.HOLE, "baseline: unsupported, no LSTM", 0, 0)
FLAG = Flag(THREADS_EXCEEDED, "4.0 threads wanted to run on average, 1 asked")
ONE_OF_EACH = {
    Verdict.NO_REGRESSION: cell_of(Verdict.NO_REGRESSION),
    Verdict.REGRESSION: cell_of(Verdict.REGRESSION, 1.1, CELL._replace(threads=2)),
    Verdict.IMPROVEMENT: cell_of(Verdict.IMPROVEMENT, 0.8, CELL._replace(threads=4)),
    Verdict.INCONCLUSIVE: cell_of(Verdict.INCONCLUSIVE, 1.04, CELL._replace(threads=8)),
    Verdict.CONTENDED: CellComparison(
        CELL._replace(threads=16),
        side(),
        side(),
        Judgement(Verdict.CONTENDED, "other programs interfered with 6 of 8", 2, 2),
    ),
    Verdict.BROKEN: CellComparison(
        CELL._replace(network="lstm32"),
        side(flags=(FLAG,)),
        side(Status.CRASHED, "signal 11"),
        Judgement(Verdict.BROKEN, "candidate: crashed, signal 11", 3, 0),
    ),
    Verdict.DIFFERENT: cell_of(Verdict.DIFFERENT, 0.5, CELL._replace(threads=64)),
    Verdict.HOLE: CellComparison(
        CELL._replace(network="lstm64"), side(Status.UNSUPPORTED), side(Status.UNSUPPORTED), HOLE
    ),
    Verdict.COMPARISON: cell_of(Verdict.COMPARISON, 1.5, CELL._replace(threads=32)),
}
ALL = comparison(*ONE_OF_EACH.values())
EXPORTERS = {form: exporter("compare", form) for form in ("markdown", "junit", "github")}


def check_markdown(text: str, exported: Comparison) -> None:
    assert text.startswith(f"<!-- dlbench {exported.purpose} -->\n")
    assert len(text) <= layout.MOST_CHARACTERS
    short, fold, folded = text.partition("<details><summary>")
    verdicts_shown = (Verdict.REGRESSION, Verdict.BROKEN, Verdict.DIFFERENT, Verdict.IMPROVEMENT)
    changed = sum(cell.verdict in verdicts_shown for cell in exported.cells)
    for part, cells, bars in ((short, changed, 4), (folded, len(exported.cells), 6)):
        rows = [line for line in part.split("\n") if line.startswith("| ")]
        assert all(len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == bars for line in rows)
        left_out = sum(
            int(count) for count in re.findall(r"^\| \.\.\. and (\d+) more", part, re.MULTILINE)
        )
        assert len(rows) - (2 if cells else 0) - bool(left_out) + left_out == cells
    assert (fold, folded.count("<details>"), folded.count("</details>")) == (
        "<details><summary>",
        0,
        1,
    )
    inert_markdown(text)


def check_junit(text: str, exported: Comparison) -> None:
    root = ElementTree.fromstring(text)
    assert root.tag == "testsuites"
    (suite,) = root.findall("testsuite")
    cases = suite.findall("testcase")
    assert len(cases) == len(exported.cells)
    for element in (root, suite):
        assert int(element.get("tests", "")) == len(cases)
        for attribute, tag in (
            ("failures", "failure"),
            ("errors", "error"),
            ("skipped", "skipped"),
        ):
            assert int(element.get(attribute, "")) == len(suite.findall(f"testcase/{tag}"))
        assert float(element.get("time", "")) >= 0
    for case in cases:
        assert case.get("name")
        assert case.get("classname")
        assert float(case.get("time", "")) >= 0
        outcomes = [child for child in case if child.tag in ("failure", "error", "skipped")]
        assert len(outcomes) <= 1
        assert all(child.get("message") for child in outcomes)
        assert all(child.tag in ("failure", "error", "skipped", "system-out") for child in case)


def commands_of(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Return level, properties and message of each line, as GitHub's runner reads it."""
    commands = []
    for line in text.split("\n"):
        match = re.fullmatch(r"::(\w+) ([^:]*(?:%3A[^:]*)*)::(.*)", line)
        assert match is not None, line
        level, properties, message = match.groups()
        pairs = dict(part.split("=", 1) for part in properties.split(","))
        decoded = {
            key: value.replace("%2C", ",").replace("%3A", ":").replace("%25", "%")
            for key, value in pairs.items()
        }
        commands.append((level, decoded, message.replace("%25", "%")))
    return commands


def check_github(text: str, exported: Comparison) -> None:
    commands = commands_of(text)
    levels = [level for level, _, _ in commands]
    assert set(levels) <= {"error", "warning", "notice"}
    assert all(levels.count(level) <= annotations.MOST for level in levels)
    assert levels[1:] == sorted(levels[1:], key=["error", "warning", "notice"].index)
    assert all(
        set(properties) <= {"file", "title"} and message for _, properties, message in commands
    )


CHECKS = {"markdown": check_markdown, "junit": check_junit, "github": check_github}


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize(
    "exported",
    [ALL, comparison(ONE_OF_EACH[Verdict.HOLE], geometric_mean=None)],
    ids=["all verdicts", "no cell measured"],
)
def test_each_form_is_well_formed_and_says_where_nothing_was_measured(
    name: str, exported: Comparison
) -> None:
    text = EXPORTERS[name](exported)
    CHECKS[name](text, exported)
    if exported is not ALL:
        assert (
            "o cell was measured" in text or "none with launches that count on both sides" in text
        )
        assert "above 1 is slower" not in text


@examples(30)
@given(
    st.sampled_from(HOSTILE),
    st.integers(0, 400),
    st.sampled_from([Verdict.REGRESSION, Verdict.BROKEN]),
)
def test_a_comment_of_any_names_and_size_is_inert_and_fits(
    name: str, cells: int, verdict: Verdict
) -> None:
    text = f"{name} @somebody #1 !2"
    broken = side(Status.CRASHED, text, flags=(Flag(THREADS_EXCEEDED, text),))
    broken_cells = [
        CellComparison(
            CELL._replace(network=text, threads=1 + n),
            side(),
            broken,
            judged(verdict, 2.0, f"{text} {n}"),
        )
        for n in range(cells)
    ]
    exported = comparison(
        *broken_cells,
        *ONE_OF_EACH.values(),
        baseline=text,
        candidate=text,
        hosts=(Host("m", text),),
        command=f"dlbench {text}",
    )
    comment = EXPORTERS["markdown"](exported)
    check_markdown(comment, exported)
    outside_of_code = [line for line in comment.split("\n") if not line.startswith("    ")]
    assert not re.search(r"@somebody|#1\b|!2|^/", "\n".join(outside_of_code), re.MULTILINE)
    check_github(EXPORTERS["github"](exported), exported)


def test_junit_outcomes() -> None:
    cases = ElementTree.fromstring(EXPORTERS["junit"](ALL)).findall("testsuite/testcase")
    outcomes = {name: case[0].tag for name, case in zip(ONE_OF_EACH, cases, strict=True)}
    assert outcomes == {
        **dict.fromkeys(
            (Verdict.NO_REGRESSION, Verdict.IMPROVEMENT, Verdict.COMPARISON), "system-out"
        ),
        **dict.fromkeys((Verdict.INCONCLUSIVE, Verdict.CONTENDED, Verdict.HOLE), "skipped"),
        Verdict.REGRESSION: "failure",
        Verdict.DIFFERENT: "failure",
        Verdict.BROKEN: "error",
    }
    assert len({(case.get("classname"), case.get("name")) for case in cases}) == len(cases)
    error = cases[list(ONE_OF_EACH).index(Verdict.BROKEN)].find("error")
    assert "signal 11" in (error.get("message") or "")
    assert "4.0 threads wanted to run" in (error.text or "")


def test_annotations_name_the_outcome_the_grave_cells_and_their_file() -> None:
    own = CELL._replace(framework="train_step", network="train_step")
    slower = cell_of(Verdict.REGRESSION, 1.1, own)
    exported = comparison(
        slower, *ONE_OF_EACH.values(), files={"train_step": "benchmarks/a, b: c%/train_step.py"}
    )
    commands = commands_of(EXPORTERS["github"](exported))
    level, properties, message = commands[0]
    assert (level, properties) == ("error", {"title": "dlbench gate"})
    assert message.startswith("gate failed: 2 of 9 cells are slower than the baseline")
    _, properties, message = commands[1]
    assert properties["file"] == "benchmarks/a, b: c%/train_step.py"
    assert "train_step" in properties["title"]
    assert properties["title"].endswith(": REGRESSION")
    assert message == "Candidate / baseline 1.100 (1.089-1.111). a sentence; p 0.003."
    levels = [
        (level, properties["title"].rpartition(": ")[2])
        for level, properties, _ in commands_of(EXPORTERS["github"](ALL))
    ]
    # Neither side can run the cell without a number, so that it needs no warning.
    assert levels[1:] == [
        ("error", "REGRESSION"),
        ("error", "broken"),
        ("error", "DIFFERENT"),
        ("warning", "inconclusive"),
        ("warning", "contended"),
        ("notice", "improvement"),
    ]
    passed = comparison(ONE_OF_EACH[Verdict.NO_REGRESSION])
    assert EXPORTERS["github"](passed) == (
        "::notice title=dlbench gate::gate passed: no slowdown in 1 cell"
    )


def test_more_annotations_than_github_shows_are_counted() -> None:
    slower = [
        cell_of(Verdict.REGRESSION, 1.1, CELL._replace(threads=1 + count)) for count in range(30)
    ]
    commands = commands_of(EXPORTERS["github"](comparison(*slower)))
    assert len(commands) == annotations.MOST
    assert commands[-1][2] == "... and 22 more cells: see the report."


def test_an_annotation_of_any_text_is_one_command() -> None:
    line = annotations.annotation("error", "a,b:c%\n::set-env", "50 %\r\n::error::x", "d\ne.py")
    assert line == "::error file=d e.py,title=a%2Cb%3Ac%25 %3A%3Aset-env::50 %25 ::error::x"


def test_the_documentation_describes_every_verdict() -> None:
    assert set(Verdict) <= set(re.findall(r"`(\w+)`", CHAPTERS["compare"]["finding verdict"]))
