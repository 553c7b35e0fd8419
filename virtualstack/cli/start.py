"""The command ``virtualstack`` begins here, and takes care of Ctrl-C first: importing xarray takes a second."""

from __future__ import annotations

from virtualstack.cli.interrupts import run_interruptible

__all__ = ["main"]


def main() -> int:
    """Run the command with the arguments of the process, and return its exit status."""
    return run_interruptible(_run)


def _run() -> int:
    from virtualstack.cli.command import main as run

    return run()
