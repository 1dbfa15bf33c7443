"""Specs of ordinary modules, as a family of them would have them: one problem is a row of tokens."""

import dataclasses
import math
from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar

import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.nn import functional as F

from model.spec import Spec
from model.tasks import Addition
from own_modules.tapes import by_tape


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wrapped(Spec, listed=False):
    """A module by its maker. Tokens are those of the task, but for what `read` and `asked` say of other tables."""

    family: ClassVar[str] = "wrapped"
    about: ClassVar[str] = "a module of a test"
    make: Callable[[], nn.Module]
    vocabulary: int = 12  # type: ignore[assignment]
    decoded: int = 11  # type: ignore[assignment]
    answers: int = 11  # type: ignore[assignment]
    given: int = 22

    def check_task(self):
        pass

    @property
    def prompt(self):
        return self.given

    @property
    def tokens(self):
        return self.vocabulary

    @property
    def roles(self):
        return dict.fromkeys(self.shapes(), "a parameter")

    def shapes(self):
        return {name: tuple(p.shape) for name, p in module_of(self.make).named_parameters()}

    def initial(self, seed):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return self.layout.join(dict(self.make().named_parameters()))

    def expand(self, theta_SP):
        return self.layout.split(theta_SP)

    def apply(self, wide, tokens_STB, first):
        module = module_of(self.make)

        def one(weights, tokens_TB):
            logits = functional_call(module, weights, (tokens_TB.mT,))
            asked = logits[:, -(tokens_TB.shape[0] - first) :]
            return asked.permute(2, 1, 0)

        if len(tokens_STB) == 1 and all(len(t) == 1 for t in wide.values()):
            return [v[None] for v in one({n: t[0] for n, t in wide.items()}, tokens_STB[0])]
        tokens = tokens_STB.expand(len(next(iter(wide.values()))), -1, -1)
        return list(vmap(one)(wide, tokens).unbind(1))

    def sequence(self, x, y, z):
        if self.answers == 1:  # the columns' first tokens, as a row of any task would be
            return [*x, *y][: self.given] + z[:1]
        return [*x, torch.full_like(x[0], 10), *y, torch.full_like(x[0], 11), *z]

    def kernel(self):
        return by_tape


@lru_cache
def module_of(make):
    return make()


class Block(nn.Module):
    """Causal attention and an MLP, without norms."""

    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / math.sqrt(d // self.heads)
        scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), -torch.inf)
        y = scores.softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.relu(self.up(x)))


class Gpt(nn.Module):
    """Nanda et al.'s form: learned positions, a separate unembedding. Logits at every position."""

    def __init__(self, vocabulary, length, logits, width, hidden, heads=1):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Parameter(torch.randn(length, width) / width**0.5)
        nn.init.normal_(self.token.weight, std=1 / math.sqrt(width))
        self.block, self.head = Block(width, heads, hidden), nn.Linear(width, logits, bias=False)

    def forward(self, tokens):
        return self.head(self.block(self.token(tokens) + self.place[: tokens.shape[1]]))


class Mlp(nn.Module):
    """Two embeddings side by side, one hidden layer. Logits [B, 1, V]."""

    def __init__(self, vocabulary, width, hidden):
        super().__init__()
        self.token = nn.Embedding(vocabulary + 1, width)
        self.up, self.down = nn.Linear(2 * width, hidden), nn.Linear(hidden, vocabulary)

    def forward(self, tokens):
        return self.down(F.relu(self.up(self.token(tokens[:, :2]).flatten(1))))[:, None]


GPT_SUM = Wrapped(make=lambda: Gpt(12, 32, 12, 8, 16))
GPT_SMALL = Wrapped(make=lambda: Gpt(12, 32, 12, 4, 8))


class Fused(nn.Module):
    """What torch has ready: nn.MultiheadAttention and an encoder's layer, positions of a table."""

    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(12, 8), nn.Embedding(40, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", batch_first=True)
        self.head = nn.Linear(8, 12)

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.token(tokens) + self.place(torch.arange(length))
        mask = torch.ones(length, length).triu(1).bool()
        x = x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]
        return self.head(self.layer(x, src_mask=mask, is_causal=True))


