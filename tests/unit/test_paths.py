"""Paths as people write them: tildes, characters that mean something in URLs, what is there; a plan writes nothing."""

import os
import shlex
from pathlib import Path

import click
import pytest

from model import PRESETS
from search import cli, plugins
from search.cli.listed import Listed
from search.cli.options import ExpandedPath, check_file, write_file, write_text
from search.cli.surroundings import PATHS, settle_environment
from search.errors import UserError
from search.store.home import Home, home_flag, typed
from search.store.ledger import Ledger
from search.study.file import parse_study
from tests.bad_studies import GOOD
from tests.commands import call, done, fails_with_one
from tests.homes import empty_home
from tracking.store import connect
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.files.installed import cache_folder
from trainer.files.paths import expanded

pytestmark = pytest.mark.usefixtures("here")
ODD = ["what?x=1&y", "50%20", "a#b c", "é→", "{x}", "'q\"", "file:x", ":memory:"]


@pytest.fixture(autouse=True)
def user(tmp_path, monkeypatch):
    """The user's home folder."""
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    (tmp_path / "me").mkdir()
    return tmp_path / "me"


def names(folder="."):
    return sorted(path.name for path in Path(folder).iterdir())


# ---- tildes


def parameters():
    """Every option and argument of every command, the notebook's among them, by command."""
    points = plugins.added(plugins.COMMANDS).items()
    listed = cli.main.commands | {name: cli.load_plugin(point) for name, point in points}
    commands = {name: c.load() if isinstance(c, Listed) else c for name, c in listed.items()}
    return [(name, parameter) for name, command in commands.items() for parameter in command.params]


def test_every_path_of_every_command_has_the_one_type():
    paths = [(name, p) for name, p in parameters() if isinstance(p.type, click.Path | click.File)]
    assert len(paths) > 30 and all(isinstance(p.type, ExpandedPath) for _, p in paths)
    named = {"study", "studies", "plan", "checkpoint", "checkpoints", "target", "home", "file", "folder", "beside"}
    texts = [f"{n} {p.name}" for n, p in parameters() if p.name in named and not isinstance(p.type, ExpandedPath)]
    assert {*texts} <= {"prove study", "publish study"}, "names alone"


def test_no_time_is_without_an_end():
    for command in ("run", "resume"):
        for number in ("inf", "0", "-1"):
            said = call(command, "smoke", "--max-hours", number)
            assert said.exit_code == 2 and "Invalid value for '--max-hours'" in said.stderr and names() == ["me"]


def test_no_number_of_any_command_is_infinite():
    kinds = [p.type for _, p in parameters() if isinstance(p.type, click.types.FloatParamType)]
    assert kinds
    for kind in kinds:
        for number in ("nan", "inf", "-inf", "1e400"):
            with pytest.raises(click.BadParameter):
                kind.convert(number, None, None)


def test_a_tilde_is_the_users_home_folder_wherever_it_is_given(user, monkeypatch):
    Checkpoint(PRESETS["57p"], PRESETS["57p"].initial(3)).save(user / "c")
    (user / "s.yaml").write_text(GOOD)
    assert str(user / "r") in done("run", "~/s.yaml", "--dry-run", "--home=~/r")
    monkeypatch.setenv("ADDER_SEARCH_HOME", "~/e")
    assert Home().path == user / "e" and Home("~/f").path == user / "f"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///~/m.db")
    assert Home().tracking_uri == f"sqlite:///{user}/m.db"
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "~/g")
    assert cache_folder() == user / "g/adder-search"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "~/h")
    assert cache_folder() == user / "h"
    study = parse_study("name: x\nseeds: [1]\nmodel: {checkpoint: ~/c}", "x")
    assert study.base_spec == PRESETS["57p"]
    for text in ("model: {base: 57p, ties: ~/none}", "model: 57p\nrecipe: {teacher: ~/none}"):
        with pytest.raises(UserError, match=f"{user}/none: no such"):
            parse_study(f"name: x\nseeds: [1]\n{text}", "x")
    (user / "t.csv").write_text("recipe.lr,value\n0.02,1\n")
    warm = "space: {recipe.lr: {float: [0.01, 0.03]}}\nsampler: {name: tpe, configurations: 4, warm_start: ~/t.csv}"
    assert parse_study(f"name: x\nextends: ~/s.yaml\n{warm}", "x").sampler.warm_start.trials
    line = "name: x\nmodel: 57p\nstart: {checkpoint: ~/none}\nseeds: [1]"
    (user / "s.yaml").write_text(line)
    assert f"start.checkpoint: {user}/none: no such" in fails_with_one(2, "run", "~/s.yaml", "--dry-run")
    assert names() == ["me"], "and nothing is called ~"


