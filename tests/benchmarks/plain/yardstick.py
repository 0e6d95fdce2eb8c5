"""Trains a benchmark network by hand in one framework: the yardstick for the suite's adapter,
sharing no code with it.

    python -I yardstick.py FRAMEWORK NETWORK BATCH THREADS MODE STEPS OUT.json [DEVICE [LOADER_WORKERS SYNC]]

FRAMEWORK is the name of a module beside this file. Each has ``MODES``, the modes of the adapter
that it knows, and ``train``, which returns a training step on a mini-batch and, where a step may
return early, a function that waits for its end. NETWORK is fcn5, fcn8, lstm32 or lstm64, in PyTorch
also alexnet, resnet50, pictures, mlp or a spiking network such as lif-r100-t50-i100-o10, in PyTorch
and JAX also a Boltzmann machine such as bm-d256-sequential, of BATCH chains; DEVICE is cpu (the
default) or cuda:0. With LOADER_WORKERS above 0 so many processes load pictures from a file; where
SYNC is local:H or async two workers train, each on half of the mini-batch. Threads and libraries
are set by the environment variables too. After 3 warm-up samples, STEPS samples are timed to the
end of the device's work, each of one step, of H local steps or of 16 asynchronous ones; OUT.json
receives the time of a step in each, {"samples_ns": [...]}. NumPy alone, by Python 3.6 and newer.
"""

import gc
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Arguments(NamedTuple):
    """The command line."""

    network: str
    batch: int
    threads: int
    mode: str
    device: str = "cpu"
    loader_workers: int = 0
    sync: str = "step"

    @property
    def length(self):
        """Steps of a recurrent network; 0 of any other."""
        return int(self.network[4:]) if self.network.startswith("lstm") else 0

    @property
    def layers(self):
        """Inputs and outputs of each layer of a fully connected network; empty for any other."""
        sizes = (
            [26752] + [2048] * (int(self.network[3:]) - 2) + [26752]
            if self.network.startswith("fcn")
            else []
        )
        return list(zip(sizes, sizes[1:]))  # noqa: B905, RUF007 - Python 3.6

    @property
    def spiking(self):
        """Units, steps, inputs and outputs of a spiking network; empty for any other."""
        sizes = self.network.split("-")[1:] if self.network.startswith("lif-") else []
        return [int(size[1:]) for size in sizes]

    @property
    def steps(self):
        """Steps in a sample."""
        kind, _, count = self.sync.partition(":")
        if kind == "local":
            return int(count)
        return 16 if kind == "async" else 1

    @property
    def units(self):
        """Units of a Boltzmann machine; 0 of any other network."""
        return int(self.network.split("-")[1][1:]) if self.network.startswith("bm-") else 0

    def build(self, recurrent, fully_connected):
        """Build the network, recurrent or fully connected."""
        if not self.length and not self.layers:
            sys.exit("this script does not train " + self.network)
        if self.length:
            return recurrent(self)
        return fully_connected(self)


def mini_batch(arguments):
    """Return random inputs, float32 or int64 tokens (steps, batch), and labels in a row, step by
    step.

    Of a Boltzmann machine: a random number and a state of each unit in each chain, (units, chains).
    """
    random = np.random.RandomState(1)
    if arguments.units:
        shape = arguments.units, arguments.batch
        return random.rand(*shape).astype(np.float32), random.randint(0, 2, shape).astype(
            np.float32
        )
    if arguments.length:
        tokens = random.randint(0, 10000, (arguments.length, arguments.batch))
        return tokens, random.randint(0, 10000, arguments.length * arguments.batch)
    if arguments.spiking:
        _, steps, inputs, outputs = arguments.spiking
        numbers = random.uniform(-1, 1, (steps, arguments.batch, inputs)).astype(np.float32)
        return numbers, random.randint(0, outputs, arguments.batch)
    small = {"pictures": ((3, 64, 64), 10), "mlp": ((784,), 10)}
    shape, classes = small.get(arguments.network) or (
        ((26752,), 26752) if arguments.layers else ((3, 224, 224), 1000)
    )
    scale = 0.1 if arguments.network == "alexnet" else 1.0
    inputs = (scale * random.uniform(-1, 1, (arguments.batch, *shape))).astype(np.float32)
    return inputs, random.randint(0, classes, arguments.batch)


def measure(step, wait, steps):
    """Return the nanoseconds of each step until ``wait`` returns."""
    clock = getattr(time, "perf_counter_ns", None) or (
        lambda: int(time.perf_counter() * 1e9)
    )  # not in Python 3.6
    for _ in range(3):
        step()
        wait()
    samples = []
    gc.collect()
    gc.disable()  # as around the adapters' steps
    for _ in range(steps):
        start = clock()
        step()
        wait()
        samples.append(clock() - start)
    return samples


def main():
    framework, network, batch, threads, mode, steps, out, *further = sys.argv[1:]
    arguments = Arguments(network, int(batch), int(threads), mode, *further[:1])
    if further[1:]:
        arguments = arguments._replace(loader_workers=int(further[1]), sync=further[2])
    first_worker = os.getpid()
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    script = importlib.import_module("plain." + framework)
    assert mode in script.MODES, mode
    step, wait = script.train(arguments, *mini_batch(arguments))
    samples = measure(step, wait or (lambda: None), int(steps))
    if os.getpid() == first_worker:
        with open(out, "w") as file:  # noqa: PTH123
            json.dump({"samples_ns": [sample / arguments.steps for sample in samples]}, file)
    os._exit(0)  # some frameworks' libraries crash when they are unloaded


if __name__ == "__main__":
    main()
