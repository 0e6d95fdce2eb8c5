"""`dlbench report tuning`: the worth of each setting, as seconds with it over seconds without it.

A row's settings are compared twice: alone (``installed+NAME`` against ``installed``), and among all others (``tuned``
against ``tuned-NAME``); of two that do the same work, each helps alone and little among the others. All of them
together are ``tuned`` against ``installed``. A pair is two launches of one run and block, neighbours in time.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median
from typing import Any

from dlbench.adapters import axes, tuning
from dlbench.adapters.protocol import INSTALLED, TUNED, Cell, Status
from dlbench.reports.columns import Column, axis_columns, csv_rows, objects, table
from dlbench.reports.compare.verdict import FEWEST_PAIRS, PairedEstimate, estimate_pairs
from dlbench.reports.disturbance import left_out
from dlbench.reports.formats.layout import MISSING, Entry, Page
from dlbench.reports.naming import extra_of_place, group_name, name_of, place_name, row_name, work_name
from dlbench.reports.ratio.pairs import counted, machine_columns
from dlbench.reports.report import ALL_RUNS, Report, Source
from dlbench.reports.statistics import Ratio, summarise
from dlbench.reports.storage.hosts import Host, name_among
from dlbench.reports.storage.record import SEARCH, Record, last_attempts
from dlbench.reports.storage.results import Results

NO_WORTH = 0.02
"""A setting whose whole interval lies within this share of 1 is worth nothing."""
FASTER, SLOWER, WORTH_NOTHING, UNKNOWN = "faster", "slower", "worth nothing", "cannot be told"
NOT_TESTED = "not tested"
"""The verdict of too few pairs or networks for an interval."""
FEWEST_NETWORKS = 3
"""For an interval over networks."""
_ALIKE = 5
"""Runs that measure the same are read up to this number, for comparisons without an interval in the newest."""
NOTHING = "Nothing was measured both with settings in force and without; `dlbench run tuning` does it."
SEARCHED = (
    "A search (`dlbench tune`) launches what is fast, not what shows a setting's worth; `dlbench run tuning` does."
)
_LEGEND = (
    "Ratios are seconds with the setting over seconds without it, medians over pairs of launches with 95 % intervals "
    f"(none below {FEWEST_PAIRS} pairs): below 1 the setting makes the step faster.",
    "At 95 % confidence about 1 interval in 20 is wrong: with many settings, expect a few false positives.",
)
_OF_SETTINGS = (
    "alone: against nothing in force; among: against all others in force. A setting is worth nothing where the whole "
    "interval lies within 2 % of 1."
)
_OF_MEANS = (
    "Over networks: geometric means, each network once; the interval is Student's t over the networks, so that it "
    f"covers their differences too (none below {FEWEST_NETWORKS} networks)."
)


@dataclass(frozen=True)
class Worth:
    """The worth of one setting, or (without a name, and ``alone`` only) of all settings together.

    Below 1 the steps are faster with it. None: not measured in pairs.
    """

    setting: str
    alone: PairedEstimate | None
    among: PairedEstimate | None

    @property
    def verdict(self) -> str:
        """The verdict among the other settings where that was measured; empty where nothing was."""
        found = self.among or self.alone
        return "" if found is None else verdict(found)


@dataclass(frozen=True)
class Row:
    """A row on a network, at one place, with the worth of its settings."""

    machine: str
    cell: Cell
    """With the usual tuning."""
    build: tuple[str, ...]
    """Its environment, and the names of its settings: other values are another row."""
    together: Worth
    settings: tuple[Worth, ...]

    @property
    def estimates(self) -> tuple[PairedEstimate, ...]:
        """All its estimates."""
        worths = (self.together, *self.settings)
        return tuple(found for worth in worths for found in (worth.alone, worth.among) if found is not None)


@dataclass(frozen=True)
class Mean:
    """One row over its networks."""

    machine: str
    cell: Cell
    """Its first; only the axes in the row's name are common to all."""
    ratio: Ratio
    """Geometric mean of tuned over installed; a network that was measured at several places counts once."""
    networks: int

    @property
    def verdict(self) -> str:
        """The verdict over networks."""
        return verdict(self.ratio) if self.ratio.low is not None else NOT_TESTED


