"""`adder-search publish`: checkpoints and records as folders that a model hub shows as they are. Nothing is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reports.markup import escape
from search.cli.options import (
    PATH,
    home_option,
    load_checkpoint,
    said_of,
    target_option,
    writing,
)
from search.errors import UserError, reraise_as
from search.study.ancestors import Step, ancestors_of

if TYPE_CHECKING:
    import pandas as pd

    from model import Verification
    from search.store.home import Home
    from trainer.checkpoints.checkpoint import Checkpoint

AUTHOR = "adder-search"
PROGRAM = "modeling_adder.py"
MODEL_CARD = """\
---
license: mit
tags: [addition, arithmetic, tiny, adder-search]
model-index:
- name: {quoted}
  results:
  - task: {{type: text-generation, name: addition of two 10-digit numbers}}
    dataset: {{type: adderboard, name: "AdderBoard, 10,010 pairs"}}
    metrics: [{{type: exact_match, value: {exact}}}]
---
# {name}: {params:,} numbers that add two 10-digit numbers

{architecture}.

| | |
|---|---|
{facts}

{lineage}

## Use

`{program}` needs torch alone, and reads `config.json` and `model.safetensors` beside it:

```python
from modeling_adder import add, build_model

model, metadata = build_model()
print(add(model, 1234567890, 9876543210))
```

## Its numbers

