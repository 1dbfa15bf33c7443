"""Roads: one seed through several trainings (trainer/road)."""

import json
from dataclasses import replace
from datetime import date

import pytest
import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

from model import preset
from model.parts import orders
from model.tied import constrained, tie, ties_of
from model.transfer import transfer
from tests import CERTIFICATES
from tests.banks import finish
from tests.commands import refusal
from trainer import Bank, Pair, Recipe, Seed
from trainer.bank.saved import DIGEST, digest
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.data.problems import selection
from trainer.outcomes import Outcome
from trainer.recipe.passed import passed
from trainer.recipe.stages import Into, road_of
from trainer.road import RoadBank
from trainer.road.traveller import Net, Traveller
from trainer.step.objective import answer_logits
from trainer.step.step import tokens_of

pytestmark = pytest.mark.usefixtures("few_selection_problems")

SHORT = {"steps": 200, "ramp": 100}
WIDE = {"name": "wide", "model": {"preset": "67p", "hidden": 4}, "longer": {}, "enough": 0}
FIRST = {**WIDE, "recipe": {"steps": 200}}
TWO = {
    "name": "two", "keep": {"units": 2}, "tries": 2, "recipe": SHORT, "longer": {"steps": 300}, "longer_tries": 3,
    "enough": 0,
}  # fmt: skip
TIED = {"name": "tied", "into": "57p", "tries": 2, "recipe": SHORT, "enough": 0}
MINUS = {**WIDE, "model": {"preset": "67p", "hidden": 4, "task": "subtraction"}}
PLAIN = {"steps": 200, "eval_every": 100, "hold": 0, "lr": 0.01, "warmup": 10}
TO_57 = Recipe(**PLAIN | {"steps": 5_000, "stages": [FIRST, TWO, TIED]})
END = preset("57p")


def pairs(*seeds, recipe=TO_57):
    return [Pair(recipe, Seed.of(seed)) for seed in seeds]


def finished(bank):
    finish(bank)
    return [bank.result(n) for n in range(len(bank.pairs))]


def facts(result):
    return (result.outcome, result.steps, result.best_exact, result.theta_P.tolist(), result.curve_EM.tolist())


@pytest.fixture(scope="module")
def alone():
    return {seed: facts(finished(RoadBank(END, pairs(seed)))[0]) for seed in (3, 4, 5)}


def test_a_seed_goes_all_the_way(alone):
    outcome, steps, _, theta_P, curve = alone[3]
    assert outcome == Outcome.FAILED
    assert len(theta_P) == 57
    # wide and again; two pairs of units, then three in more steps; two orders of the units
    assert steps == 200 + 200 + 2 * 200 + 3 * 300 + 2 * 200
    assert len(curve) in (6, 7, 8, 9)  # of the nets that were handed on
    assert alone[3] != alone[4]


def test_neighbours_and_slots_change_nothing(alone):
    bank = RoadBank(END, pairs(3, 4), slots=3)
    for _ in range(3):
        bank.advance()
    bank.add(pairs(5))
    together = finished(bank)
    assert [facts(result) for result in together] == [alone[3], alone[4], alone[5]]


@pytest.mark.parametrize("calls", [1, 6, 12])
def test_saved_anywhere_it_goes_on_to_the_same_bits(alone, calls):
    bank = RoadBank(END, pairs(3, 4))
    for _ in range(calls):
        bank.advance()
    states = bank.save_all([0, 1])
    other = RoadBank(END, pairs(4, 5, 3))
    assert other.restore_all({0: states[1], 2: states[0]}) == [0, 2]
    assert other.newest()[2]["step"] == bank.newest()[0]["step"]
    assert [facts(result) for result in finished(other)] == [alone[4], alone[5], alone[3]]


def test_what_is_damaged_or_anothers_is_not_used_but_an_earlier_versions_is(monkeypatch):
    """A later version's recipes have more fields."""
    bank = RoadBank(END, pairs(3, 4))
    bank.advance()
    own, others = bank.save_all([0, 1])
    slower = replace(TO_57, lr=0.001)
    assert not bank.restore(0, others)
    assert not bank.restore(0, own[:-1] + b"x")
    assert not bank.restore(0, b"")
    assert not RoadBank(END, pairs(3, recipe=slower)).restore(0, own)
    assert bank.restore(0, own)
    monkeypatch.setattr(Recipe, "as_dict", lambda self, whole=Recipe.as_dict: whole(self) | {"newer": 0})
    assert bank.restore(0, own)


