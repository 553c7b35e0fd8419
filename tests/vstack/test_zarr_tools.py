"""A vstack as zarr tools see it: an error that says what it is, never an empty dataset or fill values."""

import json
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr
import zarr

import virtualstack as vs
from virtualstack.errors import MalformedFileError, VirtualValuesError


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A store of two groups, which has two snapshots."""
    url = tmp_path_factory.mktemp("tools") / "x.vstack"
    for _ in range(2):
        values = xr.Dataset({"t": (("time", "x"), np.ones((2, 3)))}, {"time": [0, 1], "x": [0, 1, 2]})
        xr.DataTree.from_dict({"/": values, "/inner": values}).virtual.to_vstack(url, mode="w")
    return url


OPENED = {
    "open_zarr": lambda url: xr.open_zarr(url),
    "not consolidated": lambda url: xr.open_zarr(url, consolidated=False),
    "a tree": lambda url: xr.open_datatree(url, engine="zarr"),
    "open": lambda url: zarr.open(url, mode="r"),
    "open_group": lambda url: zarr.open_group(url),
    "members": lambda url: list(zarr.open_group(url, use_consolidated=False).members()),
    "an array": lambda url: zarr.open_group(url)["t"],
}


@pytest.mark.parametrize("how", OPENED)
def test_zarr_and_xarray_say_how_to_open_it(how, url):
    with pytest.raises(VirtualValuesError, match=r'xr\.open_dataset\("x\.vstack", engine="virtualstack"\)'):
        OPENED[how](str(url))


def test_the_reader_of_zarr_names_the_other_one(url):
    with pytest.raises(MalformedFileError, match="is a vstack, not a zarr store"):
        vs.open_virtual_dataset(url, reader="zarr")


WITHOUT = """
import importlib.metadata, json, sys, warnings
found = importlib.metadata.entry_points
importlib.metadata.entry_points = lambda **given: importlib.metadata.EntryPoints(
    x for x in found(**given) if not x.value.startswith("virtualstack")
)
import xarray as xr
import zarr

warnings.simplefilter("ignore")

def attempt(do):
    try:
        return repr(do())
    except Exception as error:
        return f"{type(error).__name__}: {error}"

url = sys.argv[1]
print(json.dumps([attempt(x) for x in (
    lambda: xr.open_zarr(url), lambda: xr.open_zarr(url, consolidated=False),
    lambda: xr.open_datatree(url, engine="zarr"), lambda: zarr.open(url, mode="r"), lambda: zarr.open_group(url)["t"],
    lambda: list(zarr.open_group(url, use_consolidated=False).members()), lambda: zarr.open_group(url).tree(),
)]))
"""


def test_zarr_and_xarray_without_virtualstack_name_it(url):
    """In a process that does not find its entry points."""
    command = [sys.executable, "-c", WITHOUT, str(url)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, cwd=url)
    unknown = "ValueError: Unknown chunk key encoding: \"Chunk key encoding 'virtualstack.manifest' not found"
    said = json.loads(result.stdout)
    assert [text[: len(unknown)] for text in said] == [unknown] * 7


@pytest.mark.parametrize("name", ["", "t/", "time/", "inner/t/", ".vstack/"])
def test_tensorstore_opens_nothing(name, url):
    tensorstore = pytest.importorskip("tensorstore", reason="needs tensorstore")
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{url}/{name}"}}
    with pytest.raises(ValueError, match=r"does not exist|node_type|virtualstack\.manifest"):
        tensorstore.open(spec).result()


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_gdal_reads_nothing(url):
    """The one in rasterio: no array is opened, and the store has no bands."""
    rasterio = pytest.importorskip("rasterio", reason="needs rasterio")
    for name in ("t", "time", "inner/t", ".vstack"):
        with pytest.raises(rasterio.errors.RasterioIOError):
            rasterio.open(f'ZARR:"{url}":/{name}')
    with rasterio.open(f'ZARR:"{url}"') as found:
        assert (found.count, found.subdatasets) == (0, [])
