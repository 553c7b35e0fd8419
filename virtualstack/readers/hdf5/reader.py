"""The reader of HDF5 and netCDF-4 files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import h5py

from virtualstack.errors import MalformedFileError, ManifestError, SourceNotFoundError, StorageError
from virtualstack.location import local_path
from virtualstack.manifests import ManifestArray, ManifestGroup, Refusal
from virtualstack.readers.base import ReadOptions, byte_count
from virtualstack.readers.hdf5.attributes import read_attributes
from virtualstack.readers.hdf5.dimensions import NON_COORDINATE, Dimensions, resolve_dimensions
from virtualstack.readers.hdf5.faults import LibraryError, library_errors
from virtualstack.readers.hdf5.object_references import object_paths
from virtualstack.readers.hdf5.obstacles import LostValuesError
from virtualstack.readers.hdf5.records import extend_records
from virtualstack.readers.hdf5.references import FileContext
from virtualstack.readers.hdf5.tree import Group, Variable, find_variable, read_tree
from virtualstack.readers.hdf5.variables import read_variable
from virtualstack.readers.hdf5.virtual_sources import Chain, Datasets
from virtualstack.storage import LocalSource, Source, SourceFile, Storage

__all__ = ["HDF5"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HDF5:
    """Reads HDF5 files, and netCDF-4 files as netCDF shows them.

    Values are those of the HDF5 library; names of dimensions and attributes are those of netCDF-C. What has no
    byte-range form is inlined up to a limit, or refused by name.

    Parameters
    ----------
    contiguous_chunk_size
        Bytes, such as ``"16 MiB"``, of the chunks into which datasets of contiguous layout are cut, at most; ``None``
        for one chunk each. Values that are not compressed are read in parts in any case; what is cut can also be
        written to zarr, and computed with dask, in chunks of that size.
    """

    name: ClassVar[str] = "hdf5"

    contiguous_chunk_size: int | str | None = None

    def __post_init__(self) -> None:
        if self._chunk_size() == 0:
            raise ValueError("contiguous_chunk_size=0 is no size of a chunk; None leaves contiguous values in one")

    def _chunk_size(self) -> int | None:
        size = self.contiguous_chunk_size
        return None if size is None else byte_count(size, option="contiguous_chunk_size")

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Describe a file; reads metadata, and the values of variables that are inlined.

        Raises
        ------
        MalformedFileError
            It is no HDF5 file, is truncated, or its root cannot be read.
        StorageError
            The bytes could not be had.
        """
        source = storage.source(url)

        def read_dataset(url: str, path: str, chain: Chain) -> ManifestArray | None:
            try:
                source = storage.source(url)
            except SourceNotFoundError:
                return None
            with _open(source) as file:
                variable = find_variable(file, path)
                return None if variable is None else _source(variable, context_of(source, file, chain))

        datasets = Datasets(read_dataset)

        def context_of(source: Source, file: h5py.File, chain: Chain = ()) -> FileContext:
            return FileContext(
                location=source.location,
                read=source.read,
                base=int(file.userblock_size),
                inline_limit=options.inline_limit,
                locate=lambda path: storage.source(path).location,
                object_paths=cache(lambda: object_paths(file)),
                contiguous_chunk_size=self._chunk_size(),
                datasets=datasets,
                chain=chain,
            )

        with _open(source) as file:
            context = context_of(source, file)
            try:
                tree = read_tree(file)
                return _group(tree, resolve_dimensions(tree), context, options, {})
            except LibraryError as error:
                raise _damaged(source.location.url, str(error)) from error


@contextmanager
def _open(source: Source) -> Iterator[h5py.File]:
    url = source.location.url
    target: Any = local_path(url) if isinstance(source, LocalSource) else SourceFile(source)
    try:
        with library_errors():
            file = h5py.File(target, "r")
    except LibraryError as error:
        if isinstance(error.__cause__, BlockingIOError):
            raise StorageError(
                f"'{url}' is locked: another program has it open for writing. Close it there first", url=url
            ) from error
        raise _damaged(url, str(error), offset=0) from error
    with file:
        yield file


def _damaged(url: str, what: str, *, offset: int | None = None) -> MalformedFileError:
    return MalformedFileError(
        f"'{url}' is truncated, damaged or no HDF5 file: {what}. "
        "Compare its size with that of its origin, or fetch it again",
        url=url,
        offset=offset,
    )


def _group(
    tree: Group, dims: Dimensions, context: FileContext, options: ReadOptions, inherited: Mapping[str, int]
) -> ManifestGroup:
    attributes, refusals = read_attributes(tree.group, tree.path or "/")
    refusals = [*tree.notes, *refusals]
    arrays: dict[str, ManifestArray] = {}
    declared = dims.declared[tree.path]
    scope = {name: n for name, n in inherited.items() if name not in {dim.name for dim in declared}}
    scope |= {dim.name: dim.length for dim in declared if dim.is_unlimited}
    for variable in tree.variables.values():
        if variable.path in dims.not_variables or not _is_wanted(tree.path, options.group):
            continue
        name = _netcdf_name(variable.name, tree, dims)
        if name in options.drop_variables:
            continue
        array, found = _array(variable, dims, context)
        refusals += found
        if array is not None:
            arrays[name] = extend_records(array, variable.dataset, scope)
    return ManifestGroup(
        arrays=arrays,
        groups={name: _group(child, dims, context, options, scope) for name, child in tree.groups.items()},
        attributes=attributes,
        dimensions={dim.name: dim.length for dim in declared},
        unlimited=frozenset(dim.name for dim in declared if dim.is_unlimited),
        refusals=tuple(refusals),
        url=context.location.url,
    )


def _array(variable: Variable, dims: Dimensions, context: FileContext) -> tuple[ManifestArray | None, list[Refusal]]:
    attributes, refusals = read_attributes(variable.dataset, variable.path)
    try:
        array, refusal = read_variable(variable, dims.names(variable.path), attributes, context)
    except LibraryError as error:
        return None, [*refusals, Refusal(path=variable.path, reason=f"it is damaged: {error}")]
    except ManifestError as error:
        raise _damaged(context.location.url, f"{variable.path}: {error}") from error
    return array, [*refusals, refusal] if refusal is not None else refusals


def _source(variable: Variable, context: FileContext) -> ManifestArray:
    """Describe a dataset that is a source of a virtual dataset."""
    try:
        array, refusal = read_variable(variable, ("",) * len(variable.shape or ()), {}, context)
    except LibraryError as error:
        raise LostValuesError(f"a virtual dataset (VDS) whose source '{variable.path}' is damaged: {error}") from error
    if array is None:
        reason = "" if refusal is None else refusal.reason
        raise LostValuesError(f"a virtual dataset (VDS) whose source '{variable.path}' is refused: {reason}")
    return array


def _netcdf_name(name: str, tree: Group, dims: Dimensions) -> str:
    stripped = name.removeprefix(NON_COORDINATE)
    if stripped in ("", name) or stripped in tree.groups:
        return name
    taken = tree.variables.get(stripped)
    return stripped if taken is None or taken.path in dims.not_variables else name


def _is_wanted(path: str, group: str | None) -> bool:
    if group is None:
        return True
    wanted = "/" + group.strip("/") if group.strip("/") else ""
    return path == wanted or path.startswith(wanted + "/") or wanted.startswith(path + "/") or not path
