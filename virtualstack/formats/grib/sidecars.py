"""Indexes beside files, of NOAA and ECMWF: where messages begin, as far as one may believe them.

Their text is for people. Offsets, and lengths, are taken from them to read headers side by side; what a file has, its
own bytes say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.storage import Storage
from virtualstack.storage.concurrently import concurrently

__all__ = ["Sidecar", "SidecarError", "find_sidecar", "open_sidecar", "parse_sidecar", "sidecar_urls"]

_MAX_INDEX_BYTES = 1 << 26
_MIN_MESSAGE_BYTES = 16
_GRIB = re.compile(r"\.(grib2?|grb2?|gb2?|g2)$")
# number:offset:text; several fields of a message have number.field, and one offset
_LINE = re.compile(rb"^\d+(?:\.\d+)?:(\d{1,18}):", re.MULTILINE)
_FILLED = re.compile(rb"^[^\r\n]", re.MULTILINE)


class SidecarError(ValueError):
    """It is no index, or of something else."""


@dataclass(frozen=True, slots=True)
class Sidecar:
    """What an index says.

    Parameters
    ----------
    url
        Of the index.
    lengths
        Of the message at each offset, in bytes; ``None`` where it is not said. In ascending order of offsets.
    """

    url: str
    lengths: Mapping[int, int | None]


def sidecar_urls(url: str, /) -> list[str]:
    """Give the names that the index of a file may have.

    >>> sidecar_urls("s3://bucket/a.grib2")
    ['s3://bucket/a.grib2.idx', 's3://bucket/a.index', 's3://bucket/a.grib2.index']
    >>> sidecar_urls("https://host/gfs.t00z.pgrb2.0p25.f000?x=1")
    ['https://host/gfs.t00z.pgrb2.0p25.f000.idx?x=1', 'https://host/gfs.t00z.pgrb2.0p25.f000.index?x=1']
    """
    is_web = url.startswith(("http://", "https://"))  # elsewhere '?' is a letter
    path, mark, query = url.partition("?") if is_web else (url, "", "")
    replaced = _GRIB.sub(".index", path)
    names = [f"{path}.idx", *([replaced] if replaced != path else []), f"{path}.index"]
    return [name + mark + query for name in names]


def find_sidecar(url: str, size: int, storage: Storage, /) -> tuple[Sidecar | None, list[str]]:
    """Look for the index of a file; one request for each of its names, all at once.

    That there is none, or that one may not look, is no news.

    Parameters
    ----------
    url
        Of the file.
    size
        Of the file, in bytes.
    storage
        How it is reached.

    Returns
    -------
    Sidecar or None
        The first that is one.
    list of str
        What is wrong with others.
    """
    # not watched by caches of scans: what is found in the file does not depend on it
    plain = Storage(storage.given, storage.remembered)

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
        if not isinstance(found, SourceNotFoundError) and not isinstance(found.__cause__, PermissionError):
            notes.append(f"an index of the file is not used: {found}")
    return None, notes


def open_sidecar(url: str, size: int, storage: Storage, /) -> Sidecar:
    """Read an index.

    Parameters
    ----------
    url
        Of the index.
    size
        Of the file that it is about, in bytes.
    storage
        How it is reached.

    Raises
    ------
    SidecarError
        It is none, or of another file.
    StorageError
        It cannot be had.
    """
    source = storage.source(url)
    if source.size > _MAX_INDEX_BYTES:
        raise SidecarError(f"'{url}' has {source.size} bytes; of an index, at most {_MAX_INDEX_BYTES} are read")
    return Sidecar(url, parse_sidecar(source.read(0, source.size), size, url=url))


def parse_sidecar(data: bytes, size: int, /, *, url: str) -> dict[int, int | None]:
    """Take offsets and lengths out of the text of an index, sorted.

    Raises
    ------
    SidecarError
        A line is none of an index, or not of a file of so many bytes.
    """
    lengths = _json_lines(data, url) if data.lstrip()[:1] == b"{" else dict.fromkeys(_lines(data, url))
    if not lengths:
        raise SidecarError(f"'{url}' is empty")
    if len(lengths) > size // _MIN_MESSAGE_BYTES:
        raise SidecarError(f"'{url}' has {len(lengths)} offsets, more than there are messages in {size} bytes")
    for offset, length in lengths.items():
        if not 0 <= offset < size or not 0 < (1 if length is None else length) <= size - offset:
            what = "a message" if length is None else f"a message of {length} bytes"
            raise SidecarError(f"'{url}' has {what} at byte {offset}, but the file has {size} bytes")
    return dict(sorted(lengths.items()))


def _lines(data: bytes, url: str) -> list[int]:
    found = _LINE.findall(data)
    if len(found) != sum(1 for _ in _FILLED.finditer(data)):
        raise SidecarError(f"'{url}' has lines that are none of an index, such as '1:0:d=2020010100:TMP:surface:anl:'")
    return [int(x) for x in found]


def _json_lines(data: bytes, url: str) -> dict[int, int | None]:
    lengths: dict[int, int | None] = {}
    for line in data.splitlines():
        if not line.strip():
            continue
        try:
            said = orjson.loads(line)
        except orjson.JSONDecodeError:
            said = None
        offset, length = (said.get(x) for x in ("_offset", "_length")) if isinstance(said, dict) else (None, None)
        if type(offset) is not int or type(length) is not int:
            raise SidecarError(f"'{url}' has lines that are no JSON with integers '_offset' and '_length'")
        if lengths.setdefault(offset, length) != length:
            raise SidecarError(f"'{url}' has two lengths of the message at byte {offset}")
    return lengths
