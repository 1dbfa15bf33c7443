"""Make or upgrade the tables of MLflow's users, and in them the drivers' user: `mlflow-users.py URL`.

It may make experiments and do with those what it likes, and read the others. Its password becomes what is in
the file, so a new one is put there and the stack brought up again.
"""

import sys
from pathlib import Path

from mlflow.server.auth.sqlalchemy_store import SqlAlchemyStore

USER = "driver"
PASSWORD = Path("/run/secrets/mlflow_driver_password")


def main(url: str) -> None:
    store = SqlAlchemyStore()
    store.init_db(url)
    password = PASSWORD.read_text().strip()
    if store.has_user(USER):
        store.update_user(USER, password, is_admin=False)
    else:
        store.create_user(USER, password)


if __name__ == "__main__":
    main(*sys.argv[1:])
