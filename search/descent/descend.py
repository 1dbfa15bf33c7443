"""A descent: rounds of sets of ties that curvature proposes, a ramp enters and selection problems accept.

Each round takes one of the smallest sets that were kept, trains the cheapest sets one step or several
further, from its θ with every tie loosened, and keeps those that get enough right. Those that nearly do are
trained again from where they got to.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from model.spec import Spec
from model.tied import Tied, Ties, project, tie, ties_of
from search.descent.exam import Exam
from search.descent.journal import Journal, Kept, digest
from search.descent.proposals import KINDS, Proposer
from trainer import Bank, Pair, Recipe, Result, Seed
from trainer.recipe.ramp import entering

NEAR, CHANCES, AGAIN = 0.98, 4, 3  # of `accept`: what is trained again; how many a round, how often each
LATE = 0.5  # of `accept`: sets below it some way after the ramp are not trained on
STUCK, LONGEST = 5, 3  # rounds without a gain after which training is longer; how many times at most


@dataclass(frozen=True)
class Settings:
    """How a descent goes. proposals: sets of a round; seeds: data seeds of each set, fresh ones every round;
    patience: rounds that may pass without a smaller set; accept: the share that a set must get right, of the
    selection problems and of others of our own.
    """

    kinds: tuple[str, ...] = KINDS
    reach: str = "values"
    proposals: int = 16
    patience: int = 40
    seeds: int = 1
    first_seed: int = 1
    steps: int = 3_000
    ramp: int = 1_500
    lr: float = 0.003
    problems: int = 1_024
    accept: float = 1.0

    def recipe(self, times: int = 1) -> Recipe:
        """The recipe of a set, so many times as long as was asked for."""
        usual = entering(times * self.steps) | {"ramp": times * self.ramp, "lr": self.lr}
        return Recipe(**usual | {"eval_every": entering(self.steps)["eval_every"]})


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
        self.exam = Exam(self.base)
        self.settings, self.folder, self.deadline = settings, folder, float("inf")
        origin = hashlib.sha256(theta_P.numpy().tobytes() + repr(spec).encode()).hexdigest()
        journal = Journal.read(folder)
        if journal is not None and journal.origin != origin:
            raise ValueError(f"{folder}: holds a descent from another checkpoint")
        self.journal = journal or Journal(origin, asdict(settings))
        if journal is None:
            start = _of_base(spec, theta_P)
            wrong, total = self.wrong(start)
            if wrong > (1 - settings.accept) * total:
                raise ValueError(f"the start has not grokked: it adds {wrong} of our own problems wrongly")
            loss = float(self.exam.programs.evaluate(start[None])["loss"])
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
        near = journal.chances(AGAIN)[:CHANCES]
        proposed = self.propose(parent, self.settings.proposals - len(near))
        results = self._train(parent, proposed, near) if proposed or near else []
        if results is None:
            return None
        before = len(journal.kept)
        smallest = journal.kept[journal.smallest()].numbers
        for result, chance in results:
            self._judge(n, result, chance)
        new = list(range(before, len(journal.kept)))
        self._adapt(parent, new)
        parent.visits += 1
        journal.rounds += 1
        if journal.kept[journal.smallest()].numbers < smallest:
            journal.shrunk = journal.rounds
        journal.seconds += time.perf_counter() - start
        journal.seed_steps += sum(r.steps for r, _ in results)
        journal.write(self.folder)
        reached = [(max(map(abs, r.pair.ties or ()), default=0), r.best_exact) for r, _ in results]
        return Round(journal.rounds, parent, reached, new)

    def _adapt(self, parent: Kept, new: list[int]) -> None:
        """Take more constraints at once while that works, fewer where it does not."""
        journal = self.journal
        gained = parent.numbers - min((journal.kept[k].numbers for k in new), default=parent.numbers)
        journal.several = min(16, 2 * journal.several) if gained >= journal.several else max(2, gained)

    def propose(self, parent: Kept, count: int) -> list[Ties]:
        """So many sets that were not tried: several constraints at once in some, one in others."""
        asked = self.settings
        if parent.numbers < 2:
            return []
        proposer = Proposer.around(
            self.base, parent.ties, torch.tensor(parent.theta), asked.kinds, asked.reach, asked.problems
        )
        return proposer.sets(count, self.journal.several, self.journal.tried)

    def _train(
        self, parent: Kept, proposed: list[Ties], near: list[Kept]
    ) -> list[tuple[Result, Kept | None]] | None:
        """Every set with every data seed, and again those that came near, from where they got to, in one
        bank; None where time ran out.
        """
        journal, asked = self.journal, self.settings
        recipe = asked.recipe(min(LONGEST, 1 + (journal.rounds - journal.shrunk) // STUCK))
        calmer = replace(recipe, ramp=0, lr=recipe.lr / 3)
        seeds = [Seed(0, asked.first_seed + journal.rounds * asked.seeds + n) for n in range(asked.seeds)]
        work: list[tuple[Pair, Kept | None]]
        work = [(Pair(recipe, seed, tuple(parent.theta), t), None) for t in proposed for seed in seeds]
        work += [(Pair(calmer, seeds[0], tuple(k.theta), k.ties), k) for k in near]
        bank = Bank(self.base, [pair for pair, _ in work], slots=16, hopeless=None)
        while bank.advance():
            self.watch(bank.seed_steps, recipe.steps * len(work))
            if time.time() > self.deadline:
                return None
            bank.end(self._late(bank, recipe))
        return [(bank.result(n), chance) for n, (_, chance) in enumerate(work)]

    def _late(self, bank: Bank, recipe: Recipe) -> list[int]:
        """The sets that are nowhere a third of the way from the ramp's end to the end."""
        since = recipe.ramp + (recipe.steps - recipe.ramp) // 3
        least = LATE * self.settings.accept
        return [
            n for n, row in enumerate(bank.judge.newest())
            if row["step"] >= since and row["best_exact"] < least
        ]  # fmt: skip

    watch: Callable[[int, int], None] = staticmethod(lambda done, of: None)

    def _judge(self, n: int, result: Result, chance: Kept | None) -> None:
        """Remember what a set reached, and keep it, or keep it for another chance."""
        journal, ties = self.journal, result.pair.ties
        assert ties is not None
        journal.tried[digest(ties)] = max(result.best_exact, journal.tried.get(digest(ties), 0.0))
        numbers, exact = max(map(abs, ties), default=0), result.best_exact
        if chance is not None:
            chance.visits += 1
        if exact < NEAR * self.settings.accept:
            return
        loss = float(result.curve_EM[result.best_step // result.pair.recipe.eval_every - 1, 2])
        parent = n if chance is None else chance.parent
        made = Kept(ties, result.theta_P.tolist(), numbers, loss, parent, result.pair.seed.data_seed)
        if exact >= self.settings.accept and self.right_enough(result.theta_P):
            self._keep(made)
        elif chance is None:
            journal.near.append(made)
        elif loss < chance.loss:
            chance.theta, chance.loss, chance.seed = made.theta, made.loss, made.seed

    def _keep(self, made: Kept) -> None:
        """Keep a set, the better where it has two from one parent."""
        journal = self.journal
        journal.near = [k for k in journal.near if k.ties != made.ties]
        same = [k for k, kept in enumerate(journal.kept) if kept.ties == made.ties]
        if not same:
            journal.kept.append(made)
        elif made.loss < journal.kept[same[0]].loss and journal.kept[same[0]].parent == made.parent:
            journal.kept[same[0]] = made

    def right_enough(self, theta_P: Tensor) -> bool:
        """Whether θ [P] of the base gets the share right that was asked for, of all our own problems."""
        wrong, total = self.wrong(theta_P)
        return wrong <= (1 - self.settings.accept) * total

    def wrong(self, theta_P: Tensor) -> tuple[int, int]:
        """How many selection problems and others of our own θ [P] of the base adds wrongly, and of all."""
        return self.exam.wrong(theta_P)


def _of_base(spec: Spec, theta_P: Tensor) -> Tensor:
    """θ of the base, of any spec's."""
    return spec.spread(theta_P[None])[0] if isinstance(spec, Tied) else theta_P
