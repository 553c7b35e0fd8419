"""Codecs that other packages register: values as theirs, or refused, and never more memory than is expected."""

import resource
import struct
import sys
import zlib

import numpy as np
import pytest

from tests.data.make_grib import edited
from tests.data.processes import run_python
from virtualstack.codecs.codec import Codec
from virtualstack.codecs.limits import image_size, lerc_size
from virtualstack.codecs.pipeline import CodecError, decode
from virtualstack.errors import UnsupportedFeatureError

pytest.importorskip("imagecodecs")
registry = pytest.importorskip("imagecodecs.numcodecs")

CLASSES = {
    kind.codec_id: kind
    for kind in vars(registry).values()
    if isinstance(kind, type) and issubclass(kind, registry.Codec) and kind is not registry.Codec
}
REFUSED = {  # what nothing holds, of those that encode something here
    "apng", "avif", "b2nd", "bmp", "chunked", "cms", "exr", "gif", "hcomp", "heif", "htj2k", "jpegls", "jpegxr",
    "jpegxs", "ljpeg", "lzham", "meshopt", "openzl", "pcodec", "pcx", "pglz", "pixarlog", "plio", "qoi", "rcomp",
    "rgbe", "sperr", "sz3", "tga", "tiff", "ultrahdr", "wavpack", "zfp",
}  # fmt: skip
LOSSY = {"jpeg", "bfloat16", "float24", "quantize", "webp", "bitshuffle", "xor"}  # or need a shape
OPTIONS = {
    "packints": {"dtype": "u1", "bitspersample": 8},
    "byteshuffle": {"shape": [64, 64], "dtype": "u1"},
    "floatpred": {"shape": [64, 64], "dtype": "f4"},
    "delta": {"shape": [64, 64], "dtype": "u1"},
    "szip": {"options_mask": 4, "pixels_per_block": 16, "bits_per_pixel": 8, "pixels_per_scanline": 64},
    "webp": {"lossless": True},
}
N = 4096


def made(name, **more):
    return Codec.from_config(f"numcodecs.imagecodecs_{name}", **{**OPTIONS.get(name, {}), **more})


def encoded(name, values):
    """Encode with imagecodecs itself: the bytes and what it decodes them to; ``None`` where it cannot."""
    codec = CLASSES[f"imagecodecs_{name}"]
    try:
        codec = codec.from_config(OPTIONS.get(name, {}))
        raw = bytes(codec.encode(values))
        return raw, np.frombuffer(np.ascontiguousarray(codec.decode(raw)), "u1")
    except (ValueError, TypeError, NotImplementedError, AttributeError, RuntimeError):
        return None


def images():
    ramp = np.arange(N, dtype="u1").reshape(64, 64)
    return [ramp, np.dstack([ramp] * 3), ramp.astype("f4"), ramp.astype("u2")]


def pairs(name):
    """Give values and what `encoded` makes of them."""
    for values in images():
        found = encoded(name, values) or encoded(name, values.tobytes())
        if found is not None:
            yield values, *found


@pytest.mark.parametrize("name", sorted(found.removeprefix("imagecodecs_") for found in CLASSES))
def test_every_codec_of_imagecodecs(name):
    """Gives what imagecodecs gives, or is refused by name."""
    for values, raw, want in pairs(name):
        if name in REFUSED:
            with pytest.raises(UnsupportedFeatureError, match=r"without a limit|if its bytes are damaged"):
                decode(raw, (made(name),), values.dtype, values.shape)
        elif want.size == values.nbytes:  # else another dtype
            got = decode(raw, (made(name),), values.dtype, values.shape)
            np.testing.assert_array_equal(got.reshape(-1).view("u1"), want)
            if name not in LOSSY:
                np.testing.assert_array_equal(got, values)


