"""`dlbench report tuning`: the worth of each setting, as seconds with it over seconds without it.

Each setting of a row is compared twice: alone (``installed+NAME`` against ``installed``), and among
all others (``tuned`` against ``tuned-NAME``); if two settings do the same work, each helps alone
but adds little among the others. All settings together are ``tuned`` against ``installed``. Launch
settings, in force only where named, are compared with the same cell without them: ``tuned+NAME``
against ``tuned``. A pair is two launches of one run and block, close in time.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import geometric_mean, median
from typing import Any

from dlbench.adapters import axes, tuning
from dlbench.adapters.protocol import INSTALLED, TUNED, Cell, Status
from dlbench.reports.columns import Column, axis_columns, csv_rows, host_columns, objects, table
from dlbench.reports.formats.layout import MISSING, Entry, Page
from dlbench.reports.report import ALL_RUNS, Report, Source
from dlbench.reports.results.disturbance import left_out
from dlbench.reports.results.hosts import Host, name_among
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.naming import (
    counted,
    extra_of_place,
    group_name,
    name_of,
    place_name,
    row_name,
    work_name,
)
from dlbench.reports.results.record import SEARCH, Record, last_attempts
from dlbench.reports.results.results import Results
from dlbench.reports.results.statistics import Ratio, summarise
from dlbench.reports.results.verdict import (
    FEWEST_PAIRS,
    PairedEstimate,
    estimate_data,
    estimate_pairs,
)

NO_WORTH = 0.02
"""A setting whose whole interval lies within this share of 1 is worth nothing."""
FASTER, SLOWER, WORTH_NOTHING, UNKNOWN = "faster", "slower", "worth nothing", "inconclusive"
NOT_TESTED = "not tested"
"""The verdict of too few pairs or networks for an interval."""
FEWEST_NETWORKS = 3
"""For an interval over networks."""
_ALIKE = 5
"""Runs that measure the same are read up to this number: the newest may lack an interval."""
NOTHING = (
    "Nothing was measured both with and without settings in force; `dlbench run tuning` does that."
)
SEARCHED = (
    "A search (`dlbench tune`) favours fast cells, so it cannot show a setting's worth; `dlbench "
    "run tuning` does."
)
_LEGEND = (
    (
        "Ratios are seconds with the setting over seconds without it, medians over pairs of "
        f"launches with 95 % intervals (none below {FEWEST_PAIRS} pairs): below 1 the setting "
        "makes the step faster."
    ),
    (
        "At 95 % confidence about 1 interval in 20 is wrong: with many settings, expect a few "
        "false positives."
    ),
)
_OF_SETTINGS = (
    "alone: without any other setting; among: with all others in force. A setting is worth nothing "
    "where the whole interval lies within 2 % of 1."
)
_OF_MEANS = (
    "Over networks: geometric means, each network once; the interval is Student's t over the "
    f"networks, so that it covers their differences too (none below {FEWEST_NETWORKS} networks)."
)


@dataclass(frozen=True)
class Worth:
    """The worth of one setting, or (without a name, and ``alone`` only) of all settings of a row
    together.

    Below 1 the steps are faster with it. None: not measured in pairs.
    """

    machine: str
    cell: Cell
    """With the usual tuning."""
    setting: str
    alone: PairedEstimate | None
    among: PairedEstimate | None = None

    @property
    def shown(self) -> PairedEstimate | None:
        """The worth among the other settings where that was measured."""
        return self.among or self.alone

    @property
    def verdict(self) -> str:
        """The verdict on it; empty where nothing was measured."""
        return "" if self.shown is None else verdict(self.shown)


@dataclass(frozen=True)
class Tuning:
    """All rows that were measured with settings in force and not, in the order of the axes, all
    together first.
    """

    hosts: Mapping[str, Host]
    worths: tuple[Worth, ...]
    disturbed: int = 0
    """Launches that are left out, since other programs disturbed them."""
    searched: int = 0
    """Launches of searches, which do not show a setting's worth."""

    @property
    def machines(self) -> dict[str, list[Worth]]:
        """The worths by machine."""
        return grouped(self.worths, lambda worth: worth.machine)


def verdict(found: PairedEstimate | Ratio) -> str:
    """Return faster, slower, worth nothing, inconclusive, or not tested: too few pairs."""
    if found.low is None or found.high is None or found.low <= 0:
        return NOT_TESTED
    if found.low >= 1 - NO_WORTH and found.high <= 1 + NO_WORTH:
        return WORTH_NOTHING
    return FASTER if found.high < 1 else SLOWER if found.low > 1 else UNKNOWN


_Times = dict[tuple[int, str, int], float]  # by age of the run, run, and block