def forged(state, **changes):
    """A seed's state that tells something else, with the digest of that."""
    tensors = from_bytes(state[DIGEST:])
    told = json.loads(tensors["facts"].numpy().tobytes()) | changes
    tensors["facts"] = torch.tensor([*json.dumps(told).encode()], dtype=torch.uint8)
    data = to_bytes(tensors)
    return digest(data) + data


WIDEST = road_of(TO_57)[0].spec.params
MADE_UP = {
    "ties of no number": {"tries": [["", [1_000_000] * WIDEST]]},
    "ties without a ramp": {"tries": [["", [*range(1, WIDEST + 1)]]]},
    "ties that are none": {"tries": [["", 5]]},
    "another outcome": {"outcome": "won"},
    "another stage": {"stage": 99},
    "nets without places": {"nets": []},
    "a net without numbers": {"ended": {"0": {}}},
}


@pytest.mark.parametrize("changes", MADE_UP.values(), ids=MADE_UP)
def test_a_state_that_somebody_made_up_is_not_used(changes):
    """The engine writes by the numbers of ties."""
    bank = RoadBank(END, pairs(3))
    own = bank.save(0)
    assert not bank.restore(0, forged(own, **changes))
    assert bank.restore(0, forged(own))


def of_stages(*stages, **fields):
    return Recipe(**PLAIN | {"steps": 5_000} | fields, stages=stages)


def test_a_seed_that_is_not_good_enough_is_lost_where_it_stands():
    strict = of_stages({**FIRST, "enough": 0.95}, TWO, TIED)
    (result,) = finished(RoadBank(END, pairs(3, recipe=strict)))
    assert result.outcome == Outcome.FAILED
    assert (result.steps, result.theta_P.tolist(), result.best_exact) == (400, [0.0] * 57, 0.0)
    assert len(result.curve_EM) == 4


@pytest.mark.parametrize("exact, outcome", [(4_750, None), (4_749, Outcome.FAILED)])
def test_a_seed_that_is_just_good_enough_goes_on(exact, outcome):
    """Shares of the selection problems are float32, in which 0.95 is a little less."""
    traveller = Traveller(Pair(of_stages({"name": "wide", "model": "57p"}, {"name": "more"}), Seed.of(3)))
    share = (torch.tensor(exact) / 5_000).item()
    traveller.leg.ended[0] = Net(share, share, False, False, 200, None, torch.zeros(57), torch.zeros(2, 4))
    traveller.go_on(lambda stage: lambda theta_WP: theta_WP[:, 0])
    assert traveller.outcome == outcome


def test_a_seed_that_has_spent_its_budget_is_not_tried_further():
    short = of_stages(FIRST, TWO, TIED, steps=700)
    (result,) = finished(RoadBank(END, pairs(3, recipe=short)))
    assert (result.outcome, result.steps) == (Outcome.FAILED, 800)


def test_ended_from_outside_it_keeps_its_steps():
    bank = RoadBank(END, pairs(3, 4))
    bank.advance()
    bank.end([1])
    assert [row["outcome"] for row in bank.newest()] == ["running", "censored"]
    assert bank.newest()[1]["step"] == 100
    bank.remove([1])
    assert finished(bank)[0].steps == 2100


def test_seeds_of_another_recipe_are_refused_also_where_all_others_have_left():
    bank = RoadBank(END, pairs(3))
    bank.end([0])
    bank.remove([0])
    with pytest.raises(ValueError, match="recipes agree in"):
        bank.add(pairs(4, recipe=replace(TO_57, lr=0.001)))
    assert list(bank.add(pairs(4))) == [0]


