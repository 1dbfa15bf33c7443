"""`compress CHECKPOINT` and a study's `compress`: whole runs by the command, which nothing ends without trace."""

import json
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from adders.acceptance import AcceptanceSet
from compress import local
from compress.candidates import DatabaseCandidates, TieCandidate, lineage_of, smallest
from compress.commands import A_ROUND
from compress.journal import Journal
from compress.pictures import TREE, log_descents
from model import preset
from model.tied import Tied, constrained, free
from search.errors import UserError
from search.run import driver
from search.run.extension import check_extension
from search.run.planner import plan
from search.store.home import Home
from search.study.file import parse_study
from search.study.trial import Configuration
from tests import CERTIFICATES, by_tier, needs_compiler
from tests.commands import call, done, fails_with_one, says
from tests.compress import golden
from tests.compress.golden import sets_of
from tests.compress.test_golden import DESCENTS
from tests.homes import empty_home, quickly, records_of
from tests.in_process import without_ray
from tests.reference import recorded, rows_of, write_study
from tests.scenarios.test_interrupted import Died
from tracking.outbox import Outbox
from tracking.store import connect
from tracking.tracker import Tracker
from trainer import Recipe
from trainer.checkpoints.checkpoint import Checkpoint

START = CERTIFICATES / "46p"

# ---- a checkpoint

SHORT = ("--proposals", 3, "--screen", 2, "--steps", 60, "--ramp", 30, "--cores", 1, "--patience", 1)


@needs_compiler
@pytest.mark.parametrize(("phase", "rounds"), [("_train", 0), ("_judge", 1)])
def test_time_that_is_up_ends_a_round_wherever_it_is(phase, rounds, here, monkeypatch):
    """What is judged is kept."""

    def without_end(self, *_):
        signal.setitimer(signal.ITIMER_REAL, 0.01)  # the hour is up
        while True:
            self.descent.parents()

    monkeypatch.setattr(local.LocalDescent, phase, without_end)
    command = ("compress", CERTIFICATES / "57p", "-o", "small", *SHORT, "--max-hours", 1)
    said = done(*command)
    first, folded, *none, _, counts = said.splitlines()
    why = "--max-hours ended the first one, and the same command goes on"
    assert none == ([] if rounds else [f"  no round has ended. {A_ROUND}; {why}"])
    assert "46 numbers tied to 46" in first and folded == "  folded from 57 to 46 numbers, exactly"
    assert counts == (
        "  46 as AdderBoard has counted, 47 with hidden constants; 46 with ties inside tensors alone, 49 with all "
        "constants (docs/counting.md)"
    )
    assert json.loads(Path("small/descent.json").read_text())["progress"]["rounds"] == rounds
    assert done(*command).startswith(first), "the same command goes on"


@needs_compiler
def test_time_that_is_up_while_a_round_is_written_ends_the_descent_after_it(here, monkeypatch):
    def ends(self):
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        late = time.monotonic() + 0.2
        while time.monotonic() < late:
            self.parents()
        end_round(self)

    end_round = local.Descent.end_round
    monkeypatch.setattr(local.Descent, "end_round", ends)
    other = threading.Thread(target=time.sleep, args=(60,), daemon=True)
    other.start()  # signals come by it too
    said = call("compress", START, "-o", "small", *SHORT, "--max-hours", 1)
    journal = json.loads(Path("small/descent.json").read_text())
    assert journal["progress"]["rounds"] == 1, said.output
    assert Checkpoint.load(Path("small")).provenance["descent"][-1]["numbers"] < 46


