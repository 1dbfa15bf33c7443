"""A bank: many seeds trained at once as one batched program.

A bank has S slots and a list of pairs (recipe, seed). Each slot trains one pair at its own step and
with its own numbers; a pair that ends frees its slot for the next in the list. For a fixed number of
slots and threads a seed's θ does not depend on its neighbours, its slot or interruptions.

Axes: S slot, N pair, E evaluation, P parameters.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import torch
from torch import Tensor

from model.spec import Spec
from trainer import snapshot
from trainer.programs import Programs, block_of
from trainer.recipe import Recipe, Seed
from trainer.schedule import Hyper, hyper_of
from trainer.step import State

MEASURES = ("exact", "token", "loss", "train_loss")
"""The columns of a curve: exact match, token accuracy and loss on the selection problems, and the mean
training loss since the evaluation before."""


class Outcome(StrEnum):
    """What became of a seed. The first two are not outcomes yet."""

    QUEUED = "queued"
    RUNNING = "running"
    GROKKED = "grokked"
    FAILED = "failed"
    DIVERGED = "diverged"
    GIVEN_UP = "given_up"
    CENSORED = "censored"


OUTCOMES = list(Outcome)


@dataclass(frozen=True)
class Pair:
    """A seed and the recipe it is trained with."""

    recipe: Recipe
    seed: Seed


@dataclass(frozen=True)
class Result:
    """One pair as far as it got. Accuracies are fractions of the 5,000 selection problems."""

    pair: Pair
    outcome: Outcome
    steps: int
    grok_step: int | None
    held: bool
    best_step: int
    best_exact: float
    best_token: float
    theta_P: Tensor
    """θ at `best_step`: the evaluation with the highest exact match and, among those, the lowest loss."""
    curve_EM: Tensor
    """One row an evaluation, columns MEASURES; evaluation i was made after (i + 1) · eval_every steps."""


class Bank:
    """Train pairs of one spec, `slots` at a time. Call `advance` until it returns False."""

    def __init__(
        self,
        spec: Spec,
        pairs: Sequence[Pair],
        *,
        slots: int | None = None,
        device: str = "cpu",
        compiled: bool = True,
    ):
        """Raises ValueError if there is no pair or the recipes' batch or eval_every differ."""
        if len({(p.recipe.batch, p.recipe.eval_every) for p in pairs}) != 1:
            raise ValueError("a bank needs pairs whose recipes agree in batch and eval_every")
        self.spec, self.pairs, self.device = spec, list(pairs), device
        self.eval_every = pairs[0].recipe.eval_every
        batch, block = pairs[0].recipe.batch, block_of(self.eval_every)
        self.programs = Programs(spec, batch, block, device, compiled)
        self.state, self.records = _empty(spec, self.pairs, slots or len(pairs), device)
        self.slot_pair: list[int | None] = [None] * (slots or len(pairs))
        self.hyper: Hyper = {}
        self.seed_steps, self.train_s = 0, 0.0
        self._fill()
        self.programs.warm_up(self.state, self.hyper)

    @property
    def seed_steps_per_s(self) -> float:
        """Steps of live seeds for each second since the start, sampling and evaluation included."""
        return self.seed_steps / self.train_s if self.train_s else 0.0

    def advance(self) -> bool:
        """Train to the next evaluation and judge it. False if no pair is left."""
        if not bool(self.state["active"].any()):
            return False
        start, before = time.perf_counter(), self.state["step"].sum()
        loss_S = torch.zeros(len(self.slot_pair), device=self.device)
        for _ in range(self.eval_every // self.programs.block):
            for tokens_STB in self.programs.make_block(self.state, self.hyper):
                self.state, step_loss_S = self.programs.train_step(self.state, self.hyper, tokens_STB)
                loss_S += step_loss_S
        measured = self.programs.evaluate(self.state["theta"])
        measured["train_loss"] = loss_S / self.eval_every
        self.seed_steps += int(self.state["step"].sum() - before)
        self._judge(torch.stack([measured[name] for name in MEASURES], dim=1).cpu())
        self.train_s += time.perf_counter() - start
        self._fill()
        return True

    def result(self, n: int) -> Result:
        """The n-th pair as far as it got."""
        r = {name: t[n] for name, t in self.records.items()}
        grok_step = int(r["grok_step"])
        return Result(
            self.pairs[n],
            OUTCOMES[int(r["outcome"])],
            int(r["steps"]),
            grok_step if grok_step >= 0 else None,
            bool(r["held"]),
            int(r["best_step"]),
            max(float(r["best"][0]), 0.0),
            float(r["best"][1]),
            r["best_theta"],
            r["curve"][: int(r["steps"]) // self.eval_every],
        )

    def save(self, path: Path) -> None:
        """Write the whole state; a bank of the same spec, pairs and slots goes on from it bit for bit."""
        tensors = {f"state.{k}": t.cpu() for k, t in self.state.items()}
        tensors |= {f"records.{k}": t for k, t in self.records.items()}
        snapshot.write(path, tensors, {"key": self._key(), "slot_pair": self.slot_pair})

    def load(self, path: Path) -> bool:
        """Go on from a saved state. False, and nothing changed, if there is none or it is another bank's."""
        found = snapshot.read(path)
        if found is None or found[1]["key"] != self._key():
            return False
        tensors, meta = found
        self.state = {k: tensors[f"state.{k}"].to(self.device) for k in self.state}
        self.records = {k: tensors[f"records.{k}"] for k in self.records}
        self.slot_pair = meta["slot_pair"]
        self._set_hyper()
        return True

    def _key(self) -> str:
        return repr((self.spec, self.pairs, len(self.slot_pair)))

    def _fill(self) -> None:
        """Give every free slot the next queued pair: its θ, moments at zero, step 0, its numbers."""
        queued = (self.records["outcome"] == OUTCOMES.index(Outcome.QUEUED)).nonzero().flatten().tolist()
        free = [s for s, n in enumerate(self.slot_pair) if n is None]
        state = {name: t.clone() for name, t in self.state.items()}
        for s, n in zip(free, queued, strict=False):
            seed = self.pairs[n].seed
            self.slot_pair[s] = n
            self.records["outcome"][n] = OUTCOMES.index(Outcome.RUNNING)
            state["theta"][s] = self.spec.initial(seed.init_seed).to(self.device)
            state["m"][s], state["v"][s], state["step"][s] = 0, 0, 0
            state["data_seed"][s] = seed.data_seed
            state["wd_scale"][s], state["mix_scale"][s] = 1, 1
        state["active"] = torch.tensor([n is not None for n in self.slot_pair], device=self.device)
        self.state = state
        self._set_hyper()

    def _set_hyper(self) -> None:
        """An idle slot keeps computing, on the first pair's numbers, but its θ is masked."""
        self.hyper = hyper_of([self.pairs[n or 0].recipe for n in self.slot_pair], self.device)

    def _judge(self, measured_SM: Tensor) -> None:
        """Record an evaluation of every running seed and decide which of them have ended."""
        finite_S = torch.isfinite(self.state["theta"]).all(1).cpu() & torch.isfinite(measured_SM[:, 2])
        steps = self.state["step"].tolist()
        for s, n in enumerate(self.slot_pair):
            if n is None:
                continue
            finite = bool(finite_S[s])
            self._record(s, n, steps[s], measured_SM[s], finite)
            outcome = self._verdict(n, steps[s], finite)
            if outcome is not None:
                self.records["outcome"][n] = OUTCOMES.index(outcome)
                self.slot_pair[s] = None
            self._adapt(s, n, measured_SM[s])

    def _record(self, s: int, n: int, step: int, measures_M: Tensor, finite: bool) -> None:
        r = self.records
        exact, loss = float(measures_M[0]), float(measures_M[2])
        r["steps"][n] = step
        r["curve"][n, step // self.eval_every - 1] = measures_M
        if not finite:
            return
        if exact == 1.0:
            r["grok_step"][n] = step if r["grok_step"][n] < 0 else r["grok_step"][n]
            r["perfect_since"][n] = step if r["perfect_since"][n] < 0 else r["perfect_since"][n]
        else:
            r["perfect_since"][n] = -1
        best_exact, best_token, best_loss = r["best"][n].tolist()
        if (exact, -loss) > (best_exact, -best_loss):
            r["best"][n] = torch.tensor([exact, best_token, loss])
            r["best_step"][n] = step
            r["best_theta"][n] = self.state["theta"][s].cpu()
        r["best"][n, 1] = max(best_token, float(measures_M[1]))

    def _verdict(self, n: int, step: int, finite: bool) -> Outcome | None:
        """The outcome of a seed that ends now: not finite, perfect for `hold` steps, or its budget spent.

        Whoever was perfect once has grokked, whatever followed.
        """
        recipe, r = self.pairs[n].recipe, self.records
        if not finite:
            return Outcome.GROKKED if int(r["grok_step"][n]) >= 0 else Outcome.DIVERGED
        since = int(r["perfect_since"][n])
        r["held"][n] |= since >= 0 and step - since >= recipe.hold
        if not (bool(r["held"][n]) or step >= recipe.steps):
            return None
        return Outcome.GROKKED if int(r["grok_step"][n]) >= 0 else Outcome.FAILED

    def _adapt(self, s: int, n: int, measures_M: Tensor) -> None:
        """What follows the measures. The carry problems' share falls while token accuracy is high (57p paper
        3.2); weight decay drops for good when exact match passes each of two thresholds (Reflection 5).
        """
        recipe = self.pairs[n].recipe
        exact, token = float(measures_M[0]), float(measures_M[1])
        if recipe.fade_token < 1:
            left = (recipe.fade_token_end - token) / max(recipe.fade_token_end - recipe.fade_token, 1e-9)
            self.state["mix_scale"][s] = min(max(left, 0.0), 1.0)
        if token < recipe.wd_drop_token:
            return
        drops = (exact > recipe.wd_drop_exact) + (exact > recipe.wd_drop_exact_final)
        self.state["wd_scale"][s] = min(float(self.state["wd_scale"][s]), recipe.wd_drop**drops)


def _empty(spec: Spec, pairs: list[Pair], slots: int, device: str) -> tuple[State, dict[str, Tensor]]:
    count, params = len(pairs), spec.params
    evaluations = max(p.recipe.steps // p.recipe.eval_every for p in pairs)
    state = {name: torch.zeros(slots, params, device=device) for name in ("theta", "m", "v")}
    state |= {name: torch.zeros(slots, dtype=torch.int64, device=device) for name in ("step", "data_seed")}
    state |= {name: torch.ones(slots, device=device) for name in ("wd_scale", "mix_scale")}
    state["active"] = torch.zeros(slots, dtype=torch.bool, device=device)
    records = {
        "outcome": torch.zeros(count, dtype=torch.int8),
        "held": torch.zeros(count, dtype=torch.bool),
        "best": torch.tensor([[-1.0, 0.0, torch.inf]]).repeat(count, 1),  # exact, token, loss
        "best_theta": torch.zeros(count, params),
        "curve": torch.full((count, evaluations, len(MEASURES)), torch.nan),
    }
    for name, value in (("steps", 0), ("best_step", 0), ("grok_step", -1), ("perfect_since", -1)):
        records[name] = torch.full((count,), value)
    return state, records
