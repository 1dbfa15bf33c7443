"""The ledger: the records of all studies of a home, in SQL.

One row per study, configuration and seed. MLflow has no unique keys, so it cannot decide what is still to be trained;
this table does. The records of one study are read and written in search/store/study_records.py.
"""

import sqlalchemy as sa

from search.errors import UserError
from search.store.database import ROWS, STUDIES, Database, retry_while_unavailable
from search.store.home import Home
from search.store.lease import driver_name, is_live
from search.study.schema import is_name


class Ledger:
    """The records of one home, opened by one driver, `owner`.

    Errors. Something missing raises NotFound; something that exists, or that another driver has, AlreadyExists.
    A database that is away raises DatabaseUnavailable after `database.patience_s` (at first 0), a damaged one Failure.

    Isolation. Each write is one transaction, whole or not at all; a read may be several.

    Durability. When a method returns, its data are on disk.

    Threads. One ledger may be used by several at once: each call has a connection of its own.
    """

    def __init__(self, home: Home):
        self.home = home
        self.database = Database(home)
        self.owner = driver_name()

    @retry_while_unavailable
    def list_studies(self) -> list[str]:
        """List the names of all studies that were begun here."""
        with self.database.begin() as db:
            names = set(db.scalars(sa.select(ROWS.c.study).distinct()))
            names |= set(db.scalars(sa.select(STUDIES.c.study)))
        return sorted(filter(is_name, names))  # a name becomes a path, and the ledger may be a stranger's

    @retry_while_unavailable
    def list_running_studies(self) -> list[str]:
        rows = self.database.read(sa.select(STUDIES))
        with self.database.begin() as db:
            now = self.database.now(db)
        return [row["study"] for row in rows if is_live(row, now)]


def open_ledger(home: Home) -> Ledger:
    """Open a home's ledger. Raises UserError if nothing has run there."""
    if not home.exists():
        raise UserError(home.nothing_run)
    return Ledger(home)
