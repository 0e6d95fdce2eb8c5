"""Training on a text: the eager step on fresh mini-batches, with RMSProp in the place of plain SGD."""

from typing import Callable, Iterable, Iterator, List

import torch
from torch import nn

from ..launch.batches import Batch
from ..texts.mini_batches import Block, RmsProp
from .eager import EagerStep


def losses(
    step: EagerStep, place: Callable[[Batch], None], blocks: Iterable[Block], update: RmsProp
) -> Iterator[List[float]]:
    """Train on mini-batches that ``place`` puts where ``step`` reads them; yield each block's losses."""
    optimizer = torch.optim.RMSprop(step.trainable, lr=0.0, alpha=update.decay, eps=update.epsilon, foreach=True)
    for block in blocks:
        for group in optimizer.param_groups:
            group["lr"] = block.rate
        found = []
        for batch in block.batches:
            place(batch)
            optimizer.zero_grad(set_to_none=True)
            loss = step.loss()
            loss.backward()
            nn.utils.clip_grad_norm_(step.trainable, update.clip, foreach=True)
            optimizer.step()
            found.append(loss.detach())
        yield [float(each) for each in torch.stack(found).cpu()]
