"""Whether two groups are the same to the last bit, and files to scan."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from virtualstack.manifests import ManifestArray, ManifestGroup


def assert_same(a: ManifestGroup, b: ManifestGroup) -> None:
    """Everything, in the same order, with the same types."""
    for name in ("coordinates", "unlimited", "refusals", "url", "dimensions"):
        assert getattr(a, name) == getattr(b, name), name
    assert_same_values(dict(a.attributes), dict(b.attributes))
    assert list(a.arrays) == list(b.arrays)
    assert list(a.groups) == list(b.groups)
    for x, y in zip(a.arrays.values(), b.arrays.values(), strict=True):
        _assert_same_array(x, y)
    assert_all_same(a.groups.values(), b.groups.values())


def assert_all_same(groups: Iterable[ManifestGroup], others: Iterable[ManifestGroup]) -> None:
    """As many groups, each the same as the other one in its place."""
    for a, b in zip(groups, others, strict=True):
        assert_same(a, b)


def _assert_same_array(a: ManifestArray, b: ManifestArray) -> None:
    assert a.equals(b)
    for name in ("name", "dtype", "grid", "dimension_names"):
        assert getattr(a, name) == getattr(b, name), name
    assert_same_values(dict(a.attributes), dict(b.attributes))
    assert_same_values(dict(a.cf), dict(b.cf))
    x, y = a.in_memory(), b.in_memory()
    assert x.entries.tobytes() == y.entries.tobytes()
    assert (None if x.starts is None else x.starts.tobytes()) == (None if y.starts is None else y.starts.tobytes())
    for name in ("fills", "encodings", "locations", "inline"):
        assert getattr(x, name) == getattr(y, name), name
    assert not y.entries.flags.writeable


def assert_same_values(a: Any, b: Any) -> None:
    """Types too: 1 is not 1.0, and a list no tuple."""
    assert type(a) is type(b)
    if isinstance(a, np.ndarray | np.generic):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tolist() == b.tolist() if a.dtype.kind == "T" else a.tobytes() == b.tobytes()
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key, value in a.items():
            assert_same_values(value, b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same_values(x, y)
    else:
        assert repr(a) == repr(b)


def make(path: Path, seed: int = 0, n: int = 40) -> Path:
    """Write a small file of compressed chunks; files of the same seed are the same."""
    with h5py.File(path, "w") as file:
        file.attrs["title"] = f"number {seed}"
        data = file.create_dataset("x", (n, 5), "f4", chunks=(2, 5), compression="gzip")
        data[...] = np.random.default_rng(seed).normal(size=(n, 5))
        data.attrs["units"] = "K"
    return path
