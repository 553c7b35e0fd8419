"""Convert codecs, dtypes and fill values of zarr v2 metadata to zarr v3, which encodings use, and back."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numcodecs
import numpy as np
from numpy.lib.recfunctions import repack_fields
from numpy.typing import NDArray

from virtualstack.codecs.codec import Codec
from virtualstack.codecs.plugins import find_foreign_plugin, find_plugin
from virtualstack.errors import (
    IN_ANOTHER_WAY,
    Code,
    ManifestError,
    Remedy,
    UnsupportedFeatureError,
    WriterError,
)
from virtualstack.manifests import Fill
from virtualstack.zarr.metadata.array import check_itemsize, malformed

ENCODE_ERRORS = ValueError, TypeError, NotImplementedError, RuntimeError, ImportError
"""Errors of numcodecs' codecs for values that they cannot encode, or if a package that they import is missing."""

_PREFIX = "numcodecs."
_SAME_NAME = "vlen-utf8", "vlen-bytes"
_COMPRESSORS = frozenset({"blosc", "bz2", "gzip", "lz4", "lzma", "pcodec", "zfpy", "zlib", "zstd"})
_BLOSC_SHUFFLE = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}


def codecs_to_zarr2(
    codecs: Sequence[Codec], /, *, variable: str
) -> tuple[list[dict[str, Any]] | None, dict[str, Any] | None]:
    """Return codecs as zarr v2 filters and compressor.

    The last codec becomes the compressor if it is one; all others become filters.

    >>> codecs = [Codec.from_config("numcodecs.shuffle", elementsize=4), Codec.from_config("gzip", level=1)]
    >>> codecs_to_zarr2(codecs, variable="t")
    ([{'id': 'shuffle', 'elementsize': 4}], {'id': 'gzip', 'level': 1})
    """
    _check_shuffles(codecs, variable)
    configs: list[dict[str, Any]] = []
    for codec in codecs:
        plugin = find_plugin(codec.name)
        configs += [_to_zarr2(codec, variable)] if plugin is None else plugin.to_numcodecs(codec)
    compressor = configs.pop() if configs and configs[-1]["id"] in _COMPRESSORS else None
    return configs or None, compressor


def encode_zarr2(
    values: NDArray[Any], filters: Sequence[Mapping[str, Any]] | None, compressor: Mapping[str, Any] | None, /
) -> bytes:
    """Return the stored bytes of a chunk; codecs that cannot encode it raise one of :data:`ENCODE_ERRORS`."""
    data: Any = values
    for config in (*(filters or ()), *([compressor] if compressor else ())):
        data = numcodecs.get_codec(dict(config)).encode(data)
    return data.tobytes() if isinstance(data, np.ndarray) else bytes(data)


def _check_shuffles(codecs: Sequence[Codec], variable: str) -> None:
    """Raise an error if numcodecs' shuffle cannot decode: after a checksum of 4 bytes, elements are not whole."""
    names = [codec.name for codec in codecs]
    for i, codec in enumerate(codecs):
        if codec.name != "numcodecs.shuffle" or "numcodecs.fletcher32" not in names[:i]:
            continue
        width = int(codec.options().get("elementsize", 4))
        if 4 % width:
            raise WriterError(
                f"variable '{variable}' was shuffled in elements of {width} bytes after its checksums (fletcher32), "
                "which readers of kerchunk references cannot decode",
                *IN_ANOTHER_WAY,
                variable=variable,
                feature="shuffle after fletcher32",
            )


def _to_zarr2(codec: Codec, variable: str) -> dict[str, Any]:
    options = codec.options()
    if codec.name.startswith(_PREFIX):
        return {"id": codec.name[len(_PREFIX) :], **options}
    if codec.name in _SAME_NAME:
        return {"id": codec.name}
    match codec.name:
        case "gzip":
            return {"id": "gzip", "level": options.get("level", 1)}
        case "zstd":
            # numcodecs before 0.13 does not know the setting, and decoding does not need it
            checksum = {"checksum": True} if options.get("checksum") else {}
            return {"id": "zstd", "level": options.get("level", 0), **checksum}
        case "blosc":
            return {
                "id": "blosc",
                "cname": options.get("cname", "zstd"),
                "clevel": options.get("clevel", 5),
                "shuffle": _BLOSC_SHUFFLE.get(options.get("shuffle", "noshuffle"), 0),
                "blocksize": options.get("blocksize", 0),
            }
        case "crc32c":
            return {"id": "crc32c", "location": "end"}
    raise WriterError(
        f"variable '{variable}' is stored with the codec '{codec.name}', for which kerchunk references (zarr v2 "
        "metadata) have no name",
        *IN_ANOTHER_WAY,
        variable=variable,
        feature=codec.name,
    )


def codecs_from_zarr2(
    filters: object, compressor: object, /, *, where: str, chunks: tuple[int, ...] = ()
) -> tuple[Codec, ...]:
    """Return codecs in encoding order, for chunks of a shape.

    >>> codecs_from_zarr2(None, {"id": "zlib", "level": 1}, where="t")
    (Codec(name='numcodecs.zlib', configuration='{"level":1}'),)
    """
    if filters is not None and not isinstance(filters, list):
        raise malformed(where, "filters", filters, "a list or null")
    configs = [*(filters or ()), *([] if compressor is None else [compressor])]
    return tuple(_from_zarr2(config, where, chunks) for config in configs)


