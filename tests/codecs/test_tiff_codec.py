"""Strips and tiles beside imagecodecs: edges that writers leave out, orders of bits and bytes, and damage."""

import lzma
import sys

import numpy as np
import pytest
import tifffile

from tests.data.make_tiff import GRAY, gdal
from virtualstack.codecs.codec import CodecError
from virtualstack.codecs.tiff.codec import tiff_decoder
from virtualstack.errors import MissingDependencyError, UnsupportedFeatureError

imagecodecs = pytest.importorskip("imagecodecs")

RNG = np.random.default_rng(3)
NUMBERS = RNG.integers(0, 250, (16, 24), dtype="u1")
PIXELS = np.dstack([NUMBERS, NUMBERS[::-1], NUMBERS[:, ::-1]])


def decoded(raw, shape, **options):
    return tiff_decoder({"shape": list(shape), **options})(raw)


def padded(values, shape):
    """The values, and zeros in the rows and columns outside of the image."""
    whole = np.zeros(shape, values.dtype)
    whole[: values.shape[0], : values.shape[1]] = values.reshape(*values.shape[:2], -1)
    return whole


ENCODED = {
    "none": (1, lambda x: x.tobytes()),
    "lzw": (5, lambda x: imagecodecs.lzw_encode(x.tobytes())),
    "jpeg2k": (34712, lambda x: imagecodecs.jpeg2k_encode(x, level=0)),
    "png": (34933, imagecodecs.png_encode),
    "jpegxl": (50002, lambda x: imagecodecs.jpegxl_encode(x, lossless=True)),
    "jpegxr": (34934, lambda x: imagecodecs.jpegxr_encode(x, level=1.0)),
    "webp": (50001, lambda x: imagecodecs.webp_encode(x, lossless=True)),
}


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("size", [(10, 24), (16, 20), (10, 20)])
def test_writers_may_leave_out_what_is_outside_of_the_image(name, size):
    """Fewer rows, fewer columns, or both; never of another size."""
    compression, encode = ENCODED[name]
    values = np.ascontiguousarray(PIXELS[: size[0], : size[1]])
    options = {"compression": compression, "photometric": 2}
    found = decoded(encode(values), (16, 24, 3), edge=[10, 20], **options)
    np.testing.assert_array_equal(found, padded(values, (16, 24, 3)))
    for odd in ({}, {"edge": [9, 19]}):
        with pytest.raises((CodecError, ValueError)):
            decoded(encode(values), (16, 24, 3), **options, **odd)


def test_jpeg_xr_images_that_make_jxrlib_crash_are_damaged():
    """The crash is that of a child process."""
    values = np.add.outer(np.arange(64), np.arange(64)).astype("u1")
    data = bytearray(imagecodecs.jpegxr_encode(values, level=1.0))
    options = {"compression": 34934, "photometric": 1}
    np.testing.assert_array_equal(decoded(bytes(data), (64, 64, 1), **options)[..., 0], values)
    data[145] = 37
    with pytest.raises(CodecError, match="its decoder crashed"):
        decoded(bytes(data), (64, 64, 1), **options)


@pytest.mark.parametrize("name", ["jpeg2k", "png", "webp"])
@pytest.mark.parametrize("is_turned", [False, True])
def test_a_last_strip_may_be_written_as_if_it_were_whole(name, is_turned):
    """Of more columns than rows, or of more rows."""
    compression, encode = ENCODED[name]
    pixels = np.ascontiguousarray(PIXELS.swapaxes(0, 1)) if is_turned else PIXELS
    found = decoded(encode(pixels), (10, pixels.shape[1], 3), compression=compression, photometric=2)
    np.testing.assert_array_equal(found, pixels[:10])


def test_a_strip_may_have_4096_rows_more():
    """And as many as another strip: writers repeat the height of the image in each."""
    values = np.zeros((4128, 24), "u1")
    values[:16] = NUMBERS
    found = decoded(imagecodecs.png_encode(values), (16, 24, 1), compression=34933)
    np.testing.assert_array_equal(found[..., 0], NUMBERS)
    five = np.dstack([PIXELS, NUMBERS, NUMBERS])
    raw = imagecodecs.jpeg2k_encode(five, level=0)
    np.testing.assert_array_equal(decoded(raw, five.shape, compression=34712), five)
    with pytest.raises(CodecError, match=r"samples \(16, 24, 5\); \(16, 24, 4\) are expected"):
        decoded(raw, (16, 24, 4), compression=34712)


