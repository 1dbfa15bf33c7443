"""A descent: rounds of sets of ties that curvature proposes, a ramp enters and selection problems accept.

Each round takes one of the smallest sets that were kept, trains the cheapest sets one step or several
further, from its θ with every tie loosened, and keeps those that get enough right. Many are trained briefly,
the best of them in full. Of those that do not hold the best are taken on by curvature (finishing.py).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, zip_longest
from pathlib import Path

import torch
from torch import Tensor

from model.spec import Spec
from model.tied import Ties, project, tie, ties_of
from search.compress.acceptance import AcceptanceSet, of_base
from search.compress.finishing import entered, finished
from search.compress.journal import Journal, Kept, digest
from search.compress.proposals import KINDS, Proposer
from trainer import Bank, Pair, Recipe, Result, Seed
from trainer.recipe.ramp import tie_ramp_defaults

BRIEF = 10  # the part of a set's steps after which it is seen whether it is one of the better
LATE = 0.5  # of `accept`: sets below it some way after the ramp are not trained on
FINISHED = 48  # numbers of a set that is finished at most: a step costs as many passes as there are numbers
SEVERAL = 16  # constraints at once at most, and an eighth of many numbers; up to twice so many are tried
STUCK, LONGEST = 5, 3  # rounds without a gain after which training is longer; how many times at most


@dataclass(frozen=True)
class Settings:
    """How a descent goes. proposals: sets of a round; screen: how many times as many are trained for a tenth
    of the steps first, of which those with the lowest loss go on; seeds: data seeds of each set, fresh ones
    every round; patience: rounds that may pass without a smaller set; accept: the share that a set must get
    right, of the selection problems and of others of our own; finish: how many sets of a round that do not
    hold are taken on by curvature.
    """

    kinds: tuple[str, ...] = KINDS
    reach: str = "values"
    proposals: int = 12
    screen: int = 24
    patience: int = 40
    seeds: int = 1
    first_seed: int = 1
    steps: int = 3_000
    ramp: int = 1_500
    lr: float = 0.003
    problems: int = 1_024
    accept: float = 1.0
    finish: int = 4

    def brief(self) -> Recipe:
        """The recipe of a first look at a set."""
        steps = max(2, self.steps // BRIEF)
        briefly = {"ramp": self.ramp * steps // self.steps, "lr": self.lr, "eval_every": steps}
        return Recipe(**tie_ramp_defaults(steps) | briefly)

    def recipe(self, times: int = 1) -> Recipe:
        """The recipe of a set, so many times as long as was asked for."""
        usual = tie_ramp_defaults(times * self.steps) | {"ramp": times * self.ramp, "lr": self.lr}
        return Recipe(**usual | {"eval_every": tie_ramp_defaults(self.steps)["eval_every"]})


@dataclass(frozen=True)
class Round:
    """What a round did: how many sets were tried, what each reached (numbers, exact), what was kept."""

    number: int
    parent: Kept
    reached: list[tuple[int, float]]
    kept: list[int]


class Descent:
    """A descent from one θ, or of several side by side, as far as its journal has it."""

    def __init__(
        self, spec: Spec, theta_P: Tensor, settings: Settings, folder: Path, beside: Sequence[Tensor] = ()
    ):
        """beside: other θ [P] of the spec, which must bear every set too.

        Raises ValueError where a start does not get everything right, or the journal is of another.
        """
        self.base, ties = ties_of(spec)
        self.exam = AcceptanceSet(self.base)
        self.settings, self.folder, self.deadline = settings, folder, float("inf")
        thetas = b"".join(t.numpy().tobytes() for t in (theta_P, *beside))
        origin = hashlib.sha256(thetas + repr((self.base.family, ties)).encode()).hexdigest()
        journal = Journal.read(folder)
        if journal is not None and journal.origin != origin:
            raise ValueError(f"{folder}: holds a descent from another checkpoint")
        self.journal = journal or Journal(origin, asdict(settings))
        if journal is None:
            starts = [of_base(spec, t) for t in (theta_P, *beside)]
            for start in starts:
                wrong, total = self.wrong(start)
                if wrong > (1 - settings.accept) * total:
                    raise ValueError(
                        f"the start has not grokked: it adds {wrong} of our own problems wrongly"
                    )
            loss = max(float(self.exam.programs.evaluate(start[None])["loss"]) for start in starts)
            first, *others = (start.tolist() for start in starts)
            self.journal.kept.append(Kept(ties, first, spec.params, loss, beside=others))

    def rounds(self) -> Iterator[Round]:
        """Go on until patience, time or what can be proposed has run out."""
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

        None where the smallest set has not shrunk for `patience` rounds, or nothing is left to train.
        """
        journal, kept = self.journal, self.journal.kept
        if journal.rounds - journal.shrunk >= self.settings.patience:
            return None
        left = [n for n in range(len(kept)) if not kept[n].empty]
        return min(left, key=lambda n: (kept[n].numbers + kept[n].visits, kept[n].loss), default=None)

    def _round(self, n: int) -> Round | None:
        """None where time ran out; nothing is kept then."""
        journal, parent = self.journal, self.journal.kept[n]
        start, worked = time.perf_counter(), time.process_time()
        proposed, spent = self._screened(parent, self.settings.proposals)
        parent.empty = not proposed and time.time() < self.deadline
        results = self._train(parent, proposed) if proposed else []
        if results is None:
            return None
        before = len(journal.kept)
        smallest = journal.kept[journal.smallest()].numbers
        exact = [self._judge(n, of_set) for of_set in results]
        if journal.kept[journal.smallest()].numbers == smallest:
            exact = self._finish_best(n, results, exact)
        new = list(range(before, len(journal.kept)))
        self._adapt(parent, new)
        parent.visits += 1
        journal.rounds += 1
        if journal.kept[journal.smallest()].numbers < smallest:
            journal.shrunk = journal.rounds
        journal.seconds += time.perf_counter() - start
        journal.core_seconds += time.process_time() - worked
        journal.seed_steps += spent + sum(r.steps for of_set in results for r in of_set)
        journal.write(self.folder)
        reached = [(_numbers(_ties(of_set)), its) for of_set, its in zip(results, exact, strict=True)]
        return Round(journal.rounds, parent, reached, new)

    def _adapt(self, parent: Kept, new: list[int]) -> None:
        """Take more constraints at once while that works, fewer where it does not."""
        journal = self.journal
        gained = parent.numbers - min((journal.kept[k].numbers for k in new), default=parent.numbers)
        most = max(SEVERAL, parent.numbers // 8)
        journal.several = min(most, 2 * journal.several) if gained >= journal.several else max(2, gained)

    def propose(self, parent: Kept, count: int) -> list[Ties]:
        """So many sets that were not tried: several constraints at once in some, one in others."""
        asked = self.settings
        if parent.numbers < 2:
            return []
        start = torch.tensor(parent.starts[self.journal.rounds % len(parent.starts)])
        proposer = Proposer.around(self.base, parent.ties, start, asked.kinds, asked.reach, asked.problems)
        several, tried = self.journal.several, self.journal.tried
        found = proposer.sets(count, several, tried)
        return found if len(found) == count else proposer.wide.sets(count, several, tried)

    def _screened(self, parent: Kept, count: int) -> tuple[list[Ties], int]:
        """So many sets, those with the lowest loss after a brief training of many, and its seed-steps.

        Sets of as many numbers are compared with each other, and take turns: more numbers have less loss.
        """
        proposed = self.propose(parent, self.settings.screen * count) if count > 0 else []
        if len(proposed) <= count:
            return proposed, 0
        recipe, seed = self.settings.brief(), Seed(0, self.settings.first_seed + self.journal.rounds)
        starts = [tuple(theta) for theta in parent.starts]
        pairs = [Pair(recipe, seed, start, ties) for ties in proposed for start in starts]
        bank = Bank(self.base, pairs, slots=16, futility=None)
        while bank.advance():
            self.watch(bank.seed_steps, recipe.steps * len(pairs))
            if time.time() > self.deadline:
                return [], bank.seed_steps
        by_size: dict[int, list[tuple[float, Ties]]] = {}
        for n, ties in enumerate(proposed):
            of_set = [bank.result(n * len(starts) + k) for k in range(len(starts))]
            self._remember(ties, of_set)
            loss = max(float(r.curve_EM[-1, 2]) for r in of_set)
            by_size.setdefault(_numbers(ties), []).append((loss, ties))
        turns = zip_longest(*(sorted(by_size[size]) for size in sorted(by_size)))
        best = [found[1] for found in chain.from_iterable(turns) if found is not None]
        return best[:count], bank.seed_steps

    def _remember(self, ties: Ties, of_set: Sequence[Result]) -> None:
        tried, exact = self.journal.tried, min(r.best_exact for r in of_set)
        tried[digest(ties)] = max(exact, tried.get(digest(ties), 0.0))

    def _train(self, parent: Kept, proposed: list[Ties]) -> list[list[Result]] | None:
        """Every set with every data seed in one bank: a result for each start; None where time ran out."""
        journal, asked = self.journal, self.settings
        recipe = asked.recipe(min(LONGEST, 1 + (journal.rounds - journal.shrunk) // STUCK))
        seeds = [Seed(0, asked.first_seed + journal.rounds * asked.seeds + n) for n in range(asked.seeds)]
        starts = [tuple(theta) for theta in parent.starts]
        pairs = [Pair(recipe, s, start, ties) for ties in proposed for s in seeds for start in starts]
        bank = Bank(self.base, pairs, slots=16, futility=None)
        while bank.advance():
            self.watch(bank.seed_steps, recipe.steps * len(pairs))
            if time.time() > self.deadline:
                return None
            bank.end(self._late(bank, recipe))
        results = [bank.result(n) for n in range(len(pairs))]
        return [results[n : n + len(starts)] for n in range(0, len(results), len(starts))]

    def _late(self, bank: Bank, recipe: Recipe) -> list[int]:
        """The sets that are nowhere a third of the way from the ramp's end to the end."""
        since = recipe.ramp + (recipe.steps - recipe.ramp) // 3
        least = LATE * self.settings.accept
        return [
            n for n, row in enumerate(bank.newest())
            if row["step"] >= since and row["best_exact"] < least
        ]  # fmt: skip

    watch: Callable[[int, int], None] = staticmethod(lambda done, of: None)

    def _judge(self, n: int, of_set: list[Result]) -> float:
        """Remember what a set reached from every start, and keep it where that is enough. The exact match."""
        self._remember(_ties(of_set), of_set)
        exact = min(r.best_exact for r in of_set)
        if exact >= self.settings.accept and all(self.right_enough(r.theta_P) for r in of_set):
            loss = max(_loss(r) for r in of_set)
            self._keep(n, of_set, [r.theta_P for r in of_set], loss, finished=False)
        return exact

    def _finish_best(self, n: int, results: list[list[Result]], exact: list[float]) -> list[float]:
        """Take some of the smaller sets that did not hold on by curvature, and keep those that hold then.
        What each set has reached now.
        """
        journal, asked, reached = self.journal, self.settings, list(exact)
        parent, seed = journal.kept[n], journal.rounds
        for k, far in self._to_finish(parent, results, exact)[: asked.finish]:
            if time.time() > self.deadline:
                break
            ties, starts = _ties(results[k]), [r.theta_P for r in results[k]]
            if far:
                thetas = [torch.tensor(theta) for theta in parent.starts]
                starts = [entered(self.exam, parent.ties, ties, theta_P, seed) for theta_P in thetas]
            made = [finished(self.exam, ties, theta_P, seed, parent.loss) for theta_P in starts]
            wrong = max(its.wrong for its in made)
            reached[k] = max(exact[k], 1 - wrong / self.exam.size)
            journal.tried[digest(ties)] = max(reached[k], journal.tried[digest(ties)])
            if wrong <= (1 - asked.accept) * self.exam.size:
                loss = max(its.loss for its in made)
                self._keep(n, results[k], [its.theta_P for its in made], loss, finished=True)
        return reached

    def _to_finish(
        self, parent: Kept, results: list[list[Result]], exact: list[float]
    ) -> list[tuple[int, bool]]:
        """Which sets may be finished, in order, and whether they are entered anew, from the parent's θ.

        Those that training brought half the way come first, the lowest loss first, and go on from where they
        are. It has lost the others: of these the largest come first.
        """
        kept = {k.ties for k in self.journal.kept}
        smaller = [
            (exact[k] < LATE * self.settings.accept, k) for k, of_set in enumerate(results)
            if _numbers(_ties(of_set)) < min(parent.numbers, FINISHED + 1) and _ties(of_set) not in kept
        ]  # fmt: skip
        near = sorted((max(_loss(r) for r in results[k]), k) for far, k in smaller if not far)
        lost = sorted((-_numbers(_ties(results[k])), k) for far, k in smaller if far)
        return [(k, False) for _, k in near] + [(k, True) for _, k in lost]

    def _keep(
        self, parent: int, of_set: list[Result], thetas: list[Tensor], loss: float, finished: bool
    ) -> None:
        """Keep a set, the better where it has two from one parent."""
        journal, ties, seed = self.journal, _ties(of_set), of_set[0].pair.seed.data_seed
        first, *beside = (theta_P.tolist() for theta_P in thetas)
        made = Kept(ties, first, _numbers(ties), loss, parent, seed, beside=beside, finished=finished)
        same = [k for k, kept in enumerate(journal.kept) if kept.ties == ties]
        if not same:
            journal.kept.append(made)
        elif loss < journal.kept[same[0]].loss and journal.kept[same[0]].parent == parent:
            journal.kept[same[0]] = made

    def right_enough(self, theta_P: Tensor) -> bool:
        """Whether θ [P] of the base gets the share right that was asked for, of all our own problems."""
        wrong, total = self.wrong(theta_P)
        return wrong <= (1 - self.settings.accept) * total

    def wrong(self, theta_P: Tensor) -> tuple[int, int]:
        """How many selection problems and others of our own θ [P] of the base adds wrongly, and of all."""
        return self.exam.wrong(theta_P)


def _ties(of_set: list[Result]) -> Ties:
    ties = of_set[0].pair.ties
    assert ties is not None
    return ties


def _loss(its: Result) -> float:
    """Of its best evaluation."""
    return float(its.curve_EM[its.best_step // its.pair.recipe.eval_every - 1, 2])


def _numbers(ties: Ties) -> int:
    return max(map(abs, ties), default=0)
