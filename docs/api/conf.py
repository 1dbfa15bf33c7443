"""Sphinx's settings: pages of what is called from Python, out of docstrings (`make api`)."""

import re

project = "adder-search"
extensions = ["sphinx.ext.autodoc", "sphinx.ext.viewcode"]
html_theme = "alabaster"
html_theme_options = {"description": "What is called from Python", "page_width": "64rem"}
html_show_sphinx = False
default_role = "code"  # a name in backticks is one, as it is in Markdown
add_module_names = False  # a page is of one package, from which its names are imported
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
ARGUMENT = re.compile(r"(?:^|(?<=[.;)] ))([a-z_]\w*(?:, [a-z_]\w*)*): ")


def as_rst(app, what, name, obj, options, lines):
    """Make lists of arguments of paragraphs that begin with one, and code of indented lines."""
    paragraphs = "\n".join(lines).split("\n\n")
    lines[:] = [line for paragraph in paragraphs for line in ["", *rewritten(paragraph, what)]]


def rewritten(paragraph, what):
    if paragraph.startswith("    ") and not paragraph.lstrip().startswith(">>>"):
        return [".. code-block:: python", "", *paragraph.splitlines()]
    if what in ("attribute", "data", "property", "module") or not ARGUMENT.match(paragraph):
        return paragraph.splitlines()
    text, raises, error = " ".join(paragraph.split()).partition(" Raises ")
    _, *parts = ARGUMENT.split(text)
    of_names = zip(parts[::2], parts[1::2], strict=True)
    listed = [f":param {name}: {says.strip()}" for names, says in of_names for name in names.split(", ")]
    return [*listed, "", *([f"Raises {error}"] if raises else [])]


def setup(app):
    app.connect("autodoc-process-docstring", as_rst)
