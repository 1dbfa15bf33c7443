"""The saved state of one pair of a bank: bytes that any bank of its spec goes on from, bit for bit.

    digest of the rest | key of the pair | evaluations | flag | records | curve and probes so far | training state

The key names the pair, its spec and the layout of the rest. The flag says if there is a training state: a pair that
has not begun, or has ended, has none. Numbers are as this machine has them in memory (little-endian).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from model.spec import Spec
from trainer.bank.tracker import BY_EVALUATION, Result, SeedTracker
from trainer.recipe import Pair

DIGEST = 16
"""Bytes of a key, and of the digest in front."""
HEAD = struct.Struct("<I?")
Table = Mapping[str, Tensor]
"""Tensors with the same first axis, by name."""


class Saved(NamedTuple):
    """What was saved of a pair: its records [1, ...], and its training state [1, ...] if it was in training."""

    records: dict[str, Tensor]
    state: dict[str, Tensor]


def key_of(words: str, records: Table, state: Table) -> bytes:
    """Return a digest of what a saved state is of: `words`, and names, types and shapes of the tables."""
    fixed = [*_single(records), *sorted(state.items())]
    each = [(name, str(t.dtype), *t.shape[1:]) for name, t in fixed]
    # Without the number of evaluations: it grows as longer pairs join a bank.
    rows = [(name, str(records[name].dtype), *records[name].shape[2:]) for name in BY_EVALUATION]
    return digest(repr([words, each, rows]).encode())


def rows_of(table: Table) -> list[bytes]:
    """Return the bytes of each row of a table, its columns by name one after another."""
    count = len(next(iter(table.values())))
    if not count:
        return []
    columns = []
    for _, t in sorted(table.items()):
        flat = t.cpu().reshape(count, t[:1].numel())
        columns.append(flat.view(torch.uint8))
    return [row.tobytes() for row in torch.cat(columns, dim=1).numpy()]


def pack(key: bytes, evaluations: int, records: bytes, curves: bytes, state: bytes | None) -> bytes:
    """Return a saved state.

    records, state: rows of tables. curves: `evaluations` rows of each of BY_EVALUATION. state: None if the pair is not
    in training.
    """
    head = HEAD.pack(evaluations, state is not None)
    rest = b"".join([key, head, records, curves, state or b""])
    return digest(rest) + rest


def record_rows(records: Table) -> list[bytes]:
    """Return the bytes of each pair's records, without those of BY_EVALUATION."""
    return rows_of(dict(_single(records)))


def curve_bytes(records: Table, n: int, evaluations: int) -> bytes:
    """Return the bytes of a pair's curve and probes up to an evaluation."""
    made = [records[name][n, :evaluations] for name in BY_EVALUATION]
    return b"".join(t.contiguous().numpy().tobytes() for t in made)


def unpack(data: bytes, key: bytes, records: Table, state: Table) -> Saved | None:
    """Return what `pack` was given, laid out as these tables are; None for damaged bytes or another key."""
    rest = data[DIGEST:]
    if not _is_whole(data) or rest[:DIGEST] != key:
        return None
    reader = _Reader(rest, DIGEST + HEAD.size)
    try:
        evaluations, is_in_training = HEAD.unpack_from(rest, DIGEST)
        found = reader.records(records, evaluations)
        trained = sorted(state.items()) if is_in_training else []
        tensors = {name: reader.next(t.dtype, t.shape[1:]) for name, t in trained}
    except (ValueError, struct.error):  # it ends before its parts do
        return None
    return Saved(found, tensors) if reader.place == len(rest) else None


def result_of(pair: Pair, spec: Spec, data: bytes) -> Result | None:
    """Return a pair as far as its saved state has it: its curve, and what was best so far.

    This is for readers that have no bank. spec: what the pair's bank trains. None for damaged bytes, and for those of
    another kind of bank or pair.
    """
    if not _is_whole(data) or len(data) < 2 * DIGEST + HEAD.size:
        return None
    tracker = SeedTracker([pair], spec, list(spec.probes()))
    rest = data[DIGEST:]
    evaluations, _ = HEAD.unpack_from(rest, DIGEST)
    # The key is not compared: it is also of the optimiser's tables and of slots, which only a bank has.
    try:
        records = _Reader(rest, DIGEST + HEAD.size).records(tracker.records, evaluations)
    except ValueError:  # it ends before its curve does
        return None
    if int(records["steps"]) != evaluations * tracker.eval_every:
        return None
    records["called_by"].fill_(-1)  # places among rules that this pair does not have
    tracker.restore(0, records)
    return tracker.result(0)


def _is_whole(data: bytes) -> bool:
    return data[:DIGEST] == digest(data[DIGEST:])


class _Reader:
    """Takes tensors [1, ...] off bytes, one after another."""

    def __init__(self, data: bytes, place: int):
        self.data, self.place = bytearray(data), place

    def records(self, like: Table, evaluations: int) -> dict[str, Tensor]:
        """Take the records of a pair, laid out as the table `like`, with a number of evaluations."""
        found = {name: self.next(t.dtype, t.shape[1:]) for name, t in _single(like)}
        for name in BY_EVALUATION:
            found[name] = self.next(like[name].dtype, (evaluations, *like[name].shape[2:]))
        return found

    def next(self, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        """Take one tensor. Raises ValueError where the bytes end too early."""
        count = torch.Size(shape).numel()
        if count == 0:  # a spec without probes; `frombuffer` refuses to read nothing
            return torch.empty(1, *shape, dtype=dtype)
        found = torch.frombuffer(self.data, dtype=dtype, count=count, offset=self.place)
        self.place += count * found.element_size()
        return found.reshape(1, *shape).clone()


def _single(records: Table) -> list[tuple[str, Tensor]]:
    return sorted((name, t) for name, t in records.items() if name not in BY_EVALUATION)


def digest(data: bytes) -> bytes:
    """Return the digest in front of a saved state."""
    return hashlib.sha256(data).digest()[:DIGEST]
