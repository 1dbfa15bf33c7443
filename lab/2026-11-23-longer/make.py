"""Tables of the recipes for 57 parameters, and their picture: run this file to write it."""

from pathlib import Path

from lab.tables import arms_of, beside, forest, markdown, of_vectors, rate, rates, with_interval

RECIPES = {
    "published": "57p-paired-published.csv + three-128.csv where study == 'three-128-published'",
    "57p-faded": "faded-256.csv",
    "57p-kinds": "kinds-64.csv",
    "57p-robust": "robust-128.csv + three-128.csv where study == 'three-128'",
    "57p-anchored": "half-2-128.csv + long-57p.csv where arm == 'anchored'",
    "57p-longer": "longer-fresh.csv",
}

VECTORS = dict.fromkeys(RECIPES, "1") | {
    "57p-robust": "1 or 2",
    "57p-anchored": "1 to 3",
    "57p-longer": "1 to 3",
}


def recipes() -> str:
    """Return the rate of each recipe, on seeds by which it was not chosen."""
    lines = [(name, with_interval(rate(s)), VECTORS[name], of_vectors(s)) for name, s in RECIPES.items()]
    return markdown(("recipe", "runs that grok", "vectors a run", "of vectors"), lines)


def arms() -> str:
    return rates(arms_of("long-57p.csv"))


def arms_beside_anchored() -> str:
    arms = arms_of("long-57p.csv")
    return beside(arms, arms.pop("anchored"))


if __name__ == "__main__":
    labels = {name: f"{name} ({VECTORS[name]} vector{'s' * (n != '1')} a run)" for name, n in VECTORS.items()}
    forest(
        {labels[name]: rate(source) for name, source in RECIPES.items()},
        Path(__file__).with_name("recipes.png"),
    )
