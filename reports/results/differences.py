"""What differs between two records other than their measurements: interpreter, packages, settings,
commit.

A history names what changed on a night, a report of releases what changed beside the release, and a
comparison what else differs between its sides.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dlbench.adapters.protocol import Cell
from dlbench.reports.results.commits import commit_in_words
from dlbench.reports.results.hosts import FOREIGN_KEY, Host
from dlbench.reports.results.naming import counted
from dlbench.reports.results.record import IMPORTED, RELEASED, Record


class Difference(NamedTuple):
    """Something that differs from an earlier record, or from the other side."""

    side: str
    what: str
    before: str | None
    """None: it was not there."""
    after: str | None


_DISTRIBUTIONS = "distributions"


def differences(before: Record, after: Record) -> tuple[Difference, ...]:
    """Return the differences of two records of one cell and side other than their measurements.

    The most suspicious ones come first, and packages before other facts.
    """
    old_packages, old = _software(before.outcome.software)
    new_packages, new = _software(after.outcome.software)
    packages = [*_each("", old_packages, new_packages)]
    versions = [(before, after) for _, before, after in packages]
    pairs = [
        *packages,
        # The framework's own word for its version says nothing beyond its package's.
        *(pair for pair in _each("", old, new) if pair[1:] not in versions),
        ("interpreter", before.interpreter, after.interpreter),
    ]
    if IMPORTED not in (
        before.cell.adapter,
        after.cell.adapter,
    ):  # which another program launched in its own way
        pairs += [
            ("dlbench", before.version, after.version),
            *_each("protocol ", before.protocol._asdict(), after.protocol._asdict()),
            ("CPUs", before.outcome.cpus, after.outcome.cpus),
            ("CPU quota", before.quota_cpus, after.quota_cpus),
            ("environment", before.environment[:12], after.environment[:12]),
        ]
    found = [
        Difference(after.side, what, _words(old), _words(new))
        for what, old, new in pairs
        if old != new
    ]
    return tuple(sorted(found, key=lambda each: suspicion(each.what)))


MOST_SHOWN = 5
"""Differences that are named; JSON has all."""
_SUSPECTS = (
    ("interpreter", "commit"),
    (
        "cpu model",
        "kernels",
        "cpu_capability",
        "blas",
        "mkl",
        "onednn",
        "xla",
        "eigen",
        "openmp",
        "cuda",
        "cudnn",
    ),
    ("jax", "tensorflow", "torch", "onnx", "mxnet", "paddle", "keras", "openvino", "numpy"),
    ("mode_settings", "variables", "tuning", "execution", "threads", "cpus", "quota"),
    ("governor", "microcode", "kernel", "libc", "compiler"),
    ("dlbench", "protocol"),
)
"""What changes the time of a step most often, first. The last two are dlbench's own."""


def suspicion(what: str) -> int:
    """Return the place of a difference in the order of suspicion: the most suspicious one is 0."""
    words = what.lower()
    for place, group in enumerate(_SUSPECTS):
        if any(word in words for word in group):
            return place
    return len(_SUSPECTS)


def _words(value: object) -> str | None:
    return None if value is None else " ".join(str(value).split())


