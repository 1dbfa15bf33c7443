"""The θ that a study starts from, out of records or a checkpoint, and its configurations with them.

They are chosen once, when a study first runs, and kept in the ledger: what the parent study finds later
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from model.transfer import transfer
from search.errors import UserError, reraise_as
from search.stats.counting import rank, seed_of
from search.store.record import SeedRecord, is_final
from search.store.study_records import StudyRecords
from search.study.provenance import lineage_of
from search.study.schema import Study
from search.study.start import ANY, InitialTheta, StartSpec
from search.study.trial import Configuration
from search.tracking.artifacts import ArtifactCache, match_configurations
from search.tracking.tracking import reach
from trainer import Outcome, Recipe, Seed

if TYPE_CHECKING:
    from model import Spec
    from trainer.checkpoints.checkpoint import Checkpoint


def configurations(study: Study, records: StudyRecords) -> list[Configuration]:
    """Return the configurations that a study's file lists, each from each θ that it starts from.

    Raises UserError.
    """
    if study.start is None:
        return [Configuration(*listed) for listed in study.listed]
    parents = parents_of(study, records)
    started = (c for c in records.list_configurations().values() if c.start)
    existing = {(c.spec, c.recipe, c.start.number): c for c in started if c.start}
    pairs = [(listed, parent) for listed in study.listed for parent in parents]
    rows = [existing.get((*listed, p.number)) or configuration_from_parent(*listed, p) for listed, p in pairs]
    records.create_configurations(rows)
    return list(dict.fromkeys(rows))


def configuration_maker(study: Study, records: StudyRecords) -> Callable[[Spec, Recipe], Configuration]:
    """Return a function that makes a search's configurations, from the θ that it starts from.

    Raises UserError.
    """
    if study.start is None:
        return Configuration
    return partial(configuration_from_parent, parent=parents_of(study, records)[0])


def parents_of(study: Study, records: StudyRecords) -> list[InitialTheta]:
    """Return the θ that a study starts from: as the ledger has them, or chosen now."""
    parents = records.list_parents()
    if not parents:
        assert study.start is not None
        parents = _choose(study.start, study, records)
        records.create_parents(parents)
    return parents


def configuration_from_parent(spec: Spec, recipe: Recipe, parent: InitialTheta) -> Configuration:
    """Return a configuration whose seeds start from a parent's θ. Raises UserError where that cannot be."""
    plain = Configuration(spec, recipe)
    if recipe.fold_step:
        return replace(plain, start=parent)
    import torch

    with reraise_as("start"):
        transfers = {
            n: transfer(parent.spec, torch.tensor(t), plain.trained) for n, t in parent.thetas.items()
        }
    *before, last = parent.lineage
    lineage = (*before, {**last, "then": list(next(iter(transfers.values())).how)})
    thetas = {name: tuple(t.theta_Q.tolist()) for name, t in transfers.items()}
    return replace(plain, start=InitialTheta(plain.trained, thetas, lineage, parent.number))


def _choose(start: StartSpec, study: Study, records: StudyRecords) -> list[InitialTheta]:
    if start.unfolded:
        return [InitialTheta(start.unfolded, {})]
    if start.checkpoint:
        return [_from_file(start, Path(start.checkpoint))]
    assert start.study is not None
    if start.study == study.name:
        raise UserError("start.study: a study cannot start from itself")
    parent_records = StudyRecords(records.ledger, start.study)
    with reraise_as("start.study", UserError):
        parent_records.require_study()
    rows = _rows(start, study.first_seeds, parent_records)
    runs = [parent_records.list_runs()[r["configuration"]][1] for r in rows]
    with ArtifactCache(reach(parent_records), parent_records) as cache:
        checkpoints = [cache.seed(r).checkpoint() for r in rows]
    if start.each:
        seeds = [str(seed_of(r)) for r in rows]
        thetas = {s: tuple(c.theta_P.tolist()) for s, c in zip(seeds, checkpoints, strict=True)}
        parent = lineage_of(checkpoints[0])
        parent[-1] |= {"seed": "its own", "run": runs[0]}
        del parent[-1]["theta_sha256"], parent[-1]["exact"]
        return [InitialTheta(checkpoints[0].spec, thetas, tuple(parent))]
    return [_from_checkpoint(c, n, run) for n, (c, run) in enumerate(zip(checkpoints, runs, strict=True))]


def _from_checkpoint(checkpoint: Checkpoint, number: int = 0, run: str = "") -> InitialTheta:
    *before, last = lineage_of(checkpoint)
    lineage = (*before, last | ({"run": run} if run else {}))
    return InitialTheta(checkpoint.spec, {ANY: tuple(checkpoint.theta_P.tolist())}, lineage, number)


def _rows(start: StartSpec, seeds: list[Seed], records: StudyRecords) -> list[SeedRecord]:
    """Return the recorded rows of the seeds whose θ is asked for, the best first."""
    existing = records.list_configurations()
    keys = match_configurations(records.study, existing, None, start.configuration)
    ended = (r for r in records.list_seeds() if r["published"] and is_final(r))
    rows = [r for r in ended if r["configuration"] in keys]
    if start.seed is not None:
        rows = [r for r in rows if str(seed_of(r)) == str(Seed.named(str(start.seed)))]
    if start.each:
        return _each(start, seeds, rows)
    fit = [r for r in rows if r["outcome"] == Outcome.GROKKED or not start.grokked]
    if len(fit) < start.count:
        wanted = f"seed {start.seed}" if start.seed is not None else f"{start.count} seeds"
        reason = f"are asked for, {len(fit)} {'grokked' if start.grokked else 'ended'}"
        if rows and start.seed is not None:
            reason = "has not grokked (start.grokked: false takes it)"
        raise UserError(f"start: of study {start.study} {wanted} {reason}")
    fit.sort(key=lambda r: (rank(r), existing[r["configuration"]].spec.params))
    return fit[: start.count]


def _each(start: StartSpec, seeds: list[Seed], rows: list[SeedRecord]) -> list[SeedRecord]:
    """Return the row of each of the study's own seeds; of one configuration."""
    place = f"study {start.study}"
    if len({r["configuration"] for r in rows}) > 1:
        raise UserError(f"start.each: {place} has several configurations; name one (start.configuration)")
    by_seed = {seed_of(r): r for r in rows}
    if missing := [s for s in seeds if s not in by_seed]:
        raise UserError(f"start.each: {place} has no θ of seed {missing[0]}")
    failed = [s for s in seeds if by_seed[s]["outcome"] != Outcome.GROKKED]
    if failed and start.grokked:
        raise UserError(f"start.each: seed {failed[0]} of {place} has not grokked")
    return [by_seed[s] for s in seeds]


def _from_file(start: StartSpec, path: Path) -> InitialTheta:
    from trainer.checkpoints.foreign import load_any
    from trainer.checkpoints.teachers import selection_errors

    if not path.exists():
        raise UserError(f"start.checkpoint: {path}: no such checkpoint")
    with reraise_as("start.checkpoint"):
        checkpoint = load_any(path)
    if start.grokked and (errors := selection_errors(checkpoint.spec, checkpoint.theta_P)):
        raise UserError(
            f"start.checkpoint: {path}: has not grokked, {errors:,} of 5,000 selection problems are wrong"
        )
    return _from_checkpoint(checkpoint)
