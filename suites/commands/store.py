"""`dlbench store`: the care of a result store."""

from typing import Annotated

import typer

from dlbench.reports.storage.store import Store

from ..display.screen import say

store_app = typer.Typer(no_args_is_help=True, help="Look after a result store.")


@store_app.callback()
def _of_stores() -> None:
    """Keep `upgrade` a word of its own while it is the only command."""


@store_app.command("upgrade")
def upgrade_command(file: Annotated[str, typer.Argument(help="The store: a file, or a database URL.")]) -> None:
    """Bring a store of an earlier dlbench up to date, keeping a copy of the file as it was.

    Reports read an older file without this, as a copy in memory; `run`, `gate` and `compare --now` upgrade the store
    they write to in the same way.

    Examples:

    - `dlbench store upgrade results.sqlite`
    """
    said: list[str] = []
    with Store.open(file, create=False, upgrade=True, report=said.append) as store:
        for line in said or [f"{store.name} is up to date; nothing was changed"]:
            say(line)
