"""A bank of seeds whose recipe has stages: one bank for each stage, and for its longer trainings one more.

It is used as a `Bank` is. A pair here is a seed with all of its stages; its result is the road's end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from model.spec import Spec
from trainer.bank.bank import DISAGREE, Bank, backend_of
from trainer.bank.tracker import Result
from trainer.outcomes import OPEN, Outcome
from trainer.recipe import Pair
from trainer.recipe.stages import check_stages, road_of
from trainer.road.traveller import Traveller

if TYPE_CHECKING:
    from trainer.recipe.stages import Losses

MOST_RANKED = 256
"""θ that are measured at once when ways are ranked."""
States = dict[int, bytes]
"""Saved states of a seed's trainings, by their place in its leg."""
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
        # One recipe, and not only one program: stages of another one would be other specs, and other banks.
        if len({pair.recipe for pair in pairs}) != 1:
            raise ValueError(DISAGREE)
        recipe = pairs[0].recipe
        if not recipe.stages:
            raise ValueError("a recipe without stages is trained by trainer.Bank, and by no RoadBank")
        pairs[0].check(spec)
        check_stages(recipe)
        self.spec, self.recipe, self.pairs = spec, recipe, list(pairs)
        self.stages = road_of(recipe)
        self.slots = len(pairs) if slots is None else slots
        self.device, self.compiled = device, compiled
        self.travellers = [Traveller(pair) for pair in pairs]
        self.banks: dict[LegKey, Bank] = {}
        self.owners: dict[LegKey, list[tuple[Traveller, int]]] = {}
        """For each pair of a bank its seed, and its place in the seed's leg."""
        self.ranking: dict[int, Any] = {}
        """Programs that measure θ of a stage's spec."""
        self._depart(self.travellers)

    @property
    def backend(self) -> Any:
        """What trains the first stage."""
        return next(iter(self.banks.values())).backend

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
        for key, bank in list(self.banks.items()):  # a list: who arrives may be the first in a stage, and make its bank
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
        self._depart([traveller for traveller in complete if traveller.go_on(self._losses)])

    def _depart(self, travellers: Iterable[Traveller], states: Mapping[Traveller, States] | None = None) -> None:
        """Put the open trainings of seeds into the banks of their legs. states: from which they go on."""
        groups: dict[LegKey, list[tuple[Traveller, int]]] = {}
        for traveller in travellers:
            places = [(traveller, place) for place in traveller.open_places]
            groups.setdefault(_key_of(traveller), []).extend(places)

        for key, owners in groups.items():
            pairs = [traveller.pair_of(place) for traveller, place in owners]
            if key in self.banks:
                numbers = self.banks[key].add(pairs)
            else:  # a bank needs pairs, so that a stage has none before its first seed arrives
                self.banks[key] = self._bank(key[0], pairs)
                numbers = range(len(pairs))
            self.owners.setdefault(key, []).extend(owners)

            saved = {}
            for n, (owner, place) in zip(numbers, owners, strict=True):
                of_owner = (states or {}).get(owner, {})
                if place in of_owner:
                    saved[n] = of_owner[place]
            self.banks[key].restore_all(saved)

    def _bank(self, stage: int, pairs: Sequence[Pair]) -> Bank:
        spec = self.stages[stage].spec
        return Bank(spec, pairs, slots=self.slots, device=self.device, compiled=self.compiled)

    def _losses(self, stage: int) -> Losses:
        """Return the function that ranks θ of a stage's spec."""
        if stage not in self.ranking:  # not the stage's bank, which may not be there yet
            ranked = self.stages[stage]
            self.ranking[stage] = backend_of(ranked.spec, ranked.recipe, self.device, self.compiled)
        return partial(_loss_of, self.ranking[stage])

    # ---- seeds come and go

    def add(self, pairs: Sequence[Pair]) -> range:
        """Append seeds. Return their numbers. Raises ValueError if their recipe is another one."""
        if {pair.recipe for pair in pairs} - {self.recipe}:
            raise ValueError(DISAGREE)
        first = len(self.pairs)
        self.pairs += pairs
        self.travellers += map(Traveller, pairs)
        self._depart(self.travellers[first:])
        return range(first, len(self.pairs))

    def end(self, numbers: Sequence[int]) -> None:
        """End seeds from outside: those that have not ended are censored."""
        named = [self.travellers[n] for n in numbers]
        open_ = [traveller for traveller in named if traveller.outcome is None]
        steps = self._open_steps()  # before their trainings, which are all that knows them, are gone
        self._withdraw(open_)
        for traveller in open_:
            traveller.spent[-1] += steps[traveller]
            traveller.outcome = Outcome.CENSORED

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove seeds that have ended. Later ones move up, and keep their order."""
        # Their trainings have left the stages' banks already, when they ended.
        gone = set(numbers)
        kept = [n for n in range(len(self.pairs)) if n not in gone]
        self.pairs = [self.pairs[n] for n in kept]
        self.travellers = [self.travellers[n] for n in kept]

    def _withdraw(self, travellers: Iterable[Traveller]) -> None:
        """Take the trainings of seeds out of their banks."""
        gone = set(travellers)
        for key, owners in self.owners.items():
            own = [n for n, (owner, _) in enumerate(owners) if owner in gone]
            if own:
                self.banks[key].end(own)
                self._remove(key, own)

    def _remove(self, key: LegKey, numbers: Sequence[int]) -> None:
        self.banks[key].remove(numbers)
        gone = set(numbers)
        self.owners[key] = [owner for n, owner in enumerate(self.owners[key]) if n not in gone]

    # ---- how far they are

    def newest(self) -> list[dict[str, Any]]:
        """Return one row per seed: outcome, steps of all its trainings, grok step and best exact match."""
        steps = self._open_steps()
        rows = []
        for traveller in self.travellers:
            result = traveller.result(steps[traveller])
            row = {
                "outcome": result.outcome.value,
                "step": result.steps,
                "grok_step": result.grok_step,
                "best_exact": result.best_exact,
            }
            rows.append(row)
        return rows

    def result(self, n: int) -> Result:
        """Return the n-th seed as far as it got."""
        traveller = self.travellers[n]
        return traveller.result(0 if traveller.outcome else self._open_steps()[traveller])

    def _open_steps(self) -> Counter[Traveller]:
        """Return the steps of the trainings that have not ended, by seed."""
        steps: Counter[Traveller] = Counter()
        for key, owners in self.owners.items():
            for (owner, _), row in zip(owners, self.banks[key].newest(), strict=True):
                steps[owner] += row["step"]
        return steps

    # ---- saved and restored

    @property
    def _slots_that_matter(self) -> int | None:
        """Torch's bits depend on the number of slots; the engine's do not."""
        return None if self.backend.supports_partial_bank else self.slots

    def save(self, n: int) -> bytes:
        """Return the state of a seed, which a bank of the same recipe goes on from bit for bit."""
        return self.save_all([n])[0]

    def save_all(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the states of seeds."""
        wanted = [self.travellers[n] for n in numbers]
        states: dict[Traveller, States] = {traveller: {} for traveller in wanted}
        for key, owners in self.owners.items():
            own = [n for n, (owner, _) in enumerate(owners) if owner in states]
            saved = self.banks[key].save_all(own)
            for n, state in zip(own, saved, strict=True):
                owner, place = owners[n]
                states[owner][place] = state
        return [traveller.save(states[traveller], self._slots_that_matter) for traveller in wanted]

    def restore(self, n: int, data: bytes) -> bool:
        """Set a seed back to a state. Return False, and change nothing, if it is damaged or another seed's."""
        return self.restore_all({n: data}) == [n]

    def restore_all(self, states: Mapping[int, bytes]) -> list[int]:
        """Set seeds back to states. Return those whose states could be used."""
        restored: dict[int, Traveller] = {}
        of_trainings: dict[Traveller, States] = {}
        for n, data in states.items():
            # A new one: a state that cannot be used must leave the old one as it is.
            traveller = Traveller(self.pairs[n])
            open_states = traveller.restore(data, self._slots_that_matter)
            if open_states is not None:
                restored[n] = traveller
                of_trainings[traveller] = open_states

        self._withdraw(self.travellers[n] for n in restored)
        for n, traveller in restored.items():
            self.travellers[n] = traveller
        on_their_way = [traveller for traveller in restored.values() if traveller.outcome is None]
        self._depart(on_their_way, of_trainings)
        return list(restored)


def _key_of(traveller: Traveller) -> LegKey:
    return traveller.leg.stage, traveller.leg.is_longer


def _loss_of(backend: Any, theta_WP: Tensor) -> Tensor:
    # Some at a time: torch has all their logits in memory.
    some = theta_WP.split(MOST_RANKED)
    return torch.cat([backend.evaluate(part_WP.to(backend.device))["loss"].cpu() for part_WP in some])
