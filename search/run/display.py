"""What a running study shows: a live line in a terminal, a plain one every few seconds elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live
from rich.table import Table

from search.run.progress import Snapshot

PLAIN_EVERY_S, LIVE_EVERY_S = 5.0, 0.25


class Display:
    """Show snapshots; use as a context manager."""

    def __init__(self, console: Console):
        self.console = console
        self.live = Live(console=console, refresh_per_second=4) if console.is_terminal else None
        self.shown = 0.0

    def __enter__(self) -> Display:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def due(self) -> bool:
        """Whether enough time has passed for another snapshot."""
        return time.monotonic() - self.shown >= (LIVE_EVERY_S if self.live else PLAIN_EVERY_S)

    def show(self, snapshot: Snapshot) -> None:
        self.shown = time.monotonic()
        cells = _cells(snapshot)
        if self.live:
            table = Table(box=None, pad_edge=False)
            for name in cells:
                table.add_column(name, justify="right", style="bold")
            table.add_row(*cells.values())
            self.live.update(table)
        else:
            self.console.print("  ".join(f"{name} {value}" for name, value in cells.items()), soft_wrap=True)

    def say(self, line: str) -> None:
        """Show a line in place of a snapshot."""
        self.shown = time.monotonic()
        if self.live:
            self.live.update(line)
        else:
            self.console.print(line, soft_wrap=True)


def _cells(s: Snapshot) -> dict[str, str]:
    waiting = "compiling" if s.compiling else "starting"
    speed = f"{s.seed_steps_per_s:,.0f}" if s.seed_steps_per_s else waiting
    return {
        "elapsed": duration(s.elapsed_s),
        "running": str(s.running),
        "grokked": str(s.grokked),
        "failed": str(s.failed),
        "best exact match": f"{s.best_exact:.4f}",
        "seed-steps/s": speed,
        "time left": duration(s.seconds_left) if s.seconds_left is not None else "?",
    }


def duration(seconds: float) -> str:
    """Hours, minutes and seconds, without leading zeros: 1:02:03, 4:05, 0:07."""
    whole = int(seconds + 0.5)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
