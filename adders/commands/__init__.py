"""Commands on adders."""
