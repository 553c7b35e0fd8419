import random

import h5py
import numcodecs
import numpy as np
import pytest
import zarr
from h5py import h5t

from tests.data.hdf5_parts import bfloat16, compound, dataset_of, properties, reduced, text
from virtualstack.codecs.bounded import encoded_size
from virtualstack.codecs.codec import Codec
from virtualstack.codecs.hdf5.elements import ELEMENTS, elements, stored_size
from virtualstack.codecs.hdf5.registration import Elements
from virtualstack.codecs.pipeline import CodecError, decode
from virtualstack.errors import UnsupportedFeatureError
from virtualstack.formats.hdf5.datatypes import element_type, parse_library_datatype

N = 256


def converted(tid, raw: np.ndarray, memory: h5t.TypeID, dtype) -> np.ndarray:
    """Let the HDF5 library convert N elements."""
    buffer = np.zeros(N * max(tid.get_size(), memory.get_size()), np.uint8)
    buffer[: raw.size] = raw
    h5t.convert(tid, memory, N, buffer)
    return np.frombuffer(buffer.tobytes()[: N * memory.get_size()], dtype)


def stored_bytes(rng: random.Random, size: int) -> np.ndarray:
    """Give N elements: random ones, and some of equal bytes, which are zeros, infinities and the like."""
    raw = np.frombuffer(rng.randbytes(N * size), np.uint8).copy()
    special = bytes([0, 255, 128, 127, 1])
    raw[: len(special) * size] = np.repeat(np.frombuffer(special, np.uint8), size)
    return raw


def random_float(rng: random.Random) -> h5t.TypeID | None:
    size = rng.randint(1, 8)
    precision = rng.randint(3, 8 * size)
    offset = rng.randint(0, 8 * size - precision)
    n_mantissa = rng.randint(1, precision - 2)
    n_exponent = rng.randint(1, precision - 1 - n_mantissa)
    parts = [("s", 1), ("e", n_exponent), ("m", n_mantissa)]
    if rng.random() < 0.4:
        rng.shuffle(parts)
    at, places = offset + precision, {}
    for name, n in parts:
        at -= n
        places[name] = at
    bias = (1 << (n_exponent - 1)) - 1 if rng.random() < 0.7 else rng.randint(1, 1 << n_exponent)
    tid = rng.choice([h5t.IEEE_F64LE, h5t.IEEE_F64BE]).copy()
    try:
        tid.set_fields(places["s"], places["e"], n_exponent, places["m"], n_mantissa)
        tid.set_ebias(max(bias, 1))  # h5py cannot ask for a bias of 0
        tid.set_offset(offset)
        tid.set_precision(precision)
        tid.set_size(size)
        return tid if tid.dtype.itemsize <= 8 else None
    except (ValueError, RuntimeError):
        return None


@pytest.mark.parametrize("seed", range(20))
def test_floats_of_any_layout_are_what_the_library_makes_of_them(seed):
    """Parts of any size in any order, with padding, subnormal numbers, infinities and NaN, in both byte orders."""
    rng = random.Random(seed)
    made = [tid for tid in (random_float(rng) for _ in range(60)) if tid is not None]
    assert len(made) > 10
    for tid in made:
        found, raw = element_type(parse_library_datatype(tid.encode())), stored_bytes(rng, tid.get_size())
        assert (found.kind, found.stored) == ("bytes", tid.dtype)
        got = decode(raw.tobytes(), found.codecs, found.stored, (N,))
        expected = converted(tid, raw, h5t.py_create(tid.dtype), tid.dtype)
        np.testing.assert_array_equal(got, expected, err_msg=str(parse_library_datatype(tid.encode())))
        is_number = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got[is_number]), np.signbit(expected[is_number]))


