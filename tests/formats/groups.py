"""What our readers make of a file: its group, what they say of variables, and values."""

from __future__ import annotations

from os import PathLike

import numpy as np
import xarray as xr

from tests.formats.hdf5.agreement import Checked
from virtualstack.formats.base import Reader
from virtualstack.location import absolute_url
from virtualstack.manifests import ManifestArray, ManifestGroup
from virtualstack.readers import HDF5, ReadOptions
from virtualstack.reading import read_array
from virtualstack.storage import Storage

STORAGE = Storage.from_option(None)
CHECKED = Checked()
"""Compares what our parsers make of a file with what the HDF5 library does."""


def group_of(path: str | PathLike[str], reader: Reader | None = None, /, **options: object) -> ManifestGroup:
    """Read a path or URL by a reader, HDF5 unless another one is given, with fields of `ReadOptions`."""
    return (reader or HDF5()).read(absolute_url(path), STORAGE, ReadOptions(**options))


def values_of(array: ManifestArray, key: tuple[slice, ...] = (), /) -> np.ndarray:
    """Read the values of an array of a group, or some of them."""
    return read_array(array, key, STORAGE)


def stored_values(vds: xr.Dataset, name: str = "band_data") -> np.ndarray:
    """Open a virtual dataset, and return values as they are stored, neither masked nor scaled."""
    return vds.virtual.open(mask_and_scale=False)[name].values


def refusals(group: ManifestGroup) -> dict[str, tuple[str, str]]:
    """Return what a group and those below it say of variables: kind and reason by path."""
    return {x.path: (x.kind, x.reason) for _, child in group.walk() for x in child.refusals}


def reasons(group: ManifestGroup, kind: str = "refused") -> dict[str, str]:
    """Return the reasons of one kind of refusals by path."""
    return {path: reason for path, (found, reason) in refusals(group).items() if found == kind}
