"""The options that several commands share, and how a command declares its own.

A command has a frozen dataclass with a field for each of its options and arguments. Their Typer
declaration stands in the field's type. Options that several commands share are base classes:

    @dataclass(frozen=True, kw_only=True)
    class PlanOptions(AxisOptions, BuildOptions):
        name: Annotated[str, argument("SUITE", "A suite's name.")]
        seed: Annotated[int | None, SEED] = None

    @takes(PlanOptions)
    def plan_command(given: PlanOptions) -> None: ...
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import typer
from typer.models import OptionInfo

from ..display.help import RESULTS, metavar_of, panel_of
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
from . import completion

if TYPE_CHECKING:
    from dlbench.reports.results.results import Narrowing

DEFAULT_STORE = "dlbench.sqlite"
_NEAREST = 3
"""Known names that an error suggests for an unknown one, at most: test ids resemble each other."""

Given = TypeVar("Given")
"""A class with a field for each option and argument of a command."""


def option(name: str, text: str, metavar: str | None = None, **further: Any) -> Any:
    """Return the declaration of an option with a value."""
    if metavar is None:
        metavar = metavar_of(name)
    settings = {"metavar": metavar, "rich_help_panel": panel_of(name), **further}
    return typer.Option(name, help=text, **settings)


def flag(name: str, text: str) -> Any:
    """Return the declaration of an option without a value: its field is a bool."""
    return option(name, text, metavar="")


def argument(metavar: str, text: str, **further: Any) -> Any:
    """Return the declaration of an argument."""
    return typer.Argument(metavar=metavar, help=text, **further)


def names_of(kind: type) -> list[str]:
    """Return the fields of a class of options: those of its bases from left to right, then its own.

    This is their order in --help. `dataclasses.fields` has the bases from right to left.
    """
    names: list[str] = []
    for base in kind.__bases__:
        names += names_of(base)
    names += vars(kind).get("__annotations__", {})
    return list(dict.fromkeys(names))


def parameters_of(kind: type, without: Collection[str] = ()) -> list[inspect.Parameter]:
    """Return the parameters of a command with the options of this class, except those ``without``.

    The object of a command has the default value of an option that the command does not offer.
    """
    field_by_name = {field.name: field for field in fields(kind)}
    parameters = []
    for name in names_of(kind):
        if name in without:
            continue
        field = field_by_name[name]
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=field.type
            )
        )
    return parameters


def takes(
    kind: type[Given], parameters: Sequence[inspect.Parameter] | None = None
) -> Callable[[Callable[[Given], None]], Callable[..., None]]:
    """Make a function of an object of options a command with the options of the object's class.

    Given ``parameters`` replace those of the class.
    """
    if parameters is None:
        parameters = parameters_of(kind)

    def decorated(function: Callable[[Given], None]) -> Callable[..., None]:
        def command(**words: Any) -> None:
            function(kind(**words))

        command.__doc__ = function.__doc__
        command.__name__ = function.__name__
        command.__module__ = function.__module__
        # as inspect documents it
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorated


JSON = flag("--json", "Print JSON.")
STORE = option(
    "--store",
    "Store: file or URL (default `$DLBENCH_STORE` or dlbench.sqlite).",
    metavar="FILE",
    envvar="DLBENCH_STORE",
)
SEED = option("--seed", "Seed for the order of launches.", metavar="N")
STEPS = option("--steps", "Maximum number of timed samples per launch.", metavar="N")
CELL_BUDGET = option(
    "--cell-budget",
    "Time limit of each launch: 60s, 10m. A longer one has timed out.",
    metavar="TIME",
)
BUDGET = option("--budget", "Time budget for all launches: 90s, 10m, 1.5h.", metavar="TIME")
OF_SUITE = option(
    "--suite", "Only runs of this suite.", rich_help_panel=RESULTS, autocompletion=completion.suites
)
OF_MACHINE = option("--machine", "Only the machine with this fingerprint.", metavar="FINGERPRINT")
NO_BUILD = flag("--no-build", "Skip rows whose environment is not built.")
PRE = flag("--pre", "Take pre-releases and nightly builds too.")
NO_PROFILE = flag("--no-profile", "Do not profile slower cells, so that no operators are named.")
NO_WAIT_FOR_QUIET = flag(
    "--no-wait-for-quiet", "Do not wait for a quiet machine or repeat disturbed launches."
)
ORDER = option("--order", "`turns` (launches alternate, the default) or `sequential`.")
SUITE = argument(
    "SUITE",
    "A suite's name (`dlbench list`), or a file ending in .toml.",
    autocompletion=completion.suites,
)
SUITE_OR_CLAIMS = argument(
    "SUITE",
    "A suite's name (`dlbench list`), `claims`, or a file ending in .toml.",
    autocompletion=completion.suites,
)
SUITE_OF_NETWORK = option(
    "--suite",
    "The suite that defines the network: a name, or a file ending in .toml.",
    autocompletion=completion.suites,
)
PYTHON = option(
    "--python",
    "Your interpreter: `torch=PATH`, or `new:torch=PATH` as a new row.",
    metavar="NAME=PATH",
)
ADAPTER = option(
    "--adapter",
    "An adapter of your own: `my_framework=path/to/folder`.",
    metavar="NAME=FOLDER",
    callback=own.register_adapters,
    is_eager=True,
)
STEP = option(
    "--step",
    "Your own training step, not networks (see `dlbench new step`).",
    metavar="FILE",
    callback=own.register_steps,
    is_eager=True,
)
LOSS_TOLERANCE = option(
    "--loss-tolerance",
    "How far the step's losses or outputs may differ (default 0.1%).",
    metavar="SHARE",
)
ENV = option(
    "--env", "A variable for launches. NAME alone passes on your shell's.", metavar="NAME[=VALUE]"
)

AXES: dict[str, Any] = {
    axis.key: option(
        axis.option, axis.help, metavar=axis.metavar, autocompletion=completion.of_axis(axis)
    )
    for axis in (*AXIS_OPTIONS, *LIMITS)
}
"""The options that choose cells to measure."""


def _option_to_show(axis: AxisOption) -> Any:
    """Return the option that shows the stored cells of some values only."""
    names = axis.example or ",".join(axis.known[:2]) or "1,2,4"
    text = f"Only these: `{names}`."
    if axis.axis in ("network", "framework"):
        text = f"Only these: `{names}`, or a pattern: `'{names[0]}*'`."
    panel = panel_of(axis.option)
    if panel == "What to measure":
        panel = RESULTS
    return option(
        axis.option,
        text,
        metavar=axis.metavar,
        rich_help_panel=panel,
        autocompletion=completion.of_axis(axis),
    )


AXES_TO_SHOW: dict[str, Any] = {axis.key: _option_to_show(axis) for axis in AXIS_OPTIONS}
"""The options that choose stored cells to show."""


@dataclass(frozen=True, kw_only=True)
class AxisOptions:
    """Words that choose the cells to measure, by key of the table of axes."""

    networks: Annotated[str | None, AXES["networks"]] = None
    frameworks: Annotated[str | None, AXES["frameworks"]] = None
    threads: Annotated[str | None, AXES["threads"]] = None
    batch_sizes: Annotated[str | None, AXES["batch_sizes"]] = None
    devices: Annotated[str | None, AXES["devices"]] = None
    precisions: Annotated[str | None, AXES["precisions"]] = None
    placements: Annotated[str | None, AXES["placements"]] = None
    tuning: Annotated[str | None, AXES["tuning"]] = None
    affinity: Annotated[str | None, AXES["affinity"]] = None
    world_sizes: Annotated[str | None, AXES["world_sizes"]] = None
    instances: Annotated[str | None, AXES["instances"]] = None
    cpu_quota: Annotated[str | None, AXES["cpu_quota"]] = None
    loader_workers: Annotated[str | None, AXES["loader_workers"]] = None
    storage: Annotated[str | None, AXES["storage"]] = None
    sync: Annotated[str | None, AXES["sync"]] = None
    task: Annotated[str | None, AXES["task"]] = None
    threads_limit: Annotated[str | None, AXES["threads_limit"]] = None
    device_threads: Annotated[str | None, AXES["device_threads"]] = None


@dataclass(frozen=True, kw_only=True)
class CellOptions(AxisOptions):
    """The cells to measure, and their steps."""

    steps: Annotated[int | None, STEPS] = None
    cell_budget: Annotated[str | None, CELL_BUDGET] = None


@dataclass(frozen=True, kw_only=True)
class ShownAxisOptions:
    """Words that choose stored cells to show, by key of the table of axes."""

    networks: Annotated[str | None, AXES_TO_SHOW["networks"]] = None
    frameworks: Annotated[str | None, AXES_TO_SHOW["frameworks"]] = None
    threads: Annotated[str | None, AXES_TO_SHOW["threads"]] = None
    batch_sizes: Annotated[str | None, AXES_TO_SHOW["batch_sizes"]] = None
    devices: Annotated[str | None, AXES_TO_SHOW["devices"]] = None
    precisions: Annotated[str | None, AXES_TO_SHOW["precisions"]] = None
    placements: Annotated[str | None, AXES_TO_SHOW["placements"]] = None
    tuning: Annotated[str | None, AXES_TO_SHOW["tuning"]] = None
    affinity: Annotated[str | None, AXES_TO_SHOW["affinity"]] = None
    world_sizes: Annotated[str | None, AXES_TO_SHOW["world_sizes"]] = None
    instances: Annotated[str | None, AXES_TO_SHOW["instances"]] = None
    cpu_quota: Annotated[str | None, AXES_TO_SHOW["cpu_quota"]] = None
    loader_workers: Annotated[str | None, AXES_TO_SHOW["loader_workers"]] = None
    storage: Annotated[str | None, AXES_TO_SHOW["storage"]] = None
    sync: Annotated[str | None, AXES_TO_SHOW["sync"]] = None
    task: Annotated[str | None, AXES_TO_SHOW["task"]] = None


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """How many launches a cell gets, and how long they last."""

    launches: Annotated[
        str | None,
        option(
            "--launches",
            "Fresh processes per cell: 5, or 5-20, as many as --interval needs.",
            metavar="N",
        ),
    ] = None
    interval: Annotated[
        str | None,
        option(
            "--interval",
            "Launch until the interval is ±1%, or the `fastest` is known.",
            metavar="SHARE",
        ),
    ] = None
    steps: Annotated[int | None, STEPS] = None
    cell_budget: Annotated[str | None, CELL_BUDGET] = None


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """The user's own interpreters, adapters and steps, and variables of the launches."""

    python: Annotated[list[str] | None, PYTHON] = None
    adapter: Annotated[list[str] | None, ADAPTER] = None
    step: Annotated[list[str] | None, STEP] = None
    loss_tolerance: Annotated[str | None, LOSS_TOLERANCE] = None
    env: Annotated[list[str] | None, ENV] = None


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """How long to measure, into which store, and whether to continue an unfinished run."""

    budget: Annotated[str | None, BUDGET] = None
    store_file: Annotated[str, STORE] = DEFAULT_STORE
    resume: Annotated[
        bool, flag("--resume", "Continue the unfinished run of this suite with the same options.")
    ] = False
    no_build: Annotated[bool, NO_BUILD] = False
    seed: Annotated[int | None, SEED] = None
    yes: Annotated[bool, flag("--yes", "Allow more than 10,000 cells.")] = False


