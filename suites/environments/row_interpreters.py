"""Where each row of a plan comes from: the interpreter of its build, looked into once per run."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..display.screen import StatusLine, err
from ..errors import FrameworkEnvironmentError
from ..planning.values import Build
from . import contents, environment, needs
from .environment import Report, State
from .interpreters import Inspection, inspect


@dataclass(frozen=True)
class Source:
    """A build's interpreter and what it is; or the reason why there is none."""

    build: Build
    interpreter: Path | None
    name: str  # "CPython 3.11.7"; "" where there is none
    digest: str  # of the interpreter and its packages' files (see `contents`); "" where there is none
    reason: str = ""
    folder: Path | None = None  # of the environment: what {environment} in a framework's variables stands for


def look_into(build: Build, interpreter: Path) -> Inspection:
    """Return what an interpreter is and holds of what a build needs: NumPy and the framework's own module."""
    return inspect(interpreter, ("numpy", build.framework.imports))


def brought(build: Build) -> Source:
    """Look into an interpreter the user brought.

    Raises FrameworkEnvironmentError when it does not start, is too old, or lacks the framework or NumPy.
    """
    assert build.interpreter is not None
    if build.framework.unavailable:
        raise FrameworkEnvironmentError(needs.unavailable(build.framework))
    inspection = look_into(build, build.interpreter)
    if inspection.missing:
        lacking = " and ".join(inspection.missing)
        raise FrameworkEnvironmentError(
            f"The interpreter given for {build.name}, {build.interpreter}, lacks {lacking}. Install it there "
            f"(`{build.interpreter} -m pip install ...`) or give another interpreter."
        )
    folder = inspection.prefix or build.interpreter.parent.parent
    return Source(build, build.interpreter, inspection.name, contents.digest_of(inspection), folder=folder)


def prepare(builds: Iterable[Build], report: Report, build_missing: bool = True) -> dict[str, Source]:
    """Return a source for every build, by row name, building the environments that are not there yet.

    An environment that cannot be had gives a source without interpreter, with the reason: the other frameworks still
    run. An interpreter the user named and got wrong is an error.
    """
    distinct = {build.name: build for build in builds}
    found = {name: brought(build) for name, build in distinct.items() if build.interpreter is not None}
    missing = []
    for build in distinct.values():
        if build.interpreter is None:
            located = environment.locate(build.framework)
            if located.state not in (State.READY, State.UNAVAILABLE) and build_missing:
                missing.append(build)
    for build in missing:
        report(environment.announce(build.framework))
    for name, build in distinct.items():
        if name not in found:
            found[name] = _own(build, build in missing, report)
    return found


def _own(build: Build, to_build: bool, report: Report) -> Source:
    try:
        located = _built(build, report) if to_build else environment.locate(build.framework)
        if located.interpreter is None:
            report(f"{build.framework.title} is left out. {located.reason}")
            return Source(build, None, "", "", located.reason)
        inspection = look_into(build, located.interpreter)
        digest = contents.digest_of(inspection)
        return Source(build, located.interpreter, inspection.name, digest, folder=located.directory)
    except FrameworkEnvironmentError as error:
        report(f"{build.framework.title} is left out. {error}")
        return Source(build, None, "", "", str(error))


def _built(build: Build, report: Report) -> environment.Environment:
    with StatusLine(err) as status:
        return environment.build(build.framework, report, status.draw)
