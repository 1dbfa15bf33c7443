"""A descent in a folder: every θ that was accepted and every set that was tried, in one file.

A round that is interrupted is not written: the same command proposes it again.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compress.candidates import CandidateStore, RoundCounters, TieCandidate
from compress.section import Accept
from model.spec import Spec
from search.errors import UserError
from search.study.start import ANY, InitialTheta
from trainer.files import durable

FILE = "descent.json"
FORMAT = 3
COSTS = ("seconds", "core_seconds", "seed_steps")
FACTS = ("reached", "wrong", "loss", "data_seed", "recipe", "is_finished")


class Journal(CandidateStore):
    """The `CandidateStore` of a folder.

    origin: SHA-256 of the θ at which the descent begins. settings: what was asked for. seconds: spent training
    and finishing, in all. core_seconds: the same, of processors that really worked on it.
    """

    def __init__(self, folder: Path, base: Spec, origin: str, settings: Mapping[str, Any]):
        """Read the folder's file, if it has one.

        Raises UserError for a file that is none, ValueError for one of another checkpoint, or of sets that these
        settings might not accept.
        """
        self.folder = folder
        self.base = base
        self.origin = origin
        self.settings = dict(settings)
        self.seconds = 0.0
        self.core_seconds = 0.0
        self.seed_steps = 0
        self.candidates: list[TieCandidate] = []
        self.counters = RoundCounters()
        path = folder / FILE
        if path.exists():
            try:
                self._load(json.loads(path.read_bytes()))
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
                raise UserError(f"{path}: not the record of a descent of format {FORMAT}") from None
            if self.origin != origin:
                raise ValueError(f"{folder}: holds a descent from another checkpoint")
            now = _accept(settings)
            if not now.takes_over(self.accept):
                raise ValueError(f"{folder}: holds sets of {self.accept}, not of {now}; choose another folder with -o")

    def _load(self, about: dict[str, Any]) -> None:
        """Take over the record of a file. Any error that a damaged one raises here is caught by `__init__`."""
        if about["format"] != FORMAT:
            raise ValueError
        for name in ("origin", *COSTS):
            setattr(self, name, about[name])
        self.accept = _accept(about["settings"])
        self.candidates = [self._candidate(n, **row) for n, row in enumerate(about["accepted"])]
        progress = about["progress"]
        sets = {
            "expansions": Counter(dict(progress["expansions"])),
            "exhausted": set(progress["exhausted"]),
        }
        self.counters = RoundCounters(**progress | sets)

    def _candidate(self, number: int, ties: list[int], thetas: list[list[float]], **facts: Any) -> TieCandidate:
        first, *others = map(tuple, thetas)
        start = InitialTheta(self.base, {ANY: first})
        # The file has no rounds of single candidates; 0 is one that is counted.
        return TieCandidate(number, 0, tuple(ties), start=start, companions=tuple(others), **facts)

    def read(self) -> list[TieCandidate]:
        return list(self.candidates)

    def progress(self) -> RoundCounters:
        return self.counters

    def end_round(self, candidates: Sequence[TieCandidate], progress: RoundCounters) -> None:
        """Replace the file in one instant, so that it outlasts a power cut."""
        accepted = [c for c in candidates if c.start]
        # Candidates that were not accepted are left out, so the others get new numbers.
        place = {c.number: n for n, c in enumerate(accepted)}
        about = {
            "format": FORMAT,
            "origin": self.origin,
            "settings": self.settings,
            "accepted": [
                {
                    "ties": c.ties,
                    "thetas": c.thetas,
                    "parent": None if c.parent is None else place[c.parent],
                    **{name: getattr(c, name) for name in FACTS},
                }
                for c in accepted
            ],
            "progress": {
                **vars(progress),
                "expansions": [[place[n], count] for n, count in progress.expansions.items()],
                "exhausted": [place[n] for n in progress.exhausted],
            },
            **{name: getattr(self, name) for name in COSTS},
        }
        durable.write(self.folder / FILE, (json.dumps(about) + "\n").encode())


def _accept(settings: Mapping[str, Any]) -> Accept:
    """Return what a descent's settings ask of a set."""
    return Accept(exact=settings["accept"], proved=settings["proved"])
