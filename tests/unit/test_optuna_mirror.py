"""The mirror of a search for Optuna's dashboard: it follows, is written anew where it does not fit, goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import RDBStorage

from search.run.proposals import Proposals
from search.store.home import Home
from search.tracking.optuna_mirror import Mirror, delete_mirror
from tests.homes import records_of
from tests.searches import IMPOSSIBLE, NARROW, SPACE, Memory, asked, proposals_of, row, train


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.delenv("ADDER_SEARCH_DATABASE", raising=False)
    return Home(tmp_path)


def mirror_of(proposals: Proposals, home: Home) -> Mirror:
    return Mirror(records_of(home, "x"), proposals.objectives)


def read(home: Home, study: str = "x") -> optuna.Study:
    storage = RDBStorage(home.optuna_url, skip_compatibility_check=True, skip_table_creation=True)
    return optuna.load_study(study_name=study, storage=storage)


def shown(home: Home, study: str = "x") -> list[tuple[Any, ...]]:
    found = read(home, study).trials
    return [(t.state.name, t.params, t.distributions, t.values, t.user_attrs) for t in found]


def of(proposals: Proposals) -> list[tuple[Any, ...]]:
    found = proposals.trials()
    return [(t.state.name, t.params, t.distributions, t.values, t.user_attrs) for t in found]


def names(found: list[tuple[Any, ...]]) -> list[str]:
    return [state for state, *_ in found]


@pytest.mark.parametrize("space", [SPACE, IMPOSSIBLE])
def test_it_follows_what_is_proposed_and_told(space: str, home: Home) -> None:
    proposals = proposals_of(Memory(), "random", 6, space)
    mirror, training = mirror_of(proposals, home), []
    while (configuration := proposals.ask()) is not None:
        training.append(configuration)
        mirror.update(proposals.trials())
        assert shown(home) == of(proposals)
        if len(training) > 2:
            train(proposals, training.pop(1), row(token=0.3))
    for _ in range(2):
        mirror.update(proposals.trials())
        assert shown(home) == of(proposals)
    found = read(home)
    assert found.metric_names == list(proposals.objectives)
    assert [d.name.lower() for d in found.directions] == list(proposals.objectives.values())


def other_values(ledger: Memory) -> Proposals:
    ledger.recorded[0]["best_token"] = 0.9
    return proposals_of(ledger, space=NARROW)


def other_proposals(ledger: Memory) -> Proposals:
    """As by a ledger that was brought back from a copy."""
    ledger.proposed.pop()
    proposals = proposals_of(ledger, "random", space=NARROW)
    proposals.ask()
    return proposals


OTHERS = [other_values, other_proposals]


@pytest.mark.parametrize("other", OTHERS)
def test_what_does_not_fit_is_written_anew(other: Any, home: Home) -> None:
    ledger = Memory()
    first = proposals_of(ledger, space=NARROW)
    asked(first, 2)
    first.ask()
    neighbour = Mirror(records_of(home, "other"), first.objectives)
    for mirror in (mirror_of(first, home), neighbour):
        mirror.update(first.trials())
    then = other(ledger)
    mirror_of(then, home).update(then.trials())
    assert shown(home) == of(then) and shown(home, "other") == of(first)
    assert read(home).metric_names == list(then.objectives)
    assert optuna.get_all_study_names(home.optuna_url) == ["other", "x"]


def test_deleting_a_search_deletes_its_mirror_alone(home: Home) -> None:
    delete_mirror(records_of(home, "x"))
    assert not home.optuna_db.exists()
    proposals = proposals_of(Memory(), space=NARROW)
    asked(proposals, 1)
    for name in ("x", "other"):
        Mirror(records_of(home, name), proposals.objectives).update(proposals.trials())
    for _ in range(2):
        delete_mirror(records_of(home, "x"))
        assert optuna.get_all_study_names(home.optuna_url) == ["other"]
    home.optuna_db.unlink()
    home.optuna_db.touch()
    delete_mirror(records_of(home, "x"))
    assert not home.optuna_db.stat().st_size, "to ask makes no tables"
