"""Groups of loaded and virtual arrays, and their views as directories and as stores in memory."""

import json
from dataclasses import replace

import numpy as np
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from virtualstack.manifests import ChunkAxis, ChunkGrid, ManifestGroup, inline_array
from virtualstack.storage import LocalTarget
from virtualstack.testing.strategies import ZLIB, in_pages, store_array
from virtualstack.zarr.view import make_view

LOADED = {
    "lat": np.linspace(-1, 1, 5),
    "lon": np.arange(7, dtype="i2"),
    "time": np.arange(4, dtype="i8"),
    "plane": np.arange(20, dtype="f4").reshape(4, 5),
    "long": np.arange(300_000) % 1000,
    "wide": np.arange(600_000, dtype="u4").reshape(2, 300_000) % 7,
    "nans": np.array([np.nan, np.inf, -0.0, 1]),
    "flag": np.array(True),
    "none": np.zeros((0, 5), "f4"),
}
"""By name: what every foreign reader has a data type for."""

DIMS = {
    "lat": ["lat"],
    "lon": ["lon"],
    "time": ["time"],
    "plane": ["time", "lat"],
    "long": ["n"],
    "wide": ["two", "m"],
    "nans": ["time"],
    "flag": [],
    "none": ["zero", "lat"],
}


def loaded(values, dims=None, **attributes):
    dims = dims if dims is not None else list("xyz"[: np.ndim(values)])
    return inline_array(values, name="loaded", dims=dims, attributes=attributes)


def virtual_arrays():
    """One of each kind, with the fill value 7."""
    values = np.arange(20, dtype="i4").reshape(4, 5) + 1
    plain, *_ = store_array(values, (2, 3), codecs=(ZLIB,), fill=7, url="memory://views/plain")
    other, *_ = store_array(values, (2, 3), fill=7, url="memory://views/other")
    uneven = np.concatenate([plain[:3], plain])
    holey, *_ = store_array(values, (2, 3), holes=np.array([[1, 2], [0, 0]], np.uint8), fill=7, url="memory://views/h")
    scalar, *_ = store_array(np.array(3, "i4"), (), fill=7, url="memory://views/scalar")
    paged, _ = in_pages(plain, 3)
    arrays = {
        "plain": plain,
        "turned": plain.transpose(1, 0),
        "mixed": np.concatenate([plain, other]),
        "uneven": uneven,
        "cut": plain[1:, ::2],
        "holey": holey,
        "point": scalar,
        "paged": paged,
    }
    return {
        name: replace(x, dimension_names=tuple(f"{name}{i}" for i in range(x.ndim)), attributes={"units": "K"})
        for name, x in arrays.items()
    }


def a_group():
    arrays = {name: loaded(values, DIMS[name], standard_name=name) for name, values in LOADED.items()}
    deep = {"lat": arrays["lat"], "plain": virtual_arrays()["plain"]}
    return ManifestGroup(
        arrays={**arrays, **virtual_arrays()},
        groups={"inner": ManifestGroup(arrays=deep, attributes={"level": 2})},
        attributes={"title": "of the user", "numbers": [1, 2.5, None]},
    )


def write(group, folder):
    """Write the view of a group to a directory."""
    target = LocalTarget(folder.as_uri())
    for key, data in make_view(group):
        target.put(key, data)


def keys_of(group, *options, **more):
    return dict(make_view(group, *options, **more))


def documents(group):
    """The metadata in the view of a group, by key, by a parser that takes nothing but JSON."""

    def refuse(word):
        raise ValueError(f"{word} is not JSON")

    found = keys_of(group)
    return {key: json.loads(data, parse_constant=refuse) for key, data in found.items() if key.endswith("zarr.json")}


def in_memory(objects):
    make = default_buffer_prototype().buffer.from_bytes
    return MemoryStore({key: make(data) for key, data in objects.items()}, read_only=True)


def regular(shape, chunks):
    return ChunkGrid(tuple(ChunkAxis.regular(n, c) for n, c in zip(shape, chunks, strict=True)))
