"""Chunks that come over those of an array."""

from __future__ import annotations

from dataclasses import dataclass

from virtualstack.manifests.manifest import Manifest

__all__ = ["Overlay"]


@dataclass(frozen=True, slots=True)
class Overlay:
    """Chunks that come over those of an array, on its grid.

    Parameters
    ----------
    manifest
        Of the chunks; their fills are of the dtype of the array.
    begin
        First cell of them in the array.
    """

    manifest: Manifest
    begin: tuple[int, ...]
