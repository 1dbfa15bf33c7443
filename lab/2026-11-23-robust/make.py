"""Tables of the recipe beside the published one, and with one part left out."""

from lab.tables import arms_of, beside, rows_of

BOTH = "robust-128.csv + three-128.csv where study == 'three-128'"
PUBLISHED = "57p-paired-published.csv + three-128.csv where study == 'three-128-published'"


def beside_published() -> str:
    return beside({"57p-robust": rows_of(BOTH)}, rows_of(PUBLISHED))


def parts_left_out() -> str:
    """Return the arms that were trained of five that were planned, beside the whole recipe."""
    return beside(arms_of("ablation.csv"), rows_of("robust-128.csv"), planned=5)
