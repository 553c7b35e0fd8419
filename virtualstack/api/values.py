"""Options of opening with values, which functions of datasets, trees and repositories share."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import xarray as xr

if TYPE_CHECKING:
    from virtualstack.dataset.variables import DecodeTimes
    from virtualstack.storage import Stale


class ValueOptions(TypedDict, total=False):
    """Options of virtualstack's engine that are about values, and of ``xr.open_dataset``."""

    absent: Literal["fill", "raise"]
    stale: Stale | None
    task_bytes: int | str
    drop_variables: str | Iterable[str] | None
    decode_cf: bool | None
    mask_and_scale: bool | Mapping[str, bool] | None
    decode_times: DecodeTimes
    decode_timedelta: bool | xr.coders.CFTimedeltaCoder | Mapping[str, Any] | None
    use_cftime: bool | Mapping[str, bool] | None
    concat_characters: bool | Mapping[str, bool] | None
    decode_coords: bool | Literal["coordinates", "all"] | None
    create_default_indexes: bool
    cache: bool | None
    inline_array: bool
    chunked_array_type: str | None
    from_array_kwargs: dict[str, Any] | None


_DEFAULTS = {"absent": "fill", "stale": None, "task_bytes": "64 MiB"}
"""Defaults of the engine; the others are those of xarray."""

VALUE_OPTIONS = tuple(
    inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=_DEFAULTS[name] if name in _DEFAULTS else inspect.signature(xr.open_dataset).parameters[name].default,
        annotation=kind.__forward_arg__,
    )
    for name, kind in ValueOptions.__annotations__.items()
)
"""`ValueOptions` as parameters of functions that pass them on."""
