"""A bank of seeds on a road: one bank for each stage, and for its longer trainings one more.

It is used as a `Bank` is. A pair here is a seed with the whole road; its result is the road's end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from model.spec import Spec
from trainer.bank.bank import Bank, programs_of
from trainer.bank.tracker import Result
from trainer.recipe import Pair
from trainer.recipe.outcomes import Outcome
from trainer.road.stages import Road
from trainer.road.traveller import Traveller

OPEN = (Outcome.QUEUED, Outcome.RUNNING)
Leg = tuple[int, bool]
"""A stage by its place, and whether it is its longer training."""


class RoadBank:
    """Train seeds through a road, `slots` at a time in each stage. Call `advance` until it returns False."""

    def __init__(
        self,
        road: Road,
        pairs: Sequence[Pair],
        *,
        slots: int | None = None,
        device: str = "cpu",
        compiled: bool = True,
    ):
        """pairs: of the road's end; their seeds are what counts."""
        self.road, self.pairs = road, list(pairs)
        self.slots = len(pairs) if slots is None else slots
        self.device, self.compiled = device, compiled
        self.specs = road.specs()
        self.travellers = [Traveller(road, pair.seed) for pair in pairs]
        self.banks: dict[Leg, Bank] = {}
        self.owners: dict[Leg, list[tuple[Traveller, int]]] = {}
        """For each pair of a bank its seed, and its place in the seed's leg."""
        self.ranking: dict[int, Any] = {}
        for traveller in self.travellers:
            self._depart(traveller)

    @property
    def spec(self) -> Spec:
        """The spec at which the road ends."""
        return self.specs[-1]

    @property
    def programs(self) -> Any:
        """The programs of the first stage."""
        return next(iter(self.banks.values())).programs

    @property
    def seed_steps(self) -> int:
        """Steps of all trainings."""
        return sum(bank.seed_steps for bank in self.banks.values())

    @property
    def train_s(self) -> float:
        """Seconds of training."""
        return sum(bank.train_s for bank in self.banks.values())

    @property
    def seed_steps_per_s(self) -> float:
        """Steps of live seeds for each second since the start."""
        return self.seed_steps / self.train_s if self.train_s else 0.0

    def advance(self) -> bool:
        """Train each stage's seeds to their next evaluation. Return False if none is left."""
        for leg, bank in list(self.banks.items()):
            if self.owners[leg] and bank.advance():
                self._arrive(leg)
        return any(self.owners.values())

    def _arrive(self, leg: Leg) -> None:
        """Take the trainings of a leg that have ended out of its bank, and begin what follows them."""
        bank, owners = self.banks[leg], self.owners[leg]
        ended = [n for n, row in enumerate(bank.newest()) if row["outcome"] not in OPEN]
        complete = []
        for n in ended:
            traveller, place = owners[n]
            if traveller.end(place, bank.result(n)):
                complete.append(traveller)
        self._remove(leg, ended)
        for traveller in complete:
            if traveller.go_on(self._losses(leg[0]), self._losses(leg[0] + 1)):
                self._depart(traveller)

    def _depart(self, traveller: Traveller, states: Mapping[int, bytes] | None = None) -> None:
        """Put the open trainings of a seed's leg into its bank. states: from which they go on."""
        stage, leg = traveller.stage, (traveller.leg.stage, traveller.leg.is_longer)
        recipe = stage.longer if leg[1] and stage.longer else stage.recipe
        places = [place for place in range(len(traveller.leg.tries)) if place not in traveller.leg.ended]
        pairs = [traveller.leg.tries[place].pair(recipe, traveller.seed) for place in places]
        if leg in self.banks:
            numbers = self.banks[leg].add(pairs)
        else:
            self.banks[leg] = self._bank(leg[0], pairs)
            self.owners[leg] = []
            numbers = range(len(pairs))
        self.owners[leg] += [(traveller, place) for place in places]
        if states:
            found = {n: states[place] for n, place in zip(numbers, places, strict=True) if place in states}
            self.banks[leg].restore_all(found)

    def _bank(self, stage: int, pairs: Sequence[Pair]) -> Bank:
        return Bank(
            self.specs[stage], pairs, slots=self.slots, device=self.device, compiled=self.compiled, futility=None
        )  # fmt: skip

    def _losses(self, stage: int) -> Any:
        """Return the function that ranks θ of a stage's spec; None after the last stage."""
        if stage == len(self.road.stages):
            return None
        if stage not in self.ranking:
            recipe = self.road.stages[stage].recipe
            self.ranking[stage] = programs_of(self.specs[stage], recipe, self.device, self.compiled)
        return partial(_loss_of, self.ranking[stage])

    # ---- seeds come and go

    def add(self, pairs: Sequence[Pair]) -> range:
        """Append seeds. Return their numbers."""
        first = len(self.pairs)
        self.pairs += pairs
        for pair in pairs:
            self.travellers.append(Traveller(self.road, pair.seed))
            self._depart(self.travellers[-1])
        return range(first, len(self.pairs))

    def end(self, numbers: Sequence[int]) -> None:
        """End seeds from outside: those that have not ended are censored."""
        for n in numbers:
            traveller = self.travellers[n]
            if traveller.outcome is None:
                traveller.spent[-1] += self._open_steps(traveller)
                self._withdraw(traveller)
                traveller.outcome = Outcome.CENSORED

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove seeds that have ended. Later ones move up, and keep their order."""
        gone = set(numbers)
        kept = [n for n in range(len(self.pairs)) if n not in gone]
        self.pairs = [self.pairs[n] for n in kept]
        self.travellers = [self.travellers[n] for n in kept]

    def _withdraw(self, traveller: Traveller) -> None:
        """Take the trainings of a seed out of their bank."""
        for leg, owners in self.owners.items():
            own = [n for n, (owner, _) in enumerate(owners) if owner is traveller]
            self.banks[leg].end(own)
            self._remove(leg, own)

    def _remove(self, leg: Leg, numbers: Sequence[int]) -> None:
        self.banks[leg].remove(numbers)
        gone = set(numbers)
        self.owners[leg] = [owner for n, owner in enumerate(self.owners[leg]) if n not in gone]

    # ---- how far they are

    def _open_steps(self, traveller: Traveller) -> int:
        """Return the steps of a seed's trainings that have not ended."""
        leg = (traveller.leg.stage, traveller.leg.is_longer)
        rows = zip(self.owners[leg], self.banks[leg].newest(), strict=True)
        return sum(row["step"] for (owner, _), row in rows if owner is traveller)

    def newest(self) -> list[dict[str, Any]]:
        """Return one row per seed: outcome, steps of all its trainings, grok step and best exact match."""
        return [self._row(traveller) for traveller in self.travellers]

    def _row(self, traveller: Traveller) -> dict[str, Any]:
        steps = sum(traveller.spent)
        if traveller.outcome is None:
            steps += self._open_steps(traveller)
        result = traveller.result(Pair(self.road.stages[-1].recipe, traveller.seed), steps, self._outcome(traveller))
        return {
            "outcome": result.outcome.value,
            "step": steps,
            "grok_step": result.grok_step,
            "best_exact": result.best_exact,
        }

    @staticmethod
    def _outcome(traveller: Traveller) -> Outcome:
        return Outcome.RUNNING if traveller.outcome is None else traveller.outcome

    def result(self, n: int) -> Result:
        """Return the n-th seed as far as it got."""
        traveller = self.travellers[n]
        steps = self._row(traveller)["step"]
        return traveller.result(self.pairs[n], steps, self._outcome(traveller))

    # ---- saved and restored

    def save(self, n: int) -> bytes:
        """Return the state of a seed, which a bank of the same road goes on from bit for bit."""
        return self.save_all([n])[0]

    def save_all(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the states of seeds."""
        return [self._save(self.travellers[n]) for n in numbers]

    def _save(self, traveller: Traveller) -> bytes:
        if traveller.outcome is not None:
            return traveller.save({})
        leg = (traveller.leg.stage, traveller.leg.is_longer)
        own = [(n, place) for n, (owner, place) in enumerate(self.owners[leg]) if owner is traveller]
        states = self.banks[leg].save_all([n for n, _ in own])
        return traveller.save({place: data for (_, place), data in zip(own, states, strict=True)})

    def restore(self, n: int, data: bytes) -> bool:
        """Set a seed back to a state. Return False, and change nothing, if it is damaged or another seed's."""
        return self.restore_all({n: data}) == [n]

    def restore_all(self, states: Mapping[int, bytes]) -> list[int]:
        """Set seeds back to states. Return those whose states could be used."""
        used = []
        for n, data in states.items():
            traveller = Traveller(self.road, self.pairs[n].seed)
            found = traveller.restore(data)
            if found is not None:
                self._withdraw(self.travellers[n])
                self.travellers[n] = traveller
                used.append(n)
                if traveller.outcome is None:
                    self._depart(traveller, found)
        return used


def _loss_of(programs: Any, theta_WP: Tensor) -> Tensor:
    measured: Tensor = programs.evaluate(theta_WP)["loss"]
    return measured
