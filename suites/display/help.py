"""Commands with readable help: `-h`, flags without a type, code words that need no colours."""

import os
import re
import sys
from collections.abc import Callable, Mapping
from copy import copy
from inspect import cleandoc
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

Function = TypeVar("Function", bound=Callable[..., Any])

HELP_NAMES = {"help_option_names": ["-h", "--help"]}
_CODE = re.compile(r"`([^`\n]+)`")
_EXAMPLE = re.compile(r"\s*- `[^`]+`\s*$")
_EXAMPLES = re.compile(r"\n\nExamples:\n\n(.+?)(?=\n\n|\Z)", re.DOTALL)

SESSION = "Session and output"
RESULTS = "Which results"
"""The panel of the options that choose stored results."""
PANELS: Mapping[str, tuple[str, ...]] = {
    "Which candidates": (
        "--good",
        "--bad",
        "--faster",
        "--repo",
        "--build",
        "--build-limit",
        "--from",
        "--to",
        "--every",
        "--pre",
    ),
    RESULTS: ("--run", "--machine", "--since", "--all-runs"),
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
    ),
    "What to measure": (
        "--networks",
        "--frameworks",
        "--threads",
        "--batch-sizes",
        "--devices",
        "--precisions",
        "--tuning",
        "--task",
        "--suite",
    ),
    "CPUs, workers and data": (
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
        "--steps",
        "--cell-budget",
        "--order",
        "--trend",
        "--confidence",
    ),
    "What counts as slower": (
        "--judge",
        "--threshold",
        "--tolerance",
        "--allow-different",
        "--undecided",
        "--exit-zero",
        "--no-profile",
        "--qualify",
        "--magnitude",
    ),
    "Your own code": ("--step", "--loss-tolerance", "--python", "--adapter", "--env", "--corpus"),
    "What to show": (
        "--quantity",
        "--against",
        "--reference",
        "--paper",
        "--claim",
        "--fail-on",
        "--within",
        "--top",
        "--all",
        "--all-modes",
        "--capabilities",
        "--settings",
        "--axes",
        "--ceilings",
    ),
    "Fleet": (
        "--node",
        "--on",
        "--nodes",
        "--nodelist",
        "--partition",
        "--exclusive",
        "--time-limit",
        "--account",
        "--qos",
        "--slurm-option",
        "--node-python",
        "--folder",
        "--fleet",
        "--wait",
    ),
    SESSION: (
        "--budget",
        "--store",
        "--resume",
        "--seed",
        "--yes",
        "--no-build",
        "--no-ceilings",
        "--no-wait-for-quiet",
        "--plot",
        "--format",
        "--write",
        "--json",
        "--out",
        "--no-page",
        "--title",
        "--note",
        "--url",
    ),
}
"""The options of each panel of a command's help, named by the reader's question, in this order."""
_ORDER = list(PANELS)
_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}

COMMAND_PANELS: Mapping[str, tuple[str, ...]] = {
    "Measure": ("demo", "list", "plan", "run", "tune", "new", "try"),
    "Compare": ("gate", "compare", "bisect", "releases", "history", "explain"),
    "Show": ("report", "export", "import", "store"),
    "Machines": ("doctor", "probe", "env", "fleet"),
}
"""The commands of each panel of `dlbench --help`."""


def panel_of(option: str) -> str | None:
    """Return the panel of an option in the help of a command; None for the first one."""
    return _PANEL_OF.get(option.partition("/")[0])


def panel_of_command(name: str) -> str | None:
    """Return the panel of a command in the help of dlbench; None for the first one."""
    for panel, names in COMMAND_PANELS.items():
        if name in names:
            return panel
    return None


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


