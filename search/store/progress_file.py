"""Progress of a running driver, in a small file of the home that `status` reads."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from search.store.study_records import StudyRecords

EVERY_S = 2.0
"""Seconds between two writes."""


def write_progress(records: StudyRecords, values: Mapping[str, Any]) -> None:
    """Write a run's progress. Where that fails it is left out: nothing depends on it."""
    place = records.home.progress(records.study)
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        # `status` may read at any moment, and finds one or the other whole.
        fresh = place.with_name(f"{place.name}.new")
        fresh.write_text(json.dumps(values), encoding="utf-8")
        fresh.replace(place)


def read_progress(records: StudyRecords) -> dict[str, Any] | None:
    """Return the progress that the study's driver left; None where no driver runs, or its home is elsewhere."""
    owner = records.get_driver()
    with suppress(OSError, ValueError):
        values = json.loads(records.home.progress(records.study).read_bytes())
        if owner and isinstance(values, dict) and values.get("owner") == owner:
            return values
    return None
