"""The ledger's tables."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()
VERSION = sa.Table("ledger_version", metadata, sa.Column("schema", sa.Integer, primary_key=True))
ROWS = sa.Table(
    "ledger",
    metadata,
    sa.Column("study", sa.String(64), primary_key=True),
    sa.Column("configuration", sa.String(12), primary_key=True),
    sa.Column("init_seed", sa.BigInteger, primary_key=True),
    sa.Column("data_seed", sa.BigInteger, primary_key=True),
    sa.Column("trial", sa.String(12), nullable=False, index=True),
    sa.Column("confirmation", sa.Boolean, nullable=False, default=False),
    sa.Column("outcome", sa.String(16), nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("steps", sa.BigInteger, nullable=False, default=0),
    sa.Column("grok_step", sa.BigInteger),
    sa.Column("held", sa.Boolean),
    sa.Column("hopeless_step", sa.BigInteger),
    sa.Column("best_step", sa.BigInteger),
    sa.Column("best_exact", sa.Float),
    sa.Column("best_token", sa.Float),
    sa.Column("seed_steps_per_s", sa.Float),
    sa.Column("environment", sa.JSON),
    sa.Column("owner", sa.String(128)),
    sa.Column("lease_until", sa.Float),
    sa.Column("published", sa.Boolean, nullable=False, default=False),
    sa.Column("verify_calls", sa.Integer, nullable=False, default=0),
    sa.Column("verified", sa.Integer),  # right of AdderBoard's 10,010 at the last call
)
STUDIES = sa.Table(
    "ledger_studies",
    metadata,
    sa.Column("study", sa.String(64), primary_key=True),
    sa.Column("tracking_uri", sa.Text),
    sa.Column("definition", sa.JSON),  # the study as it was last run
    sa.Column("owner", sa.String(128)),
    sa.Column("lease_until", sa.Float),
    sa.Column("stop", sa.Boolean, nullable=False, default=False),  # its driver is asked to end
)

CONFIGURATIONS = sa.Table(
    "ledger_configurations",
    metadata,
    sa.Column("study", sa.String(64), primary_key=True),
    sa.Column("configuration", sa.String(12), primary_key=True),
    sa.Column("number", sa.Integer, nullable=False),  # in the order in which they came
    sa.Column("spec", sa.JSON, nullable=False),
    sa.Column("recipe", sa.JSON, nullable=False),
    sa.Column("experiment", sa.String(64)),  # where MLflow has it
    sa.Column("run", sa.String(64)),
)
PROPOSALS = sa.Table(
    "ledger_proposals",
    metadata,
    sa.Column("study", sa.String(64), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("configuration", sa.String(12)),  # NULL: the numbers make none
    sa.Column("numbers", sa.JSON, nullable=False),  # as drawn, by key path
)
