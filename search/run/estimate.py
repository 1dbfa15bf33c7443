"""The plan of a run before it starts: its estimated time; of a table of constraints cells, seeds, core-hours, power."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from statistics import median
from typing import NamedTuple

from model import Spec
from model.families.module.spec import Module
from model.tied import ties_of
from search.run import mps
from search.run.forecast import Forecast, forecast
from search.run.gpu_cost import BATCH, describe_cards, gpu_here, measured_name, speed_of
from search.run.packing import BankShapes, Capacity, check_resources, local_resources, placement_of
from search.run.snapshot import duration
from search.run.spared import BLOCK
from search.stats.counting import WIDER, GrokRate
from search.stats.intervals import LEVEL, exact_high
from search.stats.record import SeedRecord
from search.store.home import Home
from search.store.study_records import StudyRecords
from search.study.described import counted
from search.study.schema import Study
from search.study.trial import Configuration
from trainer import Recipe
from trainer.recipe.stages import road_of

MOST_SIZES = 24  # numbers of parameters that are listed each
EAGER = 100
"""Seed-steps/s of a core at batch 256 without the engine: a guess."""
NICENESS = "RAY_worker_niceness"
NICE = os.environ.get(NICENESS, "15")
"""What Ray starts workers with."""


@dataclass(frozen=True)
class _Training:
    """What a plan says of the training itself.

    seeds, core_hours: by configuration; None of a kind that plans in rounds.
    """

    lines: list[str]
    time: str
    rate: float
    has_search: bool = True
    seeds: Mapping[Configuration, int] | None = None
    core_hours: Mapping[Configuration, float] | None = None


class _Program(NamedTuple):
    """What a bank runs, whose speed is asked for. spec: None where the study has none of its own."""

    spec: Spec | None
    recipe: Recipe
    slots: int


class _Rates(NamedTuple):
    """Seed-steps/s of a bank, by key of a configuration and of any other, and where they are from."""

    by_key: Mapping[str, float]
    other: float
    source: str

    @classmethod
    def of(cls, by_key: Mapping[str, float], source: str) -> _Rates:
        return cls(by_key, median(by_key.values()), source)


def estimate(study: Study, home: Home, rows: Sequence[SeedRecord] = (), records: StudyRecords | None = None) -> str:
    """Return the plan of a run, as `run --dry-run` prints it. Raises UserError if it cannot run here.

    rows: the study's seeds that the home has; records: of a study that was begun.
    """
    listed = [Configuration(*pair) for pair in study.listed]
    remark = check_resources(study.resources)
    here = local_resources()
    by_mps = mps.is_available()
    share, fits = placement_of(study, here, by_mps=by_mps)
    rates, rate, source = _expected_rates(study, listed, rows, fits, by_mps)
    kind = study.kind
    if kind.round_size:
        training = _rounds(study, len(rows), rate, fits)
    else:
        known = forecast(study, rows, records)
        training = _whole(study, listed, rates, rate, known, fits, share["CPU"], _not_asked(study, listed, rows))
    lines = [f"{study.name}: {study.about}" if study.about else study.name, *training.lines]
    lines += [f"  {name:15} {text}" for name, text in kind.warnings()]
    lines += kind.plan_search()
    lines += [f"  {name.lower():15} {words}" for name, words in kind.rules([c.key for c in listed])]
    banks = f"cpu {share['CPU']:g}, gpu {share['GPU']:g} for each bank"
    lines.append(f"  resources       {banks}, at nice {NICE} ({NICENESS} sets it)")
    if here["GPU"]:
        lines.append(f"  where           {_where(study, fits, here['CPU'], by_mps)}")
    lines += [*_cards(study), *_code(listed), *_busy(here["CPU"])]
    lines.append(f"  home            {home.path}")
    lines.append(f"  estimated time  {training.time} at {training.rate:,.0f} seed-steps/s a bank ({source})")
    if kind.is_compared and not study.until_rule:
        worth = zip(("intervals", ""), _worth(study, listed), strict=False)
        lines += [f"  {head:15} {text}" for head, text in worth]
    if training.seeds is not None and training.core_hours is not None:
        lines += kind.plan_design(training.seeds, training.core_hours)
    lines += _later(study, len(listed) > 1, training.has_search)
    return "\n".join([*lines, remark] if remark else lines)


def _rounds(study: Study, recorded: int, rate: float, fits: Capacity) -> _Training:
    """Plan a study whose kind proposes in rounds. rate: seed-steps/s of a bank."""
    steps = study.kind.round_size * len(study.first_seeds) * study.base_recipe.steps
    time = f"{duration(steps / (rate * fits.concurrent))} a round"
    return _Training([*study.kind.plan_round(recorded)], time, rate)


def _whole(
    study: Study,
    listed: Sequence[Configuration],
    rates: Mapping[str, float],
    rate: float,
    known: Forecast,
    fits: Capacity,
    cores: float,
    not_asked: Sequence[str],
) -> _Training:
    """Plan a study whose seeds are known, or bounded, before it begins.

    rates: seed-steps/s of a bank by key of a configuration, rate: of any other; cores: of a bank.
    """
    seeds = dict.fromkeys(listed, 0) | (known.search + known.confirmation)
    steps = {c: count * c.recipe.steps for c, count in seeds.items()}
    seconds = {c: steps[c] / rates.get(c.key, rate) for c in seeds}
    total_s = sum(seconds.values())
    if total_s:  # what is about to train says more than all that could
        rate = sum(steps.values()) / total_s
    at_once, banks = _banks(study, seeds, fits)
    time = f"about {duration(total_s / max(1, at_once))} once it trains"
    if hours := _core_hours(total_s * cores, fits):
        time += f", {hours}"
    has_search = bool(known.search)
    if study.confirm and has_search:
        fresh = study.confirm.configurations * len(study.confirm_seeds)
        fresh_s = fresh * study.base_recipe.steps / rate
        if fresh:
            time += f", up to {duration(fresh_s / fits.concurrent)} to confirm"
        if fresh and (hours := _core_hours(fresh_s * cores, fits)):
            time += f" ({hours})"
    lines = [*_configurations(study, listed, known), *not_asked, banks]
    core_hours = {c: cores * each / 3_600 for c, each in seconds.items()}
    return _Training(lines, f"{time},", rate, has_search, seeds, core_hours)


def _core_hours(core_s: float, fits: Capacity) -> str:
    """Return so many core-seconds in words; nothing where they are few, or a GPU's time is what counts."""
    hours = core_s / 3_600
    return "" if hours < 0.05 or fits.on_gpu else f"{hours:,.1f} core-hours"


