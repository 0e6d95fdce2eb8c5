"""The parity steps by PyTorch's automatic differentiation in float64: a second derivation of the reference.

``<python with torch> autodiff.py ADAPTERS_FOLDER OUTPUT_FOLDER NETWORK[:BATCH] ...`` writes a file per network.
Shares specifications, weights and mini-batches with the guest, and no arithmetic.
"""

import json
import sys
import types
from pathlib import Path

import torch
from torch.nn import functional

ACTIVATIONS = {"relu": torch.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "none": lambda values: values}


def forward_feedforward(family, w, values):
    for layer in family.layers:
        if layer.kind == "flatten":
            values = values.flatten(1)
        elif layer.kind == "pool":
            values = functional.max_pool2d(values, layer.kernel, layer.stride, layer.padding)
        else:
            weight, bias = w[layer.name + ".weight"], w[layer.name + ".bias"]
            if layer.kind == "convolution":
                values = functional.conv2d(values, weight, bias, layer.stride, layer.padding)
            else:
                values = functional.linear(values, weight, bias)
            values = ACTIVATIONS[layer.activation](values)
    return values


def forward_residual(family, w, values):
    def unit(name, norm, values, stride, padding):
        values = functional.conv2d(values, w[name + ".weight"], None, stride, padding)
        gamma, beta = w[norm + ".gamma"], w[norm + ".beta"]
        return functional.batch_norm(values, None, None, gamma, beta, training=True, eps=family.epsilon)

    values = torch.relu(unit("stem", "stem_norm", values, 2, 3))
    values = functional.max_pool2d(values, 3, 2, 1)
    for block in family.bottlenecks:
        name, stride = block.name, block.body[0].stride
        inner = torch.relu(unit(name + ".conv1", name + ".norm1", values, stride, 0))
        inner = torch.relu(unit(name + ".conv2", name + ".norm2", inner, 1, 1))
        inner = unit(name + ".conv3", name + ".norm3", inner, 1, 0)
        if block.shortcut is not None:
            values = unit(name + ".project", name + ".project_norm", values, stride, 0)
        values = torch.relu(inner + values)
    return functional.linear(values.mean((2, 3)), w["fc.weight"], w["fc.bias"])


# PyTorch's own cells, with the order of gates that they document: input, forget, cell, output; reset, update, new.
def lstm_step(values, state, *weights):
    output, memory = torch.lstm_cell(values, state, *weights)
    return output, memory


def gru_step(values, state, *weights):
    return (torch.gru_cell(values, state[0], *weights),)


def rnn_step(values, state, *weights):
    return (torch.rnn_tanh_cell(values, state[0], *weights),)


CELL_STEPS = {"lstm": (lstm_step, 2), "gru": (gru_step, 1), "rnn": (rnn_step, 1)}


def forward_recurrent(family, w, inputs):
    values = functional.embedding(inputs, w["embedding.weight"]) if family.embedding else inputs
    advance, states = CELL_STEPS[family.cell]
    for layer in range(1, family.layers + 1):
        name = f"{family.cell}{layer}."
        parts = [w[name + part] for part in ("input_weight", "hidden_weight", "bias")]
        parts.append(w.get(name + "hidden_bias", torch.zeros_like(parts[2])))
        state = (torch.zeros(len(inputs), family.hidden, dtype=torch.float64),) * states
        outputs = []
        for step in range(family.steps):
            state = advance(values[:, step], state, *parts)
            outputs.append(state[0])
        values = torch.stack(outputs, 1)
    return functional.linear(values, w["fc.weight"], w["fc.bias"])


def forward_elman(family, w, values):
    phi = ACTIVATIONS[family.activation]
    state = torch.zeros(len(values), family.hidden, dtype=torch.float64)
    outputs = []
    for step in range(family.steps):
        sums = functional.linear(values[:, step], w["rnn.input_weight"], w["rnn.bias"])
        state = torch.lerp(state, phi(sums + functional.linear(state, w["rnn.hidden_weight"])), family.alpha)
        outputs.append(functional.linear(state, w["out.weight"], w["out.bias"]))
    return torch.stack(outputs, 1)


