"""The gradient rules by which a step becomes one ONNX graph, looked at inside ONNX Runtime's interpreter."""

from collections.abc import Callable

import pytest
from inside import Guest

pytestmark = pytest.mark.framework


IMPORTS = """
from onnx.reference import ReferenceEvaluator
from guest.onnx import gradients
from guest.onnx.gradients import Graph
from guest.libraries import onnx_graphs

def differentiated(build, shapes, integers={}, seed=0, element=np.float64):
    # The gradient of sum(weights * output) by every input: as the rules have it, and the function itself.
    random = np.random.RandomState(seed)
    graph = Graph(element)
    for name, shape in shapes.items():
        graph.input(name, shape)
    for name, value in integers.items():
        graph.input(name, value.shape, np.int64)
    output = build(graph)
    shape = graph.shapes()[output]
    graph.output(output, shape)
    values = {name: random.standard_normal(shape).astype(element) for name, shape in shapes.items()}
    weights = random.standard_normal(shape).astype(element)
    forward = graph.model()
    graph.input("seed", shape)
    found = gradients.backward(graph, {output: "seed"}, list(shapes))
    names = [graph.node("Identity", [gradients.multiplied(graph, found[name])]) for name in shapes]
    del graph.outputs[output]
    for name, shape in zip(names, shapes.values()):
        graph.output(name, shape)
    return forward, graph.model(), dict(values, **integers), weights, dict(zip(shapes, names))

def session(model, threads=1):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])

def errors(build, shapes, integers={}, seed=0):
    # (in float64 by ONNX's own evaluator against central differences, in float32 by ONNX Runtime against float64)
    forward, backward, values, weights, names = differentiated(build, shapes, integers, seed)
    def loss(changed):
        return float((weights * ReferenceEvaluator(forward).run(None, changed)[0]).sum())
    exact = dict(zip(names, ReferenceEvaluator(backward).run(list(names.values()), dict(values, seed=weights))))
    numeric = 0.0
    random = np.random.RandomState(seed)
    for name in shapes:
        direction = random.standard_normal(values[name].shape)
        there, back = (dict(values, **{name: values[name] + step * direction}) for step in (1e-5, -1e-5))
        slope, expected = (exact[name] * direction).sum(), (loss(there) - loss(back)) / 2e-5
        numeric = max(numeric, abs(slope - expected) / (abs(expected) + 1e-3))
    _, single, _, _, names = differentiated(build, shapes, integers, seed, np.float32)
    feed = {name: value.astype(np.float32) if value.dtype == np.float64 else value for name, value in values.items()}
    found = session(single).run(list(names.values()), dict(feed, seed=weights.astype(np.float32)))
    rounding = max(
        float(np.abs(value - exact[name]).max() / (np.abs(exact[name]).max() + 1e-12))
        for name, value in zip(names, found)
    )
    return numeric, rounding
"""


@pytest.fixture
def guest(guests: Callable[..., Guest]) -> Guest:
    """Give a function that runs statements in ONNX Runtime's interpreter and returns what they bind to ``answer``."""
    return guests("onnx", imports=IMPORTS)


