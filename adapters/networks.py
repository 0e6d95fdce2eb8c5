"""A network: a family with its numbers under a name, as plain data and back.

A launch carries the data (``cell.json``), and a guest builds from them, never from a name. The
networks that come with dlbench lie in ``suites/definitions/networks.toml``.
"""

import hashlib
import json
from typing import Any, Dict, NamedTuple, Optional

from .families import FAMILIES, Family, NumbersError, ParityRecipe
from .families.family import MOST_PARAMETERS, Numbers

USUAL_BATCH_SIZE = 64


class Network(NamedTuple):
    """A named workload."""

    name: str  # weights and mini-batches are seeded by it
    family: Family
    batch_size: Optional[int]  # the default; None: only the step itself knows it
    parity: ParityRecipe
    summary: str

    @property
    def known_batch_size(self) -> int:
        """Return the default mini-batch.

        Raises ValueError for a user's own step, which alone knows it.
        """
        if self.batch_size is None:
            raise ValueError("the mini-batch size of %s is not known" % self.name)
        return self.batch_size


def network_with(
    name: str, family: Family, batch_size: Optional[int] = USUAL_BATCH_SIZE, summary: str = ""
) -> Network:
    """Return the network with the parity recipe of its family."""
    return Network(name, family, batch_size, family.parity(), summary)


def specification(family: Family) -> Dict[str, Any]:
    """Return the data that decide a network's mathematics, as a record keeps them."""
    return {"family": family.name, "numbers": family.data()}


def digest(specified: Dict[str, Any]) -> str:
    """Return a specification's digest: 12 hexadecimal digits."""
    text = json.dumps(specified, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]


def digest_of(network: Network) -> str:
    """Return the digest of a network's specification, see `Cell.specification`."""
    return digest(specification(network.family))


def family_of(specified: Dict[str, Any]) -> Family:
    """Read a specification; raises NumbersError for an unknown family or a wrong number."""
    name = specified.get("family")
    numbers = specified.get("numbers")
    if not isinstance(name, str) or name not in FAMILIES:
        text = "no family of networks is named %r. Known: %s." % (name, ", ".join(FAMILIES))
        raise NumbersError("family", text)
    if not isinstance(numbers, dict):
        raise NumbersError("numbers", "they are missing, or no table.")
    reader = Numbers(numbers)
    family = FAMILIES[name].read(reader)
    reader.finish()
    count = family.parameter_count()
    if count > MOST_PARAMETERS:
        text = "these numbers make %.3g parameters, more than %.0e. Make them smaller."
        raise NumbersError("family", text % (count, MOST_PARAMETERS))
    return family


def to_data(network: Network) -> Dict[str, Any]:
    """Return the network as plain data, as ``cell.json`` carries it."""
    return dict(
        specification(network.family),
        name=network.name,
        batch_size=network.batch_size,
        parity=dict(network.parity._asdict()),
    )


def from_data(data: Dict[str, Any]) -> Network:
    """Read a network back from `to_data`; raises NumbersError."""
    family = family_of(data)
    try:
        batch_size = None if data["batch_size"] is None else int(data["batch_size"])
        return Network(str(data["name"]), family, batch_size, ParityRecipe(**data["parity"]), "")
    except (KeyError, TypeError, ValueError) as error:
        raise NumbersError("parity", "the network cannot be read: %s" % error) from error
