"""Judge sets of ties by the smallest margin over all 10^20 pairs: continuation from a parent, and a finish.

Axes: N pair, P entries of the base, R numbers of a spec, S slack.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from candidates import Array, Candidate, Labels
from numpy.typing import NDArray
from scipy.optimize import linprog

from adders.curvature.pool import tokens_from
from adders.finishing.margin import Row
from adders.proof.prover import worst_pairs
from model.families.split_subspace import SplitSubspace
from model.families.split_subspace.forward import EPS
from model.spec import Spec
from model.tied import Tied, canonical, shared

Ints = NDArray[np.int64]
FIRST, NEW, MOST, BINDING = 1_000, 300, 2_000, 300
"""Pairs of a pool: at first, at each look of the prover, at most; and in a linear programme."""
LOOKS, LIMIT_S = 4, 12.0
RADIUS, WIDEST, NARROWEST = 0.05, 0.2, 1e-3
LEAST_NUMBER = 0.05
CORRECTIONS = 2
FORCED, GIVEN_UP = 0.03, -0.2


@dataclass
class Pool:
    """The worst pairs that are known, of any set."""

    rows: list[Row] = field(default_factory=list)

    def add(self, rows: list[Row]) -> None:
        old = self.rows[:FIRST] + self.rows[FIRST:][-(MOST - FIRST - len(rows)) :] if self.rows else []
        self.rows = list(dict.fromkeys([*old, *rows]))
        self.tokens: torch.Tensor | None = None

    def margins(self, spec: Spec, theta_SR: Array, which: Ints | slice = slice(None)) -> Array:
        """Return relative margins [S, N]; -1e9 where there are no numbers."""
        if self.tokens is None:
            self.tokens = tokens_from(spec, [(a, b) for _, a, b in self.rows])[0].T.long()
            self.digits = torch.tensor([k for k, _, _ in self.rows])
        relative = relative_margins(spec, torch.from_numpy(theta_SR), self.tokens[which], self.digits[which])
        return np.nan_to_num(relative.numpy(), nan=-1e9, posinf=-1e9, neginf=-1e9)

    def smallest(self, spec: Spec, x_R: Array) -> float:
        return float(self.margins(spec, x_R[None]).min())

    def slopes(self, spec: Spec, x_R: Array, count: int = BINDING) -> tuple[Array, Array]:
        """Return the smallest margins [N] and their slopes along relative changes of numbers [N, R]."""
        values = self.margins(spec, x_R[None])[0]
        which = np.argsort(values)[:count]
        step_RR = 1e-6 * np.diag(scale_of(x_R))
        both = self.margins(spec, np.concatenate([x_R + step_RR, x_R - step_RR]), which)
        ahead, behind = np.split(both, 2)
        return values[which], ((ahead - behind) / 2e-6).T


@torch.no_grad()
def relative_margins(
    spec: Spec, theta_SR: torch.Tensor, tokens_NT: torch.Tensor, digits_N: torch.Tensor
) -> torch.Tensor:
    """Return the margins of rows relative to the spread of their logits [S, N]: on a circle, with one channel.

    Relative to the largest logit, as `Margins` has it, all sets would be best where all digits are alike.
    """
    wide = spec.expand(theta_SR)
    last = spec.prompt - 1 + digits_N
    length = wide["attention"].shape[3]
    right_N = tokens_NT.gather(1, last[:, None] + 1)
    weight_SNT = wide["attention"][:, 0, digits_N]
    a_SN = (weight_SNT * wide["values"][:, 0, tokens_NT[:, :length]]).sum(2)
    asking_N = tokens_NT.gather(1, last[:, None])[:, 0]
    stream = torch.cat([wide["table"][:, :, asking_N], wide["positions"][:, :, digits_N]], 1)  # [S, width, N]
    stream = stream + wide["write"] * a_SN[:, None]
    hidden = torch.nn.functional.gelu(wide["fc1"] @ normed(stream))
    out = wide["head"] @ normed(stream + wide["fc2"] @ hidden)
    logits_SVN = wide["table"].mT @ out
    index = right_N.T.expand(len(theta_SR), 1, -1)
    right = logits_SVN.gather(1, index)[:, 0]
    rival = logits_SVN.scatter(1, index, -torch.inf).amax(1)
    return (right - rival) / (logits_SVN.amax(1) - logits_SVN.amin(1))


def normed(stream: torch.Tensor) -> torch.Tensor:
    return stream * torch.rsqrt((stream * stream).mean(1, keepdim=True) + EPS)


def scale_of(x_R: Array) -> Array:
    return np.maximum(np.abs(x_R), LEAST_NUMBER)


def look(spec: Spec, x_R: Array) -> list[Row]:
    """Return the worst pairs of all, by the prover."""
    rows = worst_pairs(spec, torch.from_numpy(x_R).float())
    return [(k, a, b) for _, k, a, b in rows if k < spec.answers]


def spec_of(base: Spec, labels: Labels) -> tuple[Tied, list[int]]:
    """Return the spec of a set, and the label of each of its numbers. Norms without weights are another base."""
    if isinstance(base, SplitSubspace) and base.structured_norm1 and not labels[-1]:
        base, labels = replace(base, structured_norm1=False, parameterless_norm=True), labels[:-1]
    return Tied(base=base, ties=canonical(labels)), list(dict.fromkeys(abs(k) for k in labels if k))


def signs_of(labels: Labels) -> dict[int, int]:
    """Return the sign with which each label is read first."""
    signs: dict[int, int] = {}
    for k in labels:
        signs.setdefault(abs(k), 1 if k > 0 else -1)
    return signs


@dataclass
class Lifted:
    x_R: Array
    margin: float
    over: str
    looks: int
    row: Row
    wrong: int
    """Pairs of the pool."""


def lift(spec: Spec, x_R: Array, pool: Pool, end: float, looks: int = LOOKS, enough: float = 0.0) -> Lifted:
    """Raise the smallest margin, over the pool until it is right there, then over all pairs."""
    radius, best, over, used = RADIUS, pool.smallest(spec, x_R), "pool", 0
    kept: Lifted | None = None
    while True:
        while radius > NARROWEST and time.process_time() < end:
            values, slopes = pool.slopes(spec, x_R)
            if not np.isfinite(slopes).all():
                break
            scale = scale_of(x_R)
            rows = np.concatenate([-slopes, np.ones((len(values), 1))], 1)
            moved = False
            while radius > NARROWEST and not moved:
                bounds = [(-radius, radius)] * len(x_R) + [(None, None)]
                solution = linprog(np.r_[np.zeros(len(x_R)), -1.0], rows, values, bounds=bounds, method="highs")
                new_R = x_R + solution.x[:-1] * scale
                smallest = pool.smallest(spec, new_R)
                if smallest <= best:
                    radius /= 3
                    continue
                promised, gain = solution.x[-1] - best, smallest - best
                radius = min(WIDEST, 2 * radius) if gain > 0.5 * promised else radius
                x_R, best, moved = new_R, smallest, True
                if gain < 1e-3 * abs(best):
                    radius /= 3
            if best > 0 and used == 0:
                break
        if best <= 0 or used == looks or (kept and best <= kept.margin) or time.process_time() > end:
            break
        rows_all, used = look(spec, x_R), used + 1
        pool.add(rows_all[:NEW])
        best = pool.smallest(spec, x_R)
        radius = RADIUS
        if best > 0 and (kept is None or best > kept.margin):
            kept = state(spec, x_R, pool, "all pairs", used)
            if best > enough:
                break
    return kept or state(spec, x_R, pool, over, used)


def state(spec: Spec, x_R: Array, pool: Pool, over: str, looks: int) -> Lifted:
    margins = pool.margins(spec, x_R[None])[0]
    return Lifted(x_R, float(margins.min()), over, looks, pool.rows[int(margins.argmin())], int((margins <= 0).sum()))


@dataclass
class Way:
    """From a parent's ties to a candidate's: the space of what both have, and where each of its numbers should be."""

    spec: Tied
    x_R: Array
    goal: list[int]
    """Of each number: the candidate's label with its sign, or 0."""

    @classmethod
    def between(cls, base: Spec, theta_P: Array, parent: Labels, target: Labels) -> Way:
        ties = shared(canonical(parent), canonical(target))
        x, goal = dict[int, float](), dict[int, int]()
        for p, k in enumerate(ties):
            if k:
                x.setdefault(abs(k), theta_P[p] * np.sign(k))
                goal.setdefault(abs(k), int(target[p] * np.sign(k)))
        order = sorted(x)
        return cls(Tied(base=base, ties=ties), np.array([x[k] for k in order]), [goal[k] for k in order])


