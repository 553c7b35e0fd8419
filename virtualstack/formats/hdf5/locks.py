"""Files that another program has open for writing."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

try:
    import fcntl
except ModuleNotFoundError:  # there is none on Windows, where an open file cannot be read by others anyway
    fcntl = None  # type: ignore[assignment]

__all__ = ["is_locked"]


def is_locked(path: Path, /) -> bool:
    """Whether a program writes to a local file through the HDF5 library, which locks what it has open.

    Its metadata may be half written. As for the library, ``HDF5_USE_FILE_LOCKING=FALSE`` says not to look, and file
    systems without locks have none.
    """
    if fcntl is None or os.environ.get("HDF5_USE_FILE_LOCKING", "").upper() in ("FALSE", "0"):
        return False
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
    return False