@dataclass(frozen=True, kw_only=True)
class SuiteOptions(AxisOptions, LaunchOptions, BuildOptions):
    """All options that change a suite's plan."""


def words_of(given: Any, names: Iterable[str]) -> list[str]:
    """Return the command-line words that reproduce these fields of a command's options."""
    type_by_name = {field.name: field.type for field in fields(given)}
    words: list[str] = []
    for name in names:
        value = getattr(given, name)
        if value is None or value is False:
            continue
        option_word = _option_word(type_by_name[name])
        if name == "env":
            words += variables.command_words(variables.read(value))
        elif value is True:
            words.append(option_word)
        elif isinstance(value, list):
            for part in value:
                words += [option_word, str(part)]
        else:
            words += [option_word, str(value)]
    return words


def _option_word(annotation: Any) -> str:
    """Return the word of the command line that a field's option has, such as "--threads"."""
    (declared,) = (part for part in get_args(annotation) if isinstance(part, OptionInfo))
    # Typer takes the first name for a default until it makes the command.
    names = map(str, (declared.default, *(declared.param_decls or ())))
    return next(name for name in names if name.startswith("--"))


def words_of_store(store_file: str) -> list[str]:
    """Return the words that select this store, none for the default one.

    A password in its URL is left out.
    """
    from dlbench.reports.results.storage import servers

    if store_file == DEFAULT_STORE:
        return []
    return ["--store", servers.without_password(store_file)]


