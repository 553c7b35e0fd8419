"""What kerchunk's own tools write opens as its own engine opens it, or as the format's own library reads it."""

import base64
import json
from copy import deepcopy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import virtualstack as vs

pytest.importorskip("kerchunk")
pytestmark = pytest.mark.filterwarnings("ignore")
CORPUS = Path(__file__).parents[3] / "shared" / "corpus"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of the files."""
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def translated(folder):
    """References of four files along time, by kerchunk."""
    from kerchunk.hdf import SingleHdf5ToZarr

    found = []
    for i in range(4):
        values = np.random.default_rng(i).normal(size=(3, 4, 5)).astype("f4")
        dataset = xr.Dataset(
            {"v": (("time", "y", "x"), values), "static": (("y", "x"), np.ones((4, 5)))},
            coords={
                "time": pd.date_range(f"2020-01-0{i + 1}", periods=3, freq="6h"),
                "y": np.arange(4.0),
                "x": np.arange(5.0),
            },
        )
        path = folder / f"{i}.nc"
        encoding = {"v": {"chunksizes": (1, 4, 5), "zlib": True}, "time": {"units": "hours since 2020-01-01"}}
        dataset.to_netcdf(path, engine="netcdf4", encoding=encoding)
        found.append(SingleHdf5ToZarr(str(path), inline_threshold=100).translate())
    return found


def joined(translated, **options):
    from kerchunk.combine import MultiZarrToZarr

    return MultiZarrToZarr(translated, identical_dims=["y", "x", "static"], **options).translate()


def merged(translated):
    from kerchunk.combine import merge_vars

    return merge_vars(translated[:2])


def concatenated(translated):
    from kerchunk.combine import concatenate_arrays

    return concatenate_arrays(translated, path="v")


def cut(translated):
    from kerchunk.utils import subchunk

    return subchunk(deepcopy(translated[0]), "static", 2)


def inlined(translated):
    from kerchunk.utils import inline_array

    return inline_array(deepcopy(translated[0]), 0, names=["static"])


TOOLS = {
    "one file": lambda found: found[0],
    "MultiZarrToZarr": lambda found: joined(found, concat_dims=["time"]),
    "MultiZarrToZarr of decoded times": lambda found: joined(found, concat_dims=["time"], coo_map={"time": "cf:time"}),
    "MultiZarrToZarr with a new dimension": lambda found: joined(
        found, concat_dims=["file", "time"], coo_map={"file": "INDEX", "time": "cf:time"}
    ),
    "merge_vars": merged,
    "concatenate_arrays": concatenated,
    "subchunk": cut,
    "inline_array": inlined,
}


@pytest.mark.parametrize("tool", TOOLS)
def test_references_open_as_with_kerchunk(tool, translated, folder, tmp_path):
    """From memory and from a file, and as a virtual dataset."""
    references = TOOLS[tool](translated)
    expected = xr.open_dataset(references, engine="kerchunk").load()
    assert any(x.size for x in expected.values())
    xr.testing.assert_identical(xr.open_dataset(references, engine="virtualstack", allow=folder).load(), expected)
    path = tmp_path / "refs.json"
    path.write_text(json.dumps(references, default=lambda raw: f"base64:{base64.b64encode(raw).decode()}"))
    xr.testing.assert_identical(xr.open_dataset(path, engine="virtualstack", allow=folder).load(), expected)
    xr.testing.assert_identical(vs.open_virtual_dataset(path, allow=folder).virtual.open().load(), expected)


def test_parquet_of_kerchunk(translated, folder, tmp_path):
    """Record files of any size."""
    from kerchunk.df import refs_to_dataframe

    references = joined(translated, concat_dims=["time"])
    expected = xr.open_dataset(references, engine="kerchunk").load()
    refs_to_dataframe(references, str(tmp_path / "refs.parq"), record_size=5)
    opened = vs.open_virtual_dataset(tmp_path / "refs.parq", allow=folder).virtual.open().load()
    xr.testing.assert_identical(opened, expected)


@pytest.mark.skipif(not CORPUS.exists(), reason=f"no corpus at {CORPUS}")
@pytest.mark.parametrize(
    "name",
    [
        "CMC_reg_DEPR_ISBL_10_ps10km_2022072000_P000.grib2",
        pytest.param("nam.t00z.awp21100.tm00.grib2", marks=pytest.mark.apart),
    ],
)
def test_scan_grib(name):
    """Coordinates are named by the root alone."""
    from kerchunk.grib2 import scan_grib

    for references in scan_grib(f"file://{CORPUS / 'grib' / name}")[:3]:
        expected = xr.open_dataset(references, engine="kerchunk").load()
        opened = xr.open_dataset(references, engine="virtualstack", allow=CORPUS / "grib").load()
        xr.testing.assert_identical(opened, expected)


@pytest.mark.skipif(not CORPUS.exists(), reason=f"no corpus at {CORPUS}")
@pytest.mark.parametrize(
    "name",
    [
        "cog.tif",
        "cogeo.tif",  # overviews: a group
        "int64.tif",  # one array without a group
        "rgbsmall_JPEG_ycbcr.tif",
        "rgbsmall_ZSTD_tiled_separate.tif",
        "float64_LZW_predictor_3.tif",
    ],
)
def test_tiff_to_zarr(name):
    """With codecs of imagecodecs, which nobody has registered."""
    tifffile = pytest.importorskip("tifffile")
    from kerchunk.tiff import tiff_to_zarr

    path = CORPUS / "tiff" / name
    references = tiff_to_zarr(f"file://{path}")
    opened = xr.open_dataset(references, engine="virtualstack", mask_and_scale=False, allow=CORPUS / "tiff")
    np.testing.assert_array_equal(next(iter(opened.values())), tifffile.imread(path))
