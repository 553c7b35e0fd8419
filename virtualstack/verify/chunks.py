"""Compare a sample of chunks with their sources, as the formats' own libraries read them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray import conventions

from virtualstack.dataset import loaded_variable
from virtualstack.errors import ManifestError, MissingDependencyError, ReaderError, VirtualStackError
from virtualstack.formats.base import ReadOptions
from virtualstack.location import Location
from virtualstack.manifests import FIRST, ChunkEncoding, ManifestArray, ManifestGroup
from virtualstack.manifests.cells import along
from virtualstack.progress import Progress, progress_shown
from virtualstack.scanning.one import read_one
from virtualstack.storage import Storage
from virtualstack.storage.threads import concurrently
from virtualstack.verify.libraries import as_opened, decoder_for, open_independently, values_differ, values_read

type _Status = Literal["equal", "different", "not compared"]

STATUSES: tuple[_Status, ...] = ("equal", "different", "not compared")
"""The possible results of a comparison."""

_REMEDY = "refresh the store if the source was rewritten, or compare these values yourself"
_MAX_CHUNKS = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledChunk:
    """A chunk that was compared."""

    variable: str
    cell: tuple[int, ...]
    url: str
    status: _Status
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A stored chunk as one cell of an array shows it: its bytes, encoding and first element."""

    path: str
    array: ManifestArray
    cell: tuple[int, ...]
    location: Location
    offset: int
    length: int
    encoding: ChunkEncoding
    start: int

    def box(self) -> tuple[slice, ...]:
        """Return the elements of the cell in the array."""
        return self.array.grid.box(self.cell)

    def result(self, status: _Status, reason: str = "") -> SampledChunk:
        """Return the result of a comparison."""
        return SampledChunk(variable=self.path, cell=self.cell, url=self.location.url, status=status, reason=reason)

    def positions(self) -> NDArray[np.int64]:
        """Return the position of each element of the cell in the flat decoded chunk."""
        lengths = [side.stop - side.start for side in self.box()]
        found = np.full((1,) * len(lengths), self.start, np.int64)
        for axis, (n, step) in enumerate(zip(lengths, self.encoding.strides, strict=True)):
            found = found + along(np.arange(n) * step, axis, len(lengths))
        return np.broadcast_to(found, lengths)


def compare_sample(
    arrays: Mapping[str, ManifestArray],
    storage: Storage,
    /,
    *,
    sample: int | float,
    seed: int | None,
    leaving_out: Collection[Location],
    own: str,
    find_changed: Callable[[Collection[Location]], Mapping[Location, str]] = lambda sources: {},
    progress: Progress | bool | None = None,
) -> tuple[SampledChunk, ...]:
    """Compare chunks that are chosen at random; chunks without a source, and chunks of some sources, are left out.

    A chunk is compared with the values that its source holds in the same bytes. It is not checked which cells show the
    chunk, or in which order of its elements, because the writer chose that. No other library reads values that were
    written into a store; for these it is only checked that they can be read.
    """
    by_url: dict[str, list[_Chunk]] = {}
    chosen = [x for x in _chosen(arrays, sample, np.random.default_rng(seed)) if x.location not in leaving_out]
    changed = find_changed(dict.fromkeys(chunk.location for chunk in chosen))
    found: list[SampledChunk] = []
    for chunk in chosen:
        if chunk.location in changed:
            found.append(chunk.result("different", changed[chunk.location]))
        else:
            by_url.setdefault(chunk.location.url, []).append(chunk)
    with progress_shown(progress, "verify") as show:
        compared = concurrently(lambda item: _compare(*item, storage, own), list(by_url.items()), by_url)
        for done, results in enumerate(compared, start=1):
            found += results
            if show is not None:
                show(done, len(by_url), sum(chunk.status == "different" for chunk in found))
    return tuple(found)


def _chosen(arrays: Mapping[str, ManifestArray], sample: int | float, random: np.random.Generator) -> Iterator[_Chunk]:
    sizes = [math.prod(array.manifest.shape) for array in arrays.values()]
    total = sum(sizes)
    n = math.ceil(sample * total) if isinstance(sample, float) else min(sample, total)
    if n > _MAX_CHUNKS or total >= 1 << 62:
        raise ManifestError(
            f"sample={sample} of {total} chunks is {n}; at most {_MAX_CHUNKS} are compared at once: use a "
            "smaller sample"
        )
    counts = np.array(sizes, np.int64)
    ends = np.cumsum(counts)
    numbers = np.sort(random.choice(total, n, replace=False)) if n else np.zeros(0, np.int64)
    for (path, array), end, count in zip(arrays.items(), ends.tolist(), counts.tolist(), strict=True):
        own = numbers[(numbers >= end - count) & (numbers < end)] - (end - count)
        if len(own):
            shape = array.manifest.shape
            yield from _chunks_at(path, array, np.unravel_index(own, shape) if shape else ())


def _chunks_at(path: str, array: ManifestArray, cells: tuple[NDArray[np.intp], ...]) -> Iterator[_Chunk]:
    """Yield the chunks of some cells that are in a source."""
    picked = array.manifest.pick(cells)
    for i, (entry, start) in enumerate(
        zip(picked.entries.reshape(-1).tolist(), picked.all_starts.reshape(-1).tolist(), strict=True)
    ):
        code, row, offset, length = entry
        if code >= FIRST:
            cell = tuple(int(numbers[i]) for numbers in cells)
            where, encoding = picked.locations[code - FIRST], picked.encodings[row]
            yield _Chunk(path, array, cell, where, offset, length, encoding, start)


