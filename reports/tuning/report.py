"""`dlbench report tuning`."""

from collections import Counter
from collections.abc import Iterator

from dlbench.reports.report import ALL_RUNS, Report, Source
from dlbench.reports.storage.results import Results
from dlbench.reports.tuning.analysis import Tuning, newest_of, tells, worth_of_settings
from dlbench.reports.tuning.data import tuning_data, tuning_rows
from dlbench.reports.tuning.headline import headline
from dlbench.reports.tuning.words import tuning_page

_ALIKE = 5
"""Of runs that measure the same so many are read at most, for comparisons that the newest has no interval of."""


def _analyse(source: Source) -> Tuning:
    # Pairs lie in one run: the newest run of each cell by itself may have its partner in none.
    parts = [] if source.options.all_runs else [*_of_runs(source)]
    if not any(part.rows for part in parts):
        parts = [_worth(source.results())]
    return newest_of(parts)


def _of_runs(source: Source) -> Iterator[Tuning]:
    """Yield what the runs show that measured pairs, the newest first; none behind a finished one that shows it all."""
    alike: Counter[object] = Counter()
    for run, _ in sorted(source.runs(), key=lambda pair: pair[0].started, reverse=True):
        measures = run.machine, run.plan, run.launches
        if run.sides or not source.narrowing.takes(run) or not tells(run.plan) or alike[measures] >= _ALIKE:
            continue
        found = _worth(source.narrowing.of(source.of_run(run.id)))
        alike[measures] += _ALIKE if run.finished and found.decided else 1
        yield found


def _worth(results: Results) -> Tuning:
    return worth_of_settings(results.records, results.hosts)


REPORT = Report(
    name="tuning",
    summary="""What each setting of the tuned rows is worth here, alone and among the others.

Ratios over pairs of launches with and without it. `dlbench run tuning` measures them. For each comparison the newest
run with enough pairs counts; `--all-runs` takes the pairs of several runs together.""",
    examples=(
        "dlbench report tuning",
        "dlbench report tuning --networks fcn5 --frameworks torch",
        "dlbench report tuning --format markdown",
    ),
    analyse=_analyse,
    page=lambda found, options: tuning_page(found),
    data=tuning_data,
    rows=tuning_rows,
    suggestion="what each setting is worth",
    applies=tells,
    options=frozenset({ALL_RUNS}),
    heading="What each setting is worth",
    place=35,
    headline=headline,
    has_section=lambda found: bool(found.rows),
)
