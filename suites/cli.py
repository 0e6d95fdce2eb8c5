"""The command line. Exit codes: `errors.py`, and docs/reference/exit-codes.md."""

import errno
import importlib.metadata
import io
import os
import signal
import sys
import time
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from .display.help import CommandLine, panel_of_command
from .display.screen import complain
from .errors import DlbenchError, HungUp, Interrupted, Terminated, UsageError

COMMANDS = {
    "demo": ("commands.demo", "Show an example result, without measuring anything."),
    "list": ("commands.list", "List the networks, frameworks and suites."),
    "plan": ("commands.plan", "Show what a run would measure, and for how long."),
    "run": ("commands.run", "Measure a suite on this machine and show its matrix."),
    "tune": ("commands.run", "Search for the fastest way to run a network on this machine."),
    "compare": ("commands.compare", "Compare two stored runs, or measure two sides now."),
    "releases": (
        "commands.releases",
        "Measure a framework's releases, and show where its speed changed.",
    ),
    "gate": ("commands.gate", "Judge a candidate against a baseline, with exit codes for CI."),
    "bisect": ("commands.bisect", "Find the release or commit that made a step slower."),
    "history": ("commands.history", "Show each cell over many runs, and when it changed."),
    "explain": ("commands.explain", "Show where the time of one training step goes."),
    "report": ("commands.report", "Show what was measured, and what it means."),
    "doctor": ("commands.probe", "Find what disturbs measurements on this machine."),
    "probe": ("commands.probe", "Describe this machine, and measure its ceilings."),
    "export": ("commands.stores", "Write launches or runs in other tools' formats."),
    "import": ("commands.stores", "Read pytest-benchmark result files into a store."),
    "store": ("commands.stores", "Copy result stores, and deliver records to a server."),
    "env": ("commands.env", "Build, list and remove the frameworks' environments."),
    "fleet": ("fleet.command", "Measure one suite on many machines."),
    "new": ("commands.new", "Create a starter file."),
    "try": ("commands.try_step", "Run a training step of your own twice, with its output shown."),
}
"""Each command's module, and its line in --help.

Only the module of the command that was given is imported.
"""
_SUMMARY = """Which deep-learning framework, which build of it, on how many threads, at which
mini-batch size, is fastest on this machine, and can the number be believed?

Examples:

- `dlbench run quick`
- `dlbench gate quick --baseline-step old.py --step new.py --threads 1`
"""
_SINGULAR = ("history", "explain", "tune", "releases", "bisect")
"""Commands whose axes may be named in the singular, too."""

# The exception of the command line's parser: Typer has no public name for it.
_BadUsage: type[Exception] = typer.BadParameter.__mro__[2]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(importlib.metadata.version("dlbench"))
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version.",
            callback=_print_version,
            is_eager=True,
            metavar="",
        ),
    ] = False,
) -> None:
    """Take the options before a command, and register the adapters that need no option."""
    from .planning import own

    own.register_adapters(None)


def build_app(chosen: str) -> typer.Typer:
    """Return the command line: the chosen command in full, each other one as its line in --help."""
    settings: dict[str, Any]
    app = CommandLine(
        name="dlbench",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=True,
        help=_SUMMARY,
    )
    app.callback()(_options)
    for name, (module, summary) in COMMANDS.items():
        panel = panel_of_command(name)
        if name != chosen:
            app.command(name, help=summary, rich_help_panel=panel)(lambda: None)
            continue
        command_module = importlib.import_module(f"dlbench.suites.{module}")
        if name == "report":
            pages = importlib.import_module("dlbench.suites.commands.page")
            for page in ("page", "site"):
                settings = {"rich_help_panel": command_module.PANEL_OF[page]}
                command_module.report_app.command(page, **settings)(
                    getattr(pages, f"{page}_command")
                )
        if hasattr(command_module, f"{name}_app"):
            group = getattr(command_module, f"{name}_app")
            app.add_typer(group, name=name, rich_help_panel=panel)
            continue
        settings = {}
        if name in _SINGULAR:
            options = importlib.import_module("dlbench.suites.commands.options")
            settings["token_normalize_func"] = options.in_plural
        function = getattr(command_module, f"{name}_command")
        app.command(name, context_settings=settings, rich_help_panel=panel)(function)
    return app


