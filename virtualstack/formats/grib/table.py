"""All fields of one or many files as one table: columns of keys, each with its distinct values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.grib.keys import QUALIFIER, UNDEFINED
from virtualstack.formats.grib.records import FIELD, NO_TIME, Records
from virtualstack.location import Location
from virtualstack.manifests.rows import distinct_rows

__all__ = ["Column", "FieldTable"]


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One key of all fields.

    Parameters
    ----------
    codes
        Row of ``values``, of each field.
    values
        Distinct.
    """

    codes: NDArray[np.int64]
    values: list[Any]

    def distinct(self, rows: NDArray[np.int64], /) -> list[Any]:
        """Give the distinct values of some fields, in the order in which they occur."""
        if len(self.values) == 1 and len(rows):
            return list(self.values)
        codes, first = np.unique(self.codes[rows], return_index=True)
        return [self.values[code] for code in codes[np.argsort(first)]]


@dataclass(frozen=True, eq=False)
class FieldTable:
    """The fields of files, in the order of the files.

    Parameters
    ----------
    names
        Of keys.
    headers
        Values of the keys, a row for each header that occurs.
    stubs
        A message without data for each header.
    digests
        Of each header, times apart.
    fields
        Of dtype `FIELD`.
    sources
        Row of ``locations``, of each field.
    locations
        Of the files.
    """

    names: tuple[str, ...]
    headers: list[tuple[Any, ...]]
    stubs: list[bytes]
    digests: list[bytes]
    fields: NDArray[np.void]
    sources: NDArray[np.int64]
    locations: tuple[Location, ...]
    _columns: dict[str, Column] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_records(cls, parts: Sequence[Records], names: tuple[str, ...], /) -> FieldTable:
        """Put the records of files together."""
        rows: dict[bytes, int] = {}
        headers: list[tuple[Any, ...]] = []
        stubs: list[bytes] = []
        fields = np.concatenate([np.zeros(0, FIELD), *(part.fields for part in parts)])
        begin = 0
        for part in parts:
            codes = np.empty(len(part.headers), np.uint32)
            for i, digest in enumerate(part.digests):
                codes[i] = code = rows.setdefault(digest, len(rows))
                if code == len(stubs):
                    stubs.append(part.stubs[i])
                    headers.append(part.headers[i])
            mine = fields[begin : begin + len(part.fields)]
            mine["header"] = codes[mine["header"]]
            begin += len(part.fields)
        return cls(
            names=names,
            headers=headers,
            stubs=stubs,
            digests=list(rows),
            fields=fields,
            sources=np.repeat(np.arange(len(parts)), [len(part.fields) for part in parts]),
            locations=tuple(part.location for part in parts),
        )

    def column(self, name: str, /) -> Column:
        """Give the values of a key.

        Raises
        ------
        KeyError
            It was not asked for.
        """
        if name not in self._columns:
            self._columns[name] = self._times(name) if name in ("time", "step") else self._key(name)
        return self._columns[name]

    def _key(self, name: str) -> Column:
        if name not in self.names:
            raise KeyError(name)
        at = self.names.index(name)
        values: dict[Any, int] = {}
        # 1, 1.0 and True are one key of a dict, but not one value of an attribute
        codes = [values.setdefault((type(header[at]), header[at]), len(values)) for header in self.headers]
        return Column(np.array(codes, np.int64)[self.fields["header"]], [value for _, value in values])

    def _times(self, name: str) -> Column:
        distinct, codes = np.unique(self.fields[name], return_inverse=True)
        none = distinct == NO_TIME if name == "time" else np.isnan(distinct)
        values = [UNDEFINED if is_none else value for value, is_none in zip(distinct.tolist(), none, strict=True)]
        return Column(codes.astype(np.int64), values)

    @cached_property
    def ranks(self) -> NDArray[np.int64]:
        """Number the entries of cfgrib's index, which are fields with equal keys and times, in their order."""
        values: dict[Any, int] = {}
        # cfgrib knows nothing of the qualifier; the times are those of fields, whether their headers have them or not
        at = [i for i, name in enumerate(self.names) if name not in (QUALIFIER, "time", "step")]
        of_header = [values.setdefault(tuple(repr(row[i]) for i in at), len(values)) for row in self.headers]
        step = np.where(np.isnan(self.fields["step"]), -np.inf, self.fields["step"])
        keys = np.array(of_header, np.int64)[self.fields["header"]]
        first, inverse = distinct_rows([keys, self.fields["time"], step])
        return np.argsort(np.argsort(first))[inverse].astype(np.int64)

    def selected(self, wanted: Mapping[str, Any], /) -> NDArray[np.int64]:
        """Give the rows of fields whose keys have given values, or one of several."""
        keep = np.ones(len(self.fields), bool)
        for name, value in wanted.items():
            column = self.column(name)
            these = value if isinstance(value, list | tuple | set | frozenset) else (value,)
            keep &= np.array([x in these for x in column.values], bool)[column.codes]
        return np.flatnonzero(keep)