@pytest.mark.parametrize("dtype", ["u1", "<u2", "<u4"])
@pytest.mark.parametrize("n", [1, 630, 640])
def test_streams_of_libaec_hold_samples_of_all_sizes_in_whole_blocks(dtype, n):
    """And samples that a cut stream has lost are noticed."""
    values = np.random.default_rng(0).integers(0, 30, n).astype(dtype)
    codec = made("aec", bitspersample=8 * values.itemsize, blocksize=64, rsi=2)
    raw = CLASSES["imagecodecs_aec"](**codec.options()).encode(values)
    np.testing.assert_array_equal(decode(raw, (codec,), values.dtype, values.shape), values)
    with pytest.raises(CodecError, match="decodes to"):
        decode(raw, (codec,), values.dtype, (n + 64,))
    if n >= 64:
        with pytest.raises(CodecError, match=r"makes more than|output buffer too small"):
            decode(raw, (codec,), values.dtype, (n - 64,))
        for cut in range(1, len(raw) - 64):
            with pytest.raises(CodecError, match="decodes to"):
                decode(raw[:cut], (codec,), values.dtype, values.shape)


def test_something_was_tried():
    """Most codecs encode one of the images, so that the tests above compare something."""
    names = (name.removeprefix("imagecodecs_") for name in CLASSES)
    tried = {name for name in names if any(want.size == values.nbytes for values, _, want in pairs(name))}
    assert len(tried - REFUSED) >= 30, sorted(tried)


BOMBS = """
import pathlib, re, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from tests.codecs.test_limits import CLASSES, N, OPTIONS, made
from virtualstack.codecs.pipeline import CodecError, decode
from virtualstack.errors import UnsupportedFeatureError

side = 4096
grey = np.zeros((side, side), "u1")
OPTIONS.update(byteshuffle={"shape": [side, side], "dtype": "u1"})
for name, option in {"avif": {"speed": 10}, "jpegxl": {"effort": 1}}.items():  # at their usual ones, seconds an image
    OPTIONS[name] = OPTIONS.get(name, {}) | option
ENCODERS = {"zopfli": "zlib"}  # the same stream in a hundredth of the time

def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) >> 10

def reset():
    pathlib.Path("/proc/self/clear_refs").write_text("5")

for name in sys.argv[2].split():
    kind = CLASSES["imagecodecs_" + ENCODERS.get(name, name)]
    raw = None
    for values in (grey, np.zeros((side // 2, side // 2, 3), "u1"), grey.tobytes(), grey.view("f4")):
        try:
            raw = bytes(kind.from_config(OPTIONS.get(name, {})).encode(values))
            break
        except Exception:
            pass
    if raw is None or len(raw) > 1 << 22:
        print(name, "is not a bomb")
        continue
    for codecs in ((made(name),), (made(name), made("zlib"))):
        stored = raw
        if len(codecs) == 2:
            stored = CLASSES["imagecodecs_zlib"]().encode(raw)
        reset()
        before = peak()
        try:
            decode(stored, codecs, np.dtype("u1"), (64, 64))
            print(name, "DECODED")
        except (CodecError, UnsupportedFeatureError) as error:
            grown = peak() - before - (len(raw) >> 20)
            print(name, "HELD" if grown <= 8 else f"TOOK {grown} MiB", str(error)[:100])
"""


def test_bombs_of_imagecodecs(pytestconfig):
    """16 MiB of zeros where 4 KiB are expected: none takes more memory than a few of its own tables."""
    if sys.platform != "linux":
        pytest.skip("peaks of memory are read from /proc")
    names = " ".join(sorted(name.removeprefix("imagecodecs_") for name in CLASSES))
    lines = run_python(BOMBS, pytestconfig.rootpath, names).splitlines()
    assert sum(" HELD" in line for line in lines) > 50, lines
    assert [line for line in lines if " HELD" not in line and not line.endswith("is not a bomb")] == []


def message(side):
    """Give a GRIB message of ``side`` x ``side`` equal values: 179 bytes."""
    keys = {"Ni": side, "Nj": side, "numberOfDataPoints": side**2, "numberOfValues": side**2, "bitsPerValue": 0}
    return edited("regular_ll_sfc_grib2", keys)


@pytest.mark.parametrize("var", ["values", "latitude"])
def test_the_grib_codec_of_kerchunk(var):
    """Its values, but not of a grid that nobody asked for."""
    pytest.importorskip("kerchunk")
    codec = Codec.from_config("numcodecs.grib", var=var, dtype="float64")
    with pytest.raises(CodecError, match="says that it holds 1250000000 bytes; 800 are expected"):
        decode(message(12500), (codec,), np.dtype("f8"), (10, 10))
    assert np.isfinite(decode(message(10), (codec,), np.dtype("f8"), (10, 10))).all()


