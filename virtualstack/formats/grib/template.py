"""Describe a file by its index alone, with a template of what the lines of the indexes of its product mean.

A template has the names of the lines, and for each the header that its field has in another run. A file is described
if its index names the fields of a file that the template knows, and if the messages follow each other from the first
byte of the file to the last. Headers of a sample are read and compared.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import Code, ReaderError, Remedy, SourceNotFoundError, TemplateError
from virtualstack.formats.grib.headers import make_header
from virtualstack.formats.grib.messages import Field, MessageError, parse_fields
from virtualstack.formats.grib.records import Records, describe_fields
from virtualstack.formats.grib.sidecars import (
    Lines,
    Sidecar,
    SidecarError,
    parse_lines,
    read_sidecar,
    sidecar_urls,
)
from virtualstack.formats.grib.walk import Walk, read_messages
from virtualstack.location import Location, split_query
from virtualstack.printable import counted, first_names
from virtualstack.storage import Source, Storage, StorageLike
from virtualstack.storage.listing import find_urls

_TIMES = ("step", "time")
_END, _AGAIN = b"\0", b"\1"  # between names; before the number of a name that a file has several times
_DAMAGE = (ValueError, KeyError, IndexError, OSError, EOFError, zipfile.BadZipFile)
_HEADERS = Remedy("read the headers of the file with", reader=Code("vs.readers.GRIB()"))
_LEARN = Remedy("learn a template of a run like it, with", "vs.readers.GRIBTemplate.learn")


@dataclass(frozen=True, slots=True)
class GRIBTemplate:
    """Meaning of the lines of an index, learnt from the files of one run of a product.

    With a template, :class:`GRIB` describes files of later runs by their indexes, and reads few headers.

    When to use: many runs of one model, whose files have indexes of NOAA (``.idx``) or ECMWF (``.index``) beside them.
    Alternatives: without a template, :class:`GRIB` reads the header of each message, which needs no index.

    Parameters
    ----------
    data
        Content of the file that :meth:`write` writes.

    Examples
    --------
    >>> import virtualstack as vs
    >>> template = vs.readers.GRIBTemplate.learn("gfs.20240101/00/*.f???")  # doctest: +SKIP
    >>> template.write("gfs.npz")  # doctest: +SKIP
    >>> reader = vs.readers.GRIB(template="gfs.npz")  # doctest: +SKIP
    """

    data: bytes = field(repr=False)

    @classmethod
    def learn(cls, urls: str | os.PathLike[str] | Iterable[str], /, *, storage: StorageLike = None) -> Self:
        """Learn a template from the files of one run; the headers of all messages are read.

        Parameters
        ----------
        urls
            Files of the run: a pattern, or a list of paths, URLs and patterns. An index is beside each file.
        storage
            Access to the files.

        Returns
        -------
        GRIBTemplate
            The template.

        Raises
        ------
        TemplateError
            A file has no index, its index does not describe all of its bytes, or two lines with the same text have
            different headers.
        MalformedFileError
            A file has a damaged message.
        StorageError
            A file could not be read, or there are none.
        """
        store, suffix = Storage.from_option(storage), ""
        stubs: dict[bytes, tuple[int, bytes]] = {}
        known: dict[bytes, tuple[int, int, int, float]] = {}
        files: list[NDArray[np.uint32]] = []
        listed = [urls] if isinstance(urls, str | os.PathLike) else urls
        urls = find_urls(listed, storage=store)
        if not urls:
            raise SourceNotFoundError("there are no files to learn from: the list of URLs is empty")
        for url in urls:
            index, lines = find_lines(url, store, suffix)
            suffix = PurePosixPath(split_query(index)[0]).suffix
            files.append(_learn(store.source(url), index, lines, stubs, known))
        made = io.BytesIO()
        _, rows, numbers, steps = zip(*known.values(), strict=True)
        np.savez_compressed(
            made,
            suffix=np.array(suffix),
            names=np.frombuffer(_END.join(known), "u1"),
            rows=np.array(rows, "u4"),
            numbers=np.array(numbers, "u4"),
            steps=np.array(steps, "f8"),
            stubs=np.frombuffer(b"".join(stub for _, stub in stubs.values()), "u1"),
            files=np.concatenate(files),
            counts=np.array([len(x) for x in files], "u8"),
        )
        return cls(made.getvalue())

    @classmethod
    def read(cls, path: str | os.PathLike[str], /, *, storage: StorageLike = None) -> Self:
        """Read a template from a file.

        Parameters
        ----------
        path
            Path or URL of the file.
        storage
            Access to the file.

        Returns
        -------
        GRIBTemplate
            The template.

        Raises
        ------
        ReaderError
            The file is not a template.
        StorageError
            The file could not be read.
        """
        source = Storage.from_option(storage).source(path)
        made = cls(source.read(0, source.size))
        try:
            made.suffix()
        except ReaderError as error:
            raise ReaderError(f"'{source.location.url}': {error}", url=source.location.url) from error
        return made

    def write(self, path: str | os.PathLike[str], /) -> None:
        """Write the template to a local file.

        Parameters
        ----------
        path
            Path of the file, such as ``"gfs.npz"``.

        Raises
        ------
        OSError
            The file could not be written.
        """
        Path(path).write_bytes(self.data)

    def suffix(self) -> str:
        """Return the suffix of the indexes that the template is for: ``".idx"`` or ``".index"``."""
        return _known(self.data, _TIMES).suffix


def find_lines(url: str, storage: Storage, suffix: str, /, index: str | None = None) -> tuple[str, Lines]:
    """Return the URL and the lines of the index of a file: a given one, or the one beside it that has a suffix."""
    for name in sidecar_urls(url) if index is None else [index]:
        if not split_query(name)[0].endswith(suffix) and index is None:
            continue
        try:
            return name, parse_lines(read_sidecar(name, storage), url=name)
        except SourceNotFoundError:
            continue
        except SidecarError as error:
            raise TemplateError(
                f"the index of '{url}' cannot be used: {error}", _HEADERS, url=url, index=name
            ) from error
    raise TemplateError(f"'{url}' has no index beside it", _HEADERS, url=url)


def _learn(
    source: Source,
    index: str,
    lines: Lines,
    stubs: dict[bytes, tuple[int, bytes]],
    known: dict[bytes, tuple[int, int, int, float]],
) -> NDArray[np.uint32]:
    """Add what the lines of an index mean; return the positions of their names."""
    url, size = source.location.url, source.size
    lengths = dict(sorted(zip(lines.offsets, lines.lengths, strict=True)))
    walk = Walk(source, Sidecar(index, {at: n for at, n in lengths.items() if 0 <= at < size}))
    messages = list(walk)
    fields = describe_fields(messages, source.location, _TIMES, with_times=False).fields
    flaw, lines = walk.contradiction(), lines.in_order()
    if flaw is None and (lines.offsets != fields["offset"].tolist() or walk.n_junk):
        flaw = f"it has {counted(len(lines.offsets), 'line')}, and the file {counted(len(fields), 'field')} and "
        flaw += f"{walk.n_junk} bytes that belong to none"
    if flaw is None and [*map(seconds, lines.dates)] != fields["time"].tolist():
        flaw = "its dates are not the reference times of the fields"
    headers = [make_header(x, with_times=False) for x in messages]
    if flaw is None and (np.isnan(fields["step"]).any() or any(header.has_dates for header in headers)):
        flaw = "it has fields without a step, or with a step in months or another unit of no fixed length"
    if flaw is not None:
        raise TemplateError(
            f"no template can be learnt from '{url}' and '{index}': {flaw}", _HEADERS, url=url, index=index
        )
    names = _numbered(lines.names)
    for name, message, header, step in zip(names, messages, headers, fields["step"].tolist(), strict=True):
        row, _ = stubs.setdefault(header.key, (len(stubs), message.stub()))
        mine = row, message.number, step
        if known.setdefault(name, (len(known), *mine))[1:] != mine:
            raise TemplateError(
                f"'{_text(name)}' of '{index}' has another header than in a file before it: their products differ",
                Remedy("learn a template of each of them"),
                url=url,
                index=index,
                unknown=(_text(name),),
            )
    return np.array([known[name][0] for name in names], np.uint32)


class _Known(NamedTuple):
    """A template as it is used: ``fields`` have a row for each name, and ``files`` the sorted rows of each file."""

    suffix: str
    names: list[bytes]
    rows: Mapping[bytes, int]
    fields: NDArray[np.void]
    files: Mapping[bytes, NDArray[np.uint32]]
    records: Records


@lru_cache(maxsize=8)
def _known(data: bytes, names: tuple[str, ...]) -> _Known:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as saved:
            said = {name: saved[name] for name in saved.files}
        lines = said["names"].tobytes().split(_END)
        records = describe_fields(_parsed(said["stubs"].tobytes()), Location(""), names, with_times=False)
        fields = records.fields[said["rows"]]
        fields["number"], fields["step"], fields["plain"] = said["numbers"], said["steps"], False
        edges = np.cumsum(said["counts"])[:-1].astype(np.intp)
        files = [np.sort(x) for x in np.split(said["files"].astype(np.uint32), edges)]
        if len(fields) != len(lines) or any(x.max(initial=0) >= len(lines) for x in files):
            raise ValueError("its columns differ in length")
        rows = {name: i for i, name in enumerate(lines)}
        return _Known(str(said["suffix"]), lines, rows, fields, {x.tobytes(): x for x in files}, records)
    except _DAMAGE as error:
        raise ReaderError(f"it is not a template of GRIB files: {error}") from error


def _parsed(stubs: bytes) -> list[Field]:
    """Return the fields of messages that follow each other."""
    found: list[Field] = []
    at = 0
    while at < len(stubs):
        n, fields = parse_fields(lambda i, n: stubs[i : i + n], at, len(stubs), stubs[at : at + 16])
        at += n
        found += fields
    return found


def describe_by(
    template: GRIBTemplate, source: Source, index: str, lines: Lines, names: tuple[str, ...], /, *, every: int
) -> Records:
    """Return the records of a file by the lines of its index; compare one of ``every`` messages, and the last one.

    All headers of messages with several fields are read, as no index says where their fields end.

    Raises
    ------
    TemplateError
        The template does not know the lines, or they contradict the file.
    """
    known = _known(template.data, names)
    url, size = source.location.url, source.size

    def error(
        text: str, *, offset: int | None = None, unknown: Sequence[bytes] = (), missing: Sequence[bytes] = ()
    ) -> TemplateError:
        said = tuple(map(_text, unknown)), tuple(map(_text, missing))
        text = f"'{index}' is not an index of '{url}' as the template knows it: {text}"
        return TemplateError(
            text, _HEADERS, _LEARN, url=url, index=index, offset=offset, unknown=said[0], missing=said[1]
        )

    lines = lines.in_order()
    if lines.offsets[0] != 0 or lines.offsets[-1] >= size:
        raise error(f"it lists messages from byte {lines.offsets[0]} to {lines.offsets[-1]} of {size} bytes")
    own = _numbered(lines.names)
    rows = [*map(known.rows.get, own)]
    if None in rows:
        unknown = [name for name in own if name not in known.rows]
        raise error(f"the template does not have {first_names([_text(x) for x in unknown])}", unknown=unknown)
    places = np.array(rows, np.uint32)
    if np.sort(places).tobytes() not in known.files:
        missing, others = _nearest(known, set(places.tolist()))
        raise error(
            f"{counted(len(missing), 'line')} of the most similar file are missing, and {len(others)} are not in it: "
            f"{first_names([_text(x) for x in [*missing, *others]])}",
            unknown=others,
            missing=missing,
        )
    fields = known.fields[places]
    offsets = np.array(lines.offsets, np.int64)
    is_first = fields["number"] == 0
    first = np.flatnonzero(is_first)
    edges = np.append(offsets[first], size)
    lengths = edges[1:] - edges[:-1]
    of_message = np.cumsum(is_first) - 1
    fields["offset"], fields["length"] = offsets, lengths[of_message]
    wrong = (offsets != offsets[first][of_message]) | (fields["length"] <= np.where(is_first, fields["described"], 0))
    if lines.lengths[0] is not None:
        wrong |= fields["length"] != np.array(lines.lengths, object)
    if wrong.any():
        at = lines.offsets[int(wrong.argmax())]
        raise error(f"the message at byte {at} does not end where the next one begins", offset=at)
    times = {date: seconds(date) for date in set(lines.dates)}
    if None in times.values():
        raise error("it has no reference times, such as 'd=2020010100'")
    fields["time"] = [times[date] for date in lines.dates]

    counts = np.append(first[1:], len(fields)) - first
    phase = int.from_bytes(blake2b(url.encode(), digest_size=4).digest()) % max(every, 1)
    picked = counts > 1
    picked[phase :: max(every, 1)] |= every > 0
    picked[-1] |= every > 0
    chosen = np.flatnonzero(picked)
    messages = read_messages(source, offsets[first[chosen]].tolist())
    for number in chosen.tolist():
        at, n = int(first[number]), int(counts[number])
        offset = lines.offsets[at]
        try:
            found = next(messages)
        except MessageError as flaw:
            raise error(f"there is no message at byte {offset}: {flaw}", offset=offset) from flaw
        if len(found) != n or found[-1].length != lengths[number]:
            raise error(f"the message at byte {offset} has another length or other fields", offset=offset)
        for i, message in enumerate(found, at):
            header, row = make_header(message, with_times=False), fields[i]
            digest = blake2b(header.key, digest_size=16).digest()
            is_same = digest == known.records.digests[row["header"]] and header.time == row["time"]
            if not is_same or header.step not in (None, row["step"]):
                raise error(
                    f"the header at byte {offset} is not that of '{_text(own[i])}'", offset=offset, unknown=[own[i]]
                )
            row["length"], row["described"] = message.length, message.described
    return Records(
        location=source.location,
        names=names,
        headers=known.records.headers,
        stubs=known.records.stubs,
        digests=known.records.digests,
        fields=fields,
    )


def _nearest(known: _Known, mine: set[int]) -> tuple[list[bytes], list[bytes]]:
    """Return the names that the most similar file has and some rows lack, and those that it does not have."""
    file = min((set(x.tolist()) for x in known.files.values()), key=lambda x: len(x ^ mine))
    return [known.names[i] for i in sorted(file - mine)], [known.names[i] for i in sorted(mine - file)]


def _numbered(names: list[bytes]) -> list[bytes]:
    """Return names, each with a number if the file has had it before."""
    if len(set(names)) == len(names):
        return names
    seen: Counter[bytes] = Counter()
    made = []
    for name in names:
        made.append(name + _AGAIN + b"%d" % seen[name] if seen[name] else name)
        seen[name] += 1
    return made


def _text(name: bytes) -> str:
    text, again, _ = name.decode("utf-8", "replace").partition("\1")
    return f"{text} (again)" if again else text


@lru_cache(maxsize=1 << 14)
def seconds(date: bytes, /) -> int | None:
    """Return a reference time, such as ``b"2020010100"``, in seconds since 1970; ``None`` if it is not one."""
    try:
        return int(datetime.strptime(date.decode().ljust(14, "0"), "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None
