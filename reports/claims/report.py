"""`dlbench report claims`: the claims with their verdicts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dlbench.reports.claims.claims import (
    OWN,
    PAPERS,
    Claim,
    Claims,
    ClaimVerdict,
    Evidence,
    Tried,
    claims,
    try_claims,
)
from dlbench.reports.claims.figures import FACT, Claimed, Question, Tables
from dlbench.reports.columns import Column, csv_rows, objects, table
from dlbench.reports.curve.training import learnt_of, losses_of
from dlbench.reports.formats.layout import Entry, Page
from dlbench.reports.report import (
    ALL_RUNS,
    CLAIMS,
    FAIL_ON,
    PAPER,
    REFERENCE,
    Report,
    ReportOptions,
    ReportSource,
)
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.networks import networks_of
from dlbench.reports.results.number_text import number

FOUND = 1
"""Exit code: a claim has the verdict that --fail-on names."""


def _check(options: ReportOptions) -> None:
    verdicts = [answer.value for answer in ClaimVerdict]
    for kind, name, choices in (
        ("paper", options.paper, list(PAPERS)),
        ("verdict", options.fail_on, verdicts),
    ):
        if name and name not in choices:
            raise ReportError(
                f"There is no {kind} named {name!r}; choose one of {', '.join(choices)}."
            )


def _chosen(options: ReportOptions) -> list[Claim]:
    """Return the claims to try: the user's alone if there are any and no paper is named."""
    if options.claims and not options.paper:
        return list(options.claims)
    published = [claim for claim in claims() if options.paper in ("", claim.paper)]
    return [*options.claims, *published]


def _analyse(source: ReportSource) -> Claims:
    options = source.options
    matrix = source.matrix()
    if options.reference:
        tables = Tables(matrix, lambda cell: cell.row.framework, losses={})
    else:
        adapters = {}
        for tool, stand in source.counterparts().items():
            if stand.adapter:
                adapters[stand.adapter] = tool
        builds = source.builds()

        def adapter_of(cell: CellResult) -> str:
            return builds.of(cell).adapter

        tool_of = tools_of_stands(adapters, adapter_of)
        records = source.results().records
        tables = Tables(matrix, tool_of, networks_of(records), losses_of(learnt_of(records)))
    return try_claims(_chosen(options), tables, options.reference)


def tools_of_stands(
    adapters: Mapping[str, str], adapter_of: Callable[[CellResult], str]
) -> Callable[[CellResult], str]:
    """Return a function that names the tool of a cell.

    ``adapters`` has the papers' tools by the adapters that stand for them.
    """

    def tool_of(cell: CellResult) -> str:
        adapter = adapter_of(cell)
        if adapter in adapters:
            return adapters[adapter]
        row = cell.row.framework
        # A row may have the name of a tool of the papers, and be another program.
        if row in adapters.values():
            return f"{row} by {adapter}"
        return row

    return tool_of


SHOWN = 4
"""A claim with at most this many figures shows each of them. Others show the range."""


def _evidence_value(side: str, name: str) -> Callable[[Tried], Any]:
    """Return an accessor of one attribute of the evidence "on_paper" or "here"."""

    def value(tried: Tried) -> Any:
        return getattr(getattr(tried, side), name, None)

    return value


def _verdict_on_paper(tried: Tried) -> Entry:
    if tried.on_paper is None:
        return Entry("")
    return _verdict(tried.on_paper)


def _columns(place: str = "here", own: bool = False) -> tuple[Column[Tried], ...]:
    heading_on_paper = None if own else "on its own table"
    return (
        Column("id", "", lambda tried: tried.claim.id),
        Column("paper", None, lambda tried: tried.claim.paper),
        Column("where", None, lambda tried: tried.claim.where),
        Column("claim", "claim", lambda tried: tried.claim.words),
        Column(
            "verdict_on_paper",
            heading_on_paper,
            _evidence_value("on_paper", "verdict"),
            _verdict_on_paper,
        ),
        Column(
            "verdict_here",
            place,
            _evidence_value("here", "verdict"),
            lambda tried: _verdict(tried.here),
        ),
        Column("holds_on_paper", None, _evidence_value("on_paper", "holds")),
        Column("of_on_paper", None, _evidence_value("on_paper", "of")),
        Column("holds_here", None, _evidence_value("here", "holds")),
        Column("of_here", None, _evidence_value("here", "of")),
        Column("note", None, lambda tried: tried.claim.no_numbers),
        Column("numbers", None, _numbers, fields=None),
        Column("missing", None, _missing_numbers, fields=None),
        Column("measure", None, lambda tried: tried.claim.measure or None),
    )


