"""Replay descents with a bank that trains nothing; `python -m tests.compress.golden` records them anew.

What a set reaches is a function of its ties alone, so a descent is decided by its proposals and its rules.
"""

import json
import os
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
import torch

from adders import acceptance
from compress import finishing, hessian, local
from compress.candidates import DatabaseCandidates, digest
from model.tied import canonical, project, tie
from search.run import worker
from tests import CERTIFICATES
from tests.commands import done
from tests.homes import records_of
from tests.in_process import without_ray
from tests.reference import QUICK, write_study
from trainer import Outcome, Result
from trainer.bank.bank import Bank
from trainer.engine import native, torch_backend

DATA = Path(__file__).with_name("descents.json")
PARENTS = {"46p": 32, "12p": 7, "6p": 3}
"""Certificates, and the fewest numbers with which anything of theirs is right."""
EXACT = (1.0, 0.97, 0.6, 0.1)
PROBLEMS = 64
LOCAL = ("--proposals", 4, "--screen", 3, "--steps", 60, "--ramp", 30, "--patience", 3, "--cores", 1)
STUDY = {
    "compress": {"proposals": 4, "beam": 2, "rounds": 3, "reach": "tensor"},
    "recipe": {"steps": 6, "ramp": 3, "batch": 2, "eval_every": 3},
    "seeds": {"count": 2},
    "resources": QUICK["resources"] | {"slots": 3, "seeds_per_trial": 6, "compiled": True},
}


def numbers(ties):
    return max(map(abs, ties), default=0)


