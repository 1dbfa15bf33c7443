"""`adder-search register`: checkpoints as versions of a registered model of MLflow's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reports.markup import escape
from search.cli.options import PATH, home_option, json_option, load_checkpoint, show
from search.errors import reraise_as

if TYPE_CHECKING:
    from search.store.home import Home

EXPERIMENT = "registered"
NAME = "adders"


@click.command()
@click.argument("checkpoints", nargs=-1, required=True, type=PATH, metavar="CHECKPOINT...")
@click.option("--name", default=NAME, show_default=True, help="Of the registered model.")
@click.option("--alias", "aliases", multiple=True, help="Of the version, such as best; again for more.")
@home_option
@json_option
def register(checkpoints: tuple[Path, ...], name: str, aliases: tuple[str, ...], home: Home, as_json: bool) -> None:
    """Put CHECKPOINTs into MLflow's model registry: the home's, or that of MLFLOW_TRACKING_URI.

    Each is verified on AdderBoard's 10,010 additions and becomes a version; a checkpoint that is there already, with
    the same program, stays the version that it is. The alias `smallest` is the verified version with the fewest
    parameters. To use one:
    mlflow.pyfunc.load_model("models:/NAME@smallest").predict(DataFrame with a and b)
    """
    from adders.proof.file import settled
    from adders.proof.program import source
    from adders.registry.models import THETA_TAG, Facts, adderboard_dataset, digest_of, log_model
    from adders.registry.models import register as make_version
    from model import preset_name, verify
    from model.verdict import is_right
    from tracking.datasets import log_dataset
    from tracking.store import answered, check_uri, connect, is_local, open_experiment

    loaded = []
    for path in checkpoints:
        checkpoint = load_checkpoint(path)
        spec, theta_P = checkpoint.spec, checkpoint.theta_P
        # of all, before anything is written to MLflow
        with reraise_as(path):
            proof = settled(path, spec, theta_P, source(spec, theta_P), if_any=True)
        loaded.append((path, checkpoint, proof))
    uri = home.tracking_uri
    if is_local(uri):
        home.create()
    client = connect(home, uri, creates=True)
    rows: list[dict[str, Any]] = []
    for path, checkpoint, proof in loaded:
        result = verify(checkpoint.spec, checkpoint.theta_P)
        facts = Facts(result.correct, result.margin, is_right(proof))
        with answered(uri):
            number = open_experiment(client, home, EXPERIMENT)
            tag = digest_of(checkpoint)
            model = preset_name(checkpoint.spec)
            # one run per model, whoever registers it again
            runs = client.search_runs([number], f"tags.`{THETA_TAG}` = '{tag}'")
            run = runs[0] if runs else client.create_run(number, tags={THETA_TAG: tag}, run_name=model)
            run_id = run.info.run_id
            log_dataset(client, run_id, adderboard_dataset())
            place = log_model(client, number, run_id, checkpoint, facts, lambda uri_: check_uri(client, home, uri_))
            about = escape(f"{model}: {facts.correct:,} of AdderBoard's 10,010 right, from {path}")
            version = make_version(client, name, place, run_id, checkpoint, facts, aliases, about)
            client.set_terminated(run_id)
        row = {
            "checkpoint": str(path),
            "name": name,
            "version": version,
            "params": checkpoint.spec.params,
            "verified": facts.verified,
        }
        rows.append(row)
    lines = []
    for row in rows:
        is_verified = "verified" if row["verified"] else "NOT verified"
        version = f"version {row['version']} of {name}"
        lines.append(f"{row['checkpoint']}: {version}, {row['params']:,} parameters, {is_verified}")
    chosen = "@smallest" if any(r["verified"] for r in rows) else f"/{rows[-1]['version']}"
    use = f'mlflow.pyfunc.load_model("models:/{name}{chosen}").predict(frame of a and b)'
    show(as_json, rows, [*lines, use])
