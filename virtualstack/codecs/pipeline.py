"""The pipeline that decodes the stored bytes of one chunk to its values."""

from __future__ import annotations

import importlib
import lzma
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numcodecs.vlen import VLenBytes, VLenUTF8
from numpy.typing import NDArray

from virtualstack.codecs.bounded import (
    INFLATE_ERRORS,
    INTO,
    BytesDecoder,
    CodecError,
    bounded_decoder,
    encoded_size,
    raw_bytes,
)
from virtualstack.codecs.cast import CAST, cast_dtypes, cast_numbers
from virtualstack.codecs.cf import CF, parse_packing
from virtualstack.codecs.codec import Codec, check_text, shortened
from virtualstack.codecs.plugins import ArrayPlugin, find_plugin
from virtualstack.codecs.shards import SHARDS, shard_decoder
from virtualstack.codecs.step import Spec, Step
from virtualstack.errors import UnsupportedFeatureError

__all__ = [
    "CodecError",
    "Decoder",
    "Elementwise",
    "codec_names",
    "decode",
    "make_decoder",
    "n_array_codecs",
    "split_elementwise",
    "stored_dtype",
]

_MAX_STRINGS_BYTES = 1 << 30
"""Bytes that a chunk of strings may decode to if its size is not known."""

# Errors that decoders raise on bytes that they cannot read. imagecodecs and numcodecs raise RuntimeError or ValueError,
# bz2 raises OSError. `registered` wraps decoders of other packages. MemoryError is not listed, since sizes are checked
# beforehand.
_RAISED: tuple[type[Exception], ...] = (
    *INFLATE_ERRORS,
    lzma.LZMAError,
    struct.error,
    ValueError,
    RuntimeError,
    OSError,
    EOFError,
    ArithmeticError,
)


def decode(
    raw: bytes | memoryview, codecs: tuple[Codec, ...], dtype: np.dtype[Any], shape: tuple[int, ...], /
) -> NDArray[Any]:
    r"""Decode one chunk.

    Examples
    --------
    >>> decode(b"\x00\x01\x00\x02", (), np.dtype(">i2"), (2,))
    array([1, 2], dtype='>i2')
    """
    return make_decoder(codecs, dtype, shape)(raw)


def codec_names(codecs: tuple[Codec, ...], /) -> tuple[str, ...]:
    """Return short names of codecs: without casts and the name of their package, and ``"packed"`` for CF packing.

    >>> codec_names((Codec("virtualstack.cf"), Codec("numcodecs.shuffle"), Codec("numcodecs.zlib")))
    ('packed', 'shuffle', 'zlib')
    """
    names = ("packed" if codec.name == CF else codec.name for codec in codecs if codec.name != CAST)
    return tuple(shortened(name.removeprefix("numcodecs.").removeprefix("virtualstack.")) for name in names)


def n_array_codecs(codecs: tuple[Codec, ...], dtype: np.dtype[Any], shape: tuple[int, ...], /) -> tuple[int, bool]:
    """Return the number of leading array-to-array codecs, and whether the next codec turns an array into bytes.

    If it does not, zarr's plain ``bytes`` codec is implied.
    """
    chain = make_decoder(codecs, dtype, shape)
    return len(chain.of_arrays), len(chain.of_arrays) + len(chain.to_bytes) < len(codecs)


class Elementwise(NamedTuple):
    """The leading codecs that turn each stored number into one value, and the codecs after them."""

    steps: tuple[Callable[[NDArray[Any]], NDArray[Any]], ...]
    stored: np.dtype[Any]
    codecs: tuple[Codec, ...]

    def __call__(self, numbers: NDArray[Any], /) -> NDArray[Any]:
        """Decode stored numbers of any shape."""
        for step in self.steps:
            numbers = step(numbers)
        return numbers


@lru_cache(maxsize=4096)
def split_elementwise(codecs: tuple[Codec, ...], dtype: np.dtype[Any], /) -> Elementwise:
    """Separate the leading codecs that cast or unpack each value from all others."""
    n = next((i for i, codec in enumerate(codecs) if not _is_elementwise(codec)), len(codecs))
    if not n:
        return Elementwise((), dtype, codecs)
    chain = make_decoder(codecs[:n], dtype, ())
    return Elementwise(chain.of_arrays, chain.stored, codecs[n:])


def _is_elementwise(codec: Codec) -> bool:
    return codec.name == CF or (codec.name == CAST and cast_dtypes(codec) is not None)


