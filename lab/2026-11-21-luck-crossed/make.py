"""Shares of the variance among seeds of crossed vectors, data streams and roundings.

    python lab/2026-11-21-luck-crossed/make.py lab/2026-11-21-luck-crossed/luck-64-early.csv [--step 6000]
    python lab/2026-11-21-luck-crossed/make.py lab/2026-11-21-luck-crossed/luck-64.csv    # to their end
    python lab/2026-11-21-luck-crossed/make.py --coverage    # how often intervals hold simulated shares

Each outcome is 0 or 1 for a vector v, a stream d and a rounding r; the model is x = mean + V_v + D_d + VD_vd
+ E_vdr with random effects, fitted by moments (analysis of variance). *vector* is the share of V, *data* that
of D and VD, *rounding* that of E. Intervals: 2.5 and 97.5 % of 2,000 resamples of the vectors. p: 10,000
permutations of the vectors within each stream, how often vectors differ as much. Of rows without a second
rounding *data* and *rounding* are one. Streams count that all
asked-for roundings have.

Axes: V vector, D stream, R rounding.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lab.tables import markdown

OUTCOMES = {"odd": 0.9, "left": 0.35, "basin": 0.5}
"""Above which reading a seed counts: an odd code, best token accuracy, in the winners' basin."""
NAMES = {"grokked": "grokked", "left": "left the plateau", "odd": "odd code", "basin": "in the basin"}
FOLDER, ROUNDINGS = Path(__file__).parent, ("as-built", "contracted")
RESAMPLES, PERMUTATIONS = 2_000, 10_000


def read(file: Path, step: int, roundings: Sequence[str]) -> dict[str, np.ndarray]:
    """Return outcomes [V, D, R] at a step, of the streams that all these roundings have."""
    with file.open() as opened:
        rows = [r for r in csv.DictReader(opened) if int(r["step"]) <= step]
    best: dict[tuple[str, str, str], float] = {}
    for r in rows:
        key = (r["init_seed"], r["data_seed"], r["rounding"])
        best[key] = max(best.get(key, 0.0), float(r["token"]))
    last = {(r["init_seed"], r["data_seed"], r["rounding"]): r for r in rows if int(r["step"]) == step}
    axes = [sorted({key[i] for key in last}) for i in range(3)]
    axes[2] = [r for r in axes[2] if r in roundings]
    axes[1] = [d for d in axes[1] if all((axes[0][0], d, r) in last for r in axes[2])]
    readings = {
        "odd": lambda key: float(last[key]["odd"]),
        "left": lambda key: best[key],
        "basin": lambda key: float(last[key]["basin"]),
    }
    return {
        name: np.array(
            [[[reading((v, d, r)) >= OUTCOMES[name] for r in axes[2]] for d in axes[1]] for v in axes[0]],
            dtype=float,
        )
        for name, reading in readings.items()
    }


def read_whole(file: Path, roundings: Sequence[str]) -> dict[str, np.ndarray]:
    """Return outcomes [V, D, R] of seeds that were trained to their end, by luck_whole.py: grokked, plateau left."""
    with file.open() as opened:
        rows = {
            (r["init_seed"], r["data_seed"], r["rounding"]): r
            for r in csv.DictReader(opened)
            if r["rounding"] in roundings
        }
    vectors, streams, kinds = (sorted({key[i] for key in rows}) for i in range(3))
    tests = {
        "grokked": lambda r: r["outcome"] == "grokked",
        "left": lambda r: float(r["best_token"]) >= OUTCOMES["left"],
    }
    return {
        name: np.array([[[test(rows[v, d, k]) for k in kinds] for d in streams] for v in vectors], dtype=float)
        for name, test in tests.items()
    }


def components(x_VDR: np.ndarray) -> dict[str, float]:
    """Return estimated variances; a negative one is 0."""
    vectors, streams, roundings = x_VDR.shape
    mean, cell_VD = x_VDR.mean(), x_VDR.mean(2)
    vector_V, stream_D = cell_VD.mean(1), cell_VD.mean(0)
    of_vector = streams * roundings * ((vector_V - mean) ** 2).sum() / (vectors - 1)
    of_stream = vectors * roundings * ((stream_D - mean) ** 2).sum() / (streams - 1)
    both = roundings * ((cell_VD - vector_V[:, None] - stream_D + mean) ** 2).sum() / ((vectors - 1) * (streams - 1))
    rest = ((x_VDR - cell_VD[..., None]) ** 2).sum() / (vectors * streams * (roundings - 1)) if roundings > 1 else 0.0
    variances = {
        "vector": (of_vector - both) / (streams * roundings),
        "data": max((of_stream - both) / (vectors * roundings), 0.0) + max((both - rest) / roundings, 0.0),
        "rounding": rest,
    }
    return {name: max(value, 0.0) for name, value in variances.items()}


def shares(x_VDR: np.ndarray) -> dict[str, float]:
    variances = components(x_VDR)
    return {name: value / (sum(variances.values()) or 1.0) for name, value in variances.items()}


