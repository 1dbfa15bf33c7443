"""Proofs: the prover agrees with decoding where all pairs can be decoded, and check.py with the prover."""

import dataclasses
import json
import shutil
from functools import cache
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from adders.proof import check
from adders.proof.attention import Attention
from adders.proof.columns import Sums, first_cases, states_in
from adders.proof.count import count_wrong
from adders.proof.file import CHECKER, proof_text
from adders.proof.here import Captured, capture
from adders.proof.intervals import GELU, Interval, SwiGLU
from adders.proof.net import view
from adders.proof.program import Program
from adders.proof.prover import Prover, QueryProver, prove
from adders.proof.rounding import ANY, HERE, Approx, Chain, Lost
from model import PRESETS
from model.verdict import COUNTEREXAMPLE, PROVED, UNDECIDED, claim_beside, is_right
from tests import CERTIFICATES, by_tier
from tests.commands import call, fails_with_one, refusal
from tests.homes import snapshot
from tests.outside import hyra
from tests.specs import some_theta
from trainer.checkpoints.checkpoint import Checkpoint


def certificate(name):
    if name == "rope":
        return Checkpoint.load(CERTIFICATES.parent / "2026-11-24-rope/62p-seed106")
    return Checkpoint(*hyra()) if name == "outside" else Checkpoint.load(CERTIFICATES / name)


def decided(checkpoint, *machine, **options):
    """What is proved of a checkpoint."""
    return prove(checkpoint.spec, checkpoint.theta_P, *machine, **options)


@cache
def proved(name):
    """A checkpoint, and what is proved of it for two digits."""
    checkpoint = certificate(name)
    return checkpoint, decided(checkpoint, digits=2)


def as_file(checkpoint, proof):
    """A proof as its file has it."""
    return json.loads(proof_text(checkpoint.spec, checkpoint.theta_P, proof))


def checked(proof, checkpoint):
    """In how many parts check.py checks a proof."""
    return check.check(proof, checkpoint.spec.as_dict(), checkpoint.theta_P.tolist())


def unchecked(proof, checkpoint):
    """The line with which it refuses one."""
    return refusal(SystemExit, checked, proof, checkpoint)


def program_of(checkpoint):
    return Program(checkpoint.spec, checkpoint.theta_P)


