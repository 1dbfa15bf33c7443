"""forgeformer: its states, its sums, what the published text leaves open, and the command that shows it."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from model import forged
from model.forged import CORRECTED, FORGINGS, LITERAL, PUBLISHED, STATES, Forging
from search.cli.forge import forge as command
from search.cli.forge import number
from search.errors import UserError

ALL = 9_801
A, B = (n.numpy() for n in forged.every_pair())


# ---- the states


@pytest.mark.parametrize("forging", FORGINGS.values(), ids=FORGINGS)
def test_every_state_by_its_published_name_and_shape(forging: Forging) -> None:
    states = forged.forge(9, 80, forging).states
    assert tuple(states) == STATES
    square = {"kq1", "attn1", "kq2", "attn2"}
    assert {name: tuple(s.shape) for name, s in states.items()} == {
        name: (5, 5) if name in square else (5, 3) for name in STATES
    }
    assert all(s.dtype == torch.float64 for s in states.values())


def test_37_and_46_by_hand() -> None:
    found = forged.forge(37, 46)
    half, third = 1 / 2, 1 / 3
    across, along = [0, half, 0, half, 0], [third, 0, third, 0, third]
    by_hand = {
        "x1": [[0, 3, 1], [0, 7, -1], [0, 4, 1], [0, 6, -1], [0, 0, 1]],
        "q1": [[0, 0, 10], [0, 0, -10], [0, 0, 10], [0, 0, -10], [0, 0, 10]],
        "k1": [[0, 0, -10], [0, 0, 10], [0, 0, -10], [0, 0, 10], [0, 0, -10]],
        "v1": [[6, 0, 0], [14, 0, 0], [8, 0, 0], [12, 0, 0], [0, 0, 0]],
        "kq1": [[-100, 100, -100, 100, -100], [100, -100, 100, -100, 100]] * 2
        + [[-100, 100, -100, 100, -100]],
        "attn1": [across, along, across, along, across],
        "x2": [[13, 3, 1], [14 / 3, 7, -1], [13, 4, 1], [14 / 3, 6, -1], [13, 0, 1]],
        "q2": [[0, 0, 10], [0, 0, -10], [0, 0, 10], [0, 0, -10], [0, 0, 10]],
        "k2": [[0, 0, 10], [0, 0, -10], [0, 0, 10], [0, 0, -10], [0, 0, 10]],
        "v2": [[0, 9, 0], [0, 21, 0], [0, 12, 0], [0, 18, 0], [0, 0, 0]],
        "kq2": [[100, -100, 100, -100, 100], [-100, 100, -100, 100, -100]] * 2
        + [[100, -100, 100, -100, 100]],
        "attn2": [along, across, along, across, along],
        "output": [[13, 10, 1], [14 / 3, 26.5, -1], [13, 11, 1], [14 / 3, 25.5, -1], [13, 7, 1]],
    }
    assert set(by_hand) == set(STATES)
    for name, expected in by_hand.items():
        np.testing.assert_allclose(found.states[name].numpy(), expected, rtol=0, atol=1e-12, err_msg=name)
    assert (found.units_sum, found.tens_sum, found.carry, found.answer) == (13, 7, 1, 83)
    assert found.correct


# ---- the sums


def answers(forging: Forging) -> np.ndarray:
    """What `forge` would answer to all pairs [9801], in one pass."""
    ids = torch.tensor([[a // 10, a % 10, b // 10, b % 10, -1] for a, b in zip(A, B, strict=True)])
    return forged.read_out(forged.forward(ids, forging)["output"])["answer"].numpy()


@pytest.mark.parametrize("forging", [PUBLISHED, CORRECTED], ids=["published", "corrected"])
def test_all_pairs_are_right(forging: Forging) -> None:
    assert len(A) == ALL and {*A} == {*B} == {*range(1, 100)}
    np.testing.assert_array_equal(answers(forging), A + B)
    assert forged.count_correct(forging) == ALL


def test_the_end_tokens_id_taken_for_a_digit_makes_every_sum_20_short() -> None:
    np.testing.assert_array_equal(answers(LITERAL), A + B - 20)
    assert forged.count_correct(LITERAL) == 0
    found = forged.forge(37, 46, LITERAL)
    assert (found.units_sum, found.tens_sum, found.answer, found.correct) == (13, 5, 63, False)


@pytest.mark.parametrize("forging", FORGINGS.values(), ids=FORGINGS)
def test_one_pair_at_a_time_gives_the_same(forging: Forging) -> None:
    together = answers(forging)
    for n in range(0, ALL, 37):
        assert forged.forge(int(A[n]), int(B[n]), forging).answer == together[n]


@pytest.mark.parametrize("name", forged.WEIGHTS)
def test_each_of_the_six_numbers_is_needed(name: str) -> None:
    without = replace(PUBLISHED, **{name: ((0, 0, 0),) * 3})
    assert forged.count_correct(without) == (81 if name.startswith("wv") else 1_069)


def test_published_sums_need_no_rounding() -> None:
    ids = torch.tensor([forged.tokens(int(a), int(b)) for a, b in zip(A, B, strict=True)])
    sums = forged.forward(ids, PUBLISHED)["output"][:, -1, :2].numpy()
    expected = np.stack([A % 10 + B % 10, A // 10 + B // 10], axis=1)
    np.testing.assert_array_equal(np.where(abs(sums) < 1e-80, 0, sums), expected)


# ---- what the published text leaves open (docs/forged.md)


def reading(
    a: np.ndarray,
    b: np.ndarray,
    *,
    eos: int = 0,
    residual: tuple[int, int] = (1, 1),
    weights: str = "right",
    softmax: str = "rows",
    scale: float = 1,
    causal: bool = False,
) -> np.ndarray:
    """The sums of a and b under one reading of the text, written without the code under test."""
    columns = np.stack([a // 10, a % 10, b // 10, b % 10, np.full_like(a, eos)], axis=1).astype(float)
    x = np.stack([np.zeros_like(columns), columns, np.broadcast_to([1.0, -1, 1, -1, 1], columns.shape)], 2)
    layers = [((2, 2, 10), (2, 2, -10), (1, 0, 2)), ((2, 2, 10), (2, 2, 10), (1, 1, 3))]
    for adds, layer in zip(residual, layers, strict=True):
        q, k, v = (x @ _matrix(*entry, turned=weights == "left") for entry in layer)
        scores = scale * np.einsum("btd,bsd->bts", q, k)
        if causal:
            scores = np.where(np.tril(np.ones((5, 5), bool)), scores, -np.inf)
        axis = 2 if softmax == "rows" else 1
        e = np.exp(scores - scores.max(axis, keepdims=True))
        x = adds * x + e / e.sum(axis, keepdims=True) @ v
    units, tens = x[:, 4, 0].round(), x[:, 4, 1].round()
    return (tens + (units >= 10)) * 10 + units % 10


def _matrix(row: int, column: int, value: float, turned: bool) -> np.ndarray:
    m = np.zeros((3, 3))
    m[row, column] = value
    return m.T if turned else m


CHOICES: dict[str, list[Any]] = {
    "eos": [0, -1],
    "residual": [(1, 1), (1, 0), (0, 1), (0, 0)],
    "weights": ["right", "left"],
    "softmax": ["rows", "columns"],
}
INDIFFERENT: dict[str, list[Any]] = {"scale": [1, 3**-0.5], "causal": [False, True]}


def combinations(choices: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]


def test_one_reading_of_32_gives_the_published_example() -> None:
    readings = combinations(CHOICES)
    assert len(readings) == 32
    a, b = np.array([37]), np.array([46])
    fits = [
        r for r in readings if any(reading(a, b, **r, **rest) == 83 for rest in combinations(INDIFFERENT))
    ]
    assert fits == [{"eos": 0, "residual": (1, 1), "weights": "right", "softmax": "rows"}]


@pytest.mark.parametrize("rest", combinations(INDIFFERENT), ids=str)
def test_scale_and_mask_change_no_sum(rest: dict[str, Any]) -> None:
    np.testing.assert_array_equal(reading(A, B, **rest), A + B)


# ---- misuse, and what a listing needs


@pytest.mark.parametrize("bad", [0, 100, -3, 10**30, 37.0, "37", True, None, [3]])
def test_operands_are_integers_from_1_to_99(bad: Any) -> None:
    for a, b in ((bad, 46), (37, bad)):
        with pytest.raises(ValueError, match="integers from 1 to 99, not "):
            forged.forge(a, b)


def test_a_forging_is_found_by_its_name() -> None:
    assert forged.forging("corrected") is CORRECTED
    with pytest.raises(ValueError, match="unknown forging 'publishd'; did you mean published\\?"):
        forged.forging("publishd")


@pytest.mark.parametrize(("forging", "nonzero"), [(PUBLISHED, 6), (LITERAL, 6), (CORRECTED, 7)])
def test_a_forging_says_what_it_costs(forging: Forging, nonzero: int) -> None:
    assert (forging.family, forging.params, forging.nonzero) == ("forged", 54, nonzero)
    assert forging.budget() == dict.fromkeys(forged.WEIGHTS, 9)
    assert forging.budget(nonzero=True) == dict.fromkeys(forged.WEIGHTS, 1) | {"wv2": nonzero - 5}
    assert hash(forging) == hash(replace(forging))


# ---- the command


def call(*words: str) -> Result:
    return CliRunner().invoke(command, words, catch_exceptions=False)


def refuses(*words: str) -> str:
    """What a wrong use is told."""
    with pytest.raises(UserError) as error:
        call(*words)
    return str(error.value)


def test_the_trace_shows_the_sum_and_every_state() -> None:
    said = call("37", "46")
    assert said.exit_code == 0
    lines = said.output.splitlines()
    assert lines[0] == "37 + 46 = 83"
    assert lines[2] == "54 numbers, 6 not 0; right on 9,801 of 9,801 pairs"
    assert [line.split()[0] for line in lines if line and not line.startswith(" ")][3:] == [*STATES, "answer"]
    at = lines.index("x2      x1 + attn1 v1: what layer 1 gathered is added")
    assert [line.split() for line in lines[at + 1 : at + 7]] == [
        ["accumulator", "digit", "sign"],
        ["tens", "a", "13", "3", "1"],
        ["units", "a", "4.667", "7", "-1"],
        ["tens", "b", "13", "4", "1"],
        ["units", "b", "4.667", "6", "-1"],
        ["eos", "13", "0", "1"],
    ]
    assert "  eos               ~0          0.5           ~0          0.5           ~0" in lines
    assert lines[-1] == "  answer      83   (7 + 1) * 10 + 3"
    assert max(map(len, lines)) <= 80
    assert call().output == said.output, "the published example is the default"


def test_a_wrong_sum_is_called_wrong() -> None:
    lines = call("37", "46", "--forging", "literal").output.splitlines()
    assert lines[0] == "37 + 46 = 63   WRONG: 83"
    assert lines[2] == "54 numbers, 6 not 0; right on 0 of 9,801 pairs"


def test_json_has_everything() -> None:
    said = json.loads(call("5", "99", "--json", "--forging", "corrected").output)
    assert said == forged.forge(5, 99, CORRECTED).as_dict()
    assert (said["tokens"], said["answer"], said["correct"]) == ([0, 5, 9, 9, -1], 104, True)
    assert list(said["states"]) == list(STATES)
    assert said["states"]["x1"][-1] == [0, -1, 1]


def test_the_page_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert call("37", "46", "--page", str(page)).output.startswith(f"{page}: 37 + 46 step by step")
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_wrong_use_is_refused(tmp_path: Path) -> None:
    assert refuses("37") == "give two numbers, not 1"
    assert refuses("1", "2", "3") == "give two numbers, not 3"
    assert refuses("37", "x") == "give two integers, not 37 and x"
    assert refuses("37", "4.5") == "give two integers, not 37 and 4.5"
    assert refuses("0", "46") == "forgeformer adds integers from 1 to 99, not 0"
    assert refuses("37", "100") == "forgeformer adds integers from 1 to 99, not 100"
    assert "did you mean corrected?" in refuses("37", "46", "--forging", "correct")
    assert refuses("--json", "--page", str(tmp_path / "x")) == "give --page or --json, not both"
    assert "is a folder" in refuses("--page", str(tmp_path))
    assert "cannot write there" in refuses("--page", str(tmp_path / "nowhere" / "x.html"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("n", "text"),
    [(13.0, "13"), (-0.0, "0"), (1 / 3, "0.3333"), (-0.5, "-0.5"), (7e-88, "~0"), (-100.0, "-100")],
)
def test_numbers_as_one_reads_them(n: float, text: str) -> None:
    assert number(n) == text
