"""The report: one page about one study, and its pictures. Pure functions of the records' frames."""

from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from jinja2 import Environment, StrictUndefined
from matplotlib.figure import Figure

from search import plugins
from search.analysis import STYLE
from search.analysis.fields import columns, fields_of, meaning, shown
from search.analysis.flags import MOST_GRIDS, Flag, Grid, flag_grids, notes_on, notes_on_one, single_flags
from search.analysis.frames import seeds_of
from search.analysis.pareto import rates_of, standing
from search.analysis.plots import (
    SEED,
    curves_figure,
    front_figure,
    image_of,
    png,
    small_multiples,
    time_figure,
)
from search.analysis.plots_search import (
    MOST_AXES,
    SHUFFLES,
    Importances,
    importance_figure,
    importances,
    probes_figure,
    probes_of,
    rate_against_fields,
)
from search.analysis.table import Table, constraint_table
from search.analysis.table_figure import table_figure
from search.analysis.table_text import details, notes
from search.errors import UserError
from search.markup import guarded
from search.stats.counting import (
    COUNTED,
    FEWEST_SEEDS,
    INTERRUPTED,
    TOO_FEW,
    WORDS,
    Cost,
    GrokRate,
    PooledRate,
    StoppingCounts,
    by_phase,
    few_digits,
    group_by,
    missed_by,
    pareto,
    state_of,
    unended_warning,
)
from search.stats.stages import describe_stages
from search.store.home import pull_command
from search.study.schema import Study
from trainer import Outcome, Rule

TEMPLATE = Path(__file__).with_name("templates") / "report.html.j2"
FEW = 6  # configurations that are shown one by one
BEST = 5  # configurations in the first table, beside those that were confirmed
FEWEST_FOR_IMPORTANCE = 8  # configurations
FEWEST_GROKKED = 10  # runs, for a share that counts as evidence
REDRAWS = 10
BOUNDS = (
    "The interval of each configuration allows for as many as its own spared seeds, and what was measured of it "
    "before, do not exclude."
)
OUTCOMES = {
    Outcome.GROKKED: "all answers to {selection} right at some evaluation",
    Outcome.FAILED: "spent the budget without grokking",
    Outcome.DIVERGED: "became non-finite; counted as not grokked",
    Outcome.GIVEN_UP: "stopped by the hopeless rule; counted as not grokked",
    Outcome.SCREENED: "stopped by the study's screen; counted as not grokked",
    Outcome.CENSORED: "ended from outside once enough had grokked; not counted",
    INTERRUPTED: "ended from outside, and goes on when the study does; not counted until it ends",
}


def report(
    study: Study | None,
    configurations: pd.DataFrame,
    seeds: pd.DataFrame,
    curves: pd.DataFrame,
    descents: Mapping[str, Figure] | None = None,
    lineage: str = "",
    say: Callable[[str], object] = lambda line: None,
) -> str:
    """Return the page: one self-contained HTML file.

    study: None if its file was not recorded. Frames: as `search.analysis.frames.records` has them, with one
    configuration or more. descents, lineage: pictures and tree of a study that looks for constraints
    (search/study/kind.py, search/analysis/lineage.py). say: gets a line before each thing that takes time.
    """
    say("computing intervals, importances and pictures")
    page = _Page(study, configurations, seeds, curves)
    images = {}
    for name, figure in {**page.figures(), **(descents or {})}.items():
        say(f"drawing {name.replace('-', ' ')}")
        data = b64encode(image_of(figure, ".svg")).decode()
        images[name] = {"data": data, "width": round(96 * figure.get_figwidth())}
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"percent": percent, "counts": _counts, "ends": _ends}
    return environment.from_string(guarded(TEMPLATE.read_text("utf-8"))).render(
        page=page,
        images=images,
        stylesheet=STYLE.read_text("utf-8"),
        lineage=lineage,
        few=FEW,
        shuffles=SHUFFLES,
        most_axes=MOST_AXES,
        most_grids=MOST_GRIDS,
        flag_notes=notes_on(page.flags),
        single_notes=notes_on_one(page.single_flag),
    )


