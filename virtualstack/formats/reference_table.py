"""A kerchunk reference set as parsed from JSON: zarr metadata by key, and the chunks of each array as columns."""

from __future__ import annotations

import base64
import binascii
import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError
from virtualstack.formats.metadata import ArrayMetadata
from virtualstack.formats.references import WHOLE, References
from virtualstack.formats.templates import generate, render

__all__ = ["ReferenceTable", "cells_of_keys", "inline_bytes", "parse_json"]

_METADATA = ".zgroup", ".zarray", ".zattrs", ".zmetadata", "zarr.json"
_INDEX = r"^(0|[1-9][0-9]{0,17})$"


def parse_json(text: str | bytes, /, *, where: str) -> Any:
    """Parse JSON as Python does: with NaN.

    Raises
    ------
    MalformedFileError
        It is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedFileError(f"'{where}' is not JSON: {error}; write the references anew") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceTable:
    """References by key.

    Parameters
    ----------
    references
        ``[url, offset, length]``, ``[url]``, text or JSON by key; generators expanded, templates not yet.
    templates
        By name.
    where
        The file, for messages.
    keys
        Of the references, sorted.
    """

    references: Mapping[str, Any]
    templates: Mapping[str, str]
    where: str
    keys: Sequence[str]

    @classmethod
    def of(cls, data: object, /, *, where: str) -> ReferenceTable:
        """Take a reference set of version 0 or 1 apart.

        Raises
        ------
        MalformedFileError
            It is no reference set.
        """
        if not isinstance(data, Mapping) or data.get("version", 0) not in (0, 1):
            raise MalformedFileError(
                f"'{where}' is no set of kerchunk references: an object with 'version': 1 and 'refs' is asked for"
            )
        if "version" not in data:
            references, templates = dict(data), {}
        else:
            references, templates = data.get("refs", {}), data.get("templates", {})
        if (
            not isinstance(references, Mapping)
            or not isinstance(templates, Mapping)
            or not all(isinstance(template, str) for template in templates.values())
        ):
            raise MalformedFileError(
                f"'{where}' has 'refs' or 'templates' that are no objects, or templates without text"
            )
        if "version" in data and data.get("gen"):
            references = {**references, **generate(data["gen"], templates, where=where)}
        if not all(map(str.__instancecheck__, references)):
            raise MalformedFileError(f"'{where}' has keys that are no text")
        return cls(references=references, templates=templates, where=where, keys=sorted(references))

    def metadata(self) -> dict[str, Any]:
        """Give zarr metadata, parsed, by key; consolidated metadata fills in what does not stand on its own.

        Raises
        ------
        MalformedFileError
            Metadata that is not JSON, or a reference to another file.
        """
        found = {key: self._json(key) for key in self.keys if key.endswith(_METADATA) and _is_metadata(key)}
        consolidated = found.get(".zmetadata")
        if isinstance(consolidated, Mapping) and isinstance(consolidated.get("metadata"), Mapping):
            found = {**consolidated["metadata"], **found}
        return found

    def _json(self, key: str) -> Any:
        value = self.references[key]
        if isinstance(value, Mapping):
            return value
        if isinstance(value, (str, bytes)):
            return parse_json(inline_bytes(value, f"{key}' of '{self.where}"), where=f"{key}' of '{self.where}")
        raise MalformedFileError(
            f"'{key}' of '{self.where}' is {value!r}; metadata must stand in the references themselves: write them anew"
        )

    def span(self, path: str, /) -> slice:
        """Give the part of ``keys`` below a path."""
        return slice(bisect_left(self.keys, f"{path}/"), bisect_left(self.keys, f"{path}0"))  # "0" follows "/"

    def strays(self, paths: Sequence[str], /) -> dict[str, int]:
        """Count references that belong to none of the arrays at ``paths``, by their folder."""
        known = np.zeros(len(self.keys), np.bool_)
        for path in paths:
            known[self.span(path)] = True
        strays: dict[str, int] = {}
        for i in np.flatnonzero(~known).tolist():
            folder, _, name = self.keys[i].rpartition("/")
            if name not in _METADATA:
                strays[folder] = strays.get(folder, 0) + 1
        return strays

    def read(self, path: str, metadata: ArrayMetadata, /) -> tuple[References, int]:
        """Give the chunks of an array, and how many references lie outside of its grid.

        Raises
        ------
        MalformedFileError
            A key is no index, or a reference is none.
        """
        keys = [key for key in self.keys[self.span(path)] if not (key.endswith(_METADATA) and _is_metadata(key))]
        cells = cells_of_keys(keys, path, metadata, where=self.where)
        inside = cells >= 0
        n_outside = len(keys) - int(np.count_nonzero(inside))
        if n_outside:
            keys = [key for key, keep in zip(keys, inside.tolist(), strict=True) if keep]
            cells = cells[inside]
        return self._columns(keys, cells), n_outside

    def _columns(self, keys: list[str], cells: NDArray[np.int64]) -> References:
        values = list(map(self.references.__getitem__, keys))
        inline_types = {kind for kind in set(map(type, values)) if issubclass(kind, (str, bytes, Mapping))}
        is_inline = np.fromiter(map(inline_types.__contains__, map(type, values)), np.bool_, len(values))
        inline = tuple(
            inline_bytes(values[i], f"{keys[i]}' of '{self.where}") for i in np.flatnonzero(is_inline).tolist()
        )
        spans = values if not inline else [values[i] for i in np.flatnonzero(~is_inline).tolist()]
        rows, offsets, lengths = np.full((3, len(values)), -1, np.int64)
        names, starts, sizes = self._spans(spans, keys, np.flatnonzero(~is_inline))
        try:
            codes = pa.array(names, pa.string()).dictionary_encode()
        except pa.ArrowException as error:
            raise self._no_reference(keys, values) from error
        if codes.null_count:
            raise self._no_reference(keys, values)
        rows[~is_inline], offsets[~is_inline], lengths[~is_inline] = codes.indices.to_numpy(), starts, sizes
        urls = codes.dictionary.to_pylist()
        if self.templates:
            urls = [render(url, self.templates, where=self.where) for url in urls]
        return References(cells=cells, rows=rows, offsets=offsets, lengths=lengths, urls=tuple(urls), inline=inline)

    def _spans(
        self, spans: list[Any], keys: list[str], at: NDArray[np.int64]
    ) -> tuple[Sequence[Any], NDArray[np.int64], NDArray[np.int64]]:
        """Give URL, offset and length of ``[url, offset, length]`` and ``[url]``."""
        if not spans:
            return (), np.zeros(0, np.int64), np.zeros(0, np.int64)
        try:
            if set(map(len, spans)) != {3}:
                spans = [[value[0], 0, WHOLE] if len(value) == 1 else value for value in spans]
            names, *numbers = (list(map(itemgetter(i), spans)) for i in range(3))
            starts, sizes = map(np.array, numbers)
        except (TypeError, ValueError, IndexError) as error:
            raise self._no_reference([keys[i] for i in at.tolist()], spans) from error
        if starts.dtype != np.int64 or sizes.dtype != np.int64 or starts.min() < 0 or sizes.min() < WHOLE:
            raise self._no_reference([keys[i] for i in at.tolist()], spans)
        return names, starts, sizes

    def _no_reference(self, keys: Sequence[str], values: Sequence[Any]) -> MalformedFileError:
        key, value = next(
            ((key, value) for key, value in zip(keys, values, strict=True) if not _is_reference(value)), ("?", None)
        )
        return MalformedFileError(
            f"'{key}' of '{self.where}' is {str(value)[:200]}; text, [url] or [url, offset, length] with whole numbers "
            "from 0 to 2^63 is asked for: write the references anew"
        )


def _is_metadata(key: str) -> bool:
    return key.rpartition("/")[2] in _METADATA


def _is_reference(value: Any) -> bool:
    if isinstance(value, (str, bytes, Mapping)):
        return True
    if not isinstance(value, (list, tuple)) or len(value) not in (1, 3) or not isinstance(value[0], str):
        return False
    return all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 63 for n in value[1:])


def inline_bytes(value: Any, where: str) -> bytes:
    """Give inline data, which stands in references as base64, text, or JSON.

    Raises
    ------
    MalformedFileError
        Base64 that is none.
    """
    if isinstance(value, Mapping):
        return json.dumps(value).encode()
    raw = value.encode() if isinstance(value, str) else cast(bytes, value)
    if not raw.startswith(b"base64:"):
        return raw
    try:
        return base64.b64decode(raw[len(b"base64:") :], validate=True)
    except binascii.Error as error:
        raise MalformedFileError(f"'{where}' is no base64: {error}; write the references anew") from error


def cells_of_keys(keys: list[str], path: str, metadata: ArrayMetadata, /, *, where: str) -> NDArray[np.int64]:
    """Give the cell that each chunk key names, counted in C order of the grid; -1 where it lies outside.

    Raises
    ------
    MalformedFileError
        A key is no index in a grid of that many axes.
    """
    ndim, grid = len(metadata.shape), metadata.grid.shape
    if not keys:
        return np.zeros(0, np.int64)
    start = f"{path}/{metadata.key_prefix}"
    if not ndim:
        start = start.rstrip(metadata.separator) if metadata.key_prefix else f"{start}0"
        _check_keys(keys, np.array([key == start for key in keys]), where, 0)
        return np.zeros(len(keys), np.int64)
    names = pa.array(keys, pa.string())
    _check_keys(keys, pc.starts_with(names, start).to_numpy(zero_copy_only=False), where, ndim)
    parts = pc.split_pattern(pc.utf8_slice_codeunits(names, len(start)), metadata.separator)
    _check_keys(keys, pc.equal(pc.list_value_length(parts), ndim).to_numpy(zero_copy_only=False), where, ndim)
    numbers = parts.flatten()
    is_index = pc.match_substring_regex(numbers, _INDEX).to_numpy(zero_copy_only=False).reshape(-1, ndim)
    _check_keys(keys, is_index.all(axis=1), where, ndim)
    index = pc.cast(numbers, pa.int64()).to_numpy(zero_copy_only=False).reshape(-1, ndim)
    inside = (index < np.array(grid, np.int64)).all(axis=1)
    cells = np.full(len(keys), -1, np.int64)
    cells[inside] = np.ravel_multi_index(tuple(index[inside].T), grid) if inside.any() else 0
    return cells


def _check_keys(keys: list[str], good: NDArray[np.bool_], where: str, ndim: int) -> None:
    if not good.all():
        raise MalformedFileError(
            f"'{keys[int(np.argmin(good))]}' of '{where}' is no chunk of an array of {ndim} axes: "
            "write the references anew"
        )
