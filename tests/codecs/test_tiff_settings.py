"""Settings of strips and tiles beside tifffile: compressions by their numbers, and data types of samples."""

import numpy as np
import pytest
import tifffile
from packaging.version import Version

from virtualstack.codecs.codec import Codec
from virtualstack.codecs.tiff.settings import COMPRESSIONS, TIFF, Settings, numcodecs_configs, sample_dtype
from virtualstack.errors import UnsupportedFeatureError

KINDS = {tifffile.SAMPLEFORMAT.UINT: "u", tifffile.SAMPLEFORMAT.INT: "i", tifffile.SAMPLEFORMAT.IEEEFP: "f"}
KINDS |= {tifffile.SAMPLEFORMAT.VOID: "u", tifffile.SAMPLEFORMAT.COMPLEXIEEEFP: "c"}
NOT_DECODED = {
    "OJPEG": "old-style JPEG",
    "JBIG_BW": "JBIG",
    "JBIG_COLOR": "JBIG",
    "NEXT": "NeXT",
    "CCIRLEW": "CCITT RLE with words",
    "THUNDERSCAN": "ThunderScan",
    "IT8CTPAD": "IT8",
    "PIXARFILM": "PixarFilm",
    "PIXARLOG": "PixarLog",
    "JBIG": "JBIG",
    "SGILOG": "SGI LogLuv",
    "SGILOG24": "SGI LogLuv of 24 bits",
    "JETRAW": "Jetraw",
    "EER_V0": "EER",
    "EER_V1": "EER",
    "EER_V2": "EER",
}


@pytest.mark.parametrize("number", COMPRESSIONS)
def test_a_compression_has_the_decoder_of_tifffile(number):
    if number == 34892 and Version(tifffile.__version__) < Version("2026.10"):
        pytest.skip("older versions of tifffile have a decoder of another name")
    decoder = tifffile.TIFF.DECOMPRESSORS[number]
    assert {"identityfunc": "none_decode"}.get(decoder.__name__, decoder.__name__) == f"{COMPRESSIONS[number]}_decode"
    assert Settings(compression=number).obstacle() is None


@pytest.mark.parametrize("name", NOT_DECODED)
def test_a_compression_that_is_not_decoded_has_a_name(name):
    number = int(tifffile.COMPRESSION[name])
    expected = f"compression {number} (tag 259), {NOT_DECODED[name]}, which is not decoded"
    assert Settings(compression=number).obstacle() == expected


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_dtype_that_holds_them(kind):
    """Every size that numpy has is that of numpy; unsigned integers of other sizes get the next larger dtype."""
    for bits in range(130):
        found = sample_dtype(kind, bits)
        if KINDS[kind] == "u" and 1 <= bits <= 32:
            expected = np.min_scalar_type(2**bits - 1)
        elif (KINDS[kind], bits) == ("f", 24):
            expected = np.dtype("f4")
        elif bits in {"u": [64], "i": [8, 16, 32, 64], "f": [16, 32, 64], "c": [64, 128]}[KINDS[kind]]:
            expected = np.dtype(f"{KINDS[kind]}{bits // 8}")
        else:
            expected = None
        assert found == expected, bits
        if found is not None:
            is_of_numpy = bits in (8, 16, 32, 64, 128)
            assert Settings(kind=kind, bits=bits).is_packed is not is_of_numpy


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, r"shape is \(\)"),
        ({"shape": [8, 8]}, r"shape is \(8, 8\)"),
        ({"shape": [8, 8, 0]}, r"shape is \(8, 8, 0\)"),
        ({"shape": [8, 8, True]}, r"shape is"),
        ({"shape": [8, 8, 1], "bits": -1}, "not a whole number"),
        ({"shape": [8, 8, 1], "t4": 1.0}, "not a whole number"),
        ({"shape": [8, 8, 1], "tables": "a"}, "base64"),
        ({"shape": [8, 8, 1], "edge": [1]}, r"edge is \(1,\)"),
        ({"shape": [8, 8, 1], "edge": [0, 4]}, r"edge is \(0, 4\)"),
        ({"shape": [8, 8, 1], "edge": [4, 1.5]}, r"edge is \(4, 1.5\)"),
        ({"shape": [8, 8, 1], "depth": 3}, "depth"),
        ({"shape": 8}, "not iterable"),
    ],
)
def test_a_configuration_that_is_not_valid_is_refused(options, reason):
    with pytest.raises(UnsupportedFeatureError, match=f"codec '{TIFF}' does not take the configuration .*{reason}"):
        Settings.from_options(options)


