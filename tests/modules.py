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

from model.spec import BY_TAPE, Spec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wrapped(Spec, listed=False):
    """A module by its maker. Tokens are those of the task, but for what `read` and `asked` say of other tables."""

    family: ClassVar[str] = "wrapped"
    about: ClassVar[str] = "a module of a test"
    make: Callable[[], nn.Module]
    vocabulary: int = 12  # type: ignore[assignment]
    decoded: int = 11  # type: ignore[assignment]
    answers: int = 11  # type: ignore[assignment]
    read: int = 22

    def check_task(self):
        pass

    @property
    def prompt(self):
        return self.read

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
        return [*x, torch.full_like(x[0], 10), *y, torch.full_like(x[0], 11), *z]

    def kernel(self):
        return BY_TAPE


@lru_cache
def module_of(make):
    return make()


class Block(nn.Module):
    """Attention and an MLP, each with a norm before it."""

    def __init__(self, width, heads, hidden, norm=nn.Identity, act=F.relu, causal=True):
        super().__init__()
        self.heads, self.act, self.causal = heads, act, causal
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.norm1, self.norm2 = norm(width), norm(width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(self.act(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Nanda et al.'s form: learned positions, a separate unembedding. Logits at every position."""

    def __init__(self, vocabulary, length, logits, width, hidden, heads=1, **block):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Parameter(torch.randn(length, width) / width**0.5)
        nn.init.normal_(self.token.weight, std=1 / math.sqrt(width))
        self.block, self.head = Block(width, heads, hidden, **block), nn.Linear(width, logits, bias=False)

    def forward(self, tokens):
        return self.head(self.block(self.token(tokens) + self.place[: tokens.shape[1]]))


class Mlp(nn.Module):
    """Two embeddings side by side, one hidden layer. Logits [B, 1, V]."""

    def __init__(self, vocabulary, width, hidden, act=F.relu):
        super().__init__()
        self.token, self.act = nn.Embedding(vocabulary + 1, width), act
        self.up, self.down = nn.Linear(2 * width, hidden), nn.Linear(hidden, vocabulary)

    def forward(self, tokens):
        return self.down(self.act(self.up(self.token(tokens[:, :2]).flatten(1))))[:, None]


GPT_SUM = Wrapped(make=lambda: Gpt(12, 32, 12, 8, 16))
GPT_SMALL = Wrapped(make=lambda: Gpt(12, 32, 12, 4, 8))
GPT_23 = Wrapped(make=lambda: Gpt(24, 3, 23, 8, 32), vocabulary=23, answers=1, decoded=1, read=3)
PARITY = Wrapped(make=lambda: Gpt(3, 11, 2, 16, 32, heads=2), vocabulary=2, answers=1, decoded=1, read=11)
MLP_97 = Wrapped(make=lambda: Mlp(97, 8, 16), vocabulary=97, answers=1, decoded=1, read=3)
