"""What is particular to PyTorch, shown by the guest in PyTorch's own interpreter."""

from typing import Any

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "torch"


COUNTED = "from torch._dynamo.utils import counters"
GRAPHS = 'counters["stats"]["unique_graphs"]'
COMPILED: dict[str, Any] = {"mode": "compile", "compile": True}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small-convolutional", "small-recurrent"])
def test_neither_a_new_rate_nor_a_reset_compiles_anything(guest: Guest, name: str) -> None:
    """One graph without recurrence, pieces with it."""
    asked.rate(GRAPHS, COUNTED, name, **COMPILED)(guest)
    asked.reset(GRAPHS, COUNTED, [name], **COMPILED)(guest)


def test_without_a_compiler_the_cell_is_unsupported_and_the_reason_says_what_to_do(
    guest: Guest,
) -> None:
    supported, reason = guest(
        "os.environ['CXX'] = 'no-such-compiler'\n"
        "answer = make('small-dense', compile=True).supports(SMALL['small-dense'])"
    )
    assert not supported
    assert "no-such-compiler" in reason
    assert "install g++ or set CXX" in reason


def test_bfloat16_on_the_cpu_trains_as_float32_does_but_for_its_rounding(guest: Guest) -> None:
    output: dict[str, list[Any]] = guest("""
        answer = {name: make(name, precision="bfloat16").supports(network) for name, network in SMALL.items()}
    """)
    refused = {name: reason for name, (supported, reason) in output.items() if not supported}
    assert set(refused) <= {
        "small-recurrent",
        "wide-recurrent",
        "one-hot-lstm",
        "one-hot-gru",
        "one-hot-rnn",
        "small-elman",
    }
    assert all("cannot run its" in reason or "runs its" in reason for reason in refused.values()), (
        refused
    )
    asked.check_bfloat16_is_float32_but_for_its_rounding(guest, set(output) - set(refused))


#: In a process that has not imported the compiler yet.
WITHOUT_COMPILER = """
import json, sys, types
package = types.ModuleType("guest"); package.__path__ = [sys.argv[1]]; sys.modules["guest"] = package
import torch
from guest.pytorch import steps
steps.leave_out_compiler()
value = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([value], lr=0.5)
(3 * value).sum().backward()
optimizer.step()
optimizer.zero_grad()
loaded = [name for name in sys.modules if name.startswith(("torch._dynamo.", "sympy"))]
doubled = torch.compile(lambda value: 2 * value, backend="eager")(value)
print(json.dumps([loaded, float(doubled), "torch._dynamo.eval_frame" in sys.modules]))
"""


def test_an_optimizer_does_without_the_compiler_until_somebody_compiles(guest: Guest) -> None:
    loaded, doubled, after = guest(f"""
        import subprocess
        command = [sys.executable, "-I", "-c", {WITHOUT_COMPILER!r}, package.__path__[0]]
        answer = json.loads(subprocess.check_output(command))
    """)
    assert (loaded, doubled, after) == ([], -1.0, True)


#: A build for CUDA and a GPU, pretended: what PyTorch would answer.
PRETENDED = """
torch.version.cuda = "12.8"
torch.cuda.init = lambda: None
torch.cuda.get_device_capability = lambda *_: CAPABILITY
torch.cuda.get_arch_list = lambda: ["sm_75", "sm_80", "sm_90", "compute_90"]
torch.backends.cudnn.m.version = lambda: 91000
def refused(**cell):
    return make("small-dense", device="cuda:0", **cell).supports(SMALL["small-dense"])
"""


@pytest.mark.parametrize(
    ("capability", "cell", "words"),
    [
        ((9, 0), {}, ""),
        ((9, 0), {"precision": "bfloat16", "placement": "pinned"}, ""),
        ((10, 0), {"precision": "tf32"}, ""),  # by its PTX
        (
            (6, 1),
            {},
            "no kernels for compute capability 6.1 (it has sm_75, sm_80, sm_90, compute_90)",
        ),
        (
            (7, 5),
            {"precision": "tf32"},
            "precision tf32: it needs compute capability 8.0, and this GPU has 7.5",
        ),
        ((7, 5), {"precision": "float16"}, ""),
        ((9, 0), {"placement": "on tape"}, "placement on tape"),
        ((9, 0), {"mode": "onednn", "dense": "onednn"}, "oneDNN multiplies on the CPU only"),
        (
            (9, 0),
            {"mode": "graph", "graph": True, "precision": "float16"},
            "cannot capture the scaling of its loss",
        ),
        ((9, 0), {"mode": "graph", "graph": True, "precision": "bfloat16"}, ""),
    ],
)
def test_a_gpu_is_refused_in_pytorchs_own_terms(
    guest: Guest, capability: tuple[int, int], cell: dict[str, Any], words: str
) -> None:
    output = guest(f"CAPABILITY = {capability}\n{PRETENDED}\nanswer = refused(**{cell!r})")
    assert output == [not words, output[1]]
    assert words in output[1]
    assert bool(words) == bool(output[1])


def test_tf32_is_off_in_every_library_unless_it_was_asked_for(guest: Guest) -> None:
    flags = guest("""
        answer = []
        for precision in ("float32", "tf32", "bfloat16", "float32"):
            make("small-dense", device="cuda:0", precision=precision)
            answer.append([torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32])
            torch.get_float32_matmul_precision()
    """)
    assert flags == [[False, False], [True, True], [False, False], [False, False]]
