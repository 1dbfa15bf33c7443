"""The commands on MLflow, for `adder-search --help`."""

from search.cli.listed import Listed

SECTION = "Evidence"
sync = Listed("sync", "Write MLflow anew from the records.", "tracking.sync_command", SECTION)
ui = Listed("ui", "Open the MLflow UI on what was recorded.", "tracking.ui", SECTION)
