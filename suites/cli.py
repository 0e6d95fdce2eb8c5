"""The command line. Exit codes: `errors.py`, and README.md."""

import errno
import io
import os
import signal
import sys
import time
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from .commands import options
from .commands.compare import compare_command
from .commands.doctor import doctor_command
from .commands.env import env_app
from .commands.explain import explain_command
from .commands.gate import gate_command
from .commands.history import history_command
from .commands.list_and_probe import list_command, probe_command
from .commands.new import new_app
from .commands.options import AxesOfACell
from .commands.plan import plan_command
from .commands.report import report_app
from .commands.run import run_command
from .commands.stores import export_command, import_command, store_app
from .commands.tune import tune_command
from .display.screen import complain
from .errors import DlbenchError, Interrupted, Terminated, UsageError
from .fleet.command import fleet_app
from .planning import external_adapters
from .publishing.page import PAGE_OPTIONS, page_command
from .publishing.site import SITE_OPTIONS, site_command
from .run import preparation

app = typer.Typer(
    name="dlbench",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help=(
        "Which deep-learning framework, which build of it, on how many threads, at which mini-batch, is fastest on "
        "this machine - and can the number be believed?\n\nStart with `dlbench run quick`."
    ),
)
app.add_typer(env_app, name="env")
app.add_typer(fleet_app, name="fleet")
app.add_typer(new_app, name="new")
report_app.command("page")(options.takes(page_command, PAGE_OPTIONS))
report_app.command("site")(options.takes(site_command, SITE_OPTIONS))
app.add_typer(report_app, name="report")
app.add_typer(store_app, name="store")

_ENDING_SECONDS = 10.0
"""For so long after the first Ctrl-C a further one is ignored: launches are ended and the store is closed."""

# What the parser of the command line raises: typer has no public name for it, and where it lies depends on its version.
_BadUsage: type[Exception] = typer.BadParameter.__mro__[2]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(preparation.version())
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that stand before a command, and the adapters that need no option."""
    external_adapters.register(None)


for _command in (
    *(list_command, plan_command, run_command, probe_command, compare_command, gate_command),
    *(export_command, import_command, doctor_command),
):
    app.command(_command.__name__.removesuffix("_command"))(_command)
for _command in (history_command, explain_command, tune_command):  # here each axis may be named in the singular too
    in_plural = {"token_normalize_func": AxesOfACell.in_plural}
    app.command(_command.__name__.removesuffix("_command"), context_settings=in_plural)(_command)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated("Ended by SIGTERM.")


def _end_for_usage(error: Any) -> NoReturn:
    """Say in one line what the command's parser found, or show the help where nothing was asked for."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        sys.exit(UsageError.exit_code)
    command = error.ctx.command_path if getattr(error, "ctx", None) else app.info.name
    said = " ".join(error.format_message().split()).rstrip(".")
    complain(f"{said}{'' if said.endswith('?') else '.'} See: {command} --help")
    sys.exit(UsageError.exit_code)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Begin to end at the first Ctrl-C, and let no second one break into that for some seconds."""
    began = time.monotonic()

    def again(number: int, frame: FrameType | None) -> None:
        if time.monotonic() - began > _ENDING_SECONDS:
            os._exit(Interrupted.exit_code)

    signal.signal(signal.SIGINT, again)
    raise KeyboardInterrupt


def _settle_streams() -> None:
    """Make output possible whatever the terminal's encoding; raises UsageError where standard output is closed."""
    if sys.stderr is None:  # what is printed to no file goes to standard output
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - for as long as the process lasts
    if sys.stdout is None:
        raise UsageError("Standard output is closed, and results have nowhere to go. Redirect it: > /dev/null.")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _check_words(words: list[str]) -> None:
    """Raise UsageError for an option or an argument with nothing in it, such as a variable of a script left empty.

    Also for one that is no text: no name in a suite or a store can be meant.
    """
    for before, word in zip(["", *words], words, strict=False):
        if any("\ud800" <= letter <= "\udfff" for letter in word):
            raise UsageError(f"{word!r} is not text in UTF-8. Write it in letters that are.")
        option, equals, value = word.partition("=")
        if equals and option.startswith("--") and not value.strip():
            raise UsageError(f"{option} has an empty value. Give one, or leave the option out.")
        if not word.strip():
            if before.startswith("--") and "=" not in before:
                raise UsageError(f"{before} has an empty value. Give one, or leave the option out.")
            raise UsageError("An argument is empty. Give its value, or leave it out.")


def main() -> NoReturn:
    """Run the command line; every expected error is one line on stderr and a documented exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as of a script's job in the background
        signal.signal(signal.SIGINT, _interrupt)
    # A reader that leaves a pipe early (head) ends this command as it ends any other.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    code = 0
    try:
        _settle_streams()
        _check_words(sys.argv[1:])
        code = app(standalone_mode=False) or 0
        if code == Interrupted.exit_code:
            raise Interrupted("Interrupted.")
        sys.stdout.flush()
    except _BadUsage as error:
        _end_for_usage(error)
    except KeyboardInterrupt:
        complain("Interrupted.")
        sys.exit(Interrupted.exit_code)
    except DlbenchError as error:
        complain(error)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EFBIG):
            raise
        complain(f"the output cannot be written: {error.strerror}. What was measured is stored.")
        os._exit(UsageError.exit_code)  # a second flush at the interpreter's end would fail in the same way
    sys.exit(code)
