"""The home: one folder for everything that adder-search writes, by default `./adder-runs/`."""

import os
import re
import shlex
import tempfile
from pathlib import Path

from search.errors import UserError, masked, reraise_as
from trainer.files import durable
from trainer.files.paths import expanded, named_by

DEFAULT = "adder-runs"
DATABASE, TRACKING = "ADDER_SEARCH_DATABASE", "MLFLOW_TRACKING_URI"
VERSION_TABLE = "ledger_version"
IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Home:
    """Paths below the home, absolute because Tune changes the working directory of workers.

    With ADDER_SEARCH_DATABASE set the ledger is on that server; the other files stay in the folder, which is the
    driver's alone. A home can be moved: nothing in it names its own path, and MLflow's store is corrected when it
    is next opened.
    """

    def __init__(self, folder: str | Path | None = None):
        with reraise_as():
            named = expanded(str(folder)) if folder else named_by("ADDER_SEARCH_HOME")
        self.path = Path(named or DEFAULT).absolute()
        self.mlflow_db = self.path / "mlflow.db"
        self.ledger_db = self.path / "records.db"
        """The home's own databases; a server may take their place."""
        self.earlier_ledger = self.path / "ledger.db"
        """The ledger of earlier versions."""
        self.artifacts = self.path / "artifacts"
        self.ray = self.path / "ray"
        self.logs = self.path / "logs"
        """Folders of MLflow, of Ray, and of the output of detached runs."""

    @property
    def tracking_uri(self) -> str:
        """Address of the MLflow store: the environment's, else the home's SQLite file.

        MLflow sends the environment's password to whatever store it is given: a study cannot name one.
        """
        named = os.environ.get(TRACKING, "")
        return expanded_address(named) if named else sqlite_url(self.mlflow_db)

    @property
    def store_prefix(self) -> str:
        """Beginning of a printed command, by which it asks the same MLflow store in another terminal too.

        Empty for the home's own store, and for an address with a secret in it.
        """
        named = os.environ.get(TRACKING, "")
        return f"{TRACKING}={shlex.quote(named)} " if named and named == masked(named) else ""

    @property
    def has_own_database(self) -> bool:
        return not os.environ.get(DATABASE)

    @property
    def ledger_url(self) -> str:
        """SQLAlchemy's URL of the ledger. Raises UserError for one with a password."""
        text = os.environ.get(DATABASE)
        if not text:
            return sqlite_url(self.ledger_db)
        import sqlalchemy as sa

        try:
            url = sa.make_url(text)
        except (sa.exc.ArgumentError, ValueError):  # ValueError: of the port
            raise UserError(f"{DATABASE}: not a database's URL") from None

        if url.password is not None or any("password" in name for name in url.query):
            raise UserError(f"{DATABASE}: leave the password out and name a password file with PGPASSFILE")
        if url.get_backend_name() != "postgresql":
            raise UserError(f"{DATABASE}: must be postgresql+psycopg://USER@HOST/NAME")

        url = url.set(drivername="postgresql+psycopg")
        try:
            url.get_dialect()().create_connect_args(url)
        except sa.exc.ArgumentError as error:
            raise UserError(f"{DATABASE}: {error}") from None
        return url.render_as_string()

    @property
    def database_name(self) -> str:
        """Name of the database in messages."""
        return str(self.ledger_db) if self.has_own_database else self.ledger_url.partition("://")[2]

    def progress(self, study: str) -> Path:
        """File with the progress of a study that is run here."""
        return below(self.path / "progress", f"{study}.json")

    @property
    def nothing_run(self) -> str:
        """A line for a home in which nothing has run, or whose ledger is gone."""
        if not self.has_own_database:
            return f"nothing has run yet with {self.database_name}"
        if self.mlflow_db.exists():
            return missing(self.ledger_db)
        line = f"nothing has run yet in {self.path}"
        return line if self.path.exists() else f"{line}: no such folder"

    def exists(self) -> bool:
        """True if something has run here. Raises UserError as `check_paths` does."""
        self.check_paths()
        if not self.has_own_database:
            # Opened as a ledger, a server where nothing has run would get its tables.
            return _has_ledger(self.ledger_url)
        return self.ledger_db.exists() or self.earlier_ledger.exists()

    def check_paths(self) -> None:
        """Raise UserError if a pipe or a device has a database's name: to open one may take for ever."""
        for file in (self.ledger_db, self.earlier_ledger, self.mlflow_db):
            if file.exists() and not file.is_file():
                raise UserError(f"{file}: is no file")

    def create(self) -> None:
        """Make the folder. Raises UserError if nothing can be written there."""
        self.check_paths()
        try:
            for folder in (self.path, self.artifacts, self.ray):
                durable.make_folder(folder)
            with tempfile.TemporaryFile(dir=self.path):  # a folder that was there may be read-only
                pass
        except OSError as error:
            raise UserError(
                f"{self.path}: cannot write there ({error.strerror or error}); choose another home (--home)"
            ) from None


