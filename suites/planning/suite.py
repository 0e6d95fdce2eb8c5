"""Suites as data: the measurements that a TOML file in suites/definitions (or the user's own)
describes.

Also the command that measures a cell again, written from the table of axes.
"""

import json
import shlex
from collections.abc import Callable, Container, Mapping
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
from .axes import AXIS_OPTIONS, PLAIN, AxisOption, joined, option_of
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
    """How each launch measures (`Protocol` says what each number means), and how often each cell is
    launched.
    """

    launches: Annotated[int, Field(strict=True)] | str = (
        1  # 3, or "5-20": as many as the precision needs
    )
    # "2%": relative half-width at which a cell gets no further launch; "fastest": see `FASTEST`
    interval: str = ""
    warmup_steps: Positive = _USUAL.warmup_steps
    maximum_warmup_steps: Annotated[int, Field(ge=0, le=LARGEST_COUNT)] = (
        _USUAL.maximum_warmup_steps
    )
    steps: Positive = _USUAL.steps
    minimum_steps: Positive = _USUAL.minimum_steps
    sample_seconds: Annotated[float, Field(ge=0, le=1e3, allow_inf_nan=False)] = (
        0.0  # shorter steps: several a sample
    )
    seconds: Seconds = _USUAL.seconds
    curve_steps: Annotated[int, Field(ge=0, le=LARGEST_COUNT)] = (
        0  # behind it the first row trains so long on a text
    )
    curve_check_steps: Annotated[int, Field(ge=0, le=LARGEST_COUNT)] = (
        0  # and every further row so long, to check it
    )
    loss_steps: Annotated[int, Field(ge=0, le=LARGEST_COUNT)] = (
        0  # behind it so many more steps, whose losses are kept
    )
    # the memory after each sample is kept: of launches that last minutes, see `report trend`
    trend: bool = False
    cell_seconds: Seconds = 300.0  # a launch that lasts longer is ended: timed_out
    cold_start: bool = (
        False  # each launch finds an empty cache: it compiles what an earlier launch had compiled
    )

    def protocol(self) -> Protocol:
        """Return the part that the guest carries out."""
        found = Protocol(**{name: getattr(self, name) for name in Protocol._fields})
        return found._replace(minimum_steps=min(self.minimum_steps, self.steps))


if TYPE_CHECKING:
    _PlainAxes = TomlTable
else:  # a field by the table of axes: a new one needs no field here
    _PlainAxes = create_model(
        "Axes", __base__=TomlTable, **{each.key: (Words, each.usual) for each in PLAIN}
    )


