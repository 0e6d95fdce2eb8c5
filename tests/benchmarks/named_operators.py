"""Extra work in one operator of a step: does `dlbench explain --against` name it, and nothing in
identical code?

    .venv/bin/python tests/benchmarks/named_operators.py
    .venv/bin/python tests/benchmarks/named_operators.py --only torch --identical 3

Each try writes two files of a step, the second with more work in one place (a larger product, a
copy, a transposed layout, an operator that leaves its fast path), and compares them by whole
commands. Identical code is compared as often with itself. Prints a line for each try, and how often
the right operator was named.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from dlbench.suites.environments.environment import locate
from dlbench.suites.planning.framework import find

TORCH = """
import torch

BATCH_SIZE = 64


def prepare(cell):
    torch.set_num_threads(cell.threads)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512))
    images = torch.nn.Conv2d(3, 16, 3)
    inputs, pixels = torch.randn(BATCH_SIZE, 512), torch.randn(8, 3, 64, 64)
    whole = torch.arange(320 * 320).reshape(320, 320)
    state = {}

    def step():
        network.zero_grad()
        outputs = network(inputs)
        loss = outputs.pow(2).mean() + images(pixels).mean()
        loss.backward()
        state["loss"] = loss
        EXTRA

    return step, lambda: float(state["loss"])
"""
JAX = """
import jax
from jax import numpy as jnp

BATCH_SIZE = 64
state = {}


def prepare(cell):
    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    weights = [jax.random.normal(keys[0], (512, 1024)) / 32, jax.random.normal(keys[1], (1024, 512)) / 32]
    inputs = jax.random.normal(keys[2], (BATCH_SIZE, 512))

    def loss_of(weights):
        outputs = jax.nn.relu(inputs @ weights[0]) @ weights[1]
        loss = jnp.mean(outputs**2)
        EXTRA
        return loss

    update = jax.jit(jax.value_and_grad(loss_of))

    def step():
        state["found"] = update(weights)

    return step, lambda: float(state["found"][0])


def synchronize():
    jax.block_until_ready(state)
"""
TENSORFLOW = """
import tensorflow as tf

BATCH_SIZE = 8
state = {}


def prepare(cell):
    tf.config.threading.set_intra_op_parallelism_threads(cell.threads)
    tf.random.set_seed(0)
    kernel = tf.Variable(tf.random.normal((3, 3, 3, 16)))
    images = tf.random.normal((BATCH_SIZE, 64, 64, 3))
    numbers = tf.random.normal((400_000,))

    @tf.function
    def update():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.conv2d(images, kernel, 1, "SAME") ** 2)
        gradient = tape.gradient(loss, kernel)
        EXTRA
        return loss, gradient

    def step():
        state["loss"], _ = update()

    return step, lambda: float(state["loss"])
"""
ONNX = """
import numpy as np
import onnxruntime
from onnx import TensorProto, helper

BATCH_SIZE = 3