def _banks(study: Study, to_train: Mapping[Configuration, int], fits: Capacity) -> tuple[int, str]:
    """Return the number of banks that so many seeds train in at once, and the plan's line on them."""
    shapes, seeds = BankShapes(study), sum(to_train.values())
    slots = max(shapes.slots_of(c.program, fits) for c in to_train)
    at_once = min(fits.concurrent, seeds)
    is_known = not (study.kind.proposes or study.until.grokked or study.allocation or study.confirm)
    more = "; the others take the slots that fall free" if seeds > at_once * slots else ""
    more = more if is_known else "; more follow"
    return at_once, f"  banks           {at_once} at once, of {counted(slots, 'slot')} each{more if seeds else ''}"


def _busy(cores: float) -> list[str]:
    """Return a line where other programs are at work, by the machine's load of the last minute."""
    load = os.getloadavg()[0]
    line = f"  load            {load:.1f} on {cores:g} cores: other programs are at work, so it will take longer"
    return [line] if load > cores / 2 and not os.environ.get("RAY_ADDRESS") else []


def _not_asked(study: Study, listed: Sequence[Configuration], rows: Sequence[SeedRecord]) -> list[str]:
    """Return a line on recorded seeds of configurations that the file has no more."""
    keys = {c.key for c in listed}
    others = 0 if study.kind.proposes else sum(r.configuration not in keys for r in rows)
    line = f"  not asked for   {others:,} recorded seeds of other configurations, which stay"
    return [line] if others else []


def _where(study: Study, fits: Capacity, cores: float, by_mps: bool) -> str:
    """Return where trials go on a machine that has a GPU."""
    if 0 < fits.gpu < 1:
        return f"on the GPU, {int(1 / fits.gpu)} banks {'side by side by MPS' if by_mps else 'in turns'}"
    fewest = f"{speed_of(BankShapes(study).base).fewest_for_gpu(cores)} seeds of one program"
    if fits.on_gpu:
        return f"on the GPU, by a model of its speed; below {fewest} {cores:g} cores are faster"
    return f"on {cores:g} cores; by a model of its speed a GPU is faster from {fewest} on"


