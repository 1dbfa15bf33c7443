"""The plan of a run before it starts: its estimated time; of a table of constraints cells, seeds, core-hours, power."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from model import Spec
from model.tied import ties_of
from search.errors import UserError
from search.run.forecast import Forecast, forecast
from search.run.packing import (
    BankShapes,
    Capacity,
    check_resources,
    cluster_address,
    local_resources,
    placement_of,
    share_of,
)
from search.run.snapshot import duration
from search.run.spared import BLOCK
from search.run.speeds import BATCH, core_rate, fewest_for_gpu, has_cpp, measured_on_cores
from search.stats.counting import GrokRate, group_by
from search.stats.intervals import LEVEL, exact_high
from search.stats.record import SeedRecord
from search.store.home import Home
from search.store.study_records import StudyRecords
from search.study.described import counted
from search.study.schema import Study
from search.study.trial import Configuration
from trainer import Recipe
from trainer.engine.accelerators import accelerator
from trainer.recipe.stages import road_of

EAGER = 100
"""Seed-steps/s of a core at batch 256 without the engine: a guess."""
NICENESS = "RAY_worker_niceness"
NICE = os.environ.get(NICENESS, "15")
"""What Ray starts workers with."""


@dataclass(frozen=True)
class _Training:
    """What a plan says of the training itself.

    lines: of the plan. time: in words. rate: seed-steps/s of a bank. later: lines on what follows.
    """

    lines: list[str]
    time: str
    rate: float
    later: list[str]


class _Program(NamedTuple):
    """What a bank runs, whose speed is asked for. spec: None where the study has none of its own."""

    spec: Spec | None
    recipe: Recipe
    slots: int


class _Rates(NamedTuple):
    """Seed-steps/s of a bank by key of a configuration, those of any `other`, and in words where they are from."""

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
    kind = study.kind
    listed = [Configuration(*pair) for pair in study.listed]
    remark = check_resources(study.resources)
    here = local_resources()
    cores = here["CPU"]
    sharing = accelerator().sharing()
    try:
        share, fits = placement_of(study, here, side_by_side=bool(sharing))
    except UserError as no_room:
        if not cluster_address():
            raise
        # Its nodes may have room. They are not asked, as a plan starts nothing.
        share = share_of(study.resources)
        fits = Capacity(1, share["GPU"])
        remark = f"planned for one bank, on a node of {cluster_address()}: here there is no room ({no_room})"
    rates = _expected_rates(study, listed, rows, fits, bool(sharing))
    if kind.round_size:
        training = _rounds(study, len(rows), rates.other, fits)
    else:
        known = forecast(study, rows, records)
        training = _whole(study, listed, rates, known, fits, share["CPU"])

    lines = [f"{study.name}: {study.about}" if study.about else study.name, *training.lines]
    if others := _not_asked(study, listed, rows):
        lines.append(_line("not asked for", f"{others:,} recorded seeds of other configurations, which stay"))
    lines += [_line(name, text) for name, text in kind.warnings()]
    lines += kind.plan_search()
    keys = [configuration.key for configuration in listed]
    lines += [_line(name.lower(), words) for name, words in kind.rules(keys)]

    banks = f"cpu {share['CPU']:g}, gpu {share['GPU']:g} for each bank"
    lines.append(_line("resources", f"{banks}, at nice {NICE} ({NICENESS} sets it)"))
    if here["GPU"]:
        lines.append(_line("where", _where(study, fits, cores, sharing)))
    lines += [*_cards(study), *_code(listed, fits)]
    lines.append(_line("home", str(home.path)))
    speed = f"{training.rate:,.0f} seed-steps/s a bank ({rates.source})"
    lines.append(_line("estimated time", f"{training.time} at {speed}"))

    if kind.is_compared and not study.until_rule:
        lines += map(_line, ("intervals", ""), _worth(study, listed))
    lines += training.later
    if remark:
        lines.append(remark)
    return "\n".join(lines)


def _line(head: str, text: str) -> str:
    return f"  {head:15} {text}"


def _rounds(study: Study, recorded: int, rate: float, fits: Capacity) -> _Training:
    """Plan a study whose kind proposes in rounds. rate: seed-steps/s of a bank."""
    steps = study.kind.round_size * len(study.first_seeds) * study.base_recipe.steps
    seconds = steps / (rate * fits.concurrent)
    time = f"{duration(seconds)} a round"
    return _Training(study.kind.plan_round(recorded), time, rate, _later(study, has_search=True))


def _whole(
    study: Study, listed: Sequence[Configuration], rates: _Rates, known: Forecast, fits: Capacity, cores: float
) -> _Training:
    """Plan a study whose seeds are known, or bounded, before it begins. cores: of a bank."""
    seeds = dict.fromkeys(listed, 0) | (known.search + known.confirmation)
    steps = {c: count * c.recipe.steps for c, count in seeds.items()}
    seconds = {c: steps[c] / rates.by_key.get(c.key, rates.other) for c in seeds}
    total_s = sum(seconds.values())
    # What is about to train says more of a bank's speed than all that could be trained.
    rate = sum(steps.values()) / total_s if total_s else rates.other

    shapes = BankShapes(study)
    slots = max(shapes.slots_of(c.program, fits) for c in seeds)
    at_once = min(fits.concurrent, sum(seeds.values()))
    may_grow = study.kind.proposes or study.until.grokked or study.allocation or study.confirm
    more = "; more follow" if at_once and may_grow else ""
    banks = _line("banks", f"{at_once} at once, of {counted(slots, 'slot')} each{more}")

    time = f"about {duration(total_s / max(1, at_once))} once it trains"
    core_hours = {c: cores * each / 3_600 for c, each in seconds.items()}
    hours = sum(core_hours.values())
    if hours >= 0.05 and not fits.on_gpu:  # else they are few, or a GPU's time is what counts
        time += f", {hours:,.1f} core-hours"
    if known.search and study.confirm:
        steps_left = study.confirm.configurations * len(study.confirm_seeds) * study.base_recipe.steps
        time += f", up to {duration(steps_left / rate / fits.concurrent)} to confirm"

    lines = [*_configurations(study, listed, known), banks]
    later = [*study.kind.plan_design(seeds, core_hours), *_later(study, bool(known.search))]
    return _Training(lines, f"{time},", rate, later)


def _not_asked(study: Study, listed: Sequence[Configuration], rows: Sequence[SeedRecord]) -> int:
    """Return the number of recorded seeds whose configurations the file has no more."""
    if study.kind.proposes:  # its configurations are not listed
        return 0
    keys = {configuration.key for configuration in listed}
    return sum(row.configuration not in keys for row in rows)


def _where(study: Study, fits: Capacity, cores: float, sharing: str) -> str:
    """Return where workers go on a machine that has a GPU."""
    if 0 < fits.gpu < 1:
        how = f"side by side by {sharing}" if sharing else "in turns"
        return f"on the GPU, {int(1 / fits.gpu)} banks {how}"

    base = BankShapes(study).base
    if not has_cpp(base):
        return "on the GPU, as asked for" if fits.on_gpu else f"on {cores:g} cores"

    fewest = f"{fewest_for_gpu(base, cores)} seeds of one program"
    if fits.on_gpu:
        return f"on the GPU, by a model of its speed; below {fewest} {cores:g} cores are faster"
    return f"on {cores:g} cores; by a model of its speed a GPU is faster from {fewest} on"


def _code(listed: Sequence[Configuration], fits: Capacity) -> list[str]:
    """Return a line for each class of a user's that the study runs, in its configurations or in stages of a recipe."""
    specs = [c.spec for c in listed]
    for recipe in {c.recipe for c in listed}:
        specs += [stage.spec for stage in road_of(recipe)]
    bases = (ties_of(spec)[0] for spec in specs)
    by_code = {}
    for base in filter(lambda base: base.runs_code, bases):
        shown = base.shown()
        by_code[shown[base.family], shown["digest"]] = base
    if not by_code:
        return []

    from trainer.engine.native import choice_of  # a plan without users' code needs no torch

    lines = []
    for (name, digest), base in by_code.items():
        on_gpu = "torch where it has CUDA, else " if fits.on_gpu else ""
        lines.append(_line("code", f"runs {name} (SHA-256 {digest}), by {on_gpu}{choice_of(base).why}"))
    return lines


