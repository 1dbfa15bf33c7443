"""The plan of a run before it starts: its estimated time; of a table of constraints cells, seeds, core-hours, power."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from itertools import groupby
from statistics import median

from model import Spec
from search.run import mps
from search.run.forecast import Forecast, forecast
from search.run.gpu_cost import BATCH, describe_cards, gpu_here, measured_name, speed_of
from search.run.packing import BankShapes, Capacity, check_resources, local_resources, placement_of
from search.run.proposer import proposer_of
from search.run.snapshot import duration
from search.run.spared import BLOCK
from search.stats.counting import GrokRate, Row
from search.stats.intervals import LEVEL, exact_high, power
from search.store.home import Home
from search.store.record import is_final
from search.store.study_records import StudyRecords
from search.study.described import aligned, describe, impossible_remark, longest_budget, rules, too_long
from search.study.scales import Cell, Design
from search.study.schema import Study
from search.study.space import corners, fixed, resolve
from search.study.trial import CARRY_MIX, Configuration
from trainer import FALSE_KILLS_UPPER, Recipe
from trainer.bank.futility import MEASURED

USELESS = 0.05  # what rules may add to the upper end of an interval before the plan advises against them
MOST_SIZES = 24  # numbers of parameters that are listed each
EAGER = 100
"""Seed-steps/s of a core at batch 256 without the engine: a guess."""
NICE = os.environ.get("RAY_worker_niceness", "15")  # noqa: SIM112
"""What Ray starts workers with."""
POWER = 0.8
"""Power that a plan should have."""
ABOUT = (
    "core-hours: at most, every seed training its whole budget. rate: planned, of the base.",
    "fatal, halves: power where one arm has the planned rate and the other 0, or half of it; McNemar's exact test,",
    "two-sided, independent arms, 5 % by Holm's worst case in the scale (in brackets: 5 % for the cell alone).",
)
HEAD = ("scale", "base", "cells", "arms", "seeds each", "to train", "core-hours", "rate", "fatal", "halves")


def estimate(study: Study, home: Home, rows: Sequence[Row] = (), records: StudyRecords | None = None) -> str:
    """Return the plan of a run, as `run --dry-run` prints it. Raises UserError if it cannot run here.

    rows: the study's seeds that the home has; records: of a study that was begun.
    """
    listed = [Configuration(*c) for c in study.listed]
    remark, here = check_resources(study.resources), local_resources()
    by_mps = mps.is_available()
    share, fits = placement_of(study, here, by_mps=by_mps)
    has_search = True
    rates, rate, source = _expected_rates(study, listed, rows, fits, by_mps)
    if study.proposer and (proposer := proposer_of(study)):
        asked = proposer.plan(study, len(rows))
        round_steps = study.proposer.round_size * len(study.first_seeds) * study.base_recipe.steps
        time = f"{duration(round_steps / (rate * fits.concurrent))} a round"
    else:
        known = forecast(study, rows, records)
        to_train = dict.fromkeys(listed, 0) | (known.search + known.confirmation)
        seconds = {c: count * c.recipe.steps / rates.get(c.key, rate) for c, count in to_train.items()}
        if total_s := sum(seconds.values()):
            rate = sum(count * c.recipe.steps for c, count in to_train.items()) / total_s
        at_once, banks = _banks(study, to_train, fits)
        asked = [
            *_configurations(study, listed, known),
            *_not_asked(study, listed, rows),
            banks,
        ]
        core_hours = total_s * share["cpu"] / 3_600
        time = f"about {duration(total_s / max(1, at_once))} once it trains"
        time += f", {core_hours:,.1f} core-hours" if core_hours >= 0.05 and not fits.on_gpu else ""
        fresh = study.confirm.configurations * len(study.confirm_seeds) if study.confirm else 0
        has_search = bool(known.search)
        if fresh and has_search:
            bank_s = fresh * study.base_recipe.steps / rate
            time += f", up to {duration(bank_s / fits.concurrent)} to confirm"
            fresh_hours = bank_s * share["cpu"] / 3_600
            time += f" ({fresh_hours:,.1f} core-hours)" if fresh_hours >= 0.05 and not fits.on_gpu else ""
        time += ","
    lines = [
        f"{study.name}: {study.about}" if study.about else study.name,
        *asked,
        *([f"  too long        {late}"] if (late := too_long(study)) else []),
        *_search(study),
        *(f"  {name.lower():15} {words}" for name, words in rules(study, [c.key for c in listed])),
        f"  resources       cpu {share['cpu']:g}, gpu {share['gpu']:g} for each bank, at nice {NICE}",
        *([f"  where           {_where(study, fits, here['CPU'], by_mps)}"] if here["GPU"] else []),
        *_cards(study),
        *_busy(here["CPU"]),
        f"  home            {home.path}",
        f"  estimated time  {time} at {rate:,.0f} seed-steps/s a bank ({source})",
    ]
    if not (study.proposer or study.until_rule):
        worth = zip(("intervals", ""), _worth(study, listed), strict=False)
        lines += [f"  {head:15} {text}" for head, text in worth]
    if study.scales:
        by_arm = {c: share["cpu"] * s / 3_600 for c, s in seconds.items()}
        lines += ["", *describe_design(study.design, to_train, by_arm)]
    return "\n".join([*lines, *_later(study, len(listed) > 1, has_search), *([remark] if remark else [])])


def _banks(study: Study, to_train: Mapping[Configuration, int], fits: Capacity) -> tuple[int, str]:
    """Return the number of banks that so many seeds train in at once, and the plan's line on them."""
    shapes, seeds = BankShapes(study), sum(to_train.values())
    slots = max(shapes.slots_of(c.program, fits) for c in to_train)
    at_once = min(fits.concurrent, seeds)
    is_known = not (study.proposes or study.until.grokked or study.allocation or study.confirm)
    more = "; the others take the slots that fall free" if seeds > at_once * slots else ""
    more = more if is_known else "; more follow"
    return at_once, f"  banks           {at_once} at once, of {slots} slots each{more if seeds else ''}"