def exact_match(ties, seed, fewest):
    if numbers(ties) < fewest:
        return 0.1
    return EXACT[(int(digest(ties), 16) + seed.data_seed // 100) % len(EXACT)]


def errors(theta_P, fewest):
    """Number of errors of θ [P] of a base: of too small sets and of two sets in five some, else none."""
    place = {0.0: 0}
    for x in theta_P.abs().tolist():
        place.setdefault(x, len(place))
    ties = canonical(place[abs(x)] * (1 if x > 0 else -1) for x in theta_P.tolist())
    return 7 if numbers(ties) < fewest or int(digest(ties), 16) % 5 in (2, 3) else 0


def on_the_ties(base, ties, theta_P):
    numbers_R = project(ties, theta_P[None])
    return tie(base, ties).untie(numbers_R)[0] if hasattr(tie(base, ties), "untie") else numbers_R[0]


def made_up_loss(spec, theta_SP, tokens):
    """Return losses [S] whose curvature is the same on every CPU: its last bits decide between sets of equal cost."""
    weight_P = 1 + torch.arange(theta_SP.shape[1]) * 0.618 % 1
    return theta_SP**2 @ weight_P.to(theta_SP.dtype)


class UntrainedBank:
    """A bank of a local descent whose pairs end at once. reached: a pair's exact match, loss and θ [P]."""

    def __init__(self, pairs, reached):
        self.pairs, self.reached, self.seed_steps, self.is_open = pairs, reached, 0, True

    def advance(self):
        self.seed_steps = sum(p.recipe.steps for p in self.pairs)
        was_open, self.is_open = self.is_open, False
        return was_open

    def newest(self):
        return [{"step": 0, "best_exact": 0.0} for _ in self.pairs]

    def end(self, pairs):
        pass

    def result(self, n):
        pair = self.pairs[n]
        exact, loss, theta_P = self.reached(pair)
        return Result(
            pair=pair, outcome=Outcome.FAILED, steps=pair.recipe.steps, grok_step=None, held=False,
            hopeless_step=None, best_step=pair.recipe.steps, best_token=1.0, best_exact=exact, theta_P=theta_P,
            curve_EM=torch.full((pair.recipe.steps // pair.recipe.eval_every, 7), loss),
        )  # fmt: skip


def made_up(base, pair, fewest):
    """What a pair reaches, by its set and seed alone: exact match, loss and θ [P]."""
    exact, loss = exact_match(pair.ties, pair.seed, fewest), int(digest(pair.ties), 16) % 97 / 1_000
    return exact, loss, on_the_ties(base, pair.ties, torch.tensor(pair.start))


def made_up_facts(fewest, spec, result):
    exact, loss, theta_P = made_up(spec, result.pair, fewest)
    return {"best_exact": exact, "theta_P": theta_P, "curve_EM": torch.full_like(result.curve_EM, loss)}


class BarelyTrainedBank:
    """A bank of a study, whose results are made up. facts: what differs of a result, its exact match with it."""

    def __init__(self, facts, spec, pairs, **options):
        self.bank, self.facts = Bank(spec, pairs, **options), facts

    def __getattr__(self, name):
        return getattr(self.bank, name)

    def result(self, n):
        result = self.bank.result(n)
        facts = self.facts(self.bank.spec, result)
        grokked = facts["best_exact"] == 1.0
        outcome = Outcome.GROKKED if grokked else Outcome.FAILED
        return replace(result, outcome=outcome, grok_step=6 if grokked else None, **facts)


def without_training(patch, parent, facts_of=None):
    """Patch what a descent asks of training, of many problems and of pictures."""
    fewest = PARENTS[parent]
    patch.setattr("compress.pictures.log_descents", lambda *_: None)
    patch.setattr(worker, "Bank", partial(BarelyTrainedBank, facts_of or partial(made_up_facts, fewest)))
    selection = torch_backend.selection
    for module in (torch_backend, native):
        patch.setattr(module, "selection", lambda task: selection(task, 200))
    patch.setattr(hessian, "step", SimpleNamespace(loss=made_up_loss))
    patch.setattr(hessian, "sample_of", lambda spec, count=PROBLEMS: torch.empty(0))
    patch.setattr(acceptance.AcceptanceSet, "errors", lambda self, theta_P: errors(theta_P, fewest))
    patch.setattr(finishing, "levenberg_marquardt", lambda task, theta_P, until: theta_P)
    patch.setattr(finishing, "gauss_newton", lambda pool, theta_P, *_, **__: theta_P)


def local_descent(parent, most=None):
    """`compress CHECKPOINT`: what its banks were asked to train, and what its journal has.

    most: rounds of one command, which the next one goes on from. The last one finds nothing to do.
    """
    trace, rounds, before = [], 0, -1

    def bank(base, pairs, **_):
        steps, counts = pairs[0].recipe.steps, Counter(digest(p.ties) for p in pairs)
        trace.append([steps, pairs[0].seed.data_seed, [[of_set, n] for of_set, n in counts.items()]])
        return UntrainedBank(pairs, lambda pair: made_up(base, pair, PARENTS[parent]))

    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        without_training(patch, parent)
        patch.setattr(local, "Bank", bank)
        whole = local.LocalDescent.rounds
        patch.setattr(local.LocalDescent, "rounds", lambda self: islice(whole(self), most))
        while rounds != before:
            said = done("compress", CERTIFICATES / parent, "-o", Path(folder) / "small", *LOCAL, "--json")
            before, rounds = rounds, json.loads(said)["rounds"]
        journal = json.loads((Path(folder) / "small/descent.json").read_text())
    progress, accepted = journal["progress"], []
    visits = dict(progress["expansions"])
    for n, row in enumerate(journal["accepted"]):
        facts = [row["parent"], row["data_seed"], visits.get(n, 0), n in progress["exhausted"], row["is_finished"]]
        accepted.append([digest(tuple(row["ties"])), max(map(abs, row["ties"])), *facts])
    counters = {"rounds": progress["rounds"], "shrunk": progress["last_gain"], "several": progress["batch_size"]}
    counters["seed_steps"] = journal["seed_steps"]
    return {"banks": trace, "accepted": accepted, "tried": progress["tried"], **counters}


def study_of(parent):
    return STUDY | {"name": "small", "start": {"checkpoint": str(CERTIFICATES / parent)}}


def sets_of(home):
    return DatabaseCandidates(records_of(home, "small")).read()


def outline(home):
    """Every set of a study with its round, parent, exact match, errors and acceptance."""
    return [[t.round, digest(t.ties), t.parent, t.reached, t.wrong, bool(t.start)] for t in sets_of(home)]


def study_descent(parent):
    """A study with `compress`."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch, without_ray():
        without_training(patch, parent)
        done("run", write_study(Path(folder), study_of(parent)), "--home", home := Path(folder) / "home")
        return outline(home)


RECORDERS = {"local": local_descent, "study": study_descent}

if __name__ == "__main__":
    os.environ["MKL_CBWR"] = "COMPATIBLE"  # as tests/conftest.py has it
    torch.set_num_threads(1)
    rows = {kind: {p: record(p) for p in PARENTS} for kind, record in RECORDERS.items()}
    DATA.write_text(json.dumps(rows, separators=(",", ":")).replace('"banks"', '\n"banks"') + "\n")
