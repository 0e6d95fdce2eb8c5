"""`dlbench store`: the care of stores, in files and on servers."""

import os
from typing import Annotated

import typer

from dlbench.reports.errors import StoreError
from dlbench.reports.storage.servers import copying, urls
from dlbench.reports.storage.store import Store

from ..display.screen import StatusLine, complain, counted, err, say
from ..errors import UsageError
from ..storing import spools

store_app = typer.Typer(no_args_is_help=True, help="Look after a result store.")


@store_app.command("upgrade")
def upgrade_command(file: Annotated[str, typer.Argument(help="The store: a file, or a database URL.")]) -> None:
    """Bring a store of an earlier dlbench up to date, keeping a copy of the file as it was.

    Reports read an older file without this, as a copy in memory; `run`, `gate` and `compare --now` upgrade the store
    they write to in the same way. Of a store on a server no copy is kept.

    Examples:

    - `dlbench store upgrade results.sqlite`
    """
    said: list[str] = []
    with Store.open(file, create=False, upgrade=True, report=said.append) as store:
        for line in said or [f"{store.name} is up to date; nothing was changed"]:
            say(line)


@store_app.command("copy")
def copy_command(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The store to be read: a file, or a database URL.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The store to be written; made where there is none.")],
) -> None:
    """Bring everything that one store holds into another: a file to a server, a server to a file, or alike.

    What is there already stays as it is and is not doubled, so an interrupted copy goes on when it is given again.

    Examples:

    - `dlbench store copy results.sqlite postgresql+psycopg://me@host/results`
    - `dlbench store copy postgresql+psycopg://me@host/results backup.sqlite`
    """
    with Store.open(source, create=False) as read, Store.open(target, report=say) as written, StatusLine(err) as status:
        if read.name == written.name:
            raise UsageError(f"{read.name} is named twice. Name two stores: FROM and TO.")
        added = copying.copy(read, written, lambda done, of: status.draw(f"  {done:,} of {of:,} records"))
        told = f"{counted(added.runs, 'run')} and {counted(added.records, 'record')}"
        say(f"{told} that {written.name} did not have copied from {read.name}")


@store_app.command("deliver")
def deliver_command(
    store_file: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="This server alone. Without it, each that something waits for."),
    ] = None,
) -> None:
    """Deliver what was measured while a store's server was away, each record once; the next run does it too.

    A password that DLBENCH_STORE holds is used for its own server; others are taken from ~/.pgpass or PGPASSWORD.

    Examples:

    - `dlbench store deliver`
    - `dlbench store deliver --store postgresql+psycopg://me@host/results`
    """
    if store_file is not None and not urls.is_served(store_file):
        raise UsageError(f"--store {store_file} is no store on a server: nothing waits for it.")
    targets = [store_file] if store_file else [_with_password(url) for url in spools.servers()]
    targets = [target for target in targets if spools.waiting(target)]
    if not targets:
        say("Nothing waits to be delivered.")
    refused = []
    for target in targets:  # a server that is away keeps nothing from another
        try:
            _deliver(target)
        except StoreError as error:
            refused.append(error)
    for each in refused[1:]:
        complain(each)
    if refused:
        raise refused[0]


def _deliver(target: str) -> None:
    with Store.open(target, report=say) as server:
        added = spools.deliver(target, server)
        told = f"{counted(added.runs, 'run')} and {counted(added.records, 'record')}"
        say(f"{told} that {server.name} did not have delivered")


def _with_password(url: str) -> str:
    """Return a server's URL as DLBENCH_STORE has it, where that is the same."""
    given = os.environ.get("DLBENCH_STORE", "")
    return given if urls.is_served(given) and urls.without_password(given) == url else url
