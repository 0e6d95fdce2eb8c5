"""The options that several commands share, in groups, with their help.

A command takes one object for each group, and Typer sees every option of it:

    @dataclass(frozen=True)
    class Where(OptionGroup):
        store: Annotated[str, typer.Option("--store")] = "dlbench.sqlite"

    @grouped
    def command(name: str, where: Where) -> None: ...
"""

import inspect
from collections.abc import Callable, Collection
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, ClassVar, Self, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from ..errors import UsageError, unknown_name
from ..planning import own, values
from ..planning.axes import AXIS_OPTIONS, LIMITS, PROTOCOL_KEYS, AxisOption, SuiteOverrides, narrowing_help, option_of

DEFAULT_STORE = "dlbench.sqlite"

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
StoreFile = Annotated[
    str,
    typer.Option("--store", envvar="DLBENCH_STORE", metavar="FILE", help="Result store: a file, or a database URL."),
]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of the launching order.")]
Steps = Annotated[int | None, typer.Option("--steps", help="Timed steps per launch, at most.")]
CellBudget = Annotated[
    str | None,
    typer.Option("--cell-budget", help="Time for one launch: 60s, 10m. One that lasts longer is ended: timed out."),
]
TotalBudget = Annotated[str | None, typer.Option("--budget", help="Time for all launches: 90s, 10m, 1.5h.")]
OfSuite = Annotated[str | None, typer.Option("--suite", help="Only runs of this suite.")]
OfMachine = Annotated[str | None, typer.Option("--machine", help="Only the machine with this fingerprint.")]
NoBuild = Annotated[bool, typer.Option("--no-build", help="Skip rows whose environment is not built.")]


def takes(command: Callable[..., None], given: dict[str, tuple[Any, Any]]) -> Callable[..., None]:
    """Let a function that takes any keywords have these parameters, by name annotation and default; return it."""
    found = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=usual, annotation=annotation)
        for name, (annotation, usual) in given.items()
    ]
    command.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]  # as inspect documents it
    command.__annotations__ = {each.name: each.annotation for each in found}
    return command


class OptionGroup:
    """Options that belong together; a subclass is a dataclass whose fields are options, or says what they are."""

    @classmethod
    def parameters(cls) -> dict[str, tuple[Any, Any]]:
        """Return the options by name: annotation and default."""
        hints = get_type_hints(cls, include_extras=True)
        return {
            field.name: (hints[field.name], inspect.Parameter.empty if field.default is MISSING else field.default)
            for field in fields(cls)  # type: ignore[arg-type]  # every subclass is a dataclass
        }

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """Make the group of what was given for each of its options."""
        return cls(**given)

    def given(self) -> dict[str, Any]:
        """Return what was given for each option, by name."""
        return {name: getattr(self, name) for name in self.parameters()}


def words_of(*groups: OptionGroup) -> list[str]:
    """Return the words of a command line that give these groups again."""
    found: list[str] = []
    for group in groups:
        for name, (annotation, _) in group.parameters().items():
            value = group.given().get(name)
            if value is None or value is False:
                continue
            option = _name_of(annotation)
            several = value if isinstance(value, list) else [value]
            found += [option] if value is True else [word for each in several for word in (option, str(each))]
    return found


def words_of_store(store_file: str) -> list[str]:
    """Return the words that give this store again, none for the usual one; a password in its URL is left out."""
    from dlbench.reports.storage import servers

    return [] if store_file == DEFAULT_STORE else ["--store", servers.without_password(store_file)]


def form_of(form: str | None, as_json: bool, known: Collection[str]) -> str:
    """Return the name of the format asked for; raises UsageError for an unknown one, and for two."""
    if as_json and form not in (None, "json"):
        raise UsageError(f"--json and --format {form} contradict one another; leave one of the two out.")
    chosen = "json" if as_json else form or "terminal"
    if chosen not in known:
        raise unknown_name("format", chosen, known)
    return chosen


def _name_of(annotation: Any) -> str:
    """Return the first name of an annotated option: to Typer what is given first is a default until it looks at it."""
    (option,) = (each for each in get_args(annotation) if isinstance(each, OptionInfo))
    names = map(str, (option.default, *(option.param_decls or ())))
    return next(name for name in names if name.startswith("--"))


