"""Which datatypes netCDF-C reads: axes of the others have no number there."""

from __future__ import annotations

from virtualstack.formats.hdf5.structures.datatype_message import Datatype

__all__ = ["is_read_by_netcdf"]

_PLAIN = frozenset({"integer", "float", "string", "enum", "opaque"})


def is_read_by_netcdf(datatype: Datatype, /) -> bool:
    """Tell whether netCDF-C reads elements of a datatype that is not committed.

    As netCDF-C 4.10 does, seen from outside: numbers, text, enumerations and opaque bytes; compounds of numbers, text,
    and arrays of them; sequences of numbers and text.
    """
    if datatype.kind in _PLAIN or datatype.variant == "string":
        return True
    if datatype.kind == "compound":
        return all(_is_part(_element_of_array(member.datatype)) for member in datatype.members)
    return datatype.kind == "vlen" and datatype.base is not None and _is_part(datatype.base)


def _element_of_array(datatype: Datatype) -> Datatype:
    return datatype.base if datatype.kind == "array" and datatype.base is not None else datatype


def _is_part(datatype: Datatype) -> bool:
    """Tell whether it may be in a compound or a sequence; there, floats are those of C."""
    is_float_of_c = datatype.kind == "float" and 2 < datatype.size <= 8
    return is_float_of_c or datatype.kind in ("integer", "string") or datatype.variant == "string"
