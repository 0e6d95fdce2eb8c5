"""The operators of some steps, as MXNet's own profiler tells them."""

import json
import os
import tempfile
from typing import Any, Dict, Iterator

import mxnet as mx

from ..base import Adapter
from ..libraries import profiles
from ..libraries.profiles import Calls
from ..protocol import Profile

NAME = "mxnet.profiler"
_MILLISECONDS = 1e-3


def take(adapter: Adapter, block: Any, hybridized: Dict[str, Any], steps: int) -> Profile:
    """Run so many steps under the profiler; ``hybridized`` is what ``block`` was hybridised with.

    A static graph runs its operators in bulk, and the profiler sees the bulk: they are run one by one here.
    """
    block.hybridize(forward_bulk_size=1, backward_bulk_size=1, **hybridized)
    profiles.run(adapter.step, adapter.synchronize, 2)  # the first one builds the graphs anew
    with tempfile.TemporaryDirectory(prefix="mxnet-", dir=adapter.cache_directory) as directory:
        mx.profiler.set_config(
            profile_symbolic=True,
            profile_imperative=True,
            profile_memory=False,
            profile_api=False,
            aggregate_stats=True,
            filename=os.path.join(directory, "profile.json"),
        )
        mx.profiler.set_state("run")
        seconds = profiles.run(adapter.step, adapter.synchronize, steps)
        mx.profiler.set_state("stop")
        told = json.loads(mx.profiler.dumps(reset=True, format="json"))
    return profiles.profile(NAME, steps, seconds, calls(told, not adapter.cell.on_cpu))


def calls(told: Dict[str, Any], on_device: bool) -> Iterator[Calls]:
    """Yield the calls of each operator of the aggregated statistics, whose times are milliseconds."""
    for name, row in told.get("Time", {}).get("operator", {}).items():
        yield Calls(name, on_device, float(row["Total"]) * _MILLISECONDS, float(row["Count"]))
