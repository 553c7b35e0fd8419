from collections.abc import Iterator
from importlib.util import find_spec

import pytest

if find_spec("pyproj") and find_spec("eccodes"):
    import pyproj  # noqa: F401 - a process that loads eccodes before pyproj aborts at exit

if find_spec("h5py") and find_spec("netCDF4"):
    # netCDF4 names a folder of filters in the environment, which those of hdf5plugin make way for; in h5py they crash
    import os

    folder = os.environ.get("HDF5_PLUGIN_PATH")
    import h5py  # noqa: F401 - looks at the environment now, and not again
    import netCDF4  # noqa: F401

    if folder is None:
        os.environ.pop("HDF5_PLUGIN_PATH", None)


@pytest.fixture(scope="session", autouse=True)
def nothing_allowed() -> Iterator[None]:
    """Let no place be allowed that the person who runs the tests has allowed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("VIRTUALSTACK_ALLOW", raising=False)
        yield


@pytest.fixture(autouse=True)
def folder_of_the_example(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let each example of a docstring write into a folder of its own."""
    if not isinstance(request.node, pytest.DoctestItem):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("example"))
        yield
