"""Differences between two records besides their measurements.

They are in the interpreter, packages, settings or commit. A history names those of a night, a
report of releases those besides the release, and a comparison those between its sides.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dlbench.adapters.protocol import Cell
from dlbench.reports.results.commits import commit_in_words
from dlbench.reports.results.hosts import FOREIGN_KEY, Host
from dlbench.reports.results.naming import counted
from dlbench.reports.results.record import IMPORTED, Record


class Difference(NamedTuple):
    """Something that differs from an earlier record, or from the other side."""

    side: str
    what: str
    before: str | None
    """None: it was not there."""
    after: str | None


_DISTRIBUTIONS = "distributions"


def differences(before: Record, after: Record) -> tuple[Difference, ...]:
    """Return the differences of two records of one cell and side besides their measurements.

    The most suspicious ones come first, and packages before other facts.
    """
    old_packages, old_facts = _software(before.outcome.software)
    new_packages, new_facts = _software(after.outcome.software)
    packages = list(_values("", old_packages, new_packages))
    versions = [(old, new) for _, old, new in packages]
    facts = list(packages)
    for name, old, new in _values("", old_facts, new_facts):
        # The framework's own word for its version says nothing beyond its package's.
        if (old, new) not in versions:
            facts.append((name, old, new))
    facts.append(("interpreter", before.interpreter, after.interpreter))
    # Another program launches its benchmarks in its own way.
    if IMPORTED not in (before.cell.adapter, after.cell.adapter):
        facts += [
            ("dlbench", before.version, after.version),
            *_values("protocol ", before.protocol._asdict(), after.protocol._asdict()),
            ("CPUs", before.outcome.cpus, after.outcome.cpus),
            ("CPU quota", before.quota_cpus, after.quota_cpus),
            ("environment", before.environment[:12], after.environment[:12]),
        ]
    changed = [
        Difference(after.side, name, _words(old), _words(new))
        for name, old, new in facts
        if old != new
    ]
    changed.sort(key=lambda difference: suspicion(difference.what))
    return tuple(changed)


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
"""Parts of names, those that change the time of a step most often first; the last are dlbench's."""


def suspicion(what: str) -> int:
    """Return the rank of a difference in the order of suspicion: the most suspicious one is 0."""
    words = what.lower()
    for rank, suspects in enumerate(_SUSPECTS):
        if any(word in words for word in suspects):
            return rank
    return len(_SUSPECTS)


def _words(value: object) -> str | None:
    return None if value is None else " ".join(str(value).split())


def _software(software: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Return the packages of a framework's description of itself, and the rest, one level deep."""
    packages = software.get(_DISTRIBUTIONS)
    if not isinstance(packages, Mapping):
        packages = {}
    flat: dict[str, Any] = {}
    for key, value in software.items():
        if key == FOREIGN_KEY and isinstance(value, Mapping):
            flat |= _circumstances(value)
        elif isinstance(value, Mapping) and key != _DISTRIBUTIONS:
            flat |= {f"{key} {inner}": inside for inner, inside in value.items()}
        elif key != _DISTRIBUTIONS:
            flat[key] = value
    return packages, flat


def _circumstances(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return the commit, version and options that a file of pytest-benchmark states."""
    facts: dict[str, Any] = {"pytest-benchmark": kept.get("version")}
    commit = kept.get("commit_info")
    if isinstance(commit, Mapping):
        words = commit_in_words(commit)
        if words:
            facts["commit"] = words
    options = kept.get("options")
    if isinstance(options, Mapping):
        facts |= {f"option {name}": value for name, value in options.items()}
    return facts


def _values(
    prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterable[tuple[str, Any, Any]]:
    for key in sorted({*old, *new}):
        yield prefix + str(key), old.get(key), new.get(key)


def difference_words(difference: Difference) -> str:
    """Return a difference in words: "numpy 1.26.4 -> 2.0.0"."""
    before = _shortened(difference.before or "-")
    after = _shortened(difference.after or "-")
    name = difference.what
    if difference.side:
        name = f"{difference.side}: {name}"
    if difference.before is None:
        return f"{name} {after} was added"
    if difference.after is None:
        return f"{name} {before} was removed"
    return f"{name} {before} -> {after}"


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


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


_IN_DESCRIPTION = ("adapter_digest", "framework", "mode_settings file", "version", "environment")
"""Stated by the description of the sides."""
_STATED_TWICE = ("python", "default_threads", "tunable", "released")


def side_differences(
    baseline: Mapping[Cell, Sequence[Record]], candidate: Mapping[Cell, Sequence[Record]]
) -> tuple[SideDifference, ...]:
    """Return the differences besides the code between the sides' first launches of common cells.

    The most suspicious come first (`suspicion`), and of those the ones in most cells.
    """
    left_out = (*_IN_DESCRIPTION, *_STATED_TWICE)
    counts: Counter[tuple[str, str | None, str | None]] = Counter()
    for cell in baseline.keys() & candidate.keys():
        if not baseline[cell] or not candidate[cell]:
            continue
        for difference in differences(_first(baseline[cell]), _first(candidate[cell])):
            if difference.what not in left_out:
                counts[difference.what, difference.before, difference.after] += 1
    sides = [SideDifference(*key, cells) for key, cells in counts.items()]
    return tuple(sorted(sides, key=_most_suspicious_first))


def _most_suspicious_first(difference: SideDifference) -> tuple[object, ...]:
    return (
        suspicion(difference.what),
        -difference.cells,
        difference.what,
        difference.baseline or "",
        difference.candidate or "",
    )


def host_differences(baseline: Host, candidate: Host, cells: int) -> tuple[SideDifference, ...]:
    """Return the differences of two machines, as a comparison of this many cells names them."""
    before = dict(baseline.description)
    after = dict(candidate.description)
    changed = []
    for label in dict.fromkeys((*before, *after)):
        if before.get(label) != after.get(label):
            changed.append(SideDifference(label, before.get(label), after.get(label), cells))
    changed.sort(key=lambda difference: suspicion(difference.what))
    return tuple(changed)


def _first(records: Sequence[Record]) -> Record:
    """Return the first launch that described its software, else the first one."""
    ordered = sorted(records, key=lambda record: (record.launch, record.attempt))
    described = (record for record in ordered if record.outcome.software)
    return next(described, ordered[0])


def side_differences_line(differing: Sequence[SideDifference], cells: int) -> str:
    """Return a sentence on the differences between the sides of so many cells; empty for none."""
    if not differing:
        return ""
    words = []
    for difference in differing[:MOST_SHOWN]:
        phrase = difference.words
        if difference.cells < cells:
            phrase += f" (in {difference.cells} of {counted(cells, 'cell')})"
        words.append(phrase)
    if len(differing) > MOST_SHOWN:
        words.append(f"and {len(differing) - MOST_SHOWN} more (--json)")
    return f"The sides also differ in: {'; '.join(words)}."
