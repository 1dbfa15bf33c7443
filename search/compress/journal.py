"""A descent in a folder: every θ that was accepted and every set that was tried, in one file.

A round that is interrupted is not written: the same command proposes it again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from model.spec import Spec
from search.errors import UserError
from search.store.candidates import Progress, TieCandidate, digest
from search.study.start import ANY, InitialTheta
from search.study.trial import Configuration
from trainer.files import durable

FILE, FORMAT = "descent.json", 2
COSTS = ("seconds", "core_seconds", "seed_steps")
LATER_FIELDS: dict[str, Any] = {"beside": [], "empty": False, "finished": False}
"""Fields of a set that the oldest files of this format do not have."""


class Journal:
    """The `CandidateStore` of a folder.

    origin: SHA-256 of the θ at which the descent begins. settings: what was asked for. seconds: spent training
    and finishing, in all. core_seconds: the same, of processors that really worked on it.
    """

    def __init__(self, folder: Path, base: Spec, origin: str, settings: Mapping[str, Any]):
        """Read the folder's file, if it has one.

        Raises UserError for a file that is none, ValueError for one of another checkpoint.
        """
        self.folder, self.base, self.origin, self.settings = folder, base, origin, dict(settings)
        self.seconds, self.core_seconds, self.seed_steps = 0.0, 0.0, 0
        self.candidates: list[TieCandidate] = []
        self.counters = Progress()
        path = folder / FILE
        if path.exists():
            try:
                self._load(json.loads(path.read_text()))
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
                raise UserError(f"{path}: not the record of a descent of format {FORMAT}") from None
            if self.origin != origin:
                raise ValueError(f"{folder}: holds a descent from another checkpoint")

    def _load(self, about: dict[str, Any]) -> None:
        if about["format"] != FORMAT:
            raise ValueError
        for name in ("origin", "settings", *COSTS):
            setattr(self, name, about.get(name, 0))
        rows = [LATER_FIELDS | row for row in about["kept"]]
        self.candidates = [self._candidate(n, row, about["tried"]) for n, row in enumerate(rows)]
        self.counters = Progress(
            rounds=about["rounds"],
            last_gain=about["shrunk"],
            batch_size=about["several"],
            expansions=Counter({n: row["visits"] for n, row in enumerate(rows)}),
            exhausted={n for n, row in enumerate(rows) if row["empty"]},
            tried=about["tried"],
        )

    def _candidate(self, number: int, row: dict[str, Any], reached: Mapping[str, float]) -> TieCandidate:
        ties = tuple(row["ties"])
        return TieCandidate(
            number,
            round=0,  # one of those that are counted
            ties=ties,
            parent=row["parent"],
            reached=reached.get(digest(ties), 1.0),
            loss=row["loss"],
            start=InitialTheta(self.base, {ANY: tuple(row["theta"])}),
            companions=tuple(map(tuple, row["beside"])),
            data_seed=row["seed"],
            is_finished=row["finished"],
        )

    def read(self) -> list[TieCandidate]:
        return list(self.candidates)

    def progress(self) -> Progress:
        return self.counters

    def propose(
        self, candidates: Sequence[TieCandidate], configurations: Sequence[Configuration] = ()
    ) -> None:
        pass

    def judge(self, candidate: TieCandidate) -> None:
        pass

    def end_round(self, candidates: Sequence[TieCandidate], progress: Progress) -> None:
        """Replace the file in one instant, so that it outlasts a power cut."""
        accepted = [c for c in candidates if c.start]
        place = {c.number: n for n, c in enumerate(accepted)}
        about = {
            "format": FORMAT,
            "origin": self.origin,
            "settings": self.settings,
            "kept": [
                {
                    "ties": c.ties,
                    "theta": c.thetas[0],
                    "numbers": c.numbers,
                    "loss": c.loss,
                    "parent": None if c.parent is None else place[c.parent],
                    "seed": c.data_seed,
                    "visits": progress.expansions[c.number],
                    "beside": c.companions,
                    "empty": c.number in progress.exhausted,
                    "finished": c.is_finished,
                }
                for c in accepted
            ],
            "tried": progress.tried,
            "rounds": progress.rounds,
            "shrunk": progress.last_gain,
            "several": progress.batch_size,
            **{name: getattr(self, name) for name in COSTS},
        }
        durable.write(self.folder / FILE, (json.dumps(about) + "\n").encode())
