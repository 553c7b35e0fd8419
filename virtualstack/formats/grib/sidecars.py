"""Read the indexes of GRIB files that NOAA (``.idx``) and ECMWF (``.index``) publish: a line of text for each field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from virtualstack.errors import AccessDeniedError, SourceNotFoundError, StorageError
from virtualstack.location import split_query
from virtualstack.storage import Storage
from virtualstack.storage.threads import concurrently

_MAX_INDEX_BYTES = 1 << 26
_MIN_MESSAGE_BYTES = 16
_GRIB = re.compile(r"\.(grib2?|grb2?|gb2?|g2)$")
# number:offset:d=date:text; several fields of a message have number.field, and one offset
_LINE = re.compile(rb"^\d+(?:\.\d+)?:(\d{1,18}):(?:d=(\d+):)?(.*)$", re.MULTILINE)
_FILLED = re.compile(rb"^.", re.MULTILINE)


class SidecarError(ValueError):
    """The text is not an index, or belongs to another file."""


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The content of an index."""

    url: str
    lengths: Mapping[int, int | None]


class Lines(NamedTuple):
    """The lines of an index, in columns.

    ``names`` say what a field is, without its place and reference time. ``dates`` are the reference times in digits,
    such as ``b"2020010100"``, or empty. ``lengths`` are those of messages, or ``None`` in the indexes of NOAA.
    """

    names: list[bytes]
    dates: list[bytes]
    offsets: list[int]
    lengths: list[int | None]

    def in_order(self) -> Lines:
        """Return the lines in the order of the file."""
        if not any(map(int.__gt__, self.offsets, self.offsets[1:])):
            return self
        order = sorted(range(len(self.offsets)), key=self.offsets.__getitem__)
        names, dates = [self.names[i] for i in order], [self.dates[i] for i in order]
        return Lines(names, dates, [self.offsets[i] for i in order], [self.lengths[i] for i in order])


def sidecar_urls(url: str, /) -> list[str]:
    """Return the URLs that the index of a file may have.

    >>> sidecar_urls("s3://bucket/a.grib2")
    ['s3://bucket/a.grib2.idx', 's3://bucket/a.index', 's3://bucket/a.grib2.index']
    >>> sidecar_urls("https://host/gfs.t00z.pgrb2.0p25.f000?x=1")
    ['https://host/gfs.t00z.pgrb2.0p25.f000.idx?x=1', 'https://host/gfs.t00z.pgrb2.0p25.f000.index?x=1']
    """
    path, query = split_query(url)
    replaced = _GRIB.sub(".index", path)
    names = [f"{path}.idx", *([replaced] if replaced != path else []), f"{path}.index"]
    return [name + query for name in names]


def find_sidecar(url: str, size: int, storage: Storage, /) -> tuple[Sidecar | None, list[str]]:
    """Find the index of a file, with one request for each possible name, all at once.

    An index that does not exist, or to which access is denied, is not reported.
    """
    # a scan cache does not record this: the fields of the file do not depend on the index
    plain = Storage(storage.given, storage.carried, named=storage.named)

    def look(name: str) -> Sidecar | Exception:
        try:
            return open_sidecar(name, size, plain)
        except (SidecarError, StorageError) as error:
            return error

    urls = sidecar_urls(url)
    notes: list[str] = []
    for found in concurrently(look, urls, urls):
        if isinstance(found, Sidecar):
            return found, notes
        if not isinstance(found, SourceNotFoundError | AccessDeniedError):
            notes.append(f"an index of the file is not used: {found}")
    return None, notes


def open_sidecar(url: str, size: int, storage: Storage, /) -> Sidecar:
    """Read an index."""
    return Sidecar(url, parse_sidecar(read_sidecar(url, storage), size, url=url))


def read_sidecar(url: str, storage: Storage, /) -> bytes:
    """Return the text of an index."""
    source = storage.source(url)
    if source.size > _MAX_INDEX_BYTES:
        raise SidecarError(f"'{url}' has {source.size} bytes; of an index, at most {_MAX_INDEX_BYTES} are read")
    return source.read(0, source.size)


def parse_sidecar(data: bytes, size: int, /, *, url: str) -> dict[int, int | None]:
    """Return the lengths of messages by their offsets from the text of an index, in ascending order."""
    lines = parse_lines(data, url=url)
    lengths: dict[int, int | None] = {}
    for offset, length in zip(lines.offsets, lines.lengths, strict=True):
        if lengths.setdefault(offset, length) != length:
            raise SidecarError(f"'{url}' has two lengths of the message at byte {offset}")
    if len(lengths) > size // _MIN_MESSAGE_BYTES:
        raise SidecarError(f"'{url}' has {len(lengths)} offsets, more than there are messages in {size} bytes")
    for offset, length in lengths.items():
        if not 0 <= offset < size or not 0 < (1 if length is None else length) <= size - offset:
            what = "a message" if length is None else f"a message of {length} bytes"
            raise SidecarError(f"'{url}' has {what} at byte {offset}, but the file has {size} bytes")
    return dict(sorted(lengths.items()))


def parse_lines(data: bytes, /, *, url: str) -> Lines:
    """Return the lines of an index in columns."""
    lines = (_json_lines if data.lstrip()[:1] == b"{" else _text_lines)(data, url)
    if not lines.names:
        raise SidecarError(f"'{url}' is empty")
    return lines


def _text_lines(data: bytes, url: str) -> Lines:
    data = data.replace(b"\r", b"")
    found = _LINE.findall(data)
    if len(found) != data.count(b"\n") and len(found) != len(_FILLED.findall(data)):
        raise SidecarError(
            f"'{url}' has lines that are not those of an index, such as '1:0:d=2020010100:TMP:surface:anl:'"
        )
    offsets, dates, names = zip(*found, strict=True) if found else ((), (), ())
    return Lines(list(names), list(dates), list(map(int, offsets)), [None] * len(found))


def _json_lines(data: bytes, url: str) -> Lines:
    lines = Lines([], [], [], [])
    for line in data.splitlines():
        if not line.strip():
            continue
        try:
            said = orjson.loads(line)
        except orjson.JSONDecodeError:
            said = None
        offset, length = (said.pop(x, None) for x in ("_offset", "_length")) if isinstance(said, dict) else (None, None)
        if type(offset) is not int or type(length) is not int:
            raise SidecarError(f"'{url}' has lines that are not JSON with integers '_offset' and '_length'")
        lines.dates.append(f"{said.pop('date', '')}{said.pop('time', '')}".encode())
        lines.names.append(orjson.dumps(said, option=orjson.OPT_SORT_KEYS))
        lines.offsets.append(offset)
        lines.lengths.append(length)
    return lines
