"""The real command with real Ray, Optuna and MLflow, as a user meets it: small studies, whole homes."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from types import SimpleNamespace

import optuna
import pandas as pd
import pytest
import torch
import yaml
from mlflow import MlflowClient
from safetensors.torch import load_file

from model import rung
from search.store.part import Part
from search.store.tracking import KEY_TAG
from search.study.file import load_study
from tests.commands import adder_search, in_process, running
from tests.reference import check_whole, expected, wait_for_progress

pytestmark = pytest.mark.end_to_end

SMALL = {
    "name": "small",
    "model": "57p",
    "recipe": {
        "steps": 400,
        "batch": 32,
        "eval_every": 20,
        "warmup": 20,
        "curriculum": [[3, 100]],
        "fade_start": 100,
        "fade_end": 300,
    },
    "seeds": {"first": 5, "count": 4},
    "stop": {"hopeless": False},
    # one slot for a trial of two seeds (on up to three cores): the second waits for the first
    "resources": {"cpu": 1, "gpu": 0, "slots": 1, "seeds_per_trial": 2, "compiled": False, "save_every": 1},
}
SEARCH = SMALL | {
    "name": "searched",
    "recipe": SMALL["recipe"] | {"steps": 40},
    "seeds": {"first": 1, "count": 2},
    "stop": {"hopeless": True},
    "space": {"recipe.lr": {"float": [0.005, 0.05], "log": True}, "model.qk_dim": {"choice": [4, 5]}},
    "sampler": {"name": "tpe", "configurations": 3, "seed": 1},
}
STEP_METRICS = {"grok_rate", "best_exact", "median_exact", "median_token", "loss", "seed_steps_per_s"}


def write_study(folder, study):
    folder.mkdir(exist_ok=True)
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(study))
    return str(file)


def ledger(home, study="smoke"):
    """A study's rows in the home's ledger, read as any SQLite program would."""
    with sqlite3.connect(home / "optuna.db") as db:
        db.row_factory = sqlite3.Row
        query = "select * from ledger where study = ? order by configuration, init_seed"
        return [dict(row) for row in db.execute(query, [study])]


def trials_of(home):
    """How many trials smoke's seeds were packed into: two of two, or on many cores one a seed."""
    return len({r["trial"] for r in ledger(home)})


def client_of(home):
    return MlflowClient(tracking_uri=f"sqlite:///{home / 'mlflow.db'}")


def runs_of(home, study):
    client = client_of(home)
    found = client.search_runs([client.get_experiment_by_name(study).experiment_id])
    return [r for r in found if KEY_TAG in r.data.tags]


def recorded(home, study):
    """(configuration, seed) -> θ and curve, as bytes, from MLflow's artifacts. No pair is there twice."""
    found = {}
    for folder in sorted((home / "artifacts" / study).glob("*/artifacts/trials/*")):
        part = Part.read(folder)
        for r in part.results:
            key = (part.configuration.key, r.pair.seed.init_seed)
            assert key not in found, key
            found[key] = (r.theta_P.numpy().tobytes(), r.curve_EM.numpy().tobytes(), r.steps)
    return found


def is_plain(said):
    """No traceback, no escape sequences, no line that is drawn again and again."""
    return not any(sign in said.out + said.err for sign in ("Traceback", "\x1b", "\r"))


def one_line_error(said):
    return said.err.startswith("error: ") and said.err.count("\n") == 1 and is_plain(said)


# ---- a finished run


def test_a_run_says_what_came_of_it_and_what_to_type_next(smoke):
    assert smoke.said.code == 0, smoke.said
    assert is_plain(smoke.said)
    assert smoke.said.err == ""
    assert "smoke: 0 of 4 grokked: 0.0% (95 % interval 0.0% to 49.0%)" in smoke.said.out.splitlines()
    for command in ("pull smoke --best -o best", "verify best", "export best -o submission.py", "ui"):
        assert f"  adder-search {command}" in smoke.said.out.splitlines()


def test_nothing_is_imported_from_the_folder_that_the_command_is_called_in(smoke):
    assert not smoke.marker.exists()
    assert "decoy" not in smoke.said.out + smoke.said.err


