"""Tables of planned experiments, of made-up outcomes: whole ones, and while seeds are missing."""

import json
import shutil
import sys
from importlib.util import module_from_spec, spec_from_file_location

import numpy as np
import pandas as pd
import pytest
import torch

from lab import pages
from lab.plans import LAB
from lab.tables import OPEN
from model import preset
from model.tied import Tied, constrained
from tests import CERTIFICATES
from trainer.checkpoints.checkpoint import Checkpoint

WIDE, BY_BASE = LAB / "2026-11-29-wide-constraints", LAB / "2026-11-29-constraints-by-base"
LEAST, TIES, TEN = LAB / "2026-11-30-least-to-the-end", LAB / "2026-11-30-size-or-ties", LAB / "2026-11-29-ten-winners"


def seeds(n, grokked, **part):
    """Rows of a part's n seeds, of which the first grok."""
    outcomes = ["grokked"] * grokked + ["failed"] * (n - grokked)
    return pd.DataFrame({**part, "init_seed": range(1, n + 1), "outcome": outcomes})


@pytest.fixture
def make(monkeypatch):
    """A function that returns a folder's make.py as it reads these tables."""

    def reading(folder, **tables):
        module = pages.maker(folder)
        monkeypatch.setattr(module, "read", lambda name: tables[name.removesuffix(".csv").replace("-", "_")])
        return module

    return reading


@pytest.mark.parametrize("folder", [WIDE, BY_BASE, LEAST], ids=lambda folder: folder.name)
def test_plans_are_what_make_writes(folder, monkeypatch, tmp_path):
    module = pages.maker(folder)
    monkeypatch.setattr(module, "HERE", tmp_path)
    module.write_studies()
    written = {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_text("utf-8") for path in folder.glob("*.yaml")}


def test_a_wide_scale_is_shown_when_all_of_its_arms_have_ended(make):
    arms = {"none": 60, "shared_norm": 40} | dict.fromkeys(pages.maker(WIDE).CONSTRAINTS[1:], 60)
    whole = [seeds(64, k, scale="57p", arm=arm) for arm, k in arms.items()]
    rows = pd.concat([*whole, *(seeds(32, 9, scale="74p", arm=arm) for arm in [*arms][:-1])])
    wide = make(WIDE, wide_constraints=rows)
    law = wide.law().splitlines()
    assert law[2].startswith("| 57p | 60 of 64 (93.8 %, ")
    assert law[3:] == [f"| {scale} | open |" for scale in ("74p", "100p", "170p")]
    assert wide.costs_74p() == wide.costs_100p() == wide.costs_170p() == OPEN
    first, *others = wide.costs_57p().splitlines()[2:]
    assert first.startswith("| shared_norm | 60 of 64 (93.8 %, ") and "| 40 of 64 (62.5 %, " in first
    assert "| +31 (+" in first and len(others) == 5 and all("| +0 (" in line for line in others)
    assert all(line.split("|")[-2].strip()[0] == "×" for line in (first, *others)), "of the table of constraints"
    assert make(WIDE, wide_constraints=rows[1:]).costs_57p() == OPEN


def test_in_all_bases_together_a_seed_is_one_witness(make):
    draw = np.random.default_rng(1)
    by_base = pages.maker(BY_BASE)
    assert by_base.p_together(np.array([5]), draw) == 1
    assert by_base.p_together(np.array([5] * 5), draw) == pytest.approx(2 / 2**5, abs=0.005)
    assert by_base.p_together(np.array([1, -1, 0]), draw) == 1


def test_a_scale_in_five_bases_is_shown_when_all_of_it_has_ended(make):
    by_base = pages.maker(BY_BASE)
    names = [name for name, _ in by_base.arms("67p")]
    parts = [{"scale": "67p", "base": base, "arm": arm} for base in by_base.BASES for arm in names]
    rows = pd.concat([seeds(96, 70 if part["arm"] == "tie_vo" else 50, **part) for part in parts])
    whole = make(BY_BASE, by_base=rows)
    none, tie_vo, *others = whole.costs_67p().splitlines()[2:]
    assert none == f"| none |{' 50 of 96 |' * 5}"
    assert tie_vo.count("**70 of 96, ×1.40 (") == 5 and all(line.count("| 50 of 96, ×1.00 (") == 5 for line in others)
    tie_vo, *others = whole.alike_67p().splitlines()[2:]
    assert tie_vo.startswith("| tie_vo | 100 | 0 | ") and tie_vo.endswith(" | 1 | 1 |")
    assert float(tie_vo.split("|")[4]) < 0.001
    assert others == [f"| {name} | 0 | 0 | 1 | 1 | 1 |" for name in names[2:]]
    assert whole.costs_170p() == whole.alike_170p() == OPEN
    partial = make(BY_BASE, by_base=rows[1:])
    assert partial.costs_67p() == partial.alike_67p() == OPEN


