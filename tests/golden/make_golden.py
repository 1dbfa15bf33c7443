"""Write the golden files, after a change meant to change them: `python -m tests.golden.make_golden NAME ...`.

NAME: defaults, keys, reports, listings, checkpoints, messages or curves; without any, all of them.
"""

import dataclasses
import hashlib
import html
import json
import re
import sys
from functools import cache
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from model import make_spec, preset
from model.spec import FAMILIES
from search.run.progress import Display
from search.study.file import load_study
from search.study.trial import Configuration
from tests import CERTIFICATES, ROOT, homes
from tests.commands import call, done
from tests.in_process import without_ray
from trainer import MEASURES, Bank, Outcome, Pair, Recipe, Seed

DATA = Path(__file__).with_name("data")


# ---- defaults and keys


def defaults():
    """Every field's default, of the recipe and of each family's spec."""
    kinds = {"recipe": dataclasses.fields(Recipe), **{family: cls.options() for family, cls in FAMILIES.items()}}
    return {kind: {field.name: field.default for field in fields} for kind, fields in kinds.items()}


@cache
def study_files():
    """Every study file of the repository by the study's name, wherever it lies."""
    files = {}
    for path in sorted(ROOT.rglob("*.yaml")):
        parts = path.relative_to(ROOT).parts
        if parts[0] == "build" or any(part.startswith(".") for part in parts):  # of `make wheel`, and of tools
            continue
        lines = path.read_text("utf-8").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("name:")), "")
        if name and any(line.startswith("seeds:") for line in lines):
            assert name not in files, f"{path} and {files[name]} are both the study {name}"
            files[name] = path
    return files


def configurations(study):
    """Key and every field of a study's listed configurations; of a search, of the one that it starts from.

    A study that looks for constraints lists none: its recipe alone is what it fixes. Of all combinations the
    first few stand for the others.
    """
    listed = study.listed[: 4 if study.combine else None]
    return [
        {
            "key": Configuration(spec, recipe).key if spec else None,
            "spec": spec.as_dict() if spec else None,
            "recipe": recipe.as_dict(),
        }
        for spec, recipe in listed or [(None, study.base_recipe)]
    ]


def shortened(fields, usual, kind="recipe"):
    """Fields without those at their usual values."""
    if not isinstance(fields, dict):
        return fields
    defaults = usual.get(fields.get("family", kind), {})
    inner = {n: shortened(v, usual) if n == "base" else v for n, v in fields.items()}
    return {n: v for n, v in inner.items() if n not in defaults or v != defaults[n]}


def keys_of(path):
    """A study's configurations; fields that have the stored defaults are left out."""
    usual, listed = stored("defaults"), configurations(load_study(str(path)))
    return [{part: shortened(v, usual) for part, v in configuration.items()} for configuration in listed]


def keys():
    return {name: keys_of(path) for name, path in sorted(study_files().items())}


# ---- the report of recorded studies

LISTED = """
name: listed
about: three configurations, all that can become of a seed
model: 74p
recipe: {steps: 3000, fade_start: 100, fade_end: 200}
toggle: [tie_vo, tie_fc2_head]
seeds: {first: 1, count: 8}
"""
SEARCHED = """
name: searched
about: a search and a confirmation
model: 57p
recipe: {steps: 3000, fade_start: 100, fade_end: 200}
space:
  recipe.lr: {float: [0.01, 0.03], log: true}
  recipe.carry_mix: {float: [0.2, 0.6]}
sampler: {name: random, configurations: 3, seed: 0}
seeds: {first: 30, count: 4}
confirm: {configurations: 1, seeds: {first: 90, count: 4}}
"""


