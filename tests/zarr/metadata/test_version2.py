from dataclasses import replace

import numpy as np
import pytest

from tests.data.arrays import array_of
from virtualstack.codecs.codec import Codec
from virtualstack.errors import MalformedFileError, WriterError
from virtualstack.manifests import ChunkEncoding, ChunkGrid, ChunkManifest, Fill, ManifestGroup
from virtualstack.zarr.metadata.version2 import make_hierarchy, parse_zarr2

ZARRAY = {"zarr_format": 2, "shape": [4, 6], "chunks": [2, 3], "dtype": "<f4", "order": "C", "compressor": None}


def array(order=None, *, shape=(4, 5, 6), chunks=(2, 5, 3), dtype="f4", codecs=(), **options):
    """One chunk a cell, stored with axes in an order."""
    grid = ChunkGrid.regular(shape, chunks)
    encoding = ChunkEncoding.c_order(dtype, chunks, codecs)
    if order:
        encoding = ChunkEncoding.c_order(dtype, [chunks[axis] for axis in order], codecs)
        encoding = encoding.with_strides(encoding.strides[order.index(axis)] for axis in range(len(chunks)))
    manifest = ChunkManifest.from_arrays(
        np.zeros(grid.shape, int),
        np.full(grid.shape, 9),
        location="file:///a",
        encoding=encoding,
        fill=Fill.zero(dtype),
    )
    return array_of(manifest, chunks, shape=shape, **options)


def zarray_of(x):
    return make_hierarchy(ManifestGroup(arrays={"v": x})).metadata["v/.zarray"]


def test_metadata_of_an_array():
    """A plain array has its shape, chunks, dtype and dimensions in zarr v2 metadata."""
    metadata = make_hierarchy(
        ManifestGroup(arrays={"v": array(attributes={"units": "K"})}, attributes={"a": 1})
    ).metadata
    assert metadata == {
        ".zgroup": {"zarr_format": 2},
        ".zattrs": {"a": 1},
        "v/.zarray": {
            "zarr_format": 2,
            "shape": [4, 5, 6],
            "chunks": [2, 5, 3],
            "dtype": "<f4",
            "order": "C",
            "compressor": None,
            "filters": None,
            "fill_value": None,
            "dimension_separator": ".",
        },
        "v/.zattrs": {"units": "K", "_ARRAY_DIMENSIONS": ["x", "y", "z"]},
    }


@pytest.mark.parametrize(
    ("order", "chunks", "expected"),
    [
        ((2, 1, 0), (2, 5, 3), "F"),
        ((1, 2, 0), (2, 1, 3), "F"),
        ((1, 0, 2), (2, 1, 3), "C"),
    ],
)
def test_reversed_axes_are_fortran_order(order, chunks, expected):
    """Axes stored in reverse are order F; axes of one element may stand anywhere."""
    x = array(order, chunks=chunks)
    assert zarray_of(x)["order"] == expected
    metadata = parse_zarr2(zarray_of(x), {}, where="w")
    back = metadata.array(replace(x.in_memory(), encodings=(metadata.encoding,)), path="v")
    if 1 not in chunks:  # equality is not proved where axes of one element stand elsewhere
        assert back.equals(x)


def test_other_orders_are_refused():
    """zarr v2 has no transpose codec."""
    with pytest.raises(WriterError, match=r"'v' has chunks stored with axes in the order \(1, 0, 2\)") as caught:
        zarray_of(array((1, 0, 2)))
    assert caught.value.feature == "transpose"


def test_strings_without_a_codec_are_refused():
    """They have no plain bytes."""
    with pytest.raises(WriterError, match="'v' has strings, but no codec that makes bytes of them"):
        zarray_of(array(dtype=np.dtypes.StringDType()))


def test_empty_array_of_strings():
    """An array without chunks gets the codec that strings need."""
    strings = np.dtypes.StringDType()
    x = array_of(ChunkManifest.empty((0,), Fill.zero(strings)), (1,))
    assert zarray_of(x)["filters"] == [{"id": "vlen-utf8"}]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".zarray"])
def test_names_that_zarr_cannot_have(name):
    """Names that are no zarr node are refused, of arrays and groups."""
    for group in (ManifestGroup(arrays={name: array()}), ManifestGroup(groups={name: ManifestGroup()})):
        with pytest.raises(WriterError, match="cannot be a name in zarr"):
            make_hierarchy(group)


def test_coordinates_that_no_variable_names():
    """They stand in an attribute of the group, as xarray writes them."""
    x = array(shape=(4,), chunks=(4,))
    arrays = {"a": replace(x, attributes={"coordinates": "lat"}), "lat": x, "lon": x, "x": x}
    group = ManifestGroup(arrays=arrays, coordinates=frozenset({"lat", "lon", "x", "gone"}))
    assert make_hierarchy(group).metadata[".zattrs"] == {"coordinates": "lon"}


def test_fill_value_is_a_missing_value_as_xarray_reads_zarr_v2():
    """A fill value that is not null becomes the attribute, unless the reader is told otherwise."""
    zarray = {**ZARRAY, "fill_value": -1}
    got = parse_zarr2(zarray, {"_ARRAY_DIMENSIONS": ["y", "x"], "_FillValue": 3}, where="w")
    assert got.attributes == {"_FillValue": np.float32(-1)}
    assert got.dimension_names == ("y", "x")
    assert parse_zarr2(zarray, {}, where="w", masks_fill_value=False).attributes == {}
    assert parse_zarr2(ZARRAY, {}, where="w").fill == Fill.zero("f4")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": None}, "'a' has shape None; expected a list of whole numbers from 0"),
        ({"shape": [-1, 2]}, "'a' has shape"),
        ({"shape": [2.5, 2]}, "'a' has shape"),
        ({"chunks": [0, 2]}, "'a' has chunks .* from 1"),
        ({"chunks": [2]}, "expected as many as axes"),
        ({"order": "X"}, "order 'X'"),
        ({"dimension_separator": "-"}, "separator '-'"),
    ],
)
def test_malformed_metadata(change, message):
    """What contradicts zarr v2 is named."""
    with pytest.raises(MalformedFileError, match=message):
        parse_zarr2({**ZARRAY, **change}, {}, where="a")


@pytest.mark.parametrize("names", ["yx", ["y"], ["y", 1]])
def test_malformed_dimension_names(names):
    """Dimension names are one text an axis."""
    with pytest.raises(MalformedFileError, match=r"'a' has _ARRAY_DIMENSIONS .*; expected 2 names"):
        parse_zarr2(ZARRAY, {"_ARRAY_DIMENSIONS": names}, where="a")


def test_codecs_are_in_encoding_order():
    """Filters come before the compressor."""
    zarray = {**ZARRAY, "filters": [{"id": "shuffle", "elementsize": 4}], "compressor": {"id": "zlib", "level": 1}}
    got = parse_zarr2(zarray, {}, where="a").encoding.codecs
    assert got == (Codec.from_config("numcodecs.shuffle", elementsize=4), Codec.from_config("numcodecs.zlib", level=1))
