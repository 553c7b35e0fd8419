"""Files of a package with real data."""

from __future__ import annotations

import importlib
from pathlib import Path

from virtualstack.errors import MissingDependencyError, SourceNotFoundError


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
    return _found("nemo", "NEMO/nemo_1m_*_grid-T.nc")


def scenarios() -> list[str]:
    """Return the paths of two runs of a climate model over North America, from the package iris-sample-data.

    Each file has the air temperature of 240 years, 1860 to 2099. They are for the scenarios A1B, in which emissions
    grow, and E1, in which they fall.

    Returns
    -------
    list[str]
        The paths of the two netCDF-4 files, sorted. They are part of the installed package: do not change them.

    Raises
    ------
    MissingDependencyError
        The package iris-sample-data is not installed; the extra ``sample`` has it.
    SourceNotFoundError
        The installed version of the package does not have these files.

    Examples
    --------
    >>> import virtualstack as vs
    >>> scenario = vs.FromName("A1B|E1")
    >>> vds = vs.open_virtual_mfdataset(vs.sample.scenarios(), new_dim={"scenario": scenario})
    >>> dict(vds["air_temperature"].sizes)
    {'scenario': 2, 'time': 240, 'latitude': 37, 'longitude': 49}
    """
    return _found("scenarios", "*_north_america.nc")


def _found(name: str, pattern: str) -> list[str]:
    try:
        package = importlib.import_module("iris_sample_data")
    except ModuleNotFoundError as error:
        raise MissingDependencyError(f"the sample '{name}'", extra="sample") from error
    paths = sorted(Path(package.path).glob(pattern))
    if not paths:
        raise SourceNotFoundError(
            f"the installed package iris-sample-data has no '{pattern}'; install another version of it",
            url=package.path,
        )
    return [str(path) for path in paths]