class Programme:
    """Moves of a way's numbers that lower their residuals: linear in moves, goals, slacks and the margin.

    Axes beside: K goal, S number that is not at its goal.
    """

    def __init__(self, way: Way):
        read = Counter(map(abs, way.goal))
        self.apart = [r for r, k in enumerate(way.goal) if not k or read[abs(k)] > 1]
        self.labels = sorted({abs(way.goal[r]) for r in self.apart} - {0})
        self.first, self.count = scale_of(way.x_R), len(way.x_R)
        ties_SK = np.zeros((len(self.apart), len(self.labels)))
        for s, r in enumerate(self.apart):
            if way.goal[r]:
                ties_SK[s, self.labels.index(abs(way.goal[r]))] = np.sign(way.goal[r])
        self.ties_SK = ties_SK / self.first[self.apart, None]

    def solve(self, x_R: Array, slopes: Array, margins: Array, radius: float, most: float) -> Array | None:
        """Return the solution with the largest margin where the residuals sum to `most` at most; without margins the
        least residual.
        """
        (slacks, size), rows = self.ties_SK.shape, len(margins)
        scale = self.scale(x_R)
        near, none = np.diag(scale / self.first)[self.apart], np.zeros((slacks, 1))
        total = np.r_[np.zeros(self.count + size), np.ones(slacks), 0.0]
        upper = np.block(
            [
                [slopes / -scale_of(x_R) * scale, np.zeros((rows, size + slacks)), np.ones((rows, 1))],
                [near, -self.ties_SK, -np.eye(slacks), none],
                [-near, self.ties_SK, -np.eye(slacks), none],
                [total[None]],
            ]
        )
        off = (x_R / self.first)[self.apart]
        free = [(None, None)] if rows else [(0, 0)]
        bounds = [(-radius, radius)] * self.count + [(None, None)] * size + [(0, None)] * slacks + free
        aim = np.r_[np.zeros(len(total) - 1), -1.0] if rows else total
        if not np.isfinite(upper).all():
            return None
        limits = np.concatenate([margins, -off, off, [most]])
        solution = linprog(aim, upper, limits, bounds=bounds, method="highs")
        return solution.x if solution.status == 0 else None

    def scale(self, x_R: Array) -> Array:
        return np.maximum(scale_of(x_R), self.first)

    def goals(self, solution: Array) -> dict[int, float]:
        end = self.count + len(self.labels)
        return dict(zip(self.labels, solution[self.count : end], strict=True))


