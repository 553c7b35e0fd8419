"""GRIB messages made by eccodes, from its samples."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
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
ABSENT = 1e20


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
    with opened(sample) as handle:
        for key, value in {**GRID, **CORNERS, **(keys or {})}.items():
            eccodes.codes_set(handle, key, value)
        n = eccodes.codes_get(handle, "Ni") * eccodes.codes_get(handle, "Nj")
        if sample == GRIB2:
            eccodes.codes_set(handle, "numberOfDataPoints", n)
        values = 200 + 100 * np.random.default_rng(seed).random(n) if values is None else np.asarray(values, "f8")
        if np.isnan(values).any():
            eccodes.codes_set(handle, "bitmapPresent", 1)
            eccodes.codes_set(handle, "missingValue", ABSENT)
            values = np.where(np.isnan(values), ABSENT, values)
        eccodes.codes_set_values(handle, values.reshape(-1))
        for key, value in (after or {}).items():
            eccodes.codes_set(handle, key, value)
        return bytes(eccodes.codes_get_message(handle))


def edited(origin: bytes | str, keys: Mapping[str, Any] | None = None, /, *, values: Any = None) -> bytes:
    """Set keys, then values, of a message, or of a sample of eccodes that is named."""
    with opened(origin) as handle:
        for key, value in (keys or {}).items():
            set_key = eccodes.codes_set_array if isinstance(value, np.ndarray) else eccodes.codes_set
            set_key(handle, key, value)
        if values is not None:
            eccodes.codes_set_values(handle, np.asarray(values, "f8"))
        return bytes(eccodes.codes_get_message(handle))


@contextmanager
def opened(origin: bytes | str) -> Iterator[int]:
    """Open a message, or a sample of eccodes that is named, as a handle of eccodes."""
    if isinstance(origin, str):
        handle = eccodes.codes_new_from_samples(origin, eccodes.CODES_PRODUCT_GRIB)
    else:
        handle = eccodes.codes_new_from_message(bytes(origin))
    try:
        yield handle
    finally:
        eccodes.codes_release(handle)


def values_of_message(data: bytes) -> np.ndarray[Any, Any]:
    """Decode a message with eccodes to float32."""
    with opened(data) as handle:
        return eccodes.codes_get_double_array(handle, "values").astype("f4")


def points_of(data: bytes) -> list[tuple[float, float, float]]:
    """List latitude, longitude and value of all points, as eccodes goes over them."""
    found = []
    with opened(data) as handle:
        points = eccodes.codes_grib_iterator_new(handle, 0)
        while point := eccodes.codes_grib_iterator_next(points):
            found.append(point)
        eccodes.codes_grib_iterator_delete(points)
    return found


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


def section(message: bytes, kind: int) -> int:
    """Return where a section of a message of GRIB 2 begins."""
    at = 16
    while message[at + 4] != kind:
        at += int.from_bytes(message[at : at + 4], "big")
    return at


def with_data(message: bytes, n: int) -> tuple[bytes, int]:
    """Begin a message of GRIB 2 like another one, with so many bytes of data; give it up to those, and its length."""
    at = section(message, 7)
    length = at + 5 + n + 4
    return message[:8] + length.to_bytes(8, "big") + message[16:at] + (5 + n).to_bytes(4, "big") + b"\7", length


def with_local_section(message: bytes, n: int) -> bytes:
    """Put a section 2 of so many bytes into a message of GRIB 2."""
    body = message[16:37] + (5 + n).to_bytes(4, "big") + b"\2" + bytes(n) + message[37:]
    return message[:8] + (16 + len(body)).to_bytes(8, "big") + body


def noaa_index(offsets: Iterable[int]) -> bytes:
    """Write an index as wgrib2 does; equal offsets in a row are fields of one message."""
    lines, number, part, last = [], 0, 1, -1
    for offset in offsets:
        number, part = (number, part + 1) if offset == last else (number + 1, 1)
        name = f"{number}.{part}" if part > 1 else f"{number}"
        lines.append(f"{name}:{offset}:d=2020010100:TMP:{number} mb:{number} hour fcst:\n")
        last = offset
    return "".join(lines).encode()


_NAMES = {"t": "TMP", "u": "UGRD", "v": "VGRD", "gh": "HGT", "tp": "APCP", "2t": "TMP"}
_LEVELS = {"isobaricInhPa": "{} mb", "surface": "surface", "heightAboveGround": "{} m above ground"}


def index_of(path: Path, kind: str, /) -> Path:
    """Write the index of a file beside it, in the layout of ``wgrib2 -s`` (``.idx``) or of ECMWF (``.index``)."""
    lines, number, last, part = [], 0, -1, 1
    eccodes.codes_grib_multi_support_on()
    with path.open("rb") as file:
        while (handle := eccodes.codes_grib_new_from_file(file)) is not None:
            keys = ("shortName", "typeOfLevel", "level", "dataDate", "dataTime", "stepRange")
            said = {key: eccodes.codes_get(handle, key) for key in keys}
            said |= {key: eccodes.codes_get_long(handle, key) for key in ("offset", "totalLength")}
            said["member"] = eccodes.codes_get(handle, "number") if eccodes.codes_is_defined(handle, "number") else None
            eccodes.codes_release(handle)
            number, part = (number, part + 1) if said["offset"] == last else (number + 1, 1)
            last = said["offset"]
            lines.append((_wgrib2_line if kind == ".idx" else _ecmwf_line)(said, number, part))
    eccodes.codes_grib_multi_support_off()
    numbers = [line.partition(":")[0] for line in lines]
    for i, n in enumerate(numbers):  # the first field of a message of several has a number, too
        if i + 1 < len(numbers) and numbers[i + 1] == f"{n}.2":
            lines[i] = f"{n}.1" + lines[i][len(n) :]
    index = path.with_name(path.name + ".idx") if kind == ".idx" else path.with_suffix(".index")
    index.write_text("".join(line + "\n" for line in lines))
    return index


def _wgrib2_line(said: Mapping[str, Any], number: int, part: int) -> str:
    begin, _, end = str(said["stepRange"]).partition("-")
    step = f"{begin}-{end} hour acc fcst" if end else "anl" if begin == "0" else f"{begin} hour fcst"
    place = f"{number}.{part}" if part > 1 else f"{number}"
    date = f"{said['dataDate']}{said['dataTime'] // 100:02}"
    level = _LEVELS[said["typeOfLevel"]].format(said["level"])
    member = "" if said["member"] is None else f"ENS=+{said['member']}"
    return f"{place}:{said['offset']}:d={date}:{_NAMES[said['shortName']]}:{level}:{step}:{member}"


def _ecmwf_line(said: Mapping[str, Any], number: int, part: int) -> str:
    is_level = said["typeOfLevel"] == "isobaricInhPa"
    line = {"domain": "g", "date": str(said["dataDate"]), "time": f"{said['dataTime']:04}", "expver": "0001"}
    line |= {"class": "od", "type": "fc", "stream": "oper", "step": str(said["stepRange"]).rpartition("-")[2]}
    line |= {"levelist": str(said["level"])} if is_level else {}
    line |= {"number": str(said["member"])} if said["member"] else {}
    line |= {"levtype": "pl" if is_level else "sfc", "param": said["shortName"]}
    return json.dumps(line | {"_offset": said["offset"], "_length": said["totalLength"]})


def write_run(
    folder: Path,
    date: str,
    kind: str,
    /,
    *,
    steps: Iterable[int] = (0, 3, 6),
    members: Iterable[int] = (1, 2),
    levels: Iterable[int] = (500, 850),
    rain: bool = True,
    keys: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write a run of a model at a date such as 2024010106: a file a step, of fields of many lengths, with an index."""
    folder.mkdir(exist_ok=True)
    made, rng = [], np.random.default_rng(int(date))
    time = {**(keys or {}), "dataDate": int(date[:8]), "dataTime": int(date[8:]) * 100}
    for step in steps:
        messages = []
        for member in members:
            own = {"productDefinitionTemplateNumber": 1, **time, "number": member, "step": step}
            for name in "tuv":
                for level in levels:
                    place = {"shortName": name, "typeOfLevel": "isobaricInhPa", "level": level}
                    messages.append((own | place, int(rng.integers(6, 24))))
            if rain and step:
                some = {"productDefinitionTemplateNumber": 11, **time, "number": member, "shortName": "tp"}
                messages.append((some | {"stepRange": f"0-{step}"}, int(rng.integers(6, 24))))
        path = folder / f"model.{date}.f{step:03}.grib2"
        made.append(
            write(path, [message(x | {"bitsPerValue": n}, seed=int(rng.integers(1 << 30))) for x, n in messages])
        )
        if kind in (".idx", ".index"):
            index_of(path, kind)
    return made


def ecmwf_index(places: Iterable[tuple[int, int]]) -> bytes:
    """Write an index as ECMWF's open data have."""
    lines = ({"domain": "g", "param": "t", "_offset": offset, "_length": length} for offset, length in places)
    return "".join(json.dumps(line) + "\n" for line in lines).encode()
