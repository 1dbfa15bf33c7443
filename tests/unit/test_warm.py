"""Trials of another search that a sampler knows from the start: out of Optuna's database or a CSV file."""

import json
import sqlite3
from pathlib import Path

import optuna
import pytest

from search.errors import UserError
from search.kinds.proposals import Proposals
from search.run.extension import check_extension
from search.study.file import parse_study, recorded_study
from search.study.written import Changes
from tests.bad_studies import GOOD
from tests.commands import refusal
from tests.searches import Memory, asked, numbers, row, train
from tests.unit.test_proposals import facts_of
from trainer import Outcome

SPACE = """
space:
  model.tie_vo: {choice: [true, false]}
  recipe.lr: {float: [0.01, 0.03]}
  recipe.clip: {float: [0.5, 2], when: {model.tie_vo: false}}
"""
ROWS = "params_model.tie_vo,lr,recipe.clip,state,value\nTrue,0.011,,COMPLETE,0.1\nfalse,0.029,1,COMPLETE,0.9\n"
ROWS += "on,0.02,,FAIL,\n"


def study_of(warm, name="tpe", more="", space=SPACE, folder=Path()):
    sampler = f"sampler: {{name: {name}, configurations: 12, warm_start: {warm}{more}}}\n"
    return parse_study(GOOD + space + sampler, "test", folder)


def write_csv(folder, text=ROWS):
    (folder / "trials.csv").write_text(text)
    return study_of("trials.csv", folder=folder)


def write_database(folder, *studies, directions=("maximize",), name="other.db"):
    """Studies of someone's own, each with three trials, the last of which failed."""
    for title in studies:
        study = optuna.create_study(storage=f"sqlite:///{folder / name}", study_name=title, directions=directions)
        for tied, lr, value in ((True, 0.011, 0.1), (False, 0.029, 0.9), (True, 0.02, None)):
            trial = study.ask()
            trial.suggest_categorical("model.tie_vo", [False, True])
            trial.suggest_float("recipe.lr", 0.001, 1, log=True)
            if not tied:
                trial.suggest_float("recipe.clip", 0.1, 10)
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            params = {"model.tie_vo": tied, "recipe.lr": lr} | ({} if tied else {"recipe.clip": 1.0})
            if value is not None:
                distributions = {path: trial.distributions[path] for path in params}
                values = [value] * len(directions)
                study.add_trial(optuna.create_trial(params=params, distributions=distributions, values=values))


EXPECTED = [({"model.tie_vo": True, "recipe.lr": 0.011}, [0.1]),
            ({"model.tie_vo": False, "recipe.lr": 0.029, "recipe.clip": 1.0}, [0.9])]  # fmt: skip


def known_of(proposals):
    return [(t.params, t.values) for t in proposals.optuna.get_trials()[:2]]


def test_a_csv_file_and_a_database_of_optunas_say_the_same(tmp_path):
    write_database(tmp_path, "theirs")
    for study in (write_csv(tmp_path), study_of("other.db", folder=tmp_path)):
        proposals = Proposals(study, Memory())
        assert known_of(proposals) == EXPECTED and proposals.trials() == []
        assert study.kind.proposer.startswith("tpe (sampler seed 0), which knew 2 trials of ")
    before = (tmp_path / "other.db").read_bytes()
    write_database(tmp_path, "second")
    with pytest.raises(UserError, match=r"other.db: name one of its studies: 'theirs', 'second'"):
        study_of("other.db", folder=tmp_path)
    study = study_of("{file: other.db, study: theirs}", folder=tmp_path)
    assert known_of(Proposals(study, Memory())) == EXPECTED and before != (tmp_path / "other.db").read_bytes()


@pytest.mark.parametrize(("name", "cuts"), [("tpe", (1, 3, 4)), ("nsga2", (2, 4, 2))])  # of nsga2 generations end there
def test_it_changes_what_is_proposed_and_no_interruption_does(tmp_path, name, cuts):
    rows = "".join(f"on,{0.02 + n / 4_000},,COMPLETE,{n / 20}\n" for n in range(20))
    write_csv(tmp_path, ROWS + rows)
    warm, cold = study_of("trials.csv", name, folder=tmp_path), study_of("null", name)
    expected = asked(Proposals(warm, Memory()), 8)
    assert expected != asked(Proposals(cold, Memory()), 8)
    ledger, found = Memory(), []
    for cut in cuts:  # a driver dies after so many
        found += asked(Proposals(warm, ledger), cut)
    assert found == expected
    again = Proposals(warm, ledger)
    assert [p["number"] for p in ledger.proposed] == list(range(8)) == [t.number - 22 for t in again.trials()]
    assert numbers(again) == [p["numbers"] for p in ledger.proposed]
    whole = Proposals(warm, ledger_of := Memory())
    asked(whole, 8)
    assert facts_of(whole) == facts_of(Proposals(warm, ledger_of))


