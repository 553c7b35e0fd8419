"""Saying how stored numbers become values, whatever their files say."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import xarray as xr
from xarray import conventions

from virtualstack.codecs.cf_times import datetime_units
from virtualstack.dataset.declared import (
    CF_KEYS,
    declared_dataset,
    is_same_word,
    is_unpacked,
    with_edits,
    with_times_of,
)
from virtualstack.dataset.encode import encoded_variable
from virtualstack.dataset.variables import virtual_array
from virtualstack.errors import WriterError

__all__ = ["set_encoding"]

_SETTABLE = tuple(key for key in CF_KEYS if key != "dtype")


def set_encoding(dataset: xr.Dataset, encodings: Mapping[str, Mapping[str, Any]], /) -> xr.Dataset:
    """Return a dataset whose stored numbers are decoded by other attributes; no bytes are read or written.

    Parameters
    ----------
    dataset
        Stays as it is.
    encodings
        By the name of a variable, attributes and their values; ``None`` takes one away.

    Raises
    ------
    KeyError
        There is no such variable.
    ValueError
        An attribute is none that says how stored numbers become values.
    WriterError
        It cannot be said of all chunks, or the stored numbers of a loaded variable are not known.
    """
    dataset = declared_dataset(dataset)
    virtual: dict[str, Mapping[str, Any]] = {}
    packings: dict[str, Mapping[str, Any]] = {}
    loaded: dict[str, Mapping[str, Any]] = {}
    for name, its in encodings.items():
        if name not in dataset.variables:
            raise KeyError(f"no variable '{name}'; there are {sorted(map(str, dataset.variables))}")
        unknown = sorted(its.keys() - set(_SETTABLE))
        if unknown:
            raise ValueError(
                f"set_encoding says how stored numbers become values, and {unknown} of variable '{name}' do not: it "
                f"takes {list(_SETTABLE)}. The bytes of files stay as they are; other attributes are set as in xarray"
            )
        array = virtual_array(dataset.variables[name])
        (loaded if array is None else packings if is_unpacked(array) else virtual)[name] = its
    changed = with_edits(dataset, virtual, packings)
    decoded: dict[Hashable, xr.Variable] = {}
    for name, its in loaded.items():
        before = changed.variables[name].encoding
        with_times_of(changed, name, its, before)
        for other in (name, *_loaded_bounds(changed, name, its, loaded)):
            decoded[other] = _decoded(other, changed.variables[other], its)
    changed = changed.assign({name: x for name, x in decoded.items() if name not in changed.coords})
    return changed.assign_coords({name: x for name, x in decoded.items() if name in changed.coords})


def _loaded_bounds(
    dataset: xr.Dataset, name: str, edits: Mapping[str, Any], others: Mapping[str, Any]
) -> tuple[str, ...]:
    """Name the loaded bounds of a variable whose units change with its own."""
    variable = dataset.variables[name]
    bounds = variable.attrs.get("bounds", variable.encoding.get("bounds"))
    if not isinstance(bounds, str) or bounds in others:
        return ()
    found = dataset.variables.get(bounds)
    if found is None or virtual_array(found) is not None or not edits.keys() & {"units", "calendar"}:
        return ()
    is_alike = all(
        is_same_word(key, variable.encoding.get(key), found.encoding.get(key)) for key in ("units", "calendar")
    )
    return (bounds,) if is_alike else ()


def _decoded(name: str, variable: xr.Variable, edits: Mapping[str, Any]) -> xr.Variable:
    """Return a loaded variable as xarray decodes its stored numbers by other attributes."""
    stored = encoded_variable(name, variable)
    said = {key: variable.encoding[key] for key in _SETTABLE if variable.encoding.get(key) is not None}
    is_known = all(is_same_word(key, value, stored.attrs.get(key)) for key, value in said.items())
    if not is_known or (variable.dtype.kind in "mMO" and "units" not in said):
        raise WriterError(
            f"the stored numbers of loaded variable '{name}' are not known any more: call set_encoding for each file "
            "before they are joined, or open it with loadable_variables=[] so that it stays virtual",
            variable=name,
            feature=", ".join(sorted(edits)),
        )
    # where times were opened with decode_times=False, they stay numbers
    are_decoded = not datetime_units(variable.attrs.get("units"))
    stored.attrs = {key: x for key, x in {**stored.attrs, **edits}.items() if x is not None}
    try:
        return conventions.decode_cf_variable(name, stored, decode_times=are_decoded, stack_char_dim=False)
    except (ValueError, TypeError, OverflowError, KeyError, AttributeError) as error:
        raise WriterError(
            f"loaded variable '{name}' cannot be decoded with {dict(edits)}: {error}", variable=name
        ) from error
