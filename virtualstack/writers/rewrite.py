"""Which chunks of an array a target takes as they lie, and which must be encoded anew, counted before any is read.

Knows no format: a target says which encodings it has a form for. Its chunks are equal (a regular grid), with one
encoding, whole from their first element on, and absent ones have one fill value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.cf import CF
from virtualstack.codecs.metadata import Codec
from virtualstack.errors import WriterError
from virtualstack.manifests import (
    INLINE,
    ChunkAxis,
    ChunkEncoding,
    ChunkGrid,
    ChunkManifest,
    ManifestArray,
    repack,
)
from virtualstack.manifests.plain import longest_cells, match_axes
from virtualstack.reading import read_array
from virtualstack.storage import Storage, StorageLike
from virtualstack.writers.encode import encode_chunk
from virtualstack.writers.matching import match_chunks
from virtualstack.writers.split import split_uncompressed

__all__ = ["Budget", "RewritePlan", "plan_rewrite", "rewrite"]

type Takes = Callable[[ChunkEncoding, tuple[int, ...], tuple[int, ...] | None], bool]
"""Whether a target has a form for an encoding, given the chunk shape on array axes, and the order of storage if not C.

What unpacks values by CF attributes is left out of the encoding: targets have attributes for it.
"""

_CANDIDATES = 8
_MOST_CELLS = 64
"""Chunks that a target may have, as a multiple of the array's cells: a tiny odd chunk is no measure for all."""
_LARGEST = 64 << 20
_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much of a variable may be encoded anew.

    Parameters
    ----------
    nbytes
        Bytes of encoded chunks, or ``None``.
    fraction
        Of the bytes that the variable has stored, or ``None``.
    """

    nbytes: int | None = None
    fraction: float | None = None

    def limit(self, stored: int, /) -> int:
        """Give the bytes that a variable of so many stored bytes may take."""
        return math.floor((self.fraction or 0) * stored * (1 + 1e-9)) if self.nbytes is None else self.nbytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RewritePlan:
    """The form of an array that costs least.

    Parameters
    ----------
    array
        That was planned.
    grid
        Of the target's chunks; regular.
    chunks
        Shape of the target's chunks in elements; may exceed the array.
    order
        Of axes in a stored chunk, or ``None`` for C order.
    manifest
        Chunks that stay, and holes, over the target's grid, with one encoding at most.
    encoding
        Of all chunks.
    cells
        Chunks of the target that must be encoded anew: flat indexes, ascending.
    n_missing
        Parts of MISSING chunks that these show.
    nbytes
        Bytes that they will take, about: as many as the chunks that stay; exact where those are uncompressed.
    stored
        Bytes that the variable has stored now.
    """

    array: ManifestArray
    grid: ChunkGrid
    chunks: tuple[int, ...]
    order: tuple[int, ...] | None
    manifest: ChunkManifest
    encoding: ChunkEncoding
    cells: NDArray[np.int64]
    n_missing: int
    nbytes: int
    stored: int

    @property
    def n_chunks(self) -> int:
        """Chunks of the target's grid."""
        return math.prod(self.grid.shape)

    @property
    def n_elements(self) -> int:
        """Elements that are encoded anew."""
        return len(self.cells) * math.prod(self.chunks)

    def part(self, nbytes: int, /) -> str:
        """Write bytes as a budget is given, rounded up: as a part of the stored ones, ``"0.3%"``, if there are any."""
        percent = 100 * nbytes / self.stored if self.stored else 0.0
        if not percent:
            return f"{nbytes} B"
        unit = 10.0 ** (math.floor(math.log10(percent)) - 1)
        return f"{math.ceil(percent / unit * (1 - 1e-12)) * unit:.10g}%"

    def budget(self, nbytes: int | None = None, /) -> str:
        """Write a budget that does; a tenth more than ``nbytes``, or than was planned, where that is an estimate."""
        nbytes = self.nbytes if nbytes is None else nbytes
        return self.part(math.ceil(nbytes * 1.1) if self.encoding.codecs else nbytes)

    def __str__(self) -> str:
        part = f"{self.part(self.nbytes)} of " if self.stored else ""
        return (
            f"{len(self.cells):,} of {self.n_chunks:,} chunks (about {self.nbytes:,} bytes, {part}{self.stored:,} "
            "stored ones)"
        )


def plan_rewrite(array: ManifestArray, /, *, takes: Takes) -> RewritePlan:
    """Find the form of an array that costs least: as its chunks are, or with uncompressed ones cut into smaller ones.

    Reads nothing; see :func:`_cheapest`.

    Parameters
    ----------
    array
        Any virtual array; best after :func:`~virtualstack.manifests.repack`.
    takes
        What the target can express.
    """
    plan = _cheapest(array, takes)
    if not len(plan.cells) or (split := split_uncompressed(array)) is None:
        return plan
    other = _cheapest(split, takes)
    return other if other.n_elements < plan.n_elements else plan


