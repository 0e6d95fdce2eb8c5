"""`dlbench report`: from stored records to tables, in every format."""

import typer

from dlbench.reports.store import Store

report_app = typer.Typer(no_args_is_help=True, help="Show what was measured, and what it means.")


def matrix_so_far(store: Store, run: str) -> str:
    """Return the matrix of one run as it stands, for a terminal of 80 columns."""
    return f"{len(store.records(run=run))} records"


@report_app.command("matrix")
def matrix_command() -> None:
    """X"""


@report_app.command("threads")
def threads_command() -> None:
    """X"""
