"""The command line: `adder-search COMMAND`. Heavy imports wait until a command needs them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from search.best import best
from search.errors import Failure, UserError
from search.fold import fold
from search.foreign import import_command
from search.forge import forge
from search.home import Home
from search.homes_command import archive, delete, merge
from search.keys import keys
from search.models import models
from search.options import home_option, json_option
from search.records_command import records_command
from search.report_command import report
from search.rerun import rerun
from search.run_command import resume, run, stop
from search.table_command import table
from search.ui_command import ui

if TYPE_CHECKING:
    from search.study import Study
    from trainer.checkpoint import Checkpoint


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
@json_option
def studies(as_json: bool) -> None:
    """List the studies that come with the package."""
    from search.study_file import load_study, shipped

    def params(study: Study) -> int | list[int]:
        listed = list(dict.fromkeys(spec.params for spec, _ in study.listed()))
        return listed if len(listed) > 1 else listed[0]

    found = [load_study(name) for name in shipped()]
    if as_json:
        click.echo(json.dumps([{"name": s.name, "about": s.about, "params": params(s)} for s in found]))
        return
    width = max(len(s.name) for s in found)
    for s in found:
        click.echo(f"{s.name:{width}} {s.about}")


@main.command()
@click.argument("study", required=False)
@home_option
@json_option
def status(study: str | None, home: str | None, as_json: bool) -> None:
    """Show the recorded studies, or one STUDY seed by seed."""
    from model.fields import nearest
    from search import texts
    from search.ledger import Ledger
    from search.records import overview

    place = Home(home)
    rows = Ledger(place).rows(study) if place.exists() else []
    if study is not None and not rows:
        known = sorted({r["study"] for r in Ledger(place).rows()}) if place.exists() else []
        hint = f"; {nearest(study, known)}" if known else ""
        raise UserError(f"study {study!r} has no records in {place.path}{hint}")
    found = overview(rows)
    if as_json:
        click.echo(json.dumps({"home": str(place.path), "studies": found, "seeds": rows if study else None}))
        return
    click.echo(texts.status(found, rows if study else []) if rows else f"nothing has run yet in {place.path}")


@main.command()
@click.argument("study")
@click.option("--best", is_flag=True, help="The best seed (the default).")
@click.option("--seed", help="This seed; 777.804 is the initial values of 777 with the data of 804.")
@click.option("--model", help="Of this rung only, where a study has several.")
@click.option("--configuration", metavar="KEY", help="Of this configuration only; its key, or how it begins.")
@click.option("-o", "target", type=click.Path(path_type=Path), help="Folder to write [STUDY-seed].")
@home_option
def pull(
    study: str,
    best: bool,
    seed: str | None,
    model: str | None,
    configuration: str | None,
    target: Path | None,
    home: str | None,
) -> None:
    """Fetch a checkpoint (safetensors and JSON) of a STUDY's best or given seed out of MLflow."""
    from search.pull import pull as fetch
    from search.pull import save_checkpoint
    from search.records import reach
    from trainer import Outcome, Seed

    if best and seed is not None:
        raise UserError("give --best or --seed, not both")
    try:
        asked = None if seed is None else Seed.named(seed)
    except ValueError as error:
        raise UserError(f"--seed: {error}") from None
    checkpoint = fetch(reach(Home(home), study), study, asked, model, configuration)
    number = Seed(**checkpoint.seed)
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
    from model import verify as run_protocol
    from search import foreign

    loaded = foreign.load(checkpoint)
    found = run_protocol(loaded.spec, loaded.theta_P, extended=extended)
    _record_verification(loaded, Home(home), found.correct)
    if as_json:
        click.echo(json.dumps(found.as_dict()))
    else:
        click.echo(foreign.verdict(loaded.spec, found))
        for a, b, decoded in found.failures[:20]:
            click.echo(f"  {a} + {b} = {a + b}, decoded {decoded}")
        if len(found.failures) > 20:
            click.echo(f"  and {len(found.failures) - 20} more (--json lists all)")
        for name, (correct, total) in found.extended.items():
            click.echo(f"  {name}: {correct}/{total}")
    passed = found.qualified if qualified else found.verified
    sys.exit(0 if passed else Failure.code)


def _record_verification(checkpoint: Checkpoint, home: Home, correct: int) -> None:
    """Count the call with the seed and keep its result, where this home knows the seed."""
    from search.ledger import Ledger
    from search.space import LARGEST_SEED

    study, configuration = (checkpoint.provenance.get(k) for k in ("study", "configuration"))
    first, data = (checkpoint.seed.get(k, -1) for k in ("init_seed", "data_seed"))
    possible = all(0 <= n <= LARGEST_SEED for n in (first, data))
    if home.exists() and isinstance(study, str) and isinstance(configuration, str) and possible:
        try:
            Ledger(home).record_verification(study, (configuration, first, data), correct)
        except (UserError, Failure) as error:
            click.echo(f"this call could not be recorded: {error}", err=True)


@main.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("-o", "target", type=click.Path(path_type=Path), default="submission.py", show_default=True)
@click.option("--author", default="adder-search", show_default=True, help="Named in the metadata.")
def export(checkpoint: Path, target: Path, author: str) -> None:
    """Write a CHECKPOINT as one self-contained AdderBoard submission."""
    from model import name_of
    from model.export import export_source
    from search.files import write_text
    from search.foreign import load

    loaded = load(checkpoint)
    name = f"{name_of(loaded.spec)} seed {loaded.seed.get('init_seed', 'unknown')}"
    try:
        source = export_source(
            loaded.spec, loaded.theta_P, name=name, author=author, provenance=loaded.provenance
        )
    except ValueError as error:
        raise UserError(f"{checkpoint}: {error}") from None
    write_text(target, source, "-o")
    click.echo(f"{target}: {loaded.spec.params} parameters, build_model() and add(model, a, b)")


for command in (
    run,
    resume,
    stop,
    models,
    keys,
    import_command,
    fold,
    forge,
    table,
    report,
    best,
    rerun,
    records_command,
    merge,
    archive,
    delete,
    ui,
):
    main.add_command(command)


if __name__ == "__main__":
    main()