@needs_compiler
def test_a_descent_is_gone_on_with_and_read_by_every_command(here, monkeypatch):
    whole = local.LocalDescent.rounds
    monkeypatch.setattr(local.LocalDescent, "rounds", lambda self: islice(whole(self), 1))
    assert "sets held" in call("compress", START, "-o", "small", *SHORT, code=0).stderr
    small, journal = Checkpoint.load(Path("small")), json.loads(Path("small/descent.json").read_text())
    assert isinstance(small.spec, Tied) and small.spec.params < 46 and journal["progress"]["rounds"] == 1
    assert small.provenance["compressed_from"]["params"] == 46
    assert small.provenance["descent"][-1]["numbers"] == small.spec.params
    ties = free(46)
    for step in small.provenance["descent"]:
        texts = [t for t in Tied(base=small.spec.base, ties=ties).spelt() if t not in step.get("loosened", ())]
        ties = constrained(small.spec.base, [*texts, *step["tied"]])
    assert ties == small.spec.ties, "its provenance has every tie"
    written = json.loads(Path("small/verification.json").read_text())
    assert written["correct"] == json.loads(call("verify", "small", "--json").stdout)["correct"]
    assert "46p tied to" in call("models", "small").stdout
    done("export", "small", "-o", "submission.py")
    assert "made by compress" in fails_with_one(2, "rerun", "small")
    line = fails_with_one(2, "compress", START, "-o", "small", *SHORT, "--proved", "any")
    assert line.endswith(
        "small: holds sets of exact 1 and no proof, not of exact 1 and proved any; choose another folder with -o"
    )
    looser = ("compress", START, "-o", "small", *SHORT, "--accept", 0.99)
    again = json.loads(call(*looser, "--json").stdout)
    assert "small: holds sets of exact 0.99 and no proof, not of exact 1 and" in fails_with_one(2, *looser[:-2])
    assert again["rounds"] == 2 and again["params"] <= small.spec.params and again["core_seconds"] > 0
    assert again["sets_tried"] > len(journal["progress"]["tried"]) and again["verification"]["total"] == 10_010
    assert len(again["ties"]) == 46 - again["params"]


def test_bad_input_of_compress_is_one_line_each(here):
    for option, value, said in (
        ("--kinds", "zero,eqal", "--kinds: unknown 'eqal'; did you mean equal?"),
        ("--kinds", "zero,zero", "--kinds: a kind is listed twice"),
        ("--ramp", 7_000, "*ramp must be at most steps*"),
        ("--steps", 9_000_000, "*steps must be *"),  # of which a descent without gains may ask thrice as many
        (
            "--beside", CERTIFICATES / "456p",
            "*456p: another model, 453 parameters (456p with no_eos) beside 46p; a set must be*",
        ),
    ):  # fmt: skip
        assert says(fails_with_one(2, "compress", START, "-o", "x", option, value), said)
    loaded = Checkpoint.load(START)
    replace(loaded, theta_P=loaded.spec.initial(1)).save(Path("raw"))
    assert "raw: 46p has not grokked: it adds " in fails_with_one(2, "compress", "raw", "-o", "x")
    Path("taken").mkdir()
    Path("taken/mine").touch()
    assert "holds no descent" in fails_with_one(2, "compress", START, "-o", "taken")
    Path("other").mkdir()
    journal = Journal(Path("other"), preset("46p"), "of another", {"accept": 1.0, "proved": None})
    journal.end_round([], journal.progress())
    assert fails_with_one(2, "compress", START, "-o", "other").endswith("a descent from another checkpoint")
    whole = Path("other/descent.json").read_text()
    for broken in ("[]", '{"format": 1}', whole.replace('"accepted"', '"acepted"')):
        Path("other/descent.json").write_text(broken)
        line = fails_with_one(2, "compress", START, "-o", "other")
        assert line.endswith("not the record of a descent of format 3")


def test_a_diagnosis_names_what_is_free_and_what_is_cheap():
    about = json.loads(done("diagnose", CERTIFICATES / "57p", "--problems", 64, "--most", 3, "--try", "--json"))
    assert about["live"] < 57 and len(about["freedoms"]) == 57 - about["live"] and len(about["cheapest"]) == 3
    assert all(c["measured"] > 0 for c in about["cheapest"])
    text = call("diagnose", START, "--problems", 64, "--most", 2, "--reach", "tensor").stdout
    assert text.startswith("46p: θ moves the answers along 46 of 46 directions")
    head, *rows = text.splitlines()[-3:]
    assert head == "increase of the loss (--try measures): predicted, constraint"
    assert 0 < float(rows[0].split()[0]) < float(rows[1].split()[0]) < 1e-5


