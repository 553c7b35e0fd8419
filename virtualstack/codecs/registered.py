"""Decoders of other packages that are registered with numcodecs and zarr; the import of zarr takes a while."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import numcodecs.registry
import numpy as np
import zarr.abc.codec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.dtype import parse_dtype
from zarr.errors import UnknownCodecError
from zarr.registry import get_codec_class

from virtualstack.codecs.bounded import CodecError
from virtualstack.codecs.codec import Codec, shortened
from virtualstack.codecs.limits import bounded_plugin, check_bounded, pcodec
from virtualstack.codecs.step import Spec, Step
from virtualstack.errors import MissingDependencyError, UnsupportedFeatureError

# Codecs that need an optional dependency of virtualstack, by the beginning of their name.
_EXTRAS = {
    "imagecodecs": "hdf5",
    "numcodecs.imagecodecs": "hdf5",
    "numcodecs.FITS": "kerchunk",
    "numcodecs.fill_hdf_strings": "kerchunk",
    "numcodecs.record_member": "kerchunk",
}
_UNSAFE = frozenset({"numcodecs.pickle"})
_DTYPES = ("dtype", "astype", "encode_dtype", "decode_dtype")
_MAX_NUMBER_BYTES = 32  # bytes of a number: complex long doubles


def registered_step(codec: Codec, spec: Spec, /) -> Step:
    """Find a codec in the registries."""
    if codec.name in _UNSAFE:
        raise UnsupportedFeatureError(
            f"codec '{codec.name}' runs code that is in the data, so it is never decoded", feature=codec.name
        )
    check_bounded(codec.name.removeprefix("numcodecs."))
    _check_dtypes(codec, spec)
    if codec.name == "numcodecs.pcodec":
        return Step("array-bytes", pcodec(spec.dtype, spec.shape), spec)
    try:
        kind = get_codec_class(codec.name)
    except UnknownCodecError:
        if codec.name.startswith("numcodecs."):
            return numcodecs_step(codec, spec)
        raise _unknown(codec) from None
    return _zarr_step(codec, kind, spec)


def _check_dtypes(codec: Codec, spec: Spec) -> None:
    """Check that a codec does not decode to Python objects, or to much longer values than expected."""
    options = codec.options()
    for name in _DTYPES:
        try:
            dtype = np.dtype(options[name])
        except (KeyError, TypeError, ValueError, SyntaxError):  # another type of option, which the codec checks
            continue
        if dtype.subdtype is not None or dtype.itemsize > max(_MAX_NUMBER_BYTES, spec.dtype.itemsize):
            raise UnsupportedFeatureError(
                f"codec '{codec.name}' has {name} {str(options[name])[:100]!r}, which is longer than values of dtype "
                f"'{spec.dtype}'; it is not decoded",
                feature=codec.name,
            )


def _unknown(codec: Codec) -> MissingDependencyError | UnsupportedFeatureError:
    extra = next((extra for start, extra in _EXTRAS.items() if codec.name.startswith(start)), None)
    package = {"hdf5": "imagecodecs", "kerchunk": "kerchunk"}.get(extra or "", "the package that registers it")
    if extra is not None and find_spec(package) is None:
        return MissingDependencyError(f"codec '{codec.name}'", extra=extra)
    return UnsupportedFeatureError(
        f"codec '{codec.name}' is known to neither zarr nor numcodecs as they are installed: install or upgrade "
        f"{package}",
        feature=codec.name,
    )


def _is_registered(name: str) -> bool:
    """Return whether numcodecs knows a codec; imagecodecs registers its own only when it is asked to."""
    known = numcodecs.registry.codec_registry, numcodecs.registry.entries
    if any(name in table for table in known):
        return True
    if name.startswith("imagecodecs_"):
        try:
            importlib.import_module("imagecodecs.numcodecs").register_codecs(force=False, verbose=False)
        except ImportError:
            return False
    return name in known[0]


def numcodecs_step(codec: Codec, spec: Spec, /) -> Step:
    """Make a step of a numcodecs codec that zarr has no class for; it decodes bytes to a buffer."""
    name = codec.name.removeprefix("numcodecs.")
    if not _is_registered(name):
        raise _unknown(codec)
    options = codec.options()
    try:
        one = {"numthreads": 1} if "numthreads" in options else {}
        decoder = numcodecs.registry.get_codec({**options, **one, "id": name})
    except Exception as error:  # other packages may raise any error
        raise UnsupportedFeatureError(
            f"codec '{codec.name}' does not take the configuration {shortened(codec.configuration)}: "
            f"{shortened(error)}",
            feature=codec.name,
        ) from error

    decode_bounded = bounded_plugin(name, decoder, options, spec.dtype, spec.shape)

    return Step("bytes-bytes", _as_codec_errors(codec.name, decode_bounded), spec)


def _as_codec_errors(name: str, decode: Callable[..., Any]) -> Callable[..., Any]:
    """Turn any error of another package's decoder into a `CodecError`."""

    def decode_or_raise(*arguments: Any) -> Any:
        try:
            return decode(*arguments)
        except CodecError:
            raise
        except Exception as error:  # other packages may raise any error
            raise CodecError(f"codec '{name}' cannot decode it: {type(error).__name__}: {error}") from error

    return decode_or_raise


def _zarr_step(codec: Codec, kind: type[Any], spec: Spec) -> Step:
    try:
        zdtype = parse_dtype(spec.dtype, zarr_format=3)
        array_spec = ArraySpec(
            shape=spec.shape,
            dtype=zdtype,
            fill_value=zdtype.default_scalar(),
            config=ArrayConfig.from_dict({}),
            prototype=default_buffer_prototype(),
        )
        decoder = kind.from_dict(codec.to_json()).evolve_from_array_spec(array_spec)
        encoded = decoder.resolve_metadata(array_spec)
    except Exception as error:  # other packages may raise any error
        raise UnsupportedFeatureError(
            f"codec '{codec.name}' with configuration {shortened(codec.configuration)} does not take arrays of dtype "
            f"'{spec.dtype}': {shortened(error)}",
            feature=codec.name,
        ) from error
    run = _as_codec_errors(codec.name, _runner(decoder, array_spec))
    prototype = array_spec.prototype
    if isinstance(decoder, zarr.abc.codec.BytesBytesCodec):
        return Step("bytes-bytes", lambda raw, *_: run(prototype.buffer.from_bytes(raw)).as_numpy_array(), spec)
    if isinstance(decoder, zarr.abc.codec.ArrayBytesCodec):
        return Step("array-bytes", lambda raw: run(prototype.buffer.from_bytes(raw)).as_numpy_array(), spec)
    stored = codec.options().get("astype")  # zarr's class of quantize does not say that it stores another dtype
    after = Spec(encoded.dtype.to_native_dtype() if stored is None else np.dtype(stored), encoded.shape)
    return Step("array-array", lambda array: run(prototype.nd_buffer.from_numpy_array(array)).as_numpy_array(), after)


def _runner(decoder: Any, spec: ArraySpec) -> Callable[[Any], Any]:
    """Return a function that calls a codec synchronously, or in an event loop in a separate thread."""
    if hasattr(decoder, "_decode_sync") and getattr(decoder, "_sync_capable", True):
        return lambda data: decoder._decode_sync(data, spec)

    def run(data: Any) -> Any:
        async def decode() -> Any:
            return next(iter(await decoder.decode([(data, spec)])))

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: asyncio.run(decode())).result()

    return run
