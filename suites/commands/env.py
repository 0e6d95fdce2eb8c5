"""`dlbench env`: build, list and remove the frameworks' environments."""

import textwrap
from pathlib import Path
from typing import Annotated

import typer

from dlbench.reports.formats.inert import visible

from ..display.screen import StatusLine, err, out, print_json, say, show
from ..environments import environment, folders
from ..errors import DlbenchError, Interrupted
from ..planning.framework import find, offered
from . import options
from .list import list_frameworks

env_app = typer.Typer(no_args_is_help=True, help="Build, list and remove the frameworks' environments.")


@env_app.command("list")
def env_list(adapter: options.Adapter = None, as_json: options.Json = False) -> None:
    """Show for each framework whether its environment is built, where, and its needs.

    Examples:

    - `dlbench env list`
    """
    frameworks = list_frameworks()
    if as_json:
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
        shown = textwrap.wrap(line, out.width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for part in shown:
            show(part, whole=True)


@env_app.command("build")
def env_build(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Frameworks to build. Without names, all but the large and the historic ones."),
    ] = None,
    on_request: Annotated[bool, typer.Option("--rest", help="Build the large and the historic ones.")] = False,
    adapter: options.Adapter = None,
) -> None:
    """Build the environments of these frameworks, each with exactly its locked requirements.

    Every file is verified by the checksum in its lock. When a build is interrupted, files are kept, and the same
    command continues with them. Packages that an adapter of your own locks by version alone are left to pip.

    Examples:

    - `dlbench env build torch mxnet`
    - `dlbench env build --rest`
    """
    frameworks = [find(name) for name in names or []]
    if on_request or not names:
        frameworks += [
            each
            for each in offered().values()
            if each.on_request == on_request and not each.unavailable and each not in frameworks
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
def env_remove(
    names: Annotated[list[str], typer.Argument(help="Frameworks.")], adapter: options.Adapter = None
) -> None:
    """Remove all environments of these frameworks, of earlier locks too, and what their adapters cached.

    Examples:

    - `dlbench env remove torch`
    """
    for framework in [find(name) for name in names]:
        removed = environment.remove(framework)
        say(f"{framework.title}: {'removed' if removed else 'was not built'}")