def stored_dtype(codecs: tuple[Codec, ...], dtype: np.dtype[Any], shape: tuple[int, ...], /) -> np.dtype[Any]:
    """Return the dtype, byte order included, that values have before they become bytes.

    This is the dtype of the decoded chunk, unless codecs cast or unpack.
    """
    return make_decoder(codecs, dtype, shape).stored


@dataclass(frozen=True, slots=True, eq=False)
class Decoder:
    """All steps of decoding, in decoding order; ``stored`` is the dtype before the steps of arrays.

    If ``takes_out``, the last step of bytes takes an array to write to.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    stored: np.dtype[Any]
    to_bytes: tuple[Callable[..., Any], ...]
    to_array: Callable[[Any], NDArray[Any]]
    of_arrays: tuple[Callable[[NDArray[Any]], NDArray[Any]], ...]
    takes_out: bool

    def __call__(self, raw: bytes | memoryview, out: NDArray[np.uint8] | None = None, /) -> NDArray[Any]:
        """Decode one chunk; see :func:`decode`. The result may be in ``out``, the bytes of an array."""
        try:
            return self._decode(raw, out)
        except CodecError:
            raise
        except _RAISED as error:
            raise CodecError(f"{type(error).__name__}: {error}") from error

    def _decode(self, data: Any, out: NDArray[np.uint8] | None) -> NDArray[Any]:
        for step in self.to_bytes[: -1 if self.takes_out else None]:
            data = step(data)
        if self.takes_out:
            data = self.to_bytes[-1](data, out)
        array = self.to_array(data)
        for turn in self.of_arrays:
            array = turn(array)
        if array.dtype != self.dtype:
            if array.dtype.newbyteorder("=") != self.dtype.newbyteorder("="):
                raise CodecError(f"the chunk decodes to dtype '{array.dtype}'; '{self.dtype}' is expected")
            array = array.astype(self.dtype)
        if array.size != math.prod(self.shape):
            raise CodecError(f"the chunk decodes to {array.size} elements; {math.prod(self.shape)} are expected")
        # reshape afterwards, since ascontiguousarray turns a scalar into one axis
        return array if array.flags.c_contiguous and array.shape == self.shape else _contiguous(array, self.shape)


def _contiguous(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    return np.ascontiguousarray(array).reshape(shape)


@lru_cache(maxsize=4096)
def make_decoder(codecs: tuple[Codec, ...], dtype: np.dtype[Any], shape: tuple[int, ...], /) -> Decoder:
    """Make a chain of the decoders of all codecs, each with the size that its output must have."""
    spec = Spec(dtype, shape)
    of_arrays: list[Callable[[Any], Any]] = []
    to_bytes: list[Callable[..., Any]] = []
    to_array: Callable[[Any], Any] | None = None
    size: int | None = None
    limit = 0
    for codec in codecs:
        bounded = bounded_decoder(codec)
        step = _step(codec, spec) if bounded is None else Step("bytes-bytes", bounded, spec)
        if step.kind != "bytes-bytes":
            if to_array is not None:
                raise UnsupportedFeatureError(
                    f"codec '{codec.name}' takes arrays, but the one before it gave bytes", feature=codec.name
                )
            if step.kind == "array-array":
                of_arrays.append(step.decode)
                spec = step.encoded
            else:
                to_array, size, limit = step.decode, None, max(2 * _n_bytes(spec), _MAX_STRINGS_BYTES)
                if codec.name == "bytes":
                    size = limit = _n_bytes(spec)
            continue
        if to_array is None:
            to_array, size, limit = _plain(spec)
        to_bytes.append(_limited(step.decode, size, limit))
        size, limit = encoded_size(codec, size, limit)
    if to_array is None:
        to_array, size, limit = _plain(spec)
    takes_out = bool(to_bytes) and codecs[-len(to_bytes)].name in INTO
    steps = tuple(reversed(to_bytes)), to_array, tuple(reversed(of_arrays))
    return Decoder(dtype, shape, spec.dtype, *steps, takes_out)


def _limited(decoder: BytesDecoder, size: int | None, limit: int) -> Callable[..., Any]:
    return lambda raw, *out: decoder(raw, size, limit, *out)


def _n_bytes(spec: Spec) -> int:
    return math.prod(spec.shape) * spec.dtype.itemsize


def _plain(spec: Spec) -> tuple[Callable[[Any], Any], int, int]:
    """Return the decoder of zarr's plain ``bytes`` codec."""
    dtype, shape = spec.dtype, spec.shape
    if dtype.hasobject:
        raise UnsupportedFeatureError(
            f"values of dtype '{dtype}' have no plain bytes; a codec such as 'vlen-utf8' has to make them",
            feature=str(dtype),
        )
    size = _n_bytes(spec)

    def to_array(data: Any) -> NDArray[Any]:
        view = raw_bytes(data)
        if view.size != size:
            raise CodecError(f"the chunk decodes to {view.size} bytes; {shape} of '{dtype}' are {size}")
        if dtype.kind == "b":
            return np.asarray(view != 0).reshape(shape)
        return check_text(view.view(dtype).reshape(shape)) if size else np.ndarray(shape, dtype)

    return to_array, size, size


