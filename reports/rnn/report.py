"""`dlbench report rnn`."""

from dataclasses import replace

from dlbench.reports.published import BRANDFONBRENER2017, networks_of_2017
from dlbench.reports.published import study as published_study
from dlbench.reports.report import ALL_RUNS, REFERENCE, Report, Source
from dlbench.reports.rnn.analysis import Study, study
from dlbench.reports.rnn.data import rnn_data, rnn_rows
from dlbench.reports.rnn.lines import FAMILY
from dlbench.reports.rnn.tables import QUANTITIES, rnn_page
from dlbench.reports.storage.networks import networks_of


def published() -> Study:
    """Return the study of 2017 without its first trials, which its author calls strangely long."""
    return study(published_study(BRANDFONBRENER2017).matrix(first=False), networks_of_2017())


def _analyse(source: Source) -> Study:
    reference = source.options.reference
    if reference == BRANDFONBRENER2017:
        return published()
    found = study(source.matrix(), {} if reference else networks_of(source.results().records))
    return replace(found, beside=published()) if source.options.against else found


REPORT = Report(
    name="rnn",
    summary="""Small recurrent networks, one example an update: time by units and time steps.

Five tables: the times; T = c + s n_steps; growth with the units, and from how many on more threads pay; from how many
units on one device, machine or thread count is faster than another; rows compared.""",
    examples=(
        "dlbench report rnn",
        "dlbench report rnn --quantity paper --against brandfonbrener2017",
        "dlbench report rnn --reference brandfonbrener2017",
    ),
    analyse=_analyse,
    page=lambda found, options: rnn_page(found, options.quantity),
    data=rnn_data,
    rows=rnn_rows,
    suggestion="small recurrent networks: time by units and steps, when threads pay",
    applies=bool,
    options=frozenset({REFERENCE, ALL_RUNS}),
    published=(BRANDFONBRENER2017,),
    families=frozenset({FAMILY}),
    quantities=tuple(QUANTITIES),
    heading="Small recurrent networks",
    place=70,
)