def _software(software: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Return the packages of a framework's description of itself, and the rest of it, one level
    deep.
    """
    packages = software.get(_DISTRIBUTIONS)
    flat: dict[str, Any] = {}
    for key, value in software.items():
        if key == FOREIGN_KEY and isinstance(value, Mapping):
            flat |= _of_pytest_benchmark(value)
        elif isinstance(value, Mapping) and key != _DISTRIBUTIONS:
            flat |= {f"{key} {inner}": inside for inner, inside in value.items()}
        elif key != _DISTRIBUTIONS:
            flat[key] = value
    return packages if isinstance(packages, Mapping) else {}, flat


def _of_pytest_benchmark(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a file of pytest-benchmark says of a benchmark's circumstances: commit, version
    and options.
    """
    known: dict[str, Any] = {"pytest-benchmark": kept.get("version")}
    commit = kept.get("commit_info")
    if isinstance(commit, Mapping) and (words := commit_in_words(commit)):
        known["commit"] = words
    options = kept.get("options")
    if isinstance(options, Mapping):
        known |= {f"option {name}": value for name, value in options.items()}
    return known


def _each(
    prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterable[tuple[str, Any, Any]]:
    for key in sorted({*old, *new}):
        yield prefix + str(key), old.get(key), new.get(key)


def difference_words(found: Difference) -> str:
    """Return a difference in words: "numpy 1.26.4 -> 2.0.0"."""
    before, after = (
        text if len(text) <= 40 else text[:37] + "..."
        for text in (found.before or "-", found.after or "-")
    )
    what = f"{found.side}: {found.what}" if found.side else found.what
    if found.before is None:
        return f"{what} {after} was added"
    return f"{what} {before} was removed" if found.after is None else f"{what} {before} -> {after}"


# Between the two sides of a comparison.


class SideDifference(NamedTuple):
    """Something besides the code that differs between the sides of a comparison."""

    what: str
    baseline: str | None
    """None: the baseline does not have it."""
    candidate: str | None
    cells: int
    """Number of cells in which it differs so."""

    @property
    def words(self) -> str:
        """The difference in words: "interpreter CPython 3.11.7 -> CPython 3.13.1"."""
        if self.baseline is None:
            return f"{self.what} {self.candidate} in the candidate only"
        if self.candidate is None:
            return f"{self.what} {self.baseline} in the baseline only"
        return difference_words(Difference("", self.what, self.baseline, self.candidate))


_OF_THE_CODE = ("adapter_digest", "framework", "mode_settings file", "version", "environment")
"""Said by the description of the sides."""
_SAID_TWICE = ("python", "default_threads", "tunable", RELEASED)


def side_differences(
    baseline: Mapping[Cell, Sequence[Record]], candidate: Mapping[Cell, Sequence[Record]]
) -> tuple[SideDifference, ...]:
    """Return what differs besides the code between the sides' first launches of each common cell.

    The most suspicious come first (`suspicion`), and of those what differs in most cells.
    """
    left_out = (*_OF_THE_CODE, *_SAID_TWICE)
    counts: Counter[tuple[str, str | None, str | None]] = Counter()
    for cell in baseline.keys() & candidate.keys():
        if not baseline[cell] or not candidate[cell]:
            continue
        for each in differences(_first(baseline[cell]), _first(candidate[cell])):
            if each.what not in left_out:
                counts[each.what, each.before, each.after] += 1

    def place(found: SideDifference) -> tuple[object, ...]:
        return (
            suspicion(found.what),
            -found.cells,
            found.what,
            found.baseline or "",
            found.candidate or "",
        )

    return tuple(sorted((SideDifference(*key, count) for key, count in counts.items()), key=place))


def host_differences(baseline: Host, candidate: Host, cells: int) -> tuple[SideDifference, ...]:
    """Return what differs between two machines, as a comparison of this many cells names it."""
    before, after = dict(baseline.description), dict(candidate.description)
    labels = dict.fromkeys((*before, *after))
    found = [
        SideDifference(label, before.get(label), after.get(label), cells)
        for label in labels
        if before.get(label) != after.get(label)
    ]
    return tuple(sorted(found, key=lambda each: suspicion(each.what)))


def _first(records: Sequence[Record]) -> Record:
    """Return the first launch that described its software, else the first one."""
    ordered = sorted(records, key=lambda record: (record.launch, record.attempt))
    described = (record for record in ordered if record.outcome.software)
    return next(described, ordered[0])


def side_differences_line(found: Sequence[SideDifference], cells: int) -> str:
    """Return one sentence on what differs between the sides of a comparison of this many cells;
    empty for nothing.
    """
    if not found:
        return ""
    words = []
    for each in found[:MOST_SHOWN]:
        some = f" (in {each.cells} of {counted(cells, 'cell')})" if each.cells < cells else ""
        words.append(f"{each.words}{some}")
    more = len(found) - MOST_SHOWN
    words += [f"and {more} more (--json)"] if more > 0 else []
    return f"The sides also differ in: {'; '.join(words)}."
