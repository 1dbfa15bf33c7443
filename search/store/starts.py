"""The θ that a study starts from, out of records or a checkpoint, and its configurations with them.

They are chosen once, when a study first runs, and kept in the ledger. Later results of the parent study change nothing.
"""

from collections.abc import Sequence
from dataclasses import replace

from model import Spec
from model.transfer import transfer
from search.errors import UserError, reraise_as
from search.stats.record import SeedRecord
from search.store.pull import finished_seeds
from search.store.study_records import StudyRecords
from search.study.ancestors import ancestors_of
from search.study.schema import Study
from search.study.start import ANY, InitialTheta, StartSpec, read_start
from search.study.trial import Configuration
from trainer import Outcome, Recipe, Seed
from trainer.checkpoints.checkpoint import Checkpoint


def configurations(study: Study, parents: Sequence[InitialTheta], records: StudyRecords) -> list[Configuration]:
    """Return the configurations that a study's file lists, each from each parent's θ. Raises UserError."""
    # What the ledger has already is taken as it is: its θ was carried over when it was first asked for.
    existing = {
        (known.spec, known.recipe, known.start.number): known
        for known in records.list_configurations().values()
        if known.start
    }

    found = []
    for spec, recipe in study.listed:
        for parent in parents:
            known = existing.get((spec, recipe, parent.number))
            found.append(known or configuration_from_parent(spec, recipe, parent))
    records.create_configurations(found)
    return list(dict.fromkeys(found))


def parents_of(study: Study, records: StudyRecords) -> list[InitialTheta]:
    """Return the θ that a study starts from, as the ledger has them, or chosen now. Raises UserError."""
    parents = records.list_parents()
    if not parents:
        assert study.start is not None
        parents = _choose(study.start, study.first_seeds, records)
        records.create_parents(parents)

    for seed in study.first_seeds:
        if any(parent.theta_of(seed) is None for parent in parents):
            kept = "a study keeps the θ of those that it began with; train others as a study of their own"
            raise UserError(f"study {study.name}: start.each: no θ is kept for seed {seed}: {kept}")
    return parents


def configuration_from_parent(spec: Spec, recipe: Recipe, parent: InitialTheta) -> Configuration:
    """Return a configuration whose seeds start from a parent's θ. Raises UserError where that cannot be."""
    import torch

    plain = Configuration(spec, recipe)
    transfers = {}
    with reraise_as("start"):
        for name, theta in parent.thetas.items():
            transfers[name] = transfer(parent.spec, torch.tensor(theta), plain.trained)

    # The lineage is one for all seeds, and says what was done with the first one's θ.
    first = next(iter(transfers.values()))
    *before, last = parent.lineage
    lineage = (*before, {**last, "then": list(first.how)})
    thetas = {name: tuple(moved.theta_Q.tolist()) for name, moved in transfers.items()}
    return replace(plain, start=InitialTheta(plain.trained, thetas, lineage, parent.number))


def _choose(start: StartSpec, seeds: list[Seed], records: StudyRecords) -> list[InitialTheta]:
    """Return the θ that a study of these seeds begins with."""
    if start.checkpoint:
        origins = [read_start(start)]
    else:
        origins = _recorded(start, seeds, records)
    thetas = [tuple(checkpoint.theta_P.tolist()) for checkpoint in origins]

    if start.each:
        # One lineage for all seeds: it leaves out what differs from one to the next.
        lineage = ancestors_of(origins[0])
        lineage[-1]["seed"] = "its own"
        del lineage[-1]["theta_sha256"], lineage[-1]["exact"]
        by_seed = dict(zip(map(str, seeds), thetas, strict=True))
        return [InitialTheta(origins[0].spec, by_seed, tuple(lineage))]

    return [
        InitialTheta(checkpoint.spec, {ANY: theta}, tuple(ancestors_of(checkpoint)), number)
        for number, (checkpoint, theta) in enumerate(zip(origins, thetas, strict=True))
    ]


def _recorded(start: StartSpec, seeds: list[Seed], records: StudyRecords) -> list[Checkpoint]:
    """Return the checkpoints of another study's seeds, the best first."""
    assert start.study is not None
    if start.study == records.study:
        raise UserError("start.study: a study cannot start from itself")
    parent = StudyRecords(records.ledger, start.study)
    with reraise_as("start.study", UserError):
        parent.require_study()

    seed = None if start.seed is None else Seed.named(str(start.seed))
    _, ended = finished_seeds(parent, seed, prefix=start.configuration)
    rows = _each(start, seeds, ended) if start.each else _best(start, ended)
    return [seed.checkpoint() for seed in parent.seeds(rows)]


def _best(start: StartSpec, rows: list[SeedRecord]) -> list[SeedRecord]:
    """Return the best rows, as many as are asked for. rows: the best first."""
    fit = [row for row in rows if row.has_grokked or not start.grokked]
    if len(fit) < start.count:
        wanted = f"seed {start.seed}" if start.seed is not None else f"{start.count} seeds"
        reason = f"are asked for, {len(fit)} {'grokked' if start.grokked else 'ended'}"
        if rows and start.seed is not None:
            reason = "has not grokked (start.grokked: false takes it)"
        raise UserError(f"start: of study {start.study} {wanted} {reason}")
    return fit[: start.count]


def _each(start: StartSpec, seeds: list[Seed], rows: list[SeedRecord]) -> list[SeedRecord]:
    """Return the row of each of the study's own seeds, all of one configuration."""
    place = f"study {start.study}"
    if len({r.configuration for r in rows}) > 1:
        raise UserError(f"start.each: {place} has several configurations; name one (start.configuration)")

    by_seed = {row.seed: row for row in rows}
    for seed in seeds:
        if seed not in by_seed:
            raise UserError(f"start.each: {place} has no θ of seed {seed}")
    chosen = [by_seed[seed] for seed in seeds]
    for row in chosen:
        if start.grokked and row.outcome != Outcome.GROKKED:
            raise UserError(f"start.each: seed {row.seed} of {place} has not grokked")
    return chosen
