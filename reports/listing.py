"""The commands that make pages and tables, for `adder-search --help`."""

from search.cli.listed import Listed

SECTION, MODULE = "Evidence", "reports.commands"
table = Listed("table", "Show which constraint works at which scale.", MODULE, SECTION)
report = Listed("report", "Write a page about a study.", MODULE, SECTION)
