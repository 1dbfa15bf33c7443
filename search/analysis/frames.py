"""The records as data frames. All is read from the ledger."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import chain
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from model import preset_name
from model.fields import did_you_mean
from model.files import read_limited
from model.tasks import ADDITION
from search.errors import UserError, reraise_as
from search.stats.counting import group_by, rank
from search.stats.metrics import OF_COLUMNS, OF_CONFIRMATION, OF_SEARCH, count_checks, final_metrics
from search.stats.record import COLUMNS as columns
from search.stats.record import SeedRecord
from search.store.home import Home
from search.store.study_records import StudyRecords, open_several
from search.study.kind import names_of
from search.study.trial import task_fields
from trainer import MEASURES
from trainer.outcomes import OPEN

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow.parquet as pq

Of = Literal["seeds", "configurations", "curves"]
Row = dict[str, Any]
DESCRIBED = ("title", "rung", "params")
"""Columns of a configuration that its seeds have too, behind its key."""
BEFORE_BEST = tuple(OF_SEARCH)
AFTER_BEST = (*OF_CONFIRMATION, *OF_COLUMNS)
"""Columns of a configuration that are metrics of its seeds, around its best seed."""
BESIDE = {"configuration": DESCRIBED, "outcome": ("budget",), "verified": ("proved",)}
"""Columns of a seed that are not in its record, by the one before them."""
SHOWN = [name for name, column in columns.items() if column.shown]
SEED_COLUMNS = [name for known in SHOWN for name in (known, *BESIDE.get(known, ()))]
COLUMNS = {
    "seeds": tuple(SEED_COLUMNS),
    "configurations": ("study", "configuration", *DESCRIBED, *BEFORE_BEST, "best_seed", *AFTER_BEST),
    "curves": ("study", "configuration", "init_seed", "data_seed", "step", *MEASURES),
}
"""Columns of a frame without rows, by its kind."""
SCALE = "scale"
"""The column that names the scale of which a configuration is the base."""
FILES = {".parquet": "Parquet", ".csv": "CSV"}
"""Files of records that are read, by suffix."""
MOST_BYTES = 50_000_000
MOST_ROWS = 200_000
MOST_COLUMNS = 1_000
MOST_CELLS = 10_000_000
"""Limits of such a file, which may be a stranger's. Those of rows and columns together leave too many cells."""
MOST_MEMORY = 600_000_000
"""Bytes of memory to read it."""
KEYS = dict.fromkeys(("study", "configuration", "title"), str)  # a key may look like a number
NEEDED = (
    "study", "configuration", "outcome", "held", "init_seed", "data_seed", "steps", "budget", "grok_step",
    "hopeless_step", "best_token",
)  # fmt: skip
"""Columns that a file of seeds must have."""


def records(study: str | Sequence[str], of: Of = "seeds", *, home: str | Path | None = None) -> pd.DataFrame:
    """Return the records of one study or several: one row per seed, configuration, or point of a curve.

    seeds: the columns of `SeedRecord` (search/stats/record.py), title (its configuration's name), rung (the
    preset's), params, budget, proved (1: right on all 10^20 pairs; 0: not).
    configurations: those names, MLflow's ids, counts by outcome, `seeds` (n of the rate), grok_rate with
    its 95 % interval, stopped (once enough had grokked: the interval is for that), screened_wrongly (upper
    bound, of the screened), seed_steps, grokked_per_million, core_s_per_grokked, median_grok_step, all of the
    search's seeds; best_seed of all; `confirmation_*` of the fresh ones; and a column for every field of spec and
    recipe (`model.tie_vo`, `recipe.lr`). What no seed has told yet is NaN. curves: configuration, init_seed,
    data_seed, step, the measures at that step, and the spec's probes (docs/glossary.md).

    home: the folder; by default ADDER_SEARCH_HOME, or `./adder-runs`.

    Raises UserError for an unknown study or `of`.

        >>> import search
        >>> search.run({"name": "one", "model": "57p", "recipe": {"steps": 20, "eval_every": 20}, "seeds": [1]})
        one: 1 of 1 seeds ended, 0 grokked
        >>> list(search.records("one", "curves")["step"])
        [20]
    """
    import pandas as pd

    readers = {"seeds": seeds_frame, "configurations": configurations_frame, "curves": curves_frame}
    if of not in readers:
        raise UserError(f"of: unknown {of!r}; {did_you_mean(of, readers)}")

    # Without names `open_several` opens all studies of a home; here they are asked for none.
    names = [study] if isinstance(study, str) else list(study)
    frames = [readers[of](each) for each in open_several(Home(home), names)] if names else []
    frames = [frame for frame in frames if len(frame)]
    if not frames:
        return pd.DataFrame(columns=list(COLUMNS[of]))
    return pd.concat(frames, ignore_index=True)


