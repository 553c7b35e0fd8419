"""A codec by name and configuration, and the protocol of the decoder that undoes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import ManifestError, Remedy
from virtualstack.printable import printable

_MAX_SHOWN_CHARACTERS = 500


def shortened(text: object, /) -> str:
    """Return the text of a configuration for a message, shortened: the writer of the data chose its length."""
    shown = printable(str(text))
    return shown if len(shown) <= _MAX_SHOWN_CHARACTERS else f"{shown[:_MAX_SHOWN_CHARACTERS]}..."


@dataclass(frozen=True, slots=True)
class Codec:
    """Metadata of one codec, hashable.

    Zarr's plain ``bytes`` codec is left out, since the byte order is part of the dtype of the encoding.

    Parameters
    ----------
    name
        Name of the codec as in zarr v3 metadata, such as ``"numcodecs.zlib"`` or ``"vlen-utf8"``.
    configuration
        Its configuration as canonical JSON text (sorted keys, no spaces); use :meth:`of` to write it as arguments.
    """

    name: str
    configuration: str = "{}"

    @classmethod
    def from_config(cls, name: str, /, **configuration: Any) -> Codec:
        """Make the metadata from keyword arguments.

        >>> Codec.from_config("numcodecs.shuffle", elementsize=4)
        Codec(name='numcodecs.shuffle', configuration='{"elementsize":4}')
        """
        try:
            text = json.dumps(configuration, sort_keys=True, separators=(",", ":"), allow_nan=False)
        except ValueError as error:  # JSON may contain 1e400, which is infinite
            raise ManifestError(
                f"codec '{shortened(name)}' has the configuration {shortened(repr(configuration))}, "
                f"which is not JSON: {error}"
            ) from error
        return cls(name, text)

    @classmethod
    def from_json(cls, data: str | Mapping[str, Any], /) -> Codec:
        """Read one element of ``codecs`` in zarr v3 array metadata."""
        if isinstance(data, str):
            return cls(data)
        if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
            raise ManifestError(
                f"codec metadata {shortened(repr(data))} has no name; zarr v3 asks for a name or {{'name': ...}}"
            )
        return cls.from_config(data["name"], **dict(data.get("configuration") or {}))

    def to_json(self) -> dict[str, Any]:
        """Return the element of ``codecs`` in zarr v3 array metadata; a new object each time."""
        return {"name": self.name, "configuration": self.options()}

    def options(self) -> dict[str, Any]:
        """Return the configuration as a new dict."""
        value: dict[str, Any] = json.loads(self.configuration)
        return value


type BytesLike = bytes | memoryview | NDArray[np.uint8]


class CodecError(ValueError):
    """Stored bytes do not decode; the caller knows of which chunk."""

    remedy = Remedy("the source is damaged or is not the one that was indexed: restore it or scan it again")
    """What helps."""


class BytesDecoder(Protocol):
    """Undoes one codec.

    ``size`` is the exact number of bytes to decode to, or ``None`` if it is not known. ``limit`` is the maximum.
    """

    def __call__(self, raw: BytesLike, size: int | None, limit: int, /) -> BytesLike:
        """Return the decoded bytes."""


def raw_bytes(data: Any, /) -> NDArray[np.uint8]:
    """View any buffer as bytes, without a copy."""
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return np.frombuffer(data, np.uint8)


def check_size(what: str, found: int, size: int | None, limit: int, /) -> None:
    """Compare the decoded size that stored bytes claim with the expected size."""
    if found > limit:
        raise CodecError(f"{what} says that it holds {found} bytes; {limit} are expected at most")
    if size is not None and found != size:
        raise CodecError(f"{what} says that it holds {found} bytes; {size} are expected")


_LAST_CHARACTER = 0x10FFFF


def check_text(values: NDArray[Any], /) -> NDArray[Any]:
    """Return values viewed in stored bytes after a check of their text: numpy crashes on numbers beyond Unicode."""
    dtype = values.dtype
    if dtype.names:
        for name in dtype.names:
            check_text(values[name])
    elif dtype.kind == "U" and dtype.itemsize and values.size:
        numbers = np.ascontiguousarray(values).reshape(-1).view(np.dtype(np.uint32).newbyteorder(dtype.byteorder))
        if (largest := int(numbers.max())) > _LAST_CHARACTER:
            raise CodecError(f"text of dtype '{dtype}' holds the number {largest:#x}, which is not a character")
    return values
