"""The step of variable.py, which calls torch.set_num_threads(2)."""

import torch

VARIANT_OF = "variable"
THREADS = 2


def prepare(cell):
    """Return one training step of a small network, and a function that returns its loss."""
    if THREADS:
        torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(1024, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512)
    )
    inputs = torch.randn(64, 1024)
    targets = torch.randn(64, 512)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    last = {}

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        last["loss"] = loss.detach()

    return step, lambda: last["loss"].item()
