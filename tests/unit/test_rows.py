"""Tasks of rows: what is asked, the split, batches, and what verifies."""

import dataclasses
import itertools
from dataclasses import replace

import pytest
import torch

from model.fields import option
from model.tasks import Rows, make_task, options_of
from model.tasks.task import TASKS
from tests.commands import refusal
from trainer.data.problems import selection
from trainer.recipe import Recipe
from trainer.recipe.seed import check_problems

SPELT = [
    *(f"modular op={op} modulus=7 train=0.4" for op in ("a+b", "a-b", "a*b", "a/b", "a^2+ab+b^2")),
    "permutations points=3", "parity bits=6 of=3", "table entries=0,1,2;1,2,0;2,0,1", "modular", "permutations",
]  # fmt: skip
SEEDS = torch.arange(3)


def rows_of(task):
    numbers = torch.arange(task.count, dtype=torch.float64)
    return torch.stack(task.written(numbers, torch.zeros_like(numbers)), dim=1)


@pytest.mark.parametrize("spelt", SPELT)
def test_every_row_is_asked_once_in_tokens_that_the_task_names(spelt):
    task = make_task(spelt)
    assert make_task(str(task)) == task and make_task({"name": task.name, **options_of(task)}) == task
    tokens = rows_of(task)
    assert tokens.shape == (task.count, task.prompt + task.answers) and task.problems == task.count
    assert tokens.min() >= 0 and tokens.max() < task.vocabulary
    assert tokens[:, task.prompt :].max() < task.outputs
    assert len({tuple(row) for row in tokens[:, : task.prompt].tolist()}) == task.count
    assert task.pairs() == [(n, 0) for n in range(task.count)]
    right = task.value(torch.arange(task.count), torch.zeros(task.count))
    assert right.tolist() == tokens[:, -1].tolist() and task.value(3, 0) == int(tokens[3, -1])


def test_the_answers_are_those_of_the_operations():
    def value(op):
        task = make_task({"name": "modular", "op": op, "modulus": 11})
        return {tuple(row[:2]): row[3] for row in rows_of(task).tolist()}

    every = list(itertools.product(range(11), repeat=2))
    assert value("a+b") == {(a, b): (a + b) % 11 for a, b in every}
    assert value("a-b") == {(a, b): (a - b) % 11 for a, b in every}
    assert value("a*b") == {(a, b): a * b % 11 for a, b in every}
    assert value("a^2+ab+b^2") == {(a, b): (a * a + a * b + b * b) % 11 for a, b in every}
    assert {(c * b % 11, b): c for b, c in itertools.product(range(1, 11), range(11))} == value("a/b")

    named = list(itertools.permutations(range(4)))
    composed = rows_of(make_task("permutations points=4")).tolist()
    assert {(a, b): c for a, b, _, c in composed} == {
        (i, j): named.index(tuple(a[b[n]] for n in range(4)))
        for (i, a), (j, b) in itertools.product(enumerate(named), repeat=2)
    }
    for row in rows_of(make_task("parity bits=5 of=2")).tolist():
        assert row[5:] == [2, (row[0] + row[1]) % 2]


@pytest.mark.parametrize("spelt", SPELT)
def test_no_step_trains_on_what_decides_and_the_split_is_the_split_seeds(spelt):
    task = make_task(spelt)
    decisive = set(selection(task, 5_000)[0][0].long().tolist())
    trained = set()
    for step in range(200):
        a, b = task.sample(SEEDS, SEEDS * 0 + step, 64)
        trained |= set(a.long().flatten().tolist())
        assert not b.any()
    assert decisive and not decisive & trained
    if task.count - task.trained <= 5_000:
        assert len(decisive) == task.count - task.trained
    whole, _ = task.sample(SEEDS, SEEDS, task.trained)
    assert whole.shape == (3, task.trained) and set(whole[0].long().tolist()) >= trained
    assert torch.equal(whole[0], whole[1]) and torch.equal(whole[0], whole[0].sort().values)
    other = replace(task, split_seed=1)
    assert set(selection(other, 5_000)[0][0].long().tolist()) != decisive


@pytest.mark.parametrize("train, count", [(0.29, 29), (0.57, 57), (0.299, 29), (0.5, 50)])
def test_a_whole_share_of_the_rows_is_all_of_it(train, count):
    """100 · 0.29 is a little less than 29."""
    assert make_task(f"modular modulus=10 train={train}").trained == count


def test_a_batch_is_a_function_of_seed_and_step_and_covers_the_training_rows():
    task = make_task("modular modulus=13")
    a, _ = task.sample(SEEDS, SEEDS * 0 + 5, 40)
    alone, _ = task.sample(SEEDS[1:2], SEEDS[1:2] * 0 + 5, 40)
    assert torch.equal(a[1], alone[0]) and not torch.equal(a[0], a[1])
    drawn = {row for step in range(60) for row in task.sample(SEEDS, SEEDS * 0 + step, 40)[0].flatten().tolist()}
    assert len(drawn) == task.trained


def test_a_step_draws_among_the_rows_that_a_task_chooses_itself():
    class Few(type(make_task("parity"))):
        def trained_rows(self):
            return super().trained_rows()[:5]

    drawn, _ = Few(bits=5).sample(SEEDS, SEEDS, 4)
    assert set(drawn.flatten().tolist()) <= set(Few(bits=5).trained_rows().tolist())


