"""`adder-search pull`, `verify`, `export`, `rerun`, `fold`, `finish` and `import`: checkpoints."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from search.cli.options import (
    checkpoint_argument,
    home_option,
    json_option,
    load_checkpoint,
    save_checkpoint,
    trust_option,
    write_text,
    writing,
)
from search.errors import Failure, UserError, reraise_as

if TYPE_CHECKING:
    from model import Spec, Verification
    from model.compare import Comparison
    from search.run.rerun import Request, Rerun
    from search.store.home import Home
    from trainer.checkpoints.checkpoint import Checkpoint
    from trainer.finishing.finish import Finished, Turn

NAMED = 20
"""Number of wrong answers that `verify` names one by one."""
METHODS = ("train", "levenberg_marquardt", "targeted", "lbfgs", "cma_es")


@click.command()
@click.argument("study")
@click.option("--best", is_flag=True, help="The best seed (the default).")
@click.option("--seed", help="This seed; 777.804 is the initial values of 777 with the data of 804.")
@click.option("--model", help="Of this preset only, where a study has several.")
@click.option("--configuration", metavar="KEY", help="Of this configuration only; its key, or how it begins.")
@click.option("-o", "target", type=click.Path(path_type=Path), help="Folder to write [STUDY-seed].")
@home_option
@trust_option
def pull(
    study: str,
    best: bool,
    seed: str | None,
    model: str | None,
    configuration: str | None,
    target: Path | None,
    home: str | None,
    trust_store: bool,
) -> None:
    """Fetch a checkpoint (safetensors and JSON) of a STUDY's best or given seed out of MLflow."""
    if best and seed is not None:
        raise UserError("give --best or --seed, not both")
    from search.store.candidates import DatabaseCandidates, smallest
    from search.store.home import Home
    from search.store.ledger import open_ledger
    from search.tracking import artifacts as seeds
    from trainer import Outcome, Seed

    with reraise_as("--seed"):
        wanted = None if seed is None else Seed.named(seed)
    ledger = open_ledger(Home(home, trust_store))
    if wanted is None and model is None and configuration is None:
        candidate = smallest(DatabaseCandidates(ledger, study).read())  # of a study of descents
        if candidate and candidate.start and candidate.configuration:
            configuration = candidate.configuration
            wanted = Seed.named(candidate.start.lineage[-1]["seed"])
    checkpoint = seeds.pull(ledger, study, wanted, model, configuration)
    number, metrics = Seed(**checkpoint.seed), checkpoint.metrics
    target = target or Path(f"{study}-{number}")
    save_checkpoint(checkpoint, target)
    click.echo(f"{target}: seed {number}, {checkpoint.spec.params} parameters, step {checkpoint.step:,}")
    if metrics["outcome"] == Outcome.GROKKED:
        stability = "held" if metrics["held"] else "did not hold"
        click.echo(f"  grokked at step {metrics['grok_step']:,} and {stability}")
    else:
        click.echo(f"  did not grok ({metrics['outcome']}); best exact match {metrics['best_exact']:.4f}")


@click.command()
@checkpoint_argument
@click.option("--qualified", is_flag=True, help="Exit with 0 from 99 % on.")
@click.option("--extended", is_flag=True, help="Add ten further sets of 10,000 and carry-stratified sets.")
@home_option
@trust_option
@json_option
def verify(
    checkpoint: Path, qualified: bool, extended: bool, home: str | None, trust_store: bool, as_json: bool
) -> None:
    """Check a CHECKPOINT on AdderBoard's 10,010 additions. Exit code 0 only if all are right."""
    from model import verify as decode_all
    from search.store.home import Home

    loaded = load_checkpoint(checkpoint)
    result = decode_all(loaded.spec, loaded.theta_P, extended=extended)
    _record_verification(loaded, Home(home, trust_store), result.correct)
    if as_json:
        click.echo(json.dumps(result.as_dict()))
    else:
        click.echo(_verdict(loaded.spec, result))
        for a, b, answer in result.failures[:NAMED]:
            click.echo(f"  {a} + {b} = {a + b}, decoded {answer}")
        if len(result.failures) > NAMED:
            click.echo(f"  and {len(result.failures) - NAMED} more (--json lists all)")
        for name, (correct, total) in result.extended.items():
            click.echo(f"  {name}: {correct}/{total}")
    sys.exit(0 if (result.qualified if qualified else result.verified) else Failure.code)


def _record_verification(checkpoint: Checkpoint, home: Home, correct: int) -> None:
    """Count the call with the seed and keep its result, where this home has the seed with this θ."""
    if not (home.exists() and checkpoint.provenance.get("study")):
        return
    from search.store.ledger import Ledger
    from search.tracking.artifacts import record_verification

    try:
        record_verification(Ledger(home), checkpoint, correct)
    except (UserError, Failure) as error:
        click.echo(f"this call could not be recorded: {error}", err=True)


