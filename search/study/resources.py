"""The sections `resources` and `faults` of a study file: the machine's share of a worker, and its failures."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from search.study.space import Strict

CPU_SLOTS, MOST_CORES = 16, 1_024
ACCELERATOR = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$"


class Faults(Strict):
    """The handling of workers that raise, lose their process or node, or hang."""

    max_failures: int = Field(2, ge=0, le=1_000, description="how often a worker is started again")
    stall_s: int = Field(1_800, ge=1, description="a worker that reports nothing for so long has failed; unit: seconds")


class Resources(Strict):
    """The machine's share of one worker, its seeds, and how many of them train at once."""

    cpu: int | float = Field(
        1,
        gt=0,
        le=MOST_CORES,
        description="cores of a worker, and its threads; below 1 where workers share a GPU; unit: cores",
    )
    gpu: float | Literal["auto"] = Field(
        "auto", description="share of a GPU; auto: what a model says is fastest; unit: GPUs"
    )
    accelerator_type: str | None = Field(
        None, pattern=ACCELERATOR, description="only nodes that Ray knows to have it: H200, A100-80G, TPU-V4"
    )
    slots: int | None = Field(
        None,
        ge=1,
        le=65_536,
        description="seeds trained at once; default 16, on a GPU as many as it holds; unit: seeds",
    )
    seeds_per_trial: int | None = Field(
        None,
        ge=1,
        le=65_536,
        description="most seeds that a bank has; those beyond its slots wait; unit: seeds",
    )
    compiled: bool = Field(True, description="compile the train step (off: eager, slow, for tests)")
    save_every: int = Field(5, ge=1, description="distance of saved bank states; unit: evaluations")

    @property
    def threads(self) -> int:
        return int(self.cpu) or 1  # of half a core too

    @field_validator("cpu", "gpu")
    @classmethod
    def _share(cls, value: float | str, info: ValidationInfo) -> float | str:
        if isinstance(value, str) or 0 <= value <= 1 or (value > 1 and value % 1 == 0):
            return value
        allowed = "above 0 and at most 1, or a whole number"
        if info.field_name == "gpu":
            allowed = "from 0 to 1, or a whole number, or auto"
        raise ValueError(f"must be {allowed}, got {value}")
