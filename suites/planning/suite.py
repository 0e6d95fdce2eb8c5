"""Suites as data: the measurements that a TOML file describes.

The files are in suites/definitions, or the user's own. Also the command that measures a cell again,
written from the table of axes.
"""

import json
import shlex
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache, cached_property, partial
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, create_model

from dlbench.adapters.axes import word
from dlbench.adapters.families import ALPHABET
from dlbench.adapters.networks import Network
from dlbench.adapters.protocol import Cell, Protocol
from dlbench.reports.results.networks import is_own_step, specification_of_cells
from dlbench.reports.results.record import PYTEST_BENCHMARK
from dlbench.reports.results.selection import words_of

from ..errors import SuiteError, UsageError, unknown_name
from . import devices, networks, settings, values
from .axes import AXIS_OPTIONS, PLAIN, AxisOption, joined, listed_or, option_of
from .framework import catalogue, offered
from .toml_files import TomlTable, parse_toml, read_text, validated

# Any numbers do for checking words at reading time; the real ones come with the plan.
_SOME_CAPACITY = values.Capacity(cores=1, cpus=1)
LARGEST_COUNT = 1_000_000

Positive = Annotated[int, Field(ge=1, le=LARGEST_COUNT)]
Batches = Annotated[tuple[Positive, ...], Field(min_length=1)]
Words = Annotated[str, BeforeValidator(joined)]
Seconds = Annotated[float, Field(gt=0, le=1e7, allow_inf_nan=False)]

USUAL_INTERVAL = 0.02
FASTEST = "fastest"
"""The interval that is narrow enough to tell the fastest cell of a column."""
USUAL_RANGE = "3-20"
"""Of launches, if a precision is requested without a number of launches."""
_USUAL = Protocol()


class ProtocolSection(TomlTable):
    """The protocol of each launch (see `Protocol`), and the number of launches of each cell."""

    # of each cell: 3, or "3-20" until its interval is narrow enough
    launches: Annotated[int, Field(strict=True)] | str = 1
    # "2%": half-width at which a cell gets no further launch, the default with a range of launches;
    # "fastest": until the fastest cell of a column is known
    interval: str = ""
    warmup_steps: Positive = _USUAL.warmup_steps  # before the first timed step, at least
    # warm-up may grow so far; 0: not at all
    maximum_warmup_steps: Annotated[int, Field(ge=0, le=LARGEST_COUNT)] = (
        _USUAL.maximum_warmup_steps
    )
    steps: Positive = _USUAL.steps  # timed samples at most; unrelated to a network's steps
    minimum_steps: Positive = _USUAL.minimum_steps  # timed samples at least
    # shorter steps are timed several at a time
    sample_seconds: Annotated[float, Field(ge=0, le=1e3, allow_inf_nan=False)] = 0.0
    seconds: Seconds = _USUAL.seconds  # no sample starts later than this
    # afterwards the first row trains so many steps on a text; networks take 96 symbols (char.toml)
    curve_steps: Annotated[int, Field(ge=0, le=LARGEST_COUNT)] = 0
    # and every further row so many, to check it
    curve_check_steps: Annotated[int, Field(ge=0, le=LARGEST_COUNT)] = 0
    # afterwards so many more steps, whose losses are kept
    loss_steps: Annotated[int, Field(ge=0, le=LARGEST_COUNT)] = 0
    # the memory after each sample is kept, for `report trend`
    trend: bool = False
    cell_seconds: Seconds = 300.0  # a launch that lasts longer is ended
    # each launch starts with an empty cache, so it compiles everything anew
    cold_start: bool = False

    def protocol(self) -> Protocol:
        """Return the part that the guest carries out."""
        protocol = Protocol(**{name: getattr(self, name) for name in Protocol._fields})
        return protocol._replace(minimum_steps=min(self.minimum_steps, self.steps))


if TYPE_CHECKING:
    _PlainAxes = TomlTable
else:  # a field for each option of the table of axes
    _fields = {option.key: (Words, option.usual) for option in PLAIN}
    _PlainAxes = create_model("Axes", __base__=TomlTable, **_fields)


