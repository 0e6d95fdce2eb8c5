"""Parity references: the paths of their files, and their computation by the adapter `reference`."""

import shutil
import sys
import tempfile
from pathlib import Path

from dlbench.adapters.networks import Network, to_data
from dlbench.adapters.protocol import LOCAL, TASKS, Cell, Launch, Protocol, Status

from ..errors import FrameworkEnvironmentError
from ..planning.framework import GUEST_DIRECTORY
from .launcher import LaunchRequest, launch_process

SHIPPED = GUEST_DIRECTORY / "references"
DRAWN = 2
"""Number of the drawing of weights and mini-batches and of the files' content.

It rises whenever these change, so that older files are made anew."""
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_TIMEOUT_SECONDS = 1800.0


def shipped(stem: str) -> Path | None:
    """Return the path of the reference with this stem that comes with the project, or None."""
    path = SHIPPED / f"{stem}.npz"
    return path if path.exists() else None


def compute(
    network: Network,
    batch_size: int,
    path: Path,
    threads: int,
    *,
    parts: int = 1,
    local_steps: int = 0,
    inference: bool = False,
    fed: bool = False,
) -> str:
    """Compute a reference and write it to ``path``, whole or not at all.

    Return the reason if it could not be computed, otherwise an empty string. The mini-batch has
    equal ``parts``, with labels of their own or, with ``local_steps``, each for a worker alone.
    With ``fed``, each step takes the next mini-batch of the parity check's feed. With
    ``inference``, the reference is of outputs. It takes a second (a fully connected network) to a
    few minutes (ResNet-50) for each of ``local_steps``, and up to about 0.5 GB of memory per
    example for ResNet-50.
    """
    cell = Cell("reference", "reference", "float64", network.name, "cpu", threads, batch_size)
    cell = cell._replace(placement="fed" if fed else "resident", task=TASKS[inference])
    if local_steps:
        cell = cell._replace(world_size=parts, sync=f"{LOCAL}:{local_steps}")
        parts = 1
    protocol = Protocol(warmup_steps=1, steps=1, minimum_steps=1, seconds=0.0)
    with tempfile.TemporaryDirectory(prefix="dlbench-reference-") as folder:
        made = Path(folder, "reference.npz")
        partial = path.with_suffix(".part")
        settings = {"dtype": "float64"}
        launch = Launch(
            cell, protocol, settings, folder, str(made), label_sets=parts, network=to_data(network)
        )
        variables = dict.fromkeys(_THREADS, str(threads))
        request = LaunchRequest(launch, Path(sys.executable), variables, _TIMEOUT_SECONDS)
        try:
            verdict = launch_process(request).verdict
            if verdict.status is not Status.OK:
                return verdict.reason
            shutil.copyfile(made, partial)
            partial.replace(path)
        except (FrameworkEnvironmentError, OSError) as error:
            return str(error)
    return ""
