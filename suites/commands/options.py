"""The options that several commands share, in tables; a command takes those that it needs.

@takes({"name": argument("SUITE", "A suite's name.")}, AXES, SESSION)
def command(given: Given) -> None: ...
"""

import inspect
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.models import OptionInfo

from ..display.help import metavar_of, panel_of
from ..environments.folders import write_whole
from ..errors import UsageError, unknown_name
from ..planning import own, values, variables
from ..planning.axes import (
    AXIS_OPTIONS,
    KEYS,
    LIMITS,
    PROTOCOL_KEYS,
    AxisOption,
    SuiteOverrides,
    option_of,
)

if TYPE_CHECKING:
    from dlbench.reports.results.results import Narrowing

DEFAULT_STORE = "dlbench.sqlite"
_NEAREST = 3
"""Known names that an error suggests for an unknown one, at most: test ids resemble each other."""

Options = dict[str, tuple[Any, Any]]
"""Annotation and default by parameter."""
Given = SimpleNamespace
"""A command's options and arguments, by parameter."""


def option(
    name: str, text: str, kind: Any = str | None, usual: Any = None, **further: Any
) -> tuple[Any, Any]:
    """Return an option with its help, as Typer takes it: annotation and default."""
    shown = {"metavar": metavar_of(name, kind), "rich_help_panel": panel_of(name), **further}
    return Annotated[kind, typer.Option(name, help=text, **shown)], usual


def flag(name: str, text: str) -> tuple[Any, Any]:
    """Return an option without a value."""
    return option(name, text, bool, False)


def several(name: str, text: str, metavar: str, **further: Any) -> tuple[Any, Any]:
    """Return an option that may be repeated."""
    return option(name, text, list[str] | None, metavar=metavar, **further)


def argument(
    metavar: str, text: str, kind: Any = str, usual: Any = inspect.Parameter.empty
) -> tuple[Any, Any]:
    """Return an argument with its help, as Typer takes it."""
    return Annotated[kind, typer.Argument(metavar=metavar, help=text)], usual


def takes(*tables: Options) -> Callable[[Callable[[Given], None]], Callable[..., None]]:
    """Make a function of `Given` a command with the options and arguments of these tables."""
    found = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=usual, annotation=annotation
        )
        for table in tables
        for name, (annotation, usual) in table.items()
    ]

    usual = {
        each.name: each.default for each in found if each.default is not inspect.Parameter.empty
    }

    def decorated(function: Callable[[Given], None]) -> Callable[..., None]:
        def command(**given: Any) -> None:
            function(Given(**{**usual, **given}))

        command.__doc__, command.__name__, command.__module__ = (
            function.__doc__,
            function.__name__,
            function.__module__,
        )
        # as inspect documents it
        command.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in found}
        return command

    return decorated


def suite_of_network(usual: str) -> tuple[Any, Any]:
    """Return the --suite option of a command that takes networks from a suite."""
    text = "Suite that defines the network and its settings: a name, or a file ending in .toml."
    return option("--suite", text, str, usual, metavar="SUITE")


JSON = flag("--json", "Print JSON.")
_OF_STORE: dict[str, Any] = {"envvar": "DLBENCH_STORE", "metavar": "FILE"}
STORE = option(
    "--store", "Result store: a file, or a database URL.", str, DEFAULT_STORE, **_OF_STORE
)
SEED = option("--seed", "Seed for the order of launches.", int | None)
STEPS = option("--steps", "Maximum number of timed steps per launch.", int | None)
CELL_BUDGET = option(
    "--cell-budget",
    "Time limit of each launch: 60s, 10m. A longer one is stopped and marked timed out.",
    metavar="TIME",
)
BUDGET = option("--budget", "Time budget for all launches: 90s, 10m, 1.5h.", metavar="TIME")
RESULTS = "Which results"
"""The panel of the options that choose stored results."""
OF_SUITE = option("--suite", "Only runs of this suite.", rich_help_panel=RESULTS)
OF_MACHINE = option("--machine", "Only the machine with this fingerprint.", metavar="FINGERPRINT")
NO_BUILD = flag("--no-build", "Skip rows whose environment is not built.")
PRE = flag("--pre", "Take pre-releases and nightlies too, where the package index has any.")
NO_PROFILE = flag(
    "--no-profile",
    "Do not profile slower cells: no operators are named (two to four launches more of each side).",
)
NO_QUIET_GATE = flag(
    "--no-quiet-gate", "Do not wait for a quiet machine or repeat disturbed launches."
)
ORDER = option(
    "--order",
    "How launches follow one another: alternating within tenths of a second (turns, the default "
    "where cells can), or one after the other (sequential).",
    metavar="turns|sequential",
)
SUITE = argument("SUITE", "A suite's name, or a file ending in .toml.")
SUITE_OR_CLAIMS = argument("SUITE", "A suite's name, `claims`, or a file ending in .toml.")
PYTHON = several(
    "--python",
    "Your own interpreter: `torch=/path/to/python`, or `torch-nightly:torch=/path` for an "
    "additional row.",
    "NAME=PATH",
)
ADAPTER = several(
    "--adapter",
    "An adapter of your own, outside dlbench: `my_framework=path/to/folder` "
    "(adapters/TUTORIAL.md).",
    "NAME=FOLDER",
    callback=own.register_adapters,
    is_eager=True,
)

