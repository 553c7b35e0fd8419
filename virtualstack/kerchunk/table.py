"""A kerchunk reference set parsed from JSON: zarr metadata by key, and the chunks of each array as columns."""

from __future__ import annotations

import base64
import binascii
import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from operator import itemgetter
from typing import Any, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError, Remedy, UnsupportedFeatureError
from virtualstack.kerchunk.references import WHOLE, References
from virtualstack.zarr.metadata.array import ArrayMetadata
from virtualstack.zarr.metadata.attributes import parse_json
from virtualstack.zarr.metadata.chunk_keys import cells_of_keys

_METADATA = ".zgroup", ".zarray", ".zattrs", ".zmetadata", "zarr.json"
_INDEX = "0123456789."
_BATCH_REFERENCES = 1 << 16  # references, or up to one part more
_TEMPLATE = re.compile(r"\{\{(.*?)\}\}")
_MAX_URL_CHARACTERS = 1 << 14


type ReferenceColumns = tuple[pa.Array, NDArray[np.integer], NDArray[np.int64], NDArray[np.integer]]
"""Keys, URL rows, offsets, and lengths in bytes."""


def _by_stem(columns: ReferenceColumns) -> tuple[ReferenceColumns, Sequence[str], Sequence[int]]:
    """Sort columns by the stems of their keys; return the columns, the stems, and the first row of each stem."""
    keys, rows, offsets, lengths = columns
    encoded = pc.ascii_rtrim(keys, _INDEX).dictionary_encode()
    stems = encoded.dictionary.to_pylist()
    order = sorted(range(len(stems)), key=stems.__getitem__)
    ranks = np.argsort(order)[encoded.indices.to_numpy()]
    if (ranks[1:] < ranks[:-1]).any():
        by = np.argsort(ranks, kind="stable")
        keys, rows, offsets, lengths = keys.take(pa.array(by)), rows[by], offsets[by], lengths[by]
    starts = [0, *np.bincount(ranks, minlength=len(stems)).cumsum().tolist()]
    return (keys, narrow(rows), offsets, lengths), [stems[i] for i in order], starts


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainReferences:
    """References ``[url, offset, length]`` as columns, in parts."""

    parts: dict[int, ReferenceColumns]
    left: list[int]
    urls: Sequence[str]
    stems: Sequence[str]
    places: Sequence[Sequence[tuple[int, int, int]]]

    @classmethod
    def from_columns(cls, parts: Iterable[ReferenceColumns], urls: Sequence[str]) -> Self:
        """Sort columns by the stems of their keys, which are distinct; each part has less than 2 GiB of keys."""
        made, places = dict[int, ReferenceColumns](), dict[str, list[tuple[int, int, int]]]()
        for i, columns in enumerate(parts):
            made[i], names, starts = _by_stem(columns)
            for stem, start, stop in zip(names, starts, starts[1:], strict=False):
                places.setdefault(stem, []).append((i, start, stop))
        stems = sorted(places)
        left = [len(keys) for keys, *_ in made.values()]
        return cls(parts=made, left=left, urls=urls, stems=stems, places=[places[stem] for stem in stems])

    def counts(self) -> NDArray[np.int64]:
        """Return the number of references of each stem."""
        return np.array([sum(stop - start for _, start, stop in places) for places in self.places], np.int64)

    def below(self, path: str, /, *, once: bool = False) -> Iterator[ReferenceColumns]:
        """Yield the references whose keys are below a path, some at a time."""
        some: list[tuple[int, int, int]] = []
        n = 0
        for places in self.places[below(self.stems, path)]:
            for place in places:
                some.append(place)
                n += place[2] - place[1]
                if n >= _BATCH_REFERENCES:
                    yield self._columns(path, some, once=once)
                    some, n = [], 0
        if some:
            yield self._columns(path, some, once=once)

    def _columns(self, path: str, places: Sequence[tuple[int, int, int]], *, once: bool) -> ReferenceColumns:
        if any(i not in self.parts for i, _, _ in places):
            raise MalformedFileError(f"'{path}' is an array below another array", Remedy("write the references again"))
        parts = [(self.parts[i], slice(start, stop)) for i, start, stop in places]
        for i, start, stop in places if once else ():
            self.left[i] -= stop - start
            if not self.left[i]:
                del self.parts[i]
        keys, rows, offsets, lengths = zip(*(tuple(x[at] for x in part) for part, at in parts), strict=True)
        return (
            pa.concat_arrays(keys).cast(pa.large_string()),
            np.concatenate(rows),
            np.concatenate(offsets),
            np.concatenate(lengths),
        )


