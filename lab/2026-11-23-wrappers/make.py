"""Table and picture of wrappers, optimisers and schedules on top of 57p-robust: run this file to write the picture."""

from pathlib import Path

import pandas as pd

from lab.tables import arms_of, beside, forest, rate_of, read

FULL_ADAM = "e2c8d5221c2c"  # the plan has it no more: commit e95297c trains it


def arms_and_base() -> tuple[dict[str, pd.DataFrame], pd.DataFrame]:
    """Return the rows by arm, and the base's."""
    arms, rows = arms_of("claims-robust.csv", plan="claims-robust"), read("claims-robust.csv")
    arms.pop("full-adam", None)
    arms["full-adam"] = rows[rows["configuration"] == FULL_ADAM]
    return arms, arms.pop("robust")


def arms() -> str:
    return beside(*arms_and_base())


if __name__ == "__main__":
    rows_by_arm, base = arms_and_base()
    rates = {name: rate_of(rows) for name, rows in {"57p-robust": base, **rows_by_arm}.items()}
    forest(rates, Path(__file__).with_name("wrappers.png"))
