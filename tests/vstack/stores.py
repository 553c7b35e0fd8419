"""Small stores whose variables point into files of numbers, and changes of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from virtualstack.location import Location
from virtualstack.manifests import (
    ENTRY,
    FIRST,
    ChunkEncoding,
    ChunkGrid,
    ChunkManifest,
    Fill,
    ManifestArray,
    ManifestGroup,
    inline_array,
)
from virtualstack.manifests.manifest import Overlay
from virtualstack.reading import read_array
from virtualstack.storage import ObjectStore, Storage
from virtualstack.vstack.format.history import OpenStore
from virtualstack.vstack.format.snapshot import Snapshot
from virtualstack.vstack.reader import open_snapshot, permission_for_snapshot
from virtualstack.vstack.write.commit import EMPTY_STORE
from virtualstack.vstack.write.write import write_group

WIDTH = 4
ALLOW = ("file:///",)


def objects_of(url, storage=None) -> ObjectStore:
    url = f"file://{url}" if isinstance(url, Path) else url
    return ObjectStore(url.rstrip("/") + "/", Storage.from_option(storage))


def virtual(folder: Path, values, name: str = "v", *, chunk: int = 1, dim: str = "time") -> ManifestArray:
    """Rows of four numbers each, whose chunks lie one after the other in a new file."""
    values = np.asarray(values, "<i4")
    values = np.repeat(values[:, None], WIDTH, 1) if values.ndim == 1 else values
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{uuid.uuid4().hex}.bin"
    path.write_bytes(values.tobytes())
    grid = ChunkGrid.regular(values.shape, (chunk, WIDTH))
    entries = np.zeros(grid.shape, ENTRY)
    entries["location"] = FIRST
    entries["offset"][:, 0] = grid.axes[0].lines()[:-1] * 4 * WIDTH
    entries["length"][:, 0] = grid.axes[0].lengths() * 4 * WIDTH
    encodings = (ChunkEncoding.c_order("<i4", (chunk, WIDTH)),)
    if len(values) % chunk:
        encodings += (ChunkEncoding.c_order("<i4", (len(values) % chunk, WIDTH)),)
        entries["encoding"][-1] = 1
    manifest = ChunkManifest(
        entries=entries,
        encodings=encodings,
        fills=(Fill.from_value(-1, "<i4"),),
        locations=(Location(f"file://{path}", path.stat().st_size),),
    )
    return ManifestArray(
        manifest=manifest,
        grid=grid,
        dtype=np.dtype("<i4"),
        name=name,
        dimension_names=(dim, "x"),
        attributes={},
    )


def labels(values, name: str = "time", *, units: str = "days since 2000-01-01") -> ManifestArray:
    return inline_array(np.asarray(values, "<i8"), name=name, dims=(name,), attributes={"units": units})


def open_store(objects: ObjectStore, snapshot: Snapshot) -> OpenStore:
    return OpenStore(objects, permission_for_snapshot(objects.url, snapshot, ALLOW))


def create(url, arrays: Mapping[str, ManifestArray], storage=None, **attributes) -> Snapshot:
    objects = objects_of(url, storage)
    group = ManifestGroup(arrays=dict(arrays), attributes=attributes)
    return write_group(open_store(objects, EMPTY_STORE), EMPTY_STORE, group)


def create_rows(folder: Path, **attributes) -> Path:
    """Make a store of four rows, ``v``, and their labels, ``time``."""
    create(folder / "x.vstack", {"v": virtual(folder, range(4)), "time": labels(range(4))}, **attributes)
    return folder / "x.vstack"


def opened(url, at=None, storage=None) -> tuple[ObjectStore, Snapshot, ManifestGroup]:
    objects = objects_of(url, storage)
    snapshot = open_snapshot(objects, at)
    return objects, snapshot, open_store(objects, snapshot).group(snapshot)


class Change:
    """A change that is begun now, of what is the newest snapshot now, and committed later."""

    def __init__(self, url, change: Callable[[ManifestGroup], ManifestGroup], storage=None, overlays=None) -> None:
        self.objects, self.base, self.group = opened(url, storage=storage)
        self.group, self.overlays = change(self.group), overlays

    def commit(self, message: str | None = None) -> Snapshot:
        store = open_store(self.objects, self.base)
        return write_group(store, self.base, self.group, overlays=self.overlays, message=message)


def added(**arrays: ManifestArray) -> Callable[[ManifestGroup], ManifestGroup]:
    return lambda group: replace(group, arrays={**group.arrays, **arrays})


def removed(*names: str) -> Callable[[ManifestGroup], ManifestGroup]:
    return lambda group: replace(group, arrays={k: v for k, v in group.arrays.items() if k not in names})


def appended(time, **arrays: ManifestArray) -> Callable[[ManifestGroup], ManifestGroup]:
    """Give the change that joins variables with new ones, and has new labels."""

    def change(group: ManifestGroup) -> ManifestGroup:
        found = {**group.arrays, "time": labels(time)}
        for name, new in arrays.items():
            old = group.arrays[name]
            joined = np.concatenate([old, new], 0)
            found[name] = replace(joined, name=name, dimension_names=old.dimension_names, attributes=old.attributes)
        return replace(group, arrays=found)

    return change


def written(name: str, first: int, new: ManifestArray) -> dict[str, object]:
    """Give the overlays that put an array over the chunks of another from one on."""
    return {f"/{name}": [Overlay(new.manifest, (first, 0))]}


def values_of(url, name: str = "v", at=None, storage=None) -> list[int]:
    """Give the first column of a variable."""
    values = read_array(opened(url, at, storage)[2].arrays[name], ..., Storage.from_option(storage))
    assert values.ndim == 1 or (values == values[:, :1]).all()
    return (values if values.ndim == 1 else values[:, 0]).tolist()
