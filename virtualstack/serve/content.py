"""The content of one version of a cube, as zarr keys: metadata documents, chunks and folders."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from virtualstack.errors import UnsupportedFeatureError
from virtualstack.location import Location
from virtualstack.manifests import ENTRY, ManifestArray, ManifestGroup, ManifestNode
from virtualstack.reading import OnAbsent
from virtualstack.serve.http import Document, RawHeaders, make_hash
from virtualstack.storage import Bytes, Storage
from virtualstack.zarr.documents import finite_attributes
from virtualstack.zarr.metadata.chunk_keys import parse_cell
from virtualstack.zarr.portable import PortableArray, StoredRange, ZarrFormat, group_documents

__all__ = ["Chunk", "Content", "ServedForm"]

_DOCUMENTS: Mapping[ZarrFormat, tuple[str, ...]] = {
    3: ("zarr.json",),
    2: (".zgroup", ".zattrs", ".zarray", ".zmetadata"),
}
"""Names of metadata documents."""

_UNSAFE = re.compile(r"[\x00-\x20\x7f#?%]")
"""Characters that end the path of a URL, or are not allowed in it."""

_MAX_LISTED = 10_000
"""Largest number of names in a listing of one folder."""

_MAX_HEADS = 1 << 14
"""Number of chunks whose headers a version keeps."""

_MAX_REFERENCE_BYTES = 64 << 20
"""Bytes of references that a version keeps in memory; others are read for each chunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedForm:
    """How arrays are served; see :func:`virtualstack.serve.app`."""

    chunks: Mapping[str, int] = field(default_factory=dict)
    any_codec: bool = False
    absent: OnAbsent = "fill"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Chunk:
    """A chunk of an array that exists.

    Parameters
    ----------
    array
        The array in one version of zarr.
    cell
        Position of the chunk in the chunk grid.
    stored
        Range of its bytes; ``None`` if they are made by decoding.
    """

    array: PortableArray
    cell: tuple[int, ...]
    stored: StoredRange | None

    @property
    def length(self) -> int | None:
        """Size in bytes, or ``None`` if it is only known once the chunk is made: text, and chunks encoded again."""
        if self.stored is not None:
            return self.stored.length
        if self.array.plain is not None or self.array.array.dtype.kind == "T":
            return None
        return self.array.chunk_nbytes

    @property
    def public_url(self) -> str | None:
        """URL at which everyone can read exactly these bytes: a whole object on a web server without a login."""
        if self.stored is None or self.stored.location is None:
            return None
        at = self.stored.location
        is_whole = self.stored.offset == 0 and self.stored.length == at.size
        is_public = at.url.startswith(("http://", "https://")) and "?" not in at.url and "@" not in at.url
        return at.url if is_whole and is_public else None

    @property
    def version(self) -> str | None:
        """Identity of the stored bytes, the same in all versions of the cube; ``None`` for bytes that are made."""
        if self.stored is None or self.stored.location is None:
            return None
        at = self.stored.location
        return f"{_version(at)}-{self.stored.offset:x}-{self.stored.length:x}"

    def read(self, storage: Storage, absent: OnAbsent, begin: int = 0, stop: int | None = None, /) -> Bytes:
        """Read the bytes of the chunk, or from ``begin`` to ``stop``.

        Raises
        ------
        StorageError
            The bytes cannot be read or decoded. The error names the variable and the URL.
        """
        if self.stored is None:
            return memoryview(self.array.make(self.cell, storage, absent=absent))[begin:stop]
        stop = self.stored.length if stop is None else stop
        if self.stored.location is None:
            return memoryview(self.stored.inline)[begin:stop]
        return self.array.read_stored(self.cell, self.stored, storage, begin, stop - begin)


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
    form
        How arrays are served.
    tag
        Identity of this version, for ETags.
    is_fixed
        If true, the version was named in the URL, so that its keys never change.
    """

    def __init__(self, group: ManifestGroup, storage: Storage, form: ServedForm, *, tag: str, is_fixed: bool) -> None:
        self.group = group
        self.storage = storage
        self.form = form
        self.tag = tag
        self.is_fixed = is_fixed
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._free_bytes = _MAX_REFERENCE_BYTES
        self.answers: Any = None  # facts about this version, which the page has asked for
        self.heads: dict[tuple[str, ZarrFormat], tuple[Hashable, RawHeaders]] = {}
        self._arrays: dict[tuple[str, ZarrFormat], PortableArray | str] = {}
        self._documents: dict[tuple[str, bool], Document] = {}

    def keep_head(self, at: tuple[str, ZarrFormat], read_key: Hashable, headers: RawHeaders, /) -> None:
        """Keep the headers of a whole chunk for its next answer, and what the chunk is called in the cache."""
        if len(self.heads) >= _MAX_HEADS:
            self.heads.clear()
        self.heads[at] = read_key, headers

    def array(self, path: str, array: ManifestArray, zarr_format: ZarrFormat, /) -> PortableArray | str:
        """Return an array in one version of zarr, or the reason why this version cannot have it."""
        found = self._arrays.get((path, zarr_format))
        if found is None:
            try:
                found = PortableArray.from_array(
                    array,
                    path=path,
                    zarr_format=zarr_format,
                    chunks=self.form.chunks,
                    any_codec=self.form.any_codec,
                )
            except UnsupportedFeatureError as error:
                found = str(error)
            self._arrays[path, zarr_format] = found
        return found

    def refused(self, zarr_format: ZarrFormat = 3, /) -> dict[str, str]:
        """Return the paths of the variables that are not served, each with the reason."""
        refused: dict[str, str] = {}
        for path, group in self.group.walk():
            refused |= {x.path.lstrip("/"): x.reason for x in group.refusals if x.kind == "refused"}
            for name, array in group.arrays.items():
                inner = f"{path}/{name}".lstrip("/")
                if isinstance(found := self.array(inner, array, zarr_format), str):
                    refused[inner] = found
        return refused

    def find(self, key: str, zarr_format: ZarrFormat, /) -> tuple[str, ManifestNode, list[str]]:
        """Split a key into the path of a node, the node, and the rest of the key.

        A metadata document is the rest of its key, also if a variable has its name.
        """
        node: ManifestNode = self.group
        parts = key.split("/") if key else []
        for depth, part in enumerate(parts):
            if depth == len(parts) - 1 and part in _DOCUMENTS[zarr_format]:
                return "/".join(parts[:depth]), node, parts[depth:]
            if isinstance(node, ManifestGroup) and part in node.arrays:
                node = node.arrays[part]
            elif isinstance(node, ManifestGroup) and part in node.groups:
                node = node.groups[part]
            else:
                return "/".join(parts[:depth]), node, parts[depth:]
        return "/".join(parts), node, []

    @cached_property
    def needs_quotes(self) -> bool:
        """Whether a name would need quotes in a URL, such as the group ``Data Fields`` of HDF-EOS."""
        return any(_UNSAFE.search("/".join((path, *group.arrays))) for path, group in self.group.walk())

    def document(self, key: str, zarr_format: ZarrFormat, /, *, quoted: bool = False) -> Document | None:
        """Return a metadata document, or ``None`` if the key is none. Documents of groups hold those of all members.

        Parameters
        ----------
        key, zarr_format
            Key in one version of zarr.
        quoted
            If true, members have names that need no quotes in a URL, for clients that put names into URLs as they are.
        """
        name = key.rpartition("/")[2]
        if name not in _DOCUMENTS[zarr_format]:
            return None
        with self._lock:
            if (key, quoted) not in self._documents:
                made = self._make_document(key, name, zarr_format, _quote if quoted else str)
                if made is None:
                    return None
                self._documents[key, quoted] = Document(made)
            return self._documents[key, quoted]

    def _make_document(
        self, key: str, name: str, zarr_format: ZarrFormat, rename: Callable[[str], str]
    ) -> bytes | None:
        path, node, rest = self.find(key, zarr_format)
        if rest != [name]:
            return None
        if isinstance(node, ManifestArray):
            found = self.array(path, node, zarr_format)
            document = None if isinstance(found, str) else found.documents.get(name)
            return None if document is None else _dump(document)
        if name == ".zmetadata":
            members = {rename(key): _finite(x) for key, x in self._members(node, path, 2)}
            return _dump({"zarr_consolidated_format": 1, "metadata": members})
        documents = group_documents(node, zarr_format=zarr_format)
        if name != "zarr.json":
            return _dump(documents[name]) if name in documents else None
        own, *others = ((rename(key.removesuffix("/zarr.json")), _finite(x)) for key, x in self._members(node, path, 3))
        inline = {"kind": "inline", "must_understand": False, "metadata": dict(others)}
        return _dump({**own[1], "consolidated_metadata": inline})

    def _members(
        self, group: ManifestGroup, path: str, zarr_format: ZarrFormat
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the documents of a group and of everything below it, by key relative to the group; its own first."""
        for inner, node in group.walk():
            begin = f"{inner.lstrip('/')}/" if inner else ""
            for name, document in group_documents(node, zarr_format=zarr_format).items():
                yield begin + name, document
            for name, array in node.arrays.items():
                found = self.array(f"{path}/{begin}{name}".lstrip("/"), array, zarr_format)
                if not isinstance(found, str):
                    for key, document in found.documents.items():
                        yield f"{begin}{name}/{key}", document

    def chunk_key(self, key: str, zarr_format: ZarrFormat, /) -> tuple[PortableArray, tuple[int, ...]] | None:
        """Return the array and cell of a chunk key, or ``None`` if there is no such chunk in the grid."""
        path, node, rest = self.find(key, zarr_format)
        if not isinstance(node, ManifestArray) or not rest:
            return None
        if zarr_format == 3:
            cell = parse_cell(rest[1:]) if rest[0] == "c" else None
        else:
            cell = parse_cell(rest[0].split(".")) if len(rest) == 1 else None
            if node.ndim == 0 and cell == (0,):
                cell = ()
        if cell is None or len(cell) != node.ndim:
            return None
        array = self.array(path, node, zarr_format)
        if isinstance(array, str) or any(i >= n for i, n in zip(cell, array.grid_shape, strict=True)):
            return None
        return array, cell

    def chunk(self, array: PortableArray, cell: tuple[int, ...], /) -> Chunk | None:
        """Return a chunk, or ``None`` if it was never written, so that it reads as the fill value.

        The references of an array are kept in memory from its first chunk on, if they are not many.

        Raises
        ------
        StorageError
            The references cannot be read, or the chunk is ABSENT and should raise an error.
        """
        if not array.is_in_memory:
            array = self._with_references(array)
        found = array.find(cell, absent=self.form.absent)
        return None if found is None else Chunk(array=array, cell=cell, stored=None if found == "made" else found)

    def _with_references(self, array: PortableArray) -> PortableArray:
        nbytes = math.prod(array.array.grid.shape) * ENTRY.itemsize
        if nbytes > self._free_bytes:
            return array
        with self._reading:  # of one array at a time
            found = self._arrays[array.path, array.zarr_format]
            if isinstance(found, PortableArray) and not found.is_in_memory and nbytes <= self._free_bytes:
                found = self._arrays[array.path, array.zarr_format] = found.with_references()
                self._free_bytes -= nbytes
        return array if isinstance(found, str) else found

    def names(self, path: str, zarr_format: ZarrFormat, /) -> list[str] | None:
        """Return the names in a folder; those of folders end in ``/``. ``None`` if there is no such folder.

        Chunks are listed in zarr 3, where they are folders of numbers, and at most `_MAX_LISTED` of them.
        """
        path, node, rest = self.find(path, zarr_format)
        if isinstance(node, ManifestGroup):
            if rest:
                return None
            arrays = [
                name
                for name, array in node.arrays.items()
                if not isinstance(self.array(f"{path}/{name}".lstrip("/"), array, zarr_format), str)
            ]
            own = [name for name in _DOCUMENTS[zarr_format] if name != ".zarray"]
            return [*own, *(f"{name}/" for name in (*arrays, *node.groups))]
        array = self.array(path, node, zarr_format)
        if isinstance(array, str):
            return None
        if zarr_format == 2:
            return None if rest else [".zarray", ".zattrs"]
        if not rest:
            return ["zarr.json", "c/" if node.ndim else "c"]
        cell = parse_cell(rest[1:])
        if rest[0] != "c" or cell is None or len(cell) >= node.ndim:
            return None
        if any(i >= n for i, n in zip(cell, array.grid_shape, strict=False)):
            return None
        slash = "" if len(cell) == node.ndim - 1 else "/"
        return [f"{i}{slash}" for i in range(min(array.grid_shape[len(cell)], _MAX_LISTED))]


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