def record_home(folder):
    """A home with two studies, recorded without training."""
    home = homes.empty_home(folder)
    listed = homes.Recorder(home, homes.study_of(LISTED))
    one, two, three = listed.configurations
    listed.seeds(range(1, 9), one, grokked=(2, 5), changes={
        5: {"held": True, "best_step": 3_000, "grok_step": 2_500},
        6: {"outcome": Outcome.DIVERGED, "steps": 700},
        7: {"outcome": Outcome.GIVEN_UP, "steps": 1_000, "hopeless_step": 1_000},
        8: {"outcome": Outcome.SCREENED, "steps": 2_000, "screen": "token 0.35 at 2000"},
    })  # fmt: skip
    listed.seeds(range(1, 9), two, grokked=(1, 2, 3, 4, 5))
    listed.seeds(range(1, 5), three)
    listed.censored(range(5, 9), three)
    listed.seeds(range(60, 64), two, grokked=(60,), confirmation=True)
    listed.done()
    homes.drive(home, homes.study_of(SEARCHED), grokked=(31, 33, 91))


def reports():
    """The report of each study of the recorded home, as lines of text."""
    with TemporaryDirectory() as folder, homes.quickly():
        home, page, found = Path(folder, "runs"), Path(folder, "report.html"), {}
        record_home(home)
        for study in ("listed", "searched"):
            done("report", study, "-o", page, "--home", home)
            found[study] = lines_of(page.read_text("utf-8"))
        return json.loads(json.dumps(plain(found)).replace(str(home), "HOME"))


RANDOM = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
"""MLflow's name of a run."""


def plain(value):
    """Without what differs between two recordings of the same."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if not isinstance(value, str):
        return value
    return re.sub(r"--home \S+", "--home HOME", RANDOM.sub("RUN", value))  # as seen from where it is called


def lines_of(page):
    """A page's text, a line a block or row; without the table of all that was held fixed."""
    page = re.sub(r"(?s)<(style|script|details)\b.*?</\1>", "", page)
    page = re.sub(r"</(td|th|dt)>", " | ", page)
    blocks = re.split(r"</?(?:p|h\d|tr|li|dd|caption|figcaption|pre|figure|table|div)\b[^>]*>", page)
    texts = (" ".join(html.unescape(re.sub(r"<[^>]+>", "", block)).split()) for block in blocks)
    return [text for text in texts if text]


# ---- what commands list, and say of a checkpoint


@cache
def listings():
    """What a study file may have and what comes with the package, as `--json` has it; texts left out."""

    def said(name):
        return json.loads(done(name, "--json"))

    return {
        "keys": {row["path"]: row["default"] for row in said("keys")},
        "models": {row.pop("name"): row for row in said("models")},
        "studies": {row["name"]: row["params"] for row in said("studies")},
    }


ASKED = {
    "verify": ("6p",),
    "prove": ("6p",),
    "fold": ("57p", "--pairs", "1000", "-o", "folded"),
    "diagnose": ("6p", "--problems", "64", "--most", "2", "--cores", "1"),
    "rerun": ("57p",),
}
"""Commands that take a checkpoint: a certificate, and options."""
RESEARCH = {"claims": ("--shipped",), "thresholds": (), "forge": ("12", "34")}
BY_MACHINE = (
    "seconds", "spectrum", "predicted", "loss", "margin", "largest_logit", "largest_logit_difference", "environment",
    "differs", "not_recorded",
)  # fmt: skip
"""Numbers that a library's order of sums or the time decides, and what says which machine it was."""


def checkpoints():
    """What commands say of certificates; of the notebook's commands names and types alone, as its data grows."""
    with TemporaryDirectory() as folder:
        answers = {}
        for name, (certificate, *options) in ASKED.items():
            words = [str(Path(folder, word)) if word == "folded" else word for word in options]
            answers[name] = unlike(json.loads(call(name, CERTIFICATES / certificate, *words, "--json").stdout))
        for name, options in RESEARCH.items():
            answers[name] = types_of(json.loads(done(name, *options, "--json")))
    return {name: answer if isinstance(answer, dict) else {"rows": answer} for name, answer in answers.items()}


