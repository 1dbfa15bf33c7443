"""The summary of a run, and the status of studies and seeds, as text."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.tasks import ADDITION
from search.errors import printable
from search.plugins import rules
from search.run.snapshot import describe, snapshot_of
from search.stats.counting import (
    INTERRUPTED,
    WORDS,
    Cost,
    Counts,
    GrokRate,
    PooledRate,
    StoppingCounts,
    by_phase,
    counts_of_rules,
    few_digits,
    grokking,
    group_by,
    state_of,
    unended_warning,
)
from search.stats.record import ENOUGH, SeedRecord
from search.stats.stages import describe_stages
from search.store.home import home_flag, run_command
from search.store.study_records import StudyRecords
from search.study.kind import names_of
from trainer import Outcome

if TYPE_CHECKING:
    from search.run.driver import Ended
    from search.study.schema import Study

FIRST = 10
"""Grokked seeds that a summary lists."""
GO_ON = "What has ended is recorded, the rest is saved. To go on:"


def summary(study: Study, name: str, records: StudyRecords, ended: Ended) -> str:
    """Return a run's results and the next commands. name: the study as the user typed it."""
    rows = ended.rows
    searched, _ = by_phase(rows)
    configurations = records.list_configurations()
    names = names_of(study, configurations.values())
    sizes = {key: c.spec.params for key, c in configurations.items()}
    if study.kind.says_sizes and len(set(sizes.values())) > 1:
        names = {key: f"{name}, {sizes[key]:,} parameters" for key, name in names.items()}
    is_compared = study.kind.is_compared
    lines = ["", *(_rates(study, rows, names) if is_compared else []), *study.kind.summary(records)]
    lines += _left(searched, names)
    lines += [f"  {cost}"] if is_compared and (cost := Cost.of(searched)).seed_steps else []
    lines += _stopping({"counted": GrokRate.of(searched, bounded=False).n} | counts_of_rules(searched))
    if is_compared and not (ended.interrupted or ended.failed):
        lines += _without_rules(study, searched, run_command(records.home, name))
    if remark := unended_warning(rows):
        lines.append(f"  ({remark})")
    if study.until.grokked:
        lines += ["  it stopped at a success, so this rate is too high on average", *_cut(study, rows)]
    if is_compared:
        lines += _grokked(rows, names, {k: (c.recipe.hold, c.recipe.steps) for k, c in configurations.items()})
    if ended.seed_steps_per_s:
        lines.append(f"  {ended.seed_steps_per_s:,.0f} seed-steps a second, evaluations included")
    lines += [f"  compiling took {ended.compile_s:.0f} s"] if ended.compile_s >= 1 else []
    if not (ended.begun or ended.interrupted):
        lines.append("  every seed had ended before: nothing left to train")
    lines += [f"  {what} failed: {reason}" for what, reason in ended.failed.items()]
    flag, store = home_flag(records.home), records.home.store_prefix
    if ended.unwritten and not ended.interrupted:
        sync = f"{store}adder-search sync {study.name}{flag}"
        lines.append(f"  not all of it is in MLflow yet: {sync} writes what is left")
    if ended.interrupted or ended.failed:
        lines += ["", GO_ON, f"  {run_command(records.home, name)}"]
    else:
        following = [f"adder-search report {study.name} -o {study.name}.html{flag}", f"{store}adder-search ui{flag}"]
        if any(r.has_grokked for r in rows):
            folder = _unused(f"{study.name}-best")
            best = [f"adder-search pull {study.name} --best -o {folder}{flag}"]
            best.append(f"adder-search verify {folder}{flag}")
            if all(c.spec.adds for c in configurations.values()):
                best.append(f"adder-search export {folder} -o {study.name}.py")
            following = [*best, *following]
        lines += ["", "Next:", *(f"  {command}" for command in following)]
    return "\n".join(lines)


def _unused(name: str) -> str:
    """Return a name that nothing in the working directory has: this one, or with a number behind it."""
    names = itertools.chain([name], (f"{name}-{n}" for n in itertools.count(2)))
    return next(other for other in names if not Path(other).exists())


def _left(rows: Sequence[SeedRecord], names: Mapping[str, str]) -> list[str]:
    """Return a line on each configuration whose seeds go through stages: how many are left."""
    described = {key: printable(describe_stages(its)) for key, its in group_by(rows, "configuration").items()}
    lines = {key: text for key, text in described.items() if text}
    return [f"  {names[key]}: {text}" if len(names) > 1 else f"  {text}" for key, text in lines.items()]


