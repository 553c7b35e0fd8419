"""The reader of arrays that numpy saved."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from virtualstack.codecs.bounded import INFLATE_ERRORS, new_inflate
from virtualstack.codecs.codec import Codec
from virtualstack.codecs.zip_member import DESCRIPTOR_BYTES, ZIP
from virtualstack.errors import MalformedFileError, Remedy, UnsupportedFeatureError
from virtualstack.formats.base import ReadOptions
from virtualstack.formats.npy.header import MAGIC, MAX_HEADER_BYTES, NpyHeader, parse_header
from virtualstack.formats.rows import RowReader, place_rows, row_chunks
from virtualstack.location import Location
from virtualstack.manifests import (
    ChunkEncoding,
    ChunkGrid,
    ChunkManifest,
    Chunks,
    Fill,
    ManifestArray,
    ManifestGroup,
    Refusal,
)
from virtualstack.storage import Source, Storage
from virtualstack.storage.zip_index import IS_ENCRYPTED, member_starts, read_zip_index

_FIRST_READ_BYTES = 1024
_SUFFIX = ".npy"
_MAX_ITEM_BYTES = {"f": 8, "c": 16}  # of what zarr has a data type for


@dataclass(frozen=True, slots=True, kw_only=True)
class NumPy(RowReader):
    """Reader of arrays that numpy saved: a ``.npy`` file, or an ``.npz`` archive of several.

    Only headers are read. The array of a ``.npy`` file is the variable ``data``; the arrays of an archive have their
    names. Numpy does not name axes: they are ``dim_0``, ``dim_1`` and so on, and axes of one length share a name.
    Compressed members of an archive are one chunk each, and their checksum is verified; other members are read in
    parts, without it. Arrays of Python objects are refused, since they are programs.

    When to use: the reader is chosen by the first bytes of a file. Name it to set the size of chunks. Alternatives:
    ``numpy.load(path, mmap_mode="r")`` for one local file.

    Parameters
    ----------
    chunk_size
        Maximum bytes of a chunk of values without compression, as a number or text such as ``"4 MiB"``. ``"auto"`` cuts
        arrays of more than 16 MiB into equal chunks, if their lengths have a suitable divisor. ``None`` makes each
        array one chunk.

    Raises
    ------
    ValueError
        ``chunk_size`` is not a positive number of bytes.

    Examples
    --------
    >>> import numpy as np
    >>> import virtualstack as vs
    >>> np.savez("month.npz", rain=np.array([[1.0, 2.0, 3.0]]), lat=np.array([50.0]))
    >>> vds = vs.open_virtual_dataset("month.npz")
    >>> vds["rain"].dims, vds.virtual.open()["rain"].values
    (('dim_0', 'dim_1'), array([[1., 2., 3.]]))
    """

    name: ClassVar[str] = "numpy"

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Return the array of a file, or those of an archive, as a group of virtual arrays.

        :func:`virtualstack.open_virtual_dataset` and ``vs.scan`` call it; call it yourself in a reader of your own.

        Raises
        ------
        MalformedFileError
            The file is not one of numpy, or is truncated or damaged.
        UnsupportedFeatureError
            A member is encrypted, or compressed by another method than numpy's.
        StorageError
            The bytes could not be read.
        """
        source = storage.source(url)
        is_file = source.read(0, min(len(MAGIC), source.size)) == MAGIC
        location, members = source.location, (_file if is_file else _archive)(source)
        arrays: dict[str, ManifestArray] = {}
        refusals: list[Refusal] = []
        lengths: list[int] = []  # of the dimensions by number
        for member in members:
            header, name = member.header, member.name
            if options.drops(name):
                continue
            if (reason := _obstacle(name, header.dtype)) is not None:
                refusals.append(Refusal(path=f"/{name}", reason=reason))
                continue
            shape = header.shape[::-1] if header.is_fortran else header.shape
            chunks = self._place(location, member, shape)
            dims: list[int] = []
            for n in header.shape:
                found = (i for i, length in enumerate(lengths) if length == n and i not in dims)
                dims.append(next(found, len(lengths)))
                if dims[-1] == len(lengths):
                    lengths.append(n)
            array = ManifestArray(
                manifest=chunks.manifest, grid=chunks.grid, dtype=header.dtype.newbyteorder("="), name=f"/{name}"
            )
            array = array.transpose() if header.is_fortran else array
            arrays[name] = replace(array, dimension_names=tuple(f"dim_{i}" for i in dims))
            if member.n_left:
                reason = f"{member.n_left} bytes after the first array are left out"
                refusals.append(Refusal(path="/", reason=reason, kind="noted"))
        names = frozenset(f"dim_{i}" for i in range(len(lengths)))  # along none numpy joins bytes to text
        return ManifestGroup(arrays=arrays, not_text=names, refusals=tuple(refusals), url=location.url)

    def _place(self, location: Location, member: _Member, shape: tuple[int, ...]) -> Chunks:
        dtype, fill, skip = member.header.dtype, Fill.zero(member.header.dtype), member.header.length
        if not member.packed_length or 0 in shape:
            chunks = row_chunks(shape, dtype.itemsize, self._most_bytes(), is_equal=self.chunk_size == "auto")
            return place_rows(location, member.offset + skip, dtype, shape, chunks, fill)
        cells = (1,) * len(shape)
        manifest = ChunkManifest.from_arrays(
            np.full(cells, member.offset),
            np.full(cells, member.packed_length),
            location=location,
            encoding=ChunkEncoding.c_order(dtype, shape, [Codec.from_config(ZIP, skip=skip)]),
            fill=fill,
        )
        return Chunks(manifest, ChunkGrid.regular(shape, shape))


