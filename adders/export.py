"""Export: one θ as one self-contained AdderBoard submission, data plus fixed code.

The fixed code is the family's file in `model/submissions`, and what adders/adderboard.py says of all families.
The data of a tied spec are its numbers, each once, and its ties, which TiedAdder reads.
Everything goes in as literals, so no text of a user or a checkpoint can become code.

Axes: P parameters.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import pprint
import struct
from typing import TYPE_CHECKING, Any

from model.fields import did_you_mean, spelt
from model.spec import FAMILIES
from model.tied import Tied

if TYPE_CHECKING:
    from torch import Tensor

    from model.spec import Spec

# Marks in a family's file, and the call in adderboard.py that a tied spec has otherwise.
BEGIN = "# ---- data ----\n"
END = "# ---- end of data ----\n"
CALL = "Adder(SPEC, WEIGHTS)"
TIED_CALL = "TiedAdder(SPEC, NUMBERS, TIES)"
ENCODE = "def encode("
"""The first function of a family's file that says what tokens mean; before it the model is built."""
ADDERBOARD = "# ---- AdderBoard ----"
"""What follows is AdderBoard's interface alone: it lets a submission decode."""
LINE = 99  # characters in a line of data
DEEPEST = 90
"""Dictionaries and lists inside each other: Python's parser takes 200 brackets, of which strings need some."""
PROOF = ("verdict", "level", "margin", "theta_sha256")
"""What the metadata say of a proof."""


ARENA = '''\
__all__ = ["MAX_OUTPUT_LEN", "VOCAB_SIZE", "build_model", "decode", "encode"]


class SelfAttention(nn.Module):
    """The model's attention as a module of its own, which the arena's harness looks for. It has no parameters."""

    def __init__(self, attend: Any) -> None:
        super().__init__()
        self.attend = attend

    def forward(self, *inputs: Any) -> Any:
        return self.attend(*inputs)


class ArenaAdder(Adder):
    """The model above, with its attention as a module."""

    def __init__(self, *data: Any) -> None:
        super().__init__(*data)
        self.self_attention = SelfAttention(super().attention)

    def attention(self, *inputs: Any) -> Any:
        return self.self_attention(*inputs)
'''
"""What a file for optimizationarena.com has before `build_model`: its harness decodes, by `encode` and `decode`."""


READER = '''\
import json
from pathlib import Path

HERE = Path(__file__).parent


def read_tensors(path: Path) -> dict[str, Any]:
    """Return the float32 tensors of a safetensors file as nested lists."""
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, about in json.loads(raw[8:end]).items():
        if name != "__metadata__":
            first, last = (end + n for n in about["data_offsets"])
            numbers = torch.frombuffer(bytearray(raw[first:last]), dtype=torch.float32)
            tensors[name] = numbers.reshape(about["shape"]).tolist()
    return tensors


CONFIG: dict[str, Any] = json.loads((HERE / "config.json").read_text("utf-8"))
SPEC, METADATA, TIES = CONFIG["spec"], CONFIG["metadata"], CONFIG.get("ties")
WEIGHTS = read_tensors(HERE / "model.safetensors")
'''
"""What a program of a folder for a hub has in place of data."""


def export_source(
    spec: Spec,
    theta_P: Tensor,
    *,
    name: str,
    author: str,
    provenance: dict[str, Any],
    proof: dict[str, Any] | None = None,
    arena: bool = False,
) -> str:
    """Return the text of submission.py for one seed's θ [P] (write it as UTF-8).

    name, author: as AdderBoard is to show them.
    arena: for optimizationarena.com, whose harness decodes, in place of AdderBoard's.
    provenance: plain values (as in JSON) that say where θ comes from.
    proof: the verdict of `prove` on it.
    Raises ValueError if θ has another length or is not finite in float32, if name or author is not text, or if
    the family has no file in `model/submissions`.

    >>> from model import preset
    >>> spec = preset("57p")
    >>> text = export_source(spec, spec.initial(0), name="57p", author="me", provenance={})
    >>> "def build_model" in text
    True
    """
    blocks = data_blocks(spec, theta_P, name=name, author=author, proof=proof)
    blocks["PROVENANCE"] = _plain("provenance", provenance)
    types = {"NUMBERS": "list[float]"}
    lines = []
    for block, value in blocks.items():
        kind = types.get(block, "dict[str, Any]")
        lines.append(f"{block}: {kind} = {_literal(value)}\n")
    return _program(spec, "".join(lines), arena=arena)


