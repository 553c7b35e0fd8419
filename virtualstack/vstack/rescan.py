"""Scan changed sources of a vstack again, and find the groups that its variables came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from virtualstack.errors import CombineError, UnknownFormatError
from virtualstack.formats.base import Reader, ReadOptions
from virtualstack.manifests import ManifestGroup, with_inherited
from virtualstack.progress import Progress
from virtualstack.scanning.many import scan
from virtualstack.scanning.workers import ExecutorLike
from virtualstack.storage import Storage
from virtualstack.vstack.shown import WRITE_AGAIN, Cells


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescan:
    """The options of scanning changed sources; see :meth:`Repository.refresh`."""

    reader: str | Reader | None = None
    executor: ExecutorLike = None
    allow: tuple[str, ...] = ()
    progress: Progress | bool | None = None


@dataclass(frozen=True, slots=True)
class Scanned:
    """A source that was scanned."""

    tree: ManifestGroup
    alone: ManifestGroup | None = None

    def find_group(self, path: str, stored: ManifestGroup, /) -> ManifestGroup:
        """Find the group of a variable: by its path in the store, else by its name if only one group has it."""
        own, _, name = path.rpartition("/")
        nodes = dict(self.tree.walk())
        if own in nodes and name in nodes[own].arrays:
            return nodes[own]
        having = [node for node in nodes.values() if name in node.arrays]
        alone = None if own or self.alone is None else self.alone
        if alone is not None and name in alone.arrays:
            # the store has one of several fields of this name
            was_so = any(x.path == f"/{name}" for x in stored.refusals)
            if len(having) < 2 or was_so or not _stands_for_others(name, alone):
                return alone
        if len(having) != 1:
            raise CombineError(
                f"variable '{name}' is in {len(having)} of its groups, so its place is not known: {WRITE_AGAIN}"
            )
        return having[0]

    def whole(self) -> dict[int, ManifestGroup]:
        """Return the groups with the coordinates that they inherit, by identity of the group."""
        inherited = with_inherited(self.tree)
        return {id(node): inherited[path] for path, node in self.tree.walk()}


def _stands_for_others(name: str, group: ManifestGroup) -> bool:
    """Return whether a variable is one of several fields with its name, so that the name does not identify it."""
    return any(x.path == f"/{name}" for x in group.refusals)


def rescan(
    cells: Mapping[str, Mapping[str, Cells]], storage: Storage, how: Rescan, /
) -> Iterator[tuple[str, Scanned | Exception]]:
    """Scan the sources of cells; yield the groups of each source, or the error that says why it has none."""

    def scanned(
        urls: list[str], *, is_tree: bool | None, progress: Progress | bool | None = None
    ) -> dict[str, ManifestGroup | Exception]:
        if not urls:
            return {}
        options = ReadOptions(is_tree=is_tree, allow=how.allow)
        found = scan(
            urls,
            reader=how.reader,
            storage=storage,
            executor=how.executor,
            on_error="skip",
            options=options,
            progress=progress,
        )
        return dict(found.errors) | dict(zip(found.urls, found.groups, strict=True))

    def lacks(url: str, tree: ManifestGroup | Exception) -> bool:
        return isinstance(tree, ManifestGroup) and any(not _has(tree, path) for path in cells[url])

    trees = scanned(list(cells), is_tree=True, progress=how.progress)
    datasets = scanned([url for url, tree in trees.items() if lacks(url, tree)], is_tree=None)
    for url in cells:
        tree, alone = trees[url], datasets.get(url)
        if isinstance(tree, ManifestGroup):
            yield url, Scanned(tree, alone if isinstance(alone, ManifestGroup) else None)
        else:
            yield url, tree


def why_not(error: Exception, /) -> str:
    """Return why a source was not scanned, or does not fit."""
    if isinstance(error, UnknownFormatError):
        remedy = "If this file is a chunk of a zarr store, open the whole zarr store, and write its variables again"
        return f"{error}. {remedy}"
    return str(error)


def _has(group: ManifestGroup, path: str) -> bool:
    own, _, name = path.rpartition("/")
    return any(own == at and name in node.arrays for at, node in group.walk())
