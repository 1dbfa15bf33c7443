"""The home: one folder with all that adder-search writes, `./adder-runs/` unless said otherwise."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from search.errors import UserError
from trainer import durable

DEFAULT = "adder-runs"
DATABASE = "ADDER_SEARCH_DATABASE"


class Home:
    """Paths below the home. Absolute from the start: Tune changes the working directory of trials.

    With ADDER_SEARCH_DATABASE set the ledger and Optuna's mirror are on that server; the other files stay in
    the folder, which the machines of a cluster then share. Nothing in it names its own path (MLflow's store
    is brought along when it is next opened), so a home can be moved, or put into a tar file.
    """

    def __init__(self, folder: str | Path | None = None):
        self.path = Path(folder or os.environ.get("ADDER_SEARCH_HOME") or DEFAULT).absolute()

    @property
    def mlflow_db(self) -> Path:
        return self.path / "mlflow.db"

    @property
    def ledger_db(self) -> Path:
        """The ledger, where no server has it."""
        return self.path / "ledger.db"

    @property
    def optuna_db(self) -> Path:
        """The mirror of the searches for Optuna's dashboard, where no server has it."""
        return self.path / "optuna.db"

    @property
    def has_own_database(self) -> bool:
        return not os.environ.get(DATABASE)

    @property
    def ledger_url(self) -> str:
        """Where SQLAlchemy finds the ledger. Raises UserError for a URL with a password."""
        return self._server() or f"sqlite:///{self.ledger_db}"

    @property
    def optuna_url(self) -> str:
        """Where Optuna's mirror is. Raises UserError for a URL with a password."""
        return self._server() or f"sqlite:///{self.optuna_db}"

    @staticmethod
    def _server() -> str | None:
        """The URL of ADDER_SEARCH_DATABASE, checked."""
        given = os.environ.get(DATABASE)
        if not given:
            return None
        import sqlalchemy as sa

        try:
            url = sa.make_url(given)
        except sa.exc.ArgumentError:
            raise UserError(f"{DATABASE}: not a database's URL") from None
        if url.password is not None or "password" in url.query:
            raise UserError(f"{DATABASE}: leave the password out and name a password file with PGPASSFILE")
        if url.get_backend_name() != "postgresql":
            raise UserError(f"{DATABASE}: must be postgresql+psycopg://USER@HOST/NAME")
        return url.set(drivername="postgresql+psycopg").render_as_string()

    @property
    def database_name(self) -> str:
        """What to call the database in a message."""
        return str(self.ledger_db) if self.has_own_database else self.ledger_url.partition("://")[2]

    @property
    def artifacts(self) -> Path:
        return self.path / "artifacts"

    @property
    def ray(self) -> Path:
        return self.path / "ray"

    @property
    def cache(self) -> Path:
        """Compiled programs, shared by all trials."""
        return self.path / "cache"

    @property
    def logs(self) -> Path:
        """What detached runs print."""
        return self.path / "logs"

    def trial(self, study: str, key: str) -> Path:
        """Where a trial keeps its bank's state and leaves its results until they are recorded."""
        return self.path / "trials" / study / key

    def damaged(self, study: str, key: str) -> Path:
        """Where results of a trial go that cannot be read: this name and a number."""
        return self.path / "damaged" / study / key

    def exists(self) -> bool:
        """Whether something has run here. Raises UserError for an earlier version's home."""
        self.refuse_older()
        return not self.has_own_database or self.ledger_db.exists()

    def refuse_older(self) -> None:
        """Raise UserError where an earlier version kept its ledger: in Optuna's file."""
        if self.has_own_database and self.optuna_db.exists() and not self.ledger_db.exists():
            raise other_version(str(self.optuna_db), "an earlier")

    def create(self) -> None:
        """Make the folder. Raises UserError for an earlier version's, or if nothing can be written there."""
        self.refuse_older()
        try:
            for folder in (self.path, self.artifacts, self.ray, self.cache, self.path / "trials"):
                durable.make_folder(folder)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise UserError(
                f"{self.path}: cannot write there ({error.strerror}); choose another home with --home"
            ) from None


def other_version(name: str, which: str) -> UserError:
    """What to say of records with another schema. which: an earlier, or a newer."""
    return UserError(
        f"{name}: written by {which} version of adder-search; read it with that version, and choose another "
        "home for this one (--home)"
    )


def pull_command(study: str, configuration: str) -> str:
    """What fetches a configuration's best checkpoint, by its key."""
    return f"adder-search pull {study} --configuration {configuration} -o {study}-{configuration[:6]}"


def home_flag(home: Home) -> str:
    """What has to be typed to reach this home from here."""
    return "" if home.path == Home().path else f" --home {os.path.relpath(home.path)}"
