"""`adder-search rerun`: a checkpoint's seed trained again, and whether the same θ came out, bit for bit.

Axes: S θ that is compared, P parameters.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from search.cli.options import json_option
from search.errors import Failure, UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from search.study.schema import Resources
    from search.study.trial import Trial
    from trainer import Bank
    from trainer.checkpoint import Checkpoint


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@json_option
@click.option(
    "--home",
    type=click.Path(file_okay=False),
    help="Whose compiled programs to use [ADDER_SEARCH_HOME, ./adder-runs].",
)
def rerun(checkpoint: Path, as_json: bool, home: str | None) -> None:
    """Train a CHECKPOINT's configuration and seed again. Exit code 0 only if θ is bitwise the same.

    The bank has the recorded slots and threads; other seeds in it make no difference.
    """
    from search.cli.foreign import load
    from search.store.home import Home

    loaded = load(checkpoint)
    try:
        asked = read_request(loaded)
    except ValueError as error:
        raise UserError(f"{checkpoint}: cannot be trained again: {error}") from None
    place = Home(home)
    if place.exists():
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(place.cache)
    found = _shown(loaded, asked)
    click.echo(json.dumps(asdict(found) | {"same": found.same}) if as_json else text(checkpoint, found))
    sys.exit(0 if found.same else Failure.code)


@dataclass(frozen=True)
class Request:
    """What is trained again: a trial of one pair, like the one that trained it, up to a step."""

    trial: Trial
    step: int


@dataclass(frozen=True)
class Rerun:
    """Two θ of one configuration and seed, and what their environments differ in.

    Pairs are (recorded, trained again). `exact` is exact match on the selection problems.
    """

    seed: str
    params: int
    numbers_different: int
    largest_difference: float
    largest_in: str | None
    """The slice of the layout that the largest absolute difference is in."""
    step: tuple[int, int]
    exact: tuple[float, float]
    environment: dict[str, Any]
    """This machine and bank, as trials record theirs."""
    differs: dict[str, tuple[Any, Any]]
    not_recorded: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether both θ have the same bits."""
        return self.numbers_different == 0


def read_request(loaded: Checkpoint) -> Request:
    """What to train, from a checkpoint's papers. Raises ValueError saying what is missing or wrong."""
    from search.study.schema import Stop
    from search.study.space import LARGEST_SEED
    from search.study.trial import Configuration, Trial
    from trainer import Recipe, Seed

    origin = loaded.provenance.get("trained")
    if origin != "from scratch":
        raise ValueError("its provenance does not say that it was trained from scratch")
    if not loaded.recipe:
        raise ValueError("it has no recipe")
    if not {"init_seed", "data_seed"} <= loaded.seed.keys():
        raise ValueError("it has no seed")
    try:
        recipe = Recipe(**loaded.recipe)
    except (TypeError, ValueError) as error:
        raise ValueError(f"recipe: {error}") from None
    if not 0 < loaded.step <= recipe.steps or loaded.step % recipe.eval_every:
        raise ValueError(f"step {loaded.step} is none at which its recipe evaluates")
    seed = Seed(loaded.seed["init_seed"], loaded.seed["data_seed"])
    if not all(0 <= n <= LARGEST_SEED for n in (seed.init_seed, seed.data_seed)):
        raise ValueError(f"seeds are 0 to {LARGEST_SEED}, got {seed}")
    work, like = ((Configuration(loaded.spec, recipe), seed),), _resources(loaded)
    return Request(Trial("rerun", work, like.room(on_gpu=False)[0], like, Stop()), loaded.step)


def _resources(loaded: Checkpoint) -> Resources:
    """Those of the trial that trained it. Raises ValueError if they are wrong or cannot be had here."""
    from search.study.schema import Resources
    from trainer.programs import missing_for_compilation

    recorded = _recorded(loaded)
    names = {"cpu": "threads", "slots": "slots", "compiled": "compiled"}
    try:
        like = Resources(**{mine: recorded[its] for mine, its in names.items() if its in recorded})
    except ValueError:
        raise ValueError("its environment's threads, slots or compiled are impossible") from None
    if like.compiled and (missing := missing_for_compilation()):
        raise ValueError(f"its program was compiled, and compiling needs {missing}")
    return like


