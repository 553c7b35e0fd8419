"""What a reader is: a frozen dataclass of options that turns a source into a group of virtual arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from virtualstack.manifests import ManifestGroup
from virtualstack.storage import Storage

__all__ = ["ReadOptions", "Reader"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What every reader is told, whatever the format.

    Parameters
    ----------
    group
        Path of the one group that is wanted, such as ``"science/grids"``; a reader may leave out arrays of others.
        ``None`` for all.
    is_tree
        Whether a tree is wanted, of formats that have no groups of their own, where fields of many kinds may form one
        dataset or a tree; ``None`` for a tree where they form no dataset.
    drop_variables
        Names of variables that are not looked at.
    inline_limit
        Bytes of values that a variable without a byte-range form may put into the manifest; 0 for none.
        A larger variable becomes a :class:`~virtualstack.manifests.Refusal` of the group.
    """

    group: str | None = None
    is_tree: bool | None = None
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
