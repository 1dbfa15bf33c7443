"""Submissions: for each family one plain reference model, the template of its AdderBoard files."""
