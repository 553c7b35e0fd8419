"""Hypothesis strategies for virtual arrays with known values, and a slow reader that is simple enough to be right.

They are for property tests of operations, readers and writers, also of other packages. This module needs
``hypothesis``.
"""

from __future__ import annotations

import itertools
import math
import zlib
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from virtualstack.codecs.codec import Codec
from virtualstack.location import Location
from virtualstack.manifests import (
    ABSENT,
    EMPTY,
    ENTRY,
    FIRST,
    INLINE,
    ChunkEncoding,
    ChunkGrid,
    ChunkManifest,
    Fill,
    ManifestArray,
    PagedManifest,
)

__all__ = [
    "HeldPages",
    "KnownArray",
    "advanced_keys",
    "basic_keys",
    "in_pages",
    "known_arrays",
    "model_read",
    "store_array",
]

_DTYPES = ("<i2", ">i2", "<f4", ">f8", "|u1", "<i4", "<c8", "|S3")
_SERIAL = itertools.count()  # a new number for each array, so that no two share a source
ZLIB = Codec.from_config("numcodecs.zlib", level=1)


class KnownArray(NamedTuple):
    """Virtual array with its values, and the sources that hold its chunks.

    When to use: :func:`known_arrays` and :func:`store_array` return it, to compare values.
    """

    array: ManifestArray
    values: NDArray[Any]
    sources: dict[str, bytes]


@dataclass(frozen=True, eq=False)
class HeldPages:
    """Pages of a manifest in memory, with the numbers of the pages that were read.

    When to use: :func:`in_pages` makes it, to test which pages an operation reads.

    Parameters
    ----------
    manifest
        Manifest that is divided into pages, in C order.
    page_size
        Number of cells in a page.
    read_pages
        Number of each page that was read, in the order of the reads.
    """

    manifest: ChunkManifest
    page_size: int
    read_pages: list[int] = field(default_factory=list)

    def read(self, page: int, /) -> ChunkManifest:
        """Return a page, with only the tables that it needs."""
        self.read_pages.append(page)
        rows = slice(page * self.page_size, (page + 1) * self.page_size)
        return self.manifest.reshape((self.manifest.entries.size,)).read((rows,)).compact()

    def complete(self, entries: ChunkManifest, rows: NDArray[np.int64], /) -> ChunkManifest:
        """Return the entries unchanged, because nothing is missing."""
        return entries


def in_pages(array: ManifestArray, page_size: int, /) -> tuple[ManifestArray, HeldPages]:
    """Return an array whose manifest is in pages instead of in memory, and the pages."""
    pages = HeldPages(array.in_memory(), page_size)
    manifest = PagedManifest(
        source=pages,
        shape=array.manifest.shape,
        page_size=page_size,
        tables=array.manifest.tables,
        url=array.manifest.url,
    )
    return replace(array, manifest=manifest), pages


