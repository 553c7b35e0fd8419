"""Entry point of the command ``virtualstack``. It handles Ctrl-C first, because importing xarray takes a second."""

from __future__ import annotations

import os

from virtualstack.cli.interrupts import run_interruptible


def main() -> int:
    """Run the command with the arguments of the process, and return its exit status."""
    os.environ.setdefault("ICECHUNK_LOG", "error")  # which would write warnings to stderr, also with --quiet
    return run_interruptible(_run)


def _run() -> int:
    from virtualstack.cli.command import main as run

    return run()