def test_samples_that_fit_two_edges_are_damaged():
    with pytest.raises(CodecError, match="has 192 samples"):
        decoded(bytes(192), (16, 16, 1), edge=[12, 12])
    with pytest.raises(CodecError, match=r"the strip or tile has 100 samples; \(16, 24, 1\) are 384"):
        decoded(bytes(100), (16, 24, 1), edge=[10, 20])


def test_bytes_after_the_samples_are_left_out():
    np.testing.assert_array_equal(decoded(NUMBERS.tobytes() + b"more", (16, 24, 1))[..., 0], NUMBERS)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("fill_order", [1, 2])
def test_bits_may_be_reversed(order, fill_order):
    values = RNG.integers(0, 65536, (16, 24)).astype(f"{order}u2")
    raw = values.tobytes() if fill_order == 1 else imagecodecs.bitorder_encode(values.tobytes())
    found = decoded(raw, (16, 24, 1), bits=16, big=order == ">", fill_order=fill_order)
    np.testing.assert_array_equal(found[..., 0], values)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("compression", [1, 8])
def test_floats_of_24_bits(order, compression):
    values = RNG.normal(size=(16, 24)).astype("f4")
    raw = imagecodecs.float24_encode(values, byteorder=order)
    expected = imagecodecs.float24_decode(raw, byteorder=order).reshape(16, 24)
    raw = imagecodecs.deflate_encode(raw) if compression == 8 else raw
    found = decoded(raw, (16, 24, 1), kind=3, bits=24, big=order == ">", compression=compression)
    np.testing.assert_array_equal(found[..., 0], expected)
    np.testing.assert_allclose(expected, values, rtol=1e-4)


@pytest.mark.parametrize("form", [lzma.FORMAT_XZ, lzma.FORMAT_ALONE])
def test_lzma_is_decoded_up_to_the_expected_size(form):
    raw = lzma.compress(NUMBERS.tobytes() + bytes(1 << 20), form)
    np.testing.assert_array_equal(decoded(raw, (16, 24, 1), compression=34925)[..., 0], NUMBERS)


@pytest.mark.parametrize(("n_bytes", "is_allowed"), [(1 << 20, True), (3 << 29, False)])
def test_lzma_takes_at_most_a_gibibyte(n_bytes, is_allowed):
    """The header says how much memory a decoder needs, whatever comes back."""
    raw = bytearray(lzma.compress(NUMBERS.tobytes(), lzma.FORMAT_ALONE))
    raw[1:5] = n_bytes.to_bytes(4, "little")
    if is_allowed:
        np.testing.assert_array_equal(decoded(bytes(raw), (16, 24, 1), compression=34925)[..., 0], NUMBERS)
    else:
        with pytest.raises(lzma.LZMAError, match="Memory usage limit"):
            decoded(bytes(raw), (16, 24, 1), compression=34925)


@pytest.mark.parametrize("name", ["CCITTFAX4", "CCITTFAX3", "CCITTRLE"])
@pytest.mark.parametrize("fill_order", [1, 2])
def test_fax_of_any_order_of_bits(name, fill_order, tmp_path):
    """As GDAL writes it, and with the bits of each byte reversed."""
    values = (GRAY > 100).astype("u1")
    path = gdal(values, nbits=1, compress=name, blockysize=100)(tmp_path / "a.tif")
    with tifffile.TiffFile(path) as file:
        page = file.pages[0]
        raw = path.read_bytes()[page.dataoffsets[0] :][: page.databytecounts[0]]
        options = {"compression": int(page.compression), "t4": page.tags[292].value if 292 in page.tags else 0}
    raw = raw if fill_order == 1 else imagecodecs.bitorder_encode(raw)
    found = decoded(raw, (100, 130, 1), bits=1, fill_order=fill_order, **options)
    np.testing.assert_array_equal(found[..., 0], values)


