"""Measures of a trained θ that the papers make claims about."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from model import preset_name
from search.errors import UserError, reraise_as
from trainer import Outcome

if TYPE_CHECKING:
    from trainer.checkpoints.checkpoint import Checkpoint

Tensors = dict[str, np.ndarray]


@dataclass(frozen=True)
class Trained:
    """A checkpoint that was trained from scratch and had all selection problems right."""

    checkpoint: Checkpoint

    @property
    def preset(self) -> str:
        return preset_name(self.checkpoint.spec)

    @cached_property
    def tensors(self) -> Tensors:
        """Return θ by the names of its layout, in float64."""
        split = self.checkpoint.spec.layout.split(self.checkpoint.theta_P[None])
        return {name: t[0].double().numpy() for name, t in split.items()}

    def measure(self, name: str) -> float:
        """Return one of MEASURES. Raises UserError where the checkpoint has no such thing."""
        try:
            return MEASURES[name][1](self.tensors, self.checkpoint.spec)
        except KeyError as error:
            raise UserError(f"{self.preset} has no {error.args[0]}: {name} cannot be measured") from None


def is_checkpoint(path: Path) -> bool:
    return (path / "checkpoint.json").is_file()


def read(folders: Iterable[Path]) -> list[Trained]:
    """Return the checkpoints of folders that grokked from scratch. Raises UserError for a damaged one."""
    from trainer.checkpoints.checkpoint import Checkpoint

    with reraise_as():
        checkpoints = [Checkpoint.load(folder) for folder in folders]
    return [Trained(c) for c in checkpoints if _grokked_from_scratch(c)]


def _grokked_from_scratch(checkpoint: Checkpoint) -> bool:
    grokked = checkpoint.metrics.get("outcome") == Outcome.GROKKED
    return bool(grokked and checkpoint.provenance.get("trained") == "from scratch")


def _radii(t: Tensors, spec: Any) -> float:
    return float(abs(t["arc"][0] / t["arc"][1]))


def _arc(t: Tensors, spec: Any) -> float:
    return float(abs(np.degrees(9 * t["arc"][-1])))


def _rise(t: Tensors, spec: Any) -> float:
    amplitude, _, slope, _ = t["spiral"]
    return float(abs(9 * slope / amplitude))


def _turn(t: Tensors, spec: Any) -> float:
    return float(abs(np.degrees(t["phase"])).min())


def _last_weight(t: Tensors, spec: Any) -> float:
    *others, last = np.abs(t["norm"][0])
    return float(last / max(others))


def _alike_norms(t: Tensors, spec: Any) -> float:
    unit = t["norm"] / np.linalg.norm(t["norm"], axis=1, keepdims=True)
    return float((unit @ unit.T).min())


def _written_tokens(t: Tensors, spec: Any) -> float:
    row = np.abs(t["out_B"][0])
    return float(row[: spec.tok_dim].sum() / row.sum())


def _second_written(t: Tensors, spec: Any) -> float:
    first, second = sorted(np.abs(t["out_B"][0]), reverse=True)[:2]
    return float(second / first)


def _written_beside_head(t: Tensors, spec: Any) -> float:
    row, head = t["out_B"][0], t["head"]
    return float(np.abs(head @ row / (np.linalg.norm(head, axis=1) * np.linalg.norm(row))).max())


def _third_value(t: Tensors, spec: Any) -> float:
    values = np.linalg.svd(t["q_proj"], compute_uv=False) ** 2
    return float(values[2] / values.sum())


def _read_tokens(t: Tensors, spec: Any) -> float:
    tokens, positions = t["fc1"][:, : spec.tok_dim], t["fc1"][:, spec.tok_dim :]
    return float((np.linalg.norm(tokens, axis=1) / np.linalg.norm(positions, axis=1)).min())


def _values_beside_head(t: Tensors, spec: Any) -> float:
    values, head = t["v_proj"].T.ravel(), t["head"].ravel()
    return float(abs(values @ head) / (np.linalg.norm(values) * np.linalg.norm(head)))


MEASURES: dict[str, tuple[str, Callable[[Tensors, Any], float]]] = {
    "radii": ("the arc's first radius over its second", _radii),
    "arc": ("degrees from digit 0 to digit 9 on the arc", _arc),
    "rise": ("how far the spiral rises over ten digits, over its radius", _rise),
    "turn": ("degrees between queries and keys, of the head that is turned least", _turn),
    "last-weight": ("the last of the norm's weights over the largest other", _last_weight),
    "alike-norms": ("the cosine of the two norms that are least alike", _alike_norms),
    "written-tokens": ("the share of the output's row that is on token dimensions", _written_tokens),
    "second-written": ("the second largest entry of the output's row over the largest", _second_written),
    "written-beside-head": (
        "the larger cosine of the output's row with one of the head",
        _written_beside_head,
    ),
    "third-value": ("the third singular value's share of the query projection's energy", _third_value),
    "read-tokens": (
        "what an FFN unit reads of tokens over what of positions, the smaller",
        _read_tokens,
    ),
    "values-beside-head": ("the cosine of values with the head", _values_beside_head),
}
"""Name -> description, function of θ and spec."""
