"""A descent in this process, in a folder: rounds of candidates that one bank trains.

Many candidates are trained briefly, the best of them in full, by a ramp from their parent's θ with every tie
loosened. Of those that do not hold the best are taken on by curvature (finishing.py). The smallest becomes a
checkpoint, with its provenance.
"""

import hashlib
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice, pairwise, zip_longest
from math import isnan
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from adders.acceptance import own_theta
from compress.candidates import TieCandidate, lineage_of
from compress.descent import Descent, Training
from compress.finishing import finish_candidate, project_by_curvature
from compress.journal import Journal
from compress.proposers import Rules
from compress.ties import describe_change, tie_ramp_defaults
from model import Verification
from model.spec import Spec
from model.tied import Tied, count, tie, ties_of
from trainer import Bank, Pair, Recipe, Result, Seed
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.files.installed import code_version

SLOTS = 16
OURS = ("model", "trainer", "search", "adders", "compress", "own_modules")
AGAIN_S = 0.01
PREVIEW = 10  # the part of a candidate's steps after which it is seen whether it is one of the better
LATE = 0.5  # of `accept`: candidates below it some way after the ramp are not trained on
FINISHED = 48  # numbers of a candidate that is finished at most: a step costs as many passes
STUCK = 5  # rounds without a gain after which training is longer
LONGEST = 3  # times as long at most