def claims_page(claims: Claims) -> Page:
    """Return a table of each paper's claims, with the evidence beneath it."""
    place = f"on {claims.reference}" if claims.reference else "here"
    tried_by_paper = grouped(claims.tried, lambda tried: tried.claim.paper)
    tables = []
    for paper, tried in tried_by_paper.items():
        is_own = paper == OWN
        title = "Your own claims" if is_own else PAPERS[paper]
        notes = _notes(tried, place)
        tables.append(table(_columns(place, is_own), tried, title, notes=notes, words=True))
    return Page(
        ("Claims, and the figures for and against them.",),
        tuple(tables),
        (*_legend(tried_by_paper), *claims.notes),
    )


def _verdict(evidence: Evidence) -> Entry:
    """Return the verdict, with the number of figures that hold, or that were measured."""
    count = ""
    if evidence.verdict is ClaimVerdict.PARTLY:
        count = f"{evidence.holds} of {evidence.of}"
    elif evidence.of and evidence.missing:
        count = f"{evidence.of} of {len(evidence.figures)} figures"
    words = (evidence.verdict.value, count, evidence.note.partition(":")[0])
    return Entry(", ".join(filter(None, words)), hole=evidence.verdict is ClaimVerdict.DIFFERS)


def _notes(all_tried: Sequence[Tried], place: str) -> Iterator[str]:
    """Yield the evidence of each verdict, then the missing cells.

    Claims that lack the same cells share one line.
    """
    names_by_lack: dict[tuple[str, str, str], list[str]] = {}
    for tried in all_tried:
        name = tried.claim.id
        for where, evidence in (("on its own table", tried.on_paper), (place, tried.here)):
            if evidence is not None and evidence.of:
                yield f"{name} {where}: {figures(evidence)}{_warnings(evidence)}."
        if tried.here.missing or not tried.here.of:
            how = "Missing for" if tried.here.of else "Not measured for"
            lack = (how, _lacking_cells(tried), tried.claim.measure)
            names_by_lack.setdefault(lack, []).append(name)
    for (how, cells, command), names in names_by_lack.items():
        line = f"{how} {', '.join(names)}: {cells}."
        if command:
            line += f" Measure: `{command}`"
        yield line


def _lacking_cells(tried: Tried) -> str:
    if not tried.here.missing:
        return tried.claim.needs or "none of its cells"
    first, *others = tried.here.missing
    words = first.what
    if others:
        words += f" and {len(others)} more"
    return f"{words} ({first.missing.removesuffix('.')})"


def figures(evidence: Evidence) -> str:
    """Return the figures in words: each of a few, the range of many and how many hold."""
    measured = []
    values = []
    claimed_ranges = []
    are_facts = True
    for question, _ in evidence.figures:
        if question.found is not None:
            measured.append(question)
            values.append(question.found.value)
            claimed_ranges.append(question.claimed)
            are_facts = are_facts and question.found.method == FACT
    claimed = ""
    if not are_facts:
        claimed = f", claimed {_claimed_range(claimed_ranges)}"
    if len(measured) <= SHOWN:
        return "; ".join(map(_figure, measured)) + claimed
    hold = f"{evidence.holds} of {evidence.of} hold"
    if are_facts:
        return hold
    return f"{number(min(values))} to {number(max(values))}{claimed}: {hold}"


def _claimed_range(all_claimed: Sequence[Claimed]) -> str:
    """Return the claimed bounds and sizes; of many sizes the least and the greatest."""
    words: dict[str, None] = {}
    bounds: dict[str, None] = {}
    sizes = []
    for claimed in all_claimed:
        words[claimed.words] = None
        bounds[claimed._replace(size=None).words] = None
        if claimed.size is not None:
            sizes.append(claimed.size)
    if len(words) <= SHOWN or not sizes:
        return " or ".join(words)
    return f"{' or '.join(bounds)}, about {number(min(sizes))} to {number(max(sizes))}"


