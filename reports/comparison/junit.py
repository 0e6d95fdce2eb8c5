"""A comparison as JUnit XML, one test case for each cell, for whatever shows test results.

A regression is a failure; a candidate that breaks where the baseline does not is an error; a cell without a verdict is
skipped, with the reason. Everything else passes: an improvement, a ratio between machines.
"""

from statistics import median
from xml.etree import ElementTree

from dlbench.reports.comparison import layout
from dlbench.reports.comparison.compared import CellComparison, Comparison
from dlbench.reports.comparison.layout import Finding
from dlbench.reports.comparison.outcome import gate_outcome
from dlbench.reports.formats.inert import one_line, visible_lines
from dlbench.reports.naming import group_name, rest_of

_OUTCOMES = {
    Finding.REGRESSION: "failure",
    Finding.BROKEN: "error",
    Finding.INCONCLUSIVE: "skipped",
    Finding.CONTENDED: "skipped",
    Finding.HOLE: "skipped",
}
_COUNTED = {"failures": "failure", "errors": "error", "skipped": "skipped"}


def comparison_to_junit(comparison: Comparison, name: str = "dlbench") -> str:
    """Return the XML document; ``name`` is that of its only suite.

    Attributes are those of the schema that Jenkins, GitLab and GitHub's actions read: tests, failures, errors,
    skipped, time; classname and name. The time of a case is the candidate's median seconds of one step.
    """
    suite = ElementTree.Element("testsuite", name=one_line(name))
    properties = ElementTree.SubElement(suite, "properties")
    facts = {
        "baseline": comparison.baseline,
        "candidate": comparison.candidate,
        "machines": layout.machines(comparison),
        "headline": layout.headline(comparison),
        "summary": " ".join(layout.closing(comparison)),
    }
    if comparison.purpose == "gate":
        facts["gate"] = gate_outcome(comparison).line
    for key, value in facts.items():
        ElementTree.SubElement(properties, "property", name=key, value=one_line(value))
    for cell in comparison.cells:
        suite.append(_case(cell, name))
    cases = suite.findall("testcase")
    totals = {"tests": len(cases)}
    totals |= {key: sum(case.find(tag) is not None for case in cases) for key, tag in _COUNTED.items()}
    time = f"{sum(_seconds(cell) for cell in comparison.cells):.6f}"
    root = ElementTree.Element("testsuites", name=one_line(name))
    for element in (root, suite):
        for key, count in totals.items():
            element.set(key, str(count))
        element.set("time", time)
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(cell: CellComparison, suite: str) -> ElementTree.Element:
    # A dot separates packages for those that show test results as a tree.
    group = group_name(cell.cell).replace(".", "_")
    time = f"{_seconds(cell):.6f}"
    names = {"classname": one_line(f"{suite}.{group}"), "name": one_line(rest_of(cell.cell))}
    case = ElementTree.Element("testcase", names, time=time)
    found = layout.finding(cell)
    if found in _OUTCOMES:
        said = one_line(layout.sentence_of(cell))
        outcome = ElementTree.SubElement(case, _OUTCOMES[found], message=f"{found.value}: {said}")
        if found is not Finding.HOLE:
            outcome.set("type", found.name)
            outcome.text = visible_lines(_body(cell))
    else:
        ElementTree.SubElement(case, "system-out").text = visible_lines(_body(cell))
    return case


def _body(cell: CellComparison) -> str:
    lines = [layout.sentence_of(cell)]
    if cell.judgement.ratio is not None:
        lines.append(f"candidate / baseline {layout.ratio_of_cell(cell)}")
    lines.append(f"{layout.launches_of(cell)} launches, {cell.judgement.method}")
    return "\n".join([*lines, *layout.details_of([cell])]) + "\n"


def _seconds(cell: CellComparison) -> float:
    return median(cell.candidate.seconds) if cell.candidate.seconds else 0.0
