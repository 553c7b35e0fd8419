"""The content of one version of a cube, as zarr keys: metadata documents, chunks and folders."""

from __future__ import annotations

import json
import math
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any

from virtualstack.location import Location, is_http
from virtualstack.manifests import ENTRY, ManifestArray, ManifestGroup, ManifestNode
from virtualstack.options import OnAbsent
from virtualstack.serve.http import Document, RawHeaders, make_hash
from virtualstack.storage import Storage
from virtualstack.zarr.client import Client, ZarrFormat
from virtualstack.zarr.documents import finite_attributes
from virtualstack.zarr.keys import ZarrKeys
from virtualstack.zarr.present import Chunk, KeptSources, ZarrArray

_UNSAFE = re.compile(r"[\x00-\x20\x7f#?%]")
"""Characters that end the path of a URL, or are not allowed in it."""

_MAX_HEADS = 1 << 14
"""Number of chunks whose headers a version keeps."""

_MAX_REFERENCE_BYTES = 64 << 20
"""Bytes of references that a version keeps in memory; others are read for each chunk."""


_CODECS: Mapping[ZarrFormat, frozenset[str]] = {
    2: frozenset({"blosc", "gzip", "vlen-utf8", "zlib", "zstd"}),
    3: frozenset({"bytes", "transpose", "gzip", "zstd", "blosc", "crc32c", "vlen-utf8"}),
    "cells": frozenset(
        {"bytes", "transpose", "bitround", "gzip", "zlib", "zstd", "lz4", "blosc", "crc32c"}
        | {f"numcodecs.{name}" for name in ("astype", "bitround", "delta", "fixedscaleoffset", "quantize")}
        | {f"numcodecs.{name}" for name in ("gzip", "zlib", "zstd", "lz4", "blosc", "bz2", "shuffle")}
        | {f"numcodecs.{name}" for name in ("adler32", "crc32", "crc32c", "fletcher32")}
        | {f"virtualstack.{name}" for name in ("bitshuffle", "cf", "elements", "lz4", "lzf", "nbit", "scaleoffset")}
        | {"virtualstack.shuffle"}
    ),
}
"""Codecs that zarr-python, tensorstore, zarrita and GDAL decode: GDAL 3.10 and tensorstore lack shuffle of zarr 2.
Those of cells are decoded by the reader of the page, in the folder ``js``."""


def make_clients(
    chunks: Mapping[str, int] | None = None, *, any_codec: bool = False, absent: OnAbsent = "fill"
) -> dict[ZarrFormat, Client]:
    """Return what readers of each version of zarr can do; see :func:`virtualstack.serve.app`."""
    options: dict[str, Any] = {"chunks": dict(chunks or {}), "absent": absent}
    clients = {
        version: Client(zarr_format=version, decodes=codecs.__contains__, **options)
        for version, codecs in _CODECS.items()
    }
    every: dict[ZarrFormat, Client] = {version: Client(zarr_format=version, **options) for version in (2, 3)}
    return clients | every if any_codec else clients


def public_url(chunk: Chunk, /) -> str | None:
    """Return the URL at which everyone can read exactly these bytes: a whole object on a web server without a login."""
    if chunk.stored is None or chunk.stored.location is None:
        return None
    at = chunk.stored.location
    is_whole = chunk.stored.offset == 0 and chunk.stored.length == at.size
    is_public = is_http(at.url) and "?" not in at.url and "@" not in at.url
    return at.url if is_whole and is_public else None


def stored_version(chunk: Chunk, /) -> str | None:
    """Return the identity of the stored bytes, the same in all versions of the cube; ``None`` if they are made."""
    if chunk.stored is None or chunk.stored.location is None:
        return None
    at = chunk.stored.location
    return f"{_version(at)}-{chunk.stored.offset:x}-{chunk.stored.length:x}"


@lru_cache(4096)
def _version(location: Location) -> str:
    return make_hash(location.url, location.size, location.etag, location.last_modified)