def unlike(value):
    """An answer without what differs by machine."""
    if isinstance(value, dict):
        return {k: unlike(v) for k, v in value.items() if k not in BY_MACHINE}
    return [unlike(v) for v in value] if isinstance(value, list) else value


def types_of(value):
    """Names and types in an answer; a list has those of its first item."""
    if isinstance(value, dict):
        return {k: types_of(v) for k, v in value.items()}
    return [types_of(v) for v in value[:1]] if isinstance(value, list) else type(value).__name__


# ---- what a run prints

SAID = {
    "a sweep": """
name: swept
about: seeds that share a bank
model: 57p
recipe: {steps: 40, batch: 8, eval_every: 10, warmup: 4, curriculum: [[3, 5]], fade_start: 5, fade_end: 15, hold: 10}
seeds: {first: 1, count: 3}
resources: {cpu: 1, gpu: 0, slots: 2, seeds_per_trial: 4}
""",
    "a search": """
name: sought
about: a search whose best is confirmed
model: 57p
start: {checkpoint: CERTIFICATES/57p}
recipe: {steps: 40, batch: 8, eval_every: 10, warmup: 4, curriculum: [[3, 5]], fade_start: 5, fade_end: 15, hold: 10}
space:
  recipe.lr: {float: [0.00001, 0.5], log: true}
sampler: {configurations: 2}
seeds: {first: 1, count: 2}
confirm: {configurations: 1, seeds: {first: 90, count: 2}}
resources: {cpu: 1, gpu: 0, slots: 2, seeds_per_trial: 4}
""",
}
SPAN = r"(?:\d+ h \d+ min|\d+ min \d+ s|\d+ s\b)"
"""A time, as runs and plans say it."""
MEASURED = (
    (re.compile(rf"(?<= ){SPAN}(?:, [\d,]+ seed-steps/s)?(?:, about {SPAN} left)?"), "TIME"),
    (re.compile(r"--home \S+"), "--home HOME"),
    (re.compile(r"\d+ at once|; more follow"), ""),
    (re.compile(r"\S+(?= (?:core-seconds here|seed-steps a second))"), "N"),
)
"""What the machine decides of a line, and what stands for it."""
SOMETIMES = ("writing to MLflow: ", "  load ", "  compiling took ")
"""Lines that are there on a slow or busy machine."""


def messages(studies=tuple(SAID)):
    """The plan of a run, and all that it prints without a terminal; a line that is repeated once."""
    said = {}
    with TemporaryDirectory() as folder, homes.quickly(), without_ray(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Display, "due", lambda self: True)
        for name in studies:
            file = Path(folder, "study.yaml")
            file.write_text(SAID[name].replace("CERTIFICATES", str(CERTIFICATES)))
            for kind, options in (("plan", ["--dry-run"]), ("run", []), ("again", [])):
                lines = done("run", file, *options, "--home", Path(folder, "home")).replace(folder, "FOLDER")
                for pattern, word in MEASURED:
                    lines = pattern.sub(word, lines)
                lasting_lines = [line for line in lines.splitlines() if not line.startswith(SOMETIMES)]
                said[f"{name}: {kind}"] = [line for line, _ in groupby(lasting_lines)]
    return said


# ---- curves

SHORT = {
    "steps": 80, "batch": 64, "eval_every": 20, "warmup": 20, "curriculum": ((3, 20), (6, 20)),
    "fade_start": 10, "fade_end": 70,
}  # fmt: skip
LONG = {
    "steps": 300, "batch": 64, "eval_every": 10, "warmup": 100, "curriculum": ((3, 100), (6, 100)),
    "fade_start": 50, "fade_end": 250,
}  # fmt: skip
"""Every schedule is at work within the steps of either."""
SEEDS = (777, 1)
TIES = ["fc1[0,0] = fc1[1,0]", "arc[1] = -arc[0]", "norm[0,1] = 0"]

