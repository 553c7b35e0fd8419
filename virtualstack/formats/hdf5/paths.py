"""Where paths lead, over hard and soft links."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from virtualstack.formats.hdf5.structures.links import Link

__all__ = ["OUTSIDE", "follow"]

OUTSIDE = -1
"""The address of what is in another file."""

_MAX_SOFT_LINKS = 16  # H5L_NUM_LINKS: soft links that lead to soft links


def follow(
    path: bytes, group: int, root: int, names: Callable[[int], Mapping[bytes, Link]], /, n_links: int = 0
) -> int | None:
    """Give the address of the object header that a path leads to; ``None`` where it leads nowhere.

    Parameters
    ----------
    path
        From a group; from the root where it begins with a slash.
    group, root
        Addresses of their headers.
    names
        Gives the links of an object by name; none where it is no group.
    n_links
        Soft links that led here.
    """
    if n_links >= _MAX_SOFT_LINKS:
        return None
    here = root if path.startswith(b"/") else group
    for part in path.split(b"/"):
        if part in (b"", b"."):
            continue
        link = names(here).get(part)
        if link is None or link.kind == "other":
            return None
        if link.kind == "external":
            return OUTSIDE
        below = link.address if link.kind == "hard" else follow(link.target[0], here, root, names, n_links + 1)
        if below is None or below == OUTSIDE:
            return below
        here = below
    return here