@pytest.mark.parametrize("dtype", ["O", "U1000000", "(9,)f8", "no"])
def test_the_grib_codec_of_kerchunk_makes_numbers(dtype):
    """References name the data type, and kerchunk itself is not needed."""
    codec = Codec.from_config("numcodecs.grib", var="values", dtype=dtype)
    with pytest.raises(UnsupportedFeatureError, match="does not take the configuration"):
        decode(message(10), (codec,), np.dtype("f8"), (10, 10))


@pytest.mark.parametrize("name", ["FITSAscii", "FITSVarBintable"])
def test_tables_of_kerchunk(name):
    """Their settings say how long rows are; the reader of FITS reads the tables themselves."""
    with pytest.raises(UnsupportedFeatureError, match="without a limit"):
        decode(b" 1-722", (Codec.from_config(f"numcodecs.{name}"),), np.dtype("i2"), (3,))


@pytest.mark.parametrize("key", [[], {}, ["values"], None, "other"])
def test_keys_of_messages_that_are_none(key):
    """Not even text."""
    codec = Codec.from_config("virtualstack.grib", key=key)
    with pytest.raises(UnsupportedFeatureError, match=r"'virtualstack\.grib' does not take the configuration"):
        decode(b"GRIB", (codec,), np.dtype("f4"), (1,))


@pytest.mark.parametrize("name", ["json2", "msgpack2", "vlen-array", "zfpy"])
def test_those_that_nothing_holds_are_refused(name):
    """By name, before anything is decoded."""
    with pytest.raises(UnsupportedFeatureError, match="without a limit"):
        decode(b'[1,"|i1",[100000000]]', (Codec.from_config(f"numcodecs.{name}", dtype="i4"),), np.dtype("i1"), (4,))


def test_pcodec():
    """Its numbers, and no more of them than are asked for."""
    package = pytest.importorskip("pcodec")
    values = np.random.default_rng(0).normal(size=(30, 20)).astype("f4")
    raw = package.standalone.simple_compress(values.reshape(-1), package.ChunkConfig())
    codec = Codec.from_config("numcodecs.pcodec", level=8)
    np.testing.assert_array_equal(decode(raw, (codec,), values.dtype, values.shape), values)
    bomb = package.standalone.simple_compress(np.zeros(1 << 22), package.ChunkConfig())
    for stored, dtype, shape in ((bomb, "f8", (10,)), (raw, "f4", (30, 21))):
        with pytest.raises(CodecError, match="does not hold"):
            decode(stored, (codec,), np.dtype(dtype), shape)


def j2k(values):
    return bytes(CLASSES["imagecodecs_jpeg2k"]().encode(values))


def test_a_jpeg2000_header_in_another_box():
    """What is decoded is behind the box that says so: a header before it is none."""
    small, large = j2k(np.zeros((8, 8), "u1")), j2k(np.zeros((512, 512), "u1"))
    at = large.index(b"jp2c") - 4
    fake = small[small.index(b"\xff\x4f\xff\x51") :]
    raw = large[:at] + struct.pack(">I4s", len(fake) + 8, b"free") + fake + large[at:]
    with pytest.raises(CodecError, match="the image has 262144 bytes; at most 64 are expected"):
        decode(raw, (made("jpeg2k"),), np.dtype("u1"), (8, 8))
    assert decode(raw, (made("jpeg2k"),), np.dtype("u1"), (512, 512)).shape == (512, 512)
    start = large.index(b"\xff\x4f\xff\x51")
    for cut in range(0, start + 42, 5):
        with pytest.raises(CodecError):
            decode(large[:cut], (made("jpeg2k"),), np.dtype("u1"), (512, 512))


def test_moving_pictures_are_no_arrays():
    """A WebP file does not say in its header how many frames it has."""
    raw = b"RIFF" + struct.pack("<I", 100) + b"WEBPVP8X" + struct.pack("<IB", 10, 2) + bytes(100)
    with pytest.raises(CodecError, match="animated"):
        decode(raw, (made("webp"),), np.dtype("u1"), (4, 32, 32, 3))