def store_array(
    values: NDArray[Any],
    chunks: tuple[int, ...],
    *,
    url: str,
    stored_dtype: str | None = None,
    codecs: tuple[Codec, ...] = (),
    fill: object = 0,
    holes: NDArray[np.uint8] | None = None,
    is_padded: bool = True,
    is_inline: bool = False,
    order: tuple[int, ...] | None = None,
) -> KnownArray:
    """Divide an array into chunks in one source, as a format would, and return the virtual array.

    Parameters
    ----------
    values
        Values of any shape. They are copied.
    chunks
        Shape of a chunk, in elements.
    url
        URL of the source that holds the chunks.
    stored_dtype
        Data type of the stored chunks, with byte order. The default is the data type of ``values``.
    codecs
        No codec, or one ``numcodecs.zlib``.
    fill
        Fill value of the array.
    holes
        State of each cell, with the shape of the grid: 0 for a chunk, 1 for EMPTY, 2 for ABSENT.
    is_padded
        If true, chunks at the edge are stored in full size.
    is_inline
        If true, chunks are stored in the manifest instead of the source.
    order
        Axes in the order in which chunks are stored. By default it is C order.

    Examples
    --------
    >>> import numpy as np
    >>> from virtualstack.testing.strategies import model_read, store_array
    >>> array, values, sources = store_array(np.array([1.0, 2.0, 3.0]), (2,), url="memory://a")
    >>> model_read(array, sources)
    array([1., 2., 3.])
    """
    dtype = np.dtype(stored_dtype or values.dtype)
    value_dtype = dtype.newbyteorder("=")
    values = values.astype(value_dtype)
    grid = ChunkGrid.regular(values.shape, chunks)
    order = tuple(range(values.ndim)) if order is None else order
    entries = np.zeros(grid.shape, ENTRY)
    encodings: dict[ChunkEncoding, int] = {}
    buffer = bytearray(b"header")
    for cell in np.ndindex(grid.shape):
        box = tuple(slice(i * c, min((i + 1) * c, n)) for i, c, n in zip(cell, chunks, values.shape, strict=True))
        if holes is not None and holes[cell]:
            values[box] = fill
            entries[cell]["location"] = EMPTY if holes[cell] == 1 else ABSENT
            continue
        block = values[box]
        if is_padded and block.ndim:
            block = np.pad(block, [(0, c - n) for c, n in zip(chunks, block.shape, strict=True)], mode="edge")
        stored = np.ascontiguousarray(block.transpose(order), dtype)
        encoding = ChunkEncoding.c_order(dtype, stored.shape, codecs)
        encoding = encoding.with_strides(encoding.strides[order.index(axis)] for axis in range(values.ndim))
        raw = zlib.compress(stored.tobytes(), 1) if codecs else stored.tobytes()
        row = encodings.setdefault(encoding, len(encodings))
        entries[cell] = (INLINE if is_inline else FIRST, row, len(buffer), len(raw))
        buffer += raw + b"gap"
    manifest = ChunkManifest(
        entries=entries,
        fills=(Fill.from_value(fill, value_dtype),),
        encodings=tuple(encodings),
        locations=() if is_inline else (Location(url, size=len(buffer)),),
        inline=bytes(buffer) if is_inline else b"",
    )
    array = ManifestArray(
        manifest=manifest,
        grid=grid,
        dtype=value_dtype,
        name="v",
        dimension_names=tuple(f"d{i}" for i in range(values.ndim)),
    )
    array.validate()
    return KnownArray(array, values, {} if is_inline else {url: bytes(buffer)})


@st.composite
def known_arrays(
    draw: st.DrawFn,
    *,
    shape: tuple[int, ...] | None = None,
    dtype: str | None = None,
    max_dims: int = 3,
    max_side: int = 7,
) -> KnownArray:
    """Draw an array with random values, chunks, codecs, byte order, states, padding and axis order; some in pages.

    Examples
    --------
    >>> import numpy as np
    >>> from hypothesis import HealthCheck, given, settings
    >>> from virtualstack.testing.strategies import known_arrays, model_read
    >>> @settings(max_examples=3, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    ... @given(known_arrays())
    ... def test_values_are_known(known):
    ...     np.testing.assert_array_equal(model_read(known.array, known.sources), known.values)
    >>> test_values_are_known()
    """
    if shape is None:
        shape = tuple(draw(st.lists(st.integers(0, max_side), max_size=max_dims)))
    chunks = tuple(draw(st.integers(1, 5)) for _ in shape)
    if dtype is None:
        dtype = draw(st.sampled_from(_DTYPES))
    elif np.dtype(dtype).itemsize > 1 and np.dtype(dtype).kind != "S":
        dtype = np.dtype(dtype).newbyteorder(draw(st.sampled_from("<>"))).str
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    grid = ChunkGrid.regular(shape, chunks)
    kinds = draw(st.sampled_from([(1.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.6, 0.3, 0.1), (0.0, 1.0, 0.0)]))
    known = store_array(
        rng.integers(0, 100, shape).astype(dtype),
        chunks,
        url=f"memory://known/{next(_SERIAL)}",
        stored_dtype=dtype,
        codecs=(ZLIB,) if draw(st.booleans()) else (),
        fill=draw(st.integers(0, 9)),
        holes=rng.choice(3, size=grid.shape, p=kinds).astype(np.uint8),
        is_padded=draw(st.booleans()),
        is_inline=draw(st.booleans()),
        order=tuple(draw(st.permutations(range(len(shape))))),
    )
    page_size = draw(st.sampled_from([None, None, None, 1, 3, 10]))
    return known if page_size is None else known._replace(array=in_pages(known.array, page_size)[0])


