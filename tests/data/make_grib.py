"""GRIB messages made by eccodes, from its samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import eccodes
import numpy as np

GRIB1, GRIB2 = "regular_ll_sfc_grib1", "regular_ll_sfc_grib2"
GRID = {"Ni": 6, "Nj": 4, "iDirectionIncrementInDegrees": 10, "jDirectionIncrementInDegrees": 5}
CORNERS = {
    "latitudeOfFirstGridPointInDegrees": 50,
    "latitudeOfLastGridPointInDegrees": 35,
    "longitudeOfFirstGridPointInDegrees": 0,
    "longitudeOfLastGridPointInDegrees": 50,
}
MISSING = 1e20


def message(
    keys: Mapping[str, Any] | None = None,
    /,
    *,
    sample: str = GRIB2,
    values: Any = None,
    seed: int = 0,
    after: Mapping[str, Any] | None = None,
) -> bytes:
    """Make a message of 4 x 6 points; ``after`` is set once there are values, such as a packing."""
    handle = eccodes.codes_new_from_samples(sample, eccodes.CODES_PRODUCT_GRIB)
    try:
        for key, value in {**GRID, **CORNERS, **(keys or {})}.items():
            eccodes.codes_set(handle, key, value)
        n = eccodes.codes_get(handle, "Ni") * eccodes.codes_get(handle, "Nj")
        if sample == GRIB2:
            eccodes.codes_set(handle, "numberOfDataPoints", n)
        values = 200 + 100 * np.random.default_rng(seed).random(n) if values is None else np.asarray(values, "f8")
        if np.isnan(values).any():
            eccodes.codes_set(handle, "bitmapPresent", 1)
            eccodes.codes_set(handle, "missingValue", MISSING)
            values = np.where(np.isnan(values), MISSING, values)
        eccodes.codes_set_values(handle, values.reshape(-1))
        for key, value in (after or {}).items():
            eccodes.codes_set(handle, key, value)
        return bytes(eccodes.codes_get_message(handle))
    finally:
        eccodes.codes_release(handle)


def write(path: Path, messages: Iterable[bytes]) -> Path:
    """Put messages into a file, one behind the other."""
    path.write_bytes(b"".join(messages))
    return path


def fields_of(path: Path) -> list[tuple[int, np.ndarray[Any, Any]]]:
    """Decode all fields of a file with eccodes: where its message begins, and float32 with NaN."""
    found = []
    missing = np.finfo("f4").max
    eccodes.codes_grib_multi_support_on()
    try:
        with path.open("rb") as file:
            while (handle := eccodes.codes_grib_new_from_file(file)) is not None:
                eccodes.codes_set(handle, "missingValue", float(missing))
                values = eccodes.codes_get_double_array(handle, "values").astype("f4")
                values[values == missing] = np.nan
                found.append((eccodes.codes_get_long(handle, "offset"), values))
                eccodes.codes_release(handle)
    finally:
        eccodes.codes_grib_multi_support_off()
    return found


def merged(messages: Iterable[bytes]) -> bytes:
    """Make one message of several fields of GRIB 2: sections 2 to 7 of each, one behind the other."""
    first, *others = messages
    body = first[16:-4] + b"".join(x[16 + 21 : -4] for x in others) + b"7777"
    return first[:8] + (16 + len(body)).to_bytes(8, "big") + body
