"""A page of one file: a template, the stylesheet and JavaScript that pages share, and its data."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
INCLUDE = re.compile(r"/\* include ([\w.]+) \*/\n?")
PLACEHOLDER = "{/* the model */}"


def page(template: Path, model: Mapping[str, Any]) -> str:
    """Return the HTML of a template, with the files of this folder that it includes and its data in it."""
    html = INCLUDE.sub(lambda name: (HERE / name[1]).read_text("utf-8"), template.read_text("utf-8"))
    return html.replace(PLACEHOLDER, json.dumps(model, allow_nan=False).replace("<", "\\u003c"))
