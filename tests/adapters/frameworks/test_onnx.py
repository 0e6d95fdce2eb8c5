"""What is particular to plain ONNX Runtime, looked at inside its own interpreter; above all the gradient rules."""

import os

import asked_of_frameworks as asked
import pytest
from asked_of_onnx import onnx_sessions
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "onnx"


@asked.of_every_framework(
    *(
        asked.settings({name: value})
        for name, value in (
            ("rate_in_product", False),
            ("optimization", "none"),
            ("memory_pattern", False),
            ("memory_arena", False),
        )
    ),
    *onnx_sessions(1, "adapter.session"),
    # The addresses of everything that is bound.
    asked.reset(
        "[id(adapter.session)] + [value.data_ptr() for values in adapter.sets + [adapter.given]"
        " for value in values.values()]"
    ),
    asked.capabilities(gpu=False, automatic_gradients=False),
    asked.description("build operator_set graph_optimization_level memory_arena execution", version="1.32.…"),
)
def test_it_answers_as_every_framework_does(guest: Guest, check: asked.Check) -> None:
    check(guest)


def test_the_learning_rate_multiplies_the_smaller_factor_of_a_product(guest: Guest) -> None:
    early, factor, late = guest("""
        def made_by(early):
            graph = onnx_networks.training_graph(SMALL["small-dense"], 4, early).graph
            return {output: node for node in graph.node for output in node.output}
        def change(nodes):
            return nodes[nodes["fc1.weight:updated"].input[1]]
        early, late = made_by(True), made_by(False)
        factor = early[change(early).input[1]]
        answer = change(early).op_type, list(factor.input), change(late).op_type
    """)
    assert early == "Gemm"
    # fc1 has 7 inputs and 11 outputs: what it was given is smaller than the gradient by what it gave.
    assert factor == ["inputs", "learning_rate"]
    assert late == "Mul"


def test_only_ordinary_operators_are_asked_for(guest: Guest) -> None:
    """Nothing of ONNX Runtime's own, no function, and ONNX's checker accepts every graph."""
    domains, functions = guest("""
        import onnx
        domains, functions = set(), 0
        for name in built():
            model = onnx_networks.training_graph(SMALL[name], 4, True)
            onnx.checker.check_model(model, full_check=True)
            domains.update(node.domain for node in model.graph.node)
            functions += len(model.functions)
        answer = sorted(domains), functions
    """)
    assert (domains, functions) == ([""], 0)


def test_steps_write_the_two_sets_of_parameters_in_turn(guest: Guest) -> None:
    found = guest("""
        adapter = prepared("small-dense")
        answer = []
        for _ in range(3):
            kept = {name: value.numpy().copy() for name, value in adapter.sets[adapter.current].items()}
            source = adapter.current
            adapter.step()
            same = all((adapter.sets[source][name].numpy() == value).all() for name, value in kept.items())
            moved = any((adapter.sets[1 - source][name].numpy() != value).any() for name, value in kept.items())
            answer.append([source, adapter.current, bool(same), bool(moved)])
    """)
    assert found == [[0, 1, True, True], [1, 0, True, True], [0, 1, True, True]]


def test_the_mini_batch_is_used_where_it_lies_and_torch_is_never_imported(guest: Guest) -> None:
    assert guest("""
        network = SMALL["small-convolutional"]
        batch = batches.mini_batch(network, 4)
        adapter = make("small-convolutional")
        adapter.prepare(network, batches.initial_weights(network), batch)
        bound = [adapter.given[name].data_ptr() for name in ("inputs", "labels")]
        used = bound == [array.ctypes.data for array in adapter.mini_batch]
        answer = used and "torch" not in sys.modules
    """)


def test_no_thread_count_leaves_the_frameworks_own(guest: Guest) -> None:
    says, options, started = guest("""
        adapter, network = make("small-dense", threads=0), SMALL["small-dense"]
        before = len(os.listdir("/proc/self/task"))
        adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, 4))
        adapter.step()
        started = len(os.listdir("/proc/self/task")) - before
        answer = adapter.effective_threads(), adapter.options.intra_op_num_threads, started
    """)
    assert says is None
    assert options == 0
    assert 0 <= started < (os.cpu_count() or 1)


def test_a_gpu_is_refused_in_onnx_runtimes_own_terms(guest: Guest) -> None:
    said = guest("""
        from guest.onnx import adapter as devices
        asked = [{"device": "rocm:0"}, {"precision": "bfloat16"}, {"placement": "pinned"}, {}]
        network = SMALL["small-dense"]
        answer = [list(make(network.name, **{"device": "cuda:0", **each}).supports(network)) for each in asked]
        # A build that lists the provider, where it cannot be loaded: a session gets the CPU without a word.
        devices.onnxruntime.get_available_providers = lambda: [devices.CUDA, devices.CPU]
        answer.append(list(make(network.name, device="cuda:0").supports(network)))
    """)
    words = [
        "device rocm:0: ONNX Runtime is driven here on the CPU and on CUDA GPUs only",
        "precision bfloat16",
        "placement pinned",
        "this build has no CUDAExecutionProvider (it has ",
        "has the CUDAExecutionProvider and cannot load it",
    ]
    asked.check_reasons(said, words)
    assert "--python onnx=" in said[3][1]


def test_tf32_is_asked_for_or_forbidden(guest: Guest) -> None:
    told = guest("""
        from guest.onnx import adapter as devices
        cells = [Cell("onnx", "onnx", "graph", "fcn5", "cuda:0", 1, 4, precision) for precision in ("float32", "tf32")]
        answer = [devices.providers_of(cell)[0][1]["use_tf32"] for cell in cells] + [list(devices.memory_of(cells[0]))]
    """)
    assert told == ["0", "1", ["cuda", 0]]
