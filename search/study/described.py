"""What a study asks, in words: its space and its rules."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

from search.stats.counting import describe_screen
from search.study.schema import Study
from search.study.space import Distribution
from search.study.stopping import BY_PAIR, BY_SEED
from trainer import Recipe
from trainer.recipe.lengths import ends_after


def rules(study: Study, configurations: Iterable[str]) -> list[tuple[str, str]]:
    """Return what ends seeds early, and what asks for more: names and words. configurations: keys."""
    drawn = {BY_PAIR: "drawn for each configuration", BY_SEED: "the same seeds in each configuration"}
    spared = f" ({drawn[study.spares]})" if study.planned > 1 else ""
    on = f"on: seeds that it calls hopeless are given up, but for a random tenth of them{spared}"
    listed = [("Hopeless rule", on if study.stop.hopeless else "off: all seeds run on")]
    if study.stop.rungs:
        listed.append(("Screen", describe_screen(study.stop.rungs, configurations)))
    if study.until.grokked:
        ordered = "; its interval counts seeds in the order of the file, up to that one"
        biased = f"once {study.until.grokked} grokked, so the rate is biased upwards"
        listed.append(("Stops", biased + (ordered if study.until_rule else "")))
    if study.allocation:
        has = f"while the interval has {study.allocation.threshold:.0%} in it"
        listed.append(("Allocation of seeds", f"more of them {has}, or a place on the front is possible"))
    return listed


def too_long(study: Study) -> str:
    """Return which schedules outlast the budgets of the listed configurations; nothing if none does.

    Searched fields are left out: a plan has a remark on each.
    """
    recipes = [recipe for _, recipe in study.listed] or [study.base_recipe]
    texts = Counter[str]()
    for recipe in recipes:
        budget = longest_budget(study, recipe)
        late = {name: end for name, end in ends_after(recipe, budget).items() if f"recipe.{name}" not in study.space}
        if late:
            fields = ", ".join(f"{name} {end:,}" for name, end in late.items())
            texts[f"{fields}: after the last step, {budget:,}"] += 1
    if not texts:
        return ""
    (text, count), *_ = texts.most_common(1)
    several = f" ({count} of {len(recipes)} configurations)" if len(recipes) > 1 else ""
    others = texts.total() - count
    return text + several + (f"; others in {others} more" if others else "")


def longest_budget(study: Study, recipe: Recipe) -> int:
    """Return the most steps that a recipe of a study has: where they are searched, their upper end."""
    searched = study.space.get("recipe.steps")
    return max(searched.ends()) if searched else recipe.steps


def impossible(study: Study, proposals: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return why proposals (numbers of today's space) make no configuration, a text for each that does not."""
    problems = []
    for numbers in proposals:
        try:
            study.configuration(study.resolved(numbers))
        except ValueError as error:
            problems.append(str(error))
    return problems


def impossible_remark(problems: Sequence[str], count: int, what: str) -> str:
    """Return how many of so many proposals are impossible, and why; empty if none is."""
    are = "is" if len(problems) == 1 else "are"
    return f"{len(problems)} of {count:,} {what} {are} impossible ({problems[0]})" if problems else ""


def aligned(rows: Sequence[Sequence[object]], right: Collection[int] = ()) -> list[str]:
    """Return rows as lines, each column as wide as its longest text; those numbered in `right` end in line."""
    columns = []
    for number, column in enumerate(zip(*rows, strict=True)):
        texts = list(map(str, column))
        width = max(map(len, texts))
        columns.append([text.rjust(width) if number in right else text.ljust(width) for text in texts])
    return ["  ".join(texts).rstrip() for texts in zip(*columns, strict=True)]


def shown(value: Any) -> str:
    """Return a value as a person writes it."""
    if isinstance(value, bool) or type(value).__name__ == "bool":
        return "on" if value else "off"
    if isinstance(value, tuple | list):
        is_curriculum = all(len(row) == 2 for row in value)
        between = "\u00a0for\u00a0" if is_curriculum else "\u00a0"
        return ", ".join(between.join(map(shown, row)) for row in value) or "none"
    if value is None or value != value:
        return "–"
    if isinstance(value, Real):
        number = float(value)
        return f"{number:,.0f}" if number.is_integer() and abs(number) < 1e9 else f"{number:.4g}"
    return str(value)


def describe(distribution: Distribution) -> str:
    """Return in words which values a searched field may have."""
    if distribution.choice is not None:
        text = "one of " + "; ".join(map(shown, distribution.choice))
    else:
        low, high = map(shown, distribution.ends())
        step = f" in steps of {shown(distribution.step)}" if distribution.step else ""
        log = ", logarithmic" if distribution.log else ""
        text = f"{'whole numbers ' if distribution.int_ else ''}{low} to {high}{step}{log}"
    if distribution.after:
        text += f", beyond {distribution.after}"
    return text
