"""The exported program of a checkpoint, loaded: what a proof is about."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from model.export import export_source

if TYPE_CHECKING:
    from torch import Tensor

    from model.spec import Spec


class Program:
    """One θ [P] as `adder-search export` writes it, with its weights in float32."""

    def __init__(self, spec: Spec, theta_P: Tensor):
        self.module = ModuleType("submission")
        source = export_source(spec, theta_P, name="proof", author="", provenance={})
        exec(compile(source, "submission.py", "exec"), self.module.__dict__)  # literals and our own code
        self.model: Any = self.module.build_model()[0]

    def add(self, a: int, b: int) -> int:
        """Return the sum that the program decodes."""
        return int(self.module.add(self.model, a, b))
