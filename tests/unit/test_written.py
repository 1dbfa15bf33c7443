"""What a command sets in a study file, names that stand for values, studies that extend others, conditional fields."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from model import preset
from model.tasks import make_task
from model.tied import constrained, tie
from search.cli import main
from search.errors import UserError
from search.kinds.proposals import Proposals
from search.run.source import given_study, read_study
from search.store.home import Home
from search.study.file import Reader, parse_study
from search.study.space import points
from search.study.written import Changes
from tests import needs_plugins
from tests.commands import refusal
from tests.homes import begin_study
from tests.searches import Memory, asked
from trainer.recipe.stages import road_of

pytestmark = pytest.mark.usefixtures("here")
SHORT = {"name": "short", "model": "57p", "recipe": {"steps": 40, "eval_every": 20}, "seeds": [1, 2]}
LISTED = {
    "name": "listed", "seeds": [1],
    "configurations": [{"name": "one", "model": "57p"}, {"name": "two", "model": "67p"}],
}  # fmt: skip
SEARCH = {
    "name": "search", "model": "57p", "seeds": [1], "recipe": {"steps": 40, "eval_every": 20},
    "space": {
        "model.tie_vo": {"choice": [True, False]},
        "recipe.lr": {"float": [0.001, 0.1], "log": True, "points": 3, "when": {"model.tie_vo": True}},
        "recipe.batch": {"choice": [64, 128]},
    },
}  # fmt: skip

TIES = ["fc1[1,4] = -fc1[0,0]", "fc1[1,3] = fc1[0,1]"]

BODY = """
    def __init__(self, vocabulary=7, answers=5):
        super().__init__()
        self.table, self.out = nn.Embedding(vocabulary, 4), nn.Linear(4, vocabulary)

    def forward(self, tokens):
        return self.out(self.table(tokens))