def continued(way: Way, pool: Pool, end: float) -> tuple[Array, dict[int, float], float]:
    """Lower the residual while the known margins stay above 0. Return numbers, goals, and the share that is left.

    Where they do not, go on to the goal with margins as large as they can be.
    """
    programme, x_R = Programme(way), way.x_R
    start = programme.solve(x_R, np.zeros((0, len(x_R))), np.zeros(0), 0.0, 1e9)
    if start is None or pool.smallest(way.spec, x_R) <= 0:
        raise ValueError("the parent is not right")
    values, whole = programme.goals(start), 1e-12 + float(start[-1 - len(programme.apart) : -1].sum())
    left, radius, lost, margin = whole, RADIUS, 0.0, 1.0
    while left > 1e-9 and margin > GIVEN_UP and time.process_time() < end:
        if not lost and radius <= NARROWEST:
            lost, radius = left / whole, FORCED
        target, new_R, corrections = max(0.0, left - radius / 2), x_R, 0
        margins, slopes = pool.slopes(way.spec, x_R)
        solution = programme.solve(x_R, slopes, margins, radius, target)
        while solution is not None:
            new_R = new_R + solution[: len(x_R)] * programme.scale(new_R)
            margins, slopes = pool.slopes(way.spec, new_R)
            if margins[0] > 0 or (lost and (corrections == CORRECTIONS or margins[0] > -1e-4)):
                left, margin, values = target, float(margins[0]), programme.goals(solution)
                x_R, radius = new_R, radius if lost else min(WIDEST, 1.5 * radius)
                break
            corrections += 1
            tries = corrections <= CORRECTIONS
            solution = programme.solve(new_R, slopes, margins, radius, target) if tries else None
        if solution is None:
            if lost:
                break
            radius /= 2
    alone = {abs(k): float(x) * (1 if k > 0 else -1) for x, k in zip(x_R, way.goal, strict=True) if k}
    return x_R, alone | values, lost or left / whole


@dataclass
class Verdict:
    left: float
    lifted: Lifted
    way: str
    seconds: float


def judge(
    base: Spec, theta_P: Array, parent: Labels, candidate: Candidate, pool: Pool, limit_s: float = LIMIT_S
) -> Verdict:
    """Judge a candidate: continuation and a finish from its end, and a finish from the predicted point."""
    start = time.process_time()
    way = Way.between(base, theta_P, parent, candidate.labels)
    spec, labels = spec_of(base, candidate.labels)
    signs = signs_of(candidate.labels)
    _, values, left = continued(way, pool, start + limit_s * 2 / 3)
    starts = [("continued", values), ("predicted", candidate.values)]
    best: tuple[float, str, Lifted] | None = None
    for n, (name, values) in enumerate(starts):
        x_R = np.array([values.get(k, 0.0) * signs[k] for k in labels])
        lifted = lift(spec, x_R, pool, start + limit_s * (0.75 + 0.25 * n))
        if best is None or (lifted.over == "all pairs", lifted.margin) > (
            best[2].over == "all pairs",
            best[0],
        ):
            best = (lifted.margin, name, lifted)
        if lifted.over == "all pairs":
            break
    assert best is not None
    return Verdict(left, best[2], best[1], time.process_time() - start)
