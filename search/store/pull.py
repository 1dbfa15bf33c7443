"""Pulling recorded seeds: the best, those of a configuration, the one that a checkpoint came from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from model import preset_name
from model.fields import did_you_mean
from model.presets import is_called
from search.errors import NotFound, UserError
from search.stats.counting import rank
from search.stats.record import SeedRecord
from search.store.ledger import Ledger
from search.store.study_records import StudyRecords
from search.study.kind import names_of
from search.study.trial import Configuration
from trainer import Seed

if TYPE_CHECKING:
    from trainer.checkpoints.checkpoint import Checkpoint

LISTED = 20
"""Most configurations of the same seed that an error lists."""


def pull(
    records: StudyRecords, seed: Seed | None, model: str | None = None, configuration: str | None = None
) -> tuple[Checkpoint, dict[str, Any] | None]:
    """Return the checkpoint of the best seed, or of `seed`, and the recorded verdict on all pairs of it.

    model, configuration: a preset, and a key or its beginning, to choose among the study's configurations. Raises
    NotFound, with the nearest seeds, and UserError for a seed of several configurations that start alike; where they
    start from different θ, as in a descent, the best is taken.
    """
    configurations, rows = finished_seeds(records, seed, model, configuration)
    if not rows:
        raise _none_finished(records, configurations, seed)

    # Where starts differ, as in a descent, a seed names a whole line of configurations, and its best is meant.
    if seed and len(rows) > 1 and len({configurations[row.configuration].start for row in rows}) == 1:
        raise _several(records, seed, rows)
    return records.seed(rows[0]).checkpoint(), rows[0].proof


def _none_finished(records: StudyRecords, keys: Collection[str], seed: Seed | None) -> NotFound:
    """Return the error where configurations have no finished seed, or not the seed that is asked for."""
    what = f"has no finished seed {seed} yet" if seed else "has no finished seed yet"
    begun = sorted(row.seed for row in records.list_seeds() if row.configuration in keys)
    if seed and begun and seed not in begun:
        nearest = min(begun, key=lambda other: abs(other.init_seed - seed.init_seed))
        what = f"has begun no seed {seed}; the nearest of {len(begun):,} is {nearest}"
    return NotFound(f"study {records.study!r} {what}")


def _several(records: StudyRecords, seed: Seed, rows: Sequence[SeedRecord]) -> UserError:
    """Return the error for a seed of several configurations, which lists them, the best first."""
    names = names_of(records.get_recorded_study(), records.list_configurations().values())
    lines = [f"seed {seed} is in {len(rows)} configurations; add one of"]
    for row in rows[:LISTED]:
        key = row.configuration
        lines.append(f"  --configuration {key[:6]}  {names[key]}: {row.outcome}")
    if len(rows) > LISTED:
        lines.append(f"  and {len(rows) - LISTED} more")
    return UserError("\n".join(lines))


def finished_seeds(
    records: StudyRecords, seed: Seed | None, model: str | None = None, prefix: str | None = None
) -> tuple[dict[str, Configuration], list[SeedRecord]]:
    """Return the configurations of a preset, or the one whose key starts with `prefix`, and rows of their ended seeds.

    The best comes first, of equals the one with the fewest parameters. seed: only rows of this one. Raises NotFound,
    with the nearest names, and UserError for a prefix of several.
    """
    configurations = records.list_configurations()
    study = records.study
    keys = [key for key in configurations if key.startswith(prefix or "")]
    if prefix and not keys:
        hint = did_you_mean(prefix, configurations)
        raise NotFound(f"study {study!r} has no configuration {prefix!r}; {hint}")
    if prefix and len(keys) > 1:
        raise UserError(f"study {study!r}: {prefix!r} may be any of {', '.join(sorted(keys))}")

    models = {key: preset_name(configurations[key].spec) for key in keys}
    matching = {key: configurations[key] for key in keys if model is None or is_called(models[key], model)}
    if models and not matching:
        hint = did_you_mean(model, dict.fromkeys(models.values()))
        raise NotFound(f"study {study!r} has no finished seed of {model!r}; {hint}")

    ended = [row for row in records.list_seeds() if row.is_final and row.configuration in matching]
    rows = [row for row in ended if seed in (None, row.seed)]
    return matching, sorted(rows, key=lambda row: (rank(row), matching[row.configuration].spec.params))


def record_verification(ledger: Ledger, checkpoint: Checkpoint, correct: int) -> None:
    """Count a call of `verify` with the seed that a checkpoint's provenance names, if the ledger has it.

    correct: right answers of the 10,010. Raises UserError if the recorded θ is not the checkpoint's.
    """
    study = checkpoint.provenance.get("study")
    configuration = checkpoint.provenance.get("configuration")
    if not (isinstance(study, str) and isinstance(configuration, str)):  # a stranger's provenance may say anything
        return

    numbers = (checkpoint.seed.get("init_seed"), checkpoint.seed.get("data_seed"))
    records = StudyRecords(ledger, study)
    for row in records.list_seeds(configuration):
        if row.is_final and (row.init_seed, row.data_seed) == numbers:
            recorded_P = records.seed(row).result.theta_P
            if checkpoint.theta_P.tolist() != recorded_P.tolist():
                raise UserError(f"its θ is not the one that study {study} has of seed {row.seed}")
            records.record_verification(row.key, correct)
