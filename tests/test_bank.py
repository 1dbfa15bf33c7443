"""Banks, eager and small. That compiled banks do the same is in test_compiled.py."""

import pytest
import torch

from model import rung
from trainer import MEASURES, Bank, Outcome, Pair, Recipe, Seed, programs

SPEC = rung("57p")
CURRICULUM = ((3, 12), (6, 12))
SMALL = {"steps": 40, "batch": 32, "eval_every": 20, "hold": 0, "curriculum": CURRICULUM, "warmup": 40}


@pytest.fixture(autouse=True, scope="module")
def few_selection_problems():
    whole = programs.selection
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "selection", lambda: whole(200))
        yield


def pair(seed, **recipe):
    return Pair(Recipe(**{**SMALL, **recipe}), Seed.of(seed))


def make(pairs, slots=None):
    return Bank(SPEC, pairs, slots=slots, compiled=False)


def finish(bank):
    while bank.advance():
        pass
    return bank


def results(bank):
    """Results by pair, so that their places in the list do not matter."""
    return {p: bank.result(n) for n, p in enumerate(bank.pairs)}


def assert_same(a, b):
    """Bit for bit: θ, curve and every fact."""
    for fact in ("pair", "outcome", "steps", "grok_step", "held", "best_step", "best_exact", "best_token"):
        assert getattr(a, fact) == getattr(b, fact), fact
    assert torch.equal(a.theta_P, b.theta_P), "θ differs"
    assert torch.equal(a.curve_EM, b.curve_EM), "curve differs"


def assert_all_same(found, expected):
    for p, result in found.items():
        assert_same(result, expected[p])


def final_thetas(pairs, slots):
    """θ after the last step by pair, of a bank in which every pair has its slot."""
    theta_SP = finish(make(pairs, slots)).state["theta"]
    return dict(zip(pairs, theta_SP, strict=False))


# A seed is its own


def test_a_bank_of_16_is_16_banks_of_one():
    pairs = [pair(s, steps=200, eval_every=50) for s in range(16)]
    together = results(finish(make(pairs)))
    for p in pairs:
        alone, beside = finish(make([p])).result(0), together[p]
        assert beside.curve_EM.shape == (4, len(MEASURES))
        torch.testing.assert_close(beside.curve_EM, alone.curve_EM, rtol=0, atol=1e-4)
        assert float(alone.curve_EM[-1, 3]) < float(alone.curve_EM[0, 3]), "something must have been learnt"


@pytest.fixture(scope="module")
def eight():
    pairs = [pair(s) for s in range(8)]
    return pairs, final_thetas(pairs, 8)


@pytest.mark.parametrize(
    "arrange",
    [
        lambda pairs: pairs[::-1],
        lambda pairs: [pairs[i] for i in (5, 2, 7, 0)] + [pair(s) for s in (90, 91, 92, 93)],
        lambda pairs: [pair(99, lr=0.5, weight_decay=3.0), *pairs[:7]],
        lambda pairs: pairs[3:6],
        lambda pairs: pairs[7:],
    ],
    ids=["other slots", "other neighbours", "another recipe beside", "short bank", "alone"],
)
def test_theta_is_bitwise_the_same_in_any_company_and_slot(eight, arrange):
    pairs, expected = eight
    found = final_thetas(arrange(pairs), 8)
    common = found.keys() & expected.keys()
    assert common and len({tuple(t.tolist()) for t in found.values()}) == len(found)
    assert all(torch.equal(found[p], expected[p]) for p in common)


def test_a_refilled_slot_starts_afresh():
    """Five pairs of different lengths through two slots, in two orders: predecessors are forgotten."""
    pairs = [pair(s, steps=steps) for s, steps in enumerate((40, 20, 60, 20, 40))]
    one, other = finish(make(pairs, 2)), finish(make(pairs[::-1], 2))
    padded = results(finish(make(pairs[:1], 2)))
    for p, result in results(one).items():
        assert result.steps == p.recipe.steps and result.outcome is Outcome.FAILED
        assert_same(result, results(other)[p])
    assert_all_same(padded, results(one))
    assert one.seed_steps == other.seed_steps == 180


