"""Read a zarr store in a zip archive, whose chunks are members without compression."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError, Remedy, StorageError, UnsupportedFeatureError
from virtualstack.location import Location, MemberChecksums
from virtualstack.storage import Source
from virtualstack.storage.zip_index import (
    IS_ENCRYPTED,
    LOCAL_HEADER_BYTES,
    MAX_INDEX_BYTES,
    member_starts,
    read_zip_index,
)
from virtualstack.zarr.metadata.array import ArrayMetadata
from virtualstack.zarr.objects import FoundObjects

_DOCUMENTS = "zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"

_AFTER_SLASH = chr(ord("/") + 1)
_HAS_DESCRIPTOR, _IS_UTF8 = 0x8, 0x800


class ZipArchive:
    """The members of a zip archive, by name.

    If several members have one name, the last one counts. A store may be the archive itself or its only folder.
    """

    def __init__(self, source: Source, /) -> None:
        self.source = source
        self._zip = read_zip_index(source)
        listed = self._zip.infolist()
        self._ends = sorted({*(member.header_offset for member in listed), self._zip.start_dir})
        self._members = {member.filename: member for member in listed if not member.is_dir()}
        self._names = sorted(self._members)
        self._location = replace(source.location, checksums=_checksums(listed))
        folders = {name.partition("/")[0] for name in self._names}
        is_in_folder = len(folders) == 1 and not folders & {*_DOCUMENTS, ""}
        self._root = f"{folders.pop()}/" if is_in_folder else ""
        self._room = MAX_INDEX_BYTES

    def document(self, key: str, /) -> bytes | None:
        """Read a whole member, which may be compressed; ``None`` if it does not exist."""
        member = self._members.get(self._root + key)
        if member is None:
            return None
        what = f"'{member.filename}' in '{self.source.location.url}'"
        self._room -= member.file_size
        if self._room < 0:
            raise MalformedFileError(
                f"with the {member.file_size} bytes of {what}, the metadata of the archive are longer than the "
                f"{MAX_INDEX_BYTES} bytes that are read",
                Remedy("pack fewer arrays into one archive, or unpack it"),
            )
        try:
            return self._zip.read(member)
        except StorageError:
            raise
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, RuntimeError, EOFError, ValueError) as error:
            raise MalformedFileError(f"{what} cannot be read: {error}", Remedy("pack the store again")) from error
        except MemoryError as error:  # LZMA allocates as much memory as its header names
            raise MalformedFileError(
                f"{what} cannot be read: it needs more memory than there is", Remedy("pack the store again")
            ) from error

    def folders(self, path: str, /) -> list[str]:
        """Return the folders in a folder."""
        start, names = self._below(path)
        return sorted({name for name, slash, _ in (x[len(start) :].partition("/") for x in names) if slash and name})

    def below(self, path: str, /) -> MemberObjects:
        """Return the members below an array."""
        start, names = self._below(path)
        members = [self._members[name] for name in names if name.rpartition("/")[2] not in _DOCUMENTS]
        for member in members:
            if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & IS_ENCRYPTED:
                raise UnsupportedFeatureError(
                    f"'{member.filename}' in '{self.source.location.url}' is compressed or encrypted by zip, so its "
                    "bytes in the archive are not those of a chunk",
                    Remedy("pack the store without compression (zip -0)"),
                    url=self.source.location.url,
                    variable=path,
                    feature="compressed member",
                )
        starts, is_header = self._starts(members)
        return MemberObjects(
            source=self.source,
            location=self._location,
            keys=tuple(member.filename[len(start) :] for member in members),
            starts=starts,
            lengths=np.array([member.compress_size for member in members], np.int64),
            is_header=is_header,
        )

    def _below(self, path: str) -> tuple[str, list[str]]:
        start = self._root + (f"{path}/" if path else "")
        end = bisect_left(self._names, start[:-1] + _AFTER_SLASH) if start else len(self._names)
        return start, self._names[bisect_left(self._names, start) : end]

    def _starts(self, members: Sequence[zipfile.ZipInfo]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return where members begin, and which of these offsets are offsets of their headers.

        A header has an extra field whose length is not in the index. If there are no bytes between the known part of a
        member and the next member, this field is empty.
        """
        starts, is_header = np.zeros(len(members), np.int64), np.zeros(len(members), np.bool_)
        for i, member in enumerate(members):
            name = member.orig_filename.encode("utf-8" if member.flag_bits & _IS_UTF8 else "cp437")
            begin = member.header_offset + LOCAL_HEADER_BYTES + len(name)
            following = bisect_right(self._ends, member.header_offset)
            end = self._ends[following] if following < len(self._ends) else -1
            is_header[i] = begin + member.compress_size != end or bool(member.flag_bits & _HAS_DESCRIPTOR)
            starts[i] = member.header_offset if is_header[i] else begin
        return starts, is_header


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberObjects:
    """The members below one array."""

    source: Source
    location: Location
    keys: tuple[str, ...]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    is_header: NDArray[np.bool_]

    @property
    def is_listed(self) -> bool:
        """Always true: the index of the archive lists all members."""
        return True

    def find(self, metadata: ArrayMetadata, cells: NDArray[np.int64] | None = None, /) -> FoundObjects:
        """Return the members; headers are read if their offsets are needed."""
        starts, at = self.starts.copy(), np.flatnonzero(self.is_header)
        starts[at] = member_starts(self.source, starts[at], [self.keys[i] for i in at.tolist()])
        n = len(self.keys)
        return FoundObjects(
            keys=self.keys,
            rows=np.zeros(n, np.int64),
            offsets=starts,
            lengths=self.lengths,
            locations=(self.location,) if n else (),
        )


def _checksums(members: Sequence[zipfile.ZipInfo]) -> MemberChecksums:
    """Return the checksums of members that are stored without compression."""
    stored = [x for x in members if x.compress_type == zipfile.ZIP_STORED and not x.flag_bits & IS_ENCRYPTED]
    stored.sort(key=lambda x: x.header_offset)
    return MemberChecksums(
        starts=np.array([x.header_offset for x in stored], np.int64),
        lengths=np.array([x.compress_size for x in stored], np.int64),
        crcs=np.array([x.CRC for x in stored], np.uint32),
    )
