"""The report: one page about one study, and its pictures. Pure functions of the records' frames."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from search.analysis.fields import Field, columns, meaning, shown, varied
from search.analysis.pareto import rates_of
from search.analysis.plots import SEED, curves_figure, front_figure, png, small_multiples, time_figure
from search.analysis.plots_search import (
    MOST_AXES,
    SHUFFLES,
    Importances,
    importance_figure,
    importances,
    parallel_figure,
    probes_figure,
    probes_of,
    rate_against_fields,
)
from search.stats.counting import (
    COUNTED,
    RULE_COLUMNS,
    Cost,
    GrokRate,
    StoppingCounts,
    describe_screen,
    pareto,
    unended_warning,
)
from search.stats.intervals import Interval
from search.store.home import pull_command
from search.study.file import stopping_rule
from search.study.schema import Study
from trainer import FALSE_KILLS_UPPER, Outcome

FEW = 6  # configurations that are shown one by one
BEST = 5  # configurations in the first table, beside those that were confirmed
FEWEST_FOR_IMPORTANCE = 8  # configurations
MEANS = {
    Outcome.GROKKED: "every answer digit of all 5,000 selection problems right at some evaluation",
    Outcome.FAILED: "spent the budget without",
    Outcome.DIVERGED: "became non-finite; counted as not grokked",
    Outcome.GIVEN_UP: "stopped by the hopeless rule; counted as not grokked",
    Outcome.SCREENED: "stopped by the study's screen; counted as not grokked",
    Outcome.CENSORED: "ended from outside; the only seeds that are not counted",
}


def report(
    study: Study | None,
    configurations: pd.DataFrame,
    seeds: pd.DataFrame,
    curves: pd.DataFrame,
    descents: Mapping[str, Figure] | None = None,
    lineage: str = "",
) -> str:
    """The page: HTML without a link to anything. study: None where its file was not recorded; frames: as
    `search.analysis.frames.records` has them, at least one configuration. descents: the pictures of a study
    that looks for constraints, lineage: its tree (search/compress/pictures.py, search/analysis/lineage.py).
    """
    found = _Study(study, configurations, seeds, curves)
    images = {
        name: {"data": b64encode(png(figure)).decode(), "width": round(96 * figure.get_figwidth())}
        for name, figure in {**found.figures(), **(descents or {})}.items()
    }
    folder = Path(__file__).with_name("templates")
    environment = Environment(
        loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"percent": percent, "shown": shown}
    return environment.get_template("report.html.j2").render(
        found=found, images=images, lineage=lineage, few=FEW, shuffles=SHUFFLES, most_axes=MOST_AXES
    )


def pictures(
    study: Study | None,
    configurations: pd.DataFrame,
    seeds: pd.DataFrame,
    curves: pd.DataFrame,
    folder: Path,
) -> list[Path]:
    """Write the page's pictures into an existing folder as PNG files."""
    paths = []
    for name, figure in _Study(study, configurations, seeds, curves).figures().items():
        paths.append(folder / f"{name}.png")
        paths[-1].write_bytes(png(figure))
    return paths


def percent(rate: float) -> str:
    return f"{rate:.1%}"


@dataclass(frozen=True)
class Rate:
    """A rate as the page shows it, with the ends of its interval."""

    counts: GrokRate
    ends: Interval

    @property
    def of(self) -> str:
        return f"{self.counts.grokked:,} of {self.counts.n:,}"

    def __str__(self) -> str:
        return f"{self.of} seeds ({percent(self.counts.rate)}, 95 % interval {self.interval})"

    @property
    def interval(self) -> str:
        return "{} to {}".format(*map(percent, self.ends))


