"""`publish`: folders for a model hub, which torch alone runs."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import load_file

from adders.commands.publish import _step_text
from model import PRESETS
from search.analysis.lineage import tree
from search.study.ancestors import ancestors_of
from search.study.start import InitialTheta
from tests import CERTIFICATES, by_tier
from tests.adders.test_prove import certificate
from tests.commands import done, fails_with_one, python
from tests.homes import STUDY, Recorder, empty_home, quickly, recorded, study_of
from trainer.checkpoints.checkpoint import Checkpoint

PAIRS = [(0, 0), (9_999_999_999, 1), (1_234_567_890, 9_876_543_210), (5_000_000_000, 5_000_000_000)]
ALONE = """
import json, sys
sys.modules |= dict.fromkeys(("safetensors", "model", "trainer", "search", "numpy"))
from modeling_adder import add, build_model
model, about = build_model()
print(json.dumps([[add(model, a, b) for a, b in json.loads(sys.argv[1])], about["params"]]))
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    said = done("publish", CERTIFICATES / "57p", CERTIFICATES / "6p", "-o", folder, "--home", folder / "none")
    assert said.count("10,010/10,010") == 2
    return folder


@pytest.mark.parametrize("name", by_tier(["6p", "57p"], ["6p"]))
def test_torch_alone_runs_it(name, hub):
    said = python("-c", ALONE, json.dumps(PAIRS), cwd=hub / name)
    assert json.loads(said) == [[a + b for a, b in PAIRS], int(name[:-1])]


def test_its_numbers_are_the_checkpoints_each_once(hub):
    tensors = load_file(hub / "57p/model.safetensors")
    spec, theta_P = (loaded := certificate("57p")).spec, loaded.theta_P
    assert torch.equal(torch.cat([tensors[name].flatten() for name in spec.shapes()]), theta_P)
    assert load_file(hub / "6p/model.safetensors")["numbers"].shape == (6,)
    changed = json.loads((hub / "57p/config.json").read_text())
    assert changed["params"] == 57 and changed["spec"] == spec.as_dict()


def test_its_card_says_counts_rate_lineage_verification_and_proof(hub):
    card, tied = ((hub / name / "README.md").read_text() for name in ("57p", "6p"))
    _, head, text = card.split("---\n", 2)
    (entry,) = yaml.safe_load(head)["model-index"]
    assert entry["name"] == "57p" and entry["results"][0]["metrics"] == [{"type": "exact_match", "value": 1.0}]
    for said in (
        "| 10,010 right |",
        "| proved right on all 10&#94;20 pairs, at level any (",
        "3 of 48 seeds grok (95 %: 2.1% to 17.8%)",
        "| fc1 | 10 |",
    ):
        assert said in text, text
    assert "- 57p &#91;study 57p, configuration 0f1496e64208&#93;; trained from scratch (θ 491ea10d7514)\n" in tied
    assert "- 46p &#91;study 57p&#93;: folded: only the end token's" in tied
    assert "- 22 numbers: form&#91;1,0&#93; = -" in tied
    assert {file.name for file in (hub / "6p").iterdir()} == {
        "README.md", "checkpoint.json", "config.json", "model.safetensors", "modeling_adder.py", "proof.json",
    }  # fmt: skip


def test_a_studys_seeds_are_a_dataset(tmp_path):
    with quickly():
        home = recorded(tmp_path / "home", (1, 2), (3,), grokked=(2,))
    done("publish", "--study", "sweep", "-o", tmp_path / "hub", "--home", home)
    folder = tmp_path / "hub/sweep-seeds"
    seeds = pd.read_parquet(folder / "seeds.parquet")
    assert seeds["init_seed"].tolist() == [1, 2, 3] and len(pd.read_parquet(folder / "configurations.parquet")) == 1
    _, head, text = (folder / "README.md").read_text().split("---\n", 2)
    assert [c["data_files"] for c in yaml.safe_load(head)["configs"]] == ["seeds.parquet", "configurations.parquet"]
    assert "all 3 seeds, configurations: 1" in text and "2 failed, 1 grokked" in text