def narrow(numbers: NDArray[np.integer], /) -> NDArray[np.integer]:
    """Return non-negative integers in as few bytes as possible."""
    return numbers.astype(np.uint32) if int(numbers.max(initial=0)) < 1 << 32 else numbers.copy()


def below(names: Sequence[str], path: str, /) -> slice:
    """Return the slice of sorted names that are below a path; the slice of all names for the root."""
    if not path:
        return slice(0, len(names))
    return slice(bisect_left(names, f"{path}/"), bisect_left(names, f"{path}0"))  # "0" follows "/"


def are_metadata(keys: pa.Array, /) -> NDArray[np.bool_]:
    """Return a mask of the keys of zarr metadata, by the text after their last ``/``."""
    found = np.zeros(len(keys), np.bool_)
    for name in _METADATA:
        for i in np.flatnonzero(pc.ends_with(keys, name).to_numpy(zero_copy_only=False)).tolist():
            found[i] = keys[i].as_py().rpartition("/")[2] == name
    return found


def _not_expanded(what: str, where: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"'{where}' {what}",
        Remedy("write the references without them, as fsspec expands them"),
        feature="templates",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceTable:
    """References by key."""

    references: Mapping[str, Any]
    templates: Mapping[str, str]
    where: str
    keys: Sequence[str]
    describes: NDArray[np.bool_]
    plain: PlainReferences | None

    @classmethod
    def from_references(cls, data: object, /, *, where: str, plain: PlainReferences | None = None) -> ReferenceTable:
        """Return the table of a reference set of version 0 or 1; ``plain`` are references already removed from it."""
        if not isinstance(data, Mapping) or data.get("version", 0) not in (0, 1):
            raise MalformedFileError(
                f"'{where}' is not a set of kerchunk references; expected an object with 'version': 1 and 'refs'"
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
                f"'{where}' has 'refs' or 'templates' that are not objects, or templates that are not text. Write "
                "the references again"
            )
        if "version" in data and data.get("gen"):
            raise _not_expanded("has generators ('gen')", where)
        try:
            "".join(references).encode()
        except (TypeError, UnicodeEncodeError) as error:
            raise MalformedFileError(
                f"'{where}' has keys that are not text: {error}", Remedy("write the references again")
            ) from error
        keys = sorted(references)
        return cls(
            references=references,
            templates=templates,
            where=where,
            keys=keys,
            describes=are_metadata(pa.array(keys, pa.large_string())),
            plain=plain,
        )

    def metadata(self) -> dict[str, Any]:
        """Return parsed zarr metadata by key; consolidated metadata add documents that have no key of their own."""
        found = {key: self._json(key) for key in compress(self.keys, self.describes.tolist())}
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
            f"'{key}' of '{self.where}' is {repr(value)[:200]}; expected metadata as text or an object. Write the "
            "references again"
        )

    def strays(self, paths: Sequence[str], /) -> dict[str, int]:
        """Return the number of references, by folder, that belong to none of the arrays at ``paths``."""
        strays: dict[str, int] = {}
        counted = [(self.keys, 1 - self.describes)]
        if self.plain is not None:
            counted.append((self.plain.stems, self.plain.counts()))
        for names, counts in counted:
            for path in paths:
                counts[below(names, path)] = 0
            for i in np.flatnonzero(counts).tolist():
                folder = names[i].rpartition("/")[0]
                strays[folder] = strays.get(folder, 0) + int(counts[i])
        return dict(sorted(strays.items()))

    def read(self, path: str, metadata: ArrayMetadata, /, *, once: bool = False) -> Iterator[References]:
        """Yield the chunks of an array, some at a time; with ``once``, references are released when they were read."""
        yield self._read_others(path, metadata)
        if self.plain is not None:
            yield from self._read_plain(self.plain, path, metadata, once)

    def render(self, url: str, /) -> str:
        """Return a URL with its templates replaced: names in double braces, as kerchunk writes them."""
        if not self.templates:
            return url
        parts = _TEMPLATE.split(url)
        parts[1::2] = [self.templates.get(name.strip(), "{{") for name in parts[1::2]]
        if sum(map(len, parts)) > _MAX_URL_CHARACTERS or any("{{" in part for part in parts):
            raise _not_expanded(f"has the template {url[:80]!r}, which is more than the name of a text", self.where)
        return "".join(parts)

    def _read_others(self, path: str, metadata: ArrayMetadata) -> References:
        at = below(self.keys, path)
        keys = list(compress(self.keys[at], (~self.describes[at]).tolist()))
        cells = cells_of_keys(pa.array(keys, pa.large_string()), path, metadata, where=self.where)
        inside = cells >= 0
        n_outside = len(keys) - int(np.count_nonzero(inside))
        if n_outside:
            keys, cells = list(compress(keys, inside.tolist())), cells[inside]
        return self._columns(keys, cells, n_outside)

    def _read_plain(
        self, plain: PlainReferences, path: str, metadata: ArrayMetadata, once: bool
    ) -> Iterator[References]:
        for keys, rows, offsets, lengths in plain.below(path, once=once):
            cells = cells_of_keys(keys, path, metadata, where=self.where)
            inside = cells >= 0
            n_outside = len(cells) - int(np.count_nonzero(inside))
            yield References(
                cells=cells[inside],
                rows=rows[inside],
                offsets=offsets[inside],
                lengths=lengths[inside],
                urls=plain.urls,
                n_outside=n_outside,
            )

    def _columns(self, keys: list[str], cells: NDArray[np.int64], n_outside: int) -> References:
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
        except (pa.ArrowException, UnicodeEncodeError) as error:
            raise self._no_reference(keys, values) from error
        if codes.null_count:
            raise self._no_reference(keys, values)
        rows[~is_inline], offsets[~is_inline], lengths[~is_inline] = codes.indices.to_numpy(), starts, sizes
        return References(
            cells=cells,
            rows=rows,
            offsets=offsets,
            lengths=lengths,
            urls=codes.dictionary.to_pylist(),
            inline=inline,
            n_outside=n_outside,
        )

    def _spans(
        self, spans: list[Any], keys: list[str], at: NDArray[np.int64]
    ) -> tuple[Sequence[Any], NDArray[np.int64], NDArray[np.int64]]:
        """Return URLs, offsets and lengths of references ``[url, offset, length]`` and ``[url]``."""
        if not spans:
            return (), np.zeros(0, np.int64), np.zeros(0, np.int64)
        try:
            if set(map(len, spans)) != {3}:
                spans = [[value[0], 0, WHOLE] if len(value) == 1 else value for value in spans]
            names, *numbers = (list(map(itemgetter(i), spans)) for i in range(3))
            starts, sizes = map(np.array, numbers)
        except (TypeError, ValueError, IndexError) as error:
            raise self._no_reference([keys[i] for i in at.tolist()], spans) from error
        is_whole = all(x.dtype == np.int64 and x.ndim == 1 for x in (starts, sizes))
        if not is_whole or bool in set(map(type, chain(*numbers))) or starts.min() < 0 or sizes.min() < WHOLE:
            raise self._no_reference([keys[i] for i in at.tolist()], spans)
        return names, starts, sizes

    def _no_reference(self, keys: Sequence[str], values: Sequence[Any]) -> MalformedFileError:
        key, value = next(
            ((key, value) for key, value in zip(keys, values, strict=True) if not _is_reference(value)), ("?", None)
        )
        return MalformedFileError(
            f"'{key}' of '{self.where}' is {repr(value)[:200]}; expected text, [url] or [url, offset, length] with "
            "whole numbers from 0 to 2^63",
            Remedy("write the references again"),
        )


def _is_reference(value: Any) -> bool:
    if isinstance(value, (str, bytes, Mapping)):
        return True
    if not isinstance(value, (list, tuple)) or len(value) not in (1, 3) or not _is_text(value[0]):
        return False
    return all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 63 for n in value[1:])


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value == value.encode(errors="ignore").decode()


def inline_bytes(value: Any, where: str) -> bytes:
    """Return inline data as bytes; references hold it as base64, text, or JSON."""
    if isinstance(value, Mapping):
        return json.dumps(value).encode()
    if isinstance(value, str) and not _is_text(value):
        raise MalformedFileError(f"'{where}' is {value!r}, which is not text", Remedy("write the references again"))
    raw = value.encode() if isinstance(value, str) else cast(bytes, value)
    if not raw.startswith(b"base64:"):
        return raw
    try:
        return base64.b64decode(raw[len(b"base64:") :], validate=True)
    except binascii.Error as error:
        raise MalformedFileError(f"'{where}' is not base64: {error}", Remedy("write the references again")) from error
