"""One block of a transformer with learned positions: 3,008 numbers for ten digits, with one head or two."""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


class Net(nn.Module):
    def __init__(self, vocabulary: int = 12, length: int = 33, width: int = 16, heads: int = 2, hidden: int = 32):
        super().__init__()
        self.heads = heads
        self.table, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:  # [B, T]: the digits, - is 10, = is 11
        x = self.table(tokens) + self.place.weight[: tokens.shape[1]]
        queries, keys, values = (self.in_heads(part(x)) for part in (self.q, self.k, self.v))
        mixed = scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return self.head(x + self.down(self.up(x).relu()))

    def in_heads(self, x: Tensor) -> Tensor:
        """Return x [B, T, D] as [B, H, T, D / H]."""
        return torch.stack(x.chunk(self.heads, dim=-1), dim=1)
