"""What kerchunk's references of HDF4 files say otherwise than the HDF4 specification."""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Iterator
from functools import cache
from typing import Any

import orjson

from virtualstack.errors import MalformedFileError, UnsupportedFeatureError
from virtualstack.storage import Source

__all__ = ["big_endian", "corrected"]

_DRIVER = "HDF4ToZarr"
_IS_PLAIN = "virtualstack_is_plain"
"""An attribute that tells whether values are not compressed, between the driver and `corrected`."""
_AXES = "xyzabcdefghijklmnopqrstuvw"

_FILLS: dict[str, float] = {
    "i1": -127,
    "u1": 255,
    "i2": -32767,
    "u2": 65535,
    "i4": -2147483647,
    "u4": 4294967295,
    "f4": 9.969209968386869e36,
    "f8": 9.969209968386869e36,
}
"""What the library reads where nothing was written, by type; mfhdf.h of HDF4."""

_NUMBER_TYPE = 106
_BIG_ENDIAN = 1
_MAX_BLOCKS = 1 << 16


@cache
def big_endian(module: str, /) -> Any:
    """Return a copy of kerchunk's module for HDF4 in which floating-point numbers are big-endian, as they are stored.

    Kerchunk 0.2.10 takes those of values and attributes for numbers of the machine, and fails on variables that have
    no length or are not compressed. The module itself stays as it is.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named '{module}'")
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    kinds = getattr(copy, "dtypes", {})
    kinds.update({code: f">{kind}" for code, kind in kinds.items() if kind in ("f4", "f8")})
    if hasattr(copy, _DRIVER):
        _mend(getattr(copy, _DRIVER))
    return copy


def _mend(driver: Any) -> None:
    """Let a driver find variables as the file has them, without the lengths of dimensions and what makes it fail."""
    descend = driver._descend_vg

    def mended(self: Any, tag: str, ref: int) -> dict[str, Any]:
        group = self.tags[tag, ref]
        members = [
            ((kind, number), self.tags[kind, number]) for kind, number in zip(group["tag"], group["refs"], strict=True)
        ]
        for (kind, _), member in members:
            if kind == "SD" and "data" not in member:  # values that are neither compressed nor in chunks
                member["data"] = "", member["offset"], member["length"]
        found: dict[str, Any] = descend(self, tag, ref)
        for (kind, _), member in members:
            if kind == "VG" and not isinstance(found.get(member["name"]), dict):
                found.pop(member["name"], None)  # the length of a dimension, which is no attribute
        if "dims" in found and "dtype" in found:
            found["chunks"] = [max(n, 1) for n in found.get("chunks", found["dims"])]
            found[_IS_PLAIN] = not any(reference[3:] not in ([], [""]) for reference in found.get("refs", []))
        return found

    driver._descend_vg = mended


def corrected(references: dict[str, Any], source: Source, /) -> dict[str, Any]:
    """Give references that read as the specification has it.

    The value 0 is not missing, unless ``_FillValue`` says so; all of a variable without values is. Each axis has a
    name. What the driver itself adds is no attribute.

    Raises
    ------
    UnsupportedFeatureError
        Some numbers of the file are stored in another byte order, and references do not say which.
    MalformedFileError
        The list of what the file holds is damaged.
    """
    url = source.location.url
    if any(order != _BIG_ENDIAN for order in _byte_orders(source)):
        raise UnsupportedFeatureError(
            f"'{url}' has numbers that are not big-endian, and kerchunk's references do not say which: "
            "convert it with h4toh5",
            url=url,
            feature="byte order of HDF4 numbers",
        )
    references = {**references, "refs": dict(references["refs"])} if "refs" in references else dict(references)
    refs = references.get("refs", references)
    for key in [key for key in refs if key.endswith("/.zarray") or key == ".zarray"]:
        array = dict(refs[key] if isinstance(refs[key], dict) else orjson.loads(refs[key]))
        array["fill_value"] = None
        at = f"{key.removesuffix('.zarray')}.zattrs"
        attributes = dict(refs[at] if isinstance(refs[at], dict) else orjson.loads(refs[at]))
        attributes.pop("chunks", None)
        if attributes.pop(_IS_PLAIN, False):
            array["compressor"] = None
        begin, name = key.removesuffix(".zarray"), key.rpartition("/")[0].rpartition("/")[2]
        if 0 not in array["shape"] and not any(
            x.startswith(begin) and x not in (key, at) for x in refs
        ):  # no values were written
            array["fill_value"] = attributes.get("_FillValue", _FILLS.get(array["dtype"][-2:]))
        attributes["_ARRAY_DIMENSIONS"] = [f"{name}_{_AXES[axis]}" for axis in range(len(array["shape"]))]
        refs[key], refs[at] = orjson.dumps(array).decode(), orjson.dumps(attributes).decode()
    return references


def _byte_orders(source: Source) -> Iterator[int]:
    """Give the class, which is the byte order, of each type of numbers: HDF4 specification, chapters 2 and 3."""
    at = 4
    for _ in range(_MAX_BLOCKS):
        n, following = struct.unpack(">HI", source.read(at, 6))
        for tag, _, offset, length in struct.iter_unpack(">HHII", source.read(at + 6, 12 * n)):
            if tag == _NUMBER_TYPE and length == 4:
                yield source.read(offset, 4)[3]
        if not following:
            return
        at = following
    raise MalformedFileError(f"the blocks of descriptors of '{source.location.url}' never end", url=source.location.url)
