"""What pages and tables read of records: the files that the package brings, and the rates of a configuration's row."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from search.analysis.pareto import lower_end
from search.stats.counting import GrokRate

Row = Mapping[str, Any]
"""A configuration as search.analysis.frames has it."""


def shipped_records() -> list[str]:
    """Return the files of records that come with the package."""
    folder = files("studies") / "records"
    return sorted(str(file) for file in folder.iterdir() if file.name.endswith(".parquet"))


def rates_of(row: Row) -> tuple[GrokRate, GrokRate]:
    """Return a configuration's rates, of the search's seeds and of the confirmation's."""
    return _rate(row, "", "grok_rate"), _rate(row, "confirmation_", "confirmation")


def _rate(row: Row, prefix: str, interval: str) -> GrokRate:
    """Return a rate with its recorded interval. prefix: of the columns that count. interval: of those of its ends."""
    n = row[f"{prefix}seeds"]
    ends = (row[f"{interval}_low"], row[f"{interval}_high"]) if n else None
    return GrokRate(row[f"{prefix}grokked"], n, row[f"{prefix}wrongly"], recorded_interval=ends)


def standing(row: Row) -> tuple[bool, float]:
    """Return a key to sort configurations by: confirmed ones are ahead; by the lower end of an unpooled rate."""
    return row["confirmation_seeds"] > 0, lower_end(row)
