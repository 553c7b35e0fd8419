"""netCDF-3 files for tests: usual ones by the netCDF library, odd ones byte by byte.

``python tests/data/make_netcdf3.py FOLDER`` writes all of them.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np

FORMATS = {1: "NETCDF3_CLASSIC", 2: "NETCDF3_64BIT_OFFSET", 5: "NETCDF3_64BIT_DATA"}
CLASSIC_TYPES = ("i1", "S1", "i2", "i4", "f4", "f8")
TYPES = (*CLASSIC_TYPES, "u1", "u2", "u4", "i8", "u8")
BUILDERS: dict[str, Callable[[Path], None]] = {}


def make(name: str, folder: Path) -> Path:
    """Write a file of `BUILDERS` into a folder."""
    path = folder / f"{name}.nc"
    BUILDERS[name](path)
    return path


def numbered(shape: Sequence[int], dtype: str, start: int = 1) -> np.ndarray:
    """Give values that differ, of any type."""
    values = start + np.arange(np.prod(shape, dtype=int)).reshape(shape)
    return (values % 26 + 97).astype("u1").view("S1") if dtype == "S1" else values.astype(dtype)


# -- files of the netCDF library ------------------------------------------------------------------------------


def for_each_version(build: Callable[[Path, int], None]) -> Callable[[Path, int], None]:
    for version in FORMATS:
        BUILDERS[f"{build.__name__}_{version}"] = lambda path, version=version: build(path, version)
    return build


def new(path: Path, version: int, **dims: int | None) -> netCDF4.Dataset:
    file = netCDF4.Dataset(path, "w", format=FORMATS[version])
    file.set_auto_maskandscale(False)
    for name, n in dims.items():
        file.createDimension(name, n)
    return file


def types_of(version: int) -> tuple[str, ...]:
    return TYPES if version == 5 else CLASSIC_TYPES


@for_each_version
def usual(path: Path, version: int) -> None:
    """Coordinates, packed values, text, fixed and record variables of every type with odd row lengths."""
    with new(path, version, time=None, y=5, x=7, strlen=6, unused=11) as file:
        file.setncatts({"title": "a file", "Conventions": "CF-1.8", "n": np.int16(3), "empty": "", "unit": "m²"})
        time = file.createVariable("time", "f8", ("time",))
        time.setncatts({"units": "days since 2001-01-01", "calendar": "standard"})
        time[:] = np.arange(4) + 0.5
        file.createVariable("y", "f4", ("y",))[:] = np.arange(5) / 4
        file.createVariable("x", "i4", ("x",))[:] = np.arange(7)
        packed = file.createVariable("packed", "i2", ("time", "y", "x"), fill_value=np.int16(-99))
        packed.setncatts({"scale_factor": 0.25, "add_offset": np.float32(10), "valid_range": np.array([-9, 900], "i2")})
        packed[:] = numbered((4, 5, 7), "i2")
        packed[1, 2, 3] = -99
        station = file.createVariable("station", "S1", ("y", "strlen"))
        station[:] = np.array([list(f"{name:6}") for name in ("a", "bc", "def", "ghij", "klmno")], "S1")
        file.createVariable("crs", "i4", ())[...] = 7
        for dtype in types_of(version):
            for name, dims in {"fixed": ("x",), "record": ("time", "x"), "series": ("time",)}.items():
                variable = file.createVariable(f"{name}_{dtype}", dtype, dims)
                variable.coordinates = "time"
                variable[:] = numbered([{"time": 4, "x": 7}[dim] for dim in dims], dtype)


@for_each_version
def one_record_variable(path: Path, version: int) -> None:
    """Only one variable has records: of three bytes each, without padding."""
    with new(path, version, time=None, x=3) as file:
        file.createVariable("fixed", "i1", ("x",))[:] = [1, 2, 3]
        file.createVariable("v", "i1", ("time", "x"))[:] = numbered((7, 3), "i1")


def _one_record_variable_of(path: Path, version: int, dtype: str) -> None:
    with new(path, version, time=None, x=5) as file:
        file.createVariable("v", dtype, ("time", "x"))[:] = numbered((9, 5), dtype)


for _version in FORMATS:
    for _dtype in types_of(_version):
        BUILDERS[f"one_record_variable_{_version}_{_dtype}"] = lambda path, version=_version, dtype=_dtype: (
            _one_record_variable_of(path, version, dtype)
        )


@for_each_version
def no_records(path: Path, version: int) -> None:
    """The record dimension is empty."""
    with new(path, version, time=None, x=3) as file:
        file.createVariable("time", "f8", ("time",)).units = "days since 2001-01-01"
        file.createVariable("v", "i2", ("time", "x"))
        file.createVariable("x", "f4", ("x",))[:] = [1, 2, 3]


@for_each_version
def nothing(path: Path, version: int) -> None:
    """All lists are absent."""
    new(path, version).close()


@for_each_version
def fills(path: Path, version: int) -> None:
    """Values that were never written: the library filled them in."""
    with new(path, version, time=None, x=3) as file:
        for dtype in types_of(version):
            file.createVariable(f"default_{dtype}", dtype, ("time", "x"))
            own = b"x" if dtype == "S1" else 9
            file.createVariable(f"own_{dtype}", dtype, ("time", "x"), fill_value=own)
        file.createVariable("last", "i1", ("time",))[:] = [1, 2, 3]


@for_each_version
def names(path: Path, version: int) -> None:
    """Not ASCII, of lengths that are padded by 0 to 3 bytes, and one that was renamed in place."""
    with new(path, version, x=2, ydim=3) as file:
        for i, name in enumerate(("a", "bc", "température", "日本語", "a b+c@d", "long name of a variable")):
            variable = file.createVariable(name, "i2", ("x",))
            variable[:] = [i, i + 1]
            variable.setncatts({"größe": np.float32(i), "d'un été": "été"})
    with netCDF4.Dataset(path, "a") as file:
        file.renameVariable("long name of a variable", "short")
        file.renameDimension("ydim", "y")


@for_each_version
def attributes(path: Path, version: int) -> None:
    """Every type, with none, one and many values."""
    with new(path, version, x=2) as file:
        variable = file.createVariable("v", "f4", ("x",))
        variable[:] = [1, 2]
        for owner in (file, variable):
            for dtype in types_of(version):
                if dtype != "S1":
                    owner.setncatts({f"{dtype}_{n}": numbered((n,), dtype) for n in (1, 2, 3, 5)})
            owner.setncatts({"text": "two\nlines", "blank": " ", "empty": ""})


@for_each_version
def large(path: Path, version: int) -> None:
    """More than one chunk of some KiB: fixed and record variables, with lengths that are prime or not."""
    with new(path, version, time=None, n=360, prime=101, x=50) as file:
        file.createVariable("even", "f4", ("n", "x"))[:] = numbered((360, 50), "f4")
        file.createVariable("odd", "i2", ("prime", "x"))[:] = numbered((101, 50), "i2")
        file.createVariable("deep", "i1", ("prime", "n", "x"))[:] = numbered((101, 360, 50), "i4").astype("i1")
        file.createVariable("record", "f8", ("time", "n", "x"))[:] = numbered((3, 360, 50), "f8")
        file.createVariable("other", "i2", ("time",))[:] = [1, 2, 3]


# -- files byte by byte ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RawVariable:
    """A variable as it is written; ``values`` of all records where the first dimension is the record dimension."""

    name: str
    dims: tuple[int, ...]
    values: np.ndarray
    attributes: Mapping[str, Any] = field(default_factory=dict)
    vsize: int | None = None


def encode(
    version: int,
    dims: Mapping[str, int],
    variables: Sequence[RawVariable],
    *,
    attributes: Mapping[str, Any] | None = None,
    n_records: int | None = None,
    streaming: bool = False,
    gap: int = 0,
    pads_end: bool = True,
) -> bytes:
    """Write a file after the specification of the format.

    ``gap``: bytes between header and data. ``pads_end``: whether the last slab has its padding.
    """
    count, offset = (">Q" if version == 5 else ">I"), (">i" if version == 1 else ">q")
    lengths = list(dims.values())
    is_record = [bool(v.dims) and lengths[v.dims[0]] == 0 for v in variables]
    slabs = [
        bytes(v.values.itemsize * math.prod(v.values.shape[1:])) if r else v.values.tobytes()
        for v, r in zip(variables, is_record, strict=True)
    ]

    def number(n: int) -> bytes:
        return struct.pack(count, n)

    def text(name: str) -> bytes:
        raw = name.encode()
        return number(len(raw)) + _pad(raw)

    def listed(tag: int, items: Sequence[bytes]) -> bytes:
        return struct.pack(">I", tag if items else 0) + number(len(items)) + b"".join(items)

    def attribute_list(values: Mapping[str, Any]) -> bytes:
        found = []
        for name, value in values.items():
            array = np.frombuffer(value.encode(), "S1") if isinstance(value, str) else np.atleast_1d(value)
            raw = array.astype(array.dtype.newbyteorder(">")).tobytes()
            found.append(text(name) + _type(array.dtype) + number(array.size) + _pad(raw))
        return listed(12, found)

    def header(begins: Sequence[int]) -> bytes:
        found = []
        for variable, slab, begin in zip(variables, slabs, begins, strict=True):
            vsize = len(_pad(slab)) if variable.vsize is None else variable.vsize
            found.append(
                text(variable.name)
                + number(len(variable.dims))
                + b"".join(map(number, variable.dims))
                + attribute_list(variable.attributes)
                + _type(variable.values.dtype)
                + number(min(vsize, 2 ** (8 * struct.calcsize(count)) - 1))
                + struct.pack(offset, begin)
            )
        n = 2 ** (8 * struct.calcsize(count)) - 1 if streaming else n_records or 0
        dim_list = listed(10, [text(name) + number(length) for name, length in dims.items()])
        return b"CDF" + bytes([version]) + number(n) + dim_list + attribute_list(attributes or {}) + listed(11, found)

    begins, at = [0] * len(variables), len(header([0] * len(variables))) + gap
    for wanted in (False, True):
        for i, slab in enumerate(slabs):
            if is_record[i] == wanted:
                begins[i], at = at, at + len(_pad(slab))
    data = [_pad(slab) for slab, r in zip(slabs, is_record, strict=True) if not r]
    records = [v for v, r in zip(variables, is_record, strict=True) if r]
    last = b""
    for i in range(n_records or 0):
        for variable in records:
            last = variable.values[i].tobytes()
            data.append(last if len(records) == 1 else _pad(last))
    if data and not pads_end:
        data[-1] = last
    return header(begins) + bytes(gap) + b"".join(data)


def _pad(raw: bytes) -> bytes:
    return raw + bytes(-len(raw) % 4)


def _type(dtype: np.dtype) -> bytes:
    return struct.pack(">I", TYPES.index(dtype.str[1:]) + 1)


def raw_variables(n_records: int) -> list[RawVariable]:
    """Give a fixed variable and two that have records of 6 and 3 bytes."""
    return [
        RawVariable(name="fixed", dims=(1,), values=numbered((3,), "f8").astype(">f8")),
        RawVariable(name="a", dims=(0, 1), values=numbered((n_records, 3), "i2").astype(">i2")),
        RawVariable(name="b", dims=(0, 1), values=numbered((n_records, 3), "i1")),
    ]


def raw(version: int, n_records: int = 4, **options: Any) -> bytes:
    """Encode `raw_variables` on a record dimension ``t`` and a dimension ``x``."""
    return encode(version, {"t": 0, "x": 3}, raw_variables(n_records), n_records=n_records, **options)


if __name__ == "__main__":
    for _name in BUILDERS:
        make(_name, Path(sys.argv[1]))
