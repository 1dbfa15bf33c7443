"""Earlier proposals of a search whose file has changed, as numbers of the space that it has now."""

from contextlib import suppress
from typing import Any

from search.errors import UserError
from search.run.extension import WAY_OUT, begun_otherwise
from search.study.schema import Study
from search.study.space import Distribution, Numbers, fixed, numbers_by, stored
from search.study.trial import Configuration


def numbers_of(study: Study, configuration: Configuration, drawn: Numbers) -> Numbers:
    """Return an earlier proposal's configuration as numbers of the study's space.

    Numbers that were drawn come before those of the values, which may be rounded. If a field's `after` has changed,
    what was drawn means another value: then all numbers are taken from the values. Raises UserError if it is no point
    of the space, or differs from the base in what is not searched.
    """
    if configuration.spec.family != study.base_spec.family:
        raise begun_otherwise(study, "model.family", configuration.spec.family, study.base_spec.family)
    try:
        return _numbers(study, configuration, drawn, keep=True)
    except UserError:
        with suppress(UserError):  # `after` may have changed what a number means
            return _numbers(study, configuration, drawn, keep=False)
        raise


def _numbers(study: Study, configuration: Configuration, drawn: Numbers, keep: bool) -> Numbers:
    """Return the numbers; keep: prefer those drawn to those of the values, which may be rounded."""
    space = study.kind.space
    value = fixed(configuration.spec, configuration.recipe)

    def number_of(path: str, field: Distribution) -> Any:
        if keep and path in drawn and _has_number(field, drawn[path]):
            return drawn[path]

        after = field.after
        is_missing = value.get(path) is None and not field.has(None)
        if is_missing or (after and value.get(after) is None):
            raise begun_otherwise(study, path, "none", "a number")
        number = value[path] - value[after] if after else value.get(path)
        if not field.has(number):
            raise _no_point(study, path, drawn.get(path, value.get(path)))
        return stored(number)

    numbers = numbers_by(space, number_of)

    # The numbers must mean the configuration that was trained, in what is not searched too.
    try:
        resolved = fixed(*study.configuration(study.resolved(numbers)))
    except ValueError as error:
        raise UserError(f"study {study.name}: with what it was begun with: {error}; {WAY_OUT}") from None
    for path in dict.fromkeys([*space, *resolved]):
        if resolved.get(path) != value.get(path):
            if path in drawn:
                raise _no_point(study, path, drawn[path])
            raise begun_otherwise(study, path, value.get(path), resolved.get(path))
    return numbers


def _has_number(field: Distribution, number: Any) -> bool:
    """True if a number that was drawn, from this space or another, is one of the field's."""
    try:
        return field.has(field.decoded(number))
    except ValueError:
        return False


def _no_point(study: Study, path: str, value: Any) -> UserError:
    return UserError(
        f"study {study.name}: space: an earlier proposal had {path} {value}, which this space has not; " + WAY_OUT
    )
