"""How the stores beside this file were made: `python record_store.py FOLDER`, run once at commit a1f5929.

Real runs of that version on a virtual machine with two CPUs, in short: few steps, small mini-batches. What such a
machine cannot have (GPUs, other machines, many nights, many CPUs) is the null framework's, or copies of such runs that
the store's own interface wrote. It uses modules of that commit and is kept to document the stores, not to be run again:
reports of other measurements would be other reports. Real and null runs were made at the same time, in two folders, and
disturbed one another: so there are flags.

Needs the environments of torch, jax, onnx and mxnet, and about ten minutes.
"""

# mypy: ignore-errors

import lzma
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import made_up_records

HERE = Path(__file__).parent
INPUTS = HERE / "inputs"
TESTS = HERE.parent
NO_GPU = "fake.FakeNvml()"
TWINS = "fake.FakeNvml(fake.board(uuid='GPU-aaaaaaaa-1111'), fake.board(uuid='GPU-bbbbbbbb-1111'))"
LOADED = (
    "fake.FakeNvml(fake.SimulatedGpu().board(uuid='GPU-aaaaaaaa-1111'),"
    " fake.board('NVIDIA H200', uuid='GPU-cccccccc-1111'))"
)
SLOWER = ("--candidate-env", "DLBENCH_EXTRA_PRODUCTS=1x3000")
FASTER = ("--baseline-env", "DLBENCH_EXTRA_PRODUCTS=1x3000")
QUICKLY = ("--no-build", "--no-quiet-gate")


def dlbench(folder: Path, *words: str, gpus: str = NO_GPU) -> str:
    """Run the command in a folder and return what it printed, whatever its exit code."""
    (folder / "pretended.py").write_text(
        "import importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('f', {str(TESTS / 'hardware_probe' / 'fake_nvml.py')!r})\n"
        "fake = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(fake)\n"
        f"nvml = {gpus}\n"
    )
    variables = {**os.environ, "DLBENCH_NVML": str(folder / "pretended.py"), "COLUMNS": "80"}
    print("$ dlbench", *words, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "dlbench.suites", *words], cwd=folder, env=variables, capture_output=True, text=True
    )
    print(done.returncode, done.stdout[-700:], done.stderr[-700:], flush=True)
    return done.stdout


def null_runs(folder: Path) -> None:
    """Measure what needs no framework: GPUs, workers, gates, comparisons, faults, the first night."""
    null = ("--no-ceilings", *QUICKLY)
    pretended = str(INPUTS / "pretended.toml")
    dlbench(
        folder,
        *("run", pretended, "--store", "gpu.sqlite", "--devices", "cuda:0", "--no-build", "--seed", "1"),
        gpus=LOADED,
    )
    dlbench(
        folder,
        *("run", pretended, "--store", "gpu.sqlite", "--networks", "fcn5", "--batch-sizes", "64", "--seed", "2"),
        *("--precisions", "float32,tf32,bfloat16,float16", "--placements", "resident,pinned,pageable", *null),
        *("--launches", "1"),
        gpus=LOADED,
    )
    dlbench(
        folder,
        *("run", pretended, "--store", "workers.sqlite", "--batch-sizes", "32,64", "--world-sizes", "1,2,4"),
        *("--devices", "cpu,cuda:0", "--threads", "1,2", "--networks", "fcn5", "--seed", "3", *null),
        *("--launches", "1"),
        gpus=TWINS,
    )
    nightly = str(INPUTS / "nightly.toml")
    gates = ("--store", "gates.sqlite", "--no-build", "--seed", "4")
    dlbench(folder, "gate", nightly, *SLOWER, "--threads", "1", *gates)
    dlbench(folder, "gate", nightly, "--same", "--networks", "fcn5", *gates)
    dlbench(folder, "gate", nightly, *FASTER, "--threads", "1", "--networks", "fcn5", *gates)
    dlbench(folder, "gate", nightly, "--candidate-env", "DLBENCH_EXTRA_PRODUCTS=nonsense", "--threads", "1", *gates)
    dlbench(folder, "compare", "--now", "--suite", nightly, *SLOWER, "--threads", "1,2", "--pairs", "6-8", *gates)
    dlbench(folder, "compare", "--now", "--suite", nightly, "--same", "--budget", "4s", *gates)
    for seed in ("5", "6"):
        dlbench(folder, "run", nightly, "--store", "first-night.sqlite", "--seed", seed, *null)
    faults(folder)


