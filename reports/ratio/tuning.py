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
from dlbench.reports.report import ALL_RUNS, Report, ReportSource
from dlbench.reports.results.disturbance import left_out
from dlbench.reports.results.hosts import Host, name_among
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.naming import (
    counted,
    extra_of_place,
    name_of,
    network_name,
    place_name,
    row_name,
    work_name,
)
from dlbench.reports.results.record import SEARCH, Record, last_attempts
from dlbench.reports.results.results import Results
from dlbench.reports.results.statistics import Estimate, RatioVerdict, judge_ratio, summarise
from dlbench.reports.results.verdict import (
    FEWEST_PAIRS,
    PairedEstimate,
    estimate_data,
    estimate_pairs,
)

NOT_TESTED = "not tested"
"""The verdict of too few pairs or networks for an interval."""
FEWEST_NETWORKS = 3
"""For an interval over networks."""
_ALIKE = 5
"""Of runs that measure the same so many are read: the newest may lack an interval."""
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
    "alone: without any other setting; among: with all others in force; same: the whole interval "
    "lies within 2 % of 1."
)
_OF_MEANS = (
    "Over networks: geometric means, each network once; the interval is Student's t over the "
    f"networks, so that it covers their differences too (none below {FEWEST_NETWORKS} networks)."
)


@dataclass(frozen=True)
class Worth:
    """The worth of one setting, or of all settings of a row together.

    The latter has no name, and ``alone`` only. Below 1 the steps are faster with it. None: not
    measured in pairs.
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
    """All rows that were measured both with and without settings in force.

    They are in the order of the axes, all settings together first.
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


def verdict(worth: Estimate) -> str:
    """Return a `RatioVerdict`, or `NOT_TESTED` for too few pairs."""
    return NOT_TESTED if worth.low is None else judge_ratio(worth)


_Times = dict[tuple[int, str, int], float]
"""Median seconds of a step by age of the run, run, and block."""
_TimesOfBuild = dict[str, _Times]
"""Times by tuning."""
_Build = tuple[str, ...]
"""An environment, and the names of its settings."""


def worth_of_settings(
    records: Iterable[Record], hosts: Mapping[str, Host], together: bool = False
) -> Tuning:
    """Return the worth of the settings, of the newest build of each row that has pairs.

    Each comparison takes the newest run with enough pairs for an interval, or else the newest run;
    with ``together`` it takes the pairs of all runs.
    """
    records = list(records)
    # Rows that have launch settings only. One cell of a row without any says nothing.
    rows_with_launch_settings = set()
    for record in records:
        if record.cell.tuning.startswith(f"{TUNED}+"):
            rows_with_launch_settings.add(record.cell._replace(tuning=TUNED))
    times: dict[tuple[str, Cell], dict[_Build, _TimesOfBuild]] = {}
    ages: dict[str, int] = {}
    disturbed = 0
    searched = 0
    for record in _newest_first(records):
        settings = tuple(record.outcome.facts.tunable or ())
        cell = record.cell._replace(tuning=TUNED)
        if not settings and cell not in rows_with_launch_settings:
            continue
        if record.outcome.status is not Status.OK or not record.outcome.samples_ns:
            continue
        if record.side == SEARCH:  # made only because others were fast
            searched += 1
        elif left_out(record, hosts.get(record.machine)):
            disturbed += 1
        else:
            times_by_build = times.setdefault((record.machine, cell), {})
            times_of_build = times_by_build.setdefault((record.environment, *settings), {})
            age = 0 if together else ages.setdefault(record.run, len(ages))
            times_of_tuning = times_of_build.setdefault(record.cell.tuning, {})
            seconds = median(record.outcome.step_seconds())
            times_of_tuning[age, record.run, record.launch] = seconds
    worths: list[Worth] = []
    for rows in grouped(times, lambda row: row[0]).values():
        for machine, cell in sorted(rows, key=lambda row: axes.sort_key(row[1])):
            worths += _worths_of_row(machine, cell, times[machine, cell])
    return Tuning(hosts, tuple(worths), disturbed, searched)


def _newest_first(records: Iterable[Record]) -> Iterator[Record]:
    """Yield the last attempts of each machine, the newest first.

    The builds of a row then come in the same order.
    """
    for records_of_machine in grouped(records, lambda record: record.machine).values():
        attempts = last_attempts(records_of_machine)
        yield from sorted(attempts, key=lambda record: record.started, reverse=True)


