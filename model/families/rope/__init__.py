"""The rope family: AdderBoard's small Qwen-like nets, whose positions are rotations."""

from model.families.rope.spec import Rope

__all__ = ["Rope"]
