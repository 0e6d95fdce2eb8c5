"""Transformers: PyTorch's fused attention, layer normalisation and gelu."""

from typing import Callable, Dict, List, Tuple

import torch
from torch import nn
from torch.nn import functional

from ..families import Attention

MakeDense = Callable[[int, int], nn.Linear]


class _Layer(nn.Module):
    """Causal self-attention and a feedforward network, each normalised before and added."""

    def __init__(self, family: Attention, dense: MakeDense) -> None:
        super().__init__()
        self.heads = family.heads
        self.norm1 = nn.LayerNorm(family.width, family.epsilon)
        self.qkv = dense(family.width, 3 * family.width)
        self.project = dense(family.width, family.width)
        self.norm2 = nn.LayerNorm(family.width, family.epsilon)
        self.upper = dense(family.width, family.feedforward)
        self.lower = dense(family.feedforward, family.width)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.norm1(values)).chunk(3, dim=-1)
        query, key, value = [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts]
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        values = values + self.project(mixed.transpose(1, 2).flatten(2))
        raised = functional.gelu(self.upper(self.norm2(values)), approximate="tanh")
        return values + self.lower(raised)


class _Network(nn.Module):
    """Tokens (batch, steps) to logits (batch * steps, vocabulary)."""

    def __init__(self, family: Attention, dense: MakeDense) -> None:
        super().__init__()
        self.embedding = nn.utils.skip_init(nn.Embedding, family.vocabulary, family.width)
        self.position = nn.utils.skip_init(nn.Embedding, family.steps, family.width)
        self.layers = nn.ModuleList([_Layer(family, dense) for _ in range(family.layers)])
        self.norm = nn.LayerNorm(family.width, family.epsilon)
        self.dense = dense(family.width, family.vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        values = self.embedding(tokens) + self.position.weight
        for layer in self.layers:
            values = layer(values)
        return self.dense(self.norm(values).flatten(0, 1))


def make(family: Attention, dense: MakeDense) -> Tuple[nn.Module, Dict[str, nn.Parameter]]:
    """Return the network and its parameters by canonical name."""
    network = _Network(family, dense)
    found = {"embedding.weight": network.embedding.weight, "position.weight": network.position.weight}
    named: List[Tuple[str, nn.Module]] = [("norm", network.norm), ("fc", network.dense)]
    for number, layer in enumerate(network.layers, 1):
        named += [("layer%d.%s" % (number, name), part) for name, part in layer.named_children()]
    for name, part in named:
        first, second = ("gamma", "beta") if isinstance(part, nn.LayerNorm) else ("weight", "bias")
        found["%s.%s" % (name, first)], found["%s.%s" % (name, second)] = part.weight, part.bias
    return network, found
