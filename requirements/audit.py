"""`make audit ADVISORIES=...`: compare every version in requirements/ with recorded advisories, offline.

The record is what OSV publishes for PyPI: its all.zip, or a folder with the JSON files of one. Exit code 0:
nothing is known of any version; 1: something is, or the record cannot tell, being old or of other packages.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

HERE = Path(__file__).parent
MOST_DAYS = 31
ACCEPTED = {"CVE-2023-48022": "Ray runs what it is sent, as its authors intend: SECURITY.md"}


def records(place: Path) -> Iterator[dict[str, Any]]:
    """Every advisory in a zip file or a folder."""
    if place.is_dir():
        yield from (json.loads(file.read_bytes()) for file in sorted(place.rglob("*.json")))
    else:
        with zipfile.ZipFile(place) as archive:
            yield from (json.loads(archive.read(name)) for name in archive.namelist() if name.endswith(".json"))


def pins(folder: Path = HERE) -> dict[str, str]:
    """Every version that is installed somewhere, CUDA's libraries too, by normalised name."""
    text = "".join(file.read_text() for file in sorted(folder.glob("*.txt")))
    found = re.findall(r"^([A-Za-z0-9._-]+)(?:\[.*\])?==([^ ;\\+]+)", text, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def within(version: Version, events: Iterable[dict[str, str]]) -> bool:
    """Whether the last of a range's events up to a version leaves it affected (OSV's schema, `events`)."""
    kinds = ("introduced", "fixed", "last_affected", "limit")
    changes = [(Version("0.dev0" if v == "0" else v), k) for e in events for k, v in e.items() if k in kinds]
    inside = False
    for at, kind in sorted(changes):
        if kind == "introduced" and version >= at:
            inside = True
        elif (kind in ("fixed", "limit") and version >= at) or (kind == "last_affected" and version > at):
            inside = False
    return inside


def concerns(affected: dict[str, Any], version: str) -> bool:
    """Whether an advisory's entry names this version; one that cannot be compared counts as named."""
    if version in affected.get("versions", []):
        return True
    ranges = [r["events"] for r in affected.get("ranges", []) if r["type"] == "ECOSYSTEM"]
    try:
        return any(within(Version(version), events) for events in ranges)
    except InvalidVersion:
        return True


def audit(place: Path, today: datetime, installed: dict[str, str]) -> int:
    """Print what is known of the installed versions. Returns the exit code."""
    named, newest, found = set(), "", []
    for record in records(place):
        for affected in record.get("affected", []):
            package = affected.get("package", {})
            if package.get("ecosystem") != "PyPI" or record.get("withdrawn"):
                continue
            newest = max(newest, record["modified"])
            name = canonicalize_name(package["name"])
            named.add(name)
            if name in installed and concerns(affected, installed[name]):
                found.append((name, record))
    if not newest:
        print(f"{place}: no advisory of a Python package, so nothing is known", file=sys.stderr)
        return 1
    age = (today - datetime.fromisoformat(newest)).days
    known = len(named & installed.keys())
    print(f"versions: {len(installed)}; packages with advisories: {known}; newest advisory: {newest[:10]}")
    left = 0
    for name, record in sorted(found, key=lambda pair: (pair[0], pair[1]["id"])):
        ids = [record["id"], *record.get("aliases", [])]
        why = next((ACCEPTED[i] for i in ids if i in ACCEPTED), None)
        left += why is None
        print(f"{name} {installed[name]}: {' '.join(ids)}: {why or record.get('summary', 'no summary')}")
    if age > MOST_DAYS:
        print(f"{place}: {age} days old, too old to say that nothing else is known", file=sys.stderr)
    return int(left > 0 or age > MOST_DAYS)


if __name__ == "__main__":
    try:
        sys.exit(audit(Path(sys.argv[1]), datetime.now(UTC), pins()))
    except (OSError, zipfile.BadZipFile, ValueError, KeyError) as error:
        sys.exit(f"{sys.argv[1]}: no record of advisories that can be read: {error!r}")
