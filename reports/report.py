"""The report: one page about one study, and its pictures. Pure functions of the records' frames."""

import re
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

from reports.fields import Field, columns, fields_of, meaning, shown
from reports.flags import MOST_GRIDS, Flag, Grid, flag_grids, notes_on, notes_on_one, single_flags
from reports.markup import STYLE, guarded
from reports.plots import (
    SEED,
    curves_figure,
    front_figure,
    image_of,
    png,
    small_multiples,
    time_figure,
)
from reports.plots_search import (
    MOST_AXES,
    SHUFFLES,
    Importances,
    importance_figure,
    importances,
    probes_figure,
    probes_of,
    rate_against_fields,
)
from reports.records import rates_of, standing
from reports.table import Table, constraint_table
from reports.table_figure import table_figure
from reports.table_text import details, notes
from search import plugins
from search.analysis.frames import seeds_of
from search.errors import UserError
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
    percent,
    percents,
    state_of,
    unended_warning,
)
from search.stats.stages import describe_stages
from search.store.home import pull_command
from search.study.schema import Study
from trainer import Outcome, Rule

Cells = list[tuple[str, Any]]
"""A column of a table: the text of each cell, and what it is sorted by."""
EMPTY = {"", "0", "–"}
"""Texts of cells that say nothing: a column that has no other is left out."""
Row = dict[str, Any]
TEMPLATE = Path(__file__).with_name("templates") / "report.html.j2"
FEW = 6
"""Up to this many configurations are shown one by one."""
BEST = 5
"""Configurations in the first table, beside those that were confirmed."""
FEWEST_FOR_IMPORTANCE = 8
"""Configurations."""
FEWEST_GROKKED = 10
"""Runs, for a share that counts as evidence."""
REDRAWS = 10
"""Drawings of seeds anew, by which the range of an importance is known."""
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
    figures = {**page.figures(), **(descents or {})}

    images = {}
    for name, figure in figures.items():
        say(f"drawing {name.replace('-', ' ')}")
        data = b64encode(image_of(figure, ".svg")).decode()
        width = round(96 * figure.get_figwidth())  # 96 pixels of CSS are an inch
        images[name] = {"data": data, "width": width}

    # Names of studies and fields are strangers' text: all of it is escaped.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"percent": percent, "counts": _counts, "ends": _ends}
    template = environment.from_string(guarded(template_text()))
    text = template.render(
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
    return percentages_whole(text)


def template_text() -> str:
    """Return the page as it is before its data are in it."""
    return TEMPLATE.read_text("utf-8")


def percentages_whole(page: str) -> str:
    """Return a page whose percentages do not break across lines. What it quotes, and its programs, stay as they are.

    >>> percentages_whole("95 % <pre>7 % 3</pre>").replace("\N{NO-BREAK SPACE}", "_")
    '95_% <pre>7 % 3</pre>'
    """
    parts = re.split(r"(<pre.*?</pre>|<script.*?</script>|<style.*?</style>)", page, flags=re.DOTALL)
    # Every second part is quoted.
    for n in range(0, len(parts), 2):
        parts[n] = re.sub(r"(\d) %", "\\1\N{NO-BREAK SPACE}%", parts[n])
    return "".join(parts)


def pictures(
    study: Study | None, configurations: pd.DataFrame, seeds: pd.DataFrame, curves: pd.DataFrame, folder: Path
) -> list[Path]:
    """Write the page's pictures into an existing folder as PNG files. Return their paths."""
    figures = _Page(study, configurations, seeds, curves).figures()
    paths = []
    for name, figure in figures.items():
        path = folder / f"{name}.png"
        path.write_bytes(png(figure))
        paths.append(path)
    return paths


def _counts(rate: GrokRate) -> str:
    return f"{rate.grokked:,} of {rate.n:,}"


def _ends(rate: GrokRate) -> str:
    return percents(rate.interval)


def _sentence(rate: GrokRate) -> str:
    share = percent(rate.rate or 0.0)
    return f"{_counts(rate)} seeds ({share}, 95 % interval {_ends(rate)})"


class _Page:
    """The template's data. Configurations are in the order of `best`; of equals, of their shrunk grok rates."""

    def __init__(self, study: Study | None, configurations: pd.DataFrame, seeds: pd.DataFrame, curves: pd.DataFrame):
        # A study may be running: what has no counted seed yet is only counted, unless that is all there is.
        self.unjudged = 0
        judged = configurations[configurations["seeds"] > 0]
        if len(judged):
            self.unjudged = len(configurations) - len(judged)
            configurations = judged

        # Seeds that confirm had no part in choosing: they are never pooled with the search's own.
        confirms = seeds["confirmation"].astype(bool)
        self.own = seeds[~confirms]
        self.fresh = seeds[confirms]
        objective = shrunk(configurations, self.own)
        rows = configurations.to_dict("records")
        # Of equal standing the shrunk rate decides, which tells apart those that never grokked too.
        keys = [(*standing(row), t) for row, t in zip(rows, objective, strict=True)]
        order = sorted(range(len(keys)), key=keys.__getitem__, reverse=True)
        self.objective = objective[order]
        self.configurations = configurations.iloc[order].reset_index(drop=True)

        self.study = study
        self.name = study.name if study else str(configurations["study"].iloc[0])
        self.about = study.about if study else ""
        # Sets of a descent are steps to another end, and are not compared.
        is_comparable = not study or study.kind.is_compared
        self.asked_fields = fields_of(study, self.configurations) if is_comparable else []
        self.fields = [field for field in self.asked_fields if field.varies]
        self.several = len(configurations) > 1
        self.is_compared = self.several and is_comparable

        self.curves = curves
        self.seeds = seeds
        self.counted = self.own[self.own["outcome"].isin(COUNTED)]
        self.confirmed = bool((configurations["confirmation_seeds"] > 0).any())
        self.records = seeds_of(seeds)
        self.searched, _ = by_phase(self.records)

    # ---- what was asked

    def asked(self) -> list[tuple[str, str]]:
        """Return the study's properties: names and words."""
        asked = [
            ("Model", self._models()),
            ("Budget", f"{_span(self.seeds['budget'])} steps per seed"),
            ("Configurations", self._configurations()),
            ("Seeds", self._seeds()),
        ]
        if self.study:
            kind = self.study.kind
            if kind.goal:
                asked.append(("Sought", kind.goal))
            asked += kind.rules(self.configurations["configuration"])
        return asked

    def _models(self) -> str:
        """Return the presets in words, the smallest first, with their families and sizes."""
        frame = self.configurations
        presets = frame.sort_values(["params", "rung"])["rung"].unique()
        named = ", ".join(presets) if len(presets) <= FEW else f"{len(presets)} specs"
        families = ", ".join(sorted(set(frame["model.family"])))
        return f"{named}: {families}, {_span(frame['params'], '')} parameters"

    def _configurations(self) -> str:
        """Return in words how many configurations there are, and who proposed them."""
        text = f"{len(self.configurations):,}"
        if self.unjudged:
            text += f" ({self.unjudged:,} more without a counted seed so far)"
        if self.study and self.study.kind.proposer:
            text += f", proposed by {self.study.kind.proposer}"
        return text

    def _seeds(self) -> str:
        """Return in words how many seeds there are, and which of them confirm."""
        text = f"{len(self.seeds):,}"
        if self.several:
            each = self.configurations["seeds"] + self.configurations["censored"]
            text += f", {_span(each)} per configuration"
        if self.confirmed:
            text += f"; {len(self.fresh):,} of them, numbers {_span(self.fresh['init_seed'], '')}, confirm"
        return text

    def file(self) -> str:
        """Return the study file, without defaults."""
        if not self.study:
            return ""
        given = self.study.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return yaml.safe_dump(given, sort_keys=False, allow_unicode=True, width=100)

    def fixed(self) -> list[tuple[str, str, str, str]]:
        """Return path, value, unit and sentence of every field that is the same everywhere and not empty."""
        searched = {field.path for field in self.asked_fields}
        fixed = []
        for path in columns(self.configurations):
            texts = set(map(shown, self.configurations[path]))
            if path in searched or len(texts) > 1:
                continue
            (text,) = texts
            if text != "–":
                fixed.append((path, text, *meaning(path)))
        return fixed

    # ---- what was found

    def outcomes(self) -> list[tuple[str, str, str]]:
        """Return each outcome: its name, the number of its seeds, and its meaning.

        With a confirmation there are two numbers: `3 + 20`.
        """
        phases = [Counter(map(state_of, seeds)) for seeds in by_phase(self.records) if seeds]
        rows = []
        for outcome, text in OUTCOMES.items():
            numbers = " + ".join(f"{states[outcome]:,}" for states in phases)
            meant = text.format(selection=self.selection)
            rows.append((WORDS[outcome], numbers, meant))
        return rows

    @property
    def selection(self) -> str:
        """The problems that decide what has grokked, in words; a table of problems may hold out fewer."""
        if "task.train" in self.configurations and self.configurations["task.train"].notna().any():
            return "the held-out rows (at most 5,000)"
        return "the 5,000 selection problems"

    def headline(self) -> str:
        """Return the answer in one or two sentences."""
        if self.counted.empty:
            return f"Nothing yet: all {len(self.seeds):,} seeds were ended from outside."

        best = self.row(0)
        if not self.several:
            return f"{_sentence(best['search'])} grokked."

        where = "In the search " if self.confirmed else ""
        text = f"{where}{PooledRate.of(self.searched)}."
        # Where nothing grokked, none is the best.
        if not (self.seeds["outcome"] == Outcome.GROKKED).any():
            return text

        # Only fresh seeds say how good the best is: it was chosen by the others.
        if self.confirmed:
            return f"{text} On fresh seeds the best is {best['title']} with {_sentence(best['confirmation'])}."
        return f"{text} The best is {best['title']} with {_sentence(best['search'])}."

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
            most = self.study.confirm.configurations
            seeds = len(self.study.confirm_seeds)
            return f"{picked} At its end the study confirms up to {most:,} of them, on {seeds:,} fresh seeds each."
        return f"{picked} Fresh seeds would tell: a confirmation pass."

    def stopping(self) -> str:
        """Describe what the rules that stop seeds did in the search; empty if they never fired."""
        sentences: list[str] = []
        for rule in plugins.rules().values():
            did = _rule_sentences(rule, StoppingCounts.of(self.searched, rule))
            if not did:
                continue
            # Pooled, as this sentence is about the study: bounds of single configurations would add up to more.
            wrongly = missed_by(rule, self.searched, pooled=True)
            sentences.append(did)
            sentences.append(f"At most {wrongly:,.1f} of the ended ones would have grokked (one-sided 95 %).")
        if sentences:
            sentences.append(BOUNDS)
        return " ".join(sentences)

    def stages(self) -> list[str]:
        """Return a sentence for each configuration whose seeds go through stages: how many are left after each."""
        titles = dict(zip(self.configurations["configuration"], self.configurations["title"], strict=True))
        sentences = []
        for key, rows in group_by(self.searched, "configuration").items():
            if described := describe_stages(rows):
                sentences.append(f"{titles.get(key, key)}: {described}.")
        return sentences

    def clustered(self, name: str) -> str:
        """Say if a picture's pooled intervals, called `name`, are clustered by seed or lack seeds to cluster by."""
        seeds = len(self.own[SEED].drop_duplicates())
        return f"{name} clustered by seed" if seeds >= FEWEST_SEEDS else f"no interval: {TOO_FEW}"

    def cost(self) -> str:
        """Return the price of a grokked seed of the search: all training of seeds that ended is paid for by these."""
        return f"{Cost.of(self.searched)}."

    def best(self) -> list[Row]:
        """Return the first few configurations, and all that were confirmed."""
        confirmed = np.flatnonzero(self.configurations["confirmation_seeds"] > 0)
        first = range(min(BEST, len(self.configurations)))
        places = {*first, *confirmed.tolist()}
        return [self.row(i) for i in sorted(places)]

    def row(self, i: int) -> Row:
        """Return one configuration: its columns and its two rates."""
        row: Row = self.configurations.iloc[i].to_dict()
        search, confirmation = rates_of(row)
        return {**row, "search": search, "confirmation": confirmation}

    def listed(self) -> list[tuple[str, Cells]]:
        """Return the columns of the table of all configurations, each with its heading.

        Those that are zero or empty everywhere are left out.
        """
        frame = self.configurations
        rows = [self.row(i) for i in range(len(frame))]

        def plain(name: str, text: Callable[[Any], str] = shown) -> Cells:
            cells = []
            for value in frame[name]:
                # No format of a number suits NaN, which `shown` has a dash for.
                is_known = value == value
                cells.append((text(value) if is_known else shown(value), value))
            return cells

        def tried(name: str, tries: str) -> Cells:
            cells = []
            for row in rows:
                text = f"{row[name]:,} of {row[tries]:,}" if row[tries] else "–"
                cells.append((text, row[name]))
            return cells

        rates = _rate_columns("search", rows, "search" if self.confirmed else "grok rate")
        if self.confirmed:
            rates += _rate_columns("confirmation", rows, "confirmation")

        commands: Cells = []
        for row in rows:
            command = pull_command(self.name, row["configuration"]) if str(row["best_seed"]) else ""
            commands.append((command, command))

        columns = [
            ("parameters", plain("params")),
            *rates,
            ("command", commands),
            ("seeds", plain("seeds")),
            *((WORDS[outcome], plain(outcome)) for outcome in COUNTED),
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
            ("on the\nfront", self._on_front()),
        ]
        for field in self.fields:
            head = f"{field.name}\n({field.unit})" if field.unit else field.name
            columns.append((head, [*zip(field.labels(), field.values, strict=True)]))
        return [(head, cells) for head, cells in columns if any(text not in EMPTY for text, _ in cells)]

    def _on_front(self) -> Cells:
        """Return a mark for each configuration on the Pareto front; where all have one size, there is none."""
        frame = self.configurations
        has_front = frame["params"].nunique() > 1
        front = pareto(frame["params"].tolist(), frame["grok_rate"].tolist())
        cells: Cells = []
        for seeds, is_on_front in zip(frame["seeds"], front, strict=True):
            mark = "yes" if has_front and is_on_front and seeds else ""
            cells.append((mark, mark))
        return cells

    # ---- pictures

    def figures(self) -> dict[str, Figure]:
        """Return the pictures that apply, by name, in the page's order."""
        figures: dict[str, Figure] = {}
        # Sets that are not compared have pictures of their own.
        if self.study and not self.study.kind.is_compared:
            return figures

        has_counted = len(self.counted) > 0
        if self.table:
            figures["constraint-table"] = table_figure(self.table)
        if len(self.curves):
            figures["grokking-curves"] = self._curves_figure()

        probes = probes_of(self.curves)
        if probes and has_counted:
            figures["probes"] = probes_figure(self.curves, probes, self.counted)
        if len(self.own):
            figures["time-to-grok"] = time_figure(self._groups())

        if self.several and self.fields and has_counted:
            drawn = self.fields
            # Where there is no room for all, what matters most is drawn.
            if self.importances and len(drawn) > MOST_AXES:
                drawn = [field for field, _ in self.importances.shares]
            figures["rate-against-fields"] = rate_against_fields(drawn[:MOST_AXES], self.configurations, self.own)
        if self.configurations["params"].nunique() > 1 and has_counted:
            figures["pareto-front"] = front_figure(self.configurations)
        if self.importances:
            is_evidence = not self.few_grokked()
            figures["importance"] = importance_figure(self.importances, is_evidence)
        return figures

    def _curves_figure(self) -> Figure:
        """Draw the curves of the first few configurations that have some."""
        curves = self.curves.merge(self.own[["configuration", *SEED]])
        by_key = dict(list(curves.groupby("configuration")))
        grokked = self.own[self.own["outcome"] == Outcome.GROKKED]
        panels = []
        for title, key in self._titles().items():
            if key not in by_key:
                continue
            winners = grokked.loc[grokked["configuration"] == key, SEED]
            pairs = set(winners.itertuples(index=False, name=None))
            panels.append((title, by_key[key], pairs))

        if self.several:
            return small_multiples(panels)
        title, curves, pairs = panels[0]
        return curves_figure(curves, pairs, f"{title} grokked")

    def _groups(self) -> dict[str, pd.DataFrame]:
        """Return seeds by the titles of few configurations, or all together."""
        if len(self.configurations) > FEW:
            return {"all": self.own}
        by_key = dict(list(self.own.groupby("configuration")))
        return {title: by_key[key] for title, key in self._titles().items() if key in by_key}

    def _titles(self) -> dict[str, str]:
        """Return the keys of the first few configurations, by titles such as `57p: 3 of 64`."""
        titles = {}
        for row in self.configurations.head(FEW).to_dict("records"):
            title = f"{row['title']}: {row['grokked']:,} of {row['seeds']:,}"
            titles[title] = row["configuration"]
        return titles

    @cached_property
    def table(self) -> Table | None:
        """The table of constraints; None unless the study trained some with and without one."""
        try:
            return constraint_table(_plain(self.configurations), seeds=self.records)
        except UserError:
            # Not an error here: most studies toggle nothing.
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
        """Share of each searched field in what the fields explain; None for no search, or a small one."""
        if not self.is_search or len(self.configurations) < FEWEST_FOR_IMPORTANCE:
            return None
        fields = [field for field in self.fields if field.is_present.all()]
        objective = shrunk(self.configurations, self.own)
        return importances(fields, objective, self._redrawn()) if fields else None

    @property
    def partly_searched(self) -> list[Field]:
        """Fields that some configurations lack: of these there is no importance."""
        return [field for field in self.fields if not field.is_present.all()]

    @property
    def is_search(self) -> bool:
        """True if the study's file searches fields: what is in a list was chosen by its author."""
        return bool(self.study and self.study.kind.space)

    def few_grokked(self) -> str:
        """Return a sentence if too few runs of the search grokked to tell what mattered."""
        grokked = int((self.own["outcome"] == Outcome.GROKKED).sum())
        if grokked >= FEWEST_GROKKED:
            return ""
        return f"Only {grokked} grokked, and under {FEWEST_GROKKED} are too few to tell a share from chance: no colour."

    def _redrawn(self) -> list[np.ndarray]:
        """Return the objective with seeds drawn anew; none where there are too few of them.

        A bootstrap over seeds, not runs: configurations share their seeds, so a lucky one counts in all of them.
        """
        seeds = pd.MultiIndex.from_frame(self.own[SEED])
        names = seeds.unique()
        if len(names) < FEWEST_SEEDS:
            return []

        rng = np.random.default_rng(0)  # the same page every time
        equal_chances = np.full(len(names), 1 / len(names))
        places = names.get_indexer(seeds)

        redrawn = []
        for _ in range(REDRAWS):
            times_drawn = rng.multinomial(len(names), equal_chances)
            weights = pd.Series(times_drawn[places], index=self.own.index)
            redrawn.append(shrunk(self.configurations, self.own, weights))
        return redrawn

    def why_no_importance(self) -> str:
        """Return a sentence where one would look for importances and there are none."""
        if self.importances or not self.several or not self.is_search:
            return ""
        if len(self.configurations) < FEWEST_FOR_IMPORTANCE:
            return f"Parameter importance takes {FEWEST_FOR_IMPORTANCE} configurations or more."
        if len(self.partly_searched) == len(self.fields):
            return "No field is searched in all configurations: no parameter importance."
        return "All configurations did equally well: no parameter importance."


def shrunk(configurations: pd.DataFrame, seeds: pd.DataFrame, weights: pd.Series | None = None) -> np.ndarray:
    """Return (grokked + t) / (seeds + 2) of each configuration; t: its seeds' mean best token accuracy, below 1.

    This is a search's objective (search/run/allocation.py) without its least part, how early seeds grokked. Thanks to
    t it tells configurations apart that never grokked. weights: how often each seed counts; once if None.
    """
    weight = pd.Series(1, index=seeds.index) if weights is None else weights
    is_grokked = seeds["outcome"] == Outcome.GROKKED
    is_counted = seeds["outcome"].isin(COUNTED)
    # Below 1, so that t never outweighs a grokked seed.
    token = seeds["best_token"].fillna(0.0).clip(upper=0.999)

    columns = pd.DataFrame({
        "token": weight * token,
        "seeds": weight,
        "grokked": weight * is_grokked,
        "counted": weight * is_counted,
    })  # fmt: skip
    by_key = columns.groupby(seeds["configuration"]).sum()
    sums = by_key.reindex(configurations["configuration"], fill_value=0)
    t = (sums["token"] / sums["seeds"]).fillna(0.0)
    return ((sums["grokked"] + t) / (sums["counted"] + 2)).to_numpy(dtype=float)


def _rate_columns(name: str, rows: list[Row], head: str) -> list[tuple[str, Cells]]:
    """Return the columns of a rate, `search` or `confirmation`, and of its interval. head: heading of the first."""
    shares: Cells = []
    ends: Cells = []
    for row in rows:
        rate = row[name]
        low, _ = rate.interval
        if rate.rate is None:
            shares.append(("–", -1.0))
            ends.append(("–", low))
        else:
            shares.append((percent(rate.rate), rate.rate))
            ends.append((_ends(rate), low))
    return [(head, shares), ("95 %\ninterval", ends)]


def _plain(frame: pd.DataFrame) -> list[Row]:
    """Return rows with None where a frame has NaN."""
    plain = frame.astype(object)
    return plain.where(plain.notna(), None).to_dict("records")


def _rule_sentences(rule: type[Rule], counts: StoppingCounts) -> str:
    """Return what a stopping rule did in sentences; empty if it never called a seed."""
    if not counts.ended and not counts.spared:
        return ""
    did = "gave up" if rule.outcome == Outcome.GIVEN_UP else "ended"
    text = f"The {rule.title.lower()} {did} {counts.ended:,} of {counts.seeds:,} seeds."
    if counts.spared:
        share = f"{percent(counts.spared_share, 0)} of those that it was to end"
        grokked = f"{counts.spared_grokked:,} grokked" if counts.spared_grokked else "none grokked"
        text += f" As a check it let {counts.spared:,} more ({share}) run on: {grokked}."
    return text


def _span(numbers: pd.Series, style: str = ",") -> str:
    """Return the least and the greatest number, or the only one."""
    low = format(int(numbers.min()), style)
    high = format(int(numbers.max()), style)
    return low if low == high else f"{low} to {high}"
