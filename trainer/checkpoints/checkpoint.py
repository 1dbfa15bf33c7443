"""A checkpoint: one seed's θ, its spec and its provenance, in a folder of two files.

theta.safetensors holds θ [P] and nothing else; checkpoint.json holds spec, recipe, seed, step, metrics, code
version and provenance. Both are data: reading them runs no code.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from model.doors import missing, packages_of
from model.files import JSON_FILE as JSON_FILE
from model.files import THETA_FILE as THETA_FILE
from model.files import read_limited
from model.presets import preset_name
from model.spec import Spec, make_spec
from trainer.files import durable
from trainer.files import trusted as trusted  # a text that a checkpoint has is run where this user lets it
from trainer.files.installed import code_version

LARGEST_FILE = 1 << 24  # bytes; θ has a few hundred numbers
FORMAT = 1
FIELDS = {
    "spec": dict,
    "recipe": dict,
    "seed": dict,
    "step": int,
    "metrics": dict,
    "provenance": dict,
    "code": str,
}
BESIDE_SPEC = tuple(name for name in FIELDS if name != "spec")
NO_TENSORS = (LookupError, TypeError, RuntimeError, ValueError, OverflowError)
"""Errors that safetensors and torch raise for an invented header."""
KINDS = {dict: "a mapping", int: "an integer", str: "a string"}


@dataclass(frozen=True, repr=False)
class Checkpoint:
    """θ [P] and its provenance. `step`: training steps; `metrics`: fractions of selection problems."""

    spec: Spec
    theta_P: Tensor
    recipe: dict[str, Any] = field(default_factory=dict)
    seed: dict[str, int] = field(default_factory=dict)
    step: int = 0
    metrics: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    code: str = field(default_factory=code_version)

    def __repr__(self) -> str:
        """Return a line: the model, the seed and the step."""
        numbers = " ".join(map(str, dict.fromkeys(self.seed.values())))
        seed = f", seed {numbers}" if numbers else ""
        return f"Checkpoint({preset_name(self.spec)}{seed}, step {self.step:,})"

    def as_dict(self) -> dict[str, Any]:
        """Return everything but θ, as plain values."""
        values: dict[str, Any] = {"format": FORMAT, "params": self.spec.params, "spec": self.spec.as_dict()}
        # Where a task or family is another package's: who lacks it is told its name.
        if packages := packages_of(self.spec.places()):
            values["packages"] = packages
        return values | {name: getattr(self, name) for name in BESIDE_SPEC}

    def as_origin(self) -> dict[str, Any]:
        """Return the facts that a checkpoint derived from this one records of it."""
        return {
            "model": preset_name(self.spec),
            "params": self.spec.params,
            "spec": self.spec.as_dict(),
            "theta_sha256": hashlib.sha256(self.theta_P.numpy().tobytes()).hexdigest(),
            "provenance": self.provenance,
        }

    @property
    def theta_bytes(self) -> bytes:
        """Return the content of THETA_FILE."""
        return save({"theta": self.theta_P.contiguous()})

    def save(self, path: str | Path) -> None:
        """Write a folder, each file atomically and durably, θ first (trainer/files/durable.py)."""
        folder = Path(path)
        durable.make_folder(folder)
        text = json.dumps(self.as_dict(), indent=2) + "\n"
        # The JSON file last: with it the folder is a checkpoint.
        durable.write(folder / THETA_FILE, self.theta_bytes)
        for name, content in self.spec.files(self.theta_P).items():
            durable.write(folder / name, content)
        durable.write(folder / JSON_FILE, text.encode())

    @classmethod
    def load(cls, path: str | Path) -> Checkpoint:
        """Read a checkpoint folder, or either of its files. Raises ValueError saying what is wrong."""
        path = Path(path)
        if not path.is_dir() and path.name not in (JSON_FILE, THETA_FILE):
            raise ValueError(f"{path}: not a checkpoint, which is a folder with {JSON_FILE} and {THETA_FILE}")
        folder = path if path.is_dir() else path.parent
        about = _read_json(folder / JSON_FILE)
        if about.get("format") != FORMAT:
            raise ValueError(f"{folder / JSON_FILE}: not a checkpoint of format {FORMAT}")
        _check_types(folder / JSON_FILE, about)
        try:
            spec = make_spec(**about["spec"])
            spec.check_asked()
        except (TypeError, ValueError) as error:
            lacking = ", ".join(missing(about.get("packages")))
            why = f"; it needs {lacking}, which is not installed here" if lacking else ""
            raise ValueError(f"{folder / JSON_FILE}: spec: {error}{why}") from None
        theta_P = _read_theta(folder / THETA_FILE, spec)
        return cls(spec, theta_P, **{name: about[name] for name in BESIDE_SPEC})


def _read_bytes(path: Path) -> bytes:
    try:
        return read_limited(path, LARGEST_FILE, "checkpoint")
    except ValueError as error:
        raise ValueError(f"{path}: {error} (a checkpoint is a folder with {JSON_FILE} and {THETA_FILE})") from None


def _check_types(path: Path, about: dict[str, Any]) -> None:
    """Check the types of a checkpoint's values. Raises ValueError at the key path."""
    # `type() is` below and no isinstance: a seed of `true` is no number.
    typed = {name: (about[name], kind) for name, kind in FIELDS.items()}
    if isinstance(about["seed"], dict):
        for name, value in about["seed"].items():
            printable = ascii(name)[1:-1]
            typed[f"seed.{printable:.40}"] = (value, int)
    if isinstance(about["spec"], dict):
        typed["spec.family"] = (about["spec"].get("family"), str)
    for name, (value, kind) in typed.items():
        if type(value) is not kind:
            raise ValueError(f"{path}: {name}: must be {KINDS[kind]}, got {value!r:.80}")


def _read_json(path: Path) -> dict[str, Any]:
    text = _read_bytes(path)
    try:
        about = json.loads(text)
    except (ValueError, RecursionError):  # lists in lists, thousands deep
        raise ValueError(f"{path}: not valid JSON") from None
    missing = FIELDS.keys() - set(about if isinstance(about, dict) else ())
    if missing:
        raise ValueError(f"{path}: not a checkpoint, {', '.join(sorted(missing))} missing")
    return about


def _read_theta(path: Path, spec: Spec) -> Tensor:
    data = _read_bytes(path)
    try:
        tensors = load(data)
    except SafetensorError as error:
        raise ValueError(f"{path}: not a safetensors file ({ascii(str(error))[1:-1]:.200})") from None
    except NO_TENSORS:
        raise ValueError(f"{path}: its header asks for numbers or shapes that torch has not") from None
    theta = tensors.get("theta")
    if theta is None or theta.dtype != torch.float32 or theta.shape != (spec.params,):
        actual = "no tensor 'theta'" if theta is None else f"{theta.dtype} {tuple(theta.shape)!s:.80}"
        raise ValueError(f"{path}: θ must be {spec.params} float32 numbers for this spec, found {actual}")
    # Of other numbers every verdict would be meaningless.
    if not torch.isfinite(theta).all():
        raise ValueError(f"{path}: θ has numbers that are not finite")
    return theta
