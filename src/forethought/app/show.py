"""What a person sees while a stage runs: plain sentences, and a bar for long work.

On a terminal the bar moves; elsewhere (a log file, CI) a line is printed now and then instead, and
one when the work is over.
"""

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from textwrap import fill

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
    """One bar. `advance` by work done, `note` first what is worth seeing beside it."""

    console: Console
    what: str
    total: int
    progress: Progress | None
    task: TaskID | None
    line_every: float
    done: int = 0
    noted: str = ""
    _last: float = field(default_factory=time.monotonic)
    _told: int = -1

    def advance(self, count: int = 1) -> None:
        """So much more is done."""
        self.done += count
        if self.progress is not None and self.task is not None:
            self.progress.update(self.task, completed=self.done, note=self.noted)
        elif time.monotonic() - self._last > self.line_every:
            self._tell()

    def go_on(self, unit: str, first: int, again: int) -> None:
        """Begin anew after `first` parts, and say so; `again` later ones are done again."""
        self.done = first
        if self.progress is not None and self.task is not None:
            self.progress.reset(self.task, completed=first)  # its speed is that of what follows
        text = f"  {going_on(unit, first, self.total, again)}"
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Show `text` beside the bar from the next advance on."""
        self.noted = text

    def end(self) -> None:
        """The work is over: a log ends with how much was done, however little time has passed."""
        if self.progress is None and self._told != self.done:
            self._tell()

    def _tell(self) -> None:
        self._last, self._told = time.monotonic(), self.done
        line = f"  {self.what}: {self.done}/{self.total}  {self.noted}".rstrip()
        self.console.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)


def going_on(unit: str, first: int, total: int, again: int) -> str:
    """Where work goes on after `first` of `total` units, in words.

    >>> going_on("round", 104, 150, 2)
    'goes on at round 105 of 150; 2 rounds since the last checkpoint are done again'
    >>> going_on("step", 0, 150, 1)
    'goes on at step 1 of 150; 1 step is done again, as there is no checkpoint to go on from'
    """
    text = f"goes on at {unit} {first + 1} of {total}"
    if not again:
        return text
    done = f"{again} {unit}" if again == 1 else f"{again} {unit}s"
    are = "is" if again == 1 else "are"
    if not first:
        return f"{text}; {done} {are} done again, as there is no checkpoint to go on from"
    return f"{text}; {done} since the last checkpoint {are} done again"


@dataclass(frozen=True, slots=True)
class Show:
    """Where sentences and bars go; `line_every` is in seconds, where there is no terminal."""

    console: Console
    line_every: float = LINE_EVERY

    def stage(self, title: str, why: str) -> None:
        """A stage begins."""
        self.tell(f"\n{title}", style="bold")
        indent = 2 * " "
        self.tell(fill(why, self.console.width, initial_indent=indent, subsequent_indent=indent))

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
            line = Bar(self.console, what, total, None, None, self.line_every, done)
            yield line
            line.end()
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
            yield Bar(self.console, what, total, progress, task, self.line_every, done)
