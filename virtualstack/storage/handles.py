"""Turn what people hold in their hands (paths, open files, bytes, stores) into a URL, and what reaches it."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import sys
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from virtualstack.errors import Remedy, StorageError
from virtualstack.location import BYTES, outermost, split_url
from virtualstack.storage.backends import is_backend
from virtualstack.storage.listing import found_url
from virtualstack.storage.memory import HeldBytes
from virtualstack.storage.registry import SERVERS, Storage

FORMS = (
    "a path, a URL, a pathlib.Path or a UPath, a file that is open for reading bytes (of fsspec too), an "
    "fsspec.OpenFile, bytes or a BytesIO, a dict of kerchunk references, an fsspec mapper, a repository or session of "
    "Icechunk, or a pair of a store (obstore, obspec) or fsspec filesystem and a path in it"
)
"""What opens, for messages."""

_MAX_READ_BYTES = 256 << 20
_BLOCK_BYTES = 8 << 20
_HOSTLESS = tuple(f"{scheme}:///" for scheme in SERVERS)  # their filesystems name paths without their host
_SCHEMES = {"S3Store": ("s3", "bucket"), "GCSStore": ("gs", "bucket"), "AzureStore": ("az", "container_name")}


@dataclass(frozen=True, slots=True)
class Handle:
    """The URL of an object that a user holds, and what reaches the URL."""

    url: str
    prefix: str = ""
    backend: object = None


def is_one(obj: object, /) -> bool:
    """Return whether an object names one source, and is not a list of sources.

    >>> is_one("a.nc"), is_one(b"CDF"), is_one(["a.nc"])
    (True, True, False)
    """
    return (
        isinstance(obj, str | os.PathLike | Mapping | bytes | bytearray | memoryview)
        or (isinstance(obj, tuple) and len(obj) == 2 and isinstance(obj[1], str) and _is_reached(obj[0]))
        or callable(getattr(obj, "read", None))
        or isinstance(getattr(obj, "path", None), str)
        or _is_icechunk(obj)
    )


def find_handle(obj: Any, /) -> Handle:
    """Return the URL of an object, and what reaches it.

    Files are neither closed nor moved: the position of a file is the same afterwards.

    Examples
    --------
    >>> find_handle("s3://bucket/a.nc").url
    's3://bucket/a.nc'
    """
    if isinstance(obj, Handle):
        return obj
    if isinstance(obj, str | os.PathLike):
        return Handle(found_url(obj))
    if isinstance(obj, bytes | bytearray | memoryview):
        return _held(bytes(obj), "data")
    if isinstance(obj, tuple) and len(obj) == 2 and isinstance(obj[1], str):
        if _is_filesystem(obj[0]):
            return _of_filesystem(*obj)
        if is_backend(obj[0]):
            return _of_store(*obj)
    if type(obj).__module__.startswith("upath."):
        return _of_upath(obj)
    if _is_icechunk(obj):
        from virtualstack.storage.sessions import SessionStore

        held = SessionStore.of(obj)
        root = f"{BYTES}session-{id(held.store):x}.icechunk"
        return Handle(root, f"{root}/", held)
    filesystem = getattr(obj, "fs", None)
    if getattr(obj, "compression", None):  # its bytes are not those at its path
        return _of_file(obj) if callable(getattr(obj, "read", None)) else _of_compressed(obj)
    if _is_filesystem(filesystem):
        return _of_filesystem(filesystem, _path_in(obj))
    if isinstance(obj, Mapping):
        return _held(_references(obj), "references.json")
    if callable(getattr(obj, "read", None)) and not isinstance(obj, io.TextIOBase):
        return _of_file(obj)
    what = "a file that is open for reading text; open it with mode 'rb'" if isinstance(obj, io.TextIOBase) else None
    raise StorageError(
        f"{obj!r:.200} is {what or f'of type {type(obj).__name__!r}, which does not open'}. Give {FORMS}"
    )


def reach(handles: list[Handle], storage: Storage, /) -> Storage:
    """Return a storage that also reaches handles; each is reached by its own filesystem, store or bytes."""
    entries = dict(storage.given)
    own = [x for x in handles if x.backend is not None]
    if not own:
        return storage
    for handle in own:
        entries.setdefault(handle.prefix, handle.backend)
    reached = storage.with_given(entries)
    hidden = {outermost(x.url): x.backend for x in own if reached.find(x.url)[1] != x.backend}
    return reached.with_given(entries | hidden) if hidden else reached


def _is_filesystem(obj: object) -> bool:
    spec = sys.modules.get("fsspec.spec")  # loaded by whoever made the object
    return spec is not None and isinstance(obj, spec.AbstractFileSystem)


def _is_reached(obj: object) -> bool:
    return _is_filesystem(obj) or is_backend(obj)


def _is_icechunk(obj: object) -> bool:
    return type(obj).__module__ in ("icechunk.repository", "icechunk.session", "icechunk.store")


def _path_in(obj: Any) -> str:
    """Return the path of an open file, an OpenFile or a mapper in its filesystem."""
    return str(getattr(obj, "root" if isinstance(obj, Mapping) else "path"))


def _of_upath(path: Any) -> Handle:
    is_chained = "::" in str(path) and not path.storage_options.get("target_options")
    if is_chained or not path.storage_options:
        return Handle(found_url(str(path)))
    return _of_filesystem(path.fs, path.path)


def _of_filesystem(filesystem: Any, path: str) -> Handle:
    kind = type(filesystem).__name__
    if kind == "DirFileSystem":
        return _of_filesystem(filesystem.fs, filesystem._join(path))
    if _is_a(filesystem, "fsspec.implementations.cached", "CachingFileSystem"):
        return _of_filesystem(filesystem.fs, path)  # references name what is cached
    if kind in ("ZipFileSystem", "TarFileSystem") and _is_reached(getattr(filesystem.of, "fs", None)):
        outer = find_handle(filesystem.of)
        return Handle(f"{kind[:3].lower()}://{path.strip('/')}::{outer.url}", outer.prefix, outer.backend)
    if _is_a(filesystem, "fsspec.implementations.local", "LocalFileSystem"):
        return Handle(found_url(filesystem._strip_protocol(path)))
    if _is_a(filesystem, "fsspec.implementations.reference", "ReferenceFileSystem"):
        return _of_references(filesystem)
    url, options = str(filesystem.unstrip_protocol(path)), filesystem.storage_options
    if url.startswith(_HOSTLESS):
        host = options.get("host") or next(iter(filesystem.storage_args), "")
        port = f":{options['port']}" if options.get("port") else ""
        url = url.replace(":///", f"://{host}{port}/", 1)
    return Handle(url, split_url(url)[0], filesystem)


def _is_a(obj: object, module: str, name: str) -> bool:
    found = sys.modules.get(module)
    return found is not None and isinstance(obj, getattr(found, name))


def _of_references(filesystem: Any) -> Handle:
    references = filesystem.references
    if isinstance(references, dict):
        return _held(_references(references), "references.json")
    return Handle(found_url(str(filesystem.fo if isinstance(filesystem.fo, str) else references.root)))


def _of_store(store: Any, path: str) -> Handle:
    kind = type(store).__name__ if type(store).__module__.startswith("obstore") else ""
    path = path.strip("/")
    if kind == "LocalStore":
        return Handle(found_url(os.path.join(store.prefix or "/", path)))
    if kind == "HTTPStore":
        root = store.url.rstrip("/") + "/"
        return Handle(root + path, root, store)
    if kind in _SCHEMES:
        scheme, key = _SCHEMES[kind]
        root = "/".join((f"{scheme}:/", store.config[key], *filter(None, [str(store.prefix or "").strip("/")])))
        return Handle(f"{root}/{path}", f"{root}/", store)
    root = f"{BYTES}store-{id(store):x}/"  # the arrays hold the store, so that no other gets its number
    return Handle(root + path, root, store)


def _held(data: bytes, name: str) -> Handle:
    root = f"{BYTES}{hashlib.sha1(data, usedforsecurity=False).hexdigest()}/"
    return Handle(root + name, root, HeldBytes(root + name, data))


def _of_file(file: Any) -> Handle:
    name = getattr(file, "name", None)
    if isinstance(name, str) and _is_open_at(file, name):
        return Handle(found_url(name))
    if isinstance(file, io.BytesIO):
        return _held(file.getvalue(), "data")
    shown = f"the file {name or file!r:.200}"
    try:
        position = file.tell()
        try:
            file.seek(0)
            data = _read(file, shown)
        finally:
            file.seek(position)
    except StorageError:
        raise
    except (OSError, ValueError, TypeError, AttributeError) as error:  # closed, or without seek
        raise StorageError(
            f"{shown} cannot be read from its beginning: {error}. Open the file again, and give {FORMS}"
        ) from error
    return _held(data, "data")


def _of_compressed(file: Any) -> Handle:
    """Return the uncompressed bytes of an OpenFile."""
    try:
        with file as opened:
            return _held(_read(opened, f"the file {file.path!r}"), "data")
    except StorageError:
        raise
    except (OSError, EOFError, ValueError) as error:
        raise StorageError(
            f"{file.path!r} cannot be read with compression={file.compression!r}: {error}",
            Remedy("open it without compression"),
        ) from error


def _is_open_at(file: Any, name: str) -> bool:
    """Return whether a local file is open as it is, such as by no GzipFile, and is still at its path."""
    if not isinstance(getattr(file, "raw", file), io.FileIO):
        return False
    try:
        opened, there = os.fstat(file.fileno()), Path(name).stat()
    except (OSError, ValueError, AttributeError):
        return False
    return stat.S_ISREG(opened.st_mode) and os.path.samestat(opened, there)


def _read(file: Any, shown: str) -> bytes:
    parts: list[bytes] = []
    n_bytes = 0
    while part := file.read(_BLOCK_BYTES):
        if not isinstance(part, bytes | bytearray | memoryview) and not hasattr(part, "__buffer__"):
            raise StorageError(f"{shown} returns {type(part).__name__}, not bytes", Remedy("open it with mode 'rb'"))
        parts.append(bytes(part))
        n_bytes += len(parts[-1])
        if n_bytes > _MAX_READ_BYTES:
            raise StorageError(
                f"{shown} does not have the location of its bytes, and has more than the {_MAX_READ_BYTES >> 20} MiB "
                "that are read into memory",
                Remedy("give its URL, or a pair of the store or filesystem and the path in it"),
            )
    return b"".join(parts)


def _references(references: Mapping[Any, Any]) -> bytes:
    try:
        return orjson.dumps(dict(references), default=_text)
    except TypeError as error:
        raise StorageError(
            f"the mapping is not a set of kerchunk references: {error}. References are text, bytes, or lists of a URL, "
            f"an offset and a length. Give {FORMS}"
        ) from error


def _text(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return "base64:" + b64encode(value).decode()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return list(value)
    if hasattr(value, "item"):  # numbers of numpy
        return value.item()
    raise TypeError(f"{value!r:.100} is of type '{type(value).__name__}'")