def test_every_seed_is_in_the_ledger_once(smoke):
    rows = ledger(smoke.home)
    assert [r["init_seed"] for r in rows] == [r["data_seed"] for r in rows] == [777, 778, 779, 780]
    assert {(r["outcome"], r["steps"], r["published"], r["owner"]) for r in rows} == {("failed", 60, 1, None)}
    assert trials_of(smoke.home) >= 2
    assert not list((smoke.home / "trials").rglob("*.*")), "what MLflow has need not be kept twice"


def test_mlflow_has_one_run_a_configuration_with_all_its_parameters(smoke):
    names = {e.name for e in client_of(smoke.home).search_experiments()}
    assert names - {"Default"} == {"smoke"}
    (run,) = runs_of(smoke.home, "smoke")
    assert run.info.status == "FINISHED"
    assert run.info.run_name.startswith("57p ")
    study = load_study("smoke")
    expected = {f"model.{k}": v for k, v in study.spec().as_dict().items()}
    expected |= {f"recipe.{k}": v for k, v in study.base_recipe().as_dict().items()}
    expected |= {"rung": "57p", "params": rung("57p").params}
    as_text = {k: json.dumps(v) if isinstance(v, list) else str(v) for k, v in expected.items()}
    assert run.data.params == as_text
    assert {"model.tie_fc2_head", "model.qk_dim", "recipe.lr", "recipe.curriculum"} <= as_text.keys()


def test_mlflow_has_metrics_over_steps_and_the_counts(smoke):
    client, (run,) = client_of(smoke.home), runs_of(smoke.home, "smoke")
    for name in STEP_METRICS:
        assert [m.step for m in client.get_metric_history(run.info.run_id, name)] == [20, 40, 60], name
    final = {k.removeprefix("final."): v for k, v in run.data.metrics.items() if k.startswith("final.")}
    assert {k: final[k] for k in ("seeds", "grokked", "failed", "diverged", "censored")} == {
        "seeds": 4, "grokked": 0, "failed": 4, "diverged": 0, "censored": 0,
    }  # fmt: skip
    assert final["grok_rate"] == final["grok_rate_low"] == 0
    assert final["grok_rate_high"] == pytest.approx(0.4899, abs=1e-4)


def test_mlflow_has_every_seeds_weights_curves_and_a_picture(smoke):
    (run,) = runs_of(smoke.home, "smoke")
    root = smoke.home / "artifacts" / "smoke" / run.info.run_id / "artifacts"
    trials, seeds = sorted((root / "trials").iterdir()), 0
    assert len(trials) == trials_of(smoke.home)
    for trial in trials:
        names = {f.name for f in trial.iterdir()}
        assert names == {"theta.safetensors", "curves.parquet", "results.json", "trial.json"}
        count, params = load_file(trial / "theta.safetensors")["theta"].shape
        assert params == 57 and 1 <= count <= 2
        seeds += count
        curves = pd.read_parquet(trial / "curves.parquet")
        assert sorted(curves["step"].unique()) == [20, 40, 60]
        assert curves[["exact", "token", "loss", "train_loss"]].notna().all(axis=None)
    assert len(recorded(smoke.home, "smoke")) == seeds == 4
    assert (root / "curves.png").read_bytes().startswith(b"\x89PNG")
    about = json.loads((root / "best" / "checkpoint.json").read_text())
    assert (about["params"], about["provenance"]["study"]) == (57, "smoke")


def test_status_counts(smoke):
    said = in_process("status", "smoke", cwd=smoke.folder)
    assert (said.code, said.err) == (0, "")
    assert f"smoke: {trials_of(smoke.home)} trials, 4 seeds (4 failed)" in said.out
    assert "grok rate 0/4 (0.0% to 49.0%)" in said.out
    seeds = [line.split()[:5] for line in said.out.splitlines() if line.startswith("  seed ")]
    assert seeds == [["seed", str(seed), "failed", "step", "60"] for seed in range(777, 781)]
    said = in_process("status", "smoke", "--json", cwd=smoke.folder)
    about = json.loads(said.out)
    assert [s["init_seed"] for s in about["seeds"]] == [777, 778, 779, 780]
    assert about["studies"][0]["states"] == {"failed": 4}


# ---- checkpoints


