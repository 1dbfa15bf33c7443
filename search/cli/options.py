"""Shared options of commands, printing of results, and writing of files."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from search.errors import Failure, UserError, printable, reraise_as

if TYPE_CHECKING:
    from model import Spec, Verification
    from search.store.home import Home
    from trainer.checkpoints.checkpoint import Checkpoint

SAID_EVERY_S = 60
"""Seconds between two lines on progress where there is no terminal."""


class ExpandedPath(click.Path):
    """A path whose leading tilde is the user's home folder, also where a shell has left it alone."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from trainer.files.paths import expanded

        try:
            name = expanded(os.fspath(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return super().convert(name, param, ctx)


class FiniteRange(click.FloatRange):
    """A finite number in a range: click's comparisons let nan pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no number", param, ctx)
        return number


PATH = ExpandedPath(path_type=Path)
STUDY = ExpandedPath(path_type=str, readable=False)
"""A study's name, or the path of a file: a name has no tilde in it."""
HOURS = FiniteRange(min=0, min_open=True)


def _open_home(_: click.Context, __: click.Parameter, folder: str | None) -> Home:
    from search.store.home import Home

    return Home(folder)


home_option = click.option(
    "--home",
    type=ExpandedPath(file_okay=False),
    callback=_open_home,
    help="Where everything is kept [ADDER_SEARCH_HOME, ./adder-runs].",
)
"""Gives the command a Home."""


def _trust(context: click.Context, option: click.Parameter, given: bool) -> None:
    if given:
        from trainer.files.trusted import trust_all

        trust_all()


trust_option = click.option(
    "--trust", is_flag=True, expose_value=False, is_eager=True, callback=_trust,
    help="Run the code that it brings (SECURITY.md), now and later.",
)  # fmt: skip
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
checkpoint_argument = click.argument("checkpoint", type=PATH)


def target_option(help: str, **options: Any) -> Callable[..., Any]:
    """Return the option -o, a path to write."""
    return click.option("-o", "target", type=PATH, help=help, **options)


def number_option(name: str, default: int, low: int, high: int | None, text: str) -> Callable[..., Any]:
    """Return an option that takes a whole number and shows its default."""
    return click.option(name, type=click.IntRange(low, high), default=default, show_default=True, help=text)


def show(as_json: bool, values: object, text: str | Sequence[str]) -> None:
    """Print plain values as JSON, or a text (or its lines)."""
    if as_json:
        text = json.dumps(values)
    click.echo(text if isinstance(text, str) else "\n".join(text))


@contextmanager
def progress_bar(first: str, quiet: bool = False) -> Iterator[Callable[..., None]]:
    """Show progress: on a terminal a bar with the time since the beginning, elsewhere one line per minute.

    first: the first text. Yields a function of the next text and, where they are known, the amounts done and in all.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from search.run.terminal import is_live

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    hidden = quiet or not is_live(console)
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        progress.add_task(first, total=None)
        (task,) = progress.tasks

        def say(text: str, done: float = 0, total: float | None = None) -> None:
            if text != task.description:
                progress.reset(task.id, description=text)  # with a time of its own
                task.total = total
            progress.update(task.id, completed=done, total=total)

        def repeat() -> None:
            while not ended.wait(SAID_EVERY_S):
                click.echo(f"{task.description}, {task.elapsed:.0f} s", err=True)

        ended = threading.Event()
        if hidden and not quiet:
            threading.Thread(target=repeat, daemon=True).start()
        try:
            yield say
        finally:
            ended.set()


def exit_unless(passed: bool) -> NoReturn:
    """End the command with code 0 if it passed, else with that of a failure."""
    sys.exit(0 if passed else Failure.code)


def counted_lines(spec: Spec, provenance: Mapping[str, Any]) -> list[str]:
    """Return why another project's checkpoint may have more numbers than that project says: none of ours."""
    from search.study.start import read_texts

    sizes = spec.layout.budget()
    names = dict.fromkeys(read_texts(provenance.get("frozen_on_the_way")))
    count = sum(sizes.get(name, 1) for name in names)  # a tensor of its own, or a number of one
    if not names or count >= spec.params:  # a stranger's list
        return []
    learned = f"{count:,} more, learned and then frozen, count here: {printable(', '.join(names))}"
    return [f"  its author may count {spec.params - count:,}: {learned}"]


def load_checkpoint(path: Path, any_task: bool = False) -> Checkpoint:
    """Load a checkpoint, ours or another program's. Raise UserError with the reason.

    any_task: the command knows what a task is; every other command is about ten-digit addition, and refuses the rest.
    """
    from model.tasks import only_addition
    from search.study.checkpoints import load_any

    if not path.exists():
        raise UserError(f"{path}: no such checkpoint; adder-search pull STUDY writes one of a study")
    with reraise_as():
        loaded = load_any(path)
        if not any_task:
            only_addition(loaded.spec.task, click.get_current_context().info_name or "this")
        return loaded


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn an OSError of the block into a UserError that names `target`."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{target}: cannot write there ({error.strerror or error})") from None


def write_file(target: Path, write: Callable[[Path], Any], flag: str = "-o") -> Any:
    """Write a file whole or not at all: in a new folder beside it, then in place of an earlier file.

    flag: the option that named it, for an error's advice. Return what `write` returns. Raises UserError as
    `check_file` does.
    """
    from trainer.files import durable

    place = check_file(target, flag)
    # In a folder of its own: any name beside the target may be another file's.
    with writing(target), tempfile.TemporaryDirectory(dir=place.parent, prefix=".writing-") as scratch:
        fresh = Path(scratch, "new").with_suffix(target.suffix)
        written = write(fresh)
        durable.move_in(fresh, place)
    return written


def write_text(target: Path, text: str, flag: str = "-o") -> None:
    write_file(target, lambda path: path.write_text(text, encoding="utf-8"), flag)


def check_file(target: Path, flag: str = "-o") -> Path:
    """Return where a file at `target` is written: a link stays a link.

    Raises UserError if no file can be there, if a folder, a device or a pipe is, or if it is a checkpoint's own.
    """
    from model.files import is_of_checkpoint

    place = target.resolve()
    what = ""
    if target.is_dir():
        what = "a folder"
    elif target.exists() and not target.is_file():
        what = "no regular file"
    elif is_of_checkpoint(place):
        what = "a file of a checkpoint"
    if what:
        raise UserError(f"{target}: is {what}; give another name with {flag}")
    with writing(target):
        (target.parent / "..").stat()  # raises unless the parent is a folder
    return place


def name_of(spec: Spec) -> str:
    """Return a spec's name and, once, its number of parameters."""
    from model import preset_name

    name = preset_name(spec)
    if name.endswith(f"tied to {spec.params:,}"):
        return f"{name} parameters"
    count = f"{spec.params:,} parameters"
    return name if name.startswith(count) else f"{name}, {count}"


def right_on(digits: int, level: str, pairs: str = "") -> str:
    """Return a proof's statement in words. pairs: how many pairs it is about, unless it is all of them."""
    machines = {"any": "every machine that keeps docs/proof.md's rules", "here": "this machine, this torch"}
    return f"right on all {pairs or f'10^{2 * digits}'} pairs, at level {level} ({machines[level]})"


def said_of(proof: dict[str, Any]) -> str:
    """Return a recorded verdict on all pairs in words."""
    from model.verdict import is_right

    if word := proof.get("claimed"):
        said = said_of({**proof, "verdict": word, "claimed": None})
        return f"claimed, not checked here: {said} (adder-search prove decides it)"

    right = is_right(proof)
    if right is None:
        return "undecided on all pairs"
    if right:
        return f"proved {right_on(proof['digits'], proof['level'])}"
    wrong = proof["wrong"][0]
    return f"wrong on {wrong['a']} + {wrong['b']}, decoded {wrong['answer']}"


def grade(result: Verification) -> str:
    """Return the right additions of AdderBoard's 10,010 and the grade in words."""
    graded = "QUALIFIED" if result.qualified else "NOT QUALIFIED"
    if result.verified:
        graded = "VERIFIED"
    return f"{result.correct:,}/{result.total:,} {graded}"


def refuse_full(target: Path) -> None:
    """Raise UserError if something is there, other than an empty folder."""
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UserError(f"{target}: exists and is not empty; choose another folder with -o")


def refuse_other(target: Path, checkpoint: Checkpoint) -> None:
    """Raise UserError if a folder holds other files than a checkpoint's and its verdict, another θ, or a proof."""
    from model.files import FOLDER_FILES, THETA_FILE
    from model.verdict import refuse_proof

    if target.exists() and not (target.is_dir() and {file.name for file in target.iterdir()} <= FOLDER_FILES):
        raise UserError(f"{target}: exists and is no checkpoint alone; choose another folder with -o")
    theta = target / THETA_FILE
    if theta.exists() and theta.read_bytes() != checkpoint.theta_bytes:
        raise UserError(f"{target}: has another checkpoint; choose another folder with -o")
    with reraise_as():
        refuse_proof(target)


def save_checkpoint(checkpoint: Checkpoint, target: Path, proof: dict[str, Any] | None = None) -> None:
    """Write a checkpoint and its verdict: a new folder whole or not at all. Raises UserError as `refuse_other` does."""
    from model.verdict import write_verdict
    from search.store.verdicts import sealed
    from trainer.files import durable

    def write(folder: Path) -> None:
        checkpoint.save(folder)
        if proof:
            write_verdict(folder, checkpoint.spec, checkpoint.theta_P, sealed(proof), is_new=False)

    refuse_other(target, checkpoint)
    with writing(target):
        if target.exists():
            write(target)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".checkpoint-") as scratch:
            write(fresh := Path(scratch) / "checkpoint")
            durable.rename(fresh, target)