def hub_source(spec: Spec) -> str:
    """Return a program that reads config.json and model.safetensors beside it, which `data_blocks` is for."""
    numbers = 'NUMBERS = WEIGHTS["numbers"]\n' if isinstance(spec, Tied) else ""
    return _program(spec, READER + numbers)


def data_blocks(
    spec: Spec,
    theta_P: Tensor,
    *,
    name: str,
    author: str,
    proof: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return SPEC, METADATA, and WEIGHTS; of a tied spec NUMBERS and TIES. Raises ValueError (`export_source`)."""
    base = spec.base if isinstance(spec, Tied) else spec
    metadata = {
        "name": _text("name", name),
        "author": _text("author", author),
        "params": spec.params,
        "architecture": _template(base.family).architecture(base.as_dict()),
        "tricks": tricks(spec),
    }
    if proof:
        metadata["all_pairs"] = {key: proof[key] for key in PROOF}
    blocks = {
        "SPEC": _plain("spec", base.as_dict()),
        "METADATA": _plain("metadata", metadata),
    }
    if isinstance(spec, Tied):
        return blocks | {
            "NUMBERS": stored_numbers(spec, theta_P),
            "TIES": _nested(spec),
        }
    return blocks | {"WEIGHTS": weights(spec, theta_P)}


def _program(spec: Spec, data: str, *, arena: bool = False) -> str:
    """Return a family's program with its data; for the arena attention is a module, and nothing decodes."""
    from adders import adderboard

    base = spec.base if isinstance(spec, Tied) else spec
    # a family's file is cut at its marks: what it is about, our data, the model, what tokens mean
    about, rest = inspect.getsource(_template(base.family)).split(BEGIN)
    model, tokens = rest.split(END)[1].split(ENCODE)
    build = inspect.getsource(adderboard.build_model)
    parts = [model]
    if isinstance(spec, Tied):
        parts.append(inspect.getsource(adderboard.TiedAdder))
        build = build.replace(CALL, TIED_CALL)
    if arena:
        about = about.replace("an AdderBoard submission", "a submission to optimizationarena.com", 1)
        made = "TiedAdder" if isinstance(spec, Tied) else "Adder"
        parts.append(ARENA.replace("ArenaAdder(Adder)", f"ArenaAdder({made})"))
        build = build.replace(f"{made}(", "ArenaAdder(")
    parts += [build, ENCODE + tokens]
    if not arena:
        parts += [ADDERBOARD, inspect.getsource(adderboard.generate), inspect.getsource(adderboard.add)]
    code = "\n\n\n".join(part.strip() for part in parts)
    return f"{about}{BEGIN}{data}{END}\n{code}\n"


def stored_numbers(spec: Spec, theta_P: Tensor) -> list[float]:
    """Return θ [P] as floats, each once, with the fewest digits that give back each float32."""
    stored = list[float]()
    for numbers in weights(spec, theta_P).values():
        stored += numbers
    return stored


def _nested(spec: Tied) -> dict[str, Any]:
    """Return the ties of each tensor in its shape."""
    import torch

    nested = {}
    for name, ties in spec.by_tensor().items():
        shape = spec.base.shapes()[name]
        nested[name] = torch.tensor(ties).reshape(shape).tolist()
    return nested


def tricks(spec: Spec) -> list[str]:
    """Return the names of applied constraints, a size with its value (`qk_dim=4`), then the ties."""
    if isinstance(spec, Tied):
        return [*tricks(spec.base), *spec.spelt()]
    return [spelt(name, value) for name, value in spec.applied().items()]


def weights(spec: Spec, theta_P: Tensor) -> dict[str, Any]:
    """Return θ [P] as nested lists by tensor name, with the fewest digits that give back each float32.

    Raises ValueError if θ has another length or is not finite in float32.
    """
    if theta_P.shape != (spec.params,):
        raise ValueError(f"theta must have shape ({spec.params},), got {tuple(theta_P.shape)}")
    # a submission's model is in float32
    theta_P = theta_P.detach().cpu().float()
    tensors = spec.layout.split(theta_P[None])
    bad = [name for name, t in tensors.items() if not t.isfinite().all()]
    if bad:
        raise ValueError(f"theta must be finite in float32, it is not in {', '.join(bad)}")
    return {name: _shorten(t[0].tolist()) for name, t in tensors.items()}


def _template(family: str) -> Any:
    """Import the family's submission. Raises ValueError naming the nearest family that has one."""
    module = f"model.submissions.{family}"
    if importlib.util.find_spec(module) is None:
        written = [f for f in FAMILIES if importlib.util.find_spec(f"model.submissions.{f}")]
        raise ValueError(f"family {family!r} has no submission file; {did_you_mean(family, written)}")
    return importlib.import_module(module)


def _shorten(values: Any) -> Any:
    """Return the shortest floats, of at most 9 significant digits, that equal these in float32."""
    if isinstance(values, list):
        return [_shorten(v) for v in values]
    exact = struct.pack("f", values)
    # nine digits tell any two float32 numbers apart
    candidates = (float(f"{values:.{digits}g}") for digits in range(1, 10))
    return next(number for number in candidates if _single(number) == exact)


def _single(value: float) -> bytes | None:
    """Return the bytes of a float in float32; None if rounding up left its range."""
    try:
        return struct.pack("f", value)
    except OverflowError:
        return None


def _text(name: str, value: object) -> str:
    """Return a value that must be text. Raises ValueError naming it."""
    if type(value) is not str:
        raise ValueError(f"{name} must be text, got {value!r}")
    return value


def _plain(name: str, value: object) -> dict[str, Any]:
    """Rebuild a dictionary from its JSON, so that each value has a literal."""
    try:
        plain = json.loads(json.dumps(value, allow_nan=False))
    except RecursionError:
        # deeper than Python's own limit, and said below in the same words
        plain = None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold only plain, finite values: {error}") from None
    if plain is None or _depth(plain) > DEEPEST:
        raise ValueError(f"{name} is nested more than {DEEPEST} deep: Python reads no such literal")
    if type(plain) is not dict:
        raise ValueError(f"{name} must be a dictionary, got {value!r}")
    return plain


def _depth(value: Any) -> int:
    """Return how many dictionaries and lists are inside each other."""
    # level by level: a function that calls itself would end at Python's own limit
    depth = 0
    level = [value]
    while True:
        level = [entry for entry in level if isinstance(entry, dict | list)]
        if not level:
            return depth
        depth += 1
        inner: list[Any] = []
        for entry in level:
            inner += entry.values() if isinstance(entry, dict) else entry
        level = inner


def _literal(value: Any, indent: int = 0, used: int = 30) -> str:
    """Return a value as Python source: matrices by rows, anything too long for a line by entries.

    indent: columns before its lines; used: columns already used on its first line.
    """
    line = repr(value)
    is_matrix = isinstance(value, list) and any(isinstance(row, list) for row in value)
    is_block = isinstance(value, dict) and value and not indent  # by entries, however short
    if used + len(line) <= LINE and not is_matrix and not is_block:
        return line
    inner = indent + 4
    if isinstance(value, dict):
        entries = []
        for key, entry in value.items():
            name = repr(key)
            entries.append(f"{name}: {_literal(entry, inner, inner + len(name) + 3)},")
        opening, closing = "{}"
    elif isinstance(value, list):
        entries = [f"{_literal(entry, inner, inner + 1)}," for entry in value]
        opening, closing = "[]"
    elif isinstance(value, str):
        # pieces of a text, which Python's parser joins
        pieces = pprint.pformat(value, width=LINE - inner).strip("()").splitlines()
        entries = [piece.strip() for piece in pieces]
        opening, closing = "()"
    else:
        return line
    lines = "".join(f"{' ' * inner}{entry}\n" for entry in entries)
    return f"{opening}\n{lines}{' ' * indent}{closing}"
