"""`dlbench report tuning`."""

from dlbench.reports.report import ALL_RUNS, Report, Source
from dlbench.reports.tuning.analysis import Tuning, tells, worth_of_settings
from dlbench.reports.tuning.data import tuning_data, tuning_rows
from dlbench.reports.tuning.headline import headline
from dlbench.reports.tuning.words import tuning_page


def _analyse(source: Source) -> Tuning:
    found = source.results()
    return worth_of_settings(found.records, found.hosts)


REPORT = Report(
    name="tuning",
    summary="""What each setting of the tuned rows is worth here, alone and among the others.

Ratios over pairs of launches with and without it. `dlbench run tuning` measures them; `--all-runs` takes the pairs of
several such runs together.""",
    examples=(
        "dlbench report tuning",
        "dlbench report tuning --networks fcn5 --frameworks torch",
        "dlbench report tuning --format markdown",
    ),
    analyse=_analyse,
    page=lambda found, choices: tuning_page(found),
    data=tuning_data,
    rows=tuning_rows,
    invitation="what each setting is worth",
    tells=tells,
    offers=frozenset({ALL_RUNS}),
    heading="What each setting is worth",
    place=35,
    headline=headline,
    worth_a_section=lambda found: bool(found.rows),
)
