"""The records of a bank's pairs, and the decision at each evaluation which seeds end.

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
from model.tasks import Task
from trainer.outcomes import BEST, MEASURES, Outcome
from trainer.recipe import Pair, weight_decay
from trainer.recipe.seed import is_spared
from trainer.step.schedule import hyper_of
from trainer.stopping import COLUMNS, Rule, Seen

OUTCOMES = list(Outcome)
QUEUED, RUNNING = OUTCOMES.index(Outcome.QUEUED), OUTCOMES.index(Outcome.RUNNING)
GROKKED, FAILED = OUTCOMES.index(Outcome.GROKKED), OUTCOMES.index(Outcome.FAILED)
DIVERGED, CENSORED = OUTCOMES.index(Outcome.DIVERGED), OUTCOMES.index(Outcome.CENSORED)
BY_EVALUATION = ("curve", "probes")
"""The records that have one row per evaluation."""
TABLES = ("hyper", "facts", "records")
"""The attributes of a tracker that have one row per pair."""
# A rule looks at all pairs that it is for in one call: with a thousand slots, a call per pair is what a GPU waits for.
RULE_SETS: list[tuple[Rule, ...]] = []
"""Sets of rules that pairs of this process have had. Pairs are grouped by the place of theirs."""


@dataclass(frozen=True)
class Result:
    """One pair as far as it got. Accuracies are fractions of the 5,000 selection problems."""

    pair: Pair
    outcome: Outcome
    steps: int
    grok_step: int | None
    held: bool
    hopeless_step: int | None
    """The first evaluation at which the rule for hopeless seeds would end the seed. A spared seed ran on."""
    best_step: int
    best_exact: float
    best_token: float
    """The highest token accuracy, perhaps at another evaluation than `best_step`."""
    theta_P: Tensor
    """θ at `best_step`: the evaluation with the highest exact match and, among those, the lowest loss."""
    curve_EM: Tensor
    """One row per evaluation, columns MEASURES; evaluation i was made after (i + 1) · eval_every steps."""
    screen: str | None = None
    """The first rule of the study's own that would end the seed, as it prints itself. A spared seed ran on."""
    stages: str | None = None
    """The stages in which it was trained, as `trainer.recipe.passed` reads them; None without stages."""
    probes_ER: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    """The spec's probes at each evaluation, one column per probe."""


