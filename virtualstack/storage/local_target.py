"""Write to local directories as targets."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from virtualstack.errors import ForbiddenLocationError, SourceNotFoundError, StorageError
from virtualstack.location import Location, local_path
from virtualstack.storage.atomic import LOCK_FILE, TEMPORARY_PREFIX, link_if_absent, sync_folders, temporary_file
from virtualstack.storage.folders import files_below, list_folder
from virtualstack.storage.local import FileErrors, location_from, open_local
from virtualstack.storage.source import Bytes
from virtualstack.storage.target import check_key, check_most
from virtualstack.system import path_in_url

__all__ = ["LocalTarget"]


@dataclass(frozen=True, slots=True)
class LocalTarget:
    """Files under a local directory, made on the first write."""

    url: str
    _unsynced: set[Path] = field(default_factory=set, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if local_path(self.url) is None:
            raise StorageError(f"'{self.url}' is not the URL of a local directory ('file:///...')", url=self.url)
        object.__setattr__(self, "url", f"file://{self.url.removeprefix('file://').rstrip('/')}/")

    @property
    def is_listed(self) -> bool:
        """Always true: the keys can be listed."""
        return True

    def get(self, key: str, /, *, most: int | None = None) -> bytes:
        """Read a whole file."""
        source = open_local(self._url(key))
        check_most(source.size, most, url=source.location.url)
        return source.read(0, source.size)

    def leftovers(self, prefix: str, before: float, /) -> list[str]:
        """List the keys of temporary files that killed writers left below a folder before a time (s since 1970)."""
        found = []
        with FileErrors(self.url, "read"):
            for key, path in self._files(prefix):
                if path.name.startswith(TEMPORARY_PREFIX) and path.name != LOCK_FILE:
                    with contextlib.suppress(FileNotFoundError):
                        if path.stat().st_mtime < before:
                            found.append(key)
        return sorted(found)

    def empty_folders(self, prefix: str, before: float, /) -> list[str]:
        """List the folders in a folder that hold no files at any depth, unchanged since a time (s since 1970).

        Links to folders are left out, since they may lead anywhere.
        """
        found = []
        with FileErrors(self.url + prefix, "read"):
            for name in (name for name, is_folder in self.entries(prefix) if is_folder):
                key = f"{prefix}/{name}".lstrip("/")
                if self._path(key).is_symlink():
                    continue
                walked = list(os.walk(self._path(key), onerror=_raise_unless_gone))
                with contextlib.suppress(FileNotFoundError):
                    is_empty = not any(names for _, _, names in walked)
                    if is_empty and all(Path(folder).stat().st_mtime < before for folder, _, _ in walked):
                        found.append(key)
        return found

    def list(self, prefix: str = "", /) -> list[str]:
        """List the files in the folder ``prefix`` and below it, sorted."""
        with FileErrors(self.url, "read"):
            return sorted(key for key, path in self._files(prefix) if not path.name.startswith(TEMPORARY_PREFIX))

    def first(self, prefix: str = "", /) -> str | None:
        """Return the first file in the folder ``prefix`` and below it, or ``None``; it lists the folder once."""
        folder = self._path(prefix.rstrip("/"))
        try:
            with FileErrors(self.url + prefix, "read"):
                every = os.listdir(folder)  # noqa: PTH208 - 10^5 names, no paths
            names = [name for name in every if not name.startswith(TEMPORARY_PREFIX)]
        except SourceNotFoundError:
            return None
        if not names:
            return None
        least = min(names)
        if os.path.isdir(f"{folder}/{least}"):  # its files may come after others, and it may be empty
            return next(iter(self.list(prefix)), None)
        return f"{prefix.rstrip('/')}/{least}".lstrip("/")

    def entries(self, prefix: str = "", /) -> Sequence[tuple[str, bool]]:
        """List the names in the folder ``prefix``, each with whether it is a folder; empty if there is no folder."""
        with FileErrors(self.url + prefix, "read"):
            return [(entry.name, entry.is_dir()) for entry in list_folder(str(self._path(prefix.rstrip("/"))))]

    def contents(self, prefix: str = "", /) -> dict[str, Location]:
        """List the files in the folder ``prefix`` and below it, with size and modification time; links are followed."""
        top, found = str(self._path(prefix.rstrip("/"))), {}
        with FileErrors(self.url + prefix, "read"):
            for name, entry in files_below(top):
                if entry.name.startswith(TEMPORARY_PREFIX):
                    continue
                key = f"{prefix.rstrip('/')}/{name}" if prefix else name
                try:
                    found[key] = location_from(self.url + key, entry.stat())
                except FileNotFoundError:
                    if entry.is_symlink():  # a link to nothing; other files are gone
                        with FileErrors(self.url + key, "read"):
                            raise
        return found

    def put(self, key: str, data: bytes | bytearray | memoryview, /) -> None:
        """Write a file beside the old one, then rename it."""
        self.put_parts(key, [memoryview(data)])

    def put_parts(self, key: str, parts: Iterable[Bytes], /) -> None:
        """Write a file as `put` does, from parts that are produced one by one."""
        with self._written(key, parts) as (temporary, path):
            temporary.replace(path)
            self._unsynced.add(path.parent)

    def check_put(self, key: str, /) -> None:
        """Raise the error of `put` if the folder of a file cannot be made or written; nothing is written."""
        folder = self._own_path(key).parent
        with FileErrors(self._url(key), "write"):
            while not folder.exists():
                folder = folder.parent
            if not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))

    def put_if_absent(self, key: str, data: bytes | bytearray | memoryview, /) -> bool:
        """Write a file unless the key exists, and return whether it was written.

        Once this returns, a loss of power loses neither this file nor the files that were put before it: their folders
        are synchronised with the disk too, once each.
        """
        with self._written(key, [memoryview(data)]) as (temporary, path):
            self.sync()  # first, since this file may refer to files that were put
            is_new = link_if_absent(temporary, path)
            sync_folders({path.parent}, self._path(""))
            return is_new

    def sync(self) -> None:
        """Synchronise the folders of files that were put with the disk, so that a loss of power loses none of them."""
        with FileErrors(self.url, "write"):
            written = set(self._unsynced)
            self._unsynced.difference_update(written)
            sync_folders(written, self._path(""))

    def delete(self, key: str, /) -> None:
        """Delete a file; nothing happens if it does not exist."""
        nothing = contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError)
        with FileErrors(self._url(key), "delete"), nothing:
            self._own_path(key).unlink()

    def delete_folder(self, prefix: str, /) -> None:
        """Delete a folder (``""``: the root) and the folders in it, as far as they hold no files."""
        with FileErrors(self.url + prefix, "delete"):
            top = self._own_path(f"{prefix.rstrip('/')}/x".lstrip("/")).parent
            for folder, _, _ in os.walk(top, topdown=False, onerror=_raise_unless_gone):
                with contextlib.suppress(FileNotFoundError, OSError):
                    os.rmdir(folder)  # noqa: PTH106 - a text

    @contextlib.contextmanager
    def _written(self, key: str, parts: Iterable[Bytes]) -> Iterator[tuple[Path, Path]]:
        path = self._own_path(key)
        with FileErrors(self._url(key), "write"):
            folder = path.parent
            # the names of this folder, and of new folders above the root, must be on the disk, too
            while not folder.exists():
                folder = folder.parent
                self._unsynced.add(folder)
            with temporary_file(path, parts) as temporary:
                yield temporary, path
            with contextlib.suppress(OSError):  # xarray treats it as the version of a directory
                os.utime(self._path(""))

    def _files(self, prefix: str) -> Iterator[tuple[str, Path]]:
        """Return key and path of all files in a folder and below it; links to folders are not followed."""
        root = self._path("")
        for folder, _, names in os.walk(self._path(prefix.rstrip("/")), onerror=_raise_unless_gone):
            for path in (Path(folder, name) for name in names):
                yield path.relative_to(root).as_posix(), path

    def _own_path(self, key: str) -> Path:
        """Return the path of a file that is written or deleted; it must not be behind a link out of the directory."""
        path = self._path(key)
        root, folder = os.path.realpath(self._path("")), os.path.realpath(path.parent)
        if folder != root and not folder.startswith(f"{root.rstrip(os.sep)}{os.sep}"):
            raise ForbiddenLocationError(
                f"'{self._url(key)}' is behind a link to '{folder}', outside of '{self.url}', and nothing is written "
                "or deleted there. If it should be, move the folder itself to the place of the link",
                url=self._url(key),
            )
        return path

    def _url(self, key: str) -> str:
        return self.url + check_key(key, url=self.url)

    def _path(self, key: str) -> Path:
        return Path(path_in_url((self._url(key) if key else self.url)[len("file://") :]))


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error
