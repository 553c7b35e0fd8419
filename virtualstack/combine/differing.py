"""Unpacking only what files pack differently; floats of other missing values are joined unasked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import xarray as xr

from virtualstack.combine.part import Part
from virtualstack.dataset import virtual_array
from virtualstack.errors import CombineError
from virtualstack.manifests import ManifestArray, can_cast_floats, is_nan, other_meaning, unpack

__all__ = ["floats_like", "joined", "unpack_differing"]

_MISSING = frozenset({"_FillValue", "missing_value"})


def joined(arrays: Sequence[ManifestArray], axis: int, /) -> ManifestArray:
    """Join arrays along an axis; floats whose missing values differ keep their own, as NaN, in their chunks.

    Their dtype stays what it is, so that nobody has to ask for it with ``unpack="differing"``.

    Raises
    ------
    CombineError
        As for :func:`numpy.concatenate`.
    """
    try:
        found: Any = np.concatenate(cast(Any, arrays), axis=axis)
    except CombineError:
        if not any(array.cf for array in arrays) or not all(_is_masked_alone(array) for array in arrays if array.cf):
            raise
        found = np.concatenate(cast(Any, [unpack(array).array for array in arrays]), axis=axis)
    return cast(ManifestArray, found)


def floats_like(array: ManifestArray, like: ManifestArray, /) -> ManifestArray:
    """Return floats in the dtype and with the missing values of others, where no value changes; else as they are."""
    if array.dtype.kind != "f" or not np.can_cast(array.dtype, like.dtype) or not _is_masked_alone(like):
        return array
    if _is_masked_alone(array) and all(map(is_nan, like.cf.values())) and other_meaning(array, like) is not None:
        array = unpack(array).array
    return array.astype(like.dtype) if can_cast_floats(array.cf, array.dtype, like.dtype) else array


def _is_masked_alone(array: ManifestArray) -> bool:
    """Tell whether numbers are floats of which attributes say at most which are missing."""
    return array.dtype.kind == "f" and not array.cf.keys() - _MISSING


def unpack_differing(parts: Sequence[Part], /, *, decode_times: bool = True) -> list[Part]:
    """Let the chunks of variables decode where attributes that change values differ; the others stay packed.

    Parameters
    ----------
    parts
        In the order of the files; opened packed.
    decode_times
        Whether numbers with units of time become dates.

    Raises
    ------
    CombineError
        A variable differs and has no values of a fixed dtype once decoded.
    """
    names = dict.fromkeys(name for part in parts for name in part.variables)
    differing = [name for name in names if _differs([part.variables[name] for part in parts if name in part.variables])]
    if not differing:
        return list(parts)
    return [_unpacked(part, [name for name in differing if name in part.variables], decode_times) for part in parts]


def _differs(members: Sequence[xr.Variable]) -> bool:
    arrays = [x for x in map(virtual_array, members) if x is not None]
    return any(_is_other(arrays[0], other) for other in arrays[1:])


def _is_other(a: ManifestArray, b: ManifestArray) -> bool:
    return bool(a.cf or b.cf) and (a.dtype != b.dtype or other_meaning(a, b) is not None)


def _unpacked(part: Part, names: Sequence[str], decode_times: bool) -> Part:
    changed = dict(part.variables)
    for name in names:
        array = virtual_array(part.variables[name])
        if array is not None:
            changed[name] = _unpacked_variable(name, part.variables[name], array, part, decode_times)
    return replace(part, variables=changed)


def _unpacked_variable(
    name: str, variable: xr.Variable, array: ManifestArray, part: Part, decode_times: bool
) -> xr.Variable:
    unpacked = unpack(array, decode_times=decode_times)
    if unpacked.obstacle is not None:
        raise CombineError(
            f"variable '{name}' is packed differently in some files, and that of {part.called} cannot be unpacked: "
            f"{unpacked.obstacle}; leave it out with drop_variables, or, where the calendar is one, load it with "
            "loadable_variables",
            variable=name,
            property="packing",
            left=dict(array.cf),
            left_url=part.source,
        )
    gone = {**array.attributes, **array.cf}.keys() - unpacked.array.attributes.keys()
    attributes = {key: value for key, value in variable.attrs.items() if key not in gone}
    return xr.Variable(variable.dims, unpacked.array, attributes, {**variable.encoding, **unpacked.encoding})
