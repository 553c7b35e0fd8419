"""The HDF5 library in a process of its own: it looks at its variables of the environment once, when it starts."""

import json

from tests.data.processes import run_python

PROGRAM = "import json, sys, h5py; print(json.dumps(h5py.File(sys.argv[1])['x'][...].tolist()))"


def read_by_new_library(path):
    """Return the values of dataset ``x`` of a file as lists."""
    return json.loads(run_python(PROGRAM, path))
