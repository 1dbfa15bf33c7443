"""Judging: what is known of every pair of a bank, and what becomes of its seeds at an evaluation.

Axes: N pair, L pair that was just evaluated, E evaluation, M measure, R probe, P parameters. Tensors are on
the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from model.spec import Spec
from trainer.bank.futility import FutilityRule, full_length_from, is_control, progress_of
from trainer.recipe import Pair, Recipe, Seed, weight_decay
from trainer.recipe.outcomes import MEASURES, Outcome
from trainer.recipe.screen import BEST, PROBE, Rung
from trainer.step.schedule import hyper_of

OUTCOMES = list(Outcome)
QUEUED, RUNNING = OUTCOMES.index(Outcome.QUEUED), OUTCOMES.index(Outcome.RUNNING)
GROKKED, FAILED = OUTCOMES.index(Outcome.GROKKED), OUTCOMES.index(Outcome.FAILED)
DIVERGED, GIVEN_UP = OUTCOMES.index(Outcome.DIVERGED), OUTCOMES.index(Outcome.GIVEN_UP)
CENSORED, SCREENED = OUTCOMES.index(Outcome.CENSORED), OUTCOMES.index(Outcome.SCREENED)
BY_EVALUATION = ("curve", "probes")
"""The records that have a row an evaluation."""


@dataclass(frozen=True)
class Result:
    """One pair as far as it got. Accuracies are fractions of the 5,000 selection problems."""

    pair: Pair
    outcome: Outcome
    steps: int
    grok_step: int | None
    held: bool
    hopeless_step: int | None
    """The first evaluation at which the rule called the seed hopeless. A spared one ran on."""
    best_step: int
    best_exact: float
    best_token: float
    theta_P: Tensor
    """θ at `best_step`: the evaluation with the highest exact match and, among those, the lowest loss."""
    curve_EM: Tensor
    """One row an evaluation, columns MEASURES; evaluation i was made after (i + 1) · eval_every steps."""
    screen: str | None = None
    """The first rung that would end the seed, as it is spelt. A spared one ran on."""
    probes_ER: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    """What the spec's probes read at each evaluation, a column a probe."""