def _grade(result: Verification) -> str:
    grade = "VERIFIED" if result.verified else "QUALIFIED" if result.qualified else "NOT QUALIFIED"
    return f"{result.correct}/{result.total} {grade}"


def _verdict(spec: Spec, result: Verification) -> str:
    """Return one line: the model, its parameters, and the number of right official additions."""
    from model import preset_name

    return f"{preset_name(spec)}, {result.params} parameters: {_grade(result)}"


@click.command()
@checkpoint_argument
@click.option("-o", "target", type=click.Path(path_type=Path), default="submission.py", show_default=True)
@click.option("--author", default="adder-search", show_default=True, help="Named in the metadata.")
def export(checkpoint: Path, target: Path, author: str) -> None:
    """Write a CHECKPOINT as one self-contained AdderBoard submission."""
    from model import preset_name
    from model.export import export_source

    loaded = load_checkpoint(checkpoint)
    spec, theta_P, provenance = loaded.spec, loaded.theta_P, loaded.provenance
    name = f"{preset_name(spec)} seed {loaded.seed.get('init_seed', 'unknown')}"
    with reraise_as(checkpoint):
        source = export_source(spec, theta_P, name=name, author=author, provenance=provenance)
    write_text(target, source)
    click.echo(f"{target}: {spec.params} parameters, build_model() and add(model, a, b)")


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--out", "target", required=True, type=click.Path(path_type=Path), help="Folder to make.")
@json_option
def import_(file: Path, target: Path, as_json: bool) -> None:
    """Turn a FILE of MicroAdder's or of the 456p report's into a checkpoint folder, and verify it.

    Nothing in the file is run. A checkpoint that gets additions wrong is written all the same.
    """
    from model import verify as decode_all
    from trainer.checkpoints.foreign import read_foreign

    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UserError(f"{target}: exists and is not empty; choose another folder with -o")
    with reraise_as():
        checkpoint = read_foreign(file)
    with writing(target):
        checkpoint.save(target)
    result = decode_all(checkpoint.spec, checkpoint.theta_P)
    if as_json:
        about = {"checkpoint": str(target), "spec": checkpoint.spec.as_dict(), **checkpoint.provenance}
        click.echo(json.dumps({**about, **result.as_dict()}))
    else:
        click.echo(f"{target}: from a {checkpoint.provenance['format']} checkpoint")
        click.echo(f"  {_verdict(checkpoint.spec, result)}")


@click.command()
@checkpoint_argument
@click.option("-o", "target", type=click.Path(path_type=Path), required=True, help="Folder to write.")
@click.option(
    "--pairs", default=1_000_000, show_default=True, type=click.IntRange(0), help="Fresh pairs to compare on."
)
@json_option
def fold(checkpoint: Path, target: Path, pairs: int, as_json: bool) -> None:
    """Rewrite a CHECKPOINT exactly into its smallest form; nothing is trained again.

    Both models answer the 10,010 official additions and fresh pairs; exit code 0 only if they answer alike.
    """
    from trainer.checkpoints.folded import compare_checkpoints, fold_checkpoint

    loaded = load_checkpoint(checkpoint)
    smaller, steps = fold_checkpoint(loaded)
    if not steps:
        raise UserError(f"{checkpoint}: {loaded.spec.params} parameters is the smallest form known for it")
    sets = compare_checkpoints(loaded, smaller, pairs)
    comparisons = {name: asdict(c) for name, c in sets.items()}
    smaller.provenance["compared"] = comparisons
    save_checkpoint(smaller, target)
    if as_json:
        params = [loaded.spec.params, smaller.spec.params]
        about = {"params": params, "folds": list(steps), "spec": smaller.spec.as_dict()}
        click.echo(json.dumps(about | {"compared": comparisons}))
    else:
        click.echo(_folded_text(target, loaded.spec, smaller.spec, steps, sets))
    if any(c.different_answers for c in sets.values()):
        raise Failure("the two forms do not answer alike: see the counts above")


def _folded_text(
    target: Path, before: Spec, after: Spec, steps: tuple[str, ...], sets: dict[str, Comparison]
) -> str:
    from model import preset_name

    head = f"{target}: {preset_name(before)} folded to {after.params} parameters, nothing trained again"
    lines = [head, *(f"  {step}" for step in steps)]
    for name, c in sets.items():
        lines.append(
            f"  {name}: {c.right:,} of {c.pairs:,} right, {c.different_answers} answered differently, "
            f"logits up to {c.largest_logit:,.0f} differ by at most {c.largest_logit_difference:.2g}"
        )
    return "\n".join(lines)