def worth_of_settings(
    records: Iterable[Record], hosts: Mapping[str, Host], together: bool = False
) -> Tuning:
    """Return the worth of the settings, of the newest build of each row that has pairs.

    Each comparison takes the newest run with enough pairs for an interval, or else the newest run;
    with ``together`` it takes the pairs of all runs.
    """
    found: dict[tuple[str, Cell], dict[tuple[str, ...], dict[str, _Times]]] = {}
    ages: dict[str, int] = {}
    disturbed = searched = 0
    records = list(records)
    # Rows that have launch settings only; of a row without any one cell says nothing.
    of_launch = {
        each.cell._replace(tuning=TUNED)
        for each in records
        if each.cell.tuning.startswith(f"{TUNED}+")
    }
    for machine, of_machine in grouped(records, lambda record: record.machine).items():
        # The newest first: so are then the builds of a row.
        for record in sorted(
            last_attempts(of_machine), key=lambda record: record.started, reverse=True
        ):
            tunable = tuple(record.outcome.software.get(tuning.TUNABLE, ()))
            cell = record.cell._replace(tuning=TUNED)
            if not (tunable or cell in of_launch):
                continue
            if record.outcome.status is not Status.OK or not record.outcome.samples_ns:
                continue
            if record.side == SEARCH:  # made only because others were fast
                searched += 1
            elif left_out(record, hosts.get(machine)):
                disturbed += 1
            else:
                builds = found.setdefault((machine, cell), {})
                times = builds.setdefault((record.environment, *tunable), {}).setdefault(
                    record.cell.tuning, {}
                )
                age = 0 if together else ages.setdefault(record.run, len(ages))
                times[age, record.run, record.launch] = median(record.outcome.step_seconds())
    worths: list[Worth] = []
    for rows in grouped(found, lambda row: row[0]).values():
        for machine, cell in sorted(rows, key=lambda row: axes.sort_key(row[1])):
            of_builds = (_of_row(machine, cell, *build) for build in found[machine, cell].items())
            worths += next((of for of in of_builds if any(each.verdict for each in of)), [])
    return Tuning(hosts, tuple(worths), disturbed, searched)


def _of_row(
    machine: str, cell: Cell, build: tuple[str, ...], times: Mapping[str, _Times]
) -> list[Worth]:
    """Return the worth of the settings of a build: its environment, and the names of its
    settings.
    """
    names = build[1:]

    def ratio(without: Iterable[str], setting: Iterable[str]) -> PairedEstimate | None:
        before = times.get(tuning.written(set(without), names), {})
        after = times.get(tuning.written({*without, *setting}, names), {})
        newest = None
        for pairs in grouped(sorted(before.keys() & after.keys()), lambda at: at[0]).values():
            estimate = estimate_pairs([before[at] for at in pairs], [after[at] for at in pairs])
            if estimate.low > 0:
                return estimate
            newest = newest or estimate
        return newest

    worths = [Worth(machine, cell, "", ratio((), names) if names else None)]
    for name in names:
        among = ratio(set(names) - {name}, [name]) if len(names) > 1 else None
        worths.append(Worth(machine, cell, name, ratio((), [name]), among))
    of_launch = {name for word in times for name in tuning.in_force(word, names)} - set(names)
    for name in sorted(of_launch):
        # Without settings of the row, `tuned` is as installed.
        worths.append(
            Worth(machine, cell, name, ratio((), [name]), ratio(names, [name]) if names else None)
        )
    return worths


Mean = tuple[str, str, Ratio, int]
"""Of one row over its networks: machine, name, geometric mean of tuned over installed, and number
of networks."""


def over_networks(worths: Iterable[Worth]) -> list[Mean]:
    """Return the mean of each row of each machine that has at least two networks, the smallest
    ratio first.

    The network is the sampling unit: the interval is Student's t over the log-ratios of networks,
    and covers both noise and differences between networks. So it needs no pairs, and is wide where
    networks differ. A network that was measured at several places counts once.
    """
    together = [each for each in worths if not each.setting and each.alone]
    same = ("network", "specification", "batch_size", "threads")
    rows = grouped(together, lambda each: (each.machine, axes.without(each.cell, *same)))
    of_rows = [
        (of, grouped(of, lambda each: (each.cell.network, each.cell.specification)))
        for of in rows.values()
    ]
    several = [(of[0], networks) for of, networks in of_rows if len(networks) > 1]
    names = Counter((first.machine, row_name(first.cell)) for first, _ in several)
    means = []
    for first, networks in several:
        cell, name = first.cell, row_name(first.cell)
        if names[first.machine, name] > 1:
            work = work_name(cell._replace(network="")).strip(", ")
            words = (name, work, "" if cell.on_cpu else cell.device, extra_of_place(cell).strip())
            name = ", ".join(filter(None, words))
        ratios = [
            geometric_mean(each.alone.ratio for each in of if each.alone)
            for of in networks.values()
        ]
        over = summarise([ratio] for ratio in ratios)  # each network as if it were a launch
        ends = (over.low, over.high) if len(ratios) >= FEWEST_NETWORKS else (None, None)
        method = f"geometric mean over {len(ratios)} networks, 95% Student t over their log-ratios"
        means.append(
            (first.machine, name, Ratio(geometric_mean(ratios), *ends, method), len(ratios))
        )
    return sorted(means, key=lambda mean: (mean[0], mean[2].value))


