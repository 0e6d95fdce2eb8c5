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
from dlbench.reports.report import ALL_RUNS, CLAIMS, FAIL_ON, PAPER, REFERENCE, Choices, Report, Source
from dlbench.reports.storage.networks import networks_of

FOUND = 1
"""Exit code: a claim has the verdict that --fail-on names."""


def _check(choices: Choices) -> None:
    for what, name, known in (
        ("paper", choices.paper, list(PAPERS)),
        ("verdict", choices.fail_on, [each.value for each in Answer]),
    ):
        if name and name not in known:
            raise ReportError(f"There is no {what} named {name!r}; choose one of {', '.join(known)}.")


def _chosen(choices: Choices) -> list[Claim]:
    """Return the claims to try: one's own alone where there are any and no paper is named."""
    of_papers = [each for each in claims() if choices.paper in ("", each.paper)]
    return [*choices.claims, *(of_papers if choices.paper or not choices.claims else [])]


def _analyse(source: Source) -> Claims:
    choices = source.choices
    matrix = source.matrix()
    if choices.reference:
        cells = Cells(matrix, lambda cell: cell.row.framework)
    else:
        adapters = {stand.adapter: tool for tool, stand in source.stands.items() if stand.adapter}
        builds = source.builds()
        tool_of = tools_of_stands(adapters, lambda cell: builds.of(cell).adapter)
        records = source.results().records
        cells = Cells(matrix, tool_of, networks=networks_of(records), losses=losses_of(learnt_of(records)))
    return try_claims(_chosen(choices), cells, choices.reference)


def _code(found: Claims, choices: Choices) -> int:
    return FOUND if any(each.here.verdict.value == choices.fail_on for each in found.tried) else 0


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
    page=lambda found, choices: claims_page(found),
    data=claims_data,
    rows=claims_rows,
    offers=frozenset({REFERENCE, ALL_RUNS, PAPER, CLAIMS, FAIL_ON}),
    trainings=True,
    check_further=_check,
    code=_code,
    worth_a_section=lambda found: any(each.here.verdict is not Answer.NOT_MEASURED for each in found.tried),
    heading="Published claims, tried here",
    place=75,
)
