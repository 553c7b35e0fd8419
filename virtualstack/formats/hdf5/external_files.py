"""Find the external files that hold the values of a dataset (external raw storage)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.formats.hdf5.structures.requests import LostValuesError, NoReferencesError
from virtualstack.formats.rows import Segment
from virtualstack.location import Location, local_path

UNLIMITED = (1 << 64) - 1
"""Size of a last external file that holds all remaining values (H5F_UNLIMITED)."""

_PREFIX = "HDF5_EXTFILE_PREFIX"


def external_segments(
    files: Iterable[tuple[bytes, int, int]], length: int, url: str, locate: Callable[[str], Location], /
) -> list[Segment]:
    """Find the external files of a dataset; this reads their sizes, but no values.

    Only a file at a local path may refer to other files, because the HDF5 library searches for them on the local
    machine.
    """
    main = local_path(url)
    if main is None:
        raise LostValuesError("its values are in external files, which are looked for beside local files only")
    segments, end = [], 0
    for name, offset, size in files:
        if end >= length:
            break
        size = min(size, length - end)
        if not 0 <= offset < 1 << 62:
            raise LostValuesError(f"its values are in external files, one of them from byte {offset} on")
        end += size
        segments.append(Segment(_locate(name, main, locate), offset, size))
    if end < length:
        raise LostValuesError(f"its external files hold {end} bytes of {length}")
    for segment in segments:
        n = segment.location.size
        if n is not None and n < segment.offset + segment.length:
            raise NoReferencesError(
                f"its values are in external files, and '{segment.location.url}' has {n} bytes instead of "
                f"{segment.offset + segment.length}. The HDF5 library shows zeros there"
            )
    return segments


def _locate(name: bytes, main: Path, locate: Callable[[str], Location]) -> Location:
    try:
        return locate(str(_path(name, main)))
    except SourceNotFoundError as error:
        raise LostValuesError(
            f"its values are in external files, of which '{os.fsdecode(name)}' does not exist. Relative names begin at "
            f"the working directory, or at {_PREFIX}"
        ) from error
    except StorageError as error:
        raise LostValuesError(f"its values are in external files: {error}") from error


def _path(name: bytes, main: Path) -> Path:
    """Return the path of an external file, relative to the working directory or to a prefix (H5Pset_efile_prefix)."""
    prefix = os.environ.get(_PREFIX, "")
    if prefix.startswith("${ORIGIN}"):
        prefix = f"{main.parent}{prefix.removeprefix('${ORIGIN}')}"
    return Path(prefix, os.fsdecode(name)).absolute()
