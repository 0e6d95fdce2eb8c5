"""A launch of the PyTorch adapter whose biases move twice as far, as where both LSTM biases are trained.

``<python with torch> torch_doubled_bias.py ADAPTERS_FOLDER CONTROL_DIR``; the worker is the project's own.
"""

import sys
import types

package = types.ModuleType("_dlbench_guest")
package.__path__ = [sys.argv[1]]
sys.modules["_dlbench_guest"] = package
worker = __import__("_dlbench_guest.launch.worker", fromlist=["worker"])


def load(launch):
    adapter = worker.contract.load(launch)
    right_prepare, right_parameters = adapter.prepare, adapter.parameters
    start = {}

    def prepare(network, weights, batch):
        start.update((name, value.copy()) for name, value in weights.items() if name.endswith(".bias"))
        right_prepare(network, weights, batch)

    def parameters():
        for name, value in right_parameters():
            # What the mistake does to first order: the bias stands where two trained biases would have taken it.
            yield name, value if name not in start else 2 * value - start[name]

    adapter.prepare, adapter.parameters = prepare, parameters
    return adapter


sys.exit(worker.run(sys.argv[2], load))
