"""What ``virtualstack verify --json`` wrote to a file, which is read again when the file changes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from virtualstack.errors import MalformedFileError, Remedy, SourceNotFoundError, StorageError
from virtualstack.vstack.verify import SOURCE_STATUSES

type Verified = Mapping[str, Any]
"""What verification found, as docs/reference/cli-json.md lists it, and ``statuses`` of sources by their URL."""


class VerifiedFile:
    """A file with the result of verifying a cube."""

    def __init__(self, path: str | os.PathLike[str], url: str | None, /) -> None:
        self.path = Path(path)
        self._url = url
        self._kept: tuple[tuple[int, ...], Verified] | None = None

    def read(self) -> Verified:
        """Return what the file says now."""
        try:
            found = self.path.stat()
            stamp = found.st_mtime_ns, found.st_size, found.st_ino
            kept = self._kept
            if kept is None or kept[0] != stamp:
                kept = self._kept = stamp, self._parse(self.path.read_bytes())
        except FileNotFoundError as error:
            raise SourceNotFoundError(
                f"'{self.path}' does not exist. Write it: virtualstack verify STORE --json > {self.path.name}",
                url=str(self.path),
            ) from error
        except OSError as error:
            raise StorageError(f"'{self.path}' cannot be read: {error.strerror}", url=str(self.path)) from error
        return kept[1]

    def _parse(self, data: bytes) -> Verified:
        try:
            found = _checked(json.loads(data))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise MalformedFileError(
                f"'{self.path}' is not what 'virtualstack verify STORE --json' writes ({why})",
                Remedy("write it again"),
                url=str(self.path),
            ) from error
        if self._url is None or found["url"].rstrip("/") != self._url.rstrip("/"):
            raise MalformedFileError(
                f"'{self.path}' is about '{found['url']}', and the cube is "
                + ("no vstack" if self._url is None else f"'{self._url}'")
                + ". Verify the cube by the URL or path by which it is opened here",
                url=str(self.path),
            )
        return found


def _checked(document: Any) -> Verified:
    statuses = {x["url"]: x["status"] for x in document["sources"]}
    problems = [x[key] for x in document["problems"] for key in ("url", "status", "reason")]
    texts = document["url"], *statuses, *problems, *(x["status"] for x in document["chunks"])
    datetime.fromisoformat(document["time"])
    if not (isinstance(document["snapshot"], int) and all(isinstance(x, str) for x in texts)):
        raise TypeError("a value has another type")
    if unlike := set(statuses.values()).difference(SOURCE_STATUSES):
        raise ValueError(f"no source has the status {sorted(map(str, unlike))[0]!r}")
    return {**document, "statuses": statuses}