def _for_help(command: Any, ctx: Any) -> Any:
    """Return a copy of a command with the texts and parameters that its help shows."""
    shown = copy(command)
    shown.help = spelled(_examples_first(command.help or ""))
    help_option = copy(command.get_help_option(ctx))
    if any(parameter.rich_help_panel == SESSION for parameter in command.params):
        help_option.rich_help_panel = SESSION
    ordered = sorted(command.params, key=_place_of_panel)
    shown.params = [_parameter_for_help(parameter) for parameter in ordered]
    usage = command.collect_usage_pieces(ctx)
    shown.get_help_option = lambda ctx: help_option
    shown.collect_usage_pieces = lambda ctx: usage
    return shown


def _place_of_panel(parameter: Any) -> int:
    panel = getattr(parameter, "rich_help_panel", None)
    return _ORDER.index(panel) if panel in _ORDER else -1


def _examples_first(text: str) -> str:
    """Return a command's help with the examples below its first sentence.

    They need no heading there: each is a command.
    """
    text = cleandoc(text)
    examples = _EXAMPLES.search(text)
    if examples is None:
        return text
    summary, *paragraphs = _EXAMPLES.sub("", text).split("\n\n")
    return "\n\n".join([f"{summary}\n{examples[1]}", *paragraphs])


def _parameter_for_help(parameter: Any) -> Any:
    """Return a copy of a parameter with its default value at the end of its text.

    Typer puts default values, variables, and that an argument is required on lines of their own.
    """
    shown = copy(parameter)
    shown.show_default = False
    shown.show_envvar = False
    text = parameter.help or ""
    default = parameter.default
    has_one = isinstance(default, str | int) and not isinstance(default, bool) and default != ""
    if has_one and "default" not in text:
        text = f"{text.removesuffix('.')} (default {default})."
    shown.help = spelled(text)
    if parameter.param_type_name == "argument":
        shown.required = False
        # Newer versions of Typer show the Python type of an argument, such as <list[str]>; older
        # ones ignore this.
        shown.display_type_rich = lambda ctx: None
    else:
        # A range, such as [x>=1], would take room from the text; an error names it.
        shown._get_number_range_help_str = lambda: None
        if parameter.is_flag:
            shown.metavar = ""
    return shown


def _narrow_columns() -> None:
    """Make the columns of Typer's tables stand closer to each other, for more text in a line."""
    from typer import rich_utils

    # Rich takes four numbers too; Typer's own value has two, and its type is inferred from that.
    padding: Any = (0, 1, 0, 0)
    rich_utils.STYLE_OPTIONS_TABLE_PADDING = padding


def _hide_type(help_option: Any) -> Any:
    """Return the option --help without a placeholder for a value."""
    if help_option is not None:
        help_option.metavar = ""
        help_option.help = "Show this help."
    return help_option


class Command(TyperCommand):
    """A command with readable help."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option --help, a flag."""
        return _hide_type(super().get_help_option(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line."""
        pieces = super().collect_usage_pieces(ctx)
        # Newer versions of Typer put required arguments between braces.
        return [re.sub(r"^\{(.*)\}", r"\1", piece) for piece in pieces]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        _narrow_columns()
        TyperCommand.format_help(_for_help(self, ctx), ctx, formatter)


class CommandGroup(TyperGroup):
    """A command with commands of its own, and with readable help."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option --help, a flag."""
        return _hide_type(super().get_help_option(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        _narrow_columns()
        shown = _for_help(self, ctx)
        shown.get_command = lambda ctx, name: _in_list(self.get_command(ctx, name))
        TyperGroup.format_help(shown, ctx, formatter)


def _in_list(command: Any) -> Any:
    """Return a copy of a command whose summary is spelled for the list of a group's commands."""
    shown = copy(command)
    shown.help = spelled(command.help)
    shown.short_help = spelled(command.short_help)
    return shown


class CommandLine(typer.Typer):
    """A group of commands with readable help."""

    def __init__(self, **further: Any) -> None:
        """Take the arguments of `typer.Typer`."""
        settings: dict[str, Any] = {
            "cls": CommandGroup,
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
