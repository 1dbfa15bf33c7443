"""One seed on its road: what its trainings came to, and which come next.

It depends on the seed alone: not on the order in which its trainings end, nor on what else is in the bank.

Axes: P entries of θ, E evaluation, M measure.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from model.spec import choices
from trainer.bank.saved import DIGEST, digest
from trainer.bank.tracker import Result
from trainer.outcomes import MEASURES, Outcome, as_measured
from trainer.recipe import Pair, Recipe
from trainer.recipe.passed import Passed, told
from trainer.recipe.stages import Stage, Try, Whole, end_of, road_of

if TYPE_CHECKING:
    from trainer.recipe.stages import Losses

UNUSABLE = (SafetensorError, ValueError, TypeError, LookupError, AttributeError, RuntimeError, OverflowError)
"""Errors of a saved state that somebody made up."""


@dataclass(frozen=True)
class Net:
    """What one training came to. theta_P: in the spec that its stage leaves; curve_EM: of its whole way from step 0."""

    exact: float
    token: float
    grokked: bool
    held: bool
    best_step: int
    grok_step: int | None
    theta_P: Tensor
    curve_EM: Tensor

    @property
    def score(self) -> float:
        """Its share of the selection problems; 1 if it has grokked, even if it forgot again."""
        return 1.0 if self.grokked else self.exact


@dataclass
class Leg:
    """Trainings of one stage side by side."""

    stage: int = 0
    is_longer: bool = False
    tries: list[Try] = field(default_factory=list)
    before: list[Tensor] = field(default_factory=list)
    """The curve of the net from which each training starts."""
    ended: dict[int, Net] = field(default_factory=dict)
    """By their place among the tries."""


class Traveller:
    """One seed on its road."""

    def __init__(self, pair: Pair):
        """pair: a seed, and a recipe with stages."""
        self.pair, self.stages = pair, road_of(pair.recipe)
        self.eval_every, self.target = pair.recipe.eval_every, end_of(self.stages)
        self.outcome: Outcome | None = None
        """None while it is on its way."""
        self.incoming: list[Net] = []
        """What the stage before handed on, and after it whatever else grokked there."""
        self.nets: list[Net] = []
        """What this stage's trainings came to, the first ones first."""
        self.leg = Leg(tries=[Try()], before=[torch.empty(0, len(MEASURES))])
        self.spent = [0]
        """Seed-steps of the trainings that have ended, by stage."""
        self.counts = [1]
        """Trainings that have begun, by stage."""
        self.grokked = [0]
        """Those of them that grokked, by stage."""

    @property
    def stage(self) -> Stage:
        """The stage in which it is."""
        return self.stages[self.leg.stage]

    @property
    def is_last_stage(self) -> bool:
        """True if it is in the road's last stage."""
        return self.leg.stage == len(self.stages) - 1

    @property
    def recipe(self) -> Recipe:
        """The recipe of the leg's trainings."""
        return self.stage.recipes[-1] if self.leg.is_longer else self.stage.recipe

    @property
    def open_places(self) -> list[int]:
        """The leg's trainings that have not ended."""
        return [place for place in range(len(self.leg.tries)) if place not in self.leg.ended]

    def pair_of(self, place: int) -> Pair:
        """Return one of the leg's trainings as a bank trains it."""
        # Without rules that end it early: they were measured on seeds that begin at random, once.
        trained = self.leg.tries[place]
        start = None if trained.start is None else tuple(trained.start.tolist())
        return Pair(self.recipe, self.pair.seed, start, trained.ties)

    @property
    def best(self) -> Net | None:
        """The first of this stage's nets that grokked, or else the best one."""
        return max(self.nets, key=lambda net: net.score, default=None)

    # ---- from training to training

    def end(self, place: int, result: Result) -> bool:
        """Take what a training came to. Return True if it was the leg's last."""
        leg, stage = self.leg, self.stage
        before_EM = leg.before[place]
        steps_before = len(before_EM) * self.eval_every
        has_grokked = result.outcome == Outcome.GROKKED
        theta_P = stage.narrows.reduced(stage.spec, leg.tries[place], result.theta_P)
        leg.ended[place] = Net(
            result.best_exact,
            result.best_token,
            has_grokked,
            result.held,
            steps_before + result.best_step,
            None if result.grok_step is None else steps_before + result.grok_step,
            theta_P.clone(),  # no view of a whole bank's table
            torch.cat([before_EM, result.curve_EM]),
        )
        self.spent[-1] += result.steps
        self.grokked[-1] += has_grokked
        return len(leg.ended) == len(leg.tries)

    def go_on(self, losses: Callable[[int], Losses]) -> bool:
        """Begin what follows a leg that has ended. Return False if the road ends here.

        losses: the function that ranks θ of a stage, by the stage's place.
        """
        leg, stage = self.leg, self.stage
        # By place, not as they ended: of two nets that grokked the first is the best, on every machine.
        self.nets += [leg.ended[place] for place in sorted(leg.ended)]
        best = self.best
        assert best, "a leg has at least one training"

        is_spent = sum(self.spent) >= self.pair.recipe.steps
        has_arrived = best.grokked and self.is_last_stage
        if is_spent and not has_arrived:
            self.outcome = Outcome.FAILED
        elif not best.grokked and stage.longer and not leg.is_longer:
            # A net that is trained as it is goes on; a narrowing is tried anew, from every net that came here.
            is_whole = type(stage.narrows) is Whole
            self._begin(Leg(leg.stage, True), [best] if is_whole else self.incoming, losses)
        elif self.is_last_stage:
            self.outcome = Outcome.GROKKED if best.grokked else Outcome.FAILED
        elif best.score < as_measured(stage.enough):
            self.outcome = Outcome.FAILED
        else:
            self._enter_next_stage(best, losses)
        return self.outcome is None

    def _enter_next_stage(self, best: Net, losses: Callable[[int], Losses]) -> None:
        entered = self.stages[self.leg.stage + 1].entered
        others = [net for net in self.nets if net.grokked and net is not best]
        handed_on = [best, *others]
        self.incoming = [dataclasses.replace(net, theta_P=entered(net.theta_P)) for net in handed_on]
        self.nets = []
        for counts in (self.spent, self.counts, self.grokked):
            counts.append(0)
        # The others wait for a longer training, should the stage need one.
        self._begin(Leg(self.leg.stage + 1), self.incoming[:1], losses)

    def _begin(self, leg: Leg, nets: Sequence[Net], losses: Callable[[int], Losses]) -> None:
        """Choose a leg's trainings: some ways to narrow each of these nets."""
        stage = self.stages[leg.stage]
        most = stage.longer_tries if leg.is_longer else stage.tries
        for net in nets:
            tries = stage.narrows.tries(stage.spec, net.theta_P, losses(leg.stage), most)
            leg.tries += tries
            leg.before += [net.curve_EM] * len(tries)
        self.counts[-1] += len(leg.tries)
        self.leg = leg

    # ---- what it came to

    def result(self, open_steps: int) -> Result:
        """Return the seed as far as it got. open_steps: of its trainings that have not ended.

        Its steps are those of all its trainings. Its θ is of the spec at which the road ends, and zero until its last
        stage.
        """
        best, outcome = self.best, self.outcome or Outcome.RUNNING
        names = [stage.name for stage in self.stages]
        stages = told(map(Passed, names, self.counts, self.grokked, self.spent))
        steps = sum(self.spent) + open_steps
        if best is None or not self.is_last_stage:
            # A larger net's score is no result of the model that the study is about, whose problems none has right yet.
            nothing_P = torch.zeros(self.target.params)
            best = Net(0.0, 0.0, False, False, 0, None, nothing_P, self._longest_curve())
        return Result(
            pair=self.pair,
            outcome=outcome,
            steps=steps,
            grok_step=best.grok_step if outcome == Outcome.GROKKED else None,
            held=best.held,
            hopeless_step=None,
            best_step=best.best_step,
            best_exact=best.exact,
            best_token=best.token,
            theta_P=best.theta_P,
            curve_EM=best.curve_EM,
            stages=stages,
        )

    def _longest_curve(self) -> Tensor:
        known = [net.curve_EM for net in (*self.nets, *self.incoming)]
        return max(known, key=len, default=torch.empty(0, len(MEASURES)))

    # ---- saved and restored

    def save(self, states: Mapping[int, bytes], slots: int | None = None) -> bytes:
        """Return the traveller's state as bytes.

        states: those of the leg's open trainings, by place. slots: of the banks, if their bits depend on it.
        """
        leg, tensors = self.leg, dict[str, Tensor]()
        facts: dict[str, Any] = {
            "key": self._key(slots),
            "outcome": self.outcome,
            "stage": leg.stage,
            "is_longer": leg.is_longer,
            "spent": self.spent,
            "counts": self.counts,
            "grokked": self.grokked,
            "tries": [[t.words, t.ties] for t in leg.tries],
            "incoming": _store("incoming", dict(enumerate(self.incoming)), tensors),
            "nets": _store("nets", dict(enumerate(self.nets)), tensors),
            "ended": _store("ended", leg.ended, tensors),
        }
        for place, trained in enumerate(leg.tries):
            tensors[f"before.{place}"] = leg.before[place]
            if trained.start is not None:
                tensors[f"start.{place}"] = trained.start
            if place in states:
                tensors[f"state.{place}"] = _bytes_tensor(states[place])
        # All in one file of tensors, which is read without running anything.
        tensors["facts"] = _bytes_tensor(json.dumps(facts).encode())
        # Cloned: nets share tensors, which safetensors refuses.
        data = to_bytes({name: t.clone() for name, t in tensors.items()})
        return digest(data) + data

    def restore(self, data: bytes, slots: int | None = None) -> dict[int, bytes] | None:
        """Set the traveller back to a state. Return the states of its open trainings, by place.

        Return None if the state is damaged or another seed's; the traveller is then not to be used.
        """
        if data[:DIGEST] != digest(data[DIGEST:]):
            return None
        # Whole, but perhaps written by another version, by a bank without stages, or by anyone.
        try:
            tensors = from_bytes(data[DIGEST:])
            facts = json.loads(tensors["facts"].numpy().tobytes())
            if facts["key"] != self._key(slots):
                return None
            self._take(facts, tensors)
            # A bank would refuse them, and then it is too late.
            for pair in map(self.pair_of, self.open_places):
                pair.check(self.stage.spec)
                if (pair.ties is None) != (type(self.stage.narrows) is Whole):
                    return None
        except UNUSABLE:
            return None
        places = [place for place in range(len(self.leg.tries)) if f"state.{place}" in tensors]
        return {place: tensors[f"state.{place}"].numpy().tobytes() for place in places}

    def _take(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Take what `save` has told."""
        self.outcome = Outcome(facts["outcome"]) if facts["outcome"] else None
        self.spent, self.counts, self.grokked = facts["spent"], facts["counts"], facts["grokked"]
        self.incoming = list(_load("incoming", facts, tensors).values())
        self.nets = list(_load("nets", facts, tensors).values())

        tries, before = [], []
        for place, (words, ties) in enumerate(facts["tries"]):
            start = tensors.get(f"start.{place}")
            tries.append(Try(start, tuple(ties) if ties else None, words))
            before.append(tensors[f"before.{place}"])
        ended = _load("ended", facts, tensors)
        self.leg = Leg(facts["stage"], facts["is_longer"], tries, before, ended)

    def _key(self, slots: int | None) -> str:
        # What differs from the defaults, as in a bank's key: a release that adds a field begins no road anew.
        told = [choices(self.pair.recipe), str(self.pair.seed), slots]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _bytes_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _store(name: str, nets: Mapping[int, Net], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Put the tensors of nets into `tensors`, and return their other fields, which JSON can hold."""
    facts = {}
    for place, net in nets.items():
        known = {f.name: getattr(net, f.name) for f in dataclasses.fields(net)}
        for part in ("theta_P", "curve_EM"):
            tensors[f"{name}.{place}.{part}"] = known.pop(part)
        facts[str(place)] = known
    return facts


def _load(name: str, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[int, Net]:
    """Return the nets that `_store` was given."""
    nets = {}
    for place, known in facts[name].items():
        parts = {part: tensors[f"{name}.{place}.{part}"] for part in ("theta_P", "curve_EM")}
        nets[int(place)] = Net(**known, **parts)
    return nets
