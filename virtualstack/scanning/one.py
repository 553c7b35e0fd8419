"""Read one source: find its reader, describe it once, and try again after a temporary failure."""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from virtualstack.errors import ReaderError, StorageError, VirtualStackError
from virtualstack.formats.base import Reader, ReadOptions, access_of_source, is_alone, read_permitted
from virtualstack.formats.registry import find_reader
from virtualstack.location import ARCHIVES, outermost, split_url
from virtualstack.manifests import ManifestGroup, text_arrays
from virtualstack.printable import counted
from virtualstack.storage import Storage, StorageLike
from virtualstack.storage.handles import Handle, find_handle, reach
from virtualstack.storage.listing import find_url
from virtualstack.storage.signatures import split_signature, warn_unsigned

DEFAULT_RETRIES = 5  # the default of storage, too
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 10.0
_TRANSIENT_STATUSES = {408, 425, 429, 500, 502, 503, 504}
_TRANSIENT_ERRNOS = {errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EIO, errno.ESTALE, errno.ETIMEDOUT}
_BROKEN_CONNECTIONS = {"ClientPayloadError", "IncompleteRead", "ServerDisconnectedError"}  # of aiohttp and http.client


def read_one(
    source: Any, /, *, reader: str | Reader | None = None, storage: StorageLike = None, options: ReadOptions
) -> tuple[ManifestGroup, Storage]:
    """Return the group of one source, and the storage that reads it, with the user that its URL may name."""
    given = Storage.from_option(storage)
    is_url = isinstance(source, str | os.PathLike)
    handle = Handle(find_url(source, storage=given)) if is_url else find_handle(source)
    (url,), reached = reach_all([handle], given)
    chosen = None if reader is None else find_reader(url, reached, reader)
    with naming_source(url):
        group = retry(lambda: describe(url, reached.once(url), chosen, options), DEFAULT_RETRIES)
    is_own = is_alone(group, url)
    access = reached.access(url) if is_own else access_of_source(chosen, url, reached, options)
    return group.with_access(access), reached


def reach_all(handles: list[Handle], storage: Storage, /) -> tuple[list[str], Storage]:
    """Return the URLs of sources without users and signatures, and a storage that has these and reaches all sources."""
    urls, reached = reach(handles, storage).with_users([handle.url for handle in handles])
    if n_signed := sum(bool(split_signature(outermost(handle.url))[1]) for handle in handles):
        warn_unsigned(f"the signatures of {counted(n_signed, 'URL')}", split_url(outermost(urls[0]))[0])
    return urls, reached


@contextmanager
def naming_source(url: str, /) -> Iterator[None]:
    """Add a note with the URL of a source to errors that are bugs of its reader, which need not name it."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, VirtualStackError):
            error.add_note(f"while '{url}' was scanned")
        raise


def describe(url: str, storage: Storage, reader: Reader | None, options: ReadOptions, /) -> ManifestGroup:
    """Return the group of a source, which its reader describes once."""
    reader = find_reader(url, storage, reader)
    group = _group(read_permitted(reader, url, storage, options), url)
    source = None if storage.kept is None else storage.kept.source
    if source is not None and source.location.reads is not None:
        source.location.reads.edges()  # which take less memory
    if url.startswith(ARCHIVES):
        from virtualstack.reading.nameless import in_files

        group = in_files(group, storage)
    if not options.drop_variables:
        return group
    group = options.without_dropped(group)  # readers may drop variables themselves, to read less
    if not any(text_arrays(node) for _, node in group.walk()):
        return group
    # Whether characters are text depends on all variables, also on dropped ones. Without these, more would be text.
    try:
        whole = _group(read_permitted(reader, url, storage, replace(options, drop_variables=frozenset())), url)
    except VirtualStackError:
        return group  # the file opens only without the dropped variables, in xarray too
    return _as_within(group, whole)


def _as_within(part: ManifestGroup, whole: ManifestGroup) -> ManifestGroup:
    """Return a group without some arrays; ``not_text`` has the dimensions whose letters are not text in the whole."""
    names = text_arrays(part) - text_arrays(whole)
    dims = {(part.arrays[name].dimension_names or ())[-1] for name in names}
    return replace(
        part,
        not_text=part.not_text | dims,
        groups={
            name: _as_within(child, whole.groups[name]) if name in whole.groups else child
            for name, child in part.groups.items()
        },
    )


def _group(found: object, url: str) -> ManifestGroup:
    """Check that a reader returned a group; anything else would be lost silently."""
    if not isinstance(found, ManifestGroup):
        raise ReaderError(f"'{url}': its reader returned a {type(found).__name__}, not a ManifestGroup", url=url)
    return found


def retry[T](read: Callable[[], T], retries: int, /) -> T:
    """Call a function, and repeat the call up to ``retries`` times after temporary failures of storage."""
    for attempt in range(retries):
        try:
            return read()
        except StorageError as error:
            if not is_transient(error):
                raise
        # jitter: workers that were rejected at the same time do not repeat at the same time
        time.sleep(min(_FIRST_PAUSE_SECONDS * 2**attempt, _MAX_PAUSE_SECONDS) * random.uniform(0.5, 1.5))
    return read()


def is_transient(error: StorageError, /) -> bool:
    """Return whether the same request may succeed soon and was not repeated by the library that made it.

    Errors of object stores (statuses such as 503, broken connections and time-outs) do not count: obstore has already
    repeated these requests according to its options. fsspec and file systems have not repeated theirs.
    """
    if type(error) is not StorageError:  # a missing, changed or forbidden source stays so
        return False
    return error.is_short or any(_is_transient(cause) for cause in _find_causes(error))


def _find_causes(error: BaseException) -> Iterator[BaseException]:
    cause = error.__cause__ or error.__context__
    while cause is not None and not type(cause).__module__.startswith("obstore"):
        yield cause
        cause = cause.__cause__ or cause.__context__


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, TimeoutError | ConnectionError) or type(error).__name__ in _BROKEN_CONNECTIONS:
        return True
    status, number = getattr(error, "status", None), getattr(error, "errno", None)
    return status in _TRANSIENT_STATUSES or number in _TRANSIENT_ERRNOS
