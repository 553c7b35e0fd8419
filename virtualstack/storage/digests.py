"""Digests of files, which tell a file that was written again from one that was copied or only touched."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from virtualstack.cache import ByteCache, each
from virtualstack.errors import StorageError
from virtualstack.location import Location, Reads, local_path, merge_edges
from virtualstack.system import READ_FLAGS, pread

ALL = "all"
"""Ranges of a digest of the whole file."""

_BLOCK_BYTES = 1 << 12
"""Bytes that are read at the beginning, in the middle and at the end of a file."""

_PART_BYTES = 1 << 23
_MAX_WHOLE_BYTES = 1 << 18  # a smaller file is read whole
_KEPT: ByteCache[str] = ByteCache(1 << 18, each)
_N_DIGITS = 32
_MAX_METADATA_RANGES = 1024  # an HDF5 file has more only if it has more than some 40,000 chunks
_MAX_METADATA_BYTES = 8 * 1024 * 1024
_MAX_CHUNKS = 64
_N_BLOCKS = 8
_SAMPLE_BYTES = 64


def read_digest(found: Location, ranges: str = "", read: Callable[[int, int], bytes] | None = None, /) -> str:
    """Return the digest of a file: 128 bits of the SHA-256 of some of its bytes.

    It is computed once in a process for each version of a file.
    """
    url, size = found.url, found.size or 0
    make = partial(_local_digest, url, ranges, size) if read is None else partial(digest_of, read, ranges, size)
    return _KEPT.get((url, size, found.last_modified, ranges), make)


def _local_digest(url: str, ranges: str, size: int) -> str:
    path = local_path(url)
    if path is None:
        raise StorageError(f"'{url}' is not the URL of a local file ('file:///...')", url=url)
    try:
        number = os.open(path, READ_FLAGS)
        try:
            return digest_of(lambda begin, length: pread(number, length, begin), ranges, size)
        finally:
            os.close(number)
    except OSError as error:
        raise StorageError(f"'{url}' cannot be read: {error.strerror}", url=url) from error


def digest_of(read: Callable[[int, int], bytes], ranges: str, size: int, /) -> str:
    """Return the digest of a source of ``size`` bytes; ``read`` returns the bytes from an offset, of a length."""
    digest = hashlib.sha256(usedforsecurity=False)
    for begin, length in cut_ranges(ranges, size):
        while length > _PART_BYTES:
            digest.update(read(begin, _PART_BYTES))
            begin, length = begin + _PART_BYTES, length - _PART_BYTES
        digest.update(read(begin, length))
    return digest.hexdigest()[:_N_DIGITS]


def cut_ranges(ranges: str, size: int, /) -> list[tuple[int, int]]:
    """Return offset and length of the byte ranges of a digest, clipped to the size of the source; see `Fingerprint`.

    >>> cut_ranges("0+8,92+8", 1000), cut_ranges("", 10)
    ([(0, 8), (100, 8)], [(0, 10)])
    """
    if ranges == ALL or (not ranges and size <= 3 * _BLOCK_BYTES):
        return [(0, size)]
    if not ranges:
        return [(x, _BLOCK_BYTES) for x in (0, (size - _BLOCK_BYTES) // 2, size - _BLOCK_BYTES)]
    pairs = np.fromstring(ranges.replace("+", ","), np.int64, sep=",").reshape(-1, 2)
    ends = np.minimum(pairs.reshape(-1).cumsum()[1::2], size)
    begins = ends - np.minimum(pairs[:, 1], ends)
    return list(zip(begins.tolist(), (ends - begins).tolist(), strict=True))


def choose_ranges(reads: Reads, ends: NDArray[np.int64], size: int, /) -> str:
    """Return the ranges of a file that its digest covers, as in `Fingerprint`.

    These are the bytes that were read to describe the file, the end of 64 chunks (where deflate and Fletcher32 have
    checksums of all of a chunk), and 8 blocks at equal distances, for chunks that all end with the same values.
    """
    edges = _thin(reads.edges(), _MAX_METADATA_RANGES)
    if size <= _MAX_WHOLE_BYTES or (len(edges) == 1 and edges[0, 1] - edges[0, 0] == size):
        return ALL
    most = edges[:, :1] + [0, _MAX_METADATA_BYTES // max(1, len(edges))]
    edges = np.minimum(edges, most)
    blocks = size // _N_BLOCKS * np.arange(1, _N_BLOCKS + 1)
    samples = np.append(blocks, _thin(np.unique(ends), _MAX_CHUNKS))
    edges = merge_edges(np.append(edges, np.stack([np.maximum(samples - _SAMPLE_BYTES, 0), samples], 1), 0))
    gaps = edges[:, 0] - np.append(0, edges[:-1, 1])
    return ",".join(map("{}+{}".format, gaps.tolist(), (edges[:, 1] - edges[:, 0]).tolist()))


def _thin(items: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    return items if len(items) <= most else items[np.linspace(0, len(items) - 1, most).astype(np.intp)]