def intervals(
    x_VDR: np.ndarray, generator: np.random.Generator, resamples: int = RESAMPLES
) -> dict[str, tuple[float, float]]:
    drawn = [shares(x_VDR[generator.integers(len(x_VDR), size=len(x_VDR))]) for _ in range(resamples)]
    return {n: tuple(np.quantile([d[n] for d in drawn], (0.025, 0.975))) for n in drawn[0]}


def p_of_vector(x_VDR: np.ndarray, generator: np.random.Generator) -> float:
    """Return how often vectors that are shuffled within each stream differ as much among themselves."""
    cell_VD = x_VDR.mean(2)
    observed, order = cell_VD.mean(1).var(), np.arange(len(cell_VD))
    shuffled = (
        np.stack([cell_VD[generator.permutation(order), d] for d in range(cell_VD.shape[1])], 1).mean(1).var()
        for _ in range(PERMUTATIONS)
    )
    return (1 + sum(v >= observed - 1e-12 for v in shuffled)) / (1 + PERMUTATIONS)


def coverage(crossings: int = 200) -> None:
    """Print how often the intervals of simulated crossings hold the true shares.

    A run groks with a chance whose log odds are a mean and normal effects of vector, stream and both.
    """
    generator = np.random.default_rng(1)

    def crossing(size: tuple[int, int, int], mean: float, *spreads: float) -> np.ndarray:
        vectors, streams, _ = size
        effects = ((vectors, 1), (1, streams), (vectors, streams))
        odds = mean + sum(s * generator.normal(size=e) for s, e in zip(spreads, effects, strict=True))
        return (generator.random(size) < 1 / (1 + np.exp(-odds))[..., None]).astype(float)

    for settings in ((-7, 6, 0.3, 1.5), (-5, 4, 0.3, 2), (-9, 8, 0.3, 0.5)):
        large = [shares(crossing((1500, 60, 2), *settings)) for _ in range(12)]
        truth = {name: float(np.mean([share[name] for share in large])) for name in large[0]}
        covered = dict.fromkeys(truth, 0)
        for _ in range(crossings):
            around = intervals(crossing((64, 4, 2), *settings), generator, 400)
            for name, (low, high) in around.items():
                covered[name] += low <= truth[name] <= high
        print(*(f"{n} {truth[n]:.2f}: covered in {covered[n] / crossings:.3f}" for n in truth), sep="; ")


def whole() -> str:
    """Return the shares of seeds that were trained to their end, as a Markdown table."""
    return _table(read_whole(FOLDER / "luck-64.csv", ROUNDINGS))


def early() -> str:
    """Return the shares at step 6,000."""
    return _table(read(FOLDER / "luck-64-early.csv", 6_000, ROUNDINGS))


def _table(outcomes: dict[str, np.ndarray]) -> str:
    lines = []
    for name, x_VDR in outcomes.items():
        generator = np.random.default_rng(1)
        around = intervals(x_VDR, generator)
        cells = (
            f"{100 * share:.0f} % ({100 * around[part][0]:.0f}–{100 * around[part][1]:.0f})"
            for part, share in shares(x_VDR).items()
        )
        lines.append((NAMES[name], f"{int(x_VDR.sum())} of {x_VDR.size}", *cells))
    return markdown(("outcome", "runs", "initial vector", "data", "rounding"), lines)


def draw(path: Path) -> None:
    """Write a picture: a bar an outcome, cut into the three shares."""
    from matplotlib.figure import Figure

    outcomes = read_whole(FOLDER / "luck-64.csv", ROUNDINGS)
    figure = Figure(figsize=(7.0, 1.9), layout="constrained", dpi=120)
    axes = figure.add_subplot()
    edges = np.zeros(len(outcomes))
    for part, colour in (("vector", "#1f5aa6"), ("data", "#2b8a57"), ("rounding", "#b9bec5")):
        widths = np.array([100 * shares(x)[part] for x in outcomes.values()])
        axes.barh([NAMES[name] for name in outcomes], widths, left=edges, color=colour, label=part, height=0.6)
        edges += widths
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the variance, %")
    axes.legend(ncols=3, frameon=False, loc="lower left", bbox_to_anchor=(0, 1))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--step", type=int, default=6_000)
    parser.add_argument("--rounding", nargs="+", default=["as-built", "contracted"])
    args = parser.parse_args()
    if args.coverage:
        coverage()
        return
    if args.picture:
        draw(args.picture)
    with args.file.open() as file:
        is_whole = "outcome" in file.readline()
    read_ = read_whole(args.file, args.rounding) if is_whole else read(args.file, args.step, args.rounding)
    for name, x_VDR in read_.items():
        generator = np.random.default_rng(1)
        shares_of, around = shares(x_VDR), intervals(x_VDR, generator)
        said = ", ".join(
            f"{n} {100 * s:.0f} % ({100 * around[n][0]:.0f} to {100 * around[n][1]:.0f})" for n, s in shares_of.items()
        )
        never, always = (int((x_VDR.mean((1, 2)) == end).sum()) for end in (0, 1))
        p = p_of_vector(x_VDR, generator)
        print(f"{name}: {int(x_VDR.sum())} of {x_VDR.size} {x_VDR.shape}; {said}; p {p:.4f}")
        print(f"  never {never}, always {always} of {len(x_VDR)} vectors")


if __name__ == "__main__":
    main()
