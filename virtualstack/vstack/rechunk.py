"""Declare layouts: copies of variables in other chunks, which the store keeps up to date."""

from __future__ import annotations

import math
from collections.abc import Mapping

from virtualstack.errors import Remedy, WriterError, check_type
from virtualstack.manifests import ManifestArray
from virtualstack.printable import did_you_mean, first_names
from virtualstack.sizes import byte_count
from virtualstack.vstack.format.snapshot import Layout, Snapshot
from virtualstack.vstack.save import Stored


def rechunk(
    store: Stored, path: str, chunks: Mapping[str, int], name: str, /, *, max_bytes: int | str, message: str | None
) -> Snapshot:
    """Write a variable again in other chunks; see :meth:`~virtualstack.vstack.Repository.rechunk`."""
    check_type("name", name, str, "the name of the new variable")
    array = store.group[path]
    if not isinstance(array, ManifestArray):
        raise KeyError(f"'{path}' is a group, not a variable; it has the variables {first_names(sorted(array.arrays))}")
    of = "/" + path.strip("/")
    if name in ("", ".", "..") or "/" in name:
        raise ValueError(f"name={name!r} cannot be the name of a variable. Give one without '/'")
    if store.snapshot.arrays[of].bundled is not None:
        raise WriterError(f"variable '{path}' is loaded, and has no chunks", variable=path, feature="layout")
    own = f"{of.rpartition('/')[0]}/{name}"
    if own in store.snapshot.arrays or own in store.snapshot.groups:
        raise WriterError(
            f"'{store.url}' has '{own[1:]}' already",
            Remedy("give another", name=...),
            Remedy("drop it first with", "Repository.edit"),
            variable=name,
            feature="layout",
        )
    layout = Layout(of, _lengths(array, chunks))
    most, least = byte_count(max_bytes, option="max_bytes"), 2 * math.prod(layout.chunks) * array.itemsize
    if most < least:
        raise ValueError(
            f"max_bytes={max_bytes!r} is too little for chunks of {least // 2} bytes: give at least {least}, or "
            "smaller chunks"
        )
    return store.write(store.group, layouts={own: layout}, max_bytes=most, message=message)


def _lengths(array: ManifestArray, chunks: Mapping[str, int]) -> tuple[int, ...]:
    """Return the chunk length along each axis."""
    dims = array.dimension_names or ()
    if array.dtype.kind == "T" or not array.size:
        what = "has no values" if not array.size else "is text, whose chunks have no known size"
        raise WriterError(f"variable '{array.name}' {what}", variable=array.name, feature="layout")
    for dim, n in chunks.items():
        if dim not in dims:
            raise ValueError(
                f"variable '{array.name}' has the dimensions {dims}, not '{dim}'.{did_you_mean(dim, dims)}"
            )
        if not isinstance(n, int) or isinstance(n, bool) or (n < 1 and n != -1):
            raise ValueError(f"{n!r} along '{dim}' is not a chunk length: give a number of elements, or -1 for all")
    given = [chunks.get(dim, axis.usual_length()) for dim, axis in zip(dims, array.grid.axes, strict=True)]
    return tuple(length if n == -1 else n for n, length in zip(given, array.shape, strict=True))