class Content:
    """One version of a cube: an immutable group, shown under keys of zarr 2 and zarr 3.

    Parameters
    ----------
    group
        The group.
    storage
        Access to its sources.
    clients
        What readers of each version of zarr can do.
    tag
        Identity of this version, for ETags.
    is_fixed
        If true, the version was named in the URL, so that its keys never change.
    """

    def __init__(
        self,
        group: ManifestGroup,
        storage: Storage,
        clients: Mapping[ZarrFormat, Client],
        *,
        tag: str,
        is_fixed: bool,
    ) -> None:
        self.group = group
        self.storage = storage
        self.sources = KeptSources(storage)
        self.keys = {version: ZarrKeys(group, client) for version, client in clients.items()}
        self.tag = tag
        self.is_fixed = is_fixed
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._free_bytes = _MAX_REFERENCE_BYTES
        self.facts: Any = None  # about this version, for the page
        self.answers: OrderedDict[Any, Any] = OrderedDict()  # those that were made from them, or are being made
        self.heads: dict[tuple[str, ZarrFormat], tuple[Hashable, RawHeaders]] = {}
        self._documents: dict[tuple[str, bool], Document] = {}

    def keep_head(self, at: tuple[str, ZarrFormat], read_key: Hashable, headers: RawHeaders, /) -> None:
        """Keep the headers of a whole chunk for its next answer, and what the chunk is called in the cache."""
        if len(self.heads) >= _MAX_HEADS:
            self.heads.clear()
        self.heads[at] = read_key, headers

    @cached_property
    def needs_quotes(self) -> bool:
        """Whether a name would need quotes in a URL, such as the group ``Data Fields`` of HDF-EOS."""
        return any(_UNSAFE.search("/".join((path, *group.arrays))) for path, group in self.group.walk())

    def document(self, key: str, zarr_format: ZarrFormat, /, *, quoted: bool = False) -> Document | None:
        """Return a metadata document, or ``None`` if the key is none. Documents of groups hold those of all members."""
        name, keys = key.rpartition("/")[2], self.keys[zarr_format]
        if name not in keys.document_names:
            return None
        with self._lock:
            if (key, quoted) not in self._documents:
                made = _make_document(keys, key, name, _quote if quoted else str)
                if made is None:
                    return None
                self._documents[key, quoted] = Document(made)
            return self._documents[key, quoted]

    def chunk(self, array: ZarrArray, cell: tuple[int, ...], /) -> Chunk | None:
        """Return a chunk, or ``None`` if it was never written, so that it reads as the fill value.

        The references of an array are kept in memory from its first chunk on, if they are not many.
        """
        if not array.is_in_memory:
            array = self._with_references(array)
        return array.find(cell)

    def _with_references(self, array: ZarrArray) -> ZarrArray:
        nbytes = math.prod(array.array.grid.shape) * ENTRY.itemsize
        if nbytes > self._free_bytes:
            return array
        arrays = self.keys[array.client.zarr_format].arrays
        with self._reading:  # of one array at a time
            found = arrays[array.path]
            if isinstance(found, ZarrArray) and not found.is_in_memory and nbytes <= self._free_bytes:
                found = arrays[array.path] = found.with_references()
                self._free_bytes -= nbytes
        return array if isinstance(found, str) else found


def _make_document(keys: ZarrKeys, key: str, name: str, rename: Callable[[str], str]) -> bytes | None:
    path, node, rest = keys.find(key)
    if rest != [name]:
        return None
    if isinstance(node, ManifestArray) or name not in ("zarr.json", ".zmetadata"):
        document = keys.documents(path, node).get(name)
        return None if document is None else _dump(document)
    members = {rename(key): _finite(x) for key, x in _members(keys, node, path)}
    if name == ".zmetadata":
        return _dump({"zarr_consolidated_format": 1, "metadata": members})
    own = members.pop("zarr.json")
    others = {key.removesuffix("/zarr.json"): document for key, document in members.items()}
    inline = {"kind": "inline", "must_understand": False, "metadata": others}
    return _dump({**own, "consolidated_metadata": inline})


def _members(keys: ZarrKeys, group: ManifestGroup, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the documents of a group and of everything below it, by key relative to the group; its own first."""
    for inner, node in group.walk():
        members: list[tuple[str, ManifestNode]] = [("", node), *((f"{name}/", x) for name, x in node.arrays.items())]
        for name, member in members:
            begin = f"{inner.lstrip('/')}/{name}" if inner else name
            for document_name, document in keys.documents(f"{path}/{begin}".strip("/"), member).items():
                yield begin + document_name, document


def _quote(key: str) -> str:
    """Return a key that means the same if it is put into a URL as it is."""
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", key)


def _finite(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with attributes that all JSON parsers take."""
    if "attributes" in document:
        return {**document, "attributes": finite_attributes(document["attributes"])}
    return dict(document) if "zarr_format" in document else finite_attributes(document)


def _dump(document: Mapping[str, Any]) -> bytes:
    return json.dumps(_finite(document), separators=(",", ":")).encode()
