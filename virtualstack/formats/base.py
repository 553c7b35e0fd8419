"""Define a reader: a frozen dataclass of options that turns a source into a group of virtual arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from virtualstack.errors import MalformedFileError, ReaderError, Remedy, check_type, check_word
from virtualstack.location import is_http, is_remote, outermost
from virtualstack.manifests import ChunkManifest, Fill, ManifestGroup
from virtualstack.manifests.manifest import Manifest
from virtualstack.options import Unsupported
from virtualstack.sizes import byte_count
from virtualstack.storage import Allow, Permission, Storage, read_allowed_urls

PARTS = "virtualstack:parts"
"""Attribute of a group that is one of several parts; its value is the name of the reader that assembles them."""

NETCDF_FILLS: dict[str, float] = {
    "i1": -127,
    "u1": 255,
    "i2": -32767,
    "u2": 65535,
    "i4": -2147483647,
    "u4": 4294967295,
    "i8": -9223372036854775806,
    "u8": 18446744073709551614,
    "f4": 9.969209968386869e36,
    "f8": 9.969209968386869e36,
}
"""Values of numbers that were never written, by dtype: those of netCDF (netcdf.h) and of HDF4 (mfhdf.h)."""


def netcdf_fill(attributes: Mapping[str, Any], dtype: np.dtype[Any], /) -> Fill:
    """Return the value of elements that were never written: ``_FillValue`` if it has their type, else the default."""
    own = np.asarray(attributes.get("_FillValue", ()))
    if own.size == 1 and own.dtype == dtype:
        return Fill.from_value(own.reshape(()), dtype)
    default = NETCDF_FILLS.get(dtype.str[1:])  # CDF, "Note on fill values"; characters have 0
    return Fill.zero(dtype) if default is None else Fill.from_value(default, dtype)


def contradiction(
    url: str, kind: str, what: str, /, *remedies: Remedy, offset: int | None = None
) -> MalformedFileError:
    """Make the error of a file that contradicts its format."""
    return MalformedFileError(
        f"'{url}' is truncated, damaged or not {kind} file: {what}",
        Remedy("compare its size with that of its origin"),
        Remedy("fetch it again"),
        *remedies,
        url=url,
        offset=offset,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options that are common to all readers.

    When to use: as ``options=`` of :func:`virtualstack.scan`, and in a reader of your own. Alternatives: functions that
    open files have each option as a parameter.

    Parameters
    ----------
    group
        Path of the only group that is opened, such as ``"science/grids"``; a reader may leave out arrays of other
        groups. With ``None``, all groups are read, and functions that return one dataset open the root group.
    is_tree
        Form of a file without groups whose fields may be one dataset or a tree, such as GRIB. If true, a tree. If
        false, one dataset, or an error. If ``None``, a tree only if the fields do not fit into one dataset.
    is_part
        If true, a reader that makes one dataset of many files (an :class:`Assembler`, such as GRIB) returns an
        unfinished group for each file, to be assembled later. Functions that open many files set it; you need not.
    drop_variables
        Variables that are not read: by name in any group, or by path (``"/science/winds"``) in a single group.
    inline_limit
        Largest size of the inlined values of one variable that cannot be expressed as byte ranges, in bytes; 0 for no
        values. A larger variable is refused: it becomes a :class:`~virtualstack.manifests.Refusal` of its group, for
        which functions that open files raise an error.
    allow
        Absolute URLs of files and folders that a source may refer to, besides those that are always allowed: see
        :class:`~virtualstack.storage.Permission`.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> xr.Dataset({"rain": ("time", [1.0]), "area": ((), 5.0)}).to_netcdf("day.nc", engine="netcdf4")
    >>> options = vs.readers.ReadOptions(drop_variables=frozenset({"area"}))
    >>> options.wants("rain"), options.drops("area")
    (True, True)
    >>> list(vs.scan(["day.nc"], options=options)[0].arrays)
    ['rain']
    """

    group: str | None = None
    is_tree: bool | None = None
    is_part: bool = False
    drop_variables: frozenset[str] = frozenset()
    inline_limit: int = 1 << 20
    allow: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_type("group", self.group, str | None, "a path of a group, such as 'science/grids'")

    @classmethod
    def from_options(
        cls,
        *,
        group: str | None = None,
        is_tree: bool | None = None,
        is_part: bool = False,
        drop_variables: str | Iterable[str] | None = (),
        unsupported: Unsupported = "inline",
        inline_limit: int | str = "1 MiB",
        allow: Allow = (),
    ) -> ReadOptions:
        """Make the options of a reader from keyword arguments of :func:`virtualstack.open_virtual_dataset`.

        Functions that open files call it, as it accepts what users write, such as ``"1 MiB"``; the class itself takes
        only checked values. A path in ``group`` sets ``is_tree``, and ``unsupported="raise"`` sets ``inline_limit=0``.

        Raises
        ------
        TypeError, ValueError
            An option has a wrong type, or an unknown value.
        """
        check_word("unsupported", unsupported, Unsupported)
        return cls(
            group=group,
            is_tree=True if isinstance(group, str) and group.strip("/") else is_tree,
            is_part=is_part,
            drop_variables=frozenset([drop_variables] if isinstance(drop_variables, str) else drop_variables or ()),
            inline_limit=0 if unsupported == "raise" else byte_count(inline_limit, option="inline_limit"),
            allow=read_allowed_urls(allow),
        )

    def wants(self, path: str, /) -> bool:
        """Return whether the array at a path is wanted: it is in the group, or below or above it, and not dropped.

        The group inherits labels of the groups above it.
        """
        group = f"/{(self.group or '').strip('/')}/".replace("//", "/")
        where = f"/{path.strip('/')}".rpartition("/")[0] + "/"
        return (where.startswith(group) or group.startswith(where)) and not self.drops(path)

    def drops(self, path: str, /) -> bool:
        """Return whether a variable is dropped, by its path from the root, with or without a slash before it."""
        path = path.removeprefix("/")
        return not self.drop_variables.isdisjoint((path, f"/{path}", path.rpartition("/")[2]))

    def without_dropped(self, group: ManifestGroup, /, path: str = "") -> ManifestGroup:
        """Return a group at a path, and all below it, without the variables that are dropped and notes on them."""
        return replace(
            group,
            arrays={name: array for name, array in group.arrays.items() if not self.drops(f"{path}/{name}")},
            groups={name: self.without_dropped(child, f"{path}/{name}") for name, child in group.groups.items()},
            refusals=tuple(x for x in group.refusals if not self.drops(x.path)),
        )


