"""`adder-search ui`: the MLflow UI, opened on the answer."""

from __future__ import annotations

import os
import sys
import webbrowser
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from search.cli.options import home_option
from search.errors import UserError, masked

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from search.store.home import Home

LISTED = 20
"""Studies whose addresses are printed."""


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), default=5000, show_default=True)
@click.option("--no-browser", is_flag=True, help="Print the addresses and open none.")
@home_option
def ui(port: int, no_browser: bool, home: Home) -> None:
    """Open the MLflow UI on what was recorded, each study by grok rate."""
    from search.tracking.server import ADDRESS, listening, serve
    from search.tracking.tracking import connect, is_local, tracking_uri

    uri = tracking_uri(home)
    if not is_local(uri):
        click.echo(f"the records are on the MLflow server {masked(uri)}")
        if uri.startswith("http"):
            show_studies(connect(home, uri), masked(uri), no_browser)
        return
    if not (home.exists() and home.mlflow_db.exists()):
        raise UserError(f"nothing has run yet in {home.path}")
    with listening(port) as door:
        base = f"http://{ADDRESS}:{port}"
        click.echo(f"{base} shows {home.path} (Ctrl-C ends)")
        show_studies(connect(home, uri), base, no_browser)
        serve(door, home, uri)


def show_studies(client: MlflowClient, base: str, no_browser: bool) -> None:
    """Print the addresses of the latest studies, and open the first."""
    from search.study.schema import is_name
    from search.tracking.views import addresses

    experiments = client.search_experiments(max_results=LISTED + 1, order_by=["creation_time DESC"])
    studies = [e for e in experiments if e.name != "Default" and is_name(e.name)][:LISTED]
    pages = [addresses(base, e.experiment_id, e.tags) for e in studies]
    for study, views in zip(studies, pages, strict=True):
        click.echo(f"  {study.name}")
        for view, address in views.items():
            click.echo(f"    {view:6} {address}")
    if pages and not no_browser and _has_display():
        with suppress(webbrowser.Error, OSError):  # the address is printed in any case
            webbrowser.open(next(iter(pages[0].values())))


def _has_display() -> bool:
    """True if a user at this terminal would see a browser's window."""
    variables = ("DISPLAY", "WAYLAND_DISPLAY")
    has_windows = sys.platform in ("darwin", "win32") or any(map(os.environ.get, variables))
    return sys.stdout.isatty() and has_windows