def _worths_of_row(
    machine: str, cell: Cell, times_by_build: Mapping[_Build, _TimesOfBuild]
) -> list[Worth]:
    """Return the worth of the settings of the newest build that has pairs."""
    for build, times in times_by_build.items():
        worths = _worths_of_build(machine, cell, build, times)
        if any(worth.verdict for worth in worths):
            return worths
    return []


def _worths_of_build(machine: str, cell: Cell, build: _Build, times: _TimesOfBuild) -> list[Worth]:
    """Return the worth of the settings of a build."""
    names = build[1:]

    def ratio(without: Iterable[str], setting: Iterable[str]) -> PairedEstimate | None:
        before = times.get(tuning.written(set(without), names), {})
        after = times.get(tuning.written({*without, *setting}, names), {})
        common = sorted(before.keys() & after.keys())
        newest = None
        for pairs in grouped(common, lambda key: key[0]).values():
            seconds_before = [before[key] for key in pairs]
            seconds_after = [after[key] for key in pairs]
            estimate = estimate_pairs(seconds_before, seconds_after)
            if estimate.low is not None:
                return estimate
            newest = newest or estimate
        return newest

    together = ratio((), names) if names else None
    worths = [Worth(machine, cell, "", together)]
    for name in names:
        among = ratio(set(names) - {name}, [name]) if len(names) > 1 else None
        worths.append(Worth(machine, cell, name, ratio((), [name]), among))
    in_force: set[str] = set()
    for word in times:
        in_force.update(tuning.in_force(word, names))
    for name in sorted(in_force - set(names)):
        # Without settings of the row, `tuned` is as installed.
        among = ratio(names, [name]) if names else None
        worths.append(Worth(machine, cell, name, ratio((), [name]), among))
    return worths


Mean = tuple[str, str, Estimate, int]
"""Of one row over its networks: machine, name, geometric mean of tuned over installed, and number
of networks."""


def over_networks(worths: Iterable[Worth]) -> list[Mean]:
    """Return the means of rows with at least two networks on a machine, the smallest ratio first.

    The network is the sampling unit: the interval is Student's t over the log-ratios of networks,
    and covers both noise and differences between networks. So it needs no pairs, and is wide where
    networks differ. A network that was measured at several places counts once.
    """
    together = [worth for worth in worths if not worth.setting and worth.alone]
    same = ("network", "specification", "batch_size", "threads")
    rows = grouped(together, lambda worth: (worth.machine, axes.without(worth.cell, *same)))
    several = []
    names: Counter[tuple[str, str]] = Counter()
    for worths_of_row in rows.values():
        networks = grouped(
            worths_of_row, lambda worth: (worth.cell.network, worth.cell.specification)
        )
        if len(networks) > 1:
            first = worths_of_row[0]
            several.append((first, networks))
            names[first.machine, row_name(first.cell)] += 1
    means = []
    for first, networks in several:
        name = row_name(first.cell)
        if names[first.machine, name] > 1:
            name = _long_name(first.cell)
        ratios = []
        for worths_of_network in networks.values():
            values = [worth.alone.value for worth in worths_of_network if worth.alone]
            ratios.append(geometric_mean(values))
        low = high = None
        if len(ratios) >= FEWEST_NETWORKS:
            summary = summarise([ratio] for ratio in ratios)  # each network as if it were a launch
            low, high = summary.low, summary.high
        method = f"geometric mean over {len(ratios)} networks, 95% Student t over their log-ratios"
        mean = Estimate(geometric_mean(ratios), low, high, method)
        means.append((first.machine, name, mean, len(ratios)))
    return sorted(means, key=lambda mean: (mean[0], mean[2].value))


def _long_name(cell: Cell) -> str:
    """Return the name of a row with its mini-batch, device and unusual axes, without a network."""
    work = network_name(cell._replace(network="")).strip(", ")
    device = "" if cell.on_cpu else cell.device
    words = (row_name(cell), work, device, extra_of_place(cell).strip())
    return ", ".join(filter(None, words))


def _names(worths: Iterable[Worth]) -> dict[Cell, str]:
    """Return a unique name for each row.

    It holds mini-batch and threads where the network's name alone is not unique.
    """
    names = {worth.cell: f"{row_name(worth.cell)}: {worth.cell.network}" for worth in worths}
    counts = Counter(names.values())
    for cell, name in names.items():
        if counts[name] > 1:
            names[cell] = f"{row_name(cell)}: {work_name(cell)}, {place_name(cell)}"
    return names


# Its tables.


def _ratio_entry(worth: Estimate | None) -> Entry:
    if worth is None:
        return Entry(MISSING)
    ends = ""
    if worth.low is not None and worth.high is not None:
        ends = f" ({worth.low:.2f}-{worth.high:.2f})"
    return Entry(f"{worth.value:.3f}", ends)


