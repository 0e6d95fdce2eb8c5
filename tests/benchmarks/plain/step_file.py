"""Times the training step of a file, with nothing around it: for benchmarks that compare how it is
launched.

    python step_file.py FILE BATCH_SIZE STEPS ANSWER      ANSWER: a JSON file with the nanoseconds of each step

``prepare(cell)`` is given no thread count: the environment decides. Standard library only.
"""

import importlib.util
import json
import pathlib
import sys
import time
import types

WARM_UP = 5


def main() -> None:
    """Time the steps."""
    file, batch_size, steps, answer = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    spec = importlib.util.spec_from_file_location("step_of_file", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cell = types.SimpleNamespace(
        threads=0, batch_size=batch_size, device="cpu", precision="float32", world_size=1
    )
    prepared = module.prepare(cell)
    step = prepared[0] if isinstance(prepared, (tuple, list)) else prepared
    for _ in range(WARM_UP):
        step()
    samples = []
    for _ in range(steps):
        start = time.perf_counter_ns()
        step()
        samples.append(time.perf_counter_ns() - start)
    pathlib.Path(answer).write_text(json.dumps(samples))


if __name__ == "__main__":
    main()