class GroupOfGroups(OptionGroup):
    """Groups that several commands share; a subclass is a dataclass whose fields are groups."""

    @classmethod
    def parameters(cls) -> dict[str, tuple[Any, Any]]:
        """Return the options of all its groups."""
        return {name: each for group in get_type_hints(cls).values() for name, each in group.parameters().items()}

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """Make each of its groups of what was given for the options of it."""
        groups = get_type_hints(cls).items()
        return cls(**{name: each.of({key: given[key] for key in each.parameters()}) for name, each in groups})


def grouped(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function whose signature has every option of the groups that this one takes."""
    signature = inspect.signature(function)
    groups = {
        name: each.annotation
        for name, each in signature.parameters.items()
        if inspect.isclass(each.annotation) and issubclass(each.annotation, OptionGroup)
    }
    flat: dict[str, tuple[Any, Any]] = {}
    for name, each in signature.parameters.items():
        flat |= groups[name].parameters() if name in groups else {name: (each.annotation, each.default)}

    def command(**given: Any) -> None:
        taken = {
            name: group.of({each: given.pop(each) for each in group.parameters()}) for name, group in groups.items()
        }
        function(**given, **taken)

    command.__doc__, command.__name__, command.__module__ = function.__doc__, function.__name__, function.__module__
    return takes(command, flat)


def _renamed(word: str | None) -> str | None:
    if word is not None:
        raise UsageError(
            "--precision is now two options: --interval 2% is the width of an interval, --precisions float32 the "
            "precision of the arithmetic."
        )
    return word


class AxisOptions(OptionGroup):
    """The options of the axes, by the table of them."""

    left_out: ClassVar[tuple[str, ...]] = ()
    """Keys that the command has no option for, since its arguments say it."""

    def __init__(self, words: dict[str, str | None]) -> None:
        """Take the words by key, None where an option is not given."""
        self.words = words

    @classmethod
    def parameters(cls) -> dict[str, tuple[Any, Any]]:
        """Return an option for each line of the table."""
        return {
            each.key: (
                Annotated[str | None, typer.Option(each.option, help=cls.help_of(each), metavar=each.metavar)],
                None,
            )
            for each in (*AXIS_OPTIONS, *LIMITS)
            if each.key not in cls.left_out
        }

    @staticmethod
    def help_of(option: AxisOption) -> str:
        """Return the help of an axis's option."""
        return option.help

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """Make the group of what was given for each of its options."""
        return cls(given)

    def given(self) -> dict[str, Any]:
        """Return the words that were given, by key."""
        return dict(self.words)


class AxesOfACell(AxisOptions):
    """The same for a single cell, whose row and network are named otherwise: each may be written in the singular."""

    left_out: ClassVar[tuple[str, ...]] = ("networks", "frameworks", "threads_limit")

    @staticmethod
    def in_plural(name: str) -> str:
        """Return the name of an option whose singular was typed: "batch-sizes" for "batch-size"."""
        singular = {option_of(each.axis)[2:]: each.option[2:] for each in AXIS_OPTIONS}
        return singular.get(name, name)


class AxesToShow(AxesOfACell):
    """What narrows stored cells to those of these values: every axis, in the plural or the singular."""

    left_out = tuple(each.key for each in LIMITS)
    help_of = staticmethod(narrowing_help)

    @property
    def wanted(self) -> dict[str, str]:
        """The words that were given, by axis; raises UsageError for empty ones."""
        chosen = SuiteOverrides(self.words)
        return {each.axis: chosen[each.key] for each in AXIS_OPTIONS if chosen[each.key]}


@dataclass(frozen=True)
class LaunchOptions(OptionGroup):
    """How often each cell is launched, and how long."""

    launches: Annotated[
        str | None,
        typer.Option(
            "--launches",
            metavar="N|N-M",
            help="Launches (fresh processes) per cell: 5, or 5-20: as many as --interval needs.",
        ),
    ] = None
    interval: Annotated[
        str | None,
        typer.Option(
            "--interval",
            metavar="SHARE",
            help="Half-width of a cell's 95 % interval at which launches end: 1% (2% with a range; alone: 5-20).",
        ),
    ] = None
    steps: Steps = None
    cell_budget: CellBudget = None
    precision: Annotated[str | None, typer.Option("--precision", hidden=True, callback=_renamed)] = None


Python = Annotated[
    list[str] | None,
    typer.Option(
        "--python",
        metavar="NAME=PATH",
        help="Your own interpreter: `torch=/path/to/python`, or `torch-nightly:torch=/path` for an additional row.",
    ),
]
Adapter = Annotated[
    list[str] | None,
    typer.Option(
        "--adapter",
        metavar="NAME=FOLDER",
        callback=own.register_adapters,
        is_eager=True,
        help="An adapter of your own, outside dlbench: `my_framework=path/to/folder` (adapters/TUTORIAL.md).",
    ),
]


@dataclass(frozen=True)
class BuildOptions(OptionGroup):
    """Interpreters and adapters of the user's own."""

    python: Python = None
    adapter: Adapter = None

    @property
    def own(self) -> own.OwnSteps | None:
        """The training steps of the user's own; None without any."""
        return None

    @property
    def interpreters(self) -> list[str]:
        """The words of --python, each with the row that it is for."""
        return list(self.python or ())

    @property
    def builds(self) -> tuple[values.Build, ...]:
        """The builds that --python names; raises UsageError for one that cannot be read."""
        return tuple(values.build(text) for text in self.interpreters)

    @property
    def joining(self) -> tuple[str, ...]:
        """The names of the adapters that --adapter gives."""
        return tuple(text.partition("=")[0] for text in self.adapter or ())


@dataclass(frozen=True)
class RowOptions(BuildOptions):
    """The same, and training steps of the user's own."""

    step: Annotated[
        list[str] | None,
        typer.Option(
            "--step",
            metavar="FILE",
            callback=own.register_steps,
            is_eager=True,
            help="A training step of your own, in the place of the suite's networks: see `dlbench new step`.",
        ),
    ] = None
    loss_tolerance: Annotated[
        str | None,
        typer.Option(
            "--loss-tolerance",
            metavar="SHARE",
            help="By how much the first losses of a step of your own may differ between launches (0.1%).",
        ),
    ] = None

    @property
    def own(self) -> own.OwnSteps | None:
        """The steps that --step names; raises UsageError."""
        names = tuple(dict.fromkeys(own.name_of(text) for text in self.step or ()))
        if not names:
            if self.loss_tolerance is not None:
                raise UsageError("--loss-tolerance requires --step. Give one with --step FILE.")
            return None
        if self.loss_tolerance is None:
            return own.OwnSteps(names)
        return own.OwnSteps(names, values.share(self.loss_tolerance, "--loss-tolerance"))

    @property
    def interpreters(self) -> list[str]:
        """The words of --python; a path alone is the interpreter of every step."""
        return own.interpreters(self.python or (), self.own.names if self.own else ())


@dataclass(frozen=True)
class SessionOptions(OptionGroup):
    """Where records go, for how long, and from where a run goes on."""

    budget: TotalBudget = None
    store_file: StoreFile = DEFAULT_STORE
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the unfinished run of this suite and these options.")
    ] = False
    no_build: NoBuild = False
    seed: Seed = None
    yes: Annotated[bool, typer.Option("--yes", help="Measure more than 10,000 cells, too.")] = False

    def __post_init__(self) -> None:
        """Raise UsageError for an invalid budget before anything is measured or stored."""
        _ = self.seconds

    @property
    def seconds(self) -> float | None:
        """The budget in seconds; None: without end. Raises UsageError."""
        return None if self.budget is None else values.duration(self.budget)


def choices(axes: AxisOptions, launches: LaunchOptions, builds: BuildOptions) -> SuiteOverrides:
    """Return the options as one object; raises UsageError for empty words and an invalid --python."""
    how = {key: getattr(launches, key) for key in ("steps", *PROTOCOL_KEYS)}
    check_own(axes, builds)
    return SuiteOverrides(axes.words, builds=builds.builds, joining=builds.joining, own=builds.own, **how)


def check_own(axes: AxisOptions, builds: BuildOptions) -> None:
    """Raise UsageError where networks are named beside a step of the user's own, which has none."""
    if builds.own is not None and axes.words.get("networks") is not None:
        raise UsageError("--networks has no meaning beside --step: the file says what is trained. Leave one out.")