def forward_attention(family, w, tokens):
    def dense(name, values):
        return functional.linear(values, w[name + ".weight"], w[name + ".bias"])

    def norm(name, values):
        return functional.layer_norm(values, [family.width], w[name + ".gamma"], w[name + ".beta"], family.epsilon)

    def heads(values):
        return values.unflatten(2, (family.heads, -1)).transpose(1, 2)

    values = functional.embedding(tokens, w["embedding.weight"]) + w["position.weight"]
    for layer in range(1, family.layers + 1):
        name = f"layer{layer}."
        query, key, value = map(heads, dense(name + "qkv", norm(name + "norm1", values)).chunk(3, 2))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        values = values + dense(name + "project", mixed.transpose(1, 2).flatten(2))
        raised = functional.gelu(dense(name + "upper", norm(name + "norm2", values)), approximate="tanh")
        values = values + dense(name + "lower", raised)
    return dense("fc", norm("norm", values))


FORWARD = {
    "residual": forward_residual,
    "recurrent": forward_recurrent,
    "elman": forward_elman,
    "attention": forward_attention,
}


def mean_loss(family, outputs, labels):
    if family.loss == "squares":
        return functional.mse_loss(outputs, labels.double())
    return functional.cross_entropy(outputs.flatten(0, -2), labels.flatten())


def observe(guest, network, batch_size):
    initial = guest.batches.initial_weights(network)
    before = guest.parity.sample_weights(initial)
    w = {name: torch.from_numpy(value).double().requires_grad_() for name, value in initial.items()}
    batch = guest.batches.mini_batch(network, batch_size)
    inputs, labels = torch.from_numpy(batch.inputs), torch.from_numpy(batch.labels)
    if inputs.is_floating_point():
        inputs = inputs.double()
    forward = FORWARD.get(network.family.name, forward_feedforward)
    losses = []
    for _ in range(network.parity.steps):
        loss = mean_loss(network.family, forward(network.family, w, inputs), labels)
        losses.append(loss.item())
        loss.backward()
        if network.family.clip:
            flat = torch.cat([value.grad.flatten() for value in w.values()])
            for value in w.values():
                value.grad *= min(1.0, network.family.clip / flat.norm().item())
        with torch.no_grad():
            for value in w.values():
                value.sub_(network.parity.learning_rate * value.grad)
                value.grad = None

    learnt = ((name, value.detach().numpy()) for name, value in w.items())
    return guest.parity.observe(learnt, before, losses)


def load_guest(folder):
    """Import the guest's modules as its __main__ does, under a private package name."""
    package = types.ModuleType("_dlbench_guest")
    package.__path__ = [folder]
    sys.modules["_dlbench_guest"] = package
    for name, where in (("networks", ""), ("families", ""), ("batches", "launch."), ("parity", "launch.")):
        setattr(package, name, __import__("_dlbench_guest." + where + name, fromlist=[name]))
    return package


def main():
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != here]
    guest = load_guest(sys.argv[1])
    namespace = {}
    exec(compile((here.parent / "helpers" / "small_networks.py").read_text(), "small_networks.py", "exec"), namespace)
    given = json.loads(Path(sys.argv[2], "networks.json").read_text())
    known = {name: guest.networks.from_data(each) for name, each in given.items()}
    known.update(namespace["small_networks"](guest.networks))
    known.update(namespace["small_networks"](guest.networks, namespace["FURTHER"]))
    for wanted in sys.argv[3:]:
        name, _, size = wanted.partition(":")
        network = known[name]
        size = int(size or network.batch_size)
        path = Path(sys.argv[2], f"{name}-b{size}.npz")
        guest.parity.save(str(path), observe(guest, network, size))


main()