class Reader(Protocol):
    """A reader that turns a source into a group; the fields of its dataclass are options of the format.

    Equal readers return equal groups. A reader can be pickled, keeps no file open, and reads no chunk bytes. If its
    options contain other URLs, such as ``data_url`` of :class:`~virtualstack.readers.DMRPP`, its property ``places`` is
    a tuple of these URLs. The user has named them, so sources may refer to them.

    When to use: to read a format of your own; pass it as ``reader=``, or name it in a :class:`Format`. Alternatives:
    :class:`~virtualstack.readers.KerchunkDriver` takes a function that returns kerchunk references.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from pathlib import Path
    >>> import virtualstack as vs
    >>> @dataclass(frozen=True)
    ... class RawNumbers:
    ...     name = "raw"
    ...
    ...     def read(self, url, storage, options):
    ...         source = storage.source(url)
    ...         size, location = source.size, source.location
    ...         grid = vs.ChunkGrid.regular((size // 8,), (size // 8,))
    ...         manifest = vs.ChunkManifest.from_arrays(
    ...             [0], [size], location=location, encoding=vs.ChunkEncoding.c_order("<f8", (size // 8,)),
    ...             fill=vs.Fill.zero("f8"))
    ...         array = vs.ManifestArray(
    ...             manifest=manifest, grid=grid, dtype="f8", name="/rain", dimension_names=("time",))
    ...         return vs.ManifestGroup(arrays={"rain": array}, url=url)
    >>> n_bytes = Path("rain.bin").write_bytes(bytes.fromhex("000000000000f03f0000000000000040"))
    >>> vs.open_virtual_dataset("rain.bin", reader=RawNumbers()).virtual.open()["rain"].values
    array([1., 2.])
    """

    name: ClassVar[str]

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Describe the source at an absolute URL.

        Objects that cannot be described are listed in ``refusals`` of their group. Only a source that is not of the
        format raises an error.

        Raises
        ------
        MalformedFileError
            The bytes contradict the format.
        StorageError
            The bytes could not be read.
        """


@runtime_checkable
class Assembler(Reader, Protocol):
    """Protocol of a reader that makes one group of many sources, such as GRIB files.

    A function that opens many files works in two steps:

    1. It calls `read` for each source, with ``options.is_part`` true. `read` then returns the part of this source: a
       group that lists its fields but does not arrange them yet. The group has the attribute `PARTS`, whose value is
       the name of the reader.
    2. It calls `assemble` with all parts. The result is the group of the whole.

    If ``options.is_part`` is false, `read` returns the finished group of one source, as any `Reader` does.

    When to use: implement it if the dimensions of the result are known only when all sources have been read, because
    one source has few of its fields. Otherwise implement `Reader`: the groups are then joined as datasets.

    Examples
    --------
    >>> from virtualstack.readers import GRIB, HDF5, Assembler
    >>> isinstance(GRIB(), Assembler), isinstance(HDF5(), Assembler)
    (True, False)
    """

    def assemble(self, parts: Sequence[ManifestGroup], options: ReadOptions) -> ManifestGroup:
        """Make one group of the parts that `read` returned for all sources, in the order of the sources.

        Raises
        ------
        ReaderError
            The parts do not fit together.
        """


def permitted(storage: Storage, url: str, allow: tuple[str, ...] = (), /) -> Storage:
    """Return a storage limited to the locations that a source may refer to: see `Permission`.

    If no references name the source, it is itself read as what a user opens by name.

    Parameters
    ----------
    storage
        Storage that opens the source.
    url
        URL of the source.
    allow
        Further locations that the user allowed.
    """
    return storage.only(Permission.from_allow(url, allow), opened=url if storage.named is None else None)


def read_permitted(reader: Reader, url: str, storage: Storage, options: ReadOptions, /) -> ManifestGroup:
    """Let a reader describe a source, and check that it refers only to allowed locations.

    Manifests that are read in pages check each page when it is read.

    Raises
    ------
    ForbiddenLocationError
        The source refers to a location that may not be read.
    ReaderError, StorageError
        The errors of `Reader.read`.
    """
    storage = permitted(storage, outermost(url), (*options.allow, *getattr(reader, "places", ())))
    try:
        group = reader.read(url, storage, options)
    except ReaderError as error:
        error.url = error.url or url  # the code that reads a part does not know the URL
        raise
    if isinstance(group, ManifestGroup):
        check_references(group, storage)
    return group


def access_of_source(reader: Reader | None, url: str, storage: Storage, options: ReadOptions, /) -> Storage | None:
    """Return the access with which the chunks of a source are read: see :meth:`Storage.access`.

    It sends credentials of this account only to the places that the user named.
    """
    places = (*options.allow, *getattr(reader, "places", ()))
    return permitted(storage, outermost(url), places).access(url)


def is_alone(group: ManifestGroup, url: str, /) -> bool:
    """Return whether a group is of a local source, or one on a web server, that refers to no other.

    It needs no permission, and is read as what a user opens by name. References on a web server may name their own
    document, which the server may then redirect; such a location has no size.
    """
    is_web = is_http(url)
    if is_remote(url) and not is_web:
        return False
    for manifest in _manifests(group):
        if not isinstance(manifest, ChunkManifest):
            return False
        for location in manifest.locations:
            if location.url != url or (is_web and location.size is None):
                return False
    return True


def check_references(group: ManifestGroup, storage: Storage, /) -> None:
    """Raise an error if a group refers to a location that a storage may not read; only manifests in memory are checked.

    Raises
    ------
    ForbiddenLocationError
        The group refers to such a location.
    """
    if storage.permissions:
        storage.check(sorted({x.url for m in _manifests(group) if isinstance(m, ChunkManifest) for x in m.locations}))


def _manifests(group: ManifestGroup) -> Iterator[Manifest]:
    for _, node in group.walk():
        for array in node.arrays.values():
            yield array.manifest
