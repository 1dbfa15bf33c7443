"""The formats that the model of combinations is written in."""

from __future__ import annotations

from collections.abc import Sequence

from lab.interactions.model import NOT_ESTIMABLE, OPEN, Effect, Interactions, some
from reports.logistic import Coefficient
from reports.table_text import FINISHING, MISSING, bullets, markdown_table, rows_text

BEYOND = "odds × beyond both (95 %)"
NOTES = (
    "odds ×: the ratio of the odds to grok with the constraint to those without it, the others being on as often as "
    "off; of a pair the odds with both, over what they were if both ratios of odds were multiplied. 1 is the sum: "
    "worse than the sum is below it",
    "intervals of 95 % and p: of a logistic model of all effects and pairs (an effect that pairs are mixed with: of "
    "one without these pairs), penalised (Firth), because some combinations have no grokked seed; standard errors "
    "clustered by seed, as the same seeds are in all combinations, and never smaller than for independent seeds; t "
    "with as many degrees of freedom as seeds less one",
    "a verdict is what is left at a false discovery rate of 5 % (Benjamini and Hochberg), among the effects and "
    "among the pairs; else it is open, which does not mean that there is nothing",
    "the sum is of log odds: where few grok, a pair can lose fewer points than both alone and still be worse than it",
)

INCOMPLETE = (
    "where no combination has both, or one without the other, the effects of the two are of the combinations that "
    "there are: a constraint that always comes with another is compared beside that other"
)


def write_interactions(models: Sequence[Interactions], style: str) -> str:
    """Return the models as md, csv or json."""
    if style == "md":
        return "\n\n".join([*map(_markdown, models), "Notes:", bullets(_notes(models))]) + "\n"
    return rows_text([row for model in models for row in model.tidy()], style)


def _markdown(model: Interactions) -> str:
    """Return a heading, what stands out in words, and a table of effects and one of pairs."""
    effects = [_line(model, effect) for effect in model.effects]
    pairs = [_line(model, pair) for pair in _by_evidence(model.pairs)]
    parts = [heading(model), "The constraints:", _table(effects), "Pairs:", bullets(sentences(model))]
    return "\n\n".join([*parts, *([_table(pairs)] if pairs else [])])


def heading(model: Interactions) -> str:
    """Return what was recorded, in a line."""
    lattice = model.lattice
    sizes = [arm.spec.params for arm in lattice.arms]
    grokked, n = map(sum, zip(*lattice.counts, strict=True))
    return (
        f"Which constraints go together? {len(lattice.arms)} combinations of {len(lattice.constraints)} constraints, "
        f"{max(sizes)} to {min(sizes)} parameters, study {lattice.study}: {grokked:,} of {n:,} seeds grokked."
    )


def sentences(model: Interactions) -> list[str]:
    """Return which pairs are more or less than the sum of both, and how many are open or cannot be estimated."""
    lines = []
    for pair in _by_evidence(model.pairs):
        if pair.is_discovery and pair.coefficient:
            first, second = pair.constraints
            direction = "lower" if pair.coefficient.estimate < 0 else "higher"
            lines += [
                f"{first} with {second}: {pair.verdict}. The odds are {_times(pair.coefficient)} times {direction} "
                "than the two make them by themselves"
            ]
    counts = {verdict: sum(p.verdict == verdict for p in model.pairs) for verdict in (OPEN, NOT_ESTIMABLE)}
    if counts[OPEN]:
        lines += [f"{counts[OPEN]} pairs are open: they may be the sum of both, or differ from it unseen"]
    if counts[NOT_ESTIMABLE]:
        lines += [f"{counts[NOT_ESTIMABLE]} pairs cannot be estimated from these combinations"]
    if mixed := [effect.name for effect in model.effects if effect.mixed_with]:
        lines += [f"{', '.join(mixed)}: right only if the pairs that cannot be told from them add up"]
    return lines


def _by_evidence(pairs: Sequence[Effect]) -> list[Effect]:
    return sorted(pairs, key=lambda pair: pair.coefficient.p if pair.coefficient else 2.0)


def _times(coefficient: Coefficient) -> str:
    """Return how many times the odds are higher or lower, with the interval."""
    middle, *ends = coefficient.odds_ratio
    invert = middle < 1
    middle, low, high = (1 / x if invert else x for x in (middle, *(ends[::-1] if invert else ends)))
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


def _line(model: Interactions, effect: Effect) -> dict[str, str]:
    """Return the line of an effect or a pair by column; empty columns are left out of its table."""
    shares = [f"{grokked}/{n}" for grokked, n in effect.counts]
    names = ("without", "with") if len(shares) == 2 else ("neither", "first alone", "second alone", "both")
    ratio = "odds × (95 %)" if len(shares) == 2 else BEYOND
    return {
        "constraint": effect.name,
        **dict(zip(names, shares, strict=True)),
        ratio: _ratio(effect.coefficient),
        FINISHING: _ratio(effect.finished) if model.lattice.finishes else "",
        "p": "" if effect.coefficient is None else _p(effect.coefficient.p),
        "verdict": effect.verdict + (f": {effect.reason}" if effect.reason else ""),
        "mixed with": "" if effect.reason else some(effect.mixed_with),
    }


def _table(lines: Sequence[dict[str, str]]) -> str:
    columns = [column for column in lines[0] if any(line[column] for line in lines)]
    return markdown_table(columns, [[line[column] for column in columns] for line in lines])


def _ratio(coefficient: Coefficient | None) -> str:
    if coefficient is None:
        return MISSING
    middle, low, high = (f"{x:.3g}" for x in coefficient.odds_ratio)
    return f"×{middle} ({low}–{high})"


def _p(p: float) -> str:
    return "under 0.001" if p < 0.001 else f"{p:.3f}"


def _notes(models: Sequence[Interactions]) -> list[str]:
    also = {
        f"{name} in study {model.lattice.study}: with it change {', '.join(others)}": None
        for model in models
        for name, others in model.lattice.also.items()
    }
    incomplete = any("no combination" in pair.reason for model in models for pair in model.pairs)
    stopped = any(arm.ended for model in models for arm in model.lattice.arms)
    return [
        *NOTES,
        *([INCOMPLETE] if incomplete else []),
        *(["seeds that a rule ended early count as not grokked"] if stopped else []),
        *(
            [f"{FINISHING}: with the seeds that curvature finished (finish_above); all else is of training alone"]
            if any(model.lattice.finishes for model in models)
            else []
        ),
        *also,
    ]