def _code(listed: Sequence[Configuration]) -> list[str]:
    """Return a line for each class of a user's that the study runs."""
    stages = (stage.spec for recipe in {c.recipe for c in listed} for stage in road_of(recipe))
    specs = (ties_of(spec)[0] for spec in (*(c.spec for c in listed), *stages))
    modules = {(spec.module, spec.digest): spec for spec in specs if isinstance(spec, Module)}
    if not modules:
        return []
    from trainer.engine.native import choice_of  # a plan without modules needs no torch

    return [
        f"  code            runs {name} (SHA-256 {digest[:12]}), by {choice_of(spec).why}"
        for (name, digest), spec in modules.items()
    ]


def _has_cpp(spec: Spec) -> bool:
    """True if a spec's family comes with C++ of its own, whose speed was measured."""
    family = ties_of(spec)[0].family
    return files("model.families").joinpath(family, "kernel.cpp").is_file()  # `kernel` would import torch


def _cards(study: Study) -> list[str]:
    """Return lines on what each GPU is expected to do, for a study that may use one."""
    base = BankShapes(study).base
    if not study.resources.compiled or study.resources.gpu == 0 or (base and not _has_cpp(base)):
        return []
    lines = describe_cards(speed_of(base))
    return [f"  {head:15} {line}" for head, line in zip(("on a GPU", ""), lines, strict=True)]


def _configurations(study: Study, listed: Sequence[Configuration], known: Forecast) -> list[str]:
    """Return lines on the configurations and seeds of a study."""
    each, several = len(study.first_seeds), study.planned > 1 and not study.kind.has_unequal_seeds
    budgets = [c.recipe.steps for c in listed]
    steps = " to ".join(f"{n:,}" for n in sorted({min(budgets), max(budgets)}))
    in_all = f"{each:,} of each, {known.asked:,} in all" if several else f"{known.asked:,}"
    at_most = "at most " if known.is_bound else ""
    recorded = f"{known.recorded:,} recorded, {at_most}{known.search.total():,} to train"
    if known.confirmation:
        recorded += f", {known.confirmation.total():,} fresh ones to confirm"
    most = "at most " if any(c.recipe.stages for c in listed) else ""
    return [
        f"  model           {study.kind.describe_models()}",
        f"  configurations  {study.kind.describe_count(known)}",
        f"  seeds           {in_all}, {most}{steps} steps each; {recorded}",
    ]


def _worth(study: Study, listed: Sequence[Configuration]) -> list[str]:
    """Return how wide the interval of a rate will be of which half of the seeds grok, and rules end the others."""
    each = len(study.first_seeds)
    grokked, ended = each // 2, each - each // 2
    low, high = GrokRate(grokked, each).interval
    text = f"if {grokked:,} of {each:,} seeds grok: {low:.0%} to {high:.0%}"
    rules = () if study.kind.has_stages else study.stop.rules
    unmeasured = [rule for rule in rules if not all(rule.suits(c.spec.task) for c in listed)]
    if unmeasured:
        off = ", ".join(rule.title.lower() for rule in unmeasured)
        return [f"{text}; {off}: not measured for this task, so off"]
    if not rules:
        return [text]
    # One seed of each block is spared and trains on, which bounds how many of the others would have grokked.
    spared = ended // BLOCK
    missed = (ended - spared) * exact_high(0, spared, LEVEL)
    # Where every rule was measured on every configuration, its measure says more than that bound.
    shares = [rule.measured(c.key, str(rule)) for rule in rules for c in listed]
    measured = [share for share in shares if isinstance(share, float)]
    if measured and len(measured) == len(shares) and not study.kind.space:
        missed = ended * max(measured)
    wider = GrokRate(grokked, each, missed=missed).interval[1]
    if wider > high + 0.005:
        text += f"; to {wider:.0%} if rules end the other {ended:,}, of which some might have grokked"
    off = ", ".join(f"{rule.key}: off" for rule in rules if rule.is_default)
    return [text, f"for a rate set stop: {{{off}}}"] if off and wider > high + WIDER else [text]


