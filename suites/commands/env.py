"""`dlbench env`: build, list and remove the frameworks' environments."""

import textwrap
from pathlib import Path

import typer

from dlbench.reports.results.naming import counted
from dlbench.reports.results.safe_text import visible

from ..display.help import CommandLine
from ..display.screen import StatusLine, err, out, print_json, say, show
from ..environments import environment, folders
from ..errors import DlbenchError, Interrupted, UsageError
from ..planning.framework import find, offered
from ..run import launch_files
from . import options
from .list import list_frameworks
from .options import Given, flag, takes

env_app = CommandLine(
    no_args_is_help=True, help="Build, list and remove the frameworks' environments."
)


_ADAPTER: options.Options = {"adapter": options.ADAPTER}


@env_app.command("list")
@takes(_ADAPTER, {"as_json": options.JSON})
def env_list(given: Given) -> None:
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
    for each in frameworks:
        kinds = [kind for kind in ("historic", "large") if each[kind]]
        kind = f" ({', '.join(kinds)})" if kinds else ""
        where = Path(each["interpreter"]) if each["interpreter"] else None
        if where is not None and where.is_relative_to(home):
            where = where.relative_to(home)
        line = visible(f"{each['name']}: {each['state']}{kind}. {where or each['reason']}")
        shown = textwrap.wrap(
            line, out.width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        for part in shown:
            show(part, whole=True)
    for framework in map(find, (each["name"] for each in frameworks)):
        count, megabytes = environment.size_of_releases(framework)
        if count:
            show(f"{framework.name}: {counted(count, 'release')}, {megabytes / 1000:.1f} GB.")
    if taken := launch_files.megabytes():
        show(
            f"Weights of large networks and mini-batches take {taken} MB in "
            f"{launch_files.folder()}.",
            whole=True,
        )


_NAMES = "Frameworks to build. Without names, all but the large and the historic ones."


@env_app.command("build")
@takes(
    {
        "names": options.argument("NAME", _NAMES, list[str] | None, None),
        "on_request": flag("--rest", "Build the large and the historic ones."),
    },
    _ADAPTER,
)
def env_build(given: Given) -> None:
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
        frameworks += [
            each
            for each in offered().values()
            if each.on_request == given.on_request
            and not each.unavailable
            and each not in frameworks
        ]
    failed = None
    for framework in frameworks:
        located = environment.locate(framework)
        if located.state is environment.State.READY:
            say(f"{framework.title}: ready")
            continue
        if located.state is not environment.State.UNAVAILABLE:
            say(environment.announce(framework))
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


@env_app.command("remove")
@takes(
    {
        "names": options.argument(
            "NAME", "Frameworks whose environments to remove.", list[str] | None, None
        ),
        "of_releases": flag(
            "--releases", "Remove the environments of releases instead (`dlbench releases`)."
        ),
        "of_weights": flag(
            "--weights", "Remove the files of large weights and mini-batches; runs recreate theirs."
        ),
    },
    _ADAPTER,
)
def env_remove(given: Given) -> None:
    """Remove all environments of these frameworks, old ones too, and what their adapters cached.

    Examples:

    - `dlbench env remove torch`
    - `dlbench env remove jax --releases`
    - `dlbench env remove --weights`
    """
    if not given.names and not given.of_weights:
        raise UsageError("Name frameworks, such as `dlbench env remove torch`, or give --weights.")
    for framework in list(map(find, given.names or [])):  # a wrong name removes nothing
        removed = environment.remove(framework, given.of_releases)
        what = f"{framework.title}, releases" if given.of_releases else framework.title
        say(f"{what}: {'removed' if removed else 'was not built'}")
    if given.of_weights:
        taken = launch_files.megabytes()
        launch_files.remove()
        say(
            "Large weights and mini-batches: "
            f"{f'removed, {taken} MB' if taken else 'there were none'}"
        )
