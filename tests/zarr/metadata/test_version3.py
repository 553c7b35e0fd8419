import json

import numpy as np
import pytest
import zarr

from virtualstack.codecs.codec import Codec
from virtualstack.errors import MalformedFileError, ManifestError, UnsupportedFeatureError
from virtualstack.manifests import Fill
from virtualstack.zarr.metadata.version3 import parse_zarr3

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification")
METADATA = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [4, 6],
    "data_type": "float32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": "NaN",
    "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "zstd", "configuration": {"level": 1}}],
    "dimension_names": ["y", "x"],
    "attributes": {"units": "K", "_FillValue": "AAAAAAAA+H8="},
}


def test_metadata_of_an_array():
    """Byte order, codecs, keys, dimensions and xarray's _FillValue are read."""
    got = parse_zarr3(METADATA, where="w")
    assert (got.shape, got.chunks, got.encoding.dtype) == ((4, 6), (2, 3), np.dtype(">f4"))
    assert got.encoding.codecs == (Codec.from_config("zstd", level=1),)
    assert (got.key_prefix, got.separator, got.dimension_names) == ("c/", "/", ("y", "x"))
    assert got.fill == Fill.from_value(np.nan, "f4")
    assert np.isnan(got.attributes["_FillValue"])


def test_transpose_and_v2_keys():
    """A leading transpose is the order of stored axes; keys may be those of zarr v2."""
    codecs = [{"name": "transpose", "configuration": {"order": [1, 0]}}, "bytes"]
    got = parse_zarr3({**METADATA, "codecs": codecs, "chunk_key_encoding": "v2", "dimension_names": None}, where="w")
    assert (got.encoding.shape, got.encoding.strides) == ((3, 2), (1, 2))
    assert (got.key_prefix, got.separator, got.dimension_names) == ("", ".", None)


@pytest.mark.parametrize("dtype", ["i1", "u8", "f2", "c8", "bool", "S3", "U2", "M8[ns]", "V3", "T"])
def test_data_types_that_zarr_writes(dtype, tmp_path):
    """Metadata that zarr writes has the dtype and fill value that zarr reads."""
    dtype = np.dtypes.StringDType() if dtype == "T" else np.dtype(dtype)
    array = zarr.create_array(tmp_path / "a.zarr", shape=(3,), dtype=dtype)
    got = parse_zarr3(json.loads((tmp_path / "a.zarr/zarr.json").read_text()), where="w")
    assert got.fill == Fill.from_value(array.fill_value, dtype)


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [("float64", "NaN", np.nan), ("complex64", ["AAAAAAAA8D8=", "AAAAAAAAAEA="], 1 + 2j), ("int8", -1, -1)],
)
def test_fill_value_attributes(dtype, value, expected):
    """xarray writes the attribute as base64 of doubles, except for integers."""
    fill = {"int8": 0, "complex64": [0.0, 0.0]}.get(dtype, 0.0)
    got = parse_zarr3(
        {**METADATA, "data_type": dtype, "fill_value": fill, "attributes": {"_FillValue": value}}, where="w"
    )
    np.testing.assert_equal(got.attributes["_FillValue"], expected)


def test_fill_value_attribute_of_text():
    """xarray writes the attribute of fixed text as base64."""
    data = {"name": "null_terminated_bytes", "configuration": {"length_bytes": 2}}
    got = parse_zarr3(
        {**METADATA, "data_type": data, "fill_value": "", "attributes": {"_FillValue": "YWI="}}, where="w"
    )
    assert got.attributes["_FillValue"] == b"ab"


@pytest.mark.parametrize(
    ("change", "feature"),
    [
        ({"chunk_grid": {"name": "rectilinear"}}, "chunk grid 'rectilinear'"),
        ({"codecs": [{"name": "sharding_indexed"}]}, "codec 'sharding_indexed'"),
        ({"chunk_key_encoding": "other"}, "chunk key encoding 'other'"),
        ({"data_type": "variable_length_bytes", "fill_value": ""}, "data type 'variable_length_bytes'"),
        ({"storage_transformers": [{"name": "x"}]}, "storage transformers"),
        ({"offset": {"name": "x", "must_understand": True}}, "member 'offset'"),
        ({"offset": 1}, "member 'offset'"),
    ],
)
def test_features_without_a_form(change, feature):
    """Legal features that references do not express are refused by name."""
    with pytest.raises(UnsupportedFeatureError, match=f"'w' has the {feature}"):
        parse_zarr3({**METADATA, **change}, where="w")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": 4}, "has shape 4"),
        ({"chunk_grid": None}, "has chunk_grid None"),
        ({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}}}, "expected as many as axes"),
        ({"data_type": "float33"}, "has the data type and fill value .'float33'"),
        ({"data_type": None}, "has the data type and fill value .None"),
        ({"fill_value": "x"}, "fill value .'float32', 'x'"),
        ({"data_type": "int16", "fill_value": 2**62}, "4611686018427387904.; expected"),
        ({"codecs": "bytes"}, "has codecs 'bytes'"),
        ({"codecs": [{}]}, "has codec {}"),
        ({"codecs": [{"name": "transpose", "configuration": {"order": [0, 0]}}]}, "expected a permutation of 2 axes"),
        ({"codecs": [{"name": "bytes", "configuration": {"endian": "native"}}]}, "has endian 'native'"),
        ({"zarr_format": 4}, "has zarr_format 4"),
        ({"attributes": [1]}, r"has attributes \[1\]"),
        ({"dimension_names": ["x"]}, "expected 2 names, or null"),
        ({"attributes": {"_FillValue": "?"}}, "has _FillValue '.'; expected base64 of a double"),
    ],
)
def test_malformed_metadata(change, message):
    """What contradicts zarr v3 is named."""
    with pytest.raises(MalformedFileError, match=message):
        parse_zarr3({**METADATA, **change}, where="w")


def test_members_that_need_not_be_understood():
    """Any member may stand there that says so, and dimensions may have no names."""
    got = parse_zarr3({**METADATA, "more": {"must_understand": False}, "dimension_names": ["y", None]}, where="w")
    assert got.dimension_names == ("y", None)


def test_numbers_of_codecs_that_have_no_text():
    """JSON may say 1e400, which is an infinity."""
    codecs = [{"name": "bytes"}, {"name": "zstd", "configuration": {"level": float("inf")}}]
    with pytest.raises(ManifestError, match=r"codec '.*zstd' has the configuration .*, which is not JSON"):
        parse_zarr3({**METADATA, "codecs": codecs}, where="w")
