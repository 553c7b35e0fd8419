"""External raw storage: the byte ranges of other files that hold the values of a dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.formats.hdf5.contiguous import Segment
from virtualstack.formats.hdf5.obstacles import LostValuesError, NoReferencesError
from virtualstack.location import Location, local_path

__all__ = ["UNLIMITED", "external_segments"]

UNLIMITED = (1 << 64) - 1
"""Size of a last external file that holds all that follows (H5F_UNLIMITED)."""

_PREFIX = "HDF5_EXTFILE_PREFIX"


def external_segments(
    files: Iterable[tuple[bytes, int, int]], length: int, url: str, locate: Callable[[str], Location], /
) -> list[Segment]:
    """Find the external files of a dataset; their sizes are asked for, no values are read.

    Only what is at a local path refers to other files, as the HDF5 library would look for them on this machine.

    Parameters
    ----------
    files
        Name, offset and size in bytes, in order (H5Pget_external).
    length
        Of all values, in bytes; more than 0.
    url
        Of the file that names them.
    locate
        Gives the location of a file by its path.

    Raises
    ------
    LostValuesError
        A file is not there, the files hold less than the values, or the file that names them is not a local one.
    NoReferencesError
        A file is shorter than the values in it, in whose place the HDF5 library shows zeros.
    """
    main = local_path(url)
    if main is None:
        raise LostValuesError("its values lie in external files, which are looked for beside local files only")
    segments, end = [], 0
    for name, offset, size in files:
        if end >= length:
            break
        size = min(size, length - end)
        if not 0 <= offset < 1 << 62:
            raise LostValuesError(f"its values lie in external files, one of them from byte {offset} on")
        end += size
        segments.append(Segment(_locate(name, main, locate), offset, size))
    if end < length:
        raise LostValuesError(f"its external files hold {end} bytes of {length}")
    for segment in segments:
        n = segment.location.size
        if n is not None and n < segment.offset + segment.length:
            raise NoReferencesError(
                f"its values lie in external files, of which '{segment.location.url}' ends at {n} bytes, before the "
                f"values in it do ({segment.offset + segment.length}): the HDF5 library shows zeros there"
            )
    return segments


def _locate(name: bytes, main: Path, locate: Callable[[str], Location]) -> Location:
    try:
        return locate(str(_path(name, main)))
    except SourceNotFoundError as error:
        raise LostValuesError(
            f"its values lie in external files, of which '{os.fsdecode(name)}' is not there; names that are not "
            f"absolute count from the working directory, or from {_PREFIX}"
        ) from error
    except StorageError as error:
        raise LostValuesError(f"its values lie in external files: {error}") from error


def _path(name: bytes, main: Path) -> Path:
    """Give the path of an external file: from the working directory, or from a prefix (H5Pset_efile_prefix)."""
    prefix = os.environ.get(_PREFIX, "")
    if prefix.startswith("${ORIGIN}"):
        prefix = f"{main.parent}{prefix.removeprefix('${ORIGIN}')}"
    return Path(prefix, os.fsdecode(name)).absolute()
