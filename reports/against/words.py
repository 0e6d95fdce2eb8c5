"""The comparison with a published table, for every exporter (``reports/SCHEMA.md`` describes every key).

What the figures must not be read as stands above them in each form, and in a field of each line of CSV.
"""

from typing import Any

from dlbench.reports.against.analysis import Against, Match, Pair, Span
from dlbench.reports.flags import CONTENDED, FEW_LAUNCHES, FlagKind
from dlbench.reports.formats import csv, json, layout
from dlbench.reports.naming import group_name, row_name

NOTHING = "Nothing was measured that the table has too: its networks, at its mini-batch, on a CPU."

_COLUMNS = (
    "machine",
    "machine_name",
    "machine_then",
    "machine_then_name",
    "network",
    "batch_size",
    "framework_then",
    "framework",
    "mode",
    "version",
    "threads",
    "status",
    *csv.parts("seconds_now", *csv.MEDIAN),
    "seconds_then",
    "speedup",
    "share_now",
    *csv.parts("share_then", "low", "high"),
    *csv.parts("per_peak", "low", "high"),
    "reason",
    "flags",
    "warning",
)


def warning(found: Against) -> str:
    """Return what everybody who looks at these figures is to know first."""
    return (
        "The machines differ, so a speed-up is one of hardware and software together: do not read it as progress of "
        f"the software alone. The frameworks of {found.published.year} ran different scripts, and each of their "
        "figures is a single mean without its spread."
    )


def against_page(found: Against) -> layout.Page:
    """Return the comparison as words and tables: one for each pair of machines, and one of means."""
    before = [warning(found)]
    if not any(match.pairs for match in found.matches):
        return layout.Page((*before, NOTHING), (), (*_missing(found), *found.notes))
    tables = []
    for match in found.matches:
        tables += [_table(found, match), *([_means(match)] if match.means else [])]
    return layout.Page(tuple(before), tuple(tables), tuple(_legend(found)))


def against_data(found: Against) -> dict[str, Any]:
    """Return a JSON object: the warning, the pairs of machines, and under each its cells and means."""
    return {
        "warning": warning(found),
        "stands": {
            name: {"title": found.published.frameworks[name][1], "now": stand.title or None}
            for name, stand in found.stands.items()
        },
        "machines": [_match(match) for match in found.matches],
        "notes": _legend(found),
    }


def against_rows(found: Against) -> csv.Rows:
    """Return a line for each pair of cells, holes included."""
    said = warning(found)
    lines = [
        {**_machines(match), **cell, "warning": said}
        for match in found.matches
        for cell in (_pair(pair) for pair in match.pairs)
    ]
    return csv.Rows(_COLUMNS, lines)


def _table(found: Against, match: Match) -> layout.Table:
    rows: list[tuple[layout.Entry, ...]] = []
    common = _common(found)
    group, before = None, ""
    for pair in match.pairs:
        if pair.where.group != group:
            group, before = pair.where.group, ""
            rows.append((layout.Entry(group_name(group)),))
        name = row_name(pair.now.row) if pair.now is not None else pair.where.row
        rows.append((layout.Entry(name if name != before else ""), *_fields(pair, common)))
        before = name
    year = found.published.year
    head = ("", "p", "s now", f"s {year}", "speed-up", "% now", f"% {year}", "per peak")
    title = f"{match.host.name}, against {match.then.name}"
    return layout.Table(title, head, tuple(rows), tuple(_notes(match)), keys=2)


def _common(found: Against) -> set[FlagKind]:
    """Return what is said once of all numbers instead of at each."""
    timed = [pair.now for match in found.matches for pair in match.pairs if pair.now is not None and pair.now.timed]
    return {FEW_LAUNCHES} if timed and all(cell.has(FEW_LAUNCHES) for cell in timed) else set()


def _fields(pair: Pair, common: set[FlagKind]) -> tuple[layout.Entry, ...]:
    then = pair.then
    if then is None:
        past = layout.Entry(layout.MISSING)
    elif then.timed is None:
        past = layout.Entry(layout.HOLES[then.status], hole=True)
    else:
        past = layout.Entry(layout.number(then.timed.median))
    return (
        layout.Entry(str(pair.where.threads)),
        layout.entry(pair.now, layout.QUANTITIES["seconds"], common)._replace(best=False),
        past,
        layout.Entry("" if pair.speedup is None else f"{layout.number(pair.speedup)}x"),
        layout.Entry("" if pair.share_now is None else f"{100 * pair.share_now:.0f}"),
        layout.Entry(
            "" if pair.share_then is None else _ends_in_words(*(f"{100 * end:.0f}" for end in pair.share_then))
        ),
        layout.Entry(_times(pair.per_peak)),
    )


def _times(span: Span | None) -> str:
    return "" if span is None else f"{_ends_in_words(*map(layout.number, span))}x"


def _ends_in_words(low: str, high: str) -> str:
    return low if low == high else f"{low}-{high}"


def _means(match: Match) -> layout.Table:
    rows: list[tuple[layout.Entry, ...]] = []
    before = ""
    for mean in match.means:
        mark = CONTENDED.symbol if mean.disturbed else ""
        speedup, per_peak = f"{layout.number(mean.speedup)}x{mark}", _times(mean.per_peak)
        name = mean.row if mean.row != before else ""
        of_common = "" if mean.common is None else f"{layout.number(mean.common)}x"
        rows.append(layout.entries(name, str(mean.threads), str(mean.networks), speedup, per_peak, of_common))
        before = mean.row
    head = ("", "p", "networks", "speed-up", "per peak", "of common")
    notes = _common_networks(match)
    if any(mean.disturbed for mean in match.means):
        notes.append(f"{CONTENDED.symbol} holds networks on which the measurement here was disturbed")
    return layout.Table("Geometric means over networks", head, tuple(rows), tuple(notes))