def _grokked(rows: Sequence[SeedRecord], names: Mapping[str, str], holds: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return lines on the FIRST seeds that grokked first. holds: steps to hold, and budget, by configuration."""
    lines, several = [], len({r.configuration for r in rows}) > 1
    grokked = [r for r in rows if r.has_grokked]
    for row in sorted(grokked, key=lambda r: r.grok_step or 0)[:FIRST]:
        key = row.configuration
        of = f" of {names.get(key, key)}" if several else ""
        lines.append(f"  seed {row.seed}{of} {grokking(row.grok_step or 0, row.held, *holds.get(key, (0, 0)))}")
    return [*lines, *([f"  and {len(grokked) - FIRST:,} more"] if len(grokked) > FIRST else [])]


def _rates(study: Study, rows: Sequence[SeedRecord], names: Mapping[str, str]) -> list[str]:
    """Return the study's grok rate; of listed configurations each one's, of proposed ones the best five."""
    searched, fresh = by_phase(rows)
    by_key, until = group_by(searched, "configuration"), study.until_rule
    rates = {key: GrokRate.of(seeds, until) for key, seeds in by_key.items()}
    if confirmed := _confirmed(group_by(fresh, "configuration"), names, rates):
        chosen = f"the search's highest {study.kind.sought}, of equal ones the highest token accuracy"
        confirmed.append(f"  (chosen by {chosen})")
    worthy = sum(rate.grokked > 0 for rate in rates.values())
    if study.confirm and worthy < study.confirm.configurations:
        of = f"{worthy:,} of {len(rates):,} configurations grokked"
        confirmed.append(f"  ({study.confirm.configurations} were to be confirmed, but {of})")
    if len(rates) <= 1:
        return [f"{study.name}: {next(iter(rates.values()), GrokRate(0, 0))}", *confirmed]
    pooled = [] if until else [f"  {PooledRate.of(searched)}"]
    head = f"{study.name}: {len(rates)} configurations"
    keys = [key for key in dict.fromkeys([*names, *rates]) if key in rates]
    if study.kind.proposes:
        head, keys = f"{head}; by grok rate", sorted(rates, key=lambda key: (-(rates[key].rate or 0.0), key))[:5]
    shown = {key: names.get(key, key) for key in keys}
    width = max(map(len, shown.values()), default=0)
    more = [f"  and {len(rates) - len(keys)} more (adder-search report)"] if len(keys) < len(rates) else []
    lines = [f"  {name:{width}}  {rates[key]}" for key, name in shown.items()]
    return [head, *lines, *more, *pooled, *confirmed]


def _confirmed(
    fresh: Mapping[str, Sequence[SeedRecord]], names: Mapping[str, str], searched: Mapping[str, GrokRate]
) -> list[str]:
    """Return a line for each confirmed configuration: its rate on fresh seeds, and in the search."""
    lines = []
    for key, rows in sorted(fresh.items()):
        rate, chosen_by = GrokRate.of(rows), searched.get(key, GrokRate(0, 0))
        if rate.n:
            before = f"{chosen_by.grokked:,} of {chosen_by.n:,} in the search"
            lines.append(f"  confirmed {names.get(key, key)}: {rate} on fresh seeds ({before})")
    return lines


def _cut(study: Study, rows: Sequence[SeedRecord]) -> list[str]:
    """Return a line on the seeds that trained, or had not begun, when enough had grokked: their outcome is unknown."""
    cut = sum(r.outcome == Outcome.CENSORED and r.reason == ENOUGH for r in rows)
    rate, parts = GrokRate.of(rows, bounded=False), list[str]()
    if cut:
        parts.append(f"{cut:,} in training then ({rate.grokked:,} of {rate.n + cut:,} if none of them had grokked)")
    first = {(key, seed) for key in group_by(rows, "configuration") for seed in study.first_seeds}
    if left := len(first - {(r.configuration, r.seed) for r in rows}):
        parts.append(f"{left} that never began")
    return [f"  not counted: {' and '.join(parts)}"] if parts else []


def _stopping(summary: Counts) -> list[str]:
    """Return a line on the seeds that each rule would end, if there are any. summary: with `counts_of_rules`."""
    lines = (StoppingCounts.read(summary, rule).summary(rule) for rule in rules().values())
    return [f"  {line}" for line in lines if line]


def _without_rules(study: Study, rows: Sequence[SeedRecord], command: str) -> list[str]:
    """Return a line on how to train every seed to its end, where default rules make intervals much wider."""
    off = " ".join(f"--set stop.{rule.key}=off" for rule in study.stop.rules if rule.is_default)
    rates = (GrokRate.of(seeds) for seeds in group_by(rows, "configuration").values())
    if not off or study.until.grokked or not any(rate.is_widened for rate in rates):
        return []
    return [f"  that makes intervals wide; {command} --fresh {off} trains every seed to its end"]


def status(
    studies: Sequence[Counts],
    rows: Sequence[SeedRecord],
    names: Mapping[str, str] | None = None,
    running: Mapping[str, Any] | None = None,
    go_on: str = "",
    each: bool = False,
    totals: Mapping[str, int] | None = None,
) -> str:
    """Return studies (of `counting.overview`), then ledger rows, and how a study goes on that was interrupted.

    Rows of several configurations are counted by configuration, unless `each` is to be shown. names: of one study's
    configurations, by key. running: what its driver left (search/store/running.py). go_on: the command.
    totals: problems that verify a configuration, by key.
    """
    by_key, known = group_by(rows, "configuration"), names or {}
    lines = [line for s in studies for line in _study(s, running is not None)]
    lines[1:1] = _running(running, known) if running else []
    if len(by_key) > 1 and not each:
        lines += [
            f"  {known.get(key, key[:6])}{phase}: {_states(Counter(map(state_of, seeds)))}"
            for key, both in by_key.items()
            for phase, seeds in zip(("", ", confirmation"), by_phase(both), strict=True)
            if seeds
        ]
    else:
        lines += [_seed(r, known if len(by_key) > 1 else None, totals or {}) for r in rows]
    if not running and INTERRUPTED in map(state_of, rows):
        lines += ["", GO_ON, f"  {go_on}"]
    return "\n".join(lines)


def _states(counts: Mapping[str, int]) -> str:
    """Return how many seeds are in which state."""
    return ", ".join(f"{counts[state]:,} {words}" for state, words in WORDS.items() if counts.get(state))


def _running(running: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    """Return lines on a run that goes on: who runs it, how far it is, and what trains."""
    since = time.strftime("%H:%M", time.localtime(running["began"]))
    host, process = running["owner"].split("/")[:2]
    lines = [f"runs since {since} as process {process} on {host}", *describe(snapshot_of(running))]
    for key, step, count in running["training"]:
        lines.append(f"training: {names.get(key, key)}: {count:,} {'seed' if count == 1 else 'seeds'} at step {step:,}")
    return [f"  {line}" for line in lines]


def _study(s: Counts, is_running: bool) -> list[str]:
    """Return lines on a study. is_running: others say how many of its seeds are in which state."""
    if not s["seeds"]:
        return [f"{s['study']}: {s['said']}"]
    runs = "runs" if s["configurations"] > 1 else "seeds"
    ended = "" if is_running else f" ({_states(s['states'])})"
    lines = [f"{s['study']}: {s['seeds']:,} {runs}{ended}"]
    lines.append(f"  {', '.join(filter(None, (s['said'], _best(s['best_exact']))))}")
    if states := s.get("confirmation_states"):
        lines.append(f"  confirmation, on fresh seeds ({_states(states)}): {s['confirmation_said']}")
    if calls := s["verify_calls"]:
        times = "once" if calls == 1 else f"{calls:,} times"
        lines.append(f"  verify's problems were asked {times}, after training: they chose no seed and no step")
    if s["grokked"]:
        each = f", {few_digits(s['core_s_per_grokked'])} core-seconds each" if s["core_s_per_grokked"] else ""
        lines.append(f"  {few_digits(s['grokked_per_million'], 3)} grokked per million seed-steps{each}")
    lines += _stopping(s)
    return [*lines, *(f"  {s[remark]}" for remark in ("unended", "refused") if s.get(remark))]


def _seed(r: SeedRecord, names: Mapping[str, str] | None, totals: Mapping[str, int]) -> str:
    """Return a line on a seed, with its configuration where there are several."""
    of = "" if names is None else f", {names.get(r.configuration, r.configuration[:6])}"
    best = f"grokked at {r.grok_step:,}" if r.grok_step else _best(r.best_exact)
    total = totals.get(r.configuration, ADDITION.problems)
    certified = "" if r.verified is None else f", {r.verified:,} of {total:,} right"
    reason = f" ({printable(r.reason)})" if r.reason else ""
    head = f"  seed {r.seed!s:8} {WORDS[state_of(r)]:11} step {r.steps:<8,} "
    return f"{f'{head}{best}'.rstrip()}{certified}{reason}{of}"


def _best(exact: float | None) -> str:
    """Return words on the best exact match; none before it is recorded, at the end of a seed's bank."""
    return "" if exact is None else f"best exact match {exact:.4f}"
