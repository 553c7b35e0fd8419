"""Groups in memory for the page: one with very many chunks, and one with chunks of every state."""

import numpy as np

import virtualstack as vs
from virtualstack.location import Location
from virtualstack.manifests import ABSENT, EMPTY, FIRST, INLINE

SPAN = 1_000
N_SOURCES = 3_000


def large_group(n_chunks=1_000_000, n_sources=N_SOURCES, folder="archive"):
    """A group with one variable of many chunks in many sources."""
    encoding = vs.ChunkEncoding.c_order("<f4", (SPAN,))
    number = np.arange(n_chunks)
    manifest = vs.ChunkManifest.from_arrays(
        number * 4000,
        np.full(n_chunks, 4000),
        location=[Location(url=f"s3://bucket/{folder}/year{i:05d}.nc") for i in range(n_sources)],
        location_codes=3 + number * n_sources // n_chunks,
        encoding=encoding,
        fill=vs.Fill.zero("f4"),
    )
    array = vs.ManifestArray(
        manifest=manifest,
        grid=vs.ChunkGrid.regular((n_chunks * SPAN,), (SPAN,)),
        dtype="f4",
        dimension_names=("time",),
    )
    return vs.ManifestGroup(arrays={"rain": array})


def states_group():
    """A group with one variable of 12 x 3 chunks: 5 never written, 2 lost, 1 inline, two ways to store the others."""
    codes = np.full((12, 3), FIRST)
    codes[6:] = FIRST + 1
    codes[2, :], codes[3, :2], codes[7, 1:], codes[0, 0] = EMPTY, EMPTY, ABSENT, INLINE
    is_stored = codes >= FIRST
    manifest = vs.ChunkManifest.from_arrays(
        np.where(is_stored, 100 * np.arange(36).reshape(12, 3), 0),
        np.where(is_stored, 100, np.where(codes == INLINE, 100, 0)),
        location=[Location(url=f"s3://bucket/archive/part{i}.nc") for i in range(2)],
        location_codes=codes,
        encoding=[vs.ChunkEncoding.c_order(dtype, (5, 5)) for dtype in ("<f4", ">f4")],
        encoding_codes=np.where(codes == FIRST + 1, 1, 0),
        fill=vs.Fill.zero("f4"),
        inline=np.ones(25, "<f4").tobytes(),
    )
    array = vs.ManifestArray(
        manifest=manifest,
        grid=vs.ChunkGrid.regular((60, 15), (5, 5)),
        dtype="f4",
        dimension_names=("time", "cell"),
        attributes={"units": "m s-1"},
    )
    return vs.ManifestGroup(arrays={"wind": array})
