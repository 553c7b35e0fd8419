"""Compare a cube with its source files, as an independent library reads them."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
import xarray as xr

from virtualstack.drawing.html import make_page, table
from virtualstack.formats.base import permitted
from virtualstack.location import absolute_url, outermost
from virtualstack.printable import counted
from virtualstack.progress import Progress, progress_shown
from virtualstack.storage import Storage, StorageLike
from virtualstack.storage.permission import Allow, read_allowed_urls
from virtualstack.verify.libraries import open_independently, values_differ, values_read


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A variable that differs from a source file."""

    variable: str
    url: str
    reason: str

    def __str__(self) -> str:
        return f"variable '{self.variable}', compared with '{self.url}': {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of comparing a cube with its source files."""

    variables: tuple[str, ...]
    n_files: int
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        bad = {difference.variable for difference in self.differences}
        good = [name for name in self.variables if name not in bad]
        summary = f"{counted(len(good), 'variable')} equal in {counted(self.n_files, 'file')}"
        return f"{summary}, {len(bad)} differ" if bad else summary

    def _repr_html_(self) -> str:
        rows = [(x.variable, x.url, x.reason) for x in self.differences]
        return make_page(str(self), table(["variable", "url", "difference"], rows) if rows else "")


def verify_against_files(
    dataset: xr.Dataset,
    urls: Sequence[str | os.PathLike[str]],
    /,
    *,
    dim: str | None = None,
    group: str | None = None,
    ignore: Collection[str] = (),
    storage: StorageLike = None,
    allow: Allow = (),
    progress: Progress | bool | None = None,
) -> Verification:
    """Compare every variable of an opened cube with netCDF or HDF5 files, value for value.

    xarray reads the files by h5netcdf, or by netCDF4 or scipy, and decodes them as ``xr.open_dataset`` does. A variable
    that the library cannot read counts as different. Equal variables have the same dtype, shape and elements; NaN
    equals NaN, and NaT equals NaT. All values of the cube and of the files are read, one variable of one file at a
    time.
    """
    differences: list[Difference] = []
    names = {str(name) for name in dataset.variables}
    begin = 0
    with progress_shown(progress, "verify") as show:
        for done, url in enumerate(map(absolute_url, urls), start=1):
            limited = permitted(Storage.from_option(storage), outermost(url), read_allowed_urls(allow))
            with ExitStack() as opened:
                source = _source(url, group, limited, opened)
                part, length = _part(dataset, source, dim, begin)
                begin += length
                present = {str(name) for name in source.variables}
                lost = sorted(present - names - set(ignore))
                differences += [Difference(variable=x, url=url, reason="it is not in the cube") for x in lost]
                if dim is not None and dim not in source.sizes and dim not in present:
                    names.discard(dim)  # the labels of a new dimension are in no file
                found = {name: _difference(part, source, name, dim) for name in sorted(names)}
                differences += [Difference(variable=x, url=url, reason=reason) for x, reason in found.items() if reason]
            if show is not None:
                show(done, len(urls), len({difference.url for difference in differences}))
    if dim is not None and begin != dataset.sizes[dim]:
        known = {difference.variable for difference in differences}
        reason = f"the files have {counted(begin, 'element')} along '{dim}', but the cube has {dataset.sizes[dim]}"
        differences += [
            Difference(variable=str(name), url=absolute_url(urls[-1]), reason=reason)
            for name, variable in dataset.variables.items()
            if dim in variable.dims and name not in known
        ]
    return Verification(variables=tuple(sorted(names)), n_files=len(urls), differences=tuple(differences))


def _source(url: str, group: str | None, storage: Storage, opened: ExitStack) -> xr.Dataset:
    """Return a group of a file with the labels of its dimensions that the groups above it have."""
    above = PurePosixPath(f"/{group.strip('/')}").parents if group else ()
    source, *others = [
        opened.enter_context(open_independently(url, x, storage, is_scanned=True)) for x in (group, *map(str, above))
    ]
    for other in others:
        inherited = [dim for dim, n in other.sizes.items() if dim in other.indexes and source.sizes.get(dim) == n]
        source = source.assign_coords({x: other.variables[x] for x in inherited if x not in source.variables})
    return source


def _part(dataset: xr.Dataset, source: xr.Dataset, dim: str | None, begin: int) -> tuple[xr.Dataset, int]:
    """Return the part of a cube that a file is, and its number of elements along the dimension."""
    if dim is None:
        return dataset, 0
    if dim in source.sizes:
        length = int(source.sizes[dim])
        return dataset.isel({dim: slice(begin, begin + length)}), length
    return (dataset.isel({dim: begin}) if begin < dataset.sizes[dim] else dataset), 1


def _difference(cube: xr.Dataset, source: xr.Dataset, name: str, dim: str | None) -> str | None:
    if name not in source.variables:
        return "it is not in the file"
    ours, theirs = cube.variables[name], source.variables[name]
    if dim is not None and dim in ours.dims and dim not in theirs.dims:  # each element has the values of the file
        ours = ours.transpose(dim, ...)
        theirs = theirs.set_dims({dim: ours.sizes[dim], **theirs.sizes})  # type: ignore[no-untyped-call]
    if ours.shape != theirs.shape:
        return f"the cube has shape {ours.shape} there, but the file has {theirs.shape}"
    expected = values_read(lambda: theirs.values)
    if isinstance(expected, str):
        return f"the file's values cannot be read: {expected}"
    return values_differ(np.asarray(ours.values), expected)
