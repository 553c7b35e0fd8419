"""Codecs as numcodecs loads them: what is the same in all."""

import pickle

import numcodecs
import numpy as np
import pytest

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