class Suite(_PlainAxes):
    """One suite: axes, protocol, and settings for its frameworks."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    summary: str
    networks: tuple[str, ...] = ()  # names, or patterns; the suite's own where none is given
    frameworks: tuple[str, ...] = Field(min_length=1)
    threads: Words
    threads_limit: str = "4096"
    device_threads: Words = (
        "cores"  # of cells on a GPU: threads that only start what it computes, so one count
    )
    batch_sizes: dict[str, Batches] = {}  # by network; the paper's mini-batch where none is given
    cpu_batch_sizes: dict[str, Batches] = {}  # by network, instead of those on the CPU
    devices: tuple[str, ...] = Field(default=("cpu",), min_length=1)
    protocol: ProtocolSection = ProtocolSection()
    settings: dict[str, dict[str, Any]] = {}  # by framework, over those of the mode
    network: tuple[dict[str, Any], ...] = ()  # networks of the suite's own, see `networks`
    grid: tuple[dict[str, Any], ...] = ()  # and products of values

    @property
    def axes(self) -> dict[str, str]:
        """The words of every axis whose words mean the same for all cells, by key."""
        return {each.key: getattr(self, each.key) for each in PLAIN}

    @cached_property
    def known(self) -> dict[str, Network]:
        """Every network that the suite can name: its own, and those that come with dlbench. Raises
        SuiteError.
        """
        return networks.known(self.network, self.grid, self.name)

    @cached_property
    def its_networks(self) -> tuple[str, ...]:
        """The networks that it measures; raises UsageError for an unknown name."""
        own = tuple(networks.read(self.network, self.grid, self.name))
        return networks.chosen(self.networks, own, self.known) if self.networks else own

    def chosen(self, words: str) -> tuple[str, ...]:
        """Return the networks that a command's words name; without words, all that the suite
        measures.
        """
        if not words:
            return self.its_networks
        return networks.chosen(words_of(words, self.known), self.its_networks, self.known)


def _check_words(suite: Suite, where: str) -> None:
    networks.known(suite.network, suite.grid, where)

    checks: tuple[tuple[str, Callable[[], object]], ...] = (
        ("threads", lambda: values.parse_threads(suite.threads, _SOME_CAPACITY)),
        ("threads_limit", lambda: values.count(suite.threads_limit, _SOME_CAPACITY)),
        ("device_threads", lambda: values.one_count(suite.device_threads, _SOME_CAPACITY)),
        ("devices", lambda: [devices.check(word) for word in suite.devices]),
        *(
            (each.key, partial(values.parse_plain, each, suite.axes[each.key], _SOME_CAPACITY))
            for each in PLAIN
        ),
        (
            "protocol.launches",
            lambda: values.launch_range(str(suite.protocol.launches), "launches"),
        ),
        ("protocol.interval", lambda: _check_interval(suite.protocol)),
        ("networks", lambda: _check_networks(suite)),
        ("batch_sizes", lambda: networks.chosen(suite.batch_sizes, (), suite.known)),
        ("cpu_batch_sizes", lambda: networks.chosen(suite.cpu_batch_sizes, (), suite.known)),
        ("protocol.curve_steps", lambda: _check_training(suite)),
        ("frameworks", lambda: values.rows(list(suite.frameworks), [])),
        ("settings", lambda: _check_frameworks(suite)),
    )
    for key, check in checks:
        try:
            check()
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
        found = suite.known[name].family.alphabet
        if found < ALPHABET:
            raise UsageError(
                f"{name} takes {found or 'no'} symbols; to train on a text it must take {ALPHABET}."
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
    found = {}
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".toml") and entry.name not in (networks.FILE, settings.FILE):
            suite = parse(entry.read_text(encoding="utf-8"), f"suites/definitions/{entry.name}")
            found[suite.name] = suite
    return MappingProxyType(found)


def load(name: str) -> Suite:
    """Return the shipped suite of this name, or the one in this file (a name that ends in
    .toml).
    """
    if name.endswith(".toml"):
        return parse(read_text(Path(name)), name)
    suites = shipped()
    if name not in suites:
        unknown = unknown_name("suite", name, suites)
        raise UsageError(f"{unknown} Give your own suite as a file ending in .toml.")
    return suites[name]


_WITH_ALL_ROWS = "table4"


def rerun_command(cell: Cell, suite: str, step: Path | None = None, **given: object) -> str:
    """Return `dlbench run SUITE ...` for one cell, and ``given`` as further options; a user's own
    step by its file.
    """
    work, *places = words_of_cell(cell, suite, step, given)
    row = [] if step else [f"--frameworks {shlex.quote(f'{cell.framework}:{cell.mode}')}"]
    further = [f"{option_of(name)} {shlex.quote(str(value))}" for name, value in given.items()]
    return " ".join(["dlbench run", shlex.quote(suite), work, *row, *places, *further])


def words_of_cell(
    cell: Cell, suite: str, step: Path | None = None, but: Container[str] = ()
) -> list[str]:
    """Return the options that leave this cell of a suite: its network first, not its row, all
    ``but`` these axes.
    """
    words = (
        [f"--step {shlex.quote(str(step))}"]
        if step
        else [f"--networks {shlex.quote(cell.network)}"]
    )
    words.append(
        f"{option_of('threads' if cell.on_cpu else 'device_threads')} "
        f"{word('threads', cell.threads)}"
    )
    for option in AXIS_OPTIONS:
        if option.axis == "batch_size" and cell.batch_size is None:
            continue  # the step's file decides, and no option can say "unknown"
        if option.axis not in ("network", "framework", "threads") and option.axis not in but:
            value = word(option.axis, getattr(cell, option.axis))
            if {value} != {option.usual, *_of_suite(suite, option)}:
                words.append(f"{option.option} {shlex.quote(value)}")
    return words


@cache
def _of_suite(suite: str, option: AxisOption) -> tuple[str, ...]:
    """Return the words that a suite has for an axis; none where the suite is not here."""
    try:
        found = load(suite)
    except UsageError:
        return ()
    if option.axis == "device":
        return tuple(found.devices)
    return tuple(values.words(found.axes[option.key])) if option in PLAIN else ()


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
        found = suite if suite in shipped() else _with_network(suite, cell)
        return rerun_command(cell, found, Path(f"{cell.framework}.py"), launches=max(1, launches))
    command = rerun_command(cell, _with_network(suite, cell), launches=max(1, launches))
    known = {framework.folder: name for name, framework in catalogue().items()}
    if cell.framework in known.values():
        return command
    base = known.get(cell.adapter)  # a row that does not come with dlbench
    return (
        f"{command} --python {cell.framework}:{base}=PATH"
        if base
        else f"{command} --adapter {cell.framework}=PATH"
    )


def _with_network(suite: str, cell: Cell) -> str:
    """Return this suite, or another that comes with dlbench and has the cell's network; else the
    file of this name.
    """
    known = shipped()
    for name in (suite, _WITH_ALL_ROWS, *known):
        its = known[name].known.get(cell.network) if name in known else None
        if its is not None and specification_of_cells(its) == cell.specification:
            return name
    return f"{suite}.toml"
