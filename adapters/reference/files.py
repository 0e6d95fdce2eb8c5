"""The files of float64 losses and updates with which every launch is compared: their places, and how they are made.

A reference is made by a launch of the adapter ``reference`` that saves the results of its parity steps. The host
imports this module, so it imports no NumPy.
"""

import os
import shutil
import subprocess
import tempfile
from typing import Optional

from ..networks import Network, to_data
from ..protocol import LOCAL, Cell, Launch, Protocol, Status, read_outcome, write_launch

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SHIPPED = os.path.join(HERE, "references")
#: Rises whenever the drawing of weights or mini-batches, or the files' content, changes: older ones are made anew.
DRAWN = 2


class ReferenceNotMadeError(Exception):
    """No reference could be made; the text says why."""


def stem(network: str, batch_size: int, parts: int = 1, local_steps: int = 0) -> str:
    """Return the stem of files for a mini-batch in equal parts: with labels of their own, or of workers apart."""
    kind = "-w%d-h%d" % (parts, local_steps) if local_steps else "-l%d" % parts if parts > 1 else ""
    return "%s-b%d%s" % (network, batch_size, kind)


def shipped(network: str, batch_size: int, parts: int = 1, local_steps: int = 0) -> Optional[str]:
    """Return the path of the reference that comes with the project for its own network of this name, or None."""
    path = os.path.join(SHIPPED, stem(network, batch_size, parts, local_steps) + ".npz")
    return path if os.path.exists(path) else None


def generate(
    network: Network,
    batch_size: int,
    path: str,
    interpreter: str,
    threads: Optional[int] = None,
    timeout: float = 3600.0,
    parts: int = 1,
    local_steps: int = 0,
    placement: str = "resident",
) -> None:
    """Compute the reference of this network at this mini-batch and write it to ``path``, whole or not at all.

    The mini-batch has equal ``parts``, with labels of their own or, with ``local_steps``, each for a worker alone. With
    the placement "fed" each step takes the next mini-batch of the parity check's feed.
    ``interpreter`` is any Python from 3.6 on with NumPy. From a second (a fully connected network) to a few
    minutes (ResNet-50), and so long for each of ``local_steps``; memory up to about 0.5 GB per example for ResNet-50.
    Raises ReferenceNotMadeError.
    """
    threads = threads or len(os.sched_getaffinity(0))
    control = tempfile.mkdtemp(prefix="dlbench-reference-")
    try:
        made = os.path.join(control, "reference.npz")
        cell = Cell("reference", "reference", "float64", network.name, "cpu", threads, batch_size)
        cell = cell._replace(placement=placement)
        if local_steps:
            cell = cell._replace(world_size=parts, sync="%s:%d" % (LOCAL, local_steps))
            parts = 1
        protocol = Protocol(warmup_steps=1, steps=1, minimum_steps=1, seconds=0.0)
        launch = Launch(cell, protocol, {"dtype": "float64"}, control, made, label_sets=parts, network=to_data(network))
        write_launch(control, launch)
        variables = dict(os.environ)
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            variables[name] = str(threads)
        done = subprocess.run(
            [interpreter, "-I", HERE, control],
            env=variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=timeout,
        )
        try:
            outcome = read_outcome(control)
        except OSError:
            tail = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise ReferenceNotMadeError(
                "%s at mini-batch %d: the process ended with code %d and no outcome. %s"
                % (network.name, batch_size, done.returncode, " ".join(tail))
            ) from None
        if outcome.status is not Status.OK or not os.path.exists(made):
            raise ReferenceNotMadeError("%s at mini-batch %d: %s" % (network.name, batch_size, outcome.reason))
        partial = path + ".part"
        shutil.copyfile(made, partial)
        os.replace(partial, path)
    except subprocess.TimeoutExpired:
        raise ReferenceNotMadeError(
            "%s at mini-batch %d: not done after %.0f seconds" % (network.name, batch_size, timeout)
        ) from None
    finally:
        shutil.rmtree(control, ignore_errors=True)
