"""Progress bars on terminals and in notebooks, drawn by rich."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

type Progress = Callable[[int, int], Any]
"""Function of a user that is called with the number of finished items and the number of all items."""

type Show = Callable[[int, int, int], Any]
"""Function that is called with the number of finished items, of all items, and of failures among the finished ones."""

_REDRAW_SECONDS = 0.1  # seconds between two drawings of the bar


@contextmanager
def progress_shown(progress: Progress | bool | None, label: str, /) -> Iterator[Show | None]:
    """Yield the function that shows progress while the block runs, or ``None`` if nothing is to be shown.

    Parameters
    ----------
    progress
        ``True`` for a bar in a notebook or on stderr, which shows the rate, failures, elapsed and remaining time. If
        stderr is no terminal, only its last state is written. Or a function of the user.
    label
        Text before the bar.
    """
    if progress is not True:
        yield (lambda done, total, n_failed: progress(done, total)) if callable(progress) else None
        return
    bar = _Bar(label)
    try:
        yield bar
    finally:
        bar.close()


def reported[T](items: Collection[T], show: Show | None, /) -> Iterator[T]:
    """Yield items, and show after each how many are finished.

    >>> for name in reported(["a", "b"], lambda done, total, n_failed: print(done, "of", total)):
    ...     print(name)
    a
    1 of 2
    b
    2 of 2
    """
    for done, item in enumerate(items, 1):
        yield item
        if show is not None:
            show(done, len(items), 0)


class _Bar:
    """A progress bar that appears at its first call; rich is imported then."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._rich: RichProgress | None = None
        self._handle: Any = None
        self._drawn = 0.0

    def __call__(self, done: int, total: int, n_failed: int) -> None:
        if self._rich is None:
            self._rich = self._opened(total)
        (task,) = self._rich.task_ids
        failed = f"{n_failed:,} failed" if n_failed else ""
        self._rich.update(task, completed=done, total=total, failed=failed)
        now = time.monotonic()
        if done >= total or now - self._drawn >= _REDRAW_SECONDS:
            self._drawn = now
            self._draw()

    def close(self) -> None:
        """Draw the last state, and leave the line."""
        if self._rich is not None:
            self._draw()
            if self._handle is None:
                self._rich.stop()

    def _draw(self) -> None:
        if self._rich is None:
            return
        if self._handle is None:
            self._rich.refresh()
        else:
            self._handle.update(self._rich.make_tasks_table(self._rich.tasks))

    def _opened(self, total: int) -> RichProgress:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        made = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            _rate_column(),
            TextColumn("{task.fields[failed]}", style="red", markup=False),
            TimeElapsedColumn(),
            TextColumn("elapsed,"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=Console(file=sys.stderr, force_jupyter=False),
            auto_refresh=False,
        )
        made.add_task(self._label, total=total, failed="")
        if _is_notebook():
            from IPython.display import display

            self._handle = display(made.make_tasks_table(made.tasks), display_id=True)
        else:
            made.start()
        return made


def _rate_column() -> Any:
    """Return the column that shows how many items are finished in a second."""
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.3g}/s")

    return Rate()


def _is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, which shows what `IPython.display` is given."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")
