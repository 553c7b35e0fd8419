"""Writing and reading kerchunk references beside VirtualiZarr; run with VIRTUALSTACK_BENCHMARK=full for 10^6."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from virtualstack.codecs.codec import Codec
from virtualstack.formats.base import ReadOptions
from virtualstack.kerchunk.reader import Kerchunk
from virtualstack.kerchunk.writer import write_kerchunk
from virtualstack.storage import Storage

sys.path.insert(0, str(Path(__file__).parent))
from reference_cube import group_of
from timing import IS_FULL, interleaved

GRID = (1000, 100, 10) if IS_FULL else (5, 4, 3)
pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("virtualizarr") is None,
        reason="VirtualiZarr is not installed: pip install virtualizarr",
    ),
    pytest.mark.filterwarnings("ignore"),  # of VirtualiZarr, fastparquet and pandas
]


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
    from virtualizarr.manifests import ChunkManifest as TheirManifest
    from virtualizarr.manifests import ManifestArray as TheirArray
    from virtualizarr.manifests.utils import create_v3_array_metadata

    urls, offsets, lengths = columns
    paths = np.broadcast_to(np.array(urls, np.dtypes.StringDType())[:, None, None], GRID)
    metadata = create_v3_array_metadata(
        shape=(GRID[0], GRID[1] * 10, GRID[2] * 10),
        data_type=np.dtype("f4"),
        chunk_shape=(1, 10, 10),
        fill_value=np.nan,
        codecs=[{"name": "numcodecs.zlib", "configuration": {"level": 1}}],
    )
    manifest = TheirManifest.from_arrays(paths=paths, offsets=offsets.astype("u8"), lengths=lengths.astype("u8"))
    return xr.Dataset({"v": (("t", "y", "x"), TheirArray(metadata=metadata, chunkmanifest=manifest))})


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
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import KerchunkJSONParser, KerchunkParquetParser

    path = tmp_path / f"refs.{suffix}"
    write_kerchunk(ours, path)
    parser = {"json": KerchunkJSONParser, "parq": KerchunkParquetParser}[suffix]()
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    results = interleaved(
        f"read {np.prod(GRID)} references from {suffix}",
        {
            "virtualstack": lambda: Kerchunk().read(path.as_uri(), Storage.from_option(), ReadOptions()),
            "VirtualiZarr": lambda: parser(url=path.as_uri(), registry=registry),
        },
        repeats=1,
    )
    assert results["virtualstack"].result["v"].equals(ours["v"])