def test_pull_fetches_the_best_and_any_seed(smoke, tmp_path):
    flag = ("--home", str(smoke.home))
    said = in_process("pull", "smoke", "--best", *flag, "-o", "best", cwd=tmp_path)
    assert (said.code, said.err) == (0, "")
    assert "did not grok (failed)" in said.out
    said = in_process("pull", "smoke", "--seed", "778", *flag, cwd=tmp_path)
    assert said.code == 0
    theta = load_file(tmp_path / "smoke-778" / "theta.safetensors")["theta"]
    (mine,) = (v for (_, seed), v in recorded(smoke.home, "smoke").items() if seed == 778)
    assert theta.numpy().tobytes() == mine[0]
    about = json.loads((tmp_path / "smoke-778" / "checkpoint.json").read_text())
    assert about["seed"] == {"init_seed": 778, "data_seed": 778}


def test_pull_names_what_is_not_there(smoke, tmp_path):
    flag = ("--home", str(smoke.home))
    said = in_process("pull", "smoke", "--seed", "9999", *flag, cwd=tmp_path)
    assert (said.code, said.out) == (2, "")
    assert one_line_error(said), said.err
    assert "9999" in said.err
    assert not list(tmp_path.iterdir())


def test_verify_counts_its_calls_and_export_writes_a_module_that_runs_alone(smoke, tmp_path):
    flag = ("--home", str(smoke.home))

    def calls():
        return sum(r["verify_calls"] for r in ledger(smoke.home))

    in_process("pull", "smoke", *flag, "-o", "best", cwd=tmp_path)
    before = calls()
    said = in_process("verify", "best", *flag, cwd=tmp_path)
    assert said.code == 1, said
    assert is_plain(said)
    assert "57p, 57 parameters:" in said.out
    assert "/10010 NOT QUALIFIED" in said.out
    assert calls() == before + 1
    said = in_process("status", *flag, cwd=tmp_path)
    assert f"verify called {before + 1} times" in said.out

    said = in_process("export", "best", "-o", "submission.py", cwd=tmp_path)
    assert said.code == 0, said
    source = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import submission; "
        "model, about = submission.build_model(); found = submission.add(model, 123, 456); "
        "print(type(found).__name__, about['params'], sorted(m for m in sys.modules if m in "
        "{'model', 'trainer', 'search'}))"
    )
    command = [sys.executable, "-I", "-c", source]
    alone = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert alone.stdout == "int 57 []\n"


# ---- again, elsewhere, searched, impossible


def test_running_again_trains_nothing(smoke):
    before, runs = ledger(smoke.home), [r.info.run_id for r in runs_of(smoke.home, "smoke")]
    artifacts = recorded(smoke.home, "smoke")
    said = adder_search("run", "smoke", cwd=smoke.folder)
    assert said.code == 0, said
    assert is_plain(said)
    assert "smoke: 0 of 4 grokked" in said.out
    assert "nothing left to train" in said.out
    assert "elapsed" not in said.out
    unchanged = [
        {k: v for k, v in row.items() if k != "verify_calls"} for row in (*before, *ledger(smoke.home))
    ]
    assert unchanged[:4] == unchanged[4:]
    assert [r.info.run_id for r in runs_of(smoke.home, "smoke")] == runs
    assert recorded(smoke.home, "smoke") == artifacts


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """Two more runs: smoke in a second home, and a search. One after another: Ray has 30 s to start."""
    root = tmp_path_factory.mktemp("elsewhere")
    wanted = {"smoke": "smoke", "searched": write_study(root / "searched", SEARCH)}
    for name, study in wanted.items():
        said = adder_search("run", study, "--home", str(root / name), cwd=root)
        assert said.code == 0, said
    return SimpleNamespace(root=root)


def test_a_second_home_gets_the_same_weights(smoke, elsewhere):
    assert recorded(elsewhere.root / "smoke", "smoke") == recorded(smoke.home, "smoke")


def test_a_run_that_died_before_its_summary_gets_it_from_the_next(elsewhere):
    home = elsewhere.root / "smoke"
    (run,) = runs_of(home, "smoke")
    picture = home / "artifacts" / "smoke" / run.info.run_id / "artifacts" / "curves.png"
    client_of(home).update_run(run.info.run_id, status="RUNNING")
    picture.unlink()
    said = adder_search("run", "smoke", "--home", str(home), cwd=elsewhere.root)
    assert said.code == 0, said
    assert [r.info.status for r in runs_of(home, "smoke")] == ["FINISHED"]
    assert picture.is_file()