def _warnings(evidence: Evidence) -> str:
    """Return the number of figures from cells with a flag, and the names of these flags."""
    count = 0
    kinds: dict[str, None] = {}
    for question, _ in evidence.figures:
        if question.found is not None and question.flags:
            count += 1
            for flag in question.flags:
                kinds[flag.kind.name] = None
    if not count:
        return ""
    return f" ({count} with a warning: {', '.join(kinds)})"


def _figure(question: Question) -> str:
    ratio = question.found
    assert ratio is not None
    if ratio.method == FACT:
        answer = "yes" if ratio.value else "no"
        return f"{question.what}: {answer}"
    ends = ""
    if ratio.low is not None and ratio.high is not None:
        ends = f" ({number(ratio.low)} to {number(ratio.high)})"
    return f"{question.what} {number(ratio.value)}{ends}"


def _legend(papers: Iterable[str]) -> Iterator[str]:
    yield (
        "reproduces: the 95 % interval, adjusted for all tests of this report (Holm), lies on the "
        "claimed side, and the figure is within a factor of 2 of the claimed size, if there is "
        "one; in direction: its size differs; differs: the interval lies on the other side. Of "
        "several figures 80 % decide, else partly."
    )
    if set(papers) != {OWN}:
        yield (
            "Papers' claims are tried on results with the usual value of every axis: tuned, "
            "float32, a resident mini-batch, one worker, threads not bound. A claim about an axis "
            "takes all its values."
        )
        yield (
            "Printed numbers have no interval. In the column of your results each tool of a paper "
            "is replaced by the framework that stands for it, in its fastest mode."
        )


def _numbers(tried: Tried) -> list[dict[str, Any]]:
    numbers = []
    for side, evidence in (("on_paper", tried.on_paper), ("here", tried.here)):
        if evidence is None:
            continue
        for question, answer in evidence.figures:
            ratio = question.found
            if ratio is None:
                continue
            numbers.append(
                {
                    "on": side,
                    "what": question.what,
                    "value": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                    "method": ratio.method,
                    "claimed": question.claimed,
                    "answer": answer,
                    "flags": question.flags,
                }
            )
    return numbers


def _missing_numbers(tried: Tried) -> list[dict[str, Any]]:
    numbers_of_paper = tried.claim.no_numbers or "its numbers"
    cells = tried.claim.needs or "none of its cells"
    missing = []
    for side, evidence, lacking in (
        ("on_paper", tried.on_paper, numbers_of_paper),
        ("here", tried.here, cells),
    ):
        if evidence is None:
            continue
        if not evidence.figures:
            missing.append({"on": side, "what": lacking, "reason": "not measured"})
        for question in evidence.missing:
            missing.append({"on": side, "what": question.what, "reason": question.missing})
    return missing


def _exit_code(claims: Claims, options: ReportOptions) -> int:
    if any(tried.here.verdict.value == options.fail_on for tried in claims.tried):
        return FOUND
    return 0


def _has_section(claims: Claims) -> bool:
    return any(tried.here.verdict is not ClaimVerdict.NOT_MEASURED for tried in claims.tried)


REPORT = Report(
    name="claims",
    summary="""Claims of papers, tested on their tables and on your results.

Each claim gets a verdict on both: reproduces, reproduces in direction, partly, differs,
inconclusive, or not measured and what to measure. `--claim FILE.toml` tries a claim of your own
(the documentation has an example: Test a claim about speed).""",
    examples=(
        "dlbench report claims --paper shi2016",
        "dlbench report claims --json",
        "dlbench report claims --claim mine.toml --fail-on differs",
    ),
    analyse=_analyse,
    page=lambda claims, options: claims_page(claims),
    data=lambda claims: objects(_columns(), claims.tried),
    rows=lambda claims: csv_rows(_columns(), claims.tried),
    options=frozenset({REFERENCE, ALL_RUNS, PAPER, CLAIMS, FAIL_ON}),
    trainings=True,
    validate=_check,
    exit_code=_exit_code,
    has_section=_has_section,
    heading="Published claims, tried on this machine",
    place=75,
)