# ---- a study

STUDY = golden.study_of("46p")


def facts_of(spec, result):
    """By the set and seed alone; what is trained is as it is."""
    return {"best_exact": golden.exact_match(result.pair.ties, result.pair.seed, golden.PARENTS["46p"])}


@pytest.fixture
def untrained(no_ray, quick, here, monkeypatch):
    golden.without_training(monkeypatch, "46p", facts_of)


def run(here, code=0, **changes):
    return call("run", write_study(here, STUDY | changes), "--home", "home", code=code)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The home of the study, run to its end for all who read it."""
    folder = tmp_path_factory.mktemp("descent")
    with without_ray(), quickly(), pytest.MonkeyPatch.context() as patch:
        golden.without_training(patch, "46p", facts_of)
        done("run", write_study(folder, STUDY), "--home", folder / "home")
    return folder / "home"


@needs_compiler
@pytest.mark.usefixtures("quick", "here")
def test_what_is_shown_of_a_descent(ended):
    client, study = connect(Home(ended)), parse_study(json.dumps(STUDY), "")
    tracker, records, best = Tracker(client, Home(ended), study), records_of(ended, "small"), smallest(sets_of(ended))
    log_descents(records, tracker)
    paths = {i.path for i in client.list_artifacts(tracker.study_run().id, "pictures")}
    assert paths == {"pictures/sets-tried.png"}
    assert TREE in {i.path for i in client.list_artifacts(tracker.study_run().id)}
    (row,) = (r for r in rows_of(ended, "small") if r["verified"] is not None)
    assert row["configuration"] == best.configuration and row["verify_calls"] == 1, "the smallest alone"
    shown = call("best", "small", "--lineage", "--home", ended).stdout
    assert shown.startswith("54p") and f"{best.numbers} numbers [study small" in shown
    assert "sets tried from here" in shown
    lineages = json.loads(call("best", "small", "--lineage", "--json", "--home", ended).stdout)["lineages"]
    assert lineages[-1][-1]["params"] == best.numbers and lineages[-1][-1]["tied"]
    done("report", "small", "-o", "page.html", "--home", ended)
    done("status", "small", "--home", ended)


@needs_compiler
@pytest.mark.usefixtures("untrained")
def test_rounds_go_on_from_what_was_accepted_and_nothing_is_tried_twice(ended):
    sets, rows, records = sets_of(ended), rows_of(ended, "small"), records_of(ended, "small")
    assert golden.outline(ended) == DESCENTS["study"]["46p"]
    assert len({t.ties for t in sets}) == len(sets), "one subspace, one set"
    assert len(rows) == 2 * 12 == len(recorded(ended, "small")) and all(row.is_final for row in rows)
    child = next(t for t in sets if t.round == 3)
    parent, configuration = sets[child.parent], records.list_configurations()[child.configuration]
    assert configuration.start.digest == parent.start.digest
    assert configuration.spec.ties == child.ties and configuration.spec.base == preset("46p")
    *_, last = configuration.start.lineage
    assert (last["configuration"], last["params"]) == (parent.configuration, parent.numbers)
    assert last["tied"] and configuration.start.lineage[0]["model"] == "54p"
    again = plan(parse_study(json.dumps(STUDY), ""), records)
    assert again.study_run.add(Configuration(preset("57p"), Recipe())).number == 12, "which seeds are spared stays"
    best = smallest(sets)
    assert lineage_of(sets, best.number)[0].number == 0
    done("pull", "small", "--best", "-o", "best", "--home", ended)
    pulled = Checkpoint.load(Path("best"))
    assert pulled.spec.params == best.numbers and pulled.spec.ties == best.ties
    assert torch.equal(pulled.spec.untie(pulled.theta_P[None])[0], torch.tensor(best.thetas[0]))
    done("rerun", "best")


CUTS = {
    "between proposing and training": (DatabaseCandidates, "propose", "after"),
    "before a round is written": (DatabaseCandidates, "propose", "before"),
    "between recording and judging": (DatabaseCandidates, "judge", "before"),
    "between judging and the next": (DatabaseCandidates, "judge", "after"),
    "in mid-round": (driver.Driver, "_on_report", "after"),
}


@needs_compiler
@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize("where", by_tier(list(CUTS), ["in mid-round"]))
def test_whatever_ends_the_driver_the_same_sets_are_accepted(where, here, monkeypatch):
    cls, name, when = CUTS[where]
    method, calls, outboxes, start = getattr(cls, name), [], [], Outbox.__post_init__

    def die():
        for outbox in outboxes:  # its thread is of the driver that dies
            outbox.close()
        raise Died

    def cut(self, *arguments):
        calls.append(arguments)
        dies = len(calls) in (2, 6)
        if dies and when == "before":
            die()
        result = method(self, *arguments)
        if dies:
            die()
        return result

    monkeypatch.setattr(Outbox, "__post_init__", lambda self: (outboxes.append(self), start(self)))
    monkeypatch.setattr(cls, name, cut)
    for _ in range(2):
        with suppress(Died):  # the second time, if it comes so far
            run(here)
    assert len(calls) >= 2
    monkeypatch.setattr(cls, name, method)
    run(here)
    rows = rows_of(here / "home", "small")
    assert len(set(recorded(here / "home", "small"))) == len(rows) == 24 and all(row.is_final for row in rows)
    assert "nothing left to train" in run(here).stdout and golden.outline("home") == DESCENTS["study"]["46p"]


@needs_compiler
@pytest.mark.usefixtures("untrained")
def test_more_rounds_are_an_edited_file(here):
    run(here, compress=STUDY["compress"] | {"rounds": 2})
    before = golden.outline("home")
    run(here)
    assert golden.outline("home")[: len(before)] == before and max(t.round for t in sets_of("home")) == 3
    run(here, compress=STUDY["compress"] | {"rounds": 9, "patience": 1})
    sets = sets_of("home")
    smaller = [min(t.numbers for t in sets if t.start and t.round <= n) for n in range(sets[-1].round + 1)]
    assert smaller[-1] == smaller[-2], "it ended for want of a smaller set"


@needs_compiler
@pytest.mark.usefixtures("untrained")
def test_what_a_descent_cannot_work_with_is_one_line(here, monkeypatch):
    """A start that is not right enough; a screen that reads what the net lacks, at first and when it goes on."""
    monkeypatch.setattr(AcceptanceSet, "errors", lambda self, theta_P: 12)

    def refused(**changes):
        (line,) = run(here, code=2, **changes).stderr.splitlines()
        return line.removeprefix(f"error: {here / 'small.yaml'}: ")

    assert refused() == "start: 46p has not grokked: it adds 12 of 54,600 of our own problems wrongly"
    looser = STUDY["compress"] | {"accept": {"exact": 0.99}}
    screen = {"screen": {"at": 60, "keep": {"nothing": 0.5}}}
    assert refused(compress=looser, stop=screen).startswith("stop.screen.")
    run(here, compress=looser | {"rounds": 1})
    assert refused(compress=looser, stop=screen).startswith("stop.screen.")


@pytest.mark.parametrize("accept", [{"exact": 0.995}, {"exact": 0.99, "proved": "here"}])
def test_a_study_of_sets_that_were_accepted_for_less_is_not_gone_on_with(accept):
    def study_of(accept):
        return parse_study(json.dumps(STUDY | {"compress": STUDY["compress"] | {"accept": accept}}), "")

    begun = study_of({"exact": 0.99}).model_dump(mode="json", by_alias=True)
    check_extension(study_of({"exact": 0.98}), begun, [])
    with pytest.raises(UserError, match=r"accept: begun with exact 0\.99 and no proof, the file has exact 0\.99"):
        check_extension(study_of(accept), begun, [])


def test_a_round_that_is_written_again_as_the_answer_was_lost_is_there_once(here):
    sets = DatabaseCandidates(records_of(empty_home(here / "home"), "small"))
    for _ in range(2):
        sets.propose([TieCandidate(0, 0, (1, 2)), TieCandidate(1, 0, (1, 1))])
    assert [c.ties for c in sets.read()] == [(1, 2), (1, 1)]
