"""Tables of fewer numbers from scratch, and their picture: run this file to write it."""

from pathlib import Path

from lab.tables import count, forest, markdown, of_vectors, rate, with_interval
from search.stats.counting import GrokRate

ROBUST, ANCHORED, LONG = "57p-robust", "57p-anchored", "100,000 steps, earlier drops of decay"
SETS = (
    ("54", ROBUST, "small-64.csv where configuration == '55a18b974633'"),
    ("47", ROBUST, "small-64.csv where configuration == 'df16906803c4'"),
    ("46", ROBUST, "small-64.csv where configuration == '60cc6fe6fcfa'"),
    ("38", ROBUST, "below-46.csv where arm == '38'"),
    ("38", ANCHORED, "below-46-anchored.csv where arm == '38'"),
    ("36", ANCHORED, "below-38.csv where arm == '36'"),
    ("35, one of out_B zero", ANCHORED, "below-36.csv where arm == 'out_B'"),
    ("35, EQUALS' two equal", ANCHORED, "below-36.csv where arm == 'equals'"),
    ("35, EQUALS' two equal", LONG, "below-36-long.csv where arm == 'equals'"),
    ("34", ANCHORED, "below-38.csv where arm == '34'"),
    ("34", LONG, "below-36-long.csv where arm == '34'"),
    ("32", ANCHORED, "below-38.csv where arm == '32'"),
    ("32", LONG, "below-34-long.csv where arm == '32'"),
    ("28", ROBUST, "below-46.csv where arm == '28'"),
    ("28", ANCHORED, "below-46-anchored.csv where arm == '28'"),
    ("28", LONG, "below-34-long.csv where arm == '28'"),
    ("22", ROBUST, "below-46.csv where arm == '22'"),
    ("22", ANCHORED, "below-46-anchored.csv where arm == '22'"),
    ("22 of seed 777", LONG, "below-34-long.csv where arm == '22'"),
    ("15", ROBUST, "below-46.csv where arm == '15'"),
    ("15", ANCHORED, "below-46-anchored.csv where arm == '15'"),
)


def rates() -> str:
    lines = [(n, recipe, with_interval(rate(source)), of_vectors(source)) for n, recipe, source in SETS]
    return markdown(("numbers", "recipe", "runs that grok", "of vectors"), lines)


def trained_on() -> str:
    arms = {
        "36": "36",
        "equals": "35, EQUALS' two equal",
        "out_B": "35, one of out_B",
        "34": "34",
        "32": "32",
    }
    lines = [(name, "{} of {}".format(*count(f"trained-on.csv where arm == '{arm}'"))) for arm, name in arms.items()]
    return markdown(("numbers", "verified after training on"), lines)


if __name__ == "__main__":
    best: dict[str, GrokRate] = {}
    for numbers, _, source in SETS:
        name = numbers.partition(",")[0].partition(" ")[0]
        best[name] = max(best.get(name, GrokRate(0, 64)), rate(source), key=lambda r: r.grokked)
    forest(best, Path(__file__).with_name("fewer.png"))
