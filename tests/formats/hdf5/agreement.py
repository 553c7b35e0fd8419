"""Compare what the parsers of HDF5 make of a file with what the HDF5 library makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from virtualstack.manifests import ManifestArray, ManifestGroup
from virtualstack.readers import HDF5, ReadOptions
from virtualstack.storage import Storage


@dataclass(frozen=True)
class Checked:
    """The reader of HDF5, which fails if the parsers and the library differ on a file."""

    name: ClassVar[str] = "hdf5"

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        own, library = (HDF5(metadata=x).read(url, storage, options) for x in ("auto", "library"))
        found = list(differences(own, library))
        assert not found, f"'{url}' is read differently by the HDF5 library: {found}"
        return own


def differences(own: ManifestGroup, library: ManifestGroup, /, path: str = "") -> Iterator[str]:
    """Yield each difference between two groups: names, dimensions, attributes, dtypes, fill values, and chunks.

    The order of attributes is not compared: if the file does not track it, the library sorts them in its own way.
    Failures of the library alone are not compared either: attributes that it could not read, and arrays that are INLINE
    because it could not list their chunks.
    """
    here = path or "/"
    for what in ("arrays", "groups"):
        a, b = list(getattr(own, what)), list(getattr(library, what))
        if a != b:
            alone = f"{sorted(set(a) - set(b))} alone, and by the library {sorted(set(b) - set(a))} alone"
            yield f"'{here}' has the {what} {alone if set(a) != set(b) else 'in another order'}"
    for what in ("dimensions", "unlimited"):
        if getattr(own, what) != getattr(library, what):
            yield f"'{here}' has the {what} {getattr(own, what)}, and by the library {getattr(library, what)}"
    odd = _odd(library) - _odd(own)
    yield from _attributes(own.attributes, library.attributes, here, odd)
    extra = _odd(own) - _odd(library)
    if extra:
        yield f"of '{here}' there are notes on {sorted(extra)}, and none by the library"
    for name in own.arrays.keys() & library.arrays.keys():
        if f"{path}/{name}" not in odd:
            yield from _attributes(own.arrays[name].attributes, library.arrays[name].attributes, f"{path}/{name}", odd)
            yield from _arrays(own.arrays[name], library.arrays[name], f"{path}/{name}")
    for name in own.groups.keys() & library.groups.keys():
        yield from differences(own.groups[name], library.groups[name], f"{path}/{name}")


def _odd(group: ManifestGroup) -> set[str]:
    """Return the paths that were refused, left out or inlined, without reasons, which the library words differently."""
    return {x.path for x in group.refusals}


def _arrays(own: ManifestArray, library: ManifestArray, path: str) -> Iterator[str]:
    for what in ("dimension_names", "dtype", "shape"):
        if getattr(own, what) != getattr(library, what):
            yield f"'{path}' has the {what} {getattr(own, what)}, and by the library {getattr(library, what)}"
            return
    if not (own.equals(library) or bool((own == library).all())):
        yield f"the chunks of '{path}' are not where the library says"
    a, b = own.in_memory().fill, library.in_memory().fill
    if a != b:
        yield f"'{path}' has the fill value {a.value!r}, and by the library {b.value!r}"


def _attributes(own: Mapping[str, Any], library: Mapping[str, Any], path: str, odd: set[str]) -> Iterator[str]:
    for name in own.keys() | library.keys():
        if f"{path}@{name}" in odd and name not in library:
            continue
        if name not in own or name not in library or not _is_same(own[name], library[name]):
            yield f"'{path}@{name}' is {own.get(name)!r}, and by the library {library.get(name)!r}"


def _is_same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray | np.generic):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    return bool(a == b)
