"""Values, fields and sizes of configurations in words."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

from model import Spec
from search.study.space import Distribution, fixed
from search.study.trial import Configuration

MOST_FIELDS = 5
"""Fields in a name; the report has all."""
MOST_SIZES = 24
"""Numbers of parameters that are listed each."""
SHORT = {"weight_decay": "decay"}


def impossible_remark(problems: Sequence[str], count: int, what: str) -> str:
    """Return how many proposals are impossible, and why the first is; empty if none is.

    problems: why each impossible one is. count: of all. what: their noun.
    """
    if not problems:
        return ""
    are = "is" if len(problems) == 1 else "are"
    return f"{len(problems):,} of {count:,} {what} {are} impossible ({problems[0]})"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which takes an s: 1 seed, 1,200 seeds."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def describe_sizes(specs: Iterable[Spec], most: int) -> str:
    """Return each family with its numbers of parameters; of more than `most` the ends."""
    sizes: dict[str, dict[int, None]] = {}
    for spec in specs:
        sizes.setdefault(spec.label, {})[spec.params] = None
    texts = []
    for family, numbers in sizes.items():
        text = ", ".join(f"{n:,}" for n in numbers)
        if len(numbers) > most:
            text = f"{min(numbers):,} to {max(numbers):,}"
        texts.append(f"{family}, {text} parameters")
    return "; ".join(texts)


def aligned(rows: Sequence[Sequence[object]], right: Collection[int] = ()) -> list[str]:
    """Return rows as lines, each column as wide as its longest text; those numbered in `right` end in line."""
    columns = []
    for number, column in enumerate(zip(*rows, strict=True)):
        texts = list(map(str, column))
        width = max(map(len, texts))
        justify = str.rjust if number in right else str.ljust
        columns.append([justify(text, width) for text in texts])
    return ["  ".join(texts).rstrip() for texts in zip(*columns, strict=True)]


def shown(value: Any) -> str:
    """Return a value as a person writes it."""
    if isinstance(value, bool) or type(value).__name__ == "bool":  # NumPy's, of a frame
        return "on" if value else "off"
    if isinstance(value, tuple | list):
        return ", ".join(map(_entry, value)) or "none"
    if value is None or value != value:  # NaN
        return "–"
    if isinstance(value, Real):
        number = float(value)
        is_whole = number.is_integer() and abs(number) < 1e9
        return f"{number:,.0f}" if is_whole else f"{number:.4g}"
    return str(value)


def _entry(value: Any) -> str:
    """Return an entry of a list as a person writes it. Of a curriculum it is digits for so many steps."""
    match value:
        case [int(digits), int(steps)] if 0 < digits <= 10 and steps > 1:
            return f"{digits}\u00a0for\u00a0{shown(steps)}"
        case tuple() | list():
            return "\u00a0".join(map(shown, value))
        case Mapping():  # a stage
            return spelt(value)
    return shown(value)


def describe(distribution: Distribution) -> str:
    """Return in words which values a searched field may have."""
    if distribution.is_choice:
        text = "one of " + "; ".join(map(shown, distribution.values()))
    else:
        low, high = map(shown, distribution.ends())
        text = f"{low} to {high}"
        if distribution.int_:
            text = f"whole numbers {text}"
        if distribution.step:
            text += f" in steps of {shown(distribution.step)}"
        if distribution.log:
            text += ", logarithmic"
    if distribution.after:
        text += f", beyond {distribution.after}"
    if distribution.when:
        conditions = (f"{path} is {shown(value)}" for path, value in distribution.when.items())
        text += f", where {' and '.join(conditions)}"
    return text


def differing(configurations: Iterable[Configuration]) -> list[str]:
    """Return the fields in which configurations differ."""
    listed = [configuration.as_params() for configuration in configurations]
    names = dict.fromkeys(name for params in listed for name in params if "." in name)
    # JSON, as lists have no hash, and 1 is True.
    return [name for name in names if len({json.dumps(params.get(name)) for params in listed}) > 1]


def describe_values(configuration: Configuration, paths: Iterable[str]) -> str:
    """Return fields with their values: `fade 5,000 to 12,000, decay 0.014, shared_norm off`."""
    value_of = fixed(configuration.spec, configuration.recipe)
    texts: dict[str, str] = {}
    for path in paths:
        name = path.partition(".")[2]
        text = spelt(value_of.get(path))
        stem, _, end = name.rpartition("_")
        if end == "end" and f"{stem}_start" in texts:  # fade 5,000 to 12,000
            texts[stem] = f"{texts.pop(f'{stem}_start')} to {text}"
        else:
            texts[SHORT.get(name, name)] = text
    words = [f"{name} {text}" for name, text in texts.items()]
    return ", ".join(words[:MOST_FIELDS])


def spelt(value: Any) -> str:
    """Return a value in few characters."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return f"{value:,.0f}" if value % 1 == 0 else f"{value:.3g}"
    if isinstance(value, list | tuple):
        return "/".join(map(spelt, value)) or "none"
    if isinstance(value, Mapping) and "name" in value:  # a stage
        return str(value["name"])
    return "none" if value in (None, "") else str(value)