def _later(study: Study, several: bool, has_search: bool) -> list[str]:
    """Return a line for each thing that follows the first round. has_search: its seeds are not all trained."""
    lines, rule = [], study.allocation
    each = "of each configuration " if several else ""
    if study.until.max_seeds:
        limit = sum(map(len, study.rounds))
        lines.append(f"until {study.until.grokked} {each}grokked, rounds up to {limit:,} seeds in all")
    if rule:
        budget = f", {rule.budget:,} in all" if rule.budget else ""
        which = f"whose interval has {rule.threshold:.0%} in it, or that may be the best"
        lines.append(f"more seeds for configurations {which}: up to {rule.most:,} of one{budget}")
    if study.confirm and has_search:
        fresh = len(study.confirm_seeds)
        has_default = any(rule.is_default for rule in study.stop.rules)
        ended = "some given up" if study.confirm.hopeless and has_default else "each trained to its end"
        lines.append(f"up to {study.confirm.configurations} of the best confirmed on {fresh:,} fresh seeds, {ended}")
    return [f"  then            {line}" for line in lines]


def _expected_rates(
    study: Study, listed: Sequence[Configuration], rows: Sequence[SeedRecord], fits: Capacity, by_mps: bool
) -> _Rates:
    """Return the speeds that a plan counts on: what was recorded here says most, then a trial, then a model."""
    if recorded := _recorded_rates(rows):
        return recorded
    shapes = BankShapes(study)
    programs = {c.key: _Program(c.trained, c.recipe, shapes.slots_of(c.program, fits)) for c in listed}
    if not programs:
        programs = {"": _Program(shapes.base, study.base_recipe, shapes.most_slots(fits))}
    if not study.resources.compiled:
        eager = {key: EAGER * study.resources.cpu * BATCH / of.recipe.batch for key, of in programs.items()}
        return _Rates.of(eager, "a guess until this study has run here")
    return _tried_rates(study, programs) or _modelled_rates(study, programs, fits, by_mps)


def _recorded_rates(rows: Sequence[SeedRecord]) -> _Rates | None:
    """Return the speeds of recorded seeds; None without any."""
    by_key: dict[str, list[float]] = {}
    for row in rows:
        if row.seed_steps_per_s:
            by_key.setdefault(row.configuration, []).append(row.seed_steps_per_s)
    if not by_key:
        return None
    overall = median(rate for rates in by_key.values() for rate in rates)
    return _Rates({key: median(rates) for key, rates in by_key.items()}, overall, "measured here")


def _tried_rates(study: Study, programs: Mapping[str, _Program]) -> _Rates | None:
    """Return the speeds by a moment of training; None where the engine's speed was measured for every family.

    Only the first program is tried: a plan is to be there at once.
    """
    unmeasured = [of for of in programs.values() if of.spec and not _has_cpp(of.spec)]
    if not unmeasured:
        return None
    from trainer.bank.bank import tried_rate  # a plan for the engine needs no torch

    spec, recipe, slots = unmeasured[0]
    assert spec is not None
    # Other batches take time in proportion.
    problems = recipe.batch * tried_rate(spec, recipe, slots, study.resources.threads)
    rates = {key: problems / of.recipe.batch for key, of in programs.items()}
    return _Rates.of(rates, f"as {spec.label} was tried here for a moment")


def _modelled_rates(study: Study, programs: Mapping[str, _Program], fits: Capacity, by_mps: bool) -> _Rates:
    """Return the speeds by the model of a core, or of a GPU."""
    rates = {}
    for key, of in programs.items():
        speed = speed_of(of.spec)
        if fits.on_gpu:
            full = speed.gpu_rate(of.slots, fits.gpu, by_mps)
        else:
            full = speed.core * study.resources.cpu
        rates[key] = full * BATCH / of.recipe.batch
    presets = " and ".join(dict.fromkeys(speed_of(of.spec).preset for of in programs.values()))
    if not fits.on_gpu:
        source = f"as measured of {presets} on a core of a busy Xeon"
    elif name := measured_name(gpu_here()):
        source = f"as measured of {presets} on an {name}"
    else:
        source = f"expected of {presets} on {gpu_here().name} by an H100's speed, not measured"
    return _Rates.of(rates, source)
