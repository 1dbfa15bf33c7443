"""Driver and workers that see no folder in common: their files go through a store, whole or not at all.

The stores are real: S3's protocol by moto's server on loopback, and a folder.
"""

import shutil
from unittest.mock import Mock

import pytest

from search.errors import Failure, UserError
from search.run import worker
from search.store import depot as depots
from search.store.depot import Depot
from search.store.results import PARTS, STATE
from search.study.trial import TRIAL_FILE
from tests.commands import call
from tests.crashes import Disk
from tests.homes import quickly
from tests.object_server import object_server
from tests.reference import check_whole, expected, rows_of
from tests.scenarios.studies import SHORT as QUICK
from tests.scenarios.studies import run


@pytest.fixture(scope="module")
def server():
    with object_server() as found:
        yield found


@pytest.fixture
def bucket(server, tmp_path, monkeypatch):
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    return server.uri(tmp_path.name)


@pytest.fixture(params=["s3", "file"])
def uri(request, tmp_path):
    """A store of each kind, empty."""
    return request.getfixturevalue("bucket") if request.param == "s3" else f"file://{tmp_path}/store"


@pytest.fixture
def two(uri, tmp_path):
    """Two machines, each with a folder of its own, and where each has a trial's results."""
    depots = [Depot(tmp_path / name, uri) for name in ("one", "other")]
    return *depots, *(d.root / "study" / "trial" / "results" for d in depots)


def leave(folder, *texts):
    """A folder with a file for each text, some of them deeper."""
    shutil.rmtree(folder, ignore_errors=True)
    for n, text in enumerate(texts):
        path = folder / ("deeper" if n % 2 else "") / str(n)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def texts_of(folder):
    return [p.read_text() for p in sorted(folder.rglob("*"), key=lambda p: p.name) if p.is_file()]


# ---- a store


def test_a_file_is_had_as_it_was_left_last(two):
    one, other, mine, its = two
    assert not other.get(its) and not its.exists()
    mine.parent.mkdir(parents=True)
    for text in ("first", "second, longer", ""):
        mine.write_text(text)
        one.put(mine)
        assert other.get(its) and its.read_text() == text
    one.remove(mine)
    assert not other.get(its) and mine.exists(), "what is here stays"
    one.remove(mine)


def test_a_folder_is_had_whole(two):
    one, other, mine, its = two
    assert not other.get_folder(its) and not other.has_folder(its)
    leave(mine, "a", "b", "c")
    one.put_folder(mine)
    assert other.has_folder(its) and not its.exists()
    assert other.get_folder(its) and texts_of(its) == ["a", "b", "c"]
    leave(mine, "another")
    one.put_folder(mine)
    assert other.get_folder(its) and texts_of(its) == ["a", "b", "c"], "what is here is not fetched again"
    shutil.rmtree(its)
    assert other.get_folder(its) and texts_of(its) == ["another"]
    shutil.rmtree(its)
    one.remove(one.root / "study")
    assert not other.get_folder(its) and not other.has_folder(its)


def test_whenever_the_power_goes_a_folder_is_left_and_fetched_whole_or_not_at_all(tmp_path):
    """The store a folder, the power that of the machine that leaves, fetches and removes."""
    seen, after = tmp_path / "seen", []
    seen.mkdir()
    disk, one, other = Disk(seen), *(Depot(seen / name, f"file://{seen}/store") for name in ("one", "other"))
    mine, its = (depot.root / "study" / "trial" / "results" for depot in (one, other))
    with disk.recording():
        for texts in (["a", "b", "c"], ["another"]):
            leave(mine, *texts)
            one.put_folder(mine)
            after.append(disk.moments)
        other.get_folder(its)
        after.append(disk.moments)
        one.remove(mine)
    assert len(disk.found) > 30
    first, second = ["a", "b", "c"], ["another"]
    allowed = [[], first], [first, second], [second], [second, []]
    for number, left in enumerate(disk.found):
        found = left.restore(tmp_path / str(number))
        if (found / its.relative_to(seen)).exists():
            assert texts_of(found / its.relative_to(seen)) == ["another"], left.how
        fresh = Depot(found / "third", f"file://{found}/store")
        fresh.get_folder(fresh.root / "study" / "trial" / "results")
        there = texts_of(fresh.root)
        for moment in left.moments:
            done = sum(moment > end for end in after)
            assert there in allowed[done], left.how


