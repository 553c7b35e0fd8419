"""Choose how chunks without bytes are expressed in targets whose fill value marks missing data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from virtualstack.codecs.pipeline import CodecError
from virtualstack.errors import IN_ANOTHER_WAY, ManifestError, Remedy, WriterError
from virtualstack.manifests import INLINE, ChunkEncoding, ChunkManifest, Fill
from virtualstack.zarr.metadata.encode import MAX_FILL_BYTES, can_hold, encode_fill

type FillBudget = int
"""Largest size in bytes of the fill chunks of one variable in the references."""

_SAMPLE_ELEMENTS = 4096  # elements that show whether a chunk of any length holds a value


def choose_fill(
    own: Fill, attributes: Mapping[str, Any], dtype: np.dtype[Any], /, *, has_holes: bool
) -> tuple[Fill | None, bool]:
    """Choose ``fill_value`` of zarr v2 metadata, and whether chunks without bytes must be written out.

    xarray takes the ``fill_value`` of zarr v2 as the ``_FillValue`` attribute: it masks values that equal it. So it
    can be set only if the source has this attribute too, or if masking changes nothing:

    ===================== ================ =========================== ===========
    ``_FillValue`` is     holes            ``fill_value``              holes
    ===================== ================ =========================== ===========
    F                     none             F
    F                     read as F        F                           left out
    F                     read as D        null (F stays an attribute) written out
    not set               none             null
    not set               read as NaN      NaN                         left out
    not set               read as D        D if ``missing_value`` is D left out
    not set               read as D        null                        written out
    ===================== ================ =========================== ===========

    In this module, a hole is a chunk without bytes: EMPTY or ABSENT. Null means that holes have no defined value.
    """
    if "_FillValue" in attributes:
        declared = _exact(attributes["_FillValue"], dtype)
        if declared is not None and (not has_holes or declared == own):
            return declared, False
        return None, has_holes
    if not has_holes:
        return None, False
    if dtype.kind == "f" and math.isnan(own.value):
        return own, False
    missing = [_exact(x, dtype) for x in np.ravel(attributes.get("missing_value", ()))]
    return (own, False) if own in missing else (None, True)


def _exact(value: Any, dtype: np.dtype[Any]) -> Fill | None:
    """Return the value as a fill of the dtype, or ``None`` if the dtype cannot hold it exactly."""
    if isinstance(value, (list, np.ndarray)):
        items = np.ravel(np.asarray(value))
        if items.size != 1:
            return None
        value = items[0]
    if dtype.kind == "T":
        return Fill.from_value(value, dtype) if isinstance(value, str) else None
    try:
        with np.errstate(all="ignore"):
            fill = Fill.from_value(value, dtype)
        is_nan = fill.value != fill.value and value != value
        return fill if dtype.kind not in "iufcb" or is_nan or fill.value == value else None
    except (ManifestError, TypeError):
        return None


def encode_fill_chunk(fill: Fill, encoding: ChunkEncoding, /, *, variable: str) -> bytes:
    """Return the stored bytes of a chunk full of the fill value, checked by decoding."""
    try:
        return encode_fill(fill, encoding)
    except CodecError as error:
        raise _refuse(variable, str(error)) from error


def can_hold_fill(fill: Fill, encoding: ChunkEncoding, /) -> bool:
    """Return whether a chunk full of the fill value can be encoded, tried with a short chunk."""
    if encoding.size * encoding.dtype.itemsize > MAX_FILL_BYTES:
        return False
    sample = min(encoding.size, _SAMPLE_ELEMENTS)
    return can_hold(fill, ChunkEncoding.c_order(encoding.dtype, (sample,), encoding.codecs))


def inline_holes(manifest: ChunkManifest, chunk: bytes, /) -> ChunkManifest:
    """Return the manifest with one INLINE chunk, stored once, instead of all chunks without bytes."""
    entries = manifest.entries.copy()
    entries[manifest.holes] = (INLINE, 0, len(manifest.inline), len(chunk))
    return replace(manifest, entries=entries, inline=manifest.inline + chunk)


def check_budget(n_holes: int, n_copies: int, nbytes: int, budget: FillBudget, /, *, variable: str) -> None:
    """Raise :class:`~virtualstack.errors.WriterError` if copies of a fill chunk of ``nbytes`` exceed the budget."""
    nbytes *= n_copies
    if nbytes > budget:
        parquet = [Remedy("write parquet references, which hold equal chunks once")] if n_copies > 1 else []
        raise _refuse(
            variable,
            f"its {n_holes} chunks take {nbytes} bytes, more than fill_budget={budget}",
            Remedy("allow", fill_budget=nbytes),
            *parquet,
        )


def _refuse(variable: str, reason: str, *remedies: Remedy) -> WriterError:
    return WriterError(
        f"variable '{variable}' has chunks without bytes whose fill value is not its '_FillValue', and kerchunk "
        f"references would mask this value. Such chunks must be written out, but {reason}",
        *(remedies or IN_ANOTHER_WAY),
        variable=variable,
        feature="absent chunks",
    )
