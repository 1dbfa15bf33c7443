"""The home: one folder with all that adder-search writes, `./adder-runs/` unless said otherwise."""

from __future__ import annotations

import os
import re
import tempfile
from functools import cached_property
from pathlib import Path

from search.errors import UserError
from search.store.depot import VARIABLE as DEPOT
from search.store.depot import Shared, depot_of
from trainer.files import durable

DEFAULT = "adder-runs"
DATABASE = "ADDER_SEARCH_DATABASE"
IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Home:
    """Paths below the home. Absolute from the start: Tune changes the working directory of trials.

    With ADDER_SEARCH_DATABASE set the ledger and Optuna's mirror are on that server; the other files stay in
    the folder. The machines of a cluster share it, unless ADDER_SEARCH_DEPOT names a store that trials' files
    go through (search/store/depot.py): then it is the driver's alone. Nothing in it names its own path
    (MLflow's store is brought along when it is next opened), so a home can be moved, or put into a tar file.

    `trust_store`: the user said so of the MLflow store that a study names (search/tracking/tracking.py).
    """

    def __init__(self, folder: str | Path | None = None, trust_store: bool = False):
        self.path = Path(folder or os.environ.get("ADDER_SEARCH_HOME") or DEFAULT).absolute()
        self.trust_store = trust_store

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

    @cached_property
    def depot(self) -> Shared:
        """What files of trials go through between driver and workers, who may see no folder in common.

        Raises UserError for a URI that names no store, or has a password in it.
        """
        return self.depot_at(self.path / "trials")

    @staticmethod
    def depot_at(folder: Path) -> Shared:
        """The same for who has another folder."""
        return depot_of(folder, os.environ.get(DEPOT))

    @property
    def artifacts(self) -> Path:
        return self.path / "artifacts"

    @property
    def ray(self) -> Path:
        return self.path / "ray"

    @property
    def logs(self) -> Path:
        """What detached runs print."""
        return self.path / "logs"

    def trial(self, study: str, key: str) -> Path:
        """Where a trial keeps its bank's state and leaves its results until they are recorded; without a key
        the folder of all of a study's trials.
        """
        return below(self.path / "trials", study, *([key] if key else []))

    def damaged(self, study: str, key: str) -> Path:
        """Where results of a trial go that cannot be read: this name and a number; without a key the folder
        of all of a study's.
        """
        return below(self.path / "damaged", study, *([key] if key else []))

    def exists(self) -> bool:
        """Whether something has run here. Raises UserError for an earlier version's home, and for what is no
        home.
        """
        self.refuse_older()
        return not self.has_own_database or self.ledger_db.exists()

    def refuse_older(self) -> None:
        """Raise UserError where an earlier version kept its ledger: in Optuna's file. And where there is a
        pipe or a device by a database's name: who opens one may wait for ever.
        """
        for file in (self.ledger_db, self.mlflow_db, self.optuna_db):
            if file.exists() and not file.is_file():
                raise UserError(f"{file}: is no file")
        if self.has_own_database and self.optuna_db.exists() and not self.ledger_db.exists():
            raise other_version(str(self.optuna_db), "an earlier")

    def create(self) -> None:
        """Make the folder. Raises UserError for an earlier version's, or if nothing can be written there."""
        self.refuse_older()
        try:
            for folder in (self.path, self.artifacts, self.ray, self.path / "trials"):
                durable.make_folder(folder)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise UserError(
                f"{self.path}: cannot write there ({error.strerror}); choose another home with --home"
            ) from None


def below(folder: Path, *names: str) -> Path:
    """A path below a folder, of names that came from elsewhere: a ledger, a server, a file.

    Every such name that becomes a path goes through here. Raises UserError for one that may lead elsewhere.
    """
    for name in names:
        if not (isinstance(name, str) and IDENTIFIER.fullmatch(name)):
            raise UserError(f"{name!r:.80} is no name of anything in {folder}")
    return folder.joinpath(*names)


PLAIN = ("CREATE TABLE %", "CREATE INDEX %", "CREATE UNIQUE INDEX %")
MLFLOWS_OWN = "CREATE TRIGGER prevent_secrets_aad_mutation\nBEFORE UPDATE ON secrets\n%"


def not_plain() -> str:
    """SQL for the name of something in an SQLite file that is more than a table or an index: a view may be
    without end, a trigger or a virtual table does what it likes.
    """
    known = " OR ".join(f"sql LIKE '{pattern}'" for pattern in (*PLAIN, MLFLOWS_OWN))
    return f"SELECT name FROM sqlite_master WHERE sql IS NOT NULL AND NOT ({known}) LIMIT 1"


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