"""


def read(path, home="home", sets=(), env=()):
    said = []
    return read_study(str(path), Home(home), said.append, Changes(tuple(sets), tuple(env))), said


def write(file, **keys):
    Path(file).write_text(json.dumps(keys), encoding="utf-8")
    return file


def named_last(below, above):
    """The spec of a model that is laid over another study's: in a file, over a file's of that, and by a command."""
    write("a.yaml", **SHORT | {"model": below})
    spec = read(write("b.yaml", name="b", extends="a.yaml", model=above))[0].base_spec
    sets = [f"model.{key}={json.dumps(value)}" for key, value in above.items()]
    recorded, _ = given_study(read("a.yaml")[0], Home("home"), print, Changes((*sets,)))
    for study in (read(write("c.yaml", name="c", extends="b.yaml"))[0], recorded, read("a.yaml", sets=sets)[0]):
        assert study.base_spec == spec
    return spec


class TestSet:
    @pytest.mark.parametrize(
        ("study", "text", "expected"),
        [
            (SHORT, "recipe.lr=1e-3", lambda s: s.base_recipe.lr == 0.001),
            (SHORT, "model.tie_vo=false", lambda s: s.base_spec.params == 67),
            (SHORT, "seeds=[5, 6, 7]", lambda s: [seed.init_seed for seed in s.first_seeds] == [5, 6, 7]),
            (SHORT, "name=other", lambda s: s.name == "other"),
            (LISTED, "configurations.two.model=74p", lambda s: [c[0].params for c in s.listed] == [57, 74]),
            (LISTED, "configurations.0.model=74p", lambda s: [c[0].params for c in s.listed] == [74, 67]),
            (SEARCH, "space.recipe.lr.points=5", lambda s: len(points(s.kind.space)) == 12),
            (SEARCH, "space.recipe.warmup={choice: [10, 20]}", lambda s: "recipe.warmup" in s.kind.space),
        ],
    )
    def test_sets_a_key_by_its_path(self, study, text, expected):
        assert expected(read(write("s.yaml", **study), sets=[text])[0])

    @pytest.mark.parametrize(
        ("text", "said"),
        {
            "recipe.lr": "give PATH=VALUE",
            "=3": "give PATH=VALUE",
            "recipe..lr=3": "give PATH=VALUE",
            "recipe.lrr=3": "recipe.lrr: unknown key; did you mean lr",
            "extend=57p": "unknown key; did you mean extends",
            "name.first=3": "name: is 'short', which has no first",
            "seeds.5=3": "has no entry '5'",
            "space.model.args.width={choice: [8, 16]}": "space.model.args.width: unknown field",
            "recipe.lr=[1": "column 3: not valid YAML",
        }.items(),
    )
    def test_another_text_is_one_line(self, text, said):
        assert said in refusal(UserError, read, write("s.yaml", **SHORT), sets=[text])

    def test_the_last_of_two_counts_and_a_shipped_study_can_be_changed(self):
        study, _ = read("57p", sets=["recipe.lr=0.5", "recipe.lr=0.25"])
        assert study.base_recipe.lr == 0.25


class TestEnv:
    def test_only_what_is_named_is_replaced(self, monkeypatch):
        monkeypatch.setenv("RATE", "0.125")
        file = write("s.yaml", **SHORT | {"recipe": {"lr": "${RATE}"}, "about": "at ${RATE}, by ${WHO}"})
        study, _ = read(file, env=["RATE", "WHO=me"])
        assert study.base_recipe.lr == 0.125 and study.about == "at 0.125, by me"

    @pytest.mark.parametrize(
        ("env", "said"),
        [
            ([], "recipe.lr: ${RATE} stands for nothing here; give --env RATE"),
            (["RATE"], "the environment has no RATE"),
            (["RA-TE=1"], "a name has letters, digits and _"),
            (["RATE=fast"], "recipe.lr: must be"),
        ],
    )
    def test_another_name_is_one_line(self, env, said, monkeypatch):
        monkeypatch.delenv("RATE", raising=False)
        file = write("s.yaml", **SHORT | {"recipe": {"lr": "${RATE}"}})
        assert said in refusal(UserError, read, file, env=env)

    def test_a_value_is_data_and_no_yaml_of_the_file(self):
        file = write("s.yaml", **SHORT | {"about": "by ${WHO}"})
        assert read(file, env=["WHO=x, model: 67p"])[0].base_spec.params == 57


class TestExtends:
    def test_keys_are_laid_over_those_of_a_shipped_study(self):
        study, said = read(write("s.yaml", name="mine", extends="57p", recipe={"lr": 0.5}, until=None, seeds=[1, 2]))
        assert (study.name, study.base_recipe.lr, study.base_spec.params) == ("mine", 0.5, 57)
        assert study.base_recipe.steps == 60_000
        (line,) = said
        assert "s.yaml: extends 57p;" in line and "recipe.lr" in line and "until: taken away" in line

    def test_a_file_extends_one_beside_it_that_extends_another(self, tmp_path):
        (tmp_path / "inner").mkdir()
        write("inner/a.yaml", **SHORT)
        write("inner/b.yaml", name="b", extends="a.yaml", recipe={"lr": 0.5})
        write("c.yaml", name="c", extends="inner/b.yaml", recipe={"warmup": 7})
        study, (line,) = read("c.yaml")
        assert (study.base_recipe.lr, study.base_recipe.warmup, study.base_recipe.steps) == (0.5, 7, 40)
        assert line == "c.yaml: extends b; recipe.warmup: 7", "what it changes itself, not what the other one does"

    def test_a_study_recorded_here_is_extended(self):
        begin_study("home", parsed(SHORT))
        study, _ = read(write("s.yaml", name="more", extends="short", recipe={"lr": 0.5}))
        assert study.base_recipe.steps == 40 and study.base_recipe.lr == 0.5

    @pytest.mark.parametrize(
        ("name", "said"),
        {
            "57q": "extends: '57q' is no study of this home",
            "gone.yaml": "extends: 'gone.yaml' is no study",
            3: "extends: must be the name or path of a study",
            "s.yaml": "extends: goes round in a circle (s.yaml -> s.yaml)",
        }.items(),
    )
    def test_what_cannot_be_extended_is_one_line(self, name, said):
        assert said in refusal(UserError, read, write("s.yaml", name="mine", extends=name))

    def test_a_chain_that_is_too_long_is_none_in_a_circle(self):
        for n in range(18):
            write(f"{n}.yaml", name="mine", extends=f"{n + 1}.yaml")
        with pytest.raises(UserError, match="extends: leads through more than 16 studies"):
            read("0.yaml")

    def test_a_name_is_not_taken_over(self):
        with pytest.raises(UserError, match="name: missing"):
            read(write("s.yaml", extends="57p"))

    def test_what_is_said_of_a_strangers_file_is_one_line_of_plain_characters(self):
        recipe = {"steps": 40, "eval_every": 20}
        write("base.yaml", **SHORT | {"name": "b", "about": "x", "configurations": None, "recipe": recipe})
        changed = {"lr": 0.5, "lr_floor": 0.1, "warmup": 3, "beta2": 0.9, "weight_decay": 0, "batch": 64, "hold": 0}
        more = {"carry_mix": 0, "mixed_lengths": 0, "wd_drop": 0.1, "fade_start": 1, "fade_end": 2, "grok_at": 0.9}
        _, (line,) = read(write("s.yaml", name="mine", extends="base.yaml", recipe=changed | more))
        assert line.endswith("; and 1 more") and line.isprintable()

    def test_a_name_that_a_terminal_would_obey_is_shown_as_it_is_written(self):
        write("base.yaml", **SHORT | {"name": "\x1b[2Jgone"})
        _, (line,) = read(write("s.yaml", name="mine", extends="base.yaml"))
        assert "\x1b" not in line and "gone" in line
        file = write("s.yaml", **{"name": "mine", "extends": "base.yaml", "\x1b[2J": 1})
        assert "\x1b" not in refusal(UserError, read, file)

    @needs_plugins
    def test_code_of_a_recorded_module_keeps_its_dollars(self):
        net = "from torch import nn\nSAYS = '${NAME}'\nclass Net(nn.Module):\n" + BODY
        Path("net.py").write_text(net)
        task = {"name": "modular", "modulus": 5}
        begin_study("home", parsed(SHORT | {"model": {"module": "net.py:Net"}, "task": task}))
        study, _ = read("short", sets=["recipe.lr=0.5"])
        assert study.base_recipe.lr == 0.5 and study.base_spec.code == net
        assert read("short")[0].base_spec.code == net
        more, _ = read(write("more.yaml", name="more", extends="short", recipe={"lr": 0.25}))
        assert more.base_spec.code == net

    @needs_plugins
    def test_code_is_that_of_the_file_that_is_named_last(self):
        for file in ("v1.py", "v2.py"):
            Path(file).write_text(f"from torch import nn\n# {file}\nclass Net(nn.Module):\n{BODY}")
        first, second = ({"module": f"v{n}.py:Net"} for n in (1, 2))
        task = {"name": "modular", "modulus": 5}
        write("a.yaml", **SHORT | {"model": first, "task": task})
        write("b.yaml", name="b", extends="a.yaml", model=second)
        recorded = read("a.yaml")[0]
        begin_study("home", recorded)
        found = [
            read("b.yaml")[0],
            read(write("c.yaml", name="c", extends="b.yaml"))[0],
            read(write("d.yaml", name="d", extends="short", model=second))[0],
            read(write("e.yaml", name="e", extends="module", model=second | {"args": None}, task=task, toggle=None))[0],
            read("short", sets=["model.module=v2.py:Net"])[0],
            given_study(recorded, Home("home"), print, Changes(("model.module=v2.py:Net",)))[0],
        ]
        assert [study.base_spec.code for study in found] == [Path("v2.py").read_text()] * len(found)
        with pytest.raises(UserError, match=r"^short: model.module: gone.py: no such file$"):
            read("short", sets=["model.module=gone.py:Net"])

    @pytest.mark.parametrize(
        ("below", "above", "params"),
        [
            ({"checkpoint": "57p.json"}, {"checkpoint": "67p.json"}, 67),
            ({"checkpoint": "57p.json"}, {"preset": "46p"}, 46),
            ({"checkpoint": "57p.json"}, {"tie_vo": False}, 67),
            ({"checkpoint": "57p.json"}, {"family": "rope", "ffn": 3}, 122),
            ({"checkpoint": "tied.json"}, {"base": "57p", "ties": TIES[:1]}, 56),
            ({"base": "57p", "ties": TIES}, {"preset": "46p"}, 46),
            ({"base": "57p", "ties": TIES}, {"checkpoint": "67p.json"}, 67),
            ("57p", {"tie_vo": False}, 67),
        ],
    )
    def test_a_model_is_the_one_that_is_named_last(self, below, above, params):
        for name in ("57p", "67p"):
            write(f"{name}.json", spec=preset(name).as_dict())
        write("tied.json", spec=tie(preset("57p"), constrained(preset("57p"), TIES)).as_dict())
        assert named_last(below, above).params == params

    @needs_plugins
    @pytest.mark.parametrize(
        ("below", "above", "params"),
        [
            ({"module": "net.py:Net", "args": {"vocabulary": 13}}, {"checkpoint": "net.json"}, 108),
            ({"module": "net.py:Net"}, {"preset": "57p"}, 57),
            ({"preset": "57p", "tie_vo": False}, {"module": "net.py:Net"}, 108),
        ],
    )
    def test_a_module_is_a_model_that_is_named_too(self, below, above, params):
        Path("net.py").write_text(f"from torch import nn\nclass Net(nn.Module):\n{BODY.replace('=7', '=12')}")
        own, _ = read(write("own.yaml", **SHORT | {"model": {"module": "net.py:Net"}}))
        write("net.json", spec=own.base_spec.as_dict())
        assert named_last(below, above).params == params

    @pytest.mark.parametrize(
        ("below", "above", "expected"),
        [
            ({"name": "subtraction", "signed": True, "base": 3}, {"name": "addition", "base": 4}, "addition base=4"),
            ({"name": "subtraction", "base": 3}, {"digits": 4}, "subtraction base=3 digits=4"),
            ("subtraction base=3", {"digits": 4}, "subtraction base=3 digits=4"),
        ],
    )
    def test_options_of_a_task_are_those_of_the_one_that_is_named_last(self, below, above, expected):
        write("a.yaml", **SHORT | {"task": below})
        sets = [f"task.{key}={json.dumps(value)}" for key, value in above.items()]
        for study in (read(write("b.yaml", name="b", extends="a.yaml", task=above))[0], read("a.yaml", sets=sets)[0]):
            assert study.base_spec.task == make_task(expected)

    def test_stages_of_another_study_are_asked_ones_own_task(self):
        stages = [{"name": "wide", "model": "67p"}, {"name": "last", "into": "57p"}]
        stages = [{"recipe": {"steps": 40, "ramp": 20 * n}, **stage} for n, stage in enumerate(stages)]
        recipe = SHORT["recipe"] | {"steps": 100, "stages": stages}
        write("a.yaml", **SHORT | {"recipe": recipe, "task": "addition base=3"})
        own = {"name": "b", "task": "addition base=4"}
        recorded, _ = read("a.yaml")
        definition = {"short": json.loads(recorded.model_dump_json(by_alias=True))}
        for study in (
            read(write("b.yaml", extends="a.yaml", **own))[0],
            Reader(recorded=definition.get).study(json.dumps(own | {"extends": "short"}), "b", Path()),
            given_study(recorded, Home("home"), print, Changes((f"task={own['task']}",)))[0],
        ):
            assert {stage.spec.task for stage in road_of(study.base_recipe)} == {make_task(own["task"])}
            assert study.base_spec.task == make_task(own["task"])
        assert "stages" not in read(write("c.yaml", name="c", extends="a.yaml", seeds=[3]))[1][0]


def study_of(sampler, **space):
    return SEARCH | {"sampler": sampler, "space": SEARCH["space"] | space}


def parsed(study):
    return parse_study(json.dumps(study), "test")


class TestSpace:
    def test_points_are_values_on_a_grid(self):
        whole = study_of({"name": "grid"}, **{"recipe.warmup": {"int": [1, 1000], "log": True, "points": 4}})
        space = parsed(whole).kind.space
        assert list(space["recipe.lr"].values()) == [0.001, 0.01, 0.1]
        assert list(space["recipe.warmup"].values()) == [1, 10, 100, 1000]

    def test_a_field_is_searched_only_where_its_condition_holds(self):
        proposals = points(parsed(SEARCH).kind.space)
        assert len(proposals) == 2 * 3 + 2
        assert all(("recipe.lr" in numbers) == numbers["model.tie_vo"] for numbers in proposals)

    @pytest.mark.parametrize("sampler", ["grid", "tpe", "nsga2", "qmc", "random"])
    def test_every_sampler_proposes_and_goes_on(self, sampler):
        counts, ledger = (None, None) if sampler == "grid" else (6, 9), Memory()
        first, more = (parsed(study_of({"name": sampler, "configurations": count})) for count in counts)
        found = asked(Proposals(first, ledger), 6) + asked(Proposals(more, ledger))
        assert len(found) == more.planned == {"grid": 8}.get(sampler, 9)
        assert sampler != "grid" or len(set(found)) == 8
        default = more.base_recipe.lr
        assert all(c.recipe.lr in ((0.001, 0.01, 0.1) if c.spec.tie_vo else (default,)) for c in found)

    @pytest.mark.parametrize(
        ("field", "said"),
        [
            ({"float": [0.1, 0.2], "when": {"model.tie_vo": 3}}, "model.tie_vo is never 3"),
            ({"float": [0.1, 0.2], "when": {"model.tie_v": True}}, "did you mean model.tie_vo"),
            ({"float": [0.1, 0.2], "when": {}}, "at least 1"),
            ({"float": [0.1, 0.2], "points": 1}, "greater than or equal to 2"),
            ({"float": [0.1, 0.2], "points": 3, "step": 0.1}, "not with step"),
            ({"choice": [0.1, 0.2], "points": 3}, "points go with float or int"),
            ({"float": [0.1, 0.2], "when": {"recipe.lr": 0.1}}, "recipe.lr is no choice"),
        ],
    )
    def test_a_condition_that_means_nothing_is_refused(self, field, said):
        assert said in refusal(UserError, parsed, study_of({}, **{"recipe.lr": field}))

    def test_true_is_not_one_and_null_is_a_choice(self):
        refused = {"listed twice": [None, None], "batch": [True, 1], "must be an integer, got None": [None, 64]}
        for said, choice in refused.items():
            with pytest.raises(UserError, match=said):
                parsed(study_of({}, **{"recipe.batch": {"choice": choice}}))


def test_the_command_takes_both_and_reads_a_pipe():
    text = json.dumps(SHORT | {"recipe": {"steps": "${STEPS}", "eval_every": 10}})
    words = ["run", "-", "--dry-run", "--env", "STEPS=70", "--set", "seeds=[1, 2, 3]"]
    ended = CliRunner().invoke(main, words, input=text)
    assert ended.exit_code == 0, ended.output
    assert "70 steps each" in ended.output and "3 to train" in ended.output
