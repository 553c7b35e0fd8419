"""Damaged chunks and parameters of every filter of HDF5: our error or values, never a crash, a hang or a bomb."""

import re
import resource

import numpy as np
import pytest

from tests.codecs.hdf5_pipelines import filters_of
from tests.codecs.test_hdf5_filters import FILTERS, create, values
from tests.data.processes import run_python
from virtualstack.codecs.bounded import bounded_decoder
from virtualstack.codecs.codec import Codec
from virtualstack.codecs.hdf5.packed_bits import check_words
from virtualstack.codecs.pipeline import CodecError, decode
from virtualstack.errors import MissingDependencyError, UnsupportedFeatureError
from virtualstack.formats.hdf5.filters import codec_for_filter, filter_codecs

MOST_MEMORY = 6 << 30
DAMAGED = {
    **FILTERS,
    "scaleoffset": {"scaleoffset": 3},
    "nbit": {"shuffle": True},  # of which `main` makes nbit
}


def chunk_of(name):
    """Give a stored chunk, its codecs, dtype and shape."""
    dataset = create(values("walk", (20, 40), "<f4"), (16, 30), **DAMAGED[name])
    mask, raw = dataset.id.read_direct_chunk((0, 0))
    assert not mask or name.startswith("szip")
    codecs = filter_codecs(filters_of(dataset.id.get_create_plist()))
    if name == "nbit":
        codecs = (Codec.from_config("virtualstack.nbit", values=[8, 0, 480, 1, 4, 0, 17, 5]),)
    return raw, codecs, dataset.dtype, (16, 30)


def damage(raw, rng):
    data = bytearray(raw)
    if rng.random() < 0.3:
        data = data[: rng.integers(len(data))]
    for _ in range(rng.integers(0, 4)):
        if data:
            where = rng.integers(len(data) if rng.random() < 0.5 else min(len(data), 100))
            data[where] ^= 1 << int(rng.integers(8))
    return bytes(data)