@pytest.mark.parametrize("letter", ["I", "U", "B"])
@pytest.mark.parametrize("order", ["LE", "BE"])
def test_integers_of_any_bits_are_what_the_library_makes_of_them(letter, order):
    """Any number of bits anywhere in up to 8 bytes, the sign extended and the padding left out; bitfields too.

    Into memory of the stored byte order, as h5py reads: into the other one the library (2.0) leaves the padding in.
    """
    rng = random.Random(f"{letter}{order}")
    for _ in range(150):
        size = rng.randint(1, 8)
        precision = rng.randint(1, 8 * size)
        offset = rng.randint(0, 8 * size - precision)
        # HDF5 spec IV.A.2.d, class 0 and 4: byte order and sign, size, bit offset, bit precision
        flags = (order == "BE") | (letter == "I") << 3
        body = bytes([0x14 if letter == "B" else 0x10, flags, 0, 0])
        body += b"".join(n.to_bytes(k, "little") for n, k in ((size, 4), (offset, 2), (precision, 2)))
        tid = h5t.decode(b"\x03\x00" + body)
        found, raw = element_type(tid.encode()), stored_bytes(rng, size)
        got = decode(raw.tobytes(), found.codecs, found.stored, (N,))
        memory = getattr(h5t, f"STD_{letter}{8 * found.stored.itemsize}{order}")
        np.testing.assert_array_equal(got, converted(tid, raw, memory, found.stored))


@pytest.mark.parametrize("padding", [h5t.STR_NULLTERM, h5t.STR_NULLPAD, h5t.STR_SPACEPAD])
@pytest.mark.parametrize("size", [1, 2, 5, 33])
def test_strings_end_where_the_library_ends_them(padding, size):
    """At the first NUL, or before the last spaces; whatever lies behind, and where there is neither."""
    rng = random.Random(size)
    tid = text(size, padding)
    for letters in (b"\0 a", b" a", b"\0b", b"c", b" ", b"\0"):
        raw = np.frombuffer(bytes(rng.choices(letters, k=N * size)), np.uint8)
        found = element_type(tid.encode())
        got = decode(raw.tobytes(), found.codecs, found.stored, (N,))
        expected = converted(tid, raw, h5t.py_create(tid.dtype, logical=True), tid.dtype)
        assert got.tobytes() == expected.tobytes()


def record() -> h5t.TypeID:
    """Make a compound of what has to be converted and what not, with padding."""
    three, narrow = text(3), reduced(h5t.STD_I16BE, 9, 2)
    texts = h5t.array_create(h5t.array_create(three, (2,)), (2,))
    inner = compound(7, ("t", 1, three), ("n", 4, narrow))
    numbers = h5t.array_create(narrow, (4,))
    return compound(
        40, ("plain", 2, h5t.IEEE_F32LE), ("texts", 6, texts), ("inner", 19, inner), ("narrow", 30, numbers)
    )


def test_members_are_converted_where_they_lie():
    """In nested compounds and arrays; all other bytes of the element stay."""
    tid, rng = record(), random.Random(1)
    found = element_type(tid.encode())
    members = found.codecs[0].options()["members"]
    assert [(x["kind"], x["offset"], x.get("count", 1)) for x in members] == [
        ("nullterm", 6, 4),
        ("nullterm", 20, 1),
        ("integer", 23, 1),
        ("integer", 30, 4),
    ]
    raw = np.frombuffer(bytes(rng.choices(b"\0ab\xff\x80", k=N * 40)), np.uint8)
    got = decode(raw.tobytes(), found.codecs, found.stored, (N,))
    expected = converted(tid, raw, h5t.py_create(tid.dtype), tid.dtype)
    for name in ("texts", "narrow"):
        np.testing.assert_array_equal(got[name], expected[name])
    for name in ("t", "n"):
        np.testing.assert_array_equal(got["inner"][name], expected["inner"][name])
    assert got["plain"].tobytes() == raw.reshape(N, 40)[:, 2:6].tobytes()


