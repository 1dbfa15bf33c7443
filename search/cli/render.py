"""The summary of a run, and the status of studies and seeds, as text."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.tasks import ADDITION
from search.errors import printable
from search.plugins import COMMANDS, added, rules
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
from search.study.described import counted
from search.study.kind import names_of
from trainer import Outcome

if TYPE_CHECKING:
    from search.run.driver import Ended
    from search.study.schema import Study
    from search.study.trial import Configuration

FIRST = 10
"""Grokked seeds that a summary lists."""
GO_ON = "What has ended is recorded, the rest is saved. To go on:"


def summary(study: Study, name: str, records: StudyRecords, ended: Ended) -> str:
    """Return a run's results and the next commands. name: the study as the user typed it."""
    configurations = records.list_configurations()
    lines = ["", *_results(study, name, records, ended, configurations), *_training(ended)]

    flag, store = home_flag(records.home), records.home.store_prefix
    if ended.unwritten and not ended.interrupted:
        sync = f"{store}adder-search sync {study.name}{flag}"
        lines.append(f"  not all of it is in MLflow yet: {sync} writes what is left")

    if ended.interrupted or ended.failed:
        lines += ["", GO_ON, f"  {run_command(records.home, name)}"]
    else:
        lines += ["", "Next:"]
        if any(row.has_grokked for row in ended.rows):
            folder = _unused(f"{study.name}-best")
            lines.append(f"  adder-search pull {study.name} --best -o {folder}{flag}")
            lines.append(f"  adder-search verify {folder}{flag}")
            adds = all(c.spec.adds for c in configurations.values())  # of other tasks there is no submission
            if adds and _is_there("export"):
                lines.append(f"  adder-search export {folder} -o {study.name}.py")
        if _is_there("report"):
            lines.append(f"  adder-search report {study.name} -o {study.name}.html{flag}")
        if _is_there("ui"):
            lines.append(f"  {store}adder-search ui{flag}")
    return "\n".join(lines)


def _is_there(command: str) -> bool:
    """True if a package that is installed adds a command."""
    return command in added(COMMANDS)


def _results(
    study: Study, name: str, records: StudyRecords, ended: Ended, configurations: Mapping[str, Configuration]
) -> list[str]:
    """Return lines on what became of the seeds: rates, and whatever makes a rate look better or worse than it is."""
    rows, is_compared = ended.rows, study.kind.is_compared
    searched, _ = by_phase(rows)
    names = names_of(study, configurations.values())
    sizes = {key: c.spec.params for key, c in configurations.items()}
    if study.kind.says_sizes and len(set(sizes.values())) > 1:
        names = {key: f"{label}, {sizes[key]:,} parameters" for key, label in names.items()}

    lines = _rates(study, rows, names) if is_compared else []
    lines += study.kind.summary(records)
    lines += _left(searched, names)

    cost = Cost.of(searched)
    if is_compared and cost.seed_steps:
        lines.append(f"  {cost}")

    ended_seeds = {"counted": GrokRate.of(searched, bounded=False).n}
    lines += _stopping(ended_seeds | counts_of_rules(searched))
    if is_compared and not (ended.interrupted or ended.failed):
        lines += _without_rules(study, searched, run_command(records.home, name))

    if remark := unended_warning(rows):
        lines.append(f"  ({remark})")
    if _has_stopped(study, searched):
        lines.append("  it stopped at a success, so this rate is too high on average")
        lines += _cut(study, rows)

    if is_compared:
        holds = {key: (c.recipe.hold, c.recipe.steps) for key, c in configurations.items()}
        lines += _grokked(rows, names, holds)
    return lines


def _training(ended: Ended) -> list[str]:
    """Return lines on the run itself: its speed, and what failed."""
    lines = []
    if ended.seed_steps_per_s:
        lines.append(f"  {ended.seed_steps_per_s:,.0f} seed-steps a second, evaluations included")
    if ended.compile_s >= 1:
        lines.append(f"  compiling took {ended.compile_s:.0f} s")
    if not (ended.begun or ended.interrupted):
        lines.append("  every seed had ended before: nothing left to train")
    return lines + [f"  {what} failed: {reason}" for what, reason in ended.failed.items()]


def _unused(name: str) -> str:
    """Return a name that nothing in the working directory has: this one, or with a number behind it."""
    unused, number = name, 2
    while Path(unused).exists():
        unused, number = f"{name}-{number}", number + 1
    return unused


def _left(rows: Sequence[SeedRecord], names: Mapping[str, str]) -> list[str]:
    """Return a line on each configuration whose seeds go through stages: how many are left."""
    lines = []
    for key, seeds in group_by(rows, "configuration").items():
        text = printable(describe_stages(seeds))  # names of stages are the user's
        if text:
            of = f"{names[key]}: " if len(names) > 1 else ""
            lines.append(f"  {of}{text}")
    return lines