@click.command()
@checkpoint_argument
@json_option
def rerun(checkpoint: Path, as_json: bool) -> None:
    """Train a CHECKPOINT's configuration and seed again. Exit code 0 only if θ is bitwise the same.

    What the engine trained can be compared on any CPU, with any number of slots and threads. What torch's
    programs trained (on a GPU, or eager) gets the recorded ones. Other seeds of the bank make no difference.
    """
    from search.run.rerun import read_request

    loaded = load_checkpoint(checkpoint)
    with reraise_as(f"{checkpoint}: cannot be trained again"):
        request = read_request(loaded)
    result = _train_again(loaded, request)
    if as_json:
        click.echo(json.dumps(asdict(result) | {"same": result.same}))
    else:
        click.echo(_rerun_text(checkpoint, result))
    sys.exit(0 if result.same else Failure.code)


def _train_again(loaded: Checkpoint, request: Request) -> Rerun:
    """Train again, with a progress bar where there is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    from search.run.rerun import train_again

    console = Console(stderr=True)
    first = "building" if request.trial.resources.compiled else "training"
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(first, total=request.step)

        def watch(step: int) -> None:
            progress.update(task, completed=step, description="training")

        return train_again(loaded, request, watch)


def _rerun_text(checkpoint: Path, again: Rerun) -> str:
    lines = [f"{checkpoint}: seed {again.seed} trained again to step {again.step[0]:,}"]
    if again.same:
        lines.append(f"  θ is bitwise the same, all {again.params} numbers")
    else:
        lines += [
            f"  θ is not the same: {again.numbers_different} of {again.params} numbers differ,"
            f" by {again.largest_difference:.3g} at most (in {again.largest_in})",
            "  exact match {:.4f}, trained again {:.4f}".format(*again.exact),
        ]
    if again.step[0] != again.step[1]:
        lines.append(f"  trained again, the best θ until there is that of step {again.step[1]:,}")
    lines += [f"  {name}: {was} then, {now} here" for name, (was, now) in again.differs.items()]
    if again.not_recorded:
        lines.append(f"  the checkpoint does not record: {', '.join(again.not_recorded)}")
    elif not (again.same or again.differs):
        lines.append("  nothing that is recorded of the environment explains it")
    return "\n".join(lines)


@click.command()
@checkpoint_argument
@click.option("-o", "target", type=click.Path(path_type=Path), required=True, help="Folder to write.")
@click.option(
    "--method",
    "methods",
    type=click.Choice(METHODS),
    multiple=True,
    help="Only this; may be given again, in order [all, until one is enough].",
)
@click.option(
    "--turns",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="Of a method, while each helps.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the problems that methods see."
)
@json_option
def finish(
    checkpoint: Path, target: Path, methods: tuple[str, ...], turns: int, seed: int, as_json: bool
) -> None:
    """Take a CHECKPOINT that gets nearly everything right to where it gets everything right.

    Methods see problems of our own alone, and are judged on others of our own. AdderBoard's 10,010 are
    read once, at the end. Exit code 0 only if all of them are right.
    """
    from model import verify
    from search.compress.acceptance import AcceptanceSet
    from trainer.finishing.finish import finish as run_methods
    from trainer.finishing.finish import finished

    loaded = load_checkpoint(checkpoint)
    if target.exists() and target.resolve() == checkpoint.resolve():
        raise UserError(f"{target}: is the checkpoint itself; choose another folder with -o")
    exam = AcceptanceSet(loaded.spec)

    def watch(turn: Turn) -> None:
        if not as_json:
            click.echo(f"  {_turn(turn)}", err=True)

    result = run_methods(
        loaded.spec, loaded.theta_P, exam.errors, methods or METHODS,
        turns=turns, seed=seed, watch=watch,
    )  # fmt: skip
    better = finished(loaded, result)
    save_checkpoint(better, target)
    verification = verify(better.spec, better.theta_P)
    if as_json:
        click.echo(json.dumps(_finished_json(result, verification)))
    else:
        click.echo(_finished_text(target, result, exam.size, verification))
    sys.exit(0 if verification.verified else Failure.code)


def _turn(turn: Turn) -> str:
    return f"{turn.method}: {turn.wrong:,} wrong, {turn.problems:,} problems, {turn.cpu_s:.1f} core-seconds"


def _finished_json(result: Finished, verification: Verification) -> dict[str, object]:
    turns = [asdict(turn) for turn in result.turns]
    cost = {name: sum(turn[name] for turn in turns) for name in ("problems", "cpu_s")}
    counts = {"by": result.by, "wrong_before": result.before, "wrong": result.wrong}
    return {**counts, **cost, "turns": turns, "verification": verification.as_dict()}


def _finished_text(target: Path, result: Finished, size: int, verification: Verification) -> str:
    by = f"by {result.by}" if result.by else "by nothing that was tried"
    problems, seconds = sum(t.problems for t in result.turns), sum(t.cpu_s for t in result.turns)
    counts = f"of {size:,} problems of our own {result.before:,} were wrong and {result.wrong:,} are"
    cost = f"{problems:,} problems, {seconds:.1f} core-seconds"
    return f"{target}: {_grade(verification)}\n  {counts}, {by}; {cost}"