def faults(folder: Path) -> None:
    """Measure cells that give no number, each with a mini-batch of its own."""
    null = ("--store", "faults.sqlite", "--no-ceilings", *QUICKLY)
    sizes = (64, 16, 32, 128, 256, 8, 4)
    for fault, size in zip(("crash", "exit", "hang", "memory", "error", "unsupported", "nan"), sizes, strict=True):
        suite = folder / f"{fault}.toml"
        suite.write_text((INPUTS / "faults.toml").read_text().replace("FAULT", fault))
        dlbench(folder, "run", str(suite), "--launches", "2", "--batch-sizes", str(size), *null)
    # Nothing but what was skipped: the budget is spent before the last launches.
    dlbench(
        folder, "run", str(folder / "nan.toml"), "--budget", "1s", "--threads", "1,2,4", "--batch-sizes", "2", *null
    )


def real_runs(folder: Path) -> None:
    """Measure with real frameworks."""
    small, cpu = str(INPUTS / "small.toml"), ("--store", "cpu.sqlite", *QUICKLY)
    dlbench(folder, "run", small, *cpu, "--seed", "11", "--launches", "2")
    dlbench(
        folder, "run", small, *cpu, "--seed", "12", "--launches", "2", "--threads", "1,2", "--frameworks", "torch,onnx"
    )
    fcn5 = ("--networks", "fcn5", *cpu)
    dlbench(
        folder, "run", small, *fcn5, "--seed", "13", "--frameworks", "onnx", "--precision", "5%", "--threads", "1,2"
    )
    dlbench(
        folder,
        *("run", small, *fcn5, "--seed", "14", "--frameworks", "torch", "--threads", "1,2,4,8", "--launches", "2"),
        *("--affinity", "bound,oversubscribed"),
    )
    dlbench(
        folder,
        *("run", small, *fcn5, "--seed", "15", "--frameworks", "torch", "--threads", "1,2", "--launches", "2"),
        *("--world-sizes", "1,2", "--batch-sizes", "16,32"),
    )
    dlbench(
        folder, "run", "figure1", *fcn5, "--seed", "16", "--frameworks", "onnx,jax", "--devices", "cpu", "--steps", "4"
    )
    # Ended by a signal after two thirds of its launches: an unfinished run.
    dlbench(
        folder,
        *("run", "quick", *cpu, "--seed", "17", "--frameworks", "torch,mxnet,null,caffe,torch7", "--steps", "5"),
        *("--threads", "1,2,4"),
    )


def pack(folder: Path, names: Sequence[str]) -> None:
    """Compress the stores as they are kept: one file each, without a log beside it."""
    (HERE / "stores").mkdir(exist_ok=True)
    for name in names:
        copy = folder / "packed.sqlite"
        copy.unlink(missing_ok=True)
        with sqlite3.connect(folder / f"{name}.sqlite") as opened:
            opened.execute("pragma wal_checkpoint(truncate)")
        opened.close()
        shutil.copy(folder / f"{name}.sqlite", copy)
        changed = sqlite3.connect(copy)
        changed.execute("pragma journal_mode=delete")
        changed.execute("vacuum")
        changed.close()
        (HERE / "stores" / f"{name}.sqlite.xz").write_bytes(
            lzma.compress(copy.read_bytes(), preset=9 | lzma.PRESET_EXTREME)
        )


def main(folder: Path, parts: Sequence[str]) -> None:
    """Make the parts named: null, real, made-up, pack."""
    folder.mkdir(parents=True, exist_ok=True)
    if "null" in parts:
        null_runs(folder)
    if "real" in parts:
        real_runs(folder)
    if "made-up" in parts:
        made_up_records.add_all(folder)
    if "pack" in parts:
        pack(folder, ["cpu", "gpu", "workers", "gates", "faults", "nights", "gated-nights", "elsewhere", "many-cpus"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or ("null", "real", "made-up", "pack"))
