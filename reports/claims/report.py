"""`dlbench report claims`."""

from dlbench.reports.claims.analysis import Claims, try_claims
from dlbench.reports.claims.cells import Cells, tools_of_stands
from dlbench.reports.claims.claim import Claim
from dlbench.reports.claims.list_of_claims import PAPERS, claims
from dlbench.reports.claims.questions import Answer
from dlbench.reports.claims.words import claims_data, claims_page, claims_rows
from dlbench.reports.errors import ReportError
from dlbench.reports.recurrent_cells.learnt import learnt_of
from dlbench.reports.recurrent_cells.settings import losses_of
from dlbench.reports.report import ALL_RUNS, CLAIMS, FAIL_ON, PAPER, REFERENCE, Report, ReportOptions, Source
from dlbench.reports.storage.networks import networks_of

FOUND = 1
"""Exit code: a claim has the verdict that --fail-on names."""


def _check(options: ReportOptions) -> None:
    for what, name, known in (
        ("paper", options.paper, list(PAPERS)),
        ("verdict", options.fail_on, [each.value for each in Answer]),
    ):
        if name and name not in known:
            raise ReportError(f"There is no {what} named {name!r}; choose one of {', '.join(known)}.")


def _chosen(options: ReportOptions) -> list[Claim]:
    """Return the claims to try: one's own alone where there are any and no paper is named."""
    of_papers = [each for each in claims() if options.paper in ("", each.paper)]
    return [*options.claims, *(of_papers if options.paper or not options.claims else [])]


def _analyse(source: Source) -> Claims:
    options = source.options
    matrix = source.matrix()
    if options.reference:
        cells = Cells(matrix, lambda cell: cell.row.framework)
    else:
        adapters = {each.adapter: tool for tool, each in source.counterparts().items() if each.adapter}
        builds = source.builds()
        tool_of = tools_of_stands(adapters, lambda cell: builds.of(cell).adapter)
        records = source.results().records
        cells = Cells(matrix, tool_of, networks=networks_of(records), losses=losses_of(learnt_of(records)))
    return try_claims(_chosen(options), cells, options.reference)


def _code(found: Claims, options: ReportOptions) -> int:
    return FOUND if any(each.here.verdict.value == options.fail_on for each in found.tried) else 0


REPORT = Report(
    name="claims",
    summary="""What papers claim, tried on their own tables and on one's own results.

Each claim has a verdict of each: reproduces, reproduces in direction, partly, differs, cannot be told or not
measured; in the last case it says what to measure. With `--claim FILE.toml` it tries a claim of one's own
(`reports/README.md` has an example).""",
    examples=(
        "dlbench report claims --paper shi2016",
        "dlbench report claims --json",
        "dlbench report claims --claim mine.toml --fail-on differs",
    ),
    analyse=_analyse,
    page=lambda found, options: claims_page(found),
    data=claims_data,
    rows=claims_rows,
    options=frozenset({REFERENCE, ALL_RUNS, PAPER, CLAIMS, FAIL_ON}),
    trainings=True,
    validate=_check,
    exit_code=_code,
    has_section=lambda found: any(each.here.verdict is not Answer.NOT_MEASURED for each in found.tried),
    heading="Published claims, tried here",
    place=75,
)
