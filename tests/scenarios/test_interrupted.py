"""A study whose driver ends anywhere is recorded as if nothing had happened: each seed once, to the bit. And
screened studies from file to records.

Whole runs by the command, with everything but Ray (tests/in_process.py) and pictures. With Ray, and killed for
real: tests/slow/test_signals.py and test_faults.py.
"""

from contextlib import suppress

import pytest

from search.run.driver import Driver
from search.run.executor import ExecutorDied, LocalExecutor
from tests import by_tier
from tests.commands import done
from tests.reference import check_whole, client_of, expected, rows_of, runs_of
from tests.scenarios.studies import MIXED, SCREENED, STAGED, UNTIL, run, run_whole
from tracking.store import KEY_TAG
from trainer import Outcome

pytestmark = pytest.mark.usefixtures("few_selection_problems", "no_ray", "quick", "here", "nobody_spared")


SEARCH = SCREENED | {
    "name": "searched",
    "seeds": {"first": 1, "count": 4},
    "space": {"recipe.lr": {"choice": [0.01, 0.02]}},
    "sampler": {"name": "grid", "objectives": ["per_million"]},
    "stop": {"hopeless": False, "screen": {"at": 8, "keep": {}}},
    "confirm": {"configurations": 1, "seeds": {"first": 90, "count": 2}},
}
"""By grokked seeds per million seed-steps, of which there are none."""


class Died(BaseException):
    """In the place of SIGKILL: nothing is written any more."""


# The study with the fewest reports has ten.
MOMENTS = {f"{error.__name__} {at}": (error, at) for error in (KeyboardInterrupt, Died) for at in range(2, 10)}
STUDIES = {
    "seeds of two lengths that share a bank": MIXED,
    "seeds that are screened": SCREENED,
    "a search": SEARCH,
    "stages": STAGED,
}


def interrupt(monkeypatch, error, at, is_taken=False):
    """The driver ends at its at-th report, before or after it is taken."""
    remaining, whole = [at], Driver._on_report

    def on_report(self, report, executor):
        remaining[0] -= 1
        if remaining[0] or is_taken:
            whole(self, report, executor)
        if remaining[0] == 0:
            raise error

    monkeypatch.setattr(Driver, "_on_report", on_report)


CASES = {f"{name}, {moment}": (name, moment) for name in STUDIES for moment in MOMENTS}
QUICK = list(zip(STUDIES, ("Died 5", "KeyboardInterrupt 2") * 2, strict=True))


@pytest.mark.parametrize("case", by_tier(CASES, QUICK))
def test_a_study_ends_the_same_wherever_its_driver_did(case, here, monkeypatch):
    study, moment = STUDIES[case[0]], MOMENTS[case[1]]
    interrupt(monkeypatch, *moment)
    with suppress(Died):
        run(study, here, code=130)
    reached = {r["init_seed"]: r["steps"] for r in rows_of(here / "home", study["name"]) if not r.is_final}
    assert reached, "there was something to interrupt"
    run_whole(study, here)


@pytest.mark.usefixtures("groks")
@pytest.mark.parametrize("at", by_tier(range(4, 10), [6]))
def test_a_driver_that_dies_with_enough_ends_the_same(at, here, monkeypatch):
    """Before or after seeds that were cut are recorded."""
    interrupt(monkeypatch, KeyboardInterrupt, at)
    run(UNTIL, here, code=130)
    run(UNTIL, here)
    rows = {r["init_seed"]: r for r in rows_of(here / "home", "until")}
    assert rows[7]["outcome"] == Outcome.GROKKED
    assert all(r.is_final or 0 < r["steps"] < 16 for r in rows.values())


def test_seeds_go_on_from_their_own_states(reports, here, monkeypatch):
    """Of those in one bank each begins where it was saved."""
    interrupt(monkeypatch, KeyboardInterrupt, 4, is_taken=True)
    run(MIXED, here, code=130)
    rows = [r for r in rows_of(here / "home", "quick") if not r.is_final and r["steps"]]
    reached = {(r["configuration"], r["init_seed"]): r["steps"] for r in rows}
    before = len(reports)
    run(MIXED, here)
    first = {}
    for _, steps in reversed(reports[before:]):
        first |= steps
    assert len(reached) == 4 and all(first[seed] >= number for seed, number in reached.items())


def test_a_run_that_is_out_of_time_goes_on_by_name(here, monkeypatch):
    check = Driver._check_end  # which looks at the clock, here once pairs are handed out
    monkeypatch.setattr(Driver, "_check_end", lambda run: check(run) if run.planner.training else None)
    said = run(MIXED, here, "--max-hours", "0.0000001", code=130)
    assert "To go on:\n  adder-search run" in said.stdout
    reasons = {(r["outcome"], r["reason"]) for r in rows_of(here / "home", "quick")}
    assert reasons == {(Outcome.CENSORED, "time limit")}
    statuses = {r.info.status for r in runs_of(client_of(here / "home"), "quick") if KEY_TAG in r.data.tags}
    assert statuses == {"KILLED"}
    (here / "quick.yaml").unlink()  # the ledger knows it
    done("resume", "quick", "--home", "home")
    check_whole(here / "home", MIXED, expected(MIXED))


# ---- screens


def test_a_screened_study_records_each_seed_once_with_its_outcome(here):
    study = SCREENED
    said = run(study, here)
    check_whole(here / "home", study, wanted := expected(study))
    screened = [key for key, (*_, outcome) in wanted.items() if outcome == Outcome.SCREENED]
    assert f"screened: {len(screened)} of 8" in said.stdout and 1 < len(screened) < 8
    (run_,) = [r for r in runs_of(client_of(here / "home"), "screened") if "final.screened" in r.data.metrics]
    assert run_.data.metrics["final.screened_wrongly"] == len(screened), "nobody was spared"
    probes = {f"first_seeds.probe.{name}" for name in ("odd", "basin", "stride", "lead")}
    assert probes <= run_.data.metrics.keys()
    assert f"{len(screened)} screened" in done("status", study["name"], "--home", "home")


def test_a_run_whose_ray_died_names_the_command_that_goes_on(here, monkeypatch):
    def poll(self, timeout_s):
        raise ExecutorDied("Ray's node has died")

    monkeypatch.setattr(LocalExecutor, "poll", poll)
    result = run(UNTIL, here, code=1)
    command = f"adder-search run {here / UNTIL['name']}.yaml --home home"
    what_is_left = "What has ended is recorded, the rest is saved. To go on:"
    assert result.stderr == f"error: Ray's node has died. {what_is_left} {command}\n"