def test_least_to_the_end_counts_whole_sizes_and_names_open_ones(make):
    law = pd.concat([seeds(1_024, 0, params=size) for size in (32, 28, 22)])
    law["outcome"] = law["outcome"].mask(law["init_seed"] <= 1_000, "screened")
    again = pd.concat([seeds(1_000, 1, size=32), seeds(999, 0, size=28)])
    lines = make(LEAST, law_least=law, least=again).to_the_end().splitlines()[2:]
    assert lines[0].startswith("| 32 | 1 of 1000 | 1 of 1024 (0.1 %, ")
    assert lines[1:] == ["| 28 | open | open |", "| 22 | open | open |"]
    with pytest.raises(AssertionError, match="1023 runs of 32 numbers"):
        make(LEAST, law_least=law.query("init_seed < 1024"), least=again).to_the_end()


def test_sizes_and_ties_are_compared_where_all_sets_have_ended(make, monkeypatch):
    monkeypatch.setattr(pages.maker(TIES), "DRAWS", 1_000)
    sets = {"descent": 30, "prefix": 30} | {f"random {n}": 30 - 10 * (n % 2) for n in range(1, 9)}
    of_44 = [seeds(64, k, size=44, ties=ties) for ties, k in sets.items()]
    rows = pd.concat([seeds(64, 30, size=46, ties="none"), *of_44, seeds(64, 30, size=42, ties="descent")])
    ties = make(TIES, size_or_ties=rows)
    none, descent, *_ = ties.shares().splitlines()[2:]
    assert none.startswith("| none | 30 of 64 (46.9 %, ") and none.endswith(" %) | – | open | open | open |")
    assert descent.startswith("| descent | – | 30 of 64 (46.9 %, ")
    at_44, *others = ties.kind_and_size().splitlines()[2:]
    assert at_44.startswith("| 44 | 0.001 | 0.004 |") and at_44.endswith("| −8 (−17 to +1) |")
    assert others == [f"| {size} | open | open | open |" for size in (42, 40, 38)]
    assert [line.split("|")[1:3] for line in ties.threshold().splitlines()[2:]] == [[" 44 numbers ", " 30 of 64 "]]
    partial = make(TIES, size_or_ties=rows[1:])
    assert partial.trained() == [] and partial.kind_and_size().count("open") == 12
    assert len(partial.threshold().splitlines()) == 2


# Ten winners


@pytest.fixture
def ten(monkeypatch, tmp_path):
    """The make.py of ten winners, of files in a folder of their own."""
    module = pages.maker(TEN)
    for name in ("PARENTS", "TURNS", "STOPS", "NETS"):
        monkeypatch.setattr(module, name, tmp_path / getattr(module, name).name)
    return module


def test_tables_of_ten_winners_wait_for_the_last_turn(ten):
    tables = (ten.fewest, ten.reached, ten.overlaps_inside, ten.overlaps_across, ten.closest)
    assert {table() for table in tables} == {"0 of 5 turns are whole."}
    ten.PARENTS.write_text("init_seed,numbers,why\n1,46,\n2,46,not proved\n")
    turns = [f"1,{reach},{turn},{n},720" for turn in range(1, 6) for reach, n in (("tensor", 10), ("values", 7))]
    head = "init_seed,reach,turn,numbers,core_s"
    ten.TURNS.write_text("\n".join([head, *turns[:-1]]))
    assert {table() for table in tables} == {"4 of 5 turns are whole."}
    ten.TURNS.write_text("\n".join([head, *turns]))
    assert ten.fewest().splitlines()[2:] == ["| 1 | 46 | 10 | 7 |", "| 2 | 46 | cannot begin: not proved | – |"]
    inside, across = ten.reached().splitlines()[2:]
    assert inside.startswith("| tensor | 10 or fewer | 1 of 1 (")
    assert across.startswith("| values | 6 or fewer | 0 of 1 (")

    known = {reach: Checkpoint.load(CERTIFICATES / name).spec.as_dict() for reach, (_, name) in ten.REACHES.items()}
    ten.NETS.write_text(json.dumps({f"1-{reach}": {"spec": spec} for reach, spec in known.items()}))
    assert ten.overlaps_inside().splitlines()[::2] == ["|  | 10p-inside |", "| 1 | 100 |"]
    assert ten.overlaps_across().splitlines()[::2] == ["|  | 6p |", "| 1 | 100 |"]
    assert ten.closest() == "0 of 2 descents are judged."

    stops = [f"1-tensor,{left},1,x{left},{'PROVED' if left == 0.1 else ''},3,1,2" for left in (0.4, 0.1, 0.3, 0.2)]
    stops.append("1-values,0.5,1,x0.5,,3,1,2")
    ten.STOPS.write_text("\n".join(["parent,left,cpu_s,ties_added,verdict,digit,a,b", *stops]))
    *inside, across = ten.closest().splitlines()[2:]
    assert across.startswith("| 1-values | 1 | x0.5 | 0.500 | no | ")
    assert inside == [
        f"| 1-tensor | 4 | x{left} | {left:.3f} | {verdict} | Z3 of 1 + 2 |"
        for left, verdict in ((0.1, "PROVED"), (0.2, "no"), (0.3, "no"))
    ]


