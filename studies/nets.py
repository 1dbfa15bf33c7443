"""Two small nets for studies of tasks, as anyone writes them: nothing here knows of adder-search."""

import math

import torch
from torch import nn


class MLP(nn.Module):
    """Embeddings of the first tokens side by side, and one hidden layer: logits [B, V] of one answer."""

    constraints = {"tied": False}  # noqa: RUF012

    def __init__(self, vocabulary=98, reads=2, width=16, hidden=48, tied=False):
        super().__init__()
        self.reads = reads
        self.table = nn.Embedding(vocabulary, width)
        self.up = nn.Linear(reads * width, hidden)
        self.down = nn.Linear(hidden, width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, tokens):
        read = self.table(tokens[:, : self.reads]).flatten(1)
        return self.head(self.down(self.up(read).relu()))


class Transformer(nn.Module):
    """One causal layer with learned positions and no norm: logits [B, T, V]."""

    constraints = {"tied": False}  # noqa: RUF012

    def __init__(self, vocabulary=98, length=3, width=16, heads=2, hidden=64, tied=False):
        super().__init__()
        self.heads = heads
        self.table = nn.Embedding(vocabulary, width)
        self.place = nn.Parameter(torch.randn(length, width) / math.sqrt(width))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        nn.init.normal_(self.table.weight, std=1 / math.sqrt(width))
        if tied:
            self.head.weight = self.table.weight

    def forward(self, tokens):
        batch, length = tokens.shape
        x = self.table(tokens) + self.place[:length]
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        late = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(late, -torch.inf)
        read = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, -1)
        x = x + self.out(read)
        return self.head(x + self.down(self.up(x).relu()))