BRANCHES = {
    **dict.fromkeys(("57p", "170p", "456p"), LONG),
    **dict.fromkeys(("54p", "47p", "62p", "67p", "100p", "242p", "262p", "512p", "763p"), SHORT),
}
"""A preset for each branch of the kernels."""
CHANGES = yaml.safe_load("""
tied: {ramp: 40, ramp_start: 20}

adam: {optimiser: adam}
lion: {optimiser: lion, lr: 0.003}
sgd: {optimiser: sgd}
sam: {sam_rho: 0.05}
grokfast: {grokfast_lambda: 2.0, grokfast_end: 60}
average: {lr: 0.1, ema_decay: 0.95}
l1: {l1_lambda: 0.1, l1_entries: [fc1], l1_start: 10, l1_rise: 20}
freeze: {freeze: [[30, arc, 'norm[0,1]']]}
factors: {lr_factors: [[arc, 0.5], [norm, 3.0]]}

problems:
  {mixed_lengths: 0.3, targeted: 0.5, carry_shares: [[0, 0.2, 0.1, 0.2, 0.1], [70, 0.1, 0.1, 0, 0]]}
starts:
  {init: [[equals, at, 2.8, -2.0, -0.1]], recycle_every: 20, recycle_from: 20, recycle_until: 60,
   recycle_unless: [[switches, 0.95]], again_at: 40, again_unless: [[token, 0.9]]}
""")
"""What 57p is trained with: ties, optimisers and wrappers, problems and starts."""
CASES = {name: (name, fields) for name, fields in BRANCHES.items()}
CASES |= {name: ("57p", SHORT | fields) for name, fields in CHANGES.items()}
"""Name -> (preset, fields of the recipe)."""


def curve(name):
    """By seed: mean training loss since the evaluation before, token accuracy; digests of all measures and of θ."""
    model_name, fields = CASES[name]
    spec, ties = preset(model_name), None
    if name == "tied":
        ties = make_spec("tied", base=spec.as_dict(), ties=TIES).ties
    pairs = [Pair(Recipe(**fields), Seed.of(number), ties=ties) for number in SEEDS]
    bank = Bank(spec, pairs)  # the whole curve
    while bank.advance():
        pass
    train_loss, token = (MEASURES.index(measure) for measure in ("train_loss", "token"))
    curves = {}
    for n, number in enumerate(SEEDS):
        result = bank.result(n)
        bits = result.theta_P.numpy().tobytes()
        curves[str(number)] = {
            "train_loss": result.curve_EM[:, train_loss].tolist(),
            "token": result.curve_EM[:, token].tolist(),
            "measures": hashlib.sha256(result.curve_EM.numpy().tobytes()).hexdigest()[:16],
            "theta": hashlib.sha256(bits).hexdigest()[:16],
        }
    return curves


def all_curves():
    return {name: curve(name) for name in CASES}


# ---- files

WRITERS = {
    "defaults": defaults, "keys": keys, "reports": reports, "listings": listings, "checkpoints": checkpoints,
    "messages": messages, "curves": all_curves,
}  # fmt: skip


def text_of(value):
    """JSON whose lines are what one compares: an entry of an entry a line."""
    lines = []
    for name, inner in value.items():
        entries = inner.items() if isinstance(inner, dict) else enumerate(inner)
        texts = [json.dumps(v, ensure_ascii=False) for _, v in entries]
        if isinstance(inner, dict):
            texts = [f"{json.dumps(k)}: {t}" for k, t in zip(inner, texts, strict=True)]
        ends = "{}" if isinstance(inner, dict) else "[]"
        body = ",\n  ".join(texts)
        lines.append(f" {json.dumps(name)}: {ends[0]}\n  {body}\n {ends[1]}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def stored(name):
    return json.loads((DATA / f"{name}.json").read_text("utf-8"))


if __name__ == "__main__":
    for name in sys.argv[1:] or WRITERS:
        (DATA / f"{name}.json").write_text(text_of(WRITERS[name]()), "utf-8")