class _Study:
    """What the template reads. Configurations are in order of their shrunk grok rates, the best first."""

    def __init__(
        self, study: Study | None, configurations: pd.DataFrame, seeds: pd.DataFrame, curves: pd.DataFrame
    ):
        judged = configurations[configurations["seeds"] > 0]
        self.unjudged = len(configurations) - len(judged) if len(judged) else 0
        configurations = judged if len(judged) else configurations
        objective = shrunk(configurations, seeds)
        order = np.argsort(-objective, kind="stable")
        self.study, self.seeds, self.curves = study, seeds, curves
        self.objective = objective[order]
        self.configurations = configurations.iloc[order].reset_index(drop=True)
        self.name = study.name if study else str(configurations["study"].iloc[0])
        self.about = study.about if study else ""
        self.fields = [] if study and study.compress else varied(study, self.configurations)
        self.several = len(configurations) > 1
        self.counts = seeds["outcome"].value_counts()
        wrongly = configurations["wrongly"] - configurations["screened_wrongly"]
        self.given_up_wrongly = float(wrongly.sum())
        self.confirmed = bool((configurations["confirmation_seeds"] > 0).any())
        self.counted = seeds[seeds["outcome"].isin([o.value for o in COUNTED])]

    # ---- what was asked

    def asked(self) -> list[tuple[str, str]]:
        """Names and words of what the study is, the shortest way of saying it."""
        frame = self.configurations
        families = sorted(set(frame["model.family"]))
        low, high = frame["params"].min(), frame["params"].max()
        size = f"{low} parameters" if low == high else f"{low} to {high} parameters"
        names = sorted(set(frame["rung"]), key=frame.set_index("rung")["params"].groupby(level=0).min().get)
        text = ", ".join(names) if len(names) <= FEW else f"{len(names)} specs"
        facts = [("Model", f"{text}: {', '.join(families)}, {size}")]
        facts.append(("Budget", f"{_span(self.seeds['budget'])} steps a seed"))
        facts.append(("Configurations", self._configurations()))
        facts.append(("Seeds", self._seeds()))
        if self.study:
            rule = "on: seeds that it calls hopeless are given up, a random tenth of them spared"
            facts.append(("Hopeless rule", rule if self.study.stop.hopeless else "off: all seeds run on"))
            if looks := self.study.stop.rungs:
                facts.append(("Screen", describe_screen(looks, self.configurations["configuration"])))
            if self.study.until.grokked:
                until = f"once {self.study.until.grokked} grokked: so the rate is biased upwards"
                if stopping_rule(self.study):
                    until += (
                        ", and its interval the exact one for that, of the negative binomial distribution"
                    )
                facts.append(("Stops", until))
            if self.study.allocation:
                open_ = f"more of them while the interval has {self.study.allocation.threshold:.0%} in it"
                facts.append(("Allocation of seeds", f"{open_}, or a place on the front is possible"))
        return facts

    def _configurations(self) -> str:
        count = f"{len(self.configurations):,}"
        if self.unjudged:
            count += f" ({self.unjudged:,} more without a counted seed so far)"
        if not (self.study and self.study.space):
            return count
        return f"{count}, proposed by {self.study.sampler.name} (sampler seed {self.study.sampler.seed})"

    def _seeds(self) -> str:
        each = self.configurations["seeds"] + self.configurations["censored"]
        words = f"{len(self.seeds):,}"
        if self.several:
            words += f", {_span(each)} a configuration"
        if self.confirmed:
            confirming = self.seeds[self.seeds["confirmation"]]
            words += f"; {len(confirming):,} of them, numbers {_span(confirming['init_seed'], '')}, confirm"
        return words

    def file(self) -> str:
        """The study file, as far as it says something."""
        if not self.study:
            return ""
        plain = self.study.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100)

    def fixed(self) -> list[tuple[str, str, str, str]]:
        """Path, value, unit and sentence of every field that is the same everywhere and not nothing."""
        frame, searched = self.configurations, {f.path for f in self.fields}
        same = {c: shown(frame[c].iloc[0]) for c in columns(frame) if len(set(map(shown, frame[c]))) == 1}
        return [(c, value, *meaning(c)) for c, value in same.items() if c not in searched and value != "–"]

    # ---- what was found

    def outcomes(self) -> list[tuple[str, int, str]]:
        return [(o.value.replace("_", " "), int(self.counts.get(o, 0)), means) for o, means in MEANS.items()]

    def headline(self) -> str:
        """The answer in one or two sentences."""
        if self.counted.empty:
            return f"Nothing yet: all {len(self.seeds):,} seeds were ended from outside."
        best = self.row(0)
        rate: Rate = best["rate"]
        grokked = int(self.counts.get(Outcome.GROKKED, 0))
        if not self.several:
            return f"{rate} grokked."
        pairs = f"{len(self.counted):,} counted seeds of {len(self.configurations):,} configurations"
        if not grokked:
            return f"None of {pairs} grokked."
        some = int((self.configurations["grokked"] > 0).sum())
        words = f"{grokked:,} of {pairs} grokked, in {some:,} configurations. "
        if not self.confirmed:
            return words + f"The best is {best['title']} with {rate}."
        fresh = [row for row in self.best() if row["confirmation"].counts.n]
        best = max(fresh, key=lambda row: row["confirmation"].counts.rate)
        return words + f"On fresh seeds the best is {best['title']} with {best['confirmation']}."

    def unended(self) -> str:
        """What seeds that have not ended do to the rates."""
        said = unended_warning(self.seeds.to_dict("records"))
        return f"{said}." if said else ""

    def trust(self) -> str:
        """What selection does to the rates; empty where nothing was selected."""
        if not self.several:
            return ""
        if self.confirmed:
            return (
                "Trust the confirmation column: its seeds had no part in choosing. The search's rates are "
                "what the configurations were chosen for, so they are too high on average (the winner's "
                "curse), and so are those of all seeds, which have both."
            )
        return (
            f"The best of {len(self.configurations):,} were picked by these same rates, so their true rates "
            "are probably lower (the winner's curse). Fresh seeds would tell: a confirmation pass."
        )

    def stopping(self) -> str:
        """Describe what the rules that stop seeds did; empty if they never fired."""
        columns_ = self.seeds[["outcome", *RULE_COLUMNS.values()]].astype(object)
        rows = columns_.where(columns_.notna(), None).to_dict("records")
        text = ""
        if given_up := _rule_sentences("The hopeless rule gave up", StoppingCounts.of(rows)):
            text = (
                f"{given_up}Intervals reach up to what they would be had {self.given_up_wrongly:,.1f} of the "
                f"given-up seeds grokked: at most {FALSE_KILLS_UPPER:.1%} where the rule was measured, elsewhere "
                "what the spared ones of each configuration allow. "
            )
        if screened := _rule_sentences("The screen ended", StoppingCounts.of(rows, Outcome.SCREENED)):
            missed = self.configurations["screened_wrongly"].sum()
            text += (
                f"{screened}Had those run on, at most {missed:.1f} would have grokked, by the spared ones and "
                "what was measured of the rung before (one-sided 95 %); intervals reach up to that."
            )
        return text.strip()

    def cost(self) -> str:
        """What grokked seeds cost, all counted ones paid for."""
        return f"{Cost.of(self.counted.astype(object).where(self.counted.notna(), None).to_dict('records'))}."

    def best(self) -> list[dict[str, Any]]:
        """The configurations of the first table: the first few, and all that were confirmed."""
        confirmed = np.flatnonzero(self.configurations["confirmation_seeds"] > 0)
        first = np.arange(min(BEST, len(self.configurations)))
        return [self.row(i) for i in sorted({*first.tolist(), *confirmed.tolist()})]

    def rows(self) -> list[dict[str, Any]]:
        return [self.row(i) for i in range(len(self.configurations))]

    def row(self, i: int) -> dict[str, Any]:
        """One configuration for the tables: its columns, its three rates and its command."""
        row: dict[str, Any] = self.configurations.iloc[i].to_dict()
        whole, confirmation, search = rates_of(row)
        ends = (row["grok_rate_low"], row["grok_rate_high"])
        rates = {
            "rate": Rate(whole, ends),
            "search": Rate(search, search.interval),
            "confirmation": Rate(confirmation, confirmation.interval),
        }
        searched = [(f.values[i], label) for f, label in zip(self.fields, self._labels[i], strict=True)]
        pull = pull_command(self.name, row["configuration"]) if len(str(row["best_seed"])) else ""
        extra = {"searched": searched, "front": self._front[i], "shrunk": self.objective[i]}
        return {**row, **rates, **extra, "pull": pull}

    @cached_property
    def _labels(self) -> list[tuple[str, ...]]:
        """The varied fields' values as text, a tuple a configuration."""
        columns_ = [f.labels() for f in self.fields]
        return list(zip(*columns_, strict=True)) if columns_ else [()] * len(self.configurations)

    @cached_property
    def _front(self) -> list[bool]:
        judged = self.configurations[self.configurations["seeds"] > 0]
        on_front = judged[
            np.array(pareto(judged["params"].tolist(), judged["grok_rate"].tolist()), dtype=bool)
        ].index
        return self.configurations.index.isin(on_front).tolist()

    # ---- pictures

    def figures(self) -> dict[str, Figure]:
        """The pictures that apply, by name, in the page's order."""
        figures: dict[str, Figure] = {}
        if self.study and self.study.compress:  # its sets have pictures of their own
            return figures
        if len(self.curves):
            figures["grokking-curves"] = self._curves_figure()
        if (probed := probes_of(self.curves)) and len(self.counted):
            figures["probes"] = probes_figure(self.curves, probed, self.counted)
        if len(self.seeds):
            figures["time-to-grok"] = time_figure(self._groups())
        if self.several and self.fields and len(self.counted):
            figures["rate-against-fields"] = rate_against_fields(self._panelled(), self.configurations)
        if self.configurations["params"].nunique() > 1 and len(self.counted):
            figures["pareto-front"] = front_figure(self.configurations)
        if self.importances:
            figures["importance"] = importance_figure(self.importances)
        if len(self.configurations) > FEW and len(self.fields) > 1:
            figures["parallel-coordinates"] = parallel_figure(self._axes(), self.configurations)
        return figures

    def _curves_figure(self) -> Figure:
        shown_ = self.configurations.head(FEW)
        panels = [self._panel(row) for row in shown_.to_dict("records")]
        panels = [panel for panel in panels if len(panel[1])]
        if not self.several:
            title, curves, grokked = panels[0]
            return curves_figure(curves, grokked, f"{title} grokked")
        return small_multiples(panels)

    def _panel(self, row: dict[str, Any]) -> tuple[str, pd.DataFrame, set[tuple[int, int]]]:
        key = row["configuration"]
        grokked = self.seeds[
            (self.seeds["configuration"] == key) & (self.seeds["outcome"] == Outcome.GROKKED)
        ]
        title = f"{row['title']}: {row['grokked']:,} of {row['seeds']:,}"
        pairs = {(int(a), int(b)) for a, b in grokked[SEED].to_numpy()}
        return title, self.curves[self.curves["configuration"] == key], pairs

    def _groups(self) -> dict[str, pd.DataFrame]:
        if len(self.configurations) > FEW:
            return {"all": self.seeds}
        by_key = dict(list(self.seeds.groupby("configuration")))
        return {
            f"{row['title']}: {row['grokked']:,} of {row['seeds']:,}": by_key[row["configuration"]]
            for row in self.configurations.to_dict("records")
            if row["configuration"] in by_key
        }

    @cached_property
    def importances(self) -> Importances | None:
        if not (self.study and self.study.space) or len(self.configurations) < FEWEST_FOR_IMPORTANCE:
            return None
        return importances(self.fields, self.objective)

    def why_no_importance(self) -> str:
        """A sentence where one would look for importances and there are none."""
        if self.importances or not self.several:
            return ""
        if not (self.study and self.study.space):
            return "The configurations were listed and not drawn from a space: no parameter importance."
        if len(self.configurations) < FEWEST_FOR_IMPORTANCE:
            return f"Parameter importance takes {FEWEST_FOR_IMPORTANCE} configurations or more."
        return "All configurations did equally well: no parameter importance."

    def _panelled(self) -> list[Field]:
        """The fields that have a panel; of many, those that tell most."""
        return self.fields if len(self.fields) <= MOST_AXES else self._axes()[:MOST_AXES]

    def _axes(self) -> list[Field]:
        """The fields, the most important first, or else those that all configurations have."""
        if self.importances:
            return [f for f, _ in self.importances.shares]
        return sorted(self.fields, key=lambda f: -int(f.holds.sum()))