def _busy(cores: float) -> list[str]:
    """Return a line where other programs are at work, by the machine's load of the last minute."""
    load = os.getloadavg()[0]
    line = f"  load            {load:.1f} on {cores:g} cores: other programs are at work, so it will take longer"
    return [line] if load > cores / 2 and not os.environ.get("RAY_ADDRESS") else []


def _not_asked(study: Study, listed: Sequence[Configuration], rows: Sequence[Row]) -> list[str]:
    """Return a line on recorded seeds of configurations that the file has no more."""
    keys = {c.key for c in listed}
    others = sum(is_final(r) and r["configuration"] not in keys for r in rows if not study.proposes)
    line = f"  not asked for   {others} recorded seeds of other configurations, which stay"
    return [line] if others else []


def _where(study: Study, fits: Capacity, cores: float, by_mps: bool) -> str:
    """Return where trials go on a machine that has a GPU."""
    if 0 < fits.gpu < 1:
        return f"on the GPU, {int(1 / fits.gpu)} banks {'side by side by MPS' if by_mps else 'in turns'}"
    fewest = f"{speed_of(BankShapes(study).base).fewest_for_gpu(cores)} seeds of one program"
    if fits.on_gpu:
        return f"on the GPU, by a model of its speed; below {fewest} {cores:g} cores are faster"
    return f"on {cores:g} cores; by a model of its speed a GPU is faster from {fewest} on"


def _cards(study: Study) -> list[str]:
    """Return lines on what each GPU is expected to do, for a study that may use one."""
    if not study.resources.compiled or study.resources.gpu == 0:
        return []
    lines = describe_cards(speed_of(BankShapes(study).base))
    return [f"  {head:15} {line}" for head, line in zip(("on a GPU", ""), lines, strict=True)]


def _configurations(study: Study, listed: Sequence[Configuration], known: Forecast) -> list[str]:
    """Return lines on the configurations and seeds of a study."""
    configurations = _proposed(study, known) if study.space else str(study.planned)
    if study.combine:
        count = 2 ** len(study.combine)
        configurations += f", of {count} combinations; the others are impossible or equal to one of these"
    each, several = len(study.first_seeds), study.planned > 1 and not study.scales
    steps = " to ".join(f"{n:,}" for n in sorted({f(c.recipe.steps for c in listed) for f in (min, max)}))
    in_all = f"{each} of each, {known.asked} in all" if several else str(known.asked)
    at_most = "at most " if known.is_bound else ""
    recorded = f"{known.recorded} recorded, {at_most}{known.search.total()} to train"
    if known.confirmation:
        recorded += f", {known.confirmation.total()} fresh ones to confirm"
    return [
        f"  model           {_models(study, listed)}",
        f"  configurations  {configurations}",
        f"  seeds           {in_all}, {steps} steps each; {recorded}",
    ]


