"""A stranger's text in Markdown and HTML: only text, in each dialect here; and the policy of pages that are written."""

from html import unescape
from html.parser import HTMLParser

import pytest

from reports.markup import SCRIPT, escape, guarded, sources

markdown = pytest.importorskip("markdown_it")
HOSTILE = [
    "sum ![x](http://127.0.0.1:9777/b.png)", "<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>",
    "[a](javascript:alert(1))", "<http://evil.example/>", "http://evil.example/x", "www.evil.example",
    "me@evil.example", "# heading", "heading\n===", "heading\n---", "a\n\n- list", "1. list", "1) list", "+ list",
    "> quote", "```\ncode", "    code", "| a |\n|---|\n| b |", "**bold**", "_em_", "__a_b__ _c_d_", "~~gone~~",
    "a`b`c", "a\\", "&lt;b&gt; &#60;i&#62;", "[a]: http://e", "![a][b]", "[^1]", "$x$", "<!-- comment", "<![CDATA[x]]>",
    "&copy;", "a  \nb", "***", ":smile:", "\x1b[31m\u202e",
]  # fmt: skip


class Shown(HTMLParser):
    """What a browser makes of HTML: its elements, and its text."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.text = [], ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("before", ["", "**57p**, ", "| "])
def test_no_dialect_makes_anything_of_a_text(text, before):
    plain = " ".join(text.split())
    plain = plain if plain.isprintable() else None
    for dialect in ("commonmark", "gfm-like", "js-default"):
        renderer = markdown.MarkdownIt(dialect, {"linkify": False, "html": True})
        given = renderer.render(f"{before}{escape(text)}")
        shown, usual = Shown(given), Shown(renderer.render(f"{before}x"))
        assert shown.elements == usual.elements, given
        assert plain is None or shown.text == usual.text.replace("x", plain, 1)
    assert Shown(f"<p>{escape(text)}</p>").elements == ["p"]
    assert "\n" not in escape(text) and escape(text).isprintable() and plain in (None, unescape(escape(text)))


def test_words_and_numbers_stay_readable():
    for text in ("57p's lr 0.01, again_at 16,000", "fade 5,000 to 12,000, decay=0.014", "so: 5 of 8 (62.5 %)"):
        assert escape(text) == text


def test_a_text_is_not_longer_than_a_line_may_be():
    assert len(escape("<" * 1_000_000)) < 10_000


def test_a_page_runs_its_own_scripts_and_no_other():
    text = guarded('<head>\n<meta charset="utf-8">\n</head><script>ours()</script>')
    (script,) = SCRIPT.findall(text)
    assert f"content=\"default-src 'none'; script-src {sources([text])};" in text and "unsafe-inline'; base" in text
    assert sources([text]) == sources([f"<script>{script}</script>"]) != sources([f"<script>{script} </script>"])
    assert "script-src 'none'" in guarded('<head>\n<meta charset="utf-8">\n</head>')
