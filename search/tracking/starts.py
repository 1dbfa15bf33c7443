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
from search.store.ledger import Ledger, Row, is_final
from search.study.provenance import lineage_of
from search.study.schema import Study
from search.study.start import ANY, InitialTheta, StartSpec
from search.study.trial import Configuration
from search.tracking.artifacts import ArtifactCache, chosen
from search.tracking.tracking import reach
from trainer import Outcome, Recipe, Seed

if TYPE_CHECKING:
    from model import Spec
    from trainer.checkpoints.checkpoint import Checkpoint


def configurations(study: Study, ledger: Ledger) -> list[Configuration]:
    """What a study's file lists, each from each θ that it starts from. Raises UserError."""
    if study.start is None:
        return [Configuration(*listed) for listed in study.listed()]
    parents = parents_of(study, ledger)
    known = {
        (c.spec, c.recipe, c.start.number): c
        for c in ledger.list_configurations(study.name).values()
        if c.start
    }
    made = [
        known.get((*listed, parent.number)) or begun(*listed, parent)
        for listed in study.listed()
        for parent in parents
    ]
    ledger.create_configurations(study.name, made)
    return list(dict.fromkeys(made))


def maker(study: Study, ledger: Ledger) -> Callable[[Spec, Recipe], Configuration]:
    """What makes configurations of a search, each from the θ that it starts from. Raises UserError."""
    return partial(begun, parent=parents_of(study, ledger)[0]) if study.start else Configuration


def parents_of(study: Study, ledger: Ledger) -> list[InitialTheta]:
    """The θ that a study starts from: as kept, or chosen now."""
    if known := ledger.list_parents(study.name):
        return known
    assert study.start is not None
    found = _found(study.start, study, ledger)
    ledger.create_parents(study.name, found)
    return found


def begun(spec: Spec, recipe: Recipe, parent: InitialTheta) -> Configuration:
    """A configuration whose seeds start from a parent's θ. Raises UserError where that cannot be."""
    plain = Configuration(spec, recipe)
    if recipe.fold_step:
        return replace(plain, start=parent)
    import torch

    with reraise_as("start"):
        made = {n: transfer(parent.spec, torch.tensor(t), plain.trained) for n, t in parent.thetas.items()}
    *before, last = parent.lineage
    lineage = (*before, {**last, "then": list(next(iter(made.values())).how)})
    thetas = {name: tuple(m.theta_Q.tolist()) for name, m in made.items()}
    return replace(plain, start=InitialTheta(plain.trained, thetas, lineage, parent.number))


def _found(asked: StartSpec, study: Study, ledger: Ledger) -> list[InitialTheta]:
    if asked.unfolded:
        return [InitialTheta(asked.unfolded, {})]
    if asked.checkpoint:
        return [_of_checkpoint(asked, Path(asked.checkpoint))]
    assert asked.study is not None
    if asked.study == study.name:
        raise UserError("start.study: a study cannot start from itself")
    with reraise_as("start.study", UserError):
        ledger.require_study(asked.study)
    rows = _rows(asked, study.first_seeds(), ledger)
    pages = ledger.list_runs(asked.study)
    with ArtifactCache(reach(ledger, asked.study), ledger, asked.study) as shelf:
        found = [(r, shelf.seed(r).checkpoint()) for r in rows]
    if asked.each:
        thetas = {str(seed_of(r)): tuple(c.theta_P.tolist()) for r, c in found}
        parent = lineage_of(found[0][1])
        parent[-1] |= {"seed": "its own", "run": pages[rows[0]["configuration"]][1]}
        del parent[-1]["theta_sha256"], parent[-1]["exact"]
        return [InitialTheta(found[0][1].spec, thetas, tuple(parent))]
    return [_start(c, n, pages[r["configuration"]][1]) for n, (r, c) in enumerate(found)]


def _start(checkpoint: Checkpoint, number: int = 0, run: str = "") -> InitialTheta:
    *before, own = lineage_of(checkpoint)
    theta = tuple(checkpoint.theta_P.tolist())
    return InitialTheta(checkpoint.spec, {ANY: theta}, (*before, own | ({"run": run} if run else {})), number)


def _rows(asked: StartSpec, seeds: list[Seed], ledger: Ledger) -> list[Row]:
    """The ledger's rows of the seeds whose θ is asked for, the best first."""
    assert asked.study is not None
    known = ledger.list_configurations(asked.study)
    keys = chosen(asked.study, known, None, asked.configuration)
    rows = [
        r
        for r in ledger.list_seeds(asked.study)
        if r["configuration"] in keys and r["published"] and is_final(r)
    ]
    if asked.seed is not None:
        rows = [r for r in rows if str(seed_of(r)) == str(Seed.named(str(asked.seed)))]
    if asked.each:
        return _each(asked, seeds, rows)
    fit = [r for r in rows if r["outcome"] == Outcome.GROKKED or not asked.grokked]
    if len(fit) < asked.count:
        what = f"seed {asked.seed}" if asked.seed is not None else f"{asked.count} seeds"
        have = "has not grokked (start.grokked: false takes it)" if rows and asked.seed is not None else ""
        have = have or f"are asked for, {len(fit)} {'grokked' if asked.grokked else 'ended'}"
        raise UserError(f"start: of study {asked.study} {what} {have}")
    fit.sort(key=lambda r: (rank(r), known[r["configuration"]].spec.params))
    return fit[: asked.count]


def _each(asked: StartSpec, seeds: list[Seed], rows: list[Row]) -> list[Row]:
    """The row of each of the study's own seeds; of one configuration."""
    if len({r["configuration"] for r in rows}) > 1:
        raise UserError(
            f"start.each: study {asked.study} has several configurations; name one (start.configuration)"
        )
    by_seed = {seed_of(r): r for r in rows}
    if missing := [s for s in seeds if s not in by_seed]:
        raise UserError(f"start.each: study {asked.study} has no θ of seed {missing[0]}")
    found = [by_seed[s] for s in seeds]
    failed = [r for r in found if r["outcome"] != Outcome.GROKKED]
    if failed and asked.grokked:
        raise UserError(f"start.each: seed {seed_of(failed[0])} of study {asked.study} has not grokked")
    return found


def _of_checkpoint(asked: StartSpec, path: Path) -> InitialTheta:
    from trainer.checkpoints.foreign import load_any

    if not path.exists():
        raise UserError(f"start.checkpoint: {path}: no such checkpoint")
    with reraise_as("start.checkpoint"):
        checkpoint = load_any(path)
    if asked.grokked and (wrong := wrong_of(checkpoint)):
        raise UserError(
            f"start.checkpoint: {path}: has not grokked, {wrong:,} of 5,000 selection problems are wrong"
        )
    return _start(checkpoint)


def wrong_of(checkpoint: Checkpoint) -> int:
    """How many selection problems a checkpoint adds wrongly."""
    from trainer.data.problems import selection
    from trainer.step import step

    spec = checkpoint.spec
    tokens = step.tokens_of(spec, *selection())
    exact = step.evaluate(spec, checkpoint.theta_P[None], tokens)["exact"]
    return round((1 - float(exact)) * tokens.shape[-1])
