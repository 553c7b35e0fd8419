"""Groups written as references and read back are the same, and so are their values; through a vstack, too."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs.vlen import VLenUTF8

from tests.amount import examples
from tests.data.arrays import array_of, one_inline_chunk
from tests.kerchunk.reading import read
from virtualstack.codecs.codec import Codec
from virtualstack.conversion import convert
from virtualstack.errors import WriterError
from virtualstack.kerchunk.reader import read_references
from virtualstack.kerchunk.writer import write_kerchunk
from virtualstack.location import Location
from virtualstack.manifests import ABSENT, EMPTY, INLINE, ChunkEncoding, ChunkGrid, ChunkManifest, Fill, ManifestGroup
from virtualstack.manifests.plain import PlainArray, why_not_plain
from virtualstack.storage import MemoryTarget
from virtualstack.testing.strategies import known_arrays, model_read

names = st.text(
    st.characters(codec="utf-8", exclude_categories=["C"], exclude_characters="/\\"), min_size=1, max_size=6
)
names = names.filter(lambda name: name not in (".", "..") and not name.startswith(".z"))


SERIAL = itertools.count()


def forms(group, *, relative=False):
    """Give the group read back from each form that is written, and from each after it has been a vstack."""
    folder = "memory://round-trip"
    for suffix in ("json", "parq"):
        written, back = f"{folder}/refs.{suffix}", f"{folder}/back.{suffix}"
        write_kerchunk(group, written, relative=relative)
        yield read(written)
        store = f"{folder}/{next(SERIAL)}.vstack"
        convert(written, store, relative=relative)
        convert(store, back, relative=relative)
        assert contents(back) == contents(written)
        yield read(back)
    if not relative:
        yield read_references(write_kerchunk(group, None))


def contents(url):
    """Give all that references say, whatever the order of keys and of the values in dictionaries of parquet."""
    folder, _, name = url.rpartition("/")
    target = MemoryTarget(f"{folder}/")
    if name.endswith(".json"):
        return json.loads(target.get(name))
    files = {key.removeprefix(f"{name}/"): target.get(key) for key in target.list(name)}
    metadata = json.loads(files.pop(".zmetadata"))
    return metadata, {key: pq.read_table(pa.BufferReader(data)).to_pylist() for key, data in files.items()}


def as_written(array):
    """References do not tell ABSENT from EMPTY, and know no sizes of sources."""
    entries = array.in_memory().entries.copy()
    entries["location"][entries["location"] == ABSENT] = EMPTY
    locations = tuple(Location(x.url) for x in array.in_memory().locations)
    return replace(array, manifest=replace(array.in_memory(), entries=entries, locations=locations))


@settings(deadline=None, max_examples=examples(60))
@given(known_arrays(), st.booleans())
def test_arrays_round_trip(known, is_masked):
    """Every array that can be written comes back equal, or with holes written out, and has the same values."""
    array = known.array
    if is_masked:
        array = replace(array, attributes={"_FillValue": array.in_memory().fill.value})
    group = ManifestGroup(arrays={"v": array})
    is_fortran = True
    if why_not_plain(array) is None:
        plain = PlainArray.from_array(array)
        order = [axis for axis in plain.order or () if plain.chunks[axis] > 1]
        is_fortran = order in (sorted(order), sorted(order, reverse=True))
    if why_not_plain(array) is not None or not is_fortran:
        try:
            write_kerchunk(group, None, inline_limit=0)
        except WriterError:
            return
        is_plain = False  # but it is in a grid of shorter chunks
    else:
        is_plain = True
    for got in forms(group):
        back = got.arrays["v"]
        back.validate()
        np.testing.assert_array_equal(model_read(back, known.sources), known.values)
        has_holes = array.in_memory().holes.any()
        has_unit_axes = any(1 in x.shape for x in array.in_memory().encodings)
        if is_plain and (is_masked or not has_holes) and not has_unit_axes:
            assert back.equals(as_written(array))
        assert back.dimension_names == array.dimension_names


DTYPES = [
    *("|i1", "|u1", "|b1", "|S3", "<U2", "|V3"),
    *(order + kind for order in "<>" for kind in ("i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")),
    [("a", ">f4"), ("b", "S2")],
    "<M8[ns]",
]


def stored(dtype, *, codes, order=None, fill=None, shape=(4, 3), chunks=(2, 3)):
    dtype = np.dtype(dtype)
    grid = ChunkGrid.regular(shape, chunks)
    encoding = ChunkEncoding.c_order(dtype, chunks)
    if order == "F":
        encoding = ChunkEncoding.c_order(dtype, chunks[::-1])
        encoding = encoding.with_strides(encoding.strides[::-1])
    size = encoding.size * dtype.itemsize
    codes = np.array(codes).reshape(grid.shape)
    native = dtype.newbyteorder("=")
    manifest = ChunkManifest.from_arrays(
        np.zeros(grid.shape, int),
        np.where(codes == EMPTY, -1, size),
        location=Location("s3://bucket/a.nc"),
        encoding=encoding,
        fill=Fill.zero(native) if fill is None else Fill.from_value(fill, native),
        location_codes=codes,
        inline=bytes(range(256))[:size].ljust(size, b"\7"),
    )
    return array_of(manifest, chunks, shape=shape)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_dtype_round_trips(dtype, order):
    """Dtype, byte order, order and inline chunks of every kind come back."""
    array = stored(dtype, codes=[3, INLINE], order=order)
    for got in forms(ManifestGroup(arrays={"v": array})):
        assert got.arrays["v"].equals(array)
        assert got.arrays["v"].in_memory().encodings == array.in_memory().encodings


@pytest.mark.parametrize("fill", [np.nan, np.inf, -0.0, 1e20])
def test_fill_values_round_trip_with_holes(fill):
    """Absent chunks read as the same bytes again."""
    array = replace(stored(">f4", codes=[EMPTY, 3], fill=fill), attributes={"_FillValue": np.float32(fill)})
    for got in forms(ManifestGroup(arrays={"v": array})):
        assert got.arrays["v"].equals(array)
        assert got.arrays["v"].in_memory().fill == array.in_memory().fill
        np.testing.assert_equal(got.arrays["v"].attributes["_FillValue"], np.float32(fill))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
def test_scalars_and_empty_arrays_round_trip(shape):
    """Arrays without axes, and without elements, keep their shape and chunks."""
    array = stored("<i4", codes=[3] if not shape else [], shape=shape, chunks=(1,) * len(shape))
    for got in forms(ManifestGroup(arrays={"v": array})):
        assert got.arrays["v"].equals(array)
        assert got.arrays["v"].grid == array.grid


@settings(deadline=None, max_examples=examples(30))
@given(
    st.recursive(
        st.just(ManifestGroup()),
        lambda children: st.builds(
            lambda names, groups, attributes: ManifestGroup(
                arrays={names[0]: stored("<i4", codes=[3, 3])},
                groups=dict(zip(names[1:], groups, strict=False)),
                attributes=attributes,
            ),
            st.lists(names, min_size=3, max_size=3, unique_by=str.casefold),
            st.lists(children, max_size=2),
            st.dictionaries(st.text(max_size=5).filter(lambda x: x != "coordinates"), st.text(max_size=5), max_size=2),
        ),
        max_leaves=4,
    )
)
def test_groups_round_trip(group):
    """Groups at any depth come back with their names, attributes and arrays."""
    for got in forms(group):
        expected = list(group.walk())
        found = dict(got.walk())
        assert found.keys() == {path for path, _ in expected}
        for path, node in expected:
            assert found[path].attributes == node.attributes
            assert found[path].arrays.keys() == node.arrays.keys()
            for name, array in node.arrays.items():
                assert found[path].arrays[name].equals(array)


def test_relative_locations_come_back():
    """Relative locations are taken from the folder of the references."""
    array = stored("<i4", codes=[3, 3])
    array = array.rename_locations(lambda url: "memory://round-trip/data/a b.nc")
    for got in forms(ManifestGroup(arrays={"v": array}), relative=True):
        assert got.arrays["v"].in_memory().locations == (Location("memory://round-trip/data/a b.nc"),)
        assert got.arrays["v"].equals(array)


def test_strings_round_trip():
    """Inline text of any length comes back with its codec."""
    strings = np.dtypes.StringDType()
    raw = bytes(VLenUTF8().encode(np.array(["a", "bcd", ""], object)))
    array = one_inline_chunk(raw, (3,), strings, codecs=[Codec("vlen-utf8")])
    for got in forms(ManifestGroup(arrays={"v": array})):
        assert got.arrays["v"].equals(array)
        assert got.arrays["v"].dtype == strings
