"""`dlbench env`: build, list and remove the frameworks' environments."""

from typing import Annotated

import typer

from .. import environment
from ..errors import DlbenchError
from ..framework import find, offered
from ..screen import out, print_json, say
from . import listing, options

env_app = typer.Typer(no_args_is_help=True, help="Build, list and remove the frameworks' environments.")


@env_app.command("list")
def env_list(as_json: options.Json = False) -> None:
    """Say for each framework whether its environment is built, where, and what it needs.

    Examples:

    - `dlbench env list`
    """
    frameworks = listing.frameworks()
    if as_json:
        print_json(frameworks)
        return
    for each in frameworks:
        where = each["interpreter"] or each["reason"]
        out.print(f"{each['name']}: {each['state']}. {where}", soft_wrap=True, markup=False)


@env_app.command("build")
def env_build(
    names: Annotated[list[str] | None, typer.Argument(help="Frameworks; all when none is named.")] = None,
) -> None:
    """Build the environments of these frameworks, each with exactly its locked requirements.

    Examples:

    - `dlbench env build torch mxnet`
    """
    frameworks = [find(name) for name in names] if names else list(offered().values())
    failed = None
    for framework in frameworks:
        if environment.locate(framework).state is environment.State.READY:
            say(f"{framework.title}: ready")
            continue
        say(environment.announce(framework))
        try:
            environment.build(framework, say)
        except DlbenchError as error:
            failed = error
            say(f"dlbench: {error}")
    if failed is not None:
        raise typer.Exit(failed.exit_code)


@env_app.command("remove")
def env_remove(names: Annotated[list[str], typer.Argument(help="Frameworks.")]) -> None:
    """Remove the environments of these frameworks and what their adapters cached.

    Examples:

    - `dlbench env remove torch`
    """
    for framework in [find(name) for name in names]:
        removed = environment.remove(framework)
        say(f"{framework.title}: {'removed' if removed else 'was not built'}")