class SeedTracker:
    """Records of a bank's pairs, one row per pair in each tensor of `records`.

    `hyper`: the recipes' hyperparameters; `facts`: what else no step changes. probes: the spec's, by name.
    """

    def __init__(self, pairs: Sequence[Pair], spec: Spec, probes: Sequence[str] = ()):
        self.pairs, self.probes = list(pairs), tuple(probes)
        self.eval_every = pairs[0].recipe.eval_every
        self.hyper = hyper_of([p.recipe for p in pairs], spec.layout)
        if pairs[0].ties is not None:  # all or none have them, since a step with ties is another program
            self.hyper["ties"] = torch.tensor([p.ties for p in pairs])
        self.facts = _facts(pairs, spec)
        self.places = {name: ("curve", column) for column, name in enumerate(MEASURES)}
        self.places |= {name: ("probes", column) for column, name in enumerate(self.probes)}

        count = len(pairs)
        # Pairs of one bank may have budgets of different lengths: rows that a pair never reaches stay NaN.
        evaluations = max(p.recipe.steps // p.recipe.eval_every for p in pairs)
        self.records = {
            "outcome": torch.full((count,), QUEUED, dtype=torch.int8),
            "held": torch.zeros(count, dtype=torch.bool),
            # Exact match, token accuracy, loss. At -1 the first evaluation is better, even with nothing right.
            "best": torch.tensor([[-1.0, 0.0, torch.inf]]).repeat(count, 1),
            "best_theta": torch.zeros(count, spec.params),
            "curve": torch.full((count, evaluations, len(MEASURES)), torch.nan),
            "probes": torch.full((count, evaluations, len(self.probes)), torch.nan),
        }
        for name in ("steps", "best_step"):
            self.records[name] = torch.zeros(count, dtype=torch.int64)
        for name in ("grok_step", "perfect_since"):
            self.records[name] = torch.full((count,), -1)
        # for each of COLUMNS the rule that called a pair first, by its place among the pair's, and the step
        for name in ("called_by", "called_at"):
            self.records[name] = torch.full((count, len(COLUMNS)), -1)

    def queued(self) -> list[int]:
        """Return the pairs that have not begun."""
        return (self.records["outcome"] == QUEUED).nonzero().flatten().tolist()

    def add(self, tracker: SeedTracker) -> None:
        """Append the pairs of another tracker."""
        self.pairs += tracker.pairs
        # Pairs that join may have a longer budget than any before them, or a shorter one.
        longest = max(t.records["curve"].shape[1] for t in (self, tracker))
        for t in (self, tracker):
            t.records |= {name: _evaluations(t.records[name], longest) for name in BY_EVALUATION}
        for name in TABLES:
            ours, theirs = getattr(self, name), getattr(tracker, name)
            joined = {column: torch.cat([ours[column], theirs[column]]) for column in ours}
            setattr(self, name, joined)

    def keep(self, numbers: Sequence[int]) -> None:
        """Remove all other pairs."""
        self.pairs = [self.pairs[n] for n in numbers]
        kept = torch.tensor(list(numbers), dtype=torch.int64)
        for name in TABLES:
            table = getattr(self, name)
            setattr(self, name, {column: tensor[kept] for column, tensor in table.items()})

    def restore(self, n: int, records: dict[str, Tensor]) -> None:
        """Set the records of a pair to saved ones [1, ...]. One that was running waits for a slot."""
        longest = self.records["curve"].shape[1]
        # A state has the evaluations that were made; this table has room for all of the longest pair's.
        saved = records | {k: _evaluations(records[k], longest) for k in BY_EVALUATION}
        for name, table in self.records.items():
            table[n] = saved[name][0]
        if self.records["outcome"][n] == RUNNING:
            self.records["outcome"][n] = QUEUED

    def censor(self, numbers: Sequence[int]) -> list[int]:
        """End pairs from outside. Return those that had not ended."""
        outcomes = self.records["outcome"]
        open_ = [n for n in numbers if int(outcomes[n]) in (QUEUED, RUNNING)]
        outcomes[open_] = CENSORED
        return open_

    def record_evaluation(
        self, pair_L: Tensor, step_L: Tensor, measures_LM: Tensor, theta_LP: Tensor, finite_L: Tensor,
        probes_LR: Tensor,
    ) -> Tensor:  # fmt: skip
        """Record an evaluation of running pairs. Return which of them have ended [L] (bool)."""
        r = self.records
        r["steps"][pair_L] = step_L
        evaluation_L = step_L // self.eval_every - 1
        r["curve"][pair_L, evaluation_L] = measures_LM
        r["probes"][pair_L, evaluation_L] = probes_LR.float()

        # While a ramp into ties goes on, θ is not in its form yet: what it gets right then is no result.
        fit_L = finite_L & (step_L >= self.facts["counts_from"][pair_L])
        fit_pair_L, fit_step_L, fit_measures_LM = pair_L[fit_L], step_L[fit_L], measures_LM[fit_L]
        self._record_best(fit_pair_L, fit_step_L, fit_measures_LM, theta_LP[fit_L])
        perfect_L = fit_measures_LM[:, 0] >= self.hyper["grok_at"][fit_pair_L]
        self._record_perfect(fit_pair_L, fit_step_L, perfect_L)

        grokked_L = r["grok_step"][pair_L] >= 0
        spent_L = step_L >= self.hyper["steps"][pair_L]
        outcome_L = self._apply_rules(pair_L, finite_L & ~grokked_L & ~spent_L)
        ended_L = ~finite_L | r["held"][pair_L] | spent_L | (outcome_L != RUNNING)
        # Later lines win: a seed that grokked and then diverged has grokked.
        outcome_L = torch.where(spent_L, FAILED, outcome_L)
        outcome_L = torch.where(finite_L, outcome_L, DIVERGED)
        outcome_L = torch.where(grokked_L, GROKKED, outcome_L)
        r["outcome"][pair_L] = torch.where(ended_L, outcome_L, RUNNING).to(torch.int8)
        return ended_L

    def _record_best(self, pair_L: Tensor, step_L: Tensor, measures_LM: Tensor, theta_LP: Tensor) -> None:
        best_L3 = self.records["best"][pair_L]
        # The loss decides between equals: for many evaluations no problem, or every one, may be right.
        exact_L, token_L, loss_L = measures_LM[:, :3].unbind(1)
        best_exact_L, _, best_loss_L = best_L3.unbind(1)
        is_tie_L = exact_L == best_exact_L
        better_L = (exact_L > best_exact_L) | (is_tie_L & (loss_L < best_loss_L))

        best_L3[:, 0] = torch.where(better_L, exact_L, best_L3[:, 0])
        best_L3[:, 1] = torch.maximum(token_L, best_L3[:, 1])
        best_L3[:, 2] = torch.where(better_L, loss_L, best_L3[:, 2])
        self.records["best"][pair_L] = best_L3
        self.records["best_step"][pair_L[better_L]] = step_L[better_L]
        self.records["best_theta"][pair_L[better_L]] = theta_LP[better_L]

    def _record_perfect(self, pair_L: Tensor, step_L: Tensor, perfect_L: Tensor) -> None:
        """Set the grok step, and `held` for seeds that have been perfect for `hold` steps since."""
        r = self.records
        grok_step_L = r["grok_step"][pair_L]
        is_first_L = perfect_L & (grok_step_L < 0)
        r["grok_step"][pair_L] = torch.where(is_first_L, step_L, grok_step_L)

        # The grok step stays the first perfect one; holding begins anew after an evaluation that was not perfect.
        since_L = r["perfect_since"][pair_L]
        since_L = torch.where(since_L < 0, step_L, since_L)
        since_L = torch.where(perfect_L, since_L, -1)
        r["perfect_since"][pair_L] = since_L
        has_held_L = step_L - since_L >= self.hyper["hold"][pair_L]
        r["held"][pair_L] |= perfect_L & has_held_L

    def needs_finishing(self, pair_L: Tensor, now: int = FAILED) -> list[int]:
        """Return the pairs that spent their budget above `finish_above`; mark them as running until they are finished.

        now: their outcome so far: FAILED after training, QUEUED after a restore.
        """
        r = self.records
        # Marked as running, since the seed has not come to its end: nobody may report it as failed meanwhile.
        from_L = self.hyper["finish_above"][pair_L]
        spent_L = r["steps"][pair_L] >= self.hyper["steps"][pair_L]
        failed_L = (r["grok_step"][pair_L] < 0) & (r["outcome"][pair_L] == now)
        # At 1, its default, nothing is finished: who has everything right has grokked.
        near_L = (from_L < 1) & (r["best"][pair_L, 0] >= from_L)
        numbers: list[int] = pair_L[spent_L & failed_L & near_L].tolist()
        r["outcome"][numbers] = RUNNING
        return numbers

    def finish(self, n: int, measures_M: Tensor, theta_P: Tensor) -> None:
        """Record the finished θ of a spent pair, if it is better. A perfect one has grokked at its last step.

        The curve stays that of the training.
        """
        r = self.records
        pair_L = torch.tensor([n])
        grokked = bool(measures_M[0] >= self.hyper["grok_at"][n])
        self._record_best(pair_L, r["steps"][pair_L], measures_M[None], theta_P[None])
        r["outcome"][n] = GROKKED if grokked else FAILED
        if grokked:
            r["grok_step"][n] = r["steps"][n]

    def _apply_rules(self, pair_L: Tensor, open_L: Tensor) -> Tensor:
        """Return the outcomes [L] of the pairs that a rule ends now, and RUNNING for others.

        Record which rule called each pair first. open_L: pairs that train on otherwise, and have not grokked.
        """
        outcome_L = torch.full_like(pair_L, RUNNING)
        set_L = self.facts["rules"][pair_L]
        for number in set_L[open_L].unique().tolist():
            for place, rule in enumerate(RULE_SETS[number]):
                # Later rules do not see a pair that an earlier one has ended: a seed has one outcome.
                is_left_L = open_L & (set_L == number) & (outcome_L == RUNNING)
                left = is_left_L.nonzero().flatten()
                if not len(left):
                    break
                seen = Seen(self.pairs, pair_L[left], self.records, self.places, self.eval_every)
                called = left[rule.calls(seen)]
                self._note_call(pair_L[called], place, COLUMNS.index(rule.column))
                # Spared seeds train on, to show what a rule would have cost.
                is_spared = self.facts["is_spared"][pair_L[called]]
                ended = called[~is_spared]
                outcome_L[ended] = OUTCOMES.index(rule.outcome)
        return outcome_L

    def _note_call(self, pair_L: Tensor, place: int, column: int) -> None:
        """Record which of its rules called a pair, and when, unless one with the same column did before."""
        r = self.records
        first_L = pair_L[r["called_by"][pair_L, column] < 0]
        r["called_by"][first_L, column] = place
        r["called_at"][first_L, column] = r["steps"][first_L]

    def _notes(self, n: int) -> dict[str, Any]:
        """Return what each rule's column of a result says of a pair; None where no rule of that column called it."""
        rules = RULE_SETS[int(self.facts["rules"][n])]
        called_by = self.records["called_by"][n].tolist()
        called_at = self.records["called_at"][n].tolist()
        calls = zip(COLUMNS, called_by, called_at, strict=True)
        return {column: rules[by].note(at) if by >= 0 else None for column, by, at in calls}

    def values(self, n: int) -> dict[str, float]:
        """Return a pair's best measures so far and its newest probes, by name, for thresholds of a recipe."""
        newest = int(self.records["steps"][n]) // self.eval_every - 1
        read = self.records["probes"][n, newest].tolist()
        best = self.records["best"][n, : len(BEST)].tolist()
        return dict(zip((*BEST, *self.probes), (*best, *read), strict=True))

    def scales(self, pair_L: Tensor, measures_LM: Tensor, wd_L: Tensor, mix_L: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factors [L] of weight decay and of the carry problems' share after an evaluation.

        Decay's is in trainer/recipe/weight_decay.py; the share falls while token accuracy is high (57p
        paper, section 3.2).
        """
        h = {name: t[pair_L] for name, t in self.hyper.items()}
        exact_L, token_L = measures_LM[:, 0], measures_LM[:, 1]
        # The clamp keeps a recipe whose fade has no length, such as the default, from a division by 0.
        length_L = (h["fade_token_end"] - h["fade_token"]).clamp(min=1e-9)
        left_L = (h["fade_token_end"] - token_L) / length_L
        mix_L = torch.where(h["fade_token"] < 1, left_L.clamp(0, 1), mix_L)
        return weight_decay.scale(wd_L, exact_L, token_L, h, self.eval_every), mix_L

    def newest(self) -> list[dict[str, Any]]:
        """Return one row per pair: outcome, step, grok step and best exact match."""
        r = self.records
        columns = {
            "outcome": [OUTCOMES[n].value for n in r["outcome"].tolist()],
            "step": r["steps"].tolist(),
            "grok_step": [step if step >= 0 else None for step in r["grok_step"].tolist()],
            "best_exact": r["best"][:, 0].clamp(min=0).tolist(),  # -1 until the first evaluation
        }
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def result(self, n: int) -> Result:
        """Return the n-th pair as far as it got."""
        r = {name: t[n] for name, t in self.records.items()}
        evaluations = int(r["steps"]) // self.eval_every
        return Result(
            pair=self.pairs[n],
            outcome=OUTCOMES[int(r["outcome"])],
            steps=int(r["steps"]),
            grok_step=int(r["grok_step"]) if r["grok_step"] >= 0 else None,
            held=bool(r["held"]),
            best_step=int(r["best_step"]),
            best_exact=max(float(r["best"][0]), 0.0),
            best_token=float(r["best"][1]),
            theta_P=r["best_theta"],
            curve_EM=r["curve"][:evaluations],
            probes_ER=r["probes"][:evaluations],
            **self._notes(n),
        )


def _facts(pairs: Sequence[Pair], spec: Spec) -> dict[str, Tensor]:
    rows = {
        "is_spared": [is_spared(p.seed) if p.spared is None else p.spared for p in pairs],
        "counts_from": [p.recipe.counts_from for p in pairs],
        "rules": [_rule_set(p, spec.task) for p in pairs],
    }
    return {name: torch.tensor(row) for name, row in rows.items()}


def _rule_set(pair: Pair, task: Task) -> int:
    """Return the place among RULE_SETS of the rules that look at a pair."""
    applying = [rule for rule in pair.rules if rule.suits(task) and rule.applies(pair)]
    rules = tuple(applying)
    if rules not in RULE_SETS:
        RULE_SETS.append(rules)
    return RULE_SETS.index(rules)


def _evaluations(curve_NEM: Tensor, count: int) -> Tensor:
    """Return curves cut or filled up to `count` evaluations."""
    pairs, present, measures = curve_NEM.shape
    lacking = max(0, count - present)
    more = torch.full((pairs, lacking, measures), torch.nan)
    return torch.cat([curve_NEM, more], dim=1)[:, :count]