def form_of(form: str | None, as_json: bool, known: Collection[str]) -> str:
    """Return the name of the output format. Raises UsageError for an unknown one, and for two."""
    if as_json and form not in (None, "json"):
        raise UsageError(
            f"--json and --format {form} contradict each other. Leave one of them out."
        )
    chosen = "json" if as_json else form or "terminal"
    if chosen not in known:
        raise unknown_name("format", chosen, known)
    return chosen


def write_file(path: Path, text: str, what: str) -> None:
    """Write a file that the user named, whole or not at all. Raises UsageError.

    ``what`` names the file in the error, as in "The page".
    """
    try:
        write_whole(path, text)
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be written: {error.strerror or error}.") from error


def in_plural(name: str) -> str:
    """Return the name of an option whose singular was typed: "batch-sizes" for "batch-size"."""
    plural_of_singular = {option_of(axis.axis)[2:]: axis.option[2:] for axis in AXIS_OPTIONS}
    return plural_of_singular.get(name, name)


def wanted(given: ShownAxisOptions) -> dict[str, str]:
    """Return the words that select stored cells, by axis."""
    words = {axis.axis: getattr(given, axis.key) for axis in AXIS_OPTIONS}
    return {axis: word for axis, word in words.items() if word}


def check_names(narrowing: "Narrowing", where: str) -> None:
    """Raise UsageError for a network or framework of no stored cell, with the nearest names."""
    for axis, word in narrowing.unknown():
        if axis in ("network", "framework") and narrowing.cells:
            raise unknown_name(f"{axis} in {where}", word, narrowing.known(axis), _NEAREST)