@dataclass(frozen=True)
class Tuning:
    """All rows that were measured with settings in force and not, in the order of the axes."""

    hosts: Mapping[str, Host]
    rows: tuple[Row, ...]
    disturbed: int = 0
    """Launches that are left out, since other programs disturbed them."""
    searched: int = 0
    """Launches of searches, which do not show a setting's worth."""

    @property
    def decided(self) -> bool:
        """Whether every comparison of it has an interval."""
        return all(each.low > 0 for row in self.rows for each in row.estimates)


def verdict(found: PairedEstimate | Ratio) -> str:
    """Return faster, slower, worth nothing, that it cannot be told, or that too few pairs were made to test it."""
    if isinstance(found, PairedEstimate) and found.low <= 0:
        return NOT_TESTED
    if found.low is None or found.high is None:
        return UNKNOWN
    if found.low >= 1 - NO_WORTH and found.high <= 1 + NO_WORTH:
        return WORTH_NOTHING
    return FASTER if found.high < 1 else SLOWER if found.low > 1 else UNKNOWN


_Times = dict[tuple[str, int], float]  # by run and block
_Group = tuple[str, Cell, tuple[str, ...]]  # machine, cell whatever its tuning, build


def worth_of_settings(records: Iterable[Record], hosts: Mapping[str, Host]) -> Tuning:
    """Return the worth of the settings, of the newest environment of each row."""
    found: dict[_Group, dict[str, _Times]] = {}
    newest: dict[tuple[str, Cell], tuple[datetime, tuple[str, ...]]] = {}
    by_machine: dict[str, list[Record]] = {}
    disturbed = searched = 0
    for record in records:
        by_machine.setdefault(record.machine, []).append(record)
    for machine, of_machine in by_machine.items():
        host = hosts.get(machine)
        for record in last_attempts(of_machine):
            tunable = tuple(record.outcome.software.get(tuning.TUNABLE, ()))
            if not tunable or record.outcome.status is not Status.OK or not record.outcome.samples_ns:
                continue
            if record.side == SEARCH:  # made only because others were fast
                searched += 1
                continue
            if left_out(record, host):
                disturbed += 1
                continue
            cell = record.cell._replace(tuning=TUNED)
            group = (machine, cell, (record.environment, *tunable))
            newest[machine, cell] = max(newest.get((machine, cell), (record.started, ())), (record.started, group[2]))
            times = found.setdefault(group, {}).setdefault(record.cell.tuning, {})
            times[record.run, record.launch] = median(record.outcome.step_seconds())
    rows = (_row(machine, cell, build, found[machine, cell, build]) for (machine, cell), (_, build) in newest.items())
    shown = (row for row in rows if row.together.alone or any(each.verdict for each in row.settings))
    return Tuning(hosts, _in_order(shown, list(by_machine)), disturbed, searched)


def newest_of(parts: Iterable[Tuning]) -> Tuning:
    """Join the results of several runs, the newest first.

    For each comparison of a row the newest estimate counts that has an interval, else the newest; only those of the
    build with which the row's pairs were last measured.
    """
    hosts: dict[str, Host] = {}
    rows: dict[tuple[str, Cell], Row] = {}
    parts = list(parts)
    for part in parts:
        for row in part.rows:
            hosts.setdefault(row.machine, part.hosts[row.machine])
            known = rows.setdefault((row.machine, row.cell), row)
            if known is not row and known.build == row.build:
                settings = map(_newer, known.settings, row.settings)
                together = _newer(known.together, row.together)
                rows[row.machine, row.cell] = replace(known, together=together, settings=tuple(settings))
    used = {id(each) for row in rows.values() for each in row.estimates}
    of_use = [part for part in parts if any(id(each) in used for row in part.rows for each in row.estimates)]
    counts = (sum(each) for each in zip(*((part.disturbed, part.searched) for part in of_use or parts), strict=True))
    return Tuning(hosts, _in_order(rows.values(), list(hosts)), *counts)


def _newer(new: Worth, old: Worth) -> Worth:
    def one(new: PairedEstimate | None, old: PairedEstimate | None) -> PairedEstimate | None:
        keeps = new is not None and (new.low > 0 or old is None or old.low == 0)
        return new if keeps else old

    return replace(new, alone=one(new.alone, old.alone), among=one(new.among, old.among))


def _in_order(rows: Iterable[Row], machines: list[str]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: (machines.index(row.machine), axes.sort_key(row.cell))))