def test_a_search_records_a_run_a_configuration(elsewhere):
    home = elsewhere.root / "searched"
    runs = runs_of(home, "searched")
    assert len(runs) == 3
    assert {r.info.status for r in runs} == {"FINISHED"}
    rates = [float(r.data.params["recipe.lr"]) for r in runs]
    assert len(set(rates)) == 3
    assert all(0.005 <= rate <= 0.05 for rate in rates)
    assert {r.data.params["model.qk_dim"] for r in runs} <= {"4", "0"}  # 0: as wide as the head
    assert len(ledger(home, "searched")) == len(recorded(home, "searched")) == 6
    for run in runs:
        final = {k.removeprefix("final."): v for k, v in run.data.metrics.items() if k.startswith("final.")}
        assert final["failed"] + final["given_up"] == final["seeds"] == 2
        assert 0 <= final["spared"] <= final["failed"] and final["spared_grokked"] == 0
        mine = [r for r in ledger(home, "searched") if r["configuration"] == run.data.tags[KEY_TAG]]
        hopeless = [r["hopeless_step"] for r in mine if r["hopeless_step"] is not None]
        assert len(hopeless) == final["given_up"] + final["spared"]
    study = optuna.load_study(study_name="searched", storage=f"sqlite:///{home / 'optuna.db'}")
    assert [t.state.name for t in study.trials] == ["COMPLETE"] * 3
    assert {t.params["recipe.lr"] for t in study.trials} == set(rates)
    assert all(0 < t.values[0] < 1 and t.values[1] in (57, 60) for t in study.trials), "rate, parameters"


def test_a_trial_that_fits_nowhere_is_refused(elsewhere, tmp_path):
    asked = {"gpu": torch.cuda.device_count() + 4, "cpu": os.cpu_count() + 62}
    words = {}
    for resource, much in asked.items():
        study = SMALL | {"name": "refused", "resources": SMALL["resources"] | {resource: much}}
        home = elsewhere.root / ("searched" if resource == "gpu" else "smoke")
        words[resource] = ("run", write_study(tmp_path / resource, study), "--home", str(home))
    with running(*words["gpu"], cwd=tmp_path) as gpu, running(*words["cpu"], cwd=tmp_path) as cpu:
        for resource, said in (("gpu", gpu.wait()), ("cpu", cpu.wait())):
            assert said.code == 2, said
            assert one_line_error(said), said.err
            assert f"resources.{resource}: a trial asks for {asked[resource]}, there are" in said.err
            assert ledger(elsewhere.root / words[resource][-1], "refused") == []


# ---- interruption


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc")
def test_interrupted_and_killed_a_study_ends_as_if_nothing_had_happened(elsewhere, tmp_path):
    home = elsewhere.root / "searched"
    words = ("run", write_study(tmp_path, SMALL), "--home", str(home))

    with running(*words, cwd=tmp_path) as command:
        wait_for_progress(command, home)
        told = time.monotonic()
        os.kill(command.process.pid, signal.SIGINT)
        said = command.wait()
        assert time.monotonic() - told < 20
        assert said.code == 130, said
        assert is_plain(said), said
        assert "To go on:\n  adder-search run" in said.out
        assert command.gone(), command.descendants()
    rows = ledger(home, "small")
    assert rows
    assert {(r["outcome"], r["reason"], r["owner"]) for r in rows} == {("censored", "interrupted", None)}
    assert [r.info.status for r in runs_of(home, "small")] == ["KILLED"]

    with running(*words, cwd=tmp_path) as command:
        wait_for_progress(command, home)
        os.kill(command.process.pid, signal.SIGKILL)
        assert command.wait(20).code == -signal.SIGKILL
        assert command.gone(killed=True), command.workers()
    assert "running" in {r["outcome"] for r in ledger(home, "small")}

    said = adder_search(*words, cwd=tmp_path)
    assert said.code == 0, said
    assert is_plain(said)
    rows = ledger(home, "small")
    assert [(r["init_seed"], r["outcome"], r["published"]) for r in rows] == [
        (s, "failed", 1) for s in range(5, 9)
    ]
    check_whole(home, SMALL, tmp_path, expected(SMALL))
