"""A recipe is groups of fields put together: its keys stay, and a group says what its fields need."""

import dataclasses
import itertools

import pytest

from model import preset
from model.fields import option
from search.study.trial import Configuration
from trainer import Recipe
from trainer.fields import Group, dependent_option
from trainer.recipe import SWITCHES


@pytest.mark.parametrize(
    ("recipe", "key"),
    [
        (Recipe(), "79ee5e16e73c"),
        (Recipe(steps=2_000, lr=0.5, curriculum=((4, 100),), fade_token=0.5), "d5e139b27314"),
    ],
)
def test_a_configuration_keeps_its_key(recipe, key):
    """Fields that are added, moved or ordered anew leave what was recorded where it is found."""
    assert Configuration(preset("57p"), recipe).key == key


def test_each_field_has_one_group_and_says_what_it_counts():
    groups = [g for g in Recipe.__mro__ if g is not Recipe and issubclass(g, Group)]
    own = {
        g: {n for n in vars(g).get("__annotations__", ()) if n in Recipe.__dataclass_fields__} for g in groups
    }
    for one, other in itertools.combinations(groups, 2):
        assert not own[one] & own[other]
    for field in dataclasses.fields(Recipe):
        assert field.metadata["help"] and field.metadata["unit"], field.name


def test_what_is_a_part_of_a_switch_that_is_off_is_one_line():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Some(Group):
        kind: str = option("plain", "a name", values=("plain", "odd"), switch=True)
        rho: float = option(0.0, "a switch", switch=True)
        alpha: float = dependent_option("rho", 0.5, "its part", ge=0)
        phase: int = dependent_option("kind=odd", 3, "the name's part")

    assert Some(rho=0.1, alpha=0.7, kind="odd", phase=4).alpha == 0.7
    with pytest.raises(ValueError, match=r"^alpha=0.7 needs rho$"):
        Some(alpha=0.7)
    with pytest.raises(ValueError, match=r"^phase=4 needs kind=odd$"):
        Some(phase=4)
    with pytest.raises(ValueError, match=r"^kind must be plain or odd, got 'even'$"):
        Some(kind="even")


def test_a_switch_shapes_the_program_by_being_on(monkeypatch):
    monkeypatch.setitem(SWITCHES, "weight_decay", 0.01)
    monkeypatch.setitem(SWITCHES, "lr_floor", 0.1)
    plain, on = Recipe().program(), Recipe(lr_floor=0.5).program()
    assert on == (*plain, "lr_floor") == Recipe(lr_floor=0.7).program()
    assert Recipe(lr_floor=0.7, weight_decay=0).program() == (*plain, "weight_decay", "lr_floor")