def _cards(study: Study) -> list[str]:
    """Return lines on what each GPU is expected to do, for a study that may use one."""
    if not study.resources.compiled or study.resources.gpu == 0:
        return []
    base = BankShapes(study).base
    if not has_cpp(base):  # nothing was measured of it
        return []
    lines = accelerator().price(base).cards
    return [_line("" if n else "on a GPU", line) for n, line in enumerate(lines)]


def _configurations(study: Study, listed: Sequence[Configuration], known: Forecast) -> list[str]:
    """Return lines on the configurations and seeds of a study."""
    asked = f"{known.asked:,}"
    if study.planned > 1 and not study.kind.has_unequal_seeds:
        asked = f"{len(study.first_seeds):,} of each, {known.asked:,} in all"

    budgets = [c.recipe.steps for c in listed]
    steps = " to ".join(f"{n:,}" for n in sorted({min(budgets), max(budgets)}))
    if any(c.recipe.stages for c in listed):
        steps = f"at most {steps}"

    at_most = "at most " if known.is_bound else ""
    recorded = f"{known.recorded:,} recorded, {at_most}{known.search.total():,} to train"
    if known.confirmation:
        recorded += f", {known.confirmation.total():,} fresh ones to confirm"
    return [
        _line("model", study.kind.describe_models()),
        _line("configurations", study.kind.describe_count(known)),
        _line("seeds", f"{asked}, {steps} steps each; {recorded}"),
    ]