Counted as [AdderBoard](https://github.com/anadim/AdderBoard) does: what is trained, each once. With all hard-wired
constants that are neither 0 nor a sign they are {constants:,}.

| tensor | numbers |
|---|---|
{tensors}

Constraints: {tricks}.
"""
DATASET_CARD = """\
---
license: mit
tags: [addition, grokking, adder-search]
configs:
- {{config_name: seeds, data_files: seeds.parquet, default: true}}
- {{config_name: configurations, data_files: configurations.parquet}}
---
# {study}: all {seeds:,} seeds, configurations: {configurations:,}

{about}Every seed that was tried, whatever came of it; `outcome` says which: {outcomes}. A configuration's
`grok_rate` has its 95 % interval beside it. Columns are explained in adder-search's documentation.
"""


@click.command()
@click.argument("checkpoints", nargs=-1, type=PATH, metavar="[CHECKPOINT]...")
@click.option("--study", help="Its records as a dataset too: a folder STUDY-seeds.")
@target_option("Folder to write into.", required=True)
@home_option
def publish(checkpoints: tuple[Path, ...], study: str | None, target: Path, home: Home) -> None:
    """Write CHECKPOINTs as folders that a model hub shows as they are, each named as its own; send nothing.

    Each has safetensors, a configuration, a program that needs torch alone, the checkpoint's provenance, and a card:
    its counts, how often its recipe works by the records that are here, lineage, verification and proof.
    """
    if not checkpoints and not study:
        raise UserError("give a CHECKPOINT or a --study")
    from adders.proof.file import settled
    from adders.proof.program import source
    from model.verdict import refuse_proof
    from trainer.checkpoints.checkpoint import THETA_FILE

    # all is checked before anything is written
    loaded = {path.resolve().name: (path, load_checkpoint(path)) for path in checkpoints}
    if len(loaded) < len(checkpoints):
        raise UserError("two checkpoints have one name, which their folders would share")
    for folder in (target / name for name in loaded):
        if (folder / THETA_FILE).exists():
            raise UserError(f"{folder}: is a checkpoint; choose another folder with -o")
        with reraise_as():
            refuse_proof(folder)
    dataset = _dataset(study, home) if study else None
    proofs = {}
    for name, (path, checkpoint) in loaded.items():
        spec, theta_P = checkpoint.spec, checkpoint.theta_P
        # of the program without a name, which is what a proof is about
        with reraise_as(path):
            proofs[name] = settled(path, spec, theta_P, source(spec, theta_P))

    for name, (_, checkpoint) in loaded.items():
        with writing(target / name):
            correct = _write_model(checkpoint, proofs[name], target / name, home)
        click.echo(f"{target / name}: {checkpoint.spec.params:,} parameters, {correct}")
    if dataset:
        folder = target / f"{study}-seeds"
        with writing(folder):
            click.echo(_write_dataset(folder, *dataset))


def _write_model(checkpoint: Checkpoint, proof: dict[str, Any] | None, folder: Path, home: Home) -> str:
    """Write a model's folder. Return how many additions are right."""
    import torch
    from safetensors.torch import save

    from adders.export import data_blocks, hub_source
    from model import verify
    from model.verdict import VERDICT_FILE, write_verdict
    from trainer.checkpoints.checkpoint import JSON_FILE
    from trainer.files import durable

    spec = checkpoint.spec
    data = data_blocks(spec, checkpoint.theta_P, name=folder.name, author=AUTHOR, proof=proof)
    result = verify(spec, checkpoint.theta_P)
    numbers = data.get("WEIGHTS") or {"numbers": data["NUMBERS"]}
    config = {
        "model_type": AUTHOR,
        "architectures": ["Adder"],
        "torch_dtype": "float32",
        "params": spec.params,
        "spec": data["SPEC"],
        "metadata": data["METADATA"],
        "ties": data.get("TIES"),
    }
    durable.make_folder(folder)
    texts = {
        "config.json": json.dumps(config, indent=2) + "\n",
        PROGRAM: hub_source(spec),
        "README.md": _card(folder.name, checkpoint, data, result, proof, _rate(checkpoint, home)),
        JSON_FILE: json.dumps(checkpoint.as_dict(), indent=2) + "\n",
    }
    for name, text in texts.items():
        durable.write(folder / name, text.encode())
    tensors = {name: torch.tensor(values) for name, values in numbers.items()}
    durable.write(folder / "model.safetensors", save(tensors, {"format": "pt"}))
    if proof:
        write_verdict(folder, spec, checkpoint.theta_P, proof)
    else:
        # of another model that was written here before
        (folder / VERDICT_FILE).unlink(missing_ok=True)
    return f"{result.correct:,}/{result.total:,}"


def _card(
    name: str,
    checkpoint: Checkpoint,
    data: Mapping[str, Any],
    result: Verification,
    proof: dict[str, Any] | None,
    rate: str,
) -> str:
    """Return the text of a model's card. rate: how often its recipe works, in words."""
    import torch

    from model.tied import count
    from model.verdict import is_right

    spec, metadata = checkpoint.spec, data["METADATA"]
    verdict = "no proof is known for its family"
    if proof and "claimed" in proof:
        verdict = said_of(proof)
    elif proof and is_right(proof) is None:
        verdict = f"undecided after {proof['seconds']:.0f} s (adder-search prove takes longer)"
    elif proof:
        verdict = said_of(proof)
        if proof["margin"] is not None:
            verdict += f"; least margin of logits {proof['margin']:.3g}"
    facts = {
        "AdderBoard's 10,010": f"{result.correct:,} right",
        "all 10^20 pairs": verdict,
        "recipe": rate,
        "seed, step": f"{checkpoint.seed.get('init_seed', 'unknown')}, {checkpoint.step:,}",
    }
    tied = {"numbers, each used in several places": data.get("NUMBERS")}
    sizes = {tensor: torch.tensor(values).numel() for tensor, values in data.get("WEIGHTS", tied).items()}
    sizes["together"] = spec.params
    return MODEL_CARD.format(
        name=escape(name),
        quoted=json.dumps(name),
        constants=count(spec).constants,
        params=spec.params,
        exact=result.correct / result.total,
        architecture=metadata["architecture"],
        facts="\n".join(f"| {key} | {escape(value)} |" for key, value in facts.items()),
        lineage="\n".join(map(_step_text, ancestors_of(checkpoint))),
        program=PROGRAM,
        tensors="\n".join(f"| {tensor} | {size:,} |" for tensor, size in sizes.items()),
        tricks=", ".join(f"`{trick}`" for trick in metadata["tricks"]) or "none",
    )


def _step_text(step: Step) -> str:
    """Return a line for a step of a checkpoint's lineage."""
    from search.analysis.lineage import describe

    text = describe(step)
    trained = step.get("trained")
    digest = step.get("theta_sha256")
    if trained:
        text += f"; trained {trained}"
    if digest:
        text += f" (θ {digest:.12})"
    return f"- {escape(text)}"


def _rate(checkpoint: Checkpoint, home: Home) -> str:
    """Return how often the first ancestor's recipe works, by its own study's records, else by another's.

    The home's records come before those of the package.
    """
    from reports.records import rates_of, shipped_records
    from search.analysis.frames import RecordSet
    from search.stats.counting import percents

    first = ancestors_of(checkpoint)[0]
    key = first.get("configuration")
    study = first.get("study")
    sources = [[], shipped_records()] if home.exists() else [shipped_records()]
    rows = []
    for names in sources:
        of_source = RecordSet(names, home.path).configurations()
        its = [row for row in of_source if row["configuration"] == key and row["seeds"]]
        rows += sorted(its, key=itemgetter("seeds"), reverse=True)
        # the package's own are read only where the home's do not have it
        if any(row["study"] == study for row in rows):
            break
    if not rows:
        return "no rate is recorded here"
    row = next((row for row in rows if row["study"] == study), rows[0])
    said = f"{row['grokked']:,} of {row['seeds']:,} seeds grok"
    chosen = ""
    low = row.get("grok_rate_low")
    high = row.get("grok_rate_high")
    # `> 0`, as a file may have NaN
    if row.get("confirmation_seeds", 0) > 0:
        search, fresh = rates_of(row)
        said, (low, high) = f"{fresh.grokked:,} of {fresh.n:,} fresh seeds grok", fresh.interval
        chosen = f"; {search.grokked:,} of {search.n:,} in the search that chose it"
    interval = f" (95 %: {percents((low, high))})" if low is not None and high is not None else ""
    again = ""
    if row.get("recipe.again_at", 0) > 0:
        again = f"; a run draws up to {row['recipe.again_most'] + 1:.0f} initial vectors"
    place = f"study {study}" if row["study"] == study else f"not its own study but {row['study']}"
    return f"{said}{interval}{chosen}{again}; {place}, configuration {key}"


def _dataset(study: str, home: Home) -> tuple[dict[str, pd.DataFrame], str]:
    """Return a study's tables by name, and the dataset's card. Raises UserError where nothing has finished."""
    from search.analysis.frames import configurations_frame, seeds_frame
    from search.store.study_records import open_records

    records = open_records(home, study)
    seeds = seeds_frame(records)
    if seeds.empty:
        raise UserError(f"study {study!r} has no finished seed yet")
    frames = {"seeds": seeds, "configurations": configurations_frame(records)}
    recorded = records.get_recorded_study()
    counts = {name: len(frame) for name, frame in frames.items()}
    outcomes = ", ".join(f"{n:,} {outcome}" for outcome, n in seeds["outcome"].value_counts().items())
    about = f"{escape(recorded.about)}. " if recorded and recorded.about else ""
    return frames, DATASET_CARD.format(study=study, about=about, outcomes=outcomes, **counts)


def _write_dataset(folder: Path, frames: Mapping[str, pd.DataFrame], card: str) -> str:
    """Write a dataset's folder. Return a line about it."""
    from search.analysis.frames import as_columns
    from trainer.files import durable

    durable.make_folder(folder)
    for name, frame in frames.items():
        as_columns(frame).to_parquet(folder / f"{name}.parquet", index=False)
    durable.write(folder / "README.md", card.encode())
    return f"{folder}: {len(frames['seeds']):,} seeds, configurations: {len(frames['configurations']):,}"