# Each a graph built from inputs a, b, c of these shapes. Every operator appears, with every form the networks use.
RULES = {
    "Gemm, transposed weight": ("g.node('Gemm', ['a', 'b', 'c'], transB=1)", {"a": (3, 4), "b": (5, 4), "c": (5,)}),
    "Gemm, matrix added": ("g.node('Gemm', ['a', 'b', 'c'])", {"a": (3, 4), "b": (4, 5), "c": (3, 5)}),
    "Gemm, nothing added": ("g.node('Gemm', ['a', 'b'])", {"a": (3, 4), "b": (4, 5)}),
    "Gemm, one weight twice": ("g.node('Gemm', [g.node('Gemm', ['a', 'b'], transB=1), 'b'], transB=1)",
                               {"a": (3, 4), "b": (4, 4)}),
    "Sigmoid": ("g.node('Sigmoid', ['a'])", {"a": (3, 4)}),
    "Tanh": ("g.node('Tanh', ['a'])", {"a": (3, 4)}),
    "Relu": ("g.node('Relu', ['a'])", {"a": (3, 4)}),
    "Add": ("g.node('Add', ['a', 'b'])", {"a": (3, 4), "b": (3, 4)}),
    "Add, repeated": ("g.node('Add', ['a', 'b'])", {"a": (2, 3, 4), "b": (3, 1)}),
    "Add, one value twice": ("g.node('Add', ['a', 'a'])", {"a": (3, 4)}),
    "Sub": ("g.node('Sub', ['a', 'b'])", {"a": (3, 4), "b": (3, 4)}),
    "Mul": ("g.node('Mul', ['a', 'b'])", {"a": (3, 4), "b": (3, 4)}),
    "Mul, a square": ("g.node('Mul', ['a', 'a'])", {"a": (3, 4)}),
    "Split": ("g.node('Mul', g.several('Split', ['a', g.integers(2, 2)], ['x', 'y'], axis=1))", {"a": (3, 4)}),
    "Split, one part unused": ("g.several('Split', ['a', g.integers(1, 3)], ['x', 'y'], axis=1)[1]", {"a": (3, 4)}),
    "Concat": ("g.node('Concat', ['a', 'b', 'a'], axis=0)", {"a": (3, 4), "b": (2, 4)}),
    "Gather": ("g.node('Gather', ['a', 'rows'])", {"a": (4, 3)}),
    "Flatten": ("g.node('Flatten', ['a'])", {"a": (3, 4, 2, 1)}),
    "GlobalAveragePool": ("g.node('GlobalAveragePool', ['a'])", {"a": (3, 4, 2, 5)}),
    "Normalise": ("gradients.normalise(g, 'n', 'a', 3, 1e-5)", {"a": (4, 3, 2, 5), "n.gamma": (3,), "n.beta": (3,)}),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_a_rule_agrees_with_central_differences(guest: Guest, name: str) -> None:
    statement, shapes = RULES[name]
    found = guest(f"""
        rows = {{"rows": np.array([1, 3, 1, 1, 0])}} if {name!r} == "Gather" else {{}}
        answer = [errors(lambda g: {statement}, {shapes!r}, rows, seed) for seed in range(3)]
    """)
    for numeric, rounding in found:
        assert numeric < 1e-6
        assert rounding < 1e-5


# height, width, kernel, stride, padding, channels, outputs: strides that divide and that do not, remainders smaller
# and larger than the padding, few and many channels, so that each way to the weight's gradient is taken.
CONVOLUTIONS = [
    (7, 7, 3, 1, 1, 2, 3),
    (7, 6, 3, 1, 0, 11, 2),
    (8, 8, 3, 2, 1, 2, 3),
    (9, 8, 3, 2, 1, 10, 3),
    (8, 9, 3, 3, 0, 2, 3),
    (9, 10, 3, 4, 1, 3, 2),
    (9, 11, 2, 4, 0, 3, 2),
    (6, 7, 1, 2, 0, 3, 2),
    (6, 7, 1, 1, 0, 3, 4),
    (3, 3, 1, 1, 0, 30, 30),
    (5, 4, 1, 1, 1, 3, 2),
    (5, 5, 2, 1, 3, 2, 2),
    (17, 17, 7, 2, 3, 3, 4),
    (15, 15, 11, 4, 2, 3, 2),
]


def test_the_gradients_of_convolutions_agree_with_central_differences(guest: Guest) -> None:
    found = guest(f"""
        answer, ways = [], set()
        for way in ("_exchanged", "_each_example", "_each_place"):
            def counted(*arguments, way=way, original=getattr(gradients.Convolution, "_by_weight" + way)):
                ways.add(way)
                return original(*arguments)
            setattr(gradients.Convolution, "_by_weight" + way, counted)
        for height, width, kernel, stride, padding, channels, outputs in {CONVOLUTIONS!r}:
            numbers = dict(kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[padding] * 4)
            shapes = {{"a": (2, channels, height, width), "b": (outputs, channels, kernel, kernel), "c": (outputs,)}}
            answer.append(errors(lambda g: g.node("Conv", ["a", "b", "c"], **numbers), shapes))
        answer = answer, sorted(ways)
    """)
    for case, (numeric, rounding) in zip(CONVOLUTIONS, found[0], strict=True):
        assert numeric < 1e-6, case
        assert rounding < 1e-5, case
    assert found[1] == ["_each_example", "_each_place", "_exchanged"]


@pytest.mark.parametrize("name", ["small-dense", "small-convolutional", "small-residual", "small-recurrent"])
def test_a_whole_step_in_float64_is_the_references(guest: Guest, name: str) -> None:
    """By ONNX's own evaluator, without ONNX Runtime and without rounding to hide behind."""
    worst = guest(f"""
        from guest.reference.adapter import ReferenceAdapter
        network = SMALL[{name!r}]
        weights, batch = batches.initial_weights(network), batches.mini_batch(network, 4)
        values = {{key: onnx_graphs.permute_gates(network, key, value) for key, value in weights.items()}}
        feed = {{key: value.astype(float) for key, value in values.items()}}
        inputs, labels = onnx_graphs.feed(network, batch)
        inputs = inputs if inputs.dtype == np.int64 else inputs.astype(float)
        feed.update(inputs=inputs, labels=labels, learning_rate=np.array(0.5))
        worst = []
        reference = ReferenceAdapter(Cell("", "", "", network.name, "cpu", 1, 4), {{}}, "")
        reference.prepare(network, {{key: value.copy() for key, value in weights.items()}}, batch)
        reference.set_learning_rate(0.5)
        reference.step()
        expected = dict(reference.parameters())
        for fused in (True, False):
            model = onnx_networks.training_graph(network, 4, fused, np.float64)
            names = [output.name for output in model.graph.output]
            found = dict(zip(names, ReferenceEvaluator(model).run(names, feed)))
            worst.append(abs(float(found["loss"]) - reference.last_loss()))
            for key, value in expected.items():
                after = onnx_graphs.permute_gates(network, key, found[onnx_networks.updated_name(key)])
                moved = np.abs(value - weights[key]).max()
                worst.append(float(np.abs(after - value).max() / (moved + 1e-9)))
        answer = max(worst)
    """)
    assert worst < 1e-6


def test_rows_looked_up_often_lose_no_addition_on_several_threads(guest: Guest) -> None:
    """ScatterND, the operator that suggests itself, adds on several threads without locking."""
    worst = guest("""
        def build(g):
            return g.node("Gather", ["a", "rows"])
        rows = np.random.RandomState(0).randint(0, 2, 65536)
        _, backward, values, weights, names = differentiated(build, {"a": (2, 64)}, {"rows": rows}, element=np.float32)
        run, answer = session(backward, 4), 0.0
        for _ in range(5):
            found = run.run([names["a"]], dict(values, seed=np.ones_like(weights)))[0]
            answer = max(answer, float(np.abs(found - np.bincount(rows)[:, None]).max()))
    """)
    assert worst == 0.0
