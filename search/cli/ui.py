"""`adder-search ui`: the MLflow UI."""

from __future__ import annotations

import sys

import click

from search.cli.options import home_option
from search.errors import UserError


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), default=5000, show_default=True)
@home_option
def ui(port: int, home: str | None) -> None:
    """Open the MLflow UI on what was recorded."""
    from search.cli.server import serve
    from search.store.home import Home
    from search.store.tracking import connect, is_local, tracking_uri

    place = Home(home)
    uri = tracking_uri(place)
    if not is_local(uri):
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
    sys.exit(serve([*command, *options], place.path))