BRAIN = {"kind": "float", "size": 2, "dtype": "<f4", "bits": [15, 7, 8, 0, 7, 127]}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "'itemsize'"),
        ({"itemsize": 0, "members": []}, "0 is not a number of bits or bytes"),
        ({"itemsize": 2, "members": [{"kind": "nullterm", "size": 3}]}, "bytes 0 to 3 are not in elements of 2"),
        ({"itemsize": 2, "members": [{"kind": "nullterm", "size": 1, "count": 3}]}, "bytes 0 to 3 are not in"),
        ({"itemsize": 2, "members": [{"kind": "nullterm", "size": 1, "offset": -1}]}, "-1 is not a number"),
        ({"itemsize": 2, "members": [{"kind": "x", "size": 2, "dtype": "<f4", "bits": []}]}, "'x' of dtype"),
        ({"itemsize": 2, "members": [BRAIN | {"dtype": "O"}]}, "'float' of dtype 'O' is not known"),
        ({"itemsize": 4, "members": [BRAIN]}, "a member of 2 bytes cannot become '<f4'"),
        ({"itemsize": 2, "members": [BRAIN | {"dtype": "<f2"}]}, "8 and 7 bits in 2 bytes do not fit into 'float16'"),
        ({"itemsize": 2, "members": [BRAIN | {"bits": [16, 7, 8, 0, 7, 127]}]}, "do not fit into"),
        ({"itemsize": 2, "members": [BRAIN | {"bits": [15, 7, 8, 0, 7, 1 << 30]}]}, "do not fit into"),
        ({"itemsize": 2, "members": [BRAIN | {"bits": [15, 7, 1 << 30, 0, 7, 127]}]}, "do not fit into"),
        (
            {"itemsize": 2, "members": [{"kind": "integer", "size": 2, "dtype": "<i2", "bits": [9, 8]}]},
            "8 bits from bit 9",
        ),
        (
            {"itemsize": 2, "members": [{"kind": "integer", "size": 2, "dtype": "<i4", "bits": [0, 8]}]},
            "are not a 'int32'",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, reason):
    """They come from reference files, too: none reaches numpy."""
    with pytest.raises(UnsupportedFeatureError, match=reason):
        elements(options)


def test_bytes_that_are_no_whole_elements_are_an_error():
    """The chunk is damaged."""
    codec = Codec.from_config(ELEMENTS, itemsize=2, members=[BRAIN])
    with pytest.raises(CodecError, match="3 bytes are not a whole number of elements of 2"):
        decode(b"abc", (codec,), np.dtype("<f4"), (1,))
    with pytest.raises(CodecError, match="decodes to 8 bytes"):
        decode(b"abcd", (codec,), np.dtype("<f4"), (1,))


def test_the_stored_size_is_known():
    """So that what comes before it in decoding is bounded exactly."""
    text = {"itemsize": 12, "members": [{"kind": "nullterm", "size": 5, "offset": 2}]}
    assert stored_size(text, 24) == 24
    assert encoded_size(Codec.from_config(ELEMENTS, itemsize=2, members=[BRAIN]), 40, 40) == (20, 20)


def test_strings_are_written_as_they_are_and_numbers_are_not():
    """A chunk full of a fill value can be written for readers of kerchunk references."""
    text = Elements(itemsize=3, members=[{"kind": "nullterm", "size": 3}])
    assert text.decode(text.encode(b"ab\0")).tobytes() == b"ab\0"
    with pytest.raises(NotImplementedError, match="only decodes"):
        Elements(itemsize=2, members=[BRAIN]).encode(b"ab")
    numcodecs.registry.register_codec(Elements)
    assert numcodecs.get_codec(text.get_config()) == text


def test_zarr_itself_reads_them(tmp_path):
    """By the codec's name in metadata of version 3, and of version 2."""
    values = np.array([b"ab", b"", b"cde"], "S3")
    stored = b"ab\0\0xycde"
    member = {"kind": "nullterm", "size": 3}
    numcodecs.registry.register_codec(Elements)
    array = zarr.create_array(tmp_path / "v2", shape=(3,), chunks=(3,), dtype="S3", zarr_format=2, compressors=None)
    path = tmp_path / "v2"
    metadata = (
        (path / ".zarray")
        .read_text()
        .replace(
            '"filters": null',
            f'"filters": [{{"id": "{ELEMENTS}", "itemsize": 3, "members": [{str(member).replace(chr(39), chr(34))}]}}]',
        )
    )
    (path / ".zarray").write_text(metadata)
    (path / "0").write_bytes(stored)
    array = zarr.open_array(path, mode="r")
    assert len(array.metadata.filters) == 1
    np.testing.assert_array_equal(array[:], values)


def test_h5py_agrees_on_files(tmp_path):
    """The whole way: written by the library from memory, read by our codec from the raw bytes of a chunk."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = dataset_of(file, "x", bfloat16(), (N,), properties(chunk=((N,),)))
        dataset[...] = np.linspace(-3, 1e30, N)
        _, raw = dataset.id.read_direct_chunk((0,))
        found = element_type(dataset.id.get_type().encode())
        np.testing.assert_array_equal(decode(raw, found.codecs, found.stored, (N,)), dataset[...])
