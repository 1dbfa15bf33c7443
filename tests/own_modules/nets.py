"""Modules as users have them: some that train, and some that are wrong in one way each."""

import math
import random
from functools import lru_cache

import torch
from torch import nn
from torch.nn import functional as F

ONES = torch.ones(12)
LUCK = [random.random() for _ in range(12)]


@lru_cache
def ramp():
    return torch.arange(12.0)


class Net(nn.Module):
    """An MLP over the first two tokens: logits [B, V]."""

    constraints = {"tied": False, "hidden": 24}  # noqa: RUF012
    parts = {"units": ("hidden", {"up.weight": 0, "up.bias": 0, "down.weight": 1})}  # noqa: RUF012

    def __init__(self, vocabulary=12, width=8, hidden=24, tied=False):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.up, self.down = nn.Linear(2 * width, hidden), nn.Linear(hidden, width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, tokens):
        return self.head(self.down(F.relu(self.up(self.table(tokens[:, :2]).flatten(1)))))


class GPT(nn.Module):
    """A causal transformer of one layer: logits [B, T, V]."""

    padding_idx = 0  # of no embedding

    def __init__(self, vocabulary=12, length=40, width=8):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.place = nn.Parameter(torch.randn(length, width) / math.sqrt(width))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)
        self.register_buffer("late", torch.ones(length, length).triu(1).bool())

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.table(tokens) + self.place[:length]
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(self.late[:length, :length], -torch.inf)
        return self.head(x + self.out(scores.softmax(-1) @ v))


class Attends(Net):
    """By torch's fused attention, of which vmap has no rule."""

    def forward(self, tokens):
        x = self.table(tokens)[:, None]
        return self.head(F.scaled_dot_product_attention(x, x, x)[:, 0, -1])


class Scaled(Net):
    """Its arguments are a float and tuples, as their defaults are."""

    constraints = {"scale": 1, "sizes": [8, 24]}  # noqa: RUF012

    def __init__(self, scale=1.0, sizes=(8, 24), shifts=(0.0,)):
        width, hidden = sizes
        super().__init__(width=width, hidden=hidden)
        self.scale, self.shift, self.hash = scale, sum(shifts), hash(sizes)  # a list has none

    def forward(self, tokens):
        return self.scale * super().forward(tokens) + self.shift


class Copying(Net):
    """Its argument is a list, as its default is."""

    def __init__(self, sizes=[8, 24]):  # noqa: B006
        width, hidden = sizes.copy()
        super().__init__(width=width, hidden=hidden)


class Kept(Net):
    """By tensors that its file makes once."""

    def __init__(self):
        super().__init__()
        self.register_buffer("ramp", ramp())

    def forward(self, tokens):
        return super().forward(tokens) + self.ramp * ONES


