"""Small specifications with every layer type, and parity steps run in this process on the reference adapter.

``small_networks`` takes the module ``adapters/networks.py`` under whatever name it was imported, because a guest
process imports it under another one than the host.
"""

#: Mini-batches of the full networks with a shipped reference: the smallest of each family that behaves.
SMALLEST_SHIPPED = {"fcn5": 16, "alexnet": 4, "lstm32": 4, "resnet50": 8}


def reference_adapter(name, kind=None, dtype="float64"):
    """Return the reference adapter, or a ``kind`` of it, for the network of this name; on the host only."""
    from dlbench.adapters.protocol import Cell
    from dlbench.adapters.reference.adapter import ReferenceAdapter

    cell = Cell("reference", "reference", dtype, name, "cpu", 1, 4)
    return (kind or ReferenceAdapter)(cell, {"dtype": dtype}, "")


def small_networks(networks):
    """Return small networks by name: odd sizes, strides that do not divide, more than one of everything."""
    n = networks
    recipe = n.ParityRecipe(3, 0.1, 1e-5, 1e-3, "small enough to differentiate numerically")
    convolutional = n.Feedforward(
        (2, 15, 15),
        (
            n.Convolution("conv1", 2, 5, 5, 2, 1, "relu"),  # 7
            n.MaxPool(3, 2, 1),  # 4
            n.Convolution("conv2", 5, 4, 3, 1, 1, "none"),  # 4
            n.MaxPool(2, 2, 0),  # 2
            n.Flatten(),
            n.Dense("fc3", 16, 9, "sigmoid"),
            n.Dense("fc4", 9, 6, "none"),
        ),
    )
    dense = n.Feedforward((7,), (n.Dense("fc1", 7, 11, "sigmoid"), n.Dense("fc2", 11, 5, "none")))
    blocks = (
        n.Bottleneck("stage1.0", 4, 3, 12, 1, True),
        n.Bottleneck("stage1.1", 12, 3, 12, 1, False),
        n.Bottleneck("stage2.0", 12, 4, 16, 2, True),
    )
    return {
        network.name: network
        for network in (
            n.Network("small-dense", dense, 4, 1.0, recipe, ""),
            n.Network("small-convolutional", convolutional, 4, 1.0, recipe, ""),
            n.Network("small-residual", n.Residual((3, 17, 17), 4, blocks, 6, 1e-5, 0.2), 5, 1.0, recipe, ""),
            n.Network("small-recurrent", n.Recurrent(13, 5, 5, 2, 4), 3, 1.0, recipe, ""),
            n.Network("wide-recurrent", n.Recurrent(13, 7, 5, 2, 4), 3, 1.0, recipe, ""),
        )
    }


def parity_observation(parity, batches, adapter, network, batch_size):
    """Run the recipe's steps on an adapter in this process, as the worker does; return the Observation."""
    weights = batches.initial_weights(network)
    before = parity.sample_weights(weights)
    adapter.prepare(network, weights, batches.mini_batch(network, batch_size))
    adapter.set_learning_rate(network.parity.learning_rate)
    losses = []
    for _ in range(network.parity.steps):
        adapter.step()
        adapter.synchronize()
        losses.append(float(adapter.last_loss()))
    return parity.observe(adapter.parameters(), before, losses)