def test_a_proposal_that_was_open_is_told_by_its_number(tmp_path):
    warm, ledger = write_csv(tmp_path), Memory()
    (first, second) = [Proposals(warm, ledger).ask() for _ in range(2)]
    again = Proposals(warm, ledger)
    train(again, second, row(Outcome.GROKKED, 1.0, 9))
    assert [t.state.name for t in again.trials()] == ["RUNNING", "COMPLETE"] and first != second


def test_the_record_needs_no_file_and_another_file_is_refused(tmp_path):
    study = write_csv(tmp_path)
    definition = study.model_dump_json(by_alias=True)
    (tmp_path / "trials.csv").unlink()
    again = recorded_study(definition, "recorded")
    assert again == study and known_of(Proposals(again, Memory())) == EXPECTED
    check_extension(again, json.loads(definition), [])
    for other in (write_csv(tmp_path, ROWS.replace("0.029", "0.028")), study_of("null")):
        with pytest.raises(UserError, match=r"sampler.warm_start: begun with 2 trials \(\w+\), the file has (2|none)"):
            check_extension(other, json.loads(definition), [])


def test_trials_are_those_of_the_file_that_is_named_last(tmp_path):
    base = tmp_path / "lib" / "base.yaml"
    base.parent.mkdir()
    write_database(base.parent, "theirs", "second")
    (tmp_path / "two.csv").write_text(ROWS)
    (tmp_path / "one.csv").write_text(ROWS.partition("false")[0])
    extended = "name: own\nextends: lib/base.yaml\nsampler: {warm_start: %s}\n"
    for below, above, values in [
        ("../two.csv", "{file: one.csv}", [[0.1]]),
        ("../one.csv", "{file: lib/other.db, study: theirs}", [[0.1], [0.9]]),
        ("{file: other.db, study: theirs}", "{file: one.csv}", [[0.1]]),
        ("{file: other.db, study: second}", "{study: theirs}", [[0.1], [0.9]]),
        ("other.db", "{study: theirs}", [[0.1], [0.9]]),
        ("../one.csv", "{trials: [{recipe.lr: 0.02, model.tie_vo: true, value: 0.5}]}", [[0.5]]),
    ]:
        base.write_text(f"{GOOD}{SPACE}sampler: {{name: tpe, configurations: 12, warm_start: {below}}}\n")
        study = parse_study(extended % above, "test", tmp_path)
        assert [trial.values for trial in Proposals(study, Memory()).optuna.get_trials()] == values
        assert ("one.csv" in study.kind.proposer) == ("one.csv" in above)
    base.write_text(base.read_text().replace("../one.csv", "other.db"))
    with pytest.raises(UserError, match=r"other.db: has no study 'nobody', it has 'theirs', 'second'"):
        parse_study(extended % "{study: nobody}", "test", tmp_path)


def test_a_record_knows_no_file_for_another_study_of_it(tmp_path):
    write_database(tmp_path, "theirs", "second")
    definition = study_of("{file: other.db, study: theirs}", folder=tmp_path).model_dump_json(by_alias=True)
    named = f"sampler.warm_start.file={tmp_path}/other.db", "sampler.warm_start.study=second"
    with pytest.raises(UserError, match=r"^x: sampler.warm_start: has no completed trial, and names no file$"):
        recorded_study(definition, "x", Changes(named[1:]))
    assert recorded_study(definition, "x", Changes(named)).sampler.warm_start.study == "second"


