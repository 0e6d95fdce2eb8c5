"""The gradient rules by which a step becomes one ONNX graph, looked at inside ONNX Runtime's
interpreter."""

import pytest
from inside import Guest

pytestmark = pytest.mark.framework


NAMES = (
    "small-dense",
    "small-convolutional",
    "small-residual",
    "small-recurrent",
    "one-hot-gru",
    "leaky-elman",
)
#: Side, kernel, stride, padding, channels, outputs: strides that divide and that do not, remainders
#: smaller and larger than the padding, few and many channels, so that each way to the weight's
#: gradient is taken.
CONVOLUTIONS = [
    (7, 3, 1, 1, 2, 3),
    (7, 3, 1, 0, 11, 2),
    (8, 3, 2, 1, 10, 3),
    (10, 3, 4, 1, 3, 2),
    (11, 2, 4, 0, 3, 2),
    (7, 1, 2, 0, 3, 2),
    (3, 1, 1, 0, 30, 30),
    (17, 7, 2, 3, 3, 4),
    (15, 11, 4, 2, 3, 2),
]

FRAMEWORK = "onnx"


@pytest.mark.parametrize(
    "network",
    [
        *(f"SMALL[{name!r}]" for name in NAMES),
        *(f"convolutional{convolution}" for convolution in CONVOLUTIONS),
    ],
)
def test_a_whole_step_in_float64_is_the_references(guest: Guest, network: str) -> None:
    """By ONNX's own evaluator, without ONNX Runtime and without rounding to hide behind."""
    worst = guest(f"""
        from onnx.reference import ReferenceEvaluator
        from guest.libraries import onnx_graphs
        from guest.reference.adapter import ReferenceAdapter
        def convolutional(side, kernel, stride, padding, channels, outputs):
            window = {{"kernel": kernel, "stride": stride, "padding": padding, "activation": "tanh"}}
            layers = [{{"convolution": channels, "kernel": 1}}, dict(window, convolution=outputs)]
            numbers = {{"channels": 2, "side": side, "layers": layers, "outputs": 3}}
            return networks.network_with("c", networks.family_of({{"family": "convolutional", "numbers": numbers}}), 4)
        network = {network}
        weights, batch = batches.initial_weights(network), batches.mini_batch(network, 4)
        values = {{key: onnx_graphs.permute_gates(network, key, value) for key, value in weights.items()}}
        feed = {{key: value.astype(float) for key, value in values.items()}}
        arrays = batches.in_rows(network.family, batch, np.int64)
        inputs, labels = [array if array.dtype == np.int64 else array.astype(float) for array in arrays]
        feed.update(inputs=inputs, labels=labels, learning_rate=np.array(0.5))
        worst = []
        reference = ReferenceAdapter(Cell("", "", "", network.name, "cpu", 1, 4), {{}}, "")
        reference.prepare(network, {{key: value.copy() for key, value in weights.items()}}, batch)
        reference.set_learning_rate(0.5)
        reference.step()
        expected = dict(reference.parameters())
        for fused in (True, False):
            model = gradients.training_graph(network, 4, fused, np.float64)
            names = [output.name for output in model.graph.output]
            outputs = dict(zip(names, ReferenceEvaluator(model).run(names, feed)))
            worst.append(abs(float(outputs["loss"]) - reference.last_loss()))
            for key, value in expected.items():
                after = onnx_graphs.permute_gates(network, key, outputs[gradients.updated_name(key)])
                moved = np.abs(value - weights[key]).max()
                worst.append(float(np.abs(after - value).max() / (moved + 1e-9)))
        answer = max(worst)
    """)
    assert worst < 1e-6


def test_rows_looked_up_often_lose_no_addition_on_several_threads(guest: Guest) -> None:
    """ScatterND, the operator that suggests itself, adds on several threads without locking."""
    worst = guest("""
        numbers = {"vocabulary": 2, "embedding": 64, "hidden": 8, "layers": 1, "steps": 16}
        family = networks.family_of({"family": "recurrent", "numbers": numbers})
        network = networks.network_with("n", family, 4096)
        weights, batch = batches.initial_weights(network), batches.mini_batch(network, 4096)
        name, changes = "embedding.weight", []
        for threads in (1, 4, 4, 4):
            adapter = make("n", threads=threads, batch_size=4096)
            adapter.prepare(network, weights, batch)
            adapter.set_learning_rate(100.0)
            adapter.step()
            changes.append(dict(adapter.parameters())[name] - weights[name])
        largest = np.abs(changes[0]).max()
        answer = max(float(np.abs(change - changes[0]).max() / largest) for change in changes)
    """)
    assert worst < 1e-4
