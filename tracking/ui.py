"""`adder-search ui`: the MLflow UI, opened on the newest study."""

from __future__ import annotations

import os
import re
import secrets
import sys
import webbrowser
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from search.cli.options import home_option
from search.errors import Failure, UserError, masked

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from search.store.home import Home

LISTED = 20
"""Studies whose addresses are printed."""
LINK = "ui.html"
"""Name of the file in the home with which a browser is started."""


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), default=5000, show_default=True)
@click.option("--no-browser", is_flag=True, help="Print the addresses and open none.")
@click.option("--no-auth", is_flag=True, help="Ask for no token: every user of this machine may use it.")
@click.option("--behind", metavar="URL", default="", help="Where a proxy serves it, as https://HOST/adder.")
@home_option
def ui(port: int, no_browser: bool, no_auth: bool, behind: str, home: Home) -> None:
    """Open the MLflow UI on what was recorded, each study by grok rate.

    The first address has a token in it that is made at each start. MLflow's clients find it in MLFLOW_TRACKING_TOKEN.

    It listens on this machine alone. From another one: ssh -L 5000:127.0.0.1:5000 HOST, and the same addresses.
    """
    from search.store.home import TRACKING
    from tracking.server import listening

    behind = _proxy_address(behind) if behind else ""
    if not os.environ.get(TRACKING):
        _check_store(home)
        listening(port).close()  # MLflow takes seconds to import: a port that is taken is said before
    from tracking.store import is_local

    has_browser = not no_browser and _has_display()
    if is_local(home.tracking_uri):
        _serve(home, port, None if no_auth else secrets.token_urlsafe(24), has_browser, behind)
    else:
        _show_server(home, has_browser)


def _check_store(home: Home) -> None:
    """Raise UserError where nothing has run, or the home's MLflow store is missing."""
    from search.store.home import home_flag

    if not home.exists():
        raise UserError(home.nothing_run)
    if not home.mlflow_db.exists():
        remedy = f"adder-search sync{home_flag(home)} writes it from the ledger"
        raise UserError(f"{home.mlflow_db}: is missing; {remedy}")


def _show_server(home: Home, has_browser: bool) -> None:
    """Print where an MLflow server shows the studies, and open the first."""
    from tracking.store import connect

    uri = home.tracking_uri
    address = masked(uri)
    if not uri.startswith("http"):
        click.echo(f"the records are on the MLflow server {address}; mlflow ui --backend-store-uri shows them")
        return
    click.echo(f"the records are on the MLflow server {address}")
    page = show_studies(connect(home, uri), f"{address.rstrip('/')}/")
    if page and has_browser:
        open_page(page)


def _proxy_address(text: str) -> str:
    """Return the address under which a proxy serves the UI, without a slash at its end. Raises UserError."""
    try:
        parts = urlsplit(text)
        is_plain = not (parts.query or parts.fragment or parts.username or parts.password)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_plain = is_address = False
    if not is_plain or not is_address or not re.fullmatch(r"(/[\w.~-]+)*/?", parts.path):
        raise UserError(f"--behind: must be an address as https://HOST/adder, without ? and #, got {masked(text)}")
    return text.rstrip("/")


def _serve(home: Home, port: int, token: str | None, has_browser: bool, behind: str) -> None:
    """Serve the MLflow UI until Ctrl-C. token: what a browser has to know; None: nothing. behind: a proxy's address."""
    from tracking.doors import pages
    from tracking.server import ADDRESS, listening, serve

    uri, link = home.tracking_uri, home.path / LINK
    with listening(port) as listener:
        client = _connect(home, uri)
        start = f"{behind or f'http://{ADDRESS}:{port}'}/"
        entrance = f"{start}?token={token}" if token else start
        click.echo(f"{entrance}#/experiments shows {home.path} (Ctrl-C ends)")
        if token:
            click.echo("These work in a browser that has opened it:")
        page = show_studies(client, start)
        click.echo("Studies that begin from now on are at the first address.")
        if page and has_browser:
            with suppress(OSError):  # where nothing can be written, the address has been printed
                write_link(link, entrance + page.removeprefix(start))
                open_page(link.as_uri())
        try:
            templates = [template() for template in pages()]
            serve(listener, home, uri, token, lambda: remove_link(link), templates, behind)
        finally:
            remove_link(link)


def _connect(home: Home, uri: str) -> MlflowClient:
    """Return a client of a local store. Raises Failure, also for a home that was moved and cannot be written."""
    from tracking.store import connect

    try:
        return connect(home, uri)
    except Failure as error:
        if "readonly database" not in str(error):
            raise
        raise Failure(f"{home.mlflow_db}: cannot be written, as it must be in a moved home; copy the home") from None


def show_studies(client: MlflowClient, start: str) -> str | None:
    """Print the addresses of the latest studies, in a UI that starts there. Return the first."""
    from search.study.schema import is_name
    from tracking.store import STUDY_TAG
    from tracking.views import addresses

    # By their tag: a team's server has experiments of others too.
    ours = f"tags.`{STUDY_TAG}` LIKE '%'"
    experiments = client.search_experiments(filter_string=ours, max_results=LISTED, order_by=["creation_time DESC"])
    studies = [(e.tags[STUDY_TAG], e) for e in experiments]
    studies = [(name, e) for name, e in studies if is_name(name)]
    pages = [addresses(start, e.experiment_id, e.tags) for _, e in studies]
    for (name, experiment), views in zip(studies, pages, strict=True):
        is_one_of_several = experiment.name.startswith(f"{name} (")  # of those of several ledgers
        click.echo(f"  {experiment.name if is_one_of_several and experiment.name.isprintable() else name}")
        for view, address in views.items():
            click.echo(f"    {view:6} {address}")
    return next(iter(pages[0].values())) if pages else None


def write_link(path: Path, page: str) -> None:
    """Write a page that leads to another and is its owner's alone: all users see a browser's command line."""
    remove_link(path)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(
        f'<meta charset="utf-8"><meta http-equiv="refresh" content="0; url={escape(page)}">', encoding="utf-8"
    )


def remove_link(path: Path) -> None:
    """Remove the page, if it is there and can be."""
    with suppress(OSError):
        path.unlink()


def open_page(page: str) -> None:
    """Open a page in the user's browser. Where that fails, its address has been printed."""
    with suppress(webbrowser.Error, OSError):
        webbrowser.open(page)


def _has_display() -> bool:
    """True if a user at this terminal would see a browser's window."""
    variables = ("DISPLAY", "WAYLAND_DISPLAY")
    has_windows = sys.platform in ("darwin", "win32") or any(map(os.environ.get, variables))
    return sys.stdout.isatty() and has_windows
