"""Decide which chunks of an array a target takes unchanged and which must be re-encoded, before any chunk is read.

This module knows no format: a target declares which encodings it supports. Its chunks are equal (a regular grid),
have one encoding and are whole from their first element; chunks without bytes have one fill value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.cf import CF
from virtualstack.codecs.codec import Codec
from virtualstack.codecs.equivalence import decoding_part
from virtualstack.codecs.pipeline import split_elementwise
from virtualstack.errors import UNCHANGED, Remedy
from virtualstack.manifests import INLINE, ChunkEncoding, ChunkGrid, ChunkManifest, Fill, ManifestArray, repack
from virtualstack.manifests.cells import distinct_rows
from virtualstack.manifests.encoding import native
from virtualstack.manifests.plain import PlainArray, longest_cells, match_axes
from virtualstack.zarr.client import Client
from virtualstack.zarr.metadata.encode import can_encode, can_hold
from virtualstack.zarr.rewrite.matching import match_chunks
from virtualstack.zarr.rewrite.split import split_uncompressed
from virtualstack.zarr.uniform import MAX_CHUNK_BYTES, count_overlaps, split_chunks

_MAX_CANDIDATES = 8
_MAX_CELL_GROWTH = 64
"""Largest number of target chunks, as a multiple of the array's cells: one tiny chunk must not set the shape of all."""
_MAX_PARTS = 1 << 20
"""Largest number of parts of very large chunks: a few bytes can declare more than fit in memory."""
_MARGIN_RATIO, _MARGIN_BYTES = 1.1, 64
"""Margin of an estimate: a factor, and bytes of each chunk for headers and checksums."""
_OVERHEAD_RATIO, _OVERHEAD_BYTES = 1.01, 600
"""Largest growth by a compressor: a factor, and bytes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RewritePlan:
    """The form of an array that costs least."""

    array: ManifestArray
    target: Client
    grid: ChunkGrid
    chunks: tuple[int, ...]
    order: tuple[int, ...] | None
    manifest: ChunkManifest
    encoding: ChunkEncoding
    cells: NDArray[np.int64]
    n_absent: int
    stored: int
    nbytes: int = 0
    enough: int = 0
    is_sure: bool = True

    @property
    def n_chunks(self) -> int:
        """The number of chunks of the target's grid."""
        return math.prod(self.grid.shape)

    @property
    def n_elements(self) -> int:
        """The number of elements that are re-encoded."""
        return len(self.cells) * math.prod(self.chunks)

    def part(self, nbytes: int, /) -> str:
        """Return bytes as text for a budget, rounded up: ``"0.3%"`` of the stored bytes, if they are fewer."""
        if not 0 < nbytes <= 0.99 * self.stored:
            return f"{nbytes}B" if nbytes < 10**6 else f"{-(-nbytes // 10**6)}MB"
        return self._percent(nbytes)

    def _percent(self, nbytes: int) -> str:
        percent = 100 * nbytes / self.stored
        unit = 10.0 ** (math.floor(math.log10(percent)) - 1)
        return f"{math.ceil(percent / unit * (1 - 1e-12)) * unit:.10g}%"

    @property
    def most_bytes(self) -> int:
        """Largest size of one encoded chunk in bytes; for strings it is unknown, and the mean is used."""
        front = split_elementwise(self.encoding.codecs, self.encoding.dtype)
        if front.stored.kind == "T":
            return -(-self.nbytes // max(len(self.cells), 1))
        decoded = self.encoding.size * front.stored.itemsize
        return math.ceil(decoded * _OVERHEAD_RATIO) + _OVERHEAD_BYTES if front.codecs else decoded

    def budget(self) -> str:
        """Return a sufficient budget as text: somewhat more than planned, if the plan is an estimate."""
        enough = math.ceil(self.enough * _MARGIN_RATIO) + _MARGIN_BYTES * len(self.cells)
        return self.part(max(min(enough, self.most_bytes * len(self.cells)), self.nbytes))

    def remedies(self) -> list[Remedy]:
        """Return what helps, the best first: a budget below the stored bytes, a vstack, budgets that copy values."""
        is_part = self.budget().endswith("%")
        words = "allow {}" if is_part else "allow {}, which copies the values"
        anew = None
        if not self.is_sure:
            words += ", if the packing or dtype of the other chunks can store their values"
            anew = plan_anew(self.array, self.target)
        found = [Remedy(words, rewrite=self.budget())]
        found.insert(int(is_part), UNCHANGED[0])
        return found if anew is None else [*found, anew.to_re_encode()]

    def to_re_encode(self) -> Remedy:
        """Return the budget for this plan."""
        return Remedy(f"allow {{}} to re-encode {self}", rewrite=self.budget())

    def __str__(self) -> str:
        part = f"{self._percent(self.nbytes)} of " if self.stored and self.nbytes else ""
        return (
            f"{len(self.cells):,} of {self.n_chunks:,} chunks (about {self.nbytes:,} bytes, {part}{self.stored:,} "
            "stored ones)"
        )


def plan_rewrite(array: ManifestArray, target: Client, /) -> RewritePlan:
    """Find the cheapest form of an array: with its chunks unchanged, or with uncompressed chunks cut into smaller ones.

    Nothing is read; see :func:`_cheapest`.
    """
    array = _compact(array)
    plan = _cheapest(array, target)
    if len(plan.cells) and (split := split_uncompressed(array)) is not None:
        plan = min(plan, _cheapest(_compact(split), target), key=lambda x: x.n_elements)
    return _estimated(plan)


def plan_anew(array: ManifestArray, target: Client, /) -> RewritePlan | None:
    """Plan to encode all chunks as unpacked values; ``None`` if that is impossible."""
    plan = _anew(_compact(array), target)
    if plan.n_absent or target.why_not(plan.encoding, plan.chunks, plan.order) is not None:
        return None
    return _estimated(plan)


def _compact(array: ManifestArray) -> ManifestArray:
    return replace(array, manifest=array.in_memory().compact())


def _cheapest(array: ManifestArray, target: Client) -> RewritePlan:
    """Choose chunk shape, encoding and fill value so that the fewest elements are re-encoded.

    The existing chunk shapes and encodings are tried, the most frequent first. All chunks are encoded with zlib if a
    target accepts none of them. The same holds if the stored chunks are much longer than the parts that the array
    shows.
    """
    manifest = array.in_memory()
    holes = manifest.holes
    most_cells = _MAX_CELL_GROWTH * max(manifest.entries.size, 1024)
    counts = np.bincount(manifest.entries["encoding"][~holes], minlength=len(manifest.encodings))
    longest = longest_cells(manifest, array.grid)
    best: RewritePlan | None = None
    seen: set[tuple[Any, ...]] = set()
    for row in np.argsort(-counts, kind="stable").tolist():
        if len(seen) == _MAX_CANDIDATES or (best is not None and not len(best.cells)):
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
        if not (is_packed or native(encoding.dtype) == array.dtype) or target.why_not(plain, chunks, order) is not None:
            continue
        encoding = encoding.with_strides(step if n > 1 else 0 for step, n in zip(encoding.strides, chunks, strict=True))
        compatible = np.array([_is_alike(x, encoding, chunks) for x in manifest.encodings], np.bool_)
        key = (chunks, order, compatible.tobytes())
        if key in seen:
            continue
        seen.add(key)
        plan = _plan(array, target, encoding, chunks, order, compatible)
        if (len(plan.cells) and not can_encode(plan.encoding)) or not _is_sound(plan, is_packed):
            continue
        if best is None or plan.n_elements < best.n_elements:
            best = plan
    if best is not None and best.n_elements <= math.prod(array.shape):
        return best
    anew = _anew(array, target)
    if best is None or (anew.n_elements < best.n_elements and target.why_not(anew.encoding, anew.chunks, None) is None):
        return anew
    return best


def _is_sound(plan: RewritePlan, is_packed: bool) -> bool:
    """Return whether the packing can become attributes, and chunks without bytes can be expressed.

    Chunks without bytes must read as the unpacked value of some number. Those shown by re-encoded chunks need a place
    in the encoding too.
    """
    if not all(_has_place(fill, plan.encoding) for fill in _fills_anew(plan)):
        return False
    entries = plan.manifest.entries.copy()
    entries.reshape(-1)["location"][plan.cells] = INLINE
    manifest = replace(plan.manifest, entries=entries)
    if not is_packed and not manifest.holes.any():
        return True
    made = repack(replace(plan.array, manifest=manifest, grid=plan.grid))
    if not all(x is _without_packing(x) for x in made.in_memory().encodings):
        return False
    plain = PlainArray.from_array(made)
    return isinstance(plain, str) or plan.target.takes_holes(made, plain)


def _fills_anew(plan: RewritePlan) -> list[Fill]:
    """Return the fill values of chunks without bytes that re-encoded chunks show."""
    manifest = plan.array.in_memory()
    if not len(plan.cells) or not manifest.holes.any():
        return []
    rows = np.unique(manifest.entries["encoding"][_shown_anew(plan) & manifest.holes])
    return [manifest.fills[row] for row in rows.tolist()]


def _has_place(fill: Fill, encoding: ChunkEncoding) -> bool:
    """Return whether some stored number is cast, or unpacked, to a value."""
    return can_hold(fill, ChunkEncoding.c_order(encoding.dtype, (1,), _steps(encoding)))


def _shown_anew(plan: RewritePlan) -> NDArray[np.bool_]:
    """Return a mask of the array's cells that re-encoded chunks show."""
    is_anew = np.zeros(plan.grid.shape, np.bool_)
    is_anew.reshape(-1)[plan.cells] = True
    shown: NDArray[np.bool_] = count_overlaps(is_anew, plan.grid, plan.array.grid) > 0
    return shown


def _without_packing(encoding: ChunkEncoding) -> ChunkEncoding:
    """Return the encoding without its codec that unpacks, if it has one."""
    if not encoding.codecs or encoding.codecs[0].name != CF:
        return encoding
    stored = np.dtype(encoding.codecs[0].options()["data_type"])
    return replace(encoding, dtype=stored, codecs=encoding.codecs[1:])


def _main_fill(manifest: ChunkManifest) -> int:
    """Return the row of the most frequent fill; on a tie the first row, which is the array's own fill."""
    return int(np.bincount(manifest.entries["encoding"][manifest.holes], minlength=1).argmax())


def _count_bytes(entries: NDArray[Any], *, is_cut: bool) -> int:
    """Count the bytes of stored chunks; a chunk that several cells show counts once."""
    if is_cut:
        entries = entries.reshape(-1)
        entries = entries[distinct_rows([entries[name] for name in ("location", "offset", "length")])[0]]
    return int(entries["length"].sum())


def _is_alike(encoding: ChunkEncoding, main: ChunkEncoding, chunks: Sequence[int]) -> bool:
    """Return whether a chunk of one encoding decodes to the same values with another, for whole chunks."""
    a, b = encoding.decoding(), main.decoding()
    if a.dtype != b.dtype or a.codecs != b.codecs:
        return False
    if a.shape != b.shape:  # axes of one element matter only to codecs that count axes
        long = [[n for n in x.shape if n != 1] for x in (a, b)]
        if long[0] != long[1] or any(codec.name == "transpose" for codec in a.codecs):
            return False
    return all(n == 1 or x == y for x, y, n in zip(a.strides, b.strides, chunks, strict=True))


def _plan(
    array: ManifestArray,
    target: Client,
    encoding: ChunkEncoding,
    chunks: tuple[int, ...],
    order: tuple[int, ...] | None,
    compatible: NDArray[np.bool_],
) -> RewritePlan:
    manifest = array.in_memory()
    fill = _main_fill(manifest)
    entries, is_anew, n_absent = match_chunks(manifest, array.grid, chunks, encoding, compatible, fill)
    kept = ChunkManifest(
        entries=entries,
        fills=(manifest.fills[fill],),
        encodings=(encoding,),
        locations=manifest.locations,
        inline=manifest.inline,
    )
    return RewritePlan(
        array=array,
        target=target,
        grid=ChunkGrid.regular(array.shape, chunks),
        chunks=chunks,
        order=order,
        manifest=kept,
        encoding=encoding,
        cells=np.flatnonzero(is_anew),
        n_absent=n_absent,
        stored=_count_bytes(manifest.entries, is_cut=manifest.starts is not None),
    )


def _anew(array: ManifestArray, target: Client) -> RewritePlan:
    """Encode all chunks, in the shape that most elements have, or in smaller ones if that shape is very large."""
    itemsize = max(array.dtype.itemsize, 1)
    largest = max(MAX_CHUNK_BYTES, math.prod(array.shape) * itemsize // _MAX_PARTS)
    chunks = split_chunks([axis.usual_length() for axis in array.grid.axes], array.dtype, largest)
    codecs = (Codec.from_config("numcodecs.shuffle", elementsize=itemsize),) if itemsize > 1 else ()
    codecs = (
        (Codec("vlen-utf8"),) if array.dtype.kind == "T" else (*codecs, Codec.from_config("numcodecs.zlib", level=1))
    )
    encoding = ChunkEncoding.c_order(array.dtype, chunks, codecs)
    return _plan(array, target, encoding, tuple(chunks), None, np.zeros(len(array.in_memory().encodings), np.bool_))


# -- cost -----------------------------------------------------------------------------------------------------


def _estimated(plan: RewritePlan) -> RewritePlan:
    """Estimate the bytes of re-encoded chunks.

    Two measures are known. The first is the size of unchanged chunks that the array shows whole. The second is the
    current size of the values to encode, or their uncompressed size if the stored dtype differs (or, to be sure, the
    codecs differ). The larger measure counts.
    """
    if not len(plan.cells):
        return plan
    array, manifest = plan.array, plan.array.in_memory()
    front = split_elementwise(plan.encoding.codecs, plan.encoding.dtype)
    fronts = [split_elementwise(x.codecs, x.dtype) for x in manifest.encodings]
    shown = _shown_anew(plan) & ~manifest.holes
    is_sure = not front.steps or all(
        _steps(manifest.encodings[row]) == _steps(plan.encoding)
        for row in np.unique(manifest.entries["encoding"][shown])
    )
    if not front.codecs:
        nbytes = plan.most_bytes * len(plan.cells)
        return replace(plan, nbytes=nbytes, enough=nbytes, is_sure=is_sure)
    lengths = (axis.lengths() for axis in array.grid.axes)
    sizes: NDArray[np.int64] = reduce(np.multiply.outer, lengths, np.ones((), np.int64))
    n_shown = int(np.sum(sizes, where=shown))
    kept = _mean_kept(plan, manifest)

    def expected(is_measure: list[bool]) -> int:
        is_known = shown & np.isin(manifest.entries["encoding"], np.flatnonzero(is_measure))
        now = _count_bytes(manifest.entries[is_known], is_cut=manifest.starts is not None)
        now += int(np.sum(sizes, where=shown & ~is_known)) * front.stored.itemsize
        return math.ceil(max(kept, now / n_shown * plan.encoding.size if n_shown else 0.0) * len(plan.cells))

    has_dtype = [native(x.stored) == native(front.stored) for x in fronts]
    codecs = decoding_part(front.codecs)
    has_codecs = [same and decoding_part(x.codecs) == codecs for same, x in zip(has_dtype, fronts, strict=True)]
    nbytes = expected(has_dtype)
    enough = nbytes if has_codecs == has_dtype else max(nbytes, expected(has_codecs))
    return replace(plan, nbytes=nbytes, enough=enough, is_sure=is_sure)


def _steps(encoding: ChunkEncoding) -> tuple[Codec, ...]:
    """Return the codecs that cast or unpack each value."""
    behind = split_elementwise(encoding.codecs, encoding.dtype).codecs
    return encoding.codecs[: len(encoding.codecs) - len(behind)]


def _mean_kept(plan: RewritePlan, manifest: ChunkManifest) -> float:
    """Return the mean bytes of chunks with the same encoding, of chunks that are shown whole if there are any."""
    alike = [row for row, x in enumerate(manifest.encodings) if _is_alike(x, plan.encoding, plan.chunks)]
    is_alike = ~manifest.holes & np.isin(manifest.entries["encoding"], alike)
    whole = (axis.lengths() == n for axis, n in zip(plan.array.grid.axes, plan.chunks, strict=True))
    is_whole = is_alike & reduce(np.logical_and.outer, whole, np.True_)
    lengths = manifest.entries["length"][is_whole if is_whole.any() else is_alike]
    return float(lengths.mean()) if lengths.size else 0.0