def _row(machine: str, cell: Cell, build: tuple[str, ...], times: Mapping[str, _Times]) -> Row:
    names = build[1:]

    def ratio(without: Iterable[str], setting: Iterable[str]) -> PairedEstimate | None:
        before = times.get(tuning.written(set(without), names), {})
        after = times.get(tuning.written({*without, *setting}, names), {})
        pairs = sorted(before.keys() & after.keys())
        return estimate_pairs([before[each] for each in pairs], [after[each] for each in pairs]) if pairs else None

    def among(name: str) -> PairedEstimate | None:
        return ratio(set(names) - {name}, [name]) if len(names) > 1 else None

    settings = (Worth(name, ratio((), [name]), among(name)) for name in names)
    return Row(machine, cell, build, Worth("", ratio((), names), None), tuple(settings))


def over_networks(rows: Sequence[Row]) -> list[Mean]:
    """Return the mean of each row of each machine that has two networks at least, the least ratio first.

    The networks are the unit: the interval is Student's t over their log-ratios, and covers noise as well as that a
    setting is worth more to one network than to another. So it needs no pairs, and is wide where networks differ.
    """
    found: dict[tuple[str, Cell], dict[tuple[str, str], list[float]]] = {}
    first: dict[tuple[str, Cell], Cell] = {}
    for row in rows:
        if row.together.alone:
            key = row.machine, row.cell._replace(network="", specification="", batch_size=1, threads=1)
            first.setdefault(key, row.cell)
            networks = found.setdefault(key, {})
            networks.setdefault((row.cell.network, row.cell.specification), []).append(
                math.log(row.together.alone.ratio)
            )
    means = [_mean(key[0], first[key], networks) for key, networks in found.items() if len(networks) > 1]
    return sorted(means, key=lambda each: (each.machine, each.ratio.value))


def _mean(machine: str, cell: Cell, logs: Mapping[tuple[str, str], list[float]]) -> Mean:
    networks = [math.exp(math.fsum(each) / len(each)) for each in logs.values()]
    over = summarise([network] for network in networks)  # each network as if it were a launch
    value = math.exp(math.fsum(map(math.log, networks)) / len(networks))
    ends = (over.low, over.high) if len(networks) >= FEWEST_NETWORKS else (None, None)
    method = f"geometric mean over {len(networks)} networks, 95% Student t over their log-ratios"
    return Mean(machine, cell, Ratio(value, *ends, method), len(networks))


def names_of_means(means: Sequence[Mean]) -> dict[Mean, str]:
    """Return a name for each mean: with its work and device where those of a machine share a name."""
    rows = Counter((each.machine, row_name(each.cell)) for each in means)

    def name(machine: str, cell: Cell) -> str:
        if rows[machine, row_name(cell)] == 1:
            return row_name(cell)
        work = work_name(cell._replace(network="")).strip(", ")
        words = (row_name(cell), work, "" if cell.on_cpu else cell.device, extra_of_place(cell).strip())
        return ", ".join(filter(None, words))

    return {each: name(each.machine, each.cell) for each in means}


def _names(rows: Sequence[Row]) -> dict[Row, str]:
    """Return a unique name for each row: with threads and mini-batch where the network alone does not make it so."""
    forms: tuple[Callable[[Cell], str], ...] = (
        lambda cell: f"{row_name(cell)}: {cell.network}",
        lambda cell: f"{row_name(cell)}: {cell.network}, {place_name(cell)}",
        lambda cell: f"{row_name(cell)}: {group_name(cell)}, {place_name(cell)}",
    )
    known = [Counter(form(row.cell) for row in rows) for form in forms]
    return {
        row: next(
            (form(row.cell) for form, names in zip(forms, known, strict=True) if names[form(row.cell)] == 1),
            forms[-1](row.cell),
        )
        for row in rows
    }


# Its tables.


def of_estimate(found: PairedEstimate | None) -> dict[str, Any] | None:
    """Return an estimate as plain JSON types; too few pairs have null for the ends of an interval."""
    if found is None:
        return None
    low, high = (found.low, found.high) if found.low > 0 else (None, None)
    return {"ratio": found.ratio, "low": low, "high": high, "pairs": found.pairs}


