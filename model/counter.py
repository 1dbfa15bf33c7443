"""Random words from a counter, of which every problem is made: nothing is saved, nothing restored.

SplitMix64's finaliser over data seed, step, problem and word number (Steele, Lea and Flood, "Fast splittable
pseudorandom number generators", OOPSLA 2014). The constants were fixed before any result was known.

Axes: R rows (steps × seeds), B problem.
"""

from __future__ import annotations

import torch
from torch import Tensor


def signed(word: int) -> int:
    """Return the int64 with the low 64 bits of an integer."""
    # torch multiplies int64 modulo 2^64, but has no unsigned words to begin with.
    word &= (1 << 64) - 1
    return word - (1 << 64) if word >> 63 else word


GOLDEN = signed(0x9E3779B97F4A7C15)
MIX_1 = signed(0xBF58476D1CE4E5B9)
MIX_2 = signed(0x94D049BB133111EB)
STREAM = signed(0xD1B54A32D192ED03)  # separates steps from problems
APART = signed(0xA24BAED4963EE407)  # separates other random numbers from both


def _shift(word: Tensor, bits: int) -> Tensor:
    """Shift int64 words right, filling up with 0: torch's shift fills up with the sign."""
    return (word >> bits) & ((1 << (64 - bits)) - 1)


def mix(word: Tensor) -> Tensor:
    """Mix int64 words by SplitMix64's finaliser, a bijection."""
    word = (word ^ _shift(word, 30)) * MIX_1
    word = (word ^ _shift(word, 27)) * MIX_2
    return word ^ _shift(word, 31)


def words(data_seed_R: Tensor, step_R: Tensor, batch: int, count: int) -> list[Tensor]:
    """Return `count` random int64 words [R, B] for each problem of each row."""
    # Two rounds: neighbouring seeds and steps must have unrelated streams.
    key_R = mix(mix(data_seed_R * GOLDEN + STREAM) + step_R * GOLDEN)
    problem_B = torch.arange(batch, dtype=torch.int64, device=step_R.device)
    counter_RB = key_R[:, None] + problem_B * signed(count * GOLDEN)
    return [mix(counter_RB + signed((w + 1) * GOLDEN)) for w in range(count)]


def fraction(word: Tensor, low: int, bits: int) -> Tensor:
    """Return `bits` bits of a word from bit `low` up, as a float64 in [0, 1)."""
    mask = (1 << bits) - 1
    # Exact: no more than 53 bits, and a power of two.
    return (_shift(word, low) & mask).double() * 2.0**-bits