@pytest.mark.parametrize(
    "stages, words",
    [
        ([{**WIDE, "recipe": SHORT}], r"stages\[0\]: a ramp needs something to narrow to"),
        ([WIDE, {**TWO, "recipe": {}}], r"stages\[1\]: a net is narrowed by a ramp"),
        ([WIDE, {**TWO, "recipe": {**SHORT, "eval_every": 50}}], r"one eval_every, got \[50, 100\]"),
        ([{**WIDE, "model": {"preset": "36p", "ffn": 4}}, TWO], r"stages\[1\]: rope .* has heads, and no 'units'"),
        ([WIDE, {**TWO, "keep": {"units": 4}}], "of 4 units a stage keeps fewer"),
        ([WIDE, {**TWO, "keep": 2}], "keep must say what and how many"),
        ([WIDE, {**TIED, "into": "59p"}], r"stages\[1\].into: unknown preset '59p'; did you mean"),
        ([WIDE, {**TWO, "into": "57p"}], "keep and into are two stages"),
        ([TWO], "the first stage trains its model as it is"),
        ([{"name": "wide"}], r"stages\[0\].model: the first stage says its model"),
        ([WIDE, {**TIED, "model": "62p"}], r"stages\[1\]: a split_subspace does not become a rope"),
        ([WIDE, {**TWO, "name": "wide"}], "names of their own"),
        ([WIDE, {**TWO, "recipe": {"lr": -1}}], r"stages\[1\]: lr must be"),
        ([WIDE, {**TWO, "recipe": {"stepz": 1}}], r"^stages\[1\].recipe.stepz: unknown field; did you mean steps\?$"),
        ([{**WIDE, "longer": {1: 2}}], r"^stages\[0\].longer.1: unknown field; "),
        ([{**WIDE, "tires": 2}], "unknown 'tires'; did you mean tries"),
        ([{**WIDE, "tries": 0}], "tries must be from 1 to 100"),
        (["wide"], "must be a mapping with a name"),
        ([{**WIDE, "name": "a\nb"}], "name must be a line"),
        ([{**WIDE, "name": "n" * 65}], "name must be a line"),
        ([{**WIDE, "model": {"preset": 67}}], "preset must be a name"),
        ([MINUS, TWO, TIED], "asked subtraction does not become one of addition"),
        ([{**WIDE, "recipe": {"steps": 6_000}}, TWO, TIED], "steps must be at least those of any stage"),
        ([{**WIDE, "model": {"preset": "67p", "hidden": 12}}, {**TIED, "into": "67p"}], "too many orders"),
        ([WIDE, TWO], "must lead to the model"),
        ([{**WIDE, "longer_tries": 2}], "has one way"),
        ([{**WIDE, "recipe": {"teacher": date(2026, 1, 1)}}], "must be plain values"),
        ([{**WIDE, "enough": float("nan")}], "enough must be from 0 to 1"),
    ],
)
def test_stages_that_do_not_follow_one_another(stages, words):
    with pytest.raises(ValueError, match=words):
        pairs(3, recipe=of_stages(*stages))[0].check(END)


def test_a_ramp_of_the_recipe_is_one_of_its_stages():
    first = {**FIRST, "recipe": {"steps": 200, "ramp": 0}}
    RoadBank(END, pairs(3, recipe=of_stages(first, TWO, TIED, ramp=50)))


def test_plain_values_say_all_of_the_stages():
    values = json.loads(json.dumps(TO_57.as_dict()))
    assert Recipe.from_record(values) == TO_57
    assert hash(Recipe.from_record(values)) == hash(TO_57)
    spelt = {**WIDE, "recipe": {"steps": 200}, "model": replace(preset("67p"), hidden=4).as_dict()}
    assert of_stages(spelt, TWO, TIED) == TO_57


def test_a_net_that_is_none_of_the_target_with_ties_is_refused_before_it_trains():
    with pytest.raises(ValueError, match=r"stage tied: .*(with ties|must have shape)"):
        RoadBank(END, pairs(3, recipe=of_stages(WIDE, TIED)))


def test_a_bank_takes_no_stages_and_a_road_nothing_else():
    """A bank would train each seed once, by what its stages have in common."""
    with pytest.raises(ValueError, match=r"stages is trained by trainer\.road\.RoadBank"):
        Bank(END, pairs(3))
    with pytest.raises(ValueError, match=r"without stages is trained by trainer\.Bank"):
        RoadBank(END, pairs(3, recipe=replace(TO_57, stages=())))


def test_a_start_does_not_go_with_stages():
    with pytest.raises(ValueError, match="stages draw their first"):
        Pair(TO_57, Seed.of(3), start=(0.0,) * 57).check(END)


def test_a_seed_has_grokked_when_it_was_perfect_first(monkeypatch):
    """Not when the training that holds it ended."""
    monkeypatch.setattr(Traveller, "end", with_early_grok(Traveller.end))
    held = of_stages(FIRST, TWO, TIED, hold=100)
    (result,) = finished(RoadBank(END, pairs(3, recipe=held)))
    assert result.grok_step == len(result.curve_EM) * 100 - 100


def with_early_grok(end):
    """Every training is perfect from one evaluation before its end on."""

    def ended(traveller, place, result):
        return end(traveller, place, replace(result, outcome=Outcome.GROKKED, grok_step=result.steps - 100))

    return ended


def test_by_torch_a_state_is_of_its_number_of_slots():
    """The engine's bits are the same with any."""
    often = replace(TO_57, eval_every=10)
    two = pairs(3, 4, recipe=often)
    for compiled in (True, False):
        bank, other = (RoadBank(END, two, slots=slots, compiled=compiled) for slots in (1, 2))
        bank.advance()
        assert other.restore_all(dict(enumerate(bank.save_all([0, 1])))) == ([0, 1] if compiled else [])


