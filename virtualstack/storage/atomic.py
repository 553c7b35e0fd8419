"""Write a local file atomically: readers never see a part of it, and it survives a loss of power."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from virtualstack.errors import StorageError
from virtualstack.location import absolute_url
from virtualstack.storage.dry_run import active_dry_run
from virtualstack.storage.source import Bytes
from virtualstack.system import LOCK_FLAGS, lock, sync_folder

TEMPORARY_PREFIX = ".virtualstack-"
LOCK_FILE = f"{TEMPORARY_PREFIX}lock"

_LOSSES = (errno.EIO, errno.ENOSPC, errno.EDQUOT)
"""Error numbers that mean that data was not written; others mean that folders cannot be synchronised here."""


@contextlib.contextmanager
def temporary_file(path: Path, parts: Iterable[Bytes], /) -> Iterator[Path]:
    """Write parts to a temporary file beside a path, and synchronise it with the disk. Delete the file at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def write_file(path: str | os.PathLike[str], data: bytes, /) -> None:
    """Write a file for people at once, and replace one that exists. Its folder must exist. A dry run writes nothing."""
    record = active_dry_run()
    if record is not None:
        record.written[absolute_url(path)] = data
        return
    found = Path(path)
    try:
        if found.exists() and not found.is_file():  # a device or a pipe is written to, and not replaced
            found.write_bytes(data)
            return
        found = found.resolve()
        if not found.parent.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(found.parent))
        with temporary_file(found, [data]) as temporary:
            temporary.replace(found)
    except OSError as error:
        raise StorageError(f"'{path}' cannot be written: {error}", url=os.fspath(path)) from error


def link_if_absent(temporary: Path, path: Path, /) -> bool:
    """Link a temporary file to its final path unless that path exists, and return whether it was linked."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK):
            raise
        return _claim(temporary, path)  # no hard links here: FAT, some FUSE mounts
    return True


def _claim(temporary: Path, path: Path) -> bool:
    """Rename a file unless the target exists. Writers wait for each other at a lock that dies with its process."""
    descriptor = os.open(path.with_name(LOCK_FILE), LOCK_FLAGS, 0o666)
    try:
        lock(descriptor)
        if path.exists():
            return False
        temporary.replace(path)
        return True
    finally:
        os.close(descriptor)


def sync_folders(folders: Collection[Path], root: Path, /) -> None:
    """Synchronise some folders, and their parents up to the parent of a root, with the disk.

    The name of a new file is on the disk once its folder is synchronised, not once the file is (POSIX, fsync).
    """
    above = {parent for folder in folders for parent in folder.parents if root.parent in (parent, *parent.parents)}
    for folder in sorted({*folders, *above}, reverse=True):  # inner folders come first
        try:
            sync_folder(folder)
        except OSError as error:
            if error.errno in _LOSSES:
                raise
