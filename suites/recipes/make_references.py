"""Regenerate the reference files that come with dlbench, one after another, on all available CPUs.

In a clone: .venv/bin/python suites/recipes/make_references.py [--networks fcn5 lstm32] [--missing]
"""

import argparse
import os
import sys
import time

from dlbench.adapters.launch.batches import CHECKED_EXAMPLES
from dlbench.suites.planning.networks import shipped
from dlbench.suites.run.preparation import ReferenceKey, stem_of
from dlbench.suites.run.references import SHIPPED, compute

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
#: Mini-batches with several sets of labels, one for each worker: (examples, sets).
LABEL_SETS = {"resnet50": ((8, 2), (8, 4), (8, 8))}


def main() -> int:
    """Make the files; print the time of each."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument(
        "--networks", nargs="+", default=sorted(BATCH_SIZES), choices=sorted(BATCH_SIZES)
    )
    parser.add_argument(
        "--missing", action="store_true", help="leave the files that are there already"
    )
    options = parser.parse_args()
    for network in options.networks:
        numbers = shipped()[network]
        wanted = [ReferenceKey(numbers, batch_size) for batch_size in BATCH_SIZES[network]]
        wanted += [ReferenceKey(numbers, *parts) for parts in LABEL_SETS.get(network, ())]
        wanted.append(ReferenceKey(numbers, CHECKED_EXAMPLES, inference=True))
        for key in wanted:
            path = SHIPPED / f"{stem_of(key)}.npz"
            if options.missing and path.exists():
                continue
            start, threads = time.perf_counter(), len(os.sched_getaffinity(0))
            why = compute(
                numbers, key.batch_size, path, threads, parts=key.parts, inference=key.inference
            )
            print(f"{path.name}: {why or f'{time.perf_counter() - start:.1f} s'}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
