"""Why a dataset has no references: said by the modules that look for them, told apart by what happens next."""

from __future__ import annotations

__all__ = ["LostValuesError", "NoReferencesError"]


class NoReferencesError(Exception):
    """The bytes of a dataset are no byte ranges of a source, but the HDF5 library reads it; the message is why."""


class LostValuesError(Exception):
    """The values are out of reach of the HDF5 library, or it gives others, or it must not be asked."""
