"""Files whose chunks went through filters, from one end to the other: every way to read them gives the same values."""

import json
import zlib

import h5py
import hdf5plugin
import numpy as np
import pytest
import xarray as xr
import zarr
from h5py import h5t

import virtualstack as vs
from tests.corpus.report import CORPUS, judge
from tests.data.hdf5_parts import dataset_of, properties, reduced
from tests.data.processes import printed_values, run_python
from virtualstack.errors import UnsupportedFeatureError
from virtualstack.zarr.metadata.version2_codecs import codecs_from_zarr2, codecs_to_zarr2

SZIP = {"compression": "szip", "compression_opts": ("nn", 16)}
FILTERS = {
    "lzf": {"compression": "lzf", "shuffle": True, "fletcher32": True},
    "lz4": hdf5plugin.LZ4(),
    "bitshuffle": hdf5plugin.Bitshuffle(cname="none"),
    "bitshuffle_lz4": hdf5plugin.Bitshuffle(),
    "bitshuffle_zstd": hdf5plugin.Bitshuffle(cname="zstd"),
    "blosc2": hdf5plugin.Blosc2(),
    "zfp": hdf5plugin.Zfp(reversible=True),
    "zfp_expert": hdf5plugin.Zfp(minbits=1, maxbits=200, maxprec=20, minexp=-50),
    "bzip2": hdf5plugin.BZip2(),
    "zstd": hdf5plugin.Zstd(),
    "blosc": hdf5plugin.Blosc(),
    "szip": SZIP,
    "scaleoffset": {"scaleoffset": 3, "shuffle": True, "compression": "gzip"},
}
NUMCODECS_NAMES = {
    "lzf": ["shuffle", "virtualstack.lzf", "fletcher32"],
    "lz4": ["imagecodecs_lz4h5"],
    "bitshuffle": ["virtualstack.bitshuffle"],
    "blosc2": ["virtualstack.blosc2"],
    "zfp": ["virtualstack.zfp"],
    "bzip2": ["bz2"],
    "zstd": ["zstd"],
    "blosc": ["blosc"],
    "szip": ["imagecodecs_szip"],
    "scaleoffset": ["virtualstack.scaleoffset", "virtualstack.shuffle", "zlib"],
    "nbit": ["virtualstack.elements", "virtualstack.nbit"],
}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A file with a dataset for each filter, and what the library reads from it."""
    path = tmp_path_factory.mktemp("filters") / "x.h5"
    data = np.cumsum(np.random.default_rng(0).integers(-5, 6, (48, 60)), 1).astype("f4") / 8
    with h5py.File(path, "w") as new:
        for name, options in FILTERS.items():
            new.create_dataset(name, data=data, chunks=(16, 30), **options)
        dcpl = properties(chunk=((16, 30),), filter=(5,))
        dataset_of(new, "nbit", reduced(h5t.STD_I32BE, 20, 3), data.shape, dcpl)[...] = data
    with h5py.File(path) as old:
        return path, {name: old[name][...] for name in old}


@pytest.fixture(scope="module")
def references(file, tmp_path_factory):
    path = tmp_path_factory.mktemp("references") / "x.json"
    vs.open_virtual_dataset(str(file[0]), loadable_variables=[]).virtual.to_kerchunk(str(path))
    return path


def check(dataset, expected):
    assert set(dataset) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(np.asarray(dataset[name]), values, strict=values.dtype.isnative, err_msg=name)


def test_every_filter_is_referenced_and_reads_as_in_the_library(file):
    """Nothing is inlined."""
    path, expected = file
    virtual = vs.open_virtual_dataset(str(path), loadable_variables=[])
    report = virtual.virtual.report()
    assert set(report["state"]) == {"virtual"}, report
    check(virtual.virtual.open(), expected)


def test_zarr_decodes_every_filter(file):
    """A store of a scanned file hands out chunks as they are stored; zarr finds the codecs by entry point."""
    path, expected = file
    (group,) = vs.scan([str(path)])
    root = zarr.open_group(vs.ManifestStore(group), mode="r")
    for name in expected:
        assert len(root[name].metadata.codecs) > 1, name
    check({name: root[name][...] for name in expected}, expected)


@pytest.mark.parametrize("engine", ["kerchunk", "virtualstack"])
def test_references_of_every_filter_read_the_same(file, references, engine):
    """By kerchunk, which finds the codecs by entry point, and by us."""
    check(xr.open_dataset(str(references), engine=engine), file[1])


def test_names_in_references(file, references):
    """Another package's where it decodes the same, so that readers without virtualstack do."""
    metadata = json.loads(references.read_text())["refs"]
    for name, expected in NUMCODECS_NAMES.items():
        document = json.loads(metadata[f"{name}/.zarray"])
        found = [*(document["filters"] or []), *([document["compressor"]] if document["compressor"] else [])]
        assert [codec["id"] for codec in found] == expected
        codecs = codecs_from_zarr2(found, None, where=name)
        assert codecs_from_zarr2(*codecs_to_zarr2(codecs, variable=name), where=name) == codecs