def _recorded(loaded: Checkpoint) -> dict[str, Any]:
    """The environment that it was trained in, as far as its papers say."""
    environment = loaded.provenance.get("environment")
    return environment if isinstance(environment, dict) else {}


def train_again(
    loaded: Checkpoint, asked: Request, watch: Callable[[int], None] = lambda step: None
) -> Rerun:
    """Train to the step of the checkpoint's θ and compare. `watch` is told the step at each evaluation.

    θ of a checkpoint is the best of all its evaluations, so at its own step it is the best so far. No seed is
    given up: that rule ends a seed, and changes nothing in one that goes on.
    """
    import torch

    from trainer import Bank

    trial = asked.trial
    torch.set_num_threads(trial.resources.cpu)
    bank = Bank(
        loaded.spec,
        trial.pairs,
        slots=trial.slots,
        device=_device(_recorded(loaded)),
        compiled=trial.resources.compiled,
        hopeless=None,
    )
    watch(0)
    while bank.result(0).steps < asked.step and bank.advance():
        watch(bank.result(0).steps)
    return _compare(loaded, asked, bank)


def _device(recorded: dict[str, Any]) -> str:
    """A GPU if one is here, unless the θ was made on a CPU of this machine's kind."""
    import platform

    import torch

    on_cpu = recorded.get("device", platform.machine()) == platform.machine()
    return "cpu" if on_cpu or not torch.cuda.is_available() else "cuda"


def _compare(loaded: Checkpoint, asked: Request, bank: Bank) -> Rerun:
    import torch

    from search.run.worker import environment_of as environment
    from trainer import step

    result, spec, recorded = bank.result(0), loaded.spec, _recorded(loaded)
    theta_SP = torch.stack([loaded.theta_P, result.theta_P])
    bits_SP = theta_SP.view(torch.int32)
    apart_P = (theta_SP[0] - theta_SP[1]).abs()
    largest = {name: float(t.max()) for name, t in spec.layout.split(apart_P[None]).items()}
    exact_S = step.evaluate(spec, theta_SP, bank.programs.problems.cpu())["exact"]
    different = int((bits_SP[0] != bits_SP[1]).sum())
    here = environment(asked.trial, bank)
    return Rerun(
        seed=str(result.pair.seed),
        params=spec.params,
        numbers_different=different,
        largest_difference=float(apart_P.max()),
        largest_in=max(largest, key=largest.__getitem__) if different else None,
        step=(asked.step, result.best_step),
        exact=(float(exact_S[0]), float(exact_S[1])),
        environment=here,
        differs={k: (recorded[k], v) for k, v in here.items() if k in recorded and recorded[k] != v},
        not_recorded=tuple(k for k in here if k not in recorded),
    )


def _shown(loaded: Checkpoint, asked: Request) -> Rerun:
    """Train again with a bar on a terminal, and with nothing elsewhere."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    first = "compiling" if asked.trial.resources.compiled else "training"
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(first, total=asked.step)

        def watch(step: int) -> None:
            progress.update(task, completed=step, description="training")

        return train_again(loaded, asked, watch)


def text(checkpoint: Path, found: Rerun) -> str:
    """What `rerun` says."""
    head = f"{checkpoint}: seed {found.seed} trained again to step {found.step[0]:,}"
    if found.same:
        lines = [head, f"  θ is bitwise the same, all {found.params} numbers"]
    else:
        lines = [
            head,
            f"  θ is not the same: {found.numbers_different} of {found.params} numbers differ,"
            f" by {found.largest_difference:.3g} at most (in {found.largest_in})",
            "  exact match {:.4f}, trained again {:.4f}".format(*found.exact),
        ]
    if found.step[0] != found.step[1]:
        lines.append(f"  trained again, the best θ until there is that of step {found.step[1]:,}")
    lines += [f"  {name}: {was} then, {now} here" for name, (was, now) in found.differs.items()]
    if found.not_recorded:
        lines.append(f"  the checkpoint does not record: {', '.join(found.not_recorded)}")
    elif not (found.same or found.differs):
        lines.append("  what is recorded of the environment is the same here")
    return "\n".join(lines)