def _from_zarr2(config: object, where: str, chunks: tuple[int, ...]) -> Codec:
    if not isinstance(config, Mapping) or not isinstance(config.get("id"), str):
        raise malformed(where, "the codec", config, "an object with an 'id'")
    name = config["id"]
    if name in _SAME_NAME:
        return Codec(name)
    try:
        ours = find_foreign_plugin(name)
        if ours is not None and (known := ours.from_numcodecs(config, chunks)) is not None:
            return known
        prefix = _PREFIX if find_plugin(name) is None else ""
        return Codec.from_config(prefix + name, **{key: value for key, value in config.items() if key != "id"})
    except (TypeError, ValueError) as error:
        raise malformed(where, "the codec", config, f"other options: {error}") from error


def dtype_to_zarr2(dtype: np.dtype[Any], /, *, variable: str) -> Any:
    """Return a dtype as zarr v2 writes it; a structured dtype becomes a list of fields.

    >>> dtype_to_zarr2(np.dtype([("a", ">f4"), ("b", "S2")]), variable="t")
    [['a', '>f4'], ['b', '|S2']]
    """
    try:
        if dtype.names is not None and repack_fields(dtype, recurse=True) != dtype:
            raise ValueError("it has gaps between its fields")
        return _of_zarr(dtype).to_json(zarr_format=2)["name"]
    except ValueError as error:
        raise WriterError(
            f"variable '{variable}' has a dtype that zarr v2 metadata cannot express: {dtype} ({error})",
            Remedy("leave the variable out"),
            Remedy("load its values with", loadable_variables=Code("[...]")),
            variable=variable,
            feature=str(dtype),
        ) from error


@lru_cache(maxsize=1024)
def _of_zarr(dtype: np.dtype[Any]) -> Any:
    from zarr.dtype import parse_dtype  # now, since most who read have no use for zarr

    return parse_dtype(dtype, zarr_format=2)


def dtype_from_zarr2(value: object, codecs: tuple[Codec, ...], /, *, where: str) -> np.dtype[Any]:
    """Read ``dtype``; objects are strings if the codecs are codecs of strings."""
    try:
        dtype: np.dtype[Any] = np.dtype(_fields(value) if isinstance(value, list) else value)  # type: ignore[call-overload]
    except (TypeError, ValueError, SyntaxError) as error:
        raise malformed(where, "dtype", value, f"one of numpy: {error}") from error
    if value is None:
        raise malformed(where, "dtype", value, "one of numpy")
    if not dtype.hasobject:
        check_itemsize(dtype, where=where)
        return dtype
    if dtype.kind == "O" and any(codec.name == "vlen-utf8" for codec in codecs[:1]):
        strings: np.dtype[Any] = np.dtypes.StringDType()
        return strings
    first = codecs[0].name if codecs else "no codec"
    raise UnsupportedFeatureError(
        f"'{where}' holds Python objects made by '{first}'; only strings of 'vlen-utf8' can be read",
        Remedy("open its source, and load it with", loadable_variables=Code("[...]")),
        variable=where,
        feature=first,
    )


def _fields(value: list[Any]) -> list[tuple[Any, ...]]:
    fields: list[tuple[Any, ...]] = []
    for field in value:
        if not isinstance(field, list) or len(field) not in (2, 3):
            raise ValueError(f"field {field!r} is not [name, dtype] or [name, dtype, shape]")
        name, dtype, *shape = field
        fields.append((name, _fields(dtype) if isinstance(dtype, list) else dtype, *map(_shape, shape)))
    return fields


def _shape(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def fill_to_zarr2(fill: Fill, stored: np.dtype[Any], /) -> Any:
    """Return a fill value as JSON; structured values become base64 of their bytes in the ``stored`` dtype.

    >>> fill_to_zarr2(Fill.from_value(np.nan, "f4"), np.dtype(">f4"))
    'NaN'
    """
    return _of_zarr(stored).to_json_scalar(fill.value, zarr_format=2)


def fill_from_zarr2(value: Any, stored: np.dtype[Any], /, *, where: str) -> Fill:
    """Read ``fill_value``; null becomes zero (NaT for times), as zarr then reads EMPTY chunks."""
    try:
        with np.errstate(over="ignore"):
            return _fill(value, stored)
    except (ManifestError, ValueError, TypeError, OverflowError, binascii.Error) as error:
        raise malformed(where, "fill_value", value, f"null, or a value of dtype '{stored}': {error}") from error


def _fill(value: Any, stored: np.dtype[Any]) -> Fill:
    if value is None and stored.kind in "Mm":
        value = "NaT"
    if stored.kind == "T" and type(value) is int:
        value = str(value)  # as zarr does: "" would mask true empty strings
    if value is None or (value == 0 and stored.kind in "SUTV" and not isinstance(value, str)):
        return Fill.zero(stored)
    if stored.kind == "V":  # zarr has no arrays in fields
        return Fill.from_value(np.frombuffer(base64.b64decode(value, validate=True), stored), stored)
    if stored.kind == "c" and not isinstance(value, list):
        value = [value, 0]
    try:
        kind = _of_zarr(stored)
    except ValueError:  # numpy has the dtype, and zarr has none for it
        return Fill.from_value(float(value) if stored.kind == "f" else value, stored)
    return Fill.from_value(kind.from_json_scalar(value, zarr_format=2), stored)