class Suite(_PlainAxes):
    """One suite: axes, protocol, and settings for its frameworks."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    summary: str
    networks: tuple[str, ...] = ()  # names or patterns; empty: all that the suite defines
    frameworks: tuple[str, ...] = Field(min_length=1)
    # take the place of those whose Python this machine lacks, in this order
    instead: tuple[str, ...] = ()
    # so many frameworks are measured before the environments of the others are built; 0: all are
    # built first
    first_frameworks: Annotated[int, Field(ge=0, le=LARGEST_COUNT)] = 0
    threads: Words
    threads_limit: str = "4096"  # largest thread count
    # of cells on a GPU: one count, because these threads only launch kernels
    device_threads: Words = "cores"
    batch_sizes: dict[str, Batches] = {}  # lists by network; absent: the network's own
    cpu_batch_sizes: dict[str, Batches] = {}  # replaces `batch_sizes` on the CPU
    devices: tuple[str, ...] = Field(default=("cpu",), min_length=1)
    protocol: ProtocolSection = ProtocolSection()  # a table, see below
    # for adapters: a table for each framework, which overrides the settings of the mode
    settings: dict[str, dict[str, Any]] = {}
    network: tuple[dict[str, Any], ...] = ()  # networks of the suite's own
    grid: tuple[dict[str, Any], ...] = ()  # networks for each combination of values

    @property
    def axes(self) -> dict[str, str]:
        """The words of every axis whose words mean the same for all cells, by key."""
        return {option.key: getattr(self, option.key) for option in PLAIN}

    @cached_property
    def known(self) -> dict[str, Network]:
        """Every network that the suite can name: its own, and dlbench's. Raises SuiteError."""
        return networks.known(self.network, self.grid, self.name)

    @cached_property
    def its_networks(self) -> tuple[str, ...]:
        """The networks that it measures; raises UsageError for an unknown name."""
        own = tuple(networks.read(self.network, self.grid, self.name))
        if not self.networks:
            return own
        return networks.select(self.networks, own, self.known)

    def select_networks(self, words: str) -> tuple[str, ...]:
        """Return the networks that a command's words name; without words, all of the suite.

        Raises UsageError with the suites that have such a network, or with the nearest name.
        """
        if not words:
            return self.its_networks
        names = words_of(words, self.known)
        try:
            return networks.select(names, self.its_networks, self.known)
        except UsageError:
            for name in names:
                suites = [suite for suite in shipped().values() if name in suite.known]
                if suites and name not in self.known:
                    raise UsageError(_of_other_suites(name, self.name, suites)) from None
            raise


def _of_other_suites(network: str, suite: str, others: Sequence[Suite]) -> str:
    names = [other.name for other in others]
    which = names[0] if len(names) == 1 else listed_or(names)
    return f"The suite {suite} has no network named {network!r}. The suite {which} has it."


def _check_words(suite: Suite, where: str) -> None:
    networks.known(suite.network, suite.grid, where)

    def check_launches() -> None:
        values.launch_range(str(suite.protocol.launches), "launches")

    def check_devices() -> None:
        for device in suite.devices:
            devices.check(device)

    plain_checks: list[tuple[str, Callable[[], object]]] = []
    for option in PLAIN:
        check = partial(values.parse_plain, option, suite.axes[option.key], _SOME_CAPACITY)
        plain_checks.append((option.key, check))
    checks: list[tuple[str, Callable[[], object]]] = [
        ("threads", partial(values.parse_threads, suite.threads, _SOME_CAPACITY)),
        ("threads_limit", partial(values.count, suite.threads_limit, _SOME_CAPACITY)),
        ("device_threads", partial(values.one_count, suite.device_threads, _SOME_CAPACITY)),
        ("devices", check_devices),
        *plain_checks,
        ("protocol.launches", check_launches),
        ("protocol.interval", partial(_check_interval, suite.protocol)),
        ("networks", partial(_check_networks, suite)),
        ("batch_sizes", lambda: networks.select(suite.batch_sizes, (), suite.known)),
        ("cpu_batch_sizes", lambda: networks.select(suite.cpu_batch_sizes, (), suite.known)),
        ("protocol.curve_steps", partial(_check_training, suite)),
        ("frameworks", partial(values.rows, list(suite.frameworks), [])),
        ("instead", partial(values.rows, list(suite.instead), [])),
        ("settings", partial(_check_frameworks, suite)),
    ]
    for key, check_key in checks:
        try:
            check_key()
        except UsageError as error:
            raise SuiteError(f"{where}, key {key}: {error}") from error


def _check_interval(section: ProtocolSection) -> None:
    if section.interval and len(set(values.launch_range(str(section.launches), "launches"))) == 1:
        raise UsageError(
            f'An interval needs a range of launches, as in launches = "{USUAL_RANGE}", not '
            f"{section.launches}."
        )
    if section.interval not in ("", FASTEST):
        values.share(section.interval, "interval", FASTEST)


