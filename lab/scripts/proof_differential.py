"""Do the prover, check.py and all pairs decoded ever disagree? On nets at random, a line for each.

    python lab/scripts/proof_differential.py OUT.csv [NETS]

A net is one that adds, or nearly, with numbers changed a little; one rewritten with other constraints; one whose
numbers are made sharp, huge or equal; or a drawn one. At some of its queries (a digit, and the token at which it is
asked for) each case is decided by the prover and by check.py. And all pairs of numbers of two or three digits are
decoded at that digit in float64, the exported program's softmax and sums taken apart (`Decoder`). A line of
OUT.csv has counts of cases, and in `fault` what contradicts what. The same command goes on where it stopped.

Axes: N pair, H head, T position, V token, D width, R channel, S state of a column.
"""

from __future__ import annotations

import csv
import itertools
import math
import random
import sys
import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from adders.proof import check, second
from adders.proof.program import Program
from adders.proof.prover import Prover, QueryProver
from adders.proof.rounding import ANY, Lost, no_lost_numbers
from model import PRESETS
from model.spec import FAMILIES, Spec
from model.tied import untied
from model.transfer import transfer
from model.verdict import digest
from trainer.checkpoints.checkpoint import Checkpoint

Numbers = NDArray[np.float64]
LAB = Path(__file__).parents[1]
KNOWN = ("split_subspace", "rope", "low_rank")
SCALES = [2.0**-140, 2.0**-126, 2.0**-60, 1e-6, 0.5, 2.0, 30.0, 1e3, 1e6, 2.0**60, 1e30]
SAMPLED, QUERIES, WORST = 8, 3, 2
"""Queries of a net of which a sample of pairs is decoded; those that are decided; of these, with the least margins."""
AT_ONCE = 40_000
"""Pairs."""
MOST_PARTS, LIMIT_S = 60, 1.0
"""Of a case in check.py; seconds of a query in the prover."""
WRONG = 2
"""Cases of a query with wrong pairs that check.py is asked, those that are nearest to right."""
NEAR = 1e-9
"""Relative error of a number in float64 by another way."""
SCORE_ROUNDINGS = 16
"""Of 2^-53, that two ways to a score differ by: as much is a weight's relative error."""
TABLES = ("token_table", "positions", "norms", "output", "projections", "query_key_norms")
"""What a program computes of its parameters alone: in float32 here too, as these are no numbers of a problem."""


# -- nets


@dataclass(frozen=True)
class Drawn:
    """A net, where it comes from, and of how many digits its numbers are."""

    origin: str
    spec: Spec
    theta_P: Tensor
    digits: int


@cache
def adders() -> dict[str, list[Checkpoint]]:
    """Return the notebook's checkpoints that add, or nearly, by family."""
    found: dict[str, list[Checkpoint]] = {family: [] for family in KNOWN}
    for path in sorted(LAB.glob("*/*/theta.safetensors")):
        checkpoint = Checkpoint.load(path.parent)
        base, _ = untied(checkpoint.spec, checkpoint.theta_P)
        if base.adds:
            found[base.family].append(checkpoint)
    return found


def drawn(number: int) -> Drawn:
    """Return the net of a number."""
    draws = random.Random(number)
    family = draws.choice([KNOWN[0]] * 5 + [KNOWN[1]] * 2 + [KNOWN[2]])
    digits = 3 if family == KNOWN[0] or draws.random() < 0.1 else 2
    origin = draws.choice(["nudged"] * 5 + ["rewritten"] * 2 + ["sharp"] + ["drawn"] * 2)
    if origin == "drawn":
        start = draws.choice([spec for spec in (FAMILIES[family](), *PRESETS.values()) if spec.family == family])
        spec = mixture(draws, start, draws.randrange(12))
        theta_P = spec.initial(draws.randrange(1000)) * draws.choice([1.0, 1.0, 8.0, 64.0])
        return Drawn(origin, spec, theta_P, digits)

    checkpoint = draws.choice(adders()[family])
    spec, theta_P = checkpoint.spec, checkpoint.theta_P
    if origin == "rewritten":
        base, base_P = untied(spec, theta_P)
        spec = mixture(draws, base, draws.choice([1, 1, 2, 3, 5]))
        theta_P = transfer(base, base_P, spec).theta_Q
    change = sharpen if origin == "sharp" else nudge
    return Drawn(origin, spec, change(draws, spec, theta_P), digits)


