"""Conversion of one array to a variable of xarray: virtual, virtual with unpacked chunks, or loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from xarray import conventions
from xarray.indexes import PandasIndex

from virtualstack.codecs.bounded import CodecError
from virtualstack.codecs.cf_times import CODING_ERRORS, datetime_scale, datetime_units, decode_datetimes
from virtualstack.errors import ReaderError, Remedy
from virtualstack.manifests import ManifestArray, Refusal, packed_encoding
from virtualstack.manifests import unpack as unpack_array
from virtualstack.reading import read_array
from virtualstack.storage import Storage

DecodeTimes = bool | xr.coders.CFDatetimeCoder | Mapping[str, bool | xr.coders.CFDatetimeCoder] | None
"""How times become dates, as in ``xr.open_dataset``."""


def expand_dims(variable: xr.Variable, sizes: Mapping[str, int], /) -> xr.Variable:
    """Return a variable with new dimensions of the given sizes before its own, and with its encoding."""
    shape = dict[Hashable, int]([*sizes.items(), *variable.sizes.items()])
    expanded: xr.Variable = variable.to_base_variable().set_dims(shape)  # type: ignore[no-untyped-call]
    expanded.encoding = dict(variable.encoding)
    return expanded


def virtual_array(variable: xr.Variable, /) -> ManifestArray | None:
    """Return the virtual array of a variable, or ``None`` if the variable holds values."""
    data = variable._data  # `.data` is the same for duck arrays, but would load lazy values
    return data if isinstance(data, ManifestArray) else None


def is_foreign(variable: xr.Variable, /) -> bool:
    """Return whether a variable has an array of VirtualiZarr; nothing is imported or loaded."""
    return type(variable._data).__module__.startswith("virtualizarr.")


def virtual_variable(array: ManifestArray, encoding: Mapping[str, Any] | None = None, /) -> xr.Variable:
    """Return a variable over an unchanged array."""
    return xr.Variable(array.dimension_names or (), array, text_coordinates(array.attributes), encoding, fastpath=True)


def unpacked_variable(array: ManifestArray, /, *, decode_times: bool) -> tuple[xr.Variable, list[Refusal]]:
    """Return a variable whose chunks decode to its values, and refusals for arrays that must stay packed."""
    unpacked = unpack_array(array, decode_times=decode_times)
    refused = (
        [] if unpacked.obstacle is None else [Refusal(path=array.name or "", reason=unpacked.obstacle, kind="packed")]
    )
    return virtual_variable(unpacked.array, unpacked.encoding), refused


def loaded_variable(
    name: str,
    array: ManifestArray,
    storage: Storage,
    /,
    *,
    url: str | None,
    decode_times: bool | xr.coders.CFDatetimeCoder = True,
    stack: bool = False,
) -> xr.Variable:
    """Read all values of an array and decode them by the CF conventions, as ``xr.open_dataset`` does."""
    raw = _raw_variable(array, read_array(array, (), storage))
    try:
        is_text = stack or "_Encoding" in raw.attrs  # the decoding of text, called in vain, would import dask.array
        variable = conventions.decode_cf_variable(
            name,
            raw,
            decode_times=_DATES if decode_times is True else decode_times,
            decode_timedelta=xr.coders.CFTimedeltaCoder() if decode_times is True else None,
            stack_char_dim=stack,
            concat_characters=is_text,
        )
        # xarray decodes some times when they are needed; to load what is in memory would import dask
        return variable if variable._in_memory or "units" not in array.cf else variable.load()
    except CODING_ERRORS as error:
        raise undecodable(array.name, name, url, error) from error


class _DateCoder(xr.coders.CFDatetimeCoder):
    """The default coder of xarray, without its trial with some values of each variable; it decodes all others."""

    def decode(self, variable: xr.Variable, name: Hashable | None = None) -> xr.Variable:
        attributes, encoding = dict(variable.attrs), dict(variable.encoding)
        described = {key: attributes.pop(key) for key in ("units", "calendar") if key in attributes}
        units, calendar = described.get("units"), described.get("calendar")
        if (
            isinstance(units, str)
            and datetime_units(units)
            and variable.dtype.kind in "iuf"
            and encoding.keys().isdisjoint(described)
        ):
            with contextlib.suppress(CodecError, *CODING_ERRORS):
                if datetime_scale(units, calendar) is not None:
                    dates = decode_datetimes(variable.values, units, calendar)
                    return xr.Variable(variable.dims, dates, attributes, encoding | described, fastpath=True)
        return super().decode(variable, name)


_DATES = _DateCoder()


def undecodable(path: str | None, name: str, url: str | None, error: Exception, /) -> ReaderError:
    """Return the error for a loaded variable, at a path in its source, whose values cannot be decoded."""
    reason = str(error).partition(" Try opening your dataset")[0]  # xarray's advice, which no command has
    return ReaderError(
        f"variable '{path}' of '{url}' cannot be decoded: {reason}",
        Remedy("open the file with", decode_times=False),
        url=url,
    )


def _raw_variable(array: ManifestArray, values: NDArray[Any]) -> xr.Variable:
    encoding = dict(packed_encoding(array))
    if values.dtype.kind == "T":
        values = values.astype(object)
        encoding["dtype"] = str  # as in xarray's netCDF backends
    times = {key: value for key, value in array.cf.items() if key in ("units", "calendar")}
    attributes = text_coordinates({**array.attributes, **times})
    return xr.Variable(array.dimension_names or (), values, attributes, encoding, fastpath=True)


_NUMBERS = frozenset(map(np.dtype, ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "M8[ns]")))


def make_index(name: str, variable: xr.Variable, /) -> tuple[PandasIndex, xr.Variable]:
    """Return the index of a dimension coordinate that holds values, and the variable over the index."""
    values = variable._data
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype in _NUMBERS:
        # to make an index of values themselves, xarray would import dask
        index = PandasIndex(pd.Index(values, name=name), variable.dims[0], coord_dtype=values.dtype)
    else:
        index = PandasIndex.from_variables({name: variable}, options={})
    return index, index.create_variables({name: variable})[name]


def text_coordinates(attributes: Mapping[str, Any], /) -> dict[str, Any]:
    """Return attributes whose ``coordinates`` is one text, as in CF; some files have a list of names.

    >>> text_coordinates({"coordinates": ["lat", "lon"]})
    {'coordinates': 'lat lon'}
    """
    names = attributes.get("coordinates", "")
    if isinstance(names, str):
        return dict(attributes)
    return {**attributes, "coordinates": " ".join(map(str, np.atleast_1d(np.asarray(names, object))))}


def take_coordinates(variable: xr.Variable, /) -> set[str]:
    """Move the CF attribute ``coordinates`` into the encoding, as xarray does, and return its names."""
    names = variable.attrs.pop("coordinates", None)
    if names is None:
        return set()
    variable.encoding["coordinates"] = names
    return set(names.split())
