"""The two sides of a comparison measured now: interpreters, variables, adapters and step files.

A side differs from the other in any of four things, and in nothing else: the framework's
interpreter (another build), environment variables of its launches, the adapters' code at a revision
of this repository, and the file of a training step of the user's own.
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
from ..environments.environment import Report, Source
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

    name: str  # as in its records: "baseline", "candidate", or "" where there is one side
    builds: tuple[
        Build, ...
    ] = ()  # interpreters by row; a row without one uses the framework's own environment
    variables: Mapping[str, str] = field(
        default_factory=dict
    )  # besides those of the plan, which both sides get
    revision: str = ""  # of the adapters' code; empty: the code as it is
    guest: Path = GUEST_DIRECTORY  # the folder of that code
    step: Framework | None = None  # the file that this side runs instead of the row's own


ONE_SIDE = (Side(""),)
"""Of a run that compares nothing."""


def guest_at(revision: str) -> Path:
    """Return a folder with the adapters' code at this git revision, unpacked into the cache once.

    Raises UsageError where the adapters do not lie in a git checkout or the revision is unknown.
    """
    where = GUEST_DIRECTORY.resolve()
    if git(where, "rev-parse", "--show-prefix") is None:
        raise UsageError(
            "The adapters are not in a git checkout: a revision of them needs a clone of dlbench."
        )
    commit = digest_of(where, revision, "The adapters")
    target = folders.make_folder(folders.home() / "cache" / "adapters") / commit
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        archive = Path(scratch) / "adapters.tar"
        if git(where, "archive", f"--output={archive}", commit, ".") is None:
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


def _step(framework: Framework | None) -> tuple[Path, str] | None:
    # A step can import files beside it, which are not compared: steps in different folders count as
    # different.
    if framework is None or framework.file is None:
        return None
    return framework.file.parent, adapter_digest(framework)


def pair(
    python: tuple[Sequence[str], Sequence[str]],
    environments: tuple[Sequence[str], Sequence[str]],
    revisions: tuple[str, str],
    files: tuple[str | None, str | None] = (None, None),
    own: Framework | None = None,
    same: bool = False,
) -> tuple[Side, Side]:
    """Return (baseline, candidate) from the command line's words; raises UsageError where they do
    not differ at all.

    ``python`` are the words of --baseline and of --python. Of two in --python for one framework,
    the first is the baseline's; a single one is the candidate's, and the framework's own
    environment is the baseline. ``environments`` are NAME=VALUE words, ``revisions`` those of the
    adapters and ``files`` the user's steps, each (baseline's, candidate's); a side without a file
    runs ``own``.
    """
    by_framework = grouped(map(values.build, python[1]), lambda build: build.framework.name)
    for name, found in by_framework.items():
        if len(found) > 2:
            raise UsageError(
                f"{len(found)} interpreters are given for {name}. A comparison has two sides: give "
                "two."
            )
    first = tuple(found[0] for found in by_framework.values() if len(found) == 2)
    second = tuple(found[-1] for found in by_framework.values())
    if python[0]:
        if first:
            raise UsageError(
                "A framework has two interpreters in --python and one in --baseline. Leave one out."
            )
        first = tuple(values.build(word, "--baseline") for word in python[0])
    # The user's own step has no environment to serve as a baseline: a single interpreter serves
    # both sides.
    named = {build.framework.name for build in first}
    first += tuple(
        each
        for each in second
        if each.framework.file is not None and each.framework.name not in named
    )
    sides = []
    given = zip((BASELINE, CANDIDATE), (first, second), environments, revisions, files, strict=True)
    for name, of_side, words, revision, file in given:
        guest = guest_at(revision) if revision else GUEST_DIRECTORY
        step = own_files.read_step(file, f"--{name}-step") if file else None
        sides.append(
            Side(name, of_side, variables.read(words, f"--{name}-env"), revision, guest, step)
        )
    launched = [
        (side.builds, side.variables, side.guest, _step(side.step or own)) for side in sides
    ]
    if launched[0] == launched[1] and not same:
        raise UsageError(
            "Both sides are the same. Give what differs: an interpreter (compare: --python "
            "FRAMEWORK=PATH; gate: --baseline FRAMEWORK=PATH), --candidate-env NAME=VALUE, "
            "--candidate-step FILE with another content, or --baseline-adapters REVISION; --same "
            "compares identical code on purpose."
        )
    return sides[0], sides[1]


Sources = Mapping[str, dict[str, Source]]
"""By side, each row's source."""


