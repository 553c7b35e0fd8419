"""What a process does that brings a store up to date; in a module of its own to be found by name."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from virtualstack.vstack.recipe import Recipe
from virtualstack.vstack.repository import Repository

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.vstack.syncing"])


def run(store: Path, begun: Connection) -> None:
    """Say that the run begins, and bring a store up to date once."""
    begun.send(None)
    Repository.open(store).sync(sample=0)


def segment_and_commit(number: int, n: int, url: str, recipe: Recipe, storage: dict[str, Any]) -> int:
    """Open a part of the files of a store, and place what is ready; return the number of the newest snapshot."""
    Repository.segment(url, recipe, partition=(number, n), storage=storage)
    return (
        Repository.open(url, storage=storage)
        .sync(recipe=recipe, only_segments=True, sample=0)
        .repository.snapshot.number
    )
