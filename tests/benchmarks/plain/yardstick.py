"""What the plain scripts share: arguments, the shape of ResNet-50, a mini-batch of random numbers, timed steps.

    python -I FRAMEWORK.py NETWORK BATCH THREADS MODE STEPS OUT.json [DEVICE]

Each script beside this file trains the benchmark's networks by hand in one framework: the yardstick for the suite's
adapter, with which it shares no code. NETWORK is fcn5, fcn8, lstm32 or lstm64, in PyTorch also alexnet or resnet50;
MODE is a mode of the adapter, DEVICE cpu (if none is named) or cuda:0. Threads and libraries are set by the environment
variables too; -I keeps a script from being taken for the framework of its name. After 3 warm-up steps each of STEPS
steps is timed, to the end of the device's work; OUT.json receives {"samples_ns": [...]}. NumPy alone, by Python 3.6
and newer.
"""

import gc
import json
import sys
import time
from typing import NamedTuple

import numpy as np

#: Of ResNet-50's blocks, in order: inputs, width, stride, and whether the shortcut is a projection.
BOTTLENECKS = [
    (4 * width if index else inputs, width, 1 if index else stride, index == 0)
    for inputs, width, count, stride in ((64, 64, 3, 1), (256, 128, 4, 2), (512, 256, 6, 2), (1024, 512, 3, 2))
    for index in range(count)
]


class Arguments(NamedTuple):
    """The command line."""

    network: str
    batch: int
    threads: int
    mode: str
    steps: int
    out: str
    device: str = "cpu"

    @property
    def length(self):
        """Steps of a recurrent network; 0 of any other."""
        return int(self.network[4:]) if self.network.startswith("lstm") else 0

    @property
    def hidden(self):
        """Hidden layers of a fully connected network; 0 of any other."""
        return int(self.network[3:]) - 2 if self.network.startswith("fcn") else 0

    def build(self, recurrent, fully_connected):
        """Build the network: by its steps where it is recurrent, by its hidden layers where it is fully connected."""
        if not self.length and not self.hidden:
            sys.exit("this script does not train " + self.network)
        return recurrent(self.length) if self.length else fully_connected(self.hidden)


def arguments(*modes):
    """Read the command line of a script that knows these modes."""
    network, batch, threads, mode, steps, out, *device = sys.argv[1:]
    assert mode in modes, mode
    return Arguments(network, int(batch), int(threads), mode, int(steps), out, *device)


def mini_batch(given, channels_last=False):
    """Return random inputs, float32 or int64 tokens (steps, batch), and labels in a row, step by step."""
    random = np.random.RandomState(1)
    if given.length:
        return random.randint(0, 10000, (given.length, given.batch)), random.randint(
            0, 10000, given.length * given.batch
        )
    image = (224, 224, 3) if channels_last else (3, 224, 224)
    shape, classes = ((26752,), 26752) if given.hidden else (image, 1000)
    scale = 0.1 if given.network == "alexnet" else 1.0
    inputs = (scale * random.uniform(-1, 1, (given.batch, *shape))).astype(np.float32)
    return inputs, random.randint(0, classes, given.batch)


def measure(given, step, wait=lambda: None):
    """Time the steps, each until ``wait`` returns, and write the nanoseconds."""
    clock = getattr(time, "perf_counter_ns", None) or (lambda: int(time.perf_counter() * 1e9))  # not in Python 3.6
    for _ in range(3):
        step()
        wait()
    samples = []
    gc.collect()
    gc.disable()  # as around the adapters' steps
    for _ in range(given.steps):
        start = clock()
        step()
        wait()
        samples.append(clock() - start)
    with open(given.out, "w") as file:  # noqa: PTH123
        json.dump({"samples_ns": samples}, file)
