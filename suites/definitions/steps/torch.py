"""A training step for `dlbench run threads --step FILE`, in PyTorch: replace the network by your
own.

`dlbench try FILE` runs it twice and shows what it prints; `run` drops its output.

- Each launch is a fresh process: it imports this file, calls prepare(cell) once, and then the step,
  at least three times and as often as a suite asks (30 to 100 times in most).
- The losses of the first two or three steps must be the same in every launch, so seed whatever is
  random. Without a function for the loss nothing is checked.
- synchronize(), if the file has it, is called before and after every timed step, but never before
  the first.
- The garbage collector is off while steps are timed. There are no arguments and no relative
  imports; modules beside this file can be imported.
- HELPERS = 2, at the top level, says that two threads or processes load data beside those that
  compute.
"""

import torch

INPUTS, HIDDEN, OUTPUTS, RATE = 1024, 2048, 512, 1e-3


def prepare(cell):
    """Build what is trained; return one training step, and a function that returns the loss of the
    last one.

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
    model.to(device)
    inputs = torch.randn(cell.batch_size, INPUTS).to(device)
    targets = torch.randn(cell.batch_size, OUTPUTS).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    last = {}

    def step():
        """Do one update. dlbench times this call, and nothing else."""
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        last["loss"] = loss.detach()

    return step, lambda: last["loss"].item()


def synchronize():
    """Wait until the last step is over: on a GPU its call returns earlier."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