def test_recipes_share_a_bank():
    pairs = [
        pair(1, lr=0.1, steps=60),
        pair(1, curriculum=(), carry_mix=0.0),
        pair(1, warmup=0, weight_decay=0.5, clip=0.1, steps=20),
        pair(1, beta1=0.5, beta2=0.9, lr_floor=1.0, fade_start=10, fade_end=20),
    ]
    together = results(finish(make(pairs)))
    for p in pairs:
        alone = finish(make([p], slots=4)).result(0)
        assert_same(together[p], alone)
        assert len(alone.curve_EM) == p.recipe.steps // 20
    assert len({tuple(r.theta_P.tolist()) for r in together.values()}) == 4


def test_init_and_data_seed_are_apart():
    recipe = Recipe(**SMALL)
    seeds = [Seed(1, 1), Seed(1, 2), Seed(2, 1)]
    fresh = make([Pair(recipe, s) for s in seeds])
    theta = fresh.state["theta"]
    assert torch.equal(theta[0], theta[1]) and not torch.equal(theta[0], theta[2])
    tokens = fresh.programs.make_block(fresh.state, fresh.hyper)
    assert torch.equal(tokens[:, 0], tokens[:, 2]) and not torch.equal(tokens[:, 0], tokens[:, 1])


@pytest.mark.parametrize("other", [{"batch": 64}, {"eval_every": 10}])
def test_what_shapes_the_program_must_agree(other):
    with pytest.raises(ValueError, match="batch and eval_every"):
        make([pair(1), pair(2, **other)])


def test_no_pairs_is_an_error():
    with pytest.raises(ValueError, match="needs pairs"):
        make([])


# Divergence


def test_divergence_stays_in_its_slot_and_frees_it():
    wild = pair(50, lr=1e9, warmup=0)
    calm, after = [pair(s) for s in range(3)], pair(7)
    bank = finish(make([calm[0], wild, *calm[1:], after], 4))
    found = results(bank)
    expected = results(finish(make([*calm, after], 4)))
    assert found[wild].outcome is Outcome.DIVERGED and found[wild].steps == 20
    assert found[wild].grok_step is None and not found[wild].held
    for p in (*calm, after):
        assert_same(found[p], expected[p])
        assert found[p].outcome is Outcome.FAILED
    assert bank.seed_steps == 4 * 40 + 20


def test_a_diverged_seed_keeps_no_theta_that_is_not_finite():
    result = finish(make([pair(50, lr=1e9, warmup=0)])).result(0)
    assert result.outcome is Outcome.DIVERGED
    assert result.theta_P.isfinite().all()


# What an evaluation decides


def scripted(exact, token=0.9, loss=1.0, pairs=None, slots=1, **recipe):
    """A bank whose evaluations say what the script says, advanced to its end or the script's.

    exact, token, loss: one number an evaluation, or one for all. Returns the bank and θ at every
    evaluation, [E][S, P].
    """
    pairs = pairs or [pair(1, **{"steps": 60, "eval_every": 5, "batch": 2, "hold": 15, **recipe})]
    bank, thetas = make(pairs, slots), []

    def evaluate(theta_SP):
        e = len(thetas)
        thetas.append(theta_SP.clone())
        here = (m[e] if isinstance(m, list) else m for m in (exact, token, loss))
        one = torch.ones(len(theta_SP))
        return {n: torch.as_tensor(v) * one for n, v in zip(("exact", "token", "loss"), here, strict=True)}

    bank.programs.evaluate = evaluate
    while len(thetas) < len(exact) and bank.advance():
        pass
    return bank, thetas