def pictures(
    study: Study | None, configurations: pd.DataFrame, seeds: pd.DataFrame, curves: pd.DataFrame, folder: Path
) -> list[Path]:
    """Write the page's pictures into an existing folder as PNG files."""
    paths = []
    for name, figure in _Page(study, configurations, seeds, curves).figures().items():
        paths.append(folder / f"{name}.png")
        paths[-1].write_bytes(png(figure))
    return paths


def percent(rate: float) -> str:
    return f"{rate:.1%}"


def _counts(rate: GrokRate) -> str:
    return f"{rate.grokked:,} of {rate.n:,}"


def _ends(rate: GrokRate) -> str:
    return "{} to {}".format(*map(percent, rate.interval))


def _sentence(rate: GrokRate) -> str:
    return f"{_counts(rate)} seeds ({percent(rate.rate or 0.0)}, 95 % interval {_ends(rate)})"


class _Page:
    """The template's data. Configurations are in the order of `best`; of equals, of their shrunk grok rates."""

    def __init__(self, study: Study | None, configurations: pd.DataFrame, seeds: pd.DataFrame, curves: pd.DataFrame):
        judged = configurations[configurations["seeds"] > 0]
        self.unjudged = len(configurations) - len(judged) if len(judged) else 0
        configurations = judged if len(judged) else configurations
        objective = shrunk(configurations, seeds)
        keys = [(*standing(row), t) for row, t in zip(configurations.to_dict("records"), objective, strict=True)]
        order = sorted(range(len(keys)), key=keys.__getitem__, reverse=True)
        self.study, self.seeds, self.curves = study, seeds, curves
        self.objective = objective[order]
        self.configurations = configurations.iloc[order].reset_index(drop=True)
        self.name = study.name if study else str(configurations["study"].iloc[0])
        self.about = study.about if study else ""
        self.asked_fields = [] if study and not study.kind.is_compared else fields_of(study, self.configurations)
        self.fields = [field for field in self.asked_fields if field.varies]
        self.several = len(configurations) > 1
        self.is_compared = self.several and (not study or study.kind.is_compared)
        self.counts = seeds["outcome"].value_counts()
        self.confirmed = bool((configurations["confirmation_seeds"] > 0).any())
        self.counted = seeds[seeds["outcome"].isin([o.value for o in COUNTED])]
        confirms = seeds["confirmation"].astype(bool)
        self.own, self.fresh = seeds[~confirms], seeds[confirms]
        self.records = seeds_of(seeds)
        self.searched, _ = by_phase(self.records)

    # ---- what was asked

    def asked(self) -> list[tuple[str, str]]:
        """Return names and words of what the study is."""
        frame = self.configurations
        presets = list(dict.fromkeys(frame.sort_values(["params", "rung"])["rung"]))
        named = ", ".join(presets) if len(presets) <= FEW else f"{len(presets)} specs"
        families = ", ".join(sorted(set(frame["model.family"])))
        return [
            ("Model", f"{named}: {families}, {_span(frame['params'], '')} parameters"),
            ("Budget", f"{_span(self.seeds['budget'])} steps a seed"),
            ("Configurations", self._configurations()),
            ("Seeds", self._seeds()),
            *([("Sought", self.study.kind.goal)] if self.study and self.study.kind.goal else []),
            *(self.study.kind.rules(self.configurations["configuration"]) if self.study else []),
        ]

    def _configurations(self) -> str:
        count = f"{len(self.configurations):,}"
        if self.unjudged:
            count += f" ({self.unjudged:,} more without a counted seed so far)"
        proposer = self.study.kind.proposer if self.study else ""
        return f"{count}, proposed by {proposer}" if proposer else count

    def _seeds(self) -> str:
        text = f"{len(self.seeds):,}"
        if self.several:
            each = self.configurations["seeds"] + self.configurations["censored"]
            text += f", {_span(each)} a configuration"
        if self.confirmed:
            text += f"; {len(self.fresh):,} of them, numbers {_span(self.fresh['init_seed'], '')}, confirm"
        return text

    def file(self) -> str:
        """Return the study file, without defaults."""
        if not self.study:
            return ""
        plain = self.study.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100)

    def fixed(self) -> list[tuple[str, str, str, str]]:
        """Return path, value, unit and sentence of every field that is the same everywhere and not empty."""
        frame, searched = self.configurations, {f.path for f in self.asked_fields}
        texts = {c: set(map(shown, frame[c])) for c in columns(frame) if c not in searched}
        same = {c: values.pop() for c, values in texts.items() if len(values) == 1}
        return [(c, value, *meaning(c)) for c, value in same.items() if value != "–"]

    # ---- what was found

    def outcomes(self) -> list[tuple[str, str, str]]:
        """Return each outcome in words, with the number of its seeds, those of the confirmation apart, and meaning."""
        counts = [Counter(map(state_of, seeds)) for seeds in by_phase(self.records) if seeds]
        rows = []
        for outcome, text in OUTCOMES.items():
            numbers = " + ".join(f"{counted.get(outcome, 0):,}" for counted in counts)
            rows.append((WORDS[outcome], numbers, text.format(selection=self.selection)))
        return rows

    @property
    def selection(self) -> str:
        """The problems that decide what has grokked, in words; a table of problems may hold out fewer."""
        has_tables = "task.train" in self.configurations and self.configurations["task.train"].notna().any()
        return "the held-out rows (at most 5,000)" if has_tables else "the 5,000 selection problems"

    def headline(self) -> str:
        """Return the answer in one or two sentences."""
        if self.counted.empty:
            return f"Nothing yet: all {len(self.seeds):,} seeds were ended from outside."
        best = self.row(0)
        if not self.several:
            return f"{_sentence(best['search'])} grokked."
        text = f"{'In the search ' if self.confirmed else ''}{PooledRate.of(self.searched)}."
        if not self.counts.get(Outcome.GROKKED, 0):
            return text
        if not self.confirmed:
            return f"{text} The best is {best['title']} with {_sentence(best['search'])}."
        return f"{text} On fresh seeds the best is {best['title']} with {_sentence(best['confirmation'])}."

    def unended(self) -> str:
        """Return how seeds that have not ended bias the rates."""
        warning = unended_warning(self.records)
        return f"{warning}." if warning else ""

    def trust(self) -> str:
        """Return how selection biases the rates; empty where nothing was selected."""
        if not self.several:
            return ""
        if self.confirmed:
            return (
                "Trust the confirmation column: its seeds had no part in choosing. The search's rates are "
                "what the configurations were chosen for, so they are too high on average (the winner's curse)."
            )
        picked = (
            f"The best of {len(self.configurations):,} were picked by these same rates, so their true rates "
            "are probably lower (the winner's curse)."
        )
        if self.study and self.study.confirm:
            most, seeds = self.study.confirm.configurations, len(self.study.confirm_seeds)
            return f"{picked} At its end the study confirms up to {most:,} of them, on {seeds:,} fresh seeds each."
        return f"{picked} Fresh seeds would tell: a confirmation pass."

    def stopping(self) -> str:
        """Describe what the rules that stop seeds did in the search; empty if they never fired."""
        sentences: list[str] = []
        for rule in plugins.rules().values():
            if done := _rule_sentences(rule, StoppingCounts.of(self.searched, rule)):
                wrongly = missed_by(rule, self.searched, pooled=True)
                sentences.append(f"{done}At most {wrongly:,.1f} of the ended ones would have grokked (one-sided 95 %).")
        return " ".join([*sentences, *([BOUNDS] if sentences else [])])

    def stages(self) -> list[str]:
        """Return a sentence for each configuration whose seeds go through stages: how many are left after each."""
        titles = dict(zip(self.configurations["configuration"], self.configurations["title"], strict=True))
        sentences = []
        for key, rows in group_by(self.searched, "configuration").items():
            if described := describe_stages(rows):
                sentences.append(f"{titles.get(key, key)}: {described}.")
        return sentences

    def clustered(self, name: str) -> str:
        """Return in words if what pools configurations, by `name`, is clustered by seed or has too few of them."""
        seeds = len(self.own[SEED].drop_duplicates())
        return f"{name} clustered by seed" if seeds >= FEWEST_SEEDS else f"no interval: {TOO_FEW}"

    def cost(self) -> str:
        """Return what grokked seeds of the search cost, all that ended paid for."""
        return f"{Cost.of(self.searched)}."

    def best(self) -> list[dict[str, Any]]:
        """Return the first few configurations, and all that were confirmed."""
        confirmed = np.flatnonzero(self.configurations["confirmation_seeds"] > 0)
        first = range(min(BEST, len(self.configurations)))
        return [self.row(i) for i in sorted({*first, *confirmed.tolist()})]

    def row(self, i: int) -> dict[str, Any]:
        """Return one configuration: its columns and its two rates."""
        row: dict[str, Any] = self.configurations.iloc[i].to_dict()
        search, confirmation = rates_of(row)
        return {**row, "search": search, "confirmation": confirmation}

    def listed(self) -> list[tuple[str, list[tuple[str, Any]]]]:
        """Return the columns of the table of all configurations: each cell's text and what it is sorted by.

        Those that are zero or empty everywhere are left out.
        """
        frame = self.configurations
        rows = [self.row(i) for i in range(len(frame))]
        front = pareto(frame["params"].tolist(), frame["grok_rate"].tolist())
        sizes = frame["params"].nunique()

        def plain(name: str, text: Callable[[Any], str] = shown) -> list[tuple[str, Any]]:
            return [(text(value) if value == value else shown(value), value) for value in frame[name]]

        def tried(name: str, tries: str) -> list[tuple[str, Any]]:
            return [(f"{r[name]:,} of {r[tries]:,}" if r[tries] else "–", r[name]) for r in rows]

        commands = [pull_command(self.name, r["configuration"]) if str(r["best_seed"]) else "" for r in rows]
        on_front = ["yes" if f and r["seeds"] and sizes > 1 else "" for f, r in zip(front, rows, strict=True)]

        def rates(name: str, head: str = "") -> list[tuple[str, list[tuple[str, Any]]]]:
            of_rows = [r[name] for r in rows]
            return [
                (head or name, [("–", -1.0) if r.rate is None else (percent(r.rate), r.rate) for r in of_rows]),
                ("95 %\ninterval", [(_ends(r) if r.n else "–", r.interval[0]) for r in of_rows]),
            ]

        columns = [
            ("parameters", plain("params")),
            *(rates("search") + rates("confirmation") if self.confirmed else rates("search", "grok rate")),
            ("command", [(command, command) for command in commands]),
            ("seeds", plain("seeds")),
            *((WORDS[o], plain(o)) for o in COUNTED),
            ("not ended", plain(Outcome.CENSORED)),
            ("grokked per\nmillion\nseed-steps", plain("grokked_per_million", lambda rate: few_digits(rate, 3))),
            ("core-seconds\neach", plain("core_s_per_grokked")),
            ("shrunk\nrate", [(f"{t:.3f}", t) for t in self.objective]),
            ("best exact\nmatch", plain("best_exact", "{:.4f}".format)),
            ("median\ngrok step", plain("median_grok_step")),
            ("held", plain("held")),
            ("verified", tried("verified", "verify_tried")),
            ("proved", tried("proved", "prove_tried")),
            ("claimed to\nbe proved", plain("proofs_claimed")),
            ("best seed", plain("best_seed")),
            ("on the\nfront", [(text, text) for text in on_front]),
            *((f"{f.name}\n({f.unit})" if f.unit else f.name, [*zip(f.labels(), f.values, strict=True)])
              for f in self.fields),
        ]  # fmt: skip
        return [(name, cells) for name, cells in columns if {text for text, _ in cells} - {"", "0", "–"}]

    # ---- pictures

    def figures(self) -> dict[str, Figure]:
        """Return the pictures that apply, by name, in the page's order."""
        figures: dict[str, Figure] = {}
        if self.study and not self.study.kind.is_compared:  # its sets have pictures of their own
            return figures
        if self.table:
            figures["constraint-table"] = table_figure(self.table)
        if len(self.curves):
            figures["grokking-curves"] = self._curves_figure()
        if (probes := probes_of(self.curves)) and len(self.counted):
            figures["probes"] = probes_figure(self.curves, probes, self.counted)
        if len(self.own):
            figures["time-to-grok"] = time_figure(self._groups())
        if self.several and self.fields and len(self.counted):
            fields = [f for f, _ in self.importances.shares] if self.importances else self.fields
            some = self.fields if len(self.fields) <= MOST_AXES else fields[:MOST_AXES]
            figures["rate-against-fields"] = rate_against_fields(some, self.configurations, self.own)
        if self.configurations["params"].nunique() > 1 and len(self.counted):
            figures["pareto-front"] = front_figure(self.configurations)
        if self.importances:
            figures["importance"] = importance_figure(self.importances, not self.few_grokked())
        return figures

    def _curves_figure(self) -> Figure:
        """Draw the curves of the first few configurations that have some."""
        by_key, panels = dict(list(self.curves.groupby("configuration"))), []
        grokked = self.seeds[self.seeds["outcome"] == Outcome.GROKKED]
        for title, key in self._titles(self.configurations).items():
            if key in by_key:
                winners = grokked.loc[grokked["configuration"] == key, SEED].itertuples(index=False, name=None)
                panels.append((title, by_key[key], set(winners)))
        if self.several:
            return small_multiples(panels)
        title, curves, pairs = panels[0]
        return curves_figure(curves, pairs, f"{title} grokked")

    def _groups(self) -> dict[str, pd.DataFrame]:
        """Return seeds by the titles of few configurations, or all together."""
        if len(self.configurations) > FEW:
            return {"all": self.own}
        by_key = dict(list(self.own.groupby("configuration")))
        return {title: by_key[key] for title, key in self._titles(self.configurations).items() if key in by_key}

    def _titles(self, configurations: pd.DataFrame) -> dict[str, str]:
        """Return the keys of the first few configurations by titles that have their counts."""
        rows = configurations.head(FEW).to_dict("records")
        return {f"{r['title']}: {r['grokked']:,} of {r['seeds']:,}": r["configuration"] for r in rows}

    @cached_property
    def table(self) -> Table | None:
        """The table of constraints; None unless the study trained some with and without one."""
        try:
            return constraint_table(_plain(self.configurations), seeds=self.records)
        except UserError:
            return None

    def table_lines(self) -> tuple[list[str], list[list[str]]]:
        """Return the columns of the table, cell by cell, and its lines."""
        return details(self.table, paper=True) if self.table else ([], [])

    def table_notes(self) -> list[str]:
        return notes(self.table) if self.table else []

    @cached_property
    def single_flag(self) -> list[Flag]:
        """The study's only flag; nothing if it has none or several."""
        return single_flags(_plain(self.configurations), self.records) if self.is_compared else []

    @cached_property
    def flags(self) -> list[Grid]:
        """Searched flags against each other."""
        return flag_grids(_plain(self.configurations), self.records) if self.is_compared else []

    @cached_property
    def importances(self) -> Importances | None:
        if not (self.study and self.study.kind.space) or len(self.configurations) < FEWEST_FOR_IMPORTANCE:
            return None
        return importances(self.fields, shrunk(self.configurations, self.own), self._redrawn())

    def few_grokked(self) -> str:
        """Return a sentence if too few runs of the search grokked to tell what mattered."""
        grokked = int((self.own["outcome"] == Outcome.GROKKED).sum())
        few = f"Only {grokked} grokked, and under {FEWEST_GROKKED} are too few to tell a share from chance: no colour."
        return few if grokked < FEWEST_GROKKED else ""

    def _redrawn(self) -> list[np.ndarray]:
        """Return the objective with seeds drawn anew; none where there are too few of them."""
        seeds = pd.MultiIndex.from_frame(self.own[SEED])
        names, rng = seeds.unique(), np.random.default_rng(0)
        if len(names) < FEWEST_SEEDS:
            return []
        draws = (rng.multinomial(len(names), np.full(len(names), 1 / len(names))) for _ in range(REDRAWS))
        places = names.get_indexer(seeds)
        weights = (pd.Series(draw[places], index=self.own.index) for draw in draws)
        return [shrunk(self.configurations, self.own, weight) for weight in weights]

    def why_no_importance(self) -> str:
        """Return a sentence where one would look for importances and there are none."""
        is_search = self.study and self.study.kind.space
        if self.importances or not self.several or not is_search:
            return ""
        if len(self.configurations) < FEWEST_FOR_IMPORTANCE:
            return f"Parameter importance takes {FEWEST_FOR_IMPORTANCE} configurations or more."
        return "All configurations did equally well: no parameter importance."


