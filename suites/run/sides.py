"""The two sides of a comparison measured now: interpreters, variables, adapters and step files.

The sides differ in any of four things, and in nothing else: the framework's interpreter (another
build), environment variables of its launches, the adapters' code at a revision of this repository,
and the file of a training step of the user's own.
"""

import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dlbench.reports.results.comparison import Comparison, compare_sides
from dlbench.reports.results.hosts import Host, read_host
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.operators import step_differences
from dlbench.reports.results.record import BASELINE, CANDIDATE, Run
from dlbench.reports.results.storage.store import Store
from dlbench.reports.results.verdict import Rule, chosen

from ..environments import environment, folders
from ..environments.commits import digest_of, git
from ..environments.digests import adapter_digest
from ..environments.environment import BuildSource, Say
from ..environments.interpreters import inspect
from ..errors import FrameworkEnvironmentError, UsageError
from ..planning import own as own_files
from ..planning import values, variables
from ..planning.framework import GUEST_DIRECTORY, Framework
from ..planning.plan import Plan
from ..planning.values import Build
from .privacy import private_value


@dataclass(frozen=True)
class Side:
    """One side: its name, and the interpreters, variables and code of its launches."""

    name: str
    """The side's name in its records: "baseline", "candidate", or "" where there is one side."""
    builds: tuple[Build, ...] = ()
    """Interpreters by row. A row without one uses the framework's own environment."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of this side, in addition to those of the plan."""
    revision: str = ""
    """Revision of the adapters' code, or empty for the code as it is."""
    guest: Path = GUEST_DIRECTORY
    """Folder of that code."""
    step: Framework | None = None
    """The file that this side runs instead of the row's own."""


ONE_SIDE = (Side(""),)
"""The side of a run that compares nothing."""


def guest_at(revision: str) -> Path:
    """Return a folder with the adapters' code at this git revision, unpacked into the cache once.

    Raises UsageError where the adapters do not lie in a git checkout or the revision is unknown.
    """
    adapters = GUEST_DIRECTORY.resolve()
    if git(adapters, "rev-parse", "--show-prefix") is None:
        raise UsageError(
            "The adapters are not in a git checkout: a revision of them needs a clone of dlbench."
        )
    commit = digest_of(adapters, revision, "The adapters")
    target = folders.make_folder(folders.home() / "cache" / "adapters") / commit
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        archive = Path(scratch) / "adapters.tar"
        if git(adapters, "archive", f"--output={archive}", commit, ".") is None:
            raise UsageError(
                f"The adapters at revision {revision} cannot be unpacked: it has none, or "
                f"{target.parent} is full."
            )
        unpacked = Path(scratch) / "unpacked"
        with tarfile.open(archive) as content:
            content.extractall(unpacked, filter="data")
        try:
            unpacked.rename(target)
        except OSError:
            if not target.exists():  # another process was faster
                raise
    return target


def _step_key(framework: Framework | None) -> tuple[Path, str] | None:
    # A step can import other files of its folder, which are not compared: steps in different
    # folders count as different.
    if framework is None or framework.file is None:
        return None
    return framework.file.parent, adapter_digest(framework)


def pair(
    python: tuple[Sequence[str], Sequence[str]],
    environments: tuple[Sequence[str], Sequence[str]],
    revisions: tuple[str, str],
    files: tuple[str | None, str | None] = (None, None),
    own: Framework | None = None,
) -> tuple[Side, Side]:
    """Return (baseline, candidate) from the command line's words.

    ``python`` are the words of --baseline and of --python. If --python names two for one framework,
    the first is the baseline's. A single one is the candidate's, and the framework's own
    environment is the baseline. ``environments`` are NAME=VALUE words, ``revisions`` those of the
    adapters and ``files`` the user's steps, each (baseline's, candidate's). A side without a file
    runs ``own``. Raises UsageError.
    """
    baseline_builds, candidate_builds = _builds_by_side(*python)
    sides = []
    for name, builds, words, revision, file in zip(
        (BASELINE, CANDIDATE),
        (baseline_builds, candidate_builds),
        environments,
        revisions,
        files,
        strict=True,
    ):
        guest = GUEST_DIRECTORY
        if revision:
            guest = guest_at(revision)
        step = None
        if file:
            step = own_files.read_step(file, f"--{name}-step")
        given = variables.read(words, f"--{name}-env")
        sides.append(Side(name, builds, given, revision, guest, step))
    return sides[0], sides[1]


def check_sides_differ(pair: tuple[Side, Side], own: Framework | None = None) -> None:
    """Raise UsageError where baseline and candidate do not differ at all.

    A side without a file runs ``own``.
    """
    contents = []
    for side in pair:
        contents.append((side.builds, side.variables, side.guest, _step_key(side.step or own)))
    if contents[0] == contents[1]:
        raise UsageError(
            "Both sides are the same. Give what differs: an interpreter (compare: --python "
            "FRAMEWORK=PATH; gate: --baseline FRAMEWORK=PATH), --candidate-env NAME=VALUE, "
            "--baseline-step FILE (another content, or in another folder), or --baseline-adapters "
            "REVISION. --same compares identical code on purpose."
        )