def _verdict_entry(worth: Worth) -> Entry:
    text = worth.verdict
    if worth.shown and worth.verdict == NOT_TESTED:
        text = f"{counted(worth.shown.pairs, 'pair')}, {text}"
    return Entry(
        text, hole=worth.verdict == RatioVerdict.SLOWER, best=worth.verdict == RatioVerdict.FASTER
    )


_RATIO = ("ratio", "low", "high", "pairs")
_WORTH: tuple[Column[Worth], ...] = (
    Column("setting", "setting", lambda worth: worth.setting or None),
    Column(
        "alone",
        "alone",
        lambda worth: estimate_data(worth.alone),
        lambda worth: _ratio_entry(worth.alone),
        _RATIO,
    ),
    Column(
        "among",
        "among",
        lambda worth: estimate_data(worth.among),
        lambda worth: _ratio_entry(worth.among),
        _RATIO,
    ),
    Column("verdict", "verdict", lambda worth: worth.verdict or None, _verdict_entry),
)


def _setting_columns(analysis: Tuning) -> tuple[Column[Worth], ...]:
    names = [name for name in axes.NAMES if name != "tuning"]
    return (
        *host_columns(lambda worth: analysis.hosts[worth.machine]),
        *axis_columns(lambda worth: worth.cell, names),
        *_WORTH,
    )


def _mean_columns(analysis: Tuning) -> tuple[Column[Mean], ...]:
    return (
        *host_columns(lambda mean: analysis.hosts[mean[0]]),
        Column("row", "row", lambda mean: mean[1]),
        Column("networks", None, lambda mean: mean[3]),
        Column("ratio", "ratio", lambda mean: mean[2].value, lambda mean: _ratio_entry(mean[2])),
        Column("low", None, lambda mean: mean[2].low),
        Column("high", None, lambda mean: mean[2].high),
        Column("", "networks", lambda mean: mean[3]),
        Column("verdict", "verdict", lambda mean: verdict(mean[2])),
    )


def _pairs_alone(worth: Worth) -> int | None:
    return worth.alone.pairs if worth.alone else None


def _page(analysis: Tuning) -> Page:
    """Return tables of all settings over networks, of all settings on each, and of each setting."""
    disturbed: list[str] = []
    if analysis.disturbed:
        were = "launch was" if analysis.disturbed == 1 else "launches were"
        disturbed = [f"{analysis.disturbed} {were} disturbed by other programs and left out."]
    if not analysis.worths:
        nothing = SEARCHED if analysis.searched else NOTHING
        return Page((nothing, *disturbed), (), ())
    names = _names(analysis.worths)
    together: tuple[Column[Worth], ...] = (
        Column("", "row", lambda worth: names[worth.cell]),
        Column("", "ratio", lambda worth: _ratio_entry(worth.alone)),
        Column("", "pairs", _pairs_alone),
        Column("", "verdict", lambda worth: worth.verdict or None),
    )
    tables = []
    legend = dict.fromkeys(_LEGEND[:1])
    for machine, worths in analysis.machines.items():
        where = ""
        if len(analysis.machines) > 1:
            where = f", on {name_among(analysis.hosts, machine)}"
        means = over_networks(worths)
        if means:
            title = f"Tuned against as installed, over networks{where}"
            tables.append(table(_mean_columns(analysis), means, title))
            legend[_OF_MEANS] = None
        rows = [worth for worth in worths if not worth.setting and worth.alone]
        if rows:
            tables.append(table(together, rows, f"Tuned against as installed{where}"))
        judged = [worth for worth in worths if worth.setting and worth.verdict]
        if judged:
            title = f"Each setting{where}"
            tables.append(table(_WORTH, judged, title, section=lambda worth: names[worth.cell]))
            legend[_OF_SETTINGS] = None
    before = findings(analysis)
    if len(analysis.machines) == 1:
        (machine,) = analysis.machines
        before = [f"On {analysis.hosts[machine].name}.", *before]
    return Page(tuple(before), tuple(tables), (*disturbed, *legend, *_LEGEND[1:]))