class SeedTracker:
    """Keeps the records of a bank's pairs, one row a pair in each of `records`. probes: their names."""

    def __init__(
        self, pairs: Sequence[Pair], spec: Spec, rule: FutilityRule | None, probes: Sequence[str] = ()
    ):
        self.pairs, self.rule, self.probes = list(pairs), rule, tuple(probes)
        self.eval_every = pairs[0].recipe.eval_every
        self.limits = hyper_of([p.recipe for p in pairs], spec.layout)
        if pairs[0].ties is not None:
            self.limits["ties"] = torch.tensor([p.ties for p in pairs])
        self.spared_N = torch.tensor([is_control(p.seed) for p in pairs])
        self.taught_N = torch.tensor([full_length_from(p.recipe.curriculum) for p in pairs])
        self.counts_from_N = torch.tensor([p.counts_from for p in pairs])
        self.ends_N = torch.tensor([p.ends for p in pairs])
        # the rule was measured on seeds that begin at random, once, and are what was asked for from the start
        self.ruled_N = torch.tensor(
            [p.start is None and p.counts_from == 0 and not p.recipe.again_at for p in pairs]
        )
        count = len(pairs)
        evaluations = max(p.recipe.steps // p.recipe.eval_every for p in pairs)
        self.records = {
            "outcome": torch.full((count,), QUEUED, dtype=torch.int8),
            "held": torch.zeros(count, dtype=torch.bool),
            "best": torch.tensor([[-1.0, 0.0, torch.inf]]).repeat(count, 1),  # exact, token, loss
            "best_theta": torch.zeros(count, spec.params),
            "curve": torch.full((count, evaluations, len(MEASURES)), torch.nan),
            "probes": torch.full((count, evaluations, len(self.probes)), torch.nan),
            "waiting": torch.zeros(count, dtype=torch.bool),  # at a rung, for the rest of its group
            "ranked_by": torch.full((count,), torch.nan),
        }
        for name in ("steps", "best_step", "rungs_passed"):
            self.records[name] = torch.zeros(count, dtype=torch.int64)
        for name in ("grok_step", "perfect_since", "hopeless_step", "screened_by"):
            self.records[name] = torch.full((count,), -1)

    def queued(self) -> list[int]:
        """The pairs that a slot may take: not begun yet, or between slots."""
        r = self.records
        return ((r["outcome"] == QUEUED) & ~r["waiting"]).nonzero().flatten().tolist()

    def add(self, other: SeedTracker) -> None:
        """Keep the records of another judge's pairs too, behind those that are here."""
        self.pairs += other.pairs
        self.limits = {k: torch.cat([t, other.limits[k]]) for k, t in self.limits.items()}
        self.spared_N = torch.cat([self.spared_N, other.spared_N])
        self.taught_N = torch.cat([self.taught_N, other.taught_N])
        self.counts_from_N = torch.cat([self.counts_from_N, other.counts_from_N])
        self.ends_N = torch.cat([self.ends_N, other.ends_N])
        self.ruled_N = torch.cat([self.ruled_N, other.ruled_N])
        longest = max(j.records["curve"].shape[1] for j in (self, other))
        for judge in (self, other):
            judge.records |= {k: _evaluations(judge.records[k], longest) for k in BY_EVALUATION}
        self.records = {k: torch.cat([t, other.records[k]]) for k, t in self.records.items()}

    def restore(self, numbers: Sequence[int], records: dict[str, Tensor]) -> None:
        """Take pairs' records as they were saved. Whoever was running waits for a slot."""
        mine_L = torch.tensor(list(numbers))
        longest = self.records["curve"].shape[1]
        saved = records | {k: _evaluations(records[k], longest) for k in BY_EVALUATION}
        for name, t in saved.items():
            self.records[name][mine_L] = t
        outcome_L = self.records["outcome"][mine_L]
        self.records["outcome"][mine_L] = torch.where(outcome_L == RUNNING, QUEUED, outcome_L).to(torch.int8)

    def censor(self, numbers: Sequence[int]) -> list[int]:
        """End pairs from outside. Returns those that had not ended."""
        outcomes = self.records["outcome"]
        open_ = [n for n in numbers if int(outcomes[n]) in (QUEUED, RUNNING)]
        outcomes[open_] = CENSORED
        self.records["waiting"][open_] = False
        return open_

    def record_evaluation(
        self,
        pair_L: Tensor,
        step_L: Tensor,
        measures_LM: Tensor,
        theta_LP: Tensor,
        finite_L: Tensor,
        probes_LR: Tensor | None = None,
    ) -> Tensor:
        """Record an evaluation of running pairs. Returns which of them leave their slots [L] (bool): they
        have ended, or are queued, since a rung has them wait for their group.
        """
        r = self.records
        r["steps"][pair_L] = step_L
        r["curve"][pair_L, step_L // self.eval_every - 1] = measures_LM
        if probes_LR is not None:
            r["probes"][pair_L, step_L // self.eval_every - 1] = probes_LR.float()
        fit_L = finite_L & (step_L >= self.counts_from_N[pair_L])  # before, θ is not yet what was asked for
        self._record_best(pair_L[fit_L], step_L[fit_L], measures_LM[fit_L], theta_LP[fit_L])
        self._record_perfect(pair_L[fit_L], step_L[fit_L], measures_LM[fit_L, 0] == 1.0)
        grokked_L, spent_L = r["grok_step"][pair_L] >= 0, step_L >= self.ends_N[pair_L]
        given_up_L = self._hopeless(pair_L, step_L, finite_L & ~grokked_L & ~spent_L)
        outcome_L = torch.where(spent_L, FAILED, GIVEN_UP)
        outcome_L = torch.where(finite_L, outcome_L, DIVERGED)
        outcome_L = torch.where(grokked_L, GROKKED, outcome_L)  # whoever was perfect once, whatever followed
        ended_L = ~finite_L | r["held"][pair_L] | spent_L | given_up_L
        r["outcome"][pair_L] = torch.where(ended_L, outcome_L, RUNNING).to(torch.int8)
        if any(self.pairs[n].rungs for n in pair_L.tolist()):
            self._screen(pair_L[~ended_L & ~grokked_L].tolist())
        return r["outcome"][pair_L] != RUNNING

    def _record_best(self, pair_L: Tensor, step_L: Tensor, measures_LM: Tensor, theta_LP: Tensor) -> None:
        best_L3 = self.records["best"][pair_L]
        exact_L, token_L, loss_L = measures_LM[:, :3].unbind(1)
        tie_L = (exact_L == best_L3[:, 0]) & (loss_L < best_L3[:, 2])
        better_L = (exact_L > best_L3[:, 0]) | tie_L
        best_L3[:, 0] = torch.where(better_L, exact_L, best_L3[:, 0])
        best_L3[:, 1] = torch.maximum(token_L, best_L3[:, 1])
        best_L3[:, 2] = torch.where(better_L, loss_L, best_L3[:, 2])
        self.records["best"][pair_L] = best_L3
        self.records["best_step"][pair_L[better_L]] = step_L[better_L]
        self.records["best_theta"][pair_L[better_L]] = theta_LP[better_L]

    def _record_perfect(self, pair_L: Tensor, step_L: Tensor, perfect_L: Tensor) -> None:
        """The grok step, and whether a seed has been perfect for `hold` steps since."""
        r = self.records
        for name, otherwise_L in (("grok_step", r["grok_step"][pair_L]), ("perfect_since", -1)):
            first_L = torch.where(r[name][pair_L] < 0, step_L, r[name][pair_L])
            r[name][pair_L] = torch.where(perfect_L, first_L, otherwise_L)
        since_L = r["perfect_since"][pair_L]
        r["held"][pair_L] |= (since_L >= 0) & (step_L - since_L >= self.limits["hold"][pair_L])

    def needs_finishing(self, pair_L: Tensor, now: int = FAILED) -> list[int]:
        """Those of some pairs that have spent their budget and are to be finished. Until then they have not
        ended, and wait for no slot. now: as what they are known; read from a state they are queued.
        """
        r, from_L = self.records, self.limits["finish_above"][pair_L]
        spent_L = (r["steps"][pair_L] >= self.ends_N[pair_L]) & (r["grok_step"][pair_L] < 0)
        near_L = spent_L & (r["outcome"][pair_L] == now) & (from_L < 1) & (r["best"][pair_L, 0] >= from_L)
        found = [n for n in pair_L[near_L].tolist() if not self.pairs[n].wide]
        r["outcome"][found] = RUNNING
        return found

    def finish(self, n: int, measures_M: Tensor, theta_P: Tensor) -> None:
        """Have what a spent pair was taken to, if it is better: who is perfect then has grokked at its last
        step. The curve stays that of the training.
        """
        r, pair_L, grokked = self.records, torch.tensor([n]), bool(measures_M[0] == 1.0)
        self._record_best(pair_L, r["steps"][pair_L], measures_M[None], theta_P[None])
        r["outcome"][n] = GROKKED if grokked else FAILED
        if grokked:
            r["grok_step"][n] = r["steps"][n]

    def _hopeless(self, pair_L: Tensor, step_L: Tensor, open_L: Tensor) -> Tensor:
        """Which pairs are given up now [L]; of all that are called hopeless the first such step is kept."""
        if self.rule is None:
            return torch.zeros_like(open_L)
        r = self.records
        progress_L = progress_of(step_L, self.taught_N[pair_L], self.limits["steps"][pair_L])
        called_L = open_L & self.rule.is_futile(progress_L, r["best"][pair_L, 0], r["best"][pair_L, 1])
        called_L &= self.ruled_N[pair_L]
        earlier_L = r["hopeless_step"][pair_L]
        r["hopeless_step"][pair_L] = torch.where(called_L & (earlier_L < 0), step_L, earlier_L)
        return called_L & ~self.spared_N[pair_L]

    def _screen(self, numbers: Sequence[int]) -> None:
        """Have running pairs, which have not grokked, pass the rungs that they have come to."""
        r = self.records
        groups: dict[tuple[Recipe, Seed | None], None] = {}
        for n in numbers:
            while (rung := self._rung(n)) and r["outcome"][n] == RUNNING and not r["waiting"][n]:
                values = self.values(n)
                if rung.top:
                    r["waiting"][n], r["outcome"][n], r["ranked_by"][n] = True, QUEUED, values[rung.by]
                else:
                    self._pass(n, rung.keeps(values))
        for n in range(len(self.pairs)):
            if r["waiting"][n]:
                groups[self.pairs[n].recipe, self.pairs[n].group] = None
        for recipe, group in groups:
            self._rank([n for n, p in enumerate(self.pairs) if (p.recipe, p.group) == (recipe, group)])

    def _rung(self, n: int) -> Rung | None:
        """The rung at which a pair is, if it is at one."""
        rungs, passed = self.pairs[n].rungs, int(self.records["rungs_passed"][n])
        here = passed < len(rungs) and rungs[passed].at <= int(self.records["steps"][n])
        return rungs[passed] if here else None

    def values(self, n: int) -> dict[str, float]:
        """What rungs and redraws may ask of a pair: its best measures so far, and its probes as they were
        last.
        """
        read = self.records["probes"][n, int(self.records["steps"][n]) // self.eval_every - 1]
        best = self.records["best"][n, : len(BEST)].tolist()
        return dict(zip(BEST, best, strict=True)) | dict(zip(self.probes, read.tolist(), strict=True))

    def _pass(self, n: int, kept: bool) -> None:
        """A pair passes the rung that it is at, or is ended there; the first that would end it is kept."""
        r = self.records
        if not kept and r["screened_by"][n] < 0:
            r["screened_by"][n] = r["rungs_passed"][n]
        r["rungs_passed"][n] += 1
        if not kept and not self.spared_N[n]:
            r["outcome"][n] = SCREENED

    def _rank(self, members: Sequence[int]) -> None:
        """Decide about a group once each member waits, has ended or has grokked: nothing else is looked at,
        so slots, company and interruptions change nothing. Whoever goes on takes a slot as any other pair.
        """
        r = self.records
        waiting = [n for n in members if r["waiting"][n]]
        on_its_way = (r["outcome"][members] == QUEUED) | (r["outcome"][members] == RUNNING)
        if bool((on_its_way & ~r["waiting"][members] & (r["grok_step"][members] < 0)).any()):
            return
        rung = self._rung(waiting[0])
        assert rung is not None
        best = rung.best_of({n: float(r["ranked_by"][n]) for n in waiting})
        for n in waiting:
            r["waiting"][n] = False
            self._pass(n, n in best)

    def scales(
        self, pair_L: Tensor, measures_LM: Tensor, wd_L: Tensor, mix_L: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What follows the measures: the factors of weight decay and of the carry problems' share [L].

        trainer/recipe/weight_decay.py has that of decay; the share falls while token accuracy is high (57p paper,
        section 3.2).
        """
        h = {name: t[pair_L] for name, t in self.limits.items()}
        exact_L, token_L = measures_LM[:, 0], measures_LM[:, 1]
        left_L = (h["fade_token_end"] - token_L) / (h["fade_token_end"] - h["fade_token"]).clamp(min=1e-9)
        mix_L = torch.where(h["fade_token"] < 1, left_L.clamp(0, 1), mix_L)
        return weight_decay.scale(wd_L, exact_L, token_L, h, self.eval_every), mix_L

    def newest(self) -> list[dict[str, Any]]:
        """A row a pair: outcome, step, grok step, best exact match; MEASURES and probes as they were last."""
        r = self.records
        last_N = (r["steps"] // self.eval_every - 1).clamp(min=0)
        measures_NM = r["curve"][torch.arange(len(self.pairs)), last_N]
        measures_NM = torch.where((r["steps"] > 0)[:, None], measures_NM, 0.0)
        probes_NR = r["probes"][torch.arange(len(self.pairs)), last_N]
        read = (f"{PROBE}{name}" for name in self.probes)
        names = ("outcome", "step", "grok_step", "best_exact", *MEASURES, *read)
        exact = r["best"][:, 0].clamp(min=0).tolist()
        columns = (r["outcome"].tolist(), r["steps"].tolist(), r["grok_step"].tolist(), exact)
        rows = zip(*columns, *measures_NM.T.tolist(), *probes_NR.T.tolist(), strict=True)
        return [
            dict(zip(names, (OUTCOMES[outcome].value, step, grok if grok >= 0 else None, *rest), strict=True))
            for outcome, step, grok, *rest in rows
        ]

    def result(self, n: int) -> Result:
        """The n-th pair as far as it got."""
        r = {name: t[n] for name, t in self.records.items()}

        def step(name: str) -> int | None:
            return int(r[name]) if r[name] >= 0 else None

        return Result(
            pair=self.pairs[n],
            outcome=OUTCOMES[int(r["outcome"])],
            steps=int(r["steps"]),
            grok_step=step("grok_step"),
            held=bool(r["held"]),
            hopeless_step=step("hopeless_step"),
            best_step=int(r["best_step"]),
            best_exact=max(float(r["best"][0]), 0.0),
            best_token=float(r["best"][1]),
            theta_P=r["best_theta"],
            curve_EM=r["curve"][: int(r["steps"]) // self.eval_every],
            screen=str(self.pairs[n].rungs[by]) if (by := int(r["screened_by"])) >= 0 else None,
            probes_ER=r["probes"][: int(r["steps"]) // self.eval_every],
        )


def _evaluations(curve_NEM: Tensor, count: int) -> Tensor:
    """Curves with room for so many evaluations."""
    more = torch.full((len(curve_NEM), max(0, count - curve_NEM.shape[1]), curve_NEM.shape[2]), torch.nan)
    return torch.cat([curve_NEM, more], dim=1)[:, :count]