@pytest.mark.parametrize("kind", [b"iCCP", b"iTXt", b"zTXt"])
def test_texts_of_a_png_are_not_decompressed(kind):
    """libspng takes memory for all of them, which no value needs: in another process."""
    values = np.arange(64, dtype="u1").reshape(8, 8)
    raw = bytes(CLASSES["imagecodecs_spng"]().encode(values))
    text = zlib.compress(struct.pack(">I", 1 << 20) + bytes((1 << 20) - 4))
    body = kind + (b"a\0\1\0\0\0" if kind == b"iTXt" else b"a\0\0") + text
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    stored = raw[:33] + chunk + raw[33:-12] + chunk + raw[-12:]
    np.testing.assert_array_equal(decode(stored, (made("spng"),), values.dtype, values.shape), values)


def test_threads_are_ours():
    """However many the metadata ask for."""
    values = np.zeros((64, 64), "u1")
    raw = bytes(CLASSES["imagecodecs_jpegxl"]().encode(values))
    np.testing.assert_array_equal(
        decode(raw, (made("jpegxl", numthreads=1 << 20),), values.dtype, values.shape), values
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("aec", {"flags": 16}),  # libaec refuses these, and imagecodecs frees what it has freed before
        ("aec", {"flags": 255}),
        ("aec", {"bitspersample": 0}),
        ("aec", {"blocksize": 1 << 28, "flags": 64}),
        ("aec", {"rsi": 1 << 30}),
        ("szip", {**OPTIONS["szip"], "bits_per_pixel": 0}),
        ("szip", {**OPTIONS["szip"], "pixels_per_scanline": 1 << 30}),
        ("checksum", {"kind": "crc32", "byteorder": "a"}),
        ("delta", {"dtype": "1" * 10000, "shape": [4]}),
    ],
)
def test_settings_that_libraries_do_not_know(name, options):
    """Are refused before one of them is asked."""
    codec = Codec.from_config(f"numcodecs.imagecodecs_{name}", **options)
    with pytest.raises(UnsupportedFeatureError, match="does not take the configuration"):
        decode(b"\0\0\0\0\2", (codec,), np.dtype("u1"), (4,))


def test_settings_that_python_cannot_parse():
    """Of a codec that reads them as Python's literals; what is said of it is no longer than a message should be."""
    pytest.importorskip("kerchunk")
    codec = Codec.from_config("numcodecs.fill_hdf_strings", dtype="[" + "-" * 20000 + "1]")
    with pytest.raises(UnsupportedFeatureError, match="does not take the configuration") as caught:
        decode(b"\0", (codec,), np.dtype("u1"), (1,))
    assert len(str(caught.value)) < 2000


def jpeg(side):
    return bytes(CLASSES["imagecodecs_jpeg"]().encode(np.zeros((side, side), "u1")))


def test_a_jpeg_header_that_libjpeg_does_not_see():
    """It looks for the next marker behind ``FF 00``, and another one takes the last header of several."""
    raw = jpeg(2048)
    at = raw.index(b"\xff\xc0")
    frame, rest = raw[at : at + 13], raw[at + 13 :]
    small = frame[:5] + struct.pack(">HH", 64, 64) + frame[9:]
    block = b"\xff\xe9" + struct.pack(">H", 2 + len(small))
    hidden = raw[:at] + b"\xff\x00" + struct.pack(">H", 2 + len(frame + block)) + frame + block + small + rest
    twice = raw[:at] + small + frame + rest
    for stored in (hidden, twice):
        with pytest.raises(CodecError, match=r"no marker|second frame header"):
            decode(stored, (made("jpeg"),), np.dtype("u1"), (64, 64))


def test_a_jpeg_of_many_scans():
    """Each takes the time of the whole image."""
    raw = jpeg(512)
    scan = raw[raw.index(b"\xff\xda") : -2]
    few = raw[:-2] + 99 * scan[:12] + raw[-2:]
    assert image_size("jpeg", few) == (512, 512, 1)
    with pytest.raises(CodecError, match="has 200 scans"):
        decode(raw[:-2] + 199 * scan[:12] + raw[-2:], (made("jpeg"),), np.dtype("u1"), (512, 512))