def test_edges_of_one_row_or_column_are_valid():
    settings, shape = Settings.from_options({"shape": [1, 8, 1], "edge": [1, 1], "t4": 0})
    assert (settings.edge, shape) == ((1, 1), (1, 8, 1))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"compression": 1}, []),
        ({"compression": 5}, [{"id": "imagecodecs_lzw"}]),
        ({"compression": 32773}, [{"id": "imagecodecs_packbits"}]),
        ({"compression": 8}, [{"id": "zlib", "level": 6}]),
        ({"compression": 32946}, [{"id": "zlib", "level": 6}]),
        ({"compression": 34925}, [{"id": "lzma", "format": 1, "check": -1, "preset": None, "filters": None}]),
        ({"compression": 50000}, [{"id": "zstd", "level": 0}]),
        *[({"compression": n}, [{"id": "imagecodecs_jpeg2k"}]) for n in (33003, 33004, 33005, 34712)],
        ({"compression": 34933}, [{"id": "imagecodecs_png"}]),
        *[({"compression": n}, [{"id": "imagecodecs_jpegxl"}]) for n in (50002, 52546)],
        ({"compression": 50001, "shape": [4, 6, 3]}, [{"id": "imagecodecs_webp"}]),
        ({"compression": 50001, "shape": [4, 6, 4]}, None),  # may have no alpha
        ({"compression": 50013}, None),
        ({"compression": 34887}, None),
        ({"compression": 5, "bits": 16, "big": True}, None),
        ({"compression": 5, "big": True}, [{"id": "imagecodecs_lzw"}]),
        ({"compression": 5, "fill_order": 2}, None),
        ({"compression": 5, "bits": 12}, None),
        (
            {"compression": 5, "predictor": 2},
            [{"id": "imagecodecs_delta", "shape": [4, 6, 1], "dtype": "|u1", "axis": -2}, {"id": "imagecodecs_lzw"}],
        ),
        (
            {"predictor": 2, "kind": 2, "bits": 16},
            [{"id": "imagecodecs_delta", "shape": [4, 6, 1], "dtype": "<u2", "axis": -2}],
        ),
        ({"predictor": 2, "kind": 6, "bits": 64}, None),
        (
            {"predictor": 3, "kind": 3, "bits": 32},
            [{"id": "imagecodecs_floatpred", "shape": [4, 6, 1], "dtype": "<f4", "axis": -2}],
        ),
        ({"predictor": 3, "kind": 6, "bits": 64}, None),
    ],
)
def test_codecs_of_numcodecs_are_used_if_they_decode_the_same(options, expected):
    codec = Codec.from_config(TIFF, **{"shape": [4, 6, 1], **options})
    assert numcodecs_configs(codec) == ([{"id": TIFF, **codec.options()}] if expected is None else expected)


@pytest.mark.parametrize(
    ("options", "is_decoded"),
    [
        ({"predictor": 2, "kind": 6, "bits": 64}, True),
        ({"predictor": 2, "kind": 6, "bits": 128}, False),
        ({"predictor": 3, "kind": 6, "bits": 128}, True),
        ({"predictor": 2, "bits": 12}, False),
        ({"predictor": 3, "kind": 5, "bits": 32}, False),
        ({"predictor": 4}, False),
        ({"predictor": 9, "compression": 7}, True),  # a predictor is not used with whole images
        ({"fill_order": 2}, True),
        ({"fill_order": 0}, False),
        ({"kind": 7}, False),
        ({"compression": 3333}, False),
    ],
)
def test_settings_are_decoded_or_have_an_obstacle(options, is_decoded):
    assert (Settings(**options).obstacle() is None) is is_decoded
