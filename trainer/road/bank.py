"""A bank of seeds whose recipe has stages: one bank for each stage, and for its longer trainings one more.

It is used as a `Bank` is. A pair here is a seed with all of its stages; its result is the road's end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from model.spec import Spec
from trainer.bank.bank import DISAGREE, Bank, programs_of
from trainer.bank.tracker import Result
from trainer.outcomes import Outcome
from trainer.recipe import Pair
from trainer.recipe.stages import check_stages, road_of
from trainer.road.traveller import Traveller

if TYPE_CHECKING:
    from trainer.recipe.stages import Losses

OPEN = (Outcome.QUEUED, Outcome.RUNNING)
LegKey = tuple[int, bool]
"""A stage by its place, and whether it is its longer training."""


class RoadBank:
    """Train seeds through the stages of their recipe, `slots` at a time in each stage.

    Call `advance` until it returns False.
    """

    def __init__(
        self,
        spec: Spec,
        pairs: Sequence[Pair],
        *,
        slots: int | None = None,
        device: str = "cpu",
        compiled: bool = True,
    ):
        """spec: at which the stages end. slots: by default one per seed.

        Raises ValueError unless the pairs have one recipe, whose stages lead to the spec.
        """
        if len({pair.recipe for pair in pairs}) != 1:
            raise ValueError(DISAGREE)
        pairs[0].check(spec)
        check_stages(pairs[0].recipe)
        self.spec, self.pairs = spec, list(pairs)
        self.stages = road_of(pairs[0].recipe)
        self.slots = len(pairs) if slots is None else slots
        self.device, self.compiled = device, compiled
        self.travellers = [Traveller(pair) for pair in pairs]
        self.banks: dict[LegKey, Bank] = {}
        self.owners: dict[LegKey, list[tuple[Traveller, int]]] = {}
        """For each pair of a bank its seed, and its place in the seed's leg."""
        self.ranking: dict[int, Any] = {}
        """Programs that measure θ of a stage's spec."""
        for traveller in self.travellers:
            self._depart(traveller)

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
        for key, bank in list(self.banks.items()):
            if self.owners[key] and bank.advance():
                self._arrive(key)
        return any(self.owners.values())

    def _arrive(self, key: LegKey) -> None:
        """Take the trainings that have ended out of a bank, and begin what follows them."""
        bank, owners = self.banks[key], self.owners[key]
        ended = [n for n, row in enumerate(bank.newest()) if row["outcome"] not in OPEN]
        complete = []
        for n in ended:
            traveller, place = owners[n]
            if traveller.end(place, bank.result(n)):
                complete.append(traveller)
        self._remove(key, ended)
        for traveller in complete:
            if traveller.go_on(self._losses):
                self._depart(traveller)

    def _depart(self, traveller: Traveller, states: Mapping[int, bytes] | None = None) -> None:
        """Put the open trainings of a seed's leg into its bank. states: from which they go on, by their place."""
        key, places = _key_of(traveller), traveller.open_places
        pairs = [traveller.pair_of(place) for place in places]
        if key in self.banks:
            numbers = self.banks[key].add(pairs)
        else:
            self.banks[key] = self._bank(key[0], pairs)
            self.owners[key], numbers = [], range(len(pairs))
        self.owners[key] += [(traveller, place) for place in places]
        if states:
            found = {n: states[place] for n, place in zip(numbers, places, strict=True) if place in states}
            self.banks[key].restore_all(found)

    def _bank(self, stage: int, pairs: Sequence[Pair]) -> Bank:
        spec = self.stages[stage].spec
        return Bank(spec, pairs, slots=self.slots, device=self.device, compiled=self.compiled)

    def _losses(self, stage: int) -> Losses:
        """Return the function that ranks θ of a stage's spec."""
        if stage not in self.ranking:
            its = self.stages[stage]
            self.ranking[stage] = programs_of(its.spec, its.recipe, self.device, self.compiled)
        return partial(_loss_of, self.ranking[stage])

    # ---- seeds come and go

    def add(self, pairs: Sequence[Pair]) -> range:
        """Append seeds. Return their numbers. Raises ValueError if their recipe is another one."""
        if {pair.recipe for pair in pairs} - {self.pairs[0].recipe if self.pairs else pairs[0].recipe}:
            raise ValueError(DISAGREE)
        first = len(self.pairs)
        self.pairs += pairs
        for pair in pairs:
            self.travellers.append(Traveller(pair))
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
        for key, owners in self.owners.items():
            own = [n for n, (owner, _) in enumerate(owners) if owner is traveller]
            self.banks[key].end(own)
            self._remove(key, own)

    def _remove(self, key: LegKey, numbers: Sequence[int]) -> None:
        self.banks[key].remove(numbers)
        gone = set(numbers)
        self.owners[key] = [owner for n, owner in enumerate(self.owners[key]) if n not in gone]

    # ---- how far they are

    def newest(self) -> list[dict[str, Any]]:
        """Return one row per seed: outcome, steps of all its trainings, grok step and best exact match."""
        rows = []
        for n in range(len(self.pairs)):
            result = self.result(n)
            facts = {"outcome": result.outcome.value, "step": result.steps}
            rows.append({**facts, "grok_step": result.grok_step, "best_exact": result.best_exact})
        return rows

    def result(self, n: int) -> Result:
        """Return the n-th seed as far as it got."""
        traveller = self.travellers[n]
        return traveller.result(0 if traveller.outcome else self._open_steps(traveller))

    def _open_steps(self, traveller: Traveller) -> int:
        """Return the steps of a seed's trainings that have not ended."""
        key = _key_of(traveller)
        rows = zip(self.owners[key], self.banks[key].newest(), strict=True)
        return sum(row["step"] for (owner, _), row in rows if owner is traveller)

    # ---- saved and restored

    def save(self, n: int) -> bytes:
        """Return the state of a seed, which a bank of the same recipe goes on from bit for bit."""
        return self.save_all([n])[0]

    def save_all(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the states of seeds."""
        return [self._save(self.travellers[n]) for n in numbers]

    def _save(self, traveller: Traveller) -> bytes:
        if traveller.outcome is not None:
            return traveller.save({})
        key = _key_of(traveller)
        own = {n: place for n, (owner, place) in enumerate(self.owners[key]) if owner is traveller}
        states = self.banks[key].save_all(list(own))
        return traveller.save(dict(zip(own.values(), states, strict=True)))

    def restore(self, n: int, data: bytes) -> bool:
        """Set a seed back to a state. Return False, and change nothing, if it is damaged or another seed's."""
        return self.restore_all({n: data}) == [n]

    def restore_all(self, states: Mapping[int, bytes]) -> list[int]:
        """Set seeds back to states. Return those whose states could be used."""
        used = []
        for n, data in states.items():
            traveller = Traveller(self.pairs[n])
            found = traveller.restore(data)
            if found is not None:
                self._withdraw(self.travellers[n])
                self.travellers[n] = traveller
                used.append(n)
                if traveller.outcome is None:
                    self._depart(traveller, found)
        return used


def _key_of(traveller: Traveller) -> LegKey:
    return traveller.leg.stage, traveller.leg.is_longer


def _loss_of(programs: Any, theta_WP: Tensor) -> Tensor:
    measured: Tensor = programs.evaluate(theta_WP)["loss"]
    return measured
