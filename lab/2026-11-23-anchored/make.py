"""Table of three recipes on the same seeds."""

from lab.tables import beside, rows_of

ROBUST = "three-128.csv where study == 'three-128'"
PUBLISHED = "three-128.csv where study == 'three-128-published'"


def pairs() -> str:
    return beside({"57p-anchored": rows_of("half-2-128.csv")}, rows_of(ROBUST))


def pairs_with_published() -> str:
    return beside({"57p-anchored": rows_of("half-2-128.csv")}, rows_of(PUBLISHED))
