"""A teacher: another model's θ, whose answers a seed learns beside the right ones (trainer/recipe/losses.py).

A recipe has it whole, as one word: what a recipe is depends on what its teacher knows and not on where that
lay, and whoever has the recipe, a worker or a checkpoint's papers, needs no file.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import struct
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from model.presets import preset_name
from model.spec import Spec, make_spec

if TYPE_CHECKING:
    from torch import Tensor

FORM = "a checkpoint's folder, or the word that a study has for what was read there"
LONGEST = 1 << 20  # characters of a word


@dataclass(frozen=True)
class Teacher:
    """θ [P] of a spec that is not tied."""

    spec: Spec
    theta: tuple[float, ...]

    @property
    def word(self) -> str:
        """All of it: a digest, then what that is of. The same for the same bits."""
        told = _told(self.spec, self.theta)
        return f"{hashlib.sha256(told).hexdigest()[:12]}:{base64.b64encode(told).decode()}"

    @property
    def title(self) -> str:
        """In two words: `67p 1f0c8a2b9d3e`."""
        return f"{preset_name(self.spec)} {self.word.partition(':')[0]}"

    def theta_1P(self, like: Tensor) -> Tensor:
        """θ [1, P], of a tensor's type and device."""
        return like.new_tensor([self.theta])


@lru_cache(maxsize=64)
def teacher_of(word: str) -> Teacher:
    """A word's teacher. Raises ValueError."""
    try:
        digest, _, text = word.partition(":")
        if len(word) > LONGEST:
            raise ValueError("too long")
        told = base64.b64decode(text, validate=True)
        about, numbers = told.split(b"\n", 1)
        (family, options), theta = json.loads(about), struct.unpack(f"<{len(numbers) // 4}f", numbers)
        spec = make_spec(family, **options)
    except (ValueError, TypeError, struct.error, binascii.Error):
        raise ValueError(f"teacher must be {FORM}, got {word!r:.80}") from None
    whole = hashlib.sha256(told).hexdigest()[:12] == digest and len(theta) == spec.params
    if not whole or not all(abs(x) < float("inf") for x in theta):
        raise ValueError(f"teacher must be {FORM}, got {word!r:.80}")
    return Teacher(spec, theta)


def shown(values: dict[str, Any]) -> dict[str, Any]:
    """A recipe's plain values to be read: with the teacher's title in the place of all its numbers."""
    return values | {"teacher": teacher_of(values["teacher"]).title} if values.get("teacher") else values


def check_teacher(spec: Spec, recipe: Any) -> None:
    """Raise ValueError unless a spec's seeds can learn from the recipe's teacher."""
    if not recipe.teacher:
        return
    teacher = teacher_of(recipe.teacher)
    if _alike(teacher.spec, spec):  # said without torch, so that studies can be listed at once
        return
    from trainer.data.problems import marked

    if marked(teacher.spec) != marked(spec) or teacher.spec.vocabulary != spec.vocabulary:
        raise ValueError(
            f"teacher must have {preset_name(spec)}'s sequence of tokens, which {teacher.title} has not"
        )


def _alike(one: Spec, other: Spec) -> bool:
    """Whether two specs surely have one sequence: a family's depends on vocabulary and answers alone."""
    a, b = (getattr(spec, "base", spec) for spec in (one, other))
    return (a.family, a.vocabulary, a.answers) == (b.family, b.vocabulary, b.answers)


def _told(spec: Spec, theta: tuple[float, ...]) -> bytes:
    chosen = {f.name: v for f in fields(spec) if (v := getattr(spec, f.name)) != f.default}
    return (
        json.dumps([spec.family, chosen], sort_keys=True).encode()
        + b"\n"
        + struct.pack(f"<{len(theta)}f", *theta)
    )
