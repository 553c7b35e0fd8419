"""What a scan finds in a file, in columns: where each field lies, and the keys of each header."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.grib.library import eccodes_of
from virtualstack.errors import MalformedFileError, ManifestError
from virtualstack.formats.base import PARTS
from virtualstack.formats.grib.headers import Header, has_endless_time, header_of
from virtualstack.formats.grib.keys import UNDEFINED, Asking
from virtualstack.formats.grib.messages import Field
from virtualstack.formats.grib.plain import is_plain
from virtualstack.location import Location
from virtualstack.manifests import ManifestGroup
from virtualstack.manifests.inline import inline_array

__all__ = ["FIELD", "NO_TIME", "Records", "records_of"]

FIELD = np.dtype(
    [
        ("header", "<u4"),
        ("number", "<u4"),
        ("offset", "<i8"),
        ("length", "<i8"),
        ("described", "<i8"),
        ("time", "<i8"),
        ("step", "<f8"),
        ("plain", "?"),
    ]
)
"""A field: row of its header, number in its message, bytes; reference time in seconds since 1970, step in hours.

``plain`` tells whether kerchunk's codec is right, too.
"""

_FIELDS = "fields"

NO_TIME = np.iinfo(np.int64).min
"""A time that is none; a step that is none is NaN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """All fields of one file; it pickles.

    Parameters
    ----------
    location
        Of the file.
    names
        Keys that were asked for.
    headers
        Values of the keys, a row for each header that occurs.
    stubs
        A message without data of the first field with each header.
    digests
        Of each header, times apart: equal ones are equal headers.
    fields
        In the order of the file, of dtype `FIELD`.
    n_junk
        Bytes that belong to no message.
    notes
        What there is to say about the index of the file.
    """

    location: Location
    names: tuple[str, ...]
    headers: tuple[tuple[Any, ...], ...]
    stubs: tuple[bytes, ...]
    digests: tuple[bytes, ...]
    fields: NDArray[np.void]
    n_junk: int = 0
    notes: tuple[str, ...] = ()

    def to_group(self) -> ManifestGroup:
        """Give the records as a group, for who keeps and sends groups alone."""
        return ManifestGroup(
            arrays={_FIELDS: inline_array(self.fields, name=f"/{_FIELDS}", dims=[_FIELDS], attributes={})},
            attributes={
                PARTS: "grib",
                "location": [getattr(self.location, x.name) for x in fields(Location) if x.name != "checksums"],
                "names": self.names,
                "headers": self.headers,
                "stubs": self.stubs,
                "digests": self.digests,
                "n_junk": self.n_junk,
                "notes": self.notes,
            },
            url=self.location.url,
        )

    @classmethod
    def from_group(cls, group: ManifestGroup, /) -> Records:
        """Take the records out of a group that :meth:`to_group` has made.

        Raises
        ------
        ManifestError
            It is none.
        """
        said = group.attributes
        if said.get(PARTS) != "grib":
            raise ManifestError(f"the group of '{group.url}' holds no records of GRIB")
        manifest = group.arrays[_FIELDS].in_memory()
        return cls(
            location=Location(*said["location"]),
            names=tuple(said["names"]),
            headers=tuple(tuple(header) for header in said["headers"]),
            stubs=tuple(said["stubs"]),
            digests=tuple(said["digests"]),
            fields=np.frombuffer(manifest.inline, FIELD),
            n_junk=said["n_junk"],
            notes=tuple(said["notes"]),
        )


def records_of(found: Iterable[Field], location: Location, names: tuple[str, ...], /, *, with_times: bool) -> Records:
    """Ask for the keys of fields.

    Parameters
    ----------
    found
        In the order of the file.
    location
        Of the file.
    names
        Of the keys, ``"time"`` and ``"step"`` among them.
    with_times
        Whether keys other than these two depend on times.

    Raises
    ------
    MalformedFileError
        eccodes can make nothing of a header, or would count time for ever.
    """
    rows: dict[bytes, int] = {}
    headers: list[tuple[Any, ...]] = []
    stubs: list[bytes] = []
    columns: list[tuple[int, int, int, int, int, int, float, bool]] = []
    i_time, i_step = names.index("time"), names.index("step")
    asking = Asking(names)
    for field in found:
        header = header_of(field, with_times=with_times)
        row = rows.get(header.key)
        if row is None:
            row = rows[header.key] = len(headers)
            stubs.append(stub := field.stub())
            if with_times and has_endless_time(field):
                raise MalformedFileError(
                    f"'{location.url}' has a message at byte {field.offset} with a forecast time of more than ten "
                    "thousand years, or without a unit; keys that depend on times other than 'time' and 'step' cannot "
                    "be had",
                    url=location.url,
                    offset=field.offset,
                )
            headers.append(_keys(asking, field, header, stub, location))
        time, step = header.time, header.step
        if time is None:
            time = _number(headers[row][i_time], NO_TIME)
        if step is None:
            step = _number(headers[row][i_step], np.nan)
        columns.append(
            (
                row,
                field.number,
                field.offset,
                field.length,
                field.described,
                time,
                step,
                is_plain(field),
            )
        )
    return Records(
        location=location,
        names=names,
        headers=tuple(headers),
        stubs=tuple(stubs),
        digests=tuple(blake2b(key, digest_size=16).digest() for key in rows),
        fields=np.array(columns, FIELD),
    )


def _keys(asking: Asking, field: Field, header: Header, stub: bytes, location: Location) -> tuple[Any, ...]:
    try:
        return asking.keys_of(field, header, stub)
    except eccodes_of().CodesInternalError as error:
        raise MalformedFileError(
            f"'{location.url}' has a message at byte {field.offset} that eccodes cannot make out: {error}. "
            "Fetch it again",
            url=location.url,
            offset=field.offset,
        ) from error


def _number(value: Any, otherwise: Any) -> Any:
    return otherwise if value == UNDEFINED else value