def test_a_task_that_trains_on_what_decides_is_refused():
    class Leaky(type(make_task("parity"))):
        def selection(self, count):
            rows = self.trained_rows()[None, :count].double()
            return rows, rows * 0

    class Apart(Leaky):
        def selection(self, count):
            return super(Leaky, self).selection(count)

    class Whole(type(make_task("parity"))):
        def trained_rows(self):
            return torch.arange(self.count)

    for kind in (Leaky, Whole):
        with pytest.raises(ValueError, match=r"^parity bits=5 of=2 trains on 16 of its 16 selection problems$"):
            check_problems(kind(bits=5, of=2), Recipe())
    check_problems(Apart(bits=5, of=2), Recipe())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Strange(Rows):
    """A sum modulo five, that another package brings."""

    prompt, answers, outputs, vocabulary, count = 3, 1, 5, 6, 25

    def row(self, number):
        a, b = number // 5, number % 5
        return self.turned([a, b, a * 0 + 5, (a + b) % 5])

    def turned(self, tokens):
        return tokens


Strange.name = "strange"  # set late, it is in no list
STRANGE = {
    "a token more": (lambda t: [*t, t[0]], "prompt and answers are 4 tokens, and a problem has 5"),
    "a token less": (lambda t: t[:3], "prompt and answers are 4 tokens, and a problem has 3"),
    "beyond the vocabulary": (lambda t: [t[0] + 2, *t[1:]], "token 0 must be below 6, got 6"),
    "below it": (lambda t: [-t[0], *t[1:]], "token 0 must be below 6, got -1"),
    "no answer": (lambda t: [*t[:3], t[2]], "token 3 of the answer must be below 5, got 5"),
    "floats": (lambda t: [x.float() for x in t], "token 0 must be int64 [25], not torch.float32 [25]"),
    "at random": (lambda t: [*t[:3], torch.randint(0, 5, t[0].shape)], "a problem is not written twice in the same"),
    "twice": (lambda t: [t[0] * 0, *t[1:]], "strange trains on "),
    "an error": (lambda t: t[9], "strange fails when it is asked: IndexError: list index out of range"),
    "nothing": (lambda t: None, "strange fails when it is asked: TypeError: "),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_strangers_task_that_is_not_as_it_says_is_refused_in_one_line(name):
    turned, expected = STRANGE[name]
    task = type(Strange)("Wrong", (Strange,), {"turned": lambda self, tokens: turned(tokens)})()
    assert expected in refusal(ValueError, check_problems, task, Recipe())


def test_a_strangers_task_that_is_right_is_not():
    check_problems(Strange(), Recipe())
    many = type(Strange)("Many", (Strange,), {"outputs": 7})()
    with pytest.raises(ValueError, match=r"^strange: outputs must be from 1 to the vocabulary, 6, got 7$"):
        check_problems(many, Recipe())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grouped(Strange):
    group: str = option("S5", "whose elements are composed")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pointed(Strange):
    points: tuple[int, ...] = option((1, 2), "what no text gives back")


def test_a_text_option_is_read_as_it_is_written(monkeypatch):
    monkeypatch.setitem(TASKS, "strange", Grouped)
    task = Grouped(group="A5")
    assert str(task) == "strange group=A5" and make_task(str(task)) == task
    with pytest.raises(ValueError, match=r"^strange: group must have no spaces, got 'A 5'$"):
        check_problems(Grouped(group="A 5"), Recipe())
    with pytest.raises(ValueError, match=r"^strange: points must be a text, a number, true or false, got \(1, 2\)$"):
        check_problems(Pointed(), Recipe())


@pytest.mark.parametrize("name", ["sample", "written", "asked"])
def test_rows_that_are_drawn_or_written_in_a_way_of_their_own_are_not_the_engines(name):
    own = type(Strange)("Own", (Strange,), {name: lambda self, *given: getattr(Strange, name)(self, *given)})
    assert own().macros is None and Strange().macros == {}


WRONG = {
    "modular op=a/b modulus=1000000000039": "modulus must be finite and at most 2147483647, got 1000000000039",
    "modular op=a/b modulus=x": "modulus must be an integer, got 'x'",
    "parity bits=x": "bits must be an integer, got 'x'",
    "modular op=a/b modulus=9": "modulus must be a prime for a/b, got 9",
    "modular op=a^b": "op must be a+b, a-b, a*b, a/b or a^2+ab+b^2, got 'a^b'",
    "modular train=1.0": "train must leave rows to train on and to hold out of 9,409, got 1.0",
    "modular train=0": "train must leave rows to train on and to hold out of 9,409, got 0.0",
    "modular mod=7": "unknown option 'mod' of modular; did you mean modulus?",
    "parity bits=21": "bits must be from 2 to 20, got 21",
    "parity bits=4 of=5": "of must be at most bits, got 5 of 4",
    "table": "entries must be the table of the operation: entries: {file: FILE}",
    "table entries=0,1;1": "entries must be a square table, got 1 values in row 1 of 2",
    "table entries=0,2;1,0": "entries must be numbers from 0 to 1, got 0,2 in row 0",
    "permutations points=7": "points must be from 2 to 6, got 7",
}


@pytest.mark.parametrize(("spelt", "said"), WRONG.items())
def test_a_wrong_task_is_one_line(spelt, said):
    assert refusal(ValueError, make_task, spelt) == said


def test_all_tasks_of_rows_are_tried_here():
    ours = {name for name, task in TASKS.items() if issubclass(task, Rows) and task.__module__.startswith("model.")}
    assert ours == {spelt.split()[0] for spelt in SPELT}