_COMPLETING = "_DLBENCH_COMPLETE"
"""The variable that a shell sets to ask for completions."""
_ENDING_SECONDS = 10.0
"""Further signals are ignored for this long after the first, while launches end and the store
closes."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Start shutting down at the first signal, and ignore further ones for some seconds."""
    began = time.monotonic()

    def again(number: int, frame: FrameType | None) -> None:
        if time.monotonic() - began > _ENDING_SECONDS:
            os._exit(128 + number)

    for ending in _ENDING:
        if signal.getsignal(ending) is _end:
            signal.signal(ending, again)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    message = f"Ended by {signal.Signals(number).name}."
    if number == signal.SIGHUP:
        raise HungUp(message)
    raise Terminated(message)


def _end_for_usage(error: Any) -> NoReturn:
    """Print the parser's error in one line, or the help if the command got no arguments."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        sys.exit(UsageError.exit_code)
    command = error.ctx.command_path if getattr(error, "ctx", None) else "dlbench"
    message = " ".join(error.format_message().split()).rstrip(".")
    if not message.endswith("?"):
        message += "."
    complain(f"{message} See: {command} --help")
    sys.exit(UsageError.exit_code)


def _check_surroundings() -> None:
    """Make output work in any encoding.

    Raises UsageError if standard output is closed or the working folder does not exist.
    """
    if sys.stderr is None:
        # print() to None would go to standard output. The file stays open until the process ends.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
    if sys.stdout is None:
        raise UsageError(
            "Standard output is closed, so results have nowhere to go. Redirect it: > /dev/null."
        )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        os.getcwd()  # noqa: PTH109 - only to see whether it exists
    except OSError as error:
        raise UsageError("The working folder was removed. Change into one that exists.") from error


def _check_words(words: list[str]) -> None:
    """Raise UsageError for an empty option or argument, such as a script's unset variable.

    Also for one that is not valid text, since it cannot name anything in a suite or a store.
    """
    empty = "{} has an empty value. Give one, or leave the option out."
    previous = ""
    for word in words:
        if any("\ud800" <= letter <= "\udfff" for letter in word):
            raise UsageError(f"{word!r} is not valid UTF-8. Give it as UTF-8 text.")
        option, equals, value = word.partition("=")
        if equals and option.startswith("--") and not value.strip():
            raise UsageError(empty.format(option))
        if not word.strip():
            if previous.startswith("--") and "=" not in previous:
                raise UsageError(empty.format(previous))
            raise UsageError("An argument is empty. Give its value, or leave it out.")
        previous = word


def _command_of(words: list[str]) -> str:
    """Return the command that the words, or those that a shell asks to complete, begin with."""
    if _COMPLETING in os.environ:
        line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
        words = line.split()[1:]
    # A global option takes no value: the first word that is not an option names the command.
    return next((word for word in words if not word.startswith("-")), "")


def main() -> NoReturn:
    """Run the command line.

    An expected error is one line on stderr and a documented exit code.
    """
    for ending in _ENDING:
        # A signal is ignored under nohup, and in a script's background job.
        if signal.getsignal(ending) is not signal.SIG_IGN:
            signal.signal(ending, _end)
    # A reader that leaves a pipe early (head) ends this command as it ends any other.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    code = 0
    try:
        words = sys.argv[1:]
        _check_surroundings()
        _check_words(words)
        app = build_app(_command_of(words))
        code = app(prog_name="dlbench", standalone_mode=False) or 0
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
        complain(f"the output cannot be written: {error.strerror}. All measurements are stored.")
        # A second flush at the interpreter's end would fail in the same way.
        os._exit(UsageError.exit_code)
    sys.exit(code)
