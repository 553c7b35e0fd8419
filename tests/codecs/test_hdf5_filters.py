"""Chunks that HDF5's filters wrote, decoded one by one: each against what the HDF5 library reads."""

import math

import h5py
import hdf5plugin
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.amount import ALL, examples
from tests.codecs.hdf5_pipelines import check_chunks, filters_of, in_memory
from tests.data.hdf5_parts import dataset_of, properties
from virtualstack.codecs.pipeline import CodecError, decode
from virtualstack.formats.hdf5.filters import filter_codecs

SHAPES = {
    (20, 40): [(16, 30), (13, 7)],
    (150,): [(64,), (150,)],
    (3, 4, 5, 6): [(2, 3, 5, 4)],
    (9_000,): [(9_000,)],
}
SZIP = [("nn", 4), ("nn", 16), ("nn", 32), ("ec", 8), ("ec", 32)]
FILTERS = {
    "deflate": {"compression": "gzip"},
    "shuffle": {"shuffle": True},
    "fletcher32": {"fletcher32": True},
    "lzf": {"compression": "lzf"},
    "shuffle, lzf, fletcher32": {"compression": "lzf", "shuffle": True, "fletcher32": True},
    "bzip2": hdf5plugin.BZip2(),
    "zstd": hdf5plugin.Zstd(),
    "blosc": hdf5plugin.Blosc(cname="zstd", shuffle=2),
    "lz4": hdf5plugin.LZ4(),
    "lz4 in blocks": hdf5plugin.LZ4(nbytes=64),
    "bitshuffle": hdf5plugin.Bitshuffle(cname="none"),
    "bitshuffle in blocks": hdf5plugin.Bitshuffle(cname="none", nelems=16),
    "bitshuffle, lz4": hdf5plugin.Bitshuffle(cname="lz4"),
    "bitshuffle, lz4 in blocks": hdf5plugin.Bitshuffle(cname="lz4", nelems=8),
    "bitshuffle, zstd": hdf5plugin.Bitshuffle(cname="zstd"),
    "bitshuffle, zstd in blocks": hdf5plugin.Bitshuffle(cname="zstd", nelems=64),
    "blosc2": hdf5plugin.Blosc2(),
    "blosc2 zstd, bitshuffle": hdf5plugin.Blosc2(cname="zstd", filters=hdf5plugin.Blosc2.BITSHUFFLE),
    "blosc2 stored": hdf5plugin.Blosc2(cname="lz4", clevel=0),
    "blosc2 delta": hdf5plugin.Blosc2(filters=hdf5plugin.Blosc2.DELTA),
    "zfp": hdf5plugin.Zfp(),
    "zfp rate": hdf5plugin.Zfp(rate=8),
    "zfp accuracy": hdf5plugin.Zfp(accuracy=0.01),
    "zfp precision": hdf5plugin.Zfp(precision=12),
    "zfp reversible": hdf5plugin.Zfp(reversible=True),
    "zfp expert": hdf5plugin.Zfp(minbits=1, maxbits=200, maxprec=20, minexp=-50),
    "zfp expert padded": hdf5plugin.Zfp(minbits=100, maxbits=2000, maxprec=20, minexp=-50),
    **{f"szip {how} {n}": {"compression": "szip", "compression_opts": (how, n)} for how, n in SZIP},
}
DTYPES = ["<f4", ">f4", "<f8", "u1", "<i2", "<i4", ">i8"]
ZFP_DTYPES = ["<f4", "<f8", "<i4", "<i8", ">f4"]


def walk(shape, dtype):
    rng = np.random.default_rng(0)
    return np.cumsum(rng.integers(-5, 6, shape).reshape(-1)).reshape(shape).astype(dtype)


def values(kind, shape, dtype):
    if kind == "walk":
        return walk(shape, dtype)
    if kind == "zeros":
        return np.zeros(shape, dtype)
    return (np.random.default_rng(1).random(shape) * 200).astype(dtype)