class ByHand(nn.Module):
    """As papers write it: einsum, a row of a matrix for each token, waves of places, a norm, masks of 1e10."""

    def __init__(self):
        super().__init__()
        self.embed, self.unembed = nn.Parameter(torch.randn(8, 12)), nn.Parameter(torch.randn(8, 12))
        self.reads = nn.Parameter(torch.randn(3, 2, 4, 8) / 3)
        self.write = nn.Parameter(torch.randn(8, 8) / 3)
        self.register_buffer("mask", torch.tril(torch.ones(40, 40)))

    def forward(self, tokens):
        n = tokens.shape[1]
        x = torch.einsum("dbp->bpd", self.embed[:, tokens])
        x = x + torch.sin(torch.arange(n)[:, None] / 100 ** (torch.arange(8) / 8))
        q, k, v = (torch.einsum("ihd,bpd->biph", w, x) for w in self.reads)
        scores = torch.tril(torch.einsum("biph,biqh->biqp", k, q)) - 1e10 * (1 - self.mask[:n, :n])
        mixed = torch.einsum("biph,biqp->biqh", v, F.softmax(scores / 2, -1))
        x = x + torch.einsum("biqh->bqih", mixed).flatten(2) @ self.write
        x = x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return x @ self.unembed


class Bends(nn.Module):
    """Every bend and norm, choices, parts that are cut and joined, sums along positions; LogSoftmax for logits."""

    def __init__(self):
        super().__init__()
        self.token, self.rms, self.layer = nn.Embedding(12, 8), nn.RMSNorm(8), nn.LayerNorm(8)
        self.left, self.right, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(16, 12)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, tokens):
        first, second = self.rms(self.token(tokens)).chunk(2, -1)
        x = torch.cat([first.square(), second], -1)
        y = F.gelu(self.left(x)) + F.gelu(self.right(x), approximate="tanh")
        y = y + F.silu(self.left(x)) + torch.tanh(3 * self.right(x)) * torch.sigmoid(self.left(x))
        y = self.layer(y)
        spread = y.var(1, keepdim=True) + 1
        y = (y - y.mean(1, keepdim=True)) * torch.rsqrt(spread) + spread**-1.5
        y = torch.where(y > 0, y, 0.1 * y)
        z = torch.stack([y, y.sum(1, keepdim=True).expand_as(y)], -1).flatten(-2)
        return (self.head(z) * self.scale.abs()).log_softmax(-1)


class Turned(nn.Module):
    """Rotary positions, F.rms_norm, fused attention, logits by the embedding; a table of (token, place)."""

    def __init__(self):
        super().__init__()
        self.token, self.pair = nn.Embedding(12, 8), nn.Embedding(12 * 40, 2)
        self.reads = nn.Linear(10, 24)

    def forward(self, tokens):
        n = tokens.shape[1]
        x = F.rms_norm(self.token(tokens), (8,))
        x = torch.cat([x, self.pair(tokens * 40 + torch.arange(n))], -1)
        angle = torch.arange(n)[:, None] * 0.5 ** torch.arange(4)
        cos, sin = angle.cos(), angle.sin()

        def turned(y):
            a, b = y.split(4, -1)
            return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

        q, k, v = self.reads(x).chunk(3, -1)
        y = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
        return F.linear(y, self.token.weight)


class InPlace(nn.Module):
    """Sums in place, of a view too, which every other view then has."""

    def __init__(self):
        super().__init__()
        self.token, self.other, self.head = nn.Embedding(12, 8), nn.Embedding(12, 8), nn.Linear(8, 12)

    def forward(self, tokens):
        x = self.token(tokens) * 1
        whole = x.view(*x.shape)
        x[..., :4] += self.other(tokens)[..., 4:]
        kept = x.clone()
        x.mul_(2).relu_()
        return self.head(whole + kept)


BITS = Addition(base=2, digits=6)
ROW = {"answers": 1, "decoded": 1, "task": Addition(digits=6)}
"""One answer, to a row of tokens that are the columns of a shorter sum."""
GPT_23 = Wrapped(make=lambda: Gpt(24, 3, 23, 8, 32), vocabulary=23, given=3, **ROW)
PARITY = Wrapped(make=lambda: Gpt(3, 11, 2, 16, 32, heads=2), vocabulary=2, given=11, **{**ROW, "task": BITS})
MLP_97 = Wrapped(make=lambda: Mlp(97, 8, 16), vocabulary=97, given=3, **ROW)
MLP_LARGER = Wrapped(make=lambda: Mlp(97, 16, 48), vocabulary=97, given=3, **ROW)
NETS = {
    "GPT d8": GPT_SUM,
    "GPT d4": GPT_SMALL,
    "mod 23": GPT_23,
    "parity": PARITY,
    "MLP": MLP_97,
    **{make.__name__: Wrapped(make=make) for make in (Fused, ByHand, Bends, Turned, InPlace)},
}
