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

_NUMBER_TYPE = 106
_BIG_ENDIAN = 1
_MOST_BLOCKS = 1 << 16


@cache
def big_endian(module: str, /) -> Any:
    """Give a copy of kerchunk's module for HDF4 in which floating-point numbers are big-endian, as they are stored.

    Kerchunk 0.2.10 takes those of values and attributes for numbers of the machine. The module itself stays as it is.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named '{module}'")
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    kinds = getattr(copy, "dtypes", {})
    kinds.update({code: f">{kind}" for code, kind in kinds.items() if kind in ("f4", "f8")})
    return copy


def corrected(references: dict[str, Any], source: Source, /) -> dict[str, Any]:
    """Give references that read as the specification has it.

    The value 0 is not missing, unless ``_FillValue`` says so.

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
        refs[key] = orjson.dumps(array).decode()
    return references


def _byte_orders(source: Source) -> Iterator[int]:
    """Give the class, which is the byte order, of each type of numbers: HDF4 specification, chapters 2 and 3."""
    at = 4
    for _ in range(_MOST_BLOCKS):
        n, following = struct.unpack(">HI", source.read(at, 6))
        for tag, _, offset, length in struct.iter_unpack(">HHII", source.read(at + 6, 12 * n)):
            if tag == _NUMBER_TYPE and length == 4:
                yield source.read(offset, 4)[3]
        if not following:
            return
        at = following
    raise MalformedFileError(f"the blocks of descriptors of '{source.location.url}' never end", url=source.location.url)
