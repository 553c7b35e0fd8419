"""The reader of files that are compressed as a whole, such as ``day.nc.gz``: their values go into the manifest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from virtualstack.errors import MalformedFileError, ReaderError, UnsupportedFeatureError
from virtualstack.formats.base import ReadOptions
from virtualstack.formats.registry import find_reader
from virtualstack.formats.unpack import find_packing, unpack
from virtualstack.manifests import ManifestArray, ManifestGroup, Refusal, inlined
from virtualstack.reading import read_array
from virtualstack.storage import Listed, Permission, Storage
from virtualstack.storage.handles import find_handle, reach


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Reader of a file of any format that is compressed as a whole with gzip or bzip2, such as ``day.nc.gz``.

    Such a file has no byte ranges. It is unpacked in memory, up to 128 MiB, and read by the reader of its format.
    Values of variables up to ``inline_limit`` are stored with the references; others are refused.

    When to use: the reader is chosen by the first bytes of a file. Alternatives: GRIB files of one field
    (``.grib2.gz``) are virtual with :class:`~virtualstack.readers.GRIB`. If you use a file often, unpack it.

    Examples
    --------
    >>> import gzip
    >>> from pathlib import Path
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}).to_netcdf("day.nc", engine="netcdf4")
    >>> n_bytes = Path("day.nc.gz").write_bytes(gzip.compress(Path("day.nc").read_bytes()))
    >>> vs.open_virtual_dataset("day.nc.gz").virtual.open()["rain"].values
    array([1., 2.])
    """

    name: ClassVar[str] = "packed"

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Unpack a file, and return its variables with their values.

        :func:`virtualstack.open_virtual_dataset` and ``vs.scan`` call it; call it yourself in a reader of your own.

        Raises
        ------
        MalformedFileError
            The file is not compressed, cannot be unpacked, or its content is damaged.
        UnsupportedFeatureError
            The file is too large, or compressed twice.
        ReaderError
            The content has no known format.
        StorageError
            The bytes could not be read.
        """
        source = storage.source(url)
        packing = find_packing(source)
        if packing is None:
            raise MalformedFileError(f"'{url}' is not compressed with gzip or bzip2", url=url, offset=0)
        handle = find_handle(unpack(source, packing))
        # what is unpacked may refer to no other file
        inner = reach([handle], Storage.from_option(None).only(Permission.from_allow(handle.url, Listed())))
        try:
            reader = find_reader(handle.url, inner)
            if isinstance(reader, Packed):
                raise UnsupportedFeatureError("it is compressed twice: unpack it first", feature="compressed file")
            group = reader.read(handle.url, inner, replace(options, is_part=False))
            refusals: list[Refusal] = []
            group = replace(group.map_arrays(lambda array: _inlined(array, inner, options, refusals)), url=url)
        except ReaderError as error:
            error.url = url
            raise
        large = {x.path for x in refusals if x.kind == "refused"}
        return _without(replace(group, refusals=(*group.refusals, *refusals)), large)


def _inlined(array: ManifestArray, storage: Storage, options: ReadOptions, refusals: list[Refusal]) -> ManifestArray:
    path, reason = array.name or "", "the file is compressed as a whole"
    if array.nbytes > options.inline_limit:
        reason = f"{reason}, and its {array.nbytes} bytes are more than the inline limit of {options.inline_limit}"
        refusals.append(Refusal(path=path, reason=reason, inline_size=array.nbytes))
        return array
    refusals.append(Refusal(path=path, reason=reason, kind="inlined"))
    return inlined(array, read_array(array, (), storage))


def _without(group: ManifestGroup, paths: set[str]) -> ManifestGroup:
    return replace(
        group,
        arrays={name: array for name, array in group.arrays.items() if array.name not in paths},
        groups={name: _without(child, paths) for name, child in group.groups.items()},
    )
