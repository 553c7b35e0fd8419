"""What netCDF4 makes of files: one line of JSON for each, in a process that damaged files may end.

``python netcdf3_oracle.py FILE...``
"""

import hashlib
import json
import sys

import netCDF4
import numpy as np


def plain(value):
    """Give an attribute as JSON, with its type."""
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, str):
        return ["str", value]
    array = np.asarray(value)
    return [array.dtype.str, list(array.shape), array.tobytes().hex()]


def digest(values):
    """Give dtype, shape and a hash of values, without byte order."""
    array = np.ascontiguousarray(values, np.asarray(values).dtype.newbyteorder("="))
    return [array.dtype.str, list(np.shape(values)), hashlib.sha256(array.tobytes()).hexdigest()]


def describe(path):
    """Give all that netCDF4 shows of a file."""
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        return {
            "dimensions": {name: len(dim) for name, dim in file.dimensions.items()},
            "unlimited": [name for name, dim in file.dimensions.items() if dim.isunlimited()],
            "attributes": {name: plain(file.getncattr(name)) for name in file.ncattrs()},
            "variables": {
                name: {
                    "dimensions": list(variable.dimensions),
                    "attributes": {key: plain(variable.getncattr(key)) for key in variable.ncattrs()},
                    "values": digest(variable[...]),
                }
                for name, variable in file.variables.items()
            },
        }


if __name__ == "__main__":
    for name in sys.argv[1:]:
        try:
            found = describe(name)
        except (OSError, RuntimeError, ValueError, MemoryError, AttributeError, KeyError, IndexError) as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(found), flush=True)
