"""Codec names: zarr v3 metadata, which encodings hold, and zarr v2 filters and compressor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numcodecs
import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.grib.codec import GRIB
from virtualstack.codecs.hdf5.filters import FILTERS
from virtualstack.codecs.hdf5.names import codec_from_numcodecs, numcodecs_config
from virtualstack.codecs.metadata import Codec
from virtualstack.codecs.tiff.names import numcodecs_configs
from virtualstack.codecs.tiff.settings import TIFF
from virtualstack.errors import MalformedFileError, WriterError

__all__ = ["codecs_from_zarr2", "codecs_to_zarr2", "encode_zarr2"]

_PREFIX = "numcodecs."
_SAME_NAME = "vlen-utf8", "vlen-bytes"
_PLAIN_GRIB = {"id": "grib", "var": "values", "dtype": "float32"}  # kerchunk's codec
_COMPRESSORS = frozenset({"blosc", "bz2", "gzip", "lz4", "lzma", "pcodec", "zfpy", "zlib", "zstd"})
_BLOSC_SHUFFLE = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}


def codecs_to_zarr2(
    codecs: Sequence[Codec], /, *, variable: str
) -> tuple[list[dict[str, Any]] | None, dict[str, Any] | None]:
    """Split codecs into zarr v2 filters and compressor.

    The last codec is the compressor where it is one; else all are filters.

    >>> codecs_to_zarr2([Codec.of("numcodecs.shuffle", elementsize=4), Codec.of("gzip", level=1)], variable="t")
    ([{'id': 'shuffle', 'elementsize': 4}], {'id': 'gzip', 'level': 1})

    Raises
    ------
    WriterError
        A codec has no zarr v2 form.
    """
    _check_shuffles(codecs, variable)
    configs: list[dict[str, Any]] = []
    for codec in codecs:
        configs += numcodecs_configs(codec) if codec.name == TIFF else [_to_zarr2(codec, variable)]
    compressor = configs.pop() if configs and configs[-1]["id"] in _COMPRESSORS else None
    return configs or None, compressor


def encode_zarr2(
    values: NDArray[Any], filters: Sequence[Mapping[str, Any]] | None, compressor: Mapping[str, Any] | None, /
) -> bytes:
    """Give the stored bytes of a chunk; raises what its codecs raise."""
    data: Any = values
    for config in (*(filters or ()), *([compressor] if compressor else ())):
        data = numcodecs.get_codec(dict(config)).encode(data)
    return data.tobytes() if isinstance(data, np.ndarray) else bytes(data)


def _check_shuffles(codecs: Sequence[Codec], variable: str) -> None:
    """Refuse what numcodecs' shuffle does not decode: a checksum of 4 bytes that fills no element."""
    names = [codec.name for codec in codecs]
    for i, codec in enumerate(codecs):
        if codec.name != "numcodecs.shuffle" or "numcodecs.fletcher32" not in names[:i]:
            continue
        width = int(codec.options().get("elementsize", 4))
        if 4 % width:
            raise WriterError(
                f"variable '{variable}' was shuffled by {width} bytes behind its checksums (fletcher32), which "
                "readers of kerchunk references cannot undo; leave it out, or take its values with vds.virtual.open()",
                variable=variable,
                feature="shuffle after fletcher32",
            )


def _to_zarr2(codec: Codec, variable: str) -> dict[str, Any]:
    options = codec.options()
    if codec.name.startswith(_PREFIX):
        return {"id": codec.name[len(_PREFIX) :], **options}
    if codec.name in _SAME_NAME:
        return {"id": codec.name}
    if codec.name in FILTERS:
        return numcodecs_config(codec)
    if codec.name == GRIB:
        return dict(_PLAIN_GRIB) if options.get("plain") else {"id": GRIB, **options}
    match codec.name:
        case "gzip":
            return {"id": "gzip", "level": options.get("level", 1)}
        case "zstd":
            # numcodecs before 0.13 knows no checksum setting, and decoding needs none
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
        f"variable '{variable}' is stored with the codec '{codec.name}', which kerchunk references (zarr v2 metadata) "
        "have no name for; leave the variable out, or take its values with vds.virtual.open()",
        variable=variable,
        feature=codec.name,
    )


def codecs_from_zarr2(
    filters: object, compressor: object, /, *, where: str, chunks: tuple[int, ...] = ()
) -> tuple[Codec, ...]:
    """Give codecs in encoding order, of chunks of a shape.

    >>> codecs_from_zarr2(None, {"id": "zlib", "level": 1}, where="t")
    (Codec(name='numcodecs.zlib', configuration='{"level":1}'),)

    Raises
    ------
    MalformedFileError
        A filter or the compressor is no object with an ``id``.
    """
    if filters is not None and not isinstance(filters, list):
        raise MalformedFileError(f"'{where}' has filters {filters!r}; a list or null is asked for")
    configs = [*(filters or ()), *([] if compressor is None else [compressor])]
    return tuple(_from_zarr2(config, where, chunks) for config in configs)


def _from_zarr2(config: object, where: str, chunks: tuple[int, ...]) -> Codec:
    if not isinstance(config, Mapping) or not isinstance(config.get("id"), str):
        raise MalformedFileError(f"'{where}' has the codec {config!r}; an object with an 'id' is asked for")
    name = config["id"]
    if name in _SAME_NAME:
        return Codec(name)
    if config == _PLAIN_GRIB and chunks:
        return Codec.of(GRIB, row=chunks[-1], plain=True)
    if name in (GRIB, TIFF):
        return Codec.of(name, **{key: value for key, value in config.items() if key != "id"})
    try:
        if (known := codec_from_numcodecs(config)) is not None:
            return known
        prefix = "" if name in FILTERS else _PREFIX
        return Codec.of(prefix + name, **{key: value for key, value in config.items() if key != "id"})
    except (TypeError, ValueError) as error:
        raise MalformedFileError(f"'{where}' has the codec {config!r}: {error}") from error
