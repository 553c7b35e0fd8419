"""What a reader is: a frozen dataclass of options that turns a source into a group of virtual arrays."""

from __future__ import annotations

import re
from dataclasses import dataclass
from numbers import Integral
from typing import ClassVar, Protocol

from virtualstack.manifests import ManifestGroup
from virtualstack.storage import Storage

__all__ = ["ReadOptions", "Reader", "byte_count"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What every reader is told, whatever the format.

    Parameters
    ----------
    group
        Path of the one group that is wanted, such as ``"science/grids"``; a reader may leave out arrays of others.
        ``None`` for all.
    drop_variables
        Names of variables that are not looked at.
    inline_limit
        Bytes of values that a variable without a byte-range form may put into the manifest; 0 for none.
        A larger variable becomes a :class:`~virtualstack.manifests.Refusal` of the group.
    """

    group: str | None = None
    drop_variables: frozenset[str] = frozenset()
    inline_limit: int = 1 << 20

    def __post_init__(self) -> None:
        if not isinstance(self.group, str | None):
            raise TypeError(f"group={self.group!r} is no path of a group, such as 'science/grids'")


class Reader(Protocol):
    """Turns a source into a group; fields of the dataclass are options of the format.

    Equal readers give equal groups. A reader pickles, keeps no file open, and reads no chunk bytes.
    """

    name: ClassVar[str]

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Describe the source at an absolute URL.

        Whatever cannot be described stands in ``refusals`` of its group; only a source that is no such file raises.

        Raises
        ------
        MalformedFileError
            The bytes contradict the format.
        StorageError
            The bytes could not be had.
        """


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def byte_count(size: int | str, /, *, option: str) -> int:
    """Read a number of bytes that an option of this name was given.

    >>> byte_count("1 MiB", option="inline_limit")
    1048576

    Raises
    ------
    ValueError
        It is no number of bytes, or a negative one.
    """
    if isinstance(size, Integral):
        number, unit = float(size), ""
    else:
        match = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", size) if isinstance(size, str) else None
        if match is None or match.group(2).upper() not in _UNITS or match.group(1).count(".") > 1:
            raise ValueError(f"{option}={size!r} is no number of bytes, such as 65536 or '1 MiB'")
        number, unit = float(match.group(1)), match.group(2).upper()
    if number < 0:
        raise ValueError(f"{option}={size!r} is negative")
    return int(number * _UNITS[unit])