def _compare(url: str, chunks: list[_Chunk], storage: Storage, own: str) -> list[SampledChunk]:
    """Compare chunks of one source, which is scanned to find the same chunks in its variables."""
    source: ManifestGroup | None = None
    if url.startswith(f"{own}/"):
        reason = "its values were written into the store itself, so no other library reads them; nothing is to be done"
    else:
        reason = ""
        try:
            source, _ = read_one(url, storage=storage, options=ReadOptions(is_tree=True))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other sources are compared
            reason = str(error)
    with ExitStack() as stack:
        opened: dict[str, xr.Dataset] = {}
        decoder = None if source is None else decoder_for(storage.source(url))

        def read(found: _Chunk) -> xr.Variable:
            if decoder is not None:
                whole = decoder(found.encoding, found.offset, found.length).reshape(-1)
                return as_opened(found.array, whole[found.positions()])
            group, _, name = found.path.rpartition("/")
            if group not in opened:
                options = {"concat_characters": False, "decode_times": False}  # these need more than one chunk
                opened[group] = stack.enter_context(open_independently(url, group or None, storage, **options))
            return opened[group].variables[name][found.box()]

        return [_compared(chunk, source, reason, read, storage) for chunk in chunks]


def _compared(
    chunk: _Chunk, source: ManifestGroup | None, reason: str, read: Callable[[_Chunk], xr.Variable], storage: Storage
) -> SampledChunk:
    result = chunk.result
    cut = chunk.array[chunk.box()]
    names = chunk.array.dimension_names or tuple(f"axis{i}" for i in range(cut.ndim))
    try:
        named = replace(cut, dimension_names=names)
        ours = loaded_variable(chunk.path, named, storage, url=chunk.location.url, decode_times=False).values
    except VirtualStackError as error:
        return result("different", f"it cannot be read: {error}")
    if source is None:
        return result("not compared", reason)
    found, is_cut = _same_chunk(chunk, source)
    if found is None:
        if is_cut:
            return result("different", "its bytes begin or end within a chunk of the source, and are no part of it")
        why = "no variable of the source has a chunk at this byte range"
        return result("not compared", f"{why}: {_REMEDY}")

    def values() -> NDArray[Any]:
        variable = read(found)
        if ours.dtype.kind in "mM":  # they were unpacked when the store was written
            variable = conventions.decode_cf_variable(found.path, variable)
        return variable.values

    try:
        theirs = values_read(values)
    except MissingDependencyError:
        raise
    except ReaderError as error:
        return result("not compared", str(error))
    if isinstance(theirs, str):
        return result("not compared", f"the other library cannot read it: {theirs}; {_REMEDY}")
    whole = np.zeros(math.prod(found.encoding.shape), theirs.dtype)
    is_known = np.zeros(whole.shape, np.bool_)
    at, wanted = found.positions(), chunk.positions()
    whole[at], is_known[at] = theirs, True
    if theirs.shape != at.shape or not is_known[wanted].all():
        return result("not compared", f"it has elements that no variable of the source has: {_REMEDY}")
    expected = whole[wanted]
    if ours.dtype.kind in "iufc" and expected.dtype.kind in "iufcb":
        expected = expected.astype(ours.dtype)
    difference = values_differ(ours, expected)
    return result("different", difference) if difference else result("equal")


def _same_chunk(chunk: _Chunk, source: ManifestGroup) -> tuple[_Chunk | None, bool]:
    """Find a stored chunk among the chunks of its source; return too whether it begins or ends within one of them.

    If several are in the same bytes, such as the values and coordinates of a GRIB message, the one with the same codecs
    is returned; else that of the same path, then of the same name.
    """
    codecs, name = chunk.encoding.decoding().codecs, chunk.path.rpartition("/")[2]
    begin, end = chunk.offset, chunk.offset + chunk.length
    known, is_cut = None, False
    arrays = source.all_arrays().items()
    for path, array in sorted(arrays, key=lambda x: (x[0] != chunk.path, x[0].rpartition("/")[2] != name)):
        manifest = array.in_memory()
        rows = [row for row, location in enumerate(manifest.locations) if location.url == chunk.location.url]
        is_here = np.isin(manifest.entries["location"], FIRST + np.array(rows, np.int64))
        first, last = manifest.entries["offset"], manifest.entries["offset"] + manifest.entries["length"]
        for cell in np.argwhere(is_here & (first == begin) & (last == end)):
            (found,) = _chunks_at(path, array, tuple(np.array([i]) for i in cell.tolist()))
            own = found.encoding.decoding().codecs
            if math.prod(found.encoding.shape) == math.prod(chunk.encoding.shape):  # with or without axes of 1
                if codecs[len(codecs) - len(own) :] == own:  # those in front of them unpack or cast decoded values
                    return found, False
                known = known or found
        is_over = (first < begin) & (begin < last) & (last < end) | (begin < first) & (first < end) & (end < last)
        is_cut |= bool((is_here & is_over).any())
    return known, is_cut