def _shown(found: PairedEstimate | Ratio | None) -> Entry:
    if found is None:
        return Entry(MISSING)
    value = found.ratio if isinstance(found, PairedEstimate) else found.value
    known = found.low is not None and found.high is not None and found.low > 0
    return Entry(f"{value:.3f}", f" ({found.low:.2f}-{found.high:.2f})" if known else "")


_RATIO = ("ratio", "low", "high", "pairs")
_WORTH: tuple[Column[tuple[Row, Worth]], ...] = (
    Column("setting", "setting", lambda line: line[1].setting or None),
    Column("alone", "alone", lambda line: of_estimate(line[1].alone), lambda line: _shown(line[1].alone), _RATIO),
    Column("among", "among", lambda line: of_estimate(line[1].among), lambda line: _shown(line[1].among), _RATIO),
    Column("verdict", "verdict", lambda line: line[1].verdict or None, lambda line: _judged(line[1])),
)


def _judged(worth: Worth) -> Entry:
    found, word = worth.among or worth.alone, worth.verdict
    of = f"{counted(found.pairs, 'pair')}, " if found is not None and word == NOT_TESTED else ""
    return Entry(of + word, hole=word == SLOWER, best=word == FASTER)


def _settings(found: Tuning) -> tuple[Column[tuple[Row, Worth]], ...]:
    names = [name for name in axes.NAMES if name != "tuning"]
    return (
        *machine_columns(found.hosts, lambda line: line[0].machine),
        *axis_columns(lambda line: line[0].cell, names),
        *_WORTH,
    )


def _means(found: Tuning, names: Mapping[Mean, str]) -> tuple[Column[Mean], ...]:
    return (
        *machine_columns(found.hosts, lambda mean: mean.machine),
        Column("row", "row", lambda mean: names[mean]),
        Column("networks", None, lambda mean: mean.networks),
        Column("ratio", "ratio", lambda mean: mean.ratio.value, lambda mean: _shown(mean.ratio)),
        Column("low", None, lambda mean: mean.ratio.low),
        Column("high", None, lambda mean: mean.ratio.high),
        Column("", "networks", lambda mean: mean.networks),
        Column("verdict", "verdict", lambda mean: mean.verdict),
    )


def _lines(found: Tuning) -> list[tuple[Row, Worth]]:
    return [(row, worth) for row in found.rows for worth in (row.together, *row.settings)]


def _page(found: Tuning) -> Page:
    """Return tables of all settings over networks, of all settings on each, and of each setting."""
    were = "launch was" if found.disturbed == 1 else "launches were"
    disturbed = (f"{found.disturbed} {were} disturbed by other programs and left out.",) if found.disturbed else ()
    if not found.rows:
        return Page((SEARCHED if found.searched else NOTHING, *disturbed), (), ())
    machines = dict.fromkeys(row.machine for row in found.rows)
    tables = []
    legend = dict.fromkeys(_LEGEND[:1])
    for machine in machines:
        where = f", on {name_among(found.hosts, machine)}" if len(machines) > 1 else ""
        rows = [row for row in found.rows if row.machine == machine]
        names = _names(rows)
        if means := over_networks(rows):
            columns = _means(found, names_of_means(means))
            tables.append(table(columns, means, f"Tuned against as installed, over networks{where}"))
            legend[_OF_MEANS] = None
        together: tuple[Column[Row], ...] = (
            Column("", "row", lambda row, names=names: names[row]),  # type: ignore[misc]
            Column("", "ratio", lambda row: _shown(row.together.alone)),
            Column("", "pairs", lambda row: row.together.alone.pairs if row.together.alone else None),
            Column("", "verdict", lambda row: row.together.verdict or None),
        )
        tables.append(table(together, rows, f"Tuned against as installed{where}"))
        judged = [(row, worth) for row in rows for worth in row.settings if worth.verdict]
        if judged:
            tables.append(table(_WORTH, judged, f"Each setting{where}", group=lambda line, names=names: names[line[0]]))  # type: ignore[misc]
            legend[_OF_SETTINGS] = None
    before = [f"On {found.hosts[machine].name}." for machine in machines] if len(machines) == 1 else []
    return Page((*before, *findings(found)), tuple(tables), (*disturbed, *legend, *_LEGEND[1:]))


