"""Tables and pictures of why wide nets win: `python lab/2026-11-29-why-wide/make.py` draws them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from lab.tables import BLUE, GREY, GROKKED, markdown, read, with_interval
from reports.plots import new_figure, quiet
from search.stats.counting import GrokRate

HERE = Path(__file__).parent
VECTORS, OPENED, EARLY_BY = 128, 8, 3_000
DRAWS = 2_000
ODD, SWITCHED = 0.9, 1 - 1e-9
"""As model/families/split_subspace/probes.py has them."""


@cache
def arms() -> dict[int, pd.DataFrame]:
    """Return the rows of each arm, by its hidden units."""
    rows = read("why-vectors.csv")
    return {int(units): its for units, its in rows.groupby("units")}


@cache
def won() -> np.ndarray:
    """Return whether a vector has grokked [vectors, arms]."""
    return np.stack([its.sort_values("init_seed")["outcome"].eq("grokked") for its in arms().values()], axis=1)


def pairs_of(units: np.ndarray) -> np.ndarray:
    return units * (units - 1) / 2


def share(p: float, slope: float, units: np.ndarray) -> np.ndarray:
    """Return what share of the nets with so many units grok, if tickets go by the pairs to the power of the slope."""
    return 1 - (1 - p) ** (pairs_of(units) ** slope)


def fitted(grokked: np.ndarray) -> tuple[float, float]:
    """Return p and the slope by maximum likelihood. grokked: vectors that grok, by arm."""
    units = np.array(list(arms()))

    def loss(x: np.ndarray) -> float:
        rate = np.clip(share(1 / (1 + np.exp(-x[0])), x[1], units), 1e-9, 1 - 1e-9)
        return -float((grokked * np.log(rate) + (VECTORS - grokked) * np.log(1 - rate)).sum())

    found = minimize(loss, x0=[-1.0, 0.7], method="Nelder-Mead").x
    return 1 / (1 + float(np.exp(-found[0]))), float(found[1])


@cache
def slope() -> tuple[float, float, float, float]:
    """Return p, the slope and its 95 % interval, by bootstrap of the vectors."""
    p, own = fitted(won().sum(0))
    draw = np.random.default_rng(0)
    drawn = [fitted(won()[draw.integers(VECTORS, size=VECTORS)].sum(0))[1] for _ in range(DRAWS)]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return p, own, float(low), float(high)


def tickets() -> str:
    """Return each arm's rate beside those of the fit and of independent pairs, and the slope."""
    p, own, low, high = slope()
    lines = []
    for (units, its), alone in zip(arms().items(), won().sum(0), strict=True):
        at = np.array([units])
        two = won().sum(0)[0] / VECTORS
        steps = its.query(GROKKED)["steps"].median()
        lines.append(
            (
                units, int(pairs_of(at)[0]), with_interval(GrokRate(int(alone), VECTORS)),
                f"{share(two, 1, at)[0]:.0%}", f"{share(p, own, at)[0]:.0%}", f"{steps:,.0f}",
                f"{int(its['switches'].ge(SWITCHED).sum())} of {VECTORS}",
            )
        )  # fmt: skip
    head = (
        "units",
        "pairs",
        "grokked",
        "as independent pairs",
        "fitted",
        "median steps of those",
        "units switch both ways",
    )
    return markdown(head, lines) + f"\n\nSlope b = {own:.2f} ({low:.2f} to {high:.2f}), p = {p:.0%}."


@cache
def inside() -> pd.DataFrame:
    """Return what the best pair of each seed that grokked could do alone, one row per evaluation."""
    rows = read("why-inside.csv")
    winners = arms()[OPENED].query(GROKKED)["init_seed"]
    return rows[rows["init_seed"].isin(winners)]


def shares_by_step() -> pd.DataFrame:
    """Return shares of the seeds that grok in the end, by step; a seed stays as it was at its last evaluation."""
    seen = inside().pivot(index="init_seed", columns="step").ffill(axis=1)
    last = inside().groupby("init_seed")["step"].max()
    steps = seen["token"].columns
    has_grokked = pd.DataFrame({step: last <= step for step in steps})
    return pd.DataFrame(
        {
            "its inner pair is the best of 28": seen["rank_of_inner"].eq(1).mean(),
            "a pair alone gets half of the digits": seen["token"].ge(0.5).mean(),
            "a pair alone gets half of the sums": seen["exact"].ge(0.5).mean(),
            "grokked, with all units": has_grokked.mean(),
        }
    )


