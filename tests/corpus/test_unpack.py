"""Real netCDF files, unpacked: virtual variables have the dtypes and values that xr.open_dataset gives, every group."""

from pathlib import Path

import pytest

import virtualstack as vs
from tests.corpus.test_xarray import decoded_groups

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
FILES = sorted(str(path.relative_to(CORPUS)) for name in ("hdf5", "netcdf3") for path in (CORPUS / name).glob("*.nc*"))

pytestmark = [
    pytest.mark.skipif(not FILES, reason="the shared corpus is not here: ../shared/corpus"),
    pytest.mark.filterwarnings("ignore"),  # xarray's, about old files
]


@pytest.mark.parametrize("name", [pytest.param(x, marks=pytest.mark.apart) if "compat1" in x else x for x in FILES])
def test_unpacked_variables_read_as_xarray_decodes_them(name):
    """Bit by bit, without anything loaded; what stays packed decodes when it is opened."""
    path = CORPUS / name
    n_compared = 0
    for group, expected in decoded_groups(path):
        vds = vs.open_virtual_dataset(path, group=group, unpack=True, loadable_variables=[])
        report = vds.virtual.report().set_index("variable")["state"]
        found = vds.virtual.open().load()
        for key, variable in expected.variables.items():
            values = found.variables[key].values
            assert values.dtype == variable.dtype
            assert variable.dtype.kind == "O" or values.tobytes() == variable.values.tobytes()
            assert found.variables[key].attrs.keys() == variable.attrs.keys()
            if report[key] != "packed" and variable.dtype.kind not in "SUO":
                assert vds.variables[key].dtype == variable.dtype
                n_compared += 1
    if not n_compared:
        pytest.skip("xarray opens no group of it that has numbers")