def _names(worths: Iterable[Worth]) -> dict[Cell, str]:
    """Return a unique name for each row: with mini-batch and threads where the network's name does
    not do.
    """
    short = {worth.cell: f"{row_name(worth.cell)}: {worth.cell.network}" for worth in worths}
    known = Counter(short.values())
    return {
        cell: name
        if known[name] == 1
        else f"{row_name(cell)}: {group_name(cell)}, {place_name(cell)}"
        for cell, name in short.items()
    }


# Its tables.


def _shown(found: PairedEstimate | Ratio | None) -> Entry:
    if found is None:
        return Entry(MISSING)
    value = found.ratio if isinstance(found, PairedEstimate) else found.value
    known = found.low is not None and found.high is not None and found.low > 0
    return Entry(f"{value:.3f}", f" ({found.low:.2f}-{found.high:.2f})" if known else "")


def _judged(worth: Worth) -> Entry:
    word = worth.verdict
    of = f"{counted(worth.shown.pairs, 'pair')}, " if worth.shown and word == NOT_TESTED else ""
    return Entry(of + word, hole=word == SLOWER, best=word == FASTER)


_RATIO = ("ratio", "low", "high", "pairs")
_WORTH: tuple[Column[Worth], ...] = (
    Column("setting", "setting", lambda worth: worth.setting or None),
    Column(
        "alone",
        "alone",
        lambda worth: estimate_data(worth.alone),
        lambda worth: _shown(worth.alone),
        _RATIO,
    ),
    Column(
        "among",
        "among",
        lambda worth: estimate_data(worth.among),
        lambda worth: _shown(worth.among),
        _RATIO,
    ),
    Column("verdict", "verdict", lambda worth: worth.verdict or None, _judged),
)


def _settings(found: Tuning) -> tuple[Column[Worth], ...]:
    names = [name for name in axes.NAMES if name != "tuning"]
    return (
        *host_columns(lambda worth: found.hosts[worth.machine]),
        *axis_columns(lambda worth: worth.cell, names),
        *_WORTH,
    )


def _means(found: Tuning) -> tuple[Column[Mean], ...]:
    return (
        *host_columns(lambda mean: found.hosts[mean[0]]),
        Column("row", "row", lambda mean: mean[1]),
        Column("networks", None, lambda mean: mean[3]),
        Column("ratio", "ratio", lambda mean: mean[2].value, lambda mean: _shown(mean[2])),
        Column("low", None, lambda mean: mean[2].low),
        Column("high", None, lambda mean: mean[2].high),
        Column("", "networks", lambda mean: mean[3]),
        Column("verdict", "verdict", lambda mean: verdict(mean[2])),
    )


def _page(found: Tuning) -> Page:
    """Return tables of all settings over networks, of all settings on each, and of each setting."""
    were = "launch was" if found.disturbed == 1 else "launches were"
    disturbed = (
        (f"{found.disturbed} {were} disturbed by other programs and left out.",)
        if found.disturbed
        else ()
    )
    if not found.worths:
        return Page((SEARCHED if found.searched else NOTHING, *disturbed), (), ())
    tables, names = [], _names(found.worths)
    legend = dict.fromkeys(_LEGEND[:1])
    together: tuple[Column[Worth], ...] = (
        Column("", "row", lambda worth: names[worth.cell]),
        Column("", "ratio", lambda worth: _shown(worth.alone)),
        Column("", "pairs", lambda worth: worth.alone.pairs if worth.alone else None),
        Column("", "verdict", lambda worth: worth.verdict or None),
    )
    for machine, worths in found.machines.items():
        where = f", on {name_among(found.hosts, machine)}" if len(found.machines) > 1 else ""
        if means := over_networks(worths):
            tables.append(
                table(_means(found), means, f"Tuned against as installed, over networks{where}")
            )
            legend[_OF_MEANS] = None
        if rows := [worth for worth in worths if not worth.setting and worth.alone]:
            tables.append(table(together, rows, f"Tuned against as installed{where}"))
        if judged := [worth for worth in worths if worth.setting and worth.verdict]:
            tables.append(
                table(_WORTH, judged, f"Each setting{where}", group=lambda worth: names[worth.cell])
            )
            legend[_OF_SETTINGS] = None
    before = (
        [f"On {found.hosts[machine].name}." for machine in found.machines]
        if len(found.machines) == 1
        else []
    )
    return Page((*before, *findings(found)), tuple(tables), (*disturbed, *legend, *_LEGEND[1:]))


