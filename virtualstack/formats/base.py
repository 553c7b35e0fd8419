"""Define a reader: a frozen dataclass of options that turns a source into a group of virtual arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, runtime_checkable

from virtualstack.errors import ReaderError
from virtualstack.manifests import ChunkManifest, ManifestGroup
from virtualstack.storage import Permission, Storage

__all__ = ["PARTS", "Assembler", "ReadOptions", "Reader", "check_references", "permitted", "read_permitted"]

PARTS = "virtualstack:parts"
"""The attribute of a group that is a part of one, with the name of the reader that puts parts together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What every reader is told, whatever the format.

    Parameters
    ----------
    group
        Path of the one group that is wanted, such as ``"science/grids"``; a reader may leave out arrays of others.
        ``None`` for all.
    is_tree
        If true, a tree is wanted, of formats that have no groups of their own, where fields of many kinds may form one
        dataset or a tree; ``None`` for a tree where they form no dataset.
    is_part
        If true, what an :class:`Assembler` finds is put together later, with what it finds in other sources.
    drop_variables
        Variables that are not looked at: by name in any group, or by path (``"/science/winds"``) in that group alone.
    inline_limit
        Bytes of values that a variable without a byte-range form may put into the manifest; 0 for none.
        A larger variable becomes a :class:`~virtualstack.manifests.Refusal` of the group.
    allow
        URLs and paths of what a source may refer to, beyond what it may without: see
        :class:`~virtualstack.storage.Permission`.
    """

    group: str | None = None
    is_tree: bool | None = None
    is_part: bool = False
    drop_variables: frozenset[str] = frozenset()
    inline_limit: int = 1 << 20
    allow: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.group, str | None):
            raise TypeError(f"group={self.group!r} is no path of a group, such as 'science/grids'")

    def wants(self, path: str, /) -> bool:
        """Return whether the array at a path is wanted: it is in the group or below it, and not dropped."""
        group = (self.group or "").strip("/")
        return path.startswith(f"{group}/" if group else "") and not self.drops(path)

    def drops(self, path: str, /) -> bool:
        """Return whether a variable is dropped, by its path from the root, with or without a slash before it."""
        path = path.removeprefix("/")
        return not self.drop_variables.isdisjoint((path, f"/{path}", path.rpartition("/")[2]))

    def without_dropped(self, group: ManifestGroup, /, path: str = "") -> ManifestGroup:
        """Return a group at a path, and all below it, without the variables that are dropped and notes on them."""
        return replace(
            group,
            arrays={name: array for name, array in group.arrays.items() if not self.drops(f"{path}/{name}")},
            groups={name: self.without_dropped(child, f"{path}/{name}") for name, child in group.groups.items()},
            refusals=tuple(x for x in group.refusals if not self.drops(x.path)),
        )


class Reader(Protocol):
    """A reader that turns a source into a group; the fields of its dataclass are options of the format.

    Equal readers give equal groups. A reader pickles, keeps no file open, and reads no chunk bytes. One whose options
    name other URLs has them as a tuple, ``places``: the user has named them, so sources may refer to them.
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
            The bytes could not be read.
        """


@runtime_checkable
class Assembler(Reader, Protocol):
    """A reader of a format whose arrays lie in many sources: it makes one group of all.

    With ``is_part`` in its options, `read` gives a group that holds what was found, with the attribute `PARTS`.
    """

    def assemble(self, parts: Sequence[ManifestGroup], options: ReadOptions) -> ManifestGroup:
        """Make one group of parts.

        Raises
        ------
        ReaderError
            They do not fit.
        """


def permitted(storage: Storage, url: str, allow: tuple[str, ...] = (), /) -> Storage:
    """Return the storage that reaches what a source may refer to: see `Permission.of_document`.

    Parameters
    ----------
    storage
        How the source is reached.
    url
        URL of the source.
    allow
        What the user allowed besides.
    """
    permission = Permission.of_document(url, allow)
    return storage if permission is None else storage.only(permission)


def read_permitted(reader: Reader, url: str, storage: Storage, options: ReadOptions, /) -> ManifestGroup:
    """Let a reader describe a source, and check that it refers to nothing that it may not refer to.

    Manifests that are read in pages check what is in a page when that is read.

    Raises
    ------
    ForbiddenLocationError
        It refers to what may not be read.
    ReaderError, StorageError
        As from `Reader.read`.
    """
    storage = permitted(storage, url, (*options.allow, *getattr(reader, "places", ())))
    try:
        group = reader.read(url, storage, options)
    except ReaderError as error:
        error.url = error.url or url  # the code that reads a part does not know the URL
        raise
    if isinstance(group, ManifestGroup):
        check_references(group, storage)
    return group


def check_references(group: ManifestGroup, storage: Storage, /) -> None:
    """Refuse what a group refers to, in manifests that are in memory, and what may not be read by a storage.

    Raises
    ------
    ForbiddenLocationError
        There is such a thing.
    """
    if storage.permissions:
        manifests = (array.manifest for _, node in group.walk() for array in node.arrays.values())
        storage.check(sorted({x.url for m in manifests if isinstance(m, ChunkManifest) for x in m.locations}))
