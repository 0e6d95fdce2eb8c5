"""`dlbench report claims`: the claims with their verdicts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dlbench.reports.claims.claims import (
    OWN,
    PAPERS,
    Answer,
    Claim,
    Claims,
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
    Source,
)
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.networks import networks_of
from dlbench.reports.results.number_text import number

FOUND = 1
"""Exit code: a claim has the verdict that --fail-on names."""


def _check(options: ReportOptions) -> None:
    for what, name, known in (
        ("paper", options.paper, list(PAPERS)),
        ("verdict", options.fail_on, [each.value for each in Answer]),
    ):
        if name and name not in known:
            raise ReportError(
                f"There is no {what} named {name!r}; choose one of {', '.join(known)}."
            )


def _chosen(options: ReportOptions) -> list[Claim]:
    """Return the claims to try: the user's alone if there are any and no paper is named."""
    of_papers = [each for each in claims() if options.paper in ("", each.paper)]
    return [*options.claims, *(of_papers if options.paper or not options.claims else [])]


def _analyse(source: Source) -> Claims:
    options = source.options
    matrix = source.matrix()
    if options.reference:
        tables = Tables(matrix, lambda cell: cell.row.framework, losses={})
    else:
        adapters = {
            each.adapter: tool for tool, each in source.counterparts().items() if each.adapter
        }
        builds = source.builds()
        tool_of = tools_of_stands(adapters, lambda cell: builds.of(cell).adapter)
        records = source.results().records
        tables = Tables(matrix, tool_of, networks_of(records), losses_of(learnt_of(records)))
    return try_claims(_chosen(options), tables, options.reference)


def tools_of_stands(
    adapters: Mapping[str, str], adapter_of: Callable[[CellResult], str]
) -> Callable[[CellResult], str]:
    """Return the tool of each cell: ``adapters`` names the papers' tools by the adapters that stand
    for them.
    """

    def tool_of(cell: CellResult) -> str:
        adapter, row = adapter_of(cell), cell.row.framework
        # A row may have the name of a tool of the papers, and be another program.
        return adapters.get(adapter, f"{row} by {adapter}" if row in adapters.values() else row)

    return tool_of


SHOWN = 4
"""So many figures of a claim are each shown in words; of more, their range."""


def _columns(here: str = "here", own: bool = False) -> tuple[Column[Tried], ...]:
    def of(on: str, name: str) -> Callable[[Tried], Any]:
        return lambda tried: getattr(getattr(tried, on), name, None)

    def of_paper(tried: Tried) -> Entry:
        return Entry("") if tried.on_paper is None else _verdict(tried.on_paper)

    return (
        Column("id", "", lambda tried: tried.claim.id),
        Column("paper", None, lambda tried: tried.claim.paper),
        Column("where", None, lambda tried: tried.claim.where),
        Column("claim", "claim", lambda tried: tried.claim.words),
        Column(
            "verdict_on_paper",
            None if own else "on its own table",
            of("on_paper", "verdict"),
            of_paper,
        ),
        Column("verdict_here", here, of("here", "verdict"), lambda tried: _verdict(tried.here)),
        *(
            Column(f"{name}_{on}", None, of(on, name))
            for on in ("on_paper", "here")
            for name in ("holds", "of")
        ),
        Column("note", None, lambda tried: tried.claim.no_numbers),
        Column("numbers", None, _numbers, fields=None),
        Column("missing", None, _missing_numbers, fields=None),
        Column("measure", None, lambda tried: tried.claim.measure or None),
    )


def claims_page(found: Claims) -> Page:
    """Return a table of each paper's claims, with the evidence beneath it."""
    here = f"on {found.reference}" if found.reference else "here"
    papers = grouped(found.tried, lambda each: each.claim.paper)
    tables = [
        table(
            _columns(here, paper == OWN),
            tried,
            "Your own claims" if paper == OWN else PAPERS[paper],
            notes=_notes(tried, here),
            words=True,
        )
        for paper, tried in papers.items()
    ]
    return Page(
        ("Claims, and the figures for and against them.",),
        tuple(tables),
        (*_legend(papers), *found.notes),
    )


def _verdict(found: Evidence) -> Entry:
    """Return the verdict, with the number of figures that hold if they disagree, or that exist if
    some are missing.
    """
    there = f"{found.of} of {len(found.figures)} figures" if found.of and found.missing else ""
    holds = f"{found.holds} of {found.of}" if found.verdict is Answer.PARTLY else ""
    words = (found.verdict.value, holds or there, found.note.partition(":")[0])
    return Entry(", ".join(filter(None, words)), hole=found.verdict is Answer.DIFFERS)