def test_what_cannot_be_published_is_said(tmp_path, here):
    assert "give a CHECKPOINT" in fails_with_one(2, "publish", "-o", tmp_path)
    twice = CERTIFICATES / "57p", CERTIFICATES / "12p/../57p"
    assert "have one name" in fails_with_one(2, "publish", *twice, "-o", tmp_path)
    shutil.copytree(CERTIFICATES / "6p", here / "6p")
    shutil.copytree(CERTIFICATES / "7p", here / "other/6p")
    for folder, at in ((".", "6p"), ("other", "other/6p")):
        line = fails_with_one(2, "publish", "6p", "-o", folder)
        assert line == f"{at}: is a checkpoint; choose another folder with -o"


def test_nothing_is_written_where_a_later_one_cannot_be(here):
    words = "publish", CERTIFICATES / "7p", "-o", "hub", "--home", "none"
    assert "nothing has run yet" in fails_with_one(2, *words, "--study", "sweep")
    shutil.copytree(CERTIFICATES / "6p", here / "6p")
    verdict = json.loads((here / "6p/proof.json").read_text()) | {"program_sha256": "0" * 64}
    (here / "6p/proof.json").write_text(json.dumps(verdict))
    assert fails_with_one(2, *words, "6p").startswith("6p: its verdict is of another program; ")


def test_a_proof_in_a_models_folder_is_not_replaced(here):
    (proof := here / "hub/6p/proof.json").parent.mkdir(parents=True)
    proof.write_text(claim := json.dumps({"format": 3, "claim": "right"}))
    line = fails_with_one(2, "publish", CERTIFICATES / "6p", "-o", "hub")
    assert line == "hub/6p/proof.json: is a proof, which a verdict would overwrite; move it elsewhere"
    assert proof.read_text() == claim


def test_a_searchs_seeds_and_fresh_ones_are_told_apart_and_what_is_not_recorded_is_decided(here):
    again = "again_at: 1000, again_unless: [[token, 0.5]], again_most: 2, fade_end: 200"
    with quickly():
        study = Recorder(empty_home(here / "home"), study_of(STUDY.replace("fade_end: 200", again)))
        study.seeds((1, 2, 3, 4), grokked=(1, 2, 3))
        study.seeds((5, 6), grokked=(6,), confirmation=True)
        study.done()
    done("pull", "sweep", "--seed", "1", "-o", "one", "--home", "home")
    done("publish", "one", "-o", "hub", "--home", "home")
    card = (here / "hub/one/README.md").read_text()
    assert "1 of 2 fresh seeds grok (95 %: 2.5% to 97.5%); 3 of 4 in the search that chose it" in card
    assert "; a run draws up to 3 initial vectors; study sweep" in card and "| wrong on " in card
    done("explain", "one", "-o", "page.html", "--home", "home")
    rate = "3 of 4 seeds of its configuration grokked in the search that chose it, 1 of 2 fresh ones."
    assert rate in (here / "page.html").read_text()


def test_a_rate_is_that_of_its_own_study_and_else_names_the_other(here, monkeypatch):
    monkeypatch.setattr("adders.proof.file.FAMILIES", ())
    with quickly():
        for name, seeds in (("small", (1, 2)), ("large", (1, 2, 3, 4))):
            study = Recorder(empty_home(here / "home"), study_of(STUDY, name=name))
            study.seeds(seeds, grokked=(1,))
            study.done()
    for study, said in (("small", "1 of 2 seeds grok"), ("large", "1 of 4 seeds grok")):
        done("pull", study, "--seed", "1", "-o", study, "--home", "home")
        done("publish", study, "-o", "hub", "--home", "home")
        card = (here / "hub" / study / "README.md").read_text()
        assert f"| recipe | {said} (" in card and f"; study {study}, configuration" in card, card
    done("delete", "small", "--yes", "--home", "home")
    done("publish", "small", "-o", "hub", "--home", "home")
    assert "; not its own study but large, configuration" in (here / "hub/small/README.md").read_text()


