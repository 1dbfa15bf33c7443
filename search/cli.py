"""The command line: `adder-search COMMAND`. Heavy imports wait until a command needs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from search.errors import Failure, UserError
from search.home import Home

if TYPE_CHECKING:
    from search.study import Study
    from trainer.checkpoint import Checkpoint

# Seed-steps/s of a core at batch 256, compiled and eager, where this home has measured nothing yet.
GUESSED_RATE = {True: 5_000, False: 100}

home_option = click.option(
    "--home",
    type=click.Path(file_okay=False),
    help="Where everything is kept [ADDER_SEARCH_HOME, ./adder-runs].",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class Commands(click.Group):
    """Turns every foreseen failure into one line on stderr and its exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (UserError, Failure) as error:
            for line in str(error).splitlines():
                click.echo(f"error: {line}", err=True)
            ctx.exit(error.code)
        except BrokenPipeError:
            raise
        except OSError as error:
            click.echo(f"error: {error.filename or 'input or output'}: {error.strerror or error}", err=True)
            ctx.exit(Failure.code)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(130)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="adder-search")
def main() -> None:
    """How small a transformer can gradient descent teach to add two 10-digit numbers?"""


@main.command()
@click.argument("study")
@click.option("--dry-run", is_flag=True, help="Print the plan and start nothing.")
@home_option
def run(study: str, dry_run: bool, home: str | None) -> None:
    """Train a STUDY: the path of a YAML file, or the name of one that comes with the package.

    A study that was interrupted goes on where it was.
    """
    from search.study import load_study

    asked = load_study(study)
    if dry_run:
        _print_plan(asked, Home(home))
        return
    _run(asked, study, Home(home))


def _run(study: Study, name: str, home: Home) -> None:
    from rich.console import Console
    from rich.markup import escape

    from search import driver as engine
    from search.display import Display
    from search.ledger import Ledger
    from search.tracking import connect, tracking_uri

    home.create()
    ledger = Ledger(home)
    if others := ledger.others(study.name):
        raise UserError(f"study {study.name} is already being run by {', '.join(others)} (host/process)")
    client = connect(home, tracking_uri(home, study))
    console = Console(highlight=False)
    console.print(f"[bold]{study.name}[/]  {escape(study.about)}")
    try:
        with Display(console) as display:
            ended = engine.run(engine.Driver(study, home, ledger, client, display))
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    _print_summary(study, name, home, ended)
    if ended.interrupted:
        sys.exit(130)
    if ended.failed_trials:
        sys.exit(Failure.code)


def _print_summary(study: Study, name: str, home: Home, ended: Any) -> None:
    from search.ledger import Ledger
    from search.stats import GrokRate
    from trainer import Outcome

    rows = Ledger(home).rows(study.name)
    rate = GrokRate.of(r["outcome"] for r in rows)
    click.echo(f"\n{study.name}: {rate}")
    grokked = [r for r in rows if r["outcome"] == Outcome.GROKKED]
    for row in sorted(grokked, key=lambda r: r["grok_step"])[:10]:
        held = "held" if row["held"] else "did not hold"
        click.echo(f"  seed {row['init_seed']} grokked at step {row['grok_step']:,} and {held}")
    if ended.seed_steps_per_s:
        speed = f"{ended.seed_steps_per_s:,.0f} seed-steps/s, sampling and evaluation included"
        click.echo(f"  {speed}; compilation {ended.compile_s:.0f} s")
    if not (ended.trials or ended.interrupted):
        click.echo("  every seed had ended before: nothing left to train")
    for trial, reason in ended.failed_trials.items():
        click.echo(f"  trial {trial} failed: {reason}", err=True)
    if ended.unpublished:
        click.echo(f"  MLflow has not got {ended.unpublished} seeds yet; the next run writes them", err=True)
    if ended.interrupted or ended.failed_trials:
        click.echo(f"\nNothing is lost. To go on:\n  adder-search run {name}{_home_flag(home)}")
        return
    flag = _home_flag(home)
    click.echo(f"""
Next:
  adder-search pull {study.name} --best -o best{flag}
  adder-search verify best{flag}
  adder-search export best -o submission.py
  adder-search ui{flag}""")


def _home_flag(home: Home) -> str:
    """What has to be typed to reach this home from here."""
    return "" if home.path == Home().path else f" --home {os.path.relpath(home.path)}"


