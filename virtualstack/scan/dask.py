"""A dask cluster as an executor; the only module that imports ``distributed``, reached by name."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

from virtualstack.errors import MissingDependencyError

try:
    from distributed import Client, default_client
except ModuleNotFoundError as error:
    raise MissingDependencyError("scanning on a dask cluster", extra="dask") from error

__all__ = ["open_executor"]

_NONE_YET = 8  # threads that a cluster is taken to have whose workers are still to come


def open_executor(client: Any | None, /) -> tuple[Executor, int]:
    """Give an executor that works on a cluster, and how many threads that has; ``None``: of the client in use.

    Raises
    ------
    ValueError
        There is no client.
    """
    find: Any = default_client  # distributed has no types for these
    if client is None:
        try:
            client = find()
        except ValueError as error:
            raise ValueError(
                "executor='dask' uses the client of this session, and there is none: make one first, "
                "client = distributed.Client(), or give one: executor=client"
            ) from error
    if not isinstance(client, Client):
        raise TypeError(f"executor= is a {type(client).__name__}; of distributed, a synchronous Client is asked for")
    cluster: Any = client
    executor: Executor = cluster.get_executor(pure=False)
    return executor, sum(cluster.nthreads().values()) or _NONE_YET
