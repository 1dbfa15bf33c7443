"""The models: specs, families, presets, greedy decoding, AdderBoard's protocol. Needs torch alone.

Importing it does not import torch: specs and presets can be listed, and studies checked, without it.
"""

from model import (
    supported as supported,
)  # first: it refuses machines on which what follows fails
from model.adderboard import Verification, verify
from model.decode import add
from model.presets import PRESETS, preset, preset_name
from model.spec import Spec, make_spec

__all__ = [
    "PRESETS",
    "Spec",
    "Verification",
    "add",
    "make_spec",
    "preset",
    "preset_name",
    "verify",
]
