"""Writing of groups as references in an Icechunk session; everything is checked before anything is written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import numpy as np
from zarr.core.buffer import cpu
from zarr.core.sync import sync

from virtualstack.errors import Remedy, StorageError, WriterError
from virtualstack.icechunk.format import NATIVE, import_icechunk, read_reason, url_to_icechunk
from virtualstack.icechunk.references import (
    Changes,
    changes_between,
    inline_chunks,
    kept_beyond,
    set_references,
)
from virtualstack.location import Location, split_url
from virtualstack.manifests import FIRST, ChunkManifest, ManifestArray, ManifestGroup
from virtualstack.manifests.grid import chunk_key
from virtualstack.printable import first_names
from virtualstack.progress import Show, reported
from virtualstack.storage.dry_run import active_dry_run
from virtualstack.storage.signatures import without_signature
from virtualstack.zarr.forms import make_document, make_group_document
from virtualstack.zarr.metadata.array import check_name

MAX_IN_MANIFEST = (1 << 16) - 1
"""Most bytes of a chunk that a manifest of Icechunk can store; larger ones are files."""

_ALIASES = {"s3a": "s3", "gs": "gcs", "gcs": "gs", "az": "abfs", "abfs": "az", "abfss": "az", "azure": "az"}


def container_prefix(url: str, /) -> str:
    """Return the prefix of a container for a source: its bucket or web server, or the folder of a local file.

    Icechunk 2.3 cannot read from containers whose prefix is percent-encoded, and it percent-encodes all URLs. If the
    path would be encoded, the prefix is a folder further up. Icechunk allows no container for all local files.

    >>> container_prefix("file:///data/a b/c/d.nc")
    'file:///data/'
    >>> container_prefix("s3://bucket/data/a.nc")
    's3://bucket/'
    """
    root, key = split_url(url_to_icechunk(url))
    folder, slash, _ = key.partition("%")[0].rpartition("/")
    return f"{root}{folder}{slash}" if root == "file:///" else root


def _written_url(location: Location, prefixes: tuple[str, ...]) -> str | None:
    """Return the URL of a source as a repository with containers writes it; ``None`` if none of them covers it."""
    if location.url.startswith(NATIVE):
        return location.url
    url = url_to_icechunk(without_signature(location.url))
    scheme, _, rest = url.partition("://")
    candidates = url, f"{_ALIASES.get(scheme, scheme)}://{rest}"
    return next((candidate for candidate in candidates if candidate.startswith(prefixes)), None)


def _without_container(location: Location, prefixes: tuple[str, ...], variable: str) -> WriterError:
    prefix = container_prefix(location.url)
    if prefix == "file:///":
        return WriterError(
            f"variable '{variable}' has chunks in '{location.url}', which Icechunk cannot name. Move the file into a "
            "folder whose path begins with ASCII letters and digits",
            variable=variable,
            feature="virtual chunk container for 'file:///'",
        )
    there = f"it has containers for {first_names(prefixes)}" if prefixes else "it has none"
    return WriterError(
        f"variable '{variable}' has chunks in '{location.url}', but the repository has no virtual chunk container for "
        f"'{prefix}'; {there}",
        Remedy(
            "add {} to its configuration, and open a new session", f"icechunk.VirtualChunkContainer('{prefix}', ...)"
        ),
        Remedy("write to the path or URL of a new repository, which gets its containers by itself"),
        variable=variable,
        feature=f"virtual chunk container for '{prefix}'",
    )


_MAX_REQUESTS = 32


def group_path(path: str | None, /) -> str:
    """Return the path of a group without slashes at its ends."""
    return "/".join(filter(None, (path or "").split("/")))


def check_store(store: Any, /) -> Any:
    """Return the store of a session."""
    icechunk = import_icechunk("vds.virtual.to_icechunk()")
    if isinstance(store, icechunk.Session):
        store = store.store
    if not isinstance(store, icechunk.IcechunkStore):
        raise TypeError(
            f"to_icechunk() takes session.store, where session = repo.writable_session('main'); this is a "
            f"{type(store).__name__}"
        )
    if store.read_only:
        raise WriterError(
            "this session of Icechunk is read-only",
            Remedy("open a writable one with", "repo.writable_session('main')"),
            feature="read-only session",
        )
    return store


@contextmanager
def all_or_nothing(store: Any, /) -> Iterator[None]:
    """Discard the changes of a session if a write fails and the session had no other changes."""
    icechunk = import_icechunk("vds.virtual.to_icechunk()")
    session = store.session
    had_changes = session.has_uncommitted_changes
    try:
        yield
    except BaseException as error:
        if not had_changes and session.has_uncommitted_changes:
            session.discard_changes()
        if not isinstance(error, icechunk.IcechunkError):
            raise
        state = (
            "contains a part of this write, and other changes. Call session.discard_changes(), and repeat them"
            if had_changes
            else "was not changed"
        )
        raise StorageError(
            f"the session cannot be read or written by Icechunk: {read_reason(error)}; it {state}"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """An array to be written: its metadata, its manifest, the URLs of its sources, and its changes."""

    document: bytes
    manifest: ChunkManifest
    urls: list[str]
    changes: Changes


def write_group(
    group: ManifestGroup,
    store: Any,
    path: str,
    fitted: Callable[[ManifestArray], ManifestArray],
    /,
    *,
    replaces: bool = False,
    previous: Mapping[str, ManifestArray] = MappingProxyType({}),
    progress: Show | None = None,
) -> None:
    """Write a group after all of its arrays were checked.

    Its arrays complete those in ``previous``, and replace others of the same name; what else is at the path stays, if
    the group does not replace it as a whole.
    """
    # Icechunk cannot read from containers whose prefix is percent-encoded
    prefixes = tuple(sorted(x for x in store.session.config.virtual_chunk_containers or () if "%" not in x))
    documents: dict[str, bytes] = {}
    planned: dict[str, _Planned] = {}
    gone = [path] if replaces else []
    for below, node in group.walk():
        at = f"{path}{below}".strip("/")
        documents[at] = make_group_document(node, path=at)
        for name in (*node.arrays, *node.groups):
            check_name(name, f"{at}/{name}".lstrip("/"), 3)
        for name, array in node.arrays.items():
            where = f"{at}/{name}".lstrip("/")
            old = previous.get(where)
            if old is not None and old.ndim != array.ndim:  # a scalar that got a dimension
                old = None
            if old is None and not replaces and _kind(store, where) is not None:
                gone.append(where)
            if old is not array:
                planned[where] = _planned(fitted(array), old, store, where, prefixes)
    documents |= {where: x.document for where, x in planned.items()}
    sync(_check_documents(store, documents))
    sync(_prepare(store, path, documents, gone))
    for where, x in reported(planned.items(), progress):
        set_references(store, f"/{where}", x.manifest, x.urls, x.changes.virtual)
    sync(_write_chunks(store, planned))


def _planned(
    array: ManifestArray, old: ManifestArray | None, store: Any, where: str, prefixes: tuple[str, ...]
) -> _Planned:
    document, manifest = make_document(array, path=where)
    urls = []
    for location in manifest.locations:
        if (url := _written_url(location, prefixes)) is None:
            raise _without_container(location, prefixes, where)
        urls.append(url)
    there = None if old is None else old.in_memory()
    old_urls = [_written_url(x, prefixes) or x.url for x in there.locations] if there is not None else []
    changes = changes_between(there, old_urls, manifest, urls)
    unknown = [FIRST + i for i, url in enumerate(urls) if url.startswith(NATIVE)]
    if unknown and bool((changes.virtual & np.isin(manifest.entries["location"], unknown)).any()):
        raise WriterError(
            f"chunks of variable '{where}' in the repository would have to move to other cells of its grid. A session "
            "does not show where they are stored",
            Remedy(
                "commit the session, and open the repository with {}. Then join it with the new data, and write the "
                "result to another repository",
                "vs.open_virtual_dataset",
            ),
            variable=where,
            feature="chunks that move",
        )
    if there is not None:
        beyond = kept_beyond(store, f"/{where}", there, manifest)
        changes = replace(changes, removed=np.concatenate([changes.removed, beyond]))
    return _Planned(document=document, manifest=manifest, urls=urls, changes=changes)


def has_group(store: Any, path: str, /) -> bool:
    """Return whether there is a group at a path; an array there, or above it, is an error."""
    kinds = {x: _kind(store, x) for x in (*_above(path), path)}
    for where, kind in kinds.items():
        if kind == "array":
            raise WriterError(
                f"'/{where}' is an array in the repository, and an array cannot contain groups",
                Remedy("give another", group=...),
                feature="group",
            )
    return kinds[path] is not None


def _above(path: str) -> Iterator[str]:
    parts = path.split("/") if path else []
    return ("/".join(parts[:i]) for i in range(len(parts)))


def _kind(store: Any, path: str) -> str | None:
    data = sync(_get(store, f"{path}/zarr.json".lstrip("/")))
    kind = None if data is None else json.loads(data).get("node_type")
    return kind if isinstance(kind, str) else None


async def _get(store: Any, key: str) -> bytes | None:
    data = await store.get(key, prototype=_PROTOTYPE)
    return None if data is None else bytes(data.to_bytes())


async def _put(store: Any, key: str, data: bytes) -> None:
    await store.set(key, cpu.Buffer.from_bytes(data))


async def _check_documents(store: Any, documents: Mapping[str, bytes]) -> None:
    """Let Icechunk parse all metadata, at a place that nobody uses, before anything is replaced."""
    icechunk = import_icechunk("vds.virtual.to_icechunk()")
    key = f"{uuid4()}/zarr.json"
    for at, document in documents.items():
        try:
            await _put(store, key, document)
        except icechunk.InvalidInputError as error:
            raise WriterError(
                f"Icechunk does not take the metadata of '{at or '/'}': {read_reason(error)}. Leave it out, or write "
                "a vstack",
                variable=at,
                feature="metadata",
            ) from error
        await store.delete(key)


async def _prepare(store: Any, path: str, documents: Mapping[str, bytes], gone: Sequence[str]) -> None:
    """Delete what is replaced, and write all metadata, parent groups first."""
    for at in gone:
        await (store.delete_dir(at) if at else store.clear())
    for above in _above(path):
        key = f"{above}/zarr.json".lstrip("/")
        if not await store.exists(key):
            await _put(store, key, _EMPTY_GROUP)
    for at, document in documents.items():
        key = f"{at}/zarr.json".lstrip("/")
        if await _get(store, key) != document:
            await _put(store, key, document)


async def _write_chunks(store: Any, planned: Mapping[str, _Planned]) -> None:
    """Store INLINE chunks, and delete chunks that no longer exist."""
    limit = asyncio.Semaphore(_MAX_REQUESTS)

    async def put(key: str, data: bytes) -> None:
        if len(data) > MAX_IN_MANIFEST and active_dry_run() is not None:
            return  # Icechunk would write it at once, before the commit
        async with limit:
            await _put(store, key, data)

    for where, x in planned.items():
        for cell in x.changes.removed.tolist():
            await store.delete(chunk_key(where, cell))
        await asyncio.gather(
            *(put(chunk_key(where, cell), data) for cell, data in inline_chunks(x.manifest, x.changes.inline))
        )


_PROTOTYPE = cpu.buffer_prototype
_EMPTY_GROUP = b'{"zarr_format": 3, "node_type": "group", "attributes": {}}'
