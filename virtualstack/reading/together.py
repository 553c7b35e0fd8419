"""Fetch the stored bytes of several small arrays together, before they are decoded one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import StorageError
from virtualstack.location import Location, is_remote
from virtualstack.manifests import FIRST, INLINE, ManifestArray
from virtualstack.reading.fetch import io_pool
from virtualstack.storage import Storage
from virtualstack.storage.coalesce import coalesce

_MAX_TOGETHER_BYTES = 1 << 20
"""Stored bytes of one array up to which they are fetched together with those of others."""

_MAX_TOGETHER_CHUNKS = 256

_MAX_GAP_BYTES = 1 << 18
"""Bytes between two ranges that are fetched rather than left out: a further request would take longer."""

type _Range = tuple[int, int]


def fetched(arrays: Sequence[ManifestArray], storage: Storage, /) -> list[ManifestArray]:
    """Return arrays with INLINE chunks in place of small ones on a server, which one round of requests fetches."""
    wanted: dict[tuple[int, Location], dict[_Range, bytes]] = {}
    small = {i: array.whole() for i, array in enumerate(arrays) if _is_small(array)}
    if len(small) < 2:
        return list(arrays)
    for array in small.values():
        for location, part in _ranges(array):
            wanted.setdefault((id(array.access), location), {})[part] = b""
    accesses = {id(array.access): storage.with_access(array.access) for array in small.values()}
    tasks = [io_pool().submit(_fetch, accesses[key], location, parts) for (key, location), parts in wanted.items()]
    try:
        for task in tasks:
            task.result()
    except StorageError:
        return list(arrays)  # reading them one by one raises the error of the chunk
    return [
        _inline(small[i], {location: wanted[id(small[i].access), location] for location, _ in _ranges(small[i])})
        if i in small
        else array
        for i, array in enumerate(arrays)
    ]


def _is_small(array: ManifestArray) -> bool:
    url = array.a_url()
    return (
        url is not None
        and is_remote(url)
        and math.prod(array.manifest.shape) <= _MAX_TOGETHER_CHUNKS
        and int(array.in_memory().entries["length"].sum()) <= _MAX_TOGETHER_BYTES
    )


def _ranges(array: ManifestArray) -> list[tuple[Location, _Range]]:
    manifest = array.in_memory()
    return [
        (manifest.locations[code - FIRST], (offset, length))
        for code, _, offset, length in manifest.entries.reshape(-1).tolist()
        if code >= FIRST
    ]


def _fetch(storage: Storage, location: Location, parts: dict[_Range, bytes]) -> None:
    table: NDArray[np.int64] = np.array(sorted(parts), np.int64)
    offsets, lengths = table[:, 0], table[:, 1]
    source = storage.source(location.url, expected=location)
    plan = coalesce(offsets, lengths, max_gap=_MAX_GAP_BYTES)
    answers = source.read_ranges(np.stack([plan.offsets, plan.lengths], axis=1))
    parts.update(zip(sorted(parts), map(bytes, plan.cut(list(map(bytes, answers)), lengths)), strict=True))


def _inline(array: ManifestArray, parts: dict[Location, dict[_Range, bytes]]) -> ManifestArray:
    manifest = array.in_memory()
    chunks = [parts[location][part] for location, part in _ranges(array)]
    entries = manifest.entries.copy()
    stored = entries.reshape(-1)
    at = np.flatnonzero(stored["location"] >= FIRST)
    stored["offset"][at] = list(accumulate(map(len, chunks[:-1]), initial=len(manifest.inline)))
    stored["location"][at] = INLINE
    made = replace(manifest, entries=stored.reshape(entries.shape), inline=manifest.inline + b"".join(chunks))
    return replace(array, manifest=made)