AXES: Options = {
    each.key: option(each.option, each.help, metavar=each.metavar)
    for each in (*AXIS_OPTIONS, *LIMITS)
}
AXES_OF_A_CELL = {
    key: AXES[key] for key in KEYS if key not in ("networks", "frameworks", "threads_limit")
}


def _to_show(axis: AxisOption) -> tuple[Any, Any]:
    """Return the option that shows the stored cells of some values only."""
    names = axis.example or ",".join(axis.known[:2])
    first = names.partition(",")[0]
    shown = f"`{first}` or `{names}`" if names else "`1` or `1,2,4`"
    if names and not first[0].isdecimal():
        shown += f" or `'{first[0]}*'`"
    panel = panel_of(axis.option)
    return option(
        axis.option,
        f"Only these: {shown}.",
        metavar=axis.metavar,
        rich_help_panel=RESULTS if panel == "What to measure" else panel,
    )


AXES_TO_SHOW: Options = {each.key: _to_show(each) for each in AXIS_OPTIONS}
LAUNCHES: Options = {
    "launches": option(
        "--launches",
        "Launches (fresh processes) per cell: 5, or a range such as 5-20, which ends when "
        "--interval is reached.",
        metavar="N|N-M",
    ),
    "interval": option(
        "--interval",
        "Launch a cell until its 95 % interval is within ± this share: 1% (default 2%, in 3-20 "
        "launches); fastest: until each column's fastest cell is known.",
        metavar="SHARE|fastest",
    ),
    "steps": STEPS,
    "cell_budget": CELL_BUDGET,
}
BUILDS: Options = {
    "python": PYTHON,
    "adapter": ADAPTER,
    "step": several(
        "--step",
        "A training step of your own, instead of the suite's networks: see `dlbench new step`.",
        "FILE",
        callback=own.register_steps,
        is_eager=True,
    ),
    "loss_tolerance": option(
        "--loss-tolerance",
        "How far the first losses of your own step, or its outputs in inference, may differ "
        "between launches (default 0.1%).",
        metavar="SHARE",
    ),
    "env": several(
        "--env",
        "An environment variable for all launches; NAME alone passes on the shell's. Launches get "
        "no other variables of the shell.",
        "NAME[=VALUE]",
    ),
}
SESSION: Options = {
    "budget": BUDGET,
    "store_file": STORE,
    "resume": flag("--resume", "Continue the unfinished run of this suite with the same options."),
    "no_build": NO_BUILD,
    "seed": SEED,
    "yes": flag("--yes", "Allow more than 10,000 cells."),
}


def words_of(given: Given, *tables: Options) -> list[str]:
    """Return the command-line words that reproduce these options."""
    found: list[str] = []
    for name, (annotation, _) in ((name, each) for table in tables for name, each in table.items()):
        value = getattr(given, name)
        if value is None or value is False:
            continue
        (declared,) = (each for each in get_args(annotation) if isinstance(each, OptionInfo))
        # To Typer the first name is a default until it looks at it.
        names = map(str, (declared.default, *(declared.param_decls or ())))
        word = next(name for name in names if name.startswith("--"))
        if name == "env":
            found += variables.command_words(variables.read(value))
            continue
        each_value = value if isinstance(value, list) else [value]
        found += (
            [word] if value is True else [part for each in each_value for part in (word, str(each))]
        )
    return found


def words_of_store(store_file: str) -> list[str]:
    """Return the words that select this store, none for the default one; a password in its URL is
    left out.
    """
    from dlbench.reports.results.storage import servers

    return [] if store_file == DEFAULT_STORE else ["--store", servers.without_password(store_file)]


