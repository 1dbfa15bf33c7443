"""Strangers' words as plain text, and the style and the policy of every page that is written or served."""

import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from search.errors import printable

SIGNS = re.compile(
    r"""^[-+=:]|^\d(?=\d*[.)])"""  # lists and headings begin a line, and the text may
    r"""|\.(?=[^\W\d])|:(?! |$)"""  # 0.01 is a number and "so: that" prose, www.x and http:// are addresses
    r"""|(?<![^\W_])_|_(?![^\W_])"""  # again_at is a word, and _so_ emphasis
    r"""|[!"#$&*<>@\[\\\]^`{|}~]"""
)
"""Characters with a meaning in Markdown, HTML, or a dialect of either. An apostrophe has one in attributes alone."""
SCRIPT = re.compile("<script>(.*?)</script>", re.DOTALL)
STYLE = Path(__file__).with_name("templates") / "base.css"
HEAD = '<meta charset="utf-8">\n'


def escape(text: object) -> str:
    """Return a text as one line that is nothing but text, in Markdown and in HTML alike.

    Character references mean the same to every Markdown, and to HTML in it; backslashes do not.

    >>> escape("<b>")
    '&#60;b&#62;'
    """
    line = printable(" ".join(str(text).split()))
    return SIGNS.sub(lambda sign: f"&#{ord(sign[0])};", line)


def policy(*rules: str) -> str:
    """Return a Content-Security-Policy that allows these rules alone."""
    return "; ".join(["default-src 'none'", *rules, "base-uri 'none'", "form-action 'none'"])


def sources(pages: Iterable[str]) -> str:
    """Return the scripts of pages as a policy names them: no other script in a page is run."""
    names = []
    for page in pages:
        for script in SCRIPT.findall(page):
            digest = b64encode(sha256(script.encode()).digest()).decode()
            names.append(f"'sha256-{digest}'")
    return " ".join(names) or "'none'"


def guarded(template: str) -> str:
    """Return a template of a page with a policy in its head, by which only the template's own scripts are run."""
    rules = policy(f"script-src {sources([template])}", "img-src data:", "style-src 'unsafe-inline'")
    return template.replace(HEAD, f'{HEAD}<meta http-equiv="Content-Security-Policy" content="{rules}">\n', 1)