@dataclass(frozen=True, kw_only=True)
class Settings(Rules):
    """Rules of a descent, and how its candidates are trained.

    preview: so many times as many candidates are trained for a tenth of the steps first; those with the lowest
    loss go on. seeds: data seeds of each candidate, fresh ones every round. finish: candidates of a
    round that do not hold and are finished by curvature.
    """

    preview: int = 24
    seeds: int = 1
    first_seed: int = 1
    steps: int = 3_000
    ramp: int = 1_500
    lr: float = 0.003
    finish: int = 4

    def preview_recipe(self) -> Recipe:
        """Return the recipe of a first look at a candidate."""
        steps = max(2, self.steps // PREVIEW)
        fields = {
            "ramp": self.ramp * steps // self.steps,
            "lr": self.lr,
            "eval_every": steps,
        }
        return Recipe(**tie_ramp_defaults(steps) | fields)

    def recipe(self, times: int = 1) -> Recipe:
        """Return the recipe of a candidate, so many times as long as was asked for."""
        fields = {"ramp": times * self.ramp, "lr": self.lr}
        eval_every = tie_ramp_defaults(self.steps)["eval_every"]
        return Recipe(**tie_ramp_defaults(times * self.steps) | fields | {"eval_every": eval_every})


class OutOfTime(Exception):
    """The time that a descent has is over."""


alarm = SimpleNamespace(is_deferred=False)
"""While true, `time_limit` does not interrupt. Blocking the signal would only deliver it to another thread."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """End the block after so many seconds, as Ctrl-C would. None: let it end by itself.

    It ends where code of ours is at work: an import of others that is cut off cannot be done again.
    """

    def ring(_: int, frame: FrameType | None) -> None:
        if not alarm.is_deferred and frame and frame.f_globals["__name__"].partition(".")[0] in OURS:
            raise OutOfTime
        # Not now: ring again shortly.
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)

    before = signal.signal(signal.SIGALRM, ring)
    alarm.is_deferred = False
    try:
        with suppress(OutOfTime):
            if seconds is not None:
                signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class LocalDescent:
    """A descent from one θ, or of several side by side, as far as its folder has it."""

    on_progress: Callable[..., None] = staticmethod(lambda text, done=0, total=None: None)
    """Called with the present stage, and while a bank trains also with seed-steps done and in all."""

    def __init__(self, spec: Spec, thetas: Sequence[Tensor], settings: Settings, folder: Path):
        """Begin at `thetas` [P] of the spec, or continue. Every candidate must hold from each of several thetas.

        Raises ValueError where a θ does not get enough right, or the folder's descent is of another one.
        """
        self.base, ties = ties_of(spec)
        self.settings = settings
        self.folder = folder
        self.is_late = False
        bits = b"".join(theta_P.numpy().tobytes() for theta_P in thetas)
        model = repr((self.base.family, ties)).encode()
        origin = hashlib.sha256(bits + model).hexdigest()
        self.journal = Journal(folder, self.base, origin, asdict(settings))
        self.descent = Descent(self.journal, settings)
        if not self.descent.candidates:
            self.descent.begin([(spec, thetas, ())])

    def rounds(self) -> Iterator[list[TieCandidate]]:
        """Yield the judged candidates of each round, until patience or proposals have run out.

        Where `time_limit` ends a round before it is judged, nothing of it is written.
        """
        while not (self.is_late or self.descent.is_over) and (candidates := self._round()):
            yield candidates

    def _round(self) -> list[TieCandidate]:
        """Return none if nothing is left to propose. Nothing is written then."""
        descent = self.descent
        journal = self.journal
        settings = self.settings
        start = time.perf_counter()
        cpu_start = time.process_time()
        self.on_progress("proposing sets")
        proposals, preview_steps = self._preview(descent.propose(settings.preview * settings.proposals))
        if not proposals:
            return []
        results = self._train(proposals)
        candidates = descent.add(proposals)
        try:
            self._judge(candidates, results)
            alarm.is_deferred = True  # until the judged round is written
        except OutOfTime:  # sets that are not judged then count as not tried
            self.is_late = True
            for candidate in descent.candidates[candidates[0].number :]:
                if candidate.reached is None:
                    # The preview noted it.
                    descent.progress.tried.pop(candidate.digest, None)
        journal.seconds += time.perf_counter() - start
        journal.core_seconds += time.process_time() - cpu_start
        journal.seed_steps += preview_steps
        journal.seed_steps += sum(r.steps for of_set in results for of_seed in of_set for r in of_seed)
        descent.end_round()
        alarm.is_deferred = False
        return descent.candidates[candidates[0].number :]

    def _judge(self, candidates: list[TieCandidate], results: list[list[list[Result]]]) -> None:
        """Judge a round by its results, and finish some of it if nothing has shrunk."""
        descent = self.descent
        best = dict[int, Training]()
        smallest = self.descent.smallest.numbers
        for candidate, of_set in zip(candidates, results, strict=True):
            trainings = [_training(of_seed) for of_seed in of_set]
            best[candidate.number] = min(trainings, key=lambda t: (-t.exact, t.loss))
            descent.judge(candidate, best[candidate.number].exact, trainings)
        if descent.smallest.numbers == smallest:
            self._finish_best(best)

    def _preview(self, proposals: list[TieCandidate]) -> tuple[list[TieCandidate], int]:
        """Return a round of those with the lowest loss after a brief training, and its seed-steps.

        Sets of as many numbers are compared with each other, and take turns: more numbers have less loss.
        """
        count = self.settings.proposals
        rounds = self.descent.progress.rounds
        if len(proposals) <= count:
            return proposals, 0
        recipe = self.settings.preview_recipe()
        seed = Seed(0, self.settings.first_seed + rounds)
        bank = self._bank(proposals, [seed], recipe)
        while bank.advance():
            self.on_progress("a first look", bank.seed_steps, recipe.steps * len(bank.pairs))
        by_size: dict[int, list[tuple[float, TieCandidate]]] = {}
        for candidate, (results,) in zip(proposals, self._results(bank, proposals, 1), strict=True):
            self.descent.progress.note(candidate.digest, min(r.best_exact for r in results))
            loss = max(float(r.curve_EM[-1, 2]) for r in results)
            by_size.setdefault(candidate.numbers, []).append((loss, candidate))
        for rows in by_size.values():
            rows.sort(key=lambda row: (isnan(row[0]), row[0], row[1].ties))
        in_order = [by_size[size] for size in sorted(by_size)]
        turns = chain.from_iterable(zip_longest(*in_order))
        better = [row[1] for row in turns if row is not None]
        return better[:count], bank.seed_steps

    def _train(self, proposals: list[TieCandidate]) -> list[list[list[Result]]]:
        """Train every candidate with every data seed in one bank, from every start.

        Returns results by candidate, data seed and start.
        """
        settings = self.settings
        progress = self.descent.progress
        without_gain = progress.rounds - progress.last_gain
        recipe = settings.recipe(min(LONGEST, 1 + without_gain // STUCK))
        first = settings.first_seed + progress.rounds * settings.seeds
        seeds = [Seed(0, first + n) for n in range(settings.seeds)]
        bank = self._bank(proposals, seeds, recipe)
        while bank.advance():
            self.on_progress("training", bank.seed_steps, recipe.steps * len(bank.pairs))
            bank.end(self._lost(bank, recipe))
        return self._results(bank, proposals, settings.seeds)

    def _bank(self, proposals: list[TieCandidate], seeds: list[Seed], recipe: Recipe) -> Bank:
        """Return a bank of every candidate with every data seed, from every start, in this order."""
        pairs = [
            Pair(recipe, seed, theta, candidate.ties)
            for candidate in proposals
            for seed in seeds
            for theta in self.descent.parent_of(candidate).thetas
        ]
        return Bank(self.base, pairs, slots=SLOTS)

    def _results(self, bank: Bank, proposals: list[TieCandidate], seeds: int) -> list[list[list[Result]]]:
        """Return a bank's results by candidate, data seed and start, in the order of `_bank`."""
        pairs = map(bank.result, range(len(bank.pairs)))
        results = list[list[list[Result]]]()
        for candidate in proposals:
            starts = len(self.descent.parent_of(candidate).thetas)
            results.append([list(islice(pairs, starts)) for _ in range(seeds)])
        return results

    def _lost(self, bank: Bank, recipe: Recipe) -> list[int]:
        """Return the pairs that are still far a third of the way from the ramp's end to the last step."""
        since = recipe.ramp + (recipe.steps - recipe.ramp) // 3
        lost = []
        for n, row in enumerate(bank.newest()):
            if row["step"] >= since and self._is_far(row["best_exact"]):
                lost.append(n)
        return lost

    def _is_far(self, exact: float) -> bool:
        return not self.settings.is_enough(exact, LATE)

    def _finish_best(self, trainings: dict[int, Training]) -> None:
        """Finish some of the smaller candidates that did not hold by curvature. trainings: by their numbers."""
        descent = self.descent
        seed = self.descent.progress.rounds
        for n, candidate in enumerate(self._to_finish(trainings)[: self.settings.finish]):
            self.on_progress("finishing", n, self.settings.finish)
            acceptance = descent.acceptance_of(self.base)
            parent = descent.parent_of(candidate)
            training = trainings[candidate.number]
            thetas = list(training.thetas)
            if self._is_far(candidate.reached or 0.0):
                thetas = [
                    project_by_curvature(
                        acceptance,
                        parent.ties,
                        candidate.ties,
                        torch.tensor(theta),
                        seed,
                    )
                    for theta in parent.thetas
                ]
            # A proof looks at the smallest margin, which a lower loss widens.
            until = 0.0 if self.settings.proved else parent.loss or 0.0
            finished = finish_candidate(acceptance, candidate.ties, thetas, seed, until)
            exact = max(candidate.reached or 0.0, finished.exact)
            finished = replace(finished, data_seed=training.data_seed, recipe=training.recipe)
            descent.judge(candidate, exact, [finished])

    def _to_finish(self, trainings: dict[int, Training]) -> list[TieCandidate]:
        """Return the candidates that may be finished, in order.

        Those that training brought half the way come first, by loss, and continue from where they are. The others
        are lost, and start anew from their parent's θ, the largest first.
        """
        near = list[TieCandidate]()
        far = list[TieCandidate]()
        for number in trainings:
            candidate = self.descent.candidates[number]
            parent = self.descent.parent_of(candidate)
            is_smaller = candidate.numbers < parent.numbers and candidate.numbers <= FINISHED
            if is_smaller and not candidate.start:
                (far if self._is_far(candidate.reached or 0.0) else near).append(candidate)

        def rank(candidate: TieCandidate) -> tuple[bool, float, int]:
            loss = trainings[candidate.number].loss
            return isnan(loss), loss, candidate.number  # a loss that is no number comes last

        return sorted(near, key=rank) + sorted(far, key=lambda c: (-c.numbers, c.number))


def _training(results: Sequence[Result]) -> Training:
    """Return the training of a candidate with one data seed, from a result for each start."""
    losses = list[float]()
    for result in results:
        row = result.best_step // result.pair.recipe.eval_every - 1
        losses.append(float(result.curve_EM[row, 2]))
    exact = min(r.best_exact for r in results)
    pair = results[0].pair
    thetas = tuple(r.theta_P for r in results)
    return Training(thetas, exact, max(losses), pair.seed.data_seed, pair.recipe.as_dict())


def to_checkpoint(local: LocalDescent, start: Checkpoint, folds: Sequence[str]) -> Checkpoint:
    """Return the smallest accepted candidate with every step that led to it.

    start: the checkpoint at which the descent began. folds: the folds that led to it.
    """
    descent = local.descent
    smallest = descent.smallest
    spec = tie(local.base, smallest.ties)
    steps = [_step(local, *pair) for pair in pairwise(lineage_of(descent.candidates, smallest.number))]
    provenance = {
        "trained": "from a parent",
        "compressed_from": start.as_origin() | {"folds": list(folds)},
        "descent": steps,
        "sets_tried": len(descent.progress.tried),
        "seed_steps": local.journal.seed_steps,
    }
    seed = {} if smallest.data_seed is None else {"data_seed": smallest.data_seed}
    recipe = dict(smallest.recipe or local.settings.recipe().as_dict())  # older descents recorded none
    return replace(
        start,
        spec=spec,
        theta_P=own_theta(spec, torch.tensor(smallest.thetas[0])),
        recipe=recipe if steps else start.recipe,
        seed=start.seed | seed,
        step=recipe["steps"] if steps else start.step,
        metrics={"best_exact": smallest.reached, "loss": smallest.loss},
        provenance=provenance,
        code=code_version(),
    )


def _step(local: LocalDescent, parent: TieCandidate, candidate: TieCandidate) -> dict[str, Any]:
    """Return a step of a descent, from a parent to a candidate, as provenance records it."""
    loosened, tied = describe_change(local.base, parent.ties, candidate.ties)
    step = {
        "numbers": candidate.numbers,
        "tied": tied,
        "loss": candidate.loss,
        "data_seed": candidate.data_seed,
    }
    if candidate.is_finished:
        step["finished_by"] = "levenberg_marquardt"
    if loosened:
        step["loosened"] = loosened
    return step


def summary(local: LocalDescent, verification: Verification) -> dict[str, Any]:
    """Return the outcome of a descent as plain values, for `--json` and the printed lines."""
    descent = local.descent
    journal = local.journal
    spec = tie(local.base, descent.smallest.ties)
    return {
        "params": spec.params,
        "start": descent.candidates[0].numbers,
        "count": asdict(count(spec)),
        "rounds": descent.progress.rounds,
        "sets_tried": len(descent.progress.tried),
        "kept": Counter(c.numbers for c in descent.accepted),
        "seconds": journal.seconds,
        "core_seconds": journal.core_seconds,
        "seed_steps": journal.seed_steps,
        "ties": spec.spelt() if isinstance(spec, Tied) else [],
        "verification": verification.as_dict(),
    }
