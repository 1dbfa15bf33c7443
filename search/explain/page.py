"""A page of one file: a template of this room, the stylesheet and JavaScript that pages share, and its data."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

INCLUDE = re.compile(r"/\* include ([\w.]+) \*/\n?")
PLACEHOLDER = "{/* the model */}"


def page(template: str, model: Mapping[str, Any]) -> str:
    """Return the HTML of a template of this room, with the files that it includes and its data in it."""
    html = INCLUDE.sub(lambda name: _text(name[1]), _text(template))
    return html.replace(PLACEHOLDER, json.dumps(model).replace("<", "\\u003c"))


def _text(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
