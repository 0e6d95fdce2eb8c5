"""Networks as data: those that come with dlbench, and those that a suite defines for itself.

    [[network]]                         [[grid]]
    name = "small"                      name = "mlp-{hidden}"       # left out: made of what varies
    family = "feedforward"              family = "feedforward"
    inputs = 784                        inputs = 784
    # of a number that is a list: a list of lists
    hidden = [512, 512]                 hidden = [[128], [256, 256]]
    outputs = 10                        outputs = "inputs"          # the same as another number
    activation = "relu"                 activation = ["relu", "tanh"]
    batch_size = 64

A grid is the product of its values, in the order of the file.
"""

import difflib
import functools
import itertools
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from types import MappingProxyType
from typing import Any

from dlbench.adapters.families import FAMILIES, Family, NumbersError
from dlbench.adapters.networks import USUAL_BATCH_SIZE, Network, digest_of, family_of, network_with
from dlbench.reports.results.selection import names_matching

from ..errors import SuiteError, unknown_name

FILE = "networks.toml"
LARGEST_BATCH = 1_000_000
LARGEST_GRID = 10_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_ABOUT = ("name", "family", "batch_size", "summary")
"""Keys of a table that are not numbers of the network."""
_PLACE = re.compile(r"\{(\w+)\}")

Table = Mapping[str, Any]


@functools.cache
def shipped() -> Mapping[str, Network]:
    """Return the networks that come with dlbench, by name."""
    text = (resources.files("dlbench.suites") / "definitions" / FILE).read_text(encoding="utf-8")
    return MappingProxyType(read(tomllib.loads(text)["network"], (), f"suites/definitions/{FILE}"))


def known(tables: Sequence[Table], grids: Sequence[Table], where: str) -> dict[str, Network]:
    """Return the networks of a suite's own tables, and then those that come with dlbench.

    Raises SuiteError naming ``where``, the table and the key, also for a network that has the name
    of another.
    """
    own = read(tables, grids, where)
    ours = shipped()
    for name, network in own.items():
        if name in ours and digest_of(network) != digest_of(ours[name]):
            raise SuiteError(
                f"{where}: {name} is a network of dlbench with other numbers. Choose another name."
            )
    return {**own, **ours}


def read(tables: Sequence[Table], grids: Sequence[Table], where: str) -> dict[str, Network]:
    """Return the networks of these tables and grids, by name."""
    networks: dict[str, Network] = {}

    def add(network: Network, place: str) -> None:
        other = networks.setdefault(network.name, network)
        if digest_of(other) != digest_of(network):
            raise SuiteError(
                f"{place}, key name: there is another network named {network.name}. Choose another "
                "name."
            )

    for number, table in enumerate(tables, 1):
        place = f"{where}, [[network]] {number}"
        add(_network(table, place), place)
    for number, table in enumerate(grids, 1):
        place = f"{where}, [[grid]] {number}"
        for network in _grid_networks(table, place):
            add(network, place)
    return networks


def _network(table: Table, place: str) -> Network:
    family = _family(table.get("family"), place)
    name = table.get("name")
    if not isinstance(name, str) or not _NAME.match(name):
        raise SuiteError(
            f"{place}, key name: give a name of letters, digits, dots and dashes, not {name!r}."
        )
    batch_size = table.get("batch_size", USUAL_BATCH_SIZE)
    is_whole = isinstance(batch_size, int) and not isinstance(batch_size, bool)
    if not is_whole or not 1 <= batch_size <= LARGEST_BATCH:
        raise SuiteError(
            f"{place}, key batch_size: {batch_size!r} is not a whole number from 1 to "
            f"{LARGEST_BATCH}."
        )
    if not family.specified and "batch_size" not in table:
        batch_size = None
    numbers = {key: value for key, value in table.items() if key not in _ABOUT}
    try:
        made = family_of({"family": family.name, "numbers": numbers})
    except NumbersError as error:
        complaint = str(error)
        key = error.key
        # A mistyped key is named rather than the one that is missing for it.
        unknown = [name for name in numbers if name not in family.fields]
        if unknown:
            key = unknown[0]
            near = difflib.get_close_matches(key, [*family.fields, *_ABOUT], n=1)
            if near:
                complaint = f"this table has no such key. Did you mean {near[0]!r}?"
            elif key != error.key:
                complaint = "this table has no such key."
        raise SuiteError(f"{place}, key {key}: {complaint}") from error
    return network_with(name, made, batch_size, str(table.get("summary", "")) or made.words())


