"""Make the reference files anew: ``python adapters/reference/generate.py [--networks ...] [--batch-sizes ...]``.

Run by path on the host, where ``dlbench`` is installed. Without options it makes the files that come with the
project, into the folder they lie in. It computes one at a time, on all CPUs that it may use.
"""

import argparse
import os
import sys
import time

from dlbench.adapters.reference.files import SHIPPED, generate, stem
from dlbench.suites.planning.networks import shipped

#: The paper's mini-batches first, then those of the mini-batch sweep.
BATCH_SIZES = {
    "fcn5": (64, 16, 32, 128, 256),
    "fcn8": (64, 16, 32, 128, 256),
    "alexnet": (16, 4, 8, 32),
    "resnet50": (16, 8, 32),
    "lstm32": (128, 4, 32, 64, 256),  # 4: for the tests of the parity check
    "lstm64": (128, 32, 64, 256),
    "gpt32": (128, 4, 32),
    "gpt64": (128, 32),
}
#: Mini-batches with several sets of labels, one for each of so many workers: (examples, sets).
LABEL_SETS = {"resnet50": ((8, 2), (8, 4), (8, 8))}


def main() -> int:
    """Make the files; print the time of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = shipped()
    parser.add_argument("--networks", nargs="+", default=sorted(known), choices=sorted(known))
    parser.add_argument("--batch-sizes", nargs="+", type=int, help="examples per mini-batch (default: shipped)")
    parser.add_argument("--output", default=SHIPPED, help="folder of the files (default: %(default)s)")
    parser.add_argument("--interpreter", default=sys.executable, help="a Python with NumPy")
    parser.add_argument("--missing", action="store_true", help="leave the files that are there already")
    options = parser.parse_args()
    for network in options.networks:
        of_one = [(batch_size, 1) for batch_size in options.batch_sizes or BATCH_SIZES[network]]
        of_several = [] if options.batch_sizes else list(LABEL_SETS.get(network, ()))
        for batch_size, label_sets in [*of_one, *of_several]:
            path = os.path.join(options.output, stem(network, batch_size, label_sets) + ".npz")
            if options.missing and os.path.exists(path):
                continue
            start = time.perf_counter()
            generate(known[network], batch_size, path, options.interpreter, parts=label_sets)
            print("%s: %.1f s" % (os.path.basename(path), time.perf_counter() - start), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