def findings(found: Tuning) -> list[str]:
    """Return a sentence for each verdict that some settings have."""
    machines = dict.fromkeys(row.machine for row in found.rows)
    sentences = []
    for machine in machines:
        where = f" ({name_among(found.hosts, machine)})" if len(machines) > 1 else ""
        rows = [row for row in found.rows if row.machine == machine]
        for said, words in ((FASTER, "Faster with"), (SLOWER, "Slower with"), (WORTH_NOTHING, "Worth nothing")):
            on: dict[str, list[str]] = {}
            for row, name in _names(rows).items():
                for worth in row.settings:
                    if worth.verdict == said:
                        of = row_name(row.cell)
                        on.setdefault(f"{worth.setting} ({of})", []).append(name.removeprefix(f"{of}: "))
            if on:
                named = "; ".join(f"{setting} on {', '.join(networks)}" for setting, networks in on.items())
                sentences.append(f"{words}{where}: {named}.")
    return sentences


def headline(found: Tuning) -> list[str]:
    """Return for each machine the worth of all settings over networks, and the largest, as far as noise allows."""
    lines = []
    for machine in dict.fromkeys(row.machine for row in found.rows):
        rows = [row for row in found.rows if row.machine == machine]
        name = name_among(found.hosts, machine)
        lines += [f"{name}: {sentence}." for sentence in (_over_networks(rows), _most(rows)) if sentence]
    return lines


def _over_networks(rows: Sequence[Row]) -> str:
    means = over_networks(rows)
    faster = [each for each in means if each.verdict == FASTER]
    if not faster:
        return ""
    names = names_of_means(means)
    words = [f"{names[each]} {each.ratio.value:.2f} ({each.ratio.low:.2f} to {each.ratio.high:.2f})" for each in faster]
    others = len(means) - len(faster)
    rest = f"; for {counted(others, 'other row')} it cannot be told" if others else ""
    return f"tuned over installed, geometric mean over networks with Student's t over them: {', '.join(words)}{rest}"


def _most(rows: Sequence[Row]) -> str:
    compared = [(row.together.alone, row) for row in rows if row.together.alone]
    helped = [(ratio, row) for ratio, row in compared if verdict(ratio) == FASTER]
    if not helped:
        return ""
    ratio, row = min(helped, key=lambda each: each[0].ratio)
    return (
        f"tuning makes {len(helped)} of {len(compared)} rows faster, most {name_of(row.cell)}, to {ratio.ratio:.2f} of "
        f"its time as installed ({ratio.low:.2f} to {ratio.high:.2f}, {ratio.pairs} pairs)"
    )


def _analyse(source: Source) -> Tuning:
    # Pairs lie in one run: the newest run of each cell by itself may lack its partner.
    parts = [] if source.options.all_runs else [*_of_runs(source)]
    if not any(part.rows for part in parts):
        parts = [_worth(source.results())]
    return newest_of(parts)


def _of_runs(source: Source) -> Iterator[Tuning]:
    """Yield the results of runs that measured pairs, the newest first, up to a finished one that decides them all."""
    alike: Counter[object] = Counter()
    for run, _ in sorted(source.runs(), key=lambda pair: pair[0].started, reverse=True):
        measures = run.machine, run.plan, run.launches
        if run.sides or not source.narrowing.takes(run) or not applies(run.plan) or alike[measures] >= _ALIKE:
            continue
        found = _worth(source.narrowing.of(source.of_run(run.id)))
        alike[measures] += _ALIKE if run.finished and found.decided else 1
        yield found


def _worth(results: Results) -> Tuning:
    return worth_of_settings(results.records, results.hosts)


def applies(cells: Iterable[Cell]) -> bool:
    """Tell whether these cells show the worth of any setting."""
    words: dict[Cell, set[str]] = {}
    for cell in cells:
        words.setdefault(cell._replace(tuning=TUNED), set()).add(cell.tuning)
    return any(len(found) > 1 and found & {INSTALLED, TUNED} for found in words.values())


def _data(found: Tuning) -> dict[str, Any]:
    means = over_networks(found.rows)
    return {
        "settings": objects(_settings(found), _lines(found)),
        "over_networks": objects(_means(found, names_of_means(means)), means),
    }


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
    page=lambda found, options: _page(found),
    data=_data,
    rows=lambda found: csv_rows(_settings(found), _lines(found)),
    suggestion="what each setting is worth",
    applies=applies,
    options=frozenset({ALL_RUNS}),
    heading="What each setting is worth",
    place=35,
    headline=headline,
    has_section=lambda found: bool(found.rows),
)
