"""forgeformer: its states, its sums, and the command that shows them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from model import forged
from model.forged import CORRECTED, LITERAL, PUBLISHED, STATES, Forging
from search.cli.forge import forge as command
from search.errors import UserError

ALL = 9_801
A, B = (n.numpy() for n in forged.every_pair())


# ---- the states


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
    assert set(by_hand) == set(STATES) == set(found.states)
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


# ---- misuse, and what a listing needs


@pytest.mark.parametrize("bad", [0, 100, 37.0, "37", True])
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


def test_wrong_use_is_refused(tmp_path: Path) -> None:
    assert refuses("37") == "give two numbers, not 1"
    assert refuses("37", "x") == "give two integers, not 37 and x"
    assert refuses("0", "46") == "forgeformer adds integers from 1 to 99, not 0"
    assert "did you mean corrected?" in refuses("37", "46", "--forging", "correct")
    assert refuses("--json", "--page", str(tmp_path / "x")) == "give --page or --json, not both"
    assert refuses("1", "2", "--ten-digits", "x") == "--ten-digits goes alone"
    assert "is a folder" in refuses("--page", str(tmp_path))
    assert not list(tmp_path.iterdir())