def _print_plan(study: Study, home: Home) -> None:
    from search.display import duration

    rounds = list(study.rounds())
    configurations = study.sampler.configurations if study.space else 1
    size = study.resources.seeds_per_trial
    seeds = len(rounds[0]) * configurations
    trials = -(-len(rounds[0]) // size) * configurations
    recipe = study.base_recipe()
    rate, how = _expected_rate(study, home)
    cores = os.cpu_count() or 1
    side_by_side = min(trials, max(1, cores // study.resources.cpu))
    seconds = seeds * recipe.steps / (rate * side_by_side)
    click.echo(f"""{study.name}: {study.about}
  model           {study.spec().family}, {study.spec().params} parameters
  configurations  {configurations}{f", proposed by {study.sampler.name}" if study.space else ""}
  seeds           {seeds}, {recipe.steps:,} steps each
  trials          {trials} of up to {size} seeds, {side_by_side} side by side on {cores} cores
  resources       cpu {study.resources.cpu}, gpu {study.resources.gpu} for each trial
  home            {home.path}
  estimated time  {duration(seconds)} at {rate:,.0f} seed-steps/s a trial ({how})""")
    if len(rounds) > 1:
        most = sum(map(len, rounds))
        click.echo(f"  then            until {study.until.grokked} grokked, rounds up to {most} seeds in all")


def _expected_rate(study: Study, home: Home) -> tuple[float, str]:
    """Seed-steps/s of one trial: the median of what this home has recorded for the study, or a guess."""
    from statistics import median

    from search.ledger import Ledger

    rows = Ledger(home).rows(study.name) if home.exists() else []
    if measured := [r["seed_steps_per_s"] for r in rows if r["seed_steps_per_s"]]:
        return median(measured), "measured here"
    rate = GUESSED_RATE[study.resources.compiled] * study.resources.cpu * 256 / study.base_recipe().batch
    return rate, "a guess until something has run here; compilation not included"


@main.command()
@json_option
def studies(as_json: bool) -> None:
    """List the studies that come with the package."""
    from search.study import load_study, shipped

    found = [load_study(name) for name in shipped()]
    if as_json:
        click.echo(json.dumps([{"name": s.name, "about": s.about, "params": s.spec().params} for s in found]))
        return
    for s in found:
        click.echo(f"{s.name:12} {s.about}")


@main.command()
@click.argument("study", required=False)
@home_option
@json_option
def status(study: str | None, home: str | None, as_json: bool) -> None:
    """Show the recorded studies, or one STUDY seed by seed."""
    from search.ledger import Ledger
    from search.records import overview

    place = Home(home)
    rows = Ledger(place).rows(study) if place.exists() else []
    if study is not None and not rows:
        raise UserError(f"study {study!r} has no records in {place.path}")
    found = overview(rows)
    if as_json:
        click.echo(json.dumps({"home": str(place.path), "studies": found, "seeds": rows if study else None}))
        return
    if not rows:
        click.echo(f"nothing has run yet in {place.path}")
    for s in found:
        states = ", ".join(f"{count} {state}" for state, count in s["states"].items())
        low, high = s["interval"]
        click.echo(f"{s['study']}: {s['trials']} trials, {s['seeds']} seeds ({states})")
        click.echo(f"  grok rate {s['grokked']}/{s['counted']} ({low:.1%} to {high:.1%}), best exact match "
                   f"{s['best_exact']:.4f}, verify called {s['verify_calls']} times")  # fmt: skip
    for r in rows if study else []:
        best = f"best exact match {r['best_exact'] or 0:.4f}"
        grok = f"grokked at {r['grok_step']:,}" if r["grok_step"] else best
        reason = f" ({r['reason']})" if r["reason"] else ""
        click.echo(f"  seed {r['init_seed']:<8} {r['outcome']:10} step {r['steps']:<8,} {grok}{reason}")


@main.command()
@click.argument("study")
@click.option("--best", is_flag=True, help="The best seed (the default).")
@click.option("--seed", type=click.IntRange(min=0), help="This seed.")
@click.option("-o", "target", type=click.Path(path_type=Path), help="Folder to write [STUDY-seed].")
@home_option
def pull(study: str, best: bool, seed: int | None, target: Path | None, home: str | None) -> None:
    """Fetch a checkpoint (safetensors and JSON) of a STUDY's best or given seed out of MLflow."""
    from search.records import pull as fetch
    from search.records import save_checkpoint
    from search.tracking import connect, tracking_uri
    from trainer import Outcome

    if best and seed is not None:
        raise UserError("give --best or --seed, not both")
    place = Home(home)
    uri = tracking_uri(place)
    if uri.startswith("sqlite:") and not place.mlflow_db.exists():
        raise UserError(f"nothing has run yet in {place.path}")
    checkpoint = fetch(connect(place, uri), study, seed)
    number = checkpoint.seed["init_seed"]
    target = target or Path(f"{study}-{number}")
    save_checkpoint(checkpoint, target)
    metrics = checkpoint.metrics
    click.echo(f"{target}: seed {number}, {checkpoint.spec.params} parameters, step {checkpoint.step:,}")
    if metrics["outcome"] == Outcome.GROKKED:
        held = "held" if metrics["held"] else "did not hold"
        click.echo(f"  grokked at step {metrics['grok_step']:,} and {held}")
    else:
        click.echo(f"  did not grok ({metrics['outcome']}); best exact match {metrics['best_exact']:.4f}")


@main.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--qualified", is_flag=True, help="Exit with 0 from 99 % on.")
@click.option("--extended", is_flag=True, help="Add ten further sets of 10,000 and carry-stratified sets.")
@home_option
@json_option
def verify(checkpoint: Path, qualified: bool, extended: bool, home: str | None, as_json: bool) -> None:
    """Check a CHECKPOINT on AdderBoard's 10,010 additions. Exit code 0 only if all are right."""
    from model import name_of
    from model import verify as run_protocol

    loaded = _load(checkpoint)
    _count_verify(loaded, Home(home))
    found = run_protocol(loaded.spec, loaded.theta_P, extended=extended)
    if as_json:
        click.echo(json.dumps(found.as_dict()))
    else:
        verdict = "VERIFIED" if found.verified else "QUALIFIED" if found.qualified else "NOT QUALIFIED"
        what = f"{name_of(loaded.spec)}, {found.params} parameters"
        click.echo(f"{what}: {found.correct}/{found.total} {verdict}")
        for a, b, decoded in found.failures[:20]:
            click.echo(f"  {a} + {b} = {a + b}, decoded {decoded}")
        if len(found.failures) > 20:
            click.echo(f"  and {len(found.failures) - 20} more (--json lists all)")
        for name, (correct, total) in found.extended.items():
            click.echo(f"  {name}: {correct}/{total}")
    passed = found.qualified if qualified else found.verified
    sys.exit(0 if passed else Failure.code)


def _load(path: Path) -> Checkpoint:
    from trainer.checkpoint import Checkpoint

    if not path.exists():
        raise UserError(f"{path}: no such checkpoint")
    try:
        return Checkpoint.load(path)
    except ValueError as error:
        raise UserError(str(error)) from None


def _count_verify(checkpoint: Checkpoint, home: Home) -> None:
    """Record the call with the seed, where this home knows it."""
    from search.ledger import Ledger

    where = checkpoint.provenance
    if home.exists() and {"study", "configuration"} <= where.keys():
        key = (where["configuration"], checkpoint.seed["init_seed"], checkpoint.seed["data_seed"])
        Ledger(home).count_verify(where["study"], key)


@main.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("-o", "target", type=click.Path(path_type=Path), default="submission.py", show_default=True)
@click.option("--author", default="adder-search", show_default=True, help="Named in the metadata.")
def export(checkpoint: Path, target: Path, author: str) -> None:
    """Write a CHECKPOINT as one self-contained AdderBoard submission."""
    from model import name_of
    from model.export import export_source

    loaded = _load(checkpoint)
    name = f"{name_of(loaded.spec)} seed {loaded.seed.get('init_seed', 'unknown')}"
    try:
        source = export_source(
            loaded.spec, loaded.theta_P, name=name, author=author, provenance=loaded.provenance
        )
    except ValueError as error:
        raise UserError(f"{checkpoint}: {error}") from None
    _write_text(target, source)
    click.echo(f"{target}: {loaded.spec.params} parameters, build_model() and add(model, a, b)")


def _write_text(target: Path, text: str) -> None:
    """Write a file whole or not at all."""
    if target.is_dir():
        raise UserError(f"{target}: is a folder; give the file's name with -o")
    fresh = target.with_name(target.name + ".new")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(target)
    except OSError as error:
        raise UserError(f"{target}: cannot write there ({error.strerror})") from None


@main.command()
@click.option("--port", type=click.IntRange(1, 65535), default=5000, show_default=True)
@home_option
def ui(port: int, home: str | None) -> None:
    """Open the MLflow UI on what was recorded."""
    from search.tracking import connect, tracking_uri

    place = Home(home)
    uri = tracking_uri(place)
    if not uri.startswith("sqlite:"):
        click.echo(f"the records are on the MLflow server {uri}")
        return
    if not place.mlflow_db.exists():
        raise UserError(f"nothing has run yet in {place.path}")
    click.echo(f"http://127.0.0.1:{port} shows {place.path} (Ctrl-C ends)")
    for experiment in connect(place, uri).search_experiments(max_results=20):
        if experiment.name != "Default":  # without the last part MLflow opens an empty page about traces
            page = f"#/experiments/{experiment.experiment_id}/runs?workflowType=machine_learning"
            click.echo(f"  {experiment.name}: http://127.0.0.1:{port}/{page}")
    command = [sys.executable, "-I", "-m", "mlflow", "ui", "--backend-store-uri", uri, "--host", "127.0.0.1"]
    options = ["--default-artifact-root", place.artifacts.as_uri(), "--port", str(port), "--workers", "1"]
    sys.exit(_serve([*command, *options], place.path))


def _serve(command: list[str], folder: Path) -> int:
    """Run a server until it ends or this process is told to; its children end with it. Its exit code."""
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # nine processes for nothing
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    server = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True)
    try:
        return server.wait()
    except KeyboardInterrupt:
        return 0
    finally:  # MLflow's process does not pass signals on: its whole group is told
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(server.pid, number)
            with suppress(subprocess.TimeoutExpired):
                server.wait(timeout=5)


if __name__ == "__main__":
    main()
