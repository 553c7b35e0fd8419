"""Arrays that any zarr reader understands: one encoding, a regular grid, nothing cut."""

from __future__ import annotations

from dataclasses import dataclass

from virtualstack.codecs.metadata import Codec
from virtualstack.manifests.array import ManifestArray
from virtualstack.manifests.chunk_manifest import ChunkManifest
from virtualstack.manifests.encoding import ChunkEncoding, c_strides, native
from virtualstack.manifests.grid import ChunkAxis, ChunkGrid

__all__ = ["PlainArray", "describe", "why_not_plain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainArray:
    """What zarr metadata needs of an array whose chunks are zarr chunks as they lie.

    Parameters
    ----------
    manifest
        In memory, unused rows dropped; cells are the array's.
    chunks
        Chunk shape in elements, on the axes of the array; may exceed the array.
    order
        The ``order`` of zarr's ``transpose`` codec, or ``None`` where chunks are stored in C order.
    encoding
        The one encoding, or ``None`` where the array has no chunk at all.
    """

    manifest: ChunkManifest
    chunks: tuple[int, ...]
    order: tuple[int, ...] | None
    encoding: ChunkEncoding | None

    @classmethod
    def of(cls, array: ManifestArray, /) -> PlainArray | str:
        """Give the plain form of an array, or the reason why it has none, as half a sentence."""
        manifest = array.in_memory().compact()
        if bool((manifest.holes & (manifest.entries["encoding"] != 0)).any()):
            return "holes have other fill values than the array"
        if not manifest.encodings:
            return cls._of_holes(manifest, array.grid)
        if len(manifest.encodings) > 1:
            return f"chunks have {len(manifest.encodings)} encodings (codecs, dtypes, chunk shapes or byte orders)"
        (encoding,) = manifest.encodings
        if native(encoding.dtype) != array.dtype:
            return f"chunks are stored as '{encoding.dtype}', values are '{array.dtype}'"
        match = _match_axes(encoding, array.grid)
        if match is None:
            return "chunks are seen with steps, reversed, repeated or through a part of their axes"
        if manifest.starts is not None:
            return "a slice cuts through chunks"
        chunks, order = match
        for i, (axis, chunk) in enumerate(zip(array.grid.axes, chunks, strict=True)):
            if axis.n_cells and axis != ChunkAxis.regular(axis.length, chunk):
                return f"chunk lengths along axis {i} are not all {chunk}"
        return cls(manifest=manifest, chunks=chunks, order=order, encoding=encoding)

    @classmethod
    def _of_holes(cls, manifest: ChunkManifest, grid: ChunkGrid) -> PlainArray | str:
        if not grid.is_regular:
            return "the chunk grid is rectilinear"
        chunks = tuple(axis.chunk or 1 for axis in grid.axes)
        return cls(manifest=manifest, chunks=chunks, order=None, encoding=None)

    def codecs(self) -> tuple[Codec, ...]:
        """Give the codecs on the axes of the array: the stored ones, with a ``transpose`` in front where needed."""
        if self.encoding is None:
            return ()
        if self.order is None:
            return self.encoding.codecs
        return (Codec.of("transpose", order=list(self.order)), *self.encoding.codecs)


def _match_axes(encoding: ChunkEncoding, grid: ChunkGrid) -> tuple[tuple[int, ...], tuple[int, ...] | None] | None:
    """Find which array axis runs along which stored axis: chunk shape on array axes, and the order if not C."""
    stored = [(n, step) for n, step in zip(encoding.shape, c_strides(encoding.shape), strict=True) if n != 1]
    longest = [int(axis.lengths().max()) if axis.n_cells else 1 for axis in grid.axes]
    chunks, taken = [1] * len(grid.axes), []
    for n, step in stored:
        candidates = [i for i, s in enumerate(encoding.strides) if s == step and i not in taken]
        if not candidates:
            return None
        axis = max(candidates, key=lambda i: (longest[i], i))
        chunks[axis] = n
        taken.append(axis)
    if any(longest[i] > 1 for i in range(len(chunks)) if i not in taken):
        return None
    if taken == sorted(taken):
        return tuple(chunks), None
    return tuple(chunks), (*(i for i in range(len(chunks)) if i not in taken), *taken)


def why_not_plain(array: ManifestArray, /) -> str | None:
    """Say why an array has no plain form; ``None`` where it has."""
    plain = PlainArray.of(array)
    return plain if isinstance(plain, str) else None


def describe(array: ManifestArray, /) -> str:
    """Say what an array holds, where its bytes are, and which targets take it as it is."""
    count = array.manifest.summary()
    manifest = array.in_memory().compact()
    codecs = sorted({" + ".join(codec.name for codec in x.codecs) or "uncompressed" for x in manifest.encodings})
    reason = why_not_plain(array)
    lines = [
        f"{array.dtype} {array.shape}, {array.grid!r}: {count.n_chunks} chunks",
        f"{count.n_references} references, {count.n_inline} inline, {count.n_empty} EMPTY, {count.n_missing} MISSING; "
        f"{count.nbytes} stored bytes in {len(manifest.locations)} sources",
        f"codecs: {'; '.join(codecs) or 'none'}",
        "plain: any zarr, kerchunk or Icechunk target takes it as it is" if reason is None else f"not plain: {reason}",
    ]
    return "\n".join(lines)