def _grokked(rows: Sequence[SeedRecord], names: Mapping[str, str], holds: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return lines on the FIRST seeds that grokked first. holds: steps to hold, and budget, by configuration."""
    several = len({row.configuration for row in rows}) > 1
    grokked = [row for row in rows if row.has_grokked]
    grokked.sort(key=lambda row: row.grok_step or 0)

    lines = []
    for row in grokked[:FIRST]:
        key = row.configuration
        of = f" of {names.get(key, key)}" if several else ""
        hold, steps = holds.get(key, (0, 0))
        lines.append(f"  seed {row.seed}{of} {grokking(row.grok_step or 0, row.held, hold, steps)}")

    if len(grokked) > FIRST:
        lines.append(f"  and {len(grokked) - FIRST:,} more")
    return lines


def _rates(study: Study, rows: Sequence[SeedRecord], names: Mapping[str, str]) -> list[str]:
    """Return the study's grok rate; of listed configurations each one's, of proposed ones the best five."""
    searched, fresh = by_phase(rows)
    until = study.until_rule
    rates = {key: GrokRate.of(seeds, until) for key, seeds in group_by(searched, "configuration").items()}
    confirmed = _confirmed(study, fresh, names, rates)
    if len(rates) <= 1:
        rate = next(iter(rates.values()), GrokRate(0, 0))
        return [f"{study.name}: {rate}", *confirmed]

    head = f"{study.name}: {len(rates):,} configurations"
    if study.kind.proposes:
        head += "; by grok rate"
        keys = sorted(rates, key=lambda key: (-(rates[key].rate or 0.0), key))[:5]
    else:
        # The study's order first; a study that was changed may have recorded others, which come behind.
        keys = [key for key in dict.fromkeys([*names, *rates]) if key in rates]

    shown = {key: names.get(key, key) for key in keys}
    width = max(map(len, shown.values()))
    lines = [head, *(f"  {name:{width}}  {rates[key]}" for key, name in shown.items())]
    if len(keys) < len(rates):
        where = " (adder-search report)" if _is_there("report") else ""
        lines.append(f"  and {len(rates) - len(keys):,} more{where}")
    if not until:
        lines.append(f"  {PooledRate.of(searched)}")
    return lines + confirmed


def _confirmed(
    study: Study, fresh: Sequence[SeedRecord], names: Mapping[str, str], searched: Mapping[str, GrokRate]
) -> list[str]:
    """Return a line for each confirmed configuration, with both its rates, and lines on how they were chosen.

    fresh: rows of seeds that confirm. searched: rates in the search, by configuration.
    """
    lines = []
    for key, rows in sorted(group_by(fresh, "configuration").items()):
        rate = GrokRate.of(rows)
        before = searched.get(key, GrokRate(0, 0))
        if rate.n:
            in_search = f"{before.grokked:,} of {before.n:,} in the search"
            lines.append(f"  confirmed {names.get(key, key)}: {rate} on fresh seeds ({in_search})")
    if lines:
        chosen = f"the search's highest {study.kind.sought}, of equal ones the highest token accuracy"
        lines.append(f"  (chosen by {chosen})")

    # A configuration of which no seed grokked is not confirmed.
    worthy = sum(rate.grokked > 0 for rate in searched.values())
    if study.confirm and worthy < study.confirm.configurations:
        of = f"{worthy:,} of {len(searched):,} configurations grokked"
        lines.append(f"  ({study.confirm.configurations} were to be confirmed, but {of})")
    return lines


def _has_stopped(study: Study, rows: Sequence[SeedRecord]) -> bool:
    """True if as many seeds grokked as `until` asks for: in a search of all, in a list of one configuration."""
    wanted = study.until.grokked
    keys = Counter("" if study.kind.proposes else row.configuration for row in rows if row.has_grokked)
    return wanted is not None and max(keys.values(), default=0) >= wanted


def _cut(study: Study, rows: Sequence[SeedRecord]) -> list[str]:
    """Return a line on the seeds that trained, or had not begun, when enough had grokked: their outcome is unknown."""
    parts = []
    cut = sum(row.outcome == Outcome.CENSORED and row.reason == ENOUGH for row in rows)
    if cut:
        rate = GrokRate.of(rows, bounded=False)
        parts.append(f"{cut:,} in training then ({rate.grokked:,} of {rate.n + cut:,} if none of them had grokked)")

    begun = {(row.configuration, row.seed) for row in rows}
    configurations = {key for key, _ in begun}
    asked = {(key, seed) for key in configurations for seed in study.first_seeds}
    if left := len(asked - begun):
        parts.append(f"{left:,} that never began")
    return [f"  not counted: {' and '.join(parts)}"] if parts else []


def _stopping(summary: Counts) -> list[str]:
    """Return a line on the seeds that each rule would end, if there are any. summary: with `counts_of_rules`."""
    lines = (StoppingCounts.read(summary, rule).summary(rule) for rule in rules().values())
    return [f"  {line}" for line in filter(None, lines)]


def _without_rules(study: Study, rows: Sequence[SeedRecord], command: str) -> list[str]:
    """Return a line on how to train every seed to its end, where default rules make intervals much wider."""
    off = " ".join(f"--set stop.{rule.key}=off" for rule in study.stop.rules if rule.is_default)
    if not off or study.until.grokked:
        return []

    by_configuration = group_by(rows, "configuration").values()
    if not any(GrokRate.of(seeds).is_widened for seeds in by_configuration):
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
    """Return lines on studies, then on seeds, and the command by which an interrupted study goes on.

    studies: the counts of each. rows: of one study's seeds. Those of several configurations are counted by
    configuration, unless `each` is to be shown. names: of configurations, by key. running: what the study's driver
    left (search/store/progress_file.py). go_on: the command. totals: problems that verify a configuration, by key.
    """
    lines = [line for study in studies for line in _study(study, running is not None)]
    names, totals = names or {}, totals or {}
    if running:
        lines[1:1] = _running(running, names)  # below the study's first line

    by_key = group_by(rows, "configuration")
    if len(by_key) > 1 and not each:
        for key, seeds in by_key.items():
            for phase, some in zip(("", ", confirmation"), by_phase(seeds), strict=True):
                if some:
                    states = _states(Counter(map(state_of, some)))
                    lines.append(f"  {names.get(key, key[:6])}{phase}: {states}")
    else:
        lines += [_seed(row, names if len(by_key) > 1 else None, totals) for row in rows]

    if not running and INTERRUPTED in map(state_of, rows):
        lines += ["", GO_ON, f"  {go_on}"]
    return "\n".join(lines)


def _states(counts: Mapping[str, int]) -> str:
    """Return how many seeds are in which state."""
    parts = [f"{counts[state]:,} {words}" for state, words in WORDS.items() if counts.get(state)]
    return ", ".join(parts)


def _running(running: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    """Return lines on a run that goes on: who runs it, how far it is, and what trains."""
    since = time.strftime("%H:%M", time.localtime(running["began"]))
    host, process = running["owner"].split("/")[:2]
    lines = [f"runs since {since} as process {process} on {host}", *describe(snapshot_of(running))]
    for key, step, count in running["training"]:
        lines.append(f"training: {names.get(key, key)}: {counted(count, 'seed')} at step {step:,}")
    return [f"  {line}" for line in lines]


def _study(s: Counts, is_running: bool) -> list[str]:
    """Return lines on a study. is_running: others say how many of its seeds are in which state."""
    if not s["seeds"]:
        return [f"{s['study']}: {s['said']}"]
    runs = "runs" if s["configurations"] > 1 else "seeds"
    ended = "" if is_running else f" ({_states(s['states'])})"
    rate_and_best = filter(None, (s["said"], _best(s["best_exact"])))
    lines = [f"{s['study']}: {s['seeds']:,} {runs}{ended}", f"  {', '.join(rate_and_best)}"]

    if states := s.get("confirmation_states"):
        lines.append(f"  confirmation, on fresh seeds ({_states(states)}): {s['confirmation_said']}")
    if calls := s["verify_calls"]:
        times = "once" if calls == 1 else f"{calls:,} times"
        lines.append(f"  verify's problems were asked {times}, after training: they chose no seed and no step")

    if s["grokked"]:
        cost = s["core_s_per_grokked"]  # None unless those of every seed are known
        each = f", {few_digits(cost)} core-seconds each" if cost else ""
        lines.append(f"  {few_digits(s['grokked_per_million'], 3)} grokked per million seed-steps{each}")

    lines += _stopping(s)
    lines += [f"  {s[remark]}" for remark in ("unended", "refused") if s.get(remark)]
    return lines


def _seed(r: SeedRecord, names: Mapping[str, str] | None, totals: Mapping[str, int]) -> str:
    """Return a line on a seed, with its configuration where there are several."""
    of = "" if names is None else f", {names.get(r.configuration, r.configuration[:6])}"
    total = totals.get(r.configuration, ADDITION.problems)
    certified = "" if r.verified is None else f", {r.verified:,} of {total:,} right"
    reason = f" ({printable(r.reason)})" if r.reason else ""

    best = f"grokked at {r.grok_step:,}" if r.grok_step else _best(r.best_exact)
    head = f"  seed {r.seed!s:8} {WORDS[state_of(r)]:11} step {r.steps:<8,} {best}".rstrip()  # there may be no best yet
    return f"{head}{certified}{reason}{of}"


def _best(exact: float | None) -> str:
    """Return words on the best exact match; none before it is recorded, at the end of a seed's bank."""
    return "" if exact is None else f"best exact match {exact:.4f}"