def _proposed(study: Study, known: Forecast) -> str:
    """Return how many configurations a search comes to, and why they are fewer than its proposals."""
    count = known.configurations + (0 if known.is_random else len(known.impossible))
    what = "random points" if known.is_random else "points" if study.sampler.name == "grid" else "proposals"
    remark = impossible_remark(known.impossible, known.tried, what)
    if count == known.proposals:
        text = f"{count}, proposed by {study.sampler.name}"
    else:
        text = f"{'up to ' * known.is_bound}{count}, of {known.proposals} proposals by {study.sampler.name}"
    return f"{text}; {remark}" if remark else text


def _search(study: Study) -> list[str]:
    """Return lines on what is searched, how, and what is sought."""
    if not study.space:
        return []
    fields = [f"{path}: {describe(d)}{_without_effect(study, path)}" for path, d in study.space.items()]
    heads = ["space", *[""] * (len(fields) - 1)]
    lines = [f"  {head:15} {text}" for head, text in zip(heads, fields, strict=True)]
    sampler = f"{study.sampler.name} (sampler seed {study.sampler.seed})"
    return [*lines, f"  sampler         {sampler}", f"  sought          {study.sampler.described}"]


def _without_effect(study: Study, path: str) -> str:
    """Return a remark on a searched field that changes nothing, or may lie beyond the longest budget; else nothing."""
    if path in CARRY_MIX and study.base_recipe.carry_shares:
        return "; changes nothing beside carry_shares"
    if path not in {f"recipe.{field.name}" for field in fields(Recipe) if field.metadata["unit"] == "steps"}:
        return ""
    most, budget = max(study.space[path].ends()), longest_budget(study, study.base_recipe)
    return f"; {most:,} is beyond the budget, {budget:,} steps" if most > budget else ""


def _worth(study: Study, listed: Sequence[Configuration]) -> list[str]:
    """Return how wide the interval of a rate will be of which half of the seeds grok, and rules end the others."""
    each = len(study.first_seeds)
    grokked, ended = each // 2, each - each // 2
    low, high = GrokRate(grokked, each).interval
    text = f"if {grokked} of {each} seeds grok: {low:.0%} to {high:.0%}"
    if study.stop.hopeless and any(not c.spec.task.is_measured for c in listed):
        text += "; the rule for hopeless seeds was not measured for this task: it is off"
        return [text]
    if not (study.stop.hopeless or study.stop.rungs):
        return [text]
    spared = ended // BLOCK
    missed = (ended - spared) * exact_high(0, spared, LEVEL)
    if not study.space and all(c.key in MEASURED for c in listed) and not study.stop.rungs:
        missed = ended * FALSE_KILLS_UPPER
    wider = GrokRate(grokked, each, missed=missed).interval[1]
    if wider > high + 0.005:
        text += f"; to {wider:.0%} if rules end the other {ended}, of which some might have grokked"
    is_advised = study.stop.hopeless and wider > high + USELESS
    return [text, "for a rate set stop: {hopeless: off}"] if is_advised else [text]


def _models(study: Study, listed: Sequence[Configuration]) -> str:
    """Return each family with its numbers of parameters; of a search over a model, and of many, the ends."""
    model, specs = {p: d for p, d in study.space.items() if p.startswith("model.")}, list[Spec]()
    for numbers in corners(model) if model else ():
        with suppress(ValueError):  # impossible
            drawn = resolve(model, numbers, fixed(study.base_spec, study.base_recipe))
            specs.append(study.configuration(drawn)[0])
    sizes: dict[str, dict[int, None]] = {}
    for spec in specs or [c.spec for c in listed]:
        sizes.setdefault(spec.family, {})[spec.params] = None
    texts = {
        family: f"{min(n)} to {max(n)}" if len(n) > (1 if model else MOST_SIZES) else ", ".join(map(str, n))
        for family, n in sizes.items()
    }
    return "; ".join(f"{family}, {text} parameters" for family, text in texts.items())


def _later(study: Study, several: bool, has_search: bool) -> list[str]:
    """Return a line for each thing that follows the first round. has_search: its seeds are not all trained."""
    lines, rule = [], study.allocation
    each = "of each configuration " if several else ""
    if study.until.max_seeds:
        limit = sum(map(len, study.rounds))
        lines.append(f"until {study.until.grokked} {each}grokked, rounds up to {limit} seeds in all")
    if rule:
        budget = f", {rule.budget:,} in all" if rule.budget else ""
        which = f"whose interval has {rule.threshold:.0%} in it, or that may be the best"
        lines.append(f"more seeds for configurations {which}: up to {rule.most} of one{budget}")
    if study.confirm and has_search:
        fresh = len(study.confirm_seeds)
        ended = "some given up" if study.confirm.hopeless and study.stop.hopeless else "each trained to its end"
        lines.append(f"up to {study.confirm.configurations} of the best confirmed on {fresh} fresh seeds, {ended}")
    return [f"  then            {line}" for line in lines]


