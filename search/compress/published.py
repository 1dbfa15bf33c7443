"""What MLflow gets of a study's descents as a whole: the pictures, and the smallest kept set decoded."""

from __future__ import annotations

import tempfile
from pathlib import Path

from search.analysis.lineage import lineages, tree
from search.analysis.plots import png
from search.compress.pictures import pictures
from search.stats.counting import seed_of
from search.store.candidates import CandidateStore, smallest
from search.store.ledger import Ledger
from search.tracking.artifacts import ArtifactCache
from search.tracking.tracker import Tracker

TREE = "lineage.txt"


def log_descents(ledger: Ledger, tracker: Tracker, shelf: ArtifactCache) -> None:
    """Write them, again where there are more. The 10,010 are read of the smallest set alone, and counted."""
    study, run = tracker.study.name, tracker.own_run()
    sets = CandidateStore(ledger, study).read()
    with tempfile.TemporaryDirectory() as folder:
        for name, figure in pictures(sets).items():
            (Path(folder) / f"{name}.png").write_bytes(png(figure))
        tracker.keep(run, Path(folder), "pictures")
        (Path(folder) / TREE).write_text(tree(lineages(ledger, study, sets, ())) + "\n", encoding="utf-8")
        tracker.client.log_artifact(run, str(Path(folder) / TREE))
    least = smallest(sets)
    if least is None or least.start is None or least.configuration is None:
        return
    named = least.start.lineage[-1]["seed"]
    row = next(r for r in ledger.list_seeds(study, least.configuration) if str(seed_of(r)) == named)
    seed = shelf.seed(row)
    tracker.child(seed)
    ledger.record_verifications(study, least.configuration, tracker.decoded(seed.configuration))
