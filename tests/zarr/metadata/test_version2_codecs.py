import numcodecs
import numpy as np
import pytest
import zarr.codecs

from virtualstack.codecs.codec import Codec
from virtualstack.errors import MalformedFileError, WriterError
from virtualstack.zarr.metadata.version2_codecs import codecs_from_zarr2, codecs_to_zarr2

SHUFFLE = Codec.from_config("numcodecs.shuffle", elementsize=4)
ZLIB = Codec.from_config("numcodecs.zlib", level=3)
FLETCHER = Codec.from_config("numcodecs.fletcher32")


@pytest.mark.parametrize(
    ("codecs", "filters", "compressor"),
    [
        ((), None, None),
        ((ZLIB,), None, {"id": "zlib", "level": 3}),
        ((SHUFFLE, ZLIB), [{"id": "shuffle", "elementsize": 4}], {"id": "zlib", "level": 3}),
        (
            (SHUFFLE, ZLIB, FLETCHER),
            [{"id": "shuffle", "elementsize": 4}, {"id": "zlib", "level": 3}, {"id": "fletcher32"}],
            None,
        ),
        ((Codec("vlen-utf8"),), [{"id": "vlen-utf8"}], None),
        ((Codec.from_config("zstd", level=2, checksum=True),), None, {"id": "zstd", "level": 2, "checksum": True}),
        ((Codec.from_config("crc32c"),), [{"id": "crc32c", "location": "end"}], None),
    ],
)
def test_codecs_split_into_filters_and_compressor(codecs, filters, compressor):
    """The last codec is the compressor where it is one, else all are filters."""
    assert codecs_to_zarr2(codecs, variable="v") == (filters, compressor)


@pytest.mark.parametrize("codecs", [(), (ZLIB,), (SHUFFLE, ZLIB), (SHUFFLE, ZLIB, FLETCHER), (Codec("vlen-utf8"),)])
def test_codecs_come_back(codecs):
    """numcodecs' codecs keep name and configuration on the way to zarr v2 and back."""
    assert codecs_from_zarr2(*codecs_to_zarr2(codecs, variable="v"), where="w") == codecs


def test_shuffles_that_numcodecs_does_not_undo_are_refused():
    """As references of others have them; readers give these a codec of ours."""
    with pytest.raises(WriterError, match="'v' was shuffled in elements of 8 bytes after its checksums"):
        codecs_to_zarr2((FLETCHER, Codec.from_config("numcodecs.shuffle", elementsize=8), ZLIB), variable="v")


@pytest.mark.parametrize(
    "codec",
    [
        zarr.codecs.GzipCodec(level=2),
        zarr.codecs.ZstdCodec(level=2, checksum=True),
        zarr.codecs.BloscCodec(cname="lz4", clevel=3, shuffle="bitshuffle", typesize=4),
        zarr.codecs.Crc32cCodec(),
    ],
    ids=lambda codec: type(codec).__name__,
)
def test_numcodecs_decodes_what_zarr_v3_codecs_encode(codec, tmp_path):
    """The zarr v2 form of a zarr v3 codec decodes chunks that zarr wrote."""
    values = np.arange(100, dtype="<i4")
    store = zarr.storage.MemoryStore()
    zarr.create_array(store, data=values, chunks=(100,), compressors=[codec])
    raw = store._store_dict["c/0"].to_bytes()
    filters, compressor = codecs_to_zarr2([Codec.from_json(codec.to_dict())], variable="v")
    config = compressor or filters[0]
    assert np.frombuffer(numcodecs.get_codec(config).decode(raw), "<i4").tolist() == values.tolist()


def test_codec_without_zarr2_form_is_refused_by_name():
    """A codec of zarr v3 alone is refused with the variable and its name."""
    with pytest.raises(WriterError, match="'v' is stored with the codec 'sharding_indexed'") as caught:
        codecs_to_zarr2([Codec("sharding_indexed")], variable="v")
    assert caught.value.feature == "sharding_indexed"


@pytest.mark.parametrize(
    ("filters", "compressor", "message"),
    [
        ("zlib", None, "has filters 'zlib'; expected a list or null"),
        ([{"level": 1}], None, "has the codec .*an object with an 'id'"),
        (None, "zlib", "has the codec 'zlib'; expected an object"),
        (None, {"id": "zlib", "level": float("nan")}, "has the codec .*not JSON compliant"),
    ],
)
def test_malformed_codecs(filters, compressor, message):
    """Codecs that are no objects with an id are named with the file."""
    with pytest.raises(MalformedFileError, match=f"'a' of 'f.json' {message}"):
        codecs_from_zarr2(filters, compressor, where="a' of 'f.json")
