"""What a run comes to, and how studies and seeds are, in words."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from model import preset_name
from search.errors import printable
from search.stats.counting import (
    ENOUGH,
    RULE_COLUMNS,
    STOPPED,
    Cost,
    GrokRate,
    StoppingCounts,
    group_by,
    seed_of,
    unended_warning,
)
from search.store.candidates import CandidateStore, lineage_of, smallest
from search.store.home import Home, home_flag
from search.store.ledger import Ledger, Row
from search.study.file import stopping_rule
from search.study.trial import Configuration
from trainer import Outcome

if TYPE_CHECKING:
    from search.run.driver import Ended
    from search.study.schema import Study

GO_ON = "What has ended is recorded, the rest is saved. To go on:"


def summary(study: Study, name: str, home: Home, ended: Ended) -> str:
    """What a run found, and what to type next. `name`: the study as it was asked for."""
    rows = Ledger(home).list_seeds(study.name)
    known = Ledger(home).list_configurations(study.name) if study.start else {}
    models = _names(list(known.values()) or [Configuration(*listed) for listed in study.listed()])
    lines = ["", *_rates(study, rows, models if len(models) > 1 else {})]
    if study.compress:
        lines = ["", *_descent(study.name, Ledger(home))]
    lines += [f"  {cost}" for cost in [Cost.of(rows)] if cost.seed_steps and not study.compress]
    lines += _stopping({outcome: StoppingCounts.of(rows, outcome) for outcome in RULE_COLUMNS})
    lines += [f"  ({said})" for said in [unended_warning(rows)] if said]
    if study.until.grokked:
        lines += ["  (it stops at a success, so its rate is biased upwards)", *_cut(rows)]
    grokked = [r for r in rows if r["outcome"] == Outcome.GROKKED and not study.compress]
    for row in sorted(grokked, key=lambda r: r["grok_step"])[:10]:
        held = "held" if row["held"] else "did not hold"
        several = len({r["configuration"] for r in rows}) > 1
        of = f" of {models.get(row['configuration'], row['configuration'])}" if several else ""
        lines.append(f"  seed {seed_of(row)}{of} grokked at step {row['grok_step']:,} and {held}")
    if ended.seed_steps_per_s:
        speed = f"{ended.seed_steps_per_s:,.0f} seed-steps/s, sampling and evaluation included"
        lines.append(f"  {speed}; compilation {ended.compile_s:.0f} s")
    if not (ended.trials or ended.interrupted):
        lines.append("  every seed had ended before: nothing left to train")
    for trial, reason in ended.failed_trials.items():
        lines.append(f"  trial {trial} failed: {reason}")
    if ended.unpublished:
        missing = f"MLflow has not got {ended.unpublished} seeds yet"
        lines.append(f"  {missing}; the next run writes them")
    flag = home_flag(home)
    if ended.interrupted or ended.failed_trials:
        return "\n".join([*lines, "", GO_ON, f"  adder-search run {name}{flag}"])
    return (
        "\n".join(lines)
        + f"""