def test_forms_are_compared_in_both_orders_of_the_units(ten):
    base = preset("46p")

    def tied(*texts):
        return Tied(base=base, ties=constrained(base, [*texts]))

    one, other = (tied(f"fc1[{unit},2] = 0", f"fc1[{unit},3] = 0", "form[0,0] = form[1,1]") for unit in (0, 1))
    assert ten.overlap(one, other) == ten.overlap(one, one) == 1
    assert ten.overlap(one, tied("form[0,0] = -form[1,1]", "norm[0,0] = norm[0,2]")) == pytest.approx(1 / 3)
    assert ten.overlap(tied("head[0,0] = head[0,2]"), tied("head[1,1] = head[1,2]")) == 1
    assert ten.overlap(one, base) == 0


@pytest.fixture
def descend(ten, monkeypatch, tmp_path):
    """The descend.py of ten winners: each call of the command takes 300 core-seconds and comes to ten numbers."""
    monkeypatch.setitem(sys.modules, "make", ten)
    spec = spec_from_file_location("descend_ten_winners", TEN / "descend.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.calls = []

    def compress(folder, reach):
        module.calls.append(reach)
        if len(module.calls) == 3:
            raise KeyboardInterrupt
        spent_s = module._spent(folder) + 300
        Checkpoint.load(CERTIFICATES / "10p-inside").save(folder / "descent")
        (folder / "descent" / "descent.json").write_text(json.dumps({"core_seconds": spent_s}))
        return {"params": 10, "count": {"inside": 10}, "rounds": 1, "sets_tried": 2, "core_seconds": spent_s}

    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.setattr(module, "_compress", compress)
    monkeypatch.setattr(module, "parent", lambda seed: Checkpoint.load(CERTIFICATES / "57p"))
    return module


def test_a_turn_that_is_cut_off_goes_on_with_what_is_left_of_it(descend, ten, tmp_path):
    """The third call is cut off; a turn ends with the call after which 720 core-seconds are spent."""
    with pytest.raises(KeyboardInterrupt):
        descend.take_turn(tmp_path / "a", 1, "tensor", 1)
    calls = []
    for turn in (1, 2, 3, 4):
        if turn == 3:
            shutil.rmtree(tmp_path / "a")
        descend.take_turn(tmp_path / "a", 1, "tensor", turn)
        calls.append(len(descend.calls))
    assert calls == [4, 7, 10, 13] and ten.turns()["core_s"].tolist() == [900] * 4
    assert Checkpoint.load(tmp_path / "a" / "from").spec.params == 10, "from the smallest set that it had proved"


def test_a_turn_that_is_written_has_its_net(descend, ten, monkeypatch, tmp_path):
    def fail(*_):
        raise OSError

    monkeypatch.setattr(descend, "TURN_S", 600)
    monkeypatch.setattr(descend, "write", fail)
    with pytest.raises(OSError):
        descend.take_turn(tmp_path / "a", 1, "tensor", 1)
    assert [*ten.kept()] == ["1-tensor"] and ten.turns().empty


def test_a_winner_that_cannot_begin_has_no_turns(descend, ten, monkeypatch, tmp_path):
    refusals = iter(["", "46p is not proved right on all pairs", ""])

    def begin(spec, thetas, settings, folder):
        assert settings.proved == "any"
        if why := next(refusals):
            raise ValueError(why)

    monkeypatch.setattr(descend, "winners", lambda: [1, 2, 3])
    monkeypatch.setattr(descend, "LocalDescent", begin)
    assert descend.able() == descend.able() == [1, 3]
    assert ten.parents().iloc[1].tolist() == [2, 46, "46p is not proved right on all pairs"]


def test_a_winner_is_judged_as_the_command_judges_it(descend, monkeypatch, tmp_path):
    net = Checkpoint.load(CERTIFICATES / "57p")
    worse = Checkpoint(net.spec, net.theta_P + 0.1 * torch.ones(57))
    monkeypatch.setattr(descend, "parent", lambda seed: worse)
    assert descend.beginning(1)["why"].startswith("46p has not grokked: ")
    assert not [*tmp_path.iterdir()]


@pytest.mark.full
def test_sets_that_stop_a_descent_are_judged_one_number_fewer(descend, ten, monkeypatch):
    monkeypatch.syspath_prepend(descend.FIVE)
    monkeypatch.setattr(descend, "STOPS_S", 1.0)
    net = Checkpoint.load(CERTIFICATES / "10p-inside")
    ten.NETS.write_text(json.dumps({"1-tensor": {"spec": net.spec.as_dict(), "theta": net.theta_P.tolist()}}))
    rows = descend.what_stops(1, "tensor")
    assert rows and {(row["parent"], row["numbers"]) for row in rows} == {("1-tensor", 9)}
