"""Entry point of the command ``virtualstack``. It handles Ctrl-C first, because importing xarray takes a second."""

from __future__ import annotations

from virtualstack.cli.interrupts import run_interruptible

__all__ = ["main"]


def main() -> int:
    """Run the command with the arguments of the process, and return its exit status."""
    return run_interruptible(_run)


def _run() -> int:
    from virtualstack.cli.command import main as run

    return run()
