"""A training step for `dlbench run threads --step FILE`, in PyTorch: replace the network by your own."""

import torch

INPUTS, HIDDEN, OUTPUTS, RATE = 1024, 2048, 512, 1e-3


def prepare(cell):
    """Build what is trained; return one training step, and what tells the loss of the last one.

    ``cell`` has ``threads``, ``batch_size``, ``device`` and the other axes. Seed whatever is random: the losses of the
    first steps must be the same in every launch.
    """
    if cell.threads:
        torch.set_num_threads(cell.threads)
    torch.manual_seed(0)
    # A launch on a GPU sees that one alone.
    device = "cpu" if cell.device == "cpu" else "cuda"
    model = torch.nn.Sequential(torch.nn.Linear(INPUTS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, OUTPUTS))
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