def findings(found: Tuning) -> list[str]:
    """Return a sentence for each verdict that some settings have."""
    sentences, names = [], _names(found.worths)
    for machine, worths in found.machines.items():
        where = f" ({name_among(found.hosts, machine)})" if len(found.machines) > 1 else ""
        for said, words in (
            (FASTER, "Faster with"),
            (SLOWER, "Slower with"),
            (WORTH_NOTHING, "Worth nothing"),
        ):
            those = [each for each in worths if each.setting and each.verdict == said]
            on = grouped(those, lambda each: (each.setting, row_name(each.cell)))
            named = [
                (
                    f"{setting} ({row}) on "
                    f"{', '.join(names[each.cell].removeprefix(f'{row}: ') for each in of)}"
                )
                for (setting, row), of in on.items()
            ]
            sentences += [f"{words}{where}: {'; '.join(named)}."] if named else []
    return sentences


def headline(found: Tuning) -> list[str]:
    """Return for each machine the significant effects of all settings over networks, and the
    largest effect.
    """
    lines = []
    for machine, worths in found.machines.items():
        on = name_among(found.hosts, machine)
        means = over_networks(worths)
        faster = [
            f"{name} {each.value:.2f} ({each.low:.2f} to {each.high:.2f})"
            for _, name, each, _ in means
            if verdict(each) == FASTER
        ]
        others = len(means) - len(faster)
        rest = f"; {counted(others, 'other row')} inconclusive" if others else ""
        if faster:
            over = "tuned over installed, geometric mean over networks with Student's t over them"
            lines.append(f"{on}: {over}: {', '.join(faster)}{rest}.")
        compared = [(each.alone, each.cell) for each in worths if not each.setting and each.alone]
        helped = sorted(
            (each for each in compared if verdict(each[0]) == FASTER),
            key=lambda each: each[0].ratio,
        )
        for most, cell in helped[:1]:
            lines.append(
                f"{on}: tuning makes {len(helped)} of {len(compared)} rows faster, {name_of(cell)} "
                f"most of all, to {most.ratio:.2f} of its time as installed ({most.low:.2f} to "
                f"{most.high:.2f}, {most.pairs} pairs)."
            )
    return lines


def _analyse(source: Source) -> Tuning:
    # Pairs lie in one run: the newest run of each cell by itself may lack its partner.
    parts = [] if source.options.all_runs else [*_of_runs(source)]
    hosts = {name: host for part in parts for name, host in part.hosts.items()}
    found = worth_of_settings((record for part in parts for record in part.records), hosts)
    if found.worths:
        return found
    results = source.results()
    return worth_of_settings(results.records, results.hosts, together=True)


def _of_runs(source: Source) -> Iterator[Results]:
    """Yield the results of runs that measured pairs, the newest first, of those that measured the
    same at most 5.
    """
    alike: Counter[object] = Counter()
    for run, _ in sorted(source.runs(), key=lambda pair: pair[0].started, reverse=True):
        measures = run.machine, run.plan, run.launches
        if (
            not run.sides
            and source.narrowing.takes(run)
            and applies(run.plan)
            and alike[measures] < _ALIKE
        ):
            alike[measures] += 1
            yield source.narrowing.of(source.of_run(run.id))


def applies(cells: Iterable[Cell]) -> bool:
    """Tell whether these cells show the worth of any setting."""
    words: dict[Cell, set[str]] = {}
    for cell in cells:
        words.setdefault(cell._replace(tuning=TUNED), set()).add(cell.tuning)
    return any(len(found) > 1 and found & {INSTALLED, TUNED} for found in words.values())


def _data(found: Tuning) -> dict[str, Any]:
    return {
        "settings": objects(_settings(found), found.worths),
        "over_networks": objects(_means(found), over_networks(found.worths)),
    }


REPORT = Report(
    name="tuning",
    summary="""What each setting of the tuned rows is worth here, on its own and combined with the
others.

Ratios over pairs of launches with and without it. `dlbench run tuning` measures them (launch
settings, such as other allocators, with `--tuning launch`). For each comparison the newest run with
enough pairs counts; `--all-runs` takes the pairs of several runs together.""",
    examples=(
        "dlbench report tuning",
        "dlbench report tuning --networks fcn5 --frameworks torch",
        "dlbench report tuning --format markdown",
    ),
    analyse=_analyse,
    page=lambda found, options: _page(found),
    data=_data,
    rows=lambda found: csv_rows(_settings(found), found.worths),
    suggestion="what each setting is worth",
    applies=applies,
    options=frozenset({ALL_RUNS}),
    heading="What each setting is worth",
    place=35,
    headline=headline,
    has_section=lambda found: bool(found.worths),
)
