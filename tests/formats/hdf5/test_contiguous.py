import math

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import virtualstack as vs
from tests.amount import examples
from tests.formats.groups import group_of, values_of
from virtualstack.errors import CombineError
from virtualstack.formats.rows import Segment, place_segments, row_chunks
from virtualstack.location import Location, absolute_url
from virtualstack.manifests import Fill, ManifestArray
from virtualstack.manifests.plain import why_not_plain
from virtualstack.readers import HDF5


def virtual(segments, values, *, chunk_size=None, stored=None):
    stored = stored or values.dtype
    fill = Fill.zero(values.dtype)
    manifest, grid = place_segments(segments, values.shape, np.dtype(stored), fill, chunk_size=chunk_size)
    array = ManifestArray(manifest=manifest, grid=grid, dtype=values.dtype, name="/x")
    array.validate()
    return array


def is_one_range(chunk, shape):
    """Whether values of this shape lie in one range of an array in C order."""
    cut = [axis for axis, (c, n) in enumerate(zip(chunk, shape, strict=True)) if c != n]
    return not cut or all(c == 1 for c in chunk[: cut[-1]])


@given(
    st.lists(st.integers(1, 400), max_size=4).map(tuple), st.sampled_from([1, 2, 8]), st.none() | st.integers(1, 9000)
)
def test_chunks_are_single_ranges_of_at_most_the_size(shape, itemsize, chunk_size):
    """Whatever the shape: only a chunk of one element may be larger, and none is needlessly small."""
    chunk = row_chunks(shape, itemsize, chunk_size)
    assert is_one_range(chunk, shape)
    nbytes = math.prod(chunk) * itemsize
    assert chunk_size is None or nbytes <= chunk_size or math.prod(chunk) == 1
    if chunk_size is None:
        assert chunk == shape
        return
    axis = max((i for i, (c, n) in enumerate(zip(chunk, shape, strict=True)) if c != n), default=None)
    if axis is not None:
        most = max(chunk_size // (math.prod(shape[axis + 1 :]) * itemsize), 1)
        assert shape[axis] > most
        assert 4 * chunk[axis] >= most


@given(st.integers(1, 1 << 40), st.integers(1, 1 << 20))
def test_lengths_that_divide_are_preferred(n, most):
    """All chunks of one shape, or the fewest that are possible."""
    (length,) = row_chunks((n,), 1, most)
    assert n % length == 0 or -(-n // length) == -(-n // most)


def test_an_axis_beyond_all_divisors():
    """Its divisors are not looked for."""
    assert row_chunks(((1 << 61) - 1,), 1, 1 << 50) == (-(-((1 << 61) - 1) // (1 << 11)),)


@st.composite
def segmented(draw):
    """Values, and where their bytes end in each of several files."""
    shape = draw(st.lists(st.integers(1, 6), min_size=0, max_size=4).map(tuple))
    n = math.prod(shape)
    inner = draw(st.sampled_from([math.prod(shape[i:]) for i in range(len(shape) + 1)]))
    ends = draw(st.lists(st.integers(0, n // inner), max_size=4))
    return shape, sorted({inner * i for i in ends} | {n})


@settings(max_examples=examples(300))
@given(data=segmented(), chunk_size=st.none() | st.integers(1, 300), extra=st.integers(0, 5))
def test_values_over_several_files(tmp_path_factory, data, chunk_size, extra):
    """Files that end at any element: what is read is what lies one after the other."""
    shape, ends = data
    values = np.arange(math.prod(shape), dtype=">i4").reshape(shape)
    raw, folder, segments, begin = values.tobytes(), tmp_path_factory.mktemp("segments"), [], 0
    for i, end in enumerate(ends):
        path = folder / f"{i}.bin"
        path.write_bytes(b"#" * (3 * i) + raw[4 * begin : 4 * end] + b"#" * extra)
        size = 3 * i + 4 * (end - begin) + extra
        length = 4 * (end - begin) + (extra if end == ends[-1] else 0)
        segments.append(Segment(Location(absolute_url(path), size), 3 * i, length))
        begin = end
    native = values.astype("i4")
    array = virtual(segments, native, stored=">i4", chunk_size=chunk_size)
    np.testing.assert_array_equal(values_of(array), native)
    if array.manifest.starts is None and chunk_size is not None:
        assert int(array.manifest.entries["length"].max()) <= max(chunk_size, 4)


def test_files_of_whole_rows_are_plain(tmp_path):
    """Equal numbers of rows in each file give a regular grid with one encoding."""
    values = np.arange(60, dtype="f4").reshape(6, 10)
    segments = []
    for i in range(3):
        path = tmp_path / f"{i}.bin"
        path.write_bytes(values[2 * i : 2 * i + 2].tobytes())
        segments.append(Segment(Location(absolute_url(path), 80), 0, 80))
    for chunk_size, chunks in ((None, (2, 10)), (40, (1, 10)), (20, (1, 5))):
        array = virtual(segments, values, chunk_size=chunk_size)
        assert why_not_plain(array) is None
        assert array.manifest.encodings[0].shape == chunks
        np.testing.assert_array_equal(values_of(array), values)


def test_files_that_end_within_rows_too_often_are_refused():
    """The cells between all ends would be too many."""
    location = Location("file:///x.bin", 1 << 40)
    odd = [Segment(location, 0, 8 * (9 + 101 * (i % 7))) for i in range(400)]
    with pytest.raises(CombineError, match="At most 16 times as many"):
        virtual(odd, np.zeros((sum(x.length for x in odd) // 800, 100)))


@pytest.mark.parametrize("shape", [(), (1,), (12,), (7, 5), (24, 3, 5), (13, 3, 4)])
@pytest.mark.parametrize("size", [None, 1, 40, "0.1 KiB", "1 GB"])
def test_the_option_of_the_reader(shape, size, tmp_path):
    """Values are those of h5py, also through zarr; those of lengths that divide, as kerchunk references too."""
    path = tmp_path / "x.h5"
    values = np.random.default_rng(0).normal(size=shape).astype(">f8")
    with h5py.File(path, "w") as file:
        file["x"] = values
        file.create_dataset("never_written", (4, 5), "i2", fillvalue=3)
    reader = HDF5(contiguous_chunk_size=size)
    group = group_of(path, reader)
    array = group.arrays["x"]
    limit = {None: 1 << 62, "0.1 KiB": 102, "1 GB": 10**9}.get(size, size)
    assert int(array.manifest.entries["length"].max()) <= max(limit, 8)
    np.testing.assert_array_equal(values_of(array), values)
    np.testing.assert_array_equal(zarr.open_group(vs.ManifestStore(group), mode="r")["x"][...], values)
    assert (zarr.open_group(vs.ManifestStore(group), mode="r")["never_written"][...] == 3).all()
    vds = vs.open_virtual_dataset(path, reader=reader, loadable_variables=[])
    np.testing.assert_array_equal(vds.virtual.open()["x"].values, values)
    if why_not_plain(array) is None:
        vds.virtual.to_kerchunk(tmp_path / "refs.json", inline_limit=0)
        with xr.open_dataset(str(tmp_path / "refs.json"), engine="kerchunk") as again:
            np.testing.assert_array_equal(again["x"].values, values)


def test_a_size_that_is_none():
    """Said when the reader is made."""
    with pytest.raises(ValueError, match="contiguous_chunk_size=0 is not a size"):
        HDF5(contiguous_chunk_size=0)
    with pytest.raises(ValueError, match="contiguous_chunk_size='big' is not a number of bytes"):
        HDF5(contiguous_chunk_size="big")
    with pytest.raises(ValueError, match=r"contiguous_chunk_size=1\.5 is not a number of bytes"):
        HDF5(contiguous_chunk_size=1.5)


def test_a_long_scalar(tmp_path):
    """A value without axes that is longer than what is read without a plan is what h5py reads."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["v"] = np.bytes_(b"ab" * (1 << 20))
        wanted = file["v"][()]
    opened = vs.open_virtual_dataset(tmp_path / "a.h5", loadable_variables=[]).virtual.open()
    assert opened["v"].to_numpy()[()] == wanted