Next:
  adder-search pull {study.name} --best -o best{flag}
  adder-search verify best{flag}
  adder-search export best -o submission.py
  adder-search ui{flag}"""
    )


def _descent(name: str, ledger: Ledger) -> list[str]:
    """How far a study came that looks for constraints: sets, and the smallest that was kept."""
    sets = CandidateStore(ledger, name).read()
    tried = [t for t in sets if t.configuration and t.reached is not None]
    least = smallest(sets)
    if least is None:
        return [f"{name}: no set has been tried"]
    rounds = len({t.round for t in tried})
    counted = f"{sum(t.start is not None for t in tried)} kept"
    lines = [f"{name}: {len(tried):,} sets tried in {rounds} rounds, {counted}"]
    line = " → ".join(str(t.numbers) for t in lineage_of(sets, least.number))
    lines.append(f"  the smallest has {least.numbers} numbers: {line}")
    below = [t for t in tried if t.numbers < least.numbers]
    if below:
        best = max(below, key=lambda t: (t.reached or 0.0, -(t.wrong or 0)))
        wrong = f", then {best.wrong:,} of our own problems wrong" if best.wrong else ""
        lines.append(f"  of {len(below)} smaller ones the best has {best.numbers}: {best.reached:.4f}{wrong}")
    return lines


def _rates(study: Study, rows: list[Row], models: dict[str, str]) -> list[str]:
    """The study's grok rate; of listed configurations each one's, of proposed ones the best five."""
    name, by_key, until = study.name, group_by(rows, "configuration"), stopping_rule(study)
    searched = group_by((r for r in rows if not r["confirmation"]), "configuration")
    rates = {key: GrokRate.of(mine, until) for key, mine in searched.items()}
    confirmed = _confirmed(by_key, models)
    if len(rates) <= 1:
        return [f"{name}: {next(iter(rates.values()), GrokRate(0, 0))}", *confirmed]
    if models:
        width = max(map(len, models.values()))
        listed = [f"  {model:{width}} {rates[key]}" for key, model in models.items() if key in rates]
        return [f"{name}: {len(rates)} configurations", *listed, *confirmed]
    best = sorted(rates.items(), key=lambda item: (-item[1].rate, item[0]))[:5]
    shown = [f"  configuration {key}: {rate}" for key, rate in best]
    return [f"{name}: {len(rates)} configurations; by grok rate", *shown, *confirmed]


def _confirmed(by_key: dict[str, list[Row]], models: dict[str, str]) -> list[str]:
    """What became of those that were confirmed: the rate they were chosen by, and that of fresh seeds."""
    lines = []
    for key, rows in sorted(by_key.items()):
        first, fresh = (GrokRate.of(r for r in rows if r["confirmation"] == kind) for kind in (False, True))
        if fresh.n:
            searched = f"{first.grokked} of {first.n} in the search"
            lines.append(f"  confirmed {models.get(key, key)}: {fresh} on fresh seeds ({searched})")
    return lines


def _names(listed: list[Configuration]) -> dict[str, str]:
    """What to call each listed configuration: its spec, and its key where another one has that."""
    shared = Counter(preset_name(c.spec) for c in listed)
    return {c.key: preset_name(c.spec) if shared[preset_name(c.spec)] == 1 else c.title for c in listed}


def _cut(rows: list[Row]) -> list[str]:
    """A line on the seeds that were in training when enough had grokked: what they would say is not known."""
    cut = [r for r in rows if r["outcome"] == Outcome.CENSORED and r["reason"] == ENOUGH]
    if not cut:
        return []
    rate = GrokRate.of(rows)
    counted = f"{rate.grokked} of {rate.n + len(cut)} if none of them had grokked"
    seeds = "1 more seed was" if len(cut) == 1 else f"{len(cut)} more seeds were"
    return [f"  {seeds} in training when enough had grokked, and count for nothing: {counted}"]


def _stopping(found: dict[Outcome, StoppingCounts]) -> list[str]:
    """A line on the seeds that each rule would end, if there are any."""
    return [f"  {said}" for outcome, stopping in found.items() if (said := stopping.summary(outcome))]


def status(studies: list[dict[str, Any]], rows: list[Row]) -> str:
    """Studies as `stats.overview` has them, then ledger rows one by one."""
    lines = []
    for s in studies:
        states = ", ".join(f"{count} {state}" for state, count in s["states"].items())
        rate = f"grok rate {s['grokked']}/{s['counted']}"
        if s["interval"]:
            low, high = s["interval"]
            rate += f" ({STOPPED if s['stopped'] else ''} {low:.1%} to {high:.1%})".replace("( ", "(")
        else:
            rate = f"{s['grokked']} of {s['counted']} grokked over {s['configurations']} configurations"
        best = f"best exact match {s['best_exact']:.4f}, verify called {s['verify_calls']} times"
        lines += [f"{s['study']}: {s['trials']} trials, {s['seeds']} seeds ({states})", f"  {rate}, {best}"]
        each = s["core_s_per_grokked"]
        cost = f"{s['grokked_per_million']:.3g} grokked per million seed-steps"
        lines += [f"  {cost}" + (f", {each:,.0f} core-seconds each" if each else "")] if s["grokked"] else []
        screened = StoppingCounts(s["counted"], s["screened"], s["screen_spared"], s["screen_spared_grokked"])
        given_up = StoppingCounts(s["counted"], s["given_up"], s["spared"], s["spared_grokked"])
        lines += _stopping({Outcome.GIVEN_UP: given_up, Outcome.SCREENED: screened})
        lines += [f"  {s['unended']}"] if s["unended"] else []
    several = len({r["configuration"] for r in rows}) > 1

    def of(row: Row) -> str:
        return f"{row['configuration'][:6]} " if several else ""

    for r in rows:
        best = f"best exact match {r['best_exact'] or 0:.4f}"
        grok = f"grokked at {r['grok_step']:,}" if r["grok_step"] else best
        reason = f" ({printable(r['reason'])})" if r["reason"] else ""
        certified = "" if r["verified"] is None else f", {r['verified']} of 10010 right"
        head = f"  {of(r)}seed {seed_of(r)!s:8} {r['outcome']:10} step {r['steps']:<8,} "
        lines.append(head + f"{grok}{certified}{reason}")
    return "\n".join(lines)