@pytest.mark.parametrize("has_alpha", [False, True])
def test_webp_of_four_samples_may_have_no_alpha(has_alpha):
    """A tile that is opaque everywhere is written without."""
    opacity = np.where(NUMBERS > 100, 255, 7).astype("u1") if has_alpha else np.full_like(NUMBERS, 255)
    values = np.dstack([PIXELS, opacity])
    raw = imagecodecs.webp_encode(values if has_alpha else PIXELS, lossless=True)
    found = decoded(raw, (16, 24, 4), compression=50001)
    np.testing.assert_array_equal(found, imagecodecs.webp_decode(raw, hasalpha=True))
    np.testing.assert_array_equal(found[..., 3], opacity)


@pytest.mark.parametrize("is_jfif", [False, True])
@pytest.mark.parametrize("compression", [7, 33007, 34892])
@pytest.mark.parametrize(
    ("samples", "options", "photometric"),
    [
        *((1, {}, x) for x in (0, 1, 3)),
        *((3, {}, x) for x in (0, 1, 2, 6, 8, 9, 10)),
        *((4, {}, x) for x in (2, 5)),
        *((4, {"extra": 1}, x) for x in (2, 5, 6)),
        *((1, {"planar": 2}, x) for x in (1, 2, 5, 6)),
    ],
)
def test_colours_of_jpeg_are_those_of_tifffile(samples, options, photometric, compression, is_jfif):
    """But three bands without colours stay as they are: libjpeg takes them for YCbCr."""
    values = np.dstack([PIXELS, 255 - NUMBERS])[..., :samples].squeeze().copy()
    space = {3: {"colorspace": "rgb", "outcolorspace": "ycbcr" if is_jfif or photometric == 6 else "rgb"}}
    raw = imagecodecs.jpeg8_encode(values, level=95, **space.get(samples, {}))
    planar, extra = options.get("planar", 1), (0,) * options.get("extra", 0)
    own, out = tifffile.tifffile.jpeg_decode_colorspace(photometric, planar, extra, raw[6:10] == b"JFIF")
    if samples == 3 and photometric in (0, 1):
        own = out = "rgb"

    def found(decode):
        try:
            return decode()
        except (ValueError, RuntimeError) as error:
            return type(error)

    expected = found(lambda: imagecodecs.jpeg8_decode(raw, colorspace=own, outcolorspace=out))
    got = found(
        lambda: decoded(raw, (16, 24, samples), compression=compression, photometric=photometric, **options).squeeze()
    )
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "f8"])
@pytest.mark.parametrize(
    ("planar", "has_masks"), [(False, "no"), (False, "one"), (True, "no"), (True, "one"), (True, "each")]
)
@pytest.mark.parametrize("n_bands", [1, 2, 3])
@pytest.mark.parametrize("outer", [None, "zstd", "deflate"])
def test_bands_and_masks_of_lerc(dtype, planar, has_masks, n_bands, outer):
    """A mask is NaN in floats, and opacity where a sample more is expected; integers keep what is masked.

    Bands lie side by side with one mask, or one after another with one mask or one for each.
    """
    bands = [RNG.integers(0, 250, (16, 24)).astype(dtype) for _ in range(n_bands)]
    masks = [RNG.random((16, 24)) < 0.7 for _ in range({"no": 0, "one": 1, "each": n_bands}[has_masks])]
    stack = np.stack if planar else np.dstack
    values = stack(bands) if n_bands > 1 else bands[0]
    mask = np.stack(masks).squeeze() if masks else None
    raw = imagecodecs.lerc_encode(values, masks=mask, planar=planar and n_bands > 1)
    if outer is not None:
        raw = getattr(imagecodecs, f"{outer}_encode")(raw)
    kind, bits = 3 if dtype[0] == "f" else 1, 8 * np.dtype(dtype).itemsize
    found = decoded(raw, (16, 24, n_bands), compression=34887, kind=kind, bits=bits)
    is_valid = np.dstack(masks or [np.ones((16, 24), bool)])
    expected = np.dstack(bands)
    np.testing.assert_array_equal(np.where(is_valid, found, 0), np.where(is_valid, expected, 0))
    if kind == 3:
        assert np.isnan(found[~np.broadcast_to(is_valid, found.shape)]).all()
    if dtype == "u1" and len(masks) < 2:
        found = decoded(raw, (16, 24, n_bands + 1), compression=34887, kind=kind, bits=bits)
        np.testing.assert_array_equal(found[..., -1], np.where(is_valid[..., 0], 255, 0))
        np.testing.assert_array_equal(np.where(is_valid, found[..., :-1], 0), np.where(is_valid, expected, 0))