def shrunk(configurations: pd.DataFrame, seeds: pd.DataFrame, weights: pd.Series | None = None) -> np.ndarray:
    """Return (grokked + t) / (seeds + 2) of each configuration; t: its seeds' mean best token accuracy, below 1.

    A search's objective (search/run/allocation.py) without its least part, how early they grokked: it tells
    apart configurations that never grokked. weights: how often each seed counts; once if None.
    """
    weight = pd.Series(1, index=seeds.index) if weights is None else weights
    columns = pd.DataFrame({
        "token": weight * seeds["best_token"].fillna(0.0).clip(upper=0.999),
        "seeds": weight,
        "grokked": weight * (seeds["outcome"] == Outcome.GROKKED),
        "counted": weight * seeds["outcome"].isin([o.value for o in COUNTED]),
    })  # fmt: skip
    sums = columns.groupby(seeds["configuration"]).sum().reindex(configurations["configuration"], fill_value=0)
    t = (sums["token"] / sums["seeds"]).fillna(0.0)
    return ((sums["grokked"] + t) / (sums["counted"] + 2)).to_numpy(dtype=float)


def _plain(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows with None where a frame has NaN."""
    plain = frame.astype(object)
    return plain.where(plain.notna(), None).to_dict("records")


def _rule_sentences(rule: type[Rule], counts: StoppingCounts) -> str:
    """Return what a stopping rule did in sentences; empty if it never called a seed."""
    if not counts.ended and not counts.spared:
        return ""
    did = "gave up" if rule.outcome == Outcome.GIVEN_UP else "ended"
    text = f"The {rule.title.lower()} {did} {counts.ended:,} of {counts.seeds:,} seeds. "
    if counts.spared:
        share = f"{counts.spared_share:.0%} of those that it was to end"
        grokked = f"{counts.spared_grokked:,} grokked" if counts.spared_grokked else "none grokked"
        text += f"As a check it let {counts.spared:,} more ({share}) run on: {grokked}. "
    return text


def _span(numbers: pd.Series, style: str = ",") -> str:
    low, high = (format(int(end), style) for end in (numbers.min(), numbers.max()))
    return low if low == high else f"{low} to {high}"
