"""What a dataset knows of its source that is none of its variables, kept in its encoding."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import xarray as xr

from virtualstack.manifests import ManifestGroup, Refusal

__all__ = ["groups_of", "notes_on", "refusals_of", "unlimited_of", "version_of", "with_refusals"]

_REFUSALS = "virtualstack_refusals"
_GROUPS = "virtualstack_groups"
_UNLIMITED = "unlimited_dims"
_VERSION = "virtualstack_version"


def notes_on(group: ManifestGroup, /) -> dict[str, Any]:
    """Give the encoding of the dataset of a group."""
    encoding: dict[str, Any] = {_UNLIMITED: set(group.unlimited)}
    if group.url is not None:
        encoding["source"] = group.url
    if group.refusals:
        encoding[_REFUSALS] = group.refusals
    if group.version is not None:
        encoding[_VERSION] = group.version
    if group.groups:
        encoding[_GROUPS] = tuple(group.groups)
    return encoding


def groups_of(dataset: xr.Dataset, /) -> tuple[str, ...]:
    """Name the child groups that the source of a dataset has beside it, where the dataset still knows."""
    return tuple(dataset.encoding.get(_GROUPS, ()))


def refusals_of(dataset: xr.Dataset, /) -> tuple[Refusal, ...]:
    """Give what the reader could not take over, where the dataset still knows."""
    return tuple(dataset.encoding.get(_REFUSALS, ()))


def with_refusals(dataset: xr.Dataset, refusals: Iterable[Refusal], /) -> xr.Dataset:
    """Give the dataset with other ones."""
    changed = dataset.copy()
    changed.encoding = {**dataset.encoding, _REFUSALS: tuple(refusals)}
    if not changed.encoding[_REFUSALS]:
        del changed.encoding[_REFUSALS]
    return changed


def unlimited_of(dataset: xr.Dataset, /) -> frozenset[str]:
    """Name the dimensions that are unlimited in the source, and are there still."""
    return frozenset(map(str, set(dataset.encoding.get(_UNLIMITED, ())) & set(dataset.dims)))


def version_of(dataset: xr.Dataset, /) -> tuple[int, float] | None:
    """Give the snapshot of a vstack that was opened, where the dataset still knows and it was the newest."""
    version: tuple[int, float] | None = dataset.encoding.get(_VERSION)
    return version
