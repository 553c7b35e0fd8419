"""A dask cluster as an executor. Only this module imports ``distributed``, and it is imported by name."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from virtualstack.errors import MissingDependencyError
from virtualstack.warning import warn

try:
    from distributed import Client, KilledWorker, default_client
except ModuleNotFoundError as error:
    raise MissingDependencyError("scanning on a dask cluster", extra="dask") from error

__all__ = ["KilledWorker", "open_executor"]

_EXPECTED_THREADS = 8  # assumed for a cluster whose workers have not started yet
_MAX_IDLE_SECONDS = 60.0  # without workers, before the warning


def open_executor(client: Any | None, /) -> tuple[Executor, int, Callable[[], bool]]:
    """Return an executor of a cluster, its number of threads, and a function that watches the cluster.

    The function must be called repeatedly. It returns true if the client is closed; dask may then never finish its
    futures. It warns once if a cluster has lost all its workers for a minute. A closed client has no threads, and its
    executor accepts no tasks.
    """
    find: Any = default_client  # distributed has no types for these
    if client is None:
        try:
            client = find()
        except ValueError as error:
            raise ValueError(
                "executor='dask' uses the dask client of this session, but there is none. Create one first, client = "
                "distributed.Client(), or pass one: executor=client"
            ) from error
    if not isinstance(client, Client):
        raise TypeError(f"executor= is of type '{type(client).__name__}'; expected a synchronous distributed.Client")
    cluster: Any = client
    executor: Executor = cluster.get_executor(pure=False)
    n_threads = _count_threads(cluster)
    return executor, n_threads or _EXPECTED_THREADS, _watch(cluster, had_some=n_threads > 0)


def _count_threads(cluster: Any) -> int:
    if cluster.status != "running":
        return 0
    try:
        return sum(cluster.nthreads().values())
    except OSError:  # its scheduler has just stopped
        return 0


def _watch(cluster: Any, *, had_some: bool) -> Callable[[], bool]:
    empty_since: float | None = None  # a worker that is started again is away for a moment
    is_said = False

    def look() -> bool:
        nonlocal had_some, empty_since, is_said
        is_closed = bool(cluster.status == "closed")
        if is_said or is_closed:
            return is_closed
        if _count_threads(cluster):
            had_some, empty_since = True, None
        elif had_some and empty_since is None:
            empty_since = time.monotonic()
        elif had_some and empty_since is not None and time.monotonic() - empty_since >= _MAX_IDLE_SECONDS:
            is_said = True
            warn(
                f"the dask cluster of this scan has had no workers for {_MAX_IDLE_SECONDS:.0f} seconds. It "
                "continues when there are workers again. To stop it, press Ctrl-C or close the client; with cache=, "
                "the next scan does not read finished files again"
            )
        return False

    return look