class Lent(Net):
    """A parameter of it begins as what its file keeps."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(ONES)

    def forward(self, tokens):
        return super().forward(tokens) * self.gain


class Zeros(Net):
    def __init__(self):
        super().__init__()
        for parameter in self.parameters():
            nn.init.zeros_(parameter)


class Ramped(Net):
    """Of numbers that differ, and that no seed draws."""

    def __init__(self):
        super().__init__()
        with torch.no_grad():
            for parameter in self.parameters():
                count = parameter.numel()
                parameter.copy_(torch.arange(count).view_as(parameter) / count)


class SideBySide(Net):
    """Two of its parameters are halves of one tensor."""

    def __init__(self):
        super().__init__()
        self.table.weight, self.head.weight = map(nn.Parameter, torch.randn(2, 12, 8))


class Masked(Net):
    """Without the token that no answer has."""

    def forward(self, tokens):
        return super().forward(tokens).masked_fill(torch.arange(12) == 11, -torch.inf)


class Sorted(Net):
    """By an operation that tapes do not have."""

    def forward(self, tokens):
        return super().forward(tokens.sort(1).values)


# Wrong in one way each


class Twice(Net):
    def forward(self, tokens):
        return super().forward(tokens)[:, :, None, None]


class Pair(Net):
    def forward(self, tokens):
        return super().forward(tokens), tokens


class Few(Net):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 6)


class Dropping(Net):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.1)


class Noisy(Net):
    def forward(self, tokens):
        logits = super().forward(tokens)
        return logits + torch.randn_like(logits)


class Counting(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, tokens):
        self.calls += 1
        return super().forward(tokens)


class Clamping(Net):
    """Its bound holds already, at first."""

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(1))

    def forward(self, tokens):
        with torch.no_grad():
            self.temperature.clamp_(0.05, 5)
        return super().forward(tokens) / self.temperature


class Late(Net):
    def forward(self, tokens):
        if not hasattr(self, "seen"):
            self.register_buffer("seen", tokens[:1] * 0)
        return super().forward(tokens)


class Normed(Net):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)


class Padded(Net):
    def __init__(self):
        super().__init__()
        self.table.padding_idx = 0


class Frequent(Net):
    def __init__(self):
        super().__init__()
        self.table.scale_grad_by_freq = True


class Unread(Net):
    def forward(self, tokens):
        padded = F.embedding(tokens[:, :2], self.table.weight, padding_idx=0)
        return self.head(self.down(F.relu(self.up(padded.flatten(1)))))


class Mixing(Net):
    def forward(self, tokens):
        logits = super().forward(tokens)
        return logits - logits.mean(0)


class Writing(Net):
    def forward(self, tokens):
        tokens[:, 0] += 1
        return super().forward(tokens)


class Frozen(Net):
    def __init__(self):
        super().__init__()
        self.up.weight.requires_grad = False


class Double(Net):
    def __init__(self):
        super().__init__()
        self.double()


class Aliased(Net):
    def __init__(self):
        super().__init__()
        self.head.weight.data = self.table.weight.data


class Overlapping(Net):
    def __init__(self):
        super().__init__()
        self.head.weight = nn.Parameter(self.table.weight[1:])


class Python(Net):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(random.random()))


class Features(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("features", torch.randn(3))


class Lucky(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("luck", torch.tensor(LUCK))


class Read(Net):
    """By numbers that are drawn as the file is read."""

    def forward(self, tokens):
        return super().forward(tokens) + torch.tensor(LUCK)


class Plain(Net):
    """By numbers that a seed draws."""

    def __init__(self):
        super().__init__()
        self.shift = torch.randn(12)

    def forward(self, tokens):
        return super().forward(tokens) + self.shift


class Reseeded(Net):
    def __init__(self):
        torch.manual_seed(42)
        super().__init__()


class HalfSeeded(Net):
    """Its seeds begin with embeddings of their own, and with one head."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(42)
        self.head.reset_parameters()


class Branching(Net):
    def forward(self, tokens):
        logits = super().forward(tokens)
        return logits if self.up.bias.sum() > 0 else -logits


class Bidirectional(GPT):
    def __init__(self):
        super().__init__()
        self.late = torch.zeros_like(self.late)


class Required(Net):
    def __init__(self, size):
        super().__init__(width=size)


class Empty(nn.Module):
    def forward(self, tokens):
        return torch.zeros(len(tokens), 11)


class Broken(Net):
    constraints = {"bound": False}  # noqa: RUF012


class Uncounted(Net):
    parts = {"units": ("hiden", {"up.weight": 0})}  # noqa: RUF012


class Elsewhere(Net):
    parts = {"units": ("hidden", {"up.weight": 0, "down.weight": 1})}  # noqa: RUF012


class OneMore(Net):
    """Its axes have a unit that is no part."""

    def __init__(self, vocabulary=12, width=8, hidden=4):
        super().__init__(vocabulary, width, hidden + 1)


class Averaging(Net):
    """What one of its units is worth depends on how many there are."""

    def forward(self, tokens):
        units = F.relu(self.up(self.table(tokens[:, :2]).flatten(1)))
        return self.head(self.down(units / units.shape[1]))


class Crowd(Net):
    """It cannot be asked with few units."""

    def forward(self, tokens):
        return super().forward(tokens) + self.up.bias[4] * 0


class Louder(Net):
    """Its argument changes more than which parameters are shared."""

    def forward(self, tokens):
        return super().forward(tokens) * (2 if self.head.weight is self.table.weight else 1)


class Silent(Net):
    """It begins with logits of zero, in which what its argument changes does not show."""

    constraints = {"twice": False}  # noqa: RUF012

    def __init__(self, twice=False):
        super().__init__()
        nn.init.zeros_(self.head.weight)
        self.factor = 2 if twice else 1

    def forward(self, tokens):
        return self.factor * super().forward(tokens)


class Raising(Net):
    def __init__(self):
        raise RuntimeError("no such device\nand more")


def function(tokens):
    return tokens