def _builds_by_side(
    baseline_words: Sequence[str], python_words: Sequence[str]
) -> tuple[tuple[Build, ...], tuple[Build, ...]]:
    """Return the builds of the baseline and of the candidate that --baseline and --python name."""
    by_framework = grouped(map(values.build, python_words), lambda build: build.framework.name)
    baseline: list[Build] = []
    candidate: list[Build] = []
    for name, builds in by_framework.items():
        if len(builds) > 2:
            raise UsageError(
                f"{len(builds)} interpreters are given for {name}. A comparison has two sides: "
                "give two."
            )
        if len(builds) == 2:
            baseline.append(builds[0])
        candidate.append(builds[-1])
    if baseline_words:
        if baseline:
            raise UsageError(
                "A framework has two interpreters in --python and one in --baseline. Leave one out."
            )
        baseline = [values.build(word, "--baseline") for word in baseline_words]
    # The user's own step has no environment to serve as a baseline: a single interpreter serves
    # both sides.
    named = {build.framework.name for build in baseline}
    for build in candidate:
        if build.framework.file is not None and build.framework.name not in named:
            baseline.append(build)
    return tuple(baseline), tuple(candidate)


Sources = Mapping[str, dict[str, BuildSource]]
"""The source of each row, by side."""


def _builds_of_side(plan: Plan, side: Side) -> list[Build]:
    """Return the build of each row of the plan on this side, under the row's own name.

    Raises UsageError for an interpreter of a framework that is not a row, and for a revision of the
    adapters if a framework's adapter lies outside dlbench: it would not vary.
    """
    planned = {build.framework.name for build in plan.builds}
    given = {}
    for build in side.builds:
        name = build.framework.name
        given[name] = build.interpreter
        if name not in planned:
            raise UsageError(
                f"An interpreter is given for {name}, which is not a selected row "
                f"({', '.join(sorted(planned))}). Name it with --frameworks, or leave the "
                "interpreter out."
            )
    builds = []
    for build in plan.builds:
        if side.revision and build.framework.outside is not None:
            raise UsageError(
                f"The adapter of {build.name} lies outside dlbench: adapters at revision "
                f"{side.revision} do not include it. Leave its row out, or --baseline-adapters and "
                "--candidate-adapters."
            )
        interpreter = given.get(build.framework.name)
        if build.framework.name not in given and side.name != BASELINE:
            interpreter = build.interpreter
        framework = build.framework
        if side.step is not None and framework.file is not None:
            framework = side.step
        builds.append(Build(build.name, framework, interpreter))
    return builds


def prepare(plan: Plan, sides: Sequence[Side], report: Say, build_missing: bool) -> Sources:
    """Return every row's interpreter on each side.

    Raises FrameworkEnvironmentError for an interpreter the user named and got wrong and where not
    one row has an interpreter on both sides, and UsageError for sides that the plan's rows do not
    allow.
    """
    by_side = {}
    for side in sides:
        builds = _builds_of_side(plan, side)
        by_side[side.name] = environment.prepare_sources(builds, report, build_missing)
    if len(sides) == 1:
        return by_side
    reasons = []
    for build in plan.builds:
        sources = [rows[build.name] for rows in by_side.values()]
        if all(source.interpreter for source in sources):
            return by_side
        reasons += [source.reason.rstrip(".") for source in sources if source.reason]
    raise FrameworkEnvironmentError(
        f"No row has an interpreter on both sides. {'; '.join(dict.fromkeys(reasons))}."
    )


def describe_sides(sides: Sequence[Side], sources: Sources) -> dict[str, str]:
    """Return a text for each side, by its name: versions and environments.

    It has no paths, since they name users.
    """
    texts = {}
    for side in sides:
        parts = [_describe(source) for source in sources[side.name].values()]
        parts += [f"{name}={private_value(name, value)}" for name, value in side.variables.items()]
        if side.revision:
            parts.append(f"adapters at {side.revision} ({side.guest.name[:10]})")
        texts[side.name] = ", ".join(parts)
    return texts


def _describe(source: BuildSource) -> str:
    framework = source.build.framework
    name = source.build.name
    if framework.file:
        name = framework.name  # each of two files has its own
    if source.interpreter is None:
        return f"{name} missing"
    if framework.computes and not framework.file:
        packages = inspect(source.interpreter).distributions
        version = packages.get(framework.imports.partition(".")[0])
        if version:
            name += f" {version}"
    code = ""
    if framework.external:
        kind = "file" if framework.file else "adapter"
        code = f", {kind} {adapter_digest(framework)}"
    return f"{name} (environment {source.digest}{code})"


def check_same(run: Run, now: Mapping[str, str], rule: Rule) -> None:
    """Refuse other sides, in words, or another rule than the run began with. Raises UsageError."""
    remedy = "Give the same options, or start a new run without --resume."
    if run.rule != chosen(rule):
        options = "--threshold, --tolerance, --judge or --allow-different"
        raise UsageError(f"The unfinished run was begun with another {options}. {remedy}")
    for name, then in run.sides.items():
        if now.get(name) != then:
            raise UsageError(
                f"The unfinished run's {name} was {then}; now it is {now.get(name)}. {remedy}"
            )


def report_of(store: Store, run: Run, rule: Rule | None = None) -> Comparison:
    """Return the comparison of a run with two sides so far.

    It is by the run's own rule unless another is given. Raises UsageError where it has none yet.
    """
    records = store.records(run=run.id)
    host: Host = read_host(run.machine, store.machine(run.machine))
    if not any(record.side for record in records):
        raise UsageError(
            f"Run {run.id} has no pair of launches yet. Resume it (--resume), or compare another."
        )
    comparison = compare_sides(run, records, host, rule)
    return replace(comparison, operators=step_differences(store.profiles(run.id)))
