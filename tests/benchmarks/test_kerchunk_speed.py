"""Writing and reading kerchunk references beside VirtualiZarr; run with VIRTUALSTACK_BENCHMARK=full for 10^6."""

import json

import numpy as np
import pytest
import xarray as xr

from tests.benchmarks.reference_cube import group_of
from tests.benchmarks.rivals import needs, registry, virtualizarr_array
from tests.benchmarks.timing import IS_FULL, interleaved
from virtualstack.codecs.codec import Codec
from virtualstack.formats.base import ReadOptions
from virtualstack.kerchunk.reader import Kerchunk
from virtualstack.kerchunk.writer import write_kerchunk
from virtualstack.storage import Storage

GRID = (1000, 100, 10) if IS_FULL else (5, 4, 3)
pytestmark = needs("virtualizarr")


@pytest.fixture(scope="module")
def columns():
    rng = np.random.default_rng(0)
    urls = [f"s3://bucket/model/output/file-{i:06d}.nc" for i in range(GRID[0])]
    return urls, rng.integers(0, 2**40, GRID), rng.integers(1000, 100_000, GRID)


@pytest.fixture(scope="module")
def ours(columns):
    return group_of(*columns, [Codec.from_config("numcodecs.zlib", level=1)])


@pytest.fixture(scope="module")
def theirs(columns):
    import virtualizarr  # noqa: F401 - registers the accessor

    urls, offsets, lengths = columns
    paths = np.broadcast_to(np.array(urls, np.dtypes.StringDType())[:, None, None], GRID)
    codecs = [{"name": "numcodecs.zlib", "configuration": {"level": 1}}]
    shape = (GRID[0], GRID[1] * 10, GRID[2] * 10)
    array = virtualizarr_array(shape, (1, 10, 10), paths, offsets, lengths, codecs=codecs, fill=np.nan)
    return xr.Dataset({"v": (("t", "y", "x"), array)})


def same_references(left, right):
    assert left["refs"].keys() - {"v/.zattrs"} == right["refs"].keys() - {"v/.zattrs"}
    chunk = "v/" + ".".join(str(n - 1) for n in GRID)
    assert left["refs"][chunk] == right["refs"][chunk]


@pytest.mark.parametrize("suffix", ["json", "parq"])
def test_write(ours, theirs, suffix, tmp_path):
    """Writing a file of references, both with the same content."""
    mine, other = tmp_path / f"ours.{suffix}", tmp_path / f"theirs.{suffix}"
    form = {"json": "json", "parq": "parquet"}[suffix]
    interleaved(
        f"write {np.prod(GRID)} references as {form}",
        {
            "virtualstack": lambda: write_kerchunk(ours, mine),
            "VirtualiZarr": lambda: theirs.vz.to_kerchunk(str(other), format=form),
        },
        repeats=2,
    )
    if suffix == "json":
        same_references(json.loads(mine.read_bytes()), json.loads(other.read_bytes()))
    else:
        read = [Kerchunk().read(path.as_uri(), Storage.from_option(), ReadOptions()) for path in (mine, other)]
        assert read[0]["v"].equals(read[1]["v"])


def test_write_dict(ours, theirs):
    """Making a dict of references."""
    results = interleaved(
        f"make a dict of {np.prod(GRID)} references",
        {
            "virtualstack": lambda: write_kerchunk(ours, None),
            "VirtualiZarr": lambda: theirs.vz.to_kerchunk(format="dict"),
        },
        repeats=2,
    )
    same_references(*(timing.result for timing in results.values()))


@pytest.mark.parametrize("suffix", ["json", "parq"])
def test_read(ours, suffix, tmp_path):
    """Reading a file of references into a manifest."""
    from virtualizarr.parsers import KerchunkJSONParser, KerchunkParquetParser

    path = tmp_path / f"refs.{suffix}"
    write_kerchunk(ours, path)
    parser = {"json": KerchunkJSONParser, "parq": KerchunkParquetParser}[suffix]()
    results = interleaved(
        f"read {np.prod(GRID)} references from {suffix}",
        {
            "virtualstack": lambda: Kerchunk().read(path.as_uri(), Storage.from_option(), ReadOptions()),
            "VirtualiZarr": lambda: parser(url=path.as_uri(), registry=registry()),
        },
        repeats=1,
    )
    assert results["virtualstack"].result["v"].equals(ours["v"])