def mixture(draws: random.Random, spec: Spec, count: int) -> Spec:
    """Return a spec after so many changes of its fields, without those that cannot be."""
    for _ in range(count):
        field = draws.choice(spec.options())
        default = field.default
        values = list(field.metadata["values"] or ())
        if isinstance(default, bool):
            values = [not getattr(spec, field.name)]
        elif isinstance(default, float):
            values = [default * draws.uniform(0.5, 1.5)]
        elif not values:
            values = [max(field.metadata["ge"] or 0, default + draws.choice([-1, 1, 2]))]
        value = draws.choice(values)
        try:
            is_constraint = field.name in spec.constraints()
            spec = spec.constrained(field.name, value) if is_constraint else replace(spec, **{field.name: value})
        except ValueError:
            continue
    return spec


def nudge(draws: random.Random, spec: Spec, theta_P: Tensor) -> Tensor:
    """Return θ with all numbers, or one, changed by a share that is from 10^-6 to 0.3."""
    share = 10 ** draws.uniform(-6, -0.5)
    generator = torch.Generator().manual_seed(draws.randrange(2**31))
    change_P = share * torch.randn(theta_P.shape, generator=generator)
    if draws.random() < 0.5:
        chosen = draws.randrange(len(theta_P))
        change_P = change_P * (torch.arange(len(theta_P)) == chosen)
    return theta_P * (1 + change_P)


def sharpen(draws: random.Random, spec: Spec, theta_P: Tensor) -> Tensor:
    """Return θ with a tensor, a row of it or a number scaled, equal or 0."""
    theta_P = theta_P.clone()
    parts = {name: part[0] for name, part in spec.layout.split(theta_P[None]).items()}
    part = parts[draws.choice(sorted(parts))]
    rows = part if draws.random() < 0.5 else part[draws.randrange(len(part))].reshape(-1)
    kind = draws.choice(["scale", "scale", "tie", "round", "zero"])
    if kind == "scale":
        rows *= draws.choice(SCALES) * draws.choice([1, -1])
    elif kind == "tie":
        rows[...] = rows.flatten()[0]
    elif kind == "round":
        rows[...] = (rows * 4).round() / 4
    else:
        rows.zero_()
    return theta_P


# -- all pairs decoded


class Softmax(TorchFunctionMode):
    """Takes the scores of a program's softmax, and puts weights in their place.

    weights: [T, T] for one head, `head`; the others have 0. None: the program's own.
    """

    def __init__(self, weights: Tensor | None = None, head: int = 0):
        super().__init__()
        self.weights, self.head = weights, head
        self.scores = torch.empty(0)
        """[B, H, T, T]."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            return self.attend(*args, **kwargs or {})
        if func is not Tensor.softmax:
            return func(*args, **kwargs or {})
        scores = args[0]
        self.scores = scores if scores.dim() == 4 else scores[:, None]
        if self.weights is None:
            return func(*args, **kwargs or {})
        placed = torch.zeros_like(self.scores)
        placed[:, self.head] = self.weights
        return placed.reshape(scores.shape)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float) -> Tensor:
        future = torch.full((q.shape[2],) * 2, -math.inf, dtype=q.dtype).triu(1)
        weights = self.__torch_function__(Tensor.softmax, (), (q @ k.mT * scale + future, -1))
        return weights @ v


Part = tuple[Tensor, Tensor, Tensor, Tensor]
"""States of a column: x, y, z [S], and what they add to each head's sums [S, H, 1 + D]."""


@dataclass(frozen=True)
class Decoded:
    """All pairs of a case: the least margin, its pair, and the least and the largest of what attention writes [R]."""

    margin: float
    size: float
    """Of the largest logit there."""
    pair: tuple[int, int]
    low: Numbers
    high: Numbers
    pairs: int


