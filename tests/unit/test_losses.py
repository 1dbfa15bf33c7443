"""The loss with a teacher, against its paper's formula in float64, and what a recipe has of a teacher."""

import json

import pytest
import torch
from torch.nn import functional

from model import preset
from search.study.checkpoints import read_teacher
from search.study.file import parse_study
from search.study.trial import Configuration
from tests.banks import SPEC
from tests.specs import some_tokens
from trainer import Recipe
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.recipe.stages import road_of
from trainer.recipe.teacher import Teacher, teacher_of
from trainer.step import step
from trainer.step.objective import Objective
from trainer.step.schedule import hyper_of

PROBLEMS = 40


WIDER = preset("100p")  # of the same sequence, and attention differs by problem
THETA = tuple((0.3 * WIDER.initial(5) + 0.1).tolist())
WORD = Teacher(WIDER, THETA).word
FIELDS = {"teacher": WORD, "distill_alpha": 0.75, "distill_temperature": 3.0}


def test_torchs_loss_is_hintons():
    """(1 - α) of cross-entropy, α T² KL by torch's own function, in float64."""
    tokens = some_tokens(SPEC, 1, PROBLEMS)
    theta = (SPEC.initial(1)[None].double() + 0.1).requires_grad_()
    recipe = Recipe(**FIELDS)
    hyper = {n: t.double() for n, t in hyper_of([recipe], SPEC.layout).items()}
    target = tokens[:, SPEC.prompt :].long()
    mine, theirs = (
        torch.stack(torch.broadcast_tensors(*spec.forward(t, tokens[:, :-1], first=spec.prompt - 1)), dim=-1)
        for spec, t in ((SPEC, theta), (WIDER, torch.tensor([THETA], dtype=torch.float64)))
    )
    apart = functional.kl_div(
        (mine / 3).log_softmax(-1), (theirs / 3).log_softmax(-1), reduction="none", log_target=True
    )
    hard = functional.cross_entropy(mine.flatten(0, -2), target.flatten())
    expected = 0.25 * hard + 0.75 * 9 * apart.sum(-1).mean()
    got = Objective.of(recipe)(SPEC, theta, tokens, hyper)
    torch.testing.assert_close(got[0], expected, rtol=1e-9, atol=1e-12)
    pulled, wanted = (torch.autograd.grad(x, theta)[0] for x in (got.sum(), expected))
    torch.testing.assert_close(pulled, wanted, rtol=1e-7, atol=1e-10)


# A recipe has the teacher itself


def saved(folder, theta=THETA, **more):
    Checkpoint(spec=WIDER, theta_P=torch.tensor(theta), **more).save(folder)
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


STUDY = """
name: x
model: 57p
seeds: [1]
recipe: {{teacher: {}, distill_alpha: 0.5}}
"""


@pytest.mark.usefixtures("perfect")
def test_a_study_names_a_folder_and_has_what_is_there(tmp_path):
    study = parse_study(STUDY.format(saved(tmp_path / "t")), "file")
    ((_, recipe),) = study.listed
    assert recipe.teacher == WORD and study.recipe["teacher"] == WORD, "what is recorded needs no file"
    again = parse_study(STUDY.format(json.dumps(WORD)), "file")
    assert again.listed == study.listed, "nor does a file that has the word"
    told = Configuration(SPEC, recipe).as_params()["recipe.teacher"]
    assert told == f"100p {WORD[:12]}"
    listed = STUDY.replace("recipe: {{", "configurations: [{{recipe: {{").rstrip() + "}}]\n"
    ((_, recipe),) = parse_study(listed.format(tmp_path / "t"), "file").listed
    assert recipe.teacher == WORD
    taught = json.dumps({"teacher": str(tmp_path / "t"), "distill_alpha": 0.5})
    staged = f"{{name: x, model: 57p, recipe: {taught}, longer: {taught}}}"
    plain = STUDY[: STUDY.index("recipe")]
    ((_, recipe),) = parse_study(f"{plain}recipe: {{stages: [{staged}]}}\n", "file").listed
    assert [each.teacher for each in road_of(recipe)[0].recipes] == [WORD, WORD]
    params = str(Configuration(SPEC, recipe).as_params())
    assert WORD not in params and params.count(told) == 2