def findings(analysis: Tuning) -> list[str]:
    """Return a sentence for each verdict that some settings have."""
    sentences = []
    names = _names(analysis.worths)
    openings = {
        RatioVerdict.FASTER: "Faster with",
        RatioVerdict.SLOWER: "Slower with",
        RatioVerdict.SAME: "The same with",
    }
    for machine, worths in analysis.machines.items():
        where = ""
        if len(analysis.machines) > 1:
            where = f" ({name_among(analysis.hosts, machine)})"
        for outcome, opening in openings.items():
            judged = [worth for worth in worths if worth.setting and worth.verdict == outcome]
            clauses = []
            by_row = grouped(judged, lambda worth: (worth.setting, row_name(worth.cell)))
            for (setting, row), worths_of_row in by_row.items():
                networks = [names[worth.cell].removeprefix(f"{row}: ") for worth in worths_of_row]
                clauses.append(f"{setting} ({row}) on {', '.join(networks)}")
            if clauses:
                sentences.append(f"{opening}{where}: {'; '.join(clauses)}.")
    return sentences


def headline(analysis: Tuning) -> list[str]:
    """Return the significant effects of all settings over networks, and the largest effect.

    Both are given for each machine.
    """
    lines = []
    for machine, worths in analysis.machines.items():
        name = name_among(analysis.hosts, machine)
        means = over_networks(worths)
        faster = []
        for _, row, ratio, _ in means:
            if verdict(ratio) == RatioVerdict.FASTER:
                faster.append(f"{row} {ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})")
        others = len(means) - len(faster)
        rest = ""
        if others:
            rest = f"; {counted(others, 'other row')} not faster"
        if faster:
            mean = "tuned over installed, geometric mean over networks with Student's t over them"
            lines.append(f"{name}: {mean}: {', '.join(faster)}{rest}.")
        compared = 0
        helped = []
        for worth in worths:
            if not worth.setting and worth.alone:
                compared += 1
                if verdict(worth.alone) == RatioVerdict.FASTER:
                    helped.append((worth.alone, worth.cell))
        if helped:
            most, cell = min(helped, key=lambda row: row[0].value)
            lines.append(
                f"{name}: tuning makes {len(helped)} of {compared} rows faster, "
                f"{name_of(cell)} most of all, to {most.value:.2f} of its time as installed "
                f"({most.low:.2f} to {most.high:.2f}, {most.pairs} pairs)."
            )
    return lines


def _analyse(source: ReportSource) -> Tuning:
    # Pairs lie in one run: the newest run of each cell by itself may lack its partner.
    hosts: dict[str, Host] = {}
    records: list[Record] = []
    if not source.options.all_runs:
        for results_of_run in _results_of_runs(source):
            hosts |= results_of_run.hosts
            records += results_of_run.records
    analysis = worth_of_settings(records, hosts)
    if analysis.worths:
        return analysis
    results = source.results()
    return worth_of_settings(results.records, results.hosts, together=True)


def _results_of_runs(source: ReportSource) -> Iterator[Results]:
    """Yield the results of runs that measured pairs, the newest first.

    Of those that measured the same, 5 at most.
    """
    alike: Counter[object] = Counter()
    for run, _ in sorted(source.runs(), key=lambda pair: pair[0].started, reverse=True):
        if run.sides or not source.narrowing.takes(run) or not applies(run.plan):
            continue
        measures = (run.machine, run.plan, run.launches)
        if alike[measures] < _ALIKE:
            alike[measures] += 1
            yield source.narrowing.of(source.of_run(run.id))


def applies(cells: Iterable[Cell]) -> bool:
    """Return whether these cells show the worth of any setting."""
    tunings: dict[Cell, set[str]] = {}
    for cell in cells:
        tunings.setdefault(cell._replace(tuning=TUNED), set()).add(cell.tuning)
    return any(len(words) > 1 and words & {INSTALLED, TUNED} for words in tunings.values())


def _data(analysis: Tuning) -> dict[str, Any]:
    return {
        "settings": objects(_setting_columns(analysis), analysis.worths),
        "over_networks": objects(_mean_columns(analysis), over_networks(analysis.worths)),
    }


REPORT = Report(
    name="tuning",
    summary="""The gain from each setting on this machine, alone and together.

Ratios over pairs of launches with and without it. `dlbench run tuning` measures them (launch
settings, such as other allocators, with `--tuning launch`). For each comparison the newest run with
enough pairs counts; `--all-runs` takes the pairs of several runs together.""",
    examples=(
        "dlbench report tuning",
        "dlbench report tuning --networks fcn5 --frameworks torch",
        "dlbench report tuning --format markdown",
    ),
    analyse=_analyse,
    page=lambda analysis, options: _page(analysis),
    data=_data,
    rows=lambda analysis: csv_rows(_setting_columns(analysis), analysis.worths),
    suggestion="what each setting is worth",
    applies=applies,
    options=frozenset({ALL_RUNS}),
    heading="What each setting is worth",
    place=35,
    headline=headline,
    has_section=lambda analysis: bool(analysis.worths),
)
