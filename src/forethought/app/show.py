"""What a person sees while a stage runs: plain sentences, and a bar for long work.

On a terminal the bar moves; elsewhere (a log file, CI) a line is printed now and then instead.
"""

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

LINE_EVERY = 15.0
"""Seconds between lines where there is no terminal."""


@dataclass(slots=True, eq=False)
class Bar:
    """One bar. `advance` by work done; `note` what is worth seeing beside it."""

    console: Console
    what: str
    total: int
    progress: Progress | None
    task: TaskID | None
    done: int = 0
    noted: str = ""
    _last: float = field(default_factory=time.monotonic)

    def advance(self, count: int = 1) -> None:
        """So much more is done."""
        self.done += count
        self._draw()

    def note(self, text: str) -> None:
        """Show `text` beside the bar."""
        self.noted = text
        self._draw()

    def _draw(self) -> None:
        if self.progress is not None and self.task is not None:
            self.progress.update(self.task, completed=self.done, note=self.noted)
        elif time.monotonic() - self._last > LINE_EVERY:
            self._last = time.monotonic()
            self.console.print(
                f"  {self.what}: {self.done}/{self.total}  {self.noted}", style="dim", markup=False
            )


@dataclass(frozen=True, slots=True)
class Show:
    """Where sentences and bars go."""

    console: Console

    def stage(self, title: str, why: str) -> None:
        """A stage begins."""
        self.tell(f"\n{title}", style="bold")
        self.console.print(f"  {why}", highlight=False, markup=False)

    def say(self, text: str) -> None:
        """One sentence."""
        self.tell(f"  {text}")

    def complain(self, text: str) -> None:
        """What went wrong."""
        self.tell(text, style="red")

    def tell(self, text: str, style: str | None = None) -> None:
        """Text as it is: paths in it are neither broken into lines nor read as markup."""
        self.console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def bar(self, what: str, total: int, done: int = 0) -> Generator[Bar]:
        """A bar for work of `total` parts, of which `done` were done before."""
        if not self.console.is_terminal:
            yield Bar(self.console, what, total, None, None, done)
            return
        columns = (
            TextColumn("  {task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, console=self.console, refresh_per_second=4) as progress:
            task = progress.add_task(what, total=total, completed=done, note="")
            yield Bar(self.console, what, total, progress, task, done)
