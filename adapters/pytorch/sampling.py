"""Sampling machines in PyTorch.

Python iterates over units or transitions, and the work of each is eager or compiled. Tensors are
changed in place, so that a CUDA graph of a step finds them where they were.
"""

from typing import Any, Callable, List, Mapping, Tuple

import numpy as np
import torch
from torch import Tensor

from ..launch.batches import Batch
from ..libraries.sampling import Arrays, SamplingDriver
from .steps import captured, run_aside


def _block(
    weight: Tensor, others: Tensor, bias: Tensor, numbers: Tensor, state: Tensor, tau: float
) -> Tensor:
    """Decide the units with this state at once, from the states of others.

    Return their probabilities of 1.
    """
    gaps = torch.addmm(bias, weight, others)
    probabilities = torch.sigmoid(gaps if tau == 1.0 else gaps / tau)
    state.copy_(numbers < probabilities)
    return probabilities


def _unit(
    gaps: Tensor,
    gap: Tensor,
    weight: Tensor,
    number: Tensor,
    state: Tensor,
    shown: Tensor,
    tau: float,
) -> None:
    """Decide the unit with this gap, and bring all gaps up to date."""
    torch.sigmoid(gap if tau == 1.0 else gap / tau, out=shown)
    after = (number < shown).float()
    gaps.addr_(weight, after - state)
    state.copy_(after)


def _numbered_unit(gaps: Tensor, unit: Tensor, *given: Any) -> None:
    """Decide the unit of this number; a compiler cannot use a view of changing values."""
    _unit(gaps, gaps.index_select(0, unit)[0], *given)


def _transition(
    signs: Tensor, fields: Tensor, weight: Tensor, choice: Tensor, tau: float
) -> Tensor:
    """Flip the unit of each chain that fires first; return the sums of the rates before."""
    edges = torch.exp(signs * fields / (2.0 * tau)).cumsum(1)
    total = edges[:, -1]
    # As many edges as are not above are those before the chosen unit's.
    chosen = (edges <= (choice * total)[:, None]).sum(1)
    change = signs.gather(1, chosen[:, None])
    fields.addcmul_(change, weight[chosen])
    signs.scatter_(1, chosen[:, None], -change)
    return total


class TorchSampler(SamplingDriver):
    """A sampler, ``compiled`` by inductor or not; ``graph``: a step is one CUDA graph."""

    def __init__(self, family: Any, device: str, compiled: bool, graph: bool) -> None:
        super().__init__(family, lambda array: torch.tensor(array, device=device), self._program)
        self.compiled = compiled
        self.graphs = graph
        self.captured_bytes = 0
        self._graph: Any = None
        self._views: List[Tuple[Tensor, ...]] = []

        self._block: Callable[..., Any] = _block
        self._transition: Callable[..., Any] = _transition
        self._unit: Callable[..., Any] = _unit
        if compiled:
            self._block = torch.compile(_block, dynamic=False)
            self._transition = torch.compile(_transition, dynamic=False)
            self._unit = torch.compile(_numbered_unit, dynamic=False)
        name = getattr(family, "order", family.name)
        moves = {"sequential": self._one_by_one, "mcculloch_pitts": self._transitions}
        self._move: Callable[[], Tensor] = moves.get(name, self._by_blocks)

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        held = getattr(self, "fixed", {}), getattr(self, "moving", {})
        super().reset(weights, batch)
        for old, new in zip(held, (self.fixed, self.moving)):
            for name, tensor in old.items():
                new[name] = tensor.copy_(new[name])
        if not self._views:
            self._make_views()

    def _make_views(self) -> None:
        """Make the arguments of each unit, block or transition of a step.

        A view takes as long as a small operator.
        """
        fixed = self.fixed
        state = self.moving.get("state")
        if state is None:
            self._views = list(zip(fixed["choices"].unbind(), fixed["waits"].unbind()))
        elif "gaps" in self.moving:
            gaps = self.moving["gaps"]
            self._shown = torch.empty_like(state)
            if self.compiled:
                units = torch.arange(len(gaps), device=gaps.device).split(1)
            else:
                units = gaps.unbind()
            self._views = list(
                zip(
                    units,
                    fixed["weight"].unbind(),
                    fixed["numbers"].unbind(),
                    state.unbind(),
                    self._shown.unbind(),
                )
            )
        elif self.family.order == "synchronous":
            self._views = [(fixed["weight"], state, fixed["bias"], fixed["numbers"], state)]
        else:
            weight = fixed["weight"]
            first, second = state.split(self.family.halves)
            first_bias, second_bias = fixed["bias"].split(self.family.halves)
            first_numbers, second_numbers = fixed["numbers"].split(self.family.halves)
            self._views = [
                (weight, second, first_bias, first_numbers, first),
                (weight.T, first, second_bias, second_numbers, second),
            ]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _program(self, fixed: Arrays, moving: Arrays) -> Tuple[Arrays, Tensor]:
        if not self.graphs:
            return moving, self._move()
        if self._graph is None:
            self._capture()
        self._graph.replay()
        return moving, self._captured_loss

    def _capture(self) -> None:
        """Capture a step as a graph.

        Libraries set themselves up in a step before it, which is undone.
        """
        kept = {name: tensor.clone() for name, tensor in self.moving.items()}
        run_aside(self._move)
        for name, tensor in kept.items():
            self.moving[name].copy_(tensor)
        self._graph, self._captured_loss, self.captured_bytes = captured(self._move)

    def _loss_of(self, shown: Tensor) -> Tensor:
        mean = shown.mean(1)
        self.moving["activity"].add_(mean)
        return mean.mean()

    def _one_by_one(self) -> Tensor:
        gaps = self.moving["gaps"]
        tau = self.family.tau
        for rows in self._views:
            self._unit(gaps, *rows, tau)
        return self._loss_of(self._shown)

    def _by_blocks(self) -> Tensor:
        shown = [self._block(*given, self.family.tau) for given in self._views]
        return self._loss_of(torch.cat(shown) if len(shown) > 1 else shown[0])

    def _transitions(self) -> Tensor:
        moving = self.moving
        tau = self.family.tau
        given = moving["signs"], moving["fields"], self.fixed["weight"]
        for choice, wait in self._views:
            moving["clock"].addcdiv_(wait, self._transition(*given, choice, tau))
        moving["activity"].add_((0.5 - 0.5 * moving["signs"]).mean(0))
        return moving["clock"].mean()

    def array(self, value: Tensor) -> np.ndarray:
        array: np.ndarray = value.cpu().numpy()
        return array
