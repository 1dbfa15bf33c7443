"""Kinds of GPU. Each is brought by a package, NVIDIA's by gpu/. Without torch."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from model.doors import first_line, points

if TYPE_CHECKING:
    from model.spec import Spec
    from trainer.engine.native import EngineBackend
    from trainer.recipe import Recipe

ACCELERATORS = "adder_search.accelerators"
NEEDED = f"a package that trains on GPUs ({ACCELERATORS})"
LOG = "trainer.gpu"
"""The log of what fails on a GPU: workers report its warnings."""
log = logging.getLogger(LOG)


@dataclass(frozen=True)
class Price:
    """What a GPU is expected to do with a spec. It trains a wave of seeds at once, in the time that one takes."""

    wave: int
    """Seeds that train at once."""
    step_s: float
    """Seconds of a wave's step of 256 problems."""
    together: float = 1.0
    """Speed of several banks side by side, as a share of the speed of one."""
    most_together: int = 1
    """Most banks side by side."""
    preset: str = ""
    """The measured preset most like the spec."""
    source: str = ""
    """Where the speed is from, for a plan. `{}` stands for the presets."""
    cards: tuple[str, ...] = ()
    """Lines of a plan on cards of this kind."""

    def slots(self, share: float) -> int:
        """Return how many seeds a share of a GPU trains at once."""
        return max(1, round(self.wave * min(share, 1)))

    def time_s(self, seeds: int) -> float:
        """Return the seconds of a step of `seeds`, which are trained wave by wave."""
        return -(-seeds // self.wave) * self.step_s

    def rate(self, seeds: int, share: float = 1, side_by_side: bool = False) -> float:
        """Return seed-steps/s of a bank with a share of a GPU. side_by_side: other banks train at its side."""
        whole = seeds / self.time_s(seeds)
        if share >= 1:
            return whole
        return whole * (self.together if side_by_side else share)  # else they take turns


class Accelerator(Protocol):
    """A kind of GPU: a module with these functions. A package that has one in adder_metal.py declares it:

    [project.entry-points."adder_search.accelerators"]
    metal = "adder_metal"

    Its name is a bank's `device`. Only `backend` may import torch.
    """

    def is_declared(self) -> bool:
        """True if this machine seems to have such a GPU. Asks no driver."""

    def count(self) -> int:
        """Return the number of GPUs that this process may use. One that does not answer is none."""

    def remark(self, share: float | None, /) -> str:
        """Return what to say before a run, such as that GPUs do not answer; or "".

        share: of a GPU for each bank, as asked for; None if it is not decided.
        """

    def backend(self, spec: Spec, recipe: Recipe, /) -> EngineBackend | None:
        """Return the engine on a GPU, with the CPU engine's bits; or None, with a line in `LOG` that says why."""

    def price(self, spec: Spec | None, /) -> Price:
        """Return what the GPU here, or a common one, is expected to do. spec: None where it is not known yet."""

    def sharing(self) -> str:
        """Return the name of what lets banks of several processes train side by side; "" if they take turns."""

    def side_by_side(
        self, session: Path, share: float, is_auto: bool, /
    ) -> AbstractContextManager[Mapping[str, str] | None]:
        """Let workers with a share of a GPU train side by side until the context ends.

        session: a run's own folder. is_auto: the share was not asked for. The context is variables for workers'
        environment, or None where they take turns.
        """

    def end(self, session: Path, /) -> None:
        """End what `side_by_side` has left in the session of a run that was killed."""


class Missing:
    """No kind of GPU: nothing trains there in any time."""

    def is_declared(self) -> bool:
        return False

    def count(self) -> int:
        return 0

    def remark(self, share: float | None, /) -> str:
        return ""

    def backend(self, spec: Spec, recipe: Recipe, /) -> None:
        log.warning("a GPU needs %s; training by the CPU engine", NEEDED)

    def price(self, spec: Spec | None, /) -> Price:
        return Price(1, float("inf"))

    def sharing(self) -> str:
        return ""

    def side_by_side(self, session: Path, share: float, is_auto: bool, /) -> AbstractContextManager[None]:
        return nullcontext()

    def end(self, session: Path, /) -> None:
        pass


MISSING = Missing()


@cache
def installed() -> dict[str, Accelerator]:
    """Return every kind of GPU by its name. One that fails to load is left out; a line says so once."""
    kinds: dict[str, Accelerator] = {}
    for name, point in points(ACCELERATORS).items():
        try:
            kinds[name] = point.load()
        except Exception as error:
            log.warning("%s: %s cannot be imported: %s", name, point.value, first_line(error))
    return kinds


def of_device(device: str) -> Accelerator:
    """Return the kind of GPU that a bank's device names."""
    return installed().get(device, MISSING)


def accelerator() -> Accelerator:
    """Return the kind of GPU that this machine seems to have, else the first that is installed, or `MISSING`."""
    kinds = [*installed().values(), MISSING]
    return next((kind for kind in kinds if kind.is_declared()), kinds[0])


def device() -> str:
    """Return the device of a bank that has a place on a GPU: the name of its kind, or `cpu` if none is here."""
    return next((name for name, kind in installed().items() if kind.is_declared()), "cpu")
