"""Table of the seeds that the published program has trained to their end."""

from lab.tables import markdown, read


def seeds() -> str:
    """Return a line a seed: what share of problems and of tokens is right at the last evaluation."""
    rows = read("published-program.csv")
    lines = [(row.seed, f"{row.last_exact:g}", f"{row.last_token:.2f}") for row in rows.itertuples()]
    return markdown(("seed", "problems right at the last evaluation", "tokens"), lines)
