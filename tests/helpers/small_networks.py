"""Small networks with every layer type, as data, and parity steps run in this process on the
reference adapter.

``small_networks`` takes the module ``adapters/networks.py`` under whatever name it was imported,
because a guest process imports it under another one than the host.
"""

import pathlib

_RECIPE = {
    "steps": 3,
    "learning_rate": 0.1,
    "loss_tolerance": 1e-5,
    "update_tolerance": 1e-3,
    "why": "small enough to differentiate numerically",
}
#: Of what starts with weights near zero: at a low rate their updates are below float32 resolution.
_BOLD = dict(_RECIPE, learning_rate=10.0)
_CHAIN = [
    {"convolution": 5, "kernel": 5, "stride": 2, "padding": 1},  # 7
    {"pool": 3, "stride": 2, "padding": 1},  # 4
    {"convolution": 4, "kernel": 3, "padding": 1, "activation": "none"},  # 4
    {"pool": 2},  # 2
    {"dense": 9, "activation": "sigmoid"},
]
_RESIDUAL = {
    "channels": 3,
    "side": 17,
    "stem_channels": 4,
    "blocks": [2, 1],
    "widths": [3, 4],
    "classes": 6,
}
_RECURRENT = {"vocabulary": 13, "hidden": 5, "layers": 2, "steps": 4}
_ELMAN = {"inputs": 3, "hidden": 6, "outputs": 2, "steps": 5}
_ATTENTION = {
    "vocabulary": 13,
    "width": 6,
    "heads": 2,
    "layers": 2,
    "steps": 4,
    "feedforward": 10,
    "epsilon": 1e-4,
}
_ORDERS = ("sequential", "synchronous", "bipartite")

#: (name, mini-batch, family, numbers): odd sizes, strides that do not divide, more than one of
#: everything.
SMALL = (
    (
        "small-dense",
        4,
        "feedforward",
        {"inputs": 7, "hidden": [11], "outputs": 5, "activation": "sigmoid"},
    ),
    (
        "small-tanh",
        4,
        "feedforward",
        {"inputs": 7, "hidden": [11, 6], "outputs": 5, "activation": "tanh"},
    ),
    (
        "small-relu",
        4,
        "feedforward",
        {"inputs": 7, "hidden": [11, 9], "outputs": 5, "activation": "relu"},
    ),
    (
        "small-convolutional",
        4,
        "convolutional",
        {"channels": 2, "side": 15, "layers": _CHAIN, "outputs": 6},
    ),
    ("small-residual", 5, "residual", _RESIDUAL),
    ("small-recurrent", 3, "recurrent", dict(_RECURRENT, embedding=5)),
    ("wide-recurrent", 3, "recurrent", dict(_RECURRENT, embedding=7)),
    ("one-hot-lstm", 3, "recurrent", dict(_RECURRENT, embedding=0)),
    ("one-hot-gru", 3, "recurrent", dict(_RECURRENT, embedding=0, cell="gru")),
    ("one-hot-rnn", 3, "recurrent", dict(_RECURRENT, embedding=0, cell="rnn")),
    ("small-elman", 3, "elman", dict(_ELMAN, activation="tanh")),
    ("leaky-elman", 3, "elman", dict(_ELMAN, activation="relu", alpha=0.3)),
    ("small-attention", 3, "attention", _ATTENTION),
    ("free-elman", 3, "elman", dict(_ELMAN, activation="sigmoid", clip=0)),
)

#: Spiking units, trained by a surrogate gradient.
SPIKING = (
    (
        "small-lif",
        4,
        "lif",
        {"inputs": 3, "hidden": 7, "outputs": 5, "steps": 6, "input_scale": 2.0},
    ),
)
#: What the reference's own tests look at too: every cell behind an embedding.
FURTHER = (
    *SPIKING,
    ("small-gru", 3, "recurrent", dict(_RECURRENT, embedding=7, cell="gru")),
    ("small-rnn", 3, "recurrent", dict(_RECURRENT, embedding=7, cell="rnn")),
)

#: What those of `BUILD_THEM` alone build: spikes, and machines that are sampled, with halves of
#: different sizes.
OF_FEW = (
    *SPIKING,
    *(("small-" + order, 3, "boltzmann", {"units": 9, "order": order}) for order in _ORDERS),
    ("small-mpm", 3, "mcculloch_pitts", {"units": 9, "transitions": 5, "tau": 0.7}),
)
BUILD_THEM = ("jax", "numpy", "reference", "tensorflow", "torch")


def small_networks(networks, tables=SMALL):
    """Return small networks by name, each with a recipe of its own."""
    return {
        name: networks.from_data(
            {
                "name": name,
                "batch_size": batch_size,
                "family": family,
                "numbers": numbers,
                "parity": _BOLD if numbers.get("embedding") == 0 else _RECIPE,
            }
        )
        for name, batch_size, family, numbers in tables
    }


def parity_observation(parity, batches, adapter, network, batch_size=4, batch=None):
    """Run the recipe's steps on an adapter in this process, as the worker does; return the
    Observation.

    The mini-batch is the usual one of ``batch_size`` examples where no other is given.
    """
    weights = batches.initial_weights(network)
    before = parity.sample_weights(weights)
    adapter.prepare(network, weights, batch or batches.mini_batch(network, batch_size))
    recipe = parity.recipe_of(network, adapter.cell)
    adapter.set_learning_rate(recipe.learning_rate)
    return _observed(parity, adapter, recipe.steps, before)


def _observed(parity, adapter, steps, before):
    losses = []
    for _ in range(steps):
        adapter.step()
        adapter.synchronize()
        losses.append(float(adapter.last_loss()))
    return parity.observe(adapter.parameters(), before, losses)


def write_feeds(feeds, batches, network, folder):
    """Write the files of a feed of four examples, and return their folder."""
    for purpose in (batches.TIMED, batches.CHECKED):
        pathlib.Path(feeds.path_of(folder, 4, purpose)).write_bytes(
            b"".join(feeds.Feed(network, 4, purpose).drawn())
        )
    return folder


def fed_observation(feeds, parity, batches, launch, adapter, network):
    """Feed an adapter for some steps, reset it, and return the Observation of the recipe's steps
    then."""
    feeder = feeds.Feeder(adapter, network, launch, batches.TIMED)
    feeder.prepare(
        network, batches.initial_weights(network, batches.TIMED), batches.mini_batch(network, 4)
    )
    for _ in range(4):
        feeder.step()
    feeder.synchronize()
    weights = batches.initial_weights(network)
    before = parity.sample_weights(weights)
    feeder.set_learning_rate(network.parity.learning_rate)
    feeder.reset(weights, batches.mini_batch(network, 4))
    observed = _observed(parity, feeder, network.parity.steps, before)
    feeder.close()
    return observed
