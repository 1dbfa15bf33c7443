"""A descent: rounds of sets of ties that curvature proposes, a ramp enters and selection problems accept.

Each round takes one of the smallest sets that were kept, trains the cheapest sets one step or several
further, from its θ with every tie loosened, and keeps those that get everything right.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from model.adderboard import carry_pairs
from model.decode import DIGITS
from model.spec import Spec
from model.tied import Tied, Ties, equated, project, tie, ties_of, zeroed
from search.descent.journal import Journal, Kept, digest
from trainer import Bank, Pair, Recipe, Result, Seed, step
from trainer.bank import programs_of
from trainer.curvature import Around, around, constraints, joint_cost
from trainer.native import Native
from trainer.problems import sample
from trainer.programs import Programs

KINDS, REACHES = ("zero", "equal", "opposite"), ("tensor", "values")
STRATUM = 400  # of our own problems, for each length of the longest run of carries
UNIFORM, OWN_SEED = 50_000, 46_000_046  # and without regard to carries, of a data seed that trains nothing
POOL = 60  # cheapest constraints from which sets of several are made


@dataclass(frozen=True)
class Settings:
    """How a descent goes. proposals: sets of a round; seeds: data seeds of each set; patience: rounds that
    may pass without a smaller set.
    """

    kinds: tuple[str, ...] = KINDS
    reach: str = "values"
    proposals: int = 16
    patience: int = 40
    seeds: int = 1
    first_seed: int = 1
    steps: int = 6_000
    ramp: int = 3_000
    lr: float = 0.003
    problems: int = 2_048

    def recipe(self) -> Recipe:
        """The recipe of a set."""
        return Recipe(
            steps=self.steps, ramp=self.ramp, lr=self.lr, warmup=min(200, self.steps), weight_decay=0.0,
            curriculum=(), carry_mix=0.3, fade_start=self.steps, fade_end=self.steps, hold=self.steps,
            eval_every=next(k for k in range(max(1, self.steps // 6), 0, -1) if self.steps % k == 0),
        )  # fmt: skip


@dataclass(frozen=True)
class Round:
    """What a round did: how many sets were tried, what each reached (numbers, exact), what was kept."""

    number: int
    parent: Kept
    reached: list[tuple[int, float]]
    kept: list[int]


class Descent:
    """A descent from one θ, as far as its journal has it."""

    def __init__(self, spec: Spec, theta_P: Tensor, settings: Settings, folder: Path):
        """Raises ValueError where the start does not get everything right, or the journal is of another."""
        self.base, ties = ties_of(spec)
        self.settings, self.folder, self.deadline = settings, folder, float("inf")
        origin = hashlib.sha256(theta_P.numpy().tobytes() + repr(spec).encode()).hexdigest()
        journal = Journal.read(folder)
        if journal is not None and journal.origin != origin:
            raise ValueError(f"{folder}: holds a descent from another checkpoint")
        self.journal = journal or Journal(origin, asdict(settings))
        if journal is None:
            start = _of_base(spec, theta_P)
            wrong = self.wrong(start)
            if wrong:
                raise ValueError(f"the start has not grokked: it adds {wrong} of our own problems wrongly")
            loss = float(self.programs.evaluate(start[None])["loss"])
            self.journal.kept.append(Kept(ties, start.tolist(), spec.params, loss))

    def rounds(self) -> Iterator[Round]:
        """Go on until patience or time has run out."""
        while (parent := self._next_parent()) is not None and time.time() < self.deadline:
            found = self._round(parent)
            if found is None:
                return
            yield found

    def spec_of(self, kept: Kept) -> Spec:
        return tie(self.base, kept.ties)

    def theta_of(self, kept: Kept) -> Tensor:
        """θ of its own spec."""
        theta_P = torch.tensor(kept.theta)
        spec = self.spec_of(kept)
        return theta_P if spec == self.base else project(kept.ties, theta_P[None])[0]

    def _next_parent(self) -> int | None:
        """Best first: the fewest numbers, where each round that a set was gone on from counts as one more.

        None where the smallest set has not shrunk for `patience` rounds.
        """
        journal, kept = self.journal, self.journal.kept
        if journal.rounds - journal.shrunk >= self.settings.patience:
            return None
        return min(range(len(kept)), key=lambda n: (kept[n].numbers + kept[n].visits, kept[n].loss))

    def _round(self, n: int) -> Round | None:
        """None where time ran out; nothing is kept then."""
        journal, parent, start = self.journal, self.journal.kept[n], time.perf_counter()
        proposed = self.propose(parent)
        results = self._train(parent, proposed) if proposed else []
        if results is None:
            return None
        before = len(journal.kept)
        smallest = journal.kept[journal.smallest()].numbers
        for ties, result in results:
            if result.best_exact == 1.0:
                self._keep(n, ties, result)
            journal.tried[digest(ties)] = max(result.best_exact, journal.tried.get(digest(ties), 0.0))
        new = list(range(before, len(journal.kept)))
        self._adapt(parent, new)
        parent.visits += 1
        journal.rounds += 1
        if journal.kept[journal.smallest()].numbers < smallest:
            journal.shrunk = journal.rounds
        journal.seconds += time.perf_counter() - start
        journal.seed_steps += sum(r.steps for _, r in results)
        journal.write(self.folder)
        reached = [(max(map(abs, ties), default=0), r.best_exact) for ties, r in results]
        return Round(journal.rounds, parent, reached, new)

    def _adapt(self, parent: Kept, new: list[int]) -> None:
        """Take more constraints at once while that works, fewer where it does not."""
        journal = self.journal
        gained = parent.numbers - min((journal.kept[k].numbers for k in new), default=parent.numbers)
        journal.several = min(16, 2 * journal.several) if gained >= journal.several else max(2, gained)

    def propose(self, parent: Kept) -> list[Ties]:
        """Sets that were not tried: several constraints at once in some, one in others, cheapest first."""
        spec, asked = self.spec_of(parent), self.settings
        if spec.params < 2:
            return []
        at = around(spec, self.theta_of(parent), asked.problems)
        single = constraints(at, asked.kinds, asked.reach)
        made: dict[str, Ties] = {}

        def add(ties: Ties | None) -> None:
            if ties is not None and digest(ties) not in self.journal.tried:
                made.setdefault(digest(ties), ties)

        size = min(self.journal.several, spec.params // 2)
        while size > 1 and len(made) < asked.proposals // 2:
            add(self._several(at, size, skip=0))
            add(self._several(at, size, skip=1))
            size = min(size - 1, max(size * 2 // 3, 2))
        for constraint in single:
            if len(made) >= asked.proposals:
                break
            add(constraint.ties)
        return list(made.values())

    def _several(self, at: Around, size: int, skip: int) -> Ties | None:
        """The ties of so many constraints that cost least together, chosen one after another.

        skip: leave out so many of the cheapest, for another set of the same size.
        """
        pool = constraints(at, self.settings.kinds, self.settings.reach)[skip:POOL]
        inverse_RR, chosen = at.inverse(), list[Tensor]()
        ties, spec = at.ties, at.spec
        for _ in range(size):
            best = None
            for constraint in pool:
                a_CR = torch.stack([*chosen, constraint.a_R])
                if torch.linalg.matrix_rank(a_CR) < len(a_CR):
                    continue
                cost = joint_cost(at, a_CR, inverse_RR)
                if best is None or cost < best[0]:
                    best = cost, constraint
            if best is None:
                return None
            chosen.append(best[1].a_R)
        for a_R in chosen:
            ties = _imposed(at.ties, ties, a_R)
        try:
            tie(spec, ties)
        except ValueError:
            return None
        return ties

    def _train(self, parent: Kept, proposed: list[Ties]) -> list[tuple[Ties, Result]] | None:
        """Every set with every data seed, in one bank; None where time ran out."""
        recipe, start, first = self.settings.recipe(), tuple(parent.theta), self.settings.first_seed
        work = [(ties, first + n) for ties in proposed for n in range(self.settings.seeds)]
        bank = Bank(self.base, [Pair(recipe, Seed(0, s), start, t) for t, s in work], slots=16, hopeless=None)
        while bank.advance():
            self.watch(bank.seed_steps, recipe.steps * len(work))
            if time.time() > self.deadline:
                return None
        return [(ties, bank.result(n)) for n, (ties, _) in enumerate(work)]

    watch: Callable[[int, int], None] = staticmethod(lambda done, of: None)

    def _keep(self, n: int, ties: Ties, result: Result) -> None:
        """Keep a result whose every answer is right, the better where a set has two."""
        if self.wrong(result.theta_P):
            return
        spec = tie(self.base, ties)
        loss = float(result.curve_EM[result.best_step // result.pair.recipe.eval_every - 1, 2])
        made = Kept(ties, result.theta_P.tolist(), spec.params, loss, n, result.pair.seed.data_seed)
        same = [k for k, kept in enumerate(self.journal.kept) if kept.ties == ties]
        if not same:
            self.journal.kept.append(made)
        elif loss < self.journal.kept[same[0]].loss and self.journal.kept[same[0]].parent == n:
            self.journal.kept[same[0]] = made

    def wrong(self, theta_P: Tensor) -> int:
        """How many selection problems and others of our own θ [P] of the base adds wrongly."""
        count = 0
        for tokens in (self.programs.problems, self.others):
            exact = self.programs.evaluate(theta_P[None], tokens)["exact"]
            count += round((1 - float(exact)) * tokens.shape[-1])
        return count

    @cached_property
    def programs(self) -> Native | Programs:
        return programs_of(self.base, self.settings.recipe(), "cpu", compiled=True)

    @cached_property
    def others(self) -> Tensor:
        """Uniform problems, and some for each length of the longest run of carries; none of `verify`."""
        pairs = [p for run in range(DIGITS + 1) for p in carry_pairs(run, STRATUM, "of descents")]
        strata = torch.tensor(pairs, dtype=torch.float64).T[:, None]
        one = torch.ones(1, dtype=torch.int64)
        uniform = torch.stack(sample(one * OWN_SEED, one, one * DIGITS, torch.zeros(1), UNIFORM))
        return step.tokens_of(self.base, *torch.cat([strata, uniform], dim=2))


def _imposed(known: Ties, ties: Ties, a_R: Tensor) -> Ties:
    """Ties with a constraint more, which is written in the numbers of `known`."""
    read = a_R.nonzero().flatten().tolist()
    first = [next(p for p, k in enumerate(known) if abs(k) == n + 1) for n in read]
    if len(read) == 1:
        return zeroed(ties, first[0])
    sign = -1 if a_R[read[0]] * a_R[read[1]] > 0 else 1
    try:
        return equated(ties, first[1], first[0], sign)
    except ValueError:  # equal and opposite: both are zero
        return zeroed(ties, first[0])


def _of_base(spec: Spec, theta_P: Tensor) -> Tensor:
    """θ of the base, of any spec's."""
    return spec.spread(theta_P[None])[0] if isinstance(spec, Tied) else theta_P