def codestream(side, tile, samples, exponents=b"", *, offset=(0, 0), tile_offset=(0, 0)):
    """Write a JPEG 2000 codestream of one empty tile; with exponents of precincts for each resolution.

    Sides, tiles and offsets are one number, or columns and rows.
    """
    levels = max(len(exponents) - 1, 0)
    side, tile = ((x, x) if isinstance(x, int) else x for x in (side, tile))
    size = struct.pack(">H8IH", 0, *side, *offset, *tile, *tile_offset, samples) + bytes([7, 1, 1]) * samples
    style = bytes([bool(exponents), 0, 0, 1, 0, levels, 0, 0, 0, 1]) + exponents
    steps = bytes([0x20]) + bytes([64]) * (3 * levels + 1)
    parts = ((0x51, size), (0x52, style), (0x5C, steps))
    head = b"".join(struct.pack(">BBH", 0xFF, kind, 2 + len(part)) + part for kind, part in parts)
    return b"\xff\x4f" + head + b"\xff\x90" + struct.pack(">HHIBB", 10, 0, 14, 0, 1) + b"\xff\x93\xff\xd9"


@pytest.mark.parametrize(
    ("raw", "shape"),
    [
        (codestream(32, 1, 1024), (32, 32, 1024)),
        (codestream(1 << 13, 1, 1), (1 << 13, 1 << 13)),
        (codestream(1024, 1024, 1, b"\x11" * 6), (1024, 1024)),
        (codestream(1024, 1024, 1, b"\x00" * 6), (1024, 1024)),
    ],
)
def test_a_jpeg2000_image_in_small_pieces(raw, shape):
    """Tiles of many samples, and precincts, take kilobytes each: in the memory of another process."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CodecError):
        decode(raw, (made("jpeg2k"),), np.dtype("u1"), shape)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18  # in KiB


SIZED = np.random.default_rng(2).integers(0, 250, (300, 500, 3), dtype="u1")
OPAQUE = np.dstack([SIZED, np.arange(500, dtype="u1") * np.ones((300, 1), "u1")])


@pytest.mark.parametrize(
    ("name", "raw", "samples"),
    [
        ("webp", registry.imagecodecs.webp_encode(SIZED, lossless=False, level=50), 4),
        ("webp", registry.imagecodecs.webp_encode(OPAQUE, lossless=False, level=50), 4),
        ("webp", registry.imagecodecs.webp_encode(SIZED, lossless=True), 4),
        ("png", registry.imagecodecs.png_encode(SIZED), 4),
        ("jpeg", registry.imagecodecs.jpeg8_encode(SIZED), 3),
        ("jpeg", registry.imagecodecs.jpeg8_encode(SIZED[..., 0].copy()), 1),
    ],
)
def test_images_have_the_size_that_they_were_encoded_with(name, raw, samples):
    """Rows and columns exactly; some formats do not tell the number of samples."""
    assert image_size(name, bytes(raw)) == (300, 500, samples)
    for n in (0, 8, 20):
        with pytest.raises(CodecError, match=r"its header is missing|no marker|no frame header"):
            image_size(name, bytes(raw[:n]))


def test_an_extended_webp_image():
    """RFC 9649, 2.7: a header with sizes of 24 bits, in front of the image."""
    plain = bytes(registry.imagecodecs.webp_encode(SIZED, lossless=True))
    size = (499).to_bytes(3, "little") + (299).to_bytes(3, "little")
    head = b"VP8X" + struct.pack("<I", 10) + bytes(4) + size
    raw = b"RIFF" + struct.pack("<I", 4 + len(head) + len(plain) - 12) + b"WEBP" + head + plain[12:]
    assert registry.imagecodecs.webp_decode(raw).shape[:2] == (300, 500)
    assert image_size("webp", raw) == (300, 500, 4)
    assert image_size("webp", raw[:30]) == (300, 500, 4)
    large = raw[:24] + bytes([1, 2, 3, 4, 5, 6]) + raw[30:]
    assert image_size("webp", large) == (0x060504 + 1, 0x030201 + 1, 4)
    for odd in (raw[:29], b"RIFX" + raw[4:], raw[:8] + b"WEBQ" + raw[12:]):
        with pytest.raises(CodecError, match="its header is missing"):
            image_size("webp", odd)


def test_the_header_of_a_png_image_is_its_first_26_bytes():
    raw = bytes(registry.imagecodecs.png_encode(SIZED))
    assert image_size("png", raw[:26]) == (300, 500, 4)
    for odd in (raw[:25], raw[:12] + b"IDAT" + raw[16:]):
        with pytest.raises(CodecError, match="its header is missing"):
            image_size("png", odd)


def test_markers_of_jpeg_before_its_frame():
    """ITU T.81, B.1.1.3: some have no length; the frame header ends the search, and may be cut."""
    raw = bytes(registry.imagecodecs.jpeg8_encode(SIZED))
    for marker in (b"\xff\x01", b"\xff\xd0", b"\xff\xd7"):
        assert image_size("jpeg", raw[:2] + marker + raw[2:]) == (300, 500, 3)
    at = raw.index(b"\xff\xc0")
    assert image_size("jpeg", raw[: at + 10]) == (300, 500, 3)
    for odd in (raw[: at + 9], raw[:at] + b"\xff\xda" + raw[at:]):
        with pytest.raises(CodecError, match="has no frame header"):
            image_size("jpeg", odd)
    for kind in (0xC4, 0xC8, 0xCC):  # Huffman tables, an extension, arithmetic coding
        table = bytes([0xFF, kind]) + struct.pack(">H", 12) + bytes(10)
        assert image_size("jpeg", raw[:at] + table + raw[at:]) == (300, 500, 3)
    for kind in (0xC1, 0xC2, 0xCF):
        assert image_size("jpeg", raw[: at + 1] + bytes([kind]) + raw[at + 2 :]) == (300, 500, 3)


def test_fill_bytes_before_an_image():
    """ITU T.81, B.1.1.2: any number of bytes 255 may stand before a marker."""
    raw = bytes(registry.imagecodecs.jpeg8_encode(SIZED))
    for n in (1, 2, 3):
        assert image_size("jpeg", raw[:2] + n * b"\xff" + raw[2:]) == (300, 500, 3)


@pytest.mark.parametrize(
    ("version", "expected"), [(2, (16, 24, 1)), (3, (16, 24, 1)), (4, (16, 24, 5)), (6, (16, 24, 5))]
)
def test_lerc_frames_have_samples_since_version_4(version, expected):
    numbers = struct.pack("<iii", 16, 24, 5)
    head = b"Lerc2 " + struct.pack("<i", version) + (b"" if version < 3 else bytes(4)) + numbers + bytes(8)
    assert lerc_size(head) == expected
    assert lerc_size(head[:26]) == expected
    for odd in (head[:25], b"Lerc3" + head[5:]):
        with pytest.raises(CodecError, match="there is no LERC frame: its header is missing"):
            lerc_size(odd)
    at = head.index(numbers)
    none = head[:at] + struct.pack("<iii", 0, 0, 1) + head[at + 12 :]
    assert lerc_size(none) == (0, 0, 1)
    for field in range(2 + (version >= 4)):
        damaged = bytearray(head)
        struct.pack_into("<i", damaged, at + 4 * field, -1)
        with pytest.raises(CodecError, match="the LERC frame says that it has"):
            lerc_size(bytes(damaged))


def test_lerc_images_of_many_bands():
    """Of the first version, each with a header of its own."""
    head = b"CntZImage " + struct.pack("<iiiid", 11, 8, 1024, 1024, 0.5)
    part = struct.pack("<iiif", 1, 1, 1, 0.0) + b"\2"
    raw = head + struct.pack("<iiif", 0, 0, 0, 1.0) + part + 49 * (head + part)
    with pytest.raises(CodecError, match="1024 x 1024 x 50 samples"):
        decode(raw, (made("lerc"),), np.dtype("f4"), (1024, 1024))


def test_blosc_frames_that_say_more_than_there_is():
    """Of which imagecodecs reads beyond the end, or makes room for blocks."""
    values = np.arange(4096, dtype="u2")
    for name, at, message in (("blosc", 12, "bytes long; there are"), ("blosc2", 4, "are expected at most")):
        raw = bytearray(CLASSES[f"imagecodecs_{name}"]().encode(values))
        np.testing.assert_array_equal(decode(bytes(raw), (made(name),), values.dtype, values.shape), values)
        struct.pack_into("<I", raw, at, 1 << 30)
        with pytest.raises(CodecError, match=message):
            decode(bytes(raw), (made(name),), values.dtype, values.shape)


def jpegxl(values, **more):
    return bytes(CLASSES["imagecodecs_jpegxl"].from_config({"effort": 3, **more}).encode(values))


def test_a_jpegxl_frame_that_is_larger_than_its_image():
    """Though a corner is seen, all of it is decoded, in another process."""
    raw = jpegxl(np.zeros((64, 64), "u1"))
    bits = "".join(f"{byte:08b}"[::-1] for byte in raw)
    assert bits[69:70] == "0"  # no crop
    number = "11" + f"{(1 << 29) - 18688:030b}"[::-1]
    crop = "1" + 2 * ("00" + 8 * "0") + 2 * number
    bits = bits[:69] + crop + bits[70:] + 8 * "0"
    stored = bytes(int(bits[i : i + 8][::-1], 2) for i in range(0, len(bits) // 8 * 8, 8))
    tiff = Codec.from_config("virtualstack.tiff", compression=50002, shape=[64, 64, 1])
    for codec in (made("jpegxl"), tiff):
        with pytest.raises(CodecError):
            decode(stored, (codec,), np.dtype("u1"), (64, 64))


@pytest.mark.parametrize(
    ("image", "shape"),
    [
        ((8, 9), (8, 9)), ((8, 9), (1, 8, 9)), ((8, 9), (8, 9, 1)), ((8, 9), (1, 1, 8, 9)), ((8, 9), (1, 8, 9, 1)),
        ((8, 9, 3), (8, 9, 3)), ((8, 9, 3), (1, 8, 9, 3)), ((5, 8, 9), (5, 8, 9)), ((5, 8, 9, 3), (5, 8, 9, 3)),
        ((8, 1), (8, 1)), ((1, 9), (1, 9)),
    ],
)  # fmt: skip
def test_a_jpegxl_image_is_a_chunk_with_or_without_axes_of_one_element(image, shape):
    values = np.arange(np.prod(image), dtype="u1").reshape(image)
    found = decode(jpegxl(values), (made("jpegxl"),), values.dtype, shape)
    np.testing.assert_array_equal(found, values.reshape(shape))


@pytest.mark.parametrize("shape", [(72,), (9, 8), (4, 18), (2, 4, 9)])
def test_a_jpegxl_image_of_another_shape(shape):
    with pytest.raises(CodecError, match="the image has the shape"):
        decode(jpegxl(np.zeros((8, 9), "u1")), (made("jpegxl"),), np.dtype("u1"), shape)


def test_a_jpegxl_image_of_another_dtype():
    """Floats are not read as the integers of their bits."""
    with pytest.raises(CodecError, match="the image has the dtype 'float32'; 'uint32' is expected"):
        decode(jpegxl(np.ones((8, 9), "f4")), (made("jpegxl"),), np.dtype("u4"), (8, 9))


def test_a_jpegxl_of_many_frames():
    """As many as are asked for, in boxes or not; not as many as somebody wrote."""
    values = np.arange(400 * 4096, dtype="u4").astype("u1").reshape(400, 64, 64)
    for raw in (jpegxl(values), jpegxl(values, usecontainer=True)):
        np.testing.assert_array_equal(decode(raw, (made("jpegxl"),), values.dtype, values.shape), values)
        with pytest.raises(CodecError, match="the image has 1638400 bytes; at most 4096 are expected"):
            decode(raw, (made("jpegxl"),), np.dtype("u1"), (64, 64))


def test_jpegxl_images_of_every_kind():
    """Whatever they were written with, patches and filters among them."""
    ramp = np.linspace(0, 1, 300 * 200).reshape(300, 200)
    ramp[:20, :20] = 0
    for dtype in ("u1", "u2", "f4"):
        one = (ramp * 255).astype(dtype) if dtype != "f4" else ramp.astype(dtype)
        for values in (one, np.dstack([one] * 3), np.dstack([one] * 4), np.stack([one] * 3)):
            for more in ({}, {"level": 90}, {"level": 20}, {"level": 80, "effort": 7}, {"usecontainer": True}):
                raw = jpegxl(values, lossless="level" not in more, **more)
                found = decode(raw, (made("jpegxl"),), values.dtype, values.shape)
                if "level" not in more:
                    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 8])
def test_a_jpegxl_that_is_cut(n):
    """Wherever it is."""
    raw = jpegxl(np.zeros((64, 64), "u1"))
    for stored in (raw[:n], bytes(4) + raw[:n], b"\0\0\0\1jxlc" + raw[:n], b"\0\0\0\1jxlc"):
        with pytest.raises(CodecError):
            decode(stored, (made("jpegxl"),), np.dtype("u1"), (64, 64))