def _notes(tried: Sequence[Tried], here: str) -> Iterator[str]:
    """Yield the evidence of each verdict, then the missing cells, once for all claims that lack the
    same.
    """
    lacking: dict[tuple[str, str, str], list[str]] = {}
    for each in tried:
        for where, found in (("on its own table", each.on_paper), (here, each.here)):
            if found is not None and found.of:
                yield f"{each.claim.id} {where}: {figures(found)}{_warnings(found)}."
        if each.here.missing or not each.here.of:
            how, what = (
                "Missing for" if each.here.of else "Not measured for",
                each.claim.needs or "none of its cells",
            )
            if each.here.missing:
                first, *others = each.here.missing
                more = f" and {len(others)} more" if others else ""
                what = f"{first.what}{more} ({first.missing.removesuffix('.')})"
            lacking.setdefault((how, what, each.claim.measure), []).append(each.claim.id)
    for (how, what, command), names in lacking.items():
        yield f"{how} {', '.join(names)}: {what}." + (f" Measure: `{command}`" if command else "")


def figures(found: Evidence) -> str:
    """Return the figures in words: each of a few, else from the least to the largest, and how many
    hold.
    """
    found_ones = [question for question, _ in found.figures if question.found is not None]
    facts = all(
        question.found is not None and question.found.method == FACT for question in found_ones
    )
    claimed = "" if facts else f", claimed {_claimed([each.claimed for each in found_ones])}"
    if len(found_ones) <= SHOWN:
        return "; ".join(map(_figure, found_ones)) + claimed
    values = [question.found.value for question in found_ones if question.found is not None]
    span = "" if facts else f"{number(min(values))} to {number(max(values))}"
    return f"{span}{claimed}: {found.holds} of {found.of} hold".removeprefix(": ")


def _claimed(several: Sequence[Claimed]) -> str:
    """Return where figures are claimed to be; of many sizes the least and the greatest."""
    words = list(dict.fromkeys(each.words for each in several))
    sizes = [each.size for each in several if each.size is not None]
    if len(words) <= SHOWN or not sizes:
        return " or ".join(words)
    bounds = dict.fromkeys(each._replace(size=None).words for each in several)
    return f"{' or '.join(bounds)}, about {number(min(sizes))} to {number(max(sizes))}"


def _warnings(found: Evidence) -> str:
    """Return how many figures rest on cells with a flag, and which flags these are."""
    flagged = [
        question.flags
        for question, _ in found.figures
        if question.found is not None and question.flags
    ]
    kinds = dict.fromkeys(flag.kind.name for flags in flagged for flag in flags)
    return f" ({len(flagged)} with a warning: {', '.join(kinds)})" if flagged else ""


def _figure(question: Question) -> str:
    found = question.found
    assert found is not None
    if found.method == FACT:
        return f"{question.what}: {'yes' if found.value else 'no'}"
    ends = (
        ""
        if found.low is None or found.high is None
        else f" ({number(found.low)} to {number(found.high)})"
    )
    return f"{question.what} {number(found.value)}{ends}"


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
    return [
        {
            "on": on,
            "what": question.what,
            **{name: getattr(question.found, name) for name in ("value", "low", "high", "method")},
            "claimed": question.claimed,
            "answer": answer,
            "flags": question.flags,
        }
        for on, found in (("on_paper", tried.on_paper), ("here", tried.here))
        for question, answer in (found.figures if found is not None else ())
        if question.found is not None
    ]


def _missing_numbers(tried: Tried) -> list[dict[str, Any]]:
    without = tried.claim.no_numbers or "its numbers", tried.claim.needs or "none of its cells"
    return [
        {"on": on, "what": what, "reason": reason}
        for (on, found), nothing in zip(
            (("on_paper", tried.on_paper), ("here", tried.here)), without, strict=True
        )
        if found is not None
        for what, reason in (
            [(each.what, each.missing) for each in found.missing]
            if found.figures
            else [(nothing, "not measured")]
        )
    ]


REPORT = Report(
    name="claims",
    summary="""Published claims, evaluated on their own tables and on the results of a store.

Each claim gets a verdict on both: reproduces, reproduces in direction, partly, differs,
inconclusive, or not measured and what to measure. `--claim FILE.toml` tries a claim of your own
(`reports/README.md` has an example).""",
    examples=(
        "dlbench report claims --paper shi2016",
        "dlbench report claims --json",
        "dlbench report claims --claim mine.toml --fail-on differs",
    ),
    analyse=_analyse,
    page=lambda found, options: claims_page(found),
    data=lambda found: objects(_columns(), found.tried),
    rows=lambda found: csv_rows(_columns(), found.tried),
    options=frozenset({REFERENCE, ALL_RUNS, PAPER, CLAIMS, FAIL_ON}),
    trainings=True,
    validate=_check,
    exit_code=lambda found, options: (
        FOUND if any(each.here.verdict.value == options.fail_on for each in found.tried) else 0
    ),
    has_section=lambda found: any(
        each.here.verdict is not Answer.NOT_MEASURED for each in found.tried
    ),
    heading="Published claims, tried here",
    place=75,
)
