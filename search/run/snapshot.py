"""One moment of a study that runs, and what is said of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

BAR = 20
"""Characters of a bar."""


@dataclass(frozen=True)
class Snapshot:
    """One moment of a study, what earlier runs did included. Rates are seed-steps/s; times are seconds."""

    configurations: tuple[int, int]
    """Configurations whose search has ended, and all that the file asks for."""
    seeds: tuple[int, int]
    """Seeds that have ended, and all that are asked for so far."""
    running: int
    """Seeds that train."""
    grokked: int
    not_grokked: int
    best: str
    """The configuration of the highest grok rate, by its name, and its counts; empty before a seed has grokked."""
    best_exact: float
    seed_steps_per_s: float
    seconds_left: float | None
    compiling: bool
    elapsed_s: float
    waiting: int = 0
    """Seeds of banks that run, which do not train yet."""
    is_open: bool = False
    """True if more seeds may be asked for, as results decide."""
    confirming: int = 0
    """Configurations that train fresh seeds."""

    def __str__(self) -> str:
        """Return it as one line."""
        return ". ".join(describe(self))


def snapshot_of(running: Mapping[str, Any]) -> Snapshot:
    """Return the snapshot in what a driver left of its progress (search/store/progress_file.py)."""
    names = [field.name for field in fields(Snapshot)]
    return Snapshot(**{name: running[name] for name in names if name in running})


def describe(s: Snapshot) -> list[str]:
    """Return lines: how far the study is, the best configuration, and time."""
    lines = [", ".join(_counts(s))]
    if s.best:
        lines.append(f"best so far: {s.best} grokked")
    elif not s.grokked and s.best_exact:
        lines.append(f"best exact match {s.best_exact:.4f}")

    times = [duration(s.elapsed_s)]
    if s.seed_steps_per_s:
        times.append(f"{s.seed_steps_per_s:,.0f} seed-steps/s")
    if s.seconds_left is not None:
        times.append(f"about {duration(s.seconds_left)} left")
    lines.append(", ".join(times))
    return lines


def _counts(s: Snapshot) -> Iterator[str]:
    """Yield the counts of configurations and seeds in words."""
    noun = "seeds"
    if s.configurations[1] > 1:
        yield f"configurations {s.configurations[0]:,} of {s.configurations[1]:,}"
        noun = "runs"  # a seed of each configuration is one
    if s.confirming:
        yield f"confirming {s.confirming:,} of them on fresh seeds"
    up_to = "up to " if s.is_open else ""
    yield f"{noun} {s.seeds[0]:,} of {up_to}{s.seeds[1]:,}"

    if s.running or not s.waiting:
        yield f"{s.running:,} training"
    if s.waiting:
        waiting = "waiting" if s.running else "waiting for their processes to start"
        yield f"{s.waiting:,} {'compiling' if s.compiling else waiting}"

    # A seed counts as grokked from its first perfect evaluation, but has ended only when it has held, or its budget is
    # spent.
    holding = s.grokked + s.not_grokked - s.seeds[0]
    remark = f" ({holding:,} of them still training, to hold)" if holding > 0 else ""
    yield f"{s.grokked:,} grokked{remark}"
    yield f"{s.not_grokked:,} not grokked"


def bar(s: Snapshot) -> str:
    """Return a bar of the time so far, as a share of the time that a run is expected to take."""
    expected_s = s.elapsed_s + (s.seconds_left or 0)
    full = int(BAR * s.elapsed_s / expected_s) if s.seconds_left is not None and expected_s else 0
    return f"[{'#' * full}{'.' * (BAR - full)}]"


def duration(seconds: float) -> str:
    """Return the two largest units of a time: 2 h 5 min, 1 min 51 s, 7 s."""
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
