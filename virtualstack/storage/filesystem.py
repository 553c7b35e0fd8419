"""Present sources as an fsspec filesystem, for libraries that read through fsspec."""

from __future__ import annotations

from typing import Any

import fsspec
from fsspec.spec import AbstractFileSystem

from virtualstack.storage.file import SourceFile
from virtualstack.storage.registry import Storage

PROTOCOL = "virtualstack"


class SourceFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """A read-only filesystem over a storage: ``virtualstack://s3://bucket/key`` opens ``s3://bucket/key``."""

    protocol = PROTOCOL
    cachable = False  # two storages may be equal although they reach different sources
    root_marker = ""

    def __init__(self, store: Storage | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._store = Storage.from_option(store)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return [cls._strip_protocol(x) for x in path] if isinstance(path, list) else path.removeprefix(f"{PROTOCOL}://")

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """Return the name and the size in bytes of a source."""
        url = self._strip_protocol(path)
        return {"name": url, "size": self._store.source(url).size, "type": "file"}

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        """Return one source as a list."""
        found = self.info(path)
        return [found if detail else found["name"]]

    def _open(self, path: str, mode: str = "rb", **options: Any) -> SourceFile:
        if mode != "rb":
            raise NotImplementedError(f"sources can only be opened with mode 'rb', not {mode!r}")
        return SourceFile(self._store.source(self._strip_protocol(path)))


fsspec.register_implementation(PROTOCOL, SourceFileSystem, clobber=True)
