"""The records as data frames. Counts and facts come from the ledger; only curves are read from artifacts."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from model import preset_name
from model.adderboard import ADDITIONS
from search.errors import UserError
from search.stats.counting import Until, final_metrics, group_by, rank, seed_of
from search.store.home import Home
from search.store.ledger import Ledger, Row, is_final, open_ledger
from search.study.file import recorded_study, stopping_rule
from search.study.trial import Configuration
from trainer import Outcome

if TYPE_CHECKING:
    import pandas as pd

    from search.study.schema import Study
    from search.tracking.artifacts import ArtifactCache

Of = Literal["seeds", "configurations", "curves"]
COUNTS = ("grokked", "failed", "diverged", "given_up", "screened", "censored")
COST = ("seed_steps", "grokked_per_million")
CONFIRMATION = (
    "confirmation_grokked", "confirmation_seeds", "confirmation_given_up", "wrongly", "confirmation_wrongly",
)  # fmt: skip
NAN = float("nan")
MOST_ROWS, MOST_CELLS, MOST_BYTES = 200_000, 10_000_000, 300_000_000
"""Of a file of records that was given: rows, numbers and texts in it, and bytes of memory to read it."""
MOST_TEXT = 50_000_000  # bytes of a CSV file
KEYS = dict.fromkeys(("study", "configuration", "trial", "title"), str)  # a key may look like a number
FILES: dict[str, dict[str, Any]] = {
    ".parquet": {"use_threads": False},
    ".csv": {"nrows": MOST_ROWS, "dtype": KEYS},
}
"""Files of records that are read, by suffix, and how pandas is to read them."""
KINDS = {".parquet": "Parquet", ".csv": "CSV"}
SEED_TEXTS = ("study", "configuration", "outcome", "held")
SEED_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "init_seed": int, "data_seed": int, "steps": int, "budget": int, "grok_step": float,
    "hopeless_step": float, "best_token": float,
}  # fmt: skip
"""Columns that a table of seeds must have."""


def records(
    study: str | Sequence[str],
    of: Of = "seeds",
    *,
    home: str | Path | None = None,
    trust_store: bool = False,
) -> pd.DataFrame:
    """What is recorded of one study or several: a row a seed, a configuration, or a point of a curve.

    seeds: study, configuration (its key), title, rung, params, init_seed, data_seed, confirmation, outcome,
    budget, reason (why censored), steps, grok_step, held, hopeless_step, screen (the rung that would have
    ended it), best_step, best_exact, best_token, core_s, trial, environment.
    configurations: the same names, MLflow's ids, counts by outcome, `seeds` (n of the rate), grok_rate with
    its 95 % interval, stopped (once enough had grokked: the interval is for that), screened_wrongly (at most,
    of the screened), seed_steps, grokked_per_million, core_s_per_grokked, median_grok_step, best_seed, the
    confirmation's share of the counts, and a column for
    every field of spec and recipe (`model.tie_vo`, `recipe.lr`). curves: configuration, init_seed, data_seed,
    step, the measures at that step, and what the spec's probes read (docs/architecture.md, "Records").
    `trust_store`: read them from the MLflow server that the study names, though it is not
    MLFLOW_TRACKING_URI.

    Raises UserError for an unknown study, ValueError for another `of`.
    """
    import pandas as pd

    readers = {"seeds": seeds_frame, "configurations": configurations_frame, "curves": recorded_curves}
    if of not in readers:
        raise ValueError(f"of must be one of {', '.join(readers)}, got {of!r}")
    names = [study] if isinstance(study, str) else list(study)
    ledger = open_ledger(Home(home, trust_store), *names)
    found = [readers[of](ledger, name) for name in names]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def studies(home: str | Path | None = None) -> list[str]:
    """The names of the studies that have records."""
    return open_ledger(Home(home)).list_studies()


def study_of(ledger: Ledger, study: str) -> Study | None:
    """A study as its file was when it last ran; None for one that never got so far."""
    kept = ledger.get_study(study)
    if kept is None or kept["definition"] is None:
        return None
    return recorded_study(json.dumps(kept["definition"]), f"study {study} as it was recorded")


def until_of(ledger: Ledger, study: str) -> Until | None:
    """How many grokked seeds a recorded study stops at, and its seeds in order."""
    asked = study_of(ledger, study)
    return stopping_rule(asked) if asked else None


def configuration_rows(ledger: Ledger, study: str, recorded: Sequence[Row] | None = None) -> list[Row]:
    """The rows of the configurations' frame, as plain values, in the order in which they were begun.

    recorded: the ledger's rows of the study, where they have been read.
    """
    rows = group_by(ledger.list_seeds(study) if recorded is None else recorded, "configuration")
    until, known, pages = until_of(ledger, study), ledger.list_configurations(study), ledger.list_runs(study)
    return [_configuration(study, c, pages[key], rows[key], until) for key, c in known.items() if key in rows]


class RecordSet:
    """The rows of recorded studies and of files of them; of all studies of the home if nothing is named.

    Everything is read once. Raises UserError for what is not there or no table of records.
    """

    def __init__(self, studies: Sequence[str], home: str | Path | None = None):
        files = [name for name in studies if Path(name).suffix in FILES]
        names = [name for name in studies if name not in files]
        self.found, self.recorded = [row for name in files for row in _read(Path(name))], {}
        if files and not names:
            return
        self.ledger = open_ledger(Home(home), *names)
        self.recorded = {name: self.ledger.list_seeds(name) for name in names or self.ledger.list_studies()}

    def configurations(self) -> list[Row]:
        """A row a configuration (`configuration_rows`)."""
        rows = [row for row in self.found if "init_seed" not in row]
        return rows + [
            r for name, its in self.recorded.items() for r in configuration_rows(self.ledger, name, its)
        ]

    def seeds(self) -> list[Row]:
        """A row a seed that has ended, as `records` has them, without its environment."""
        rows = [row for row in self.found if "init_seed" in row]
        return rows + [
            row for name, its in self.recorded.items() for row in seed_rows(self.ledger, name, its)
        ]


def _read(path: Path) -> list[Row]:
    import pandas as pd
    import pyarrow.parquet  # noqa: F401  # before memory is counted

    if not path.is_file():
        raise UserError(f"{path}: {'no file' if path.exists() else 'no such file'}")
    try:
        with small_memory():
            _check_size(path)
            read: Any = pd.read_parquet if path.suffix == ".parquet" else pd.read_csv
            rows = read(path, **FILES[path.suffix]).to_dict("records")
    except MemoryError:  # Arrow's too
        raise UserError(f"{path}: unfolds to more than any table of records") from None
    except (ValueError, OSError):  # Arrow's errors are one or the other
        raise UserError(f"{path}: cannot be read as {KINDS[path.suffix]}") from None
    named = [{str(k): v for k, v in row.items()} for row in rows]
    return _checked(path, named) if named and "init_seed" in named[0] else named


def _checked(path: Path, rows: list[Row]) -> list[Row]:
    """Rows of seeds, whose numbers are numbers. Raises UserError."""
    if lacking := [name for name in (*SEED_TEXTS, *SEED_NUMBERS) if name not in rows[0]]:
        raise UserError(f"{path}: no table of seeds: it has no column {', '.join(lacking)}")
    try:
        numbers = [{name: kind(row[name]) for name, kind in SEED_NUMBERS.items()} for row in rows]
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{path}: no table of seeds: what is to be a number is none") from None
    return [{**row, **mine} for row, mine in zip(rows, numbers, strict=True)]


def _check_size(path: Path) -> None:
    """Refuse what says that it is large: in Parquet some hundred bytes can stand for gigabytes."""
    import pyarrow.parquet as pq

    if path.suffix == ".csv":
        if path.stat().st_size > MOST_TEXT:
            raise UserError(f"{path}: larger than any table of records ({path.stat().st_size:,} bytes)")
        return
    about = pq.ParquetFile(path).metadata
    if about.num_rows > MOST_ROWS or about.num_rows * about.num_columns > MOST_CELLS:
        asked = f"{about.num_rows:,} rows of {about.num_columns:,} columns"
        raise UserError(f"{path}: larger than any table of records ({asked})")


@contextmanager
def small_memory() -> Iterator[None]:
    """A block gets MOST_BYTES of memory, whatever a file makes it ask for: MemoryError beyond, on Linux."""
    limits, status = resource.getrlimit(resource.RLIMIT_DATA), Path("/proc/self/statm")
    if not status.exists():
        yield
        return
    most = int(status.read_text().split()[5]) * resource.getpagesize() + MOST_BYTES
    known = [limit for limit in (*limits, most) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(known), limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)


def _configuration(
    study: str, configuration: Configuration, page: tuple[str, str], rows: list[Row], until: Until | None
) -> Row:
    n, best = final_metrics(rows, until), min(filter(is_final, rows), key=rank, default=None)
    decoded = [r["verified"] for r in rows if r["outcome"] == Outcome.GROKKED and r["verified"] is not None]
    fields = configuration.as_params()
    return {
        "study": study,
        "configuration": configuration.key,
        "title": configuration.title,
        "experiment_id": page[0],
        "run_id": page[1],
        "rung": fields.pop("rung"),
        "params": fields.pop("params"),
        "seeds": n["seeds"],
        **{name: n[name] for name in (*COUNTS, "grok_rate", "grok_rate_low", "grok_rate_high", "best_exact")},
        "stopped": bool(n["stopped"]),
        "screened_wrongly": n["screened_wrongly"],
        **{name: n[name] for name in COST},
        "core_s_per_grokked": n.get("core_s_per_grokked", NAN),
        "median_grok_step": n.get("median_grok_step", NAN),
        "held": n["held"],
        "verified": sum(right == ADDITIONS for right in decoded),
        "verify_tried": len(decoded),
        "best_seed": str(seed_of(best)) if best else "",
        **{name: n[name] for name in CONFIRMATION},
        **{name: _hashable(value) for name, value in fields.items()},
    }


def _hashable(value: Any) -> Any:
    """Lists, such as a curriculum, become tuples."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def configurations_frame(ledger: Ledger, study: str) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(configuration_rows(ledger, study))