def main(n):
    """Damage every chunk and every parameter ``n`` times."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    rng = np.random.default_rng(0)
    for name in DAMAGED:
        print(name, flush=True)
        raw, codecs, dtype, shape = chunk_of(name)
        n_errors = 0
        for _ in range(n):
            try:
                assert decode(damage(raw, rng), codecs, dtype, shape).shape == shape
            except CodecError:
                n_errors += 1
        assert n_errors or name.startswith("zfp"), name  # in which any bits have a meaning
        for _ in range(n):
            worse = tuple(Codec(codec.name, _change(codec.configuration, rng)) for codec in codecs)
            try:
                assert decode(raw, worse, dtype, shape).shape == shape
            except (CodecError, UnsupportedFeatureError):
                n_errors += 1
    print("done")


def _change(text, rng):
    """Change one number of a configuration, by a little or by much."""
    numbers = list(re.finditer(r"\d+", text))
    if not numbers:
        return text
    number = numbers[rng.integers(len(numbers))]
    new = rng.integers(10) if rng.random() < 0.5 else rng.integers(1 << int(rng.integers(1, 34)))
    return f"{text[: number.start()]}{new}{text[number.end() :]}"


def test_no_damage_crashes_or_takes_memory():
    """In a process of its own with little memory; its last line tells which filter it was at."""
    said = run_python("from tests.codecs.test_hdf5_damage import main; main(150)", timeout=600)
    assert said.endswith("done\n")


@pytest.mark.parametrize("name", DAMAGED)
def test_no_filter_gives_more_than_is_expected(name):
    """A chunk that is larger than the array has no place."""
    raw, codecs, dtype, _ = chunk_of(name)
    with pytest.raises(CodecError):
        decode(raw, codecs, dtype, (16, 29))
    with pytest.raises(CodecError):
        decode(b"", codecs, dtype, (16, 30))


HEADER = [91252346, 4026532310, 3401580544]


@pytest.mark.parametrize(
    ("number", "parameters", "reason"),
    [
        (4, (141, 8, 32), "has 3 parameters, which are too few"),
        (4, (141, 7, 32, 64), "blocks of 7 pixels of 32 bits in lines of 64"),
        (4, (141, 8, 33, 64), "blocks of 8 pixels of 33 bits"),
        (4, (141, 8, 32, 4096), "in lines of 4096"),
        (5, (3, 0, 10), "3 parameters, which do not describe a number"),
        (5, (8, 0, 10, 1, 4, 0, 30, 3), "numbers of 30 bits at bit 3 of 4 bytes in byte order 0"),
        (5, (8, 0, 10, 1, 4, 2, 30, 0), "in byte order 2"),
        (5, (8, 0, 10, 1, 4, 0, 0, 0), "numbers of 0 bits"),
        (5, (8, 0, 10, 7, 4, 0, 0, 0), "do not describe a number"),
        (5, (8, 0, 10, 4, 4, 0, 0, 0), "do not describe a number"),
        (5, (6, 0, 10, 1, 4, 0), "6 parameters, which do not describe a number"),
        (5, (12, 0, 10, 3, 4, 1, 1, 1, 4, 0, 9, 0), "12 parameters, which do not describe a number"),
        (6, (0, 2, 10), "3 parameters; 20 are expected"),
        (6, (2, 33, 10, 0, 4, 1, 0, 0, *(0,) * 12), "integers of 33 bits in 4 bytes"),
        (6, (1, 3, 10, 1, 4, 1, 0, 0, *(0,) * 12), "scaling 1 of numbers of class 1"),
        (6, (2, 0, 10, 0, 3, 1, 0, 0, *(0,) * 12), "numbers of class 0 with 3 bytes"),
        (32001, (2, 2, 4, 1920, 5, 1, 3), "the compressor snappy"),
        (32008, (0, 4, 4, 12, 2), None),
        (32008, (0, 4, 4, 12, 0), "elements of 4 bytes in blocks of 12"),
        (32008, (0, 4, 0, 0, 2), "elements of 0 bytes"),
        (32008, (0, 4, 4, 0, 9), "the compressor 9"),
        (32013, (0, *HEADER[:2]), "without a zfp header"),
        (32013, (0, *(int.from_bytes(word.to_bytes(4, "little")) for word in HEADER)), "without a zfp header"),
        (32013, (0, 91252346, 4026532310, 4293918720), "a zfp header that ends early"),
        (2, (), "does not say how long elements are"),
    ],
)
def test_parameters_that_a_filter_does_not_have(number, parameters, reason):
    """They are told when the file is opened."""
    if reason is None:
        assert codec_for_filter(number, parameters) is not None
        return
    with pytest.raises(ValueError, match=reason):
        codec_for_filter(number, parameters)


@pytest.mark.parametrize("number", [305, 32017, 32024, 32028, 40000])
def test_filters_without_a_codec(number):
    """They have none."""
    with pytest.raises(LookupError):
        codec_for_filter(number, ())


@pytest.mark.parametrize(("number", "parameters"), [(2, (1,)), (32022, (5, 4)), (32023, (3, 4)), (5, (3, 1, 10))])
def test_filters_that_change_nothing(number, parameters):
    """What rounds values when they are written, and what has nothing to do, need no codec."""
    assert codec_for_filter(number, parameters) is None


def test_configurations_that_no_filter_has():
    """References come from strangers too."""
    for codec in (
        Codec.from_config("virtualstack.zfp", header=[1, 2, 3]),
        Codec.from_config("virtualstack.zfp", header=[-1, 2, 3]),
        Codec.from_config("virtualstack.zfp"),
        Codec.from_config("virtualstack.nbit", values="text"),
        Codec.from_config("virtualstack.nbit", values=[8, 0, 10, 1, 4, 0, -30, 3]),
        Codec.from_config("virtualstack.scaleoffset", values=[1e300] * 20),
        Codec.from_config("virtualstack.bitshuffle", elementsize=-4, blocksize=0, compressor="lz4"),
        Codec.from_config(
            "virtualstack.szip", options_mask=1 << 40, pixels_per_block=8, bits_per_pixel=8, pixels_per_scanline=8
        ),
    ):
        with pytest.raises(UnsupportedFeatureError, match=f"'{codec.name}' does not take the configuration"):
            bounded_decoder(codec)


def test_a_missing_package_is_told_with_the_remedy(monkeypatch):
    """Before a chunk is read; what needs no package decodes."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    bounded_decoder.cache_clear()
    for name in ("lzf", "blosc2", "szip nn 4", "bitshuffle", "zfp"):
        codecs = chunk_of(name)[1]
        with pytest.raises(MissingDependencyError, match=r"pip install 'virtualstack\[hdf5\]'"):
            bounded_decoder(codecs[-1])
    for name in ("lz4", "deflate", "scaleoffset", "nbit", "bzip2", "zstd", "blosc"):
        decode(*chunk_of(name))
    bounded_decoder.cache_clear()


@pytest.mark.parametrize("values", [(0, -1), (1 << 32, 5)])
def test_each_parameter_is_a_word_of_32_bits(values):
    check_words((0, (1 << 32) - 1))
    with pytest.raises(ValueError, match="not words of 32 bits"):
        check_words(values)