def _has_ledger(url: str) -> bool:
    """True if a server has a ledger, or does not answer: opening the ledger then says why."""
    import sqlalchemy as sa

    engine = sa.create_engine(url)
    try:
        return sa.inspect(engine).has_table(VERSION_TABLE)
    except sa.exc.SQLAlchemyError:
        return True
    finally:
        engine.dispose()


def sqlite_url(file: Path) -> str:
    """Return the address of an SQLite `file`, whatever characters are in its path.

    MLflow makes the folder of an address that begins with `sqlite:///`, and takes %3F in it as a part of the name. So
    an address that has to escape something begins otherwise.

    >>> sqlite_url(Path("/home/me/mlflow.db"))
    'sqlite:////home/me/mlflow.db'
    """
    from sqlalchemy import URL

    address = URL.create("sqlite", database=str(file)).render_as_string()
    if address == f"sqlite:///{file}":  # nothing was escaped
        return address
    return URL.create("sqlite+pysqlite", database=str(file)).render_as_string()


def expanded_address(uri: str) -> str:
    """Return a store's address with the user's home folder in place of a tilde that begins an SQLite file's path.

    Raises UserError where no home is known.
    """
    scheme, mark, path = uri.partition(":///")
    if not mark or not scheme.startswith("sqlite"):
        return uri
    with reraise_as(TRACKING):
        return scheme + mark + expanded(path)


def typed(path: str | Path) -> str:
    """Return a path as a word of a shell command: quoted, and neither an option nor a user's home folder.

    >>> typed("-x y")
    "'./-x y'"
    """
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith(("~", "-")) else text)


def missing(file: Path) -> str:
    """Return a line on a home's database that is missing: reading commands make none in its place."""
    return f"{file}: is missing; is its disk mounted, or are the records on a server (MLFLOW_TRACKING_URI, {DATABASE})?"


def below(folder: Path, *names: str) -> Path:
    """Return a path below a folder. All names from elsewhere (a ledger, a server, a file) go through here.

    Raises UserError for a name that may lead elsewhere.

    >>> below(Path("runs"), "57p", "a.json").as_posix()
    'runs/57p/a.json'
    """
    for name in names:
        if not (isinstance(name, str) and IDENTIFIER.fullmatch(name)):
            raise UserError(f"{name!r:.80} is no name of anything in {folder}")
    return folder.joinpath(*names)


FOREIGN = """
SELECT name FROM sqlite_master
WHERE (type IN ('view', 'trigger') OR sql LIKE 'CREATE VIRTUAL%') AND name <> 'prevent_secrets_aad_mutation'
LIMIT 1"""
"""SQL for the name of a view, trigger or virtual table that neither we nor MLflow make: a view may have no end."""


def other_version(name: str, which: str) -> UserError:
    """Return the error for records with another schema. which: an earlier, or a newer."""
    return UserError(
        f"{name}: written by {which} version of adder-search; read it with that version, and choose another "
        "home for this one (--home)"
    )


def pull_command(study: str, configuration: str) -> str:
    """Return the command that fetches a configuration's best checkpoint, by its key."""
    return f"adder-search pull {study} --configuration {configuration} -o {study}-{configuration[:6]}"


def home_flag(home: Home) -> str:
    """Return the flag that names this home from the current folder, if it needs one."""
    return "" if home.path == Home().path else f" --home {typed(os.path.relpath(home.path))}"


def run_command(home: Home, study: str) -> str:
    """Return the command that goes on with a study, by its name or the path of its file, and names its MLflow store."""
    return f"{home.store_prefix}adder-search run {typed(study)}{home_flag(home)}"
