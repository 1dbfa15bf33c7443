"""Questions asked of the records: data frames, tables, the Pareto front, reports and pictures."""

from pathlib import Path

STYLE = Path(__file__).with_name("templates") / "base.css"
"""The style of every page, those of plug-ins too."""