def test_whichever_call_to_a_store_fails_it_is_tried_again(two, monkeypatch):
    """Or at once a failure, to who has no patience; what is there is old or new."""
    one, other, mine, its = two
    monkeypatch.setattr(depots, "RETRY_S", 0.0)
    for at in range(1, 9):
        failed = []

        def flaky(call, at=at, failed=failed):
            def calling(depot, *given):
                failed.append(call.__name__)
                if len(failed) == at:
                    raise OSError("cut off")
                return call(depot, *given)

            return calling

        with monkeypatch.context() as patch:
            for name in ("_write", "_read", "_delete"):
                patch.setattr(Depot, name, flaky(getattr(Depot, name)))
            leave(mine, f"a{at}", "b")
            one.put_folder(mine)
            shutil.rmtree(its, ignore_errors=True)
            assert other.get_folder(its) and texts_of(its) == [f"a{at}", "b"]
            one.remove(mine)
            assert not one.has_folder(mine.with_name("none"))
        assert len(failed) >= at
    monkeypatch.setattr(Depot, "_write", write := Mock(side_effect=OSError("cut off")))
    with pytest.raises(Failure, match="cut off"):
        one.put(mine / "0", patient=False)
    assert write.call_count == 1
    monkeypatch.setattr(depots, "PATIENCE_S", 0.0)
    with pytest.raises(Failure, match=r"^ADDER_SEARCH_DEPOT: \w+://.*: cut off$"):
        one.put(mine / "0")


@pytest.mark.parametrize(
    "uri",
    [
        "bucket",
        "s3://key:word@bucket/x",
        "abfs://files:word@account.dfs.core.windows.net/x",
        "s3://bucket/x?secret_key=a",
        "nokind://bucket/x",
    ],
)
def test_what_names_no_store_or_a_password_is_refused(uri, tmp_path):
    with pytest.raises(UserError, match="ADDER_SEARCH_DEPOT") as refused:
        Depot(tmp_path, uri)
    assert "word" not in str(refused.value).replace("password", "") and "=a" not in str(refused.value)


def test_a_container_of_an_account_is_a_store(tmp_path):
    assert Depot(tmp_path, "abfs://files@account.dfs.core.windows.net/x").prefix == "files/x"


# ---- a study


@pytest.fixture
def apart(bucket, no_ray, here, few_selection_problems, monkeypatch):
    """A driver's environment; workers that see nothing of its home."""
    monkeypatch.setenv(depots.VARIABLE, bucket)
    whole, folders = worker.run_trial, []

    def run_trial(folder, *rest):
        assert not folder.is_relative_to(here), "the driver's folders are none of a worker's"
        folders.append(folder)
        yield from whole(folder, *rest)

    monkeypatch.setattr(worker, "run_trial", run_trial)
    with quickly():
        yield folders


@pytest.mark.full
def test_a_study_through_a_store_is_what_it_is_on_one_machine(apart, bucket, here, monkeypatch):
    """To the bit; the store keeps nothing of what is recorded."""
    said = run(QUICK, here)
    assert said.exit_code == 0, said.output
    assert apart and not any(folder.exists() for folder in apart)
    check_whole(here / "home", QUICK, expected(QUICK))
    left = Depot(here / "elsewhere", bucket)
    for key in {r["trial"] for r in rows_of(here / "home", "quick")}:
        folder = left.root / "quick" / key
        for file in (folder / TRIAL_FILE, folder / STATE, folder.with_name(key + ".assignment")):
            assert not left.get(file)
        assert not left.has_folder(folder / PARTS)
    assert call("pull", "quick", "--seed", "6", "-o", "six", "--home", "home").exit_code == 0
    assert call("records", "quick", "--of", "curves", "-o", "curves.csv", "--home", "home").exit_code == 0


def test_a_worker_that_dies_goes_on_from_its_state_on_another_machine(apart, here, monkeypatch):
    happened, whole_put, whole_load = [], Depot.put, worker.Bank.load

    def put(depot, path, patient=True):
        whole_put(depot, path, patient)
        if path.name == STATE and not happened:
            happened.append("died")
            raise RuntimeError("its node is gone")

    def load(bank, path, numbers):
        if found := whole_load(bank, path, numbers):
            happened.append("went on")
        return found

    monkeypatch.setattr(Depot, "put", put)
    monkeypatch.setattr(worker.Bank, "load", load)
    study = QUICK | {"faults": {"max_failures": 1}}
    assert run(study, here).exit_code == 0
    assert happened == ["died", "went on"]
    assert len({folder.name for folder in apart}) == len(set(apart)) - 1, "one of them twice"
    check_whole(here / "home", study, expected(study))