def _family(name: object, place: str) -> type[Family]:
    if isinstance(name, str) and name in FAMILIES:
        return FAMILIES[name]
    complaint = "it is missing."
    if name is not None:
        complaint = str(unknown_name("family of networks", str(name), FAMILIES))
    raise SuiteError(f"{place}, key family: {complaint} The families are: {', '.join(FAMILIES)}.")


def _grid_networks(grid: Table, place: str) -> Iterable[Network]:
    family = _family(grid.get("family"), place)
    values = {}
    about = {}
    for key, content in grid.items():
        if key in ("batch_size", "summary"):
            about[key] = content
        if key in _ABOUT:
            continue
        values[key] = _values(key, content, family)
        if not values[key]:
            raise SuiteError(f"{place}, key {key}: the list is empty. Give at least one value.")
    count = math.prod(map(len, values.values()))
    if count > LARGEST_GRID:
        raise SuiteError(
            f"{place}: its product is {count} networks, more than {LARGEST_GRID}. Give fewer "
            "values."
        )
    pattern = _name_pattern(grid, family, values, place)
    for combination in itertools.product(*values.values()):
        given = dict(zip(values, combination, strict=True))
        numbers = dict(given)
        for key, value in given.items():
            # A text that is another number's key stands for that number.
            if isinstance(value, str) and value in given and value != key:
                numbers[key] = given[value]
        words = {key: _word(value) for key, value in numbers.items()}
        name = pattern.format_map(words)
        yield _network({**about, **numbers, "family": family.name, "name": name}, place)


def _name_pattern(
    grid: Table, family: type[Family], values: Mapping[str, list[Any]], place: str
) -> str:
    """Return the pattern of the names of a grid's networks; raises SuiteError."""
    varying = [key for key, several in values.items() if len(several) > 1]
    default = family.name
    for key in varying:
        default += f"-{key}{{{key}}}"
    pattern = grid.get("name", default)
    if not isinstance(pattern, str):
        raise SuiteError(
            f"{place}, key name: {pattern!r} is not text. Write it as in name = 'mlp-{{hidden}}'."
        )
    keys = _PLACE.findall(pattern)
    unknown = [key for key in keys if key not in values]
    missing = [f"{{{key}}}" for key in varying if key not in keys]
    wrong = ""
    if re.search(r"[{}]", _PLACE.sub("", pattern)):
        wrong = f"write a number's key between braces, as in mlp-{{hidden}}, not {pattern!r}."
    elif unknown:
        wrong = f"{{{unknown[0]}}} is not a number of this grid. There are: {', '.join(values)}."
    elif missing:
        wrong = f"several networks would get the same name. Put {' and '.join(missing)} into it."
    if wrong:
        raise SuiteError(f"{place}, key name: {wrong}")
    return pattern


def _values(key: str, value: object, family: type[Family]) -> list[Any]:
    """Return the values of a grid's key.

    The values of a number that is a list itself are those of a list of lists.
    """
    if not isinstance(value, list):
        return [value]
    if key in family.lists:
        is_list_of_lists = bool(value) and all(isinstance(item, list) for item in value)
        if not is_list_of_lists:
            return [value]
    return value


def _word(value: object) -> str:
    if isinstance(value, list):
        return "x".join(_word(item) for item in value)
    if isinstance(value, float):
        return f"{value:g}"
    return re.sub(r"[^A-Za-z0-9._-]+", "-", str(value))


def select(words: Iterable[str], suites: Sequence[str], known: Iterable[str]) -> tuple[str, ...]:
    """Return the networks that these words name.

    A pattern such as ``rnn-*`` names those of the suite that it fits. If it fits none of them, it
    is tried on all known networks. Raises UsageError with the nearest name.
    """
    names = list(known)
    chosen_names: list[str] = []
    for word in words:
        if word in names:
            chosen_names.append(word)
            continue
        fitting = names_matching(word, suites) or names_matching(word, names)
        if not fitting:
            raise unknown_name("network", word, names)
        chosen_names += fitting
    return tuple(dict.fromkeys(chosen_names))