def _builds_of_side(plan: Plan, side: Side) -> list[Build]:
    """Return the build of each row of the plan on this side, under the row's own name.

    Raises UsageError for an interpreter of a framework that is not a row, and for a revision of the
    adapters if a framework's adapter lies outside dlbench: it would not vary.
    """
    given = {build.framework.name: build.interpreter for build in side.builds}
    planned = {build.framework.name for build in plan.builds}
    if strange := next((name for name in given if name not in planned), None):
        raise UsageError(
            f"An interpreter is given for {strange}, which is not a row here "
            f"({', '.join(sorted(planned))}). Name it with --frameworks, or leave the interpreter "
            "out."
        )
    found = []
    for build in plan.builds:
        if side.revision and build.framework.outside is not None:
            raise UsageError(
                f"The adapter of {build.name} lies outside dlbench: adapters at revision "
                f"{side.revision} do not include it. Leave its row out, or --baseline-adapters and "
                "--candidate-adapters."
            )
        interpreter = given.get(
            build.framework.name, None if side.name == BASELINE else build.interpreter
        )
        step = side.step if build.framework.file is not None else None
        found.append(Build(build.name, step or build.framework, interpreter))
    return found


def prepare(plan: Plan, sides: Sequence[Side], report: Report, build_missing: bool) -> Sources:
    """Return every row's interpreter on each side.

    Raises FrameworkEnvironmentError for an interpreter the user named and got wrong and where not
    one row has an interpreter on both sides, and UsageError for sides that the plan's rows do not
    allow.
    """
    found = {
        side.name: environment.prepare_sources(_builds_of_side(plan, side), report, build_missing)
        for side in sides
    }
    both = [[each[build.name] for each in found.values()] for build in plan.builds]
    if len(sides) > 1 and not any(
        all(source.interpreter for source in sources) for sources in both
    ):
        reasons = dict.fromkeys(
            source.reason.rstrip(".") for sources in both for source in sources if source.reason
        )
        raise FrameworkEnvironmentError(
            f"No row has an interpreter on both sides. {'; '.join(reasons)}."
        )
    return found


def described(sides: Sequence[Side], sources: Sources) -> dict[str, str]:
    """Return what each side is launched with, by its name: versions and environments, no paths
    (they name users).
    """
    found = {}
    for side in sides:
        parts = []
        for source in sources[side.name].values():
            framework = source.build.framework
            name = (
                framework.name if framework.file else source.build.name
            )  # of two files each has its own
            if source.interpreter is None:
                parts.append(f"{name} missing")
                continue
            packages = inspect(source.interpreter).distributions if framework.computes else {}
            version = (
                "" if framework.file else packages.get(framework.imports.partition(".")[0], "")
            )
            kind = "file" if framework.file else "adapter"
            code = f", {kind} {adapter_digest(framework)}" if framework.external else ""
            parts.append(
                " ".join(filter(None, (name, version, f"(environment {source.digest}{code})")))
            )
        parts += [f"{key}={private_value(key, value)}" for key, value in side.variables.items()]
        parts += [f"adapters at {side.revision} ({side.guest.name[:10]})"] if side.revision else []
        found[side.name] = ", ".join(parts)
    return found


def check_same(run: Run, now: Mapping[str, str], rule: Rule) -> None:
    """Refuse other sides, in words, or another rule than the run began with; raises UsageError."""
    remedy = "Give the same options, or start a new run without --resume."
    if run.rule != chosen(rule):
        options = "--threshold, --tolerance, --judge or --allow-different"
        raise UsageError(f"The unfinished run was begun with another {options}. {remedy}")
    for name, then in run.sides.items():
        if now.get(name) != then:
            raise UsageError(
                f"The unfinished run's {name} was {then}; here it is {now.get(name)}. {remedy}"
            )


def report_of(store: Store, run: Run, rule: Rule | None = None) -> Comparison:
    """Return the comparison of a run with two sides so far, by its own rule unless another is
    given.

    Raises UsageError where it has none yet.
    """
    records = store.records(run=run.id)
    host: Host = read_host(run.machine, store.machine(run.machine))
    if not any(record.side for record in records):
        raise UsageError(
            f"Run {run.id} has no pair of launches yet. Resume it (--resume), or compare another."
        )
    return replace(
        compare_sides(run, records, host, rule), operators=step_differences(store.profiles(run.id))
    )
