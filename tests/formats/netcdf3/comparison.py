"""A group of our reader beside what netCDF4 shows of the file."""

import netCDF4
import numpy as np

from virtualstack.reading import read_array
from virtualstack.testing.readers import difference


def netcdf4_values(path):
    """Read all raw values by netCDF4, by absolute path of the variable."""
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        return {f"/{name}": np.asarray(variable[...]) for name, variable in file.variables.items()}


def compare_with_netcdf4(path, group):
    """Check names, order, dims, lengths, which grow, dtypes, values, and attributes with their types."""
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        assert dict(group.dimensions) == {name: len(dim) for name, dim in file.dimensions.items()}
        assert group.unlimited == {name for name, dim in file.dimensions.items() if dim.isunlimited()}
        assert list(group.arrays) == list(file.variables)
        compare_attributes(file, group.attributes)
        for name, variable in file.variables.items():
            array = group.arrays[name]
            array.validate()
            array.in_memory().validate()
            assert array.dimension_names == variable.dimensions
            assert array.dtype == variable.dtype.newbyteorder("=")
            assert not difference(np.asarray(variable[...]), read_array(array, ())), name
            compare_attributes(variable, array.attributes)


def compare_attributes(theirs, ours):
    """Check names, order, values and types."""
    assert list(ours) == theirs.ncattrs()
    for name, value in ours.items():
        expected = theirs.getncattr(name)
        assert type(value) is type(expected), name
        np.testing.assert_array_equal(value, expected)
        assert np.asarray(value).dtype == np.asarray(expected).dtype, name