def _expected_rates(
    study: Study, listed: Sequence[Configuration], rows: Sequence[Row], fits: Capacity, by_mps: bool
) -> tuple[dict[str, float], float, str]:
    """Return seed-steps/s of a trial: by configuration's key, of any, and where they are from: rows, or a model."""
    measured: dict[str, list[float]] = {}
    for row in rows:
        if row["seed_steps_per_s"]:
            measured.setdefault(row["configuration"], []).append(row["seed_steps_per_s"])
    if measured:
        overall = median(rate for rates in measured.values() for rate in rates)
        return {key: median(rates) for key, rates in measured.items()}, overall, "measured here"
    shapes = BankShapes(study)
    programs: dict[str, tuple[Spec | None, Recipe, int]]
    programs = {c.key: (c.trained, c.recipe, shapes.slots_of(c.program, fits)) for c in listed}
    programs = programs or {"": (shapes.base, study.base_recipe, shapes.most_slots(fits))}
    rates = {key: EAGER * study.resources.cpu * BATCH / recipe.batch for key, (_, recipe, _) in programs.items()}
    if not study.resources.compiled:
        return rates, median(rates.values()), "a guess until this study has run here"
    for key, (spec, recipe, slots) in programs.items():
        speed = speed_of(spec)
        on_gpu = speed.gpu_rate(slots, fits.gpu, by_mps)
        rates[key] = (on_gpu if fits.on_gpu else speed.core * study.resources.cpu) * BATCH / recipe.batch
    presets = " and ".join(dict.fromkeys(speed_of(spec).preset for spec, *_ in programs.values()))
    if not fits.on_gpu:
        source = f"as measured of {presets} on a core of a busy Xeon"
    elif name := measured_name(gpu_here()):
        source = f"as measured of {presets} on an {name}"
    else:
        source = f"expected of {presets} on {gpu_here().name} by an H100's speed, not measured"
    return rates, median(rates.values()), source


def describe_design(
    design: Design, to_train: Mapping[Configuration, int], core_hours: Mapping[Configuration, float]
) -> list[str]:
    """Return lines: a row for each base of each scale, then what its columns say and what is missing.

    to_train, core_hours: of each configuration. One that two scales have is an arm of the first.
    """
    rows: list[Sequence[object]] = [HEAD]
    weak, counted = [], set[Configuration]()
    for scale, column in groupby(design.cells, lambda cell: cell.scale):
        for cells, level in _by_base(list(column)):
            first, names = cells[0], ", ".join(cell.constraint for cell in cells)
            arms = {Configuration(*pair) for cell in cells for pair in (cell.base, cell.toggled)} - counted
            counted |= arms
            fatal, halves = ([power(first.seeds, first.rate, other, a) for a in (level, LEVEL)]
                             for other in (0.0, first.rate / 2))  # fmt: skip
            if halves[0] < POWER:
                weak.append(f"{scale} {names}: {halves[0]:.0%}")
            base = f"{first.base_name}: {names}" if first.base_name else ""
            rows.append((
                scale, base, len(cells), len(arms), first.seeds, sum(to_train[c] for c in arms),
                f"{sum(core_hours[c] for c in arms):.2f}", first.rate, _spelt(fatal), _spelt(halves),
            ))  # fmt: skip
    total = f"{sum(core_hours.values()):.2f}"
    rows.append(("all", "", len(design.cells), len(counted), "", sum(to_train.values()), total, "", "", ""))
    lines = [*aligned(rows, right=range(2, len(HEAD))), "", *ABOUT]
    for constraint, reasons in design.skipped.items():
        lines += [f"{constraint} is not toggled at {scale}: {reason}" for scale, reason in reasons.items()]
    if weak:
        lines.append(f"power against halves below {POWER:.0%} by Holm: {'; '.join(weak)}")
    return [f"  {line}".rstrip() for line in lines]


def _by_base(column: list[Cell]) -> list[tuple[list[Cell], float]]:
    """Return a scale's cells by their base, the scale's own first, each with the level of Holm's worst case."""
    by_name: dict[str, list[Cell]] = {"": []}
    for cell in column:
        by_name.setdefault(cell.base_name, []).append(cell)
    return [(cells, LEVEL / len(column)) for cells in by_name.values() if cells]


def _spelt(powers: list[float]) -> str:
    by_holm, alone = (f"{power:.0%}" for power in powers)
    return f"{by_holm} ({alone})"
