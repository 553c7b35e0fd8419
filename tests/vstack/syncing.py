"""What a process does that brings a store up to date; in a module of its own to be found by name."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path

from virtualstack.vstack.repository import Repository

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.vstack.syncing"])


def run(store: Path, begun: Connection) -> None:
    """Say that the run begins, and bring a store up to date once."""
    begun.send(None)
    Repository.open(store).sync(sample=0)
