"""Commands with readable help: `-h`, flags without a type, code words that need no colours."""

import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

Function = TypeVar("Function", bound=Callable[..., Any])

HELP_NAMES = {"help_option_names": ["-h", "--help"]}
_CODE = re.compile(r"`([^`\n]+)`")
_EXAMPLE = re.compile(r"\s*- `[^`]+`\s*$")

PANELS: Mapping[str, tuple[str, ...]] = {
    "What to measure": (
        "--networks",
        "--frameworks",
        "--threads",
        "--batch-sizes",
        "--devices",
        "--precisions",
        "--tuning",
        "--suite",
        "--from",
        "--to",
        "--every",
        "--good",
        "--bad",
        "--faster",
        "--repo",
        "--build",
        "--build-limit",
    ),
    "Workers, CPUs and mini-batches": (
        "--world-sizes",
        "--instances",
        "--sync",
        "--affinity",
        "--cpu-quota",
        "--threads-limit",
        "--device-threads",
        "--placements",
        "--loader-workers",
        "--storage",
    ),
    "How precisely": (
        "--launches",
        "--interval",
        "--pairs",
        "--order",
        "--steps",
        "--cell-budget",
        "--threshold",
        "--tolerance",
        "--confidence",
        "--undecided",
        "--qualify",
    ),
    "Your own code and interpreters": (
        "--step",
        "--loss-tolerance",
        "--python",
        "--adapter",
        "--env",
        "--corpus",
    ),
    "The two sides": (
        "--now",
        "--baseline",
        "--same",
        "--baseline-env",
        "--candidate-env",
        "--baseline-adapters",
        "--candidate-adapters",
        "--baseline-step",
        "--candidate-step",
        "--allow-different",
    ),
    "Which results": ("--run", "--machine", "--since", "--all-runs"),
    "Session": (
        "--budget",
        "--store",
        "--resume",
        "--seed",
        "--yes",
        "--no-build",
        "--no-ceilings",
        "--no-quiet-gate",
        "--node",
    ),
    "Output": (
        "--json",
        "--format",
        "--write",
        "--plot",
        "--quantity",
        "--out",
        "--no-page",
        "--title",
        "--note",
        "--url",
        "--top",
        "--all",
        "--all-modes",
        "--exit-zero",
    ),
}
"""The options of each panel of a command's help; any other option is in the first one."""
_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}


def panel_of(option: str) -> str | None:
    """Return the panel of an option in the help of a command; None for the first one."""
    return _PANEL_OF.get(option)


def metavar_of(option: str) -> str:
    """Return the usual placeholder of an option's value: the last word of its name."""
    return option.removeprefix("--").rpartition("-")[2].upper()


def spelled(text: str | None) -> str | None:
    """Return help whose code words keep their backticks where no colour sets them apart.

    An example on a line of its own has none, so that it can be copied.
    """
    if text is None or _has_colours():
        return text
    lines = []
    for line in text.split("\n"):
        if not _EXAMPLE.match(line):
            line = _CODE.sub(r"`` `\1` ``", line)
        lines.append(line)
    return "\n".join(lines)


def _has_colours() -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown"):
        return False
    return sys.stdout is not None and sys.stdout.isatty()


def _prepare_help(command: Any) -> None:
    """Prepare a command's texts for its help."""
    command.help = spelled(command.help)
    command.short_help = spelled(command.short_help)
    for parameter in command.params:
        parameter.help = spelled(parameter.help)
        if parameter.param_type_name == "argument":
            # Newer versions of Typer show the Python type of an argument, such as <list[str]>;
            # older ones ignore this.
            parameter.display_type_rich = lambda ctx: None


def _hide_type(help_option: Any) -> Any:
    """Return the option --help without a placeholder for a value."""
    if help_option is not None:
        help_option.metavar = ""
    return help_option


class Command(TyperCommand):
    """A command with readable help."""

    def __init__(self, *args: Any, **further: Any) -> None:
        """Take the arguments that Typer gives a command."""
        super().__init__(*args, **further)
        _prepare_help(self)

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option --help, a flag."""
        return _hide_type(super().get_help_option(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line."""
        pieces = super().collect_usage_pieces(ctx)
        # Newer versions of Typer put required arguments between braces.
        return [re.sub(r"^\{(.*)\}", r"\1", piece) for piece in pieces]


class Group(TyperGroup):
    """A command with commands of its own, and with readable help."""

    def __init__(self, *args: Any, **further: Any) -> None:
        """Take the arguments that Typer gives a group."""
        super().__init__(*args, **further)
        _prepare_help(self)

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option --help, a flag."""
        return _hide_type(super().get_help_option(ctx))


class CommandLine(typer.Typer):
    """A group of commands with readable help."""

    def __init__(self, **further: Any) -> None:
        """Take the arguments of `typer.Typer`."""
        settings: dict[str, Any] = {
            "cls": Group,
            "context_settings": HELP_NAMES,
            "rich_markup_mode": "markdown",
            "add_completion": False,
            **further,
        }
        super().__init__(**settings)

    def command(self, name: str | None = None, **further: Any) -> Callable[[Function], Function]:
        """Return the decorator that adds a function as a command."""
        settings: dict[str, Any] = {"cls": Command, **further}
        decorator: Callable[[Function], Function] = super().command(name, **settings)
        return decorator
