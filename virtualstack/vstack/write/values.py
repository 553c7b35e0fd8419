"""Values as chunks of their own in a store: objects beside the rows that refer to them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numcodecs.vlen import VLenUTF8
from numcodecs.zstd import Zstd
from numpy.typing import NDArray

from virtualstack.codecs.metadata import Codec
from virtualstack.location import Location
from virtualstack.manifests import ENTRY, FIRST, ChunkEncoding, ChunkManifest, Fill
from virtualstack.manifests.paged import map_in_threads
from virtualstack.storage import ObjectStore
from virtualstack.vstack.format.names import values_key

__all__ = ["write_values"]

_PART = 64 << 20  # bytes of an object, from which on another one is begun
_LEVEL = 3


def write_values(
    objects: ObjectStore, segment: str, values: NDArray[Any], lines: Sequence[NDArray[np.int64]], fill: Fill, /
) -> ChunkManifest:
    """Write values as compressed chunks, each with its checksum, and give where they are.

    Parameters
    ----------
    objects
        Of the store.
    segment
        Name of the segment that will refer to them.
    values
        In native byte order; text as numpy's ``StringDType``.
    lines
        For each axis, where chunks begin, and the length.
    fill
        Of the array.

    Raises
    ------
    StorageError
        The store cannot be written.
    """
    runs = [list(itertools.pairwise(x.tolist())) for x in lines]
    boxes: list[Any] = [tuple(slice(a, b) for a, b in cell) for cell in itertools.product(*runs)]
    chunks = map_in_threads(lambda box: _compressed(values[(*box, ...)]), boxes)
    codecs = ((Codec("vlen-utf8"),) if values.dtype.kind == "T" else ()) + (
        Codec.of("zstd", level=_LEVEL, checksum=True),
    )
    encodings: dict[ChunkEncoding, int] = {}
    entries = np.zeros(len(boxes), ENTRY)
    locations: list[Location] = []
    waiting: list[bytes] = []
    offset = 0

    def put() -> None:
        key = values_key(segment, len(locations))
        objects.target.put(key, b"".join(waiting))
        locations.append(Location(objects.url + key, offset))

    for i, (box, chunk) in enumerate(zip(boxes, chunks, strict=True)):
        encoding = ChunkEncoding.of(values.dtype, tuple(side.stop - side.start for side in box), codecs)
        row = encodings.setdefault(encoding, len(encodings))
        if offset >= _PART:
            put()
            waiting, offset = [], 0
        entries[i] = (FIRST + len(locations), row, offset, len(chunk))
        waiting.append(chunk)
        offset += len(chunk)
    put()
    return ChunkManifest(
        entries=entries.reshape([len(x) for x in runs]),
        fills=(fill,),
        encodings=tuple(encodings),
        locations=tuple(locations),
    )


def _compressed(values: NDArray[Any]) -> bytes:
    raw = VLenUTF8().encode(values.reshape(-1).astype(object)) if values.dtype.kind == "T" else values.tobytes()
    return bytes(Zstd(_LEVEL, checksum=True).encode(raw))