def constant(table: Any) -> Any:
    """Return a function that returns a table of float32 numbers, or several, in float64."""
    parts = [part.double() for part in table] if isinstance(table, tuple | list) else table.double()
    return lambda: parts


@cache
def block(digits: int, carry: int, out: int, alike: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return x, y and z of a column's states with these carries; alike: of x and y that are exchanged, one."""
    rows = []
    for x, y in itertools.product(range(digits), repeat=2):
        total = x + y + carry
        if total // 10 == out and (x <= y or not alike):
            rows.append((x, y, total % 10))
    x, y, z = torch.tensor(rows, dtype=torch.long).reshape(-1, 3).T
    return x, y, z


class Decoder:
    """Decodes all pairs at one digit, by sums over columns in float64."""

    def __init__(self, spec: Spec, theta_P: Tensor, digits: int):
        self.spec, self.digits = untied(spec, theta_P)[0], digits
        self.program = Program(*untied(spec, theta_P))
        self.model = self.program.model
        with torch.no_grad():
            for name in TABLES:
                if hasattr(self.model, name):
                    setattr(self.model, name, constant(getattr(self.model, name)()))
        self.model.double()
        self.alike = self.spec.family == "split_subspace"
        """True where a pair and the pair with x and y of a column exchanged are one."""
        self.steps: int = self.program.names["MAX_OUTPUT_LEN"]
        self.prompt: list[int] = self.program.names["encode"](0, 0)
        self.places = [self.places_of(column) for column in range(10)]

    def places_of(self, column: int) -> tuple[int, int, int]:
        """Return the positions of x, y and z of a column."""
        encode = self.program.names["encode"]
        found = []
        for numbers in ((10**column, 0), (0, 10**column)):
            differs = [a != b for a, b in zip(encode(*numbers), self.prompt, strict=True)]
            found.append(differs.index(True))
        return found[0], found[1], len(self.prompt) + column

    def ask(self, k: int, token: int) -> None:
        """Find what each token at each place adds when digit k is asked for at a token."""
        length = len(self.prompt) + k
        self.k, self.token, self.place = k, token, length - 1
        self.last = token if k else self.prompt[-1]
        rows = torch.arange(10)[:, None].repeat(1, length)
        fixed = sorted(set(range(length)) - set(itertools.chain(*self.places)))
        for place in fixed:
            rows[:, place] = (self.prompt + [token] * k)[place]
        rows[:, -1] = self.last
        with torch.no_grad():
            with Softmax() as taken:
                self.model(rows)
            scores_VHT = taken.scores[:, :, -1]
            self.scores = scores_VHT - scores_VHT.amax((0, 2), keepdim=True)
            written = []
            attention = self.model.attention
            for head in range(scores_VHT.shape[1]):
                kept: list[Tensor] = []
                self.model.attention = lambda x, kept=kept: kept.append(attention(x)) or kept[0]
                with Softmax(torch.eye(length, dtype=torch.float64), head):
                    self.model(rows)
                written.append(kept[0])
            del self.model.attention
        sharpest = float(scores_VHT.abs().amax())
        self.near = NEAR + SCORE_ROUNDINGS * 2.0**-53 * sharpest
        """Relative error of a logit by another way."""
        weight_VHT = self.scores.exp()
        value_VHTD = torch.stack(written, 1)
        self.terms = torch.cat([weight_VHT[..., None], weight_VHT[..., None] * value_VHTD], -1)
        """[V, H, T, 1 + D]."""
        self.fixed = self.terms[0][:, fixed].sum(1)

    def states(self, column: int, carry: int, out: int) -> Part:
        """Return the states of a column with these carries."""
        x, y, z = block(10 if column < self.digits else 1, carry, out, self.alike)
        if column == self.k - 1:
            is_asked = z == self.token
            x, y, z = x[is_asked], y[is_asked], z[is_asked]
        first, second_, third = self.places[column]
        added = self.terms[x, :, first] + self.terms[y, :, second_]
        if column < self.k:
            added = added + self.terms[z, :, third]
        return x, y, z, added

    def cases(self) -> dict[int, list[list[Part]]]:
        """Return by case, a sum of column k with its carry, products of columns that have all its pairs."""
        found: dict[int, list[list[Part]]] = {}
        states = cache(self.states)
        for carries in itertools.product((0, 1), repeat=self.digits):
            steps = [0, *carries, *[0] * (10 - self.digits)]
            parts = [states(j, steps[j], steps[j + 1]) for j in range(10)]
            if not all(len(part[0]) for part in parts):
                continue
            if self.k > 9:  # by the last carry, which is 0, or by the token
                found.setdefault(self.token if self.k > 10 else 0, []).append(parts)
                continue
            x, y, *_ = parts[self.k]
            sums = x + y + steps[self.k]
            for label in sums.unique().tolist():
                chosen = tuple(entry[sums == label] for entry in parts[self.k])
                found.setdefault(label, []).append([*parts[: self.k], chosen, *parts[self.k + 1 :]])
        return found

    def written(self, parts: list[Part]) -> Tensor:
        """Return what attention writes for all pairs of a product of columns [N, D]."""
        total = self.fixed
        for *_, added in parts[self.digits :]:
            total = total + added[0]
        total = total[None]
        for *_, added in parts[: self.digits]:
            total = (total[:, None] + added[None]).flatten(0, 1)
        return (total[..., 1:] / total[..., :1]).sum(1)

    def logits(self, written_ND: Tensor) -> Tensor:
        """Return the logits [N, V] where attention writes this."""
        model, names, w = self.model, self.program.names, self.model.weights
        with torch.no_grad():
            if self.spec.family == "low_rank":
                positions = w["pos_A"] @ w["pos_B"] if "pos_A" in w else w["positions"]
                x = w["tokens"][self.last] + positions[self.place] + written_ND
                x = x + model.linear(F.gelu(model.linear(model.norm(x, 2), "fc1")), "fc2")
                return model.norm(x, 3) @ w["tokens"].T
            table, (_, norm, final) = model.token_table(), model.norms()
            if self.spec.family == "rope":
                x = table[self.last] + written_ND
                if self.spec.sine_input:
                    x[:, 2] += math.sin(1e-4 * self.place)
                x = x + model.mlp(names["rms_norm"](x, norm))
                return F.linear(names["rms_norm"](x, final), table)
            x = torch.cat([table[self.last], model.positions()[self.place]]) + written_ND
            hidden = F.gelu(F.linear(names["rms_norm"](x, norm), w["fc1"], w.get("fc1_bias")))
            fc2 = w["head"].T if self.spec.tie_fc2_head else w["fc2"]
            x = x + F.linear(hidden, fc2, w.get("fc2_bias"))
            return F.linear(F.linear(names["rms_norm"](x, final), w["head"]), table)

    def margins(self, written_ND: Tensor, label: int) -> tuple[Tensor, Tensor]:
        """Return how far the right logit exceeds those that it must beat [N], and the size of the largest logit."""
        right, rivals = self.right(label)
        logits = self.logits(written_ND)
        return logits[:, right] - logits[:, rivals].amax(1), logits.abs().amax(1)

    def right(self, label: int) -> tuple[int, list[int]]:
        """Return the right token of a case and its rivals, as the decoder reads an answer."""
        if self.k > 10:
            return 12, list(range(1, 10))
        rivals = [v for v in range(self.spec.vocabulary) if v != label % 10]
        return label % 10, rivals if self.k < 10 else [v for v in rivals if v < 10]

    def decoded(self, label: int, products: list[list[Part]], channels_DR: Numbers) -> Decoded:
        """Decode all pairs of a case. channels: make channels of what attention writes."""
        margin, size, pair, count = math.inf, 0.0, (0, 0), 0
        low, high = np.full((2, channels_DR.shape[1]), math.inf)
        high = -high
        for parts in products:
            head, *others = parts
            step = max(1, AT_ONCE // math.prod(len(part[0]) for part in others))
            for start in range(0, len(head[0]), step):
                chosen = tuple(entry[start : start + step] for entry in head)
                written_ND = self.written([chosen, *others])
                margins, sizes = self.margins(written_ND, label)
                made = written_ND.numpy() @ channels_DR
                low, high = np.minimum(low, made.min(0)), np.maximum(high, made.max(0))
                count += len(margins)
                least = int(margins.nan_to_num(-math.inf).argmin())
                if not margins[least] >= margin:
                    margin, size = float(margins[least]), float(sizes[least])
                    pair = pair_at(least, [chosen, *others])
        return Decoded(margin, size, pair, low, high, count)


def are_told(writes_RD: Numbers) -> bool:
    """Return True if channels are told apart by what they write."""
    sizes = np.linalg.svd(writes_RD, compute_uv=False)
    return len(sizes) == len(writes_RD) and bool(sizes[-1] > 1e-6 * sizes[0])


def require_inside(least: Numbers, most: Numbers, low: Numbers, high: Numbers, where: str) -> None:
    """Raise Fault unless what attention writes, from least to most, lies in a box."""
    room = NEAR * np.maximum(abs(least), abs(most))
    if not ((low <= least + room) & (most - room <= high)).all():
        raise Fault(f"{where}: attention writes {least} to {most}, not {low} to {high}")


def pair_at(n: int, parts: list[Part]) -> tuple[int, int]:
    """Return the n-th pair of a product of columns, the last of which changes most often."""
    a = b = 0
    for j, (x, y, *_) in reversed(list(enumerate(parts))):
        n, i = divmod(n, len(x))
        a, b = a + int(x[i]) * 10**j, b + int(y[i]) * 10**j
    return a, b


# -- what is compared


COUNTS = ("proved", "refuted", "open", "checked", "left", "right", "wrong")
"""Cases: by the prover, by check.py, by decoding all pairs."""
COLUMNS = ("net", "family", "origin", "digits", "params", "queries", "cases", "pairs", *COUNTS)
COLUMNS += ("prover", "checker", "least", "seconds", "fault")
Row = dict[str, Any]


class Fault(Exception):
    """Two of the three contradict each other."""


class Comparison:
    """One net, and what the three say of it."""

    def __init__(self, net: Drawn):
        # a field that specs get later changes no θ
        self.net, self.draws = net, random.Random(digest(net.theta_P))
        self.decoder = Decoder(net.spec, net.theta_P, net.digits)
        self.program = Program(net.spec, net.theta_P)
        self.row = dict.fromkeys((*COUNTS, "queries", "cases", "pairs"), 0) | {"least": math.inf}
        self.prover: Prover | None = None
        self.reader: second.Reader | None = None
        self.row["prover"] = self.row["checker"] = "lost"
        try:
            with no_lost_numbers():
                self.prover = Prover(net.spec, net.theta_P, ANY, net.digits, math.inf)
            self.row["prover"] = "decides"
        except Lost:
            pass
        try:
            self.reader = second.Reader(net.spec.as_dict(), net.theta_P.tolist())
            self.row["checker"] = "decides"
        except SystemExit:
            pass

    def queries(self) -> list[tuple[int, int]]:
        """Return the queries at which a sample's margins are smallest, and some at random."""
        decoder, least = self.decoder, dict[tuple[int, int], float]()
        every = [(k, token) for k in range(decoder.steps) for token in tokens_at(k, self.net.digits)]
        for k, token in self.draws.sample(every, min(len(every), SAMPLED)):
            decoder.ask(k, token)
            sample = []
            for label, products in decoder.cases().items():
                written_ND = torch.cat([decoder.written(self.some(parts)) for parts in products])
                sample.append(float(decoder.margins(written_ND, label)[0].amin()))
            least[k, token] = min(sample)
        ordered = sorted(least, key=lambda query: least[query])
        return ordered[:WORST] + self.draws.sample(ordered[WORST:], QUERIES - WORST)

    def some(self, parts: list[Part]) -> list[Part]:
        """Return columns with a few of their states."""
        few = list(parts)
        for j in range(self.net.digits):
            part = parts[j]
            chosen = torch.tensor([self.draws.randrange(len(part[0])) for _ in range(4)])
            few[j] = (part[0][chosen], part[1][chosen], part[2][chosen], part[3][chosen])
        return few

    def compare(self, k: int, token: int) -> None:
        """Compare all cases of a query."""
        row, decoder = self.row, self.decoder
        decoder.ask(k, token)
        asked, boxes = self.boxes(k, token)
        query = self.checkers(k, token)
        writes_RD = self.prover.net.writes if self.prover else np.zeros((0, decoder.terms.shape[-1] - 1))
        self.tells = asked is not None and are_told(writes_RD)
        """True if what the prover's channels are can be told from what they write."""
        parts = [np.linalg.pinv(writes_RD)] if self.tells else []
        parts += [np.array(query.attention.writes)] if query else []
        channels_DR = np.concatenate([*parts, np.zeros((writes_RD.shape[1], 0))], 1)
        found = {s: decoder.decoded(s, parts, channels_DR) for s, parts in decoder.cases().items()}
        real = self.real(k, [(*case.pair, s) for s, case in found.items()])
        wrong = sorted((case.margin, s) for s, case in found.items() if not case.margin > 0)
        hopeless = {s for _, s in wrong[:-WRONG]}
        row["queries"] += 1
        for s, case in found.items():
            where = f"digit {k} at {token}, sum {s}, {case.pair[0]} + {case.pair[1]}"
            in_float64, in_float32 = real[s]
            if math.isfinite(in_float64) and abs(case.margin - in_float64) > decoder.near * case.size:
                raise Fault(f"{where}: decoded by columns {case.margin}, by the program {in_float64}")
            is_right = case.margin > 0 and in_float32 > 0
            row["cases"] += 1
            row["pairs"] += case.pairs
            row["least"] = min(row["least"], case.margin)
            said = ["right" if is_right else "wrong"]
            if asked:
                said.append(self.said_by_prover(asked, boxes[s], case, where))
            if query and s not in hopeless:
                said.append(self.said_by_checker(query, s, case, where))
            for word in said:
                row[word] += 1
            contradicts = {"refuted"} if is_right else {"proved", "checked"}
            if contradicts & set(said):
                raise Fault(f"{where}: {', '.join(said)}; {case.margin:.4g} in float64, {in_float32:.4g} in float32")
        self.look_at_logits(k, found)

    def real(self, k: int, pairs: list[tuple[int, int, int]]) -> dict[int, tuple[float, float]]:
        """Return the margins of pairs, each of a case, at digit k in the exported program: float64 and float32."""
        encode = self.program.names["encode"]
        ends = [(a + b) for a, b, _ in pairs]
        rows = [[*encode(a, b), *((a + b) // 10**j % 10 for j in range(k))] for a, b, _ in pairs]
        if k > 10:
            assert all(row[-1] == end // 10**10 for row, end in zip(rows, ends, strict=True))
        both = []
        for model in (self.decoder.model, self.program.model):
            with torch.no_grad():
                both.append(model(torch.tensor(rows))[:, -1].double())
        found = {}
        for n, (_, _, s) in enumerate(pairs):
            right, rivals = self.decoder.right(s)
            margins = [float(logits[n, right] - logits[n, rivals].amax()) for logits in both]
            found[s] = margins[0], margins[1] if math.isfinite(margins[1]) else -math.inf
        return found

    def boxes(self, k: int, token: int) -> tuple[QueryProver | None, dict[int, Any]]:
        """Return the prover's query, and by case what it says."""
        if not self.prover:
            return None, {}
        try:
            with no_lost_numbers():
                (query,) = [q for q in self.prover.attention.ask(k) if q.token == token or not k]
                asked = QueryProver(self.prover, query)
                cases = asked.first_cases()
                low, high, ends = asked.extremes(cases)
                right = asked._right_at(ends, low, high, cases)
                margins = np.stack([asked.margins(states, cases.right) for states in ends]).min(0)
                bounds = asked.gaps.over(low, high, cases.right)
                rivals = asked._rivals(cases.right)
                gap = np.where(rivals, bounds.low - bounds.loss, math.inf).min(1) / bounds.scale
                decided = right.copy()
                decided[right] = asked.halved(asked.wins, low[right], high[right], cases.right[right])
                rows = zip(cases.label, low, high, right, decided, margins, gap, range(len(cases)), strict=True)
                return asked, {int(row[0]): row[1:] for row in rows}
        except Lost:
            self.row["prover"] = "lost"
            return None, {}

    def said_by_prover(self, asked: QueryProver, box: Any, case: Decoded, where: str) -> str:
        low, high, right, decided, margin, gap, n = box
        if self.tells:
            least, most = case.low[: len(low)], case.high[: len(low)]
            require_inside(least, most, low, high, where)
        if gap > 0 and gap > case.margin:
            raise Fault(f"{where}: a gap of {gap} at least, which is {case.margin}")
        if decided:
            return "proved"
        if margin < 0:
            return "refuted"
        if not right:
            return "open"
        prover = asked.prover
        cases = asked.first_cases()[n : n + 1]
        before = prover.left[asked.query.k]
        prover.end = time.process_time() + LIMIT_S
        try:
            with no_lost_numbers():
                asked.boxed = asked._boxes(cases)
                asked.decide()
        except Lost:
            return "open"
        return "proved" if before - prover.left[asked.query.k] == cases.pairs[0] else "open"

    def checkers(self, k: int, token: int) -> check.Query | None:
        if not self.reader:
            return None
        try:
            return check.Query(self.reader.attention, k, token)
        except SystemExit:
            self.row["checker"] = "lost"
            return None

    def said_by_checker(self, query: check.Query, s: int, case: Decoded, where: str) -> str:
        cases = check.first_cases(query.k, self.decoder.token, self.net.digits)[s]
        channels = len(query.attention.channels)
        try:
            box = check.box_around(query, cases, check.units_of(query.attention), is_kept=True)
            middle, reach = np.array(box.middle), np.array(box.reach)
            require_inside(case.low[-channels:], case.high[-channels:], middle - reach, middle + reach, where)
            check.MOST_PARTS = MOST_PARTS if case.margin > 0 else 1
            check.prove_case(query, cases, s)
        except SystemExit:
            return "left"
        return "checked"

    def look_at_logits(self, k: int, found: dict[int, Decoded]) -> None:
        """Look if the logits of a case's worst pair are where check.py says, in float32."""
        if not self.reader or self.row["checker"] == "lost":
            return
        case = found[self.draws.choice(sorted(found))]
        a, b = case.pair
        encode = self.program.names["encode"]
        row = [*encode(a, b), *((a + b) // 10**j % 10 for j in range(k))]
        with torch.no_grad():
            logits = self.program.model(torch.tensor([row]))[0, -1].tolist()
        try:
            right, gaps, scale = self.reader.gaps(a, b, k)
        except SystemExit:
            return
        for v, least, most in gaps:
            gap = logits[right] - logits[v]
            if not second.is_inside(gap, scale, least, most):
                raise Fault(second.outside(f"digit {k} of {a} + {b}", right, v, gap, scale, least, most))


def tokens_at(k: int, digits: int) -> range:
    """Return the tokens at which digit k of a sum may be asked for."""
    return range(1 if not k or k > digits + 1 else 2 if k == digits + 1 else 10)


def compared(number: int) -> Row:
    """Return the row of a net."""
    start = time.process_time()
    net = drawn(number)
    base, _ = untied(net.spec, net.theta_P)
    row: Row = {"net": number, "family": base.family, "origin": net.origin, "digits": net.digits}
    row |= {"params": net.spec.params, "fault": ""}
    try:
        comparison = Comparison(net)
        row |= comparison.row
        for k, token in comparison.queries():
            comparison.compare(k, token)
    except Fault as fault:
        row["fault"] = str(fault)
    row |= comparison.row
    row |= {"least": f"{row['least']:.4g}", "seconds": f"{time.process_time() - start:.2f}"}
    return row


def main(path: str, count: str = "10000", first: str = "0") -> None:
    """Write a line for each net from `first` up to `count` that has none."""
    torch.set_num_threads(1)
    target = Path(path)
    text = target.read_text() if target.exists() else ""
    done = {int(row["net"]) for row in csv.DictReader(text.splitlines())}
    with target.open("a", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS)
        if not text:
            rows.writeheader()
        for number in range(int(first), int(count)):
            if number not in done:
                rows.writerow(compared(number))
                file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