def when() -> str:
    """Return the shares at some steps."""
    shares = shares_by_step()
    steps = [s for s in (1_000, 3_000, 5_000, 10_000, 15_000, 20_000, 25_000, 30_000) if s in shares.index]
    lines = [(name, *(f"{column[step]:.0%}" for step in steps)) for name, column in shares.items()]
    return markdown(("of the seeds that grok", *(f"{step // 1000},000" for step in steps)), lines)


def lacking() -> str:
    """Return what seeds that grok and seeds that do not have, and where the answers of the latter are wrong."""
    its = arms()[OPENED]
    lines = []
    for name, rows in (("grokked", its.query(GROKKED)), ("not", its.query(f"not ({GROKKED})"))):
        n = len(rows)
        lines.append(
            (
                name, n, f"{int(rows['odd_early'].gt(ODD).sum())} of {n}", f"{int(rows['odd'].gt(ODD).sum())} of {n}",
                f"{int(rows['switches'].ge(SWITCHED).sum())} of {n}",
            )
        )  # fmt: skip
    head = ("seeds of eight units", "n", f"code odd at step {EARLY_BY:,}", "at the end", "units switch both ways")
    return markdown(head, lines)


def losers() -> str:
    """Return each seed that does not grok: how near it came, and the digits that it has wrong."""
    lines = []
    for row in arms()[OPENED].query(f"not ({GROKKED})").itertuples():
        wrong = {n: float(part) for n, part in enumerate(str(row.wrong).split())}
        worst = sorted((n for n in wrong if wrong[n] >= 0.01), key=lambda n: -wrong[n])
        named = ", ".join(f"Z{n} {wrong[n]:.0%}" for n in worst[:4]) or "each less than 1 %"
        lines.append((row.init_seed, f"{row.best_exact:.4f}", f"{row.best_token:.4f}", named))
    return markdown(("seed", "exact match", "token accuracy", "wrong digits of the answer, units Z0"), lines)


def picture_of_tickets() -> None:
    figure = new_figure(6.4, 3.2)
    axes = figure.add_subplot()
    p, own, *_ = slope()
    units, fine = np.array(list(arms())), np.linspace(2, 16, 200)
    two = won().sum(0)[0] / VECTORS
    axes.plot(fine, share(two, 1, fine), color=GREY, label="independent pairs")
    axes.plot(fine, share(two, 0.5, fine), color=GREY, linestyle="--", label="about a ticket per unit")
    axes.plot(fine, share(p, own, fine), color=BLUE, label=f"fitted, b = {own:.2f}")
    rates = [GrokRate(int(k), VECTORS) for k in won().sum(0)]
    low, high = np.array([rate.interval for rate in rates]).T
    at = np.array([rate.grokked / rate.n for rate in rates])
    axes.errorbar(units, at, yerr=[at - low, high - at], fmt="o", color=BLUE, capsize=2)
    axes.set_xticks(units)
    axes.set_xlabel("hidden units of the wide stage")
    axes.set_ylabel("share of 128 vectors that grok")
    axes.set_ylim(0, 1.03)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    quiet(axes)
    figure.savefig(HERE / "tickets.svg", metadata={"Date": None})


def picture_of_when() -> None:
    figure = new_figure(6.4, 3.2)
    axes = figure.add_subplot()
    for (name, column), style in zip(shares_by_step().items(), ("-", "--", ":", "-"), strict=True):
        axes.plot(column.index / 1000, column, style, color=BLUE if "grokked" not in name else GREY, label=name)
    axes.set_xlabel("thousand steps")
    axes.set_ylabel("share of the seeds that grok")
    axes.set_ylim(0, 1.03)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    quiet(axes)
    figure.savefig(HERE / "when.svg", metadata={"Date": None})


def picture_of_losers() -> None:
    """Draw the share of problems in which each digit of the answer is wrong, one line per seed that does not grok."""
    figure = new_figure(6.4, 2.6)
    axes = figure.add_subplot()
    for row in arms()[OPENED].query(f"not ({GROKKED})").itertuples():
        wrong = [float(part) for part in str(row.wrong).split()]
        axes.plot(range(len(wrong)), wrong, "o-", color=GREY, markersize=3, linewidth=1)
    axes.set_xticks(range(11), [f"Z{n}" for n in range(11)])
    axes.set_xlabel("digit of the answer, units first")
    axes.set_ylabel("share wrong at the end")
    quiet(axes)
    figure.savefig(HERE / "losers.svg", metadata={"Date": None})


if __name__ == "__main__":
    picture_of_tickets()
    picture_of_when()
    picture_of_losers()