def create(data, chunks, **options):
    return in_memory(lambda file: file.create_dataset("x", data=data, chunks=chunks, **options))


def check(dataset):
    check_chunks(dataset.id, dataset[...], may_skip=True)


@pytest.mark.parametrize("name", FILTERS)
def test_filters_decode_as_the_library_does(name):
    """For numbers of every size and byte order, chunks of every shape, values that compress and others.

    The values of each dtype and shape are all kinds with ``VIRTUALSTACK_TESTS=all``, and one in turn without.
    """
    kinds = ["walk", "zeros", "random"]
    dtypes = ZFP_DTYPES if name.startswith("zfp") else DTYPES
    layouts = [(shape, chunks) for shape, all_chunks in SHAPES.items() for chunks in all_chunks]
    for i, dtype in enumerate(dtypes):
        for j, (shape, chunks) in enumerate(layouts):
            for kind in kinds if ALL else [kinds[(i + j) % 3]]:
                check(create(values(kind, shape, dtype), chunks, **FILTERS[name]))


@st.composite
def options(draw, dtype, n):
    """Draw a filter with its parameters, for chunks of ``n`` elements."""
    kind = draw(st.sampled_from(["szip", "lzf", "lz4", "bitshuffle", "blosc2"]))
    if kind == "szip" and n >= 2 and dtype.kind in "iuf":
        block = draw(st.integers(1, min(n, 32) // 2)) * 2
        return {"compression": "szip", "compression_opts": (draw(st.sampled_from(["nn", "ec"])), block)}
    if kind == "lz4":
        return hdf5plugin.LZ4(nbytes=draw(st.just(0) | st.integers(16, 2000)))
    if kind == "bitshuffle":
        compressor = draw(st.sampled_from(["none", "lz4", "zstd"]))
        return hdf5plugin.Bitshuffle(cname=compressor, nelems=draw(st.integers(0, 40)) * 8)
    if kind == "blosc2":
        return hdf5plugin.Blosc2(
            cname=draw(st.sampled_from(["lz4", "zstd", "blosclz"])), filters=draw(st.integers(0, 2))
        )
    return {"compression": "lzf", "shuffle": draw(st.booleans()), "fletcher32": draw(st.booleans())}


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_any_dtype_shape_and_parameters(data):
    """What one filter wrote decodes to what the library reads, for elements of any size too."""
    dtype = np.dtype(data.draw(st.sampled_from([*DTYPES, "<u2", ">u4", "<c8", ">c16", "S5", "V7", "<f2"])))
    shape = tuple(data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=3)))
    chunks = tuple(data.draw(st.integers(1, n)) for n in shape)
    how = data.draw(options(dtype, math.prod(chunks)))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    n_bytes = math.prod(shape) * dtype.itemsize
    raw = rng.integers(0, data.draw(st.sampled_from([1, 3, 40, 256])), n_bytes).astype("u1")
    values = np.frombuffer(np.sort(raw).tobytes() if data.draw(st.booleans()) else raw.tobytes(), dtype).reshape(shape)
    check(create(values, chunks, **how))


def test_a_shuffle_behind_a_compressor_need_not_have_whole_elements():
    """The bytes left over stay as they are, at the end."""

    def fill(file):
        dcpl = properties(chunk=((100,),), deflate=(4,), shuffle=())
        dataset_of(file, "x", h5py.h5t.STD_I32LE, (100,), dcpl)[...] = walk(100, "i4")

    dataset = in_memory(fill)
    assert len(dataset.id.read_direct_chunk((0,))[1]) % 4
    check(dataset)


def test_a_damaged_checksum_is_told():
    """Fletcher32 finds a flipped bit."""
    dataset = create(walk((20,), "i4"), (20,), fletcher32=True)
    raw = bytearray(dataset.id.read_direct_chunk((0,))[1])
    raw[7] ^= 4
    with pytest.raises(CodecError, match="checksum"):
        decode(bytes(raw), filter_codecs(filters_of(dataset.id.get_create_plist())), dataset.dtype, (20,))
