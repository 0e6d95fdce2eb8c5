"""A call of a trained network for `dlbench run threads --task inference --step FILE`, in PyTorch:
put your own in.

`dlbench try FILE --task inference` runs it twice and shows what it prints; `run` drops its output.

- Each launch is a fresh process: it imports this file, calls prepare(cell) once, and then what that
  returned, again and again.
- A call returns its outputs: an array, a tensor, or a list or dictionary of them. Those of the
  first calls must be the same in every launch, so load trained weights, or seed what is random.
- synchronize(), if the file has it, is called before and after every timed call, but never before
  the first.
- There are no arguments and no relative imports; modules beside this file can be imported.
"""

import torch

INPUTS, HIDDEN, OUTPUTS = 1024, 2048, 512


def prepare(cell):
    """Build the network; return a call that answers one mini-batch with its outputs.

    ``cell`` has ``threads``, ``batch_size``, ``device``, ``precision`` and the other axes.
    """
    if cell.threads:
        torch.set_num_threads(cell.threads)
    torch.manual_seed(0)
    # A launch on a GPU sees that one alone.
    device = "cpu" if cell.device == "cpu" else "cuda"
    model = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, OUTPUTS)
    )
    model.to(device).eval()
    inputs = torch.randn(cell.batch_size, INPUTS).to(device)

    def call():
        """Answer once. dlbench times this call, and nothing else."""
        with torch.inference_mode():
            return model(inputs)

    return call


def synchronize():
    """Wait until the last call is over: on a GPU it returns earlier."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
