"""`export --format onnx`: a checkpoint's program as one ONNX file, for what is not torch.

Tokens [batch, length] (int64, named `tokens`) become the logits of each next token [batch, length, vocabulary]. What
encodes and decodes is not in the graph: the file's metadata say it in words.
"""

from __future__ import annotations

import logging
import warnings
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from typing import TYPE_CHECKING, Any

from adders.proof.program import Program

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from model.spec import Spec

NEEDED = ("onnx", "onnxscript")
EXAMPLE = (1234567890, 9876543210)
"""Operands whose tokens the metadata show."""
LONGEST = 1 << 16
"""Batch that the graph is traced for."""
HOW = (
    "decode greedily: append the likeliest next token, {steps} times; "
    "{a} + {b} is asked as {prompt}, answered as {said}"
)


def check_libraries() -> None:
    """Raise ValueError where what torch writes ONNX by is not installed."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ValueError(f"--format onnx needs {' and '.join(missing)}: pip install {' '.join(NEEDED)}")


def write_onnx(spec: Spec, theta_P: Tensor, name: str, author: str, path: Path) -> None:
    """Write the program of θ [P] to a file. name, author: as its metadata show them. Raises ValueError (`Program`)."""
    import torch
    from torch.export import Dim

    program = Program(spec, theta_P)
    prompt = program.names["encode"](*EXAMPLE)
    steps = program.names["MAX_OUTPUT_LEN"]
    batch = Dim("batch", min=1, max=LONGEST)
    length = Dim("length", min=2, max=len(prompt) + steps)
    # two sequences: torch would take a batch of one for a constant
    tokens_BT = torch.tensor([prompt, prompt])
    # its exporter logs, warns and prints, which says nothing to who exports
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"), redirect_stdout(StringIO()):
            made: Any = torch.onnx.export(
                program.model, (tokens_BT,), input_names=["tokens"], output_names=["logits"],
                dynamic_shapes=({0: batch, 1: length},), dynamo=True, verbose=False,
            )  # fmt: skip
    finally:
        quiet.setLevel(level)
    answer = program.names["generate"](program.model, prompt, steps)
    a, b = EXAMPLE
    how = HOW.format(steps=steps, a=a, b=b, prompt=prompt, said=answer)
    made.model.metadata_props.update(name=name, author=author, params=str(spec.params), how=how)
    made.save(path)