@dataclass(frozen=True, slots=True)
class _Member:
    """An array, and where its bytes begin; if packed, those of its member with local header and following record."""

    name: str
    header: NpyHeader
    offset: int
    packed_length: int = 0
    n_left: int = 0


def _file(source: Source) -> Iterator[_Member]:
    header = _header_at(source, 0, source.size, f"'{source.location.url}'")
    yield _Member("data", header, 0, n_left=source.size - header.end)


def _header_at(source: Source, offset: int, length: int, what: str) -> NpyHeader:
    """Parse the header of an array in some bytes of the source, and check that the values are in them, too."""
    url = source.location.url
    head = source.read(offset, min(length, _FIRST_READ_BYTES))
    if int.from_bytes(head[8:10], "little") > _FIRST_READ_BYTES - 10 or head[6:7] > b"\1":
        head = source.read(offset, min(length, MAX_HEADER_BYTES))
    header = parse_header(head, what, url)
    if header.end > length:
        raise MalformedFileError(
            f"{what} is cut short: its values need {header.end} bytes, and there are {length}",
            Remedy("fetch it again"),
            url=url,
            offset=offset,
        )
    return header


def _archive(source: Source) -> Iterator[_Member]:
    url = source.location.url
    listed = read_zip_index(source).infolist()
    # of several members of one name, numpy reads the last
    found = {x.filename: x for x in listed if x.filename.endswith(_SUFFIX)}
    headers = np.array([x.header_offset for x in found.values()], np.int64)
    starts = member_starts(source, headers, list(found)) if found else headers
    for (filename, member), start in zip(found.items(), starts.tolist(), strict=True):
        name, what = filename.removesuffix(_SUFFIX), f"'{filename}' in '{url}'"
        if member.flag_bits & IS_ENCRYPTED or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise UnsupportedFeatureError(
                f"{what} is encrypted, or compressed by a method that numpy does not use",
                Remedy("save it again with numpy.savez"),
                url=url,
                variable=name,
                feature="compressed member",
            )
        if start + member.compress_size > source.size:
            raise MalformedFileError(f"{what} reaches past the end of the file", Remedy("fetch it again"), url=url)
        if member.compress_type == zipfile.ZIP_STORED:
            header = _header_at(source, start, member.compress_size, what)
            yield _Member(name, header, start)
            continue
        packed = source.read(start, min(member.compress_size, MAX_HEADER_BYTES))
        try:
            header = parse_header(new_inflate().decompress(packed, MAX_HEADER_BYTES), what, url)
        except INFLATE_ERRORS as error:
            raise MalformedFileError(f"{what} is damaged: {error}", Remedy("fetch it again"), url=url) from error
        if header.end != member.file_size:
            raise MalformedFileError(
                f"{what} has {member.file_size} bytes, and its values need {header.end}",
                Remedy("fetch it again"),
                url=url,
            )
        length = min(start + member.compress_size + DESCRIPTOR_BYTES, source.size) - member.header_offset
        yield _Member(name, header, member.header_offset, length)


def _obstacle(name: str, dtype: np.dtype[Any]) -> str | None:
    if not name or "/" in name:
        return "its name is empty or has a '/', which paths of groups have"
    if dtype.hasobject:
        return "its values are Python objects (pickles), which may run any program when they are read"
    fields = [dtype] if dtype.fields is None else [field.base for field, *_ in dtype.fields.values()]
    if (
        dtype.itemsize == 0
        or dtype.subdtype is not None
        or any(
            x.itemsize > _MAX_ITEM_BYTES.get(x.kind, x.itemsize)
            or (x.kind in "mM" and np.datetime_data(x)[0] == "generic")
            for x in fields
        )
    ):
        return f"its data type is '{dtype}', and zarr has no data type for it"
    return None