def _cheapest(array: ManifestArray, takes: Takes) -> RewritePlan:
    """Choose chunk shape, encoding and fill value so that the fewest elements are encoded anew.

    The chunk shapes and encodings that occur are tried, the most frequent ones first; where a target takes none of
    them, all chunks are encoded by zlib.
    """
    manifest = array.in_memory().compact()
    holes = manifest.holes
    fill = _main_fill(manifest)
    stored = _stored_bytes(manifest)
    most_cells = _MOST_CELLS * max(manifest.entries.size, 1024)
    counts = np.bincount(manifest.entries["encoding"][~holes], minlength=len(manifest.encodings))
    longest = longest_cells(manifest, array.grid)
    best: RewritePlan | None = None
    seen: set[tuple[Any, ...]] = set()
    for row in np.argsort(-counts, kind="stable").tolist():
        if len(seen) == _CANDIDATES or (best is not None and not len(best.cells)):
            break
        encoding = manifest.encodings[row]
        match = match_axes(encoding, longest[row].tolist())
        if match is None:
            continue
        chunks, order = match
        if math.prod(-(-n // c) for n, c in zip(array.shape, chunks, strict=True)) > most_cells:
            continue
        plain = _without_packing(encoding)
        is_packed = plain is not encoding
        if not (is_packed or _native(encoding.dtype) == array.dtype) or not takes(plain, chunks, order):
            continue
        encoding = encoding.with_strides(step if n > 1 else 0 for step, n in zip(encoding.strides, chunks, strict=True))
        compatible = np.array([_is_alike(x, encoding, chunks) for x in manifest.encodings], np.bool_)
        key = (chunks, order, compatible.tobytes())
        if key in seen:
            continue
        seen.add(key)
        plan = _plan(array, manifest, encoding, chunks, order, compatible, fill, stored)
        if is_packed and not _has_packed_holes(plan):
            continue
        if best is None or plan.n_elements < best.n_elements:
            best = plan
    return best or _plan_anew(array, manifest, fill, stored)


def _has_packed_holes(plan: RewritePlan) -> bool:
    """Whether the packing can become attributes: holes must read as what some stored number unpacks to."""
    entries = plan.manifest.entries.copy()
    entries.reshape(-1)["location"][plan.cells] = INLINE
    packed = repack(replace(plan.array, manifest=replace(plan.manifest, entries=entries), grid=plan.grid))
    return all(x is _without_packing(x) for x in packed.in_memory().encodings)


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.kind == "T" else dtype.newbyteorder("=")


def _without_packing(encoding: ChunkEncoding) -> ChunkEncoding:
    """Leave out the codec that unpacks, where there is one."""
    if not encoding.codecs or encoding.codecs[0].name != CF:
        return encoding
    stored = np.dtype(encoding.codecs[0].options()["data_type"])
    return replace(encoding, dtype=stored, codecs=encoding.codecs[1:])


def _main_fill(manifest: ChunkManifest) -> int:
    """Give the row of the fill that most holes have, the array's own where there are as many."""
    return int(np.bincount(manifest.entries["encoding"][manifest.holes], minlength=1).argmax())


def _stored_bytes(manifest: ChunkManifest) -> int:
    """Count the bytes of stored chunks, of one that is cut in several cells once."""
    length = manifest.entries["length"]
    if manifest.starts is None:
        return int(length.sum())
    spans = np.unique(manifest.entries[["location", "offset", "length"]].reshape(-1))
    return int(spans["length"].sum())


def _is_alike(encoding: ChunkEncoding, main: ChunkEncoding, chunks: Sequence[int]) -> bool:
    """Whether a chunk of one encoding decodes to the same values with another, seen in whole chunks."""
    a, b = encoding.decoding(), main.decoding()
    if a.dtype != b.dtype or a.codecs != b.codecs:
        return False
    if a.shape != b.shape:  # axes of one element make no difference, but to codecs that count axes
        long = [[n for n in x.shape if n != 1] for x in (a, b)]
        if long[0] != long[1] or any(codec.name == "transpose" for codec in a.codecs):
            return False
    return all(n == 1 or x == y for x, y, n in zip(a.strides, b.strides, chunks, strict=True))


def _plan(
    array: ManifestArray,
    manifest: ChunkManifest,
    encoding: ChunkEncoding,
    chunks: tuple[int, ...],
    order: tuple[int, ...] | None,
    compatible: NDArray[np.bool_],
    fill: int,
    stored: int,
) -> RewritePlan:
    grid = ChunkGrid.regular(array.shape, chunks)
    entries, is_anew, n_missing = match_chunks(manifest, array.grid, chunks, encoding, compatible, fill)
    rows = manifest.entries["encoding"][~manifest.holes]
    lengths = manifest.entries["length"][~manifest.holes][compatible[rows]] if len(manifest.encodings) else rows
    decoded = encoding.size * max(encoding.dtype.itemsize, 1)
    each = float(lengths.mean()) if lengths.size else float(decoded)
    cells = np.flatnonzero(is_anew)
    kept = ChunkManifest(
        entries=entries,
        fills=(manifest.fills[fill],),
        encodings=(encoding,),
        locations=manifest.locations,
        inline=manifest.inline,
    )
    return RewritePlan(
        array=array,
        grid=grid,
        chunks=chunks,
        order=order,
        manifest=kept,
        encoding=encoding,
        cells=cells,
        n_missing=n_missing,
        nbytes=math.ceil(each * cells.size),
        stored=stored,
    )


def _plan_anew(array: ManifestArray, manifest: ChunkManifest, fill: int, stored: int) -> RewritePlan:
    """Encode all chunks, in the shape that most elements have."""
    itemsize = max(array.dtype.itemsize, 1)
    chunks = [_most_elements(axis) for axis in array.grid.axes]
    for i, n in enumerate(chunks):
        if (nbytes := math.prod(chunks) * itemsize) > _LARGEST:
            chunks[i] = -(-n // min(-(-nbytes // _LARGEST), n))
    codec = Codec("vlen-utf8") if array.dtype.kind == "T" else Codec.of("numcodecs.zlib", level=1)
    encoding = ChunkEncoding.of(array.dtype, chunks, (codec,))
    none = np.zeros(len(manifest.encodings), np.bool_)
    return _plan(array, manifest, encoding, tuple(chunks), None, none, fill, stored)


def _most_elements(axis: ChunkAxis) -> int:
    if axis.chunk is not None:
        return axis.chunk
    lengths, counts = np.unique(axis.lengths(), return_counts=True)
    return int(lengths[(lengths * counts).argmax()])


# -- encoding anew --------------------------------------------------------------------------------------------


def rewrite(plan: RewritePlan, limit: int, storage: StorageLike = None, /) -> ManifestArray:
    """Carry a plan out: chunks that a target cannot take become INLINE ones; each is read, encoded and checked.

    Parameters
    ----------
    plan
        Of :func:`plan_rewrite`.
    limit
        Bytes that encoded chunks may take, counted before and after encoding.
    storage
        How sources are reached.

    Returns
    -------
    ManifestArray
        With one encoding and a regular grid.

    Raises
    ------
    WriterError
        They take more bytes, show MISSING chunks, or a chunk cannot be encoded without loss.
    StorageError
        Values cannot be read.
    """
    name = plan.array.name or ""
    if plan.n_missing:
        raise WriterError(
            f"variable '{name}' has {plan} that must be encoded anew and show MISSING ones ({plan.n_missing} parts), "
            "which could not be told from values then; restore their sources, or leave the variable out",
            variable=name,
            feature="MISSING chunks",
        )
    if plan.nbytes > limit:
        raise _over_budget(plan, plan.nbytes, limit)
    entries = plan.manifest.entries.copy()
    heap, spans = [plan.manifest.inline], dict[bytes, tuple[int, int]]()
    end, total, done = len(plan.manifest.inline), 0, 0
    flat = entries.reshape(-1)
    store = Storage.of(storage)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="virtualstack-rewrite") as pool:
        try:
            for cells in np.split(plan.cells, range(_BATCH, len(plan.cells), _BATCH)):
                made = pool.map(lambda cell: _encoded(plan, cell, store), cells.tolist())
                for cell, raw in zip(cells.tolist(), made, strict=True):
                    if raw not in spans:
                        spans[raw] = (end, len(raw))
                        heap.append(raw)
                        end += len(raw)
                    total, done = total + len(raw), done + 1
                    flat[cell] = (INLINE, 0, *spans[raw])
                if total > limit:
                    raise _over_budget(plan, -(-total * len(plan.cells) // done), limit)
        finally:
            pool.shutdown(cancel_futures=True)
    manifest = replace(plan.manifest, entries=entries, inline=b"".join(heap))
    return replace(plan.array, manifest=manifest, grid=plan.grid)


_BATCH = 64


def _encoded(plan: RewritePlan, cell: int, storage: Storage) -> bytes:
    """Read the values of one chunk and encode them; what reaches past the array repeats its last values."""
    index = np.unravel_index(cell, plan.grid.shape) if plan.grid.shape else ()
    key = tuple(
        slice(int(i) * n, min((int(i) + 1) * n, length))
        for i, n, length in zip(index, plan.chunks, plan.array.shape, strict=True)
    )
    values = read_array(plan.array, key, storage)
    beyond = [(0, n - found) for n, found in zip(plan.chunks, values.shape, strict=True)]
    if any(n for _, n in beyond):
        values = np.pad(values, beyond, mode="edge")
    if plan.order is not None:
        values = values.transpose(plan.order)
    return encode_chunk(values, plan.encoding, variable=plan.array.name or "")


def _over_budget(plan: RewritePlan, nbytes: int, limit: int) -> WriterError:
    name = plan.array.name or ""
    return WriterError(
        f"variable '{name}' has {plan} that must be encoded anew; this takes about {nbytes:,} bytes, more than the "
        f"{limit:,} allowed: allow rewrite='{plan.budget(nbytes)}', or read it by vds.virtual.open() or "
        "ManifestStore, which take it as it is",
        variable=name,
        feature="rewrite",
    )