def prepare(cell):
    kind = KIND
    shapes = {"left": [BATCH_SIZE, 128, 256], "right": [256, 64]}
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()]
    nodes = [helper.make_node("MatMul", ["left", "right"], ["product"]), helper.make_node("Neg", ["product"], ["less"])]
    EXTRA
    outputs = [helper.make_tensor_value_info(nodes[-1].output[0], kind, None)]
    graph = helper.make_graph(nodes, "graph", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cell.threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    feed = {name: rng.integers(-9, 9, shape).astype(dtype) for name, shape in shapes.items()}
    return lambda: session.run(None, feed), lambda: 1.0
"""


class Trial(NamedTuple):
    """A step, what is done to it, and the operator that must be named."""

    row: str
    """Whose environment runs it."""
    text: str
    before: dict[str, str]
    after: dict[str, str]
    expected: str
    """A regular expression of the name of an operator."""


_NONE = {"EXTRA": "pass"}
_FLOAT, _INT64 = {"KIND": "TensorProto.FLOAT", **_NONE}, {"KIND": "TensorProto.INT64", **_NONE}
TRIALS = {
    "a product": Trial(
        "torch", TORCH, _NONE, {"EXTRA": "inputs @ network[0].weight.detach().t()"}, r"aten::mm"
    ),
    "a copy": Trial(
        "torch", TORCH, _NONE, {"EXTRA": "[pixels.clone() for _ in range(12)]"}, r"aten::copy_"
    ),
    "a transposed layout": Trial(
        "torch",
        TORCH,
        _NONE,
        {"EXTRA": "network[0].weight.detach().t().contiguous()"},
        r"aten::copy_",
    ),
    "a product of int64": Trial("torch", TORCH, _NONE, {"EXTRA": "whole @ whole"}, r"aten::mm"),
    "a sort": Trial("torch", TORCH, _NONE, {"EXTRA": "pixels.flatten().sort()"}, r"aten::sort"),
    "a larger product in XLA": Trial(
        "jax",
        JAX,
        _NONE,
        {"EXTRA": "loss += jnp.mean((weights[0].T @ weights[0])[0]) * 0"},
        r"dot|ynn|gemm",
    ),
    "a sort in XLA": Trial(
        "jax",
        JAX,
        _NONE,
        {"EXTRA": "loss += jnp.sort(jax.lax.stop_gradient(weights[1]).ravel()[:65536])[0] * 0"},
        r"sort",
    ),
    "a sum over numbers": Trial(
        "tensorflow",
        TENSORFLOW,
        _NONE,
        {"EXTRA": "loss += 0 * tf.reduce_sum(tf.sort(numbers))"},
        r"TopK|Sort",
    ),
    "a transposed image": Trial(
        "tensorflow",
        TENSORFLOW,
        _NONE,
        {
            "EXTRA": (
                "loss += 0 * tf.reduce_max(tf.transpose(tf.tile(images, [4, 1, 1, 1]), [3, 1, 2, "
                "0]))"
            )
        },
        r"Transpose|Tile|Max",
    ),
    "MatMul of int64 instead of float32": Trial("onnx", ONNX, _FLOAT, _INT64, r"MatMul"),
    "an operator more in a graph": Trial(
        "onnx",
        ONNX,
        _FLOAT,
        {
            **_FLOAT,
            "EXTRA": "nodes.append(helper.make_node('Softmax', ['less'], ['soft'], axis=0))",
        },
        r"Softmax",
    ),
}


def written(folder: Path, name: str, text: str, places: dict[str, str]) -> Path:
    """Write a step with these words in its places."""
    for place, words in places.items():
        text = text.replace(place, words)
    path = folder / f"{name}.py"
    path.write_text(text)
    return path


def compared(trial: Trial, before: dict[str, str], after: dict[str, str]) -> dict[str, Any]:
    """Return what the command says of two files."""
    python = locate(find(trial.row)).interpreter
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "before").mkdir()
        baseline = written(folder / "before", "tried", trial.text, before)
        candidate = written(folder, "tried", trial.text, after)
        words = [
            "--step",
            str(candidate),
            "--python",
            str(python),
            "--threads",
            "1",
            "--against",
            str(baseline),
        ]
        command = [sys.executable, "-m", "dlbench.suites", "explain", "tried", *words, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(done.stderr)
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def main(
    only: Annotated[str, typer.Option(help="Trials of this row alone.")] = "",
    identical: Annotated[int, typer.Option(help="Comparisons of identical code for each row.")] = 3,
) -> None:
    """Try all, and print what was named."""
    chosen = {name: trial for name, trial in TRIALS.items() if only in ("", trial.row)}
    right = 0
    for name, trial in chosen.items():
        began = time.monotonic()
        result = compared(trial, trial.before, trial.after)
        named = result["named"]
        hit = any(re.search(trial.expected, operator) for operator in named)
        right += hit
        took = time.monotonic() - began
        print(
            f"{'named' if hit else 'MISSED'}  {trial.row}: {name}, {took:.0f} s: "
            f"{result['sentence']}",
            flush=True,
        )
    alarms = tries = 0
    for row in dict.fromkeys(trial.row for trial in chosen.values()):
        trial = next(reported for reported in chosen.values() if reported.row == row)
        for _ in range(identical):
            result = compared(trial, trial.before, trial.before)
            tries += 1
            alarms += bool(result["named"])
            print(f"identical  {row}: {result['sentence']}", flush=True)
    print(
        f"The right operator was named in {right} of {len(chosen)}, one in {alarms} of {tries} of "
        "identical code."
    )


if __name__ == "__main__":
    typer.run(main)
