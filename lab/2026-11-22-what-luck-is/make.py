"""Tables of switches at step 26,000 and who grokked."""

import pandas as pd

from lab.tables import GROKKED, markdown, rows_of

ODD, SWITCHED = 0.9, 0.95
"""An odd code reads more than the first; one switch each way more than the second."""
HEAD = "odd, one switch each way: grokked", "of the others: grokked"
PRESETS = {
    "57p, 57p-robust": "robust-128.csv",
    "57p, 57p-robust, 128 other seeds": "three-128.csv where study == 'three-128'",
    "57p, 57p-anchored": "half-2-128.csv",
    "57p, 57p-anchored, 128 other seeds": "long-57p.csv where arm == 'anchored'",
    "54p": "small-64.csv where configuration == '55a18b974633'",
    "47p": "small-64.csv where configuration == 'df16906803c4'",
    "46p": "small-64.csv where configuration == '60cc6fe6fcfa'",
}
TIED = {
    "38": "below-46-anchored.csv where arm == '38'",
    "36": "below-38.csv where arm == '36'",
    "35, EQUALS": "below-36.csv where arm == 'equals'",
    "35, out_B": "below-36.csv where arm == 'out_B'",
    "34": "below-38.csv where arm == '34'",
    "32": "below-38.csv where arm == '32'",
    "28": "below-46-anchored.csv where arm == '28'",
    "22": "below-46-anchored.csv where arm == '22'",
    "15": "below-46-anchored.csv where arm == '15'",
}


def switches() -> str:
    return _table(PRESETS)


def switches_of_tied() -> str:
    return _table(TIED)


def early_switches() -> str:
    """Return who groks of those with both and of the others, among seeds that have not yet grokked at a step."""
    lines = []
    for name in ("57p, 57p-robust", "57p, 57p-anchored"):
        for at in (10_000, 20_000):
            rows = rows_of(PRESETS[name])
            rows = rows[~(rows["grok_step"] <= at)]
            has_both = (rows[f"odd_{at}"] > ODD) & (rows[f"switches_{at}"] > SWITCHED)
            lines.append((name, f"{at:,}", *_split(rows, has_both)))
    return markdown(("", "at step", *HEAD), lines)


def _table(sources: dict[str, str]) -> str:
    """Return a line a source: how many seeds have an odd code and one switch each way, and who groks of both kinds."""
    lines = []
    for name, source in sources.items():
        rows = rows_of(source)
        lines.append((name, len(rows), *_split(rows, rows.apply(_has_both, axis=1))))
    return markdown(("", "seeds", *HEAD), lines)


def _split(rows: pd.DataFrame, has_both: pd.Series) -> tuple[str, str]:
    """Return how many grok of the rows that have both, and of the others."""
    parts = (rows[has_both], rows[~has_both])
    both, others = (f"{len(part.query(GROKKED))} of {len(part)}" for part in parts)
    return both, others


def _has_both(row: pd.Series) -> bool:
    """Read a seed at step 26,000; at step 20,000 if it had grokked or ended by then."""
    early = row["grok_step"] <= 26_000 or pd.isna(row["odd_26000"])
    at = 20_000 if early else 26_000
    return bool(row[f"odd_{at}"] > ODD and row[f"switches_{at}"] > SWITCHED)
