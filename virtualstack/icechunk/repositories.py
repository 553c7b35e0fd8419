"""Writing of whole groups to Icechunk repositories, which are created if they do not exist."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from virtualstack.combine.members import Mode
from virtualstack.errors import Remedy, StorageError, WriterError
from virtualstack.icechunk.append import writing
from virtualstack.icechunk.format import import_icechunk, read_reason
from virtualstack.icechunk.places import find_s3_options, repository_storage
from virtualstack.icechunk.writer import MAX_IN_MANIFEST, container_prefix
from virtualstack.location import Location, absolute_url
from virtualstack.manifests import INLINE, ManifestArray, ManifestGroup
from virtualstack.storage import Storage, StorageLike
from virtualstack.storage.dry_run import active_dry_run
from virtualstack.storage.local import LocalTarget
from virtualstack.storage.permission import named_in

_BRANCH = "main"


def save_icechunk(
    group: ManifestGroup,
    target: str | os.PathLike[str],
    /,
    *,
    storage: StorageLike = None,
    message: str | None = None,
    mode: Mode = "w-",
    **options: Any,
) -> str:
    """Commit a group to the branch ``"main"`` of a repository, which is created if it does not exist.

    A new repository gets virtual chunk containers: one for the common folder of all local sources, and one for each
    bucket and web server. If local sources are in several top-level folders, each of these folders gets one container.
    If the commit fails, a new repository is deleted.
    """
    icechunk = import_icechunk("writing Icechunk")
    reached = Storage.from_option(storage)
    write = writing(mode=mode, storage=reached, **options)
    group = group.map_arrays(ManifestArray.whole)  # pages are read once, for containers and for references
    url = absolute_url(target).rstrip("/")
    for source in _sources(group):
        named_in(url, source.url)
    place = repository_storage(icechunk, url, reached, create=True)
    is_new, dry = False, active_dry_run()
    try:
        if not icechunk.Repository.exists(place):
            _check_empty(url, reached)
            is_new = True
            if dry is not None:
                reached.target(url).check_put("repo")
                place = icechunk.in_memory_storage()
            config = icechunk.RepositoryConfig.default()
            for prefix, store in _containers(icechunk, _sources(group), reached).items():
                config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, store))
            icechunk.Repository.create(place, config).save_config()
        uncounted = None if is_new else dry
        repository = _open(icechunk, place, group, reached, is_uncommitted=uncounted is not None)
        session = repository.writable_session(_BRANCH)
        write(group, session.store)
        if uncounted is not None:
            uncounted.is_uncounted = True
            return str(session.snapshot_id)
        made = str(session.commit(message or "virtualstack", rebase_with=icechunk.ConflictDetector()))
        if dry is not None:
            dry.others |= {f"{url}/{each.key}": each.size_bytes for each in place.list_objects_metadata()}
        return made
    except BaseException as error:
        if is_new and dry is None:
            _delete(url, reached)
        if isinstance(error, icechunk.IcechunkError):
            raise StorageError(
                f"'{url}' cannot be written by Icechunk: {read_reason(error)}",
                Remedy("check the URL and", storage=...),
                url=url,
            ) from error
        raise


def _check_empty(url: str, storage: Storage) -> None:
    first = storage.target(url).first()
    if first is not None:
        raise WriterError(
            f"'{url}' contains '{first}' and is not an Icechunk repository. Write to another location, or delete "
            "these files",
            feature="existing files",
        )


def _delete(url: str, storage: Storage) -> None:
    target = storage.target(url)
    for key in target.list():
        target.delete(key)
    if isinstance(target, LocalTarget):
        target.delete_folder("")


def _sources(group: ManifestGroup) -> set[Location]:
    return {x for _, node in group.walk() for array in node.arrays.values() for x in array.in_memory().locations}


def _open(icechunk: Any, place: Any, group: ManifestGroup, storage: Storage, *, is_uncommitted: bool) -> Any:
    """Open a repository so that a group can be added to it.

    This process stores INLINE chunks in Icechunk's manifests; only those that are too large for a manifest are files.
    Chunks of the repository are read only from the containers that hold sources of the group, because these are the
    places that the user opened.
    """
    lengths = [
        manifest.entries["length"][manifest.entries["location"] == INLINE]
        for _, node in group.walk()
        for manifest in (array.in_memory() for array in node.arrays.values())
    ]
    longest = max((int(x.max(initial=0)) for x in lengths), default=0)
    config = icechunk.Repository.fetch_config(place) or icechunk.RepositoryConfig.default()
    if longest > (config.inline_chunk_threshold_bytes or 0):
        config.inline_chunk_threshold_bytes = min(longest, MAX_IN_MANIFEST)
    if is_uncommitted:  # larger chunks would be written before the commit, which does not come
        config.inline_chunk_threshold_bytes = MAX_IN_MANIFEST
    urls = {source.url for source in _sources(group)}
    access = {
        prefix: _credentials(icechunk, url, storage)
        for prefix in config.virtual_chunk_containers or ()
        for url in urls
        if url.startswith(prefix)
    }
    return icechunk.Repository.open(place, config, icechunk.containers_credentials(access))


def _credentials(icechunk: Any, url: str, storage: Storage) -> Any:
    """Return the credentials with which Icechunk reads a source."""
    match url.partition("://")[0]:
        case "file":
            return icechunk.Credentials.LocalFileSystemAccess()
        case "http" | "https":
            return icechunk.Credentials.HttpAccess()
        case "s3" | "s3a":
            known = find_s3_options(url, storage)
            names = "access_key_id", "secret_access_key", "session_token", "anonymous"
            given = {name: known[name] for name in names if name in known}
            return icechunk.s3_credentials(**given or {"from_env": True})
    return icechunk.gcs_credentials(from_env=True)


def _containers(icechunk: Any, sources: Iterable[Location], storage: Storage) -> dict[str, Any]:
    """Return a container for each bucket, web server and folder of sources, by prefix; unknown schemes get none."""
    found: dict[str, Any] = {}
    folders: dict[str, list[str]] = {}  # folders of local sources, by top-level folder
    for url in {source.url for source in sources}:
        prefix = container_prefix(url)
        if prefix.startswith("file:///"):
            path = prefix.removeprefix("file://")
            folders.setdefault(path.split("/")[1], []).append(path)
        elif prefix not in found:
            store = _store(icechunk, url, storage)
            if store is not None:
                found[prefix] = store
    for top, paths in folders.items():
        if top:  # Icechunk allows no container for the root
            folder = os.path.commonpath(paths) + "/"
            found[f"file://{folder}"] = icechunk.local_filesystem_store(folder)
    return found


def _store(icechunk: Any, url: str, storage: Storage) -> Any:
    match url.partition("://")[0]:
        case "s3" | "s3a":
            known = find_s3_options(url, storage)
            names = "region", "endpoint_url", "allow_http", "anonymous", "force_path_style"
            return icechunk.s3_store(**{name: known[name] for name in names if name in known})
        case "gs" | "gcs":
            return icechunk.gcs_store()
        case "http" | "https":
            return icechunk.http_store()
    return None
