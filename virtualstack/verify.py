"""Checking a cube against its source files, as an independent library reads them."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import (
    BackendEntrypoint,
    H5netcdfBackendEntrypoint,
    NetCDF4BackendEntrypoint,
    ScipyBackendEntrypoint,
)

from virtualstack.child.errors import LibraryError
from virtualstack.child.pool import ChildDiedError, InChild
from virtualstack.errors import MalformedFileError, MissingDependencyError, UnsupportedFeatureError
from virtualstack.location import absolute_url, local_path
from virtualstack.storage import Source, SourceFile, Storage, StorageLike

__all__ = [
    "Difference",
    "Verification",
    "open_independently",
    "require_library",
    "values_differ",
    "verify_against_files",
]

_CLASSIC = b"CDF\1", b"CDF\2", b"CDF\5"  # behind any other beginning the libraries look for HDF5


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One variable that is not what a source file holds.

    Parameters
    ----------
    variable
        Its name.
    url
        The source file.
    reason
        What differs, with the two values.
    """

    variable: str
    url: str
    reason: str

    def __str__(self) -> str:
        return f"variable '{self.variable}', compared with '{self.url}': {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a comparison found.

    Parameters
    ----------
    variables
        Names that were compared.
    n_files
        How many source files they were compared with.
    differences
        Empty where everything is equal.
    """

    variables: tuple[str, ...]
    n_files: int
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        bad = {difference.variable for difference in self.differences}
        where = f"{self.n_files} file{'s' if self.n_files != 1 else ''}"
        good = [name for name in self.variables if name not in bad]
        summary = f"{len(good)} variable{'s' if len(good) != 1 else ''} equal in {where}"
        return f"{summary}, {len(bad)} differ" if bad else summary


def verify_against_files(
    dataset: xr.Dataset,
    urls: Sequence[str | os.PathLike[str]],
    /,
    *,
    dim: str | None = None,
    group: str | None = None,
    ignore: Collection[str] = (),
    storage: StorageLike = None,
    progress: Callable[[int, int], Any] | None = None,
) -> Verification:
    """Compare every variable of an opened cube with netCDF-4 or HDF5 files, value for value.

    The files are read by h5netcdf, or by netCDF4 where that alone is installed, through xarray, and decoded as
    ``xr.open_dataset`` does. A variable that they cannot read counts as different. Equal means: same dtype, same
    shape, same elements, where NaN equals NaN and NaT equals NaT. All values of the cube and of the files are read,
    one variable of one file at a time.

    Parameters
    ----------
    dataset
        With values, such as ``xr.open_dataset("refs.parq", engine="virtualstack")``.
    urls
        The source files, in their order along ``dim``.
    dim
        Dimension that the files were joined along; ``None`` where there is one file, or all hold the same.
    group
        Path of the group in the files.
    ignore
        Names that may be in the files and not in the cube.
    storage
        See :func:`virtualstack.open_virtual_dataset`.
    progress
        Called with the number of files done and the number of all.

    Raises
    ------
    MissingDependencyError
        Neither h5netcdf nor netCDF4 is there to read a file.
    StorageError
        A file, or what the cube points to, cannot be read.
    """
    differences: list[Difference] = []
    names = {str(name) for name in dataset.variables}
    begin = 0
    for done, url in enumerate(map(absolute_url, urls), start=1):
        with open_independently(url, group, Storage.of(storage)) as source:
            length = 0 if dim is None else int(source.sizes.get(dim, 0))
            part = dataset if dim is None else dataset.isel({dim: slice(begin, begin + length)})
            begin += length
            present = {str(name) for name in source.variables}
            lost = sorted(present - names - set(ignore))
            differences += [Difference(variable=x, url=url, reason="it is not in the cube") for x in lost]
            found = {name: _difference(part, source, name) for name in sorted(names)}
            differences += [Difference(variable=x, url=url, reason=reason) for x, reason in found.items() if reason]
        if progress is not None:
            progress(done, len(urls))
    if dim is not None and begin != dataset.sizes[dim]:
        known = {difference.variable for difference in differences}
        reason = f"the files have {begin} elements along '{dim}', the cube {dataset.sizes[dim]}"
        differences += [
            Difference(variable=str(name), url=absolute_url(urls[-1]), reason=reason)
            for name, variable in dataset.variables.items()
            if dim in variable.dims and name not in known
        ]
    return Verification(variables=tuple(sorted(names)), n_files=len(urls), differences=tuple(differences))


def _difference(cube: xr.Dataset, source: xr.Dataset, name: str) -> str | None:
    if name not in source.variables:
        return "it is not in the file"
    ours, theirs = cube.variables[name], source.variables[name]
    if ours.shape != theirs.shape:
        return f"the cube has shape {ours.shape} there, the file {theirs.shape}"
    try:
        expected = np.asarray(theirs.values)
    except (OSError, RuntimeError, ValueError, TypeError) as error:  # HDF5's own: a filter or type it does not know
        return f"the file's values cannot be read: {error}"
    return values_differ(np.asarray(ours.values), expected)


def values_differ(ours: NDArray[Any], theirs: NDArray[Any], /) -> str | None:
    """Say how two arrays of one shape differ in dtype or values; ``None`` where they do not.

    Byte order is no difference, nor is the class that holds strings; NaN equals NaN, and NaT equals NaT.

    >>> values_differ(np.array([1.0, np.nan]), np.array([1.0, np.nan]))
    >>> values_differ(np.array([1, 2]), np.array([1, 3]))
    '1 of 2 values differ, the first at (1,): 2 in the cube, 3 in the file'
    """
    if _is_text(ours) and _is_text(theirs):
        ours, theirs = ours.astype(object), theirs.astype(object)
    elif theirs.dtype == "S0" and ours.dtype.kind == "S":
        theirs = theirs.astype(ours.dtype)  # as netCDF4 gives one character that is NUL
    elif ours.dtype.newbyteorder("=") != theirs.dtype.newbyteorder("="):
        return f"dtype '{ours.dtype}' in the cube, '{theirs.dtype}' in the file"
    if ours.dtype.names is not None:
        pairs = [(name, values_differ(ours[name], theirs[name])) for name in ours.dtype.names]
        return next((f"field '{name}': {reason}" for name, reason in pairs if reason), None)
    same = np.asarray((ours == theirs) | ((ours != ours) & (theirs != theirs)), bool)
    if same.all():
        return None
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    n_different = int(np.count_nonzero(~same))
    return (
        f"{n_different} of {same.size} values differ, the first at {at}: "
        f"{ours[at]!s} in the cube, {theirs[at]!s} in the file"
    )


def _is_text(values: NDArray[Any]) -> bool:
    if values.dtype.kind == "O":
        return all(isinstance(x, str) for x in values.reshape(-1).tolist())
    return values.dtype.kind in "UT"


def require_library(url: str, /) -> None:
    """Raise `MissingDependencyError` where no other library than ours is there to read a file."""
    if not find_spec("h5netcdf") and not (local_path(url) is not None and find_spec("netCDF4")):
        raise MissingDependencyError(f"reading '{url}' independently", extra="verify", url=url)


@contextmanager
def open_independently(
    url: str, group: str | None, storage: Storage, /, *, concat_characters: bool = True, decode_times: bool = True
) -> Iterator[xr.Dataset]:
    """Open a group of a file by another library than ours, through xarray.

    Parameters
    ----------
    url
        Absolute.
    group
        Its path; ``None`` for the root.
    storage
        How the file is reached.
    concat_characters, decode_times
        As in :func:`xarray.open_dataset`.

    Raises
    ------
    MissingDependencyError
        There is no such library.
    MalformedFileError
        It cannot open the file.
    UnsupportedFeatureError
        It is a file of somebody else (`Storage.only`), and that library would open other files with it.
    StorageError
        The file cannot be reached.
    """
    source = storage.source(url)
    path = local_path(url)
    head = source.read(0, min(4, source.size))
    engine, options = _engine(url, head)
    target: Any = SourceFile(source) if path is None else str(path)
    if head not in _CLASSIC and not storage.may_open("file:///"):
        _check_alone(source, path, url)
    try:
        # An engine given by its class, not by name: xarray then loads no other plugin.
        dataset = xr.open_dataset(
            target, engine=engine, concat_characters=concat_characters, decode_times=decode_times, **options(group)
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        name = engine.__name__.removesuffix("BackendEntrypoint")
        raise MalformedFileError(
            f"'{url}' cannot be opened by xarray's {name} engine: {error}; netCDF and HDF5 files can be compared",
            url=url,
        ) from error
    with dataset:
        yield dataset


def _check_alone(source: Source, path: Path | None, url: str) -> None:
    """Check that a file makes the HDF5 library open no others, which it does without asking us."""
    size, place = (source.size, ()) if path is None else (None, (str(path),))
    try:
        with closing(
            InChild("virtualstack.formats.hdf5.child.files:OpenFile", *place, False, size=size, read=source.read)
        ) as file:
            found = file.call("elsewhere")
    except (LibraryError, ChildDiedError) as error:
        raise MalformedFileError(f"'{url}' cannot be opened by h5py: {error}", url=url) from error
    if found is not None:
        raise UnsupportedFeatureError(
            f"'{url}' is of somebody else, and is not read by the HDF5 library: {found}, which it would open whatever "
            'they are. Where that is meant, open the store with allow="file:///"',
            url=url,
            feature="external file",
        )


def _engine(url: str, head: bytes) -> tuple[type[BackendEntrypoint], Callable[[str | None], dict[str, Any]]]:
    """Give the engine for a file that begins with some bytes, and its options for a group."""
    is_local = local_path(url) is not None
    if head.startswith(b"CDF"):
        if is_local and find_spec("netCDF4"):
            return NetCDF4BackendEntrypoint, lambda group: {"group": group}
        if find_spec("scipy"):
            return ScipyBackendEntrypoint, lambda group: {}
    require_library(url)
    if not find_spec("h5netcdf"):
        return NetCDF4BackendEntrypoint, lambda group: {"group": group}
    if find_spec("hdf5plugin"):
        importlib.import_module("hdf5plugin")  # registers filters that HDF5 itself does not have
    return H5netcdfBackendEntrypoint, lambda group: {"group": group, "phony_dims": "sort"}
