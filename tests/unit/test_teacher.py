"""Learning from a teacher: the loss is Hinton's, in torch and in the engine, and a recipe has the teacher
itself, not where it lay.
"""

import json

import pytest
import torch
from torch.nn import functional

from model import preset
from model.tied import Tied, constrained
from search.errors import UserError
from search.study.file import parse_study
from search.study.trial import Configuration
from tests.banks import EVERY, SPEC, make, pair
from tests.specs import some_tokens
from tests.unit.test_losses import ALL, PROBLEMS, needs_compiler
from trainer import Recipe
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.checkpoints.teachers import read_teacher
from trainer.engine.native import EngineBackend
from trainer.recipe.teacher import Teacher, teacher_of
from trainer.step import step
from trainer.step.objective import Objective
from trainer.step.schedule import hyper_of

WIDER = preset("100p")  # of the same sequence, and attention differs by problem
THETA = tuple((0.3 * WIDER.initial(5) + 0.1).tolist())
WORD = Teacher(WIDER, THETA).word
FIELDS = {"teacher": WORD, "distill_alpha": 0.75, "distill_temperature": 3.0}


@pytest.mark.parametrize("more", [{}, {"label_smoothing": 0.125, "focal_gamma": 1.5}], ids=["plain", "both"])
def test_torchs_loss_is_hintons(more):
    """(1 - α) of the other loss, α T² KL by torch's own function, in float64."""
    tokens = some_tokens(SPEC, 1, PROBLEMS)
    theta = (SPEC.initial(1)[None].double() + 0.1).requires_grad_()
    recipe = Recipe(**FIELDS, **more)
    hyper = {n: t.double() for n, t in hyper_of([recipe]).items()}
    target = tokens[:, SPEC.prompt :].long()
    mine, theirs = (
        torch.stack(torch.broadcast_tensors(*spec.forward(t, tokens[:, :-1], first=spec.prompt - 1)), dim=-1)
        for spec, t in ((SPEC, theta), (WIDER, torch.tensor([THETA], dtype=torch.float64)))
    )
    apart = functional.kl_div(
        (mine / 3).log_softmax(-1), (theirs / 3).log_softmax(-1), reduction="none", log_target=True
    )
    hard = functional.cross_entropy(
        mine.flatten(0, -2),
        target.flatten(),
        label_smoothing=more.get("label_smoothing", 0.0),
        reduction="none",
    )
    right = mine.softmax(-1).gather(-1, target[..., None]).flatten()
    hard = (1 - right) ** more.get("focal_gamma", 0.0) * hard
    expected = 0.25 * hard.mean() + 0.75 * 9 * apart.sum(-1).mean()
    got = Objective.of(SPEC, recipe)(SPEC, theta, tokens, hyper)
    torch.testing.assert_close(got[0], expected, rtol=1e-9, atol=1e-12)
    pulled, wanted = (torch.autograd.grad(x, theta)[0] for x in (got.sum(), expected))
    torch.testing.assert_close(pulled, wanted, rtol=1e-7, atol=1e-10)


@needs_compiler
@pytest.mark.usefixtures("few_selection_problems")
@pytest.mark.parametrize("more", [{}, ALL], ids=["alone", "all"])
def test_the_engine_takes_the_steps_that_torch_takes(more):
    pairs = [pair(s, **FIELDS, **more, steps=4 * EVERY, warmup=3) for s in (1, 2)]
    engine, eager = make(pairs), make(pairs, compiled=False)
    assert isinstance(engine.programs, EngineBackend) and not isinstance(eager.programs, EngineBackend)
    for _ in range(2):
        engine.advance(), eager.advance()
        torch.testing.assert_close(engine.state["theta"], eager.state["theta"], rtol=2e-3, atol=2e-3)
    for n in range(2):
        found, expected = engine.result(n).curve_EM, eager.result(n).curve_EM
        torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-3)


# What a recipe has of it


def saved(folder, spec=WIDER, theta=THETA, **more):
    Checkpoint(spec=spec, theta_P=torch.tensor(theta), **more).save(folder)
    return folder


