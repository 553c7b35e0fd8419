"""Adding to kerchunk references: they are opened, joined with what is added, and written again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from virtualstack.combine.append import appended
from virtualstack.combine.fitting import Fitting
from virtualstack.errors import UnsupportedFeatureError, WriterError
from virtualstack.formats.base import ReadOptions, read_permitted
from virtualstack.kerchunk.reader import Kerchunk
from virtualstack.kerchunk.writer import write_kerchunk
from virtualstack.location import absolute_url
from virtualstack.manifests import INLINE, ChunkManifest, ManifestGroup
from virtualstack.storage import Storage, StorageLike

__all__ = ["append_references"]


def append_references(
    group: ManifestGroup,
    target: str | os.PathLike[str] | None,
    dim: str,
    /,
    *,
    storage: StorageLike = None,
    ordered: bool = True,
    join: Literal["exact", "left", "outer"] = "exact",
    combine_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Put a group behind what kerchunk references hold along a dimension.

    Everything is checked before anything is written. JSON is written anew; of parquet, what differs: record files of
    chunks in front of what is added stay as they are, where the dimension is the first.

    Parameters
    ----------
    group, target, dim
        What is added, and where.
    ordered
        Whether labels must ascend.
    join, combine_options
        See :class:`~virtualstack.combine.fitting.Fitting`.
    options
        Of :func:`~virtualstack.kerchunk.writer.write_kerchunk`.

    Raises
    ------
    CombineError
        They do not fit.
    WriterError
        What they make together has no form in kerchunk; nothing has changed.
    UnsupportedFeatureError
        The references have a variable that would be lost.
    SourceNotFoundError
        There are no references.
    StorageError
        They cannot be read or written.
    """
    if target is None:
        raise WriterError("append_dim= adds to references in a file: name it", feature="append_dim")
    reached = Storage.of(storage)
    stored = read_permitted(Kerchunk(), absolute_url(target), reached, ReadOptions())
    for path, node in stored.walk():
        for refusal in node.refusals:
            if refusal.kind == "refused":
                raise UnsupportedFeatureError(
                    f"'{stored.url}' has '{path}{refusal.path}', which cannot be written again: {refusal.reason}. "
                    "Leave it out of the references, which are not changed",
                    url=stored.url,
                    variable=refusal.path,
                    feature=refusal.reason,
                )
    fitting = Fitting.of(join=join, options=combine_options, storage=reached)
    made = appended(stored, group, dim, fitting, ordered=ordered, bundled=_inline_in)
    write_kerchunk(made, target, storage=reached, **options)


def _inline_in(group: ManifestGroup) -> set[str]:
    """Name the variables whose values stand in references, and all that are loaded when they are opened."""
    return {
        name
        for name, array in group.arrays.items()
        if array.dimension_names == (name,)
        or (isinstance(array.manifest, ChunkManifest) and bool((array.manifest.entries["location"] == INLINE).all()))
    }
