"""The networks that come with dlbench, by name, and as a launch carries them."""

import json
from typing import Any

from dlbench.adapters.networks import to_data
from dlbench.suites.planning.networks import shipped

NETWORKS = dict(shipped())
#: For the source of a guest: JSON of the networks by name, as ``networks.from_data`` reads each.
AS_JSON = json.dumps({name: to_data(network) for name, network in NETWORKS.items()})


def data_of(name: str) -> dict[str, Any]:
    """Return what a launch carries of a network."""
    return to_data(NETWORKS[name])