def test_libraries_and_processes_get_the_variables_expanded(user, monkeypatch):
    for name in PATHS:
        monkeypatch.setenv(name, f"~/{name}")
    settle_environment()
    assert [os.environ[name] for name in PATHS] == [f"{user}/{name}" for name in PATHS]


@pytest.mark.parametrize(
    "words", [["status", "--home=~nobody-here/r"], ["verify", "~nobody-here"], ["run", "~nobody-here/s"]]
)
def test_a_tilde_that_stands_for_nobody(words, monkeypatch):
    said = call(*words)
    assert (
        said.exit_code == 2 and "no home folder is known for ~nobody-here; a file of that name is ./~nob" in said.stderr
    )
    monkeypatch.setenv("ADDER_SEARCH_HOME", "~nobody-here")
    said = "ADDER_SEARCH_HOME: ~nobody-here: no home folder is known for ~nobody-here; "
    assert fails_with_one(2, "status").startswith(said)


@pytest.mark.parametrize("name", ["~", "~x", "-x", "a b", "$HOME", "plain"])
def test_a_printed_path_is_that_path_when_it_is_typed(name):
    (word,) = shlex.split(typed(name))
    assert Path(expanded(word)) == Path(name) and not word.startswith("-")
    assert shlex.split(home_flag(Home(f"./{name}"))) == ["--home", word]


# ---- characters


@pytest.mark.parametrize("name", ODD)
def test_a_home_may_have_any_path(name):
    ledger = Ledger(empty_home(name))
    assert ledger.list_studies() == [] and Path(name, "records.db").is_file()
    assert Home(name).tracking_uri.startswith("sqlite") and names() == sorted(["me", name])


def test_progress_of_each_study_is_a_file_of_its_own(here):
    names = ("rate", "rate.a", "rate.b", "rate.a.new")
    assert len({Home("home").progress(name) for name in names}) == len(names)


def test_mlflow_makes_no_folder_beside_a_home():
    """It makes that of an address by its letters, in which ? is %3F."""
    connect(empty_home(name := "what?50%20 é{x}"), creates=True)
    assert names() == sorted(["me", name])


# ---- files that are there


def test_an_output_is_whole_or_not_there(here):
    write_text(Path("x.html"), "one")
    Path("x.html.new").write_text("mine")

    def fail(path):
        path.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match=r"x\.html: cannot write there"):
        write_file(Path("x.html"), fail)
    assert Path("x.html").read_text() == "one" and Path("x.html.new").read_text() == "mine"
    write_text(Path("x" * 250 + ".html"), "two")
    assert len(names()) == 4


def test_behind_a_link_the_file_is_replaced():
    Path("folder").mkdir()
    Path("folder/x").write_text("old")
    Path("link").symlink_to("folder/x")
    write_text(Path("link"), "new")
    assert Path("link").is_symlink() and Path("folder/x").read_text() == "new" and names("folder") == ["x"]


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "link to a device"])
def test_what_is_no_file_is_not_replaced_by_one(kind):
    """As root a renamed file would take the place of /dev/null for the whole machine."""
    target = Path("/dev/null" if kind == "device" else "there")
    {"pipe": os.mkfifo, "folder": os.mkdir, "device": lambda path: None,
     "link to a device": lambda path: path.symlink_to("/dev/null")}[kind](target)  # fmt: skip
    with pytest.raises(UserError, match=r"is a folder|is no regular file; give another name with -o"):
        check_file(target)


# ---- a plan


def tree(folder):
    return sorted((str(path), path.lstat().st_mtime_ns, path.lstat().st_size) for path in folder.rglob("*"))


def test_a_dry_run_writes_nothing_anywhere(here, monkeypatch):
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TMPDIR", "RAY_TMPDIR", "MPLCONFIGDIR"):
        (here / name).mkdir()
        monkeypatch.setenv(name, str(here / name))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("ADDER_SEARCH_DEPOT", (here / "depot").as_uri())
    Ledger(empty_home(here / "begun"))
    before = tree(here)
    for study, home, *more in (("smoke", "none", "--fresh"), ("fade", "begun"), ("luck", "begun", "--fresh")):
        done("run", study, "--dry-run", "--home", home, *more)
    assert tree(here) == before
