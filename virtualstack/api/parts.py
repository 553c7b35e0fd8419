"""Sources of which a reader makes one group of all: parts of one index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from virtualstack.api.opening import Opening
from virtualstack.errors import ReaderError
from virtualstack.formats.base import PARTS, Assembler, Reader
from virtualstack.formats.registry import find_reader
from virtualstack.manifests import ManifestGroup

__all__ = ["as_one", "open_whole"]


def open_whole[T](root: ManifestGroup, open_node: Callable[[ManifestGroup], T], /) -> T | ManifestGroup:
    """Open a group, but for a part, which is left as it is."""
    return root if PARTS in root.attributes else open_node(root)


def as_one[T](
    opened: Sequence[T | ManifestGroup],
    open_node: Callable[[ManifestGroup], T],
    opening: Opening,
    reader: str | Reader | None,
    /,
) -> tuple[list[T], bool]:
    """Open parts as one where all are parts of one kind, else one by one; and tell which.

    Raises
    ------
    ReaderError
        They cannot be put together.
    """
    kinds = {x.attributes[PARTS] if isinstance(x, ManifestGroup) else None for x in opened}
    if not kinds - {None}:
        return cast(list[T], list(opened)), False

    def assembled(parts: Sequence[ManifestGroup]) -> T:
        name = parts[0].attributes[PARTS]
        assembler = find_reader("", opening.storage, name if reader is None else reader)
        if not isinstance(assembler, Assembler):
            raise ReaderError(f"the reader '{name}' cannot put its parts together", url=parts[0].url)
        return open_node(assembler.assemble(parts, opening.options))

    if len(kinds) == 1:
        return [assembled(cast(Sequence[ManifestGroup], opened))], True
    return [assembled([x]) if isinstance(x, ManifestGroup) else x for x in opened], False