def test_readers_without_virtualstack(file, tmp_path):
    """With imagecodecs, whose codecs they register, they read what uses its names, and numcodecs' own."""
    path, expected = file
    names = ["lz4", "szip", "bzip2", "zstd", "blosc"]
    references = tmp_path / "x.json"
    vs.open_virtual_dataset(str(path), loadable_variables=[])[names].virtual.to_kerchunk(str(references))
    code = f"""
import sys
sys.modules["virtualstack"] = None
import imagecodecs.numcodecs, xarray as xr
imagecodecs.numcodecs.register_codecs()
dataset = xr.open_dataset({str(references)!r}, engine="kerchunk")
for name in {names!r}:
    print("values", name, dataset[name].values.tobytes().hex())
"""
    assert printed_values(code) == {name: expected[name].tobytes().hex() for name in names}


def test_a_missing_package_is_told_when_a_chunk_is_read(file):
    """A file opens without imagecodecs, and what needs it says how to get it."""
    code = f"""
import sys
import virtualstack as vs
vds = vs.open_virtual_dataset({str(file[0])!r}, loadable_variables=[])
assert "imagecodecs" not in sys.modules
sys.modules["imagecodecs"] = None
opened = vds.virtual.open()
for name in ["lz4", "scaleoffset", "nbit", "zstd"]:
    opened[name].load()
try:
    opened["lzf"].load()
except vs.errors.MissingDependencyError as error:
    print(error)
"""
    needed = "needs an optional dependency; install it with: pip install 'virtualstack[hdf5]'"
    assert run_python(code) == f"codec 'virtualstack.lzf' {needed}\n"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (r"32017 \(sz\)", hdf5plugin.SZ(absolute=0.1)),
        (r"32024 \(sz3\)", hdf5plugin.SZ3(absolute=0.1)),
        (r"32028 \(sperr\)", hdf5plugin.Sperr()),
    ],
    ids=["sz", "sz3", "sperr"],
)
def test_filters_without_a_codec_are_refused_by_number_and_name(name, options, tmp_path):
    """Where the HDF5 library reads them they are inlined, up to the limit."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as new:
        new.create_dataset("x", data=np.ones((32, 32), "f4"), chunks=(16, 16), **options)
    with pytest.raises(UnsupportedFeatureError, match=f"no codec for filter {name}"):
        vs.open_virtual_dataset(str(path), unsupported="raise")
    opened = vs.open_virtual_dataset(str(path), loadable_variables=[])
    assert list(opened.virtual.report()["state"]) == ["inlined"]


def test_rounded_values_are_read_as_they_are(tmp_path):
    """Granular bit round and BitGroom change values when they are written; nothing undoes it."""
    path = tmp_path / "x.h5"
    data = np.arange(100, dtype="f4")
    with h5py.File(path, "w") as new:
        rounding = (32023, h5py.h5z.FLAG_OPTIONAL, (3, 4, 0, 0, 0))
        dcpl = properties(chunk=((50,),), filter=rounding, shuffle=(), deflate=(1,))
        dataset = dataset_of(new, "x", h5t.IEEE_F32LE, (100,), dcpl).id
        for start in (0, 50):  # as a writer with the plugin stores them
            planes = data[start : start + 50].view("u1").reshape(50, 4).T
            dataset.write_direct_chunk((start,), zlib.compress(planes.tobytes(), 1))
    opened = vs.open_virtual_dataset(str(path), loadable_variables=[])
    np.testing.assert_array_equal(opened.virtual.open()["x"], data)


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not here")
@pytest.mark.parametrize(
    "name", ["ref_szip.h5", "be_data.h5", "h5ex_d_blosc2.h5", "h5ex_d_bzip2.h5", "h5ex_d_lz4.h5", "h5ex_d_zstd.h5"]
)
def test_files_of_the_corpus(name):
    """Every dataset is equal; none is inlined for its filter."""
    verdict = judge(CORPUS / "hdf5" / name)
    assert verdict.equal
    assert (verdict.inlined, verdict.wrong, verdict.refused, verdict.error) == ([], [], [], "")