def _common_networks(match: Match) -> list[str]:
    """Return lines that name the networks of the last column, thread counts of the same ones together."""
    by_networks: dict[tuple[str, ...], list[str]] = {}
    for threads, networks in sorted(match.common.items()):
        by_networks.setdefault(networks, []).append(str(threads))
    return [
        f"of common, at p = {', '.join(counts)}: the speed-up over {', '.join(networks)}, which every row has"
        if networks
        else f"of common, at p = {', '.join(counts)}: no network has a speed-up in every row"
        for networks, counts in by_networks.items()
    ]


def _notes(match: Match) -> list[str]:
    lines = []
    if match.means:
        lines.append("Means take the fastest mode at each place. Rows compare by those over common networks alone.")
    if match.peak is not None:
        low, high = (layout.number(end * 1e-9) for end in match.peak[:2])
        lines.append(f"Peak then: {low} to {high} GFLOP/s a core, theoretical, single precision ({match.peak.source}).")
    if match.ceilings:
        told = ", ".join(f"{layout.number(rate * 1e-9)} at {p}" for p, rate in sorted(match.ceilings.items()))
        lines.append(f"Peak now: {told} thread{'s' if set(match.ceilings) != {1} else ''} (GFLOP/s, measured here).")
    by_reason: dict[str, list[str]] = {}
    for count, why in match.left_out.items():
        by_reason.setdefault(why, []).append(str(count))
    lines += [f"Not compared: {', '.join(counts)} threads, {why}." for why, counts in by_reason.items()]
    holes = []
    for pair in match.pairs:
        if pair.reason:
            name = row_name(pair.now.row) if pair.now is not None else pair.where.row
            holes.append((pair.reason, f"{pair.where.group.network} {name}", str(pair.where.threads)))
    return lines + layout.reasons(holes)


def _legend(found: Against) -> list[str]:
    year = found.published.year
    pairs = [pair for match in found.matches for pair in match.pairs]
    lines = []
    if pairs:
        lines = [
            f"p threads on both sides; s seconds per mini-batch, here now and in {year}; speed-up then / now, hardware "
            "and software together; % of peak, here of the measured matrix-product ceiling at no more than p threads, "
            f"in {year} of the theoretical peak of p cores, a range since their clock is not known; per peak the ratio "
            "of these shares, so the rate of the cores is divided out.",
            "Per peak favours the software of today: a measured ceiling lies below the theoretical peak. Memory, "
            f"caches and what the scripts of {year} computed besides are not divided out. Both sides count the "
            "operations of the networks as they are specified here.",
        ]
    lines += _missing(found)
    lines += layout.flag_lines(
        (pair.now for pair in pairs if pair.now is not None), _common(found), "every number of today:"
    )
    return [*lines, *found.notes]


def _missing(found: Against) -> list[str]:
    """Return who stands for whom, and which frameworks of the table nobody was measured for."""
    shown = {pair.where.framework for match in found.matches for pair in match.pairs}
    lines = []
    for name, (_, title) in found.published.frameworks.items():
        stand = found.stands.get(name)
        if stand is None or not stand.adapter:
            lines.append(f"{title} has no row: {stand.missing if stand and stand.missing else 'no adapter'}.")
        elif name not in shown:
            lines.append(f"{title} of {found.published.year}: nothing was measured here for it ({stand.title}).")
        elif stand.title != title:
            lines.append(f"{stand.title} is shown as the successor of {title}; it is another program.")
    return lines


def _machines(match: Match) -> dict[str, Any]:
    return {
        "machine": match.host.fingerprint,
        "machine_name": match.host.name,
        "machine_then": match.then.fingerprint,
        "machine_then_name": match.then.name,
    }


def _match(match: Match) -> dict[str, Any]:
    return {
        **_machines(match),
        "peak_per_core_then": json.plain(match.peak),
        "ceiling_now": {str(threads): rate for threads, rate in sorted(match.ceilings.items())},
        "not_compared": {str(threads): why for threads, why in match.left_out.items()},
        "cells": [_pair(pair) for pair in match.pairs],
        "means": json.plain(match.means),
        "common": {str(threads): list(networks) for threads, networks in sorted(match.common.items())},
    }


def _pair(pair: Pair) -> dict[str, Any]:
    now, then = pair.now, pair.then
    return {
        "network": pair.where.group.network,
        "batch_size": pair.where.group.batch_size,
        "framework_then": pair.where.framework,
        "framework": pair.where.row,
        "mode": now.row.mode if now is not None else None,
        "version": pair.build.version if pair.build is not None and pair.build.version else None,
        "threads": pair.where.threads,
        "status": now.status.value if now is not None else "not_measured",
        "seconds_now": json.plain(now.seconds) if now is not None else None,
        "seconds_then": then.timed.median if then is not None and then.timed is not None else None,
        **{name: json.plain(getattr(pair, name)) for name in ("speedup", "share_now", "share_then", "per_peak")},
        "reason": pair.reason,
        "flags": json.plain(now.flags) if now is not None else [],
    }
