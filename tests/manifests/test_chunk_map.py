"""Counting chunks in boxes and by source, against counts of every single chunk."""

import json
import math
from collections import Counter

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.codecs.codec import Codec
from virtualstack.drawing import STATES
from virtualstack.location import Location
from virtualstack.manifests import ENTRY, FIRST, ChunkAxis, ChunkManifest, Fill, ManifestArray
from virtualstack.manifests.chunk_map import count_sources, map_chunks, stored_alike

ENCODINGS = (
    vs.ChunkEncoding.c_order("<f4", (2, 2, 2)),
    vs.ChunkEncoding.c_order("<f4", (2, 2, 2), [Codec.from_config("numcodecs.zlib", level=1)]),
    vs.ChunkEncoding.c_order("<f4", (2, 2, 2), [Codec.from_config("numcodecs.zlib", level=9)]),  # decodes alike
    vs.ChunkEncoding.c_order(">i2", (2, 2, 2)),
)


def random_array(shape, n_sources=3, seed=0):
    """Return an array of 0 to 3 axes whose chunks have random states, sources and encodings."""
    rng = np.random.default_rng(seed)
    entries = np.zeros(shape, ENTRY)
    entries["location"] = rng.integers(0, FIRST + n_sources, shape)
    is_stored = entries["location"] > 1
    entries["encoding"] = np.where(is_stored, rng.integers(0, len(ENCODINGS), shape), 0)
    entries["length"] = np.where(is_stored, rng.integers(1, 1000, shape), 0)
    encodings = tuple(x.with_strides(x.strides[: len(shape)]) for x in ENCODINGS)
    locations = tuple(Location(f"s3://bucket/{i}.nc", size=10**6 + i) for i in range(n_sources))
    manifest = ChunkManifest(entries, (Fill.zero("f4"),), encodings, locations, inline=bytes(1000))
    grid = vs.ChunkGrid.regular([2 * n for n in shape], [2] * len(shape))
    names = ("t", "y", "x")[: len(shape)]
    return ManifestArray(manifest=manifest, grid=grid, dtype="f4", name="rain", dimension_names=names)


def box_of_cell(found, cell):
    """Return the row and column of the map that a chunk belongs to, by the edges of the map."""
    column = 0 if found.column_axis is None else cell[found.column_axis]
    row = 0
    for axis in found.row_axes:
        row = row * found.grid_shape[axis] + cell[axis]
    return (
        int(np.searchsorted(found.row_edges, row, "right")) - 1,
        int(np.searchsorted(found.column_edges, column, "right")) - 1,
    )


@pytest.mark.parametrize("most", [1, 6, 30, 4096])
@pytest.mark.parametrize("shape", [(), (1,), (17,), (4, 9), (9, 4), (5, 3, 4), (2, 11, 3)])
def test_boxes_count_every_chunk(shape, most):
    """Boxes count each chunk once, in its state, and have a source and an encoding that no other outnumbers."""
    array = random_array(shape)
    found = map_chunks(array, max_boxes=most)
    assert found.states.shape[0] * found.states.shape[1] <= most
    states, sources, encodings = Counter(), {}, {}
    for cell in np.ndindex(shape):
        entry, box = array.manifest.entries[cell], box_of_cell(found, cell)
        code = int(entry["location"])
        states[*box, min(code, 3)] += 1
        if code >= FIRST:
            sources.setdefault(box, Counter())[array.manifest.locations[code - FIRST].url] += 1
        if code > 1:
            key = stored_alike(array.manifest.encodings[entry["encoding"]])
            encodings.setdefault(box, Counter())[key[0], "zlib" if key[2] else ""] += 1
    for box in np.ndindex(found.states.shape[:2]):
        assert found.states[box].tolist() == [states[*box, i] for i in range(len(STATES))]
        for number, counts in ((found.source[box], sources.get(box)), (found.encoding[box], encodings.get(box))):
            assert (number < 0) == (counts is None)
        if box in sources:
            url = found.source_prefix + found.sources[found.source[box]]
            assert sources[box][url] == max(sources[box].values())
        if box in encodings:
            stored = found.encodings[found.encoding[box]]
            assert encodings[box][stored.dtype, "".join(stored.codecs)] == max(encodings[box].values())


def test_totals():
    """Totals are those of the manifest, and encodings that decode alike are one."""
    array = random_array((6, 7))
    found, summary = map_chunks(array), array.manifest.summary()
    assert (found.n_referenced, found.n_inline, found.n_empty, found.n_absent) == (
        summary.n_references,
        summary.n_inline,
        summary.n_empty,
        summary.n_absent,
    )
    assert found.n_chunks == summary.n_chunks == found.states.sum()
    assert found.nbytes == summary.nbytes == sum(x.nbytes for x in found.encodings)
    assert sum(x.n_chunks for x in found.encodings) == summary.n_references + summary.n_inline
    assert sorted((x.dtype, x.codecs) for x in found.encodings) == [("<f4", ()), ("<f4", ("zlib",)), (">i2", ())]
    assert found.n_encodings == 3
    assert found.n_sources == 3


def test_sources_are_numbered_by_their_first_box():
    """Sources of a map are in the order of boxes, without their common folder."""
    found = map_chunks(random_array((40,)))
    shown = [number for number in found.source[0].tolist() if number >= 0]
    assert list(dict.fromkeys(shown)) == list(range(len(found.sources)))
    assert found.source_prefix == "s3://bucket/"
    assert set(found.sources) == {"0.nc", "1.nc", "2.nc"}