def form_of(form: str | None, as_json: bool, known: Collection[str]) -> str:
    """Return the name of the format asked for; raises UsageError for an unknown one, and for
    two.
    """
    if as_json and form not in (None, "json"):
        raise UsageError(
            f"--json and --format {form} contradict each other. Leave one of them out."
        )
    chosen = "json" if as_json else form or "terminal"
    if chosen not in known:
        raise unknown_name("format", chosen, known)
    return chosen


def write_file(path: Path, text: str, what: str) -> None:
    """Write a file that the user named, whole or not at all; raises UsageError with ``what`` it
    is.
    """
    try:
        write_whole(path, text)
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be written: {error.strerror or error}.") from error


def in_plural(name: str) -> str:
    """Return the name of an option whose singular was typed: "batch-sizes" for "batch-size"."""
    singular = {option_of(each.axis)[2:]: each.option[2:] for each in AXIS_OPTIONS}
    return singular.get(name, name)


def wanted(given: Given) -> dict[str, str]:
    """Return the words that select stored cells, by axis."""
    return {
        each.axis: getattr(given, each.key) for each in AXIS_OPTIONS if getattr(given, each.key)
    }


def check_names(narrowing: "Narrowing", where: str) -> None:
    """Raise UsageError for a network or framework that no stored cell has, with the nearest that
    one has.
    """
    for axis, word in narrowing.unknown():
        if axis in ("network", "framework") and narrowing.cells:
            raise unknown_name(f"{axis} in {where}", word, narrowing.known(axis), _NEAREST)


def own_steps(given: Given) -> own.OwnSteps | None:
    """Return the user's own training steps; raises UsageError."""
    names = tuple(dict.fromkeys(own.name_of(text) for text in given.step or ()))
    if given.loss_tolerance is None:
        return own.OwnSteps(names) if names else None
    if not names:
        raise UsageError("--loss-tolerance requires --step. Give one with --step FILE.")
    return own.OwnSteps(names, values.share(given.loss_tolerance, "--loss-tolerance"))


def interpreters(given: Given) -> list[str]:
    """Return the words of --python, each with its row: a path alone is the interpreter of every
    step.
    """
    steps = own_steps(given)
    rows = steps.names if steps else ()
    return [
        named
        for word in given.python or ()
        for named in ([word] if "=" in word or not rows else [f"{row}={word}" for row in rows])
    ]


def seconds_of(budget: str | None) -> float | None:
    """Return a budget in seconds, None where there is none; raises UsageError."""
    return None if budget is None else values.duration(budget)


def _check_with_steps(given: Given, steps: own.OwnSteps, builds: Sequence[values.Build]) -> None:
    """Raise UsageError for an option that --step would ignore."""
    words, files = vars(given), ", ".join(steps.names)
    if words.get("networks") is not None:
        raise UsageError(
            "--networks and --step exclude each other: the file defines the network. Leave one out."
        )
    names_a_framework = words.get("framework") is not None  # whose releases or builds run the file
    if words.get("adapter") and not names_a_framework:
        raise UsageError(
            "--adapter and --step exclude each other: the rows are your files. Leave one out."
        )
    rows = {*steps.names, *(build.name for build in builds)}
    frameworks = values.words(words["frameworks"]) if words.get("frameworks") else []
    for word in frameworks:
        if word.partition(":")[0] not in rows:
            raise UsageError(
                f"--frameworks {word} and --step exclude each other: the rows are your files "
                f"({files}), and each file imports its own framework. Leave one out."
            )
    for build in builds:
        if build.framework.name not in steps.names:
            raise UsageError(
                f"--python {build.name}=PATH is for a row that is not here: with --step the rows "
                f"are your files ({files}). Give the path alone, or --python {steps.names[0]}=PATH."
            )
    for name in steps.names:
        own.check_axes(name, {key: words.get(key) for key in own.AXES_OF_A_FILE})


def choices(given: Given) -> SuiteOverrides:
    """Return the suite overrides that the options give; raises UsageError, also for an invalid
    --python.
    """
    words: dict[str, Any] = {key: vars(given).get(key) for key in (*KEYS, *PROTOCOL_KEYS, "steps")}
    own_files = own_steps(given)
    builds = tuple(values.build(text) for text in interpreters(given))
    if own_files is not None:
        _check_with_steps(given, own_files, builds)
    joining = tuple(text.partition("=")[0] for text in given.adapter or ())
    environment = variables.read(vars(given).get("env") or ())
    return SuiteOverrides(
        **words, builds=builds, joining=joining, own=own_files, variables=environment
    )