def test_what_is_decided_without_a_margin_is_said(here):
    """A number too small for float32 ends a proof before it has seen a margin; a pair at random is wrong."""
    its = certificate("57p")
    its.theta_P[-1] = 1e-39
    its.save(here / "57p")
    done("publish", "57p", "-o", "hub")
    card = (here / "hub/57p/README.md").read_text()
    assert re.search(r"\| wrong on [\d,]+ \+ [\d,]+ .*\|", card) and "margin of logits" not in card, card
    done("explain", "57p", "-o", "page.html")


def untrained(**provenance):
    spec = PRESETS["57p"]
    return Checkpoint(spec, spec.initial(1), provenance=provenance)


def test_a_verdict_of_earlier_weights_does_not_stay(here, monkeypatch):
    monkeypatch.setattr("adders.proof.file.FAMILIES", ())
    untrained().save(here / "57p")
    (here / "hub/57p").mkdir(parents=True)
    (here / "hub/57p/proof.json").write_text("{}")
    done("publish", "57p", "-o", "hub")
    assert not (here / "hub/57p/proof.json").exists()
    assert "| no proof is known for its family |" in (here / "hub/57p/README.md").read_text()


EVIL = "\n# Mine\n<script>alert(1)</script> ![x](http://e/x.png)"
STEP = {"model": EVIL, "params": 1, "study": EVIL, "tied": [EVIL], "how": [EVIL], "trained": EVIL, "theta_sha256": EVIL}


def origins(depth):
    """A provenance in which each origin has one before it."""
    provenance = {}
    for _ in range(depth):
        provenance = {"folded_from": {"provenance": provenance}}
    return provenance


STRANGE = {
    "numbers": [1, 2], "lists": [[], {}], "nulls": None, "a number": 7, "a text": "lineage", "keys": [{"a": 1}],
    "tied 1": [{"tied": 1}], "tied [1]": [{"tied": [1, None]}], "how 1": [{"how": 1, "then": 5}],
    "spec": [{"spec": [1]}], "a spec": [{"spec": {"family": "none"}}], "digest": [STEP | {"theta_sha256": 3}],
    "params": [{"params": {}, "seed": [], "model": 3}], "text": [STEP], "many": [STEP] * 1_200,
}  # fmt: skip


def lineage_of(provenance):
    """The lines of a card on a checkpoint with this provenance."""
    return "\n".join(map(_step_text, ancestors_of(untrained(**json.loads(json.dumps(provenance))))))


@pytest.mark.parametrize("name", STRANGE)
def test_a_strangers_lineage_is_text_or_nothing(name):
    lineage = STRANGE[name]
    for provenance in (
        {"lineage": lineage, "trained": EVIL},
        {"compressed_from": {"model": EVIL, "provenance": {"lineage": lineage}}, "descent": lineage},
        {"folded_from": {"spec": lineage, "provenance": lineage}, "folds": lineage},
        {"finished_from": lineage if isinstance(lineage, dict) else {}, "finished_by": lineage, "study": lineage},
        {"lineage": [], "study": EVIL, "trained": EVIL},
    ):
        text = lineage_of(provenance)
        assert all(line.startswith("- ") and line.isprintable() for line in text.split("\n")) and len(text) < 10**7
        assert not {"<", "!", "#", "["} & set(text.replace("&#", ""))


def test_a_lineage_of_many_generations_is_read_to_a_depth():
    assert lineage_of(origins(400)).count("\n") == 100


def test_a_strangers_lineage_in_the_ledger_is_read_as_one_in_a_checkpoint():
    about = {"spec": PRESETS["57p"].as_dict(), "thetas": {}}
    for lineage in STRANGE.values():
        start = InitialTheta.of(about | {"lineage": lineage})
        assert start.title.isprintable() and all(map(str.isprintable, tree([start.lineage]).split("\n")))


def test_a_card_of_a_strangers_checkpoint_is_text(here, monkeypatch):
    monkeypatch.setattr("adders.proof.file.FAMILIES", ())
    untrained(lineage=[1, STEP], study=EVIL).save(here / "![x](y) <b>")
    done("publish", "![x](y) <b>", "-o", "hub")
    (card,) = Path("hub").rglob("README.md")
    _, head, text = card.read_text().split("---\n", 2)
    assert yaml.safe_load(head)["model-index"][0]["name"] == "![x](y) <b>"
    assert text.count("\n#") == 2 and "<" not in text and "![" not in text
