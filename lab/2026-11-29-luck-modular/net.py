"""An MLP over two embedded numbers, which reads and writes them by one table."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, p=97, width=16, hidden=32):
        super().__init__()
        self.table = nn.Embedding(p + 1, width)  # 0 to p - 1, and =
        self.up, self.down = nn.Linear(2 * width, hidden), nn.Linear(hidden, width)

    def forward(self, tokens):  # [B, 3]: a, b, =
        a, b = self.table(tokens[:, 0]), self.table(tokens[:, 1])
        read = self.down(self.up(torch.cat([a, b], dim=-1)).relu())
        return read @ self.table.weight.T