def _step(codec: Codec, spec: Spec) -> Step:
    if codec.name == "transpose":
        return _transpose(codec, spec)
    if codec.name == "bytes":
        return _bytes(codec, spec)
    if codec.name in ("vlen-utf8", "vlen-bytes", "numcodecs.vlen-utf8", "numcodecs.vlen-bytes"):
        return _variable(VLenUTF8() if codec.name.endswith("utf8") else VLenBytes(), spec)
    if codec.name == SHARDS:
        return Step("array-bytes", shard_decoder(codec, spec.dtype, spec.shape, make_decoder), spec)
    if codec.name == CF:
        return _unpack(codec, spec)
    if codec.name == CAST and (dtypes := cast_dtypes(codec)) and dtypes[1] == spec.dtype:
        return Step("array-array", lambda array: cast_numbers(array, spec.dtype), Spec(dtypes[0], spec.shape))
    plugin = find_plugin(codec.name)
    if plugin is not None and issubclass(plugin, ArrayPlugin):
        return Step("array-bytes", plugin.decoder(codec.options(), spec.shape), spec)
    step: Step = importlib.import_module("virtualstack.codecs.registered").registered_step(codec, spec)
    return step


def _unpack(codec: Codec, spec: Spec) -> Step:
    try:
        packing = parse_packing(codec)
        if isinstance(spec.dtype, np.dtypes.StringDType) or packing.dtype != spec.dtype.newbyteorder("="):
            raise ValueError(f"it gives values of '{packing.dtype}', not '{spec.dtype}'")
    except ValueError as error:
        raise UnsupportedFeatureError(f"codec '{CF}' cannot unpack: {error}", feature=CF) from error
    return Step("array-array", packing, Spec(packing.stored, spec.shape))


def _transpose(codec: Codec, spec: Spec) -> Step:
    order = codec.options().get("order")
    if not isinstance(order, list) or sorted(order) != list(range(len(spec.shape))):
        raise UnsupportedFeatureError(
            f"codec 'transpose' has order {order!r}; expected a permutation of {len(spec.shape)} axes",
            feature="transpose",
        )
    inverse = [order.index(i) for i in range(len(order))]
    encoded = Spec(spec.dtype, tuple(spec.shape[i] for i in order))
    return Step("array-array", lambda array: array.transpose(inverse), encoded)


def _bytes(codec: Codec, spec: Spec) -> Step:
    """Read zarr's plain ``bytes`` codec if it is listed explicitly; its byte order takes precedence."""
    endian = codec.options().get("endian")
    dtype = spec.dtype
    if endian is not None and not isinstance(dtype, np.dtypes.StringDType):
        dtype = dtype.newbyteorder(">" if endian == "big" else "<")
    return Step("array-bytes", _plain(Spec(dtype, spec.shape))[0], spec)


def _variable(decoder: Any, spec: Spec) -> Step:
    n = math.prod(spec.shape)

    def decode(data: Any) -> NDArray[Any]:
        view = raw_bytes(data)
        # numcodecs vlen header: the number of items, 4 bytes
        found = int.from_bytes(view[:4].tobytes(), "little")
        if view.size < 4 or found != n:
            raise CodecError(f"the chunk says that it holds {found} strings; {n} are expected")
        if view.size < 4 * (n + 1):  # each string follows its length
            raise CodecError(f"the chunk says that it holds {n} strings, and has {view.size} bytes")
        values = decoder.decode(view) if n else np.zeros(0, object)
        return values.astype(spec.dtype, copy=False).reshape(spec.shape)

    return Step("array-bytes", decode, spec)