def test_array_without_elements():
    """An array of length 0 has a map without boxes."""
    array = ManifestArray(
        manifest=ChunkManifest.empty((0, 3), Fill.zero("f4")), grid=vs.ChunkGrid.regular((0, 6), (2, 2)), dtype="f4"
    )
    found = map_chunks(array)
    assert found.states.size == 0
    assert found.n_chunks == found.nbytes == 0
    assert not count_sources({"rain": array}).rows()


def test_column_elements_are_positions_along_the_axis():
    """Columns know their first element, also where chunks differ in length."""
    array = random_array((4,))
    grid = vs.ChunkGrid((ChunkAxis.from_lengths([3, 1, 2, 2]),))
    array = ManifestArray(manifest=array.manifest, grid=grid, dtype="f4", name="rain")
    assert map_chunks(array).column_elements.tolist() == [0, 3, 4, 6, 8]
    assert map_chunks(array, max_boxes=2).column_elements.tolist() == [0, 4, 8]
    assert map_chunks(array).dims == ("axis 0",)


def test_map_is_json_of_bounded_size():
    """A map of 10^6 chunks in 3,000 sources is at most 300 kB of JSON, and its lists have the promised lengths."""
    array = random_array((10**6,), n_sources=3000)
    found = map_chunks(array)
    text = json.dumps(found.to_json())
    assert len(text) < 300_000
    assert math.prod(found.states.shape[:2]) == 4096
    assert json.loads(text)["state_names"] == list(STATES)
    sources = count_sources({"rain": array})
    assert (len(sources.locations), len(sources.rows(2990, 100))) == (3000, 10)
    assert sources.rows(2990, 100) == sources.rows(limit=3000)[2990:]


def test_sources_of_several_variables():
    """A source counts the chunks of all variables, and names the variables that refer to it."""
    first, second = random_array((9,), 2), random_array((5, 3), 3, seed=1)
    counts, sizes = Counter(), Counter()
    for array in (first, second):
        for entry in array.manifest.entries.reshape(-1):
            if entry["location"] >= FIRST:
                location = array.manifest.locations[entry["location"] - FIRST]
                counts[location.url] += 1
                sizes[location.url] += int(entry["length"])
    sources = count_sources({"rain": first, "sub/wind": second}).rows()
    assert {x.url: x.n_chunks for x in sources} == counts
    assert {x.url: x.nbytes for x in sources} == sizes
    assert {x.url: x.size for x in sources}["s3://bucket/1.nc"] == 10**6 + 1
    assert {x.url: x.variables for x in sources}["s3://bucket/2.nc"] == ("sub/wind",)
    with pytest.raises(ValueError, match="islice"):
        count_sources({}).rows(-1, 3)


def test_manifests_that_are_not_in_memory(tmp_path):
    """Maps of a vstack and of kerchunk parquet are those of the files that were joined."""
    paths = []
    for i, zlib in enumerate([False, True, True]):
        paths.append(str(tmp_path / f"{i}.nc"))
        part = xr.Dataset({"rain": (("time", "x"), np.ones((4, 6)))}, {"time": np.arange(4) + 4 * i})
        part.to_netcdf(paths[-1], engine="netcdf4", encoding={"rain": {"chunksizes": (2, 3), "zlib": zlib}})
    cube = vs.open_virtual_mfdataset(paths)
    expected = map_chunks(cube["rain"].data, dims=cube["rain"].dims)
    cube.virtual.to_vstack(tmp_path / "x.vstack")
    (group,) = vs.scan([tmp_path / "x.vstack"])
    found = map_chunks(group["rain"])
    assert found.to_json() == expected.to_json() | {"name": found.name}
    assert count_sources({"rain": group["rain"]}).rows() == count_sources({"rain": cube["rain"].data}).rows()
    same = vs.open_virtual_mfdataset(paths[1:])
    same.virtual.to_kerchunk(tmp_path / "x.parquet")
    (group,) = vs.scan([tmp_path / "x.parquet"])
    found, expected = map_chunks(group["rain"]), map_chunks(same["rain"].data)
    assert found.states.tolist() == expected.states.tolist()
    assert (found.source_prefix, found.sources) == (expected.source_prefix, expected.sources)


def test_stored_dtype_of_packed_and_cast_chunks(tmp_path):
    """Encodings name the dtype in the files, and packing; casts are no codecs of the files."""
    for i, (dtype, packing) in enumerate([("f4", {}), ("f8", {}), ("i2", {"scale_factor": 0.5, "_FillValue": -1})]):
        part = xr.Dataset({"rain": (("time", "x"), np.ones((1, 4)))}, {"time": [i]})
        encoding = {"rain": {"dtype": dtype, "chunksizes": (1, 4), **packing}}
        part.to_netcdf(tmp_path / f"{i}.nc", engine="netcdf4", encoding=encoding)
    cube = vs.open_virtual_mfdataset(f"{tmp_path}/*.nc", unpack=True)
    found = map_chunks(cube["rain"].data)
    assert [(x.dtype, x.codecs) for x in found.encodings] == [("<f4", ()), ("<f8", ()), ("<i2", ("packed",))]
    assert "scale_factor" in found.encodings[2].settings
