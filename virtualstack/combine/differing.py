"""Unpacking only what files pack differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import xarray as xr

from virtualstack.combine.part import Part
from virtualstack.dataset import virtual_array
from virtualstack.errors import CombineError
from virtualstack.manifests import ManifestArray, other_meaning, unpack

__all__ = ["unpack_differing"]


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