class RecordSet:
    """Rows of recorded studies and of files of records; without names, of all studies of the home.

    Everything is read once. Raises UserError for unknown names and files that are no tables of records.
    """

    def __init__(self, studies: Sequence[str], home: str | Path | None = None):
        files = [name for name in studies if Path(name).suffix in FILES]
        names = [name for name in studies if name not in files]
        self.file_rows = [row for name in files for row in _read(Path(name))]
        self.recorded: list[tuple[StudyRecords, list[SeedRecord]]] = []
        if names or not files:  # files alone are read without a home
            self.recorded = [(study, study.list_seeds()) for study in open_several(Home(home), names)]

    def configurations(self) -> list[Row]:
        recorded = chain.from_iterable(configuration_rows(*study) for study in self.recorded)
        of_files = (row for row in self.file_rows if "init_seed" not in row)
        return [*of_files, *recorded]

    def seeds(self) -> list[SeedRecord]:
        """Return the seeds that have ended, without their environments."""
        recorded = (seed for _, seeds in self.recorded for seed in seeds if has_ended(seed))
        return [*map(SeedRecord.of, self._seeds_of_files()), *recorded]

    def seed_rows(self) -> list[Row]:
        """Return the same seeds as rows of frames; those of files with whatever columns these have."""
        recorded = chain.from_iterable(seed_rows(*study) for study in self.recorded)
        return [*self._seeds_of_files(), *recorded]

    def _seeds_of_files(self) -> Iterator[Row]:
        return (row for row in self.file_rows if "init_seed" in row)


def _read(path: Path) -> list[Row]:
    """Return the rows of a file of records. Raises UserError for any that is larger than a table of records."""
    import pandas as pd
    import pyarrow.parquet as pq

    with reraise_as(path, (ValueError, OSError)):
        data = read_limited(path, MOST_BYTES, "table of records")
    with _little_memory_for(path):
        if path.suffix == ".csv":
            _check_text(path, data)
            frame = pd.read_csv(BytesIO(data), dtype=KEYS)
        else:
            _check_metadata(path, pq.read_metadata(BytesIO(data)))
            frame = pd.read_parquet(BytesIO(data), use_threads=False)
        rows = [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]
    if not rows:
        raise UserError(f"{path}: has no rows")
    return _typed_seeds(path, rows) if "init_seed" in rows[0] else rows


@contextmanager
def _little_memory_for(path: Path) -> Iterator[None]:
    """Run a block that reads a file with MOST_MEMORY bytes more than the process has now. Raises UserError.

    A file's metadata do not tell all that reading takes, so limits on what they announce are not enough. On Linux, what
    asks for more gets MemoryError.
    """
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    status = Path("/proc/self/statm")
    if status.exists():
        pages = int(status.read_text("utf-8").split()[5])  # data and stack, what RLIMIT_DATA counts
        most = pages * resource.getpagesize() + MOST_MEMORY
        soft = min(limit for limit in (*limits, most) if limit != resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, limits[1]))
    try:
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, limits)
    except MemoryError:  # Arrow's too
        raise _too_large(path, f"it unfolds to more than {MOST_MEMORY:,} bytes") from None
    except (ValueError, OSError):  # Arrow's errors are one or the other
        raise UserError(f"{path}: cannot be read as {FILES[path.suffix]}") from None


