"""Table of the schedule beside the one before, on the same seeds."""

from lab.tables import beside, rows_of


def pairs() -> str:
    kinds, faded = (rows_of(f"kinds-57p.csv where configuration == '{key}'") for key in KEYS)
    return beside({"57p-kinds": kinds}, faded)


KEYS = "8bba8e0fa76e", "02914ef60edd"
