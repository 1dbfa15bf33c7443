"""One uninterrupted run goes on: from the 15 into the form whose output's row is (1, -1), its 14, 13 and 6.

Plan, written before any of it was run. What one_run.py's arm `finished-long 15p-777` left at an exact match
of 0.99 or more, seeds 800129 to 800192, goes on as 46p with `opposite_out` (entries that both forms have):
the 14's ties for 3,000 steps without a ramp, as moved_form.py has it, then into the 13's and the 6's, 12,000
steps each, half of them ramp, and finish_above 0.5 in each. One data seed, the seed's own; nothing is chosen
in between. A seed counts where it gets all 5,000 selection problems right on a set; the 10,010 are read once,
at the end of a stage, for what counted. Of all 64 seeds. Refuted, for a set: none of 64.

Written after it: `plain`, the same without finish_above, from what `plain-long 15p-777` left of these seeds.
Is it finishing that does it? Same seeds, McNemar, 5 %, for each set.

    python lab/2026-11-23-one-run/one_run_on.py OUT.csv FOLDER [plain]   # where one_run.py left its checkpoints
"""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path

import torch
from one_run import BASE, LAB, LAST, into

from compress.ties import tie_ramp_defaults
from lab.scripts.moved_form import shared_entries
from lab.scripts.table_file import append
from model import verify
from model.tied import Tied, project
from trainer import Bank, Pair, Recipe, Result, Seed
from trainer.checkpoints.checkpoint import Checkpoint

FORM = replace(BASE, opposite_out=True)
FINISH = {"finish_above": 0.5}
STAGES = {
    "14p": Recipe(**tie_ramp_defaults(3_000) | {"ramp": 0} | FINISH),
    "13p": replace(into(LAST.recipe), **FINISH),
    "6p": replace(into(LAST.recipe), **FINISH),
}
ENOUGH = 0.99


def row(
    name: str, seed: int, its: Result | None, spec: Tied, parents: dict[int, Checkpoint], out: Path
) -> dict[str, object]:
    """What became of a seed in a stage; what is at least nearly right is kept as a checkpoint."""
    exact, right = its.best_exact if its else 0.0, ""
    if its and exact >= ENOUGH:
        theta_R = project(spec.ties, its.theta_P[None])[0]
        right = str(verify(spec, theta_R).correct) if exact == 1.0 else ""
        how = {"stages": stages_before(name, parents[seed]), "script": "lab/2026-11-23-one-run/one_run_on.py"}
        Checkpoint(
            spec=spec, theta_P=theta_R, recipe=STAGES[name].as_dict(), seed=asdict(Seed.of(seed)),
            step=its.best_step, metrics={"best_exact": exact}, provenance=parents[seed].provenance | how,
        ).save(out.with_name(f"{name}-{seed}"))  # fmt: skip
    outcome = "grokked" if exact == 1.0 else "failed"
    return {
        "arm": "", "numbers": name.removesuffix("p"), "init_seed": seed, "data_seed": seed,
        "configuration": "", "outcome": outcome, "best_exact": exact,
        "correct": right,
    }  # fmt: skip


def stages_before(name: str, parent: Checkpoint) -> list[dict[str, object]]:
    """Return the stages of a run before a set: the parent's, its own, and this file's."""
    entries = list(shared_entries(BASE, FORM))
    stages = [*parent.provenance["stages"]]
    stages.append({"spec": parent.spec.as_dict(), "recipe": parent.recipe, "entries": entries})
    for stage in [*STAGES][: [*STAGES].index(name)]:
        spec = Checkpoint.load(LAB / "certificates" / stage).spec
        stages.append({"spec": spec.as_dict(), "recipe": STAGES[stage].as_dict()})
    return stages


def main(out: str, folder: str, how: str = "finished") -> None:
    torch.set_num_threads(1)
    if how == "plain":
        STAGES.update({n: replace(r, finish_above=1.0) for n, r in STAGES.items()})
    parents = {int(f.name.split("-")[1]): Checkpoint.load(f) for f in sorted(Path(folder).glob("15p-*-36"))}
    mine = list(shared_entries(BASE, FORM))
    theta = {s: c.spec.untie(c.theta_P[None])[0][mine] for s, c in parents.items() if isinstance(c.spec, Tied)}
    for name, recipe in STAGES.items():
        spec = Checkpoint.load(LAB / "certificates" / name).spec
        assert isinstance(spec, Tied) and spec.base == FORM
        pairs = [Pair(recipe, Seed.of(s), tuple(t.tolist()), spec.ties) for s, t in theta.items()]
        if not pairs:
            break
        bank = Bank(FORM, pairs, slots=min(32, len(pairs)))
        while bank.advance():
            pass
        found = {s: bank.result(n) for n, s in enumerate(theta)}
        rows = [
            row(name, seed, found.get(seed), spec, parents, Path(out))
            | {"arm": f"{how}-long", "configuration": f"{how}-long 15p-777+{name}"}
            for seed in LAST.seeds
        ]
        append(Path(out), rows)
        print(name, sum(r["outcome"] == "grokked" for r in rows), "of 64", flush=True)
        theta = {s: its.theta_P for s, its in found.items()}


if __name__ == "__main__":
    main(*sys.argv[1:])
