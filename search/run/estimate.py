"""The plan of a run before it starts, and its estimated time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from search.run.design import describe_design
from search.run.packing import (
    Capacity,
    check_resources,
    local_resources,
    placement,
    programs_of,
    seeds_of_programs,
    trial_shape,
)
from search.run.progress import duration
from search.stats.counting import Row, describe_screen, seed_of
from search.store.home import Home
from search.store.ledger import Ledger
from search.store.record import is_final
from search.store.study_records import StudyRecords
from search.study.file import as_begun
from search.study.schema import Study
from search.study.trial import Configuration, Program
from trainer import Outcome, Seed

MOST_SIZES = 24  # numbers of parameters that are listed each
GUESSED_RATE = {True: 8_000, False: 100}
"""Seed-steps/s of a core at batch 256, by the engine and eager, where this home has measured nothing yet."""


def estimate(study: Study, home: Home) -> str:
    """Return the plan of a run, as `run --dry-run` prints it. Raises UserError if it cannot run here."""
    if home.exists():
        study = as_begun(study, (StudyRecords(Ledger(home), study.name).get_study() or {}).get("definition"))
    remark = check_resources(study.resources)
    if study.compress:
        return "\n".join([_rounds(study, home), *([remark] if remark else [])])
    rounds = study.rounds
    rows = StudyRecords(Ledger(home), study.name).list_seeds() if home.exists() else []
    listed = [Configuration(*c) for c in study.listed]
    configurations = study.planned
    to_train = _seeds_to_train(study, listed, rows)
    in_design = sum(study.design.seeds.values())
    seeds, remaining = in_design or len(rounds[0]) * configurations, sum(to_train.values())
    share, fits = placement(study.resources, local_resources())
    trials, size, slots = _trials(study, to_train, fits)
    rate, source = _expected_rate(study, listed, rows)
    trial_s = _trial_seconds(to_train, rows, rate)
    if all_s := sum(trial_s.values()):
        rate = sum(count * c.recipe.steps for c, count in to_train.items()) / all_s
    seconds, core_hours = all_s / max(1, min(trials, fits.concurrent)), all_s * share["cpu"] / 3_600
    cost = f", {core_hours:,.1f} core-hours" if core_hours >= 1 and not fits.on_gpu else ""
    proposed = f", proposed by {study.sampler.name}" if study.space else ""
    if study.combine:
        proposed = (
            f", of {2 ** len(study.combine)} combinations; the others are impossible or equal to one of these"
        )
    steps = " to ".join(f"{n:,}" for n in sorted({f(c.recipe.steps for c in listed) for f in (min, max)}))
    text = f"""{study.name}: {study.about}
  model           {_models(listed)}
  configurations  {configurations}{proposed}
  seeds           {seeds}, {steps} steps each; {seeds - remaining} recorded, {remaining} to train
  trials          {trials} of up to {size} seeds in {slots} slots, up to {fits.concurrent} side by side
  resources       cpu {share["cpu"]:g}, gpu {share["gpu"]:g} for each trial
  home            {home.path}
  estimated time  {duration(seconds)}{cost} at {rate:,.0f} seed-steps/s a trial ({source})"""
    if study.space:
        text += f"\n  sought          {study.sampler.described}"
    if looks := study.stop.rungs:
        text += f"\n  screen          {describe_screen(looks, [c.key for c in listed])}"
    if study.scales:
        by_arm = {c: share["cpu"] * s / 3_600 for c, s in trial_s.items()}
        text = "\n".join([text, "", *describe_design(study.design, to_train, by_arm)])
    return "\n".join([text, *_later(study, rounds, len(listed) > 1), *([remark] if remark else [])])


def _models(listed: Sequence[Configuration]) -> str:
    """Return each family with its numbers of parameters; of many the greatest and the least."""
    sizes: dict[str, dict[int, None]] = {}
    for c in listed:
        sizes.setdefault(c.spec.family, {})[c.spec.params] = None
    texts = {
        family: f"{max(n)} to {min(n)}" if len(n) > MOST_SIZES else ", ".join(map(str, n))
        for family, n in sizes.items()
    }
    return "; ".join(f"{family}, {text} parameters" for family, text in texts.items())


def _rounds(study: Study, home: Home) -> str:
    """Return the plan of a study that looks for constraints. The number of its rounds is not known."""
    compress, rows = (
        study.compress,
        StudyRecords(Ledger(home), study.name).list_seeds() if home.exists() else [],
    )
    assert compress is not None
    recipe, seeds, how = study.base_recipe, len(study.first_seeds), compress.proposer
    rate, source = _expected_rate(study, [], rows)
    share, fits = placement(study.resources, local_resources())
    seconds = compress.proposals * seeds * recipe.steps / (rate * fits.concurrent)
    return f"""{study.name}: {study.about}
  rounds          up to {compress.rounds}, of {compress.proposals} sets each by {how}, beam {compress.beam}
  seeds           {seeds} of each set, {recipe.steps:,} steps each; {len(rows):,} recorded
  resources       cpu {share["cpu"]:g}, gpu {share["gpu"]:g} for each trial
  home            {home.path}
  estimated time  {duration(seconds)} a round at {rate:,.0f} seed-steps/s a trial ({source})"""


def _trials(study: Study, to_train: dict[Configuration, int], fits: Capacity) -> tuple[int, int, int]:
    """Return the number of trials, and pairs and slots of the largest."""
    pairs: Counter[Program] = Counter()
    programs = dict(zip((Configuration(*c) for c in study.listed), programs_of(study), strict=False))
    for c, count in to_train.items():
        pairs[programs[c]] += count
    seeds_of = {} if study.proposes else seeds_of_programs(study)
    sizes = {program: trial_shape(study, program, fits, seeds_of) for program in pairs}
    trials = sum(-(-count // sizes[program][0]) for program, count in pairs.items())
    return trials, *max(sizes.values())


def _later(study: Study, rounds: list[list[Seed]], several: bool) -> list[str]:
    """Return a line for each thing that follows the first round."""
    lines, rule = [], study.allocation
    each = "of each configuration " if several else ""
    if study.until.max_seeds:
        limit = sum(map(len, rounds))
        lines.append(f"until {study.until.grokked} {each}grokked, rounds up to {limit} seeds in all")
    if rule:
        budget = f", {rule.budget:,} in all" if rule.budget else ""
        which = f"whose interval has {rule.threshold:.0%} in it, or that may be the best"
        lines.append(f"more seeds for configurations {which}: up to {rule.most} of one{budget}")
    if study.confirm:
        fresh = len(study.confirm_seeds)
        lines.append(f"up to {study.confirm.configurations} of the best confirmed on {fresh} fresh seeds")
    return [f"  then            {line}" for line in lines]


def _seeds_to_train(
    study: Study, listed: list[Configuration], rows: Sequence[Row]
) -> dict[Configuration, int]:
    """Return how many seeds each configuration still has to train; of a search, all under the first one."""
    final = [r for r in rows if is_final(r)]
    if study.space or study.start:  # by which θ the configurations are begun is in the ledger alone
        seeds = study.first_seeds
        first = Counter(r["configuration"] for r in final if not r["confirmation"])
        done = sum(min(count, len(seeds)) for count in first.values())
        return {listed[0]: max(0, len(seeds) * study.planned - done)}
    recorded = {(r["configuration"], seed_of(r)) for r in final}
    searched = [r for r in final if r["outcome"] == Outcome.GROKKED and not r["confirmation"]]
    grokked, wanted = Counter(r["configuration"] for r in searched), study.until.grokked

    def missing(c: Configuration) -> int:
        if wanted and grokked[c.key] >= wanted:
            return 0
        return sum((c.key, s) not in recorded for s in study.seeds_of((c.spec, c.recipe)))

    return {c: missing(c) for c in listed}


def _trial_seconds(
    to_train: dict[Configuration, int], rows: Sequence[Row], rate: float
) -> dict[Configuration, float]:
    """Return the seconds that trials spend on each configuration at most: every seed trains its whole budget.

    rate: seed-steps/s of a trial, for configurations of which nothing is recorded.
    """
    measured: dict[str, list[float]] = {}
    for row in rows:
        if row["seed_steps_per_s"]:
            measured.setdefault(row["configuration"], []).append(row["seed_steps_per_s"])
    rates = {key: median(values) for key, values in measured.items()}
    return {c: count * c.recipe.steps / rates.get(c.key, rate) for c, count in to_train.items()}


def _expected_rate(study: Study, listed: list[Configuration], rows: Sequence[Row]) -> tuple[float, str]:
    """Return seed-steps/s of one trial, and where it is from: the median recorded here, or a guess."""
    if measured := [r["seed_steps_per_s"] for r in rows if r["seed_steps_per_s"]]:
        return median(measured), "measured here"
    batch = max(r.batch for r in [c.recipe for c in listed] or [study.base_recipe])
    rate = GUESSED_RATE[study.resources.compiled] * study.resources.cpu * 256 / batch
    return rate, "a guess until something has run here; compilation not included"