def _check_text(path: Path, data: bytes) -> None:
    """Raise UserError for a CSV file with too many lines, columns or cells, before pandas takes it apart."""
    rows = max(data.count(b"\n"), data.count(b"\r"))
    _check_shape(path, rows, 1, data.count(b",") + rows)
    # Only now, with few lines and commas: this makes an object of every line.
    widest = max((line.count(b",") for line in data.splitlines()), default=0)
    _check_shape(path, rows, 1 + widest, 0)


def _check_metadata(path: Path, about: pq.FileMetaData) -> None:
    """Raise UserError for a Parquet file whose metadata announces too much.

    Compressed, some hundred bytes can stand for 150 GB.
    """
    columns, groups = about.num_columns, about.num_row_groups
    _check_shape(path, about.num_rows, columns, about.num_rows * columns)

    # Groups may be empty and without number: no more of them are looked at than a table of MOST_ROWS cells needs.
    looked_at = min(groups, MOST_ROWS // max(columns, 1))
    first_groups = map(about.row_group, range(looked_at))
    chunks = [group.column(at) for group in first_groups for at in range(columns)]
    cells = sum(chunk.num_values for chunk in chunks)  # a row may have lists
    _check_shape(path, groups, columns, max(cells, groups * columns))

    unfolded = sum(chunk.total_uncompressed_size for chunk in chunks)
    if unfolded > MOST_MEMORY:
        raise _too_large(path, f"it unfolds to {unfolded:,} bytes")


def _check_shape(path: Path, rows: int, columns: int, cells: int) -> None:
    limits = ((rows, MOST_ROWS, "rows"), (columns, MOST_COLUMNS, "columns"), (cells, MOST_CELLS, "cells"))
    for count, most, noun in limits:
        if count > most:
            raise _too_large(path, f"{count:,} {noun}")


def _too_large(path: Path, size: str) -> UserError:
    return UserError(f"{path}: larger than any table of records ({size})")


def _typed_seeds(path: Path, rows: list[Row]) -> list[Row]:
    """Return rows of seeds with numbers of the right type. Raises UserError."""
    if missing := [name for name in NEEDED if name not in rows[0]]:
        raise UserError(f"{path}: no table of seeds: it has no column {', '.join(missing)}")
    try:
        return [row | SeedRecord.known(row) | {"budget": int(row["budget"])} for row in rows]
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{path}: no table of seeds: what is to be a number is none") from None


def as_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame as a file has it: what is no scalar, such as a curriculum, is JSON text."""

    def as_text(value: Any) -> Any:
        return json.dumps(value) if isinstance(value, dict | list | tuple) else value

    objects = frame[[name for name in frame if frame[name].dtype == object]]
    return frame.assign(**objects.map(as_text))


# Configurations


def configurations_frame(records: StudyRecords) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(configuration_rows(records))


def configuration_rows(records: StudyRecords, seeds: Sequence[SeedRecord] | None = None) -> list[Row]:
    """Return the rows of the configurations' frame as plain values, in the order in which they were begun.

    seeds: the ledger's rows of the study, if they have been read.
    """
    by_key = group_by(records.list_seeds() if seeds is None else seeds, "configuration")
    study = records.get_recorded_study()
    runs = records.list_runs()
    configurations = records.list_configurations()
    names = names_of(study, configurations.values())
    until = study.until_rule if study else None
    scales = study.kind.scale_names if study else {}
    unknown = dict.fromkeys((*BEFORE_BEST, *AFTER_BEST), nan)
    # Addition has columns only beside other tasks, or where it is searched: rows of one frame have the same columns.
    searches_task = study and any(path.startswith(("model.task", "task.")) for path in study.kind.space)
    says_task = searches_task or any(c.spec.task != ADDITION for c in configurations.values())

    rows = []
    for key, configuration in configurations.items():
        if key not in by_key:
            continue

        own, spec = by_key[key], configuration.spec
        metrics = unknown | final_metrics(own, until) | count_checks(own, spec.task.problems)
        best = min((seed for seed in own if seed.is_final), key=rank, default=None)
        fields = task_fields(spec.task) if says_task else {}
        fields |= configuration.as_params()
        fields |= {f"model.{name}": value for name, value in spec.record_columns().items()}
        experiment, run = runs[key]
        row = {
            "study": records.study,
            "configuration": key,
            "title": names[key],
            "experiment_id": experiment,
            "run_id": run,
            "rung": fields.pop("rung"),
            "params": fields.pop("params"),
            **{name: metrics[name] for name in BEFORE_BEST},
            "stopped": bool(metrics["stopped"]),
            "best_seed": str(best.seed) if best else "",
            **{name: metrics[name] for name in AFTER_BEST},
            **{name: _hashable(value) for name, value in fields.items()},
        }
        rows.append(row | ({SCALE: scales[key]} if key in scales else {}))
    return rows


def _hashable(value: Any) -> Any:
    """Return lists, such as a curriculum, as tuples: frames count and group values."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


# Seeds


def seeds_frame(records: StudyRecords) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(seed_rows(records, records.list_seeds(environment=True)))


def seed_rows(records: StudyRecords, seeds: Sequence[SeedRecord] | None = None) -> Iterator[Row]:
    """Yield the rows of the seeds' frame: one row per seed that has ended, by itself or from outside.

    seeds: the ledger's rows of the study, if they have been read, with environments if these are wanted.
    """
    configurations = records.list_configurations()
    names = names_of(records.get_recorded_study(), configurations.values())
    # Once per configuration, which may have thousands of seeds.
    about = {
        key: {
            "title": names[key],
            "rung": preset_name(configuration.spec),
            "params": configuration.spec.params,
            "budget": configuration.recipe.steps,
        }
        for key, configuration in configurations.items()
    }

    for seed in records.list_seeds() if seeds is None else seeds:
        if has_ended(seed):
            beside: Row = {**about[seed.configuration], "proved": _number(seed.proved)}
            yield {name: beside[name] if name in beside else _shown(seed, name) for name in SEED_COLUMNS}


def seeds_of(frame: pd.DataFrame) -> list[SeedRecord]:
    """Return the seeds of a frame that `seeds_frame` made, of all its rows or of some."""
    return [SeedRecord.of({str(name): value for name, value in row.items()}) for row in frame.to_dict("records")]


def has_ended(seed: SeedRecord) -> bool:
    """True if a seed trains no more, by itself or from outside."""
    return seed.outcome not in OPEN


def _shown(seed: SeedRecord, name: str) -> Any:
    """Return a column's value as frames have it: an unknown number is NaN."""
    kind, value = columns[name].kind, seed[name]
    if kind in (int, float):
        return _number(value)
    return value if kind is str else kind(value or ())


def _number(value: float | None) -> float:
    return nan if value is None else value


# Curves


def curves_frame(
    records: StudyRecords, select: Callable[[Sequence[SeedRecord]], Sequence[SeedRecord]] = list
) -> pd.DataFrame:
    """Return one row per point of a curve, of the seeds that have ended.

    select: returns the rows of a configuration that are wanted.
    """
    import pandas as pd

    from search.store.curves import curve_table

    ended = (seed for seed in records.list_seeds() if seed.is_final)
    tables = []
    for rows in group_by(ended, "configuration").values():
        seeds = list(records.seeds(select(rows)))
        tables.append(curve_table(seeds[0].configuration, [seed.result for seed in seeds]))
    if not tables:
        return pd.DataFrame()

    curves = pd.concat(tables, ignore_index=True)
    curves.insert(0, "study", records.study)
    return curves
