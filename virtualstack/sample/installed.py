"""Files of a package with real data."""

from __future__ import annotations

import importlib
from pathlib import Path

from virtualstack.errors import MissingDependencyError, SourceNotFoundError

__all__ = ["nemo"]

_NEMO = "NEMO/nemo_1m_*_grid-T.nc"


def nemo() -> list[str]:
    """Return the paths of three months of the ocean model NEMO, from the package iris-sample-data.

    Returns
    -------
    list[str]
        The paths of the three netCDF-4 files, sorted. They are part of the installed package: do not change them.

    Raises
    ------
    MissingDependencyError
        The package iris-sample-data is not installed; the extra ``sample`` has it.
    SourceNotFoundError
        The installed version of the package does not have these files.

    Examples
    --------
    >>> import virtualstack as vs
    >>> files = vs.sample.nemo()
    >>> vs.open_virtual_dataset(files[0])["tos"].dims
    ('time_counter', 'y', 'x')
    """
    try:
        package = importlib.import_module("iris_sample_data")
    except ModuleNotFoundError as error:
        raise MissingDependencyError("the sample 'nemo'", extra="sample") from error
    paths = sorted(Path(package.path).glob(_NEMO))
    if not paths:
        raise SourceNotFoundError(
            f"the installed package iris-sample-data has no '{_NEMO}'; install another version of it", url=package.path
        )
    return [str(path) for path in paths]