def _rule_sentences(subject: str, counts: StoppingCounts) -> str:
    """Return what a stopping rule did in sentences that begin with `subject`; empty if it never fired."""
    if not counts.ended and not counts.spared:
        return ""
    text = f"{subject} {counts.ended:,} of {counts.seeds:,} seeds. "
    if counts.spared:
        grokked = f"{counts.spared_grokked:,} of them grokked" if counts.spared_grokked else "none grokked"
        text += f"{counts.spared:,} more that it called were spared and ran on: {grokked}. "
    return text


def shrunk(configurations: pd.DataFrame, seeds: pd.DataFrame) -> np.ndarray:
    """(grokked + t) / (seeds + 2) of each configuration; t: its seeds' mean best token accuracy, below 1.

    A search's objective (search/run/allocation.py) without its least part, how early they grokked: it tells
    apart configurations that never grokked.
    """
    tokens = seeds["best_token"].fillna(0.0).clip(upper=0.999).groupby(seeds["configuration"]).mean()
    t = configurations["configuration"].map(tokens).fillna(0.0)
    return ((configurations["grokked"] + t) / (configurations["seeds"] + 2)).to_numpy(dtype=float)


def _span(numbers: pd.Series, style: str = ",") -> str:
    low, high = (format(int(end), style) for end in (numbers.min(), numbers.max()))
    return low if low == high else f"{low} to {high}"
