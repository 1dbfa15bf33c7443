"""The exported program of a checkpoint, loaded: what a proof is about."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from adders.export import export_source

if TYPE_CHECKING:
    from torch import Tensor

    from model.spec import Spec


def source(spec: Spec, theta_P: Tensor) -> str:
    """Return the text of submission.py for one θ [P], without a name: what a proof is about."""
    return export_source(spec, theta_P, name="proof", author="", provenance={})


class Program:
    """One θ [P] as `adder-search export` writes it, with its weights in float32."""

    def __init__(self, spec: Spec, theta_P: Tensor):
        self.names: dict[str, Any] = {"__name__": "submission"}
        text = source(spec, theta_P)
        exec(compile(text, "submission.py", "exec"), self.names)  # literals and our own code
        self.model: Any = self.names["build_model"]()[0]

    def captured(self, tokens: list[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return queries, keys and values of one sequence as the program computes them [H, T, n], and what is seen.

        That is what attention makes of them before its output matrix [H, T, n]; an empty tensor in the low_rank family.
        """
        import torch

        # low_rank's program has a method that makes them; the others call torch's attention with them
        rows: list[Tensor] = []
        model = self.model
        if hasattr(model, "queries_keys_values"):
            compute = model.queries_keys_values

            def compute_and_keep(x: Tensor) -> tuple[Tensor, ...]:
                rows.extend(compute(x))
                return tuple(rows)

            model.queries_keys_values = compute_and_keep
            self._run(tokens)
            del model.queries_keys_values
            q, k, v = rows
            return q, k, v, torch.empty(0)
        functions = self.names["F"]

        def attend(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
            seen: Tensor = functions.scaled_dot_product_attention(q, k, v, **options)
            rows.extend([q[0], k[0], v[0], seen[0]])
            return seen

        # the program's own name for torch's functions, and not torch's: others use these meanwhile
        self.names["F"] = SimpleNamespace(**vars(functions) | {"scaled_dot_product_attention": attend})
        self._run(tokens)
        self.names["F"] = functions
        q, k, v, seen = rows
        return q, k, v, seen

    def _run(self, tokens: list[int]) -> None:
        import torch

        with torch.no_grad():
            self.model(torch.tensor([tokens]))

    def add(self, a: int, b: int) -> int:
        """Return the sum that the program decodes."""
        return int(self.names["add"](self.model, a, b))
