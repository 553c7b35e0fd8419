"""Codecs as numcodecs loads them: what is the same in all."""

import asyncio
import json
import pickle

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from tests.data.make_grib import message
from virtualstack.codecs.codec import CodecError

NUMBERS = np.arange(6, dtype="<u4")
CODECS = {
    "shuffle": (
        {"id": "virtualstack.shuffle", "elementsize": 4},
        NUMBERS.view("u1").reshape(6, 4).T.tobytes(),
        NUMBERS,
    ),
    "tiff": ({"id": "virtualstack.tiff", "kind": 1, "bits": 32, "shape": [2, 3, 1]}, NUMBERS.tobytes(), NUMBERS),
    "grib": ({"id": "virtualstack.grib", "row": 6}, message(values=np.arange(24.0)), np.arange(24, dtype="f4")),
}


@pytest.mark.parametrize("name", CODECS)
def test_they_go_to_other_processes(name):
    config, data, expected = CODECS[name]
    codec = numcodecs.get_codec(dict(config))
    again = pickle.loads(pickle.dumps(codec))
    assert again == codec
    assert again.get_config() == {"id": config["id"], **codec.get_config()}
    np.testing.assert_array_equal(np.frombuffer(again.decode(data), expected.dtype), expected)


@pytest.mark.parametrize("name", CODECS)
def test_they_decode_into_what_is_there(name):
    config, data, expected = CODECS[name]
    codec, out = numcodecs.get_codec(dict(config)), np.zeros_like(expected)
    assert codec.decode(data, out) is out
    np.testing.assert_array_equal(out, expected)
    with pytest.raises(CodecError, match=rf"decodes to {out.nbytes} bytes; there is room for {out.nbytes - 4}"):
        codec.decode(data, out[1:])
    with pytest.raises(NotImplementedError, match="only decodes"):
        codec.encode(out)


@pytest.mark.parametrize("dtype", ["u1", "<f8"])
def test_zarr_decodes_large_chunks_that_do_not_compress(dtype):
    """As its own codecs do: what a chunk decodes to is bounded by its array, however large this is."""
    values = np.frombuffer(np.random.default_rng(0).bytes(1 << 20), dtype)
    store = MemoryStore()
    array = zarr.create_array(store, shape=values.shape, chunks=values.shape, dtype=values.dtype, compressors=None)
    metadata = array.metadata.to_dict()
    metadata["codecs"] = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "virtualstack.lz4"}]
    raw = b"".join((values.nbytes.to_bytes(8, "big"), *2 * [values.nbytes.to_bytes(4, "big")], values.tobytes()))
    for key, data in (("zarr.json", json.dumps(metadata).encode()), ("c/0", raw)):
        asyncio.run(store.set(key, default_buffer_prototype().buffer.from_bytes(data)))
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], values)