def _check_frameworks(suite: Suite) -> None:
    for name in suite.settings:
        if name not in offered():
            raise unknown_name("framework", name, offered())
    try:
        json.dumps(suite.settings, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        # A launch gets its settings as JSON, which has neither dates nor nan and inf.
        raise UsageError(
            "Settings are text, finite numbers, true or false, and lists and tables of them "
            f"({error})."
        ) from error


def _check_training(suite: Suite) -> None:
    if not suite.protocol.curve_steps:
        if suite.protocol.curve_check_steps:
            raise UsageError(
                "curve_check_steps needs curve_steps, such as 600: without it there is nothing to "
                "check."
            )
        return
    for name in suite.its_networks:
        alphabet = suite.known[name].family.alphabet
        if alphabet < ALPHABET:
            raise UsageError(
                f"{name} takes {alphabet or 'no'} symbols; to train on a text it must take "
                f"{ALPHABET}."
            )


def _check_networks(suite: Suite) -> None:
    if not suite.its_networks:
        raise UsageError(
            'Name at least one, as in networks = ["fcn5"], or define one in a table [[network]].'
        )


def parse(text: str, where: str) -> Suite:
    """Read a suite from TOML; raises SuiteError naming ``where``, the key, and the remedy."""
    suite = validated(parse_toml(text, where), where, Suite)
    _check_words(suite, where)
    return suite


@cache
def shipped() -> Mapping[str, Suite]:
    """Return the suites that come with dlbench, by name."""
    folder = resources.files("dlbench.suites") / "definitions"
    suites = {}
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".toml") and entry.name not in (networks.FILE, settings.FILE):
            suite = parse(entry.read_text(encoding="utf-8"), f"suites/definitions/{entry.name}")
            suites[suite.name] = suite
    return MappingProxyType(suites)


def load(name: str) -> Suite:
    """Return the shipped suite of this name, or the one in this file (its name ends in .toml)."""
    if name.endswith(".toml"):
        return parse(read_text(Path(name)), name)
    suites = shipped()
    if name not in suites:
        unknown = unknown_name("suite", name, suites)
        raise UsageError(f"{unknown} Give your own suite as a file ending in .toml.")
    return suites[name]


_SUITE_WITH_ALL_ROWS = "table4"


def rerun_command(cell: Cell, suite: str, step: Path | None = None, **given: object) -> str:
    """Return `dlbench run SUITE ...` for one cell, with ``given`` as further options.

    A user's own step is named by its file.
    """
    work, *places = words_of_cell(cell, suite, step, given)
    parts = ["dlbench run", shlex.quote(suite), work]
    if not step:
        row = f"{cell.framework}:{cell.mode}"
        parts.append(f"--frameworks {shlex.quote(row)}")
    parts += places
    for name, value in given.items():
        parts.append(f"{option_of(name)} {shlex.quote(str(value))}")
    return " ".join(parts)


def words_of_cell(
    cell: Cell, suite: str, step: Path | None = None, but: Container[str] = ()
) -> list[str]:
    """Return the options that leave this cell of a suite: its network first, not its row.

    The axes ``but`` get no option.
    """
    words = [f"--networks {shlex.quote(cell.network)}"]
    if step:
        words = [f"--step {shlex.quote(str(step))}"]
    threads_key = "threads" if cell.on_cpu else "device_threads"
    words.append(f"{option_of(threads_key)} {word('threads', cell.threads)}")
    for option in AXIS_OPTIONS:
        if option.axis == "batch_size" and cell.batch_size is None:
            continue  # the step's file decides, and no option can say "unknown"
        if option.axis not in ("network", "framework", "threads") and option.axis not in but:
            value = word(option.axis, getattr(cell, option.axis))
            if {value} != {option.usual, *_suite_words(suite, option)}:
                words.append(f"{option.option} {shlex.quote(value)}")
    return words


@cache
def _suite_words(name: str, option: AxisOption) -> tuple[str, ...]:
    """Return the words that a suite has for an axis; none where the suite cannot be read."""
    try:
        suite = load(name)
    except UsageError:
        return ()
    if option.axis == "device":
        return tuple(suite.devices)
    if option in PLAIN:
        return tuple(values.words(suite.axes[option.key]))
    return ()


def rerun_by_name(cell: Cell, suite: str, launches: int) -> str:
    """Return the command for a cell when only the names of its run are known.

    A suite that does not come with dlbench, and a user's own step, are assumed to be files of their
    names. A cell that its suite gathered from others (`claims`) is measured by one that has its
    network. The path of a row's own interpreter or adapter is left to the reader. "" for other
    tools' benchmarks, which no suite measures.
    """
    if cell.framework == PYTEST_BENCHMARK:
        return ""
    if is_own_step(cell):
        if suite not in shipped():
            suite = _suite_for(cell, suite)
        return rerun_command(cell, suite, Path(f"{cell.framework}.py"), launches=max(1, launches))
    command = rerun_command(cell, _suite_for(cell, suite), launches=max(1, launches))
    names_by_folder = {framework.folder: name for name, framework in catalogue().items()}
    if cell.framework in names_by_folder.values():
        return command
    base = names_by_folder.get(cell.adapter)
    if base:  # a row that does not come with dlbench
        return f"{command} --python {cell.framework}:{base}=PATH"
    return f"{command} --adapter {cell.framework}=PATH"


def _suite_for(cell: Cell, suite: str) -> str:
    """Return a shipped suite with the cell's network, this one first; else this name's file."""
    suites = shipped()
    for name in (suite, _SUITE_WITH_ALL_ROWS, *suites):
        if name not in suites:
            continue
        network = suites[name].known.get(cell.network)
        if network is not None and specification_of_cells(network) == cell.specification:
            return name
    return f"{suite}.toml"