def _worth(study: Study, listed: Sequence[Configuration]) -> list[str]:
    """Return how wide a rate's interval will be if half of the seeds grok and rules end the others.

    With a second line where no rules would make it much narrower.
    """
    each = len(study.first_seeds)
    grokked, ended = each // 2, each - each // 2
    low, high = GrokRate(grokked, each).interval
    text = f"if {grokked:,} of {each:,} seeds grok: {low:.0%} to {high:.0%}"

    rules = [rule for rule in study.stop.rules if all(rule.suits(c.spec.task) for c in listed)]
    if study.kind.has_stages or not rules:
        return [text]

    # One seed of each block is spared and trains on, which bounds how many of the others would have grokked.
    spared = ended // BLOCK
    missed = (ended - spared) * exact_high(0, spared, LEVEL)

    # Where every rule was measured on every configuration, its measure says more than that bound.
    shares = [rule.measured(c.key, str(rule)) for rule in rules for c in listed]
    measured = [share for share in shares if isinstance(share, float)]
    if measured and len(measured) == len(shares) and not study.kind.space:
        missed = ended * max(measured)

    rate = GrokRate(grokked, each, missed=missed)
    _, wider = rate.interval
    if wider > high + 0.005:  # else both are the same percentage
        text += f"; to {wider:.0%} if rules end the other {ended:,}, of which some might have grokked"
    off = ", ".join(f"{rule.key}: off" for rule in rules if rule.is_default)
    if off and rate.is_widened:
        return [text, f"for a rate set stop: {{{off}}}"]
    return [text]


