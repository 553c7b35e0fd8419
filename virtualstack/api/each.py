"""Scanning many sources and opening each of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

from virtualstack.errors import ReaderError, StorageError
from virtualstack.formats.base import Reader, ReadOptions
from virtualstack.manifests import ManifestGroup
from virtualstack.scanning import scan
from virtualstack.storage import StorageLike
from virtualstack.storage.threads import concurrently

__all__ = ["OnError", "open_each"]

type OnError = Literal["raise", "skip"]


def open_each[T](
    urls: Sequence[str],
    open_one: Callable[[ManifestGroup], T],
    options: ReadOptions,
    /,
    *,
    reader: str | Reader | None = None,
    storage: StorageLike = None,
    executor: Any = None,
    on_error: OnError = "raise",
    cache: str | os.PathLike[str] | None = None,
    progress: Any = None,
) -> tuple[list[T | None], dict[str, Exception]]:
    """Scan sources and open each, remote ones side by side.

    Parameters
    ----------
    urls
        Absolute.
    open_one
        Gives what is wanted of a group.
    options, reader, storage, executor, on_error, cache, progress
        As in :func:`virtualstack.scan`.

    Returns
    -------
    tuple
        What each source was opened as, ``None`` where it could not be; and the errors, by URL.

    Raises
    ------
    ReaderError, StorageError
        One cannot be opened, and ``on_error`` is "raise".
    """
    found = scan(
        urls,
        reader=reader,
        storage=storage,
        executor=executor,
        on_error=on_error,
        cache=cache,
        progress=progress,
        options=options,
    )
    errors: dict[str, Exception] = dict(found.errors)

    def attempt(root: ManifestGroup) -> T | Exception:
        try:
            return open_one(root)
        except (ReaderError, StorageError) as error:
            if on_error == "raise":
                raise
            return error

    failed = frozenset(errors)
    outcomes = concurrently(attempt, found, urls)
    opened: list[T | None] = []
    for url in urls:
        outcome = None if url in failed else next(outcomes)
        if isinstance(outcome, Exception):
            errors[url] = outcome
            outcome = None
        opened.append(outcome)
    return opened, errors