def basic_keys(shape: tuple[int, ...]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Draw keys of integers and slices with any step, one for each axis."""

    def of_axis(n: int) -> st.SearchStrategy[Any]:
        edge = st.none() | st.integers(-n - 2, n + 2)
        step = st.none() | st.integers(-4, 4).filter(bool)
        whole = st.builds(slice, edge, edge, step)
        return whole | st.integers(-n, n - 1) if n else whole

    return st.tuples(*(of_axis(n) for n in shape))


@st.composite
def advanced_keys(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Draw keys with arrays of integers or booleans: outer products, points, and both mixed with basic keys."""
    broadcast = draw(st.sampled_from([(), (1,), (3,), (0,), (2, 2), (2, 1, 3)]))
    is_outer = draw(st.booleans())
    key: list[Any] = []
    n_arrays = 0
    for n in shape:
        kind = draw(st.sampled_from(["basic", "basic", "array", "mask", "run"]))
        if kind == "basic" or not n:
            key += draw(basic_keys((n,)))
        elif kind == "mask" and not n_arrays:
            key.append(np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool))
            broadcast, n_arrays = (), n_arrays + 1  # other arrays must then have the length of the mask
        elif kind == "run" and not n_arrays:
            low = draw(st.integers(0, n - 1))
            key.append(np.arange(low, draw(st.integers(low, n))))
            broadcast, n_arrays = (), n_arrays + 1
        else:
            size = draw(st.sampled_from([broadcast, (1,) * len(broadcast)])) if is_outer else broadcast
            values = draw(st.lists(st.integers(-n, n - 1), min_size=math.prod(size), max_size=math.prod(size)))
            key.append(np.array(values, np.int64).reshape(size))
            n_arrays += 1
        if draw(st.integers(0, 9)) == 0:
            key.append(None)
    return tuple(key)


def model_read(array: ManifestArray, sources: dict[str, bytes]) -> NDArray[Any]:
    """Read a virtual array cell by cell, according to its definition.

    This is slow.

    Raises
    ------
    IndexError
        A cell refers to elements outside its chunk.
    """
    manifest = array.in_memory()
    out = np.empty(array.shape, array.dtype)
    lines = [axis.lines() for axis in array.grid.axes]
    for cell in np.ndindex(manifest.shape):
        box = tuple(slice(int(line[i]), int(line[i + 1])) for line, i in zip(lines, cell, strict=True))
        code, row, offset, length = manifest.entries[cell].item()
        if code in (EMPTY, ABSENT):
            out[box] = manifest.fills[row].value
            continue
        buffer = manifest.inline if code == INLINE else sources[manifest.locations[code - FIRST].url]
        raw = buffer[offset : offset + length]
        encoding = manifest.encodings[row]
        flat = np.frombuffer(zlib.decompress(raw) if encoding.codecs else raw, encoding.dtype)
        start = int(manifest.all_starts[cell])
        shape = tuple(s.stop - s.start for s in box)
        steps = [(n - 1) * step for n, step in zip(shape, encoding.strides, strict=True)]
        low, high = start + sum(min(x, 0) for x in steps), start + sum(max(x, 0) for x in steps)
        if flat.size != encoding.size or low < 0 or high >= flat.size:
            raise IndexError(f"cell {cell} shows elements {low} to {high} of {flat.size}, stored as {encoding.shape}")
        view = as_strided(flat[start:], shape, tuple(x * flat.itemsize for x in encoding.strides), writeable=False)
        out[box] = view
    return out