def seeds_frame(ledger: Ledger, study: str) -> pd.DataFrame:
    """A row a seed that has ended, by itself or from outside."""
    import pandas as pd

    return pd.DataFrame(list(seed_rows(ledger, study, ledger.list_seeds(study, environment=True))))


def seed_rows(ledger: Ledger, study: str, recorded: Sequence[Row] | None = None) -> Iterator[Row]:
    """The rows of the seeds' frame.

    recorded: the ledger's rows of the study, where they have been read, with environments if these are wanted
    (what each was trained in is most of the text).
    """
    known = ledger.list_configurations(study)
    about = {key: _about(study, configuration) for key, configuration in known.items()}
    return _seed_rows(ledger.list_seeds(study) if recorded is None else recorded, about)


def _about(study: str, configuration: Configuration) -> Row:
    return {
        "study": study,
        "configuration": configuration.key,
        "title": configuration.title,
        "rung": preset_name(configuration.spec),
        "params": configuration.spec.params,
        "budget": configuration.recipe.steps,
    }


def _seed_rows(rows: Sequence[Row], about: Mapping[str, Row]) -> Iterator[Row]:
    for row in rows:
        if row["outcome"] in (Outcome.QUEUED, Outcome.RUNNING):
            continue
        its = about[row["configuration"]]
        steps = {name: NAN if row[name] is None else row[name] for name in ("grok_step", "hopeless_step")}
        yield {
            **{name: its[name] for name in ("study", "configuration", "title", "rung", "params")},
            **{name: row[name] for name in ("init_seed", "data_seed", "confirmation", "outcome")},
            "budget": its["budget"],
            "reason": row["reason"],
            "steps": row["steps"],
            "grok_step": steps["grok_step"],
            "held": bool(row["held"]),
            "hopeless_step": steps["hopeless_step"],
            "screen": row["screen"],
            "best_step": row["best_step"] or 0,
            "best_exact": row["best_exact"] or 0.0,
            "best_token": row["best_token"] or 0.0,
            "core_s": NAN if row["core_s"] is None else row["core_s"],
            "trial": row["trial"],
            "environment": row.get("environment") or {},
        }


def recorded_curves(ledger: Ledger, study: str) -> pd.DataFrame:
    """`curves_frame` of a study whose artifacts nothing has read yet."""
    from search.tracking.artifacts import ArtifactCache
    from search.tracking.tracking import reach

    with ArtifactCache(reach(ledger, study), ledger, study) as shelf:
        return curves_frame(shelf)


def curves_frame(
    shelf: ArtifactCache, some: Callable[[Sequence[Row]], Sequence[Row]] | None = None
) -> pd.DataFrame:
    """A row a point of a curve, of the seeds that MLflow has. some: which of a configuration's are wanted,
    with whoever lies beside them.
    """
    import pandas as pd

    rows = [r for r in shelf.ledger.list_seeds(shelf.study) if is_final(r) and r["published"]]
    if some:
        rows = [r for mine in group_by(rows, "configuration").values() for r in some(mine)]
    tables = [shelf.curves(*key) for key in dict.fromkeys((r["configuration"], r["trial"]) for r in rows)]
    if not tables:
        return pd.DataFrame()
    curves = pd.concat(tables, ignore_index=True)
    curves.insert(0, "study", shelf.study)
    return curves