def digits_of(a, b):
    """The digits of numbers [B]: columns x, y [B, 10], answers [B, 11]."""
    return tuple(n[:, None] // 10 ** np.arange(count) % 10 for n, count in ((a, 10), (b, 10), (a + b, 11)))


def every_pair(digits):
    """All pairs of numbers of so many digits: columns x, y, and answers."""
    return digits_of(*np.divmod(np.arange(100**digits), 10**digits))


def tokens(spec, pairs):
    """Sequences of pairs with their right answers, all but the last digit [B, T]."""
    x, y, z = (torch.tensor(part).T for part in pairs)
    return torch.stack(spec.sequence(list(x), list(y), list(z[:10])), -1)


def margins_of(model, spec, pairs):
    """How far the right digit's logit exceeds the next one in a program that is exported [B, 11]."""
    with torch.no_grad():
        logits = model(tokens(spec, pairs))[:, spec.prompt - 1 :]
    right = torch.tensor(pairs[2])[..., None]
    rival = logits.scatter(-1, right, -torch.inf).amax(-1)
    return (logits.gather(-1, right)[..., 0] - rival).nan_to_num(-torch.inf).numpy()


def margins(checkpoint, pairs, dtype=torch.float32):
    model = program_of(checkpoint).model.to(dtype)
    return margins_of(model, checkpoint.spec, pairs)


def scaled(checkpoint, entry, factor):
    theta_P = checkpoint.theta_P.clone()
    theta_P[entry] *= factor
    return dataclasses.replace(checkpoint, theta_P=theta_P)


TWO = every_pair(2)
QUICK = "6p", "10p-qualified", "rope"


def longer(*names):
    """Parameters of the gate before a release."""
    return [pytest.param(*name, marks=pytest.mark.full) for name in names]


@pytest.mark.parametrize("name", by_tier([*QUICK, "outside", "100p", "133p", "456p", "512p"], QUICK))
def test_the_prover_agrees_with_decoding_all_pairs_of_two_digits(name):
    checkpoint, proof = proved(name)
    decoded = margins(checkpoint, TWO, torch.float64)
    assert proof.verdict == (PROVED if (decoded > 0).all() else COUNTEREXAMPLE)
    assert proof.margin == pytest.approx(decoded.min(), rel=1e-3)
    a, b = (part[:, :2] @ [1, 10] for part in TWO[:2])
    row = np.flatnonzero((a == proof.pair[0]) & (b == proof.pair[1]))
    assert decoded[row, proof.digit] == pytest.approx(proof.margin, rel=1e-3)


def all_channels(checkpoint, dtype):
    """The numbers that attention writes, of all pairs of two digits, in the exported program [B, 11, R]."""
    model = program_of(checkpoint).model.to(dtype)
    written, attention = [], model.attention
    model.attention = lambda h: written.append(attention(h)) or written[-1]
    with torch.no_grad():
        model(tokens(checkpoint.spec, TWO))
    writes = view(checkpoint.spec, checkpoint.theta_P, ANY).writes
    return (written[0].double().numpy() @ np.linalg.pinv(writes))[:, checkpoint.spec.prompt - 1 :]


def of_case(k, token, label):
    """True for pairs whose digit k is asked for at this token, its column's sum with the carry being `label`."""
    x, y, z = TWO
    carry = (x[:, k - 1] + y[:, k - 1] > z[:, k - 1]) if k else np.zeros(len(x), int)
    return (x[:, k] + y[:, k] + carry == label) & ((z[:, k - 1] == token) if k else True)


@pytest.mark.parametrize("name", ["6p-one-run", "100p", "rope"])
def test_float32_stays_in_the_boxes_and_does_not_fill_them(name):
    checkpoint = certificate(name)
    prover = Prover(checkpoint.spec, checkpoint.theta_P, ANY, 2, float("inf"))
    have, exact = (all_channels(checkpoint, dtype) for dtype in (torch.float32, torch.float64))
    for query in (QueryProver(prover, q) for k in range(3) for q in prover.attention.ask(k)):
        k, token = query.query.k, query.query.token
        cases = query.first_cases()
        low, high, _ = query.extremes(cases)
        for label, least, most in zip(cases.label, low, high, strict=True):
            case = of_case(k, token, label)
            assert (least < have[case, k]).all() and (have[case, k] < most).all()
            error = abs(have[case, k] - exact[case, k]).max(0)
            assert (most - exact[case, k].max(0) > error).all()


@pytest.mark.parametrize("name", [name for name, spec in PRESETS.items() if spec.family == "rope"])
def test_a_rope_nets_view_is_its_exported_program(name):
    """Whatever is tied: the right digit's margin at digit 1 of pairs of one digit, which may carry into it."""
    checkpoint = Checkpoint(PRESETS[name], some_theta(PRESETS[name])[0])
    prover = Prover(checkpoint.spec, checkpoint.theta_P, ANY, 10, float("inf"))
    x, y, z = pairs = every_pair(1)
    columns = np.stack([x, y, np.roll(x + y > 9, 1, axis=1)], -1)
    states = (columns[:, :, None] == states_in(10).rows).all(-1).argmax(-1)
    decoded = margins(checkpoint, pairs, torch.float64)[:, 1]
    for query in prover.attention.ask(1):
        asked = z[:, 0] == query.token
        found = QueryProver(prover, query).margins(states[asked], z[asked, 1])
        assert found == pytest.approx(decoded[asked], rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("bend", [GELU(), SwiGLU()])
def test_ranges_hold_what_follows_the_first_layer_and_its_slopes(bend):
    draws = np.random.default_rng(1)
    for _ in range(200):
        middle = draws.uniform(-6, 6, (1, 6))
        radius = draws.choice([1e-3, 0.3, 3.0]) * draws.uniform(0, 1, (1, 6))
        box = Interval(middle - radius, middle + radius)
        points = middle + radius * draws.uniform(-1, 1, (500, 6))
        result, error = bend.over(box, ANY)
        values = bend.at(points)
        assert (result.low <= values).all() and (values <= result.high).all() and (error > 0).all()
        along = draws.uniform(-1, 1, values.shape[1])
        slopes = bend.slopes(Interval(along[None, None], along[None, None]), box)
        for i in range(6):
            step = 1e-6 * np.eye(6)[i]
            slope = (bend.at(points + step) - bend.at(points - step)) @ along / 2e-6
            assert (slopes.low[0, 0, i] - 1e-7 <= slope).all() and (slope <= slopes.high[0, 0, i] + 1e-7).all()


@pytest.mark.parametrize("name", by_tier(["14p", "77p-456p", "100p", "133p"], ["14p", "77p-456p"]))
def test_what_is_taken_from_this_machine_are_the_bits_of_any_problem(name):
    checkpoint, machine = certificate(name), HERE
    program = program_of(checkpoint)
    net = view(checkpoint.spec, checkpoint.theta_P, ANY)
    attention = Captured(capture(net, program), machine, program)
    attention.ask(10)
    x, y, z = (part[9_990:] for part in TWO)
    for problem in tokens(checkpoint.spec, (x, y, z)).tolist():
        rows = program.captured(problem)
        for have, row in zip((attention.queries, attention.keys, attention.values), rows, strict=False):
            flat = row.double().movedim(-2, 0).reshape(len(problem), -1).numpy()
            assert (have.value[range(len(problem)), problem] == flat).all()


def test_what_rounding_leaves_open_claims_proof_here():
    checkpoint = certificate("14p")
    proof = decided(checkpoint)
    assert (proof.verdict, proof.level) == (PROVED, "here")
    assert as_file(checkpoint, proof)["checker"] is None


@pytest.mark.parametrize(("entry", "wrong"), [(0, 1.002), *longer((1, 0.98), (5, 1.02))])
def test_a_verdict_flips_where_decoding_does(entry, wrong):
    """A number of θ is scaled until a pair of two digits goes wrong: proved before that, refuted behind it."""
    checkpoint, right = certificate("6p"), 1.0
    worst = np.argsort(margins(scaled(checkpoint, entry, wrong), TWO).min(1))[:64]
    few = tuple(part[worst] for part in TWO)
    for _ in range(20):
        middle = (right + wrong) / 2
        is_right = (margins(scaled(checkpoint, entry, middle), few) > 0).all()
        right, wrong = (middle, wrong) if is_right else (right, middle)
    step = 0.5 * (right - 1)
    before, behind = scaled(checkpoint, entry, right - step), scaled(checkpoint, entry, wrong + step)
    assert (margins(before, TWO) > 0).all()
    assert not (margins(behind, TWO) > 0).all()
    assert decided(before, digits=2).verdict == PROVED
    between = decided(scaled(checkpoint, entry, right), digits=2)
    assert (between.verdict, {o.reason for o in between.open}) == (UNDECIDED, {"rounding"})
    refuted = decided(behind, digits=2)
    assert refuted.verdict == COUNTEREXAMPLE
    (pair,) = refuted.wrong
    assert program_of(behind).add(pair.a, pair.b) == pair.answer != pair.a + pair.b


@pytest.mark.parametrize(
    ("name", "entry", "factor", "digits"),
    [("6p", 0, 1.0015, 2), *longer(("6p", 0, 1.01, 2), ("456p", 3, 0.5, 2), ("10p-qualified", 0, 1.0, 3))],
)
def test_as_many_pairs_are_wrong_as_are_counted(name, entry, factor, digits):
    checkpoint = scaled(certificate(name), entry, factor)
    count = count_wrong(checkpoint.spec, checkpoint.theta_P, digits=digits)
    parts = [part.reshape(-1, 10_000, part.shape[1]) for part in every_pair(digits)]
    wrong = sum((margins(checkpoint, pairs) <= 0).any(1).sum() for pairs in zip(*parts, strict=True))
    assert 0 < count.wrong <= wrong <= count.possible <= 1.2 * count.wrong


def multiplied(checkpoint, factors):
    """A checkpoint with some tensors multiplied."""
    parts = checkpoint.spec.layout.split(checkpoint.theta_P[None])
    theta_P = torch.cat([(t[0] * torch.tensor(factors.get(name, 1.0))).flatten() for name, t in parts.items()])
    return dataclasses.replace(checkpoint, theta_P=theta_P)


RESIDUAL = {"arc": [2.0**66, 2.0**66, 1, 1], "spiral": [2.0**66, 1, 2.0**66, 2.0**66]} | dict.fromkeys(
    ("z_hi", "equals", "plus", "out_B", "fc2"), 2.0**66
)


@pytest.mark.parametrize(
    ("factors", "reason", "refused"),
    [
        (RESIDUAL, "numbers are too large for float32", "too large"),
        ({"q_proj": 2.0**20}, "scores are lost in rounding", "lost in rounding"),
        ({"head": 2.0**-130}, "a parameter is too small for float32", "may be read as 0"),
    ],
)
def test_a_net_whose_numbers_float32_loses_is_not_proved(factors, reason, refused):
    """In real numbers it is right, but for the second: squares overflow, no weight is known, parameters become 0."""
    checkpoint, proof = proved("100p")
    other = multiplied(checkpoint, factors)
    lost = decided(other, ANY, digits=2)
    assert {o.reason for o in lost.open} == {reason} and lost.verdict != PROVED
    assert refused in unchecked(as_file(checkpoint, proof), other)


def test_no_case_is_left_out_where_sums_are_no_numbers():
    checkpoint = certificate("6p")
    net = view(checkpoint.spec, checkpoint.theta_P, ANY)
    (query,) = Attention(net, ANY).ask(0)
    query.heads[0].value[0, 0] = np.nan
    with pytest.raises(Lost, match="no number"):
        Sums(net, query, 0).highest(np.ones(1), first_cases(0, 0, net.asked.columns))


def test_what_a_chain_of_maps_loses_covers_any_input_of_a_size():
    """Signs that cancel in the first map for positive inputs do not for others; a bias may be added first."""
    draws, worst = np.random.default_rng(2), np.zeros(3)
    for _ in range(300):
        first, second = (draws.uniform(-1, 1, (n, 1)).astype(np.float32) for n in (2, 1))
        first[1] = -first[0]
        x, bias = draws.uniform(-1, 1, 2).astype(np.float32), np.float32(2.0 ** draws.uniform(0, 8))
        chain, real = Chain(Approx(first), Approx(second)), x.astype(float) @ first @ second
        once = Chain(Approx(first))
        computed = (
            ((x @ first) @ second, real, chain.loss(np.ones(2))),
            ((x @ first) @ second + bias, real + bias, chain.loss(np.ones(2), bias)),
            (bias + x[0] * first[0] + x[1] * first[1], x.astype(float) @ first + bias, once.loss(np.ones(2), bias)),
        )
        worst = np.maximum(worst, [abs(have - exact)[0] / granted.max() for have, exact, granted in computed])
    assert (worst > 0.2).all() and (worst < 1).all()


def test_what_the_output_writes_beside_its_channels_is_bounded():
    """An entry of the output that is too small to be a channel is no zero: the MLP may multiply it by as much."""
    spec = dataclasses.replace(PRESETS["133p"], rank2_out=False)
    smaller = torch.cat([torch.ones(1, 1), torch.full((spec.width - 1, 1), 2.0**-45)])
    net = view(spec, multiplied(Checkpoint(spec, spec.initial(3)), {"out": smaller.tolist()}).theta_P, ANY)
    attention = Attention(net, ANY)
    (query,) = attention.ask(0)
    for seen in attention.values.value[:22].reshape(-1, len(net.channels)):
        beside = abs(seen @ net.out.matrix - seen @ net.channels @ net.writes)
        assert (beside <= query.base_loss).all()
    assert (beside > 2.0**-50).any()


def test_the_checker_accepts_a_proof_and_refuses_it_of_another_net():
    checkpoint, proof = proved("6p")
    values = as_file(checkpoint, proof)
    assert values["checker"] == "check.py" and checked(values, checkpoint) > 200
    assert "the pair's margin" in unchecked(values, scaled(checkpoint, 0, 1.002))


def test_a_net_of_more_hidden_units_is_proved_and_checked():
    """The 57p's with a third unit, of little say. A louder one is noticed."""
    small = certificate("57p")
    tensors = {name: t[0] for name, t in small.spec.layout.split(small.theta_P[None]).items()}
    spec = dataclasses.replace(PRESETS["67p"], hidden=3)
    fc1 = torch.cat([tensors["fc1"], 0.5 * tensors["fc1"][:1]])
    fc2 = torch.cat([tensors["head"].T, torch.full((spec.width, 1), 0.01)], dim=1)
    wider = Checkpoint(spec, spec.layout.join({**tensors, "fc1": fc1, "fc2": fc2}))
    proof = decided(wider, digits=1)
    assert proof.verdict == PROVED
    values = as_file(wider, proof)
    assert checked(values, wider)
    louder = spec.layout.join({**tensors, "fc1": fc1, "fc2": fc2 * torch.tensor([1.0, 1.0, 1000.0])})
    assert "the pair's margin" in unchecked(values, Checkpoint(spec, louder))


def test_the_command_writes_a_proof_that_the_checker_reads(here, capsys):
    folder = CERTIFICATES / "6p"
    result = call("prove", folder, "--digits", 1, "-o", "proof.json")
    assert result.exit_code == 0, result.output
    first, *_, effort, written = result.output.splitlines()
    name = "45 parameters (46p with opposite_out) tied to 6 parameters"
    level = "at level any (every machine that keeps docs/proof.md's rules)"
    assert first == f"{name}: PROVED right on all 10^2 pairs, {level}"
    assert " boxes tried, " in effort
    assert written == f"proof.json: the proof; python {CHECKER} proof.json {folder} checks it"
    values = json.loads(Path("proof.json").read_text())
    Path("proof.json").write_text(json.dumps(values | {"versions": "whatever it says"}))
    check.main("proof.json", folder)
    first, same, rest = capsys.readouterr().out.splitlines()
    assert first.startswith("CHECKED: right on all 10^2 pairs, by ")
    assert all(name in same for name in ("claim", "params", "level", "digits", "bounds", "spec", "theta_sha256"))
    assert same.endswith("and the margin 0.725 at digit 10 of 9 + 9")
    assert rest == "  not checked: versions, program_sha256 (second.py does), and that no margin is smaller"
    with pytest.raises(SystemExit, match="another θ"):
        check.main("proof.json", CERTIFICATES / "7p")
    Path("text").write_text("hello")
    Path("empty").write_text("{}")
    for proof, checkpoint, expected in (
        ("nowhere", folder, "nowhere: No such file or directory"),
        ("proof.json", "nowhere", "nowhere/theta.safetensors: No such file or directory"),
        ("text", folder, "text: cannot be read (JSONDecodeError: Expecting value: line 1 column 1 (char 0))"),
        ("empty", folder, "empty: no proof, or not one that is known here"),
    ):
        assert refusal(SystemExit, check.main, proof, checkpoint) == f"NOT CHECKED: {expected}"


def test_a_proof_of_a_checkout_says_that_nothing_is_installed(monkeypatch):
    monkeypatch.setattr("adders.proof.file.version", Mock(side_effect=PackageNotFoundError))
    checkpoint = certificate("6p")
    assert as_file(checkpoint, decided(checkpoint, digits=1))["versions"]["adder-search"] == "not installed"


def test_a_counterexample_is_one_of_the_exported_program():
    checkpoint = certificate("10p-qualified")
    result = call("prove", CERTIFICATES / "10p-qualified", "--digits", 3, "--json", "-o", "no.json")
    assert result.exit_code == 1 and result.stderr == "no.json: not written, as there is no proof\n"
    values = json.loads(result.stdout)
    (wrong,) = values["wrong"]
    assert values["verdict"] == COUNTEREXAMPLE and values["params"] == 10
    assert program_of(checkpoint).add(wrong["a"], wrong["b"]) == wrong["answer"]
    assert wrong["answer"] != wrong["a"] + wrong["b"]


def test_a_verdict_beside_a_checkpoint_is_of_all_pairs_and_of_this_spec_and_theta(here):
    shutil.copytree(CERTIFICATES / "7p", here / "7p")
    path, spec, theta_P = here / "7p/proof.json", certificate("7p").spec, certificate("7p").theta_P
    values = json.loads(path.read_text())
    other = dataclasses.replace(spec, base=dataclasses.replace(spec.base, spiral_slope=0.3))
    assert is_right(claim_beside(here / "7p", spec, theta_P)) is True
    assert is_right(claim_beside(here / "7p", spec, certificate("6p").theta_P)) is None
    assert is_right(claim_beside(here / "7p", other, theta_P)) is None
    for text in (json.dumps(values | {"digits": 1}), "[]", "{", json.dumps(values | {"verdict": UNDECIDED})):
        path.write_text(text)
        assert is_right(claim_beside(here / "7p", spec, theta_P)) is None
    assert "--record" in fails_with_one(2, "prove", here / "7p", "--digits", 1, "--record")


def test_a_proof_and_a_recorded_verdict_do_not_overwrite_each_other(here, monkeypatch):
    shutil.copytree(CERTIFICATES / "7p", here / "7p")
    path, other = here / "7p/proof.json", here / "6p"
    (here / "link").symlink_to(path)
    before = snapshot(here)
    monkeypatch.chdir(here / "7p")
    for words in (
        ("prove", other, "-o", path), ("prove", ".", "-o", "proof.json"), ("prove", ".", "-o", "../link"),
        ("prove", ".", "--record", "-o", "../7p/proof.json"), ("prove", ".", "-o", "checkpoint.json"),
        ("explain", ".", "-o", "theta.safetensors"),
    ):  # fmt: skip
        said = fails_with_one(2, *words)
        assert said == f"{words[words.index('-o') + 1]}: is a file of a checkpoint; give another name with -o"
    assert snapshot(here) == before
    path.write_text(json.dumps({"format": 3, "claim": "right"}))
    line = fails_with_one(2, "prove", ".", "--record")
    assert line == "proof.json: is a proof, which a verdict would overwrite; move it elsewhere"


def test_what_no_study_takes_is_refused(here):
    for words in ("--digits 2", "--level here", "--record", "--count", "-o x"):
        said = fails_with_one(2, "prove", "--study", "sweep", *words.split())
        assert said == f"{words.split()[0]} is of a CHECKPOINT, and does not go with --study"
    for given in ([], ["somewhere", "--study", "sweep"]):
        done = call("prove", *given)
        assert done.exit_code == 2 and "give a CHECKPOINT, or --study STUDY" in done.stderr


def test_a_verdict_that_decides_nothing_replaces_none_that_does(here, monkeypatch):
    """But for one of an earlier program, which export refuses."""
    shutil.copytree(CERTIFICATES / "7p", here / "7p")
    before, checkpoint = (here / "7p/proof.json").read_text(), certificate("7p")
    proof = decided(checkpoint, digits=1)
    undecided = dataclasses.replace(proof, verdict=UNDECIDED, digits=10)
    monkeypatch.setattr("adders.proof.prover.prove", lambda *given, **options: undecided)
    monkeypatch.setattr("model.adderboard.failures", lambda *given: [])
    result = call("prove", "7p", "--record")
    assert result.output.splitlines()[-1].startswith(
        "  not recorded: the folder's verdict is: claimed, not checked here: proved right on all 10^20"
    )
    path = here / "7p/proof.json"
    assert path.read_text() == before
    path.write_text(json.dumps(json.loads(before) | {"program_sha256": "0" * 64}))
    assert "not recorded" not in call("prove", "7p", "--record", code=1).output
    assert json.loads(path.read_text())["verdict"] == UNDECIDED
    call("export", "7p", code=0)