def test_lerc_says_how_much_it_holds():
    """A frame of more rows, columns or bands than the chunk is not decoded."""
    values = RNG.normal(size=(16, 24)).astype("f4")
    options = {"compression": 34887, "kind": 3, "bits": 32}
    np.testing.assert_array_equal(decoded(imagecodecs.lerc_encode(values), (16, 24, 1), **options)[..., 0], values)
    large = imagecodecs.lerc_encode(np.zeros((160, 240), "f4"))
    two = imagecodecs.lerc_encode(np.stack([values, values]), planar=True)
    wide = imagecodecs.lerc_encode(values.astype("f8"))
    for raw, message in (
        (large, "there are 1 LERC frames of 160 x 240 x 1 samples; 1536 bytes are expected"),
        (two, "there are 2 LERC frames"),
        (wide, "the LERC frame holds 3072 bytes; 1536 are expected"),
    ):
        with pytest.raises(CodecError, match=message):
            decoded(raw, (16, 24, 1), **options)


@pytest.mark.parametrize(
    ("raw", "options", "message"),
    [
        (b"", {}, "there is no strip or tile: it has no bytes"),
        (imagecodecs.png_encode(NUMBERS.astype("u2")), {"compression": 34933}, "has samples of 'uint16'; 'uint8' are"),
        (imagecodecs.png_encode(PIXELS), {"compression": 34933}, r"samples \(16, 24, 3\); \(16, 24, 1\) are expected"),
        (
            imagecodecs.jpeg2k_encode(np.zeros((16, 24, 5), "u1")),
            {"compression": 34712},
            r"samples \(16, 24, 5\); \(16, 24, 1\) are expected",
        ),
        (
            imagecodecs.png_encode(np.zeros((16, 25), "u1")),
            {"compression": 34933},
            r"says that it has \(16, 25\) rows and columns; \(16, 24\) are expected",
        ),
        (
            imagecodecs.png_encode(np.zeros((4129, 24), "u1")),
            {"compression": 34933},
            r"says that it has \(4129, 24\) rows and columns",
        ),
        (
            imagecodecs.png_encode(np.zeros((4128, 23), "u1")),
            {"compression": 34933},
            r"the png image has rows, columns and samples \(4128, 23, 1\)",
        ),
    ],
)
def test_what_is_not_the_chunk_is_damaged(raw, options, message):
    with pytest.raises(CodecError, match=message):
        decoded(raw, (16, 24, 1), **options)


def test_a_chunk_of_another_size_is_refused():
    with pytest.raises(UnsupportedFeatureError, match=r"makes \(16, 24, 1\); expected chunks of \(16, 25\)"):
        tiff_decoder({"shape": [16, 24, 1]}, (16, 25))
    assert tiff_decoder({"shape": [16, 24, 1]}, (1, 16, 24))(NUMBERS.tobytes()).shape == (1, 16, 24)


def test_imagecodecs_may_be_missing(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"virtualstack\[tiff\]"):
        tiff_decoder({"shape": [16, 24, 1]})


def test_a_build_without_a_compression_is_named(monkeypatch):
    from virtualstack.codecs.tiff import codec

    codec.imagecodecs.cache_clear()
    monkeypatch.setattr(sys.modules["imagecodecs"].LERC, "available", False)
    with pytest.raises(UnsupportedFeatureError, match="this build of imagecodecs has no lerc"):
        codec.imagecodecs(34887)
    codec.imagecodecs.cache_clear()
