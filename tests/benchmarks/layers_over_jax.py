"""Does a library of layers over JAX give XLA another program than JAX alone?

    ~/.cache/dlbench/environments/flax-*/bin/python tests/benchmarks/layers_over_jax.py flax
    ~/.cache/dlbench/environments/equinox-*/bin/python tests/benchmarks/layers_over_jax.py equinox --networks lstm32

Compiles one training step of each network, as the adapter of JAX and that of the library write it, parameters donated,
for the CPU, and prints what XLA made of them: operations by name (what only names values left out), and megabytes of
temporaries. Equal counts are no proof of equal programs: layouts may differ. Nothing is computed or timed:
`dlbench run table4 --frameworks jax,flax,equinox` does that.
"""

import argparse
import importlib
import json
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from adapters.jax.adapter import training_step  # noqa: E402
from adapters.launch.batches import initial_weights, mini_batch  # noqa: E402
from adapters.networks import Network, family_of, of_family  # noqa: E402
from adapters.protocol import Cell  # noqa: E402

NOTHING = {"parameter", "get-tuple-element", "tuple", "bitcast", "constant"}
OPERATION = re.compile(r"^\s*(?:ROOT )?%?[\w.-]+ = .*? ([a-z][a-z0-9-]*)\(", re.MULTILINE)


def networks() -> dict[str, Network]:
    """Read the networks that come with dlbench."""
    found = {}
    for each in tomllib.loads((ROOT / "suites" / "definitions" / "networks.toml").read_text())["network"]:
        numbers = {key: value for key, value in each.items() if key not in ("name", "summary", "family", "batch_size")}
        family = family_of({"family": each["family"], "numbers": numbers})
        found[each["name"]] = of_family(each["name"], family, each["batch_size"])
    return found


def program(folder: str, network: Network) -> Any:
    """Return the step as this adapter writes it, compiled, parameters donated as in the tuned row."""
    made = importlib.import_module(f"adapters.{folder}.adapter").ADAPTER
    cell = Cell(folder, folder, "jit", network.name, "cpu", 0, network.batch_size)
    adapter = made(cell, {"keep_programs": False, "rows": True}, "")
    adapter._family = network.family
    held: dict[str, np.ndarray] = {}
    for name, value in initial_weights(network).items():
        held |= adapter._held(name, value)
    given = held, np.float32(0.01), *adapter._read(mini_batch(network, network.batch_size))
    shapes = jax.tree.map(lambda each: jax.ShapeDtypeStruct(each.shape, each.dtype), given)
    step = training_step(jax.value_and_grad(adapter._mean_loss(network)), network.family.clip)
    return jax.jit(step, donate_argnums=0).lower(*shapes).compile()


def facts(compiled: Any) -> dict[str, Any]:
    """Return how often each operation stands in the program, and its temporaries' megabytes."""
    counts = Counter(name for name in OPERATION.findall(compiled.as_text()) if name not in NOTHING)
    temporaries = compiled.memory_analysis().temp_size_in_bytes
    return {"operations": dict(sorted(counts.items())), "megabytes": round(temporaries / 1e6, 1)}


def main() -> None:
    """Print each network's two programs, and where they differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("library", choices=("flax", "equinox"))
    parser.add_argument("--networks", default="fcn5,alexnet,lstm32,gpt32,resnet50")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    known = networks()
    found = {
        name: {folder: facts(program(folder, known[name])) for folder in ("jax", given.library)}
        for name in given.networks.split(",")
    }
    if given.json:
        print(json.dumps(found))
        return
    for name, programs in found.items():
        for folder, each in programs.items():
            counts = Counter(each["operations"])
            said = f"{counts.total()} operations, {counts['dot']} products, {counts['fusion']} fusions"
            print(f"{name:9} {folder:8} {said}, {each['megabytes']} MB")
        ours, theirs = (Counter(each["operations"]) for each in programs.values())
        for sign, apart in (("more", theirs - ours), ("fewer", ours - theirs)):
            if apart:
                print(f"          {sign}: {', '.join(f'{count} {what}' for what, count in apart.items())}")


if __name__ == "__main__":
    main()