def test_grokking_is_the_first_perfect_evaluation_and_holding_frees_the_slot():
    bank, thetas = scripted([0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    result = bank.result(0)
    assert (result.outcome, result.grok_step, result.held) == (Outcome.GROKKED, 15, True)
    assert result.steps == 30 == bank.seed_steps, "15 steps to grok and 15 to hold"
    assert len(thetas) == 6 and bank.slot_pair == [None]


def test_a_dip_restarts_holding_but_not_the_grok_step():
    bank, _ = scripted([0.0, 1.0, 1.0, 0.9998, 1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0, 1.0])
    result = bank.result(0)
    assert (result.outcome, result.grok_step, result.held, result.steps) == (Outcome.GROKKED, 10, True, 60)


def test_grokked_without_holding_runs_to_the_end_of_its_budget():
    bank, _ = scripted([0.0, 1.0] + [0.9] * 10)
    result = bank.result(0)
    assert (result.outcome, result.grok_step, result.held, result.steps) == (Outcome.GROKKED, 10, False, 60)
    assert (result.best_step, result.best_exact) == (10, 1.0)


def test_grokking_at_the_last_evaluation_counts():
    bank, _ = scripted([0.0] * 11 + [1.0])
    result = bank.result(0)
    assert (result.outcome, result.grok_step, result.held) == (Outcome.GROKKED, 60, False)


def test_almost_perfect_is_not_grokked():
    bank, _ = scripted([4_999 / 5_000] * 12)
    assert (bank.result(0).outcome, bank.result(0).grok_step) == (Outcome.FAILED, None)


def test_without_hold_the_first_perfect_evaluation_ends_it():
    bank, _ = scripted([0.0, 1.0, 1.0], hold=0)
    assert (bank.result(0).steps, bank.result(0).held) == (10, True)


def test_a_freed_slot_takes_the_next_pair():
    recipe = {"steps": 20, "eval_every": 5, "batch": 2, "hold": 0}
    bank, thetas = scripted([1.0, 0.0, 1.0, 0.0], pairs=[pair(s, **recipe) for s in (1, 2)])
    assert [bank.result(n).grok_step for n in range(2)] == [5, 10]
    assert bank.seed_steps == 15 and not torch.equal(thetas[0], thetas[1])
    own, _ = scripted([0.0, 1.0], pairs=[pair(2, **recipe)])
    assert torch.equal(bank.result(1).theta_P, own.result(0).theta_P)


def test_diverging_after_grokking_is_grokked_and_not_held():
    """A seed has grokked if some evaluation was perfect; that it then diverged is told by `held`."""
    bank, thetas = scripted([0.0, 1.0, 0.0], loss=[1.0, 0.1, torch.nan])
    result = bank.result(0)
    assert (result.outcome, result.grok_step, result.held, result.steps) == (Outcome.GROKKED, 10, False, 15)
    assert torch.equal(result.theta_P, thetas[1][0])


def test_a_loss_that_is_not_finite_is_divergence():
    bank, _ = scripted([0.0, 0.0, 0.0], loss=[1.0, torch.inf, 1.0])
    assert (bank.result(0).outcome, bank.result(0).steps) == (Outcome.DIVERGED, 10)


def test_the_best_theta_is_the_most_exact_and_then_the_one_of_least_loss():
    exact = [0.0, 0.5, 0.7, 0.7, 0.7, 0.6] + [0.1] * 6
    loss = [1.0, 0.9, 0.8, 0.5, 0.6, 0.1] + [0.01] * 6
    bank, thetas = scripted(exact, loss=loss)
    result = bank.result(0)
    assert result.best_step == 20 and result.best_exact == pytest.approx(0.7)
    assert torch.equal(result.theta_P, thetas[3][0])
    assert result.curve_EM[:, 0].tolist() == pytest.approx(exact)
    assert result.curve_EM[:, 2].tolist() == pytest.approx(loss)


def test_the_curve_ends_where_the_seed_is():
    bank, _ = scripted([0.0, 0.1])
    result = bank.result(0)
    assert (result.outcome, result.steps, result.curve_EM.shape) == (Outcome.RUNNING, 10, (2, 4))
    assert result.curve_EM.isfinite().all()


def test_a_queued_pair_has_no_curve():
    fresh = make([pair(s) for s in range(3)], 2)
    assert [fresh.result(n).outcome for n in range(3)] == [Outcome.RUNNING, Outcome.RUNNING, Outcome.QUEUED]
    assert fresh.result(2).curve_EM.shape == (0, 4) and fresh.result(2).steps == 0


def test_the_train_loss_is_the_mean_since_the_last_evaluation(monkeypatch):
    bank = make([pair(1, steps=40, eval_every=20)])
    step, seen = bank.programs.train_step, []

    def spy(*args):
        state, loss_S = step(*args)
        seen.append(float(loss_S[0]))
        return state, loss_S

    bank.programs.train_step = spy
    curve = finish(bank).result(0).curve_EM
    assert len(seen) == 40
    assert curve[:, 3].tolist() == pytest.approx([sum(seen[:20]) / 20, sum(seen[20:]) / 20])


@pytest.mark.parametrize("eval_every", [1, 7, 13, 23, 50])
def test_every_step_is_trained_whatever_the_distance_of_evaluations(eval_every):
    bank = finish(make([pair(1, steps=eval_every * 2, eval_every=eval_every, batch=2)]))
    assert bank.state["step"].tolist() == [eval_every * 2]


def test_adaptive_decay_drops_at_both_thresholds_and_never_rises():
    exact = [0.5, 0.0, 0.02, 0.03, 0.0, 0.3, 0.0]
    token = [0.6, 0.9, 0.90, 0.90, 0.9, 0.9, 0.9]
    scales = []
    for end in range(1, len(exact) + 1):
        bank, _ = scripted(exact[:end], token=token[:end], wd_drop=0.25)
        scales.append(float(bank.state["wd_scale"][0]))
    assert scales == [1.0, 1.0, 1.0, 0.25, 0.25, 0.0625, 0.0625]


def test_decay_is_constant_by_default_and_whole_again_for_the_next_pair():
    bank, _ = scripted([0.9] * 3)
    assert bank.state["wd_scale"].tolist() == [1.0]
    recipe = {"steps": 10, "eval_every": 5, "batch": 2, "wd_drop": 0.5}
    bank, _ = scripted([0.9, 0.9, 0.0], token=[0.9, 0.9, 0.1], pairs=[pair(s, **recipe) for s in (1, 2)])
    assert bank.slot_pair == [1] and bank.state["wd_scale"].tolist() == [1.0]


# Interruptions


# Every number differs, so that a slot that goes on with another pair's recipe is seen.
QUEUE = [
    pair(s, steps=steps, lr=0.01 * (s + 1), carry_mix=0.2 * s, wd_drop=0.5, wd_drop_token=0.0)
    for s, steps in enumerate((40, 20, 60, 20))
]


@pytest.fixture(scope="module")
def uninterrupted():
    return results(finish(make(QUEUE, 2)))


def assert_goes_on_as(expected, path):
    again = make(QUEUE, 2)
    assert again.load(path)
    assert_all_same(results(finish(again)), expected)


@pytest.mark.parametrize("evaluations", [1, 2, 4])
def test_a_saved_bank_goes_on_bit_for_bit(uninterrupted, tmp_path, evaluations):
    first = make(QUEUE, 2)
    for _ in range(evaluations):
        first.advance()
    first.save(tmp_path / "bank.state")
    assert_goes_on_as(uninterrupted, tmp_path / "bank.state")


def test_a_saved_bank_is_not_changed_by_saving(uninterrupted, tmp_path):
    bank = make(QUEUE, 2)
    while bank.advance():
        bank.save(tmp_path / "bank.state")
    assert_all_same(results(bank), uninterrupted)


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.999])
def test_a_torn_state_falls_back_to_the_one_before(uninterrupted, tmp_path, keep):
    path = tmp_path / "bank.state"
    bank = make(QUEUE, 2)
    for _ in range(2):
        bank.advance()
        bank.save(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data))])
    assert_goes_on_as(uninterrupted, path)


def test_another_banks_state_is_refused(tmp_path):
    path = tmp_path / "bank.state"
    bank = make([pair(1), pair(2)])
    bank.advance()
    bank.save(path)
    for other in (
        make([pair(1), pair(3)]),
        make([pair(1), pair(2)], slots=1),
        make([pair(1), pair(2, lr=0.01)]),
        Bank(rung("67p"), [pair(1), pair(2)], compiled=False),
    ):
        before = other.state["theta"].clone()
        assert not other.load(path)
        assert torch.equal(other.state["theta"], before) and other.state["step"].tolist()[0] == 0


def test_nothing_saved_is_nothing_loaded(tmp_path):
    assert not make([pair(1)]).load(tmp_path / "nothing.state")


def test_an_eager_bank_leaves_no_files(monkeypatch, tmp_path):
    """Locks and caches are for compilation."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    make([pair(1)])
    assert not list(tmp_path.iterdir())


def test_block_sizes_divide():
    assert [programs.block_of(e) for e in (1, 7, 20, 50, 1_000, 23)] == [1, 7, 20, 10, 20, 1]
