"""`dlbench report tuning`."""

from collections.abc import Iterator

from dlbench.reports.report import ALL_RUNS, Report, Source
from dlbench.reports.storage.results import Results
from dlbench.reports.tuning.analysis import Tuning, newest_of, tells, worth_of_settings
from dlbench.reports.tuning.data import tuning_data, tuning_rows
from dlbench.reports.tuning.headline import headline
from dlbench.reports.tuning.words import tuning_page


def _analyse(source: Source) -> Tuning:
    # Pairs lie in one run: the newest run of each cell by itself may have its partner in none.
    parts = [source.results()] if source.choices.all_runs else [*_of_runs(source)] or [source.results()]
    return newest_of(worth_of_settings(found.records, found.hosts) for found in parts)


def _of_runs(source: Source) -> Iterator[Results]:
    """Yield the results of the runs that measured pairs, the newest first; of several alike the last finished one."""
    known = set()
    for run, _ in sorted(source.runs(), key=lambda pair: pair[0].started, reverse=True):
        measures = run.plan, run.launches
        if run.purpose == "suite" and source.narrowing.takes(run) and tells(run.plan) and measures not in known:
            yield source.narrowing.of(source.of_run(run.id))
            known |= {measures} if run.finished else set()


REPORT = Report(
    name="tuning",
    summary="""What each setting of the tuned rows is worth here, alone and among the others.

Ratios over pairs of launches with and without it. `dlbench run tuning` measures them. Of each comparison the newest run
with enough pairs counts; `--all-runs` takes the pairs of several runs together.""",
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
