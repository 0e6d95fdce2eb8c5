"""`dlbench env`: build, list and remove the frameworks' environments."""

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dlbench.reports.results.naming import counted
from dlbench.reports.results.safe_text import visible

from ..display.help import CommandLine
from ..display.screen import StatusLine, err, out, print_json, say, show
from ..environments import environment, folders
from ..environments.announcements import announcement
from ..errors import DlbenchError, Interrupted, UsageError
from ..planning.framework import find, offered
from ..run import launch_files
from . import completion, options
from .list import list_frameworks
from .options import argument, flag, takes

env_app = CommandLine(
    no_args_is_help=True, help="Build, list and remove the frameworks' environments."
)


@dataclass(frozen=True, kw_only=True)
class EnvOptions:
    """The option that all commands of this module have."""

    adapter: Annotated[list[str] | None, options.ADAPTER] = None


@dataclass(frozen=True, kw_only=True)
class EnvListOptions(EnvOptions):
    """The options of `dlbench env list`."""

    as_json: Annotated[bool, options.JSON] = False


@env_app.command("list")
@takes(EnvListOptions)
def env_list(given: EnvListOptions) -> None:
    """Show whether each framework's environment is built, where, and what it needs.

    Examples:

    - `dlbench env list`
    """
    frameworks = list_frameworks()
    if given.as_json:
        print_json(frameworks)
        return
    home = folders.home() / "environments"
    show(f"The environments are in {home}.", whole=True)
    for row in frameworks:
        kinds = [kind for kind in ("historic", "large") if row[kind]]
        kind = f" ({', '.join(kinds)})" if kinds else ""
        where = Path(row["interpreter"]) if row["interpreter"] else None
        if where is not None and where.is_relative_to(home):
            where = where.relative_to(home)
        line = visible(f"{row['name']}: {row['state']}{kind}. {where or row['reason']}")
        parts = textwrap.wrap(
            line, out.width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        for part in parts:
            show(part, whole=True)
    for row in frameworks:
        framework = find(row["name"])
        count, megabytes = environment.size_of_releases(framework)
        if count:
            show(f"{framework.name}: {counted(count, 'release')}, {megabytes / 1000:.1f} GB.")
    if taken := launch_files.megabytes():
        show(
            f"Weights of large networks and mini-batches take {taken} MB in "
            f"{launch_files.folder()}.",
            whole=True,
        )


@dataclass(frozen=True, kw_only=True)
class EnvBuildOptions(EnvOptions):
    """The options of `dlbench env build`."""

    names: Annotated[
        list[str] | None,
        argument(
            "NAME",
            "Frameworks to build. Without names, all but the large and the historic ones.",
            autocompletion=completion.framework,
        ),
    ] = None
    on_request: Annotated[bool, flag("--rest", "Build the large and the historic ones.")] = False


@env_app.command("build")
@takes(EnvBuildOptions)
def env_build(given: EnvBuildOptions) -> None:
    """Build the environments of these frameworks, each with exactly its locked requirements.

    Every file is verified by the checksum in its lock. An interrupted build keeps its files, and
    the same command continues with them. Packages that your own adapter locks by version alone are
    installed unverified.

    Examples:

    - `dlbench env build torch mxnet`
    - `dlbench env build --rest`
    """
    frameworks = [find(name) for name in given.names or []]
    if given.on_request or not given.names:
        for framework in offered().values():
            wanted = framework.on_request == given.on_request and not framework.unavailable
            if wanted and framework not in frameworks:
                frameworks.append(framework)
    for line in announcement(environment.to_build(frameworks)):
        say(line)
    failed = None
    for framework in frameworks:
        located = environment.locate(framework)
        if located.state is environment.State.READY:
            say(f"{framework.title}: ready")
            continue
        try:
            with StatusLine(err) as status:
                environment.build(framework, say, status.draw)
        except Interrupted:
            raise
        except DlbenchError as error:
            failed = error
            say(f"dlbench: {error}")
    if failed is not None:
        raise typer.Exit(failed.exit_code)


@dataclass(frozen=True, kw_only=True)
class EnvRemoveOptions(EnvOptions):
    """The options of `dlbench env remove`."""

    names: Annotated[
        list[str] | None,
        argument(
            "NAME", "Frameworks whose environments to remove.", autocompletion=completion.framework
        ),
    ] = None
    releases: Annotated[
        bool,
        flag("--releases", "Remove the environments of releases instead (`dlbench releases`)."),
    ] = False
    weights: Annotated[
        bool,
        flag(
            "--weights", "Remove the files of large weights and mini-batches; runs recreate theirs."
        ),
    ] = False


@env_app.command("remove")
@takes(EnvRemoveOptions)
def env_remove(given: EnvRemoveOptions) -> None:
    """Remove all environments of these frameworks, old ones too, and what their adapters cached.

    Examples:

    - `dlbench env remove torch`
    - `dlbench env remove jax --releases`
    - `dlbench env remove --weights`
    """
    if not given.names and not given.weights:
        raise UsageError("Name frameworks, such as `dlbench env remove torch`, or give --weights.")
    frameworks = [find(name) for name in given.names or []]  # a wrong name removes nothing
    for framework in frameworks:
        removed = environment.remove(framework, given.releases)
        title = f"{framework.title}, releases" if given.releases else framework.title
        say(f"{title}: {'removed' if removed else 'was not built'}")
    if given.weights:
        taken = launch_files.megabytes()
        launch_files.remove()
        result = f"removed, {taken} MB" if taken else "there were none"
        say(f"Large weights and mini-batches: {result}")
