"""Real netCDF-3 files beside netCDF4 and xarray; every variable of all of them is equal."""

from pathlib import Path

import netCDF4
import pytest
import xarray as xr

import virtualstack as vs
from tests.formats.groups import group_of
from tests.formats.netcdf3.comparison import compare_with_netcdf4
from virtualstack.readers import NetCDF3

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "netcdf3"
FILES = sorted(path.name for path in CORPUS.glob("*.nc"))
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"
RAW = {"mask_and_scale": False, "decode_times": False, "concat_characters": False}

# Bounds that have no units are given those of their times, as CF has it, which raw attributes show.
BOUNDS = {"ref_nccopy3_subset.nc"}

pytestmark = [
    pytest.mark.skipif(not FILES, reason=f"no corpus at {CORPUS}"),
    pytest.mark.filterwarnings("ignore"),  # xarray's, about old files
]


@pytest.mark.parametrize("chunk_size", ["auto", 5000])
@pytest.mark.parametrize("name", FILES)
def test_every_variable_is_as_netcdf4_shows_it(name, chunk_size):
    """Raw values, dims, attributes with their types, in chunks of any size."""
    path = CORPUS / name
    group = group_of(path, NetCDF3(chunk_size=chunk_size))
    assert not group.refusals
    compare_with_netcdf4(path, group)


@pytest.mark.parametrize("name", FILES)
def test_decoded_datasets_are_those_of_xarray(name, tmp_path):
    """From the virtual dataset, raw too, and from references that were written."""
    path = CORPUS / name
    options = {} if decodes(path) else {"decode_times": False}
    with xr.open_dataset(path, engine="netcdf4", **options) as dataset:
        expected = dataset.load()
    vds = vs.open_virtual_dataset(path, **options)
    check = xr.testing.assert_equal if name in BOUNDS else xr.testing.assert_identical
    check(vds.virtual.open(**options).load(), expected)
    with xr.open_dataset(path, engine="netcdf4", **RAW) as dataset:
        check(xr.open_dataset(path, engine="virtualstack", **RAW).load(), dataset.load())
    vds.virtual.to_kerchunk(tmp_path / "refs.parq")
    with xr.open_dataset(tmp_path / "refs.parq", engine="virtualstack", **options) as found:
        xr.testing.assert_equal(found.load(), expected)


def decodes(path):
    """Whether xarray decodes the times of a file."""
    try:
        with xr.open_dataset(path, engine="netcdf4") as dataset:
            dataset.load()
    except (ValueError, OverflowError):
        return False
    return True


def test_the_page_says_how_many_they_are():
    """The number of files and variables in the reference."""
    n_variables = 0
    for name in FILES:
        with netCDF4.Dataset(CORPUS / name) as file:
            n_variables += len(file.variables)
    assert f"the {n_variables} variables of {len(FILES)} real files" in PAGE.read_text()
