"""Table of wrappers, optimisers and schedules on top of 57p-robust."""

from lab.tables import arms_of, beside


def arms() -> str:
    arms = arms_of("claims-robust.csv", plan="claims-robust")
    return beside(arms, arms.pop("robust"))
