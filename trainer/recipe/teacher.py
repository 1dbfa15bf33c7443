"""A teacher: another model's θ, whose answers a seed learns beside the right ones: distillation.

The arithmetic is in trainer/step/objective.py, and for the engine in model/cpp/loss.h.

A recipe holds its whole teacher as one word. So it depends on the teacher's numbers and not on their path, and
neither a worker nor a checkpoint's provenance needs a file.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from model.fields import ON, option
from model.presets import preset_name
from model.spec import Spec, make_spec
from model.trust import Untrusted
from trainer.fields import WARLOCKEE, Group, dependent_option

FORM = "a checkpoint's folder, or the word that a study has for what was read there"
LONGEST = 1 << 20  # characters of a word
NESTED = ("model", "into", "base", "recipe", "longer")
"""Keys of a stage, and of a tied model, whose values have fields too."""


@dataclass(frozen=True, kw_only=True)
class Distillation(Group):
    """Fields of distillation. Evaluations measure plain cross-entropy, with a teacher too."""

    distill_alpha: float = option(
        0.0,
        "distillation: share of T² KL(teacher, seed), at a temperature T, in the loss; 0 is off",
        unit="fraction",
        ge=0,
        le=1,
        switch=True,
        off=0.0,
        needs={"teacher": ON},
        source=f"Hinton, Vinyals and Dean, arXiv 1503.02531, section 2; Reflection 7; {WARLOCKEE}: 0.5",
    )
    distill_temperature: float = dependent_option(
        "distill_alpha",
        2.0,
        "that temperature T",
        unit="factor",
        ge=0.1,
        le=100,
        source=WARLOCKEE,
    )
    teacher: str = dependent_option(
        "distill_alpha",
        "",
        "a checkpoint's folder, of any family with the same sequence, that has grokked; "
        "a recipe has what was read there, so its key does not depend on the path",
        unit="folder",
        shapes=True,
        source="Reflection 7",
    )

    @staticmethod
    def validate(recipe: Any) -> None:
        if recipe.teacher:
            teacher_of(recipe.teacher)


@dataclass(frozen=True)
class Teacher:
    """θ [P] of a spec that is not tied."""

    spec: Spec
    theta: tuple[float, ...]

    @property
    def word(self) -> str:
        """Return the teacher as text: a digest, then spec and θ. It is the same for the same bits."""
        plain = self.spec.as_dict()
        # What differs from the defaults, so that a new field of the spec changes no word.
        chosen = {f.name: plain[f.name] for f in fields(self.spec) if getattr(self.spec, f.name) != f.default}
        head = json.dumps([self.spec.family, chosen], sort_keys=True).encode()
        numbers = struct.pack(f"<{len(self.theta)}f", *self.theta)
        content = head + b"\n" + numbers
        return f"{_digest(content)}:{base64.b64encode(content).decode()}"

    @property
    def title(self) -> str:
        """Return preset and digest: `67p 1f0c8a2b9d3e`."""
        return f"{preset_name(self.spec)} {self.word.partition(':')[0]}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


@lru_cache(maxsize=64)
def teacher_of(word: str) -> Teacher:
    """Decode the word of a teacher. Raise ValueError for any other text, and Untrusted for code that may not run."""
    if len(word) > LONGEST:
        most = f"{LONGEST:,} characters, fewer than {LONGEST * 3 // 16:,} numbers"
        raise ValueError(f"teacher must be a word of at most {most}, got {len(word):,} characters")
    try:
        digest, _, text = word.partition(":")
        content = base64.b64decode(text, validate=True)
        about, numbers = content.split(b"\n", 1)
        family, options = json.loads(about)
        theta = struct.unpack(f"<{len(numbers) // 4}f", numbers)
        spec = make_spec(family, **options)
    except Untrusted:  # says what lets it run
        raise
    except (ValueError, TypeError, struct.error, RecursionError):  # any text may be there
        raise ValueError(f"teacher must be {FORM}, got {word!r:.80}") from None
    # A word that somebody shortened or edited is no teacher, though it may still decode.
    is_whole = _digest(content) == digest and len(theta) == spec.params
    if not is_whole or not all(abs(x) < float("inf") for x in theta):
        raise ValueError(f"teacher must be {FORM}, got {word!r:.80}")
    return Teacher(spec, theta)


def shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's plain values for people: titles of teachers replace their numbers, and no text of a module."""
    told = {**values, **{key: shown(inner) for key, inner in _nested(values).items()}}
    told.pop("code", None)  # a module's whole file is one of its fields
    if values.get("teacher"):
        told["teacher"] = teacher_of(values["teacher"]).title
    if "stages" in values:
        told["stages"] = [shown(stage) for stage in values["stages"]]
    return told


def code_in(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of the modules in a recipe's plain values: of its stages' models, and of teachers."""
    if values.get("code"):
        yield values["code"]
    if values.get("teacher"):
        about, *_ = base64.b64decode(values["teacher"].partition(":")[2]).split(b"\n", 1)
        yield from code_in(json.loads(about)[1])
    for inner in (*_nested(values).values(), *values.get("stages", ())):
        yield from code_in(inner)


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: inner for key, inner in values.items() if key in NESTED and isinstance(inner, dict)}


def check_teacher(spec: Spec, recipe: Any) -> None:
    """Raise ValueError unless a spec's seeds can learn from the recipe's teacher."""
    if not recipe.teacher:
        return
    teacher = teacher_of(recipe.teacher)
    if teacher.spec.task != spec.task:
        raise ValueError(f"teacher must have the task {spec.task.title}, and has {teacher.spec.task.title}")
    # A teacher of another family may do: what counts is that both predict the same tokens at the same places.
    if teacher.spec.logits == spec.logits:
        if _is_same_sequence(teacher.spec, spec):  # without torch, so that studies are listed at once
            return
        from trainer.data.problems import marked

        if marked(teacher.spec) == marked(spec):
            return
    raise ValueError(f"teacher must have {preset_name(spec)}'s sequence of tokens, which {teacher.title} has not")


def _is_same_sequence(first: Spec, second: Spec) -> bool:
    """True if two specs surely have one sequence: a family's depends on task, tokens and answers alone."""
    a = getattr(first, "base", first)
    b = getattr(second, "base", second)
    return (a.family, a.tokens, a.answers, a.task) == (b.family, b.tokens, b.answers, b.task)