@pytest.mark.parametrize(
    "text", ["x", "5", '[["wide"]]', '[["wide", 1, 1, "y"]]', "[[1e999, 1e999, 1, 1]]", "[" * 9_999]
)
def test_a_strangers_stages_are_refused_in_one_line(text):
    assert "no stages of a seed" in refusal(ValueError, passed, text)


def small_form(base):
    """Return a 46p in which one row of the digits' arc is one number."""
    return tie(base, constrained(base, ["arc[2] = arc[1]"]))


def test_a_later_stage_rewrites_the_net_exactly_before_it_trains(monkeypatch):
    small = small_form(preset("46p"))
    row = {"name": "small", "model": "46p", "into": small.as_dict(), "recipe": SHORT, "enough": 0}
    stages = [{"name": "57", "model": "57p", "recipe": {"steps": 200}, "enough": 0}, row]
    recipe = Recipe(**PLAIN | {"steps": 5_000, "stages": stages})
    bank, seen = RoadBank(small, pairs(3, recipe=recipe)), []

    def begin(self, *rest, whole=Traveller._begin):
        whole(self, *rest)
        seen.append(self)

    monkeypatch.setattr(Traveller, "_begin", begin)
    (result,) = finished(bank)
    assert len(result.theta_P) == small.params
    (traveller,) = seen
    plain = replace(recipe, stages=(), steps=200)
    before_P = finished(Bank(preset("57p"), pairs(3, recipe=plain)))[0].theta_P
    (arrived,) = traveller.incoming
    assert torch.equal(arrived.theta_P, transfer(preset("57p"), before_P, preset("46p")).theta_Q)


def test_ties_are_freed_exactly_for_the_next_form():
    base = preset("46p")
    small = small_form(base)
    rows = [
        {"name": "46", "model": "46p", "enough": 0},
        {"name": "45", "into": small.as_dict(), "recipe": SHORT, "enough": 0},
        {"name": "free", "model": "46p", "recipe": {"steps": 100}, "enough": 0},
    ]
    road = road_of(Recipe(**PLAIN | {"steps": 5_000, "stages": rows}))
    theta_P = torch.linspace(0.1, 0.9, small.params)
    assert road[2].arrives == small
    assert torch.equal(road[2].entered(theta_P), small.untie(theta_P[None])[0])


def test_mirror_images_of_a_net_are_ways_into_ties():
    base = preset("46p")
    theta_P = torch.linspace(0.1, 0.9, base.params)
    ways = Into(small_form(base)).tries(base, theta_P, lambda theta_WP: theta_WP[:, 0] * 0, most=100)
    images = base.images(theta_P)
    assert images
    assert len(ways) == (1 + len(images)) * sum(1 for _ in orders(base))


def test_many_ways_are_ranked_some_at_a_time():
    bank, counts = RoadBank(END, pairs(3)), []
    losses, backend = bank._losses(0), bank.ranking[0]
    whole = backend.evaluate
    backend.evaluate = lambda theta_WP: counts.append(len(theta_WP)) or whole(theta_WP)
    theta_WP = torch.linspace(0.5, 1, 600)[:, None] * bank.stages[0].spec.initial(3)
    assert torch.equal(losses(theta_WP), whole(theta_WP)["loss"])
    assert counts == [256, 256, 88]


@pytest.mark.parametrize("form", [{}, {"opposite_out": True}])
def test_a_mirror_image_computes_the_same(form):
    spec = replace(preset("46p"), **form)
    theta_P = torch.linspace(0.1, 0.9, spec.params, dtype=torch.float64)  # norms are positive: no axis is flipped
    tokens_1TB = tokens_of(spec, *selection(count=50))
    logits = [torch.stack(answer_logits(spec, its_P[None], tokens_1TB)) for its_P in (theta_P, *spec.images(theta_P))]
    assert len(logits) == 2
    assert torch.allclose(*logits, atol=1e-9)


def test_forms_without_known_mirror_images_have_none():
    """Of every certificate's form, whose norms and outputs are of many kinds; an arc with two radii; a short row."""
    bases = {ties_of(Checkpoint.load(file.parent).spec)[0] for file in CERTIFICATES.glob("*/checkpoint.json")}
    bases |= {preset("46p").without("circular"), replace(preset("46p"), token_out=True)}
    counts = {base: len(base.images(torch.linspace(0.1, 0.9, base.params))) for base in bases}
    assert {base for base, count in counts.items() if count} == {
        preset("46p"), replace(preset("46p"), opposite_out=True),
    }  # fmt: skip