def own_steps(given: BuildOptions) -> own.OwnSteps | None:
    """Return the user's own training steps. Raises UsageError."""
    names = tuple(dict.fromkeys(own.name_of(text) for text in given.step or ()))
    if given.loss_tolerance is None:
        return own.OwnSteps(names) if names else None
    if not names:
        raise UsageError("--loss-tolerance requires --step. Give one with --step FILE.")
    return own.OwnSteps(names, values.share(given.loss_tolerance, "--loss-tolerance"))


def interpreters(given: BuildOptions) -> list[str]:
    """Return the words of --python, each with its row.

    A path alone is the interpreter of every step of the user's own.
    """
    steps = own_steps(given)
    rows = steps.names if steps else ()
    named: list[str] = []
    for word in given.python or ():
        if "=" in word or not rows:
            named.append(word)
        else:
            named += [f"{row}={word}" for row in rows]
    return named


def seconds_of(budget: str | None) -> float | None:
    """Return a budget in seconds, None where there is none. Raises UsageError."""
    return None if budget is None else values.duration(budget)


def _check_with_steps(
    given: BuildOptions, steps: own.OwnSteps, builds: Sequence[values.Build]
) -> None:
    """Raise UsageError for an option that --step would ignore."""
    words = vars(given)
    files = ", ".join(steps.names)
    if words.get("networks") is not None:
        raise UsageError(
            "--networks and --step exclude each other: the file defines the network. Leave one out."
        )
    names_a_framework = words.get("framework") is not None  # whose releases or builds run the file
    if given.adapter and not names_a_framework:
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
                f"--python {build.name}=PATH is for a row that was not selected: with --step the "
                f"rows are your files ({files}). Give the path alone, or --python "
                f"{steps.names[0]}=PATH."
            )
    for name in steps.names:
        own.check_axes(name, {key: words.get(key) for key in own.AXES_OF_A_FILE})


def choices(given: BuildOptions) -> SuiteOverrides:
    """Return the changes to a suite that the options ask for. Raises UsageError.

    A command may lack some of the axes, and of the options of `LaunchOptions`.
    """
    words = {key: getattr(given, key, None) for key in (*KEYS, *PROTOCOL_KEYS)}
    steps: int | None = getattr(given, "steps", None)
    own_files = own_steps(given)
    builds = tuple(values.build(text) for text in interpreters(given))
    if own_files is not None:
        _check_with_steps(given, own_files, builds)
    joining = tuple(text.partition("=")[0] for text in given.adapter or ())
    return SuiteOverrides(
        **words,
        steps=steps,
        builds=builds,
        joining=joining,
        own=own_files,
        variables=variables.read(given.env or ()),
    )