WRONG = {
    "random learns from no trial; take tpe or nsga2": ROWS,
    "column 'weight_decay' is no field of the space; ": ROWS.replace("lr", "weight_decay"),
    "columns 'lr' and 'recipe.lr' are both recipe.lr": ROWS.replace("recipe.clip", "recipe.lr"),
    "two columns are called 'lr'": ROWS.replace("recipe.clip", "lr"),
    "two columns are called 'recipe.clip'": ",," + ROWS.replace("lr", "recipe.clip").replace("\n", "\n,,"),
    "grok_rate: needs one column of grok_rate, values_grok_rate, values_0, value, has 0":
        ROWS.replace(",value", ",duration"),
    "trial 2: recipe.lr is 0.05; it is 0.01 to 0.03": ROWS.replace("0.029", "0.05"),
    "trial 2: recipe.lr is nan; it is": ROWS.replace("0.029", "nan"),
    "trial 1: has no recipe.lr; it is": ROWS.replace("0.011", ""),
    "trial 1: model.tie_vo is perhaps; it is one of on; off": ROWS.replace("True", "perhaps"),
    "trial 1: recipe.clip is 1; it is 0.5 to 2, where model.tie_vo is off": ROWS.replace("0.011,", "0.011,1"),
    "trial 2: value is '', no number": ROWS.replace("0.9", ""),
    "trial 1: value is 'inf', no number": ROWS.replace("0.1\n", "inf\n"),
    "has no completed trial": ROWS.replace("COMPLETE", "RUNNING"),
    "row 2 has 6 cells, the first row 5": ROWS.replace("0.1\n", "0.1,1\n"),
    "has 1,001 trials, a search begins with at most 1,000": ROWS + ROWS.splitlines()[1].join("\n\n") * 999,
}  # fmt: skip


@pytest.mark.parametrize("said", WRONG)
def test_what_no_sampler_can_know_is_one_line(tmp_path, said):
    (tmp_path / "trials.csv").write_text(WRONG[said].replace("\n\n", "\n"))
    name = "random" if said.startswith("random") else "tpe"
    line = refusal(UserError, study_of, "trials.csv", name, folder=tmp_path)
    assert line.startswith("test: sampler.warm_start: ") and said in line


def test_a_file_that_is_none_is_one_line(tmp_path):
    (tmp_path / "text.db").write_text("no database")
    with sqlite3.connect(tmp_path / "own.db") as db:
        db.execute("CREATE TABLE trials (a)")
        db.execute("CREATE VIEW endless AS SELECT 1")
    write_database(tmp_path, "falling", directions=("minimize",), name="falling.db")
    write_database(tmp_path, "two", directions=("maximize", "maximize"), name="two.db")
    for name in ("trials.txt", "trials.csv"):
        (tmp_path / name).write_text(ROWS)
    for warm, said in {
        "nowhere.csv": "nowhere.csv: no such file",
        ".": "must end in .csv, or as a database of Optuna's in .db",
        "trials.txt": "must end in .csv",
        "text.db": "text.db: file is not a database",
        "own.db": "own.db: no database of Optuna's",
        "falling.db": "its objectives are to minimize, the study's are grok_rate (maximize)",
        "two.db": "its objectives are to maximize, maximize, the study's are",
        "{file: falling.db, study: rising}": "has no study 'rising', it has 'falling'",
        "{file: trials.csv, study: theirs}": "trials.csv: a CSV file has no studies, and 'theirs' is asked for",
        "~nobody-of-that-name/x.db": "no home folder is known for ~nobody-of-that-name",
        "5": "must be a mapping, got 5",
        "{}": "has no completed trial",
    }.items():
        line = refusal(UserError, study_of, warm, folder=tmp_path)
        assert line.startswith("test: sampler.warm_start: ") and said in line


def test_two_objectives_have_a_column_each(tmp_path):
    text = "params_recipe.lr,values_0,values_1\n0.02,0.5,57\n"
    (tmp_path / "t.csv").write_text(text)
    space = "space: {recipe.lr: {float: [0.01, 0.03]}, model.qk_dim: {choice: [3, 4]}}\n"
    with pytest.raises(UserError, match=r"trial 1: has no model.qk_dim; it is one of 3; 4"):
        study_of("t.csv", more=", objectives: [grok_rate, params]", space=space, folder=tmp_path)
    (tmp_path / "t.csv").write_text("qk_dim,params_recipe.lr,grok_rate,values_1\n3.0,0.02,0.5,57\n")
    study = study_of("t.csv", more=", objectives: [grok_rate, params]", space=space, folder=tmp_path)
    (trial,) = Proposals(study, Memory()).optuna.get_trials()
    assert trial.values == [0.5, 57] and trial.params == {"recipe.lr": 0.02, "model.qk_dim": 3}