@pytest.fixture
def perfect(monkeypatch):
    """Every checkpoint gets everything right."""
    whole = step.evaluate
    one = {"exact": torch.ones(1)}
    monkeypatch.setattr(step, "evaluate", lambda *given: whole(*given) | one)


@pytest.mark.usefixtures("perfect")
def test_a_word_is_of_what_was_read_and_not_of_where_it_lay(tmp_path):
    words = [read_teacher(saved(tmp_path / name, step=n)) for n, name in enumerate(("a", "b"))]
    assert words[0] == words[1] == WORD and teacher_of(WORD) == Teacher(WIDER, THETA)
    assert json.loads(json.dumps(Recipe(**FIELDS).as_dict()))["teacher"] == WORD
    other = read_teacher(saved(tmp_path / "c", theta=(THETA[0] + 1e-3, *THETA[1:])))
    keys = [Configuration(SPEC, Recipe(**{**FIELDS, "teacher": w})).key for w in (WORD, other)]
    assert len({*keys, Configuration(SPEC, Recipe()).key}) == 3
    assert Recipe(**FIELDS).program() != Recipe(**{**FIELDS, "teacher": other}).program()


@pytest.mark.usefixtures("perfect")
def test_a_tied_teacher_is_read_as_its_base(tmp_path):
    ties = constrained(WIDER, ["norm[0,0] = 0"])
    tied = Tied(base=WIDER, ties=ties)
    theta = torch.arange(1.0, tied.params + 1)
    found = teacher_of(read_teacher(saved(tmp_path / "tied", tied, theta.tolist())))
    assert found.spec == WIDER and found.theta == tuple(tied.untie(theta[None])[0].tolist())


STUDY = """
name: x
model: 57p
seeds: [1]
recipe: {{teacher: {}, distill_alpha: 0.5}}
"""


@pytest.mark.usefixtures("perfect")
def test_a_study_names_a_folder_and_has_what_is_there(tmp_path):
    study = parse_study(STUDY.format(saved(tmp_path / "t")), "file")
    ((_, recipe),) = study.listed()
    assert recipe.teacher == WORD and study.recipe["teacher"] == WORD, "what is recorded needs no file"
    again = parse_study(STUDY.format(json.dumps(WORD)), "file")
    assert again.listed() == study.listed(), "nor does a file that has the word"
    told = Configuration(SPEC, recipe).as_params()["recipe.teacher"]
    assert told == f"100p {WORD[:12]}"
    for key in ("configurations", "stages"):
        listed = STUDY.replace("recipe: {{", key + ": [{{recipe: {{").rstrip() + "}}]\n"
        ((_, recipe),) = parse_study(listed.format(tmp_path / "t"), "file").listed()
        assert recipe.teacher == WORD, key


def test_a_path_that_is_no_teacher_is_one_line(tmp_path):
    folder = saved(tmp_path / "wrong")
    for path, said in (
        (tmp_path / "none", "recipe.teacher: .*none: no such checkpoint"),
        (folder, "recipe.teacher: .*has not grokked, 5,000 of 5,000 selection problems are wrong"),
        (tmp_path, "recipe.teacher: .*no such file"),
    ):
        with pytest.raises(UserError, match=said) as error:
            parse_study(STUDY.format(path), "file")
        assert "\n" not in str(error.value)


OTHER = Teacher(preset("456p"), tuple(preset("456p").initial(1).tolist())).word


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"distill_alpha": 0.5}, "distill_alpha=0.5 needs teacher"),
        ({"distill_temperature": 3.0}, "distill_temperature=3.0 needs distill_alpha"),
        ({"teacher": WORD}, "teacher=.* needs distill_alpha"),
        ({**FIELDS, "teacher": "somewhere"}, "teacher must be a checkpoint's folder, or .*, got 'somewhere'"),
        ({**FIELDS, "teacher": WORD[:-8] + "AAAAAAA="}, "teacher must be a checkpoint's folder"),
        (
            {**FIELDS, "teacher": OTHER},
            "^teacher must have 57p's sequence of tokens, which 456p [0-9a-f]{12} has not$",
        ),
    ],
)
def test_what_cannot_be_is_one_line(fields, line):
    with pytest.raises(ValueError, match=line) as error:
        make([pair(1, **fields)])
    assert "\n" not in str(error.value)