def _later(study: Study, has_search: bool) -> list[str]:
    """Return a line for each thing that follows the first round. has_search: its seeds are not all trained."""
    lines = []
    if study.until.max_seeds:
        each = "of each configuration " if len(study.listed) > 1 else ""
        limit = sum(map(len, study.rounds))
        lines.append(f"until {study.until.grokked} {each}grokked, rounds up to {limit:,} seeds in all")

    if rule := study.allocation:
        budget = f", {rule.budget:,} in all" if rule.budget else ""
        which = f"whose interval has {rule.threshold:.0%} in it, or that may be the best"
        lines.append(f"more seeds for configurations {which}: up to {rule.most:,} of one{budget}")

    if study.confirm and has_search:
        fresh = len(study.confirm_seeds)
        has_default = any(rule.is_default for rule in study.stop.rules)
        ended = "some given up" if study.confirm.hopeless and has_default else "each trained to its end"
        lines.append(f"up to {study.confirm.configurations} of the best confirmed on {fresh:,} fresh seeds, {ended}")
    return [_line("then", line) for line in lines]


def _expected_rates(
    study: Study, listed: Sequence[Configuration], rows: Sequence[SeedRecord], fits: Capacity, side_by_side: bool
) -> _Rates:
    """Return the speeds that a plan counts on: what was recorded here says most, then a trial, then a model."""
    if recorded := _recorded_rates(rows):
        return recorded

    shapes = BankShapes(study)
    programs = {c.key: _Program(c.trained, c.recipe, shapes.slots_of(c.program, fits)) for c in listed}
    programs = programs or {"": _Program(shapes.base, study.base_recipe, shapes.most_slots(fits))}

    if not study.resources.compiled:
        eager = EAGER * study.resources.cpu * BATCH
        rates = {key: eager / program.recipe.batch for key, program in programs.items()}
        return _Rates.of(rates, "a guess until this study has run here")
    return _tried_rates(study, programs) or _modelled_rates(study, programs, fits, side_by_side)


def _recorded_rates(rows: Sequence[SeedRecord]) -> _Rates | None:
    """Return the speeds of recorded seeds; None without any."""
    timed = group_by((row for row in rows if row.seed_steps_per_s), "configuration")
    medians = {key: median(row.seed_steps_per_s or 0.0 for row in some) for key, some in timed.items()}
    return _Rates.of(medians, "measured here") if medians else None


def _tried_rates(study: Study, programs: Mapping[str, _Program]) -> _Rates | None:
    """Train one program for a moment, and return the speeds; None where the speed of every family was measured.

    Only one program is tried, since a plan is to be there at once.
    """
    unmeasured = [program for program in programs.values() if not has_cpp(program.spec)]
    if not unmeasured:
        return None
    from trainer.bank.bank import tried_rate  # a plan for the engine needs no torch

    spec, recipe, slots = unmeasured[0]
    assert spec is not None
    if recipe.stages:
        *_, last = road_of(recipe)
        spec, recipe = last.spec, last.recipe
    recipe = replace(recipe, ramp=0, ramp_start=0)  # it takes no time, and needs the ties
    # Other batches take time in proportion.
    problems = recipe.batch * tried_rate(spec, recipe, slots, study.resources.threads)
    rates = {key: problems / program.recipe.batch for key, program in programs.items()}
    return _Rates.of(rates, f"as {spec.label} was tried here for a moment")


def _modelled_rates(study: Study, programs: Mapping[str, _Program], fits: Capacity, side_by_side: bool) -> _Rates:
    """Return the speeds by the model of a core (search/run/speeds.py), or of a GPU (its kind's)."""
    if not fits.on_gpu:
        cpu = study.resources.cpu
        full = {key: core_rate(program.spec) * cpu for key, program in programs.items()}
        presets = [measured_on_cores(program.spec) for program in programs.values()]
        source = "as measured of {} on a core of a busy Xeon"
    else:
        prices = {key: accelerator().price(program.spec) for key, program in programs.items()}
        full = {key: price.rate(programs[key].slots, fits.gpu, side_by_side) for key, price in prices.items()}
        presets = [price.preset for price in prices.values()]
        source = next(iter(prices.values())).source

    rates = {key: full[key] * BATCH / program.recipe.batch for key, program in programs.items()}
    return _Rates.of(rates, source.replace("{}", " and ".join(dict.fromkeys(presets))))
