"""What the HDF5 library would open besides a file, without asking anyone: files that it names."""

from __future__ import annotations

import h5py
from h5py import h5d, h5g, h5l, h5o

__all__ = ["names_elsewhere"]


def names_elsewhere(file: h5py.File, /, *, values: bool) -> str | None:
    """Say what in a file is in another one, for the HDF5 library: a link, or where the values of a dataset are.

    The library opens local files by such names whatever the file itself is read from. Nothing of that happens here.

    Parameters
    ----------
    file
        Open; all of it is looked at.
    values
        Whether to look for datasets with external or virtual storage too, which matter where values are read.

    Returns
    -------
    str
        Half a sentence; ``None`` where there is nothing.
    """
    seen: set[int] = set()
    todo: list[tuple[str, h5g.GroupID]] = [("", h5g.open(file.id, b"/"))]
    while todo:
        path, group = todo.pop()
        found: list[tuple[bytes, int, int]] = []
        if group.get_num_objs():
            group.links.iterate(lambda name, info, found=found: found.append((name, info.type, info.u)), info=True)
        for name, kind, address in found:
            here = f"{path}/{name.decode(errors='replace')}"
            if kind not in (h5l.TYPE_HARD, h5l.TYPE_SOFT):
                return f"'{here[:200]}' is a link to another file"
            if kind == h5l.TYPE_SOFT or address in seen:
                continue
            seen.add(address)
            target = h5o.open(group, name)
            if isinstance(target, h5g.GroupID):
                todo.append((here, target))
            elif values and isinstance(target, h5d.DatasetID):
                layout = target.get_create_plist()
                if layout.get_external_count() or layout.get_layout() == h5d.VIRTUAL:
                    return f"the values of '{here[:200]}' are in other files"
    return None
