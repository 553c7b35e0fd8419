"""How far a scan is, as a line of text."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

__all__ = ["Progress", "show_progress"]

type Progress = Callable[[int, int], Any]
"""Called with the number of sources that are done, and of all."""

_BAR_CHARACTERS = 30
_REDRAW_SECONDS = 0.1  # seconds between two pictures


def show_progress(label: str = "scan", /) -> Progress:
    """Give what draws a bar on stderr, in terminals and notebooks: done, time that went by, and time that is left."""
    began = time.monotonic()
    drawn = 0.0

    def show(done: int, total: int) -> None:
        nonlocal drawn
        now = time.monotonic()
        if done < total and now - drawn < _REDRAW_SECONDS:
            return
        drawn = now
        left = (now - began) / max(done, 1) * (total - done)
        bar = f"{'#' * (_BAR_CHARACTERS * done // max(total, 1)):.<{_BAR_CHARACTERS}}"
        text = f"\r{label} [{bar}] {done}/{total}, {_clock(now - began)}"
        text += f", {_clock(left)} left" if done < total else " " * 14 + "\n"
        sys.stderr.write(text)
        sys.stderr.flush()

    return show


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"
